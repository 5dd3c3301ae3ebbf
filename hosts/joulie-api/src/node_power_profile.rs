//! NodePowerProfile: the desired profile and caps of one node, written by the operator or by a person.

use crate::caps::{CpuCaps, DesiredSpec, GpuCaps, Parts, PolicyRef, ProfileName};
use crate::condition::Condition;
use crate::field::FieldError;
use crate::macros::part;
use crate::node_twin::TwinControlStatuses;
use crate::number::Whole;
use crate::word::Word;
use kube::CustomResource;
use serde::{Deserialize, Serialize};

/// The desired power state of a node.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, kube::KubeSchema)]
#[kube(
    group = "joulie.io",
    version = "v1alpha1",
    kind = "NodePowerProfile",
    doc = "The desired profile and caps of one node.",
    status = "NodePowerProfileStatus",
    derive = "PartialEq",
    shortname = "npp",
    category = "joulie",
    selectable = ".spec.nodeName",
    printcolumn(name = "Node", type_ = "string", json_path = ".spec.nodeName"),
    printcolumn(name = "Profile", type_ = "string", json_path = ".spec.profile"),
    printcolumn(name = "CPU-Watts", type_ = "number", json_path = ".spec.cpu.packagePowerCapWatts"),
    printcolumn(name = "CPU-Pct", type_ = "number", json_path = ".spec.cpu.packagePowerCapPctOfMax"),
    printcolumn(name = "GPU-Watts", type_ = "number", json_path = ".spec.gpu.powerCap.capWattsPerGpu"),
    printcolumn(name = "GPU-Pct", type_ = "number", json_path = ".spec.gpu.powerCap.capPctOfMax"),
    printcolumn(
        name = "Enforced",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="CapEnforced")].status"#
    ),
    printcolumn(
        name = "Reason",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="CapEnforced")].reason"#
    ),
    printcolumn(
        name = "CPU-InForce",
        type_ = "number",
        json_path = ".status.control.cpu.capWatts",
        description = "Watts of each package that were read back"
    ),
    printcolumn(
        name = "GPU-InForce",
        type_ = "number",
        json_path = ".status.control.gpu.capWatts",
        description = "Watts of each GPU that were read back"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct NodePowerProfileSpec {
    /// The name of the node, which is what identifies this object.
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = kube::core::Rule::new("self == oldSelf").message("nodeName is immutable: an object stays with its node"))]
    pub node_name: String,
    /// Full power or capped.
    pub profile: Word<ProfileName>,
    /// What is asked of the processors.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<CpuCaps>,
    /// What is asked of the GPUs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu: Option<GpuCaps>,
    /// The policy that decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<PolicyRef>,
}

part! {
    /// What became of the desired state.
    pub struct NodePowerProfileStatus {
        /// The generation of the spec that this status speaks of.
        observed_generation: Whole,
        /// What came of it on the node, written by the agent.
        control: TwinControlStatuses,
        /// How it stands, among them Overridden and CapEnforced.
        #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
        conditions: Vec<Condition>,
    }
}

impl TryFrom<&NodePowerProfileSpec> for DesiredSpec {
    type Error = FieldError;

    fn try_from(spec: &NodePowerProfileSpec) -> Result<Self, FieldError> {
        Self::try_from(Parts {
            node: &spec.node_name,
            profile: &spec.profile,
            cpu: spec.cpu.as_ref(),
            gpu: spec.gpu.as_ref(),
            policy: spec.policy.as_ref(),
            draining: None,
        })
    }
}
