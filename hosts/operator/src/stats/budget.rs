//! What is counted of the budget's groups.

use super::{
    ByDecision, ByGroup, ByGroupClass, ByMove, ByNode, CLASSES, DRIFT, MEASURED, OF_DEMAND, OF_GROUPS,
    OF_SUSTAINED, OfGroup, Stats, WOULD_LOWER,
};
use crate::reconciler::{MoveCause, MoveWay};
use joulie_api::number::Number;
use joulie_api::power_budget::LoweringCause;
use joulie_core::budget::sustained::SustainedState;
use planner::budget::{GroupPower, GroupStanding, Round};
use power_units::Watts;
use std::collections::BTreeMap;
use std::sync::Arc;

impl Stats {
    /// Shows the state of the budget's groups. A load that is not known is NaN; a group that does not exist any more
    /// has no series.
    pub(crate) fn budget(&mut self, groups: &[GroupStanding]) {
        let number = |watts: Watts| Number::tenths(watts).get();
        for group in groups {
            let values = [
                group.limit.map(number),
                Some(group.load.map_or(f64::NAN, number)),
                Some(group.short.map_or(0.0, number)),
                Some(group.exceeded.map_or(0.0, number)),
            ];
            for (what, value) in OF_GROUPS.into_iter().zip(values) {
                let of = ByGroup { group: group.name.clone(), what };
                match value {
                    Some(value) => drop(self.budget.get_or_create(&of).set(value)),
                    None => drop(self.budget.remove(&of)),
                }
            }
            self.follow_demand(&group.name, group.power.as_ref());
        }
        let there = groups.iter().map(|group| group.name.clone()).collect();
        for gone in std::mem::replace(&mut self.groups, there).difference(&self.groups) {
            for what in OF_GROUPS.into_iter().chain([MEASURED, DRIFT]) {
                self.budget.remove(&ByGroup { group: gone.clone(), what });
            }
            self.follow_demand(gone, None);
            self.sustained(gone, None);
            self.lowered(gone, None, None);
        }
    }

    /// Shows what follows demand in a group; `None` where nothing does.
    fn follow_demand(&self, group: &str, power: Option<&GroupPower>) {
        let number = |watts: Watts| Number::tenths(watts).get();
        let values = power.map(|power| {
            let [reclaimable, ..] = power.reclaimable;
            let GroupPower { reserve, in_flight, biting, missing, missing_entitled, .. } = *power;
            [reserve, in_flight, biting.watts, missing, missing_entitled, reclaimable].map(number)
        });
        for (at, what) in OF_DEMAND.into_iter().enumerate() {
            let of = ByGroup { group: group.to_owned(), what };
            match values.and_then(|values| values.get(at).copied()) {
                Some(value) => drop(self.budget.get_or_create(&of).set(value)),
                None => drop(self.budget.remove(&of)),
            }
        }
        for (at, class) in CLASSES.into_iter().enumerate() {
            let of = ByGroupClass { group: group.to_owned(), class };
            match power.and_then(|power| power.price.get(at)) {
                Some(price) => {
                    let price = price.to_string().parse().unwrap_or(f64::NAN);
                    self.price.get_or_create(&of).set(price);
                }
                None => drop(self.price.remove(&of)),
            }
        }
        let of = OfGroup { group: group.to_owned() };
        match power {
            Some(power) => {
                let blind = i64::try_from(power.blind).unwrap_or(i64::MAX);
                self.blind.get_or_create(&of).set(blind);
            }
            None => drop(self.blind.remove(&of)),
        }
    }

    /// Shows how many changes of grants wait.
    pub(crate) fn held_back(&self, orders: usize) {
        self.held_back.set(i64::try_from(orders).unwrap_or(i64::MAX));
    }

    /// Counts a decision that moves a twentieth of a limit; it is the exemplar of its series.
    pub(crate) fn moved(&self, way: MoveWay, cause: MoveCause, decision: &str) {
        let exemplar = ByDecision { decision: decision.to_owned() };
        self.moves.get_or_create(&ByMove { way, cause }).inc_by(1, Some(exemplar), None);
    }

