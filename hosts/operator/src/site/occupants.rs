//! Which nodes have pods that would be lost with them, and which pods wait for a node. It is kept only where nodes may sleep.

use crate::rows::PodSeen;
use host_kit::reflect::{ObjectKey, RowChanges};
use planner::migration::eviction::RequestedResources;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The pods on nodes, and those that wait.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Occupants {
    by_node: BTreeMap<Box<str>, NodePods>,
    waiting: BTreeMap<ObjectKey, Arc<PodSeen>>,
}

/// The pods on one node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct NodePods {
    /// Those that would be lost.
    kept: u32,
    /// The others, of the node and of DaemonSets, which come back with it.
    own: u32,
    /// What the others request.
    own_cpu_milli: u64,
    own_memory_bytes: u64,
    own_gpus: u32,
}

impl Occupants {
    /// Takes in changed pods; returns whether anything is other now.
    pub(super) fn take(&mut self, news: &RowChanges<'_, PodSeen>, known: bool) -> bool {
        let Some(changes) = news.changes.as_ref().filter(|_| known) else {
            let mut all = Self::default();
            news.rows.iter().for_each(|(key, held)| all.put(key, &held.row));
            let changed = all != *self;
            *self = all;
            return changed;
        };
        let mut changed = false;
        for change in changes {
            let [before, now] = [change.before, change.now].map(|held| held.map(|held| &held.row));
            if before.map(|pod| facts(pod)) == now.map(|pod| facts(pod)) {
                continue;
            }
            changed = true;
            before.iter().for_each(|pod| self.remove(change.key, pod));
            now.iter().for_each(|pod| self.put(change.key, pod));
        }
        changed
    }

    fn put(&mut self, key: &ObjectKey, pod: &Arc<PodSeen>) {
        if pod.waits.is_some() {
            self.waiting.insert(key.clone(), pod.clone());
        }
        let Some(node) = pod.node().filter(|_| !pod.is_over()) else { return };
        let pods = match self.by_node.get_mut(node) {
            Some(pods) => pods,
            None => self.by_node.entry(node.into()).or_default(),
        };
        if pod.keeps_node() {
            pods.kept = pods.kept.saturating_add(1);
        } else {
            let needs = pod.needs();
            pods.own = pods.own.saturating_add(1);
            pods.own_cpu_milli = pods.own_cpu_milli.saturating_add(needs.cpu_milli);
            pods.own_memory_bytes = pods.own_memory_bytes.saturating_add(needs.memory_bytes);
            pods.own_gpus = pods.own_gpus.saturating_add(needs.gpus);
        }
    }

    fn remove(&mut self, key: &ObjectKey, pod: &PodSeen) {
        self.waiting.remove(key);
        let Some(node) = pod.node().filter(|_| !pod.is_over()) else { return };
        let Some(pods) = self.by_node.get_mut(node) else { return };
        if pod.keeps_node() {
            pods.kept = pods.kept.saturating_sub(1);
        } else {
            let needs = pod.needs();
            pods.own = pods.own.saturating_sub(1);
            pods.own_cpu_milli = pods.own_cpu_milli.saturating_sub(needs.cpu_milli);
            pods.own_memory_bytes = pods.own_memory_bytes.saturating_sub(needs.memory_bytes);
            pods.own_gpus = pods.own_gpus.saturating_sub(needs.gpus);
        }
        if *pods == NodePods::default() {
            self.by_node.remove(node);
        }
    }

    /// How many pods on a node would be lost with it, and what the others there request.
    pub(crate) fn on(&self, node: &str) -> (u32, RequestedResources) {
        let pods = self.by_node.get(node).copied().unwrap_or_default();
        let own = RequestedResources {
            cpu_milli: pods.own_cpu_milli,
            memory_bytes: pods.own_memory_bytes,
            gpus: pods.own_gpus,
            pods: pods.own,
        };
        (pods.kept, own)
    }

    /// The pods that wait for a node.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = (&ObjectKey, &Arc<PodSeen>)> {
        self.waiting.iter()
    }
}

/// What matters here of a pod.
fn facts(pod: &PodSeen) -> (Option<&str>, bool, bool, RequestedResources, bool) {
    (pod.node(), pod.is_over(), pod.keeps_node(), pod.needs(), pod.waits.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;
    use host_kit::reflect::Row;
    use serde_json::{Value, json};

    fn pod(node: Value, kind: &str, phase: &str) -> Arc<PodSeen> {
        let owners = json!([{"kind": kind, "name": "o", "controller": true}]);
        let containers = json!([{"name": "c", "resources": {"requests": {"cpu": "2", "memory": "1Gi"}}}]);
        let pod = json!({"metadata": {"name": "p", "ownerReferences": owners},
            "spec": {"nodeName": node, "containers": containers},
            "status": {"phase": phase, "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]}});
        Arc::new(PodSeen::read(&pod).unwrap())
    }

    fn key(name: &str) -> ObjectKey {
        ObjectKey { namespace: "d".to_owned(), name: name.to_owned() }
    }

    #[test]
    fn what_is_put_and_taken_away_again_leaves_nothing() {
        let pods = [
            (key("job"), pod(json!("a"), "Job", "Running")),
            (key("over"), pod(json!("a"), "Job", "Succeeded")),
            (key("daemon"), pod(json!("a"), "DaemonSet", "Running")),
            (key("waits"), pod(json!(null), "Job", "Pending")),
        ];
        let mut all = Occupants::default();
        pods.iter().for_each(|(key, pod)| all.put(key, pod));
        let own = RequestedResources { cpu_milli: 2000, memory_bytes: 1 << 30, gpus: 0, pods: 1 };
        assert_eq!(all.on("a"), (1, own));
        assert_eq!(all.on("b"), (0, RequestedResources::default()));
        assert_eq!(all.waiting().map(|(key, _)| key.name.as_str()).collect::<Vec<_>>(), ["waits"]);
        pods.iter().for_each(|(key, pod)| all.remove(key, pod));
        assert_eq!(all, Occupants::default());
    }
}
