//! The data that is kept from the watched objects.

use crate::evictable::CardPod;
use crate::shortlist::AffinityReach;
use host_kit::reflect::Row;
use jiff::Timestamp;
use joulie_api::extender::pod::{self, ExtenderPod};
use joulie_api::labels::plan;
use joulie_api::node_hardware::{DrawnSample, NodeHardware, NodeHardwareStatus};
use joulie_api::node_twin::{NodeTwin, NodeTwinStatus, PowerSource};
use joulie_api::object;
use joulie_api::word::Word;
use joulie_api::workload_profile::{WorkloadProfile, WorkloadProfileStatus};
use joulie_core::placement::assumed::PodUid;
use joulie_core::placement::demand::PodDemand;
use joulie_core::placement::estimate::HardwareRecord;
use joulie_core::placement::freshness::{Evidence, TelemetryFreshness, UnixTime};
use joulie_core::placement::score::{TwinPower, TwinStatus};
use serde::Deserialize;
use serde_json::Value;
use std::sync::Arc;

/// A NodeTwin.
#[derive(Clone, Debug)]
pub(crate) struct TwinRow {
    pub(crate) node: String,
    /// What its status says; `None` if it has none.
    pub(crate) said: Option<Said>,
    /// The PowerBudget that the node is in.
    pub(crate) budget: Option<Arc<str>>,
}

/// What a twin's status says.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Said {
    pub(crate) twin: TwinStatus,
    pub(crate) evidence: Evidence,
    /// When the node's power was last sampled; otherwise, when the status was written. A twin without a measurement
    /// includes a pod once its status was written again.
    pub(crate) sampled: Option<UnixTime>,
    /// The measurement, if it is that of the node's agent.
    pub(crate) of_agent: Option<DrawnSample>,
    /// `powerMeasurement.nodeTdpW`, for display only.
    pub(crate) tdp: Option<f64>,
}

impl Row for TwinRow {
    const KIND: &'static str = "nodetwins";
    const OWNERS: bool = false;

    fn read(object: &Value) -> Result<Self, String> {
        let twin: NodeTwin = object::parse(object).map_err(|error| error.to_string())?;
        let said = twin.status.as_ref().map(said).transpose()?;
        let budget = twin.status.and_then(|status| status.power_budget).map(Arc::from);
        Ok(Self { node: twin.spec.node_name, said, budget })
    }
}

fn said(status: &NodeTwinStatus) -> Result<Said, String> {
    let power = status.power_measurement.as_ref();
    let written = status.last_updated.as_deref().and_then(unix_time);
    let mut twin = TwinStatus::try_from(status).map_err(|error| error.to_string())?;
    let evidence = match status.evidence() {
        // A silent meter invalidates the measurement, not the twin: the prediction is used, without a trend.
        Evidence::Leased(TelemetryFreshness::Stale | TelemetryFreshness::Unsaid) => {
            twin.power = twin.power.map(|power| TwinPower { measured: None, trend: None, ..power });
            Evidence::Leased(TelemetryFreshness::Fresh)
        }
        evidence @ Evidence::Leased(TelemetryFreshness::Fresh) => evidence,
        evidence @ (Evidence::NoTwin | Evidence::Dated(_)) => {
            twin.pue = twin.pue.filter(|_| !is_guessed(status));
            evidence
        }
    };
    let at = power.and_then(|power| power.sampled());
    let source = power.and_then(|power| power.source.as_ref()).and_then(Word::known);
    let watts = twin.power.and_then(|power| power.measured).filter(|_| source == Some(PowerSource::Agent));
    Ok(Said {
        twin,
        evidence,
        sampled: at.or(written),
        of_agent: at.zip(watts).map(|(at, watts)| DrawnSample { at, watts }),
        tdp: power.and_then(|power| power.node_tdp_w).map(|tdp| tdp.get()),
    })
}

/// Whether a PUE was computed from nothing but the same twin's cooling stress, as upstream's operator does: 1.05 +
/// 0.35 · stress / 100. Our own twins, which name the plan's Lease, have a PUE only if facility data supports it.
fn is_guessed(status: &NodeTwinStatus) -> bool {
    let (Some(pue), Some(stress)) = (status.estimated_pue, status.predicted_cooling_stress_score) else {
        return false;
    };
    // It is written with three digits or more.
    (pue.get() - 1.05 - 0.35 * stress.get().clamp(0.0, 100.0) / 100.0).abs() < 0.001
}

/// A NodeHardware.
#[derive(Clone, Debug)]
pub(crate) struct HardwareRow {
    pub(crate) node: String,
    /// `None` if nothing was discovered yet.
    pub(crate) hardware: Option<HardwareRecord>,
    /// What the node drew when its agent last measured it.
    pub(crate) sample: Option<DrawnSample>,
}

impl Row for HardwareRow {
    const KIND: &'static str = "nodehardwares";
    const OWNERS: bool = false;

    fn read(object: &Value) -> Result<Self, String> {
        let read: NodeHardware = object::parse(object).map_err(|error| error.to_string())?;
        let hardware = read.status.as_ref().map(HardwareRecord::try_from).transpose();
        let hardware = hardware.map_err(|error| error.to_string())?;
        let sample = read.status.as_ref().and_then(NodeHardwareStatus::sample);
        Ok(Self { node: read.spec.node_name, hardware, sample })
    }
}

