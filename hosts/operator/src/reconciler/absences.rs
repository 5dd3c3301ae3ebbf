//! Nodes that are not ready, and until when each is waited for.
//!
//! Most of them come back, and for about so long Kubernetes leaves their pods on them. A wait begins when this process sees
//! a node go. One that it finds gone may have been so for longer, by its own words, and is waited for so much less. Whose
//! wait is over is given up by the next pass, until it is ready again.
//!
//! Where most of the nodes are gone, it is not the machines: nobody is given up, and whoever is not back when most others
//! are has all of its time again.

use crate::site::Observed;
use host_kit::clock::Mono;
use jiff::Timestamp;
use planner::node::{Node, Presence};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// Who was there, who is waited for, and who is not any more.
#[derive(Debug)]
pub(super) struct Absences {
    patience: Duration,
    /// Nodes that were ready when they were last seen.
    there: BTreeSet<Arc<str>>,
    /// Those that were not, and when the wait for each ends.
    waits: BTreeMap<Arc<str>, Mono>,
    given_up: BTreeSet<Arc<str>>,
}

impl Absences {
    /// Nobody was ever seen; who goes is waited for for `patience`.
    pub(super) const fn new(patience: Duration) -> Self {
        Self { patience, there: BTreeSet::new(), waits: BTreeMap::new(), given_up: BTreeSet::new() }
    }

    /// Takes in what these nodes say now; `wall` is what people call the time.
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

    /// Gives up whose wait is over, unless most of those that have a desired state and were not given up are gone.
    pub(super) fn pass(&mut self, nodes: &[Node], observed: &[Arc<Observed>], now: Mono) {
        if self.waits.is_empty() {
            return;
        }
        let (mut there, mut gone) = (0_usize, 0_usize);
        for (node, observed) in nodes.iter().zip(observed) {
            if node.is_eligible() && node.published.obeyed().is_some() {
                there += usize::from(observed.node.ready);
                gone += usize::from(self.waits.contains_key(&node.name));
            }
        }
        if gone > there {
            let end = now.plus(self.patience);
            self.waits.values_mut().for_each(|until| *until = end);
        }
        self.given_up.extend(self.waits.extract_if(.., |_, until| now >= *until).map(|(name, _)| name));
    }

    /// Whether a node can supply anything now.
    pub(super) fn presence(&self, Observed { node, .. }: &Observed) -> Presence {
        if node.ready {
            Presence::Ready
        } else if self.waits.contains_key(&node.name) {
            Presence::Away
        } else {
            Presence::Lost
        }
    }

    /// When waits end.
    pub(super) fn ends(&self) -> impl Iterator<Item = Mono> {
        self.waits.values().copied()
    }

    /// Forgets who is no node any more, if there are such: `nodes` is how many there are.
    pub(super) fn keep_only(&mut self, nodes: usize, is_known: impl Fn(&str) -> bool) {
        if self.there.len() + self.waits.len() + self.given_up.len() > nodes {
            self.there.retain(|node| is_known(node));
            self.waits.retain(|node, _| is_known(node));
            self.given_up.retain(|node| is_known(node));
        }
    }
}
