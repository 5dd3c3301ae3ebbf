//! `simulate pod`: where a pod would go, and what it would draw. kube-scheduler's own filters are followed as far as they are
//! about one node by itself; the scores are the extender's.

use crate::args::{PodClass, PodShape};
use crate::clean::clean;
use crate::fleet::{self, Room};
use crate::object::{items, number, text};
use crate::run::{PluginSession, Reply};
use crate::score;
use crate::show::{document, lines, watts};
use joulie_api::labels::pod::WORKLOAD_CLASS;
use joulie_api::quantity::Quantity;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::Read;

/// A manifest is small.
const MANIFEST_MAX: u64 = 1 << 20;

const NOT_SIMULATED: &str = "not simulated: affinity, topology spread, volumes, ports, and the scores of kube-scheduler's own plugins";

pub(crate) async fn simulate(asked: &PluginSession, shape: &PodShape) -> Result<Reply, Reply> {
    let pod = pod_of(shape).map_err(|why| Reply { code: 2, ..Reply::not_done(why) })?;
    let (nodes, pods) = tokio::join!(fleet::nodes(&asked.api, &[]), fleet::pods(&asked.api));
    let (nodes, pods) = (nodes?, pods?);
    let mut taken: BTreeMap<&str, Room> = BTreeMap::new();
    for pod in &pods {
        taken.entry(pod.node.as_str()).or_default().add(pod.asks);
    }
    let asks = fleet::asked(&pod);
    let mut refused: BTreeMap<&'static str, usize> = BTreeMap::new();
    let mut fit = Vec::new();
    for (name, node) in &nodes {
        let taken = taken.get(name.as_str()).copied().unwrap_or_default();
        match refusal(&pod, asks, node, taken) {
            Some(why) => *refused.entry(why).or_default() += 1,
            None => fit.push(name.clone()),
        }
    }
    let of_filters: Vec<String> =
        refused.iter().map(|(why, count)| format!("{count} nodes: {why}")).collect();
    let count = fit.len();
    let page = if fit.is_empty() {
        json!({"nodes": []})
    } else {
        score::judged(asked, &pod, fit).await.map_err(Reply::not_done)?
    };
    let best = items(&page, "/nodes").iter().find(|node| node["filter"] == "pass");
    let mut said = Vec::new();
    match best {
        Some(node) => {
            let adds = number(node, "/scoring/marginalCpuW").zip(number(node, "/scoring/marginalGpuW"));
            let adds = adds.map_or("an unknown power".to_owned(), |(cpu, gpu)| watts(Some(cpu + gpu)));
            said.push(format!(
                "It would go to node {}, and draw {adds} more there.",
                text(node, "/nodeName")
            ));
        }
        None => said.push("It would go nowhere now.".to_owned()),
    }
    said.push(format!("{count} of {} nodes have room for it:", nodes.len()));
    said.extend(score::lines(&page, "").into_iter().map(|line| format!("  {line}")));
    said.extend(of_filters.iter().map(|line| format!("  {line}")));
    said.push(NOT_SIMULATED.to_owned());
    let whole = json!({
        "kind": "Simulation", "node": best.map(|node| node["nodeName"].clone()), "fits": count, "of": nodes.len(),
        "refused": of_filters, "scoring": page, "pod": pod,
    });
    let shown = if asked.format().is_some() {
        document(asked.format(), whole)
    } else {
        lines(&said.iter().map(|line| clean(line)).collect::<Vec<_>>())
    };
    Ok(Reply { text: shown, notes: Vec::new(), code: u8::from(best.is_none()) })
}

/// Why kube-scheduler would not put the pod there, by the node alone.
fn refusal(pod: &Value, asks: Room, node: &Value, taken: Room) -> Option<&'static str> {
    if node["spec"]["unschedulable"] == true {
        return Some("cordoned");
    }
    let mut selector = pod["spec"]["nodeSelector"].as_object().into_iter().flatten();
    if selector.any(|(key, value)| node["metadata"]["labels"][key] != *value) {
        return Some("its nodeSelector does not match");
    }
    let tolerated =
        |taint: &Value| items(pod, "/spec/tolerations").iter().any(|toleration| tolerates(toleration, taint));
    let keeps_out = |taint: &&Value| matches!(text(taint, "/effect"), "NoSchedule" | "NoExecute");
    if items(node, "/spec/taints").iter().filter(keeps_out).any(|taint| !tolerated(taint)) {
        return Some("it does not tolerate a taint");
    }
    let has = Room::of(&node["status"]["allocatable"]);
    if taken.cpu + asks.cpu > has.cpu {
        return Some("too few processors are left");
    }
    if taken.memory + asks.memory > has.memory {
        return Some("too little memory is left");
    }
    (asks.gpus > 0.0 && taken.gpus + asks.gpus > has.gpus).then_some("too few GPUs are left")
}

