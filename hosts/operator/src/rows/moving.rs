//! What moving a pod depends on: what it needs of another node, and which nodes may take it. It is kept only of pods
//! that have opted in.
//!
//! A constraint that is not understood here makes the pod *unclear*: no node is known to take it.

use super::pod::TermSeen;
use super::{NodeSeen, whole};
use joulie_api::labels;
use joulie_api::quantity::Quantity;
use planner::demand::Operator;
use planner::migration::eviction::RequestedResources;
use serde_json::Value;

/// What is kept of a pod that may be moved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MovingSeen {
    /// Its identity: another pod may get its name.
    pub(crate) uid: Box<str>,
    /// Whether its Ready condition is true.
    pub(crate) ready: bool,
    /// Whether the node itself runs it, so that nobody else could.
    pub(crate) mirror: bool,
    /// What it needs of a node.
    pub(crate) needs: RequestedResources,
    /// The resource by which it asks for GPUs.
    gpu: Option<Box<str>>,
    tolerations: Vec<TolerationSeen>,
    /// The constraint that is not understood.
    unclear: Option<&'static str>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct TolerationSeen {
    /// Empty: every key.
    key: Box<str>,
    /// `None`: every value.
    value: Option<Box<str>>,
    /// Empty: every effect.
    effect: Box<str>,
}

impl TolerationSeen {
    fn read(toleration: &Value) -> Option<Self> {
        let text = |field: &str| toleration[field].as_str().unwrap_or_default();
        let value = match text("operator") {
            "Exists" => None,
            "" | "Equal" => Some(text("value").into()),
            _ => return None,
        };
        let tolerates_all_keys = text("key").is_empty();
        // Kubernetes refuses a toleration of a value without a key.
        (!tolerates_all_keys || value.is_none()).then(|| Self {
            key: text("key").into(),
            value,
            effect: text("effect").into(),
        })
    }

    fn tolerates(&self, taint: &Value) -> bool {
        let text = |field: &str| taint[field].as_str().unwrap_or_default();
        (self.key.is_empty() || *self.key == *text("key"))
            && self.value.as_deref().is_none_or(|value| value == text("value"))
            && (self.effect.is_empty() || *self.effect == *text("effect"))
    }
}

impl MovingSeen {
    /// Reads a pod that requests this much; `None` unless it has opted in.
    pub(super) fn read(object: &Value, needs: RequestedResources) -> Option<Box<Self>> {
        let annotations = &object["metadata"]["annotations"];
        if annotations[labels::pod::RESCHEDULABLE].as_str() != Some(labels::TRUE) {
            return None;
        }
        Some(Box::new(Self::of(object, needs)))
    }

    /// Reads a pod that the scheduler has found no node for; `None` of any other.
    pub(super) fn read_waiting(object: &Value, needs: RequestedResources) -> Option<Box<Self>> {
        let (spec, status) = (&object["spec"], &object["status"]);
        let mut conditions = status["conditions"].as_array().into_iter().flatten();
        let is_refused = conditions.any(|one| {
            one["type"] == "PodScheduled" && one["status"] == "False" && one["reason"] == "Unschedulable"
        });
        let is_bound = spec["nodeName"].as_str().is_some_and(|node| !node.is_empty());
        let leaves = !object["metadata"]["deletionTimestamp"].is_null();
        (is_refused && !is_bound && !leaves).then(|| Box::new(Self::of(object, needs)))
    }

    fn of(object: &Value, needs: RequestedResources) -> Self {
        let (meta, spec) = (&object["metadata"], &object["spec"]);
        let annotations = &meta["annotations"];
        let mut conditions = object["status"]["conditions"].as_array().into_iter().flatten();
        let tolerations = spec["tolerations"].as_array().into_iter().flatten();
        let gpu = asked(spec).find(|name| is_gpu(name)).map(Box::from);
        Self {
            uid: meta["uid"].as_str().unwrap_or_default().into(),
            ready: conditions.any(|one| one["type"] == "Ready" && one["status"] == "True"),
            mirror: !annotations[MIRROR].is_null(),
            needs,
            gpu,
            tolerations: tolerations.filter_map(TolerationSeen::read).collect(),
            unclear: unclear(meta, spec),
        }
    }

