//! A Node.

use super::moving::{allocatable, is_gpu};
use super::owners::{LabelOwner, of_labels, owner_of};
use super::{Stamp, name, whole};
use host_kit::reflect::Row;
use jiff::Timestamp;
use joulie_api::labels;
use joulie_api::sleep::SleepAnnotation;
use planner::migration::eviction::RequestedResources;
use planner::sleep::{SleepMark, SleepPhase};
use power_units::Micros;
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
    /// What is written on it about its sleep, if anything is.
    pub(crate) sleep: Option<Box<SleepSeen>>,
}

/// What is written on a Node about its sleep.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SleepSeen {
    /// The operator's mark.
    pub(crate) mark: Option<SleepMark>,
    /// A person's annotation says that it never sleeps.
    pub(crate) never: bool,
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

    /// Whether a taint is that of a node on its way to sleep or back.
    pub(crate) fn is_sleeping(taint: &Value) -> bool {
        taint["key"].as_str() == Some(labels::node::SLEEPING)
    }

    /// What is written on a Node about its sleep. A mark that cannot be read, and a taint without one, are those of a node
    /// that is left to people.
    pub(crate) fn sleep_of(object: &Value) -> Option<SleepSeen> {
        let annotations = &object["metadata"]["annotations"];
        let mut taints = object["spec"]["taints"].as_array().into_iter().flatten();
        let text = SleepAnnotation::text(object);
        let left = || SleepMark { phase: SleepPhase::Left, since: Micros::ZERO, boot: String::new() };
        let mark = match text {
            Some(text) => Some(read_mark(text).unwrap_or_else(left)),
            None => taints.any(Self::is_sleeping).then(left),
        };
        let never = annotations[labels::node::NEVER_SLEEP].as_str();
        let never = never.is_some_and(|text| text.trim() != labels::FALSE);
        (mark.is_some() || never).then_some(SleepSeen { mark, never })
    }

    /// The operator's mark.
    pub(crate) fn mark(&self) -> Option<&SleepMark> {
        self.sleep.as_ref().and_then(|sleep| sleep.mark.as_ref())
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
            sleep: Self::sleep_of(object).map(Box::new),
        })
    }
}

fn read_mark(text: &str) -> Option<SleepMark> {
    let SleepAnnotation { phase, since, boot } = SleepAnnotation::read(text)?;
    let since = Micros::new(u64::try_from(since.as_microsecond()).ok()?);
    Some(SleepMark { phase, since, boot: boot.to_owned() })
}

/// The text of a mark.
pub(crate) fn mark_text(phase: SleepPhase, now: Timestamp, boot: &str) -> String {
    SleepAnnotation { phase, since: now, boot }.to_string()
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
    fn a_mark_that_cannot_be_read_leaves_the_node_to_people() {
        let now: Timestamp = "2027-01-15T08:00:00Z".parse().unwrap();
        let of = |text: Value, taints: Value| {
            let meta = json!({"name": "a", "annotations": {"joulie.io/sleep-state": text}});
            NodeSeen::read(&json!({"metadata": meta, "spec": {"taints": taints}})).unwrap()
        };
        for phase in SleepPhase::ALL {
            for boot in ["0b1e-77", ""] {
                let node = of(json!(mark_text(phase, now, boot)), json!(null));
                let since = Micros::new(1_800_000_000_000_000);
                assert_eq!(node.mark(), Some(&SleepMark { phase, since, boot: boot.to_owned() }));
            }
        }
        let ours = json!([{"key": "joulie.io/sleeping", "effect": "NoSchedule"}]);
        for (text, taints) in [
            (json!("asleep"), json!(null)),
            (json!("asleep yesterday boot"), json!(null)),
            (json!("dreams 2027-01-15T08:00:00Z boot"), json!(null)),
            (json!("asleep 2027-01-15T08:00:00Z boot more"), json!(null)),
            (json!("asleep 1927-01-15T08:00:00Z boot"), json!(null)),
            (json!(null), ours),
        ] {
            let node = of(text.clone(), taints);
            assert_eq!(node.mark().map(|mark| mark.phase), Some(SleepPhase::Left), "{text}");
        }
        let other = json!([{"key": "dedicated", "effect": "NoSchedule"}]);
        assert_eq!(of(json!(null), other).mark(), None);
        let never = |value: Value| {
            let meta = json!({"name": "a", "annotations": {"joulie.io/never-sleep": value}});
            NodeSeen::read(&json!({"metadata": meta})).unwrap().sleep.is_some_and(|sleep| sleep.never)
        };
        assert!(never(json!("true")) && never(json!("")) && never(json!("please")));
        assert!(!never(json!("false")) && !never(json!(null)));
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
