//! WorkloadProfile: what the classifier knows of a workload.

mod trust;
mod trusted;

pub use trust::{Distrust, NO_PROMETHEUS, TrustRule, TrustedProfile};
pub use trusted::TrustedProfiles;

use crate::condition::Condition;
use crate::field::FieldError;
use crate::macros::{part, vocabulary};
use crate::number::{Number, Whole};
use crate::word::Word;
use joulie_core::placement::class::WorkloadClass;
use kube::CustomResource;
use serde::{Deserialize, Serialize};

/// Which workload is profiled.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, kube::KubeSchema)]
#[kube(
    group = "joulie.io",
    version = "v1alpha1",
    kind = "WorkloadProfile",
    doc = "What the classifier knows of a workload: one for each controller of pods, or for a pod without one.",
    namespaced,
    status = "WorkloadProfileStatus",
    derive = "PartialEq",
    shortname = "wp",
    category = "joulie",
    selectable = ".spec.nodeName",
    printcolumn(name = "Node", type_ = "string", json_path = ".spec.nodeName"),
    printcolumn(name = "Criticality", type_ = "string", json_path = ".status.criticality.class"),
    printcolumn(name = "CPU-Bound", type_ = "string", json_path = ".status.cpu.bound"),
    printcolumn(name = "GPU-Bound", type_ = "string", json_path = ".status.gpu.bound"),
    printcolumn(
        name = "Reschedulable",
        type_ = "boolean",
        json_path = ".status.migratability.reschedulable"
    )
)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadProfileSpec {
    /// The node on which it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub node_name: Option<String>,
    /// The workload.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = kube::core::Rule::new("self == oldSelf").message("workloadRef is immutable: a profile stays with its workload"))]
    pub workload_ref: Option<WorkloadRef>,
}

/// A workload.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, kube::KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadRef {
    /// Its kind.
    #[schemars(length(max = 253))]
    pub kind: String,
    /// Its namespace; the profile's own where it does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub namespace: Option<String>,
    /// Its name.
    #[schemars(length(max = 253))]
    pub name: String,
}

vocabulary! {
    /// How much a workload's speed matters.
    pub enum WorkloadProfileClass {
        /// It must not run on eco or draining nodes.
        Performance = "performance",
        /// It runs anywhere.
        Standard = "standard",
        /// It runs anywhere; a word of one generation alone.
        BestEffort = "best-effort",
    }
}

vocabulary! {
    /// How hard processors are worked, or how much a cap would hurt there.
    pub enum CpuLevel {
        /// Much.
        High = "high",
        /// Somewhat.
        Medium = "medium",
        /// Little.
        Low = "low",
    }
}

vocabulary! {
    /// How hard GPUs are worked, or how much a cap would hurt there.
    pub enum GpuLevel {
        /// Much.
        High = "high",
        /// Somewhat.
        Medium = "medium",
        /// Little.
        Low = "low",
        /// They are not used.
        None = "none",
    }
}

vocabulary! {
    /// What bounds a workload on processors.
    pub enum CpuBound {
        /// Computing.
        Compute = "compute",
        /// Memory.
        Memory = "memory",
        /// Waiting for input and output.
        Io = "io",
        /// No one thing.
        Mixed = "mixed",
    }
}

vocabulary! {
    /// What bounds a workload on GPUs.
    pub enum GpuBound {
        /// Computing.
        Compute = "compute",
        /// Memory.
        Memory = "memory",
        /// No one thing.
        Mixed = "mixed",
        /// They are not used.
        None = "none",
    }
}

part! {
    /// What is known of a workload.
    pub struct WorkloadProfileStatus {
        /// How much its speed matters.
        criticality: Criticality,
        /// Whether it may be restarted elsewhere.
        migratability: Migratability,
        /// Its use of processors.
        cpu: CpuUse,
        /// Its use of GPUs.
        gpu: GpuUse,
        /// It would better run elsewhere.
        reschedule_recommended: bool,
        /// Why it would.
        reschedule_reason: String,
        /// Which rules led to the classes.
        classification_reason: String,
        /// How much data backs this, from 0 to 1.
        confidence: Number,
        /// When this was written, RFC 3339.
        last_updated: String,
        /// The generation of the spec that this status speaks of.
        observed_generation: Whole,
        /// How the profile stands.
        #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
        conditions: Vec<Condition>,
    }
}

part! {
    /// How much a workload's speed matters.
    pub struct Criticality {
        /// Its class.
        class: Word<WorkloadProfileClass>,
    }
}

part! {
    /// Whether a workload may be restarted elsewhere.
    pub struct Migratability {
        /// It may.
        reschedulable: bool,
    }
}

part! {
    /// A workload's use of processors.
    pub struct CpuUse {
        /// How hard it works them.
        intensity: Word<CpuLevel>,
        /// What bounds it there.
        bound: Word<CpuBound>,
        /// The utilisation that was seen.
        avg_utilization_pct: Number,
        /// How much a cap would hurt it.
        cap_sensitivity: Word<CpuLevel>,
    }
}

part! {
    /// A workload's use of GPUs.
    pub struct GpuUse {
        /// How hard it works them.
        intensity: Word<GpuLevel>,
        /// What bounds it there.
        bound: Word<GpuBound>,
        /// The utilisation that was seen.
        avg_utilization_pct: Number,
        /// How much a cap would hurt it.
        cap_sensitivity: Word<GpuLevel>,
    }
}

impl From<WorkloadClass> for WorkloadProfileClass {
    fn from(class: WorkloadClass) -> Self {
        match class {
            WorkloadClass::Performance => Self::Performance,
            WorkloadClass::Standard => Self::Standard,
        }
    }
}

impl TryFrom<&WorkloadProfileStatus> for WorkloadClass {
    type Error = FieldError;

    /// The class by which the workload is placed; the default if the profile has none.
    fn try_from(status: &WorkloadProfileStatus) -> Result<Self, FieldError> {
        let class = status.criticality.as_ref().and_then(|criticality| criticality.class.as_ref());
        let Some(class) = class else { return Ok(Self::Standard) };
        Ok(match class.expect("status.criticality.class")? {
            WorkloadProfileClass::Performance => Self::Performance,
            WorkloadProfileClass::Standard | WorkloadProfileClass::BestEffort => Self::Standard,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn class(json: Value) -> Result<WorkloadClass, String> {
        let status: WorkloadProfileStatus = serde_json::from_value(json).unwrap();
        WorkloadClass::try_from(&status).map_err(|error| error.to_string())
    }

    #[test]
    fn a_class_of_every_generation_is_one_of_the_two() {
        let of = |word: &str| class(json!({"criticality": {"class": word}}));
        assert_eq!(of("performance"), Ok(WorkloadClass::Performance));
        assert_eq!(of("standard"), Ok(WorkloadClass::Standard));
        assert_eq!(of("best-effort"), Ok(WorkloadClass::Standard));
        assert_eq!(class(json!({})), Ok(WorkloadClass::Standard));
        assert_eq!(
            of("vip"),
            Err("status.criticality.class: expected performance, standard or best-effort, found vip"
                .to_owned())
        );
    }
}
