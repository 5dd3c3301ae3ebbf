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
//!
//! Where power follows demand, the cap is what the node could be granted. What is left for a pod is then also bounded
//! by what the limits above the node can grant, or by the node's entitlement if that is more: that it gets whatever
//! others want. Where nobody says what the limits can grant, the entitlement alone counts.

use super::class::{SchedulableClass, WorkloadClass};
use super::gpu;
use super::score::{NodeFacts, SettingError};
use core::fmt;
use power_units::Watts;

/// A node's part of the decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FilterTerms {
    /// The twin's class, if it counts at the twin's age; `None` without a twin or with an unknown class.
    class: Option<SchedulableClass>,
    eco_label: bool,
    known: KnownRoom,
    /// What is left under the cap, where it is known.
    room: Watts,
    /// What is left of the entitlement, where that is known.
    sure: Watts,
}

// A filter reads the terms of thousands of nodes, which are to fit the processor's caches.
const _: () = assert!(size_of::<FilterTerms>() <= 24);

/// What of a node's room is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum KnownRoom {
    /// Nothing.
    Nothing,
    /// What is left under the cap.
    Cap,
    /// That, and what is left of the entitlement: power follows demand.
    CapAndEntitlement,
}

/// What is left for a pod on a node, and what bounds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PowerLeft {
    /// The watts; below zero where more is drawn already.
    pub watts: Watts,
    /// The limits above the node bound it, and not the node's own cap.
    pub by_limits: bool,
}

impl FilterTerms {
    /// A node without any information.
    pub const UNKNOWN: Self = Self {
        class: None,
        eco_label: false,
        known: KnownRoom::Nothing,
        room: Watts::ZERO,
        sure: Watts::ZERO,
    };

