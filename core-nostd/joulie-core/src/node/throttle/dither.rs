//! Spatial dither: a mean frequency between two steps of the hardware.
//!
//! The frequency steps of hardware (100 MHz, say) are too coarse for a power cap: one step of all policies is
//! several percent of the power, and to alternate between two steps is a limit cycle. Instead, some of the policies
//! get a limit one step above that of the others, so that the *mean* is the requested frequency, and no limit has to
//! change.

use super::PolicySequence;
use crate::node::law::FrequencyRange;
use power_units::KiloHertz;

/// The frequencies that a policy can be limited to within a range, and the range's ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grid<'a> {
    range: FrequencyRange,
    spacing: Spacing<'a>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Spacing<'a> {
    /// The multiples of this step.
    Step(KiloHertz),
    /// These, kHz, ascending.
    Table(&'a [u32]),
}

/// No driver has a finer step than this.
const STEP_MIN: KiloHertz = KiloHertz::from_int(1);

impl<'a> Grid<'a> {
    /// The multiples of a step, if that is at least 1 kHz.
    #[must_use]
    pub fn new(range: FrequencyRange, step: KiloHertz) -> Option<Self> {
        (step >= STEP_MIN).then_some(Self { range, spacing: Spacing::Step(step) })
    }

    /// The entries of a table, kHz, which ascend. Those outside the range are left out.
    #[must_use]
    pub const fn of_table(range: FrequencyRange, table: &'a [u32]) -> Self {
        Self { range, spacing: Spacing::Table(table) }
    }

    /// The grid's frequencies around `target`: the highest that is not above it, and the next one. At the maximum
    /// they are equal.
    pub(crate) fn around(&self, target: KiloHertz) -> (KiloHertz, KiloHertz) {
        let (min, max) = (self.range.min(), self.range.max());
        if target >= max {
            return (max, max);
        }
        match self.spacing {
            Spacing::Step(step) => {
                let beyond = target.to_bits().checked_rem(step.to_bits()).unwrap_or(0);
                let multiple = target - KiloHertz::from_bits(beyond);
                (multiple.max(min), (multiple + step).min(max))
            }
            Spacing::Table(table) => {
                let entries =
                    || table.iter().map(|&khz| KiloHertz::from_int(i32::try_from(khz).unwrap_or(i32::MAX)));
                let low = entries().take_while(|&entry| entry <= target).last();
                let high = entries().find(|&entry| entry > target);
                (low.unwrap_or(min).max(min), high.unwrap_or(max).min(max))
            }
        }
    }
}

impl<'a> PolicySequence<'a> {
    /// For each policy, in the order of the places, the limit that makes `target` the mean. The mean is never above
    /// the target, and below it by less than one core's share of a step. The target is first clamped to the range.
    ///
    /// The mean is that of the policies that rise. One that cannot be set to the target (a lower ceiling, an order that it
    /// refuses) gets the lower of the two limits.
    pub fn spread(&self, target: KiloHertz, grid: &Grid<'_>) -> impl Iterator<Item = KiloHertz> + use<'a> {
        let target = target.within(grid.range.min(), grid.range.max());
        let (low, high) = grid.around(target);
        let (seats, policies) = (self.seats, self.policies);
        let rising = |least: u64| {
            let before = seats.iter().filter(|seat| seat.rises && seat.before < least);
            before.fold(0_u64, |count, _| count.saturating_add(1))
        };
        let all = rising(u64::MAX);
        // The policies that come first are limited first, so the last ones are raised.
        let limited = all.saturating_sub(share(all, target - low, high - low));
        seats.iter().map(move |seat| {
            let before = if all == policies { seat.before } else { rising(seat.before) };
            if seat.rises && before >= limited { high } else { low }
        })
    }
}

/// `policies · part / whole`, rounded down. 2⁻¹⁶ kHz are fine enough, and the product stays within 64 bits for all
/// frequencies and up to 65,536 policies.
fn share(policies: u64, part: KiloHertz, whole: KiloHertz) -> u64 {
    let bits = |f: KiloHertz| u64::try_from(f.to_bits() >> 16).unwrap_or(0);
    policies.saturating_mul(bits(part)).checked_div(bits(whole)).unwrap_or(0)
}
