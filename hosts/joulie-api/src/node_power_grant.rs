//! NodePowerGrant: the most that the packages and GPUs of one node may be allowed together, set by the budget, and what
//! the node's agent holds them to.
//!
//! Only the operator writes the spec, and only that node's agent writes the status. The serial grows with every write,
//! so that a late write with an old serial changes nothing. A status says which serial it refers to.

use crate::macros::part;
use crate::number::{Number, Whole};
use kube::CustomResource;
use serde::{Deserialize, Serialize};

/// What a node may be allowed.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, kube::KubeSchema)]
#[kube(
    group = "joulie.io",
    version = "v1alpha1",
    kind = "NodePowerGrant",
    doc = "The most that the packages and GPUs of one node may be allowed together, and what its agent holds them to.",
    status = "NodePowerGrantStatus",
    derive = "PartialEq",
    shortname = "npg",
    category = "joulie",
    selectable = ".spec.nodeName",
    printcolumn(name = "Node", type_ = "string", json_path = ".spec.nodeName"),
    printcolumn(name = "Watts", type_ = "number", json_path = ".spec.watts"),
    printcolumn(name = "Holds", type_ = "number", json_path = ".status.holds"),
    printcolumn(name = "Serial", type_ = "integer", json_path = ".spec.serial"),
    printcolumn(name = "Read-Back", type_ = "integer", json_path = ".status.serial"),
    printcolumn(name = "Ceiling", type_ = "number", json_path = ".spec.ceiling", priority = 1),
    printcolumn(name = "Released", type_ = "boolean", json_path = ".spec.released"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = kube::core::Rule::new("self.watts <= self.ceiling").message("ceiling: the grant itself is one of those that it covers"))]
#[x_kube(validation = kube::core::Rule::new("self.serial >= oldSelf.serial").message("serial: it only grows"))]
#[x_kube(validation = kube::core::Rule::new("self.watts == oldSelf.watts || self.serial > oldSelf.serial").message("serial: another grant has a higher one"))]
pub struct NodePowerGrantSpec {
    /// The name of the node, which is what identifies this object.
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = kube::core::Rule::new("self == oldSelf").message("nodeName is immutable: an object stays with its node"))]
    pub node_name: String,
    /// Which grant this is; it grows with every change.
    #[schemars(range(min = 1))]
    pub serial: Whole,
    /// The most that all packages and GPUs of the node may be allowed together.
    #[schemars(range(min = 0))]
    pub watts: Number,
    /// The most that any grant may allow that the node may still hold: those that are not read back yet, this one included. The node's
    /// largest draw, while it has not read back any in this boot.
    #[schemars(range(min = 0))]
    pub ceiling: Number,
    /// The node is released from the budget: the agent forgets every grant of this object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub released: Option<bool>,
}

part! {
    /// What the node's agent holds its packages and GPUs to. Before the node holds its first grant it says nothing.
    pub struct NodePowerGrantStatus {
        /// The last grant that is in force, read back from every device.
        serial: Whole,
        /// The boot of the machine in which it was put in force.
        #[serde(rename = "bootID")]
        boot_id: String,
        /// The Node object of the machine.
        #[serde(rename = "nodeUID")]
        node_uid: String,
        /// The most that the packages and GPUs draw together by the limits that were read back; a device that keeps to none
        /// counts with the most that it can draw.
        holds: Number,
        /// The least that the packages and GPUs can be held to together, as far as the agent knows: their ranges, its own
        /// configuration, and what they held when they were asked for less.
        floor: Number,
        /// When this was last said.
        updated_at: String,
    }
}
