//! NodeTwin: a node's digital twin. Its spec mirrors the desired state; the extender scores by its status.

use crate::caps::{CpuCaps, DesiredSpec, GpuCaps, Parts, PolicyRef, ProfileName};
use crate::condition::Condition;
use crate::field::FieldError;
use crate::macros::{part, vocabulary};
use crate::number::{Number, Whole};
use crate::word::{Vocabulary, Word};
use joulie_core::placement::class::SchedulableClass;
use kube::CustomResource;
use serde::{Deserialize, Serialize};

mod reading;

pub(crate) use reading::unix_time;

/// The desired state of a node as its twin mirrors it.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, kube::KubeSchema)]
#[kube(
    group = "joulie.io",
    version = "v1alpha1",
    kind = "NodeTwin",
    doc = "A node's digital twin: its desired state, what it draws and what is predicted for it.",
    status = "NodeTwinStatus",
    derive = "PartialEq",
    shortname = "nt",
    category = "joulie",
    selectable = ".spec.nodeName",
    printcolumn(name = "Node", type_ = "string", json_path = ".spec.nodeName"),
    printcolumn(name = "Profile", type_ = "string", json_path = ".spec.profile"),
    printcolumn(name = "Class", type_ = "string", json_path = ".status.schedulableClass"),
    printcolumn(name = "PowerHeadroom", type_ = "number", json_path = ".status.predictedPowerHeadroomScore"),
    printcolumn(name = "CoolingStress", type_ = "number", json_path = ".status.predictedCoolingStressScore"),
    printcolumn(name = "PSUStress", type_ = "number", json_path = ".status.predictedPsuStressScore"),
    printcolumn(
        name = "Power-W",
        type_ = "number",
        json_path = ".status.powerMeasurement.measuredNodePowerW"
    ),
    printcolumn(
        name = "Cap-W",
        type_ = "number",
        json_path = ".status.powerMeasurement.nodeCappedPowerW",
        description = "What the node may draw under its caps"
    ),
    printcolumn(name = "CPU-Cap", type_ = "number", json_path = ".spec.cpu.packagePowerCapPctOfMax"),
    printcolumn(name = "GPU-Cap", type_ = "number", json_path = ".spec.gpu.powerCap.capPctOfMax"),
    printcolumn(
        name = "WithinBudget",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="WithinBudget")].status"#
    ),
    printcolumn(name = "Draining", type_ = "boolean", json_path = ".spec.scheduling.draining")
)]
#[serde(rename_all = "camelCase")]
pub struct NodeTwinSpec {
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
    /// What placement is to know.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduling: Option<Scheduling>,
}

vocabulary! {
    /// Low, medium or high.
    pub enum Pressure {
        /// Low.
        Low = "low",
        /// Medium.
        Medium = "medium",
        /// High.
        High = "high",
    }
}

part! {
    /// What placement is to know of a node.
    pub struct Scheduling {
        /// Performance pods still run there while it becomes an eco node.
        draining: bool,
        /// How much pods that can be restarted elsewhere should be.
        reschedulable_pressure: Word<Pressure>,
    }
}

impl Vocabulary for SchedulableClass {
    const ALL: &'static [Self] = &[Self::Eco, Self::Performance, Self::Draining, Self::Unknown];

    fn as_str(self) -> &'static str {
        Self::as_str(self)
    }
}

vocabulary! {
    /// Where a power measurement comes from, or why there is none.
    pub enum PowerSource {
        /// Kepler's energy counters.
        Kepler = "kepler",
        /// A model of the utilisation.
        Utilization = "utilization",
        /// Nothing measures.
        Static = "static",
        /// An HTTP endpoint.
        Http = "http",
        /// The HTTP endpoint failed.
        HttpError = "http-error",
        /// There is no HTTP endpoint.
        HttpNoEndpoint = "http-no-endpoint",
        /// A Prometheus server.
        Prometheus = "prometheus",
        /// The Prometheus server has nothing to say.
        PrometheusNoData = "prometheus-no-data",
        /// Kepler has nothing to say.
        KeplerNoData = "kepler-no-data",
        /// The node's agent.
        Agent = "agent",
        /// The node's agent has nothing to say.
        AgentNoData = "agent-no-data",
    }
}

