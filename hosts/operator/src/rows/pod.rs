//! A Pod: its node, its phase, and what it requires of the power profiles. Pods are the most numerous objects, so
//! nothing is stored that the key of the row already contains.

use super::bounds::Bounds;
use super::{FreshSeen, MovingSeen, NodeSeen};
use host_kit::reflect::{ObjectKey, Row};
use jiff::Timestamp;
use joulie_api::extender::pod::ExtenderPod;
use joulie_api::extender::workload;
use joulie_api::labels;
use joulie_core::placement::demand::DemandSum;
use planner::classify::Hints;
use planner::classify::metrics::WorkloadMetrics;
use planner::demand::{Asked, Operator, PodConstraints, PodPhase, PodRow, RawTerm};
use planner::migration::eviction::RequestedResources;
use serde::Deserialize;
use serde_json::Value;

/// What is kept of a Pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PodSeen {
    node: Option<String>,
    phase: PodPhase,
    terminating: bool,
    class: Option<String>,
    selector: Vec<(String, String)>,
    affinity: Option<Vec<TermSeen>>,
    asked: Asked,
    /// What its use is measured against.
    pub(crate) bounds: Bounds,
    /// What a simulated pod says that it does; `None` for any other.
    pub(crate) simulated: Option<Box<WorkloadMetrics>>,
    /// Whether it says that it may be restarted elsewhere: with the very word `true`.
    pub(crate) reschedulable: bool,
    /// Its controller; `None` if nothing recreates it.
    pub(crate) owner: Option<OwnerSeen>,
    /// What is kept of a pod that may ask for performance.
    pub(crate) asking: Option<Box<AskingSeen>>,
    /// What moving it depends on; `None` unless it has opted in.
    pub(crate) moving: Option<Box<MovingSeen>>,
    /// What it needs of a node; `None` unless the scheduler has found none for it.
    pub(crate) waits: Option<Box<MovingSeen>>,
    /// What it will draw, or lacks to be placed; `None` once it runs.
    pub(crate) fresh: Option<Box<FreshSeen>>,
}

/// What is kept of a pod with an annotation or a constraint by which it may ask for performance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AskingSeen {
    /// When it was created, in seconds since 1970.
    pub(crate) created: Option<i64>,
    /// Its identity, for Events.
    pub(crate) uid: Box<str>,
}

impl AskingSeen {
    fn read(meta: &Value) -> Self {
        let created = meta["creationTimestamp"].as_str().and_then(|text| text.parse::<Timestamp>().ok());
        let uid = meta["uid"].as_str().unwrap_or_default().into();
        Self { created: created.map(Timestamp::as_second), uid }
    }
}

/// The controller of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OwnerSeen {
    /// Its kind, such as ReplicaSet.
    pub(crate) kind: Box<str>,
    /// Its name.
    pub(crate) name: Box<str>,
    /// The name of the Deployment whose ReplicaSet this is. A rollout makes another ReplicaSet of the same Deployment.
    pub(crate) deployment: Option<Box<str>>,
}

impl OwnerSeen {
    fn read(meta: &Value) -> Option<Self> {
        let mut references = meta["ownerReferences"].as_array()?.iter();
        let owner = references.find(|reference| reference["controller"].as_bool() == Some(true))?;
        let (kind, name) = (owner["kind"].as_str()?, owner["name"].as_str()?);
        let hash = meta["labels"]["pod-template-hash"].as_str();
        let deployment = workload::deployment(kind, name, hash).map(Box::from);
        Some(Self { kind: kind.into(), name: name.into(), deployment })
    }

    /// The kind and the name of the outermost controller.
    pub(crate) fn workload(&self) -> (&str, &str) {
        match &self.deployment {
            Some(deployment) => ("Deployment", deployment),
            None => (&self.kind, &self.name),
        }
    }
}

/// A term of required node affinity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TermSeen {
    pub(super) expressions: Vec<(String, Operator, Vec<String>)>,
    has_fields: bool,
}

impl TermSeen {
    fn raw(&self) -> RawTerm<'_> {
        let expressions = self.expressions.iter();
        RawTerm {
            expressions: expressions
                .map(|(of, operator, values)| (of.as_str(), *operator, values.clone()))
                .collect(),
            has_fields: self.has_fields,
        }
    }
}

impl PodSeen {
    /// The node that it is on, while it runs there and is not about to end.
    pub(crate) fn runs_on(&self) -> Option<&str> {
        self.node.as_deref().filter(|_| self.runs())
    }

