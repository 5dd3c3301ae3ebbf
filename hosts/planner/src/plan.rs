//! The whole pass: what is known of the cluster goes in, what is to be written comes out.
//!
//! As the shared reconcile flow has it: select the eligible nodes; build the hardware view; sort by normalized compute
//! density, highest first, and behind all others those that would have to be raised and cannot be now; let the policy
//! build the desired plan with the family floor; apply the downgrade guard; and say which desired state and which labels
//! are to be written. A node that stopped being eligible is released.
//!
//! A node that was planned before and is away keeps its place, and nothing is asked of it: nodes that go and come together,
//! as after an outage of the API server, must not make the others change their profiles.
//!
//! The same facts give the same plan whatever their order, and a cluster that already is as planned gives no actions.
//! Nothing here is remembered between passes but the [`Memory`], which the caller commits node by node, once the node's
//! actions were carried out: what failed is simply planned again, and is counted when it succeeds.

mod action;
mod facts;
mod memory;
mod release;

pub use action::{Action, Desired, DrainingLabel};
pub use facts::{Confirmation, NodeRow, Presence, PublishedRow, Sight, Snapshot};
pub use memory::{Memory, NodeMemory};
pub use release::{Release, ReleaseReason};

use crate::catalog::Catalog;
use crate::demand::{Demand, PodCounts};
use crate::density::{Density, Family};
use crate::guard::{self, CapsOf, GuardDecision, GuardFacts, GuardMode, Held, State};
use crate::intent::{Caps, Intents};
use crate::inventory::{Resolved, Resolver};
use crate::names::Beside;
use crate::policy::{Choice, Fallback, FamilyFloor, Policy, PolicyFacts};
use crate::profile::{PerProfile, Profile};
use facts::sorted;
use memory::Planned;
use power_units::{Micros, Stamp};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

/// How a cluster is planned. Every part was checked where it was built.
#[derive(Clone, Debug)]
pub struct Settings {
    /// How many nodes run at full power, and which.
    pub policy: Policy,
    /// Whether each hardware family keeps performance supply.
    pub floor: FamilyFloor,
    /// How strictly downgrades are guarded.
    pub guard: GuardMode,
    /// When nodes carry the draining label.
    pub draining_label: DrainingLabel,
    /// The caps of the profiles.
    pub intents: Intents,
    /// The known models.
    pub catalog: Catalog,
    /// A node that became a performance node stays one for at least so long, even above the count that the policy asks
    /// for, so that pressure around a threshold does not make nodes flap. Without it a node may go with the next plan.
    pub dwell: Option<Micros>,
    /// How long a release waits for an agent to confirm that the caps are lifted.
    pub release_patience: Micros,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The policy that decided.
    pub policy: &'static str,
    /// Why that is not the configured one, if it is not.
    pub fallback: Option<Fallback>,
    /// The demand in managed scope, unless the pods are not known.
    pub demand: Option<Demand>,
    /// Every planned node, densest first; those that cannot be raised after all others.
    pub nodes: Vec<NodePlan>,
    /// Eligible nodes that are not ready and keep their place. They are left as they are.
    pub away: Vec<Arc<str>>,
    /// Eligible nodes that are not ready and have no place: they are lost, or never had one. They are left as they are.
    pub out: Vec<Arc<str>>,
    /// Nodes that were planned before and are not eligible any more, by name.
    pub releases: Vec<Release>,
}

/// What is planned for one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodePlan {
    /// Its name.
    pub node: Arc<str>,
    /// Its place, as the row says.
    pub place: usize,
    /// What it holds of compute.
    pub density: Density,
    /// What it is exchangeable with.
    pub family: Family,
    /// Its CPU or GPU model is one that the catalogue does not know.
    pub unrecognised: bool,
    /// What the policy plans.
    pub planned: Profile,
    /// Performance pods that run on it, unless the pods are not known.
    pub blocking: Option<u32>,
    /// What the guard made of that: the state, why it waits, the transitions to count when this is committed.
    pub guard: GuardDecision,
    /// The desired state, unless too little is known to publish one.
    pub desired: Option<Desired>,
    /// What is to be written, in this order; each only after the one before it succeeded.
    pub actions: Vec<Action>,
    /// What to remember of the node when all of that is done; nothing where just that is remembered.
    pub remember: Option<NodeMemory>,
}

