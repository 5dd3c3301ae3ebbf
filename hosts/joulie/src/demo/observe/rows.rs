//! The data that is kept of each object in the view.

use crate::demo::state::{Advice, Offer, Telemetry, Workload, clean};
use host_kit::reflect::Row;
use joulie_api::caps::DesiredSpec;
use joulie_api::condition::{Condition, ConditionStatus, ConditionType, find};
use joulie_api::labels::{self, is_true};
use joulie_api::node_hardware::NodeHardware;
use joulie_api::node_power_grant::{NodePowerGrant, left_watts};
use joulie_api::node_power_profile::NodePowerProfile;
use joulie_api::node_twin::{ControlStatus, NodeTwin, NodeTwinStatus, RescheduleCause};
use joulie_api::number::Number;
use joulie_api::object::parse;
use joulie_api::word::Vocabulary;
use joulie_api::workload_profile::{TrustRule, WorkloadProfile};
use joulie_core::node::cap::CapIntent;
use joulie_core::placement::class::SchedulableClass;
use power_units::{Ratio, Role, Watts};
use serde_json::Value;

/// A Node.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Machine {
    pub(crate) kind: String,
    pub(crate) zone: Option<String>,
    pub(crate) offer: Offer,
    pub(crate) reserved: bool,
    pub(crate) ready: bool,
    pub(crate) packages: u32,
    pub(crate) gpus: u32,
}

/// A NodePowerProfile.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Profile {
    pub(crate) node: String,
    pub(crate) generation: Option<i64>,
    pub(crate) asks_cpu: CapIntent,
    pub(crate) asks_gpu: CapIntent,
    pub(crate) policy: Option<String>,
    pub(crate) overridden: bool,
    pub(crate) cpu: Outcome,
    pub(crate) gpu: Outcome,
}

/// The agent's report on one kind of device.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Outcome {
    pub(crate) generation: Option<i64>,
    pub(crate) requested: Option<Watts>,
    pub(crate) in_force: Option<Watts>,
    pub(crate) refused: Option<String>,
}

/// A NodeTwin.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Twin {
    pub(crate) node: String,
    pub(crate) draining: bool,
    pub(crate) most: Option<Watts>,
    pub(crate) telemetry: Telemetry,
    pub(crate) advice: Option<Advice>,
}

/// A NodePowerGrant.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Grant {
    pub(crate) node: String,
    /// `None` if the node is released from the budget.
    pub(crate) watts: Option<Watts>,
}

/// A PowerBudget.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Limit {
    pub(crate) watts: Option<Watts>,
}

/// A NodeHardware.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Hardware {
    pub(crate) node: String,
    pub(crate) packages: u32,
    pub(crate) package_most: Option<Watts>,
    pub(crate) gpus: u32,
    pub(crate) gpu_most: Option<Watts>,
    pub(crate) power: Option<Watts>,
    pub(crate) sampled_at: Option<String>,
}

/// A Pod.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Pod {
    pub(crate) uid: String,
    pub(crate) node: Option<String>,
    pub(crate) phase: String,
    pub(crate) performance: bool,
}

/// A WorkloadProfile.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Classified {
    /// The workload, if it has a controller and its profile is trusted.
    pub(crate) about: Option<(String, Workload)>,
}

/// A Lease.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Lease {
    pub(crate) holder: Option<String>,
    pub(crate) renewed: Option<String>,
}

fn text(value: &Value) -> Option<String> {
    value.as_str().filter(|text| !text.is_empty()).map(str::to_owned)
}

fn watts(number: Option<Number>) -> Option<Watts> {
    Watts::parse(&number?.to_string(), Role::Nearest).ok()
}

impl Row for Machine {
    const KIND: &'static str = "Node";
    const OWNERS: bool = false;

    fn read(object: &Value) -> Result<Self, String> {
        let label = |name: &str| object["metadata"]["labels"][name].as_str();
        let count = |name: &str| label(name).and_then(|text| text.parse().ok()).unwrap_or(0);
        let model = |name: &str| label(name).map(model);
        let mut conditions = object["status"]["conditions"].as_array().into_iter().flatten();
        let (packages, gpus) = (count(labels::node::CPU_SOCKETS), count(labels::node::GPU_COUNT));
        let kind = match (model(labels::node::CPU_MODEL), model(labels::node::GPU_MODEL)) {
            (Some(cpu), Some(gpu)) => format!("{packages} {cpu}, {gpus} {gpu}"),
            (Some(cpu), None) => format!("{packages} {cpu}"),
            (None, _) => String::new(),
        };
        Ok(Self {
            kind,
            zone: label(labels::node::COOLING_ZONE).map(str::to_owned),
            offer: match label(labels::node::POWER_PROFILE) {
                Some("performance") => Offer::Performance,
                Some("eco") => Offer::Eco,
                Some(_) | None => Offer::Unknown,
            },
            reserved: is_true(label(labels::node::RESERVED)),
            ready: conditions.any(|one| one["type"] == "Ready" && one["status"] == "True"),
            packages,
            gpus,
        })
    }
}

