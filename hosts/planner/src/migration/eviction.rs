//! Active rescheduling: which of the recommended pods may be evicted now.
//!
//! Opt-in. "It does not trigger during normal operation; only when facility stress exceeds the configured threshold",
//! so pods stay on a node that is only draining. Conditions: the stress has lasted long enough, the pod's controller
//! is not in its cooldown, the budgets of the node and the cluster are not spent, and there is a node that can accept
//! the pod and is not stressed itself. A dry run follows the same rules and spends the same budgets.
//!
//! The state of each owner:
//!
//! ```text
//!   free ── Evict ──► Pending ── evicted ──► CoolingDown ── cooldown over ──► free
//!     ▲                │   │                   ▲     ▲
//!     ├───── gone ─────┘   │   Evict (dry run) ┘     │ evicted after all
//!     │                    │                         │
//!     │                    └── denied ──────────► Denied ── wait over ──► free
//!     └── no outcome within the cooldown (Pending)
//! ```
//!
//! A denied eviction has moved nothing, so it is returned to the budgets, and its owner waits: a pod that a
//! disruption budget protects does not block the others on the node.

mod law;
mod requested_resources;

pub use self::law::{EvictionLaw, Tuning, TuningError};
pub use self::requested_resources::RequestedResources;

use super::{MigrationReason, NodeConditions, RunningPod, Stays};
use joulie_core::placement::class::SchedulableClass;
use power_units::{Micros, Stamp};
use std::collections::{BTreeMap, BTreeSet};

/// Who recreates a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner<'a> {
    /// Nobody: the pod would be lost.
    Nobody,
    /// Something that recreates it on the same node: a DaemonSet, or the node itself.
    Pinned,
    /// A controller that recreates it on any node.
    Controller {
        /// The outermost controller, so that a rollout does not look like a new owner.
        key: &'a str,
        /// How long ago a pod of it was last evicted, by its annotation.
        evicted_ago: Option<Micros>,
    },
}

/// A pod that might be evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EvictionCandidate<'a> {
    /// The pod.
    pub pod: RunningPod<'a>,
    /// Who recreates it.
    pub owner: Owner<'a>,
    /// The resources it needs elsewhere.
    pub needs: RequestedResources,
    /// It is already being deleted.
    pub leaving: bool,
}

/// A node that pods might leave or move to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Site<'a> {
    /// The node.
    pub node: NodeConditions<'a>,
    /// It is ready and accepts new pods.
    pub open: bool,
    /// Its free resources.
    pub free: RequestedResources,
}

/// The outcome of an eviction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EvictionOutcome {
    /// The pod is being evicted.
    Evicted,
    /// The API refused it, for example for a disruption budget, or could not be reached.
    Denied,
    /// The pod no longer existed.
    Gone,
}

/// The input of a step.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    /// The present time.
    pub now: Stamp,
    /// All nodes.
    pub sites: &'a [Site<'a>],
    /// All running pods.
    pub candidates: &'a [EvictionCandidate<'a>],
    /// The outcomes of earlier decisions, by owner.
    pub outcomes: &'a [(&'a str, EvictionOutcome)],
}

/// The decision for one pod of a stressed node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EvictionDecision {
    /// Its node.
    pub node: String,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The verdict.
    pub verdict: EvictionVerdict,
}

/// What to do with a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EvictionVerdict {
    /// Annotate the owner, then evict; remove the annotation if the eviction is denied.
    Evict {
        /// The owner to annotate.
        owner: String,
        /// The class that its node offered: `joulie.io/last-eviction-from-class`.
        from_class: SchedulableClass,
        /// The reason: `joulie.io/last-eviction-reason`.
        reason: MigrationReason,
        /// Only report it.
        dry_run: bool,
    },
    /// Leave the pod on its node.
    Skip(Skip),
}

/// Why a pod on a stressed or draining node stays there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Skip {
    /// It has not opted in.
    NotReschedulable,
    /// Performance-class pods are never rescheduled.
    PerformanceClass,
    /// It names an unknown class.
    UnclearClass,
    /// It is already being deleted.
    AlreadyLeaving,
    /// Nothing would recreate it.
    NoController,
    /// It would be recreated on the same node.
    Pinned,
    /// The node is draining and not stressed.
    NoStress,
    /// The stress has not lasted long enough.
    StressTooShort,
    /// A pod of its owner was evicted recently, or is about to be.
    OwnerCoolingDown,
    /// The node's eviction budget is spent.
    NodeBudgetSpent,
    /// The cluster's eviction budget is spent.
    ClusterBudgetSpent,
    /// No node that is not stressed itself can accept it.
    NoDestination,
}

