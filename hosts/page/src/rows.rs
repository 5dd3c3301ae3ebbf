//! What is kept of each object.

use crate::picture::tenths;
use host_kit::reflect::Row;
use joulie_api::labels;
use joulie_api::node_power_grant::{held_watts, left_watts};
use kubectl_joulie::object::{
    annotation, condition, condition_words, items, label, limit_watts, number, text,
};
use serde_json::Value;

/// The most characters of a text that an object brings.
const TEXT_MAX: usize = 300;

/// A text that is not empty, cut.
fn some(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.chars().take(TEXT_MAX).collect())
}

fn watts(object: &Value, pointer: &str) -> Option<f64> {
    number(object, pointer).map(tenths)
}

fn status_of<'a>(object: &'a Value, about: &str) -> Option<&'a str> {
    condition(object, about)?["status"].as_str()
}

/// The node that an object is about.
fn node_of(object: &Value) -> Result<String, String> {
    some(text(object, "/spec/nodeName")).ok_or_else(|| "spec.nodeName: it names no node".to_owned())
}

/// A Node.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct NodeRow {
    pub(crate) kind: Option<String>,
    pub(crate) rack: Option<String>,
    pub(crate) zone: Option<String>,
    pub(crate) profile: Option<String>,
    pub(crate) draining: bool,
    pub(crate) reserved: bool,
    pub(crate) managed: bool,
    pub(crate) ready: bool,
}

impl Row for NodeRow {
    const KIND: &'static str = "page Node";
    const OWNERS: bool = false;

    fn read(object: &Value) -> Result<Self, String> {
        let of = |key: &str| label(object, key);
        let model = |key: &str| some(of(key)).map(|model| short(&model));
        let kind = match (model(labels::node::CPU_MODEL), model(labels::node::GPU_MODEL)) {
            (Some(cpu), Some(gpu)) => Some(format!(
                "{} {cpu}, {} {gpu}",
                of(labels::node::CPU_SOCKETS),
                of(labels::node::GPU_COUNT)
            )),
            (Some(cpu), None) => Some(format!("{} {cpu}", of(labels::node::CPU_SOCKETS))),
            (None, _) => None,
        };
        let mut conditions = items(object, "/status/conditions").iter();
        Ok(Self {
            kind: kind.map(|kind| kind.trim().to_owned()),
            rack: some(of(labels::node::RACK)),
            zone: some(of(labels::node::COOLING_ZONE)),
            profile: some(of(labels::node::POWER_PROFILE)),
            draining: labels::is_true(Some(of(labels::node::DRAINING))),
            reserved: labels::is_true(Some(of(labels::node::RESERVED))),
            managed: labels::is_true(Some(of(labels::node::MANAGED))),
            ready: conditions.any(|one| one["type"] == "Ready" && one["status"] == "True"),
        })
    }
}

/// A model of the catalogue without its maker, which the model implies.
fn short(model: &str) -> String {
    let short = ["AMD_", "INTEL_", "NVIDIA_"].iter().find_map(|maker| model.strip_prefix(maker));
    short.unwrap_or(model).replace('_', " ")
}

/// A NodePowerProfile.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ProfileRow {
    pub(crate) node: String,
    pub(crate) policy: Option<String>,
    pub(crate) by_hand: bool,
    pub(crate) package_cap: Option<f64>,
    pub(crate) gpu_cap: Option<f64>,
    /// Whether what is asked is in force, and the agent's words; `None` while it has said nothing.
    pub(crate) enforced: Option<bool>,
    pub(crate) why: Option<String>,
}

impl Row for ProfileRow {
    const KIND: &'static str = "page NodePowerProfile";
    const OWNERS: bool = false;

    fn read(object: &Value) -> Result<Self, String> {
        let enforced = condition(object, "CapEnforced");
        Ok(Self {
            node: node_of(object)?,
            policy: some(text(object, "/spec/policy/name")),
            by_hand: status_of(object, "Overridden") == Some("True"),
            package_cap: watts(object, "/status/control/cpu/capWatts"),
            gpu_cap: watts(object, "/status/control/gpu/capWatts"),
            enforced: match enforced.and_then(|one| one["status"].as_str()) {
                Some("True") => Some(true),
                Some("False") => Some(false),
                Some(_) | None => None,
            },
            why: enforced.and_then(|one| some(&condition_words(one))),
        })
    }
}

/// A NodeTwin.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct TwinRow {
    pub(crate) node: String,
    pub(crate) class: Option<String>,
    pub(crate) headroom: Option<f64>,
    pub(crate) cooling: Option<f64>,
    pub(crate) psu: Option<f64>,
    pub(crate) measured: Option<f64>,
    pub(crate) allowed: Option<f64>,
    pub(crate) most: Option<f64>,
    /// Whether the readings are fresh; `None` while that is not said.
    pub(crate) fresh: Option<bool>,
}

