//! The parts of the watched objects that the agent keeps: what a decision or a comparison needs, and nothing else.
//!
//! A row exists if the node of its object is known. Whether its desired state can be read is a part of the row, so that
//! a malformed object is reported and not just missing.

use crate::counts::Refused;
use host_kit::reflect::Row;
use joulie_api::caps::DesiredSpec;
use joulie_api::condition::ConditionType;
use joulie_api::labels::node;
use joulie_api::node_power_grant::{ArmedShare, NodePowerGrant, NodePowerGrantSpec};
use joulie_api::node_power_profile::NodePowerProfile;
use joulie_api::node_twin::NodeTwin;
use joulie_api::object;
use joulie_api::power_event::{PowerEvent, PowerEventSpec};
use joulie_api::quantity::Quantity;
use joulie_api::telemetry_profile::{Audience, TelemetryProfile, TelemetryProfileSpec, TelemetryRouting};
use joulie_api::word::Vocabulary;
use node_kit::NodeGrant;
use planner::inventory::{GPUS_MAX, PROCESSORS_MAX, SOCKETS_MAX};
use power_units::{Role, Watts};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A node.
#[derive(Debug, PartialEq)]
pub(crate) struct NodeRow {
    pub(crate) uid: String,
    /// The boot ID that its kubelet reports.
    pub(crate) boot: Option<String>,
    pub(crate) labels: BTreeMap<String, String>,
    /// Logical processors.
    pub(crate) cores: Option<u32>,
    pub(crate) memory_bytes: Option<u64>,
    /// Packages, by a label.
    pub(crate) sockets: Option<u32>,
    /// Allocatable GPUs, else the number in a label; zero if there is neither.
    pub(crate) gpus: u32,
    /// The counts above that were given but are impossible.
    pub(crate) refused: Refused,
}

impl Row for NodeRow {
    const KIND: &'static str = "Node";
    const OWNERS: bool = false;

    fn read(object: &Value) -> Result<Self, String> {
        let labels = &object["metadata"]["labels"];
        let labels = labels.as_object().into_iter().flatten();
        let labels = labels.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())));
        let labels: BTreeMap<String, String> = labels.collect();
        let capacity = &object["status"]["capacity"];
        let memory = capacity["memory"].as_str().and_then(|memory| Quantity::parse(memory).ok());
        let mut refused = Refused::default();
        let mut label = |key: &str, within| {
            refused.text(&format!("the label {key}"), labels.get(key).map(String::as_str), &within)
        };
        let sockets = [node::CPU_SOCKETS, node::NFD_CPU_SOCKETS].map(|key| label(key, 1..=SOCKETS_MAX));
        let labelled = label(node::GPU_COUNT, 0..=GPUS_MAX);
        let offered = allocatable_gpus(&object["status"]["allocatable"], &mut refused);
        Ok(Self {
            uid: text(object, "/metadata/uid").unwrap_or_default(),
            boot: text(object, "/status/nodeInfo/bootID").filter(|boot| !boot.is_empty()),
            cores: refused.quantity("the capacity of cpu", &capacity["cpu"], &(0..=PROCESSORS_MAX)),
            memory_bytes: memory.and_then(|memory| u64::try_from(memory.value()).ok()),
            sockets: sockets.into_iter().flatten().next(),
            gpus: offered.filter(|&gpus| gpus > 0).or(labelled).unwrap_or(0),
            labels,
            refused,
        })
    }
}

/// Counts whole GPUs only, not slices or shares of them. `None` if one of the amounts, or their sum, is impossible.
fn allocatable_gpus(resources: &Value, refused: &mut Refused) -> Option<u32> {
    let is_gpu = |name: &str| {
        let name = name.to_ascii_lowercase();
        name == "gpu.intel.com/i915" || name.ends_with("/gpu")
    };
    let resources = resources.as_object().into_iter().flatten().filter(|(name, _)| is_gpu(name));
    let mut sum = Some(0_u32);
    for (name, amount) in resources {
        let count = refused.quantity(&format!("the resource {name}"), amount, &(0..=GPUS_MAX));
        sum = sum.zip(count).map(|(sum, count)| sum.saturating_add(count));
    }
    sum.filter(|&sum| sum <= GPUS_MAX)
}

