//! The two supplies that a node can be: full power, or capped.

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
}
