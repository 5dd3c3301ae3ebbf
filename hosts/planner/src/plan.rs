//! A whole pass: the cluster's state goes in, the writes come out.
//!
//! As in the shared reconcile flow: select the eligible nodes; build the hardware view; sort by normalized compute
//! density, highest first, with the nodes last that would have to be raised but cannot be now; let the policy build the
//! desired plan with the family floor; apply the downgrade guard; and return the desired states and labels. A node that
//! is no longer eligible is released.
//!
//! A planned node that is away keeps its place, and nothing is written to it: when many nodes leave and return
//! together, as after an outage of the API server, the others must not change their profiles.
//!
//! The same facts give the same plan in any order, and a cluster that matches its plan has an empty [`diff`]. Passes
//! share no state but the [`PlanMemory`]. The caller commits it node by node after the differences were written: a
//! failed write is still a difference, and is counted when it succeeds.

mod memory;
mod objects;
mod release;

pub use memory::{NodeMemory, PlanMemory};
pub use objects::{DrainingLabel, LabelsSay, ObjectChange, Objects, StateSays, desired, diff};
pub use release::{Release, ReleaseReason};

use crate::budget::{BudgetLimits, BudgetMemory, SiteLimit};
use crate::demand::{PodCounts, ProfileDemand};
use crate::density::Family;
use crate::facility::Facility;
use crate::guard::{
    self, CapsOf, GuardDecision, GuardFacts, GuardMode, HoldReason, StateName, TransitionState,
};
use crate::intent::{Intents, NodeCaps};
use crate::names::Beside;
use crate::node::{Confirmation, DesiredState, Node, Presence, Visibility};
use crate::policy::{Choice, Fallback, FamilyFloor, PlacementPolicy, PlacementPolicyFacts};
use crate::profile::{PerProfile, Profile};
use crate::twin::TwinLaw;
use crate::twin::cooling::Cooling;
use memory::Planned;
use power_units::{Micros, Stamp};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The cluster at one moment.
#[derive(Clone, Debug)]
pub struct ClusterState {
    /// Every node, eligible or not, each once.
    pub nodes: Vec<Node>,
    /// Nodes without a Node object whose other objects still exist.
    pub gone: Vec<Node>,
    /// The limits that persons have written, parents first.
    pub limits: Vec<SiteLimit>,
    /// The pods in managed scope; `None` when they could not be listed.
    pub pods: Option<PodCounts>,
    /// What the building's sensors say.
    pub facility: Facility,
    /// The monotonic clock.
    pub now: Stamp,
    /// The wall clock, since 1970.
    pub wall_clock: Micros,
    /// The writes of a former leader have ended, and every limit can be read: grants may be raised.
    pub raises: bool,
}

/// The settings of a plan. Every part was checked when it was built.
#[derive(Clone, Debug)]
pub struct Settings {
    /// How many nodes run at full power, and which.
    pub policy: PlacementPolicy,
    /// Whether each hardware family keeps performance supply.
    pub floor: FamilyFloor,
    /// How strictly downgrades are guarded.
    pub guard: GuardMode,
    /// When nodes carry the draining label.
    pub draining_label: DrainingLabel,
    /// The caps of the profiles.
    pub intents: Intents,
    /// A node that became a performance node stays one for at least this long, even above the policy's count, so that
    /// pressure around a threshold does not make nodes flap. Without it a node may change with the next plan.
    pub dwell: Option<Micros>,
    /// How long performance pods may keep a node from becoming an eco node, and what follows then.
    pub drain: DrainLaw,
    /// How long a release waits for an agent to confirm that the caps are lifted.
    pub release_patience: Micros,
    /// The limits to keep.
    pub budget: BudgetLimits,
    /// Under limits a node is tainted until it has confirmed its grant.
    pub taint_uncapped: bool,
    /// The settings of the twins.
    pub twin: TwinLaw<Cooling>,
    /// How long a value of the facility is fresh.
    pub facility_hold: Micros,
}

/// How long a drain may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DrainLaw {
    /// After so long a drain is overdue.
    pub deadline: Micros,
    /// What follows then.
    pub then: DrainOverdue,
}

/// What follows when a drain is overdue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DrainOverdue {
    /// It is told, and goes on.
    Tell,
    /// It is told, and the node's caps, label and mark stay as they are until its performance pods have left, or it is
    /// planned for performance again.
    Hold,
    /// It is told, goes on, and its performance pods may be evicted, by the law of evictions.
    Evict,
}