    /// Whether a node that sleeps could take the pod once it is awake, as far as can be seen. What is not understood of the pod is
    /// no reason against it: the law bounds how many nodes are woken for one pod.
    pub(super) fn could_run_on(
        &self,
        node: &NodeSeen,
        selector: &[(String, String)],
        affinity: Option<&[TermSeen]>,
    ) -> bool {
        let is_passing = |taint: &Value| {
            let key = taint["key"].as_str().unwrap_or_default();
            NodeSeen::is_sleeping(taint)
                || NodeSeen::is_uncapped(taint)
                || key.starts_with("node.kubernetes.io/")
        };
        self.suits(node, selector, affinity, is_passing)
    }

    /// Whether the scheduler would put the pod on a node, as far as its own constraints say.
    pub(super) fn may_run_on(
        &self,
        node: &NodeSeen,
        selector: &[(String, String)],
        affinity: Option<&[TermSeen]>,
    ) -> bool {
        self.unclear.is_none() && self.suits(node, selector, affinity, |_| false)
    }

    /// The same without what is not understood, and without taints that pass.
    fn suits(
        &self,
        node: &NodeSeen,
        selector: &[(String, String)],
        affinity: Option<&[TermSeen]>,
        passes: impl Fn(&Value) -> bool,
    ) -> bool {
        let keeps_off = |taint: &&Value| {
            matches!(taint["effect"].as_str(), Some("NoSchedule" | "NoExecute")) && !passes(taint)
        };
        let tolerated = |taint: &Value| self.tolerations.iter().any(|one| one.tolerates(taint));
        let holds = |term: &TermSeen| {
            !term.expressions.is_empty() && term.expressions.iter().all(|one| expression_holds(one, node))
        };
        selector.iter().all(|(key, value)| node.label(key) == Some(value))
            && affinity.is_none_or(|terms| terms.iter().any(holds))
            && node.taints.iter().filter(keeps_off).all(tolerated)
            && self.gpu.as_deref().is_none_or(|gpu| node.offers_only(gpu))
    }
}

/// An expression of required node affinity.
fn expression_holds((key, operator, values): &(String, Operator, Vec<String>), node: &NodeSeen) -> bool {
    let label = node.label(key);
    let listed = label.is_some_and(|label| values.iter().any(|value| value == label));
    let compare = |holds: fn(i64, i64) -> bool| {
        let (Some(label), [value]) = (label, values.as_slice()) else { return false };
        matches!((label.parse(), value.parse()), (Ok(label), Ok(value)) if holds(label, value))
    };
    match operator {
        Operator::In => listed,
        Operator::NotIn => !listed,
        Operator::Exists => label.is_some(),
        Operator::DoesNotExist => label.is_none(),
        Operator::Gt => compare(|label, value| label > value),
        Operator::Lt => compare(|label, value| label < value),
    }
}

const MIRROR: &str = "kubernetes.io/config.mirror";

/// The names of the resources that the containers of a pod ask for.
fn asked(spec: &Value) -> impl Iterator<Item = &str> {
    let containers = ["initContainers", "containers"]
        .into_iter()
        .flat_map(|list| spec[list].as_array().into_iter().flatten());
    let all = containers.flat_map(|one| ["requests", "limits"].map(|side| &one["resources"][side]));
    all.flat_map(|side| side.as_object().into_iter().flatten()).map(|(name, _)| name.as_str())
}

/// Whether a resource is whole GPUs.
pub(super) fn is_gpu(name: &str) -> bool {
    planner::inventory::allocatable_gpus([(name, 1)]) > 0
}

