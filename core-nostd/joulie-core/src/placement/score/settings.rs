//! The settings of the score.

use super::NEUTRAL;
use crate::placement::estimate::Coefficients;
use core::fmt;

/// The settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scoring {
    /// `SCORING_FORMULA`
    pub formula: Formula,
    /// `ENABLE_FACILITY_METRICS`: whether the pod's watts are multiplied by PUE.
    pub facility_metrics: bool,
    /// `UNKNOWN_SCORE`
    pub unknown: UnknownScore,
    /// `EXTENDER_SCORE_MAX`
    pub max: ScoreMax,
    /// `MARGINAL_*`
    pub coefficients: Coefficients,
}

/// The weights of the formula.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Formula {
    /// 0.7 headroom, 0.15 cooling, the trend, bonus and relief.
    Headroom,
    /// 0.4 headroom, 0.3 cooling, 0.3 power supply, bonus and relief.
    Facility,
    /// Fewest nodes by watts; see `consolidate.rs`.
    Consolidate,
}

/// The score of a node without any information.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnknownScore {
    /// 50.
    Neutral,
    /// 50, but never more than the lowest known candidate of the same request.
    Cautious,
}

/// The highest score.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScoreMax {
    /// 0 to 100. kube-scheduler multiplies by ten times the weight in both cases.
    Hundred,
    /// 0 to 10, the range of the extender protocol.
    Ten,
}

/// Why a setting was refused: its variable and what would be accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SettingError {
    variable: &'static str,
    accepted: &'static str,
}

impl SettingError {
    pub(crate) const fn new(variable: &'static str, accepted: &'static str) -> Self {
        Self { variable, accepted }
    }
}

impl fmt::Display for SettingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: expected {}", self.variable, self.accepted)
    }
}

impl core::error::Error for SettingError {}

impl Formula {
    /// Reads `SCORING_FORMULA`.
    ///
    /// # Errors
    /// When there is no such formula.
    pub fn read(text: &str) -> Result<Self, SettingError> {
        match text.trim() {
            "headroom" => Ok(Self::Headroom),
            "facility" => Ok(Self::Facility),
            "consolidate" => Ok(Self::Consolidate),
            _ => Err(SettingError::new("SCORING_FORMULA", "headroom, facility or consolidate")),
        }
    }
}

impl UnknownScore {
    /// Reads `UNKNOWN_SCORE`.
    ///
    /// # Errors
    /// When the text is no valid choice.
    pub fn read(text: &str) -> Result<Self, SettingError> {
        match text.trim() {
            "neutral" | "50" => Ok(Self::Neutral),
            "cautious" => Ok(Self::Cautious),
            _ => Err(SettingError::new("UNKNOWN_SCORE", "neutral or cautious")),
        }
    }

    pub(crate) fn score(self, lowest: Option<u8>) -> u8 {
        match (self, lowest) {
            (Self::Neutral, _) | (Self::Cautious, None) => NEUTRAL,
            (Self::Cautious, Some(lowest)) => NEUTRAL.min(lowest),
        }
    }
}

impl ScoreMax {
    /// Reads `EXTENDER_SCORE_MAX`.
    ///
    /// # Errors
    /// When it is neither of the two.
    pub fn read(text: &str) -> Result<Self, SettingError> {
        match text.trim() {
            "100" => Ok(Self::Hundred),
            "10" => Ok(Self::Ten),
            _ => Err(SettingError::new("EXTENDER_SCORE_MAX", "100 or 10")),
        }
    }

    /// A whole score of 0..=100 in this range, rounded toward zero.
    #[must_use]
    pub fn points(self, whole: u8) -> u8 {
        match self {
            Self::Hundred => whole,
            Self::Ten => whole.checked_div(10).unwrap_or(0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;

    #[test]
    fn choices_are_read_and_nonsense_is_refused_by_name() {
        assert_eq!(Formula::read("facility"), Ok(Formula::Facility));
        assert_eq!(Formula::read(" headroom "), Ok(Formula::Headroom));
        assert_eq!(Formula::read("consolidate"), Ok(Formula::Consolidate));
        assert_eq!(UnknownScore::read("cautious"), Ok(UnknownScore::Cautious));
        assert_eq!(UnknownScore::read("neutral"), Ok(UnknownScore::Neutral));
        assert_eq!(ScoreMax::read("10"), Ok(ScoreMax::Ten));
        assert_eq!(ScoreMax::read("100"), Ok(ScoreMax::Hundred));
        for text in ["", "0", "NaN", "Facility", "consolidation"] {
            assert_eq!(
                Formula::read(text).unwrap_err().to_string(),
                "SCORING_FORMULA: expected headroom, facility or consolidate"
            );
            assert!(UnknownScore::read(text).is_err());
            assert!(ScoreMax::read(text).is_err());
        }
    }

    #[test]
    fn the_protocol_s_range_is_a_tenth_cut() {
        for whole in 0..=100_u8 {
            assert_eq!(ScoreMax::Hundred.points(whole), whole);
            assert_eq!(ScoreMax::Ten.points(whole), whole / 10);
        }
    }
}