/// An object that carries a desired state, or the outcome of one, or both.
#[derive(Debug, PartialEq)]
pub(crate) struct GoalRow {
    pub(crate) node: String,
    pub(crate) uid: String,
    pub(crate) generation: Option<i64>,
    /// The desired state, or why it cannot be read.
    pub(crate) desired: Result<DesiredSpec, String>,
    /// What an agent published there.
    pub(crate) seen: Arc<Seen>,
}

/// The part of a status that belongs to the agent, in the form in which this version writes it, as the watch showed it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    /// The version of the object.
    pub(crate) version: String,
    pub(crate) status: Value,
}

/// A NodePowerProfile.
#[derive(Debug, PartialEq)]
pub(crate) struct ProfileRow(pub(crate) GoalRow);

/// A NodeTwin.
#[derive(Debug, PartialEq)]
pub(crate) struct TwinRow(pub(crate) GoalRow);

/// The field that holds the outcome in the status of a NodePowerProfile.
pub(crate) const CONTROL_OF_PROFILE: &str = "control";
/// The field that holds the outcome in the status of a NodeTwin.
pub(crate) const CONTROL_OF_TWIN: &str = "controlStatus";

impl Row for ProfileRow {
    const KIND: &'static str = "NodePowerProfile";
    const OWNERS: bool = false;

    fn read(value: &Value) -> Result<Self, String> {
        let desired = object::parse::<NodePowerProfile>(&spec_alone(value)).map_err(|bad| bad.to_string());
        let desired =
            desired.and_then(|it| DesiredSpec::try_from(&it.spec).map_err(|error| error.to_string()));
        goal(value, desired, CONTROL_OF_PROFILE).map(Self)
    }
}

impl Row for TwinRow {
    const KIND: &'static str = "NodeTwin";
    const OWNERS: bool = false;

    fn read(value: &Value) -> Result<Self, String> {
        let desired = object::parse::<NodeTwin>(&spec_alone(value)).map_err(|bad| bad.to_string());
        let desired =
            desired.and_then(|it| DesiredSpec::try_from(&it.spec).map_err(|error| error.to_string()));
        goal(value, desired, CONTROL_OF_TWIN).map(Self)
    }
}

/// The object without its status. Others write the status, and an error there is no reason to ignore a cap.
fn spec_alone(value: &Value) -> Value {
    let name = &value["metadata"]["name"];
    json!({"apiVersion": value["apiVersion"], "kind": value["kind"], "metadata": {"name": name}, "spec": value["spec"]})
        .as_object()
        .map(|object| object.iter().filter(|(_, part)| !part.is_null()))
        .map(|parts| Value::Object(parts.map(|(key, part)| (key.clone(), part.clone())).collect()))
        .unwrap_or_default()
}

fn goal(value: &Value, desired: Result<DesiredSpec, String>, control: &str) -> Result<GoalRow, String> {
    Ok(GoalRow {
        node: text(value, "/spec/nodeName")
            .filter(|node| !node.is_empty())
            .ok_or("it has no spec.nodeName")?,
        uid: text(value, "/metadata/uid").unwrap_or_default(),
        generation: value["metadata"]["generation"].as_i64(),
        desired,
        seen: Arc::new(Seen { version: version(value), status: published(&value["status"], control) }),
    })
}

/// The part of a status that the agent writes: the outcome, and its condition.
pub(crate) fn published(status: &Value, control: &str) -> Value {
    published_about(status, control, ConditionType::CapEnforced)
}

fn published_about(status: &Value, control: &str, about: ConditionType) -> Value {
    let mut ours = Map::new();
    let mut take = |key: &str, value: Option<&Value>| {
        if let Some(value) = value {
            ours.insert(key.to_owned(), value.clone());
        }
    };
    take(control, status.get(control));
    let about = |condition: &&Value| condition["type"] == about.as_str();
    let condition = status["conditions"].as_array().and_then(|all| all.iter().find(about));
    let list = condition.map(|condition| Value::Array(vec![condition.clone()]));
    take("conditions", list.as_ref());
    Value::Object(ours)
}

/// A NodeHardware.
#[derive(Debug, PartialEq)]
pub(crate) struct HardwareRow {
    pub(crate) node: String,
    pub(crate) uid: String,
    /// Its whole status, which belongs to the agent.
    pub(crate) seen: Arc<Seen>,
}

impl Row for HardwareRow {
    const KIND: &'static str = "NodeHardware";
    const OWNERS: bool = false;