/// The first constraint that is not understood.
fn unclear(meta: &Value, spec: &Value) -> Option<&'static str> {
    let required = "requiredDuringSchedulingIgnoredDuringExecution";
    let has = |list: &Value| list.as_array().is_some_and(|list| !list.is_empty());
    let affinity = &spec["affinity"];
    let terms = affinity["nodeAffinity"][required]["nodeSelectorTerms"].as_array().into_iter().flatten();
    let spreads = spec["topologySpreadConstraints"].as_array().into_iter().flatten();
    let volumes = spec["volumes"].as_array().into_iter().flatten();
    let containers = spec["containers"].as_array().into_iter().flatten();
    let mut ports = containers.flat_map(|one| one["ports"].as_array().into_iter().flatten());
    let is_plain = |name: &str| matches!(name, "cpu" | "memory" | "ephemeral-storage") || is_gpu(name);
    let is_unread = |one: &Value| {
        one["key"].as_str().is_none()
            || Operator::read(one["operator"].as_str().unwrap_or_default()).is_none()
    };
    let mut expressions =
        terms.clone().flat_map(|term| term["matchExpressions"].as_array().into_iter().flatten());
    let mut terms = terms;
    let mut spreads = spreads;
    let mut volumes = volumes;
    let gpu_wish = [labels::pod::GPU_MODEL, labels::pod::GPU_VRAM_MB];
    let found = [
        (
            "affinity to pods",
            has(&affinity["podAffinity"][required]) || has(&affinity["podAntiAffinity"][required]),
        ),
        ("fields of nodes", terms.any(|term| has(&term["matchFields"])) || expressions.any(is_unread)),
        ("a spread over nodes", spreads.any(|one| one["whenUnsatisfiable"] != "ScheduleAnyway")),
        (
            "volumes",
            volumes.any(|one| !one["persistentVolumeClaim"].is_null() || !one["ephemeral"].is_null()),
        ),
        (
            "ports of the node",
            ports.any(|port| port["hostPort"].as_i64().is_some_and(|port| port != 0))
                || spec["hostNetwork"] == true,
        ),
        ("claims of resources", has(&spec["resourceClaims"])),
        ("other resources", asked(spec).any(|name| !is_plain(name))),
        ("properties of GPUs", gpu_wish.iter().any(|key| !meta["annotations"][*key].is_null())),
    ];
    found.into_iter().find(|(_, is_so)| *is_so).map(|(what, _)| what)
}