/// A node whose label says eco. The watch selects no others.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EcoLabel;

impl EcoLabel {
    /// The selector of the watch.
    pub(crate) fn selector(key: &str) -> String {
        format!("{key}=eco")
    }
}

impl Row for EcoLabel {
    const KIND: &'static str = "nodes";
    const OWNERS: bool = false;

    fn read(_: &Value) -> Result<Self, String> {
        Ok(Self)
    }
}

/// A WorkloadProfile.
#[derive(Clone, Debug)]
pub(crate) struct ProfileRow {
    /// The namespace, the kind and the name of its workload; `None` if it says none.
    pub(crate) workload: Option<[String; 3]>,
    pub(crate) status: WorkloadProfileStatus,
}

impl Row for ProfileRow {
    const KIND: &'static str = "workloadprofiles";
    const OWNERS: bool = false;

    fn read(object: &Value) -> Result<Self, String> {
        let read: WorkloadProfile = object::parse(object).map_err(|error| error.to_string())?;
        let workload = read.workload().map(|workload| workload.map(str::to_owned));
        Ok(Self { workload, status: read.status.unwrap_or_default() })
    }
}

/// The plan's Lease.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LeaseRow {
    /// The time of the last renewal, as the Lease states it.
    pub(crate) renewed: Option<UnixTime>,
    /// It says that workloads are not classified. An operator that does not say it may be an older one.
    pub(crate) no_classifier: bool,
}

impl Row for LeaseRow {
    const KIND: &'static str = "leases";
    const OWNERS: bool = false;

    fn read(object: &Value) -> Result<Self, String> {
        Ok(Self {
            renewed: object["spec"]["renewTime"].as_str().and_then(unix_time),
            no_classifier: object["metadata"]["annotations"][plan::CLASSIFIER] == plan::OFF,
        })
    }
}

/// A pod that has not ended.
#[derive(Clone, Debug)]
pub(crate) struct PodRow {
    pub(crate) uid: PodUid,
    /// Empty if it is not bound.
    pub(crate) node: String,
    /// Whether it has scheduling gates.
    pub(crate) is_gated: bool,
    pub(crate) demand: PodDemand,
    /// When it was bound, if the object says so.
    pub(crate) bound: Option<UnixTime>,
    pub(crate) stage: Stage,
    /// For which other pods its affinity counts.
    pub(crate) reach: AffinityReach,
    /// What preempt needs to know of a pod that asks for GPUs.
    pub(crate) cards: Option<Arc<CardPod>>,
    /// Whether a DaemonSet or a node controls it: it is where the node is, whoever else is there.
    pub(crate) is_of_node: bool,
}

/// The stage of a pod's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Not running yet.
    Waits,
    /// Running since that time, if the object gives it.
    Runs(Option<UnixTime>),
    /// Ended.
    Ended,
}

impl Row for PodRow {
    const KIND: &'static str = "pods";
    const OWNERS: bool = false;

    fn read(object: &Value) -> Result<Self, String> {
        let read = ExtenderPod::deserialize(object).map_err(|error| error.to_string())?;
        let [_, _, uid] = read.identity();
        let uid = uid.ok_or("it has no metadata.uid")?;
        let demand = read.demand().map_err(|error| error.to_string())?;
        let status = &object["status"];
        Ok(Self {
            uid: pod::uid(uid),
            node: read.node().unwrap_or_default().to_owned(),
            is_gated: object["spec"]["schedulingGates"].as_array().is_some_and(|gates| !gates.is_empty()),
            cards: CardPod::read(object, &demand),
            demand,
            bound: condition(status, "PodScheduled"),
            stage: match status["phase"].as_str() {
                Some("Succeeded" | "Failed") => Stage::Ended,
                Some("Running") => Stage::Runs(started(status)),
                Some(_) | None => Stage::Waits,
            },
            reach: AffinityReach::read(object),
            is_of_node: is_of_node(object),
        })
    }
}

fn is_of_node(pod: &Value) -> bool {
    let owners = pod["metadata"]["ownerReferences"].as_array();
    let kinds = owners.into_iter().flatten().filter_map(|owner| owner["kind"].as_str());
    kinds.into_iter().any(|kind| matches!(kind, "DaemonSet" | "Node"))
}

/// When the last container started; otherwise, when the kubelet accepted the pod. The later time is safer, because
/// assumed watts count from there.
fn started(status: &Value) -> Option<UnixTime> {
    let containers = status["containerStatuses"].as_array();
    let started = containers.into_iter().flatten();
    let last =
        started.filter_map(|one| one["state"]["running"]["startedAt"].as_str()).filter_map(unix_time).max();
    last.or_else(|| status["startTime"].as_str().and_then(unix_time))
}

fn condition(status: &Value, kind: &str) -> Option<UnixTime> {
    let conditions = status["conditions"].as_array()?;
    let is = |one: &&Value| one["type"] == kind && one["status"] == "True";
    unix_time(conditions.iter().find(is)?["lastTransitionTime"].as_str()?)
}

fn unix_time(text: &str) -> Option<UnixTime> {
    let time: Timestamp = text.trim().parse().ok()?;
    Some(UnixTime::from_micros(time.as_microsecond()))
}
