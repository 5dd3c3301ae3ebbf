//! Writes the budget's decision to the grants, and reports limits that cannot be kept.

use super::Reconciler;
use crate::budget::{self, Metered, Said};
use crate::grants::Ticket;
use crate::publish::{API_VERSION, grant_document, grant_patch};
use crate::reasons::{DEMAND_UNMET, GRANT_DROPPED, LIMIT_CHANGED, LIMIT_EXCEEDED, LIMIT_KEPT, LIMIT_SHORT};
use crate::rows::BudgetSeen;
use crate::site::WaitingForWatts;
use crate::writes::{How, Job, Lane, Outcome, Target, Trouble, Write};
use host_kit::clock::Mono;
use host_kit::events::{EventReason, Note};
use joulie_api::labels::PLAN_LEASE;
use joulie_core::budget::Grant;
use k8s_openapi::api::core::v1::ObjectReference;
use planner::budget::{DesiredGrant, Ended, GroupPower, GroupStanding, LimitSource, Round, Sum, WRITTEN};
use planner::node::Node;
use planner::power::NodeReading;
use power_units::{Micros, Ratio, Watts};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// The wait after the third failure in a row; from then on failures are warnings.
const TOLD_FROM: Duration = Duration::from_secs(1);

/// Demand that a limit does not leave room for is told after this time.
const UNMET_FOR: Duration = Duration::from_secs(60);
/// And not again within this time.
const UNMET_AGAIN: Duration = Duration::from_secs(600);

/// A group that throttles nodes: since when, and when that was told.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct UnmetDemand {
    since: Option<Mono>,
    told: Option<Mono>,
}

/// Meters that show more than is counted are told after this time.
const ABOVE_FOR: Duration = Duration::from_secs(60);

impl Reconciler {
    /// The jobs that write the grants as decided.
    pub(super) fn write_grants(
        &mut self,
        decided: Result<Round, String>,
        trial: Option<Round>,
        now: Mono,
    ) -> Vec<Job<Ticket>> {
        self.round = decided.unwrap_or_else(|why| {
            tracing::error!("the budget cannot be computed: {why}; no grant is written");
            Round::default()
        });
        self.trial = trial;
        self.shown = shown(&self.round, self.trial.as_ref());
        self.stats.budget(&self.shown);
        self.stats.held_back(self.round.orders.held_back);
        self.stats.trial(self.trial.as_ref());
        self.say_shortages();
        self.say_moves(now);
        self.say_unmet(now);
        self.measure(now);
        let asks = std::mem::take(&mut self.round.asks);
        let ended = std::mem::take(&mut self.round.ended);
        let mut jobs: Vec<Job<Ticket>> = Vec::new();
        jobs.extend(asks.iter().filter_map(|ask| self.write_grant(ask, now)));
        jobs.extend(ended.iter().filter_map(|(node, why)| self.delete_grant(node, *why, now)));
        jobs
    }

    fn write_grant(&mut self, ask: &DesiredGrant, now: Mono) -> Option<Job<Ticket>> {
        let DesiredGrant { node, watts, ceiling, released, lends } = ask;
        if !self.grants.is_free(node, now) {
            return None;
        }
        let seen = self.site.grants.get(node).cloned();
        let serial = seen.as_ref().map_or(1, |seen| seen.granted.next_serial());
        let grant = Grant { serial, watts: *watts, ceiling: *ceiling };
        let ticket = self.grants.send(node, seen.as_deref(), grant);
        let decision = self.decision();
        let (name, how) = match &seen {
            Some(seen) => {
                let patch = grant_patch(seen, (grant, *lends), *released, &decision);
                (seen.name.clone(), How::Replace { patch })
            }
            None => {
                let name = self.site.grant_name(node);
                let budget = self.site.node(node).and_then(|node| self.site.budgets.name_of(&node.limits));
                let document = grant_document(&name, node, (grant, *lends), budget, &decision);
                (name, How::Create { document })
            }
        };
        Some(job(node, Write { target: Target::Grant, name, how }, ticket))
    }

    fn delete_grant(&mut self, node: &Arc<str>, why: Ended, now: Mono) -> Option<Job<Ticket>> {
        if !self.grants.is_free(node, now) {
            return None;
        }
        let seen = self.site.grants.get(node)?.clone();
        if why == Ended::Gone {
            let minutes = self.settings.plan.budget.gone_hold.get() / Micros::MINUTE.get();
            let watts = seen.granted.grant.map_or(Watts::ZERO, |grant| grant.watts);
            let text = format!(
                "the node {node} is gone and its agent has not reported for {minutes} minutes: its grant of {watts} W is deleted, and does not count any more",
            );
            tracing::warn!("{text}");
            self.recorder.say(self.of_the_budget(GRANT_DROPPED, text));
        }
        let ticket = self.grants.delete(node);
        let how = How::Delete { uid: seen.uid.clone() };
        Some(job(node, Write { target: Target::Grant, name: seen.name.clone(), how }, ticket))
    }

