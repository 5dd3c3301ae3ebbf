//! What is written for one node: the desired state that stands in the end, its documents, and whether they differ from
//! what is there by enough to be worth a write.
//!
//! A field that somebody else owns is left out of what is applied, so that nothing is ever forced: their value stands,
//! counts, and is said in a condition.

mod differs;
mod status;

pub(crate) use differs::differs;
pub(crate) use status::{Standing, is_older, overridden, status_of};

use crate::rows::{self, GrantSeen, NodeSeen, StateSeen};
use joulie_api::caps::{CpuCaps, GpuCaps};
use joulie_api::labels::{self, manager};
use joulie_api::number::Number;
use joulie_core::budget::Grant;
use joulie_core::node::cap::CapIntent;
use planner::intent::{Cap, Caps};
use planner::plan::Desired;
use planner::profile::Profile;
use serde_json::{Map, Value, json};
use std::borrow::Cow;

/// A desired state as it is to stand in an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// Its profile.
    pub(crate) profile: Profile,
    /// Its caps.
    pub(crate) caps: Caps,
    /// It drains.
    pub(crate) draining: bool,
    /// The policy that decided, if one did.
    pub(crate) policy: Option<Cow<'static, str>>,
}

impl Wanted {
    /// What the plan wants.
    pub(crate) fn planned(desired: &Desired) -> Self {
        let Desired { profile, caps, draining, policy } = desired;
        Self { profile: *profile, caps: *caps, draining: *draining, policy: Some(Cow::Borrowed(policy)) }
    }

    /// What stands in an object.
    pub(crate) fn standing(state: &StateSeen) -> Self {
        Self {
            profile: rows::profile(state.desired.profile),
            caps: rows::caps(&state.desired),
            draining: state.desired.draining,
            policy: state.desired.policy.clone().map(Cow::Owned),
        }
    }

    /// What will stand in an object of which parts are somebody else's.
    #[must_use]
    pub(crate) fn over(self, state: &StateSeen) -> Self {
        let there = Self::standing(state);
        if state.is_a_persons() {
            return Self { draining: self.draining, ..there };
        }
        let foreign = &state.owners.foreign;
        Self {
            profile: if foreign.profile { there.profile } else { self.profile },
            caps: Caps {
                cpu: if foreign.cpu { there.caps.cpu } else { self.caps.cpu },
                gpu: if foreign.gpu { there.caps.gpu } else { self.caps.gpu },
            },
            draining: if foreign.scheduling { there.draining } else { self.draining },
            policy: if foreign.policy { there.policy } else { self.policy },
        }
    }

    /// Whether an object says so already, apart from differences that are worth no write. While another policy stands in
    /// for the configured one its name alone is worth none.
    pub(crate) fn is_in(&self, state: &StateSeen, with_draining: bool, stands_in: bool) -> bool {
        let there = Self::standing(state);
        self.profile == there.profile
            && self.caps.same_as(&there.caps)
            && (!with_draining || self.draining == there.draining)
            && (stands_in || self.policy == there.policy)
    }
}

/// Which kind carries a desired state.
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

