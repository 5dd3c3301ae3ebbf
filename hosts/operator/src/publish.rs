//! What is written for one node: the final desired state, its documents, and whether they differ enough from the
//! present objects to be worth a write.
//!
//! A field that somebody else owns is left out of what is applied, so that nothing is ever forced. Its owner's value
//! stays in force, is taken into account, and is reported in a condition.

mod advice;
mod differs;
mod events;
mod limits;
mod status;

pub(crate) use advice::{NodeAdvice, PODS_MAX, PodAdvice, ShownReason};
pub(crate) use differs::differs;
pub(crate) use events::{event_differs, event_document};
pub(crate) use limits::{budget_differs, budget_document, mode_word, same_limit};
pub(crate) use status::{Standing, is_older, overridden, status_of};

use crate::rows::{GrantSeen, NodeSeen, StateSeen, mark_text};
use jiff::Timestamp;
use joulie_api::caps::{CpuCaps, GpuCaps};
use joulie_api::labels::{self, manager};
use joulie_api::node_power_grant::ArmedShare;
use joulie_api::number::Number;
use joulie_core::budget::Grant;
use joulie_core::node::cap::CapIntent;
use planner::intent::DeviceCap;
use planner::node::{DesiredState, Node};
use planner::profile::Profile;
use planner::sleep::SleepPhase;
use serde_json::{Map, Value, json};

/// The kind that carries a desired state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Carrier {
    /// NodePowerProfile.
    Profile,
    /// NodeTwin.
    Twin,
}

impl Carrier {
    /// The kind's name.
    pub(crate) const fn kind(self) -> &'static str {
        match self {
            Self::Profile => "NodePowerProfile",
            Self::Twin => "NodeTwin",
        }
    }
}

/// The configuration to apply to an object that carries a desired state. It does not contain parts that others own.
pub(crate) fn state_document(
    carrier: Carrier,
    name: &str,
    node: &str,
    desired: &DesiredState,
    there: Option<&StateSeen>,
) -> Value {
    let theirs = there.map(|state| state.carried.theirs);
    let ours = |theirs: Option<bool>| !theirs.unwrap_or(false);
    let mut spec = Map::new();
    spec.insert("nodeName".to_owned(), json!(node));
    if ours(theirs.map(|theirs| theirs.profile)) {
        spec.insert("profile".to_owned(), json!(desired.profile.as_str()));
    }
    if ours(theirs.map(|theirs| theirs.cpu))
        && let Some(cap) = desired.caps.cpu
    {
        spec.insert("cpu".to_owned(), json!(CpuCaps::of(intent(cap))));
    }
    if ours(theirs.map(|theirs| theirs.gpu))
        && let Some(caps) = desired.caps.gpu.and_then(|cap| GpuCaps::of(intent(cap)))
    {
        spec.insert("gpu".to_owned(), json!(caps));
    }
    if ours(theirs.map(|theirs| theirs.policy))
        && let Some(policy) = &desired.policy
    {
        spec.insert("policy".to_owned(), json!({"name": policy}));
    }
    if carrier == Carrier::Twin && ours(theirs.map(|theirs| theirs.scheduling)) {
        spec.insert("scheduling".to_owned(), json!({"draining": desired.draining}));
    }
    let mut metadata = json!({
        "name": name,
        "labels": {(labels::object::MANAGED_BY): labels::object::BY_OPERATOR},
    });
    if let Some(state) = there {
        // Nothing is known yet of another object with that name.
        metadata["uid"] = json!(state.stamp.uid);
    }
    json!({"apiVersion": API_VERSION, "kind": carrier.kind(), "metadata": metadata, "spec": spec})
}

/// The grant object for a node that has none. `decision` is the one that it is by.
pub(crate) fn grant_document(
    name: &str,
    node: &str,
    (grant, lends): (Grant, bool),
    budget: Option<&str>,
    decision: &str,
) -> Value {
    let mut labels = json!({(labels::object::MANAGED_BY): labels::object::BY_OPERATOR});
    if let Some(budget) = budget.filter(|budget| is_label_value(budget)) {
        labels[labels::object::POWER_BUDGET] = json!(budget);
    }
    let mut spec = json!({
        "nodeName": node, "serial": grant.serial,
        "watts": Number::from(grant.watts), "ceiling": Number::from(grant.ceiling),
        "decision": decision,
    });
    if lends {
        spec["lends"] = json!(true);
    }
    json!({
        "apiVersion": API_VERSION, "kind": "NodePowerGrant",
        "metadata": {"name": name, "labels": labels}, "spec": spec,
    })
}

/// Whether a name can be the value of a label. The name of an object may be longer.
const fn is_label_value(name: &str) -> bool {
    name.len() <= 63
}

