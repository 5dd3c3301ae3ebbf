//! Conditions of an object's status, written so that a steady state writes nothing.
//!
//! The time of a condition is when its *status* changed; a new reason or message leaves it. Each type is there once.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

/// What the API server accepts of a message, in bytes.
const MESSAGE_MAX: usize = 32_768;

/// Whether a condition holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// It holds.
    True,
    /// It does not.
    False,
    /// Nobody can say.
    Unknown,
}

impl Status {
    const fn word(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
}

/// What a condition should say.
#[derive(Clone, Debug)]
pub struct Wanted<'m> {
    /// Its type, as in `CapEnforced`.
    pub kind: &'static str,
    /// Whether it holds.
    pub status: Status,
    /// Why, in one word for machines.
    pub reason: &'static str,
    /// Why, for people.
    pub message: &'m str,
    /// Which generation of the spec was looked at.
    pub generation: Option<i64>,
}

/// Makes `conditions` say what is wanted; whether anything had to change. Conditions of other types are left alone.
pub fn set(conditions: &mut Vec<Condition>, wanted: &Wanted<'_>, now: Timestamp) -> bool {
    let message = super::events::cut(wanted.message, MESSAGE_MAX);
    // The wire has whole seconds; with more, what is read back would differ from what was written.
    let now = Timestamp::from_second(now.as_second()).unwrap_or(now);
    let before = conditions.len();
    let mut found = false;
    conditions.retain(|condition| condition.type_ != wanted.kind || !std::mem::replace(&mut found, true));
    let removed = conditions.len() != before;
    let Some(condition) = conditions.iter_mut().find(|condition| condition.type_ == wanted.kind) else {
        conditions.push(Condition {
            last_transition_time: Time(now),
            message: message.to_owned(),
            observed_generation: wanted.generation,
            reason: wanted.reason.to_owned(),
            status: wanted.status.word().to_owned(),
            type_: wanted.kind.to_owned(),
        });
        return true;
    };
    let turned = condition.status != wanted.status.word();
    let same = !turned
        && condition.reason == wanted.reason
        && condition.message == message
        && condition.observed_generation == wanted.generation;
    if turned {
        condition.last_transition_time = Time(now);
    }
    if !same {
        condition.status = wanted.status.word().to_owned();
        condition.reason = wanted.reason.to_owned();
        condition.message = message.to_owned();
        condition.observed_generation = wanted.generation;
    }
    removed || !same
}

/// Whether a condition is there and true.
pub fn holds(conditions: &[Condition], kind: &str) -> bool {
    conditions.iter().any(|condition| condition.type_ == kind && condition.status == "True")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(status: Status, reason: &'static str, message: &'static str) -> Wanted<'static> {
        Wanted { kind: "CapEnforced", status, reason, message, generation: Some(2) }
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn the_time_of_a_condition_changes_with_its_status_and_with_nothing_else() {
        let mut all = Vec::new();
        let fine = at(10).checked_add(std::time::Duration::from_nanos(7)).unwrap();
        assert!(set(&mut all, &wanted(Status::True, "Applied", "300 W"), fine));
        assert!(!set(&mut all, &wanted(Status::True, "Applied", "300 W"), at(20)), "nothing to write");
        assert!(set(&mut all, &wanted(Status::True, "Clamped", "280 W"), at(30)));
        assert_eq!(
            (all[0].last_transition_time.0, all[0].reason.as_str(), all.len()),
            (at(10), "Clamped", 1)
        );
        assert!(set(
            &mut all,
            &Wanted { generation: Some(3), ..wanted(Status::True, "Clamped", "280 W") },
            at(35)
        ));
        assert_eq!((all[0].last_transition_time.0, all[0].observed_generation), (at(10), Some(3)));
        assert!(set(&mut all, &wanted(Status::Unknown, "Blind", "no reading"), at(40)));
        assert_eq!((all[0].last_transition_time.0, all[0].status.as_str()), (at(40), "Unknown"));
        assert!(!holds(&all, "CapEnforced") && !holds(&all, "Ready"));
    }

    #[test]
    fn conditions_of_others_stay_and_a_double_of_ours_goes() {
        let mut all = Vec::new();
        set(&mut all, &wanted(Status::True, "Applied", ""), at(1));
        let mut other = all[0].clone();
        other.type_ = "Ready".to_owned();
        all.extend([other, all[0].clone()]);
        assert!(set(&mut all, &wanted(Status::True, "Applied", ""), at(2)), "the double is a change");
        assert_eq!(all.iter().map(|one| one.type_.as_str()).collect::<Vec<_>>(), ["CapEnforced", "Ready"]);
        assert!(holds(&all, "Ready") && holds(&all, "CapEnforced"));
    }

    #[test]
    fn a_message_that_is_too_long_is_cut_and_not_refused_by_the_server() {
        let (mut all, long) = (Vec::new(), "ß".repeat(MESSAGE_MAX));
        let wanted = Wanted { message: &long, ..wanted(Status::True, "Applied", "") };
        set(&mut all, &wanted, at(1));
        assert!(all[0].message.len() <= MESSAGE_MAX && !set(&mut all, &wanted, at(2)));
    }
}
