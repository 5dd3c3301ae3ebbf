//! Reports on the PowerBudgets in their statuses.

use super::Reconciler;
use super::budget::of_a_budget;
use super::jobs::Then;
use super::response::LimitLowering;
use crate::budget;
use crate::publish::{self, budget_differs};
use crate::reasons::{
    ACCEPTED, GROUP_METER_LATE, GROUP_METERED, KEPT, LIMIT_CHANGED, OBSERVED, OVERLAP, PARENT_CYCLE,
    PARENT_MISSING, PLACE_UNKNOWN,
};
use crate::rows::BudgetSeen;
use crate::site::{Budgets, ParentFault, WaitingForWatts};
use crate::writes::{How, Job, Target, Write};
use host_kit::clock::Mono;
use joulie_api::condition::{self, Condition, ConditionType};
use joulie_api::number::{Number, Whole};
use joulie_api::power_budget::{BudgetDemand, BudgetMode, ClassNumbers, PowerBudgetStatus};
use joulie_api::word::Vocabulary;
use joulie_core::budget::sustained::{SustainedLimit, SustainedState};
use planner::budget::{GroupPower, GroupStanding};
use planner::node::{Node, Presence};
use power_units::{Micros, Ratio, Watts};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Nodes by the index of a budget.
type Overlaps<'a> = BTreeMap<usize, Vec<&'a Node>>;

/// At most this many nodes are named that two budgets select.
const NAMED: usize = 3;

impl Reconciler {
    /// The jobs that write the statuses of the PowerBudgets.
    pub(super) fn write_budgets(&mut self, now: Mono, jobs: &mut Vec<Job<(u64, Then)>>) {
        for (key, at, status) in self.due_budgets(now) {
            let Some(seen) = self.site.budgets.seen.get(at).cloned() else { continue };
            self.say_change(at, &seen);
            let document = publish::budget_document(&seen.name, &seen.uid, &status);
            // Nobody else has a say in a status.
            let how = How::Apply { document, force: true };
            let write = Write { target: Target::BudgetStatus, name: seen.name.clone(), how };
            self.job(key, vec![write], false, Then::Nothing, jobs);
        }
    }

    /// The places of the budgets whose statuses are to be written, with their keys and statuses.
    fn due_budgets(&self, now: Mono) -> Vec<(Arc<str>, usize, PowerBudgetStatus)> {
        let overlaps = self.overlaps();
        for (at, seen) in self.site.budgets.seen.iter().enumerate() {
            let state = self.sustained(at, seen);
            let both = seen.sustained.as_ref().map(SustainedLimit::sustained).zip(state.as_ref());
            self.stats.sustained(&Budgets::key(&seen.name), both);
            let lowering = self.lowering_of(at);
            let by = lowering.and_then(LimitLowering::by);
            self.stats.lowered(&Budgets::key(&seen.name), by, lowering.and_then(LimitLowering::age));
        }
        let each = self.site.budgets.seen.iter().enumerate().filter_map(|(at, seen)| {
            let key: Arc<str> = Budgets::key(&seen.name).into();
            if !self.is_free(&key, now) || self.pending_echoes.contains_key(&key) {
                return None;
            }
            let status = self.budget_status(at, seen, &overlaps)?;
            budget_differs(&status, &seen.status, self.wall).then_some((key, at, status))
        });
        each.collect()
    }

    /// Reports a limit or a mode that was taken in, where the status still has another.
    fn say_change(&self, at: usize, seen: &BudgetSeen) {
        let BudgetSeen { name, mode, status, .. } = seen;
        let watts = self.in_use(at, seen);
        let Some((old_watts, old_mode)) = status.limit_watts.zip(status.mode.as_ref()) else { return };
        let mode = publish::mode_word(*mode);
        if publish::same_limit(old_watts, Number::tenths(watts)) && *old_mode == mode {
            return;
        }
        let (mode, old_mode) = (mode.as_str(), old_mode.as_str());
        let why = self.lowering_of(at).map(LimitLowering::words).unwrap_or_default();
        let text = format!("powerbudget/{name}: {mode} {watts} W instead of {old_mode} {old_watts} W{why}");
        tracing::info!("{text}");
        self.recorder.say(of_a_budget(seen, LIMIT_CHANGED, text));
    }