impl Row for TwinRow {
    const KIND: &'static str = "page NodeTwin";
    const OWNERS: bool = false;

    fn read(object: &Value) -> Result<Self, String> {
        let power = |field: &str| watts(object, &format!("/status/powerMeasurement/{field}"));
        let score = |field: &str| number(object, &format!("/status/{field}")).map(tenths);
        Ok(Self {
            node: node_of(object)?,
            class: some(text(object, "/status/schedulableClass")),
            headroom: score("predictedPowerHeadroomScore"),
            cooling: score("predictedCoolingStressScore"),
            psu: score("predictedPsuStressScore"),
            measured: power("measuredNodePowerW"),
            allowed: power("nodeCappedPowerW"),
            most: power("nodeTdpW"),
            fresh: match status_of(object, "TelemetryFresh") {
                Some("True") => Some(true),
                Some("False") => Some(false),
                Some(_) | None => None,
            },
        })
    }
}

/// A NodePowerGrant.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct GrantRow {
    pub(crate) node: String,
    pub(crate) budget: Option<String>,
    /// `None` if the node is released.
    pub(crate) watts: Option<f64>,
    pub(crate) holds: Option<f64>,
}

impl Row for GrantRow {
    const KIND: &'static str = "page NodePowerGrant";
    const OWNERS: bool = false;

    fn read(object: &Value) -> Result<Self, String> {
        let is_released = object["spec"]["released"] == true;
        Ok(Self {
            node: node_of(object)?,
            budget: some(label(object, labels::object::POWER_BUDGET)),
            watts: watts(object, "/spec/watts").and(left_watts(object)).filter(|_| !is_released),
            holds: watts(object, "/status/holds").and_then(|_| held_watts(object)).map(tenths),
        })
    }
}

/// A NodeHardware: the last sample of its agent.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct SampleRow {
    pub(crate) node: String,
    /// Of its packages and GPUs, as grants count them; of the whole node where only that is measured.
    pub(crate) watts: Option<f64>,
    /// Of the whole node.
    pub(crate) whole: Option<f64>,
    pub(crate) sampled_at: Option<String>,
}

impl Row for SampleRow {
    const KIND: &'static str = "page NodeHardware";
    const OWNERS: bool = false;

    fn read(object: &Value) -> Result<Self, String> {
        let power = |field: &str| number(object, &format!("/status/power/{field}"));
        let has_gpus = object["status"]["gpu"]["count"].as_i64().is_some_and(|count| count > 0);
        let together = match (power("cpuWatts"), power("gpuWatts")) {
            (Some(cpus), Some(gpus)) => Some(cpus + gpus),
            // If the GPUs of a node are not measured, the node is not.
            (Some(cpus), None) if !has_gpus => Some(cpus),
            (Some(_) | None, _) => None,
        };
        let whole = power("nodeWatts").map(tenths);
        Ok(Self {
            node: node_of(object)?,
            watts: together.map(tenths).or(whole),
            whole,
            sampled_at: some(text(object, "/status/power/sampledAt")),
        })
    }
}

/// A PowerBudget.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct BudgetRow {
    pub(crate) parent: Option<String>,
    pub(crate) enforced: bool,
    pub(crate) paused: bool,
    pub(crate) limit: Option<f64>,
    pub(crate) counted: Option<f64>,
    pub(crate) measured: Option<f64>,
    pub(crate) short: Option<f64>,
    pub(crate) nodes: Option<u64>,
    pub(crate) kept: Option<bool>,
    pub(crate) why: Option<String>,
}

impl Row for BudgetRow {
    const KIND: &'static str = "page PowerBudget";
    const OWNERS: bool = false;

    fn read(object: &Value) -> Result<Self, String> {
        let refused = condition(object, "Accepted").filter(|one| one["status"] == "False");
        let kept = match status_of(object, "WithinBudget") {
            Some("True") => Some(true),
            Some("False") => Some(false),
            Some(_) | None => None,
        };
        let kept = kept.filter(|_| refused.is_none());
        let broken = condition(object, "WithinBudget").filter(|_| kept == Some(false));
        Ok(Self {
            parent: some(text(object, "/spec/parent")),
            enforced: text(object, "/spec/mode") == "enforce",
            paused: object["spec"]["pause"] == true,
            limit: limit_watts(object).map(tenths),
            counted: watts(object, "/status/countedWatts"),
            measured: watts(object, "/status/measuredWatts"),
            short: watts(object, "/status/shortWatts"),
            nodes: object["status"]["nodes"].as_u64(),
            kept,
            why: refused.or(broken).and_then(|one| some(&condition_words(one))),
        })
    }
}

