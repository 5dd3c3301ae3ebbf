//! A Node.

use super::moving::{allocatable, is_gpu};
use super::owners::{LabelOwner, of_labels, owner_of};
use super::{Stamp, name, whole};
use host_kit::reflect::Row;
use jiff::Timestamp;
use joulie_api::labels;
use planner::migration::eviction::RequestedResources;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

/// What is kept of a Node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NodeSeen {
    /// Its name, which everything that is kept of the node shares.
    pub(crate) name: Arc<str>,
    /// The object, and its version.
    pub(crate) stamp: Stamp,
    /// All of its labels: the settings determine which of them matter.
    pub(crate) labels: BTreeMap<String, String>,
    /// Labels that somebody else set, except those of Kubernetes.
    pub(crate) label_owners: Vec<LabelOwner>,
    /// Whether an operator of another generation wrote to it.
    pub(crate) former: bool,
    /// Whether it is cordoned.
    pub(crate) unschedulable: bool,
    /// `spec.taints`, unchanged; empty if there are none.
    pub(crate) taints: Vec<Value>,
    /// Whether its Ready condition is true.
    pub(crate) ready: bool,
    /// Since when it is not ready, as Kubernetes reports.
    pub(crate) turned: Option<Timestamp>,
    /// The boot ID that the kubelet reports; empty if it reports none.
    pub(crate) boot: String,
    /// `status.capacity.cpu`, rounded up.
    pub(crate) capacity_cpus: Option<u32>,
    /// `status.capacity.memory`, in bytes.
    pub(crate) capacity_memory: Option<u64>,
    /// GPUs in `status.allocatable`.
    pub(crate) allocatable_gpus: u32,
    /// Its addresses and host names.
    pub(crate) addresses: Arc<[Box<str>]>,
    /// What it can give to pods in all; nothing of what it does not report.
    pub(crate) allocatable: RequestedResources,
    /// The resources by which pods ask for its GPUs.
    gpu_resources: Vec<Box<str>>,
}

/// More addresses of a node are not kept.
const ADDRESSES_MAX: usize = 8;

impl NodeSeen {
    /// A label.
    pub(crate) fn label(&self, key: &str) -> Option<&str> {
        self.labels.get(key).map(String::as_str)
    }

    /// Whether a taint is the one for nodes that are not known to be capped.
    pub(crate) fn is_uncapped(taint: &Value) -> bool {
        taint["key"].as_str() == Some(labels::node::UNCAPPED)
    }

    /// Whether pods ask for all of its GPUs by this resource.
    pub(crate) fn offers_only(&self, gpu: &str) -> bool {
        matches!(self.gpu_resources.as_slice(), [one] if **one == *gpu)
    }

    /// Who else set a label, if anybody did.
    pub(crate) fn owner_of(&self, key: &str) -> Option<&str> {
        owner_of(&self.label_owners, key)
    }
}

impl Row for NodeSeen {
    const KIND: &'static str = "Node";
    const OWNERS: bool = true;

    fn read(object: &Value) -> Result<Self, String> {
        let labels = object["metadata"]["labels"].as_object().into_iter().flatten();
        let text = |(key, value): (&String, &Value)| Some((key.clone(), value.as_str()?.to_owned()));
        let mut conditions = object["status"]["conditions"].as_array().into_iter().flatten();
        let condition = conditions.find(|condition| condition["type"].as_str() == Some("Ready"));
        let ready = condition.is_some_and(|condition| condition["status"].as_str() == Some("True"));
        let turned = condition.and_then(|condition| condition["lastTransitionTime"].as_str()?.parse().ok());
        let (label_owners, former) = of_labels(object);
        let allocatable_gpus = gpus(&object["status"]["allocatable"]);
        let resources = object["status"]["allocatable"].as_object().into_iter().flatten();
        let gpu_resources = resources.filter(|(name, value)| is_gpu(name) && whole(value) != Some(0));
        Ok(Self {
            name: name(object).into(),
            stamp: Stamp::of(object),
            labels: labels.filter_map(text).collect(),
            label_owners,
            former,
            unschedulable: object["spec"]["unschedulable"].as_bool() == Some(true),
            taints: object["spec"]["taints"].as_array().cloned().unwrap_or_default(),
            ready,
            turned: turned.filter(|_| !ready),
            boot: object["status"]["nodeInfo"]["bootID"].as_str().unwrap_or_default().to_owned(),
            capacity_cpus: whole(&object["status"]["capacity"]["cpu"])
                .and_then(|cpus| u32::try_from(cpus).ok())
                .filter(|&cpus| cpus > 0),
            capacity_memory: whole(&object["status"]["capacity"]["memory"]).filter(|&bytes| bytes > 0),
            allocatable_gpus,
            addresses: addresses(object),
            allocatable: RequestedResources {
                gpus: allocatable_gpus,
                ..allocatable(&object["status"]["allocatable"])
            },
            gpu_resources: gpu_resources.map(|(name, _)| name.as_str().into()).collect(),
        })
    }
}

fn addresses(object: &Value) -> Arc<[Box<str>]> {
    let all = object["status"]["addresses"].as_array().into_iter().flatten();
    let texts = all.filter_map(|address| address["address"].as_str().filter(|text| !text.is_empty()));
    texts.take(ADDRESSES_MAX).map(Into::into).collect()
}

fn gpus(allocatable: &Value) -> u32 {
    let resources = allocatable.as_object().into_iter().flatten();
    let counted = resources.filter_map(|(key, value)| Some((key.as_str(), whole(value)?)));
    planner::inventory::allocatable_gpus(counted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_node_is_ready_only_where_it_says_so() {
        let node = |conditions: Value| {
            NodeSeen::read(&json!({"metadata": {"name": "a"}, "status": {"conditions": conditions}})).unwrap()
        };
        assert!(
            node(json!([{"type": "MemoryPressure", "status": "False"}, {"type": "Ready", "status": "True"}]))
                .ready
        );
        for bad in [
            json!(null),
            json!([]),
            json!([{"type": "Ready", "status": "Unknown"}]),
            json!("Ready"),
            json!([3]),
        ] {
            assert!(!node(bad).ready);
        }
    }

    #[test]
    fn resources_are_read_in_any_form() {
        let node = NodeSeen::read(
            &json!({"metadata": {"name": "a", "labels": {"x": "1", "y": 3}}, "status": {
            "capacity": {"cpu": "31500m"}, "allocatable": {"nvidia.com/gpu": "4", "NVIDIA.com/GPU": 2, "nvidia.com/mig-1g.5gb": "7", "amd.com/gpu": "-1"}}}),
        );
        let node = node.unwrap();
        assert_eq!((node.capacity_cpus, node.allocatable_gpus), (Some(32), 6));
        assert_eq!((node.label("x"), node.label("y")), (Some("1"), None));
    }
}