/// The decisions of policy and guard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The policy that decided.
    pub policy: &'static str,
    /// Why another policy than the configured one decided, if so.
    pub fallback: Option<Fallback>,
    /// The demand in managed scope; `None` when the pods are unknown.
    pub demand: Option<ProfileDemand>,
    /// Every planned node, densest first; nodes that cannot be raised come last.
    pub nodes: Vec<NodeDecision>,
    /// Eligible nodes that are not ready but keep their place. They are not changed.
    pub away: Vec<Arc<str>>,
    /// Eligible nodes that are not ready and have no place: they are lost, or never had one. They are not changed.
    pub out: Vec<Arc<str>>,
    /// Nodes that were planned before and are no longer eligible, by name.
    pub releases: Vec<Release>,
}

/// The decision for one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeDecision {
    /// Its name.
    pub node: Arc<str>,
    /// Its index among the nodes of the cluster.
    pub place: usize,
    /// The profile that the policy plans.
    pub planned: Profile,
    /// Performance pods that run on it; `None` when the pods are unknown.
    pub blocking: Option<u32>,
    /// Performance pods have kept it from becoming an eco node for longer than they may.
    pub overdue: bool,
    /// The guard's decision: the state, why it waits, and the transitions to count when this is committed.
    pub guard: GuardDecision,
    /// The desired state, unless too little is known to publish one.
    pub desired: Option<DesiredState>,
    /// The node's memory after all of that is written; `None` when it does not change.
    pub remember: Option<NodeMemory>,
}

/// Plans the cluster.
#[must_use]
pub fn plan(cluster: &ClusterState, settings: &Settings, memory: &PlanMemory) -> Plan {
    let mut nodes: Vec<(usize, &Node)> = cluster.nodes.iter().enumerate().collect();
    // They are mostly in this order already.
    nodes.sort_by(|(_, one), (_, other)| one.name.cmp(&other.name));
    let (eligible, others): (Vec<_>, Vec<_>) = nodes.into_iter().partition(|(_, node)| node.is_eligible());
    let remembered = Beside::new(names(&eligible), memory.nodes());
    let (demand, blocking) = cluster.pods.as_ref().map(|pods| demand_of(pods, &eligible)).unzip();

    let (seats, out) = seats(&eligible, &remembered);
    let is_limited = settings.budget.any() || cluster.limits.iter().any(|limit| limit.enforced);
    let budget = is_limited.then_some(&memory.budget);
    let mut order: Vec<&Seat<'_>> = seats.iter().collect();
    // The names are sorted already, and the sort is stable.
    order.sort_by_cached_key(|seat| {
        (seat.is_passed_over(&settings.budget, budget), Reverse(seat.node.machine.density.order))
    });
    let families = number_families(&order);
    let pressure = demand.map(ProfileDemand::pressure);
    let facts = PlacementPolicyFacts { families: &families, pressure, wall_clock: cluster.wall_clock };
    let Choice { profiles, name, fallback } = settings.policy.choose(settings.floor, &facts);

    let pass = Pass { settings, remembered, blocking, now: cluster.now, policy: name, budget };
    let leaving = others.into_iter().map(|(_, node)| node).chain(&cluster.gone);
    Plan {
        policy: name,
        fallback,
        demand,
        nodes: order
            .into_iter()
            .zip(profiles)
            .filter(|(seat, _)| seat.is_ready())
            .map(|(seat, planned)| pass.node(seat, planned))
            .collect(),
        away: seats.iter().filter(|seat| !seat.is_ready()).map(|seat| seat.node.name.clone()).collect(),
        out,
        releases: release::releases(&pass, leaving),
    }
}

fn names<'a>(nodes: &[(usize, &'a Node)]) -> impl ExactSizeIterator<Item = &'a str> {
    nodes.iter().map(|(_, node)| &*node.name)
}

/// The demand of the waiting pods and the pods on these nodes, and the performance pods on each node. A waiting pod is
/// demand wherever it will run; a pod on another node is served already.
fn demand_of(pods: &PodCounts, eligible: &[(usize, &Node)]) -> (ProfileDemand, Vec<u32>) {
    let here = Beside::new(names(eligible), pods.bound());
    let demand = here.each().flatten().fold(pods.waiting(), ProfileDemand::plus);
    (demand, here.each().map(|pods| pods.map_or(0, |pods| pods.performance_only)).collect())
}

/// A node with a place in the order.
struct Seat<'a> {
    /// Its index among the eligible nodes.
    at: usize,
    /// Its index in the cluster.
    place: usize,
    node: &'a Node,
    remembered: Option<&'a Planned>,
}

