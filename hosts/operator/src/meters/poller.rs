//! Asks the sources of power that do not report by themselves: each of them again and again, beside the others.

use super::{http, query};
use crate::queries::Queries;
use crate::settings::{NodePower, PowerSource};
use host_kit::clock::{HostClock, Mono};
use host_kit::http_client::TrustError;
use host_kit::prometheus::Prometheus;
use planner::power::{NoMeasurement, PowerMeter};
use power_units::Watts;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

/// Rounds of answers that wait to be taken in.
const QUEUE: usize = 64;

/// A node whose power is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Followed {
    /// Its name.
    pub(crate) node: Arc<str>,
    /// Its addresses, by which an exporter may name it.
    pub(crate) addresses: Arc<[Box<str>]>,
    /// Whether it has GPUs: a source that says nothing of them then says too little.
    pub(crate) has_gpus: bool,
}

/// The outcome of one attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Read {
    /// Of which node.
    pub(crate) node: Arc<str>,
    /// From which source.
    pub(crate) meter: PowerMeter,
    /// What it draws, or why that is not known.
    pub(crate) watts: Result<Watts, NoMeasurement>,
    /// When it was asked for, and how long ago at the most it drew this then.
    pub(crate) asked: (Mono, Duration),
}

/// The nodes to ask for.
pub(super) type Following = watch::Receiver<Vec<Followed>>;
/// Where the outcomes go.
pub(super) type Outcomes = mpsc::Sender<Vec<Read>>;

/// Asks.
#[derive(Debug)]
pub(crate) struct Poller {
    nodes: watch::Sender<Vec<Followed>>,
    reads: mpsc::Receiver<Vec<Read>>,
    tasks: Vec<JoinHandle<()>>,
}

impl Poller {
    /// Asks these sources; `None` if none of them has to be asked.
    ///
    /// # Errors
    /// If the authorities cannot be used.
    pub(crate) fn new(
        power: &NodePower,
        queries: &Queries,
        clock: &Arc<dyn HostClock>,
    ) -> Result<Option<Self>, TrustError> {
        let (nodes, follow) = watch::channel(Vec::new());
        let (queue, reads) = mpsc::channel(QUEUE);
        let mut tasks = Vec::new();
        for source in &power.sources {
            let (follow, queue, clock) = (follow.clone(), queue.clone(), clock.clone());
            match source {
                PowerSource::Agent => {}
                PowerSource::Http(endpoint) => {
                    let client = http::client(endpoint.as_ref(), &power.http)?;
                    let asking = http::ask_all((client, clock), endpoint.clone(), power.every, follow, queue);
                    tasks.push(tokio::spawn(asking));
                }
                PowerSource::Prometheus(access, query) => {
                    let server = Prometheus::new("joulie-operator", access.clone())?;
                    let question = query::Question::asked(server, query, (queries, clock));
                    tasks.push(tokio::spawn(query::ask_all(question, power.every, follow, queue)));
                }
                PowerSource::Kepler(access, window) => {
                    let server = Prometheus::new("joulie-operator", access.clone())?;
                    let question = query::Question::of_kepler(server, *window, (queries, clock));
                    tasks.push(tokio::spawn(query::ask_all(question, power.every, follow, queue)));
                }
            }
        }
        Ok((!tasks.is_empty()).then_some(Self { nodes, reads, tasks }))
    }

    /// Whom to ask for from now on.
    pub(crate) fn follow(&self, nodes: Vec<Followed>) {
        self.nodes.send_if_modified(|before| {
            let differs = *before != nodes;
            *before = nodes;
            differs
        });
    }

    /// The next outcomes.
    pub(crate) async fn next(&mut self) -> Option<Vec<Read>> {
        self.reads.recv().await
    }
}

impl Drop for Poller {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

/// Waits for the next round: after `every`, and at once when there are other nodes. Returns the nodes; `None` at the end.
pub(super) async fn round(timer: &mut tokio::time::Interval, nodes: &mut Following) -> Option<Vec<Followed>> {
    tokio::select! {
        _ = timer.tick() => {}
        changed = nodes.changed() => changed.ok()?,
    }
    Some(nodes.borrow_and_update().clone())
}

/// The timer of the rounds.
pub(crate) fn timer(every: Duration) -> tokio::time::Interval {
    let mut timer = tokio::time::interval(every);
    timer.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    timer
}
