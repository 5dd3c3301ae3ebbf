//! All decisions for the cluster, in one pure function of the observed state: the policy's plan with its guard and
//! releases, the twins, and the budget's grants. The writes follow from the decisions and the present objects
//! ([`plan::desired`], [`plan::diff`]).

use crate::budget::{self, BudgetMemory, GrantReach, Round, Rules, Stake};
use crate::demand::DeviceWork;
use crate::guard::StateName;
use crate::names::Beside;
use crate::node::{Node, Presence};
use crate::plan::{self, ClusterState, NodeDecision, Plan, PlanMemory, Settings};
use crate::profile::Profile;
use crate::twin::{self, SiteFacts, Twin, TwinFacts};
use joulie_core::budget::Priority;
use power_units::Watts;
use std::collections::BTreeMap;

/// The decisions, in columns beside the nodes.
#[derive(Clone, Debug)]
pub struct ClusterDecision {
    /// The decision of policy and guard.
    pub plan: Plan,
    /// The twins of the planned nodes, in the order of the plan.
    pub twins: Vec<Twin>,
    /// The budget's decision; an error if it cannot be computed, which would be a defect: then no grant may be
    /// written.
    pub budget: Result<Round, String>,
    /// What would be granted if every limit were enforced, where that is not so.
    pub trial: Option<Round>,
}

/// Decides for the cluster.
#[must_use]
pub fn decide(cluster: &ClusterState, settings: &Settings, memory: &mut PlanMemory) -> ClusterDecision {
    let plan = plan::plan(cluster, settings, memory);
    let round = |trial, memory: &mut BudgetMemory| {
        let rules = Rules { settings: &settings.budget, limits: &cluster.limits, trial };
        let stakes = stakes(cluster, rules, &plan);
        budget::round(&stakes, rules, memory, cluster.now, cluster.raises)
    };
    let has_limits = settings.budget.any() || !cluster.limits.is_empty();
    let budget = match has_limits || all(cluster).any(is_granted) {
        true => round(false, &mut memory.budget),
        false => Ok(Round::default()),
    };
    // What is computed only for a report must not hinder what is in force: its failure would be the same as that of the
    // round above.
    let trial = (has_limits && is_observed(cluster)).then(|| round(true, &mut memory.trial).ok()).flatten();
    let reach = budget.as_ref().map(|round| round.reach.as_slice()).unwrap_or_default();
    let twins = twins(cluster, settings, &plan, reach);
    ClusterDecision { plan, twins, budget, trial }
}

/// Whether a limit is only observed, for some node at least.
fn is_observed(cluster: &ClusterState) -> bool {
    cluster.limits.iter().any(|limit| !limit.enforced)
        || cluster.nodes.iter().any(|node| node.limits.observed)
}

fn all(cluster: &ClusterState) -> impl Iterator<Item = &Node> {
    cluster.nodes.iter().chain(&cluster.gone)
}

const fn is_granted(node: &Node) -> bool {
    node.granted.grant.is_some()
}

/// The twins of the planned nodes, in the order of the plan, as is what they could be granted.
fn twins(cluster: &ClusterState, settings: &Settings, plan: &Plan, reach: &[GrantReach]) -> Vec<Twin> {
    // How hard pods work each node, if the pods are known.
    let names = cluster.nodes.iter().map(|node| &*node.name);
    let work = cluster.pods.as_ref().map(|pods| Beside::new(names, pods.work()));
    let planned =
        plan.nodes.iter().filter_map(|decision| Some((cluster.nodes.get(decision.place)?, decision)));
    let facts = planned.enumerate().map(|(at, (node, decision))| {
        let work = work.as_ref().map(|work| work.at(decision.place).unwrap_or_default());
        facts(node, decision, work, reach.get(at).copied())
    });
    let facts: Vec<TwinFacts<'_>> = facts.collect();
    let unmanaged: BTreeMap<String, Option<Watts>> =
        settings.budget.rack_base.iter().map(|(rack, watts)| (rack.clone(), Some(*watts))).collect();
    let facility = cluster.facility.at(cluster.now, settings.facility_hold);
    let site = SiteFacts { facility, unmanaged: &unmanaged };
    twin::twins(&settings.twin, &facts, &site)
}

