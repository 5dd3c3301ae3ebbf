//! The two kinds that carry a desired state: NodePowerProfile and NodeTwin, with the outcome that the agent reports.

use super::owners::{self, Owners, of_state};
use super::{Stamp, name, text, watts};
use host_kit::reflect::Row;
use jiff::Timestamp;
use joulie_api::caps;
use joulie_api::condition::Condition;
use joulie_api::labels;
use joulie_api::node_power_profile::NodePowerProfileSpec;
use joulie_api::node_twin::{NodeTwinSpec, NodeTwinStatus};
use joulie_core::node::cap::CapIntent;
use planner::intent::{DeviceCap, NodeCaps};
use planner::node::{Carried, DesiredKind, DesiredState};
use planner::policy::policy_name;
use planner::profile::Profile;
use power_units::{Role, Watts};
use serde::Deserialize;
use serde_json::Value;

/// The content of an object that carries a desired state, of either kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StateSeen {
    /// Its name.
    pub(crate) name: String,
    /// The object, and its version.
    pub(crate) stamp: Stamp,
    /// The generation of the spec.
    pub(crate) generation: i64,
    /// The node that it is for.
    pub(crate) node: String,
    /// Whether the operator has applied to it.
    pub(crate) ours: bool,
    /// Whether an operator of another generation wrote to it.
    pub(crate) former: bool,
    /// Its desired state, and which parts somebody else owns.
    pub(crate) carried: Carried,
    /// The owner of those parts; the first one by name.
    pub(crate) who: Option<String>,
    /// When the caps of a person end, if an end was set to them.
    pub(crate) until: Option<Timestamp>,
    /// The outcome that the agent reports.
    pub(crate) control: ControlSeen,
}

impl StateSeen {
    fn of(object: &Value, desired: caps::DesiredSpec, control: &Value) -> Self {
        let caps::DesiredSpec { node, profile, cpu, gpu, policy, draining } = desired;
        let Owners { ours, former, theirs, who, by_plugin } = of_state(object);
        // What is no time sets no end: the person's caps stay.
        let until = object["metadata"]["annotations"][labels::cap::UNTIL].as_str().filter(|_| by_plugin);
        let carried = Carried {
            desired: DesiredState {
                profile: match profile {
                    caps::ProfileName::Performance => Profile::Performance,
                    caps::ProfileName::Eco => Profile::Eco,
                },
                caps: NodeCaps { cpu: cap(cpu), gpu: cap(gpu) },
                draining,
                policy: policy.map(policy_name),
            },
            theirs,
            persons: !ours && !former && theirs.profile,
        };
        Self {
            name: name(object).to_owned(),
            stamp: Stamp::of(object),
            generation: object["metadata"]["generation"].as_i64().unwrap_or_default(),
            node,
            ours,
            former,
            carried,
            who,
            until: until.and_then(|text| text.parse().ok()),
            control: ControlSeen::read(control),
        }
    }

    /// The name of the kind that is the source of the desired state.
    pub(crate) const fn kind(&self, source: DesiredKind) -> &'static str {
        match source {
            DesiredKind::Profile => "NodePowerProfile",
            DesiredKind::Twin => "NodeTwin",
        }
    }
}

/// What is kept of a NodePowerProfile.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ProfileSeen {
    /// The desired state.
    pub(crate) state: StateSeen,
    /// Its conditions: those of the operator, and others.
    pub(crate) conditions: Vec<Condition>,
}

/// What is kept of a NodeTwin.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TwinSeen {
    /// The desired state, or a copy of it.
    pub(crate) state: StateSeen,
    /// The status that the operator wrote.
    pub(crate) status: Box<NodeTwinStatus>,
    /// Somebody else owns the advice on dividing its GPUs.
    pub(crate) slicing_theirs: bool,
}

/// The outcome of a desired state for each kind of device, as the agent reports it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ControlSeen {
    /// For the processors.
    pub(crate) cpu: Option<DeviceSeen>,
    /// For the GPUs.
    pub(crate) gpu: Option<DeviceSeen>,
}

/// The outcome for one kind of device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DeviceSeen {
    /// Whether the cap is in force.
    pub(crate) applied: bool,
    /// Whether the node cannot apply it.
    pub(crate) blocked: bool,
    /// Whether no cap is in force and the originals are restored.
    pub(crate) lifted: bool,
    /// The generation of the object that the agent acted on; agents of another generation do not report it.
    pub(crate) observed: Option<i64>,
    /// What was read back of each device; `None` if no cap is in force.
    pub(crate) cap: Option<Watts>,
    /// Whether a closed loop over the frequencies holds it, so that there is no limit to read back.
    pub(crate) regulated: bool,
}

