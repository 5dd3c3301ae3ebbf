//! Temperature is a point on a scale; only differences can be added.

/// A temperature.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Celsius(Kelvins);

crate::quantity::quantity! {
    /// A difference of temperatures.
    Kelvins, "K"
}

impl Celsius {
    /// This number of whole degrees.
    #[must_use]
    pub const fn from_int(degrees: i32) -> Self {
        Self(Kelvins::from_int(degrees))
    }

    /// The value whose bits are `bits`, in units of 2⁻³² degrees.
    #[must_use]
    pub const fn from_bits(bits: i64) -> Self {
        Self(Kelvins::from_bits(bits))
    }

    /// The value in units of 2⁻³² degrees.
    #[must_use]
    pub const fn to_bits(self) -> i64 {
        self.0.to_bits()
    }

    /// Reads decimal text (a JSON number), rounded as `role` says.
    ///
    /// # Errors
    /// When the text is not a number or its value does not fit.
    pub fn parse(text: &str, role: crate::Role) -> Result<Self, crate::DecimalError> {
        Kelvins::parse(text, role).map(Self)
    }
}

impl core::ops::Sub for Celsius {
    type Output = Kelvins;
    fn sub(self, other: Self) -> Kelvins {
        Kelvins(self.0.0.saturating_sub(other.0.0))
    }
}

impl core::ops::Add<Kelvins> for Celsius {
    type Output = Self;
    fn add(self, warmer: Kelvins) -> Self {
        Self(Kelvins(self.0.0.saturating_add(warmer.0)))
    }
}

impl core::ops::Sub<Kelvins> for Celsius {
    type Output = Self;
    fn sub(self, cooler: Kelvins) -> Self {
        Self(Kelvins(self.0.0.saturating_sub(cooler.0)))
    }
}

impl core::fmt::Display for Celsius {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        core::fmt::Display::fmt(&self.0, f)
    }
}

impl core::fmt::Debug for Celsius {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{} °C", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn differences_add_up_to_the_temperature_again() {
        let (cold, warm) = (Celsius::from_int(-5), Celsius::from_int(45));
        assert_eq!(warm - cold, Kelvins::from_int(50));
        assert_eq!(cold + (warm - cold), warm);
        assert_eq!(warm - Kelvins::from_int(50), cold);
    }

    proptest! {
        #[test]
        fn a_difference_leads_back(a in -(1_i64 << 61)..(1 << 61), b in -(1_i64 << 61)..(1 << 61)) {
            let (a, b) = (Celsius::from_bits(a), Celsius::from_bits(b));
            prop_assert_eq!(b + (a - b), a);
            prop_assert_eq!(a - (a - b), b);
            prop_assert_eq!((a - b) > Kelvins::ZERO, a > b);
        }
    }
}
