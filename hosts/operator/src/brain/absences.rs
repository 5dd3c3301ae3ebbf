//! Nodes that are not ready, and until when each is waited for.
//!
//! Most of them come back, and for about so long Kubernetes leaves their pods on them. A wait begins when this process sees
//! a node go. One that it finds gone may have been so for longer, by its own words, and is waited for so much less; a clock
//! that is wrong can make that wait shorter and not longer.
//!
//! Where most of the nodes are gone, it is not the machines: no wait ends, and whoever is not back when the others are has
//! all of its time again.

use crate::site::Member;
use host_kit::clock::Mono;
use jiff::Timestamp;
use planner::plan::{NodeRow, Presence};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// Who was there, and who is waited for.
#[derive(Debug)]
pub(super) struct Absences {
    patience: Duration,
    /// Nodes that were ready when they were last seen.
    there: BTreeSet<Arc<str>>,
    /// The others, and until when each is waited for.
    until: BTreeMap<Arc<str>, Mono>,
}

impl Absences {
    /// Nobody was ever seen; who goes is waited for for `patience`.
    pub(super) const fn new(patience: Duration) -> Self {
        Self { patience, there: BTreeSet::new(), until: BTreeMap::new() }
    }

    /// Takes in what these nodes say now; `wall` is what people call the time.
    pub(super) fn note(&mut self, members: &[Arc<Member>], now: Mono, wall: Timestamp) {
        for Member { name, node, .. } in members.iter().map(|member| &**member) {
            if node.ready {
                self.until.remove(name);
                if !self.there.contains(name) {
                    self.there.insert(name.clone());
                }
                continue;
            }
            let saw_it_go = self.there.remove(name);
            if !self.until.contains_key(name) {
                let found_gone = node.turned.filter(|_| !saw_it_go);
                let so_far = found_gone.and_then(|at| Duration::try_from(wall.duration_since(at)).ok());
                let left = self.patience.saturating_sub(so_far.unwrap_or_default());
                self.until.insert(name.clone(), now.plus(left));
            }
        }
    }

    /// Waits for longer where most of those that nobody has given up are gone.
    pub(super) fn hold(&mut self, rows: &[NodeRow], now: Mono) {
        if self.until.values().all(|&until| now >= until) {
            return;
        }
        let (mut there, mut gone) = (0_usize, 0_usize);
        for row in rows.iter().filter(|row| row.is_eligible()) {
            if row.presence == Presence::Ready {
                there += 1;
            } else if self.waits_for(&row.name, now) {
                gone += 1;
            }
        }
        if gone > there {
            let end = now.plus(self.patience);
            self.until.values_mut().filter(|until| now < **until).for_each(|until| *until = end);
        }
    }

    /// Whether a node can supply anything at `now`.
    pub(super) fn presence(&self, member: &Member, now: Mono) -> Presence {
        if member.node.ready {
            Presence::Ready
        } else if self.waits_for(&member.name, now) {
            Presence::Away
        } else {
            Presence::Lost
        }
    }

    fn waits_for(&self, node: &str, now: Mono) -> bool {
        self.until.get(node).is_some_and(|&until| now < until)
    }

    /// When waits end.
    pub(super) fn ends(&self) -> impl Iterator<Item = Mono> {
        self.until.values().copied()
    }

    /// Forgets who is no node any more, if there are such: `nodes` is how many there are.
    pub(super) fn keep_only(&mut self, nodes: usize, is_known: impl Fn(&str) -> bool) {
        if self.there.len() + self.until.len() > nodes {
            self.there.retain(|node| is_known(node));
            self.until.retain(|node, _| is_known(node));
        }
    }
}
