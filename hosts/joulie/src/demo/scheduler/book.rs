//! Which nodes have room for a pod, and how much each would have left. No I/O.
//!
//! Room is computed as in kube-scheduler's NodeResourcesFit: a node's allocatable less the requests of the pods that
//! are bound to it. The score is that plugin's LeastAllocated over processors and memory.

use host_kit::reflect::Row;
use joulie_api::labels;
use joulie_api::quantity::Quantity;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Amounts of resources by name, in billionths.
type Amounts = BTreeMap<String, i128>;

/// The requests that LeastAllocated assumes for a container without any: kube-scheduler's defaults, 100m and 200 MB.
const UNASKED: [(&str, i128); 2] = [("cpu", 100_000_000), ("memory", 200 * 1024 * 1024 * 1_000_000_000)];

/// The data of a node that placement needs.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct NodeRow {
    allocatable: Amounts,
    labels: BTreeMap<String, String>,
    cordoned: bool,
    /// Keys and values of the taints that prevent scheduling.
    taints: Vec<(String, String)>,
}

/// The data of a pod that placement needs.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct PodRow {
    pub(crate) name: String,
    pub(crate) namespace: String,
    pub(crate) uid: String,
    pub(crate) node: Option<String>,
    pub(crate) performance: bool,
    /// The whole object while it waits, for requests to the extender.
    pub(crate) raw: Arc<Value>,
    /// The creation time, by which pods are ordered.
    pub(crate) created: String,
    ended: bool,
    leaving: bool,
    foreign: bool,
    asks: Amounts,
    weighs: Amounts,
    selector: BTreeMap<String, String>,
    tolerations: Vec<Toleration>,
}

#[derive(Clone, Debug, Default, PartialEq)]
struct Toleration {
    /// `None` for all keys.
    key: Option<String>,
    /// `None` for all values.
    value: Option<String>,
}

impl Row for NodeRow {
    const KIND: &'static str = "Node";
    const OWNERS: bool = false;

    fn read(object: &Value) -> Result<Self, String> {
        let keeps_away =
            |taint: &&Value| matches!(taint["effect"].as_str(), Some("NoSchedule" | "NoExecute"));
        let taints = object["spec"]["taints"].as_array().into_iter().flatten().filter(keeps_away);
        Ok(Self {
            allocatable: amounts(&object["status"]["allocatable"])?,
            labels: texts(&object["metadata"]["labels"]),
            cordoned: object["spec"]["unschedulable"].as_bool().unwrap_or(false),
            taints: taints.map(|taint| (text(&taint["key"]), text(&taint["value"]))).collect(),
        })
    }
}

impl Row for PodRow {
    const KIND: &'static str = "Pod";
    const OWNERS: bool = false;

    fn read(object: &Value) -> Result<Self, String> {
        let (meta, spec) = (&object["metadata"], &object["spec"]);
        let node = spec["nodeName"].as_str().filter(|node| !node.is_empty()).map(str::to_owned);
        let class = meta["annotations"][labels::pod::WORKLOAD_CLASS].as_str();
        let tolerations = spec["tolerations"].as_array().into_iter().flatten();
        Ok(Self {
            name: text(&meta["name"]),
            namespace: text(&meta["namespace"]),
            uid: text(&meta["uid"]),
            performance: class.is_some_and(|class| class.trim().eq_ignore_ascii_case("performance")),
            raw: if node.is_none() { Arc::new(object.clone()) } else { Arc::default() },
            node,
            created: text(&meta["creationTimestamp"]),
            ended: matches!(object["status"]["phase"].as_str(), Some("Succeeded" | "Failed")),
            leaving: !meta["deletionTimestamp"].is_null(),
            foreign: spec["schedulerName"].as_str().is_some_and(|name| name != "default-scheduler"),
            asks: pod_amounts(spec, container_asks)?,
            weighs: pod_amounts(spec, container_weighs)?,
            selector: texts(&spec["nodeSelector"]),
            tolerations: tolerations
                .map(|one| Toleration {
                    key: one["key"].as_str().map(str::to_owned),
                    value: (one["operator"] != "Exists").then(|| text(&one["value"])),
                })
                .collect(),
        })
    }
}

impl PodRow {
    /// Whether it waits for a node from this scheduler.
    pub(crate) const fn is_ours_to_place(&self) -> bool {
        self.node.is_none() && !self.ended && !self.leaving && !self.foreign
    }

