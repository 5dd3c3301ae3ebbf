//! A node's power without a meter: estimated from what runs on it, or from its caps alone.
//!
//! The *utilisation model* is a straight line from idle to full for each kind of device, never above what the caps
//! allow. The *static* estimate is what the caps allow: the most that the node can draw. It is deliberately a worst
//! case: an unmeasured node must not look emptier than a measured one.

use crate::classify::{Grades, Intensity};
use crate::demand::DeviceWork;
use power_units::{Ratio, Role, Watts};
use std::fmt;

/// The basis of an estimate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Basis {
    /// The workloads on the node.
    Utilization,
    /// Its caps alone.
    Static,
}

/// An estimated draw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DrawEstimate {
    /// The basis.
    pub basis: Basis,
    /// The power.
    pub watts: Watts,
}

/// The idle power of devices, as a share of their rating.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UtilizationModel {
    idle_cpu: Ratio,
    idle_gpu: Ratio,
}

/// 20 %: the published power curves of three two-socket servers idle at 16–20 % of their peak.
pub const IDLE_CPU: Ratio = Ratio::from_bits(858_993_460);
/// 15 %: 100 W of 700 W, rounded up.
pub const IDLE_GPU: Ratio = Ratio::from_bits(644_245_095);

/// An idle share outside its range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdleOutOfRange;

impl fmt::Display for IdleOutOfRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an idle share must be from 0 to 1")
    }
}

impl std::error::Error for IdleOutOfRange {}

impl UtilizationModel {
    /// With the usual idle shares of servers.
    pub const STANDARD: Self = Self { idle_cpu: IDLE_CPU, idle_gpu: IDLE_GPU };

    /// With these idle shares of the processors and the graphics processors.
    ///
    /// # Errors
    /// When a share is negative or above one.
    pub fn new(idle_cpu: Ratio, idle_gpu: Ratio) -> Result<Self, IdleOutOfRange> {
        let share = |idle: Ratio| idle >= Ratio::ZERO && idle <= Ratio::ONE;
        if share(idle_cpu) && share(idle_gpu) { Ok(Self { idle_cpu, idle_gpu }) } else { Err(IdleOutOfRange) }
    }

    /// A node's power under `load`, or what its caps allow when its load is unknown.
    #[must_use]
    pub fn estimate(&self, rated: Rated, load: Option<NodeLoad>) -> DrawEstimate {
        let Some(load) = load else {
            return DrawEstimate { basis: Basis::Static, watts: rated.capped.or_zero() };
        };
        let cpu = line(rated.cpu, self.idle_cpu, load.cpu);
        let gpu = line(rated.gpu, self.idle_gpu, load.gpu);
        DrawEstimate { basis: Basis::Utilization, watts: (cpu + gpu).min(rated.capped).or_zero() }
    }
}

/// The ratings of a node's devices, and the node's power under its caps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rated {
    /// The processors' rating.
    pub cpu: Watts,
    /// The graphics processors' rating, zero when there are none.
    pub gpu: Watts,
    /// The node's capped power.
    pub capped: Watts,
}

/// From idle at load 0 to the rating at load 1; a higher load counts as 1.
fn line(rating: Watts, idle: Ratio, load: Ratio) -> Watts {
    let busy = Ratio::ONE - idle;
    let share = idle + busy.scale(load.within(Ratio::ZERO, Ratio::ONE), Role::Demand);
    rating.scale(share, Role::Demand)
}

/// How busy a node is; 1 is fully busy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeLoad {
    /// Its processors.
    pub cpu: Ratio,
    /// Its graphics processors.
    pub gpu: Ratio,
}

impl NodeLoad {
    /// The load of a node with this many logical processors and GPUs whose pods work it like this; `None` when the number
    /// of processors is unknown.
    #[must_use]
    pub fn of(work: DeviceWork, processors: Option<u32>, gpus: u32) -> Option<Self> {
        let part = |of: u64, all: u32| {
            let bits = (u128::from(of) << 32).checked_div(u128::from(all) * 1000)?;
            Some(Ratio::from_bits(i64::try_from(bits).unwrap_or(i64::MAX)).min(Ratio::ONE))
        };
        let cpu = part(work.cpu_milli, processors?)?;
        Some(Self { cpu, gpu: part(work.gpu_milli, gpus).unwrap_or(Ratio::ZERO) })
    }
}

