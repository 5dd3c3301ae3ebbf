//! The settings of the law: their meaning, their ranges and their defaults.

use core::fmt;
use power_units::{Percent, Ratio};

/// The settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tuning {
    /// The assumed elasticity of power over frequency until it has been measured, from 0.75 to 4 (above 2.3 it counts as 2.3): `n = d ln P / d ln
    /// f`, for the whole power, including the static part.
    pub elasticity: Ratio,
    /// How far below the cap the law aims, as a fraction of the cap, from 0 to 0.1.
    pub guard: Ratio,
    /// The fraction of the target below which an error is ignored, above 0 and at most 0.05.
    pub deadband: Ratio,
    /// The largest rise of the limit in one step, as a fraction of the limit, above 0 and at most 1.
    pub rise: Ratio,
    /// The position in the range, from its minimum, to which the frequency moves when the power has been unknown for
    /// too long.
    pub safe_level: Percent,
}

/// Held on random machines that the law was not made with (`cargo xtask bench held-out`).
pub const DEFAULTS: Tuning = Tuning {
    // 1.4: below what most machines have at full load, because too low a limit is corrected sooner than too much power
    // is forgiven.
    elasticity: Ratio::from_bits(6_012_954_214),
    // 0.5 %.
    guard: Ratio::from_bits(21_474_836),
    // 0.4 %.
    deadband: Ratio::from_bits(17_179_869),
    // 1/4.
    rise: Ratio::from_bits(1 << 30),
    safe_level: Percent::ZERO,
};

/// Which setting is not valid, and what it accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TuningError {
    /// `elasticity` is outside [0.75, 4].
    Elasticity,
    /// `guard` is outside [0, 0.1].
    Guard,
    /// `deadband` is outside (0, 0.05].
    Deadband,
    /// `rise` is outside (0, 1].
    Rise,
    /// `safe_level` is outside [0 %, 100 %].
    SafeLevel,
}

impl fmt::Display for TuningError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Elasticity => "the elasticity must lie between 0.75 and 4",
            Self::Guard => "the guard must lie between 0 and 0.1",
            Self::Deadband => "the deadband must be above 0 and at most 0.05",
            Self::Rise => "the rise must be above 0 and at most 1",
            Self::SafeLevel => "the safe level must lie between 0 and 100 %",
        })
    }
}

impl core::error::Error for TuningError {}