impl Seat<'_> {
    fn is_ready(&self) -> bool {
        self.node.presence == Presence::Ready
    }

    /// It would have to be raised, but is away or its state is not known well enough. Other nodes are chosen first, so
    /// that the policy still gets its count.
    fn is_passed_over(&self, limits: &BudgetLimits, budget: Option<&BudgetMemory>) -> bool {
        let has_it = match self.remembered {
            Some(node) => node.state == TransitionState::ActivePerformance,
            None => self.node.labelled() == Some(Profile::Performance),
        };
        let told = self.node.published.obeyed().map(|there| there.desired.profile);
        match self.node.visibility {
            Visibility::Unreadable => true,
            // A node that was about to be raised continues when it is back.
            Visibility::Clear | Visibility::Blind if !self.is_ready() => {
                !has_it && told != Some(Profile::Performance)
            }
            // One that was never told to be eco may be at full power, and keeps its turn until its first receipt.
            Visibility::Clear => {
                let waits = told == Some(Profile::Eco) && is_held(self.node, limits, budget);
                !has_it && (self.node.is_frozen() || waits)
            }
            Visibility::Blind => !has_it,
        }
    }
}

/// The nodes that have a place, and the names of the others.
fn seats<'a>(
    eligible: &[(usize, &'a Node)],
    remembered: &Beside<'a, &'a NodeMemory>,
) -> (Vec<Seat<'a>>, Vec<Arc<str>>) {
    let (mut seats, mut out) = (Vec::with_capacity(eligible.len()), Vec::new());
    for (at, (&(place, node), memory)) in eligible.iter().zip(remembered.each()).enumerate() {
        let remembered = memory.and_then(NodeMemory::as_planned);
        let has_a_place = match node.presence {
            Presence::Ready => true,
            // Machines that are still starting are not counted.
            Presence::Away => remembered.is_some() || node.published.obeyed().is_some(),
            Presence::Lost | Presence::Gone => false,
        };
        if has_a_place {
            seats.push(Seat { at, place, node, remembered });
        } else {
            out.push(node.name.clone());
        }
    }
    (seats, out)
}

/// A number for each family; the policies need no names.
fn number_families(seats: &[&Seat<'_>]) -> Vec<u32> {
    let mut numbers: BTreeMap<&Family, u32> = BTreeMap::new();
    let mut number = |family| {
        let next = u32::try_from(numbers.len()).unwrap_or(u32::MAX);
        *numbers.entry(family).or_insert(next)
    };
    seats.iter().map(|seat| number(&seat.node.machine.family)).collect()
}

/// The inputs of one pass for every node.
struct Pass<'a> {
    settings: &'a Settings,
    remembered: Beside<'a, &'a NodeMemory>,
    /// Performance pods by node index; `None` when the pods are unknown.
    blocking: Option<Vec<u32>>,
    now: Stamp,
    policy: &'static str,
    /// What the last round of the budget found, where there are limits.
    budget: Option<&'a BudgetMemory>,
}

impl Pass<'_> {
    fn node(&self, seat: &Seat<'_>, planned: Profile) -> NodeDecision {
        let &Seat { at, place, node, remembered } = seat;
        let blocking = self.blocking.as_ref().and_then(|blocking| blocking.get(at).copied());
        let was = node.published.caps();
        let caps_of = |profile| self.settings.intents.caps(&node.machine.resolved, profile).after(&was);
        let caps = PerProfile { performance: caps_of(Profile::Performance), eco: caps_of(Profile::Eco) };

        let state = remembered.map_or_else(|| observe(node, &caps, self.settings.guard), |node| node.state);
        let since = remembered.and_then(|node| node.performance_since).unwrap_or(self.now);
        let dwells =
            planned == Profile::Eco && state == TransitionState::ActivePerformance && self.dwells(since);
        let facts = GuardFacts {
            planned: if dwells { Profile::Performance } else { planned },
            blocking,
            performance_caps_in_force: in_force(node.confirmation, &caps.performance, &was)
                && self.fits(node),
            label: node.labelled(),
            visibility: self.visibility(node),
        };
        let mut guard = match node.is_frozen() && node.visibility != Visibility::Unreadable {
            true => guard::paused(state),
            false => guard::step(state, self.settings.guard, &facts),
        };
        if guard.held == Some(HoldReason::Blind) && node.visibility == Visibility::Clear {
            guard.held = Some(HoldReason::NoReceipt);
        }
        let drains = planned == Profile::Eco
            && blocking.is_some_and(|pods| pods > 0)
            && guard.state.name() == StateName::DrainingPerformance;
        let draining_since = remembered.and_then(|node| node.draining_since).unwrap_or(self.now);
        let draining_since = drains.then_some(draining_since);
        let so_far = draining_since.and_then(|since| self.now.since(since));
        let overdue = so_far.is_some_and(|so_far| so_far >= self.settings.drain.deadline);
        if overdue && self.settings.drain.then == DrainOverdue::Hold {
            guard = GuardDecision { held: Some(HoldReason::Draining), ..guard::paused(state) };
        }
        if dwells && guard.held.is_none() {
            guard.held = Some(HoldReason::Dwell);
        }

        let desired = guard.publish.map(|publish| DesiredState {
            profile: publish.profile,
            caps: match publish.caps {
                CapsOf::Profile(profile) => caps.of(profile),
                CapsOf::Published => was,
            },
            draining: publish.draining,
            policy: Some(self.policy.into()),
        });
        let performance_since = (guard.state == TransitionState::ActivePerformance).then_some(since);
        NodeDecision {
            node: node.name.clone(),
            place,
            planned,
            blocking,
            overdue,
            guard,
            desired,
            remember: match (node.visibility, remembered) {
                // An object that cannot be read now may become readable with its former content.
                (Visibility::Unreadable, Some(_)) => None,
                (Visibility::Unreadable, None) | (Visibility::Clear | Visibility::Blind, _) => {
                    let now = Planned { state: guard.state, performance_since, draining_since };
                    (remembered != Some(&now)).then_some(NodeMemory::Planned(now))
                }
            },
        }
    }

    /// Whether what the node is entitled to as a performance node is kept by the limits above it, whatever it holds now.
    fn fits(&self, node: &Node) -> bool {
        self.budget.is_none_or(|budget| budget.fits(&node.name))
    }

    /// How well the node is known to the guard. Under limits a node without a receipt may still have what it had before its first grant:
    /// it counts at its maximum, and nothing raises it meanwhile.
    fn visibility(&self, node: &Node) -> Visibility {
        let is_clear = node.visibility == Visibility::Clear;
        if is_clear && is_held(node, &self.settings.budget, self.budget) {
            Visibility::Blind
        } else {
            node.visibility
        }
    }

    fn dwells(&self, since: Stamp) -> bool {
        let so_far = self.now.since(since);
        self.settings.dwell.zip(so_far).is_some_and(|(dwell, so_far)| so_far < dwell)
    }
}

