//! A model of kube-scheduler: which nodes fit a pod, and how many points each of them has there.
//!
//! It follows the source of 1.36.3, with the weights of the default profile:
//!
//! | plugin | weight | points of a node, 0 to 100 |
//! |---|---|---|
//! | NodeResourcesFit, LeastAllocated | 1 | the mean over processors and memory of 100 × what is left after the pod ÷ allocatable, each rounded down |
//! | NodeResourcesFit, MostAllocated | 1 | the mean, by weights, of 100 × what is requested after the pod ÷ allocatable |
//! | NodeResourcesBalancedAllocation | 1 | 50 + (50 + balance with the pod − balance without it) ÷ 2, where balance is 100 − 50 × the difference of the shares of processors and memory |
//! | TaintToleration | 3 | 100 − 100 × taints that the pod should avoid ÷ the most that a candidate has |
//!
//! NodeResourcesFit counts 100 thousandths of a core and 200 MiB for a container that requests none; the filter and
//! NodeResourcesBalancedAllocation count what is requested. A pod without requests is not scored by the latter. An
//! extended resource counts in NodeResourcesFit only where it has a weight, the node has it and the pod requests it.
//!
//! All nodes with the most points are equal: kube-scheduler draws one of them, so a model can only say that a node is
//! *among the best*. kube-scheduler computes balance in floating point, this computes it exactly: where balance is a
//! whole number in theory, the two may differ by one point before the halving.
//!
//! Left out: affinity, spread, images, volumes, claims, ports, and the extender. A bare pod without owners on nodes
//! without images has the same points from all of these on every node.

/// What a pod requests, or a node has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amounts {
    /// Thousandths of a core.
    pub cpu_milli: u64,
    /// Bytes of memory.
    pub memory_bytes: u64,
    /// GPUs, or another extended resource.
    pub gpus: u64,
}

impl Amounts {
    /// Both together.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self {
            cpu_milli: self.cpu_milli.saturating_add(other.cpu_milli),
            memory_bytes: self.memory_bytes.saturating_add(other.memory_bytes),
            gpus: self.gpus.saturating_add(other.gpus),
        }
    }

    /// What is left of this.
    #[must_use]
    pub const fn minus(self, other: Self) -> Self {
        Self {
            cpu_milli: self.cpu_milli.saturating_sub(other.cpu_milli),
            memory_bytes: self.memory_bytes.saturating_sub(other.memory_bytes),
            gpus: self.gpus.saturating_sub(other.gpus),
        }
    }
}

/// What kube-scheduler counts for a container without a request.
const CPU_MILLI_LEAST: u64 = 100;
/// The same of memory.
const MEMORY_BYTES_LEAST: u64 = 200 << 20;

/// A pod as kube-scheduler counts it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScheduledPod {
    /// What its containers request.
    pub requests: Amounts,
    /// The same, with the least that counts for a container that requests nothing.
    pub counted: Amounts,
}

impl ScheduledPod {
    /// A pod without containers; they are added by [`Self::with`].
    pub const EMPTY: Self = Self {
        requests: Amounts { cpu_milli: 0, memory_bytes: 0, gpus: 0 },
        counted: Amounts { cpu_milli: 0, memory_bytes: 0, gpus: 0 },
    };

    /// The pod with one more container; `None` is a request that is not made.
    #[must_use]
    pub fn with(self, cpu_milli: Option<u64>, memory_bytes: Option<u64>, gpus: u64) -> Self {
        let said = |cpu, memory| Amounts { cpu_milli: cpu, memory_bytes: memory, gpus };
        let requests = said(cpu_milli.unwrap_or(0), memory_bytes.unwrap_or(0));
        let counted = said(cpu_milli.unwrap_or(CPU_MILLI_LEAST), memory_bytes.unwrap_or(MEMORY_BYTES_LEAST));
        Self { requests: self.requests.plus(requests), counted: self.counted.plus(counted) }
    }
}