/// A catalogue model without its vendor, which the model implies: `AMD_EPYC_9654` becomes `EPYC 9654`.
fn model(key: &str) -> String {
    let short = ["AMD_", "INTEL_", "NVIDIA_"].iter().find_map(|maker| key.strip_prefix(maker));
    clean(&short.unwrap_or(key).replace('_', " "))
}

impl Row for Profile {
    const KIND: &'static str = "NodePowerProfile";
    const OWNERS: bool = false;

    fn read(object: &Value) -> Result<Self, String> {
        let profile: NodePowerProfile = parse(object).map_err(|bad| bad.to_string())?;
        let desired = DesiredSpec::try_from(&profile.spec).map_err(|error| error.to_string())?;
        let status = profile.status.unwrap_or_default();
        let control = status.control.unwrap_or_default();
        let conditions = status.conditions.unwrap_or_default();
        Ok(Self {
            node: desired.node,
            generation: profile.metadata.generation,
            asks_cpu: desired.cpu,
            asks_gpu: desired.gpu,
            policy: desired.policy,
            overridden: find(&conditions, ConditionType::Overridden) == Some(ConditionStatus::True),
            cpu: outcome(control.cpu),
            gpu: outcome(control.gpu),
        })
    }
}

fn outcome(status: Option<ControlStatus>) -> Outcome {
    let status = status.unwrap_or_default();
    let refused = matches!(status.result.as_deref(), Some("blocked" | "error"));
    let why = clean(&status.message.unwrap_or_default());
    Outcome {
        generation: status.observed_generation.map(|generation| generation.get()),
        requested: watts(status.requested_watts),
        in_force: watts(status.cap_watts),
        refused: refused.then(|| if why.is_empty() { "the agent does not say why".to_owned() } else { why }),
    }
}

impl Row for Twin {
    const KIND: &'static str = "NodeTwin";
    const OWNERS: bool = false;

    fn read(object: &Value) -> Result<Self, String> {
        let twin: NodeTwin = parse(object).map_err(|bad| bad.to_string())?;
        let status = twin.status.unwrap_or_default();
        let advice = advice(&status);
        let class = status.schedulable_class.and_then(|class| class.known());
        let conditions = status.conditions.unwrap_or_default();
        Ok(Self {
            node: twin.spec.node_name,
            draining: class == Some(SchedulableClass::Draining),
            most: watts(status.power_measurement.and_then(|power| power.node_tdp_w)),
            telemetry: telemetry(&conditions),
            advice,
        })
    }
}

/// The recommendation of a twin, unless the node only drains, which is told anyway.
fn advice(status: &NodeTwinStatus) -> Option<Advice> {
    let score = |number: Option<Number>| number.map_or_else(|| "?".to_owned(), |number| number.to_string());
    let why = match status.reschedule_cause.as_ref()?.known()? {
        RescheduleCause::CoolingStress => {
            format!("{} % of its cooling is used", score(status.predicted_cooling_stress_score))
        }
        RescheduleCause::PsuStress => {
            format!("{} % of its power supply is used", score(status.predicted_psu_stress_score))
        }
        RescheduleCause::Draining => return None,
    };
    let all = status.reschedule_recommendations.as_deref().unwrap_or_default();
    let first = all.first().and_then(|one| {
        let pod = one.workload_ref.as_ref()?.name.as_deref()?;
        Some((clean(pod), one.target_node.as_deref().map(clean)))
    });
    Some(Advice { why, pods: all.len(), first })
}

impl Row for Limit {
    const KIND: &'static str = "PowerBudget";
    const OWNERS: bool = false;

    fn read(object: &Value) -> Result<Self, String> {
        Ok(Self { watts: Watts::parse(&object["spec"]["watts"].to_string(), Role::Limit).ok() })
    }
}

impl Row for Grant {
    const KIND: &'static str = "NodePowerGrant";
    const OWNERS: bool = false;