/// Plans the cluster.
#[must_use]
pub fn plan(snapshot: &Snapshot, settings: &Settings, memory: &Memory) -> Plan {
    let rows = sorted(&snapshot.nodes, |row| &row.name);
    let eligible: Vec<&NodeRow> = rows.iter().copied().filter(|row| row.is_eligible()).collect();
    let published = sorted(&snapshot.published, |row| &row.node);
    let published = Beside::new(names(&eligible), published.into_iter().map(|row| (&*row.node, row)));
    let remembered = Beside::new(names(&eligible), memory.iter());
    let (demand, blocking) = snapshot.pods.as_ref().map(|pods| demand_of(pods, &eligible)).unzip();

    let (candidates, out) = candidates(&eligible, &remembered, &published, settings);
    let mut order: Vec<&Candidate<'_>> = candidates.iter().collect();
    // The names ascend already, and the sort is stable.
    order.sort_by_cached_key(|candidate| (candidate.is_passed_over(), Reverse(candidate.density.order)));
    let families = number_families(&order);
    let pressure = demand.map(|demand: Demand| demand.performance_only);
    let facts = PolicyFacts { families: &families, pressure, wall_clock: snapshot.wall_clock };
    let Choice { profiles, name, fallback } = settings.policy.choose(settings.floor, &facts);

    let pass = Pass { settings, remembered, published, blocking, now: snapshot.now, policy: name, fallback };
    Plan {
        policy: name,
        fallback,
        demand,
        nodes: order
            .into_iter()
            .zip(profiles)
            .filter(|(node, _)| node.is_ready())
            .map(|(node, planned)| pass.node(node, planned))
            .collect(),
        away: candidates.iter().filter(|node| !node.is_ready()).map(|node| node.row.name.clone()).collect(),
        out,
        releases: release::releases(&pass, &rows),
    }
}

fn names<'a>(nodes: &[&'a NodeRow]) -> impl ExactSizeIterator<Item = &'a str> {
    nodes.iter().map(|row| &*row.name)
}

/// The demand of the pods that wait for a node or have one of these, and the performance pods on each of these. A pod
/// that waits is demand wherever it will go; one that runs elsewhere is served already.
fn demand_of(pods: &PodCounts, eligible: &[&NodeRow]) -> (Demand, Vec<u32>) {
    let here = Beside::new(names(eligible), pods.bound());
    let demand = here.each().flatten().fold(pods.waiting(), Demand::plus);
    (demand, here.each().map(|pods| pods.map_or(0, |pods| pods.performance_only)).collect())
}

/// A node with a place in the order.
struct Candidate<'a> {
    /// Its place among the eligible nodes.
    at: usize,
    row: &'a NodeRow,
    remembered: Option<&'a Planned>,
    resolved: Resolved<'a>,
    density: Density,
    family: Family,
    /// The profile that it was told to have.
    told: Option<Profile>,
}

impl Candidate<'_> {
    fn is_ready(&self) -> bool {
        self.row.presence == Presence::Ready
    }

    /// It would have to be raised, and is away or not seen clearly enough for that: the others are asked first, so that
    /// what the policy wants is there all the same.
    fn is_passed_over(&self) -> bool {
        let has_it = match self.remembered {
            Some(node) => node.state == State::ActivePerformance,
            None => self.row.profile() == Some(Profile::Performance),
        };
        match self.row.sight {
            Sight::Unreadable => true,
            // One that was about to be raised goes on with that when it is back.
            Sight::Clear | Sight::Blind if !self.is_ready() => {
                !has_it && self.told != Some(Profile::Performance)
            }
            Sight::Clear => false,
            Sight::Blind => !has_it,
        }
    }
}

/// The nodes that have a place, and the names of the others.
fn candidates<'a>(
    eligible: &[&'a NodeRow],
    remembered: &Beside<'a, &'a NodeMemory>,
    published: &Beside<'a, &'a PublishedRow>,
    settings: &'a Settings,
) -> (Vec<Candidate<'a>>, Vec<Arc<str>>) {
    let mut resolver = Resolver::new(&settings.catalog);
    let nodes = eligible.iter().copied().zip(remembered.each()).zip(published.each()).enumerate();
    let (mut candidates, mut out) = (Vec::with_capacity(eligible.len()), Vec::new());
    for (at, ((row, memory), published)) in nodes {
        let remembered = memory.and_then(NodeMemory::as_planned);
        let has_a_place = match row.presence {
            Presence::Ready => true,
            // Machines that still start are not counted.
            Presence::Away => remembered.is_some() || published.is_some(),
            Presence::Lost => false,
        };
        if !has_a_place {
            out.push(row.name.clone());
            continue;
        }
        let gpus = remembered.and_then(|node| node.gpus.as_ref());
        let gpu_cap = published.is_some_and(|published| published.caps.gpu.is_some());
        let resolved = resolver.resolve(&row.hardware, gpus, gpu_cap);
        let (density, family) = (Density::of(&resolved), Family::of(&resolved.hardware));
        let told = published.and_then(|published| published.profile);
        candidates.push(Candidate { at, row, remembered, resolved, density, family, told });
    }
    (candidates, out)
}

/// A number for each family, so that the policies need no names.
fn number_families(candidates: &[&Candidate<'_>]) -> Vec<u32> {
    let mut numbers = BTreeMap::new();
    let mut number = |family| {
        let next = u32::try_from(numbers.len()).unwrap_or(u32::MAX);
        *numbers.entry(family).or_insert(next)
    };
    candidates.iter().map(|candidate| number(&candidate.family)).collect()
}

/// What every node of one pass is planned with.
struct Pass<'a> {
    settings: &'a Settings,
    remembered: Beside<'a, &'a NodeMemory>,
    published: Beside<'a, &'a PublishedRow>,
    /// Performance pods by the places of their nodes, unless the pods are not known.
    blocking: Option<Vec<u32>>,
    now: Stamp,
    policy: &'static str,
    fallback: Option<Fallback>,
}

