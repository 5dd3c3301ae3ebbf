//! The future that writes a node's statuses: new ones, failed ones again, and those that somebody else has overwritten.
//!
//! ```text
//!  new content ──────────────▶ apply at once ──failed──▶ again, less and less often
//!  unchanged, and the watch shows
//!    another status than ours ▶ put back, less and less often, counted
//!    no object ───────────────▶ created again, less and less often
//! ```
//!
//! Only the watch tells which objects exist. The one exception is an object that was just created, until the watch
//! shows it.

use super::drift::{self, Pace};
use super::node::Shared;
use super::publish::{Content, Doc, Kind, WriteError};
use super::rows::Seen;
use host_kit::clock::Mono;
use host_kit::log::Repeats;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// The statuses to publish.
pub(super) type Docs = BTreeMap<Kind, Doc>;

pub(super) struct Publisher {
    node: String,
    shared: Arc<Shared>,
    docs: watch::Receiver<Docs>,
    written: BTreeMap<Kind, Written>,
    retries: BTreeMap<Kind, Retry>,
    paces: BTreeMap<Kind, Pace>,
    made: Made,
    repeats: Repeats,
}

/// What this process has written.
struct Written {
    uid: String,
    status: Value,
    /// The part of it that the server kept.
    stored: Seen,
    /// When it was written.
    at: Mono,
}

/// The NodeHardware that this process created.
#[derive(Default)]
struct Made {
    /// Its name and uid, and until when the watch may not show it yet. After that time, or once the watch has shown it,
    /// only the watch tells whether the object exists.
    unseen: Option<(String, String, Mono)>,
    /// Limits how often it is created again: somebody may delete it each time.
    pace: Pace,
}

/// When to try again, and how often the write has failed.
#[derive(Clone, Copy)]
struct Retry {
    at: Mono,
    failures: u32,
}

/// A watch shows a new object within milliseconds; a busy server takes longer.
const SHOWN_WITHIN: Duration = Duration::from_secs(2);
/// A watch that still shows an object as it was before a write this long ago does not lag: the API was restored to an
/// older state. A watch that hangs is restarted sooner. Where it is not, the status is written once more.
const LAGS_AT_MOST: Duration = Duration::from_secs(15);
const RETRY_FIRST: Duration = Duration::from_millis(500);
const RETRY_MOST: Duration = Duration::from_secs(30);
const REPEAT_WINDOW: Duration = Duration::from_secs(300);

impl Publisher {
    pub(super) fn new(node: &str, shared: Arc<Shared>, docs: watch::Receiver<Docs>) -> Self {
        Self {
            node: node.to_owned(),
            shared,
            docs,
            written: BTreeMap::new(),
            retries: BTreeMap::new(),
            paces: BTreeMap::new(),
            made: Made::default(),
            repeats: Repeats::every(REPEAT_WINDOW),
        }
    }

    pub(super) async fn run(mut self) {
        loop {
            let docs = self.docs.borrow_and_update().clone();
            let mut next: Option<Mono> = None;
            for (kind, doc) in &docs {
                let due = self.retries.get(kind).is_none_or(|retry| retry.at <= self.shared.clock.mono());
                let put_back = if due { self.write(*kind, doc).await } else { None };
                let retry = self.retries.get(kind).map(|retry| retry.at);
                next = [next, put_back, retry].into_iter().flatten().min();
            }
            let now = self.shared.clock.mono();
            let again = async {
                match next {
                    Some(at) => tokio::time::sleep(at.since(now)).await,
                    None => std::future::pending().await,
                }
            };
            // The timer comes first: it is for failed writes, and a steady stream of changes must not delay them.
            tokio::select! {
                biased;
                () = again => {}
                changed = self.docs.changed() => if changed.is_err() { return },
            }
        }
    }

    /// Writes what has to be written now. Returns when an overwritten status may be written again, if that is later.
    async fn write(&mut self, kind: Kind, doc: &Doc) -> Option<Mono> {
        match self.try_write(kind, doc).await {
            Ok(later) => {
                self.retries.remove(&kind);
                later
            }
            // The watch reports a deleted object before it is written to again.
            Err(WriteError::Gone) if doc.object.is_some() => {
                self.retries.remove(&kind);
                None
            }
            Err(error) => {
                let why = match error {
                    WriteError::Gone => "it was gone again at once".to_owned(),
                    WriteError::Failed(why) => why,
                };
                let failures = self.retries.get(&kind).map_or(0, |retry| retry.failures).saturating_add(1);
                let wait = RETRY_FIRST.saturating_mul(1 << (failures - 1).min(10)).min(RETRY_MOST);
                let now = self.shared.clock.mono();
                self.retries.insert(kind, Retry { at: now.plus(wait), failures });
                if let Some(said) = self.repeats.note(&why, now) {
                    tracing::warn!(node = self.node, "{kind:?} could not be written: {why}{said}");
                }
                None
            }
        }
    }

