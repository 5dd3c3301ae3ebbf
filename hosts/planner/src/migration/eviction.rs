//! Active rescheduling: which of the recommended pods may be evicted now.
//!
//! Opt-in. "It does not trigger during normal operation; only when facility stress exceeds the configured threshold",
//! so pods stay on a node that is only draining, unless they keep it from becoming an eco node past the deadline of its
//! drain and are to be evicted for that: then the deadline is the wait, and they go to nodes at full power only. Conditions: the stress has lasted long enough, the pod's controller
//! is not in its cooldown and has another pod that serves, the budgets of the node, the namespace and the cluster are
//! not spent, and there is a node that can accept the pod and is not stressed itself. A dry run follows the same rules and spends the same budgets.
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

use super::{Destinations, MigrationReason, NodeConditions, RunningPod, Site, Stays, WantedPlace};
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
    /// A controller of a kind that cannot be told about an eviction.
    Other,
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
    /// How many other pods of its owner serve.
    pub others: u32,
    /// It is already being deleted.
    pub leaving: bool,
    /// It needs full power, the drain of its node is overdue, and what follows then is its eviction.
    pub ends_drain: bool,
}

/// The outcome of an eviction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EvictionOutcome {
    /// The pod is being evicted.
    Evicted,
    /// Nothing was moved: the API refused it, for example for a disruption budget, or could not be reached, or the
    /// owner's annotation says that another pod was evicted recently.
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
        /// A node that can accept it.
        to: String,
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
    /// Its controller is of a kind that cannot be told about an eviction.
    OtherController,
    /// No other pod of its owner serves.
    LastReplica,
    /// The node is draining and not stressed.
    NoStress,
    /// The stress is only modelled where it should be measured, or is not known at all: data of the facility or of the
    /// node are missing or too old.
    FacilityStale,
    /// The stress has not lasted long enough.
    StressTooShort,
    /// A pod of its owner was evicted recently, or is about to be.
    OwnerCoolingDown,
    /// The node's eviction budget is spent.
    NodeBudgetSpent,
    /// The namespace's eviction budget is spent.
    NamespaceBudgetSpent,
    /// The cluster's eviction budget is spent.
    ClusterBudgetSpent,
    /// No node that is not stressed itself can accept it.
    NoDestination,
}

impl Skip {
    /// All of them.
    pub const ALL: [Self; 16] = [
        Self::NotReschedulable,
        Self::PerformanceClass,
        Self::UnclearClass,
        Self::AlreadyLeaving,
        Self::NoController,
        Self::Pinned,
        Self::OtherController,
        Self::LastReplica,
        Self::NoStress,
        Self::FacilityStale,
        Self::StressTooShort,
        Self::OwnerCoolingDown,
        Self::NodeBudgetSpent,
        Self::NamespaceBudgetSpent,
        Self::ClusterBudgetSpent,
        Self::NoDestination,
    ];

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
            Self::OtherController => "other_controller",
            Self::LastReplica => "last_replica",
            Self::NoStress => "no_stress",
            Self::FacilityStale => "facility_stale",
            Self::StressTooShort => "stress_too_short",
            Self::OwnerCoolingDown => "owner_cooldown",
            Self::NodeBudgetSpent => "rate_limited",
            Self::NamespaceBudgetSpent => "namespace_rate_limited",
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
    namespace: String,
    owner: String,
}

