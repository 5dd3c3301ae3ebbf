//! A NodeHardware: the hardware of a node and its power, as its agent reports them.

use super::{Stamp, count, text, watts};
use host_kit::reflect::Row;
use joulie_api::node_hardware::{ASKED, METER_SILENT, drawn};
use planner::inventory::Reported;
use power_units::{Role, Watts};
use serde_json::Value;

/// What is kept of a NodeHardware.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HardwareSeen {
    /// The node.
    pub(crate) node: String,
    /// The object, and its version.
    pub(crate) stamp: Stamp,
    /// The reported hardware.
    pub(crate) reported: Reported,
    /// Whether the processors can be capped, if reported.
    pub(crate) cpu_control: Option<bool>,
    /// Whether the GPUs can be capped, if reported.
    pub(crate) gpu_control: Option<bool>,
    /// Whether it reports GPUs.
    pub(crate) has_gpus: bool,
    /// Whether they can be divided, if reported.
    pub(crate) gpu_slicing: Option<bool>,
    /// Whether its devices can be metered, if reported; false means that the node has no meter.
    pub(crate) metered: Option<bool>,
    /// The power of the node, if reported.
    pub(crate) power: Option<PowerSeen>,
}

/// The power of a node, as its agent reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PowerSeen {
    /// The whole node if a meter measures it, else packages and GPUs; `None` if a number is missing or impossible.
    pub(crate) watts: Option<Watts>,
    /// What that has beside packages and GPUs, if a meter of the whole node measures it.
    pub(crate) rest: Option<Watts>,
    /// What that meter says of itself, if there is one.
    pub(crate) meter: Option<NodeMeter>,
    /// When it was measured, as the agent wrote it.
    pub(crate) sampled_at: Option<String>,
    /// When the meter of the whole node measured it, as the agent wrote it; that meter is asked less often.
    pub(crate) node_sampled_at: Option<String>,
    /// The agent has it from Prometheus, of whose values nobody knows for sure when they were measured.
    pub(crate) undated: bool,
}

/// The meter of a whole node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NodeMeter {
    /// It measures.
    Speaks,
    /// It says nothing now, and packages and GPUs are what is known.
    Silent,
}

impl Row for HardwareSeen {
    const KIND: &'static str = "NodeHardware";
    const OWNERS: bool = false;

    fn read(object: &Value) -> Result<Self, String> {
        let node = text(&object["spec"]["nodeName"]).ok_or("spec.nodeName: expected the name of a node")?;
        let (cpu, gpu) = (&object["status"]["cpu"], &object["status"]["gpu"]);
        let capabilities = &object["status"]["capabilities"];
        // Ranges of all generations: the current form, and the flat one of v0.0.5.
        let either = |new: &Value, old: &Value, role| watts(new, role).or_else(|| watts(old, role));
        let cpu_range = &cpu["capRange"];
        let gpu_range = &gpu["capRangePerGpu"];
        let reported = Reported {
            cpu_raw_model: text(&cpu["rawModel"]).map(Into::into),
            cpu_model: text(&cpu["model"]).map(Into::into),
            sockets: count(&cpu["sockets"]),
            total_cores: count(&cpu["totalCores"]),
            cpu_min: either(&cpu_range["minWattsPerSocket"], &cpu["capMinWatts"], Role::Demand),
            cpu_max: either(&cpu_range["maxWattsPerSocket"], &cpu["capMaxWatts"], Role::Limit),
            gpu_present: gpu["present"].as_bool(),
            gpu_raw_model: text(&gpu["rawModel"]).map(Into::into),
            gpu_model: text(&gpu["model"]).map(Into::into),
            gpu_count: count(&gpu["count"]),
            gpu_min: either(&gpu_range["minWatts"], &gpu["capMinWatts"], Role::Demand),
            gpu_max: either(&gpu_range["maxWatts"], &gpu["capMaxWatts"], Role::Limit),
        };
        let control = |device: &Value, of: &str| {
            device["controlAvailable"].as_bool().or_else(|| capabilities[of].as_bool())
        };
        let has_gpus = reported.gpu_present == Some(true) || reported.gpu_count.is_some_and(|gpus| gpus > 0);
        let tells = |device: &Value| device["telemetryAvailable"].as_bool();
        let metered = match (tells(cpu), tells(gpu).filter(|_| has_gpus)) {
            (None, None) => None,
            (cpu, gpu) => Some(cpu != Some(false) && gpu != Some(false)),
        };
        Ok(Self {
            node,
            metered,
            stamp: Stamp::of(object),
            reported,
            cpu_control: control(cpu, "cpuControl"),
            gpu_control: control(gpu, "gpuControl"),
            has_gpus,
            gpu_slicing: gpu["slicing"]["supported"].as_bool(),
            power: power(&object["status"]["power"], has_gpus),
        })
    }
}

