//! queue_aware_v1: the HP count follows the current performance-only pressure P.
//!
//! `base = round(N * QUEUE_HP_BASE_FRAC)`, `need = ceil(P / QUEUE_PERF_PER_HP_NODE)`, `hp_count = max(base, need)`,
//! clamped to `[QUEUE_HP_MIN, QUEUE_HP_MAX]` and again to `[0, N]`. Deterministic for a fixed (N, P), monotonic in P,
//! and bounded by the min/max limits.

use super::{PolicyError, fraction, share};
use power_units::Ratio;

/// The settings of queue_aware_v1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueAware {
    knobs: Knobs,
}

/// The settings before they are checked. The count is defined for any values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Knobs {
    pub(super) base: Ratio,
    pub(super) min: i64,
    pub(super) max: i64,
    pub(super) pods_per_node: i64,
}

impl QueueAware {
    /// The name in the desired state.
    pub const NAME: &'static str = "queue-aware-v1";

    /// A split that starts from the fraction `base` (`QUEUE_HP_BASE_FRAC`), has one performance node for every
    /// `pods_per_node` pods of pressure (`QUEUE_PERF_PER_HP_NODE`), and stays between `min` and `max` nodes
    /// (`QUEUE_HP_MIN`, `QUEUE_HP_MAX`; a `max` of 0 sets no bound).
    ///
    /// # Errors
    /// When a value is out of range, or `min` is above `max`.
    pub fn new(base: Ratio, min: i64, max: i64, pods_per_node: i64) -> Result<Self, PolicyError> {
        let base = fraction("QUEUE_HP_BASE_FRAC", base)?;
        let counts = [
            ("QUEUE_HP_MIN", 0, min),
            ("QUEUE_HP_MAX", 0, max),
            ("QUEUE_PERF_PER_HP_NODE", 1, pods_per_node),
        ];
        for (setting, least, found) in counts {
            if found < least {
                return Err(PolicyError::TooSmall { setting, least, found });
            }
        }
        if max > 0 && min > max {
            return Err(PolicyError::Crossed { min, max });
        }
        Ok(Self { knobs: Knobs { base, min, max, pods_per_node } })
    }

    /// How many of the nodes run at full power under this pressure, before the family floor.
    pub(super) fn count(&self, nodes: u32, pressure: u32) -> u32 {
        count(&self.knobs, nodes, pressure)
    }

    /// How many run at full power while the pressure is unknown.
    pub(super) fn base(&self, nodes: u32) -> u32 {
        share(nodes, self.knobs.base)
    }
}

/// Defined for all values: a negative `min` counts as zero, a `max` of zero or less sets no bound, and a `min` above
/// `max` raises `max`.
pub(super) fn count(knobs: &Knobs, nodes: u32, pressure: u32) -> u32 {
    let all = i64::from(nodes);
    let min = knobs.min.max(0);
    let max = if knobs.max > 0 { knobs.max } else { all }.max(min);
    let need = u64::from(pressure).div_ceil(knobs.pods_per_node.max(1).unsigned_abs());
    let wanted = i64::from(share(nodes, knobs.base)).max(i64::try_from(need).unwrap_or(i64::MAX));
    u32::try_from(wanted.max(min).min(max).min(all)).unwrap_or(0)
}
