//! static_partition: a deterministic, fixed HP/LP split, stable over time unless the node set changes.
//!
//! `hp_count = round(N * STATIC_HP_FRAC)`, clamped to `[0, N]`.

use super::{PolicyError, fraction, share};
use power_units::Ratio;

/// The settings of static_partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StaticPartition {
    performance: Ratio,
}

impl StaticPartition {
    /// The name in the desired state.
    pub const NAME: &'static str = "static-partition-v1";

    /// A split with this target fraction of high-performance nodes, `STATIC_HP_FRAC`.
    ///
    /// # Errors
    /// When the fraction is not from 0 to 1.
    pub fn new(performance: Ratio) -> Result<Self, PolicyError> {
        Ok(Self { performance: fraction("STATIC_HP_FRAC", performance)? })
    }

    /// How many of the nodes run at full power, before the family floor.
    pub(super) fn count(&self, nodes: u32) -> u32 {
        share(nodes, self.performance)
    }
}