    /// Takes in the outcome of a write to a grant.
    pub(crate) fn grant_ended(&mut self, outcome: Outcome<Ticket>, now: Mono) {
        let Outcome { node, landed: _, failed, then: ticket } = outcome;
        let failed = failed.as_ref().map(|(_, trouble)| trouble);
        let wait = self.grants.ended(ticket, failed, now);
        self.count_write(Target::Grant, failed);
        if let (Some(trouble), Some(wait)) = (failed, wait) {
            let (why, millis) = (trouble.words(), wait.as_millis());
            // An occasional write by others between our read and our write is normal; one each time is not.
            if *trouble == Trouble::NotLeading || wait < TOLD_FROM {
                tracing::debug!(%node, "a grant was not written: {why}; again in {millis}ms");
            } else {
                tracing::warn!(%node, "a grant could not be written: {why}; again in {millis}ms");
            }
        }
    }

    /// The report on the limits above a node; `None` without a budget.
    pub(super) fn budget_said(&self, node: &Node) -> Option<Said> {
        let limits = &self.settings.plan.budget;
        if node.limits.observed || !(limits.any() || node.limits.bound) {
            return None;
        }
        if !node.machine.power_model.is_known() {
            return Some(budget::of_unknown_hardware(limits.unknown_node.is_some()));
        }
        self.round.standing_of(node).map(budget::verdict)
    }

    /// Publishes the measured power of each group.
    fn measure(&mut self, now: Mono) {
        let mut sums: Vec<Option<Watts>> = vec![None; self.shown.len()];
        let mut metered = vec![Metered::default(); self.shown.len()];
        let rounds = [Some(&self.round), self.trial.as_ref()];
        // The trial shows what the groups have that are only observed.
        let has_trial = self.trial.is_some();
        for node in &self.site.cluster.nodes {
            let (watts, is_measured) = match node.power.reading {
                NodeReading::Measured { watts, .. } => (watts, true),
                NodeReading::Held { watts, .. } => (watts, false),
                NodeReading::Absent(_) => continue,
            };
            for round in rounds.into_iter().flatten() {
                let of_this = |group: &GroupStanding| (has_trial && is_observed(group)) == round.trial;
                for (at, _) in round.groups_of(node).filter(|(_, group)| of_this(group)) {
                    if let Some((sum, metered)) = sums.get_mut(at).zip(metered.get_mut(at)) {
                        if is_measured {
                            *sum = Some(sum.unwrap_or(Watts::ZERO) + watts);
                        }
                        metered.add(watts);
                    }
                }
            }
        }
        for (group, watts) in self.shown.iter().zip(&sums) {
            self.stats.measured(&group.name, watts.unwrap_or(Watts::ZERO));
        }
        let before = std::mem::take(&mut self.above);
        for (group, metered) in self.shown.iter().zip(&mut metered) {
            self.stats.drift(&group.name, metered.drift(group));
            if metered.is_above(group, self.settings.power.drift) {
                // Where grants fall, what is drawn is heard of a little later.
                let since = before.get(&group.name).copied().unwrap_or(now);
                metered.lasts = now.since(since) >= ABOVE_FOR;
                self.above.insert(group.name.clone(), since);
            }
        }
        (self.measured, self.metered) = (sums, metered);
    }

    /// Reports once when a limit is not kept, and once when it is kept again.
    fn say_shortages(&mut self) {
        let mut said = BTreeMap::new();
        for group in &self.round.standings {
            let GroupStanding { name, short, exceeded, holders, .. } = group;
            let told = match (short, exceeded) {
                (Some(by), _) => (
                    LIMIT_SHORT,
                    format!(
                        "the limit of {name} cannot be kept: the lowest caps, what does not answer and the base load are {by:.1} W above it"
                    ),
                ),
                (None, Some(by)) => (
                    LIMIT_EXCEEDED,
                    format!(
                        "{name} counts {by:.1} W more than its limit, for longer than a grant takes to be read back; most of it is held by {}: look at the status of their NodePowerGrants, and at their agents",
                        holders.join(", ")
                    ),
                ),
                (None, None) => continue,
            };
            said.insert(name.clone(), told);
        }
        for (group, (reason, text)) in
            said.iter().filter(|(name, (reason, _))| self.short.get(*name) != Some(&reason.word))
        {
            tracing::warn!("{text}");
            self.recorder.say(self.of_a_group(group, *reason, text.clone()));
        }
        let stands = |group: &str| self.round.standings.iter().any(|one| one.name == group && one.enforced);
        for group in self.short.keys().filter(|group| !said.contains_key(*group) && stands(group)) {
            let text = format!("the limit of {group} is kept again");
            tracing::info!("{text}");
            self.recorder.say(self.of_a_group(group, LIMIT_KEPT, text));
        }
        self.short = said.into_iter().map(|(group, (reason, _))| (group, reason.word)).collect();
    }

