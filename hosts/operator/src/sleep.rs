//! Switches nodes off and on, and reads from their management controllers whether they are. What is to be switched, the
//! planner decides (`planner::sleep`, docs/adr/0047); `reconciler/sleep.rs` tells it what is known and carries its marks out.
//!
//! ```text
//! controllers ──▶ PowerBoard ──▶ pass ──▶ mark on the Node (a write like others)
//!                                  └────▶ SleepOrder ──▶ is the mark still there, and no pod? ──▶ controller
//! ```
//!
//! Before each order the Node is read from the API server, and its pods before it is switched off: whoever does not lead any more, or has
//! seen too little, does nothing.

mod controllers;
mod redfish;
mod wake_on_lan;
mod webhook;

pub(crate) use controllers::{Clients, Controllers};

use crate::rows::{NodeSeen, keeps_node};
use crate::writes::ask;
use controllers::TIMEOUT;
use futures::StreamExt;
use host_kit::clock::{HostClock, Mono};
use host_kit::closed_label;
use host_kit::leader::{Leadership, Term};
use host_kit::log::Repeats;
use kube::Client;
use planner::sleep::{PowerState, SleepPhase};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::mpsc;

/// Controllers that are asked at once. A round with so many that do not answer still ends before the answers of the others are
/// too old.
const ASKED_AT_ONCE: usize = 256;
/// A node without a mark is asked in one of so many rounds.
const AWAKE_EVERY: u64 = 6;
const REPEAT_WINDOW: Duration = Duration::from_secs(300);

/// What a controller said, and until when that stands.
#[derive(Clone, Copy, Debug)]
struct PowerReading {
    state: PowerState,
    until: Mono,
}

/// What controllers have said of their nodes, and which nodes are asked for. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct PowerBoard(Arc<Mutex<Board>>);

#[derive(Debug, Default)]
struct Board {
    readings: BTreeMap<Arc<str>, PowerReading>,
    /// Which nodes are asked, and whether they have a mark.
    followed: BTreeMap<Arc<str>, bool>,
}

impl PowerBoard {
    fn lock(&self) -> MutexGuard<'_, Board> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the node's controller said, if that is fresh.
    pub(crate) fn state(&self, node: &str, now: Mono) -> Option<PowerState> {
        self.lock().readings.get(node).filter(|reading| now < reading.until).map(|reading| reading.state)
    }

    /// Which nodes are asked from now on; those with a mark more often.
    pub(crate) fn follow(&self, nodes: BTreeMap<Arc<str>, bool>) {
        let mut board = self.lock();
        board.readings.retain(|node, _| nodes.contains_key(node));
        board.followed = nodes;
    }

    /// When the next reading is too old.
    pub(crate) fn ends(&self, now: Mono) -> Option<Mono> {
        let board = self.lock();
        let marked = board.readings.iter().filter(|(node, _)| board.followed.get(*node) == Some(&true));
        marked.map(|(_, reading)| reading.until).filter(|until| *until > now).min()
    }

    /// Takes in an answer; returns whether it says something else than before.
    fn record(&self, node: &Arc<str>, state: PowerState, until: Mono) -> bool {
        let mut board = self.lock();
        let before = board.readings.insert(node.clone(), PowerReading { state, until });
        before.is_none_or(|before| before.state != state)
    }

    fn due(&self, round: u64) -> Vec<(Arc<str>, bool)> {
        let board = self.lock();
        // Those without a mark are spread over the rounds, so that none takes much longer than the others.
        let place = |node: &str| node.bytes().fold(round, |sum, byte| sum.wrapping_add(byte.into()));
        let is_due =
            |(node, marked): &(&Arc<str>, &bool)| **marked || place(node).is_multiple_of(AWAKE_EVERY);
        board.followed.iter().filter(is_due).map(|(node, marked)| (node.clone(), *marked)).collect()
    }

    #[cfg(test)]
    pub(crate) fn put(&self, node: &str, state: PowerState, until: Mono) {
        self.record(&node.into(), state, until);
    }
}

