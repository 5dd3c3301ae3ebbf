//! Marginal power: how many watts a pod will add to a node.
//!
//! ```text
//! cpu = coefficient × share of the cores × watts of all cores × memory factor
//! gpu = coefficient × GPUs × watts of one GPU
//!     = GPUs × what a pod adds to one GPU, where that was measured, and at most the watts of one GPU
//! ```
//!
//! Values that a hardware record lacks are replaced by fallbacks; a node *without* a record gets no marginal power.
//! The pod's GPUs, parts of GPUs included, are bounded by those of the node, and the pod's vendor must be the node's. Watts here are the
//! node's own: the facility's overhead (PUE) is part of the score.
//!
//! Each node is compiled to [`HardwareTerms`] once and each pod to [`DemandTerms`], so that a pair costs a few
//! multiplications and no division. The watts of a pod are demand, so every step rounds up: the result is never
//! below the exact formula, and less than 10⁻⁶ W above it.

use super::demand::{GpuVendor, PodDemand, WHOLE_GPU};
use super::wide::scaled;
use power_units::{Role, Watts};

mod coefficients;

pub use coefficients::{CoefficientError, CoefficientSetting, Coefficients};

/// The content of a node's `NodeHardware` record. Watts of zero or less count as missing.
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
    /// An empty record: the node counts as one core.
    pub const EMPTY: Self = Self { cpu_max: None, cores: None, gpus: None };

    /// `capRange.maxWattsPerSocket` over all sockets; a record without a number of sockets counts as one socket.
    #[must_use]
    pub fn packages(max_per_socket: Watts, sockets: Option<u32>) -> Watts {
        max_per_socket.times(sockets.unwrap_or(1).max(1))
    }

    /// The most that the CPUs and the GPUs draw together. A missing value adds nothing, so that a pod counts more
    /// on such a node and not less. `None` where the record has no watts at all.
    pub(crate) fn most(&self) -> Option<Watts> {
        let gpus = self.gpus.and_then(|gpus| Some(positive(gpus.max)?.times(gpus.count?)));
        positive(Some(self.cpu_max.map_or(Watts::ZERO, Watts::or_zero) + gpus.unwrap_or(Watts::ZERO)))
    }
}

/// A node's GPUs, all of one model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeGpus {
    /// How many, if the record contains the number.
    pub count: Option<u32>,
    /// The most that one draws.
    pub max: Option<Watts>,
    /// The vendor, if known.
    pub vendor: Option<GpuVendor>,
    /// What one draws more when a pod uses it than when nobody does, under its cap; `None` where it was not measured.
    pub adds: Option<Watts>,
}

/// Watts per core where a record has no watts, and the minimum for a node in that case.
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
    /// The watts of its cores, memory included.
    pub cpu: Watts,
    /// The watts of its GPUs.
    pub gpu: Watts,
}

impl PodEstimate {
    /// No watts, as on a node with unknown hardware.
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
    /// The watts of all cores times the coefficient, in 2⁻³² W.
    cpu: u64,
    /// The fraction of the cores that a thousandth of a core is, in 2⁻⁶³.
    milli_part: u64,
    /// The watts of one GPU, in 2⁻³² W; zero where the record does not contain them.
    gpu: u64,
    cores_milli: u32,
    gpus: u16,
    /// The watts of one GPU are what a pod adds, and not the most that it draws.
    gpu_is_measured: bool,
    vendor: Option<GpuVendor>,
}

impl HardwareTerms {
    /// The hardware is unknown: no pod adds anything.
    pub const UNKNOWN: Self =
        Self { cpu: 0, milli_part: 0, gpu: 0, cores_milli: 0, gpus: 0, gpu_is_measured: false, vendor: None };

