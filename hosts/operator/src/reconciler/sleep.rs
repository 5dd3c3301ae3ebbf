//! Nodes that sleep: what the law is told, and what becomes of its decisions. Marks are writes as all others; orders to
//! controllers follow only in a later pass, once the mark is seen.

use super::{Reconciler, Then, stamp};
use crate::publish::sleep_document;
use crate::reasons::{NODE_AWAKE, NODE_LEFT, NODE_SLEEPS, NODE_WAKES, WAKE_UNPAID};
use crate::rows::{NodeSeen, PodSeen};
use crate::site::Observed;
use crate::sleep::{PowerBoard, SleepNews, SleepOrder, SleepResult};
use crate::writes::{How, Job, Target, Write};
use host_kit::clock::Mono;
use host_kit::events::{EventReason, Note};
use host_kit::reflect::ObjectKey;
use jiff::Timestamp;
use joulie_api::labels;
use planner::node::Node;
use planner::power::NodeReading;
use planner::sleep::{
    SleepCount, SleepDecision, SleepFacts, SleepMark, SleepMemory, SleepPhase, SleepReason, SleepRound,
    SleepStep, WaitingPod, WakePrice,
};
use power_units::{Micros, Watts};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Of more pods that wait the others come later. They are taken from all namespaces in turn, so that one with many pods that
/// fit nowhere does not keep those of others waiting.
const WAITING_MOST: usize = 500;
/// A mark that is further in the future is none: the clocks of the operators are not so far apart.
const SKEW: Micros = Micros::new(600_000_000);
/// The labels of nodes without which there may be no API server that could wake anything.
const CONTROL_PLANE: [&str; 3] = [
    "node-role.kubernetes.io/control-plane",
    "node-role.kubernetes.io/master",
    "node-role.kubernetes.io/etcd",
];
/// The label of a node's zone.
const ZONE: &str = "topology.kubernetes.io/zone";

/// What is remembered of sleep in one term.
#[derive(Debug, Default)]
pub(super) struct SleepState {
    memory: SleepMemory,
    /// What controllers say; `None` if no node's power can be switched.
    board: Option<PowerBoard>,
    /// Nodes whose controller is being told something.
    ordered: BTreeSet<Arc<str>>,
    /// Nodes of which it was told that they sleep on for lack of room.
    unpaid: BTreeSet<Arc<str>>,
    /// When to look again.
    pub(super) again: Option<Mono>,
}

/// A mark that was written, or taken off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SleepTold {
    node: Arc<str>,
    step: SleepStep,
}

impl Reconciler {
    /// What controllers say is on this board from now on.
    pub(crate) fn follow_power(&mut self, board: PowerBoard) {
        self.sleep.board = Some(board);
    }

    /// Begins a new term: the times are those of the former one.
    pub(super) fn forget_sleep(&mut self) {
        let board = self.sleep.board.take();
        self.sleep = SleepState { board, ..SleepState::default() };
    }

    /// What a node counts because of its sleep.
    pub(super) fn sleep_count(&self, observed: &Observed, now: Mono, wall: Timestamp) -> SleepCount {
        let Some(mark) = believed(observed, wall) else { return SleepCount::Awake };
        let node = &observed.node;
        let power = self.sleep.board.as_ref().and_then(|board| board.state(&node.name, now));
        SleepCount::of(Some(&mark), power, node.ready, self.settings.sleep.law.tuning().standby)
    }

