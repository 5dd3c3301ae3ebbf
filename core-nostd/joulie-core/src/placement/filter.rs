//! The nodes to which a pod may not go.
//!
//! One hard rule: performance pods do not run on eco or draining nodes. The twin's `schedulableClass` tells which class
//! a node has. Age counts in one direction only. `eco` and `draining` reject *whatever the twin's age*, because a node
//! that was last known to be capped may still be capped. `performance` overrules the label `joulie.io/power-profile:
//! eco` only while the twin is fresh, because a downgrade writes the label first. Without a usable twin the label
//! decides. Nodes without any information pass, and standard pods pass everywhere.
//!
//! With `POWER_FIT=filter` a node is also refused when the pod would take it over its cap. That needs a fresh twin with
//! a cap, and a measurement or a predicted headroom: for a node that is not measured, the draw follows from the
//! prediction. A node that cannot be judged passes, since otherwise a failed operator would stop all scheduling.

use super::class::{SchedulableClass, WorkloadClass};
use super::gpu;
use super::score::{NodeFacts, SettingError, TwinStatus};
use core::fmt;
use power_units::Watts;

/// A node's part of the decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FilterTerms {
    /// The twin's class, if it counts at the twin's age; `None` without a twin or with an unknown class.
    class: Option<SchedulableClass>,
    eco_label: bool,
    /// What is left under the cap; `None` where it is not known.
    room: Option<Watts>,
}

impl FilterTerms {
    /// A node without any information.
    pub const UNKNOWN: Self = Self { class: None, eco_label: false, room: None };

    /// Compiles a node. `eco_label` is whether its label `joulie.io/power-profile` is `eco`.
    #[must_use]
    pub fn of(node: &NodeFacts<'_>, eco_label: bool) -> Self {
        let class = node.twin.map(|twin| twin.class).filter(|class| match class {
            SchedulableClass::Eco | SchedulableClass::Draining => true,
            SchedulableClass::Performance => node.freshness.is_fresh(),
            SchedulableClass::Unknown => false,
        });
        Self { class, eco_label, room: node.fresh_twin().and_then(TwinStatus::room) }
    }

    /// Whether a pod of this class may run here.
    ///
    /// # Errors
    /// Why it may not.
    #[inline]
    pub fn admits(&self, pod: WorkloadClass) -> Result<(), Rejection> {
        match (pod, self.class) {
            (WorkloadClass::Standard, _)
            | (WorkloadClass::Performance, Some(SchedulableClass::Performance)) => Ok(()),
            (WorkloadClass::Performance, Some(SchedulableClass::Eco)) => Err(Rejection::Eco),
            (WorkloadClass::Performance, Some(SchedulableClass::Draining)) => Err(Rejection::Draining),
            (WorkloadClass::Performance, Some(SchedulableClass::Unknown) | None) => {
                if self.eco_label {
                    Err(Rejection::EcoLabel)
                } else {
                    Ok(())
                }
            }
        }
    }

    /// How far `added` watts would take the node over its cap: those of the pod, plus those assumed for pods that no
    /// sample includes yet. Zero or less where they fit, and zero where it cannot be judged. For `POWER_FIT=filter`.
    #[inline]
    #[must_use]
    pub fn over(&self, added: Watts) -> Watts {
        self.room.map_or(Watts::ZERO, |room| added - room)
    }
}

/// The value of `POWER_FIT`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PowerFit {
    /// A pod that would take a node over its cap only lowers its score.
    Score,
    /// It is refused on the node.
    Filter,
}

impl PowerFit {
    /// Reads the variable.
    ///
    /// # Errors
    /// When the text is no valid choice.
    pub fn read(text: &str) -> Result<Self, SettingError> {
        match text.trim() {
            "score" => Ok(Self::Score),
            "filter" => Ok(Self::Filter),
            _ => Err(SettingError::new("POWER_FIT", "score or filter")),
        }
    }
}

/// Why a pod may not go to a node. Users see its text in the pod's events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rejection {
    /// A performance pod, and the twin says eco.
    Eco,
    /// A performance pod, and the twin says draining.
    Draining,
    /// A performance pod, no twin overrules the label, and the label says eco.
    EcoLabel,
    /// The cap would be exceeded.
    OverCap {
        /// The excess.
        by: Watts,
    },
    /// The node has no GPUs for it.
    Gpu(gpu::Reject),
    /// What it asks for of GPUs is not valid, so it fits nowhere.
    GpuWish(gpu::BadWish),
    /// It asks for no GPU, and for cores that the free GPUs of the node need.
    GpuCores,
}

