//! Runs a reflector: lists, watches, waits after a failure, and logs what it skipped.
//!
//! ```text
//!   List ──whole──▶ Watch ──ends, is silent, or the server is away──▶ Watch (from where it was)
//!     ▲               │
//!     └── 410 Gone, refused, or the server's versions went back
//! ```
//!
//! Lists come in consistent pages and are not streamed. The server then reads its store, not a cache that may lag: an
//! object that a lagging cache does not have yet would look deleted, and its caps would be released. One page of 500
//! objects is in memory at once. A streamed list would be as consistent, and cheaper for the server, but only servers
//! from 1.34 on support it by default.

use super::feed::{Feed, feed};
use super::object::{Object, ObjectKey, Row};
use super::patience::Patience;
use super::table::{Keep, Rows, Skipped, rows};
use super::{Backoff, jittered};
use crate::clock::HostClock;
use crate::config::parse::show_duration;
use crate::label_set;
use crate::log::Repeats;
use crate::metrics::MetricsRegistry;
use crate::shutdown::Stop;
use futures::TryStreamExt;
use kube::Client;
use kube::api::{ListParams, WatchEvent, WatchParams};
use kube::core::Request;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use serde::Deserialize;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

/// How long a watch is requested for; the server ends it then.
const WATCH_SECONDS: u32 = 290;
const LIST_TIME: Duration = Duration::from_secs(60);
/// Objects per page, the same as client-go requests.
const PAGE: u32 = 500;
/// A watch that ends sooner than this counts as failed, whatever its result, so that a server that ends each watch at
/// once is not asked again without a pause.
const WATCH_MIN: Duration = Duration::from_secs(1);
const REPEAT_WINDOW: Duration = Duration::from_secs(300);

/// What to watch.
#[derive(Clone, Debug)]
pub struct WatchSource {
    /// The collection, as in `/apis/joulie.io/v1alpha1/nodetwins` or `/api/v1/nodes`.
    pub path: String,
    /// Only objects with these labels.
    pub labels: Option<String>,
    /// Only objects with these fields, as in `spec.nodeName=node-a`.
    pub fields: Option<String>,
}

label_set! {
    struct ByKind {
        kind: &'static str,
    }

    struct ByVerb {
        kind: &'static str,
        verb: &'static str,
    }
}

/// The metrics of a program's reflectors.
#[derive(Clone, Debug)]
pub struct Reflections {
    malformed: Family<ByKind, Counter>,
    failures: Family<ByKind, Counter>,
    forbidden: Family<ByVerb, Counter>,
    lists: Family<ByKind, Counter>,
    silences: Family<ByKind, Counter>,
    rows: Family<ByKind, Gauge>,
}

impl Reflections {
    /// Registers them.
    pub fn register(registry: &mut MetricsRegistry) -> Self {
        let all = Self {
            malformed: Family::default(),
            failures: Family::default(),
            forbidden: Family::default(),
            lists: Family::default(),
            silences: Family::default(),
            rows: Family::default(),
        };
        registry.register("joulie_reflector_malformed", "Objects that were skipped", all.malformed.clone());
        registry.register("joulie_reflector_failures", "Lists and watches that failed", all.failures.clone());
        registry.register(
            "joulie_reflector_forbidden",
            "Lists and watches that the role of this program does not allow, by the verb that it lacks",
            all.forbidden.clone(),
        );
        registry.register("joulie_reflector_lists", "Whole lists read", all.lists.clone());
        registry.register(
            "joulie_reflector_silences",
            "Watches that were begun anew because nothing came",
            all.silences.clone(),
        );
        registry.register("joulie_reflector_objects", "Rows held", all.rows.clone());
        all
    }
}

/// Follows `source` until asked to stop. The rows stay after the future has ended, unchanged.
pub fn reflect<R: Row>(
    client: &Client,
    source: WatchSource,
    reflections: &Reflections,
    clock: Arc<dyn HostClock>,
    stop: Stop,
) -> (Rows<R>, impl Future<Output = ()> + Send + 'static) {
    let (writer, rows) = rows();
    (rows, Driver::new(client, source, writer, reflections, clock).run_until(stop))
}

