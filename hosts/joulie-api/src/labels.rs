//! All labels, annotations and taints that Joulie reads or writes, and their values. Other code takes them from here.

/// The API group of all of Joulie's kinds except GPU.
pub const GROUP: &str = "joulie.io";

/// The Lease that the leader renews after each complete pass.
pub const PLAN_LEASE: &str = "joulie-plan";

/// Annotations of the Lease [`PLAN_LEASE`].
pub mod plan {
    /// Whether workloads are classified: [`ON`] or [`OFF`].
    pub const CLASSIFIER: &str = "joulie.io/classifier";
    /// They are.
    pub const ON: &str = "on";
    /// They are not, so that nobody maintains their profiles.
    pub const OFF: &str = "off";
}

/// The Lease by which the operators elect their leader.
pub const LEADER_LEASE: &str = "joulie-operator";

/// The annotation of the plan's Lease that asks for the release of nodes.
pub const RELEASE: &str = "joulie.io/release";
/// Its value: every node. No other value is accepted.
pub const RELEASE_ALL: &str = "all";

/// The value of a label or annotation that is set.
pub const TRUE: &str = "true";
/// The value of a label or annotation that is denied.
pub const FALSE: &str = "false";

/// Labels on nodes.
pub mod node {
    /// `performance` or `eco`: what the node offers.
    pub const POWER_PROFILE: &str = "joulie.io/power-profile";
    /// `true` while performance pods still run on a node that becomes an eco node.
    pub const DRAINING: &str = "joulie.io/draining";
    /// `true`: Joulie plans for the node, and its agent runs there.
    pub const MANAGED: &str = "joulie.io/managed";
    /// `true`: a person keeps the node out of every plan.
    pub const RESERVED: &str = "joulie.io/reserved";
    /// The rack that the node is in.
    pub const RACK: &str = "joulie.io/rack";
    /// The cooling zone that the node is in.
    pub const COOLING_ZONE: &str = "joulie.io/cooling-zone";
    /// `observe`: limits only count the node, and it is granted nothing.
    pub const BUDGET_MODE: &str = "joulie.io/budget-mode";
    /// The taint of a node that is under a limit and is not confirmed to keep to its grant.
    pub const UNCAPPED: &str = "joulie.io/uncapped";
    /// `true`: the node may sleep while it is empty.
    pub const SLEEP: &str = "joulie.io/sleep";
    /// A label or an annotation of a person: the node never sleeps, whatever it says, except `false`.
    pub const NEVER_SLEEP: &str = "joulie.io/never-sleep";
    /// The taint of a node on its way to sleep or back.
    pub const SLEEPING: &str = "joulie.io/sleeping";
    /// The annotation with what the operator does about the node's sleep: the phase, since when, and the boot in which it
    /// was closed.
    pub const SLEEP_STATE: &str = "joulie.io/sleep-state";
    /// The CPU model, set by a person.
    pub const CPU_MODEL: &str = "joulie.io/hw.cpu-model";
    /// The number of packages, set by a person.
    pub const CPU_SOCKETS: &str = "joulie.io/hw.cpu-sockets";
    /// The GPU model, set by a person.
    pub const GPU_MODEL: &str = "joulie.io/hw.gpu-model";
    /// The number of GPUs, set by a person.
    pub const GPU_COUNT: &str = "joulie.io/hw.gpu-count";
    /// The CPU model, set by node-feature-discovery.
    pub const NFD_CPU_MODEL: &str = "feature.node.kubernetes.io/cpu-model.name";
    /// The number of packages, set by node-feature-discovery.
    pub const NFD_CPU_SOCKETS: &str = "feature.node.kubernetes.io/cpu-sockets";
    /// The maker of the processors, set by node-feature-discovery; the first label that exists counts.
    pub const NFD_CPU_VENDORS: [&str; 2] =
        ["feature.node.kubernetes.io/cpu-vendor", "feature.node.kubernetes.io/cpu-model.vendor_id"];
    /// The prefix of node-feature-discovery's labels for PCI devices; class, vendor and `.present` follow.
    pub const NFD_PCI: &str = "feature.node.kubernetes.io/pci-";
    /// The instance type, which is used if the CPU model is not known.
    pub const INSTANCE_TYPE: &str = "beta.kubernetes.io/instance-type";
    /// The GPU product, in the order in which the labels are read.
    pub const GPU_PRODUCTS: [&str; 4] =
        ["joulie.io/gpu.product", "nvidia.com/gpu.product", "amd.com/gpu.product", "amd.com/gpu.family"];
}

