//! GPU (`gpu.mle.com`): one physical card, published by its node's agent.
//!
//! The status has two parts with one writer each. The agent writes who holds the card, as the kubelet says. The extender's
//! bind writes `assumed`: whom it took the card for, until the kubelet says who has it; then the agent ends the entry. A pod
//! that the kubelet gave any card of the node is no longer assumed on another one.

use crate::condition::Condition;
use crate::macros::part;
use crate::number::Whole;
use joulie_core::placement::demand::GpuVendor;
use joulie_core::placement::gpu::{GpuPhase, Island, Vram};
use kube::CustomResource;
use power_units::Watts;
use serde::{Deserialize, Serialize};

/// What a card is.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, kube::KubeSchema)]
#[kube(
    group = "gpu.mle.com",
    version = "v1alpha1",
    kind = "GPU",
    doc = "One physical GPU and who has it.",
    plural = "gpus",
    root = "Gpu",
    status = "GpuStatus",
    derive = "PartialEq",
    category = "joulie",
    selectable = ".spec.nodeName",
    validation = kube::core::Rule::new("!has(self.status) || !has(self.status.allocatedVRAMmb) || !has(self.spec.totalVRAMmb) || self.status.allocatedVRAMmb <= self.spec.totalVRAMmb")
        .message("allocatedVRAMmb is above totalVRAMmb: no card gives more memory than it has")
        .field_path(".status.allocatedVRAMmb"),
    printcolumn(name = "Node", type_ = "string", json_path = ".spec.nodeName"),
    printcolumn(name = "Model", type_ = "string", json_path = ".spec.model"),
    printcolumn(name = "VRAM", type_ = "integer", json_path = ".spec.totalVRAMmb"),
    printcolumn(name = "Allocated", type_ = "integer", json_path = ".status.allocatedVRAMmb"),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Pod", type_ = "string", json_path = ".status.podName")
)]
#[serde(rename_all = "camelCase")]
pub struct GpuSpec {
    /// The name of the node that the card is in.
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = kube::core::Rule::new("self == oldSelf").message("nodeName is immutable: an object stays with its node"))]
    pub node_name: String,
    /// What the driver calls this card and no other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    #[x_kube(validation = kube::core::Rule::new("self == oldSelf").message("uuid is immutable: another card is another object"))]
    pub uuid: Option<String>,
    /// The model, as pods ask for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// All of its memory, in MB.
    #[serde(default, rename = "totalVRAMmb", skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub total_vram_mb: Option<Whole>,
    /// nvidia, amd or intel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vendor: Option<String>,
    /// Its place on the bus.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pci_address: Option<String>,
    /// Cards of the node with the same number are joined by NVLink or its like.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 65535))]
    pub island: Option<Whole>,
    /// The card is cut into slices, which are other resources: no pod gets the card itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sliced: Option<bool>,
    /// The MIG instances of a card that is cut, which pods have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub instances: Option<Vec<GpuInstance>>,
    /// The root of its PCI tree, such as pci0000:c0: cards with the same one share it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub pcie_root: Option<String>,
    /// The number of the memory node that it is near to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 65535))]
    pub numa_node: Option<Whole>,
    /// How pods share it: none, time-slicing or mps. Where it is missing or none, one pod has a card alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub sharing: Option<String>,
}

