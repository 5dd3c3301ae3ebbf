//! A node's power without a meter: estimated from what runs on it, or from its caps alone.
//!
//! The *utilisation model* is a straight line from idle to full for each kind of device, never above what the caps
//! allow. The *static* estimate is what the caps allow: the most that the node can draw. It is deliberately a worst
//! case: an unmeasured node must not look emptier than a measured one.

use crate::classify::{CPU_GRADES, GPU_GRADES, Grades, Intensity};
use crate::demand::Asked;
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

/// A workload's share of a node, and how hard it is known to work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkloadShare {
    /// Its share of the node's processors, if it requested any.
    pub cpu: Option<Ratio>,
    /// Its share of the node's graphics processors, which are always requested.
    pub gpu: Ratio,
    /// The class of its processor use, if it has been classified.
    pub cpu_intensity: Option<Intensity>,
    /// The class of its graphics use, if it has been classified.
    pub gpu_intensity: Option<Intensity>,
}

impl NodeLoad {
    /// The load of a node with this many logical processors and GPUs whose pods make these requests; `None` when the
    /// number of processors is unknown. A requested processor counts as fully used, as [`NodeLoad::of`] counts an
    /// unclassified workload.
    #[must_use]
    pub fn asked(asked: Asked, processors: Option<u32>, gpus: u32) -> Option<Self> {
        let part = |of: u64, all: u64| {
            let bits = (u128::from(of) << 32).checked_div(u128::from(all))?;
            Some(Ratio::from_bits(i64::try_from(bits).unwrap_or(i64::MAX)).min(Ratio::ONE))
        };
        let cpu = part(asked.cpu_milli, u64::from(processors?) * 1000)?;
        Some(Self { cpu, gpu: part(asked.gpus, u64::from(gpus)).unwrap_or(Ratio::ZERO) })
    }

    /// The load of all workloads of a node. Each counts with the upper end of its intensity class; an unclassified one
    /// counts in full. A workload without a request may use anything: then the load is unknown, as it is with a
    /// negative share.
    #[must_use]
    pub fn of(workloads: impl IntoIterator<Item = WorkloadShare>) -> Option<Self> {
        let mut load = Self { cpu: Ratio::ZERO, gpu: Ratio::ZERO };
        for share in workloads {
            let cpu = share.cpu.filter(|&cpu| cpu >= Ratio::ZERO)?;
            let gpu = Some(share.gpu).filter(|&gpu| gpu >= Ratio::ZERO)?;
            load.cpu += cpu.scale(weight(share.cpu_intensity, &CPU_GRADES), Role::Demand);
            load.gpu += gpu.scale(weight(share.gpu_intensity, &GPU_GRADES), Role::Demand);
        }
        Some(load)
    }
}

/// The upper end of a class: the start of the next class, by the classifier's grades.
fn weight(intensity: Option<Intensity>, grades: &Grades) -> Ratio {
    let percent = match intensity {
        Some(Intensity::None) => 0,
        Some(Intensity::Low) => grades.medium,
        Some(Intensity::Medium) => grades.high,
        Some(Intensity::High) | None => 100,
    };
    power_units::Percent::from_int(percent).to_ratio(Role::Demand)
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
    fn a_hard_worker_counts_more_than_an_idle_one() {
        let share = |cpu, gpu, cpu_intensity, gpu_intensity| WorkloadShare {
            cpu: Some(percent(cpu)),
            gpu: percent(gpu),
            cpu_intensity,
            gpu_intensity,
        };
        let load = NodeLoad::of([
            share(50, 50, Some(Intensity::Low), Some(Intensity::High)),
            share(20, 25, Some(Intensity::Medium), Some(Intensity::Low)),
            share(10, 0, None, Some(Intensity::None)),
        ])
        .unwrap();
        // cpu 50·0.30 + 20·0.75 + 10 = 40 %, gpu 50 + 25·0.25 = 56.25 %
        assert_eq!(load.cpu.to_percent().round(), 40);
        assert_eq!(load.gpu.to_percent().round(), 56);
        assert_eq!(NodeLoad::of([]), Some(NodeLoad { cpu: Ratio::ZERO, gpu: Ratio::ZERO }));
    }

    #[test]
    fn a_pod_that_did_not_say_what_it_needs_is_no_idle_pod() {
        // Fix list operator B-C1: a pod without requests has been counted with 0.
        let share =
            |cpu, gpu| WorkloadShare { cpu, gpu, cpu_intensity: Some(Intensity::Low), gpu_intensity: None };
        let known = share(Some(percent(10)), Ratio::ZERO);
        for unknown in [
            share(None, Ratio::ZERO),
            share(Some(percent(-1)), Ratio::ZERO),
            share(Some(Ratio::ZERO), percent(-1)),
        ] {
            let load = NodeLoad::of([known, unknown]);
            assert_eq!(load, None);
            let estimate = model().estimate(rated(720, 3_200, 2_352), load);
            assert_eq!(estimate, DrawEstimate { basis: Basis::Static, watts: Watts::from_int(2_352) });
        }
        assert!(NodeLoad::of([known, share(Some(Ratio::ZERO), Ratio::ZERO)]).is_some());
    }

    #[test]
    fn what_pods_ask_for_is_a_part_of_what_there_is() {
        let load = |cpu_milli, gpus, processors, all| {
            NodeLoad::asked(Asked { cpu_milli, gpus, ..Asked::default() }, processors, all)
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
