//! Tells of each change of a node's state, with an Event on its Node that says why. When many nodes change at once, the
//! first of them are told; `joulie_operator_state_transitions_total` counts all.

use super::{Reconciler, reference};
use crate::reasons::{AT_FULL_POWER, BECAME_ECO, BEGAN_DRAINING};
use host_kit::clock::Mono;
use host_kit::events::{EventReason, Note};
use planner::guard::StateName;
use planner::plan::{NodeDecision, Plan};
use planner::profile::Profile;
use std::time::Duration;

/// So many are told at once, and one more in each REFILL: the queue of Events has room for others beside them.
const BURST: u32 = 50;
const REFILL: Duration = Duration::from_secs(1);

/// What the last pass planned, and how many changes may still be told.
#[derive(Debug)]
pub(super) struct TransitionMemory {
    policy: &'static str,
    full: usize,
    planned: usize,
    performance_pods: Option<u32>,
    now: Mono,
    left: u32,
    filled: Mono,
}

impl Default for TransitionMemory {
    fn default() -> Self {
        Self {
            policy: "",
            full: 0,
            planned: 0,
            performance_pods: None,
            now: Mono::START,
            left: BURST,
            filled: Mono::START,
        }
    }
}

impl TransitionMemory {
    /// Takes in a plan.
    pub(super) fn planned(&mut self, plan: &Plan, full: usize, now: Mono) {
        (self.policy, self.full, self.planned) = (plan.policy, full, plan.nodes.len());
        self.performance_pods = plan.demand.map(|demand| demand.performance_only);
        self.now = now;
    }

    /// Whether one more may be told now.
    fn admit(&mut self) -> bool {
        let refills = self.now.since(self.filled).as_secs() / REFILL.as_secs();
        if refills > 0 {
            self.left = self.left.saturating_add(u32::try_from(refills).unwrap_or(u32::MAX)).min(BURST);
            self.filled = self.now;
        }
        let is_admitted = self.left > 0;
        self.left = self.left.saturating_sub(1);
        is_admitted
    }

    /// What to say of a change: the reason, the cause in a word, and a sentence.
    fn words(
        &self,
        from: StateName,
        to: StateName,
        decision: &NodeDecision,
    ) -> Option<(&'static EventReason, &'static str, String)> {
        let pods = decision.blocking.unwrap_or(0);
        let demand =
            self.performance_pods.map_or_else(String::new, |pods| format!(" for {pods} performance pods"));
        let plan =
            format!("{} plans {} of {} nodes at full power{demand}", self.policy, self.full, self.planned);
        let and = |profile: Profile| match (decision.planned == profile, profile) {
            (true, Profile::Performance) => ", this one among them",
            (true, Profile::Eco) => ", and this one as eco",
            (false, _) => "",
        };
        Some(match (from, to) {
            (StateName::ActiveEco, StateName::ActivePerformance) => (
                &AT_FULL_POWER,
                "Plan",
                format!("{plan}{}; the caps of eco are lifted", and(Profile::Performance)),
            ),
            (_, StateName::ActivePerformance) => {
                (&AT_FULL_POWER, "Plan", format!("{plan}{}; it drains no more", and(Profile::Performance)))
            }
            (StateName::ActiveEco, StateName::DrainingPerformance) => {
                (&BEGAN_DRAINING, "Count", format!("{pods} performance pods are on this eco node"))
            }
            (_, StateName::DrainingPerformance) if pods == 0 => (
                &BEGAN_DRAINING,
                "Label",
                format!("{plan}{}; its label changes before its caps", and(Profile::Eco)),
            ),
            (_, StateName::DrainingPerformance) => (
                &BEGAN_DRAINING,
                "Plan",
                format!("{plan}{}; {pods} performance pods are still on it", and(Profile::Eco)),
            ),
            (StateName::DrainingPerformance, StateName::ActiveEco) => {
                (&BECAME_ECO, "Drained", "no performance pod is on it any more".to_owned())
            }
            (_, StateName::ActiveEco) => {
                (&BECAME_ECO, "Plan", format!("{plan}{}; no performance pod is on it", and(Profile::Eco)))
            }
            (_, StateName::Unknown) => return None,
        })
    }
}

