//! The recorder's hands: a short queue and one task that posts.

use super::{Events, Note, Post};
use crate::clock::Clock;
use crate::log::Repeats;
use crate::shutdown::Stop;
use k8s_openapi::api::events::v1::Event;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;

/// Notes that wait; with a full queue a note is lost, since nobody who acts may wait for an Event.
const QUEUE: usize = 256;
const POST_TIME: Duration = Duration::from_secs(10);
const FLUSH_EVERY: Duration = Duration::from_secs(60);

/// What a recorder counts.
#[derive(Clone, Debug)]
pub struct Posts {
    lost: Counter,
    withheld: Counter,
}

impl Posts {
    /// Registers it.
    pub fn register(registry: &mut Registry) -> Self {
        let all = Self { lost: Counter::default(), withheld: Counter::default() };
        registry.register("joulie_events_lost", "Events that could not be posted", all.lost.clone());
        registry.register("joulie_events_withheld", "Events of objects with too many", all.withheld.clone());
        all
    }
}

/// Takes notes. Clones write into the same queue.
#[derive(Clone, Debug)]
pub struct Recorder {
    queue: mpsc::Sender<Note>,
    posts: Posts,
}

impl Recorder {
    /// Says something about an object, now or never.
    pub fn say(&self, note: Note) {
        if self.queue.try_send(note).is_err() {
            self.posts.lost.inc();
        }
    }
}

/// A recorder and the task that posts until asked to stop.
pub fn record(
    client: &Client,
    mut events: Events,
    parts: (&Posts, Arc<dyn Clock>),
    stop: Stop,
) -> (Recorder, impl Future<Output = ()> + Send + 'static) {
    let (queue, mut notes) = mpsc::channel(QUEUE);
    let (posts, clock) = parts;
    let recorder = Recorder { queue, posts: posts.clone() };
    let mut poster =
        Poster { client: client.clone(), posts: posts.clone(), repeats: Repeats::every(FLUSH_EVERY * 5) };
    let follow = async move {
        let mut flush = tokio::time::interval(FLUSH_EVERY);
        loop {
            let due = tokio::select! {
                () = stop.requested() => return,
                Some(note) = notes.recv() => vec![events.note(&note, clock.mono(), clock.wall())],
                _ = flush.tick() => events.flush(clock.mono()),
            };
            for post in due {
                poster.post(post, &*clock).await;
            }
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
    async fn post(&mut self, post: Post, clock: &dyn Clock) {
        let api = |namespace: &str| Api::<Event>::namespaced(self.client.clone(), namespace);
        let sent = async {
            match post {
                Post::Later => Ok(()),
                Post::TooMuch => {
                    self.posts.withheld.inc();
                    Ok(())
                }
                Post::Create(event) => {
                    let namespace = event.metadata.namespace.clone().unwrap_or_default();
                    api(&namespace).create(&PostParams::default(), &event).await.map(drop)
                }
                Post::Count { namespace, name, patch } => api(&namespace)
                    .patch(&name, &PatchParams::default(), &Patch::Merge(patch))
                    .await
                    .map(drop),
            }
        };
        let why = match tokio::time::timeout(POST_TIME, sent).await {
            Ok(Ok(())) => return,
            Ok(Err(error)) => error.to_string(),
            Err(_) => "no answer".to_owned(),
        };
        self.posts.lost.inc();
        if let Some(said) = self.repeats.note("lost", clock.mono()) {
            tracing::warn!("an Event could not be posted and is lost: {why}{said}");
        }
    }
}