    /// The limit of a budget that is in use.
    fn in_use(&self, at: usize, seen: &BudgetSeen) -> Watts {
        self.lowering_of(at).map_or(seen.watts, |lowering| lowering.watts)
    }

    /// The status of a budget by the last round; `None` if there was none.
    fn budget_status(
        &self,
        at: usize,
        seen: &BudgetSeen,
        overlaps: &Overlaps<'_>,
    ) -> Option<PowerBudgetStatus> {
        // The first group is that of the settings.
        let group = self.shown.get(at + 1)?;
        let trial = self.trial.as_ref().and_then(|trial| trial.standings.get(at + 1));
        let trial = trial.filter(|_| seen.mode == BudgetMode::Observe);
        let number = |watts: Watts| Number::tenths(watts);
        let measured = self.measured.get(at + 1).copied().flatten();
        let sustained = self.sustained(at, seen);
        // Of two limits, what is left of the one that is in use.
        let in_use = self.in_use(at, seen);
        let lowering = self.lowering_of(at);
        let limit = sustained.map_or(in_use, |state| state.effective);
        Some(PowerBudgetStatus {
            observed_generation: Some(Whole::from(seen.generation)),
            limit_watts: Some(number(in_use)),
            lowered: lowering.and_then(LimitLowering::document),
            signal: lowering.and_then(LimitLowering::signal),
            effective_watts: sustained.map(|state| number(state.effective)),
            window_mean_watts: sustained.and_then(|state| state.mean).map(number),
            between_seconds: sustained.map(|state| seconds(state.between)),
            mode: Some(publish::mode_word(seen.mode)),
            nodes: Some(whole(group.nodes)),
            counted_watts: group.load.map(number),
            measured_watts: measured.map(number),
            room_watts: group.load.map(|load| number(limit - load)),
            demand: group.power.as_ref().map(|power| demand(power, self.site.fresh.waiting_for(&seen.name))),
            short_watts: trial.map_or(group.short, |trial| trial.short).map(number),
            would_lower_nodes: trial.map(|trial| whole(trial.lowered.nodes)),
            would_lower_watts: trial.map(|trial| number(trial.lowered.watts)),
            conditions: Some(self.budget_conditions(
                seen,
                group,
                [self.acceptance(at, seen, overlaps), self.drift(at + 1, seen, group)],
                (sustained, lowering.and_then(LimitLowering::verdict)),
            )),
            updated_at: Some(condition::rfc3339(self.wall)),
        })
    }

    /// What is in use of the two limits of a budget, if it has two.
    fn sustained(&self, at: usize, seen: &BudgetSeen) -> Option<SustainedState> {
        let trial = self.trial.as_ref().filter(|_| seen.mode == BudgetMode::Observe);
        trial.unwrap_or(&self.round).sustained.get(&at).copied()
    }

    fn budget_conditions(
        &self,
        seen: &BudgetSeen,
        group: &GroupStanding,
        [acceptance, drift]: [budget::Said; 2],
        (sustained, signal): (Option<SustainedState>, Option<budget::Said>),
    ) -> Vec<Condition> {
        let within = match seen.mode {
            BudgetMode::Enforce if group.is_kept() => budget::said(KEPT, "the limit is kept"),
            BudgetMode::Enforce => budget::verdict(group),
            BudgetMode::Observe => budget::said(OBSERVED, OBSERVED.meaning),
        };
        let mut conditions = seen.status.conditions.clone().unwrap_or_default();
        let metered = sustained.map(|state| {
            let reason = if state.metered { GROUP_METERED } else { GROUP_METER_LATE };
            (ConditionType::TelemetryFresh, budget::said(reason, reason.meaning))
        });
        if metered.is_none() {
            conditions.retain(|condition| condition.type_ != ConditionType::TelemetryFresh.as_str());
        }
        let signal = signal.map(|said| (ConditionType::SignalFresh, said));
        if signal.is_none() {
            conditions.retain(|condition| condition.type_ != ConditionType::SignalFresh.as_str());
        }
        let all = [
            (ConditionType::Accepted, acceptance),
            (ConditionType::WithinBudget, within),
            (ConditionType::MetersDisagree, drift),
        ];
        let all = all.into_iter().chain(metered).chain(signal);
        for (about, (status, reason, why)) in all {
            let generation = Some(seen.generation);
            condition::set(
                &mut conditions,
                Condition::new(about, status, reason, why, generation, self.wall),
            );
        }
        conditions
    }