/// As [`reflect`], for a reader that relies on a server that answers being heard within `within`. Less than
/// [`HEARD_WITHIN`](super::HEARD_WITHIN) costs more requests.
pub fn reflect_within<R: Row>(
    client: &Client,
    source: WatchSource,
    within: Duration,
    reflections: &Reflections,
    clock: Arc<dyn HostClock>,
    stop: Stop,
) -> (Rows<R>, impl Future<Output = ()> + Send + 'static) {
    let (writer, rows) = rows();
    let mut driver = Driver::new(client, source, writer, reflections, clock);
    driver.patience = Patience::within(within);
    (rows, driver.run_until(stop))
}

/// Follows `source` and keeps nothing of it: each event goes to the reader of the feed.
pub fn follow<R: Row>(
    client: &Client,
    source: WatchSource,
    reflections: &Reflections,
    clock: Arc<dyn HostClock>,
    stop: Stop,
) -> (Feed<R>, impl Future<Output = ()> + Send + 'static) {
    let (feeder, feed) = feed();
    (feed, Driver::new(client, source, feeder, reflections, clock).run_until(stop))
}

/// The state of a reflector.
enum Phase {
    List,
    Watch { version: String },
}

/// A page of a list.
#[derive(Deserialize)]
#[serde(bound = "R: Row")]
struct Page<R: Row> {
    metadata: PageMeta,
    /// Go writes an empty list as null.
    items: Option<Vec<Object<R>>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PageMeta {
    resource_version: Option<String>,
    #[serde(rename = "continue")]
    next: Option<String>,
}

/// Why a list or a watch ended.
enum Trouble {
    /// The known version is too old to continue from.
    Gone,
    /// The server answers, but not with what was requested: the known version may mean nothing to it.
    Refused(String),
    /// The role of this program does not allow it.
    Forbidden(String),
    /// The server is away or busy.
    Failed(String),
}

impl From<kube::Error> for Trouble {
    fn from(error: kube::Error) -> Self {
        if let kube::Error::Api(status) = &error {
            let why = format!("{} {}", status.code, status.message);
            return match status.code {
                410 => Self::Gone,
                403 => Self::Forbidden(why),
                // A version in the server's future: the server was restored from a backup, or started from scratch.
                504 if status.message.contains("Too large resource version") => Self::Refused(why),
                408 | 429 | 500.. => Self::Failed(why),
                _ => Self::Refused(why),
            };
        }
        Self::Failed(error.to_string())
    }
}

/// Whether earlier failures no longer count. A server that reports a version as too old has recovered from an outage:
/// the reader must not wait once more for as long before it reads what it missed.
fn forgives(trouble: &Trouble, lasted: Duration) -> bool {
    match trouble {
        Trouble::Gone => true,
        Trouble::Refused(_) | Trouble::Forbidden(_) | Trouble::Failed(_) => lasted >= Backoff::MOST,
    }
}

struct Driver<R: Row, K> {
    client: Client,
    source: WatchSource,
    patience: Patience,
    keep: K,
    of: PhantomData<fn() -> R>,
    reflections: Reflections,
    kind: ByKind,
    clock: Arc<dyn HostClock>,
    repeats: Repeats,
}

impl<R: Row, K: Keep<R>> Driver<R, K> {
    fn new(
        client: &Client,
        source: WatchSource,
        keep: K,
        reflections: &Reflections,
        clock: Arc<dyn HostClock>,
    ) -> Self {
        let kind = ByKind { kind: R::KIND };
        drop(reflections.malformed.get_or_create(&kind));
        drop(reflections.failures.get_or_create(&kind));
        drop(reflections.silences.get_or_create(&kind));
        Self {
            client: client.clone(),
            source,
            patience: Patience::USUAL,
            keep,
            of: PhantomData,
            reflections: reflections.clone(),
            kind,
            clock,
            repeats: Repeats::every(REPEAT_WINDOW),
        }
    }

    async fn run_until(self, stop: Stop) {
        // In this order: a stop waits for nothing, and it comes once.
        tokio::select! {
            biased;
            () = stop.requested() => {}
            () = self.run() => {}
        }
    }