    fn tolerates(&self, key: &str, value: &str) -> bool {
        self.tolerations.iter().any(|one| {
            one.key.as_deref().is_none_or(|own| own == key)
                && one.value.as_deref().is_none_or(|own| own == value)
        })
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn texts(value: &Value) -> BTreeMap<String, String> {
    value.as_object().into_iter().flatten().map(|(key, value)| (key.clone(), text(value))).collect()
}

fn amounts(value: &Value) -> Result<Amounts, String> {
    let read = |(name, value): (&String, &Value)| {
        let quantity = value.as_str().map_or_else(|| Quantity::parse(&value.to_string()), Quantity::parse);
        quantity.map(|quantity| (name.clone(), quantity.nanos())).map_err(|error| format!("{name}: {error}"))
    };
    value.as_object().into_iter().flatten().map(read).collect()
}

/// The resources of a pod: the sum of its containers, or those of its largest init container if that is more.
fn pod_amounts(spec: &Value, each: fn(&Value) -> Result<Amounts, String>) -> Result<Amounts, String> {
    let mut sum = Amounts::new();
    for container in spec["containers"].as_array().into_iter().flatten() {
        for (name, amount) in each(container)? {
            *sum.entry(name).or_default() += amount;
        }
    }
    for container in spec["initContainers"].as_array().into_iter().flatten() {
        for (name, amount) in each(container)? {
            let most = sum.entry(name).or_default();
            *most = amount.max(*most);
        }
    }
    Ok(sum)
}

/// The requests of a container; a limit without a request counts as a request.
fn container_asks(container: &Value) -> Result<Amounts, String> {
    let mut asks = amounts(&container["resources"]["limits"])?;
    asks.extend(amounts(&container["resources"]["requests"])?);
    Ok(asks)
}

fn container_weighs(container: &Value) -> Result<Amounts, String> {
    let mut asks = container_asks(container)?;
    for (name, amount) in UNASKED {
        asks.entry(name.to_owned()).or_insert(amount);
    }
    Ok(asks)
}

/// The nodes and their used resources.
#[derive(Debug)]
pub(crate) struct Fit<'n> {
    nodes: BTreeMap<&'n str, (&'n NodeRow, Taken)>,
}

#[derive(Debug, Default)]
struct Taken {
    asked: Amounts,
    weight: Amounts,
    pods: i128,
}

impl<'n> Fit<'n> {
    /// These nodes without any pods.
    pub(crate) fn of(nodes: impl Iterator<Item = (&'n str, &'n NodeRow)>) -> Self {
        Self { nodes: nodes.map(|(name, row)| (name, (row, Taken::default()))).collect() }
    }

    /// Adds a pod to the usage of its node.
    pub(crate) fn take(&mut self, pod: &PodRow) {
        let Some(node) = pod.node.as_deref().filter(|_| !pod.ended) else { return };
        let Some((_, taken)) = self.nodes.get_mut(node) else { return };
        for (sum, amounts) in [(&mut taken.asked, &pod.asks), (&mut taken.weight, &pod.weighs)] {
            for (name, amount) in amounts {
                *sum.entry(name.clone()).or_default() += amount;
            }
        }
        taken.pods += 1;
    }

    /// The nodes that have room for the pod, each with its LeastAllocated score from 0 to 100.
    pub(crate) fn scores(&self, pod: &PodRow) -> BTreeMap<&'n str, i64> {
        let fitting = self.nodes.iter().filter(|(_, (node, taken))| fits(node, taken, pod));
        fitting.map(|(name, (node, taken))| (*name, least_allocated(node, taken, pod))).collect()
    }
}

fn fits(node: &NodeRow, taken: &Taken, pod: &PodRow) -> bool {
    let has_room = |name: &str, taken: i128, asked: i128| {
        asked == 0 || taken + asked <= node.allocatable.get(name).copied().unwrap_or(0)
    };
    let selected = pod.selector.iter().all(|(key, value)| node.labels.get(key) == Some(value));
    !node.cordoned
        && selected
        && node.taints.iter().all(|(key, value)| pod.tolerates(key, value))
        && has_room("pods", taken.pods * 1_000_000_000, 1_000_000_000)
        && pod
            .asks
            .iter()
            .all(|(name, asked)| has_room(name, taken.asked.get(name).copied().unwrap_or(0), *asked))
}

/// The mean of the remaining processors and memory, in whole percent.
fn least_allocated(node: &NodeRow, taken: &Taken, pod: &PodRow) -> i64 {
    let left = |name: &str| {
        let whole = node.allocatable.get(name).copied().unwrap_or(0);
        let of = |amounts: &Amounts| amounts.get(name).copied().unwrap_or(0);
        let used = of(&taken.weight) + of(&pod.weighs);
        if whole <= 0 || used > whole { 0 } else { (whole - used) * 100 / whole }
    };
    i64::try_from((left("cpu") + left("memory")) / 2).unwrap_or(0)
}

#[cfg(test)]
mod tests;