/// An order to switch a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SleepOrder {
    /// The node.
    pub(crate) node: Arc<str>,
    /// On or off.
    pub(crate) on: bool,
}

closed_label! {
    /// What became of an order to switch a node.
    pub(crate) enum SleepResult {
        /// Its controller has taken it.
        Sent = "sent",
        /// The node's mark is another one, or a pod is on it: nothing was sent.
        Withdrawn = "withdrawn",
        /// Its controller refused it, or did not answer.
        Failed = "failed",
        /// The API server could not be asked before.
        Unchecked = "unchecked",
    }
}

/// What is told to the loop.
#[derive(Debug)]
pub(crate) enum SleepNews {
    /// A controller says something else than before.
    Changed,
    /// An order has ended; with the reason where nothing was sent.
    Ended(SleepOrder, SleepResult, String),
}

/// Carries orders out, and asks controllers.
pub(crate) struct Sleeper {
    orders: mpsc::UnboundedSender<(SleepOrder, Term)>,
}

struct Worker {
    client: Client,
    leadership: Leadership,
    clock: Arc<dyn HostClock>,
    controllers: Arc<Controllers>,
    clients: Clients,
    board: PowerBoard,
    poll: Duration,
    timeout: Duration,
    news: mpsc::UnboundedSender<SleepNews>,
}

/// What the tasks need.
pub(crate) struct SleepParts {
    /// The API server.
    pub(crate) client: Client,
    /// Whether this process leads.
    pub(crate) leadership: Leadership,
    /// Time.
    pub(crate) clock: Arc<dyn HostClock>,
    /// The nodes' controllers.
    pub(crate) controllers: Arc<Controllers>,
    /// How they are reached.
    pub(crate) clients: Clients,
    /// How often they are asked.
    pub(crate) poll: Duration,
    /// How long one request to the API server may take.
    pub(crate) timeout: Duration,
}

impl Sleeper {
    /// Begins; news arrives at the receiver.
    pub(crate) fn new(parts: SleepParts, board: PowerBoard) -> (Self, mpsc::UnboundedReceiver<SleepNews>) {
        let SleepParts { client, leadership, clock, controllers, clients, poll, timeout } = parts;
        let (orders, mut waiting) = mpsc::unbounded_channel::<(SleepOrder, Term)>();
        let (news, receiver) = mpsc::unbounded_channel();
        let worker =
            Arc::new(Worker { client, leadership, clock, controllers, clients, board, poll, timeout, news });
        let asking = worker.clone();
        tokio::spawn(async move {
            // Without a receiver the program is ending.
            while let Some((order, term)) = waiting.recv().await {
                let worker = worker.clone();
                tokio::spawn(async move {
                    let (result, why) = worker.carry_out(&order, term).await;
                    let _ = worker.news.send(SleepNews::Ended(order, result, why));
                });
            }
        });
        tokio::spawn(async move { asking.ask_all().await });
        (Self { orders }, receiver)
    }

    /// Gives an order in the given term of leadership.
    pub(crate) fn send(&self, order: SleepOrder, term: Term) {
        // Without the task the program is ending.
        let _ = self.orders.send((order, term));
    }
}

impl Worker {
    /// Asks the controllers again and again, while this process leads.
    async fn ask_all(&self) {
        let mut repeats = Repeats::every(REPEAT_WINDOW);
        let mut round = 0_u64;
        while !self.news.is_closed() {
            tokio::time::sleep(self.poll).await;
            if self.leadership.term(self.clock.mono()).is_none() {
                continue;
            }
            let due = self.board.due(round);
            round = round.wrapping_add(1);
            let each = due.into_iter().map(|(node, marked)| self.read(node, marked));
            let answers: Vec<(Arc<str>, Result<bool, String>)> =
                futures::stream::iter(each).buffered(ASKED_AT_ONCE).collect().await;
            let mut changed = false;
            for (node, answer) in answers {
                match answer {
                    Ok(other) => changed |= other,
                    Err(why) => {
                        if let Some(said) = repeats.note(&format!("{node}{why}"), self.clock.mono()) {
                            tracing::warn!(node = &*node, "its management controller: {why}{said}");
                        }
                    }
                }
            }
            if changed {
                let _ = self.news.send(SleepNews::Changed);
            }
        }
    }

