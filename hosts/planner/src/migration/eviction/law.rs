//! How cautious evictions are: the reason for one, a better destination, and the number allowed.

use super::super::{MigrationLaw, MigrationReason, NodeConditions, Stress};
use crate::power::Grounds;
use power_units::{Micros, Percent};
use std::fmt;

/// How cautious to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tuning {
    /// How long a node must have been stressed without a break.
    pub stressed_for: Micros,
    /// How long an owner is left alone after one of its pods was evicted.
    pub cooldown: Micros,
    /// How long an owner is left alone after an eviction of its pod was denied. At least one window: a pod that must
    /// not leave is tried once in a window, and leaves the budgets to the others.
    pub retry: Micros,
    /// The time span of the budgets.
    pub window: Micros,
    /// Evictions from one node in a window.
    pub per_node: u32,
    /// Evictions from one namespace in a window.
    pub per_namespace: u32,
    /// Evictions in the cluster in a window.
    pub per_cluster: u32,
    /// How far below the threshold a destination's stress must be.
    pub relief: Percent,
    /// The weakest grounds of a stress for which pods are evicted. Where the facility is measured, a stress without
    /// these data is only modelled: they are missing or too old.
    pub least: Grounds,
    /// Decide and count, but evict nothing.
    pub dry_run: bool,
}

/// Checked tuning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EvictionLaw {
    pub(super) migration: MigrationLaw,
    pub(super) tuning: Tuning,
}

/// Tuning that is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TuningError {
    /// The window.
    Window,
    /// A span longer than a day.
    Span,
    /// The wait after a denial.
    Retry,
    /// A budget.
    Budget,
    /// The relief.
    Relief,
}

impl fmt::Display for TuningError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Window => "the window of the eviction budgets must be from 1 s to 24 h",
            Self::Span => "the cooldown of an owner and the duration of stress can be 24 h at most",
            Self::Retry => {
                "the wait after a denied eviction must be from the budgets' window to the cooldown"
            }
            Self::Budget => {
                "the eviction budgets of a node, a namespace and the cluster must be at least 1, and the node's not larger than the cluster's"
            }
            Self::Relief => "the relief must lie between 0 and the stress threshold",
        })
    }
}

impl std::error::Error for TuningError {}

const DAY: Micros = Micros::new(86_400_000_000);

impl EvictionLaw {
    /// Evicts for the reasons of `migration`, as cautiously as `tuning` says.
    ///
    /// # Errors
    /// When the tuning contradicts itself.
    pub fn new(migration: MigrationLaw, tuning: Tuning) -> Result<Self, TuningError> {
        if tuning.window < Micros::new(1_000_000) || tuning.window > DAY {
            return Err(TuningError::Window);
        }
        if tuning.cooldown > DAY || tuning.stressed_for > DAY {
            return Err(TuningError::Span);
        }
        if tuning.retry < tuning.window || tuning.retry > tuning.cooldown {
            return Err(TuningError::Retry);
        }
        if tuning.per_node == 0 || tuning.per_namespace == 0 || tuning.per_cluster < tuning.per_node {
            return Err(TuningError::Budget);
        }
        if tuning.relief < Percent::ZERO || tuning.relief > migration.threshold {
            return Err(TuningError::Relief);
        }
        Ok(Self { migration, tuning })
    }

    /// Whether it evicts, and does not only say what it would evict.
    #[must_use]
    pub const fn moves_pods(&self) -> bool {
        !self.tuning.dry_run
    }

    /// Why pods should leave a node, for whatever reason they stay then.
    #[must_use]
    pub fn reason(&self, node: &NodeConditions<'_>) -> Option<MigrationReason> {
        self.migration.reason(node)
    }

    /// Whether the cooling stress of a node is known on grounds that are good enough to evict for.
    pub(super) fn sees(&self, node: &NodeConditions<'_>) -> bool {
        node.cooling.is_some_and(|stress| stress.grounds <= self.tuning.least)
    }

    /// Why pods should be evicted from a node; neither draining is a reason, nor a stress on weaker grounds than asked.
    pub(super) fn strain(&self, node: &NodeConditions<'_>) -> Option<(MigrationReason, Percent)> {
        let grounded = |stress: Option<Stress>| stress.filter(|stress| stress.grounds <= self.tuning.least);
        let node = NodeConditions { cooling: grounded(node.cooling), psu: grounded(node.psu), ..*node };
        match self.migration.reason(&node)? {
            reason @ (MigrationReason::CoolingStress(percent) | MigrationReason::PsuStress(percent)) => {
                Some((reason, percent))
            }
            MigrationReason::Draining => None,
        }
    }
}
