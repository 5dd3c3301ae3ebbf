//! Tracks nodes that are not ready, and how long to wait for each.
//!
//! Most of them come back, and Kubernetes leaves their pods on them for about that long. A wait begins when this
//! process sees a node become not ready. A node that is found not ready may have been so for longer, by its own
//! condition; its wait is shorter by that time. When a wait is over, the next pass gives the node up until it is ready
//! again.
//!
//! If most of the nodes are gone, the cause is not the machines. Then no node is given up, and a node that is still
//! gone when most others are back has its full wait again.

use crate::site::Observed;
use host_kit::clock::Mono;
use jiff::Timestamp;
use planner::node::{Node, Presence};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// The nodes that are ready, waited for, and given up.
#[derive(Debug)]
pub(super) struct Absences {
    patience: Duration,
    /// Nodes that were ready when last seen.
    there: BTreeSet<Arc<str>>,
    /// Nodes that were not ready, and when the wait for each ends.
    waits: BTreeMap<Arc<str>, Mono>,
    given_up: BTreeSet<Arc<str>>,
}

impl Absences {
    /// Starts without any node; the wait for each node lasts `patience`.
    pub(super) const fn new(patience: Duration) -> Self {
        Self { patience, there: BTreeSet::new(), waits: BTreeMap::new(), given_up: BTreeSet::new() }
    }

    /// Takes in the present state of these nodes; `wall` is the time of day.
    pub(super) fn note(&mut self, nodes: &[Arc<Observed>], now: Mono, wall: Timestamp) {
        for Observed { node, .. } in nodes.iter().map(|observed| &**observed) {
            let name = &node.name;
            if node.ready {
                self.waits.remove(name);
                self.given_up.remove(name);
                if !self.there.contains(name) {
                    self.there.insert(name.clone());
                }
                continue;
            }
            let saw_it_go = self.there.remove(name);
            if !self.waits.contains_key(name) && !self.given_up.contains(name) {
                let found_gone = node.turned.filter(|_| !saw_it_go);
                let so_far = found_gone.and_then(|at| Duration::try_from(wall.duration_since(at)).ok());
                let left = self.patience.saturating_sub(so_far.unwrap_or_default());
                self.waits.insert(name.clone(), now.plus(left));
            }
        }
    }

    /// Gives up the nodes whose wait is over, unless most of the nodes that have a desired state and were not given up
    /// are gone.
    pub(super) fn pass(&mut self, nodes: &[Node], observed: &[Arc<Observed>], now: Mono) {
        if self.waits.is_empty() {
            return;
        }
        let (mut there, mut gone) = (0_usize, 0_usize);
        for (node, observed) in nodes.iter().zip(observed) {
            if node.is_eligible() && node.published.obeyed().is_some() {
                there += usize::from(observed.is_ready());
                gone += usize::from(self.waits.contains_key(&node.name));
            }
        }
        if gone > there {
            let end = now.plus(self.patience);
            self.waits.values_mut().for_each(|until| *until = end);
        }
        self.given_up.extend(self.waits.extract_if(.., |_, until| now >= *until).map(|(name, _)| name));
    }

    /// Whether a node is ready, waited for, or given up.
    pub(super) fn presence(&self, observed: &Observed) -> Presence {
        if observed.is_ready() {
            Presence::Ready
        } else if self.waits.contains_key(&observed.node.name) {
            Presence::Away
        } else {
            Presence::Lost
        }
    }

    /// When the waits end.
    pub(super) fn ends(&self) -> impl Iterator<Item = Mono> {
        self.waits.values().copied()
    }

    /// Forgets names that are not nodes any more, if there are any. `nodes` is the number of nodes.
    pub(super) fn keep_only(&mut self, nodes: usize, is_known: impl Fn(&str) -> bool) {
        if self.there.len() + self.waits.len() + self.given_up.len() > nodes {
            self.there.retain(|node| is_known(node));
            self.waits.retain(|node, _| is_known(node));
            self.given_up.retain(|node| is_known(node));
        }
    }
}
