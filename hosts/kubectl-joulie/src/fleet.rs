//! The objects of all nodes, each node's together.

use crate::api::{ApiError, ClusterApi, path};
use crate::object::{items, name, text};
use joulie_api::node_power_grant::left_watts;
use joulie_api::quantity::Quantity;
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The resources that GPUs are.
pub(crate) const GPUS: [&str; 4] =
    ["nvidia.com/gpu", "amd.com/gpu", "gpu.intel.com/i915", "gpu.intel.com/xe"];

/// What pods ask for, and what a node has: thousandths of processors, bytes, GPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Room {
    pub(crate) cpu: f64,
    pub(crate) memory: f64,
    pub(crate) gpus: f64,
}

impl Room {
    /// Of a list of resources. What is no quantity counts as nothing.
    pub(crate) fn of(resources: &Value) -> Self {
        let of = |key: &str| resources[key].as_str().and_then(|text| Quantity::parse(text).ok());
        // Quantities are far below the numbers that a float cannot hold.
        let whole = |key: &str| of(key).map_or(0.0, |quantity| as_float(quantity.value()));
        Self {
            cpu: of("cpu").map_or(0.0, |quantity| as_float(quantity.milli_value())),
            memory: whole("memory"),
            gpus: GPUS.iter().map(|key| whole(key)).sum(),
        }
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.cpu += other.cpu;
        self.memory += other.memory;
        self.gpus += other.gpus;
    }
}

fn as_float(value: i64) -> f64 {
    // Exact up to 2^53; percentages need no more.
    value as f64
}

/// What is kept of a pod.
#[derive(Clone, Debug)]
pub(crate) struct PodUse {
    pub(crate) node: String,
    pub(crate) asks: Room,
}

/// What the containers of a pod ask for, as upstream's table counts it: without init containers and overhead.
pub(crate) fn asked(pod: &Value) -> Room {
    let mut all = Room::default();
    for container in items(pod, "/spec/containers") {
        all.add(Room::of(&container["resources"]["requests"]));
    }
    all
}

/// What is read of a pod in a list.
#[derive(Deserialize)]
struct ListedPod {
    spec: Option<ListedPodSpec>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ListedPodSpec {
    node_name: Option<String>,
    containers: Option<Vec<ListedContainer>>,
}

#[derive(Deserialize)]
struct ListedContainer {
    resources: Option<ListedResources>,
}

#[derive(Deserialize)]
struct ListedResources {
    #[serde(default)]
    requests: Value,
}

/// All pods that have not ended.
pub(crate) async fn pods(api: &ClusterApi) -> Result<Vec<PodUse>, ApiError> {
    let running = [("fieldSelector", "status.phase!=Succeeded,status.phase!=Failed")];
    api.list_of(path::PODS, &running, |pod: ListedPod| {
        let spec = pod.spec?;
        let node = spec.node_name.filter(|node| !node.is_empty())?;
        let mut asks = Room::default();
        for resources in spec.containers.into_iter().flatten().filter_map(|container| container.resources) {
            asks.add(Room::of(&resources.requests));
        }
        Some(PodUse { node, asks })
    })
    .await
}

/// What is read of a Node in a list: most of one in use are the names of its images.
#[derive(Deserialize)]
struct ListedNode {
    metadata: ListedNodeMetadata,
    #[serde(default)]
    spec: ListedNodeSpec,
    #[serde(default)]
    status: ListedNodeStatus,
}

#[derive(Deserialize)]
struct ListedNodeMetadata {
    name: String,
    #[serde(default)]
    labels: Value,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ListedNodeSpec {
    unschedulable: Value,
    taints: Value,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ListedNodeStatus {
    allocatable: Value,
    conditions: Value,
}

/// What is kept of a Node.
pub(crate) async fn nodes(
    api: &ClusterApi,
    query: &[(&str, &str)],
) -> Result<BTreeMap<String, Value>, ApiError> {
    let kept = |node: ListedNode| {
        let ListedNode { metadata, spec, status } = node;
        let kept = json!({
            "metadata": {"name": &metadata.name, "labels": metadata.labels},
            "spec": {"unschedulable": spec.unschedulable, "taints": spec.taints},
            "status": {"allocatable": status.allocatable, "conditions": status.conditions},
        });
        Some((metadata.name, kept))
    };
    Ok(api.list_of(path::NODES, query, kept).await?.into_iter().collect())
}

/// Objects of a kind by the node that they are about. Of several for one node the first by name counts.
#[derive(Debug, Default)]
pub(crate) struct ByNode {
    pub(crate) all: BTreeMap<String, Value>,
    /// The names of the others: the object that counts, and one that does not.
    pub(crate) doubles: Vec<(String, String, String)>,
    /// Objects that name no node.
    pub(crate) nameless: Vec<String>,
}

impl ByNode {
    pub(crate) fn get(&self, node: &str) -> Option<&Value> {
        self.all.get(node)
    }
}

/// All objects of a kind by their nodes.
pub(crate) async fn by_node(api: &ClusterApi, path: &str) -> Result<ByNode, ApiError> {
    let mut found = ByNode::default();
    for object in api.list(path, &[], Some).await? {
        let node = text(&object, "/spec/nodeName").to_owned();
        if node.is_empty() {
            found.nameless.push(name(&object).to_owned());
        } else if let Some(first) = found.all.get(&node) {
            let (first, second) = (name(first).to_owned(), name(&object).to_owned());
            found.doubles.push((node, first, second));
        } else {
            found.all.insert(node, object);
        }
    }
    Ok(found)
}

/// The object of a kind for one node. It is asked for by the node's field, because a name may be another node's.
pub(crate) async fn of_node(api: &ClusterApi, path: &str, node: &str) -> Result<Option<Value>, ApiError> {
    let field = format!("spec.nodeName={node}");
    let found = api.list(path, &[("fieldSelector", &field)], Some).await;
    let all = match found {
        Ok(all) => all,
        // A definition of an earlier version has no field to select by.
        Err(ApiError::Failed(_)) => api.list(path, &[], Some).await?,
        Err(error) => return Err(error),
    };
    Ok(all.into_iter().find(|object| text(object, "/spec/nodeName") == node))
}

/// What the packages and GPUs of a node are allowed, or hold, by its grant.
pub(crate) fn granted(grant: &Value) -> Option<f64> {
    if grant["spec"]["released"] == true {
        return None;
    }
    left_watts(grant)
}
