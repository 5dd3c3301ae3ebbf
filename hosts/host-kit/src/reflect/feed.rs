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
    events: mpsc::Receiver<Versioned<R>>,
    synced: Arc<AtomicBool>,
    version: Option<u64>,
}

/// An event, and the version that it leads to; `None` within a list.
type Versioned<R> = (ReflectEvent<R>, Option<u64>);

impl<R> Feed<R> {
    /// The next event; `None` once the writer is gone.
    pub async fn next(&mut self) -> Option<ReflectEvent<R>> {
        let event = self.events.recv().await;
        event.map(|event| self.read(event))
    }

    /// The next event, if it has already arrived.
    pub fn ready(&mut self) -> Option<ReflectEvent<R>> {
        let event = self.events.try_recv().ok();
        event.map(|event| self.read(event))
    }

    fn read(&mut self, (event, version): Versioned<R>) -> ReflectEvent<R> {
        self.version = version.or(self.version);
        event
    }

    /// The version of the objects up to which events were read; `None` before a list was read, or if the server's versions
    /// are no numbers.
    pub const fn version(&self) -> Option<u64> {
        self.version
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
    (Feeder { sender, synced: synced.clone() }, Feed { events, synced, version: None })
}

/// The writing side of a feed.
pub(super) struct Feeder<R> {
    sender: mpsc::Sender<Versioned<R>>,
    synced: Arc<AtomicBool>,
}

impl<R: Row> Feeder<R> {
    /// If the reader is gone, the event is dropped.
    async fn tell(&self, event: ReflectEvent<R>, version: Option<u64>) {
        let _nobody_reads = self.sender.send((event, version)).await;
    }

    async fn seen(&self, object: Object<R>, version: Option<u64>) -> Option<Skipped> {
        let Object { key, uid, version: _, row } = object;
        match row {
            Ok(row) => {
                self.tell(ReflectEvent::Seen { uid, row }, version).await;
                None
            }
            Err(why) => Some(Skipped { key, why, kept: false }),
        }
    }
}

impl<R: Row> Keep<R> for Feeder<R> {
    fn begin(&mut self) -> impl Future<Output = ()> + Send {
        self.tell(ReflectEvent::Begin, None)
    }

    fn listed(&mut self, object: Object<R>, _: Mono) -> impl Future<Output = Option<Skipped>> + Send {
        // The objects of a list are in the order of their names, and not of their versions.
        self.seen(object, None)
    }

    async fn done(&mut self, version: &str, _: Mono) {
        self.tell(ReflectEvent::Whole, version.parse().ok()).await;
        self.synced.store(true, Ordering::Release);
    }

    fn applied(&mut self, object: Object<R>, _: Mono) -> impl Future<Output = Option<Skipped>> + Send {
        let version = object.version.parse().ok();
        self.seen(object, version)
    }

    fn deleted(&mut self, object: Object<R>, _: Mono) -> impl Future<Output = ()> + Send {
        let version = object.version.parse().ok();
        self.tell(ReflectEvent::Gone { uid: object.uid }, version)
    }

    fn heard(&mut self, _: Mono) {}

    fn rows(&self) -> usize {
        0
    }
}
