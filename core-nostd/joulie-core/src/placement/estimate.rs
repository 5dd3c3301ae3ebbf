//! Marginal power: how many watts a pod will add to a node.
//!
//! ```text
//! cpu = coefficient × share of the cores × watts of all cores × memory factor
//! gpu = coefficient × GPUs × watts of one GPU
//! ```
//!
//! What a hardware record does not say is replaced by a fallback; a node *without* a record gets no marginal power.
//! The GPUs that count are bounded by those the node has, and a pod's vendor must be the node's.
//! Watts here are the node's own: what the facility adds (PUE) is weighed in the score.
//!
//! Each node is compiled to [`HardwareTerms`] once and each pod to [`DemandTerms`], so that a pair costs a few
//! multiplications and no division. The watts of a pod are demand, so every step rounds up: the result is never below the
//! exact formula, and less than 10⁻⁶ W above it.

use super::demand::{GpuVendor, PodDemand};
use super::wide::scaled;
use power_units::{Role, Watts};

mod coefficients;

pub use coefficients::{CoefficientError, CoefficientSetting, Coefficients};

/// What a node's `NodeHardware` record says. Zero watts or less say nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HardwareRecord {
    /// The most that all packages together draw.
    pub cpu_max: Option<Watts>,
    /// Cores over all packages.
    pub cores: Option<u32>,
    /// The GPUs, if there are any.
    pub gpus: Option<NodeGpus>,
}

impl HardwareRecord {
    /// A record that says nothing: one core, as far as anybody knows.
    pub const EMPTY: Self = Self { cpu_max: None, cores: None, gpus: None };

    /// `capRange.maxWattsPerSocket` over all sockets; a record that does not say how many has one.
    #[must_use]
    pub fn packages(max_per_socket: Watts, sockets: Option<u32>) -> Watts {
        max_per_socket.times(sockets.unwrap_or(1).max(1))
    }

    /// The most that the CPUs and the GPUs draw together. What the record does not say adds nothing, so that a pod
    /// weighs more on such a node and not less; nothing where it says no watts at all.
    pub(crate) fn most(&self) -> Option<Watts> {
        let gpus = self.gpus.and_then(|gpus| Some(positive(gpus.max)?.times(gpus.count?)));
        positive(Some(self.cpu_max.map_or(Watts::ZERO, Watts::or_zero) + gpus.unwrap_or(Watts::ZERO)))
    }
}

/// A node's GPUs, all of one model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeGpus {
    /// How many, where the record says more than that there are some.
    pub count: Option<u32>,
    /// The most that one draws.
    pub max: Option<Watts>,
    /// Whose, if known.
    pub vendor: Option<GpuVendor>,
}

/// Watts per core where a record has no watts, and the least that a node is then taken for.
const CPU_WATTS_PER_CORE: Watts = Watts::from_bits(7 << 31);
const CPU_WATTS_MIN: Watts = Watts::from_int(150);

/// Watts of a GPU where a record has none.
const fn gpu_watts_fallback(vendor: GpuVendor) -> Watts {
    match vendor {
        GpuVendor::Nvidia | GpuVendor::Intel => Watts::from_int(350),
        GpuVendor::Amd => Watts::from_int(400),
    }
}

/// The watts that a pod adds to a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PodEstimate {
    /// By its cores, memory included.
    pub cpu: Watts,
    /// By its GPUs.
    pub gpu: Watts,
}

impl PodEstimate {
    /// Nothing, as on a node whose hardware nobody knows.
    pub const NONE: Self = Self { cpu: Watts::ZERO, gpu: Watts::ZERO };

    /// Both together.
    #[must_use]
    #[inline]
    pub fn total(self) -> Watts {
        self.cpu + self.gpu
    }
}

/// A node's part of the estimate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct HardwareTerms {
    /// What all cores add under the coefficient, in 2⁻³² W.
    cpu: u64,
    /// What part of the cores a thousandth of a core is, in 2⁻⁶³.
    milli_part: u64,
    /// What one GPU draws, in 2⁻³² W; zero where the record does not say.
    gpu: u64,
    cores_milli: u32,
    gpus: u16,
    vendor: Option<GpuVendor>,
}

impl HardwareTerms {
    /// Nothing is known of the hardware: no pod adds anything.
    pub const UNKNOWN: Self = Self { cpu: 0, milli_part: 0, gpu: 0, cores_milli: 0, gpus: 0, vendor: None };