/// The configuration to apply to an object that carries a desired state. Parts that others own are not in it.
pub(crate) fn state_document(
    carrier: Carrier,
    name: &str,
    node: &str,
    wanted: &Wanted,
    there: Option<&StateSeen>,
) -> Value {
    let foreign = there.map(|state| &state.owners.foreign);
    let ours = |theirs: Option<bool>| !theirs.unwrap_or(false);
    let mut spec = Map::new();
    spec.insert("nodeName".to_owned(), json!(node));
    if ours(foreign.map(|foreign| foreign.profile)) {
        spec.insert("profile".to_owned(), json!(wanted.profile.as_str()));
    }
    if ours(foreign.map(|foreign| foreign.cpu))
        && let Some(cap) = wanted.caps.cpu
    {
        spec.insert("cpu".to_owned(), json!(CpuCaps::of(intent(cap))));
    }
    if ours(foreign.map(|foreign| foreign.gpu))
        && let Some(caps) = wanted.caps.gpu.and_then(|cap| GpuCaps::of(intent(cap)))
    {
        spec.insert("gpu".to_owned(), json!(caps));
    }
    if ours(foreign.map(|foreign| foreign.policy))
        && let Some(policy) = &wanted.policy
    {
        spec.insert("policy".to_owned(), json!({"name": policy}));
    }
    if carrier == Carrier::Twin && ours(foreign.map(|foreign| foreign.scheduling)) {
        spec.insert("scheduling".to_owned(), json!({"draining": wanted.draining}));
    }
    let mut metadata = json!({
        "name": name,
        "labels": {(labels::object::MANAGED_BY): labels::object::BY_OPERATOR},
    });
    if let Some(state) = there {
        // Of another object of that name nothing is known yet.
        metadata["uid"] = json!(state.stamp.uid);
    }
    json!({"apiVersion": API_VERSION, "kind": carrier.kind(), "metadata": metadata, "spec": spec})
}

/// A grant of a node that had none.
pub(crate) fn grant_document(name: &str, node: &str, grant: Grant) -> Value {
    json!({
        "apiVersion": API_VERSION, "kind": "NodePowerGrant",
        "metadata": {"name": name, "labels": {(labels::object::MANAGED_BY): labels::object::BY_OPERATOR}},
        "spec": {
            "nodeName": node, "serial": grant.serial,
            "watts": Number::from(grant.watts), "ceiling": Number::from(grant.ceiling),
        },
    })
}

/// A grant in the place of the one that is seen, and of no other.
pub(crate) fn grant_patch(seen: &GrantSeen, grant: Grant, released: bool) -> Value {
    let mut patch = vec![
        json!({"op": "test", "path": "/metadata/uid", "value": seen.stamp.uid}),
        json!({"op": "test", "path": "/spec/serial", "value": seen.grant.serial}),
        json!({"op": "replace", "path": "/spec/serial", "value": grant.serial}),
        json!({"op": "replace", "path": "/spec/watts", "value": Number::from(grant.watts)}),
        json!({"op": "replace", "path": "/spec/ceiling", "value": Number::from(grant.ceiling)}),
    ];
    if released || seen.released {
        patch.push(json!({"op": "add", "path": "/spec/released", "value": released}));
    }
    Value::Array(patch)
}

/// The API version of Joulie's kinds.
pub(crate) const API_VERSION: &str = "joulie.io/v1alpha1";

fn intent(cap: Cap) -> CapIntent {
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

/// The labels that a node is to have, as far as they are the operator's to set; nothing where they are there already.
/// Without a profile the label stays as it is.
pub(crate) fn labels_document(
    node: &NodeSeen,
    key: &str,
    profile: Option<Profile>,
    draining: Option<bool>,
) -> Option<Value> {
    let mut labels = Map::new();
    let mut set = |key: &str, value: Option<&str>| {
        let there = node.label(key);
        let foreign = node.owner_of(key).is_some();
        if let Some(value) = value.filter(|_| !foreign) {
            labels.insert(key.to_owned(), json!(value));
        }
        !foreign && value != there
    };
    let profile = profile.map(Profile::as_str).or_else(|| node.label(key));
    let profile_differs = set(key, profile);
    let mark = draining.map(|draining| if draining { labels::TRUE } else { labels::FALSE });
    let mark_differs = set(labels::node::DRAINING, mark);
    (profile_differs || mark_differs).then(|| node_document(node, labels))
}

/// Takes away every label that the operator has set on a node.
pub(crate) fn no_labels_document(node: &NodeSeen) -> Value {
    node_document(node, Map::new())
}

fn node_document(node: &NodeSeen, labels: Map<String, Value>) -> Value {
    // With the identifier a node that is gone is not made anew by its labels.
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": *node.name, "uid": node.stamp.uid, "labels": labels},
    })
}

/// Who the operator is to the API server.
pub(crate) const MANAGER: &str = manager::OPERATOR;

#[cfg(test)]
mod tests;