/// The input of a node's twin.
fn facts<'a>(
    node: &'a Node,
    decision: &NodeDecision,
    work: Option<DeviceWork>,
    reach: Option<GrantReach>,
) -> TwinFacts<'a> {
    // The present caps; those of the plan where none exist yet.
    let stands = node.published.obeyed().map(|there| there.desired.caps);
    let planned = || decision.desired.as_ref().map(|desired| desired.caps);
    let wished = stands.or_else(planned).unwrap_or_default();
    let caps = node.under_grant(wished, reach);
    let entitled = reach.filter(|_| node.granted.grant.is_some() && !node.granted.released);
    let entitled = entitled.map(|reach| node.machine.power_model.under_grant(&wished, reach.entitled));
    TwinFacts {
        hardware: &node.machine.resolved.hardware,
        class: decision.guard.state.class(),
        cpu_cap: caps.cpu.into(),
        gpu_cap: caps.gpu.into(),
        entitled: entitled.map(|caps| (caps.cpu.into(), caps.gpu.into())),
        reading: node.power.reading,
        trend: node.power.trend,
        rest: node.power.rest,
        load: work.and_then(|work| node.load(work)),
        rack: node.labels.rack.as_deref(),
        zone: node.labels.zone.as_deref(),
    }
}

/// Every node with a stake in the budget: the planned nodes first, in the order of the plan, because of equal nodes
/// the first is raised first.
fn stakes<'a>(cluster: &'a ClusterState, rules: Rules<'_>, plan: &Plan) -> Vec<Stake<'a>> {
    let has_limits = |node: &Node| match rules.trial {
        true => rules.settings.any() || node.limits.limit.is_some(),
        false => node.is_bound(rules.settings),
    };
    let mut stakes = Vec::with_capacity(cluster.nodes.len());
    let mut planned = vec![false; cluster.nodes.len()];
    for decision in &plan.nodes {
        let (Some(node), Some(planned)) =
            (cluster.nodes.get(decision.place), planned.get_mut(decision.place))
        else {
            continue;
        };
        *planned = true;
        let leaves = !has_limits(node);
        stakes.push(Stake {
            node,
            priority: priority(decision),
            wanted: wanted(node, decision),
            leaves,
            // The content of a grant that cannot be read is unknown, so it must not be overwritten. A node that is only
            // counted draws what it likes.
            aside: node.granted.unread || (leaves && !is_granted(node)),
        });
    }
    // A node with an agent, a grant or a desired state draws power here, planned or not.
    for (node, _) in cluster.nodes.iter().zip(planned).filter(|(_, planned)| !planned) {
        if node.machine.has_agent || node.published.profile.is_some() || is_granted(node) {
            stakes.push(Stake {
                node,
                priority: Priority::Eco,
                wanted: None,
                // A node on its way to sleep or back keeps its grant although it is cordoned.
                leaves: !node.sleep.is_aside()
                    && (!has_limits(node) || !(node.is_eligible() || node.sleep.is_marked())),
                aside: node.granted.unread || !is_granted(node),
            });
        }
    }
    // The machine of a removed node may still run with its agent: it draws no more than its grant, and can be
    // granted less. Of a released one only the greatest power is known.
    let gone = cluster.gone.iter().filter(|node| is_granted(node) && node.presence == Presence::Gone);
    let orphan = |node: &'a Node| Stake {
        node,
        priority: Priority::Eco,
        wanted: None,
        leaves: false,
        aside: node.granted.unread || node.granted.released,
    };
    stakes.extend(gone.map(orphan));
    stakes
}

/// The most that the policy and persons let a node draw.
fn wanted(node: &Node, decision: &NodeDecision) -> Option<Watts> {
    let desired = decision.desired.as_ref()?;
    let power_model = &node.machine.power_model;
    match node.published.obeyed() {
        Some(there) if there.persons || there.theirs.any() => power_model.watts(&desired.over(there).caps),
        Some(_) | None => power_model.watts(&desired.caps),
    }
}

fn priority(decision: &NodeDecision) -> Priority {
    match (decision.guard.state.name(), decision.planned) {
        (StateName::ActivePerformance, _) | (_, Profile::Performance) => Priority::Performance,
        (StateName::DrainingPerformance, Profile::Eco) => Priority::Draining,
        (StateName::ActiveEco | StateName::Unknown, Profile::Eco) => Priority::Eco,
    }
}