    /// Whether the meters of a group's nodes show what is counted of them.
    fn drift(&self, at: usize, seen: &BudgetSeen, group: &GroupStanding) -> budget::Said {
        let about = ConditionType::MetersDisagree.as_str();
        let said = seen.status.conditions.iter().flatten().find(|condition| condition.type_ == about);
        let was = said.and_then(|condition| condition.reason.as_deref());
        let metered = self.metered.get(at).copied().unwrap_or_default();
        budget::drift(group, metered, self.settings.power.drift, was)
    }

    /// The nodes and machines that count in a budget without having their place there, by the index of the budget.
    fn overlaps(&self) -> Overlaps<'_> {
        let mut overlaps = Overlaps::new();
        let gone = self.site.cluster.gone.iter().filter(|node| node.granted.grant.is_some());
        // A node that is neither planned for nor has an agent has no part in any budget.
        let has_part =
            |node: &&Node| node.is_eligible() || node.machine.has_agent || node.granted.grant.is_some();
        for node in self.site.cluster.nodes.iter().filter(has_part).chain(gone) {
            for at in &node.limits.overlaps {
                overlaps.entry(*at).or_default().push(node);
            }
        }
        overlaps
    }

    /// Whether a budget is used as it is written.
    fn acceptance(&self, at: usize, seen: &BudgetSeen, overlaps: &Overlaps<'_>) -> budget::Said {
        let overlaps = overlaps.get(&at).map(Vec::as_slice).unwrap_or_default();
        let (gone, there): (Vec<&Node>, Vec<&Node>) =
            overlaps.iter().partition(|node| node.presence == Presence::Gone);
        for (nodes, reason) in [(there, OVERLAP), (gone, PLACE_UNKNOWN)] {
            let names: Vec<&str> = nodes.iter().take(NAMED).map(|node| &*node.name).collect();
            if !names.is_empty() {
                return budget::said(reason, format!("{}: {}", reason.meaning, names.join(", ")));
            }
        }
        match self.site.budgets.faults.get(&at) {
            Some(ParentFault::Missing(parent)) => {
                budget::said(PARENT_MISSING, format!("{}: {parent}", PARENT_MISSING.meaning))
            }
            Some(ParentFault::Cycle) => {
                let parent = seen.parent.as_deref().unwrap_or_default();
                budget::said(PARENT_CYCLE, format!("{}: {parent}", PARENT_CYCLE.meaning))
            }
            None => budget::said(ACCEPTED, ACCEPTED.meaning),
        }
    }
}

fn seconds(micros: Micros) -> Whole {
    Whole::from(i64::try_from(micros.get() / 1_000_000).unwrap_or(i64::MAX))
}

fn whole(count: usize) -> Whole {
    Whole::from(i64::try_from(count).unwrap_or(i64::MAX))
}

/// What follows demand, as it is written.
fn demand(power: &GroupPower, waiting: WaitingForWatts) -> BudgetDemand {
    BudgetDemand {
        grantable_watts: Some(by_class(power.grantable.map(Number::tenths))),
        assumed_watts: Some(Number::tenths(power.assumed)),
        waiting_pods: Some(whole(waiting.pods)),
        waiting_watts: Some(Number::tenths(waiting.watts)),
        reserve_watts: Some(Number::tenths(power.reserve)),
        in_flight_watts: Some(Number::tenths(power.in_flight)),
        biting_watts: Some(Number::tenths(power.biting.watts)),
        biting_nodes: Some(whole(power.biting.nodes)),
        missing_watts: Some(Number::tenths(power.missing)),
        blind_nodes: Some(whole(power.blind)),
        reclaimable_watts: Some(by_class(power.reclaimable.map(Number::tenths))),
        price: Some(by_class(power.price.map(hundredths))),
    }
}

fn by_class([performance, draining, eco]: [Number; 3]) -> ClassNumbers {
    ClassNumbers { performance: Some(performance), draining: Some(draining), eco: Some(eco) }
}

fn hundredths(ratio: Ratio) -> Number {
    // The decimal text of a ratio always parses.
    format!("{ratio:.2}").parse().ok().and_then(Number::new).unwrap_or(Number::from(0))
}