impl Skip {
    /// The word in metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NotReschedulable => "not_reschedulable",
            Self::PerformanceClass => "performance_class",
            Self::UnclearClass => "unclear_class",
            Self::AlreadyLeaving => "already_leaving",
            Self::NoController => "no_controller",
            Self::Pinned => "pinned",
            Self::NoStress => "no_stress",
            Self::StressTooShort => "stress_too_short",
            Self::OwnerCoolingDown => "owner_cooldown",
            Self::NodeBudgetSpent => "rate_limited",
            Self::ClusterBudgetSpent => "cluster_rate_limited",
            Self::NoDestination => "no_destination",
        }
    }
}

impl From<Stays> for Skip {
    fn from(stays: Stays) -> Self {
        match stays {
            Stays::NotReschedulable => Self::NotReschedulable,
            Stays::PerformanceClass => Self::PerformanceClass,
            Stays::UnclearClass => Self::UnclearClass,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    Pending { since: Stamp },
    CoolingDown { since: Stamp },
    Denied { since: Stamp },
}

impl Asked {
    /// The start and the length of the owner's wait.
    const fn wait(self, tuning: &Tuning) -> (Stamp, Micros) {
        match self {
            // An outcome that never arrives counts as an eviction: the pod may have been evicted.
            Self::Pending { since } | Self::CoolingDown { since } => (since, tuning.cooldown),
            Self::Denied { since } => (since, tuning.retry),
        }
    }
}

/// An eviction that counts against the budgets.
#[derive(Clone, Debug)]
struct Spent {
    at: Stamp,
    node: String,
    owner: String,
}

/// The state between steps.
#[derive(Clone, Debug, Default)]
pub struct Evictor {
    stressed_since: BTreeMap<String, Stamp>,
    owners: BTreeMap<String, Asked>,
    recent: Vec<Spent>,
}

impl Evictor {
    /// Decides about every pod of a stressed or draining node, the most stressed nodes first. `may_run` says whether
    /// the scheduler would put a pod on a node at all, by affinity and taints.
    pub fn step(
        &mut self,
        law: &EvictionLaw,
        facts: &Facts<'_>,
        may_run: impl Fn(&EvictionCandidate<'_>, &Site<'_>) -> bool,
    ) -> Vec<EvictionDecision> {
        self.settle(law, facts);
        let sites: BTreeMap<_, _> = facts.sites.iter().map(|site| (site.node.name, site)).collect();
        let mut free: BTreeMap<_, _> = sites.values().map(|site| (site.node.name, site.free)).collect();
        let mut queue: Vec<_> = facts
            .candidates
            .iter()
            .filter_map(|candidate| sites.get(candidate.pod.node).map(|&site| (site, candidate)))
            .filter(|(site, _)| law.migration.reason(&site.node).is_some())
            .collect();
        queue.sort_by_key(|(site, candidate)| {
            let heat = law.strain(&site.node).map(|(_, percent)| percent);
            (std::cmp::Reverse(heat), site.node.name, candidate.pod.namespace, candidate.pod.name)
        });
        let mut decisions = Vec::with_capacity(queue.len());
        for (site, candidate) in queue {
            let verdict = self.allowed(law, facts.now, site, candidate).and_then(|(owner, reason)| {
                let fits = |other: &&&Site<'_>| {
                    other.node.name != site.node.name
                        && law.is_destination(other, reason)
                        && free.get(other.node.name).is_some_and(|free| free.holds(candidate.needs))
                        && may_run(candidate, other)
                };
                let target = sites.values().find(fits).ok_or(Skip::NoDestination)?;
                if let Some(free) = free.get_mut(target.node.name) {
                    *free = free.less(candidate.needs);
                }
                Ok(self.evict(law, facts.now, site, owner, reason))
            });
            decisions.push(EvictionDecision {
                node: site.node.name.to_owned(),
                namespace: candidate.pod.namespace.to_owned(),
                name: candidate.pod.name.to_owned(),
                verdict: verdict.unwrap_or_else(EvictionVerdict::Skip),
            });
        }
        decisions
    }

    /// Checks all conditions except the destination.
    fn allowed<'a>(
        &self,
        law: &EvictionLaw,
        now: Stamp,
        site: &Site<'_>,
        candidate: &EvictionCandidate<'a>,
    ) -> Result<(&'a str, MigrationReason), Skip> {
        candidate.pod.may_leave()?;
        if candidate.leaving {
            return Err(Skip::AlreadyLeaving);
        }
        let (key, evicted_ago) = match candidate.owner {
            Owner::Nobody => return Err(Skip::NoController),
            Owner::Pinned => return Err(Skip::Pinned),
            Owner::Controller { key, evicted_ago } => (key, evicted_ago),
        };
        let (reason, _) = law.strain(&site.node).ok_or(Skip::NoStress)?;
        let since = self.stressed_since.get(site.node.name);
        let lasted = since.and_then(|&since| now.since(since)).unwrap_or(Micros::ZERO);
        if lasted < law.tuning.stressed_for {
            return Err(Skip::StressTooShort);
        }
        if self.owners.contains_key(key) || evicted_ago.is_some_and(|ago| ago < law.tuning.cooldown) {
            return Err(Skip::OwnerCoolingDown);
        }
        let left = self.recent.iter().filter(|spent| spent.node == site.node.name).count();
        if left >= budget(law.tuning.per_node) {
            return Err(Skip::NodeBudgetSpent);
        }
        if self.recent.len() >= budget(law.tuning.per_cluster) {
            return Err(Skip::ClusterBudgetSpent);
        }
        Ok((key, reason))
    }