    /// Decides which nodes sleep and wake. `counts`: what nodes count was computed in this pass.
    pub(super) fn sleeps(
        &mut self,
        counts: bool,
        left_alone: &BTreeSet<usize>,
        now: Mono,
        jobs: &mut Vec<Job<(u64, Then)>>,
    ) -> Vec<SleepOrder> {
        let Some(board) = self.sleep.board.clone() else { return Vec::new() };
        let wall = since_1970(self.wall);
        let mut memory = std::mem::take(&mut self.sleep.memory);
        let (decision, followed) = self.decide_sleep(&mut memory, &board, (counts, left_alone), now, wall);
        self.sleep.memory = memory;
        let unseen = followed.keys().filter(|node| board.state(node, now).is_none()).count();
        self.stats.sleep.seen(&decision.counts, decision.would.len(), unseen);
        board.follow(followed);
        if counts {
            self.say_unpaid(&decision.unpaid);
        }
        let again = decision.again.map(super::moment);
        self.sleep.again = again.into_iter().chain(board.ends(now)).min();
        let mut orders = Vec::new();
        for (at, step) in decision.steps {
            let Some(observed) = self.site.observed.get(at).cloned() else { continue };
            let node = observed.node.name.clone();
            let mark = match step {
                SleepStep::SwitchOff | SleepStep::SwitchOn => {
                    self.sleep.ordered.insert(node.clone());
                    orders.push(SleepOrder { node, on: step == SleepStep::SwitchOn });
                    continue;
                }
                SleepStep::Mark(phase, _) => Some(phase),
                SleepStep::Reopen(_) => None,
            };
            let document = sleep_document(&observed.node, mark, self.wall);
            let write = Write { target: Target::Sleep, name: node.to_string(), how: How::Merge { document } };
            let told = SleepTold { node: node.clone(), step };
            self.job(node, vec![write], false, Then::Slept(told), jobs);
        }
        orders
    }

    fn decide_sleep(
        &self,
        memory: &mut SleepMemory,
        board: &PowerBoard,
        (counts, left_alone): (bool, &BTreeSet<usize>),
        now: Mono,
        wall: Micros,
    ) -> (SleepDecision, BTreeMap<Arc<str>, bool>) {
        let all = || self.site.cluster.nodes.iter().zip(&self.site.observed);
        let pools: Vec<String> = all().map(|(node, observed)| pool(node, &observed.node)).collect();
        let marks: Vec<Option<SleepMark>> =
            all().map(|(_, observed)| believed(observed, self.wall)).collect();
        let asking = self.site.budgets.seen.iter().any(|budget| budget.sleep);
        let mut followed = BTreeMap::new();
        let mut facts = Vec::with_capacity(pools.len());
        for (at, (((node, observed), pool), mark)) in all().zip(&pools).zip(&marks).enumerate() {
            let controlled =
                self.settings.sleep.controllers.as_ref().is_some_and(|all| all.get(&node.name).is_some());
            let may_sleep = controlled && self.may_sleep(node, &observed.node, asking);
            if controlled && (may_sleep || mark.is_some()) {
                followed.insert(node.name.clone(), mark.is_some());
            }
            let known = self.site.cluster.pods.as_ref().map(|_| self.site.occupants.on(&node.name));
            let is_busy = left_alone.contains(&at)
                || self.busy.contains_key(&node.name)
                || self.sleep.ordered.contains(&node.name);
            facts.push(SleepFacts {
                name: &node.name,
                pool,
                may_sleep,
                mark: mark.as_ref(),
                cordoned: observed.node.unschedulable,
                ready: observed.node.ready,
                boot: &observed.node.boot,
                power: board.state(&node.name, now),
                pods: known.map(|(kept, _)| kept),
                room: observed.node.allocatable.less(known.map(|(_, own)| own).unwrap_or_default()),
                draws: draws(node),
                max: node.machine.power_model.max().map(|max| max + self.settings.plan.budget.node_rest),
                price: match counts {
                    true => self.round.wake_price(node, &self.settings.plan.budget),
                    false => WakePrice::Shut,
                },
                paid: counts && mark.is_some() && self.is_paid(node),
                busy: is_busy,
            });
        }
        let waits: Vec<(String, &ObjectKey, &Arc<PodSeen>)> = in_turn(self.site.occupants.waiting())
            .into_iter()
            .take(WAITING_MOST)
            .map(|(key, pod)| (format!("{}/{}", key.namespace, key.name), key, pod))
            .collect();
        let waiting: Vec<WaitingPod<'_>> =
            waits.iter().map(|(key, _, pod)| WaitingPod { key, needs: pod.needs() }).collect();
        let spares = self.round.spares();
        let round = SleepRound { now: stamp(now), wall, nodes: &facts, waiting: &waiting, spares: &spares };
        let decision = self.settings.sleep.law.step(memory, &round, |pod, node| {
            let both = waits.get(pod).zip(self.site.observed.get(node));
            both.is_some_and(|((.., pod), observed)| pod.could_run_on(&observed.node))
        });
        (decision, followed)
    }