    fn read(value: &Value) -> Result<Self, String> {
        Ok(Self {
            node: text(value, "/spec/nodeName")
                .filter(|node| !node.is_empty())
                .ok_or("it has no spec.nodeName")?,
            uid: text(value, "/metadata/uid").unwrap_or_default(),
            seen: Arc::new(Seen { version: version(value), status: value["status"].clone() }),
        })
    }
}

/// A NodePowerGrant.
#[derive(Debug, PartialEq)]
pub(crate) struct GrantRow {
    pub(crate) node: String,
    pub(crate) uid: String,
    pub(crate) grant: NodeGrant,
    /// Nothing that the node may still hold allows more than this grant, so that its receipt changes nothing that counts.
    pub(crate) is_highest: bool,
    /// Watts are short, so that the node may yield.
    pub(crate) lends: bool,
    /// What the node has left of this grant, as an agent told it.
    pub(crate) yields: Option<Watts>,
    /// Whether it releases the node.
    pub(crate) released: bool,
    /// What each armed event leaves of the node.
    pub(crate) armed: Vec<ArmedShare>,
    /// Its whole status, which belongs to the agent.
    pub(crate) seen: Arc<Seen>,
}

impl Row for GrantRow {
    const KIND: &'static str = "NodePowerGrant";
    const OWNERS: bool = false;

    fn read(value: &Value) -> Result<Self, String> {
        let object: NodePowerGrant = object::parse(&spec_alone(value)).map_err(|bad| bad.to_string())?;
        // A decision's number is for people.
        let NodePowerGrantSpec { node_name, serial, watts, ceiling, released, lends, armed, decision: _ } =
            object.spec;
        let is_highest = ceiling.get() <= watts.get();
        let number = Watts::parse(&watts.to_string(), Role::Limit).ok().filter(|&it| it >= Watts::ZERO);
        let watts = number.ok_or_else(|| format!("spec.watts: {watts} is no number of watts from 0"))?;
        let serial = u64::try_from(serial.get()).ok().filter(|&serial| serial > 0);
        let serial = serial.ok_or("spec.serial: expected a whole number, 1 or more")?;
        Ok(Self {
            node: Some(node_name).filter(|node| !node.is_empty()).ok_or("it has no spec.nodeName")?,
            uid: text(value, "/metadata/uid").unwrap_or_default(),
            grant: NodeGrant { serial, watts },
            is_highest,
            lends: lends == Some(true),
            yields: yielded(&value["status"], serial),
            released: released == Some(true),
            armed: armed.unwrap_or_default(),
            seen: Arc::new(Seen { version: version(value), status: value["status"].clone() }),
        })
    }
}

/// What was told that the node has left of the grant of this serial.
fn yielded(status: &Value, serial: u64) -> Option<Watts> {
    let left = status["yields"].as_number().filter(|_| status["serial"].as_u64() == Some(serial))?;
    Watts::parse(&left.to_string(), Role::Limit).ok().filter(|&left| left >= Watts::ZERO)
}

/// A PowerEvent.
#[derive(Debug, PartialEq)]
pub(crate) struct EventRow {
    pub(crate) uid: String,
    /// `None` if it cannot be read: what is known of it, also from before a restart, then stays.
    pub(crate) spec: Option<PowerEventSpec>,
}

impl Row for EventRow {
    const KIND: &'static str = "PowerEvent";
    const OWNERS: bool = false;

    fn read(value: &Value) -> Result<Self, String> {
        let object = object::parse::<PowerEvent>(&spec_alone(value)).ok();
        let spec = object.map(|object| object.spec).filter(|spec| spec.times().is_ok());
        Ok(Self { uid: text(value, "/metadata/uid").unwrap_or_default(), spec })
    }
}

/// A TelemetryProfile.
#[derive(Debug, PartialEq)]
pub(crate) struct RouteRow {
    pub(crate) uid: String,
    pub(crate) generation: Option<i64>,
    /// Whom it is for, or why that cannot be read.
    pub(crate) audience: Result<Audience, String>,
    /// What it asks for, or why that cannot be read.
    pub(crate) routing: Result<TelemetryRouting, String>,
    /// What an agent published there.
    pub(crate) seen: Arc<Seen>,
}

impl Row for RouteRow {
    const KIND: &'static str = "TelemetryProfile";
    const OWNERS: bool = false;