    async fn try_write(&mut self, kind: Kind, doc: &Doc) -> Result<Option<Mono>, WriteError> {
        let (name, uid, look_again) = match (&doc.object, &doc.content) {
            (Some((name, uid)), Content::Outcome(_) | Content::Receipt(..) | Content::Route(_)) => {
                (name.clone(), uid.clone(), None)
            }
            (Some((name, uid)), Content::Hardware { .. }) => {
                self.made.unseen = None;
                (name.clone(), uid.clone(), None)
            }
            (None, Content::Outcome(_) | Content::Receipt(..) | Content::Route(_)) => return Ok(None),
            (None, Content::Hardware { node, .. }) => match self.make(node).await? {
                Ok((name, uid, until)) => (name, uid, Some(until)),
                Err(later) => return Ok(Some(later)),
            },
        };
        let now = self.shared.clock.mono();
        let known = self.written.get(&kind).filter(|written| written.uid == uid);
        let base = known.map_or(&doc.seen.status, |written| &written.status);
        let status = doc.content.status(kind, base, self.shared.clock.wall());
        match (status, known) {
            (Some(status), _) => self.apply(kind, name, uid, status).await.map(|()| look_again),
            (None, Some(written)) if doc.object.is_some() => {
                let lags_until = written.at.plus(LAGS_AT_MOST);
                if drift::stands(&doc.seen, &written.stored, now < lags_until) {
                    let lags = !drift::is_after(&doc.seen.version, &written.stored.version);
                    return Ok(if lags && now < lags_until { Some(lags_until) } else { look_again });
                }
                let status = written.status.clone();
                self.put_back(kind, name, uid, status).await
            }
            (None, Some(_)) => Ok(look_again),
            (None, None) => {
                let (status, stored) = (base.clone(), Seen::clone(&doc.seen));
                self.written.insert(kind, Written { uid, status, stored, at: now });
                Ok(look_again)
            }
        }
    }

    /// The NodeHardware of a node for which the watch shows none: the one that was just created, else a new one.
    /// Returns with it until when the watch may not show it, or else when the object may be created.
    async fn make(
        &mut self,
        node: &(String, String),
    ) -> Result<Result<(String, String, Mono), Mono>, WriteError> {
        let now = self.shared.clock.mono();
        if let Some(unseen) = self.made.unseen.as_ref().filter(|(_, _, until)| now < *until) {
            return Ok(Ok(unseen.clone()));
        }
        if let Some(later) = self.made.pace.wait(now) {
            return Ok(Err(later));
        }
        let (name, uid) = self.shared.writer.make((&node.0, &node.1)).await?;
        self.made.pace.done(now);
        let made = (name, uid, now.plus(SHOWN_WITHIN));
        self.made.unseen = Some(made.clone());
        Ok(Ok(made))
    }

    async fn apply(
        &mut self,
        kind: Kind,
        name: String,
        uid: String,
        status: Value,
    ) -> Result<(), WriteError> {
        match self.shared.writer.apply(kind, &name, &status).await {
            Ok(Seen { version, status: answer }) => {
                let stored = Seen { version, status: drift::kept(&status, &answer) };
                self.written.insert(kind, Written { uid, status, stored, at: self.shared.clock.mono() });
                Ok(())
            }
            Err(error) => {
                if matches!(error, WriteError::Gone) {
                    self.written.remove(&kind);
                    self.made.unseen = self.made.unseen.take().filter(|(_, made, _)| *made != uid);
                }
                Err(error)
            }
        }
    }

    async fn put_back(
        &mut self,
        kind: Kind,
        name: String,
        uid: String,
        status: Value,
    ) -> Result<Option<Mono>, WriteError> {
        let now = self.shared.clock.mono();
        let pace = self.paces.entry(kind).or_default();
        if let Some(later) = pace.wait(now) {
            return Ok(Some(later));
        }
        pace.done(now);
        self.apply(kind, name.clone(), uid, status).await?;
        self.shared.metrics.put_back(kind);
        if let Some(said) = self.repeats.note(&format!("put back {kind:?}"), now) {
            tracing::warn!(
                node = self.node,
                "the status of {kind:?} {name} was overwritten, and is written again{said}"
            );
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests;