    /// The namespace, the kind and the name of its workload: of its outermost controller, or of the pod itself.
    pub(crate) fn workload<'a>(&'a self, key: &'a ObjectKey) -> [&'a str; 3] {
        let (kind, name) =
            self.owner.as_ref().map_or((workload::POD, key.name.as_str()), OwnerSeen::workload);
        [&key.namespace, kind, name]
    }

    /// Whether it runs, and is not about to end.
    pub(crate) const fn runs(&self) -> bool {
        matches!(self.phase, PodPhase::Running) && !self.terminating
    }

    /// Whether it has ended for good.
    pub(crate) const fn is_over(&self) -> bool {
        matches!(self.phase, PodPhase::Succeeded | PodPhase::Failed)
    }

    /// The text of the annotation `joulie.io/workload-class`.
    pub(crate) fn class(&self) -> Option<&str> {
        self.class.as_deref()
    }

    /// The GPUs that it requests.
    pub(crate) const fn gpus(&self) -> u64 {
        self.asked.gpus
    }

    /// The node that it is bound to.
    pub(crate) fn node(&self) -> Option<&str> {
        self.node.as_deref()
    }

    /// Whether it is being deleted.
    pub(crate) const fn leaves(&self) -> bool {
        self.terminating
    }

    /// What it requests of its node.
    pub(crate) fn needs(&self) -> RequestedResources {
        requested(self.asked)
    }

    /// Whether it would be lost with its node, or moved: it is there, and neither the node itself nor a DaemonSet runs it.
    pub(crate) fn keeps_node(&self) -> bool {
        let kind = self.owner.as_ref().map(|owner| &*owner.kind);
        self.node.is_some() && !self.is_over() && !matches!(kind, Some("DaemonSet" | "Node"))
    }

    /// Whether it waits for a node, and this one could take it once it is awake.
    pub(crate) fn could_run_on(&self, node: &NodeSeen) -> bool {
        let waits = self.waits.as_ref();
        waits.is_some_and(|waits| waits.could_run_on(node, &self.selector, self.affinity.as_deref()))
    }

    /// What its annotations say of it.
    pub(crate) fn hints(&self) -> Hints {
        Hints::read(self.class.as_deref(), self.moving.as_ref().map(|_| labels::TRUE))
    }

    /// Whether the scheduler would put it on a node, as far as its own constraints say.
    pub(crate) fn may_run_on(&self, node: &NodeSeen) -> bool {
        let moving = self.moving.as_ref();
        moving.is_some_and(|moving| moving.may_run_on(node, &self.selector, self.affinity.as_deref()))
    }

    /// The pod in the planner's form, given its namespace and the key of the profile label.
    pub(crate) fn row<'a>(&'a self, namespace: &'a str, key: &str) -> PodRow<'a> {
        let selector = self.selector.iter().map(|(of, value)| (of.as_str(), value.as_str()));
        let affinity = self.affinity.as_ref().map(|terms| terms.iter().map(TermSeen::raw).collect());
        PodRow {
            namespace,
            node: self.node(),
            phase: self.phase,
            terminating: self.terminating,
            asks: PodConstraints::trim(key, self.class.as_deref(), selector, affinity),
            asked: self.asked,
        }
    }
}

impl Row for PodSeen {
    const KIND: &'static str = "Pod";
    const OWNERS: bool = false;

    fn read(object: &Value) -> Result<Self, String> {
        let (meta, spec) = (&object["metadata"], &object["spec"]);
        let required = &spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"];
        let selector = spec["nodeSelector"].as_object().into_iter().flatten();
        let pair = |(key, value): (&String, &Value)| Some((key.clone(), value.as_str()?.to_owned()));
        let asked = asked(object);
        let needs = requested(asked);
        let class = meta["annotations"][labels::pod::WORKLOAD_CLASS].as_str().map(str::to_owned);
        let selector: Vec<_> = selector.filter_map(pair).collect();
        let may_ask = class.is_some() || !selector.is_empty() || required.is_array();
        Ok(Self {
            node: super::text(&spec["nodeName"]),
            phase: PodPhase::read(object["status"]["phase"].as_str().unwrap_or_default()),
            terminating: !meta["deletionTimestamp"].is_null(),
            class,
            selector,
            asked,
            asking: may_ask.then(|| Box::new(AskingSeen::read(meta))),
            bounds: Bounds::read(spec),
            simulated: simulated(&meta["annotations"]),
            moving: MovingSeen::read(object, needs),
            waits: MovingSeen::read_waiting(object, needs),
            fresh: FreshSeen::read(object).map(Box::new),
            reschedulable: meta["annotations"][labels::pod::RESCHEDULABLE].as_str() == Some(labels::TRUE),
            owner: OwnerSeen::read(meta),
            affinity: required.as_array().map(|terms| terms.iter().map(term).collect()),
        })
    }
}

/// Whether a pod, as the API server has it, would be lost with its node. One that cannot be read might be.
pub(crate) fn keeps_node(object: &Value) -> bool {
    PodSeen::read(object).map_or(true, |pod| pod.keeps_node())
}