/// The upper end of a class in percent: the start of the next class, by the classifier's grades. What is not classified
/// counts in full.
pub(crate) fn upper_end(intensity: Option<Intensity>, grades: &Grades) -> u32 {
    let percent = match intensity {
        Some(Intensity::None) => 0,
        Some(Intensity::Low) => grades.medium,
        Some(Intensity::Medium) => grades.high,
        Some(Intensity::High) | None => 100,
    };
    percent.unsigned_abs()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn model() -> UtilizationModel {
        UtilizationModel::new(IDLE_CPU, IDLE_GPU).unwrap()
    }

    fn percent(value: i32) -> Ratio {
        power_units::Percent::from_int(value).to_ratio(Role::Demand)
    }

    fn rated(cpu: i32, gpu: i32, capped: i32) -> Rated {
        Rated { cpu: Watts::from_int(cpu), gpu: Watts::from_int(gpu), capped: Watts::from_int(capped) }
    }

    fn near(watts: Watts, expected: i32) -> bool {
        (watts - Watts::from_int(expected)).abs() < Watts::from_bits(1 << 14)
    }

    #[test]
    fn idle_half_and_full_lie_on_the_line_and_under_the_cap() {
        let load = |cpu, gpu| Some(NodeLoad { cpu: percent(cpu), gpu: percent(gpu) });
        let watts = |rated, load| model().estimate(rated, load).watts;
        // 700·0.20 + 5600·0.15 = 140 + 840
        assert!(near(watts(rated(700, 5_600, 6_300), load(0, 0)), 980));
        // 700·0.60 + 5600·0.15 = 420 + 840
        assert!(near(watts(rated(700, 5_600, 6_300), load(50, 0)), 1_260));
        // 700·0.20 + 5600·0.575 = 140 + 3220
        assert!(near(watts(rated(700, 5_600, 6_300), load(0, 50)), 3_360));
        assert!(near(watts(rated(700, 5_600, 6_300), load(100, 100)), 6_300));
        assert_eq!(watts(rated(700, 5_600, 2_660), load(100, 100)), Watts::from_int(2_660));
        // Requests may exceed the node, as while a pod is being replaced.
        assert!(near(watts(rated(700, 0, 700), load(900, 0)), 700));
    }

    #[test]
    fn without_a_load_the_node_counts_with_all_that_its_caps_allow() {
        // Fix list operator B7: the default source is not 0 W.
        let estimate = model().estimate(rated(720, 3_200, 2_352), None);
        assert_eq!(estimate, DrawEstimate { basis: Basis::Static, watts: Watts::from_int(2_352) });
    }

    #[test]
    fn what_pods_ask_for_is_a_part_of_what_there_is() {
        let load = |cpu_milli, gpus: u64, processors, all| {
            NodeLoad::of(DeviceWork { cpu_milli, gpu_milli: gpus.saturating_mul(1000) }, processors, all)
        };
        let is = |cpu, gpu| Some(NodeLoad { cpu: percent(cpu), gpu: percent(gpu) });
        assert_eq!(load(96_000, 2, Some(192), 8), is(50, 25));
        assert_eq!(load(0, 0, Some(192), 0), is(0, 0));
        assert_eq!(load(900_000, 9, Some(192), 8), is(100, 100));
        assert_eq!(load(u64::MAX, u64::MAX, Some(1), 1), is(100, 100));
        assert_eq!((load(1, 0, None, 0), load(1, 0, Some(0), 0)), (None, None));
        // Two packages of 360 W of which half is asked for: 720·0.60.
        let half = model().estimate(rated(720, 0, 720), load(96_000, 0, Some(192), 0));
        assert!(half.basis == Basis::Utilization && near(half.watts, 432));
    }

    #[test]
    fn an_idle_share_is_a_share() {
        for (cpu, gpu) in [(-1, 50), (50, 101), (101, 0), (0, -1)] {
            assert_eq!(UtilizationModel::new(percent(cpu), percent(gpu)), Err(IdleOutOfRange));
        }
        assert!(UtilizationModel::new(Ratio::ZERO, Ratio::ONE).is_ok());
    }

    proptest! {
        #[test]
        fn more_load_never_draws_less_and_never_more_than_the_cap(
            (cpu, gpu, capped) in (0_i32..2_000, 0_i32..9_000, 1_i32..12_000),
            (low, more) in (0_i64..(2 << 32), 0_i64..(2 << 32)),
        ) {
            let rated = rated(cpu, gpu, capped);
            let at = |bits| model().estimate(rated, Some(NodeLoad { cpu: Ratio::from_bits(bits), gpu: Ratio::from_bits(bits) })).watts;
            prop_assert!(at(low) <= at(low + more));
            prop_assert!(at(low) <= rated.capped && at(low) >= Watts::ZERO);
        }
    }
}
