//! The annotation with what the operator does about a node's sleep: `asleep 2027-01-15T08:00:00Z BOOT`.

use crate::condition::rfc3339;
use crate::labels;
use jiff::Timestamp;
use joulie_core::placement::sleep::SleepPhase;
use serde_json::Value;
use std::fmt;

/// What the annotation says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SleepAnnotation<'a> {
    /// The phase.
    pub phase: SleepPhase,
    /// Since when, on the wall clock of who wrote it.
    pub since: Timestamp,
    /// The boot in which the node was to be switched off, and before that the one in which it was closed; empty if it is not
    /// known.
    pub boot: &'a str,
}

impl<'a> SleepAnnotation<'a> {
    /// Reads the text; `None` if it is no such text.
    #[must_use]
    pub fn read(text: &'a str) -> Option<Self> {
        let mut words = text.split_whitespace();
        let phase = SleepPhase::read(words.next()?)?;
        let since: Timestamp = words.next()?.parse().ok()?;
        let boot = words.next().unwrap_or_default();
        (since >= Timestamp::UNIX_EPOCH && words.next().is_none()).then_some(Self { phase, since, boot })
    }

    /// What a text means, for people. A node whose text cannot be read is left to people.
    #[must_use]
    pub fn meaning(text: &str) -> &'static str {
        SleepAnnotation::read(text).map_or(SleepPhase::Left, |state| state.phase).meaning()
    }

    /// The text on a Node, if there is one.
    #[must_use]
    pub fn text(node: &Value) -> Option<&str> {
        node["metadata"]["annotations"][labels::node::SLEEP_STATE].as_str()
    }
}

impl fmt::Display for SleepAnnotation<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.phase.word(), rfc3339(self.since))?;
        if self.boot.is_empty() { Ok(()) } else { write!(f, " {}", self.boot) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_nothing_else_is() {
        let since: Timestamp = "2027-01-15T08:00:00Z".parse().unwrap();
        for phase in SleepPhase::ALL {
            for boot in ["0b1e-77", ""] {
                let state = SleepAnnotation { phase, since, boot };
                assert_eq!(SleepAnnotation::read(&state.to_string()), Some(state));
            }
        }
        for bad in [
            "",
            "asleep",
            "asleep yesterday boot",
            "dreams 2027-01-15T08:00:00Z boot",
            "asleep 2027-01-15T08:00:00Z boot more",
            "asleep 1927-01-15T08:00:00Z boot",
        ] {
            assert_eq!(SleepAnnotation::read(bad), None, "{bad}");
            assert_eq!(SleepAnnotation::meaning(bad), SleepPhase::Left.meaning(), "{bad}");
        }
    }
}