fn requested(asked: Asked) -> RequestedResources {
    RequestedResources {
        cpu_milli: asked.cpu_milli,
        memory_bytes: asked.memory_bytes,
        gpus: u32::try_from(asked.gpus).unwrap_or(u32::MAX),
        pods: 1,
    }
}

/// What it requests of its node, in the extender's terms. A pod that requests no processors, or whose quantities cannot
/// be read, counts with the default of its class.
fn asked(object: &Value) -> Asked {
    let pod = ExtenderPod::deserialize(object).unwrap_or_default();
    let demand = pod.demand().unwrap_or_else(|_| DemandSum::default().total(pod.class().class));
    let gpus = demand.gpus.map_or(0, |gpus| gpus.count);
    let (cpu_milli, memory_bytes) = (u64::from(demand.cpu.get()), demand.memory_bytes);
    Asked { cpu_milli, gpus: u64::from(gpus), memory_bytes, pods: 1 }
}

fn simulated(annotations: &Value) -> Option<Box<WorkloadMetrics>> {
    let [cpu, gpu, memory] = labels::pod::SIMULATED.map(|key| annotations[key].as_str());
    WorkloadMetrics::of_annotations(cpu, gpu, memory).map(Box::new)
}

fn term(term: &Value) -> TermSeen {
    let expressions = term["matchExpressions"].as_array().into_iter().flatten();
    let expression = |one: &Value| {
        let values = one["values"].as_array().into_iter().flatten();
        let values = values.filter_map(|value| value.as_str().map(str::to_owned)).collect();
        Some((one["key"].as_str()?.to_owned(), Operator::read(one["operator"].as_str()?)?, values))
    };
    TermSeen {
        expressions: expressions.filter_map(expression).collect(),
        has_fields: term["matchFields"].as_array().is_some_and(|fields| !fields.is_empty()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use planner::demand::{DemandClass, POWER_PROFILE_LABEL};
    use serde_json::json;

    fn class(spec: Value, annotations: Value) -> DemandClass {
        let pod =
            json!({"metadata": {"name": "p", "namespace": "x", "annotations": annotations}, "spec": spec});
        PodSeen::read(&pod).unwrap().row("x", POWER_PROFILE_LABEL).asks.class()
    }

    fn affinity(operator: &str, values: &[&str]) -> Value {
        json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms":
            [{"matchExpressions": [{"key": POWER_PROFILE_LABEL, "operator": operator, "values": values}]}]}}}})
    }

    #[test]
    fn c6_pods_are_classified_from_what_the_api_server_says_of_them() {
        // Table C6, the rows about reading; the planner tests the whole table.
        assert_eq!(class(json!({}), json!(null)), DemandClass::General);
        assert_eq!(
            class(json!({"nodeSelector": {POWER_PROFILE_LABEL: "performance"}}), json!({})),
            DemandClass::PerformanceOnly
        );
        assert_eq!(
            class(json!({"nodeSelector": {POWER_PROFILE_LABEL: "eco"}}), json!({})),
            DemandClass::EcoOnly
        );
        assert_eq!(class(affinity("In", &["performance"]), json!({})), DemandClass::PerformanceOnly);
        assert_eq!(class(affinity("In", &["eco", "performance"]), json!({})), DemandClass::General);
        assert_eq!(class(affinity("NotIn", &["eco"]), json!({})), DemandClass::PerformanceOnly);
        let annotated = json!({"joulie.io/workload-class": " performance "});
        assert_eq!(
            class(json!({"nodeSelector": {POWER_PROFILE_LABEL: "eco"}}), annotated),
            DemandClass::PerformanceOnly
        );
        assert_eq!(class(json!({}), json!({"joulie.io/workload-class": 3})), DemandClass::General);
    }

    #[test]
    fn what_a_pod_asks_of_its_node_is_read_with_its_gpus() {
        let asked = |spec: Value| {
            PodSeen::read(&json!({"metadata": {"name": "p"}, "spec": spec}))
                .unwrap()
                .row("x", POWER_PROFILE_LABEL)
                .asked
        };
        let container = |cpu: &str| json!({"name": "c", "resources": {"requests": {"cpu": cpu}, "limits": {"nvidia.com/gpu": "2"}}});
        assert_eq!(
            asked(json!({"containers": [container("1500m"), container("2")]})),
            Asked { cpu_milli: 3500, gpus: 4, memory_bytes: 0, pods: 1 }
        );
        // The extender's default for a standard pod.
        let nothing = Asked { cpu_milli: 250, gpus: 0, memory_bytes: 0, pods: 1 };
        assert_eq!(asked(json!({"containers": [{"name": "c"}]})), nothing);
        assert_eq!(asked(json!({"containers": [container("much")]})), nothing);
    }

    #[test]
    fn the_controller_of_a_pod_is_the_deployment_behind_its_replica_set() {
        let owner = |kind: &str, name: &str, controller: bool, hash: Value| {
            let pod = json!({"metadata": {"name": "p", "labels": {"pod-template-hash": hash}, "ownerReferences": [
                {"kind": "Other", "name": "first"}, {"kind": kind, "name": name, "controller": controller}]}});
            let seen = PodSeen::read(&pod).unwrap().owner;
            seen.map(|owner| {
                let (kind, name) = owner.workload();
                format!("{kind}/{name}")
            })
        };
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(owner("ReplicaSet", "web-5d4f", true, json!("5d4f")), some("Deployment/web"));
        // A ReplicaSet without a Deployment, and hashes that do not fit, are taken as they are.
        for hash in [json!(null), json!(""), json!("9c"), json!("web-5d4f"), json!(7)] {
            assert_eq!(owner("ReplicaSet", "web-5d4f", true, hash), some("ReplicaSet/web-5d4f"));
        }
        assert_eq!(owner("StatefulSet", "db-5d4f", true, json!("5d4f")), some("StatefulSet/db-5d4f"));
        assert_eq!(owner("ReplicaSet", "web-5d4f", false, json!("5d4f")), None);
        let bare = PodSeen::read(&json!({"metadata": {"name": "p"}})).unwrap();
        assert!(bare.owner.is_none() && !bare.reschedulable);
    }

    #[test]
    fn a_pod_keeps_its_node_unless_the_node_or_a_daemon_set_runs_it() {
        let pod = |kind: Value, node: &str, phase: &str| {
            let owners = json!([{"kind": kind, "name": "o", "controller": true}]);
            json!({"metadata": {"name": "p", "ownerReferences": owners}, "spec": {"nodeName": node}, "status": {"phase": phase}})
        };
        assert!(keeps_node(&pod(json!("ReplicaSet"), "a", "Running")));
        assert!(keeps_node(&pod(json!(null), "a", "Pending")), "a bare pod");
        assert!(keeps_node(&pod(json!("Job"), "a", "Unknown")));
        for other in [
            pod(json!("DaemonSet"), "a", "Running"),
            pod(json!("Node"), "a", "Running"),
            pod(json!("Job"), "a", "Succeeded"),
            pod(json!("Job"), "a", "Failed"),
            pod(json!("Job"), "", "Pending"),
        ] {
            assert!(!keeps_node(&other), "{other}");
        }
    }

    #[test]
    fn a_pod_that_the_scheduler_has_found_no_node_for_waits_for_one_that_could_take_it() {
        let pod = |reason: &str, spec: Value| {
            let condition = json!({"type": "PodScheduled", "status": "False", "reason": reason});
            PodSeen::read(&json!({"metadata": {"name": "p"}, "spec": spec, "status": {"phase": "Pending", "conditions": [condition]}}))
                .unwrap()
        };
        let node = |taints: Value| {
            NodeSeen::read(
                &json!({"metadata": {"name": "n", "labels": {"disk": "ssd"}}, "spec": {"taints": taints}}),
            )
            .unwrap()
        };
        let asleep = node(json!([
            {"key": "joulie.io/sleeping", "effect": "NoSchedule"},
            {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"},
            {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}]));
        assert!(pod("Unschedulable", json!({})).could_run_on(&asleep));
        assert!(pod("Unschedulable", json!({"nodeSelector": {"disk": "ssd"}})).could_run_on(&asleep));
        assert!(!pod("Unschedulable", json!({"nodeSelector": {"disk": "hdd"}})).could_run_on(&asleep));
        let apart = node(json!([{"key": "dedicated", "value": "db", "effect": "NoSchedule"}]));
        assert!(!pod("Unschedulable", json!({})).could_run_on(&apart));
        let tolerant = json!({"tolerations": [{"key": "dedicated", "operator": "Exists"}]});
        assert!(pod("Unschedulable", tolerant).could_run_on(&apart));
        // A claim of a volume may forbid it, and may not.
        let claims = json!({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]});
        assert!(pod("Unschedulable", claims).could_run_on(&asleep));
        assert!(pod("SchedulingGated", json!({})).waits.is_none());
        assert!(pod("Unschedulable", json!({"nodeName": "a"})).waits.is_none());
    }

    #[test]
    fn a_pod_that_is_deleted_is_terminating() {
        let pod = json!({"metadata": {"name": "p", "deletionTimestamp": "2026-01-01T00:00:00Z"}, "spec": {"nodeName": "a"}, "status": {"phase": "Running"}});
        let seen = PodSeen::read(&pod).unwrap();
        let row = seen.row("x", POWER_PROFILE_LABEL);
        assert!(!row.is_active() && row.node == Some("a"));
    }
}