/// Whether nothing raises a node before it has confirmed a grant. One that is not waited for is raised only while what is counted keeps
/// the limits above it: an agent that has not reported yet may hold it at the caps of eco already.
fn is_held(node: &Node, limits: &BudgetLimits, budget: Option<&BudgetMemory>) -> bool {
    let is_kept = budget.is_none_or(|budget| budget.keeps(&node.name));
    node.is_held_for_receipt(limits) || (!is_kept && node.awaits_receipt(limits))
}

/// The state of a node without memory of an earlier pass. A performance label over the caps of eco is not trusted: the
/// node is eco until it is known to have more.
fn observe(node: &Node, caps: &PerProfile<NodeCaps>, mode: GuardMode) -> TransitionState {
    let draining = node.is_marked() || node.published.drains();
    let whose = whose(node, caps);
    let state = TransitionState::observed(node.labelled(), draining, whose, mode);
    let is_capped = whose == CapsOf::Profile(Profile::Eco) && node.confirmation != Confirmation::Unenforced;
    if state == TransitionState::ActivePerformance && is_capped { TransitionState::ActiveEco } else { state }
}

/// Whose caps are published. A node without a desired state was never capped by the operator; if the caps of both
/// profiles are equal, they count as those of the label.
fn whose(node: &Node, caps: &PerProfile<NodeCaps>) -> CapsOf {
    let labelled = node.labelled().unwrap_or(Profile::Performance);
    let other = match labelled {
        Profile::Performance => Profile::Eco,
        Profile::Eco => Profile::Performance,
    };
    node.published.obeyed().map_or(CapsOf::Profile(Profile::Performance), |there| {
        let is_of = |profile: &Profile| there.desired.caps.same_as(&caps.of(*profile));
        [labelled, other].into_iter().find(is_of).map_or(CapsOf::Published, CapsOf::Profile)
    })
}

/// Whether the node really has the caps of performance: its agent read them back and not far less, or nothing can have
/// capped it, or there is nothing to cap and nothing was capped.
fn in_force(confirmation: Confirmation, performance: &NodeCaps, was: &NodeCaps) -> bool {
    match confirmation {
        Confirmation::Unenforced => true,
        Confirmation::InForce => was.same_as(performance),
        Confirmation::Short => false,
        Confirmation::Awaited | Confirmation::Lifted => {
            *performance == NodeCaps::default() && *was == NodeCaps::default()
        }
    }
}

#[cfg(test)]
mod tests;