    /// Compiles a record.
    #[must_use]
    pub fn of(hardware: Option<&HardwareRecord>, coefficients: &Coefficients) -> Self {
        let Some(hardware) = hardware else { return Self::UNKNOWN };
        let known_cores = hardware.cores.unwrap_or(0);
        let cores_milli = known_cores.max(1).saturating_mul(1000);
        let fallback = CPU_WATTS_PER_CORE.times(known_cores).max(CPU_WATTS_MIN);
        let cpu_max = positive(hardware.cpu_max).unwrap_or(fallback);
        // Rounded up, as all demand.
        let milli_part = (1_u64 << 63).div_ceil(u64::from(cores_milli).max(1));
        let gpus = hardware.gpus.map_or(0, |gpus| gpus.count.map_or(u16::MAX, count));
        let max = hardware.gpus.and_then(|gpus| positive(gpus.max));
        let adds = hardware.gpus.and_then(|gpus| positive(gpus.adds));
        // No pod adds more to a GPU than it draws at most, whatever an object says.
        let adds = adds.map(|adds| max.map_or(adds, |max| adds.min(max)));
        let gpu_is_measured = adds.is_some();
        let gpu = adds.or(max).map_or(0, bits);
        let vendor = hardware.gpus.and_then(|gpus| gpus.vendor);
        let cpu = coefficients.of_cpu(bits(cpu_max));
        Self { cpu, milli_part, gpu, cores_milli, gpus, gpu_is_measured, vendor }
    }

    /// The watts that the pod adds.
    #[must_use]
    #[inline]
    pub fn estimate(&self, pod: &DemandTerms) -> PodEstimate {
        PodEstimate { cpu: self.cpu_of(pod), gpu: self.gpu_of(pod) }
    }

    #[inline]
    fn cpu_of(&self, pod: &DemandTerms) -> Watts {
        let milli = u64::from(pod.cpu_milli.min(self.cores_milli));
        // At most 2⁶³ plus the number of thousandths, because the fraction was rounded up.
        let share = milli.wrapping_mul(self.milli_part);
        watts(scaled(scaled(self.cpu, share, 63, Role::Demand), pod.memory_factor, 62, Role::Demand))
    }

    #[inline]
    fn gpu_of(&self, pod: &DemandTerms) -> Watts {
        if pod.gpu_quarters == 0 {
            return Watts::ZERO;
        }
        let mismatch = self.vendor.is_some_and(|vendor| Some(vendor) != pod.gpu_vendor);
        let quarters = pod.gpu_quarters.min(u32::from(self.gpus).saturating_mul(WHOLE_GPU));
        if quarters == 0 || mismatch {
            return Watts::ZERO;
        }
        let each = if self.gpu > 0 { self.gpu } else { pod.gpu_fallback };
        // Sixteen more bits than a watt has, so that the number of quarters does not multiply a rounding error.
        let coefficient = if self.gpu_is_measured { ONE_COEFFICIENT } else { pod.gpu_coefficient };
        let each = u128::from(each).wrapping_mul(u128::from(coefficient));
        let each = each.wrapping_add((1 << 46) - 1) >> 46;
        let all = each.wrapping_mul(u128::from(quarters)).wrapping_add((1 << 18) - 1) >> 18;
        watts(u64::try_from(all).unwrap_or(u64::MAX))
    }
}

/// One, in the unit of [`DemandTerms`].
const ONE_COEFFICIENT: u64 = 1 << 62;

/// A pod's part of the estimate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DemandTerms {
    cpu_milli: u32,
    /// Whole GPUs and parts of them.
    gpu_quarters: u32,
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
        let whole = demand.gpus.map_or(0, |gpus| gpus.count.saturating_mul(WHOLE_GPU));
        let of_parts = (demand.gpu_quarters > 0).then_some(GpuVendor::Nvidia);
        let vendor = demand.gpus.map(|gpus| gpus.vendor).or(of_parts);
        Self {
            cpu_milli: demand.cpu.get(),
            gpu_quarters: whole.saturating_add(demand.gpu_quarters),
            memory_factor: coefficients.memory_factor(demand.memory_bytes),
            gpu_coefficient: coefficients.of_gpu(demand.class),
            gpu_fallback: vendor.map_or(0, |vendor| bits(gpu_watts_fallback(vendor))),
            gpu_vendor: vendor,
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

/// No node has more GPUs than sixteen bits can count, so the largest value means no bound.
fn count(gpus: u32) -> u16 {
    u16::try_from(gpus).unwrap_or(u16::MAX)
}

#[cfg(test)]
pub(crate) mod tests;