/// A node as kube-scheduler counts it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScheduledNode {
    /// What pods can have.
    pub allocatable: Amounts,
    /// How many pods it may have.
    pub pods_max: u32,
    /// How many it has.
    pub pods: u32,
    /// What they request.
    pub requested: Amounts,
    /// The same, as [`ScheduledPod::counted`].
    pub counted: Amounts,
    /// Taints `PreferNoSchedule` that the pod in question does not tolerate.
    pub avoided: u32,
}

impl ScheduledNode {
    /// An empty node.
    #[must_use]
    pub const fn empty(allocatable: Amounts, pods_max: u32) -> Self {
        let nothing = Amounts { cpu_milli: 0, memory_bytes: 0, gpus: 0 };
        Self { allocatable, pods_max, pods: 0, requested: nothing, counted: nothing, avoided: 0 }
    }

    /// Whether the filter of NodeResourcesFit lets the pod pass.
    #[must_use]
    pub const fn fits(&self, pod: &ScheduledPod) -> bool {
        let left = self.allocatable.minus(self.requested);
        let asks = pod.requests;
        self.pods < self.pods_max
            && asks.cpu_milli <= left.cpu_milli
            && asks.memory_bytes <= left.memory_bytes
            && asks.gpus <= left.gpus
    }

    /// A pod was bound.
    pub const fn bind(&mut self, pod: &ScheduledPod) {
        self.pods = self.pods.saturating_add(1);
        self.requested = self.requested.plus(pod.requests);
        self.counted = self.counted.plus(pod.counted);
    }

    /// A pod has gone.
    pub const fn release(&mut self, pod: &ScheduledPod) {
        self.pods = self.pods.saturating_sub(1);
        self.requested = self.requested.minus(pod.requests);
        self.counted = self.counted.minus(pod.counted);
    }
}

/// `scoringStrategy.type` of NodeResourcesFit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FitStrategy {
    /// The emptiest node is the best.
    LeastAllocated,
    /// The fullest node is the best.
    MostAllocated,
}

/// What of a profile of kube-scheduler the model has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SchedulerProfile {
    /// How NodeResourcesFit scores.
    pub strategy: FitStrategy,
    /// The weights of processors, memory and GPUs there; zero for a resource that does not count.
    pub weights: [u32; 3],
    /// The weight of NodeResourcesBalancedAllocation.
    pub balance: u32,
}

const TAINT_WEIGHT: u64 = 3;

impl SchedulerProfile {
    /// The default profile.
    pub const DEFAULT: Self = Self { strategy: FitStrategy::LeastAllocated, weights: [1, 1, 0], balance: 1 };
    /// MostAllocated of processors and memory, otherwise the default.
    pub const PACKING: Self = Self { strategy: FitStrategy::MostAllocated, ..Self::DEFAULT };

    /// The points of a node by its resources, those of TaintToleration left out: 0 to 100 for each weight.
    #[must_use]
    #[inline]
    pub fn resources(&self, node: &ScheduledNode, pod: &ScheduledPod) -> u64 {
        let balance = match pod.requests.cpu_milli == 0 && pod.requests.memory_bytes == 0 {
            true => 0,
            false => balance_points(node, pod),
        };
        self.fit(node, pod).saturating_add(balance.saturating_mul(u64::from(self.balance)))
    }

