//! The features that only pods have: binding, eviction under budgets, and an immutable specification.

use crate::api::{Api, Reply};
use crate::delete::Deletion;
use crate::failure::{Cause, Failure, Reason, success};
use crate::kind::Kind;
use crate::read::key_of;
use crate::request::{Place, Request};
use crate::selector::label_selector_holds;
use crate::store::{Scope, Store};
use crate::write::parsed;
use http::StatusCode;
use serde_json::{Value, json};
use std::sync::Arc;

impl Api {
    /// `pods/binding`: the scheduler's decision.
    pub(crate) fn bind(&self, request: &Request, kind: &Arc<Kind>, place: &Place) -> Result<Reply, Failure> {
        let binding = parsed(&request.body)?;
        let name = place.name.as_deref().unwrap_or("");
        let node = binding["target"]["name"].as_str().filter(|node| !node.is_empty());
        let node = node.ok_or_else(|| Failure::invalid(kind, name, &[Cause::required("target.name", "")]))?;
        let mut store = self.store();
        let found = store.get(&key_of(kind, place)).cloned();
        let mut pod = found.ok_or_else(|| Failure::not_found(kind, name))?.parse();
        let refused = |why: String| Err(Failure::conflict(kind, name, &why));
        for field in ["uid", "resourceVersion"] {
            let (wanted, is) = (&binding["metadata"][field], &pod["metadata"][field]);
            if wanted.as_str().is_some_and(|text| !text.is_empty()) && wanted != is {
                return refused(format!(
                    "Precondition failed: {field} in precondition: {wanted}, {field} in object meta: {is}"
                ));
            }
        }
        if !pod["metadata"]["deletionTimestamp"].is_null() {
            return refused(format!("pod {name} is being deleted, cannot be assigned to a host"));
        }
        if let Some(node) = pod["spec"]["nodeName"].as_str().filter(|node| !node.is_empty()) {
            return refused(format!("pod {name} is already assigned to node {node:?}"));
        }
        pod["spec"]["nodeName"] = json!(node);
        for (key, value) in binding["metadata"]["annotations"].as_object().into_iter().flatten() {
            pod["metadata"]["annotations"][key] = value.clone();
        }
        let scheduled = json!({"type": "PodScheduled", "status": "True", "lastProbeTime": null,
            "lastTransitionTime": self.now_text()});
        set_condition(&mut pod, scheduled);
        let bound = self.seal(&store, kind, pod);
        store.put(bound.clone());
        self.announce(&bound.key);
        Ok(Reply::json(StatusCode::CREATED, &success(&json!({}))))
    }

    /// `pods/eviction`: a deletion that budgets may refuse.
    pub(crate) fn evict(&self, request: &Request, kind: &Arc<Kind>, place: &Place) -> Result<Reply, Failure> {
        let eviction = parsed(&request.body)?;
        let deletion = Deletion::read(request, &eviction["deleteOptions"])?;
        let name = place.name.as_deref().unwrap_or("");
        let mut store = self.store();
        let found = store.get(&key_of(kind, place)).cloned();
        let found = found.ok_or_else(|| Failure::not_found(kind, name))?;
        let pod = found.parse();
        if is_live(&pod) {
            self.within_budgets(&store, kind, &pod)?;
        }
        self.remove(&mut store, kind, &found, &deletion)?;
        Ok(Reply::json(StatusCode::CREATED, &success(&json!({}))))
    }