/// What evicting pods from the node would do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Eviction {
    /// Nothing: the node's class does not depend on its pods.
    CannotHelp,
    /// Fewer pods draw less.
    MayHelp,
}

impl Rejection {
    /// All of them, for counting.
    pub const KINDS: [&'static str; 7] =
        ["eco", "draining", "eco-label", "over-cap", "gpu", "gpu-wish", "gpu-cores"];

    /// Which of [`Self::KINDS`] it is.
    #[must_use]
    pub const fn kind(self) -> &'static str {
        match self {
            Self::Eco => "eco",
            Self::Draining => "draining",
            Self::EcoLabel => "eco-label",
            Self::OverCap { .. } => "over-cap",
            Self::Gpu(_) => "gpu",
            Self::GpuWish(_) => "gpu-wish",
            Self::GpuCores => "gpu-cores",
        }
    }

    /// Whether kube-scheduler may try to free power by evicting pods.
    #[must_use]
    pub const fn eviction(self) -> Eviction {
        match self {
            // kube-scheduler sees cores that are free, and would evict nobody for them.
            Self::Eco | Self::Draining | Self::EcoLabel | Self::GpuWish(_) | Self::GpuCores => {
                Eviction::CannotHelp
            }
            Self::OverCap { .. } => Eviction::MayHelp,
            Self::Gpu(reject) if reject.preemption_may_help() => Eviction::MayHelp,
            Self::Gpu(_) => Eviction::CannotHelp,
        }
    }
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Eco => f.write_str("joulie: performance pods do not run on eco nodes"),
            Self::Draining => f.write_str("joulie: performance pods do not run on nodes that are draining to eco"),
            Self::EcoLabel => f.write_str(
                "joulie: performance pods do not run on nodes labelled joulie.io/power-profile=eco (no fresh NodeTwin status says otherwise)",
            ),
            Self::OverCap { by } => write!(f, "joulie: the pod would take the node {by:.1} W over its power cap"),
            Self::Gpu(reject) => write!(f, "joulie: {reject}"),
            Self::GpuWish(bad) => write!(f, "joulie: {bad}"),
            Self::GpuCores => f.write_str("joulie: the pod would take cores that the free GPUs of the node need"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::placement::freshness::{Freshness, Staleness};
    use crate::placement::score::TwinPower;
    use power_units::{Micros, Percent};
    use std::string::ToString;

    const FRESH: Freshness = Freshness::Fresh { left: Micros::MINUTE };
    const STALE: Freshness = Freshness::Stale(Staleness::NoTimestamp);

    fn terms(freshness: Freshness, class: Option<SchedulableClass>, eco_label: bool) -> FilterTerms {
        let twin = class.map(TwinStatus::silent);
        FilterTerms::of(&NodeFacts { freshness, twin: twin.as_ref(), hardware: None }, eco_label)
    }

    #[test]
    fn every_class_of_pod_meets_every_node() {
        // Fix list extender B15: eco and draining hold whatever the twin's age; performance overrules the label only
        // while it is fresh.
        use SchedulableClass::{Draining, Eco, Performance, Unknown};
        let (eco, draining, label) =
            (Err(Rejection::Eco), Err(Rejection::Draining), Err(Rejection::EcoLabel));
        for (class, labelled, fresh, stale) in [
            (Some(Performance), false, Ok(()), Ok(())),
            (Some(Performance), true, Ok(()), label),
            (Some(Eco), false, eco, eco),
            (Some(Eco), true, eco, eco),
            (Some(Draining), false, draining, draining),
            (Some(Draining), true, draining, draining),
            (Some(Unknown), false, Ok(()), Ok(())),
            (Some(Unknown), true, label, label),
            (None, false, Ok(()), Ok(())),
            (None, true, label, label),
        ] {
            for (freshness, expected) in [(FRESH, fresh), (STALE, stale), (Freshness::Absent, stale)] {
                let node = terms(freshness, class, labelled);
                assert_eq!(
                    node.admits(WorkloadClass::Performance),
                    expected,
                    "{class:?} {labelled} {freshness:?}"
                );
                assert_eq!(node.admits(WorkloadClass::Standard), Ok(()));
            }
        }
        assert_eq!(FilterTerms::UNKNOWN.admits(WorkloadClass::Performance), Ok(()));
    }

    #[test]
    fn a_rejection_names_joulie_and_says_whether_evicting_pods_can_help() {
        // Fix list extender B3.
        let over = Rejection::OverCap { by: Watts::parse("35.25", power_units::Role::Nearest).unwrap() };
        assert_eq!(over.to_string(), "joulie: the pod would take the node 35.2 W over its power cap");
        let gpu = Rejection::Gpu(gpu::Reject::Allocated { have: 1 });
        assert_eq!(gpu.to_string(), "joulie: too few GPUs of the model asked for are free (1)");
        let wish = Rejection::GpuWish(gpu::BadWish::Link);
        let cores = Rejection::GpuCores;
        let all = [Rejection::Eco, Rejection::Draining, Rejection::EcoLabel, over, gpu, wish, cores];
        for (rejection, kind) in all.into_iter().zip(Rejection::KINDS) {
            assert!(rejection.to_string().starts_with("joulie:"));
            assert_eq!(rejection.kind(), kind);
            let helps = [over, gpu].contains(&rejection);
            assert_eq!(rejection.eviction(), if helps { Eviction::MayHelp } else { Eviction::CannotHelp });
        }
        let texts: std::collections::BTreeSet<_> = all.iter().map(ToString::to_string).collect();
        assert_eq!(texts.len(), all.len());
        assert_eq!(Rejection::Gpu(gpu::Reject::NoCards).eviction(), Eviction::CannotHelp);
    }

    fn drawing(freshness: Freshness, measured: Option<i32>, capped: Option<i32>) -> FilterTerms {
        let (measured, capped) = (measured.map(Watts::from_int), capped.map(Watts::from_int));
        let power = Some(TwinPower { measured, capped, trend: None });
        let twin = TwinStatus { power, ..TwinStatus::silent(SchedulableClass::Performance) };
        FilterTerms::of(&NodeFacts { freshness, twin: Some(&twin), hardware: None }, false)
    }

    #[test]
    fn a_pod_fits_up_to_the_cap_and_not_beyond() {
        let node = drawing(FRESH, Some(550), Some(600));
        assert_eq!(node.over(Watts::from_int(50)), Watts::ZERO);
        assert_eq!(node.over(Watts::from_int(51)), Watts::from_int(1));
        assert_eq!(drawing(FRESH, Some(700), Some(600)).over(Watts::ZERO), Watts::from_int(100));
        assert_eq!(drawing(FRESH, Some(-9), Some(600)).over(Watts::from_int(601)), Watts::from_int(1));
        assert!(drawing(FRESH, Some(0), Some(i32::MAX)).over(Watts::MAX) > Watts::ZERO);
    }

    #[test]
    fn a_node_whose_telemetry_is_dead_is_judged_by_its_predicted_headroom() {
        // Fix list extender B21: a quarter of 600 W.
        let blind = |freshness, capped, headroom: Option<i32>| {
            let power = TwinPower { measured: None, capped: Some(Watts::from_int(capped)), trend: None };
            let headroom = headroom.map(Percent::from_int);
            let twin = TwinStatus {
                power: Some(power),
                headroom,
                ..TwinStatus::silent(SchedulableClass::Performance)
            };
            FilterTerms::of(&NodeFacts { freshness, twin: Some(&twin), hardware: None }, false)
        };
        assert_eq!(blind(FRESH, 600, Some(25)).over(Watts::from_int(150)), Watts::ZERO);
        assert_eq!(blind(FRESH, 600, Some(25)).over(Watts::from_int(151)), Watts::from_int(1));
        assert_eq!(blind(FRESH, 600, Some(500)).over(Watts::from_int(601)), Watts::from_int(1));
        assert_eq!(blind(FRESH, 600, Some(-50)).over(Watts::ZERO), Watts::from_int(300));
        for node in [blind(STALE, 600, Some(25)), blind(FRESH, 0, Some(25)), blind(FRESH, 600, None)] {
            assert_eq!(node.over(Watts::MAX), Watts::ZERO);
        }
    }

    #[test]
    fn a_node_that_cannot_be_judged_is_not_refused() {
        for node in [
            drawing(STALE, Some(700), Some(600)),
            drawing(FRESH, None, Some(600)),
            drawing(FRESH, Some(700), None),
            drawing(FRESH, Some(700), Some(0)),
            FilterTerms::UNKNOWN,
        ] {
            assert_eq!(node.over(Watts::MAX), Watts::ZERO);
        }
    }

    #[test]
    fn the_setting_is_read() {
        assert_eq!(PowerFit::read("filter"), Ok(PowerFit::Filter));
        assert_eq!(PowerFit::read(" score"), Ok(PowerFit::Score));
        assert_eq!(PowerFit::read("hard").unwrap_err().to_string(), "POWER_FIT: expected score or filter");
    }
}
