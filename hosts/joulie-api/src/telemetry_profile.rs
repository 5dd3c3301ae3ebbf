//! TelemetryProfile: where a node's readings come from and how it is controlled, written by a person; the agent writes
//! the outcome of the control.

use crate::condition::Condition;
use crate::macros::{part, vocabulary};
use crate::number::Whole;
use crate::word::Word;
use kube::CustomResource;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

mod routing;

pub use routing::{Audience, ControlRoute, HttpEndpoint, Readings, TelemetryRouting};

vocabulary! {
    /// Whom a profile is for.
    pub enum TargetScope {
        /// One node.
        Node = "node",
        /// Every node that has none of its own.
        Cluster = "cluster",
    }
}

vocabulary! {
    /// Where readings come from.
    pub enum SourceType {
        /// Nowhere.
        None = "none",
        /// The node's own hardware.
        Host = "host",
        /// An HTTP endpoint.
        Http = "http",
        /// A Prometheus server.
        Prometheus = "prometheus",
    }
}

vocabulary! {
    /// Through what a device is controlled.
    pub enum ControlType {
        /// Nothing.
        None = "none",
        /// The node's own hardware.
        Host = "host",
        /// An HTTP endpoint.
        Http = "http",
    }
}

vocabulary! {
    /// What an HTTP endpoint is told about processors.
    pub enum CpuMode {
        /// Whatever works.
        Auto = "auto",
        /// Power limits.
        Rapl = "rapl",
        /// A throttle.
        Dvfs = "dvfs",
    }
}

vocabulary! {
    /// What an HTTP endpoint is told about GPUs.
    pub enum GpuMode {
        /// Whatever works.
        Auto = "auto",
        /// Power limits.
        PowerCap = "powercap",
        /// Clock limits.
        Clocks = "clocks",
    }
}

vocabulary! {
    /// What came of a control action.
    pub enum ControlResult {
        /// It is in force.
        Applied = "applied",
        /// It cannot be done here.
        Blocked = "blocked",
        /// It failed.
        Error = "error",
        /// There was nothing to do.
        None = "none",
    }
}

/// Where readings come from and through what a node is controlled.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, kube::KubeSchema)]
#[kube(
    group = "joulie.io",
    version = "v1alpha1",
    kind = "TelemetryProfile",
    doc = "Where the readings of a node come from and through what it is controlled.",
    status = "TelemetryProfileStatus",
    derive = "PartialEq",
    shortname = "tp",
    category = "joulie",
    selectable = ".spec.target.nodeName",
    selectable = ".spec.target.scope",
    printcolumn(name = "Scope", type_ = "string", json_path = ".spec.target.scope"),
    printcolumn(name = "Node", type_ = "string", json_path = ".spec.target.nodeName"),
    printcolumn(name = "CPU Source", type_ = "string", json_path = ".spec.sources.cpu.type"),
    printcolumn(name = "CPU Control", type_ = "string", json_path = ".spec.controls.cpu.type")
)]
#[serde(rename_all = "camelCase")]
pub struct TelemetryProfileSpec {
    /// Whom it is for.
    pub target: ProfileTarget,
    /// Where readings come from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sources: Option<TelemetrySources>,
    /// Through what devices are controlled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub controls: Option<Controls>,
}

/// Whom a profile is for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, kube::KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = kube::core::Rule::new("self.scope != 'node' || (has(self.nodeName) && self.nodeName != '')")
    .message("scope node needs a nodeName: without one the profile is for nobody")
    .field_path(".nodeName"))]
pub struct ProfileTarget {
    /// One node, or every node that has no profile of its own.
    pub scope: Word<TargetScope>,
    /// The node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub node_name: Option<String>,
}

part! {
    /// Where readings come from.
    pub struct TelemetrySources {
        /// Those of the processors.
        cpu: TelemetrySource,
        /// Those of the GPUs.
        gpu: TelemetrySource,
        /// Temperatures.
        thermal: TelemetrySource,
        /// What surrounds the node.
        context: TelemetrySource,
    }
}

