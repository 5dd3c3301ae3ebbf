//! Spatial dither: a mean frequency between two steps of the hardware.
//!
//! The frequency steps of hardware (100 MHz, say) are too coarse for a power cap: one step of all policies is
//! several percent of the power, and to alternate between two steps is a limit cycle. Instead, some of the policies
//! get a limit one step above that of the others, so that the *mean* is the requested frequency, and no limit has to
//! change.

use super::PolicySequence;
use crate::node::law::FrequencyRange;
use power_units::KiloHertz;

/// The frequencies that a policy can be limited to: the multiples of a step within a range, and the range's ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grid {
    range: FrequencyRange,
    step: KiloHertz,
}

/// No driver has a finer step than this.
const STEP_MIN: KiloHertz = KiloHertz::from_int(1);

impl Grid {
    /// A grid, if the step is at least 1 kHz.
    #[must_use]
    pub fn new(range: FrequencyRange, step: KiloHertz) -> Option<Self> {
        (step >= STEP_MIN).then_some(Self { range, step })
    }

    /// The grid's frequencies around `target`: the highest that is not above it, and the next one. At the maximum
    /// they are equal.
    fn around(&self, target: KiloHertz) -> (KiloHertz, KiloHertz) {
        let (min, max) = (self.range.min(), self.range.max());
        if target >= max {
            return (max, max);
        }
        let beyond = target.to_bits().checked_rem(self.step.to_bits()).unwrap_or(0);
        let multiple = target - KiloHertz::from_bits(beyond);
        ((multiple.max(min)), (multiple + self.step).min(max))
    }
}

impl<'a> PolicySequence<'a> {
    /// For each policy, in the order of the places, the limit that makes `target` the mean. The mean is never above
    /// the target, and below it by less than one core's share of a step. The target is first clamped to the range.
    pub fn spread(&self, target: KiloHertz, grid: &Grid) -> impl Iterator<Item = KiloHertz> + use<'a> {
        let target = target.within(grid.range.min(), grid.range.max());
        let (low, high) = grid.around(target);
        let raised = share(self.policies, target - low, high - low);
        // The policies that come first are limited first, so the last ones are raised.
        let limited = self.policies.saturating_sub(raised);
        self.seats.iter().map(move |seat| if seat.before < limited { low } else { high })
    }
}

/// `policies · part / whole`, rounded down. 2⁻¹⁶ kHz are fine enough, and the product stays within 64 bits for all
/// frequencies and up to 65,536 policies.
fn share(policies: u64, part: KiloHertz, whole: KiloHertz) -> u64 {
    let bits = |f: KiloHertz| u64::try_from(f.to_bits() >> 16).unwrap_or(0);
    policies.saturating_mul(bits(part)).checked_div(bits(whole)).unwrap_or(0)
}