impl ControlSeen {
    fn read(control: &Value) -> Self {
        let device = |of: &str| {
            let device = &control[of];
            let result = text(&device["result"])?;
            Some(DeviceSeen {
                applied: result == "applied",
                blocked: result == "blocked",
                lifted: result == "none" && device["capWatts"].is_null(),
                observed: device["observedGeneration"].as_i64(),
                // A limit that is in force rounds up.
                cap: watts(&device["capWatts"], Role::Demand),
                regulated: device["backend"].as_str() == Some("dvfs"),
            })
        };
        Self { cpu: device("cpu"), gpu: device("gpu") }
    }
}

impl Row for ProfileSeen {
    const KIND: &'static str = "NodePowerProfile";
    const OWNERS: bool = true;

    fn read(object: &Value) -> Result<Self, String> {
        let spec =
            NodePowerProfileSpec::deserialize(&object["spec"]).map_err(|error| format!("spec: {error}"))?;
        let desired = caps::DesiredSpec::try_from(&spec).map_err(|error| error.to_string())?;
        let status = &object["status"];
        let conditions = Vec::deserialize(&status["conditions"]).unwrap_or_default();
        Ok(Self { state: StateSeen::of(object, desired, &status["control"]), conditions })
    }
}

impl Row for TwinSeen {
    const KIND: &'static str = "NodeTwin";
    const OWNERS: bool = true;

    fn read(object: &Value) -> Result<Self, String> {
        let spec = NodeTwinSpec::deserialize(&object["spec"]).map_err(|error| format!("spec: {error}"))?;
        let desired = caps::DesiredSpec::try_from(&spec).map_err(|error| error.to_string())?;
        // A status that cannot be read is written again.
        let status = NodeTwinStatus::deserialize(&object["status"]).unwrap_or_default();
        let slicing_theirs = owners::is_slicing_theirs(object);
        let slicing = status.gpu_slicing_recommendation.filter(|_| !slicing_theirs);
        let status = NodeTwinStatus { control_status: None, gpu_slicing_recommendation: slicing, ..status };
        Ok(Self {
            state: StateSeen::of(object, desired, &object["status"]["controlStatus"]),
            status: Box::new(status),
            slicing_theirs,
        })
    }
}

fn cap(intent: CapIntent) -> Option<DeviceCap> {
    (intent != CapIntent::NONE).then_some(DeviceCap { percent: intent.percent, watts: intent.watts })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_profile_is_read_with_what_came_of_it() {
        let seen = ProfileSeen::read(&json!({"metadata": {"name": "a", "uid": "u", "resourceVersion": "7", "generation": 3},
            "spec": {"nodeName": "n.1", "profile": "eco", "cpu": {"packagePowerCapPctOfMax": 60}},
            "status": {"control": {"cpu": {"backend": "rapl", "result": "applied", "observedGeneration": 3, "capWatts": 216},
                "gpu": {"result": ""}}}})).unwrap();
        let seen = seen.state;
        assert_eq!((seen.node.as_str(), seen.generation), ("n.1", 3));
        assert_eq!(seen.carried.desired.profile, Profile::Eco);
        let device = DeviceSeen {
            applied: true,
            blocked: false,
            lifted: false,
            observed: Some(3),
            cap: Some(Watts::from_int(216)),
            regulated: false,
        };
        assert_eq!(seen.control, ControlSeen { cpu: Some(device), gpu: None });
        assert!(seen.carried.desired.caps.gpu.is_none());
    }

    #[test]
    fn a_desired_state_that_says_nothing_or_nonsense_has_no_row_and_says_why() {
        for (spec, why) in [
            (json!(null), "spec: "),
            (
                json!({"nodeName": "a", "profile": "turbo"}),
                "spec.profile: expected performance or eco, found turbo",
            ),
            (json!({"nodeName": "a", "profile": "eco", "cpu": {"packagePowerCapPctOfMax": 0}}), "spec.cpu."),
        ] {
            let read = ProfileSeen::read(&json!({"metadata": {"name": "a"}, "spec": spec}));
            assert!(read.unwrap_err().starts_with(why));
        }
    }
}