    /// Compiles a node. `eco_label` is whether its label `joulie.io/power-profile` is `eco`.
    #[must_use]
    pub fn of(node: &NodeFacts<'_>, eco_label: bool) -> Self {
        let class = node.twin.map(|twin| twin.class).filter(|class| match class {
            SchedulableClass::Eco | SchedulableClass::Draining => true,
            SchedulableClass::Performance => node.freshness.is_fresh(),
            SchedulableClass::Unknown => false,
        });
        let (room, sure) = node.fresh_twin().map_or((None, None), |twin| (twin.room(), twin.sure_room()));
        let (known, room, sure) = match (room, sure) {
            (None, _) => (KnownRoom::Nothing, Watts::ZERO, Watts::ZERO),
            (Some(room), None) => (KnownRoom::Cap, room, Watts::ZERO),
            (Some(room), Some(sure)) => (KnownRoom::CapAndEntitlement, room, sure),
        };
        Self { class, eco_label, known, room, sure }
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

    /// What is left for a pod; `None` where it cannot be judged. `assumed` are the watts of pods on the node that no sample
    /// includes yet. `grantable` is what the limits above the node can grant in addition to what is drawn, less what is
    /// assumed below them; `None` where nobody says so.
    #[must_use]
    pub fn left(&self, assumed: Watts, grantable: Option<Watts>) -> Option<PowerLeft> {
        let own = self.room - assumed;
        let sure = match self.known {
            KnownRoom::Nothing => return None,
            KnownRoom::Cap => return Some(PowerLeft { watts: own, by_limits: false }),
            KnownRoom::CapAndEntitlement => self.sure - assumed,
        };
        let limits = grantable.map_or(sure, |grantable| grantable.max(sure));
        Some(PowerLeft { watts: own.min(limits), by_limits: limits < own })
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
    /// The limits above the node cannot grant so much.
    OverBudget {
        /// What is missing.
        by: Watts,
    },
    /// The node has no GPUs for it.
    Gpu(gpu::Reject),
    /// What it asks for of GPUs is not valid, so it fits nowhere.
    GpuWish(gpu::BadWish),
    /// It asks for no GPU, and for cores that the free GPUs of the node need.
    GpuCores,
    /// It may wait, and a limit above the node is lowered or cannot be kept.
    Deferred,
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
    pub const KINDS: [&'static str; 9] = [
        "eco",
        "draining",
        "eco-label",
        "over-cap",
        "over-budget",
        "gpu",
        "gpu-wish",
        "gpu-cores",
        "deferred",
    ];

    /// Which of [`Self::KINDS`] it is.
    #[must_use]
    pub const fn kind(self) -> &'static str {
        match self {
            Self::Eco => "eco",
            Self::Draining => "draining",
            Self::EcoLabel => "eco-label",
            Self::OverCap { .. } => "over-cap",
            Self::OverBudget { .. } => "over-budget",
            Self::Gpu(_) => "gpu",
            Self::GpuWish(_) => "gpu-wish",
            Self::GpuCores => "gpu-cores",
            Self::Deferred => "deferred",
        }
    }

    /// Whether kube-scheduler may try to free power by evicting pods.
    #[must_use]
    pub const fn eviction(self) -> Eviction {
        match self {
            // kube-scheduler sees cores that are free, and would evict nobody for them. Who may wait evicts nobody.
            Self::Eco
            | Self::Draining
            | Self::EcoLabel
            | Self::GpuWish(_)
            | Self::GpuCores
            | Self::Deferred => Eviction::CannotHelp,
            Self::OverCap { .. } | Self::OverBudget { .. } => Eviction::MayHelp,
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
            Self::OverBudget { by } => {
                write!(f, "joulie: the limits above the node lack {by:.1} W for the pod")
            }
            Self::Gpu(reject) => write!(f, "joulie: {reject}"),
            Self::GpuWish(bad) => write!(f, "joulie: {bad}"),
            Self::GpuCores => f.write_str("joulie: the pod would take cores that the free GPUs of the node need"),
            Self::Deferred => f.write_str("joulie: the pod may wait, and a limit above the node is lowered"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::placement::freshness::{Freshness, Staleness};
    use crate::placement::score::{TwinPower, TwinStatus};
    use power_units::{Micros, Percent};
    use std::string::ToString;

    const FRESH: Freshness = Freshness::Fresh { left: Micros::MINUTE };
    const STALE: Freshness = Freshness::Stale(Staleness::NoTimestamp);

    fn watts(watts: i32) -> Option<Watts> {
        Some(Watts::from_int(watts))
    }

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
        let budget = Rejection::OverBudget { by: Watts::from_int(312) };
        let held = Rejection::Deferred;
        let all =
            [Rejection::Eco, Rejection::Draining, Rejection::EcoLabel, over, budget, gpu, wish, cores, held];
        for (rejection, kind) in all.into_iter().zip(Rejection::KINDS) {
            assert!(rejection.to_string().starts_with("joulie:"));
            assert_eq!(rejection.kind(), kind);
            let helps = [over, budget, gpu].contains(&rejection);
            assert_eq!(rejection.eviction(), if helps { Eviction::MayHelp } else { Eviction::CannotHelp });
        }
        let texts: std::collections::BTreeSet<_> = all.iter().map(ToString::to_string).collect();
        assert_eq!(texts.len(), all.len());
        assert_eq!(Rejection::Gpu(gpu::Reject::NoCards).eviction(), Eviction::CannotHelp);
    }

    /// How far `added` watts would take a node over its cap.
    fn over(node: FilterTerms, added: Watts) -> Watts {
        node.left(added, None).map_or(Watts::ZERO, |left| Watts::ZERO - left.watts)
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
        assert_eq!(over(node, Watts::from_int(50)), Watts::ZERO);
        assert_eq!(over(node, Watts::from_int(51)), Watts::from_int(1));
        assert_eq!(over(drawing(FRESH, Some(700), Some(600)), Watts::ZERO), Watts::from_int(100));
        assert_eq!(over(drawing(FRESH, Some(-9), Some(600)), Watts::from_int(601)), Watts::from_int(1));
        assert!(over(drawing(FRESH, Some(0), Some(i32::MAX)), Watts::MAX) > Watts::ZERO);
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
        assert_eq!(over(blind(FRESH, 600, Some(25)), Watts::from_int(150)), Watts::ZERO);
        assert_eq!(over(blind(FRESH, 600, Some(25)), Watts::from_int(151)), Watts::from_int(1));
        assert_eq!(over(blind(FRESH, 600, Some(500)), Watts::from_int(601)), Watts::from_int(1));
        assert_eq!(over(blind(FRESH, 600, Some(-50)), Watts::ZERO), Watts::from_int(300));
        for node in [blind(STALE, 600, Some(25)), blind(FRESH, 0, Some(25)), blind(FRESH, 600, None)] {
            assert_eq!(over(node, Watts::MAX), Watts::ZERO);
        }
    }

    #[test]
    fn what_is_left_is_what_the_limits_can_grant_or_the_entitlement_within_the_cap() {
        // It draws 300 W, could be granted 700 W, and is entitled to 450 W: 400 W and 150 W are left.
        let power = Some(TwinPower { measured: watts(300), capped: watts(700), trend: None });
        let twin =
            TwinStatus { power, entitled: watts(450), ..TwinStatus::silent(SchedulableClass::Performance) };
        let of = |twin: &TwinStatus, freshness| {
            FilterTerms::of(&NodeFacts { freshness, twin: Some(twin), hardware: None }, false)
        };
        let node = of(&twin, FRESH);
        let left = |assumed, grantable: Option<i32>| {
            let left = node.left(Watts::from_int(assumed), grantable.map(Watts::from_int)).unwrap();
            (left.watts, left.by_limits)
        };
        let is = |watts, by_limits| (Watts::from_int(watts), by_limits);
        assert_eq!(left(0, Some(1000)), is(400, false), "its own cap");
        assert_eq!(left(0, Some(250)), is(250, true), "what the limits can grant");
        assert_eq!(left(0, Some(-20)), is(150, true), "its entitlement, whatever others want");
        assert_eq!(left(0, None), is(150, true), "nobody says what the limits can grant");
        // What is assumed on the node takes from its cap and its entitlement; what is grantable has it taken off.
        assert_eq!(left(100, Some(180)), is(180, true));
        assert_eq!(left(300, Some(180)), is(100, false));
        assert_eq!(left(500, None), is(-350, true));
        // Where power does not follow demand, the cap alone counts.
        let plain = of(&TwinStatus { entitled: None, ..twin }, FRESH);
        let own = PowerLeft { watts: Watts::from_int(400), by_limits: false };
        assert_eq!(
            (plain.left(Watts::ZERO, watts(1)), plain.left(Watts::ZERO, None)),
            (Some(own), Some(own))
        );
        assert_eq!(of(&twin, STALE).left(Watts::ZERO, None), None);
        // An entitlement above the cap, or of nothing, is no good news.
        let odd = of(&TwinStatus { entitled: watts(-5), ..twin }, FRESH).left(Watts::ZERO, None).unwrap();
        assert_eq!(odd.watts, Watts::from_int(-300));
        assert_eq!(
            of(&TwinStatus { entitled: watts(9000), ..twin }, FRESH).left(Watts::ZERO, None),
            Some(own)
        );
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
            assert_eq!(over(node, Watts::MAX), Watts::ZERO);
        }
    }

    #[test]
    fn the_setting_is_read() {
        assert_eq!(PowerFit::read("filter"), Ok(PowerFit::Filter));
        assert_eq!(PowerFit::read(" score"), Ok(PowerFit::Score));
        assert_eq!(PowerFit::read("hard").unwrap_err().to_string(), "POWER_FIT: expected score or filter");
    }
}
