use super::*;
use crate::front::outcome::Why;
use crate::machine::Means;

fn said(result: &'static str, generation: i64, cap: i32) -> Said {
    Said {
        backend: Means::Limits("rapl"),
        result,
        message: "in words".to_owned(),
        generation: Some(generation),
        requested: Some(Watts::from_int(cap)),
        cap: Some(Watts::from_int(cap)),
    }
}

fn verdict(why: Why) -> Verdict {
    Verdict { why, message: "in words".to_owned(), generation: Some(1) }
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn outcome(cap: i32, why: Why) -> Content {
    let (cpu, gpu) = (Some(said("applied", 1, cap)), Some(said("none", 1, 1)));
    Content::Outcome(Outcome { cpu, gpu, verdict: Some(verdict(why)) })
}

#[test]
fn what_is_there_already_is_not_written_again() {
    let first = outcome(120, Why::Enforced).status(Kind::Profile, &Value::Null, at(10)).unwrap();
    assert_eq!(first["control"]["cpu"]["capWatts"], 120);
    assert_eq!(first["control"]["cpu"]["updatedAt"], "1970-01-01T00:00:10Z");
    assert_eq!(outcome(120, Why::Enforced).status(Kind::Profile, &first, at(20)), None);
    // The API returns numbers in a form of its own.
    let mut back = first.clone();
    back["control"]["cpu"]["capWatts"] = json!(120.0);
    assert_eq!(outcome(120, Why::Enforced).status(Kind::Profile, &back, at(20)), None);
}

#[test]
fn each_part_has_the_time_of_its_own_last_change() {
    let first = outcome(120, Why::Enforced).status(Kind::Profile, &Value::Null, at(10)).unwrap();
    let next = outcome(100, Why::Enforced).status(Kind::Profile, &first, at(20)).unwrap();
    assert_eq!(next["control"]["cpu"]["updatedAt"], "1970-01-01T00:00:20Z");
    assert_eq!(next["control"]["gpu"]["updatedAt"], "1970-01-01T00:00:10Z");
    assert_eq!(next["conditions"][0]["lastTransitionTime"], "1970-01-01T00:00:10Z", "it is true as before");
    let lost = outcome(100, Why::Exceeded).status(Kind::Profile, &next, at(30)).unwrap();
    assert_eq!(lost["conditions"][0]["lastTransitionTime"], "1970-01-01T00:00:30Z");
    assert_eq!(
        (lost["conditions"][0]["status"].as_str(), lost["conditions"][0]["reason"].as_str()),
        (Some("False"), Some("Exceeded"))
    );
}

#[test]
fn what_is_on_its_way_leaves_what_was_said_before() {
    let first = outcome(120, Why::Enforced).status(Kind::Twin, &Value::Null, at(10)).unwrap();
    assert_eq!(first["controlStatus"]["cpu"]["capWatts"], 120);
    let pending = Content::Outcome(Outcome { verdict: Some(verdict(Why::Pending)), ..Outcome::default() });
    let next = pending.status(Kind::Twin, &first, at(20)).unwrap();
    assert_eq!(next["controlStatus"], first["controlStatus"]);
    assert_eq!(next["conditions"][0]["status"], "Unknown");
    // An apply that left a part out would delete it.
    assert_eq!(Content::Outcome(Outcome::default()).status(Kind::Twin, &next, at(30)), None);
}

#[test]
fn unknown_numbers_are_left_out() {
    let none = Said { cap: None, requested: None, ..said("error", 1, 1) };
    let content = Content::Outcome(Outcome { cpu: Some(none), ..Outcome::default() });
    let status = content.status(Kind::Profile, &Value::Null, at(1)).unwrap();
    assert_eq!(status["control"]["cpu"].get("capWatts"), None);
    assert_eq!(status.get("conditions"), None);
}