part! {
    /// What is predicted and measured of a node.
    pub struct NodeTwinStatus {
        /// What the node offers.
        schedulable_class: Word<SchedulableClass>,
        /// What the node draws, and what it may.
        power_measurement: PowerMeasurement,
        /// What is left of the node's power budget, in percent; negative above it.
        #[schemars(range(max = 100.0))]
        predicted_power_headroom_score: Number,
        /// How near the cooling is to its limit.
        #[schemars(range(min = 0.0, max = 100.0))]
        predicted_cooling_stress_score: Number,
        /// How near the power supply is to its limit.
        #[schemars(range(min = 0.0, max = 100.0))]
        predicted_psu_stress_score: Number,
        /// The caps in force, in percent of the most that can be set.
        effective_cap_state: EffectiveCapState,
        /// The PowerBudget that the node is in: the deepest of those whose limits it is under.
        #[schemars(length(max = 253))]
        power_budget: String,
        /// How much the hardware computes, relative to the others.
        #[schemars(range(min = 0.0, max = 100.0))]
        hardware_density_score: Number,
        /// The facility's power per power of the machines.
        #[serde(rename = "estimatedPUE")]
        estimated_pue: Number,
        /// What came of the desired state, written by the agent.
        control_status: TwinControlStatuses,
        /// Pods that would better run elsewhere.
        reschedule_recommendations: Vec<RescheduleRecommendation>,
        /// The same list under its other name.
        migration_recommendations: Vec<RescheduleRecommendation>,
        /// The stress for which pods were recommended to leave. It stays until the stress is known to have eased, also
        /// without any pod that could leave; standard pods are kept away meanwhile.
        reschedule_cause: Word<RescheduleCause>,
        /// How the node's GPUs would better be divided.
        gpu_slicing_recommendation: GpuSlicingRecommendation,
        /// When this was written, RFC 3339.
        last_updated: String,
        /// The Lease by which this status is fresh; its own age says nothing then.
        #[schemars(length(max = 253))]
        plan_lease: String,
        /// The generation of the spec that this status speaks of.
        observed_generation: Whole,
        /// How the twin stands, among them TelemetryFresh.
        #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
        conditions: Vec<Condition>,
    }
}

part! {
    /// What a node draws, and what it may, in watts.
    pub struct PowerMeasurement {
        /// Where the measurement comes from, or why there is none.
        source: Word<PowerSource>,
        /// What the node draws.
        #[serde(rename = "measuredNodePowerW")]
        measured_node_power_w: Number,
        /// What the processors may draw under their caps.
        #[serde(rename = "cpuCappedPowerW")]
        cpu_capped_power_w: Number,
        /// What the GPUs may draw under their caps.
        #[serde(rename = "gpuCappedPowerW")]
        gpu_capped_power_w: Number,
        /// What the node may draw under its caps. Where power follows demand, it is what the node could be granted at most, and
        /// not what it is granted now.
        #[serde(rename = "nodeCappedPowerW")]
        node_capped_power_w: Number,
        /// What the node gets when every node under its limits wants everything. Missing where power does not follow demand.
        #[serde(rename = "nodeEntitledPowerW")]
        node_entitled_power_w: Number,
        /// What the processors can draw.
        #[serde(rename = "cpuTdpW")]
        cpu_tdp_w: Number,
        /// What the GPUs can draw.
        #[serde(rename = "gpuTdpW")]
        gpu_tdp_w: Number,
        /// What the node can draw.
        #[serde(rename = "nodeTdpW")]
        node_tdp_w: Number,
        /// How fast the node's draw rises, in watts per minute.
        #[serde(rename = "powerTrendWPerMin")]
        power_trend_w_per_min: Number,
        /// When the measurement was taken, RFC 3339.
        sampled_at: String,
    }
}