    fn read(object: &Value) -> Result<Self, String> {
        let grant: NodePowerGrant = parse(object).map_err(|bad| bad.to_string())?;
        let spec = grant.spec;
        let is_released = spec.released == Some(true);
        let left = left_watts(object).and_then(Number::new).unwrap_or(spec.watts);
        Ok(Self { node: spec.node_name, watts: watts(Some(left)).filter(|_| !is_released) })
    }
}

fn telemetry(conditions: &[Condition]) -> Telemetry {
    let about = ConditionType::TelemetryFresh;
    match find(conditions, about) {
        Some(ConditionStatus::True) => Telemetry::Fresh,
        Some(ConditionStatus::False) => {
            let why = conditions.iter().find(|one| one.type_ == about.as_str());
            let why = why.and_then(|one| one.message.clone()).unwrap_or_default();
            Telemetry::Stale(if why.is_empty() { "its readings are old".to_owned() } else { clean(&why) })
        }
        Some(ConditionStatus::Unknown) | None => Telemetry::Unknown,
    }
}

impl Row for Hardware {
    const KIND: &'static str = "NodeHardware";
    const OWNERS: bool = false;

    fn read(object: &Value) -> Result<Self, String> {
        let hardware: NodeHardware = parse(object).map_err(|bad| bad.to_string())?;
        let status = hardware.status.unwrap_or_default();
        let (cpu, gpu) = (status.cpu.unwrap_or_default(), status.gpu.unwrap_or_default());
        let power = status.power.unwrap_or_default();
        let count = |number: Option<joulie_api::number::Whole>| {
            number.and_then(|number| u32::try_from(number.get()).ok()).unwrap_or(0)
        };
        let (cpus, gpus) = (watts(power.cpu_watts), watts(power.gpu_watts));
        let together = match (cpus, gpus) {
            (Some(cpus), Some(gpus)) => cpus.checked_add(gpus),
            // If a node has GPUs of unknown power, the power of the node is unknown.
            (Some(cpus), None) if count(gpu.count) == 0 => Some(cpus),
            (Some(_) | None, _) => None,
        };
        Ok(Self {
            node: hardware.spec.node_name,
            packages: count(cpu.sockets),
            package_most: watts(cpu.cap_range.and_then(|range| range.max_watts_per_socket)),
            gpus: count(gpu.count),
            gpu_most: watts(gpu.cap_range_per_gpu.and_then(|range| range.max_watts)),
            // As grants and limits count; the rest of a node is in neither.
            power: together.or(watts(power.node_watts)),
            sampled_at: power.sampled_at,
        })
    }
}

impl Row for Pod {
    const KIND: &'static str = "Pod";
    const OWNERS: bool = false;

    fn read(object: &Value) -> Result<Self, String> {
        let class = object["metadata"]["annotations"][labels::pod::WORKLOAD_CLASS].as_str();
        Ok(Self {
            uid: text(&object["metadata"]["uid"]).unwrap_or_default(),
            node: text(&object["spec"]["nodeName"]),
            phase: text(&object["status"]["phase"]).unwrap_or_default(),
            performance: class.is_some_and(|class| class.trim().eq_ignore_ascii_case("performance")),
        })
    }
}

impl Row for Classified {
    const KIND: &'static str = "WorkloadProfile";
    const OWNERS: bool = false;

    fn read(object: &Value) -> Result<Self, String> {
        let profile: WorkloadProfile = parse(object).map_err(|bad| bad.to_string())?;
        // A pod of its own is soon gone.
        let workload = profile.workload().filter(|[_, kind, _]| *kind != "Pod");
        let name = workload.map(|[namespace, kind, name]| clean(&format!("{kind} {namespace}/{name}")));
        let rule = TrustRule::new(Ratio::from_bits(1 << 31));
        let trusted = rule.read(&profile.status.unwrap_or_default()).ok();
        let said = trusted.and_then(|said| {
            let (intensity, sensitivity) = (said.cpu_intensity?, said.cpu_sensitivity?);
            Some(Workload { intensity: intensity.as_str().into(), sensitivity: sensitivity.as_str().into() })
        });
        Ok(Self { about: name.zip(said) })
    }
}

impl Row for Lease {
    const KIND: &'static str = "Lease";
    const OWNERS: bool = false;

    fn read(object: &Value) -> Result<Self, String> {
        Ok(Self {
            holder: text(&object["spec"]["holderIdentity"]),
            renewed: text(&object["spec"]["renewTime"]),
        })
    }
}