    async fn read(&self, node: Arc<str>, marked: bool) -> (Arc<str>, Result<bool, String>) {
        let Some(controller) = self.controllers.get(&node) else {
            return (node, Err("the file has none".to_owned()));
        };
        // What it says may have been so before the answer was sent, so it is as old as the question.
        let asked = self.clock.mono();
        let rounds = if marked { 1 } else { u32::try_from(AWAKE_EVERY).unwrap_or(1) };
        // It may need two requests.
        let answer = tokio::time::timeout(TIMEOUT, controller.state(&self.clients)).await;
        let answer = answer.unwrap_or_else(|_| Err("no answer in time".to_owned()));
        let until = asked.plus(self.poll * rounds * 2 + TIMEOUT);
        let answer = answer.map(|state| self.board.record(&node, state, until));
        (node, answer)
    }

    async fn carry_out(&self, order: &SleepOrder, term: Term) -> (SleepResult, String) {
        match self.check(order).await {
            Ok(None) => {}
            Ok(Some(why)) => return (SleepResult::Withdrawn, why),
            Err(why) => return (SleepResult::Unchecked, why),
        }
        if self.leadership.term(self.clock.mono()) != Some(term) {
            return (SleepResult::Withdrawn, "this process does not lead any more".to_owned());
        }
        let Some(controller) = self.controllers.get(&order.node) else {
            return (SleepResult::Withdrawn, "the file has no controller of it any more".to_owned());
        };
        let done = tokio::time::timeout(TIMEOUT * 3, controller.switch(&self.clients, order.on)).await;
        match done {
            Ok(Ok(())) => (SleepResult::Sent, String::new()),
            Ok(Err(why)) => (SleepResult::Failed, why),
            Err(_) => (SleepResult::Failed, "no answer in time".to_owned()),
        }
    }

    /// Looks at the Node and its pods as they are now. Returns why the order is void.
    async fn check(&self, order: &SleepOrder) -> Result<Option<String>, String> {
        let node = &order.node;
        let nodes = self.list(&format!("/api/v1/nodes?fieldSelector=metadata.name%3D{node}")).await?;
        let wanted = if order.on { SleepPhase::Starting } else { SleepPhase::Stopping };
        let mark = nodes.first().and_then(NodeSeen::sleep_of).and_then(|seen| seen.mark);
        if mark.map(|mark| mark.phase) != Some(wanted) {
            return Ok(Some("its mark is another one now".to_owned()));
        }
        if order.on {
            return Ok(None);
        }
        if nodes.first().is_none_or(|node| node["spec"]["unschedulable"].as_bool() != Some(true)) {
            return Ok(Some("it is not cordoned any more".to_owned()));
        }
        let pods = self.list(&format!("/api/v1/pods?fieldSelector=spec.nodeName%3D{node}")).await?;
        let keeps = pods.iter().find(|pod| keeps_node(pod));
        Ok(keeps.map(|pod| {
            let name = |field: &str| pod["metadata"][field].as_str().unwrap_or_default();
            format!("the pod {}/{} is on it", name("namespace"), name("name"))
        }))
    }

    async fn list(&self, path: &str) -> Result<Vec<Value>, String> {
        let request = http::Request::get(path).body(Vec::new());
        let answer = tokio::time::timeout(self.timeout, ask(&self.client, request)).await;
        let answer = answer.map_err(|_| "no answer in time".to_owned())?;
        let list: Value = answer.map_err(|trouble| trouble.words().to_owned())?;
        list["items"].as_array().cloned().ok_or_else(|| "the answer is no list".to_owned())
    }
}

#[cfg(test)]
mod tests;
