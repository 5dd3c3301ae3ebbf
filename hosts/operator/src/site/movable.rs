//! The pods that may be moved, by their nodes. Few pods opt in, and only these are here, so that a pass over thousands
//! of nodes looks at no other pod.

use crate::rows::PodSeen;
use host_kit::reflect::ObjectKey;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The running pods that have opted in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Movable {
    by_node: BTreeMap<Box<str>, BTreeMap<ObjectKey, Arc<PodSeen>>>,
    /// How many pods of each controller serve.
    serving: BTreeMap<String, u32>,
}

impl Movable {
    /// Whether a pod belongs here: it runs on a node, has opted in, and its namespace is in managed scope.
    pub(super) fn counts(key: &ObjectKey, pod: &PodSeen, ignored: &BTreeSet<String>) -> bool {
        pod.moving.is_some() && pod.runs_on().is_some() && !ignored.contains(&key.namespace)
    }

    pub(super) fn put(&mut self, key: &ObjectKey, pod: &Arc<PodSeen>) {
        let Some(node) = pod.node() else { return };
        if serves(pod)
            && let Some(owner) = owner(key, pod)
        {
            *self.serving.entry(owner).or_default() += 1;
        }
        match self.by_node.get_mut(node) {
            Some(pods) => drop(pods.insert(key.clone(), pod.clone())),
            None => drop(self.by_node.insert(node.into(), BTreeMap::from([(key.clone(), pod.clone())]))),
        }
    }

    pub(super) fn take(&mut self, key: &ObjectKey, pod: &PodSeen) {
        let Some(node) = pod.node() else { return };
        if serves(pod)
            && let Some(owner) = owner(key, pod)
            && let Some(count) = self.serving.get_mut(&owner)
        {
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.serving.remove(&owner);
            }
        }
        if let Some(pods) = self.by_node.get_mut(node) {
            pods.remove(key);
            if pods.is_empty() {
                self.by_node.remove(node);
            }
        }
    }

    /// Those on a node, by name.
    pub(crate) fn on(&self, node: &str) -> impl Iterator<Item = (&ObjectKey, &Arc<PodSeen>)> {
        self.by_node.get(node).into_iter().flatten()
    }

    /// How many other pods of its controller serve.
    pub(crate) fn others(&self, key: &ObjectKey, pod: &PodSeen) -> u32 {
        let owner = owner(key, pod);
        let serving = owner.and_then(|owner| self.serving.get(&owner)).copied().unwrap_or(0);
        serving.saturating_sub(u32::from(serves(pod)))
    }
}

/// Whether it could stand in for another pod of its controller.
fn serves(pod: &PodSeen) -> bool {
    pod.runs_on().is_some() && pod.moving.as_ref().is_some_and(|moving| moving.ready)
}

/// The controller of a pod as `namespace/Kind/name`.
pub(crate) fn owner(key: &ObjectKey, pod: &PodSeen) -> Option<String> {
    let (kind, name) = pod.owner.as_ref()?.workload();
    Some(format!("{}/{kind}/{name}", key.namespace))
}