part! {
    /// Who has a card.
    #[x_kube(validation = kube::core::Rule::new("!has(self.phase) || self.phase != 'Allocated' || has(self.podName)")
        .message("phase Allocated needs a podName: somebody has the card")
        .field_path(".podName"))]
    pub struct GpuStatus {
        /// The memory that pods have, in MB.
        #[serde(rename = "allocatedVRAMmb")]
        #[schemars(range(min = 0))]
        allocated_vram_mb: Whole,
        /// The namespace of the pod that has it; of the first, where several have.
        #[schemars(length(max = 253))]
        pod_namespace: String,
        /// The name of the pod that has it; of the first, where several have.
        #[schemars(length(max = 253))]
        pod_name: String,
        /// Available or Allocated; a card of any other phase takes no pod.
        #[schemars(length(max = 63))]
        phase: String,
        /// Who has which MIG instance, as the kubelet says.
        #[schemars(length(max = 64))]
        instances: Vec<GpuInstanceStatus>,
        /// Every pod that has some of the card's memory, as the kubelet says.
        #[schemars(length(max = 256))]
        allocations: Vec<GpuAllocation>,
        /// Pods that the extender took the card for when it bound them.
        #[schemars(length(max = 256))]
        assumed: Vec<GpuAssumption>,
        /// Healthy, or Unknown where the driver does not show it at the moment; only a healthy card takes a pod. Missing
        /// where nobody says it.
        #[schemars(length(max = 63))]
        health: String,
        /// What the card draws, as it was measured.
        power: GpuPower,
        /// The generation of the spec that this status speaks of.
        observed_generation: Whole,
        /// How the card stands.
        #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
        conditions: Vec<Condition>,
    }
}

part! {
    /// What a card draws, in steps of ten watts, so that an object seldom changes.
    pub struct GpuPower {
        /// While nothing computes on it, in watts.
        #[schemars(range(min = 0, max = 100000))]
        idle_watts: Whole,
        /// While something computes on it all the time and no power limit holds it back, in watts.
        #[schemars(range(min = 0, max = 100000))]
        busy_watts: Whole,
        /// The highest power limit that it had lately, in watts.
        #[schemars(range(min = 0, max = 100000))]
        limit_watts: Whole,
    }
}

part! {
    /// A MIG instance.
    pub struct GpuInstance {
        /// What the driver calls it, as MIG-3f1e.
        #[schemars(length(max = 253))]
        uuid: String,
        /// Its profile, as the resource nvidia.com/mig-PROFILE has it: 1g.10gb.
        #[schemars(length(max = 63))]
        profile: String,
        /// Its memory, in MB.
        #[schemars(range(min = 0))]
        memory_mb: Whole,
    }
}

part! {
    /// Who has a MIG instance.
    pub struct GpuInstanceStatus {
        /// The instance.
        #[schemars(length(max = 253))]
        uuid: String,
        /// Available or Allocated; an instance of any other phase takes no pod.
        #[schemars(length(max = 63))]
        phase: String,
        /// The namespace of the pod that has it.
        #[schemars(length(max = 253))]
        pod_namespace: String,
        /// The name of the pod that has it.
        #[schemars(length(max = 253))]
        pod_name: String,
        /// The UID of the pod that has it.
        #[serde(rename = "podUID")]
        #[schemars(length(max = 64))]
        pod_uid: String,
    }
}

part! {
    /// One pod's part of a card.
    pub struct GpuAllocation {
        /// The pod's namespace.
        #[schemars(length(max = 253))]
        pod_namespace: String,
        /// The pod's name.
        #[schemars(length(max = 253))]
        pod_name: String,
        /// The pod's UID.
        #[serde(rename = "podUID")]
        #[schemars(length(max = 64))]
        pod_uid: String,
        /// Its part of the memory, in MB.
        #[serde(rename = "vramMb")]
        #[schemars(range(min = 0))]
        vram_mb: Whole,
    }
}

part! {
    /// A pod that a card was taken for.
    pub struct GpuAssumption {
        /// The pod's namespace.
        #[schemars(length(max = 253))]
        pod_namespace: String,
        /// The pod's name.
        #[schemars(length(max = 253))]
        pod_name: String,
        /// The pod's UID.
        #[serde(rename = "podUID")]
        #[schemars(length(max = 64))]
        pod_uid: String,
        /// Its part of the memory, in MB.
        #[serde(rename = "vramMb")]
        #[schemars(range(min = 0))]
        vram_mb: Whole,
        /// When it was taken, RFC 3339.
        #[schemars(length(max = 63))]
        since: String,
    }
}