    /// Compiles a record.
    #[must_use]
    pub fn of(hardware: Option<&HardwareRecord>, coefficients: &Coefficients) -> Self {
        let Some(hardware) = hardware else { return Self::UNKNOWN };
        let known_cores = hardware.cores.unwrap_or(0);
        let cores_milli = known_cores.max(1).saturating_mul(1000);
        let fallback = CPU_WATTS_PER_CORE.times(known_cores).max(CPU_WATTS_MIN);
        let cpu_max = positive(hardware.cpu_max).unwrap_or(fallback);
        // Rounded up, as demand is.
        let milli_part = (1_u64 << 63).div_ceil(u64::from(cores_milli).max(1));
        let gpus = hardware.gpus.map_or(0, |gpus| gpus.count.map_or(u16::MAX, count));
        let gpu = hardware.gpus.and_then(|gpus| positive(gpus.max)).map_or(0, bits);
        let vendor = hardware.gpus.and_then(|gpus| gpus.vendor);
        let cpu = coefficients.of_cpu(bits(cpu_max));
        Self { cpu, milli_part, gpu, cores_milli, gpus, vendor }
    }

    /// What the pod adds.
    #[must_use]
    #[inline]
    pub fn estimate(&self, pod: &DemandTerms) -> PodEstimate {
        PodEstimate { cpu: self.cpu_of(pod), gpu: self.gpu_of(pod) }
    }

    #[inline]
    fn cpu_of(&self, pod: &DemandTerms) -> Watts {
        let milli = u64::from(pod.cpu_milli.min(self.cores_milli));
        // At most 2⁶³ and as many as there are thousandths, because the part was rounded up.
        let share = milli.wrapping_mul(self.milli_part);
        watts(scaled(scaled(self.cpu, share, 63, Role::Demand), pod.memory_factor, 62, Role::Demand))
    }

    #[inline]
    fn gpu_of(&self, pod: &DemandTerms) -> Watts {
        let mismatch = self.vendor.is_some_and(|vendor| Some(vendor) != pod.gpu_vendor);
        let count = pod.gpus.min(u32::from(self.gpus));
        if count == 0 || mismatch {
            return Watts::ZERO;
        }
        let each = if self.gpu > 0 { self.gpu } else { pod.gpu_fallback };
        // Sixteen more bits than a watt has, so that the count does not multiply a rounding.
        let each = u128::from(each).wrapping_mul(u128::from(pod.gpu_coefficient));
        let each = each.wrapping_add((1 << 46) - 1) >> 46;
        let all = each.wrapping_mul(u128::from(count)).wrapping_add((1 << 16) - 1) >> 16;
        watts(u64::try_from(all).unwrap_or(u64::MAX))
    }
}

/// A pod's part of the estimate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DemandTerms {
    cpu_milli: u32,
    gpus: u32,
    /// In 2⁻⁶², from 1 to the most that memory adds.
    memory_factor: u64,
    /// In 2⁻⁶².
    gpu_coefficient: u64,
    /// In 2⁻³² W.
    gpu_fallback: u64,
    gpu_vendor: Option<GpuVendor>,
}

impl DemandTerms {
    /// Compiles a pod.
    #[must_use]
    pub fn of(demand: &PodDemand, coefficients: &Coefficients) -> Self {
        let gpus = demand.gpus;
        Self {
            cpu_milli: demand.cpu.get(),
            gpus: gpus.map_or(0, |gpus| gpus.count),
            memory_factor: coefficients.memory_factor(demand.memory_bytes),
            gpu_coefficient: coefficients.of_gpu(demand.class),
            gpu_fallback: gpus.map_or(0, |gpus| bits(gpu_watts_fallback(gpus.vendor))),
            gpu_vendor: gpus.map(|gpus| gpus.vendor),
        }
    }
}

fn positive(watts: Option<Watts>) -> Option<Watts> {
    watts.filter(|&watts| watts > Watts::ZERO)
}

/// Watts that are not negative, in 2⁻³² W.
fn bits(watts: Watts) -> u64 {
    u64::try_from(watts.to_bits()).unwrap_or(0)
}

#[inline]
fn watts(bits: u64) -> Watts {
    Watts::from_bits(i64::try_from(bits).unwrap_or(i64::MAX))
}

/// No node has more GPUs than sixteen bits count, so the largest is as good as no bound.
fn count(gpus: u32) -> u16 {
    u16::try_from(gpus).unwrap_or(u16::MAX)
}

#[cfg(test)]
pub(crate) mod tests;
