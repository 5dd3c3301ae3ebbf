//! The pods that ask for performance, and those of them past the bound on that. Where there is no bound, none is kept.

use crate::rows::PodSeen;
use host_kit::reflect::ObjectKey;
use planner::demand::{DemandBound, PastBound};
use std::collections::BTreeMap;

/// The age of a pod, for the order: the time of its creation, and its name.
type Age = (i64, Box<str>);

/// The pods that ask.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Asking {
    /// By namespace, the oldest first.
    all: BTreeMap<Box<str>, BTreeMap<Age, AskingPod>>,
    past: BTreeMap<ObjectKey, PastPod>,
    /// The bound by which they were judged.
    judged: Option<DemandBound>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct AskingPod {
    uid: Box<str>,
    /// The node that it is bound to.
    node: Option<Box<str>>,
}

/// A pod past the bound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PastPod {
    /// Its identity.
    pub(crate) uid: Box<str>,
    /// Why.
    pub(crate) why: PastBound,
}

impl Asking {
    /// Takes in a pod that asks.
    pub(super) fn put(&mut self, key: &ObjectKey, pod: &PodSeen) {
        let pods = self.all.entry(key.namespace.as_str().into()).or_default();
        let uid = pod.asking.as_ref().map(|asking| asking.uid.clone()).unwrap_or_default();
        pods.insert(age(key, pod), AskingPod { uid, node: pod.node().map(Box::from) });
    }

    /// Takes out a pod that was put in.
    pub(super) fn take(&mut self, key: &ObjectKey, pod: &PodSeen) {
        if let Some(pods) = self.all.get_mut(key.namespace.as_str()) {
            pods.remove(&age(key, pod));
            if pods.is_empty() {
                self.all.remove(key.namespace.as_str());
            }
        }
    }

    /// Finds out anew which pods are past the bound. Returns whether any other is.
    pub(super) fn judge(&mut self, bound: &DemandBound) -> bool {
        let mut now = BTreeMap::new();
        for (namespace, pods) in &self.all {
            let pods = pods.iter().map(|((_, name), pod)| ((name, &pod.uid), pod.node.as_deref()));
            for ((name, uid), why) in bound.past(namespace, pods) {
                let key = ObjectKey { namespace: namespace.to_string(), name: name.to_string() };
                now.insert(key, PastPod { uid: uid.clone(), why });
            }
        }
        let changed = now != self.past;
        self.past = now;
        self.judged = Some(bound.clone());
        changed
    }

    /// Whether they were judged by another bound than this one.
    pub(super) fn is_of_another(&self, bound: &DemandBound) -> bool {
        match &self.judged {
            Some(judged) => judged != bound,
            None => bound.any(),
        }
    }

    /// The pods past the bound, by name.
    pub(crate) const fn past(&self) -> &BTreeMap<ObjectKey, PastPod> {
        &self.past
    }
}

fn age(key: &ObjectKey, pod: &PodSeen) -> Age {
    // One without a time counts as the youngest.
    (pod.asking.as_ref().and_then(|asking| asking.created).unwrap_or(i64::MAX), key.name.as_str().into())
}