    /// Whether a node is asked to sleep, by its label or by a PowerBudget that selects it, and nobody has refused.
    fn may_sleep(&self, node: &Node, seen: &NodeSeen, asking: bool) -> bool {
        // The control plane runs as static pods, which come back with their node, so that its nodes look empty.
        let never = CONTROL_PLANE.iter().any(|role| seen.label(role).is_some())
            || seen.label(labels::node::NEVER_SLEEP).is_some_and(|text| text.trim() != labels::FALSE)
            || seen.sleep.as_ref().is_some_and(|sleep| sleep.never);
        let label = seen.label(labels::node::SLEEP);
        let asked = match label {
            Some(_) => labels::is_true(label),
            None => asking && self.site.budgets.asks_to_sleep(&seen.labels),
        };
        asked && !never && node.selected && !node.reserved
    }

    /// Whether a node counts its largest draw, and may be switched on.
    fn is_paid(&self, node: &Node) -> bool {
        node.sleep == SleepCount::Full && self.site.cluster.raises && self.round.pays_for(node)
    }

    /// Tells once of each node that is to be awake and sleeps on, because a limit above it has no room.
    fn say_unpaid(&mut self, unpaid: &[(usize, SleepReason)]) {
        let known: BTreeMap<Arc<str>, SleepReason> = unpaid
            .iter()
            .filter_map(|(at, why)| Some((self.site.observed.get(*at)?.node.name.clone(), *why)))
            .collect();
        let before = std::mem::take(&mut self.sleep.unpaid);
        for (node, why) in known.iter().filter(|(node, _)| !before.contains(*node)) {
            let text = format!(
                "the node is not woken yet: {}, and {}",
                why.meaning(),
                SleepReason::NoRoom.meaning()
            );
            tracing::info!(node = &**node, "{text}");
            self.say_sleep(node, WAKE_UNPAID, text);
        }
        self.sleep.unpaid = known.into_keys().collect();
    }

    /// Takes in what became of an order.
    pub(crate) fn power_news(&mut self, news: SleepNews) {
        let SleepNews::Ended(SleepOrder { node, on }, result, why) = news else { return };
        self.sleep.ordered.remove(&node);
        if matches!(result, SleepResult::Withdrawn | SleepResult::Unchecked) {
            self.sleep.memory.not_sent(&node);
        }
        self.stats.sleep.ordered(on, result);
        let what = if on { "switched on" } else { "switched off" };
        match result {
            SleepResult::Sent => tracing::info!(node = &*node, "the node is being {what}"),
            SleepResult::Withdrawn => tracing::info!(node = &*node, "the node is not {what}: {why}"),
            SleepResult::Failed | SleepResult::Unchecked => {
                tracing::warn!(node = &*node, "the node cannot be {what}: {why}; again in a while");
            }
        }
    }

