//! Posts Events: a short queue, and one task that sends.

use super::{Events, Note, Post};
use crate::clock::HostClock;
use crate::log::Repeats;
use crate::metrics::MetricsRegistry;
use crate::shutdown::Stop;
use futures::FutureExt;
use k8s_openapi::api::events::v1::Event;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use prometheus_client::metrics::counter::Counter;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;

/// Notes in the queue. When it is full, a note is lost, since control code must never wait for an Event.
const QUEUE: usize = 256;
const POST_TIME: Duration = Duration::from_secs(10);
const FLUSH_EVERY: Duration = Duration::from_secs(60);

/// The metrics of a recorder.
#[derive(Clone, Debug)]
pub struct Posts {
    lost: Counter,
    withheld: Counter,
}

impl Posts {
    /// Registers them.
    pub fn register(registry: &mut MetricsRegistry) -> Self {
        let all = Self { lost: Counter::default(), withheld: Counter::default() };
        registry.register("joulie_events_lost", "Events that could not be posted", all.lost.clone());
        registry.register("joulie_events_withheld", "Events of objects with too many", all.withheld.clone());
        all
    }
}

/// Accepts notes. Clones write into the same queue.
#[derive(Clone, Debug)]
pub struct Recorder {
    queue: mpsc::Sender<Note>,
    posts: Posts,
}

impl Recorder {
    /// Queues a note about an object, or drops it if the queue is full.
    pub fn say(&self, note: Note) {
        if self.queue.try_send(note).is_err() {
            self.posts.lost.inc();
        }
    }
}

/// Returns a recorder, and the task that posts until asked to stop.
pub fn record(
    client: &Client,
    mut events: Events,
    posts: &Posts,
    clock: Arc<dyn HostClock>,
    stop: Stop,
) -> (Recorder, impl Future<Output = ()> + Send + 'static) {
    let (queue, mut notes) = mpsc::channel(QUEUE);
    let recorder = Recorder { queue, posts: posts.clone() };
    let mut poster =
        Poster { client: client.clone(), posts: posts.clone(), repeats: Repeats::every(FLUSH_EVERY * 5) };
    let work = async move {
        let mut flush = tokio::time::interval(FLUSH_EVERY);
        loop {
            // The tick comes first: it comes once a minute, and a constant stream of notes must not delay it.
            let due = tokio::select! {
                biased;
                _ = flush.tick() => events.flush(clock.mono()),
                Some(note) = notes.recv() => vec![events.note(&note, clock.mono(), clock.wall())],
            };
            for post in due {
                if let Some((namespace, name)) = poster.post(post, &*clock).await {
                    events.missing(&namespace, &name, clock.mono());
                }
            }
        }
    };
    // An API server that hangs must not delay the end of the program, so the work is cut off at any point.
    let follow = async move {
        tokio::select! {
            biased;
            () = stop.requested() => {}
            () = work => {}
        }
    };
    (recorder, follow)
}

struct Poster {
    client: Client,
    posts: Posts,
    repeats: Repeats,
}

impl Poster {
    /// Posts one Event. Returns its namespace and name if it is not on the server but should be.
    async fn post(&mut self, post: Post, clock: &dyn HostClock) -> Option<(String, String)> {
        let api = |namespace: &str| Api::<Event>::namespaced(self.client.clone(), namespace);
        let (namespace, name, creates, sent) = match post {
            Post::Later => return None,
            Post::TooMuch => {
                self.posts.withheld.inc();
                return None;
            }
            Post::Create(event) => {
                let namespace = event.metadata.namespace.clone().unwrap_or_default();
                let (name, api) = (event.metadata.name.clone().unwrap_or_default(), api(&namespace));
                let sent = async move { api.create(&PostParams::default(), &event).await.map(drop) };
                (namespace, name, true, sent.boxed())
            }
            Post::Count { namespace, name, patch } => {
                let (of, api) = (name.clone(), api(&namespace));
                let how = PatchParams::default();
                let sent = async move { api.patch(&of, &how, &Patch::Merge(patch)).await.map(drop) };
                (namespace, name, false, sent.boxed())
            }
        };
        let (why, gone) = match tokio::time::timeout(POST_TIME, sent).await {
            Ok(Ok(())) => return None,
            Ok(Err(error)) => {
                let gone = matches!(&error, kube::Error::Api(status) if status.code == 404);
                (error.to_string(), gone)
            }
            Err(_) => ("no answer".to_owned(), false),
        };
        self.posts.lost.inc();
        if let Some(said) = self.repeats.note("lost", clock.mono()) {
            tracing::warn!("an Event could not be posted and is lost: {why}{said}");
        }
        (creates || gone).then_some((namespace, name))
    }
}