    /// Budgets are computed from the existing pods, because no controller maintains their status.
    fn within_budgets(&self, store: &Store, kind: &Kind, pod: &Value) -> Result<(), Failure> {
        let namespace: Arc<str> = pod["metadata"]["namespace"].as_str().unwrap_or("").into();
        let within = |resource: &str| Scope { resource: resource.into(), namespace: Some(namespace.clone()) };
        let (all_budgets, all_pods) = (within("poddisruptionbudgets.policy"), within(&kind.resource));
        let covering: Vec<_> = store
            .list(&all_budgets, None)
            .map(|budget| budget.parse())
            .filter(|budget| label_selector_holds(&budget["spec"]["selector"], &pod["metadata"]["labels"]))
            .collect();
        if covering.len() > 1 {
            let why = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
            return Err(Failure::new(Reason::InternalError, why));
        }
        for budget in covering {
            let pods = store.list(&all_pods, None).map(|pod| pod.parse()).filter(|pod| {
                label_selector_holds(&budget["spec"]["selector"], &pod["metadata"]["labels"]) && is_live(pod)
            });
            let pods: Vec<_> = pods.collect();
            let healthy = pods.iter().filter(|pod| is_ready(pod)).count();
            let needed = needed(&budget["spec"], pods.len());
            // A pod that is not healthy may be evicted while enough others are healthy.
            let enough = if is_ready(pod) { healthy > needed } else { healthy >= needed };
            if !enough {
                let name = budget["metadata"]["name"].as_str().unwrap_or("");
                let message = format!(
                    "The disruption budget {name} needs {needed} healthy pods and has {healthy} currently"
                );
                let cause = json!([{"reason": "DisruptionBudget", "message": message}]);
                let why = "Cannot evict pod as it would violate the pod's disruption budget.";
                let refused = Failure::new(Reason::TooManyRequests, why);
                return Err(refused.with_details(json!({"causes": cause})).retry_after(10));
            }
        }
        Ok(())
    }
}

/// The number of healthy pods that a budget requires, out of `pods`.
fn needed(spec: &Value, pods: usize) -> usize {
    // Both kinds of percentages are rounded up, as in the disruption controller.
    let resolve = |value: &Value| match value {
        Value::String(text) => {
            let percent = text.trim_end_matches('%').parse::<usize>().unwrap_or(0);
            (pods * percent).div_ceil(100)
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            value.as_u64().and_then(|number| usize::try_from(number).ok()).unwrap_or(0)
        }
    };
    if spec["maxUnavailable"].is_null() {
        if spec["minAvailable"].is_null() { 1 } else { resolve(&spec["minAvailable"]) }
    } else {
        pods.saturating_sub(resolve(&spec["maxUnavailable"]))
    }
}

fn is_live(pod: &Value) -> bool {
    !matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed" | "Pending"))
        && pod["metadata"]["deletionTimestamp"].is_null()
}

fn is_ready(pod: &Value) -> bool {
    let mut conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
    conditions.any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
}

fn set_condition(pod: &mut Value, condition: Value) {
    if !pod["status"]["conditions"].is_array() {
        pod["status"]["conditions"] = json!([]);
    }
    let Some(conditions) = pod["status"]["conditions"].as_array_mut() else { return };
    conditions.retain(|other| other["type"] != condition["type"]);
    conditions.push(condition);
}

/// The quality of service class, by which the kubelet evicts.
pub(crate) fn quality(spec: &Value) -> &'static str {
    let containers = spec["containers"].as_array().into_iter().flatten();
    let resources: Vec<_> = containers.map(|container| &container["resources"]).collect();
    let has = |resources: &Value, side: &str| resources[side].as_object().is_some_and(|map| !map.is_empty());
    if !resources.iter().any(|of| has(of, "requests") || has(of, "limits")) {
        return "BestEffort";
    }
    let whole = |of: &&Value| {
        let limits = &of["limits"];
        let requests = if of["requests"].is_null() { limits } else { &of["requests"] };
        let same = |name: &str| !limits[name].is_null() && requests[name] == limits[name];
        same("cpu") && same("memory")
    };
    if resources.iter().all(whole) { "Guaranteed" } else { "Burstable" }
}

/// Only a few fields of a pod's specification may change.
pub(crate) fn check_change(old: &Value, new: &Value, causes: &mut Vec<Cause>) {
    let fixed = |pod: &Value| {
        let mut spec = pod["spec"].clone();
        for field in
            ["activeDeadlineSeconds", "tolerations", "terminationGracePeriodSeconds", "schedulingGates"]
        {
            spec.as_object_mut().and_then(|fields| fields.remove(field));
        }
        for list in ["containers", "initContainers"] {
            for container in spec[list].as_array_mut().into_iter().flatten() {
                container["image"] = Value::Null;
            }
        }
        spec
    };
    if fixed(old) != fixed(new) {
        let why = "pod updates may not change fields other than `spec.containers[*].image`, \
            `spec.initContainers[*].image`, `spec.activeDeadlineSeconds`, `spec.tolerations` (only additions to \
            existing tolerations), `spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously \
            negative)";
        causes.push(Cause::forbidden("spec", why));
    }
}