    /// Tells of a mark that was written, or taken off.
    pub(super) fn slept(&mut self, told: &SleepTold) {
        let SleepTold { node, step } = told;
        let (phase, why) = match *step {
            SleepStep::Mark(phase, why) => (Some(phase), why),
            SleepStep::Reopen(why) => (None, why),
            SleepStep::SwitchOff | SleepStep::SwitchOn => return,
        };
        self.stats.sleep.stepped(why);
        let word = phase.map_or("awake", SleepPhase::word);
        tracing::info!(node = &**node, "the node is {word}: {}", why.meaning());
        let (reason, text) = match (phase, why) {
            (Some(SleepPhase::Closing), _) => (
                NODE_SLEEPS,
                format!("the node takes no pods any more and will be switched off: {}", why.meaning()),
            ),
            (Some(SleepPhase::Waking), _) => {
                (NODE_WAKES, format!("the node is to be woken: {}", why.meaning()))
            }
            (Some(SleepPhase::Asleep), SleepReason::NoRoom) => {
                self.sleep.unpaid.insert(node.clone());
                (WAKE_UNPAID, format!("the node is not woken yet: {}", why.meaning()))
            }
            (Some(SleepPhase::Left), _) => (
                NODE_LEFT,
                format!(
                    "the node is left to people: {}; look at it and at its management controller. It takes pods again once it is there",
                    why.meaning()
                ),
            ),
            (None, _) => (NODE_AWAKE, format!("the node takes pods again: {}", why.meaning())),
            (Some(SleepPhase::Stopping | SleepPhase::Asleep | SleepPhase::Starting), _) => return,
        };
        self.say_sleep(node, reason, text);
    }

    fn say_sleep(&self, node: &str, reason: EventReason, text: String) {
        let Some(observed) = self.site.observed(node) else { return };
        self.recorder.say(Note {
            regarding: super::reference(&observed.node),
            severity: reason.severity,
            reason: reason.word,
            action: "Sleep",
            text,
        });
    }
}

/// The mark of a node. One from the future is nobody's.
fn believed(observed: &Observed, wall: Timestamp) -> Option<SleepMark> {
    let mark = observed.sleep_mark()?;
    let is_ahead = mark.since.checked_sub(since_1970(wall)).is_some_and(|ahead| ahead > SKEW);
    Some(match is_ahead {
        true => SleepMark { phase: SleepPhase::Left, since: Micros::ZERO, boot: String::new() },
        false => mark.clone(),
    })
}

fn since_1970(wall: Timestamp) -> Micros {
    Micros::new(u64::try_from(wall.as_microsecond()).unwrap_or(0))
}

/// The zone and the GPU model of a node: for each of them some nodes stay awake.
fn pool(node: &Node, seen: &NodeSeen) -> String {
    let gpu = node.machine.resolved.hardware.gpu.as_ref();
    let model = gpu.and_then(|gpu| gpu.model.as_deref()).unwrap_or(if gpu.is_some() { "gpu" } else { "" });
    format!("{}/{model}", seen.label(ZONE).unwrap_or_default())
}

/// What the node draws now, if that is measured.
const fn draws(node: &Node) -> Option<Watts> {
    match node.power.reading {
        NodeReading::Measured { watts, .. } => Some(watts),
        NodeReading::Held { .. } | NodeReading::Absent(_) => None,
    }
}
/// The pods of all namespaces in turn. They come in the order of their namespaces.
fn in_turn<'a, T>(waiting: impl Iterator<Item = (&'a ObjectKey, T)>) -> Vec<(&'a ObjectKey, T)> {
    let (mut namespace, mut number) = (None, 0_usize);
    let mut numbered: Vec<(usize, (&ObjectKey, T))> = Vec::new();
    for pod in waiting {
        let of = Some(pod.0.namespace.as_str());
        number = if namespace == of { number + 1 } else { 0 };
        namespace = of;
        numbered.push((number, pod));
    }
    numbered.sort_by_key(|(number, _)| *number);
    numbered.into_iter().map(|(_, pod)| pod).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_with_many_pods_that_wait_does_not_come_before_all_others() {
        let keys: Vec<ObjectKey> = [("a", "1"), ("a", "2"), ("a", "3"), ("b", "1"), ("c", "1"), ("c", "2")]
            .map(|(namespace, name)| ObjectKey { namespace: namespace.to_owned(), name: name.to_owned() })
            .into();
        let turns = in_turn(keys.iter().map(|key| (key, ())));
        let turns: Vec<String> =
            turns.iter().map(|(key, ())| format!("{}{}", key.namespace, key.name)).collect();
        assert_eq!(turns, ["a1", "b1", "c1", "a2", "c2", "a3"]);
    }
}