    async fn run(mut self) {
        // A list that succeeds says nothing about watches. If a server allows lists but not watches, lists would be
        // requested again and again without a growing pause.
        let (mut lists, mut watches) = (Backoff { failures: 0 }, Backoff { failures: 0 });
        let mut phase = Phase::List;
        loop {
            let began = self.clock.mono();
            let (verb, backoff) = match phase {
                Phase::List => ("list", &mut lists),
                Phase::Watch { .. } => ("watch", &mut watches),
            };
            let (next, trouble) = match phase {
                Phase::List => match self.list().await {
                    Ok(version) => (Phase::Watch { version }, None),
                    Err(trouble) => (Phase::List, Some(trouble)),
                },
                Phase::Watch { mut version } => match self.watch(&mut version).await {
                    Ok(()) => {
                        let short = self.clock.mono().since(began) < WATCH_MIN;
                        let why = short.then(|| Trouble::Failed("the watch ended at once".to_owned()));
                        (Phase::Watch { version }, why)
                    }
                    // If watching is forbidden, a list does not fix that, but it is the only way to get changes.
                    Err(trouble @ (Trouble::Gone | Trouble::Refused(_) | Trouble::Forbidden(_))) => {
                        (Phase::List, Some(trouble))
                    }
                    Err(trouble @ Trouble::Failed(_)) => (Phase::Watch { version }, Some(trouble)),
                },
            };
            match trouble {
                None => backoff.reset(),
                Some(trouble) => {
                    if forgives(&trouble, self.clock.mono().since(began)) {
                        backoff.reset();
                    }
                    let pause = jittered(backoff.next(), &*self.clock);
                    self.complain(verb, &trouble, pause);
                    tokio::time::sleep(pause).await;
                }
            }
            for (what, said) in self.repeats.flush(self.clock.mono()) {
                tracing::warn!(kind = R::KIND, "{what}: repeated{said}");
            }
            phase = next;
        }
    }

    /// Reads everything, page by page; returns the version to watch from.
    async fn list(&mut self) -> Result<String, Trouble> {
        self.keep.begin().await;
        let mut next = None;
        loop {
            let wanted = ListParams {
                label_selector: self.source.labels.clone(),
                field_selector: self.source.fields.clone(),
                limit: Some(PAGE),
                continue_token: next,
                ..ListParams::default()
            };
            let request = Request::new(&self.source.path)
                .list(&wanted)
                .map_err(|error| Trouble::Failed(error.to_string()))?;
            let page = tokio::time::timeout(LIST_TIME, self.client.request::<Page<R>>(request))
                .await
                .map_err(|_| Trouble::Failed(format!("no list in {}", show_duration(LIST_TIME))))??;
            for object in page.items.unwrap_or_default() {
                let skipped = self.keep.listed(object, self.clock.mono()).await;
                self.note(skipped);
            }
            next = page.metadata.next.filter(|token| !token.is_empty());
            if next.is_none() {
                let version = page.metadata.resource_version.unwrap_or_default();
                self.keep.done(&version, self.clock.mono()).await;
                self.reflections.lists.get_or_create(&self.kind).inc();
                self.count();
                return match version.is_empty() {
                    true => Err(Trouble::Failed("the list has no resourceVersion".to_owned())),
                    false => Ok(version),
                };
            }
        }
    }

    /// Follows changes until the server ends the watch or falls silent. `version` keeps how far it came.
    async fn watch(&mut self, version: &mut String) -> Result<(), Trouble> {
        let wanted = WatchParams {
            label_selector: self.source.labels.clone(),
            field_selector: self.source.fields.clone(),
            timeout: Some(WATCH_SECONDS),
            bookmarks: true,
            send_initial_events: false,
        };
        let request = Request::new(&self.source.path)
            .watch(&wanted, version)
            .map_err(|error| Trouble::Failed(error.to_string()))?;
        let Patience { silence, open } = self.patience;
        let events = tokio::time::timeout(open, self.client.request_events::<Object<R>>(request));
        let late = |_| Trouble::Failed(format!("no answer to a watch in {}", show_duration(open)));
        let mut events = std::pin::pin!(events.await.map_err(late)??);
        self.keep.heard(self.clock.mono());
        // With jitter: all watches begin together when the server comes back.
        let silence = jittered(silence, &*self.clock);
        loop {
            let event = match tokio::time::timeout(silence, events.try_next()).await {
                Err(_) => {
                    self.reflections.silences.get_or_create(&self.kind).inc();
                    return Ok(());
                }
                Ok(Ok(None)) => return Ok(()),
                Ok(Ok(Some(event))) => event,
                Ok(Err(error)) if is_one_bad_line(&error) => {
                    let key = ObjectKey::cluster("(a line of the watch)");
                    self.note(Some(Skipped { key, why: error.to_string(), kept: false }));
                    continue;
                }
                Ok(Err(error)) => return Err(error.into()),
            };
            self.follow(event, version).await?;
        }
    }