/// The word for a card that the driver shows.
pub const HEALTHY: &str = "Healthy";

/// What placement may assume about a card. If anything is not certain, the phase is unknown, and the card takes no pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GpuRecord<'a> {
    /// The node that it is in.
    pub node: &'a str,
    /// The driver's identifier of the card.
    pub uuid: Option<&'a str>,
    /// Its model.
    pub model: Option<&'a str>,
    /// Its memory.
    pub vram: Option<Vram>,
    /// The group of cards to which it is joined.
    pub island: Option<Island>,
    /// Whether it can take a pod.
    pub phase: GpuPhase,
    /// Who made it, if that is said.
    pub vendor: Option<GpuVendor>,
    /// Whether several pods may have it at once.
    pub shares: bool,
}

/// A MIG instance of a card, and whether it can take a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InstanceRecord<'a> {
    /// The driver's identifier of the instance.
    pub uuid: &'a str,
    /// Its profile.
    pub profile: &'a str,
    /// Its memory in MB, if it is known.
    pub memory_mb: Option<i64>,
    /// Whether it can take a pod.
    pub phase: GpuPhase,
    /// The UID of the pod that has it, if it is known.
    pub pod_uid: Option<&'a str>,
}

impl Gpu {
    /// The MIG instances of a card that is cut and healthy. What has no identifier or no profile is none, and one of which
    /// nothing certain is said is in an unknown phase.
    pub fn instances(&self) -> impl Iterator<Item = InstanceRecord<'_>> {
        let status = self.status.as_ref();
        let health = status.and_then(|status| status.health.as_deref());
        let is_cut = self.spec.sliced == Some(true) && health.is_none_or(|health| health == HEALTHY);
        let all = self.spec.instances.as_deref().filter(|_| is_cut).unwrap_or_default();
        let said = status.and_then(|status| status.instances.as_deref()).unwrap_or_default();
        all.iter().filter_map(move |instance| {
            let uuid = non_empty(&instance.uuid)?;
            let mut of_it = said.iter().filter(|one| one.uuid.as_deref() == Some(uuid));
            // What is said twice is not certain.
            let said = of_it.next().filter(|_| of_it.next().is_none());
            let pod_uid = said.and_then(|said| non_empty(&said.pod_uid));
            let phase = said.and_then(|said| said.phase.as_deref()).map_or(GpuPhase::Unknown, GpuPhase::read);
            let is_had = phase == GpuPhase::Available && pod_uid.is_some();
            Some(InstanceRecord {
                uuid,
                profile: non_empty(&instance.profile)?,
                memory_mb: instance.memory_mb.map(Whole::get),
                phase: if is_had { GpuPhase::Allocated } else { phase },
                pod_uid,
            })
        })
    }

    /// What the card draws more when a pod uses it than when nobody does, by its own curve and under its own limit; `None`
    /// where that was not measured, or cannot be.
    #[must_use]
    pub fn adds(&self) -> Option<Watts> {
        let power = self.status.as_ref()?.power.as_ref()?;
        let watts = |whole: Option<Whole>| Some(Watts::from_int(i32::try_from(whole?.get()).ok()?));
        let busy = watts(power.busy_watts)?;
        let most = watts(power.limit_watts).map_or(busy, |limit| busy.min(limit));
        // What is not known of an idle card is taken for nothing: then a pod adds more.
        let adds = most - watts(power.idle_watts).unwrap_or(Watts::ZERO).or_zero();
        (adds > Watts::ZERO).then_some(adds)
    }

    /// What placement may assume about the card.
    #[must_use]
    pub fn card(&self) -> GpuRecord<'_> {
        let spec = &self.spec;
        let status = self.status.as_ref();
        let allocated = status.and_then(|status| status.allocated_vram_mb).map(Whole::get);
        let mut phase =
            status.and_then(|status| status.phase.as_deref()).map_or(GpuPhase::Unknown, GpuPhase::read);
        let health = status.and_then(|status| status.health.as_deref());
        if spec.sliced == Some(true) || health.is_some_and(|health| health != HEALTHY) {
            phase = GpuPhase::Unknown;
        }
        let shares = matches!(spec.sharing.as_deref(), Some("time-slicing" | "mps"));
        // Of a card that no two pods share, nothing is left once a pod has some of it.
        if phase == GpuPhase::Available && !shares && allocated.is_some_and(|mb| mb > 0) {
            phase = GpuPhase::Allocated;
        }

        GpuRecord {
            node: &spec.node_name,
            uuid: non_empty(&spec.uuid),
            model: non_empty(&spec.model),
            vram: Vram::read(spec.total_vram_mb.map(Whole::get), allocated),
            island: spec.island.and_then(|island| u16::try_from(island.get()).ok()).map(Island),
            phase,
            vendor: spec.vendor.as_deref().and_then(GpuVendor::read),
            shares,
        }
    }
}