part! {
    /// The caps in force, in percent of the most that can be set.
    pub struct EffectiveCapState {
        /// That of the processors.
        cpu_pct: Number,
        /// That of the GPUs.
        gpu_pct: Number,
    }
}

part! {
    /// What came of the desired state.
    pub struct TwinControlStatuses {
        /// On the processors.
        cpu: ControlStatus,
        /// On the GPUs.
        gpu: ControlStatus,
    }
}

part! {
    /// What came of the desired state on one kind of device.
    pub struct ControlStatus {
        /// Who brought it about: none, dvfs, http, the class of the power limits such as rapl, hsmp or host-nvidia, or mixed.
        backend: String,
        /// applied, blocked, error or none.
        result: String,
        /// For people.
        message: String,
        /// When this was written, RFC 3339.
        updated_at: String,
        /// The generation of the object that carries the desired state.
        observed_generation: Whole,
        /// What was asked of each device, in watts, as resolved against its range.
        requested_watts: Number,
        /// The cap of each device that is in force: what was read back. Absent where none is.
        cap_watts: Number,
    }
}

part! {
    /// A pod that would better run elsewhere.
    pub struct RescheduleRecommendation {
        /// Which.
        workload_ref: TwinWorkloadRef,
        /// Why, in words.
        reason: String,
        /// Why, in one word.
        cause: Word<RescheduleCause>,
        /// The stress in percent, if that is why.
        #[schemars(range(min = 0.0, max = 100.0))]
        stress: Number,
        /// A node that could accept it; absent if none is known.
        #[schemars(length(max = 253))]
        target_node: String,
    }
}

vocabulary! {
    /// Why pods would better run elsewhere.
    pub enum RescheduleCause {
        /// The node's cooling is stressed.
        CoolingStress = "cooling_stress",
        /// The power supply of the rack is stressed.
        PsuStress = "psu_stress",
        /// The node becomes an eco node.
        Draining = "draining",
    }
}

part! {
    /// A workload.
    pub struct TwinWorkloadRef {
        /// Its kind.
        kind: String,
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
    }
}

impl RescheduleCause {
    /// Whether it is a stress.
    #[must_use]
    pub const fn is_stress(self) -> bool {
        match self {
            Self::CoolingStress | Self::PsuStress => true,
            Self::Draining => false,
        }
    }
}

vocabulary! {
    /// A way to divide GPUs.
    pub enum SlicingMode {
        /// In hardware.
        Mig = "mig",
        /// In time.
        TimeSlicing = "time-slicing",
        /// Not at all.
        None = "none",
    }
}

part! {
    /// How a node's GPUs would better be divided.
    pub struct GpuSlicingRecommendation {
        /// In which way.
        mode: Word<SlicingMode>,
        /// Into slices of this profile.
        slice_type: String,
        /// How many of one GPU.
        #[serde(rename = "slicesPerGPU")]
        slices_per_gpu: Whole,
        /// How many of all GPUs.
        total_slices: Whole,
        /// Why.
        reason: String,
        /// How much better the GPUs would be used.
        estimated_utilization_gain: Number,
        /// How sure that is.
        confidence: Number,
    }
}

impl TryFrom<&NodeTwinSpec> for DesiredSpec {
    type Error = FieldError;

    fn try_from(spec: &NodeTwinSpec) -> Result<Self, FieldError> {
        Self::try_from(Parts {
            node: &spec.node_name,
            profile: &spec.profile,
            cpu: spec.cpu.as_ref(),
            gpu: spec.gpu.as_ref(),
            policy: spec.policy.as_ref(),
            draining: spec.scheduling.as_ref().and_then(|scheduling| scheduling.draining),
        })
    }
}
