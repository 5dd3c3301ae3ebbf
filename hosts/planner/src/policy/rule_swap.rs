//! rule_swap_v1 (debug policy): forces visible state transitions. The phase follows from the wall clock and
//! RECONCILE_INTERVAL and alternates which of the first nodes is assigned eco; the others remain performance.
//!
//! Intended for debugging only, not as default production behaviour.

use crate::profile::Profile;
use power_units::Micros;

/// The settings of rule_swap_v1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RuleSwap {
    phase_secs: u64,
}

const MICROS_PER_SECOND: u64 = 1_000_000;

impl RuleSwap {
    /// The name in the desired state.
    pub const NAME: &'static str = "rule-swap-v1";

    /// Phases of `interval` in whole seconds; below one second they last a minute.
    #[must_use]
    pub const fn new(interval: Micros) -> Self {
        let whole = interval.get() / MICROS_PER_SECOND;
        Self { phase_secs: if whole == 0 { 60 } else { whole } }
    }

    /// All nodes run at full power except the first or the second, in turn.
    pub(super) fn profiles(&self, nodes: usize, wall_clock: Micros) -> Vec<Profile> {
        let phase = (wall_clock.get() / MICROS_PER_SECOND) / self.phase_secs % 2;
        let eco = usize::from(phase == 1);
        (0..nodes).map(|at| if at == eco { Profile::Eco } else { Profile::Performance }).collect()
    }
}