fn power(power: &Value, has_gpus: bool) -> Option<PowerSeen> {
    if !power.is_object() {
        return None;
    }
    let part = |field: &str| watts(&power[field], Role::Demand);
    let node = part("nodeWatts");
    let watts = drawn([part("cpuWatts"), part("gpuWatts"), node], has_gpus);
    let meter = power["nodeSource"].as_str().map(|source| match node {
        Some(_) if source != METER_SILENT => NodeMeter::Speaks,
        Some(_) | None => NodeMeter::Silent,
    });
    // A rest is a part of the whole.
    let rest = part("restWatts").filter(|rest| node.is_some_and(|node| *rest <= node));
    // What the node's own meter measures stands for the whole.
    let undated = node.is_none() && power["source"].as_str() == Some(ASKED);
    let node_sampled_at = node.and_then(|_| text(&power["nodeSampledAt"]));
    Some(PowerSeen { watts, rest, meter, sampled_at: text(&power["sampledAt"]), node_sampled_at, undated })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(status: Value) -> HardwareSeen {
        HardwareSeen::read(&json!({"metadata": {"name": "a"}, "spec": {"nodeName": "a"}, "status": status}))
            .unwrap()
    }

    #[test]
    fn ranges_of_every_generation_are_read_whole_or_not() {
        // Fix list operator B2, B3.
        let new = json!({"cpu": {"sockets": 2.0, "capRange": {"minWattsPerSocket": 90, "maxWattsPerSocket": 360.0}}});
        let old = json!({"cpu": {"sockets": 2, "capMinWatts": 90.0, "capMaxWatts": 360}});
        for status in [new, old] {
            let reported = read(status).reported;
            let expected = (Some(2), Some(Watts::from_int(90)), Some(Watts::from_int(360)));
            assert_eq!((reported.sockets, reported.cpu_min, reported.cpu_max), expected);
        }
    }

    #[test]
    fn nonsense_is_missing_and_not_zero() {
        let reported = read(json!({"cpu": {"sockets": -1, "totalCores": 2.5, "capRange": {"maxWattsPerSocket": 1e30}}, "gpu": "no"})).reported;
        assert_eq!(reported, Reported::default());
        assert!(HardwareSeen::read(&json!({"metadata": {"name": "a"}, "spec": {}})).is_err());
    }

    #[test]
    fn the_draw_is_the_nodes_where_a_meter_says_it_and_unknown_without_the_processors() {
        let drawn = |power: Value| read(json!({"power": power})).power.and_then(|power| power.watts);
        assert_eq!(
            drawn(json!({"cpuWatts": 200, "gpuWatts": 300.5})),
            Some(Watts::from_bits((500 << 32) + (1 << 31)))
        );
        assert_eq!(
            drawn(json!({"cpuWatts": 200, "gpuWatts": 300, "nodeWatts": 640})),
            Some(Watts::from_int(640))
        );
        assert_eq!(drawn(json!({"gpuWatts": 300})), None);
        assert_eq!(drawn(json!({"cpuWatts": 200})), Some(Watts::from_int(200)));
        let silent = |power: Value| {
            read(json!({"gpu": {"present": true, "count": 8}, "power": power}))
                .power
                .and_then(|power| power.watts)
        };
        assert_eq!(silent(json!({"cpuWatts": 200})), None, "eight GPUs draw what nobody says");
        assert_eq!(silent(json!({"cpuWatts": 200, "nodeWatts": 900})), Some(Watts::from_int(900)));
        assert_eq!(drawn(json!({"cpuWatts": "200"})), None);
        let undated = |power: Value| read(json!({"power": power})).power.unwrap().undated;
        assert!(undated(json!({"cpuWatts": 200, "source": "prometheus"})));
        assert!(!undated(json!({"cpuWatts": 200, "source": "rapl"})));
        assert!(!undated(json!({"cpuWatts": 200, "nodeWatts": 640, "source": "prometheus"})));
        assert_eq!(read(json!({})).power, None);
    }

    #[test]
    fn the_meter_of_a_whole_node_says_what_is_beside_its_devices_or_that_it_is_silent() {
        let read = |power: Value| {
            let power = read(json!({"power": power})).power.unwrap();
            (power.watts, power.rest, power.meter)
        };
        let w = |watts| Some(Watts::from_int(watts));
        let speaks = json!({"cpuWatts": 500, "nodeWatts": 640, "nodeSource": "dcmi", "restWatts": 140});
        assert_eq!(read(speaks), (w(640), w(140), Some(NodeMeter::Speaks)));
        let silent = json!({"cpuWatts": 500, "nodeSource": "silent", "restWatts": 140});
        assert_eq!(read(silent), (w(500), None, Some(NodeMeter::Silent)), "a rest without a whole is none");
        assert_eq!(read(json!({"cpuWatts": 500})), (w(500), None, None));
        // More than the whole is no part of it.
        let wrong = json!({"nodeWatts": 100, "nodeSource": "acpi", "restWatts": 140});
        assert_eq!(read(wrong), (w(100), None, Some(NodeMeter::Speaks)));
    }

    #[test]
    fn a_node_with_a_device_that_nobody_can_meter_has_no_meter() {
        let metered = |cpu: Value, gpu: Value| read(json!({"cpu": cpu, "gpu": gpu})).metered;
        let tells = |is: bool| json!({"present": true, "count": 8, "telemetryAvailable": is});
        assert_eq!(metered(json!({}), json!({})), None);
        assert_eq!(metered(tells(true), json!({})), Some(true));
        assert_eq!(metered(tells(false), tells(true)), Some(false));
        assert_eq!(metered(tells(true), tells(false)), Some(false));
        assert_eq!(
            metered(tells(true), json!({"telemetryAvailable": false})),
            Some(true),
            "there are no GPUs"
        );
    }
}