/// What a pod adds to a card of a node, from the phases of its cards and what a pod adds to each: the most of those that may
/// take pods, for nobody knows which of them it gets. `None` where one of them was not measured.
pub fn most_added(cards: impl Iterator<Item = (GpuPhase, Option<Watts>)>) -> Option<Watts> {
    let mut may_take = cards.filter(|(phase, _)| *phase != GpuPhase::Unknown).map(|(_, adds)| adds);
    let first = may_take.next()??;
    may_take.try_fold(first, |most, adds| Some(most.max(adds?)))
}

fn non_empty(text: &Option<String>) -> Option<&str> {
    text.as_deref().filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn gpu(spec: Value, status: Value) -> Gpu {
        let object = json!({"metadata": {"name": "x"}, "spec": spec, "status": status});
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn a_card_of_the_article_is_a_card() {
        // Fix list article G3.
        let mut spec = json!({"nodeName": "n", "uuid": "GPU-1", "model": "A100", "totalVRAMmb": 40960});
        let status = json!({"allocatedVRAMmb": 30000, "phase": "Available"});
        // Without a sharing mode one pod has the card alone.
        let alone = gpu(spec.clone(), status.clone());
        assert_eq!((alone.card().phase, alone.card().shares), (GpuPhase::Allocated, false));
        spec["sharing"] = json!("mps");
        let gpu = gpu(spec, status);
        let card = gpu.card();
        assert_eq!((card.node, card.uuid, card.model), ("n", Some("GPU-1"), Some("A100")));
        assert_eq!(card.vram.unwrap().free_mb(), Some(10960));
        assert_eq!((card.phase, card.island), (GpuPhase::Available, None));
    }

    #[test]
    fn what_a_pod_adds_to_a_card_is_by_its_own_curve_and_under_its_own_limit() {
        let adds = |power: Value| gpu(json!({"nodeName": "n"}), json!({"power": power})).adds();
        let of = |idle: i64, busy: i64, limit: i64| {
            adds(json!({"idleWatts": idle, "busyWatts": busy, "limitWatts": limit}))
        };
        assert_eq!(of(60, 410, 700), Some(Watts::from_int(350)));
        assert_eq!(of(60, 410, 200), Some(Watts::from_int(140)), "its limit holds it back");
        assert_eq!(adds(json!({"busyWatts": 410})), Some(Watts::from_int(410)));
        // It was never seen busy, or the numbers cannot be.
        for none in [json!(null), json!({}), json!({"idleWatts": 60, "limitWatts": 700})] {
            assert_eq!(adds(none.clone()), None, "{none}");
        }
        for [idle, busy, limit] in
            [[60, 50, 700], [60, 410, 40], [60, -1, 700], [60, i64::MAX, 700], [60, 410, -5]]
        {
            assert_eq!(of(idle, busy, limit), None, "{idle} {busy} {limit}");
        }
        assert_eq!(of(-60, 410, 700), Some(Watts::from_int(410)));
    }

    #[test]
    fn of_a_node_the_card_counts_to_which_a_pod_adds_most() {
        use GpuPhase::{Allocated, Available, Unknown};
        let adds = |cards: &[(GpuPhase, Option<i32>)]| {
            most_added(cards.iter().map(|(phase, watts)| (*phase, watts.map(Watts::from_int))))
        };
        assert_eq!(adds(&[(Available, Some(240)), (Allocated, Some(350))]), Some(Watts::from_int(350)));
        // Cards that take no pod do not count, and one that was not measured leaves the node to the estimate.
        assert_eq!(
            adds(&[(Unknown, Some(900)), (Available, Some(240)), (Unknown, None)]),
            Some(Watts::from_int(240))
        );
        assert_eq!(adds(&[(Available, Some(240)), (Available, None)]), None);
        assert_eq!(adds(&[(Available, None), (Available, Some(240))]), None);
        assert_eq!((adds(&[]), adds(&[(Unknown, Some(240))])), (None, None));
    }

    #[test]
    fn whatever_is_not_certain_is_unknown() {
        let full = json!({"nodeName": "n", "model": "A100", "totalVRAMmb": 40960});
        let free = json!({"allocatedVRAMmb": 0, "phase": "Available"});
        let unwritten = gpu(full.clone(), Value::Null);
        assert_eq!((unwritten.card().phase, unwritten.card().vram), (GpuPhase::Unknown, None));
        assert_eq!(gpu(full.clone(), json!({"phase": "Reserved"})).card().phase, GpuPhase::Unknown);
        assert_eq!(gpu(json!({"nodeName": "n", "model": ""}), free.clone()).card().model, None);
        let mut sliced = full.clone();
        sliced["sliced"] = json!(true);
        assert_eq!(gpu(sliced, free.clone()).card().phase, GpuPhase::Unknown);
        let mut ill = free.clone();
        ill["health"] = json!("Unknown");
        assert_eq!(gpu(full.clone(), ill.clone()).card().phase, GpuPhase::Unknown);
        ill["health"] = json!("Healthy");
        assert_eq!(gpu(full.clone(), ill).card().phase, GpuPhase::Available);
        let instances = json!([{"uuid": "MIG-1", "profile": "1g.10gb", "memoryMb": 9856}, {"uuid": "MIG-2", "profile": "1g.10gb"},
                               {"uuid": "MIG-3", "profile": "2g.20gb"}, {"profile": "none"}, {"uuid": "MIG-4"}]);
        let mut cut = full.clone();
        (cut["sliced"], cut["instances"]) = (json!(true), instances);
        let mut said = free.clone();
        said["instances"] = json!([{"uuid": "MIG-1", "phase": "Available"}, {"uuid": "MIG-2", "phase": "Available", "podUID": "u"},
                                   {"uuid": "MIG-9", "phase": "Available"}]);
        let phases = |spec: &Value, status: &Value| {
            let gpu = gpu(spec.clone(), status.clone());
            gpu.instances().map(|one| (one.uuid.to_owned(), one.phase)).collect::<Vec<_>>()
        };
        let of = |uuid: &str, phase| (uuid.to_owned(), phase);
        assert_eq!(
            phases(&cut, &said),
            [
                of("MIG-1", GpuPhase::Available),
                of("MIG-2", GpuPhase::Allocated),
                of("MIG-3", GpuPhase::Unknown)
            ]
        );
        said["instances"][2]["uuid"] = json!("MIG-1");
        assert_eq!(phases(&cut, &said)[0], of("MIG-1", GpuPhase::Unknown), "said twice");
        said["health"] = json!("Unknown");
        assert_eq!(phases(&cut, &said), []);
        cut["sliced"] = json!(false);
        assert_eq!(phases(&cut, &free), []);
        let mut odd = full;
        odd["island"] = json!(-1);
        assert_eq!(gpu(odd, free).card().island, None);
    }
}
