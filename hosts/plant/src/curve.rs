//! How dynamic power and speed follow the clock.
//!
//! Powers are computed from multiplications and square roots, which IEEE 754 defines to the last bit. `powf` and `exp`
//! come from the platform's mathematics library and would make a golden file differ between machines.

/// A power law's exponent, in eighths: the fractions that square roots can compute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exponent {
    eighths: u8,
}

impl Exponent {
    /// 2.5: between the cube of an ideal voltage curve and the square of a real one.
    pub const NOMINAL: Self = Self { eighths: 20 };

    /// The exponent of this many eighths; `None` outside of 1 to 4, because no processor has such an exponent.
    #[must_use]
    pub const fn of_eighths(eighths: u8) -> Option<Self> {
        if eighths < 8 || eighths > 32 { None } else { Some(Self { eighths }) }
    }

    /// The nearest exponent; `None` outside of 1 to 4.
    #[must_use]
    pub fn nearest(value: f64) -> Option<Self> {
        if !(1.0..=4.0).contains(&value) {
            return None;
        }
        u8::try_from(crate::units::whole(value * 8.0)).ok().and_then(Self::of_eighths)
    }

    /// As a number.
    #[must_use]
    pub fn value(self) -> f64 {
        f64::from(self.eighths) / 8.0
    }

    /// `base` to this power, for a base that is not negative.
    #[must_use]
    pub fn raise(self, base: f64) -> f64 {
        let mut power = match self.eighths >> 3 {
            1 => base,
            2 => base * base,
            3 => base * base * base,
            _ => (base * base) * (base * base),
        };
        let mut root = base;
        for bit in [4, 2, 1] {
            if self.eighths & (2 * bit - 1) == 0 {
                break;
            }
            root = root.sqrt();
            if self.eighths & bit != 0 {
                power *= root;
            }
        }
        power
    }
}

/// Dynamic power by clock, both as fractions of their value at the highest clock.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Curve {
    /// A power law.
    Power(Exponent),
    /// Voltage is constant below `knee` (a fraction of the highest clock) and proportional to the clock above it:
    /// power is linear below and cubic above.
    VoltageFloor {
        /// The clock at which the voltage starts to rise, between 0 and 1.
        knee: f64,
    },
}

impl Curve {
    /// The fraction of the full dynamic power at a clock of `scale` times the highest.
    #[must_use]
    pub fn at(&self, scale: f64) -> f64 {
        match *self {
            Self::Power(exponent) => exponent.raise(scale),
            Self::VoltageFloor { knee } => {
                let voltage = scale.max(knee);
                scale * voltage * voltage
            }
        }
    }
}

/// The speed of a load at a clock of `scale` times the highest, 1 at the highest. The fraction `memory` of its time at
/// the highest clock is spent waiting for memory, whose speed does not depend on the clock.
#[must_use]
pub fn speed(scale: f64, memory: f64) -> f64 {
    if memory == 0.0 { scale } else { scale / ((1.0 - memory) + memory * scale) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn powers_are_what_hand_calculation_gives() {
        let raise = |exponent, base| Exponent::nearest(exponent).unwrap().raise(base);
        assert_eq!(raise(1.0, 0.25), 0.25);
        assert_eq!(raise(1.5, 0.25), 0.125);
        assert_eq!(raise(2.5, 0.25), 0.031_25);
        assert_eq!(raise(3.0, 0.5), 0.125);
        assert_eq!(raise(4.0, 0.5), 0.062_5);
        // 0.0625^(9/4) = 2^-9; 2^-8 to 19/8 is 2^-19; 2^-8 to 9/8 is 2^-9.
        assert_eq!(raise(2.25, 0.062_5), 0.001_953_125);
        assert_eq!(raise(2.375, 0.003_906_25), 1.907_348_632_812_5e-6);
        assert_eq!(raise(1.125, 0.003_906_25), 0.001_953_125);
    }

    #[test]
    fn exponents_outside_of_one_to_four_are_refused() {
        assert_eq!(Exponent::nearest(2.4).map(Exponent::value), Some(2.375));
        assert_eq!(Exponent::nearest(0.99), None);
        assert_eq!(Exponent::nearest(4.01), None);
        assert_eq!(Exponent::nearest(f64::NAN), None);
        assert_eq!(Exponent::of_eighths(7), None);
        assert_eq!(Exponent::of_eighths(33), None);
    }

    #[test]
    fn a_flat_voltage_makes_power_linear_below_the_knee_and_cubic_above() {
        let curve = Curve::VoltageFloor { knee: 0.5 };
        assert_eq!(curve.at(0.25), 0.062_5);
        assert_eq!(curve.at(0.5), 0.125);
        assert_eq!(curve.at(0.75), 0.421_875);
        assert_eq!(curve.at(1.0), 1.0);
    }

    #[test]
    fn a_load_that_waits_for_memory_loses_less_speed() {
        assert_eq!(speed(0.5, 0.0), 0.5);
        // Half of the time scales: 0.5/0.5 + 0.5 = 1.5 times as long.
        assert_eq!(speed(0.5, 0.5), 1.0 / 1.5);
        assert_eq!(speed(0.5, 1.0), 1.0);
        assert_eq!(speed(1.0, 0.3), 1.0);
    }

    proptest! {
        #[test]
        fn powers_agree_with_the_platforms_library(eighths in 8_u8..=32, base in 0.0_f64..2.0) {
            let exponent = Exponent::of_eighths(eighths).unwrap();
            let theirs = base.powf(exponent.value());
            prop_assert!((exponent.raise(base) - theirs).abs() <= 1e-14 * theirs.max(1e-3));
        }

        #[test]
        fn power_never_falls_as_the_clock_rises(eighths in 8_u8..=32, knee in 0.01_f64..0.99, a in 0.0_f64..1.0, b in 0.0_f64..1.0) {
            let (low, high) = (a.min(b), a.max(b));
            for curve in [Curve::Power(Exponent::of_eighths(eighths).unwrap()), Curve::VoltageFloor { knee }] {
                prop_assert!(curve.at(low) <= curve.at(high));
            }
        }
    }
}
