//! Power usage effectiveness: what the building draws for each watt of its machines.

use power_units::{Percent, Ratio};

/// A PUE, and where it comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pue {
    /// (IT + cooling) / IT, as the facility measures it.
    Facility(Ratio),
    /// 1.05 + 0.35 · cooling stress / 100, for want of a measurement.
    Derived(Ratio),
}

impl Pue {
    pub(super) fn of(facility: Option<Ratio>, cooling: Option<Percent>) -> Option<Self> {
        facility.map(Self::Facility).or_else(|| cooling.map(|stress| Self::Derived(derived(stress))))
    }

    /// The factor itself.
    #[must_use]
    pub const fn ratio(self) -> Ratio {
        match self {
            Self::Facility(ratio) | Self::Derived(ratio) => ratio,
        }
    }
}

/// (10500 + 35 · stress) / 10000 in one division, rounded up. A stress is at most 100, far from the ends of 64 bits.
fn derived(stress: Percent) -> Ratio {
    let ten_thousandths =
        Percent::from_int(10_500).to_bits() + 35 * stress.within(Percent::ZERO, Percent::HUNDRED).to_bits();
    let rest = ten_thousandths.rem_euclid(10_000);
    Ratio::from_bits(ten_thousandths.div_euclid(10_000) + i64::from(rest != 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_measured_pue_wins_over_a_derived_one_and_says_so() {
        let (real, stress) = (Ratio::from_bits(6 << 30), Percent::from_int(50));
        assert_eq!(Pue::of(Some(real), Some(stress)), Some(Pue::Facility(real)));
        assert!(matches!(Pue::of(None, Some(stress)), Some(Pue::Derived(_))));
        assert_eq!(Pue::of(None, None), None);
    }

    #[test]
    fn the_derived_pue_runs_from_1_05_to_1_40() {
        // 1.05·2³² = 4509715660.8, 1.225·2³² = 5261334937.6, 1.4·2³² = 6012954214.4, each rounded up.
        assert_eq!(derived(Percent::ZERO).to_bits(), 4_509_715_661);
        assert_eq!(derived(Percent::from_int(50)).to_bits(), 5_261_334_938);
        assert_eq!(derived(Percent::HUNDRED).to_bits(), 6_012_954_215);
        assert_eq!(derived(Percent::MAX), derived(Percent::HUNDRED));
        assert_eq!(derived(Percent::MIN), derived(Percent::ZERO));
    }
}
