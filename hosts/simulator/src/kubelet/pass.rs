//! One pass: brings the machines in line with the pods, and finds the writes that are due.

use super::{Due, Kubelet};
use crate::machine::{MachinePower, PodId, Running, SimulatedMachine};
use crate::pods::{BoundPod, BoundPodPhase, Next};
use host_kit::clock::Mono;
use host_kit::reflect::{CachedRow, ObjectKey};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Pods by the node that they are bound to.
type ByNode = BTreeMap<String, Vec<(ObjectKey, Arc<BoundPod>)>>;

impl Kubelet {
    /// Handles every pod, and returns the writes that are due.
    pub(super) fn pass(&mut self) -> Vec<Due> {
        let by_node = self.by_node();
        let now = self.now();
        let mut due = Vec::new();
        let mut here = BTreeSet::new();
        let mut busy = BTreeSet::new();
        let world = self.world.clone();
        // Nodes that had pods in the last pass are included, so that pods which are gone are ended there.
        let names: BTreeSet<String> = by_node.keys().chain(&self.busy).cloned().collect();
        for name in &names {
            let Some(node) = world.node(name) else { continue };
            let pods = by_node.get(name).map_or(&[][..], Vec::as_slice);
            here.extend(pods.iter().map(|(_, pod)| pod.id.clone()));
            let mut state = world.at(node);
            // An unreachable node receives no changes, and one that is off has no kubelet.
            if state.faults.gone || !state.machine.answers() {
                busy.insert(name.clone());
                continue;
            }
            let takes_pods = state.machine.power() == MachinePower::On;
            settle(&mut state.machine, pods);
            let mut used = used(&state.machine, pods);
            for (key, pod) in pods {
                let next = if pod.phase == BoundPodPhase::Pending && pod.deleting.is_none() {
                    if !takes_pods {
                        continue;
                    }
                    begin(&mut state.machine, pod, &node.room, &mut used)
                } else {
                    let running = state.machine.pods().get(&pod.id);
                    let finished = running.is_some_and(Running::is_finished);
                    let note = running.and_then(|running| self.note(pod, running.done(), now));
                    pod.next(finished, note)
                };
                if next != Next::Wait && self.may_write(&pod.id, &next, now) {
                    due.push(Due { key: key.clone(), pod: pod.clone(), next });
                }
            }
            if !state.machine.pods().is_empty() {
                busy.insert(name.clone());
            }
        }
        self.busy = busy;
        self.sent.retain(|id, _| here.contains(id));
        self.noted.retain(|id, _| here.contains(id));
        due
    }

    fn by_node(&self) -> ByNode {
        self.rows.with(|rows| {
            let mut by_node = ByNode::new();
            for (key, CachedRow { row, .. }) in rows {
                if self.world.node(&row.node).is_some() {
                    by_node.entry(row.node.clone()).or_default().push((key.clone(), row.clone()));
                }
            }
            for pods in by_node.values_mut() {
                // The order in which a kubelet admits them.
                pods.sort_by(|(_, a), (_, b)| (&a.created, &a.id).cmp(&(&b.created, &b.id)));
            }
            by_node
        })
    }

    /// The progress to record now, if any.
    fn note(&mut self, pod: &BoundPod, done: f64, now: Mono) -> Option<f64> {
        let every = self.checkpoint?;
        let noted = *self.noted.entry(pod.id.clone()).or_insert(now);
        let moved = done - pod.done > 1e-6;
        (pod.works() && moved && now.since(noted) >= every).then_some(done)
    }

    fn may_write(&self, id: &PodId, next: &Next, now: Mono) -> bool {
        self.sent.get(id).is_none_or(|(step, until)| *step != next.step() || now >= *until)
    }

    /// The progress to record at the end.
    pub(super) fn notes(&self) -> Vec<Due> {
        let mut notes = Vec::new();
        for (name, pods) in self.by_node() {
            let Some(node) = self.world.node(&name) else { continue };
            let state = self.world.at(node);
            for (key, pod) in pods.into_iter().filter(|(_, pod)| pod.works() && !state.faults.gone) {
                let done = state.machine.pods().get(&pod.id).map_or(0.0, Running::done);
                if done - pod.done > 1e-6 {
                    notes.push(Due { key, pod, next: Next::Checkpoint(done) });
                }
            }
        }
        notes
    }
}

/// Starts the running pods on the machine, and ends the others. A pod that was started here stays even if its object
/// does not say so yet.
fn settle(machine: &mut SimulatedMachine, pods: &[(ObjectKey, Arc<BoundPod>)]) {
    let keeps =
        |pod: &BoundPod| pod.works() || (pod.phase == BoundPodPhase::Pending && pod.deleting.is_none());
    let wanted: BTreeSet<&PodId> =
        pods.iter().filter(|(_, pod)| keeps(pod)).map(|(_, pod)| &pod.id).collect();
    let over: Vec<PodId> = machine.pods().keys().filter(|id| !wanted.contains(id)).cloned().collect();
    for id in over {
        machine.end(&id);
    }
    for (_, pod) in pods.iter().filter(|(_, pod)| pod.works()) {
        if let Ok(work) = &pod.work {
            machine.begin(pod.id.clone(), work.clone(), pod.done);
        }
    }
}

/// The resources of the pods that run or were started here. It is computed only if a pod waits to be admitted.
fn used(machine: &SimulatedMachine, pods: &[(ObjectKey, Arc<BoundPod>)]) -> BTreeMap<String, i128> {
    let mut used = BTreeMap::new();
    let begun = |pod: &BoundPod| machine.pods().contains_key(&pod.id);
    if pods.iter().all(|(_, pod)| pod.phase != BoundPodPhase::Pending || begun(pod)) {
        return used;
    }
    for (_, pod) in pods.iter().filter(|(_, pod)| pod.holds() || begun(pod)) {
        pod.asks.add_to(&mut used);
    }
    used
}

/// Admits a pod, and starts it on its machine before its status is written.
fn begin(
    machine: &mut SimulatedMachine,
    pod: &BoundPod,
    room: &BTreeMap<String, i128>,
    used: &mut BTreeMap<String, i128>,
) -> Next {
    if machine.pods().contains_key(&pod.id) {
        return Next::Run;
    }
    let next = pod.admit(room, used);
    if let (Next::Run, Ok(work)) = (&next, &pod.work) {
        pod.asks.add_to(used);
        machine.begin(pod.id.clone(), work.clone(), 0.0);
    }
    next
}