    async fn follow(&mut self, event: WatchEvent<Object<R>>, version: &mut String) -> Result<(), Trouble> {
        let now = self.clock.mono();
        match event {
            WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                advance(version, &object.version)?;
                let skipped = self.keep.applied(object, now).await;
                self.note(skipped);
            }
            WatchEvent::Deleted(object) => {
                advance(version, &object.version)?;
                self.keep.deleted(object, now).await;
            }
            WatchEvent::Bookmark(bookmark) => {
                advance(version, &bookmark.metadata.resource_version)?;
                self.keep.heard(now);
            }
            WatchEvent::Error(status) => return Err(kube::Error::Api(status).into()),
        }
        self.count();
        Ok(())
    }

    fn count(&self) {
        let rows = i64::try_from(self.keep.rows()).unwrap_or(i64::MAX);
        self.reflections.rows.get_or_create(&self.kind).set(rows);
    }

    fn note(&mut self, skipped: Option<Skipped>) {
        let Some(Skipped { key, why, kept }) = skipped else { return };
        self.reflections.malformed.get_or_create(&self.kind).inc();
        let what = format!("{} {key} is malformed", R::KIND);
        if let Some(said) = self.repeats.note(&what, self.clock.mono()) {
            let then = if kept { "its last good row stays, marked as stale" } else { "it is skipped" };
            tracing::warn!(kind = R::KIND, object = %key, "{what}: {why}; {then}{said}");
        }
    }

    fn complain(&mut self, verb: &'static str, trouble: &Trouble, pause: Duration) {
        self.reflections.failures.get_or_create(&self.kind).inc();
        let what = match trouble {
            Trouble::Gone => "the server has forgotten where we were; everything is read again".to_owned(),
            Trouble::Refused(why) | Trouble::Failed(why) => why.clone(),
            Trouble::Forbidden(why) => {
                self.reflections.forbidden.get_or_create(&ByVerb { kind: R::KIND, verb }).inc();
                format!(
                    "the role of this program lacks the verb {verb:?} for it, and needs \"list\" and \"watch\": {why}"
                )
            }
        };
        if let Some(said) = self.repeats.note(&what, self.clock.mono()) {
            let pause = show_duration(pause);
            tracing::warn!(kind = R::KIND, "watching {}: {what}; again in {pause}{said}", self.source.path);
        }
    }
}

/// Whether this is a single line that is not an event, after which the stream continues. The library takes every JSON
/// object that it cannot read for a status, and that status is then empty.
fn is_one_bad_line(error: &kube::Error) -> bool {
    if let kube::Error::Api(status) = error {
        return status.code == 0 && status.message.is_empty() && status.reason.is_empty();
    }
    matches!(error, kube::Error::SerdeError(_))
}

/// An object without a version changes nothing. Versions of one server only grow: a lower one comes from a server that
/// has lost what this process knows, and objects that it reported before may never have existed.
fn advance(version: &mut String, to: &str) -> Result<(), Trouble> {
    if let (Ok(here), Ok(there)) = (version.parse::<u64>(), to.parse::<u64>())
        && there < here
    {
        return Err(Trouble::Refused(format!("the server went back from version {here} to {there}")));
    }
    if !to.is_empty() {
        to.clone_into(version);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_has_forgotten_is_back_and_one_that_fails_is_not() {
        let why = || "away".to_owned();
        assert!(forgives(&Trouble::Gone, Duration::ZERO));
        for trouble in [Trouble::Failed(why()), Trouble::Refused(why()), Trouble::Forbidden(why())] {
            assert!(!forgives(&trouble, Backoff::MOST - Duration::from_millis(1)));
            assert!(forgives(&trouble, Backoff::MOST));
        }
    }
}
