//! How much a pod suffers from a node's caps: by how far the caps are below the ratings, and by how much a cap would
//! hurt the pod, as its workload's trusted profile says.
//!
//! ```text
//! points lost = max over processors and GPUs of weight · (100 − cap in percent of the rating)
//! weight      = 0.5 for high, 0.25 for medium, 0 for low or unknown sensitivity
//! ```
//!
//! On eco nodes of 60 % that is 20 points for a high and 10 for a medium sensitivity: the latter is as much as the
//! profile bonus of standard pods there. Points are only lost, so a profile never makes a node look better.

use super::class::SchedulableClass;
use power_units::Percent;

/// How much a cap would hurt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum SensitivityLevel {
    /// Little, or nothing is known.
    #[default]
    Low,
    /// Somewhat.
    Medium,
    /// Much.
    High,
}

/// How much caps would hurt a pod.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CapSensitivity {
    /// Caps of the processors.
    pub cpu: SensitivityLevel,
    /// Caps of the GPUs.
    pub gpu: SensitivityLevel,
}

/// By how many percent, rounded up, a node's caps are below its ratings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CapDepth {
    cpu: u8,
    gpu: u8,
}

/// Points that a pod loses on a node, in twentieths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct PointsLost(u16);

impl SensitivityLevel {
    /// Twentieths of a point for each percent.
    const fn weight(self) -> u16 {
        match self {
            Self::Low => 0,
            Self::Medium => 5,
            Self::High => 10,
        }
    }
}

impl CapSensitivity {
    /// Nothing is known, or no cap hurts.
    pub const NONE: Self = Self { cpu: SensitivityLevel::Low, gpu: SensitivityLevel::Low };

    /// The points that are lost under caps of this depth.
    #[must_use]
    #[inline]
    pub fn lost(self, depth: CapDepth) -> PointsLost {
        let of =
            |sensitivity: SensitivityLevel, depth: u8| sensitivity.weight().saturating_mul(u16::from(depth));
        PointsLost(of(self.cpu, depth.cpu).max(of(self.gpu, depth.gpu)))
    }
}

impl CapDepth {
    /// The depth of a node's caps, as percentages of its ratings. A node of full power without a percentage is not
    /// capped; for any other that is unknown, and counts as the deepest cap.
    #[must_use]
    pub fn of(class: SchedulableClass, cpu: Option<Percent>, gpu: Option<Percent>) -> Self {
        let unknown = match class {
            SchedulableClass::Performance => Percent::HUNDRED,
            SchedulableClass::Eco | SchedulableClass::Draining | SchedulableClass::Unknown => Percent::ZERO,
        };
        let below = |cap: Option<Percent>| {
            let cap = cap.unwrap_or(unknown).within(Percent::ZERO, Percent::HUNDRED);
            let left = (Percent::HUNDRED - cap).to_bits();
            let whole = left.saturating_add(u32::MAX.into()) >> 32;
            u8::try_from(whole).unwrap_or(100).min(100)
        };
        Self { cpu: below(cpu), gpu: below(gpu) }
    }
}

impl PointsLost {
    /// None.
    pub const NONE: Self = Self(0);

    pub(crate) const fn twentieths(self) -> u16 {
        self.0
    }

    /// In whole points, rounded up.
    pub(crate) fn points(self) -> u8 {
        u8::try_from(self.0.div_ceil(20)).unwrap_or(u8::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use SchedulableClass::{Draining, Eco, Performance, Unknown};

    fn percent(value: i32) -> Option<Percent> {
        Some(Percent::from_int(value))
    }

    fn lost(cpu: SensitivityLevel, gpu: SensitivityLevel, depth: CapDepth) -> u16 {
        CapSensitivity { cpu, gpu }.lost(depth).0
    }

    #[test]
    fn a_cap_costs_half_a_point_or_a_quarter_for_each_percent_that_it_takes() {
        use SensitivityLevel::{High, Low, Medium};
        // Caps of 60 % and 80 %: 40 · 0.5 = 20 points, 40 · 0.25 = 10, 20 · 0.5 = 10; of two the larger counts.
        let depth = CapDepth::of(Eco, percent(60), percent(80));
        assert_eq!(lost(High, Low, depth), 20 * 20);
        assert_eq!(lost(Medium, Low, depth), 10 * 20);
        assert_eq!(lost(Low, High, depth), 10 * 20);
        assert_eq!(lost(Medium, Medium, depth), 10 * 20);
        assert_eq!(lost(Low, Low, depth), 0);
        // A part of a percent counts as a whole one.
        let third = CapDepth::of(Eco, Some(Percent::from_bits((60 << 32) - 1)), percent(100));
        assert_eq!(lost(High, High, third), 41 * 10);
    }

    #[test]
    fn an_unknown_cap_counts_as_the_deepest_except_where_full_power_is_offered() {
        for class in [Eco, Draining, Unknown] {
            assert_eq!(CapDepth::of(class, None, percent(100)), CapDepth { cpu: 100, gpu: 0 }, "{class:?}");
        }
        assert_eq!(CapDepth::of(Performance, None, None), CapDepth::default());
        assert_eq!(CapDepth::of(Performance, percent(90), percent(-5)), CapDepth { cpu: 10, gpu: 100 });
        assert_eq!(CapDepth::of(Eco, percent(500), percent(i32::MIN)), CapDepth { cpu: 0, gpu: 100 });
    }
}