/// A Pod.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct PodRow {
    pub(crate) node: Option<String>,
    pub(crate) ended: bool,
    pub(crate) performance: bool,
}

impl Row for PodRow {
    const KIND: &'static str = "page Pod";
    const OWNERS: bool = false;

    fn read(object: &Value) -> Result<Self, String> {
        let class = annotation(object, labels::pod::WORKLOAD_CLASS);
        Ok(Self {
            node: some(text(object, "/spec/nodeName")),
            ended: matches!(text(object, "/status/phase"), "Succeeded" | "Failed"),
            performance: class.trim().eq_ignore_ascii_case("performance"),
        })
    }
}

/// The Lease of the plan.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct PlanRow {
    pub(crate) holder: Option<String>,
    pub(crate) renewed: Option<String>,
}

impl Row for PlanRow {
    const KIND: &'static str = "page Lease";
    const OWNERS: bool = false;

    fn read(object: &Value) -> Result<Self, String> {
        Ok(Self {
            holder: some(text(object, "/spec/holderIdentity")),
            renewed: some(text(object, "/spec/renewTime")),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_an_object_does_not_say_is_unknown_and_not_zero() {
        let spec = json!({"nodeName": "a"});
        let twin = TwinRow::read(&json!({"spec": spec})).unwrap();
        assert_eq!(twin, TwinRow { node: "a".to_owned(), ..TwinRow::default() });
        let sample = json!({"spec": spec, "status": {"gpu": {"count": 2}, "power": {"cpuWatts": 100}}});
        assert_eq!(SampleRow::read(&sample).unwrap().watts, None, "the GPUs are not measured");
        let huge = json!({"spec": spec, "status": {"power": {"nodeWatts": 1e300}}});
        assert_eq!(SampleRow::read(&huge).unwrap().watts, None);
        let released = json!({"spec": {"nodeName": "a", "watts": 500, "released": true}});
        assert_eq!(GrantRow::read(&released).unwrap().watts, None);
        assert!(TwinRow::read(&json!({"spec": {"nodeName": 7}})).is_err());
    }

    #[test]
    fn a_node_is_measured_as_grants_count_it() {
        let of = |power: Value| {
            let status = json!({"gpu": {"count": 2}, "power": power});
            let row = SampleRow::read(&json!({"spec": {"nodeName": "a"}, "status": status})).unwrap();
            (row.watts, row.whole)
        };
        let all = json!({"cpuWatts": 400, "gpuWatts": 600, "nodeWatts": 1250});
        assert_eq!(of(all), (Some(1000.0), Some(1250.0)), "the rest of the node is in no grant");
        let no_gpus = json!({"cpuWatts": 400, "nodeWatts": 1250});
        assert_eq!(of(no_gpus), (Some(1250.0), Some(1250.0)), "it is known only as a whole");
        assert_eq!(of(json!({"cpuWatts": 400, "gpuWatts": 600})), (Some(1000.0), None));
    }

    #[test]
    fn the_limit_of_a_budget_is_the_one_in_use() {
        let limit = |lowered: Value| {
            let status = json!({"lowered": lowered});
            BudgetRow::read(&json!({"spec": {"watts": 9000}, "status": status})).unwrap().limit
        };
        assert_eq!(limit(Value::Null), Some(9000.0));
        assert_eq!(limit(json!({"by": "Signal", "watts": 7000.5})), Some(7000.5));
        // It was written before the limit itself was made lower.
        assert_eq!(limit(json!({"by": "Signal", "watts": 9500})), Some(9000.0));
    }

    #[test]
    fn a_budget_that_is_not_accepted_is_not_kept() {
        let of =
            |kind: &str, status: &str| json!({"type": kind, "status": status, "reason": "R", "message": "m"});
        let budget = |conditions: Value| {
            BudgetRow::read(
                &json!({"spec": {"watts": 9000, "mode": "enforce"}, "status": {"conditions": conditions}}),
            )
            .unwrap()
        };
        let kept = budget(json!([of("Accepted", "True"), of("WithinBudget", "True")]));
        assert_eq!((kept.kept, kept.why), (Some(true), None));
        let broken = budget(json!([of("Accepted", "True"), of("WithinBudget", "False")]));
        assert_eq!((broken.kept, broken.why.as_deref()), (Some(false), Some("WithinBudget=False: R: m")));
        let refused = budget(json!([of("Accepted", "False"), of("WithinBudget", "True")]));
        assert_eq!((refused.kept, refused.why.as_deref()), (None, Some("Accepted=False: R: m")));
    }
}