/// What a node can give to pods in all.
pub(super) fn allocatable(resources: &Value) -> RequestedResources {
    let cpu = resources["cpu"].as_number().map(ToString::to_string);
    let cpu = cpu.as_deref().or_else(|| resources["cpu"].as_str());
    let cpu = cpu.and_then(|text| Quantity::parse(text).ok()).map_or(0, Quantity::milli_value);
    let pods = whole(&resources["pods"]).and_then(|pods| u32::try_from(pods).ok());
    RequestedResources {
        cpu_milli: u64::try_from(cpu).unwrap_or(0),
        memory_bytes: whole(&resources["memory"]).unwrap_or(0),
        gpus: 0,
        pods: pods.unwrap_or(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::PodSeen;
    use host_kit::reflect::Row;
    use serde_json::json;

    fn node(labels: Value, taints: Value) -> NodeSeen {
        NodeSeen::read(&json!({"metadata": {"name": "n", "labels": labels}, "spec": {"taints": taints},
            "status": {"allocatable": {"cpu": "7500m", "memory": "16Gi", "pods": "110", "nvidia.com/gpu": "4"}}}))
        .unwrap()
    }

    fn pod(spec: Value) -> PodSeen {
        let annotations = json!({"joulie.io/reschedulable": "true"});
        PodSeen::read(
            &json!({"metadata": {"name": "p", "uid": "u", "annotations": annotations}, "spec": spec}),
        )
        .unwrap()
    }

    #[test]
    fn only_a_pod_that_says_exactly_true_may_be_moved() {
        let of = |value: Value| {
            let meta = json!({"name": "p", "annotations": {"joulie.io/reschedulable": value}});
            PodSeen::read(&json!({"metadata": meta})).unwrap().moving.is_some()
        };
        assert!(of(json!("true")));
        for other in [json!("True"), json!("1"), json!(true), json!(null)] {
            assert!(!of(other));
        }
    }

    #[test]
    fn a_pod_goes_where_its_selector_its_affinity_and_the_taints_let_it() {
        let here = node(json!({"zone": "a", "cores": "64"}), json!([]));
        let affinity = |expressions: Value| {
            json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
            {"nodeSelectorTerms": [{"matchExpressions": expressions}]}}}})
        };
        let one = |key: &str, operator: &str, values: &[&str]| {
            affinity(json!([{"key": key, "operator": operator, "values": values}]))
        };
        for (spec, may) in [
            (json!({}), true),
            (json!({"nodeSelector": {"zone": "a"}}), true),
            (json!({"nodeSelector": {"zone": "b"}}), false),
            (one("zone", "In", &["a", "b"]), true),
            (one("zone", "NotIn", &["a"]), false),
            (one("none", "NotIn", &["a"]), true),
            (one("zone", "Exists", &[]), true),
            (one("zone", "DoesNotExist", &[]), false),
            (one("cores", "Gt", &["32"]), true),
            (one("cores", "Lt", &["32"]), false),
            (one("zone", "Gt", &["1"]), false),
            (one("zone", "Near", &["a"]), false),
            (affinity(json!([])), false),
        ] {
            assert_eq!(pod(spec.clone()).may_run_on(&here), may, "{spec}");
        }
        let tainted = node(
            json!({}),
            json!([{"key": "gpu", "value": "yes", "effect": "NoSchedule"}, {"key": "soft", "effect": "PreferNoSchedule"}]),
        );
        for (toleration, may) in [
            (json!({"key": "gpu", "operator": "Exists"}), true),
            (json!({"key": "gpu", "value": "yes", "effect": "NoSchedule"}), true),
            (json!({"operator": "Exists"}), true),
            (json!({"key": "gpu", "value": "no"}), false),
            (json!({"key": "gpu", "operator": "Exists", "effect": "NoExecute"}), false),
            (json!({"value": "yes"}), false),
            (json!({"key": "gpu", "operator": "Like", "value": "yes"}), false),
        ] {
            assert_eq!(pod(json!({"tolerations": [toleration]})).may_run_on(&tainted), may, "{toleration}");
        }
    }

    #[test]
    fn a_constraint_that_is_not_understood_leaves_no_node() {
        let here = node(json!({}), json!([]));
        let required = json!({"requiredDuringSchedulingIgnoredDuringExecution": [{}]});
        for spec in [
            json!({"affinity": {"podAntiAffinity": required}}),
            json!({"affinity": {"podAffinity": required}}),
            json!({"topologySpreadConstraints": [{"whenUnsatisfiable": "DoNotSchedule"}]}),
            json!({"volumes": [{"persistentVolumeClaim": {"claimName": "x"}}]}),
            json!({"containers": [{"ports": [{"hostPort": 80}]}]}),
            json!({"hostNetwork": true}),
            json!({"resourceClaims": [{"name": "x"}]}),
            json!({"containers": [{"resources": {"limits": {"example.com/fpga": 1}}}]}),
        ] {
            assert!(!pod(spec.clone()).may_run_on(&here), "{spec}");
        }
        assert!(pod(json!({"volumes": [{"emptyDir": {}}], "topologySpreadConstraints": [{"whenUnsatisfiable": "ScheduleAnyway"}]})).may_run_on(&here));
    }

    #[test]
    fn a_gpu_pod_goes_where_all_gpus_are_of_its_kind() {
        let asks = |name: &str| pod(json!({"containers": [{"resources": {"limits": {name: "1"}}}]}));
        let here = node(json!({}), json!([]));
        assert!(asks("nvidia.com/gpu").may_run_on(&here) && !asks("amd.com/gpu").may_run_on(&here));
        assert_eq!(asks("nvidia.com/gpu").moving.unwrap().needs.gpus, 1);
        assert_eq!(
            here.allocatable,
            RequestedResources { cpu_milli: 7_500, memory_bytes: 16 << 30, gpus: 4, pods: 110 }
        );
    }
}