/// A pod that is to leave.
struct Leave<'a> {
    candidate: &'a EvictionCandidate<'a>,
    site: &'a Site<'a>,
    owner: &'a str,
    reason: MigrationReason,
    to: &'a str,
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
        let places: BTreeMap<_, _> =
            facts.sites.iter().enumerate().map(|(at, site)| (site.node.name, (at, site))).collect();
        let mut destinations = Destinations::new(law.migration, law.tuning.relief, facts.sites);
        let mut queue: Vec<_> = facts
            .candidates
            .iter()
            .filter_map(|candidate| places.get(candidate.pod.node).map(|&(at, site)| (at, site, candidate)))
            .filter(|(_, site, _)| law.migration.reason(&site.node).is_some())
            .collect();
        queue.sort_by_key(|(_, site, candidate)| {
            let heat = law.strain(&site.node).map(|(_, percent)| percent);
            (std::cmp::Reverse(heat), site.node.name, candidate.pod.namespace, candidate.pod.name)
        });
        let mut decisions = Vec::with_capacity(queue.len());
        for (from, site, candidate) in queue {
            let verdict = self.allowed(law, facts.now, site, candidate).and_then(|(owner, reason)| {
                let wanted = WantedPlace { from, reason, needs: candidate.needs, before: None };
                // A stress that only seems to be low is no better place.
                let offers = |other: &Site<'_>| {
                    let is_full = other.node.class == SchedulableClass::Performance;
                    law.sees(&other.node) && (is_full || !candidate.ends_drain)
                };
                let may_run = |at: usize| {
                    facts.sites.get(at).is_some_and(|other| offers(other) && may_run(candidate, other))
                };
                let to = destinations.take(&wanted, may_run).and_then(|at| facts.sites.get(at));
                let to = to.ok_or(Skip::NoDestination)?;
                let leave = Leave { candidate, site, owner, reason, to: to.node.name };
                Ok(self.evict(law, facts.now, &leave))
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

    /// Notices which nodes are stressed, without deciding anything: a stress must last without a break.
    pub fn watch<'a>(
        &mut self,
        law: &EvictionLaw,
        now: Stamp,
        nodes: impl IntoIterator<Item = &'a NodeConditions<'a>>,
    ) {
        let strained: BTreeSet<_> =
            nodes.into_iter().filter(|node| law.strain(node).is_some()).map(|node| node.name).collect();
        // A clock that was set back restarts the count.
        self.stressed_since.retain(|node, since| strained.contains(node.as_str()) && *since <= now);
        for node in strained {
            if !self.stressed_since.contains_key(node) {
                self.stressed_since.insert(node.to_owned(), now);
            }
        }
    }

    /// Forgets which nodes are stressed, while nobody watches them.
    pub fn look_away(&mut self) {
        self.stressed_since.clear();
    }

    /// Takes in the outcome of an earlier decision.
    pub fn conclude(&mut self, now: Stamp, owner: &str, outcome: EvictionOutcome) {
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

    /// Checks all conditions except the destination.
    fn allowed<'a>(
        &self,
        law: &EvictionLaw,
        now: Stamp,
        site: &Site<'_>,
        candidate: &EvictionCandidate<'a>,
    ) -> Result<(&'a str, MigrationReason), Skip> {
        if candidate.ends_drain {
            candidate.pod.may_end_drain()?
        } else {
            candidate.pod.may_leave()?
        }
        if candidate.leaving {
            return Err(Skip::AlreadyLeaving);
        }
        let (key, evicted_ago) = match candidate.owner {
            Owner::Nobody => return Err(Skip::NoController),
            Owner::Pinned => return Err(Skip::Pinned),
            Owner::Other => return Err(Skip::OtherController),
            Owner::Controller { key, evicted_ago } => (key, evicted_ago),
        };
        let reason = if candidate.ends_drain { Self::drain(law, site) } else { Self::stress(law, site) }?;
        if candidate.others == 0 {
            return Err(Skip::LastReplica);
        }
        if !candidate.ends_drain && self.stressed_for(now, site) < law.tuning.stressed_for {
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
        let left = self.recent.iter().filter(|spent| spent.namespace == candidate.pod.namespace).count();
        if left >= budget(law.tuning.per_namespace) {
            return Err(Skip::NamespaceBudgetSpent);
        }
        Ok((key, reason))
    }

    /// The stress that is a reason to evict.
    fn stress(law: &EvictionLaw, site: &Site<'_>) -> Result<MigrationReason, Skip> {
        if let Some((reason, _)) = law.strain(&site.node) {
            return Ok(reason);
        }
        let is_stressed = law.migration.reason(&site.node).and_then(MigrationReason::stress).is_some();
        Err(if is_stressed { Skip::FacilityStale } else { Skip::NoStress })
    }

    /// The drain that is a reason to evict, while the node is seen as well as for a stress.
    fn drain(law: &EvictionLaw, site: &Site<'_>) -> Result<MigrationReason, Skip> {
        match site.node.class {
            SchedulableClass::Draining if law.sees(&site.node) => Ok(MigrationReason::Draining),
            SchedulableClass::Draining => Err(Skip::FacilityStale),
            SchedulableClass::Performance | SchedulableClass::Eco | SchedulableClass::Unknown => {
                Err(Skip::NoStress)
            }
        }
    }

    /// How long a node has been stressed without a break.
    fn stressed_for(&self, now: Stamp, site: &Site<'_>) -> Micros {
        let since = self.stressed_since.get(site.node.name);
        since.and_then(|&since| now.since(since)).unwrap_or(Micros::ZERO)
    }

    fn evict(&mut self, law: &EvictionLaw, now: Stamp, leave: &Leave<'_>) -> EvictionVerdict {
        let &Leave { candidate, site, owner, reason, to } = leave;
        let dry_run = law.tuning.dry_run;
        let asked = if dry_run { Asked::CoolingDown { since: now } } else { Asked::Pending { since: now } };
        self.owners.insert(owner.to_owned(), asked);
        let (node, namespace) = (site.node.name.to_owned(), candidate.pod.namespace.to_owned());
        self.recent.push(Spent { at: now, node, namespace, owner: owner.to_owned() });
        let (owner, to) = (owner.to_owned(), to.to_owned());
        EvictionVerdict::Evict { owner, from_class: site.node.class, reason, to, dry_run }
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
        self.watch(law, facts.now, facts.sites.iter().map(|site| &site.node));
    }
}

fn budget(count: u32) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests;