impl Pass<'_> {
    fn node(&self, candidate: &Candidate<'_>, planned: Profile) -> NodePlan {
        let &Candidate { at, row, remembered, ref resolved, density, ref family, .. } = candidate;
        let published = self.published.at(at);
        let blocking = self.blocking.as_ref().and_then(|blocking| blocking.get(at).copied());
        let was = published.map_or_else(Caps::default, |published| published.caps);
        let caps_of = |profile| self.settings.intents.caps(resolved, profile).after(&was);
        let caps = PerProfile { performance: caps_of(Profile::Performance), eco: caps_of(Profile::Eco) };

        let state =
            remembered.map_or_else(|| observe(row, published, &caps, self.settings.guard), |node| node.state);
        let since = remembered.and_then(|node| node.performance_since).unwrap_or(self.now);
        let dwells = planned == Profile::Eco && state == State::ActivePerformance && self.dwells(since);
        let facts = GuardFacts {
            planned: if dwells { Profile::Performance } else { planned },
            blocking,
            performance_caps_in_force: in_force(row.confirmation, &caps.performance, &was),
            label: row.profile(),
            sight: row.sight,
        };
        let mut guard = guard::step(state, self.settings.guard, &facts);
        if dwells && guard.held.is_none() {
            guard.held = Some(Held::Dwell);
        }

        let desired = guard.publish.map(|publish| Desired {
            profile: publish.profile,
            caps: match publish.caps {
                CapsOf::Profile(profile) => caps.of(profile),
                CapsOf::Published => was,
            },
            draining: publish.draining,
            policy: self.policy,
        });
        let label = guard.publish.and_then(|publish| publish.label);
        let mark = self.settings.draining_label;
        let actions = action::changes(row, published, desired.as_ref(), label, mark, self.fallback.is_some());
        let performance_since = (guard.state == State::ActivePerformance).then_some(since);
        NodePlan {
            node: row.name.clone(),
            place: row.place,
            density,
            family: family.clone(),
            unrecognised: resolved.cpu_is_unrecognised() || resolved.gpu_is_unrecognised(),
            planned,
            blocking,
            guard,
            desired,
            actions,
            remember: match (row.sight, remembered) {
                // What cannot be read now may say again what it said.
                (Sight::Unreadable, Some(_)) => None,
                (Sight::Unreadable, None) | (Sight::Clear | Sight::Blind, _) => {
                    let gpus = resolved.hardware.gpu.clone();
                    let now = Planned { state: guard.state, performance_since, gpus };
                    (remembered != Some(&now)).then_some(NodeMemory::Planned(now))
                }
            },
        }
    }

    fn dwells(&self, since: Stamp) -> bool {
        let so_far = self.now.since(since);
        self.settings.dwell.zip(so_far).is_some_and(|(dwell, so_far)| so_far < dwell)
    }
}

/// The state of a node that no earlier pass remembers. A performance label over the caps of eco is not taken at its word:
/// the node is eco until it is seen to have more.
fn observe(
    row: &NodeRow,
    published: Option<&PublishedRow>,
    caps: &PerProfile<Caps>,
    mode: GuardMode,
) -> State {
    let draining = row.is_draining() || published.is_some_and(|published| published.draining);
    let whose = whose(row, published, caps);
    let state = State::observed(row.profile(), draining, whose, mode);
    let is_capped = whose == CapsOf::Profile(Profile::Eco) && row.confirmation != Confirmation::Unenforced;
    if state == State::ActivePerformance && is_capped { State::ActiveEco } else { state }
}

/// Whose caps are published. A node without a desired state was never capped by us; where the caps of both profiles are
/// the same, they are those of the label.
fn whose(row: &NodeRow, published: Option<&PublishedRow>, caps: &PerProfile<Caps>) -> CapsOf {
    let labelled = row.profile().unwrap_or(Profile::Performance);
    let other = match labelled {
        Profile::Performance => Profile::Eco,
        Profile::Eco => Profile::Performance,
    };
    published.map_or(CapsOf::Profile(Profile::Performance), |published| {
        let of = [labelled, other].into_iter().find(|&profile| published.caps.same_as(&caps.of(profile)));
        of.map_or(CapsOf::Published, CapsOf::Profile)
    })
}

/// Whether the node really has the caps of performance: its agent read back those and no far lower ones, or nobody can
/// have capped it, or there is nothing to cap and nothing was.
fn in_force(confirmation: Confirmation, performance: &Caps, was: &Caps) -> bool {
    match confirmation {
        Confirmation::Unenforced => true,
        Confirmation::InForce => was.same_as(performance),
        Confirmation::Short => false,
        Confirmation::Awaited => *performance == Caps::default() && *was == Caps::default(),
    }
}

#[cfg(test)]
mod tests;
