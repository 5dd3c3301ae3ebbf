//! Finds out whether somebody else has overwritten a status of the agent, and limits how often it is written again.
//!
//! Only the fields that the server kept from the agent's write are compared: a field that an older definition of the
//! kind drops was not overwritten by anybody. Fields that others add are ignored. Nothing is concluded from a watch
//! that has not reached the agent's write yet.

use super::rows::Seen;
use host_kit::clock::Mono;
use serde_json::{Map, Value};
use std::time::Duration;

/// Returns the part of `ours` that the server kept, by its answer.
pub(super) fn kept(ours: &Value, answer: &Value) -> Value {
    match (ours, answer) {
        (Value::Object(ours), Value::Object(answer)) => {
            let parts =
                ours.iter().filter_map(|(key, part)| Some((key.clone(), kept(part, answer.get(key)?))));
            Value::Object(parts.collect::<Map<_, _>>())
        }
        (Value::Array(ours), Value::Array(answer)) => {
            let items = ours.iter().enumerate();
            let items = items.filter_map(|(at, item)| Some(kept(item, counterpart(item, at, answer)?)));
            Value::Array(items.collect())
        }
        (_, answer) => answer.clone(),
    }
}

/// Whether the status that the watch shows still carries what was written. While the watch may lag, a version from
/// before the write counts as carrying it.
pub(super) fn stands(seen: &Seen, written: &Seen, may_lag: bool) -> bool {
    (may_lag && !is_after(&seen.version, &written.version)) || carries(&seen.status, &written.status)
}

/// Compares versions as numbers of the store's revisions. Returns false if one of them is not a number.
pub(super) fn is_after(seen: &str, written: &str) -> bool {
    let number = |version: &str| version.parse::<u64>().ok();
    matches!((number(seen), number(written)), (Some(seen), Some(written)) if seen >= written)
}

fn carries(there: &Value, ours: &Value) -> bool {
    match (there, ours) {
        (_, Value::Null) => true,
        (Value::Object(there), Value::Object(ours)) => ours
            .iter()
            .all(|(key, part)| part.is_null() || there.get(key).is_some_and(|it| carries(it, part))),
        (Value::Array(there), Value::Array(ours)) => {
            let mut items = ours.iter().enumerate();
            items.all(|(at, item)| counterpart(item, at, there).is_some_and(|it| carries(it, item)))
        }
        (Value::Number(there), Value::Number(ours)) => there.as_f64() == ours.as_f64(),
        (there, ours) => there == ours,
    }
}

/// Finds the counterpart of an item: conditions are matched by type, items of other lists by position.
fn counterpart<'a>(item: &Value, at: usize, all: &'a [Value]) -> Option<&'a Value> {
    match item.get("type") {
        Some(kind) => all.iter().find(|one| one.get("type") == Some(kind)),
        None => all.get(at),
    }
}

/// Limits how often a status is written again: at once, then at longer and longer intervals while somebody keeps
/// overwriting it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pace {
    wait: Duration,
    until: Option<Mono>,
}

const WAIT_FIRST: Duration = Duration::from_secs(1);
const WAIT_MOST: Duration = Duration::from_secs(300);

impl Pace {
    /// Until when to wait; `None` if the status may be written again now.
    pub(super) fn wait(&self, now: Mono) -> Option<Mono> {
        self.until.filter(|until| *until > now)
    }

    /// Records that the status was written again. If nobody overwrote it for longer than the longest wait, the first
    /// wait applies again.
    pub(super) fn done(&mut self, now: Mono) {
        let peace = self.until.is_none_or(|until| now.since(until) > WAIT_MOST);
        self.wait = if peace { WAIT_FIRST } else { self.wait.saturating_mul(2).min(WAIT_MOST) };
        self.until = Some(now.plus(self.wait));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn seen(version: &str, status: Value) -> Seen {
        Seen { version: version.to_owned(), status }
    }

    fn ours() -> Value {
        json!({
            "control": {"cpu": {"result": "applied", "capWatts": 120}},
            "conditions": [{"type": "CapEnforced", "status": "True"}],
        })
    }

    #[test]
    fn a_field_that_another_changed_or_took_away_is_seen_and_one_that_another_added_is_not() {
        let written = seen("10", ours());
        let now = |change: &dyn Fn(&mut Value)| {
            let mut status = ours();
            change(&mut status);
            stands(&seen("11", status), &written, true)
        };
        assert!(now(&|_| ()));
        assert!(now(&|it| it["control"]["cpu"]["capWatts"] = json!(120.0)), "in the server's form");
        assert!(now(&|it| it["control"]["cpu"]["observed"] = json!({"by": "another"})));
        assert!(now(&|it| it["conditions"] = json!([{"type": "Other"}, ours()["conditions"][0]])));
        assert!(!now(&|it| it["control"]["cpu"]["capWatts"] = json!(200)));
        assert!(!now(&|it| it["control"] = json!({})));
        assert!(!now(&|it| it["conditions"] = json!([{"type": "Other"}])));
        assert!(!now(&|it| it["conditions"][0]["status"] = json!("False")));
        assert!(!now(&|it| *it = Value::Null));
    }

    #[test]
    fn a_watch_that_is_behind_our_write_says_nothing_about_it() {
        let written = seen("10", ours());
        assert!(stands(&seen("9", json!({})), &written, true));
        assert!(!stands(&seen("9", json!({})), &written, false), "the API was restored to an older state");
        assert!(!stands(&seen("10", json!({})), &written, true));
        for odd in ["", "abc", "-1"] {
            assert!(stands(&seen(odd, json!({})), &written, true), "{odd:?}");
        }
    }

    #[test]
    fn what_the_server_drops_is_not_looked_for() {
        let answer = json!({
            "control": {"cpu": {"result": "applied"}},
            "conditions": [{"type": "Other"}, {"type": "CapEnforced", "status": "True", "more": 1}],
        });
        let there = kept(&ours(), &answer);
        let expected = json!({
            "control": {"cpu": {"result": "applied"}},
            "conditions": [{"type": "CapEnforced", "status": "True"}],
        });
        assert_eq!(there, expected);
        assert!(stands(&seen("11", answer), &seen("10", there), true));
    }

    #[test]
    fn a_fight_is_fought_less_and_less_often_and_forgotten_in_peace() {
        let at = |second: u64| Mono::at(Duration::from_secs(second));
        let mut pace = Pace::default();
        assert_eq!(pace.wait(at(100)), None, "at once");
        pace.done(at(100));
        assert_eq!((pace.wait(at(100)), pace.wait(at(101))), (Some(at(101)), None));
        pace.done(at(101));
        assert_eq!((pace.wait(at(102)), pace.wait(at(103))), (Some(at(103)), None));
        let mut now = 103;
        for _ in 0..20 {
            pace.done(at(now));
            now += 300;
            assert_eq!(pace.wait(at(now)), None, "never longer than five minutes");
        }
        pace.done(at(now));
        assert_eq!(pace.wait(at(now + 299)), Some(at(now + 300)));
        pace.done(at(now + 1_000));
        assert_eq!(pace.wait(at(now + 1_001)), None, "it was left alone for long");
    }
}