fn tolerates(toleration: &Value, taint: &Value) -> bool {
    let (key, effect) = (text(toleration, "/key"), text(toleration, "/effect"));
    let same_effect = effect.is_empty() || effect == text(taint, "/effect");
    let any_value = text(toleration, "/operator") == "Exists";
    let same_key = key == text(taint, "/key") || key.is_empty() && any_value;
    same_effect && same_key && (any_value || text(toleration, "/value") == text(taint, "/value"))
}

/// The pod of the flags, or of the manifest.
fn pod_of(shape: &PodShape) -> Result<Value, String> {
    let Some(file) = &shape.filename else {
        let mut requests = json!({"cpu": quantity(&shape.cpu)?, "memory": quantity(&shape.memory)?});
        if shape.gpus > 0 {
            if !fleet::GPUS.contains(&shape.gpu_resource.as_str()) {
                return Err(format!(
                    "{:?} is no resource of GPUs: {}",
                    shape.gpu_resource,
                    fleet::GPUS.join(", ")
                ));
            }
            requests[&shape.gpu_resource] = json!(shape.gpus.to_string());
        }
        let class = match shape.class {
            PodClass::Performance => "performance",
            PodClass::Standard => "standard",
        };
        return Ok(json!({
            "metadata": {"name": "simulated", "namespace": "default", "annotations": {(WORKLOAD_CLASS): class}},
            "spec": {"containers": [{"name": "main", "resources": {"requests": requests.clone(), "limits": requests}}]},
        }));
    };
    let mut text = String::new();
    let read = if file.as_os_str() == "-" {
        std::io::stdin().take(MANIFEST_MAX).read_to_string(&mut text)
    } else {
        std::fs::File::open(file).and_then(|open| open.take(MANIFEST_MAX).read_to_string(&mut text))
    };
    read.map_err(|error| format!("{}: {error}", file.display()))?;
    let manifest: Value = serde_saphyr::from_str(&text)
        .map_err(|error| format!("{}: it is neither YAML nor JSON of one object: {error}", file.display()))?;
    let pod = pod_in(&manifest).cloned();
    let mut pod = pod.ok_or_else(|| {
        format!(
            "{}: it has no containers: expected a Pod, or an object with a template of pods",
            file.display()
        )
    })?;
    if pod["metadata"].is_null() {
        pod["metadata"] = json!({});
    }
    Ok(pod)
}

/// The pod in a manifest: itself, or the template of a workload.
fn pod_in(manifest: &Value) -> Option<&Value> {
    let places = ["", "/spec/template", "/spec/jobTemplate/spec/template"];
    places
        .into_iter()
        .filter_map(|place| manifest.pointer(place))
        .find(|pod| !items(pod, "/spec/containers").is_empty())
}

fn quantity(text: &str) -> Result<String, String> {
    match Quantity::parse(text) {
        Ok(quantity) if quantity.nanos() >= 0 => Ok(text.to_owned()),
        Ok(_) | Err(_) => Err(format!("{text:?} is no quantity, such as 500m, 2 or 4Gi")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node() -> Value {
        json!({"metadata": {"labels": {"zone": "a"}}, "spec": {"taints": [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]},
            "status": {"allocatable": {"cpu": "4", "memory": "8Gi"}}})
    }

    #[test]
    fn a_node_refuses_for_the_first_thing_that_does_not_fit() {
        let tolerates = json!([{"key": "gpu", "operator": "Equal", "value": "yes"}]);
        let pod = |spec: Value| json!({"spec": spec});
        let asks = |cpu: f64, memory: f64| Room { cpu, memory, gpus: 0.0 };
        let refused = |spec: Value, asks: Room| {
            refusal(&pod(spec), asks, &node(), Room { cpu: 3_000.0, ..Room::default() })
        };
        assert_eq!(refused(json!({}), asks(1.0, 1.0)), Some("it does not tolerate a taint"));
        assert_eq!(refused(json!({"tolerations": [{"operator": "Exists"}]}), asks(1_000.0, 1.0)), None);
        assert_eq!(
            refused(json!({"tolerations": tolerates}), asks(1_001.0, 1.0)),
            Some("too few processors are left")
        );
        assert_eq!(
            refused(json!({"tolerations": tolerates}), asks(1.0, 9e9)),
            Some("too little memory is left")
        );
        assert_eq!(
            refused(json!({"nodeSelector": {"zone": "b"}}), asks(1.0, 1.0)),
            Some("its nodeSelector does not match")
        );
        let gpus = Room { gpus: 1.0, ..Room::default() };
        assert_eq!(refused(json!({"tolerations": tolerates}), gpus), Some("too few GPUs are left"));
    }

    #[test]
    fn a_pod_is_found_in_its_workload() {
        let containers = json!({"spec": {"containers": [{"name": "a"}]}});
        assert!(pod_in(&containers).is_some());
        assert!(pod_in(&json!({"spec": {"template": containers}})).is_some());
        assert!(pod_in(&json!({"spec": {"jobTemplate": {"spec": {"template": containers}}}})).is_some());
        assert!(pod_in(&json!({"kind": "Service"})).is_none() && pod_in(&json!([1])).is_none());
    }
}
