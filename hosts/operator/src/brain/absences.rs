//! Nodes that are not ready, and until when each keeps its place.
//!
//! Most of them come back, and so long Kubernetes leaves their pods on them. How long a node has been away is counted from
//! when this process first saw it so; where it has been longer by its own words, those count, so that a node that was
//! dead before the operator began is not waited for again. Clocks that differ can only make the wait shorter.

use crate::site::Member;
use host_kit::clock::Mono;
use jiff::Timestamp;
use planner::plan::Presence;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// The nodes that are not ready.
#[derive(Debug)]
pub(super) struct Absences {
    patience: Duration,
    until: BTreeMap<Arc<str>, Mono>,
}

impl Absences {
    /// Nobody is away; who is keeps its place for `patience`.
    pub(super) const fn new(patience: Duration) -> Self {
        Self { patience, until: BTreeMap::new() }
    }

    /// Takes in what these nodes say now; `wall` is what people call the time.
    pub(super) fn note(&mut self, members: &[Arc<Member>], now: Mono, wall: Timestamp) {
        for Member { name, node, .. } in members.iter().map(|member| &**member) {
            if node.ready {
                self.until.remove(name);
            } else if !self.until.contains_key(name) {
                let so_far = node.turned.and_then(|at| Duration::try_from(wall.duration_since(at)).ok());
                let left = self.patience.saturating_sub(so_far.unwrap_or_default());
                self.until.insert(name.clone(), now.plus(left));
            }
        }
    }

    /// Whether a node can supply anything at `now`.
    pub(super) fn presence(&self, member: &Member, now: Mono) -> Presence {
        if member.node.ready {
            return Presence::Ready;
        }
        let is_waited_for = self.until.get(&member.name).is_some_and(|&until| now < until);
        if is_waited_for { Presence::Away } else { Presence::Lost }
    }

    /// Forgets every node that is gone.
    pub(super) fn keep_only(&mut self, known: &BTreeSet<&str>) {
        self.until.retain(|node, _| known.contains(&**node));
    }
}