/// A patch that replaces exactly the grant that is seen, and no other. `lends`: watts are short. A definition that is older than
/// `decision` drops that field and takes the rest.
pub(crate) fn grant_patch(
    seen: &GrantSeen,
    (grant, lends): (Grant, bool),
    released: bool,
    decision: &str,
) -> Value {
    let mut patch = vec![
        json!({"op": "test", "path": "/metadata/uid", "value": seen.uid}),
        json!({"op": "test", "path": "/spec/serial", "value": seen.serial}),
        json!({"op": "replace", "path": "/spec/serial", "value": grant.serial}),
        json!({"op": "replace", "path": "/spec/watts", "value": Number::from(grant.watts)}),
        json!({"op": "replace", "path": "/spec/ceiling", "value": Number::from(grant.ceiling)}),
        json!({"op": "add", "path": "/spec/decision", "value": decision}),
    ];
    if lends != seen.lends {
        patch.push(json!({"op": "add", "path": "/spec/lends", "value": lends}));
    }
    if released || seen.granted.released {
        patch.push(json!({"op": "add", "path": "/spec/released", "value": released}));
    }
    Value::Array(patch)
}

/// The label of a grant that says which PowerBudget its node is in, and what events leave of it; `None` if it says so. It is
/// never written together with the grant, so that nothing that is wrong with it keeps a node from being lowered.
pub(crate) fn grant_label(seen: &GrantSeen, budget: Option<&str>, armed: &[ArmedShare]) -> Option<Value> {
    let budget = budget.filter(|budget| is_label_value(budget));
    if budget == seen.budget.as_deref() && armed == seen.armed {
        return None;
    }
    let labels = json!({(labels::object::POWER_BUDGET): budget});
    let mut document = json!({"metadata": {"uid": seen.uid, "labels": labels}});
    if armed != seen.armed {
        document["spec"] = json!({"armed": Some(armed).filter(|armed| !armed.is_empty())});
    }
    Some(document)
}

/// The API version of Joulie's kinds.
pub(crate) const API_VERSION: &str = "joulie.io/v1alpha1";

fn intent(cap: DeviceCap) -> CapIntent {
    CapIntent { watts: cap.watts, percent: cap.percent }
}

/// A status to apply.
pub(crate) fn status_document(carrier: Carrier, name: &str, uid: Option<&str>, status: &Value) -> Value {
    let mut metadata = json!({"name": name});
    if let Some(uid) = uid {
        metadata["uid"] = json!(uid);
    }
    json!({"apiVersion": API_VERSION, "kind": carrier.kind(), "metadata": metadata, "status": status})
}

/// The labels that the operator sets on a node. Labels that stay must be applied again beside those that change,
/// because leaving out an applied label removes it. Without a profile the label stays as it is.
pub(crate) fn labels_document(
    node: &Node,
    key: &str,
    profile: Option<Profile>,
    draining: Option<bool>,
) -> Value {
    let profile = profile.map(Profile::as_str).or(node.labels.profile.text.as_deref());
    let mark = draining.map(|draining| if draining { labels::TRUE } else { labels::FALSE });
    let all = [(key, profile, &node.labels.profile), (labels::node::DRAINING, mark, &node.labels.draining)];
    let ours = all.into_iter().filter(|(_, _, there)| !there.theirs);
    let said = ours.filter_map(|(key, value, _)| Some((key.to_owned(), json!(value?))));
    node_document(node, said.collect())
}

/// The mark of a node that sleeps, with its cordon and its taint; without a phase all three are taken off.
pub(crate) fn sleep_document(node: &NodeSeen, phase: Option<SleepPhase>, now: Timestamp) -> Value {
    let now_boot = Some(node.boot.as_str()).filter(|boot| !boot.is_empty());
    let boot = match (phase, node.mark()) {
        // A node that has restarted while it was closed has not been off: only a later boot says that it has.
        (Some(SleepPhase::Stopping), Some(mark)) => now_boot.unwrap_or(&mark.boot),
        (_, Some(mark)) => &mark.boot,
        (_, None) => &node.boot,
    };
    let mark = phase.map(|phase| mark_text(phase, now, boot));
    let others = node.taints.iter().filter(|taint| !NodeSeen::is_sleeping(taint)).cloned();
    let ours = phase.map(|_| json!({"key": labels::node::SLEEPING, "effect": "NoSchedule"}));
    let taints: Vec<Value> = others.chain(ours).collect();
    json!({
        "metadata": {"resourceVersion": node.stamp.version, "annotations": {labels::node::SLEEP_STATE: mark}},
        "spec": {"unschedulable": phase.map(|_| true), "taints": taints},
    })
}

/// The taints of a node, with or without that of nodes that are not known to be capped. If anybody has changed the
/// taints since, the write is refused as stale, and none of theirs is lost.
pub(crate) fn taints_document(node: &NodeSeen, tainted: bool) -> Value {
    let others = node.taints.iter().filter(|taint| !NodeSeen::is_uncapped(taint)).cloned();
    let ours = tainted.then(|| json!({"key": labels::node::UNCAPPED, "effect": "NoSchedule"}));
    let taints: Vec<Value> = others.chain(ours).collect();
    json!({"metadata": {"resourceVersion": node.stamp.version}, "spec": {"taints": taints}})
}

/// Removes every label that the operator has set on a node.
pub(crate) fn no_labels_document(node: &Node) -> Value {
    node_document(node, Map::new())
}

fn node_document(node: &Node, labels: Map<String, Value>) -> Value {
    // With the uid, applying labels cannot create a node that was deleted.
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": *node.name, "uid": node.uid, "labels": labels},
    })
}

/// The operator's field manager.
pub(crate) const MANAGER: &str = manager::OPERATOR;

#[cfg(test)]
mod tests;
