//! Watches: a cursor into the log, translated into the events of one selection.
//!
//! A watch has no queue. It reads the log from its own position, so a slow reader needs no memory, and it gets 410
//! when it has fallen behind the log.

use crate::api::{Api, Reply};
use crate::failure::Failure;
use crate::faults::{Flow, OpenWatch, Origin};
use crate::kind::Kind;
use crate::read::{scope_of, too_large};
use crate::request::{Form, Place, Query, Request};
use crate::selector::Selection;
use crate::store::{After, Event, Object, Scope};
use crate::wakeup::Waiter;
use crate::{shown, table};
use bytes::Bytes;
use futures::StreamExt;
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

/// The most events in one chunk.
const BATCH: usize = 256;
/// If the client gives no timeout, the API server chooses one between 30 and 60 minutes.
const TIMEOUT: Duration = Duration::from_secs(1800);
/// Longer than any client waits, and short enough that adding it to a clock does not overflow.
const TIMEOUT_MAX: Duration = Duration::from_secs(86_400);

struct Watch {
    api: Arc<Api>,
    kind: Arc<Kind>,
    scope: Scope,
    selection: Selection,
    query: Query,
    form: Form,
    /// All events up to this revision were sent.
    cursor: u64,
    /// Initial objects that are still to be sent.
    initial: VecDeque<Arc<Object>>,
    /// Whether the bookmark after the initial objects is still to be sent.
    tells_initial_end: bool,
    bookmarks: bool,
    next_bookmark: Instant,
    deadline: Instant,
    ended: bool,
    /// Whether a table's columns were sent; they are sent once.
    columns_told: bool,
    changed: Waiter,
    faults: Waiter,
    open: OpenWatch,
}

impl Api {
    pub(crate) fn watch(
        self: &Arc<Self>,
        request: &Request,
        kind: &Arc<Kind>,
        place: &Place,
        origin: Origin,
    ) -> Result<Reply, Failure> {
        let query = &request.query;
        let mut selection = Selection::of(query, kind)?;
        if let Some(name) = &place.name {
            selection.only(name);
        }
        let asked = query.number("resourceVersion")?.unwrap_or(0);
        let streams_list = query.flag("sendInitialEvents");
        if streams_list && query.get("resourceVersionMatch") != Some("NotOlderThan") {
            let why = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
            return Err(Failure::bad_request(why));
        }
        let timeout = query.number("timeoutSeconds")?.map_or(TIMEOUT, Duration::from_secs).min(TIMEOUT_MAX);
        let scope = scope_of(kind, place);
        let changed = self.changed.subscribe(&scope.resource);
        let (initial, cursor) = {
            let store = self.store();
            if asked > store.revision() {
                return Err(too_large(asked, store.revision()));
            }
            if streams_list || asked == 0 {
                let there = store.list(&scope, None).filter(|object| selection.holds(object));
                (there.cloned().collect(), store.revision())
            } else {
                (VecDeque::new(), asked)
            }
        };
        let now = Instant::now();
        let watch = Watch {
            api: self.clone(),
            kind: kind.clone(),
            scope,
            selection,
            query: Query::parse(""),
            form: request.form,
            cursor,
            initial,
            tells_initial_end: streams_list && query.flag("allowWatchBookmarks"),
            bookmarks: query.flag("allowWatchBookmarks"),
            next_bookmark: now + self.bookmark_every,
            deadline: now + timeout,
            ended: false,
            columns_told: false,
            changed,
            faults: self.faults.changes(),
            open: self.faults.open(origin),
        };
        let stream = futures::stream::unfold(watch, |mut watch| async move {
            let piece = watch.next().await?;
            Some((Ok(piece), watch))
        });
        Ok(Reply::Stream(stream.boxed()))
    }
}