    /// Reports groups that have throttled nodes for a while, because their limit leaves no more.
    fn say_unmet(&mut self, now: Mono) {
        let mut before = std::mem::take(&mut self.unmet);
        let mut notes = Vec::new();
        for group in &self.round.standings {
            let mut unmet = before.remove(&group.name).unwrap_or_default();
            let binds = |power: &&GroupPower| {
                let is_short = power.overloaded || power.missing > Watts::ZERO;
                power.biting.nodes > 0 && (is_short || power.price.iter().any(|price| *price > Ratio::ZERO))
            };
            let power = group.power.as_ref().filter(binds);
            let budget = group.name.strip_prefix(WRITTEN);
            let waiting = budget.map_or(WaitingForWatts::NONE, |budget| self.site.fresh.waiting_for(budget));
            unmet.since = (power.is_some() || waiting.pods > 0).then(|| unmet.since.unwrap_or(now));
            let lasts = unmet.since.is_some_and(|since| now.since(since) >= UNMET_FOR);
            let was_told = unmet.told.is_some_and(|told| now.since(told) < UNMET_AGAIN);
            if lasts && !was_told {
                let name = &group.name;
                let throttled = power.map(|power| {
                    let Sum { watts, nodes } = power.biting;
                    format!("{nodes} nodes below the limit of {name} are throttled and would draw {watts:.1} W more")
                });
                let WaitingForWatts { pods, watts } = waiting;
                let waits = (pods > 0)
                    .then(|| format!("{pods} pods wait because {name} lacks {watts:.0} W for them"));
                let said: Vec<String> = throttled.into_iter().chain(waits).collect();
                let text = format!("{}: nothing that others do not want is left", said.join(", and "));
                unmet.told = Some(now);
                notes.push((name.clone(), text));
            }
            let is_remembered = unmet.told.is_some_and(|told| now.since(told) < UNMET_AGAIN);
            if unmet.since.is_some() || is_remembered {
                self.unmet.insert(group.name.clone(), unmet);
            }
        }
        for (group, text) in notes {
            tracing::info!("{text}");
            self.recorder.say(self.of_a_group(&group, DEMAND_UNMET, text));
        }
    }

    /// An Event of a group, on its PowerBudget if it has one.
    pub(super) fn of_a_group(&self, group: &str, reason: EventReason, text: String) -> Note {
        let seen = self.site.budgets.of_key(group);
        seen.map_or_else(
            || self.of_the_budget(reason, text.clone()),
            |seen| of_a_budget(seen, reason, text.clone()),
        )
    }

    pub(super) fn of_the_budget(&self, reason: EventReason, text: String) -> Note {
        Note {
            regarding: ObjectReference {
                api_version: Some("coordination.k8s.io/v1".to_owned()),
                kind: Some("Lease".to_owned()),
                namespace: Some(self.settings.namespace.clone()),
                name: Some(PLAN_LEASE.to_owned()),
                ..ObjectReference::default()
            },
            severity: reason.severity,
            reason: reason.word,
            action: "Allocate",
            text,
        }
    }
}

/// Whether a written limit is only observed.
const fn is_observed(group: &GroupStanding) -> bool {
    matches!(group.source, LimitSource::Written(_)) && !group.enforced
}

/// The groups as they are shown. A group that is only observed is not kept and not exceeded; the trial says what it counts.
fn shown(round: &Round, trial: Option<&Round>) -> Vec<GroupStanding> {
    let of_trial = |at: usize, group: &GroupStanding| {
        let trial = trial?.standings.get(at).filter(|_| is_observed(group))?;
        Some(GroupStanding { short: None, exceeded: None, holders: Vec::new(), ..trial.clone() })
    };
    let each = round.standings.iter().enumerate();
    each.map(|(at, group)| of_trial(at, group).unwrap_or_else(|| group.clone())).collect()
}

/// An Event on a PowerBudget.
pub(super) fn of_a_budget(seen: &BudgetSeen, reason: EventReason, text: String) -> Note {
    // Each change of a limit is an Event of its own.
    let version = (reason == LIMIT_CHANGED).then(|| seen.version.clone());
    Note {
        regarding: ObjectReference {
            resource_version: version,
            api_version: Some(API_VERSION.to_owned()),
            kind: Some("PowerBudget".to_owned()),
            name: Some(seen.name.clone()),
            uid: Some(seen.uid.clone()),
            ..ObjectReference::default()
        },
        severity: reason.severity,
        reason: reason.word,
        action: "Allocate",
        text,
    }
}

fn job(node: &Arc<str>, write: Write, ticket: Ticket) -> Job<Ticket> {
    Job { node: node.clone(), lane: Lane::Power, writes: vec![write], then: ticket }
}
