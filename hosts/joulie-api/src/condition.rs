//! Conditions, as every Kubernetes object has them.

use crate::macros::vocabulary;
use crate::number::Whole;
use crate::word::{Vocabulary, Word};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// The longest message that the schema accepts. A message may quote what somebody wrote; if it is longer, the API
/// server refuses the whole status.
const MESSAGE_MAX: usize = 32_768;

vocabulary! {
    /// What the conditions of Joulie's objects are about.
    pub enum ConditionType {
        /// Somebody else owns a field that Joulie would write, a person's cap for one; it is left alone.
        Overridden = "Overridden",
        /// An object of the node is there and cannot be read: what it says is unknown, and nothing is written over it.
        Unreadable = "Unreadable",
        /// The node says of its hardware what cannot be; what is known of its models is taken instead.
        HardwareImplausible = "HardwareImplausible",
        /// The telemetry behind a twin's status is recent.
        TelemetryFresh = "TelemetryFresh",
        /// Two sources of the node's power are far apart, and the first one counts; of a PowerBudget: its meters show more than is
        /// counted.
        MetersDisagree = "MetersDisagree",
        /// The desired caps are in force: read back from the hardware, and seen in what is drawn.
        CapEnforced = "CapEnforced",
        /// Performance pods have kept the node from becoming an eco node for longer than they may.
        DrainOverdue = "DrainOverdue",
        /// The power budget of every group that the node is in is kept.
        WithinBudget = "WithinBudget",
        /// The signal of a PowerBudget has a recent value.
        SignalFresh = "SignalFresh",
        /// A PowerBudget or a TelemetryProfile is used as it is written.
        Accepted = "Accepted",
    }
}

vocabulary! {
    /// Whether a condition holds.
    pub enum ConditionStatus {
        /// It does.
        True = "True",
        /// It does not.
        False = "False",
        /// Nobody can say.
        Unknown = "Unknown",
    }
}

/// A reason for a condition, as the reference lists it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConditionReason {
    /// The condition.
    pub about: ConditionType,
    /// The status of the condition with this reason.
    pub status: ConditionStatus,
    /// The word.
    pub word: &'static str,
    /// What it means, and what a person should do.
    pub meaning: &'static str,
}

/// One condition of an object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, kube::KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// What it is about, in CamelCase. There is at most one condition of a type.
    #[serde(rename = "type")]
    #[schemars(length(min = 1, max = 316))]
    pub type_: String,
    /// Whether it holds.
    pub status: Word<ConditionStatus>,
    /// The generation of the spec that was looked at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<Whole>,
    /// When the status last changed, RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<String>,
    /// Why, as one word in CamelCase.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub reason: Option<String>,
    /// Why, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32768))]
    pub message: Option<String>,
}

impl Condition {
    /// Creates a condition of Joulie's with the time `now`. A message that is too long is cut.
    #[must_use]
    pub fn new(
        about: ConditionType,
        status: ConditionStatus,
        reason: &str,
        message: impl Into<String>,
        generation: Option<i64>,
        now: Timestamp,
    ) -> Self {
        let mut message: String = message.into();
        message.truncate(message.floor_char_boundary(MESSAGE_MAX));
        Self {
            type_: about.as_str().to_owned(),
            status: status.into(),
            observed_generation: generation.map(Whole::from),
            last_transition_time: Some(rfc3339(now)),
            reason: Some(reason.to_owned()),
            message: Some(message),
        }
    }
}

/// Adds or replaces a condition. While its status stays the same, it keeps the time of its last transition. Returns
/// true if anything other than the time has changed.
pub fn set(conditions: &mut Vec<Condition>, mut new: Condition) -> bool {
    let Some(old) = conditions.iter_mut().find(|old| old.type_ == new.type_) else {
        conditions.push(new);
        return true;
    };
    if old.status == new.status {
        new.last_transition_time.clone_from(&old.last_transition_time);
    }
    let changed = *old != new;
    *old = new;
    changed
}

/// The status of a condition; `None` if there is no such condition.
#[must_use]
pub fn find(conditions: &[Condition], about: ConditionType) -> Option<ConditionStatus> {
    let found = conditions.iter().find(|condition| condition.type_ == about.as_str())?;
    Some(found.status.known().unwrap_or(ConditionStatus::Unknown))
}

/// The time in the format of objects: UTC, whole seconds.
#[must_use]
pub fn rfc3339(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn fresh(status: ConditionStatus, second: i64) -> Condition {
        Condition::new(ConditionType::TelemetryFresh, status, "Sampled", "", Some(3), at(second))
    }

    #[test]
    fn the_time_of_transition_moves_only_with_the_status() {
        let mut conditions = Vec::new();
        assert!(set(&mut conditions, fresh(ConditionStatus::True, 0)));
        assert!(!set(&mut conditions, fresh(ConditionStatus::True, 60)));
        assert_eq!(conditions[0].last_transition_time.as_deref(), Some("1970-01-01T00:00:00Z"));
        assert!(set(&mut conditions, fresh(ConditionStatus::False, 90)));
        assert_eq!(conditions[0].last_transition_time.as_deref(), Some("1970-01-01T00:01:30Z"));
        assert_eq!(conditions.len(), 1);
        assert_eq!(find(&conditions, ConditionType::TelemetryFresh), Some(ConditionStatus::False));
        assert_eq!(find(&conditions, ConditionType::Overridden), None);
    }

    #[test]
    fn a_message_that_is_too_long_does_not_cost_the_status() {
        let long = "\u{df}".repeat(MESSAGE_MAX);
        let condition =
            Condition::new(ConditionType::CapEnforced, ConditionStatus::False, "R", long, None, at(0));
        let cut = condition.message.unwrap();
        assert_eq!((cut.len(), cut.chars().count()), (32_768, 16_384));
    }

    #[test]
    fn a_status_that_nobody_knows_is_unknown() {
        let json = r#"{"type":"TelemetryFresh","status":"true"}"#;
        let condition: Condition = serde_json::from_str(json).unwrap();
        assert_eq!(find(&[condition], ConditionType::TelemetryFresh), Some(ConditionStatus::Unknown));
    }
}