    /// The points of NodeResourcesFit.
    #[inline]
    fn fit(&self, node: &ScheduledNode, pod: &ScheduledPod) -> u64 {
        let after = node.counted.plus(pod.counted);
        let [cpu, memory, gpus] = self.weights;
        let gpus = if pod.requests.gpus == 0 { 0 } else { gpus };
        let all = [
            (after.cpu_milli, node.allocatable.cpu_milli, cpu),
            (after.memory_bytes, node.allocatable.memory_bytes, memory),
            (node.requested.gpus.saturating_add(pod.requests.gpus), node.allocatable.gpus, gpus),
        ];
        let (mut sum, mut weights) = (0_u64, 0_u64);
        for (requested, capacity, weight) in all.into_iter().filter(|(_, capacity, _)| *capacity > 0) {
            let part = match self.strategy {
                FitStrategy::LeastAllocated => capacity.saturating_sub(requested),
                FitStrategy::MostAllocated => requested.min(capacity),
            };
            let points = part.saturating_mul(100).checked_div(capacity).unwrap_or(0);
            sum = sum.saturating_add(points.saturating_mul(u64::from(weight)));
            weights = weights.saturating_add(u64::from(weight));
        }
        sum.checked_div(weights).unwrap_or(0)
    }

    /// All points of a node, where `avoided_most` is the most of [`ScheduledNode::avoided`] of all candidates.
    #[must_use]
    pub fn total(&self, node: &ScheduledNode, pod: &ScheduledPod, avoided_most: u32) -> u64 {
        let avoided = u64::from(node.avoided).saturating_mul(100).checked_div(u64::from(avoided_most));
        let taints = 100_u64.saturating_sub(avoided.unwrap_or(0)).saturating_mul(TAINT_WEIGHT);
        self.resources(node, pod).saturating_add(taints)
    }

    /// The most points that a node has where the pod fits; `None` where it fits nowhere. kube-scheduler takes any of the
    /// nodes that have as many.
    #[must_use]
    pub fn best<'n>(
        &self,
        nodes: impl Iterator<Item = &'n ScheduledNode> + Clone,
        pod: &ScheduledPod,
    ) -> Option<Best> {
        let fitting = nodes.filter(|node| node.fits(pod));
        let avoided_most = fitting.clone().map(|node| node.avoided).max()?;
        let total = fitting.map(|node| self.total(node, pod, avoided_most)).max()?;
        Some(Best { total, avoided_most })
    }

    /// Whether a node is one of those that kube-scheduler may take.
    #[must_use]
    pub fn may_take(&self, node: &ScheduledNode, pod: &ScheduledPod, best: Best) -> bool {
        node.fits(pod) && self.total(node, pod, best.avoided_most) == best.total
    }
}

/// What the best of all candidates have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Best {
    /// Their points.
    pub total: u64,
    /// The most taints to be avoided that a candidate has.
    pub avoided_most: u32,
}

/// The points of NodeResourcesBalancedAllocation.
#[inline]
fn balance_points(node: &ScheduledNode, pod: &ScheduledPod) -> u64 {
    let with = balance(node.allocatable, node.requested.plus(pod.requests));
    let without = balance(node.allocatable, node.requested);
    // Balance is from 50 to 100, so the difference is from −50 to 50.
    50_u64.saturating_add(50_u64.saturating_add(with).saturating_sub(without) >> 1)
}

/// 100 − 50 × the difference of two shares, rounded down; 100 where the node has but one of the resources.
fn balance(allocatable: Amounts, requested: Amounts) -> u64 {
    let (cpu, memory) = (u128::from(allocatable.cpu_milli), u128::from(allocatable.memory_bytes));
    if cpu == 0 || memory == 0 {
        return 100;
    }
    // Both shares over cpu × memory; a share above one counts as one.
    let of_cpu = u128::from(requested.cpu_milli).min(cpu).saturating_mul(memory);
    let of_memory = u128::from(requested.memory_bytes).min(memory).saturating_mul(cpu);
    let whole = cpu.saturating_mul(memory);
    let apart = of_cpu.abs_diff(of_memory).saturating_mul(50);
    // Rounded up, so that what is left is rounded down.
    let lost = apart.saturating_add(whole.saturating_sub(1)).checked_div(whole).unwrap_or(0);
    100_u64.saturating_sub(u64::try_from(lost).unwrap_or(100))
}

#[cfg(test)]
mod tests;