impl Reconciler {
    /// Tells that a node's plan was carried out, if its state has changed.
    pub(super) fn say_transition(&mut self, decision: &NodeDecision) {
        let Some((from, to)) = decision.guard.applied else { return };
        let Some(observed) = self.site.observed(&decision.node) else { return };
        let Some((reason, action, text)) = self.transitions.words(from, to, decision) else { return };
        let regarding = reference(&observed.node);
        if self.transitions.admit() {
            let EventReason { severity, word, .. } = *reason;
            self.recorder.say(Note { regarding, severity, reason: word, action, text });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use planner::guard::{GuardDecision, TransitionState};

    fn memory() -> TransitionMemory {
        let policy = "queue-aware-v1";
        TransitionMemory {
            policy,
            full: 3,
            planned: 10,
            performance_pods: Some(24),
            ..TransitionMemory::default()
        }
    }

    fn decision(planned: Profile, blocking: Option<u32>) -> NodeDecision {
        let guard = GuardDecision {
            state: TransitionState::ActiveEco,
            publish: None,
            held: None,
            applied: None,
            deferred: None,
        };
        NodeDecision {
            node: "a".into(),
            place: 0,
            planned,
            blocking,
            overdue: false,
            guard,
            desired: None,
            remember: None,
        }
    }

    #[test]
    fn each_change_says_what_was_planned_and_what_pods_do() {
        use StateName::{ActiveEco, ActivePerformance, DrainingPerformance, Unknown};
        let said = |from, to, planned, blocking| {
            let (reason, action, text) = memory().words(from, to, &decision(planned, blocking))?;
            Some((reason.word, action, text))
        };
        let plan = "queue-aware-v1 plans 3 of 10 nodes at full power for 24 performance pods";
        let (full, eco) = (Profile::Performance, Profile::Eco);
        for (from, to, planned, blocking, word, action, text) in [
            (
                ActiveEco,
                ActivePerformance,
                full,
                Some(0),
                "ActivePerformance",
                "Plan",
                format!("{plan}, this one among them; the caps of eco are lifted"),
            ),
            (
                DrainingPerformance,
                ActivePerformance,
                full,
                Some(2),
                "ActivePerformance",
                "Plan",
                format!("{plan}, this one among them; it drains no more"),
            ),
            (
                ActivePerformance,
                DrainingPerformance,
                eco,
                Some(2),
                "DrainingPerformance",
                "Plan",
                format!("{plan}, and this one as eco; 2 performance pods are still on it"),
            ),
            (
                ActivePerformance,
                DrainingPerformance,
                eco,
                Some(0),
                "DrainingPerformance",
                "Label",
                format!("{plan}, and this one as eco; its label changes before its caps"),
            ),
            (
                ActiveEco,
                DrainingPerformance,
                eco,
                Some(1),
                "DrainingPerformance",
                "Count",
                "1 performance pods are on this eco node".to_owned(),
            ),
            (
                DrainingPerformance,
                ActiveEco,
                eco,
                Some(0),
                "ActiveEco",
                "Drained",
                "no performance pod is on it any more".to_owned(),
            ),
            (
                ActivePerformance,
                ActiveEco,
                eco,
                Some(0),
                "ActiveEco",
                "Plan",
                format!("{plan}, and this one as eco; no performance pod is on it"),
            ),
        ] {
            assert_eq!(said(from, to, planned, blocking), Some((word, action, text)));
        }
        assert_eq!(said(ActiveEco, Unknown, eco, None), None);
        let unknown = TransitionMemory { performance_pods: None, ..memory() };
        let (.., text) = unknown.words(ActivePerformance, ActiveEco, &decision(eco, Some(0))).unwrap();
        assert!(text.starts_with("queue-aware-v1 plans 3 of 10 nodes at full power, and"), "{text}");
    }

    #[test]
    fn a_plan_that_changes_thousands_of_nodes_tells_of_fifty_and_then_of_one_a_second() {
        let mut memory = memory();
        let told = |memory: &mut TransitionMemory| (0..5_000).filter(|_| memory.admit()).count();
        assert_eq!(told(&mut memory), 50);
        memory.now = Mono::at(Duration::from_secs(3));
        assert_eq!(told(&mut memory), 3);
        memory.now = Mono::at(Duration::from_millis(3_900));
        assert_eq!(told(&mut memory), 0);
        memory.now = Mono::at(Duration::from_secs(4_000));
        assert_eq!(told(&mut memory), 50);
    }
}
