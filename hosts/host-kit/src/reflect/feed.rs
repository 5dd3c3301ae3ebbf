//! Events instead of rows, for a kind of which there are too many to keep: pods.
//!
//! The reader of the feed keeps what it needs. When the reader is slow, the watch waits: the feed holds a bounded
//! number of events and loses none. A list comes between [`ReflectEvent::Begin`] and [`ReflectEvent::Whole`]; a known
//! object that was not in it is gone.

use super::object::{Object, Row};
use super::table::{Keep, Skipped};
use crate::clock::Mono;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::mpsc;

/// An event of a feed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReflectEvent<R> {
    /// A list begins.
    Begin,
    /// An object that exists, listed or changed.
    Seen {
        /// Its UID.
        uid: String,
        /// Its row.
        row: Arc<R>,
    },
    /// An object that does not exist any more.
    Gone {
        /// Its UID.
        uid: String,
    },
    /// The list is complete.
    Whole,
}

/// The events of one kind, in the order in which they came.
#[derive(Debug)]
pub struct Feed<R> {
    events: mpsc::Receiver<ReflectEvent<R>>,
    synced: Arc<AtomicBool>,
}

impl<R> Feed<R> {
    /// The next event; `None` once the writer is gone.
    pub async fn next(&mut self) -> Option<ReflectEvent<R>> {
        self.events.recv().await
    }

    /// The next event, if it has already arrived.
    pub fn ready(&mut self) -> Option<ReflectEvent<R>> {
        self.events.try_recv().ok()
    }

    /// Whether a list has been read completely.
    pub fn is_synced(&self) -> bool {
        self.synced.load(Ordering::Acquire)
    }
}

/// How many events may wait for their reader.
const EVENTS_MAX: usize = 1024;

pub(super) fn feed<R>() -> (Feeder<R>, Feed<R>) {
    let (sender, events) = mpsc::channel(EVENTS_MAX);
    let synced = Arc::new(AtomicBool::new(false));
    (Feeder { sender, synced: synced.clone() }, Feed { events, synced })
}

/// The writing side of a feed.
pub(super) struct Feeder<R> {
    sender: mpsc::Sender<ReflectEvent<R>>,
    synced: Arc<AtomicBool>,
}

impl<R: Row> Feeder<R> {
    /// If the reader is gone, the event is dropped.
    async fn tell(&self, event: ReflectEvent<R>) {
        let _nobody_reads = self.sender.send(event).await;
    }

    async fn seen(&self, object: Object<R>) -> Option<Skipped> {
        let Object { key, uid, version: _, row } = object;
        match row {
            Ok(row) => {
                self.tell(ReflectEvent::Seen { uid, row }).await;
                None
            }
            Err(why) => Some(Skipped { key, why, kept: false }),
        }
    }
}

impl<R: Row> Keep<R> for Feeder<R> {
    fn begin(&mut self) -> impl Future<Output = ()> + Send {
        self.tell(ReflectEvent::Begin)
    }

    fn listed(&mut self, object: Object<R>, _: Mono) -> impl Future<Output = Option<Skipped>> + Send {
        self.seen(object)
    }

    async fn done(&mut self, _: Mono) {
        self.tell(ReflectEvent::Whole).await;
        self.synced.store(true, Ordering::Release);
    }

    fn applied(&mut self, object: Object<R>, _: Mono) -> impl Future<Output = Option<Skipped>> + Send {
        self.seen(object)
    }

    fn deleted(&mut self, object: Object<R>, _: Mono) -> impl Future<Output = ()> + Send {
        self.tell(ReflectEvent::Gone { uid: object.uid })
    }

    fn heard(&mut self, _: Mono) {}

    fn rows(&self) -> usize {
        0
    }
}
