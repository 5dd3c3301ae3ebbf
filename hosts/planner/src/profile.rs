//! The two power profiles of a node: full power or capped.

/// The desired power profile of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Profile {
    /// Full power.
    Performance,
    /// Capped.
    Eco,
}

impl Profile {
    /// The text in labels and objects.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Performance => "performance",
            Self::Eco => "eco",
        }
    }

    /// Reads a label or a field; any other text is `None`.
    #[must_use]
    pub fn read(text: &str) -> Option<Self> {
        match text {
            "performance" => Some(Self::Performance),
            "eco" => Some(Self::Eco),
            _ => None,
        }
    }
}

/// One value for each profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PerProfile<T> {
    /// The value at full power.
    pub performance: T,
    /// The value when capped.
    pub eco: T,
}

impl<T: Copy> PerProfile<T> {
    /// The value of a profile.
    #[must_use]
    pub const fn of(&self, profile: Profile) -> T {
        match profile {
            Profile::Performance => self.performance,
            Profile::Eco => self.eco,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_two_profiles_are_read_and_anything_else_is_unknown() {
        // Table C7, normalise.
        for profile in [Profile::Performance, Profile::Eco] {
            assert_eq!(Profile::read(profile.as_str()), Some(profile));
        }
        for text in ["", "unknown", "garbage", "weird", "draining-performance", "Eco", " eco"] {
            assert_eq!(Profile::read(text), None, "{text:?}");
        }
    }
}