part! {
    /// Where one kind of readings comes from.
    #[x_kube(validation = kube::core::Rule::new("!has(self.type) || self.type != 'http' || (has(self.http) && has(self.http.endpoint))")
        .message("a source of type http needs http.endpoint")
        .field_path(".http"))]
    #[x_kube(validation = kube::core::Rule::new("!has(self.type) || self.type != 'prometheus' || (has(self.prometheus) && has(self.prometheus.endpoint) && has(self.prometheus.query))")
        .message("a source of type prometheus needs prometheus.endpoint and prometheus.query")
        .field_path(".prometheus"))]
    pub struct TelemetrySource {
        /// What it is.
        #[serde(rename = "type")]
        type_: Word<SourceType>,
        /// The endpoint of type http.
        http: HttpSource,
        /// The query of type prometheus.
        prometheus: PrometheusSource,
    }
}

part! {
    /// An HTTP endpoint that is read.
    pub struct HttpSource {
        /// Its URL; `{node}` stands for the name of the node.
        endpoint: String,
        /// How long an answer may take.
        #[schemars(range(min = 1, max = 300))]
        timeout_seconds: Whole,
    }
}

part! {
    /// A query to a Prometheus server.
    pub struct PrometheusSource {
        /// The server's URL, with the prefix of its paths if it has one; `{node}` stands for the name of the node.
        endpoint: String,
        /// The query; `{node}` stands for the name of the node. Without it the series count that name the node in a label.
        query: String,
        /// How long an answer may take.
        #[schemars(range(min = 1, max = 300))]
        timeout_seconds: Whole,
    }
}

part! {
    /// Through what devices are controlled.
    pub struct Controls {
        /// The processors.
        cpu: CpuControl,
        /// The GPUs.
        gpu: GpuControl,
    }
}

part! {
    /// Through what the processors are controlled.
    #[x_kube(validation = kube::core::Rule::new("!has(self.type) || self.type != 'http' || (has(self.http) && has(self.http.endpoint))")
        .message("a cpu control of type http needs http.endpoint")
        .field_path(".http"))]
    pub struct CpuControl {
        /// What it is.
        #[serde(rename = "type")]
        type_: Word<ControlType>,
        /// The endpoint of type http.
        http: HttpCpuControl,
    }
}

part! {
    /// An HTTP endpoint that controls processors.
    pub struct HttpCpuControl {
        /// Its URL; `{node}` stands for the name of the node.
        endpoint: String,
        /// How long an answer may take.
        #[schemars(range(min = 1, max = 300))]
        timeout_seconds: Whole,
        /// What it is told.
        mode: Word<CpuMode>,
    }
}

part! {
    /// Through what the GPUs are controlled.
    #[x_kube(validation = kube::core::Rule::new("!has(self.type) || self.type != 'http' || (has(self.http) && has(self.http.endpoint))")
        .message("a gpu control of type http needs http.endpoint")
        .field_path(".http"))]
    pub struct GpuControl {
        /// What it is.
        #[serde(rename = "type")]
        type_: Word<ControlType>,
        /// The endpoint of type http.
        http: HttpGpuControl,
    }
}

part! {
    /// An HTTP endpoint that controls GPUs.
    pub struct HttpGpuControl {
        /// Its URL; `{node}` stands for the name of the node.
        endpoint: String,
        /// How long an answer may take.
        #[schemars(range(min = 1, max = 300))]
        timeout_seconds: Whole,
        /// What it is told.
        mode: Word<GpuMode>,
    }
}

part! {
    /// What came of it.
    pub struct TelemetryProfileStatus {
        /// What came of the desired state.
        control: ControlOutcomes,
        /// The last readings; never written by Joulie's agents.
        #[schemars(schema_with = "crate::crd::any_object")]
        snapshot: Map<String, Value>,
        /// The generation of the spec that this status speaks of.
        observed_generation: Whole,
        /// How the profile stands.
        #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
        conditions: Vec<Condition>,
    }
}

part! {
    /// What came of the desired state.
    pub struct ControlOutcomes {
        /// On the processors.
        cpu: ControlOutcome,
        /// On the GPUs.
        gpu: ControlOutcome,
    }
}

part! {
    /// What came of the desired state on one kind of device.
    pub struct ControlOutcome {
        /// Who brought it about: none, dvfs, http, the class of the power limits such as rapl, hsmp or host-nvidia, or mixed.
        backend: String,
        /// What came of it.
        result: Word<ControlResult>,
        /// For people.
        message: String,
        /// What was seen on the device.
        #[schemars(schema_with = "crate::crd::any_object")]
        observed: Map<String, Value>,
        /// When this was written, RFC 3339.
        updated_at: String,
    }
}