    fn read(value: &Value) -> Result<Self, String> {
        let object = object::parse::<TelemetryProfile>(&spec_alone(value)).map_err(|bad| bad.to_string());
        let read = |spec: &TelemetryProfileSpec| TelemetryRouting::try_from(spec);
        let routing = object.and_then(|it| read(&it.spec).map_err(|error| error.to_string()));
        // An error elsewhere does not hide whom the profile is for.
        let target = json!({"target": value["spec"]["target"]});
        let target =
            serde_json::from_value::<TelemetryProfileSpec>(target).map_err(|error| error.to_string());
        let target = target.and_then(|spec| read(&spec).map_err(|error| error.to_string()));
        Ok(Self {
            uid: text(value, "/metadata/uid").unwrap_or_default(),
            generation: value["metadata"]["generation"].as_i64(),
            audience: target.map(|routing| routing.audience),
            routing,
            seen: Arc::new(Seen { version: version(value), status: published_route(&value["status"]) }),
        })
    }
}

/// The part of the status of a TelemetryProfile that the agent writes.
pub(crate) fn published_route(status: &Value) -> Value {
    let mut ours = published_about(status, CONTROL_OF_PROFILE, ConditionType::Accepted);
    if let (Some(ours), Some(generation)) = (ours.as_object_mut(), status.get("observedGeneration")) {
        ours.insert("observedGeneration".to_owned(), generation.clone());
    }
    ours
}

/// The plan's Lease, which its leader renews after each complete pass.
#[derive(Debug, PartialEq)]
pub(crate) struct LeaseRow {
    pub(crate) renewed: Option<jiff::Timestamp>,
}

impl Row for LeaseRow {
    const KIND: &'static str = "Lease";
    const OWNERS: bool = false;

    fn read(value: &Value) -> Result<Self, String> {
        Ok(Self { renewed: text(value, "/spec/renewTime").and_then(|time| time.parse().ok()) })
    }
}

fn version(value: &Value) -> String {
    text(value, "/metadata/resourceVersion").unwrap_or_default()
}

fn text(value: &Value, pointer: &str) -> Option<String> {
    value.pointer(pointer).and_then(Value::as_str).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(labels: Value, gpus: &str) -> NodeRow {
        let allocatable = json!({"nvidia.com/gpu": gpus, "cpu": "64"});
        NodeRow::read(&json!({"metadata": {"labels": labels}, "status": {"allocatable": allocatable}}))
            .unwrap()
    }

    #[test]
    fn what_cannot_be_counted_on_a_node_is_unknown_and_told() {
        let label = |count: &str| json!({node::GPU_COUNT: count, node::CPU_SOCKETS: count});
        for absurd in ["4e9", "9223372036854775808", "-1", "1e300", "NaN"] {
            let row = node(label(absurd), absurd);
            assert_eq!((row.gpus, row.sockets, row.refused.count()), (0, None, 3), "{absurd}: {row:?}");
        }
        let row = node(label("2"), "4000000000");
        assert_eq!((row.gpus, row.sockets, row.refused.count()), (2, Some(2), 1), "the next source is asked");
        let row = node(json!({node::NFD_CPU_SOCKETS: "2", node::CPU_SOCKETS: "0"}), "8");
        assert_eq!((row.gpus, row.sockets, row.refused.count()), (8, Some(2), 1));
        assert!(row.refused.words()[0].contains("hw.cpu-sockets says 0, and 1 to 64 can be"), "{row:?}");
    }

    #[test]
    fn grants_of_operators_of_other_versions_are_followed() {
        let read = |spec: Value| {
            let metadata = json!({"name": "a", "uid": "g", "resourceVersion": "5"});
            GrantRow::read(&json!({
                "apiVersion": "joulie.io/v1alpha1", "kind": "NodePowerGrant", "metadata": metadata, "spec": spec,
                // What an agent of a later version has said.
                "status": {"serial": 7, "yields": 200, "spares": [1, 2]},
            }))
        };
        // The first ones said neither whether watts are short nor what events leave.
        let first = json!({"nodeName": "a", "serial": 7, "watts": 300, "ceiling": 450});
        let row = read(first.clone()).unwrap();
        assert_eq!((row.grant.serial, row.grant.watts), (7, Watts::from_int(300)));
        assert_eq!((row.lends, row.released, row.armed.len()), (false, false, 0), "it yields nothing");
        assert_eq!(row.yields, Some(Watts::from_int(200)), "what was yielded before stays yielded");
        let mut later = first;
        later["sinks"] = json!({"of": "a later version"});
        assert_eq!(read(later).unwrap().grant, row.grant);
    }
}