    fn evict(
        &mut self,
        law: &EvictionLaw,
        now: Stamp,
        site: &Site<'_>,
        owner: &str,
        reason: MigrationReason,
    ) -> EvictionVerdict {
        let dry_run = law.tuning.dry_run;
        let asked = if dry_run { Asked::CoolingDown { since: now } } else { Asked::Pending { since: now } };
        self.owners.insert(owner.to_owned(), asked);
        self.recent.push(Spent { at: now, node: site.node.name.to_owned(), owner: owner.to_owned() });
        EvictionVerdict::Evict { owner: owner.to_owned(), from_class: site.node.class, reason, dry_run }
    }

    /// Applies the outcomes of earlier decisions and the states of the nodes, and removes what has expired.
    fn settle(&mut self, law: &EvictionLaw, facts: &Facts<'_>) {
        for &(owner, outcome) in facts.outcomes {
            self.conclude(facts.now, owner, outcome);
        }
        let tuning = &law.tuning;
        let within = |since: Stamp, span: Micros| facts.now.since(since).is_some_and(|age| age < span);
        self.owners.retain(|_, asked| {
            let (since, span) = asked.wait(tuning);
            within(since, span)
        });
        self.recent.retain(|spent| within(spent.at, tuning.window));
        let strained: BTreeSet<_> = facts
            .sites
            .iter()
            .filter(|site| law.strain(&site.node).is_some())
            .map(|site| site.node.name)
            .collect();
        // A clock that was set back restarts the count.
        self.stressed_since.retain(|node, since| strained.contains(node.as_str()) && *since <= facts.now);
        for node in strained {
            self.stressed_since.entry(node.to_owned()).or_insert(facts.now);
        }
    }

    fn conclude(&mut self, now: Stamp, owner: &str, outcome: EvictionOutcome) {
        let Some(asked) = self.owners.get_mut(owner) else { return };
        match (*asked, outcome) {
            (Asked::Pending { since } | Asked::Denied { since }, EvictionOutcome::Evicted) => {
                *asked = Asked::CoolingDown { since };
            }
            (Asked::Pending { since }, EvictionOutcome::Denied) => {
                *asked = Asked::Denied { since: now };
                self.recent.retain(|spent| spent.owner != owner || spent.at != since);
            }
            // The pod has left the node for any reason: it still counts against the budgets.
            (Asked::Pending { .. }, EvictionOutcome::Gone) => {
                self.owners.remove(owner);
            }
            (Asked::Denied { .. }, EvictionOutcome::Denied | EvictionOutcome::Gone)
            | (
                Asked::CoolingDown { .. },
                EvictionOutcome::Evicted | EvictionOutcome::Denied | EvictionOutcome::Gone,
            ) => {}
        }
    }
}

fn budget(count: u32) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests;