impl Watch {
    /// The next chunk of the stream; `None` ends it.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if self.ended || Instant::now() >= self.deadline {
                return None;
            }
            match self.open.flow() {
                Flow::Ended => return None,
                Flow::Stalled => {
                    tokio::select! {
                        biased;
                        () = self.faults.notified() => {}
                        () = sleep_until(self.deadline) => {}
                    }
                    continue;
                }
                Flow::Flows => {}
            }
            // Changes from here on wake the wait below.
            self.changed.catch_up();
            if let Some(piece) = self.piece() {
                return Some(piece);
            }
            // The order matters: frequent changes of other objects must not delay a bookmark or the end.
            tokio::select! {
                biased;
                () = self.faults.notified() => {}
                () = sleep_until(self.deadline) => {}
                () = sleep_until(self.next_bookmark), if self.bookmarks => {
                    self.next_bookmark = Instant::now() + self.api.bookmark_every;
                    // Changes outside the scope do not wake this watch, so the bookmark must move past them.
                    return self.piece().or_else(|| Some(self.bookmark(false)));
                }
                () = self.changed.notified() => {}
            }
        }
    }

    /// The events that can be sent now.
    fn piece(&mut self) -> Option<Bytes> {
        let mut piece = Vec::new();
        if !self.initial.is_empty() {
            let batch = self.initial.len().min(BATCH);
            for object in self.initial.drain(..batch).collect::<Vec<_>>() {
                self.tell("ADDED", &object, &mut piece);
            }
            return Some(piece.into());
        }
        if std::mem::take(&mut self.tells_initial_end) {
            return Some(self.bookmark(true));
        }
        while piece.is_empty() {
            let read = self.api.store().events_after(self.cursor, &self.scope, BATCH);
            match read {
                Err(compacted) => {
                    let failure = Failure::too_old(self.cursor, compacted.oldest);
                    self.ended = true;
                    return Some(frame(b"ERROR", failure.json().to_string().as_bytes()));
                }
                // Move past events outside the scope, so that the log may drop them.
                Ok((events, upto)) if events.is_empty() => {
                    self.cursor = upto;
                    return None;
                }
                Ok((events, upto)) => {
                    self.cursor = upto;
                    events.iter().for_each(|event| self.translate(event, &mut piece));
                }
            }
        }
        Some(piece.into())
    }

    /// An object that leaves the selection is reported as deleted, one that enters it as added.
    fn translate(&mut self, event: &Event, piece: &mut Vec<u8>) {
        let before = event.before.as_ref().filter(|before| self.selection.holds(before));
        match (before, &event.after) {
            (None, After::Is(after)) if self.selection.holds(after) => self.tell("ADDED", after, piece),
            (Some(_), After::Is(after)) if self.selection.holds(after) => self.tell("MODIFIED", after, piece),
            (Some(before), After::Is(_)) => {
                let mut last = before.parse();
                last["metadata"]["resourceVersion"] = json!(event.revision.to_string());
                let last = Object {
                    key: before.key.clone(),
                    revision: event.revision,
                    bytes: last.to_string().into(),
                    labels: before.labels.clone(),
                    fields: before.fields.clone(),
                };
                self.tell("DELETED", &last, piece);
            }
            (Some(_), After::Gone(last)) => self.tell("DELETED", last, piece),
            (None, After::Is(_) | After::Gone(_)) => {}
        }
    }

    fn tell(&mut self, what: &str, object: &Object, piece: &mut Vec<u8>) {
        let told = match self.form {
            Form::Table => {
                let columns = !std::mem::replace(&mut self.columns_told, true);
                let rows =
                    table::table(&self.kind, [object].into_iter(), &self.query, self.api.now(), columns);
                frame(what.as_bytes(), rows.to_string().as_bytes())
            }
            form @ (Form::Whole | Form::Metadata) => {
                frame(what.as_bytes(), &shown::bytes(&self.kind, object, form))
            }
        };
        piece.extend_from_slice(&told);
    }

    /// The position of the watch, for a client that reconnects.
    fn bookmark(&self, initial_end: bool) -> Bytes {
        let mut meta = json!({"resourceVersion": self.cursor.to_string(), "creationTimestamp": null});
        if initial_end {
            meta["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        }
        let object = match self.form {
            Form::Whole => {
                json!({"kind": self.kind.kind, "apiVersion": self.kind.api_version(), "metadata": meta})
            }
            Form::Metadata => {
                json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": meta})
            }
            Form::Table => {
                let row = json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": meta});
                let rows: Value = json!([{"cells": [], "object": row}]);
                let revision = self.cursor.to_string();
                json!({"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": {"resourceVersion": revision},
                    "columnDefinitions": null, "rows": rows})
            }
        };
        frame(b"BOOKMARK", object.to_string().as_bytes())
    }
}

fn frame(what: &[u8], object: &[u8]) -> Bytes {
    [b"{\"type\":\"", what, b"\",\"object\":", object, b"}\n"].concat().into()
}