    /// Shows the measured power of a group's nodes; nodes without a measurement are left out.
    pub(crate) fn measured(&self, group: &str, watts: Watts) {
        let value = Number::tenths(watts).get();
        self.budget.get_or_create(&ByGroup { group: group.to_owned(), what: MEASURED }).set(value);
    }

    /// Shows by how much more is measured in a group than is counted, if both are known.
    pub(crate) fn drift(&self, group: &str, watts: Option<Watts>) {
        let of = ByGroup { group: group.to_owned(), what: DRIFT };
        match watts {
            Some(watts) => drop(self.budget.get_or_create(&of).set(Number::tenths(watts).get())),
            None => drop(self.budget.remove(&of)),
        }
    }

    /// Shows what is known of a limit for the mean of a window, where a group has one; the limit in use is that of the group.
    pub(crate) fn sustained(&self, group: &str, state: Option<(Watts, &SustainedState)>) {
        let number = |watts: Watts| Number::tenths(watts).get();
        let values = state.map(|(limit, state)| [number(limit), state.mean.map_or(f64::NAN, number)]);
        for (at, what) in OF_SUSTAINED.into_iter().enumerate() {
            let of = ByGroup { group: group.to_owned(), what };
            match values.and_then(|values| values.get(at).copied()) {
                Some(value) => drop(self.budget.get_or_create(&of).set(value)),
                None => drop(self.budget.remove(&of)),
            }
        }
        let of = OfGroup { group: group.to_owned() };
        match state {
            Some((_, state)) => {
                let seconds = i64::try_from(state.between.get() / 1_000_000).unwrap_or(i64::MAX);
                self.between.get_or_create(&of).set(seconds);
            }
            None => drop(self.between.remove(&of)),
        }
    }

    /// Shows what lowers the limit of a group, and how many seconds ago its signal was heard, where it has one.
    pub(crate) fn lowered(&self, group: &str, by: Option<LoweringCause>, age: Option<f64>) {
        for (cause, what) in [(LoweringCause::Window, "window"), (LoweringCause::Signal, "signal")] {
            let of = ByGroup { group: group.to_owned(), what };
            if by == Some(cause) {
                self.lowered.get_or_create(&of).set(1);
            } else {
                self.lowered.remove(&of);
            }
        }
        let of = OfGroup { group: group.to_owned() };
        match age {
            Some(age) => drop(self.signal_age.get_or_create(&of).set(age)),
            None => drop(self.signal_age.remove(&of)),
        }
    }

    /// Shows by how much the nodes of groups would be lowered, and what each node would be granted, if every limit were
    /// enforced; `None` if that is so.
    pub(crate) fn trial(&mut self, trial: Option<&Round>) {
        let number = |watts: Watts| Number::tenths(watts).get();
        let groups = trial.map(|trial| trial.standings.as_slice()).unwrap_or_default();
        let observed = groups.iter().filter(|group| !group.enforced && group.limit.is_some());
        let lowered: BTreeMap<String, Watts> =
            observed.map(|group| (group.name.clone(), group.lowered.watts)).collect();
        for (group, watts) in &lowered {
            let of = ByGroup { group: group.clone(), what: WOULD_LOWER };
            self.budget.get_or_create(&of).set(number(*watts));
        }
        for group in self.would_lower.keys().filter(|group| !lowered.contains_key(*group)) {
            self.budget.remove(&ByGroup { group: group.clone(), what: WOULD_LOWER });
        }
        self.would_lower = lowered;
        let asks = trial.map(|trial| trial.asks.as_slice()).unwrap_or_default();
        let asks: BTreeMap<Arc<str>, Watts> = asks.iter().map(|ask| (ask.node.clone(), ask.watts)).collect();
        // Most nodes would be granted the same as in the pass before.
        for (node, watts) in asks.iter().filter(|(node, watts)| self.would_grants.get(*node) != Some(*watts))
        {
            self.would_grant.get_or_create(&ByNode { node: node.to_string() }).set(number(*watts));
        }
        for node in self.would_grants.keys().filter(|node| !asks.contains_key(*node)) {
            self.would_grant.remove(&ByNode { node: node.to_string() });
        }
        self.would_grants = asks;
    }
}