/// Annotations on pods.
pub mod pod {
    /// `performance` or `standard`.
    pub const WORKLOAD_CLASS: &str = "joulie.io/workload-class";
    /// Until when the pod may be kept waiting while a limit is lowered, RFC 3339.
    pub const DEFERRABLE_UNTIL: &str = "joulie.io/deferrable-until";
    /// `true`: the pod may be restarted elsewhere.
    pub const RESCHEDULABLE: &str = "joulie.io/reschedulable";
    /// What a simulated pod does: its use of processors and of GPUs, and how full its memory is, in percent.
    pub const SIMULATED: [&str; 3] =
        ["sim.joulie.io/cpu-util-pct", "sim.joulie.io/gpu-util-pct", "sim.joulie.io/memory-pressure-pct"];
    /// The GPU model that every card of the pod must be of.
    pub const GPU_MODEL: &str = "gpu-extender.mle.com/model";
    /// The VRAM in MB that the pod takes of each card.
    pub const GPU_VRAM_MB: &str = "gpu-extender.mle.com/vram-mb";
    /// Whether the pod's cards must be joined by links: required, preferred or none.
    pub const GPU_LINK: &str = "gpu-extender.mle.com/link";
    /// Which nodes the pod prefers: pack or spread.
    pub const GPU_PACKING: &str = "gpu-extender.mle.com/packing";
    /// The UUIDs of the cards that the extender took for the pod when it bound it. It is written by bind.
    pub const GPU_CARDS: &str = "gpu-extender.mle.com/cards";
}

/// Annotations on a NodePowerProfile whose caps a person has set for a time, by `kubectl joulie cap`.
pub mod cap {
    /// When the caps end, RFC 3339: the operator then takes them off. What is no time means no end.
    pub const UNTIL: &str = "joulie.io/cap-until";
    /// Who asked for them, as the API server knows them.
    pub const BY: &str = "joulie.io/cap-by";
    /// Why, in the person's own words.
    pub const REASON: &str = "joulie.io/cap-reason";
}

/// Annotations on the controllers of pods.
pub mod owner {
    /// The class that the node offered from which a pod was last evicted.
    pub const LAST_EVICTION_FROM_CLASS: &str = "joulie.io/last-eviction-from-class";
    /// Why it was evicted.
    pub const LAST_EVICTION_REASON: &str = "joulie.io/last-eviction-reason";
    /// When, RFC 3339.
    pub const LAST_EVICTION_TIME: &str = "joulie.io/last-eviction-time";
    /// The node.
    pub const LAST_EVICTION_FROM_NODE: &str = "joulie.io/last-eviction-from-node";
}

/// Labels on objects of Joulie's own.
pub mod object {
    /// The component that manages the object.
    pub const MANAGED_BY: &str = "joulie.io/managed-by";
    /// The operator manages it.
    pub const BY_OPERATOR: &str = "operator";
    /// An agent manages it.
    pub const BY_AGENT: &str = "agent";
    /// The PowerBudget that the node of a grant is in. It counts where the Node object is gone.
    pub const POWER_BUDGET: &str = "joulie.io/power-budget";
    /// The pod that a WorkloadProfile is about, if it is about one pod.
    pub const POD_NAME: &str = "joulie.io/pod-name";
    /// The node that the workload of a WorkloadProfile runs on, if it is one.
    pub const NODE_NAME: &str = "joulie.io/node-name";
}

/// The field managers of server-side apply, one for each component.
pub mod manager {
    /// The operator.
    pub const OPERATOR: &str = "joulie-operator";
    /// The classifier in the operator. It has a name of its own, because an apply drops what its manager owned and does
    /// not repeat: the operator's other writers own other fields of the same objects.
    pub const CLASSIFIER: &str = "joulie-classifier";
    /// The agents.
    pub const AGENT: &str = "joulie-agent";
    /// The extender.
    pub const EXTENDER: &str = "joulie-extender";
    /// A person, by `kubectl joulie`.
    pub const KUBECTL: &str = "kubectl-joulie";
}

/// Whether a label or annotation is `true`. Case and surrounding space do not matter: a typing mistake must not put a
/// reserved node back into the plan.
#[must_use]
pub fn is_true(value: Option<&str>) -> bool {
    value.is_some_and(|value| value.trim().eq_ignore_ascii_case(TRUE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_of_the_pen_is_still_true() {
        // Fix list operator B39: `True` reserves a node.
        for text in ["true", "True", " TRUE "] {
            assert!(is_true(Some(text)), "{text:?}");
        }
        for text in ["", "false", "1", "yes", "truely"] {
            assert!(!is_true(Some(text)), "{text:?}");
        }
        assert!(!is_true(None));
    }
}
