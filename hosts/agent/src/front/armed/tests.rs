use super::*;
use crate::front::rows::GrantRow;
use node_kit::{Kept, NodeGrant};
use power_units::Watts;
use serde_json::json;

const HOUR: i64 = 3600;

fn moment(wall_s: i64, mono_s: u64) -> Moment {
    Moment { wall: UnixTime::from_micros(wall_s * 1_000_000), mono: Mono::at(Duration::from_secs(mono_s)) }
}

fn armed_for(event: &str, share: f64) -> ArmedShare {
    ArmedShare { event: event.to_owned(), share: Number::new(share).unwrap() }
}

fn stands() -> Stands {
    let grant = NodeGrant { serial: 1, watts: Watts::from_int(900) };
    Stands::Grant(Kept { uid: "g".to_owned(), grant })
}

fn inputs(shares: &[ArmedShare], events: &[(&str, serde_json::Value)]) -> Inputs {
    let grant = NodeGrant { serial: 1, watts: Watts::from_int(900) };
    let row = GrantRow {
        node: "a".to_owned(),
        uid: "g".to_owned(),
        grant,
        is_highest: false,
        lends: false,
        yields: None,
        released: false,
        armed: shares.to_vec(),
        seen: Arc::default(),
    };
    let event = |(uid, spec): &(&str, serde_json::Value)| {
        ((*uid).to_owned(), serde_json::from_value(spec.clone()).unwrap_or_default())
    };
    Inputs {
        grants: vec![("a".to_owned(), Arc::new(row))],
        grants_known: true,
        events: Some(Arc::new(events.iter().map(event).collect())),
        ..Inputs::default()
    }
}

/// From 1:00 to 2:00 of the first day, with a ramp of 32 seconds.
fn timed() -> serde_json::Value {
    json!({"event": "grid", "start": "1970-01-01T01:00:00Z", "end": "1970-01-01T02:00:00Z", "rampSeconds": 32})
}

fn half() -> Ratio {
    Ratio::from_bits(1 << 31)
}

#[test]
fn the_least_share_of_the_events_that_are_on_counts() {
    let mut it = Armed::default();
    let shares = [armed_for("feed", 0.75), armed_for("grid", 0.5), armed_for("cooling", 0.0)];
    let mut see = |events: &[(&str, serde_json::Value)]| {
        it.follow("a", &inputs(&shares, events), &stands(), moment(0, 0))
    };
    assert_eq!(see(&[]), ArmedNow::default());
    let feed = ("1", json!({"event": "feed"}));
    let now = see(std::slice::from_ref(&feed));
    assert_eq!((now.share, now.full), (Ratio::from_bits(3 << 30), vec!["feed".to_owned()]));
    assert_eq!(see(&[feed, ("2", json!({"event": "grid"}))]).share, half());
    assert_eq!(see(&[("2", json!({"event": "grid", "active": false}))]).share, Ratio::ONE);
    assert_eq!(see(&[("3", json!({"event": "flood"}))]).share, Ratio::ONE, "the node is not armed for it");
    assert_eq!(see(&[("4", json!({"event": "cooling"}))]).share, Ratio::ZERO);
}

#[test]
fn an_event_that_leaves_the_node_everything_is_on() {
    let mut it = Armed::default();
    let known = inputs(&[armed_for("grid", 1.0)], &[("1", timed())]);
    let mut at = |second: i64| {
        let now = it.follow("a", &known, &stands(), moment(second, u64::try_from(second).unwrap()));
        (now.share, it.is_on())
    };
    assert_eq!((at(HOUR - 1), at(HOUR + 60)), ((Ratio::ONE, false), (Ratio::ONE, true)));
    assert_eq!(at(2 * HOUR + 60), (Ratio::ONE, false));
}

#[test]
fn an_event_with_times_comes_and_goes_without_anybody() {
    let mut it = Armed::default();
    let known = inputs(&[armed_for("grid", 0.5)], &[("1", timed())]);
    let away = Inputs { grants_known: false, events: None, ..Inputs::default() };
    assert_eq!(it.follow("a", &known, &stands(), moment(0, 10)).share, Ratio::ONE);
    assert_eq!(it.stands_for(), Some(Duration::from_secs(3600)));
    let mut at = |second: i64| {
        let mono = u64::try_from(second + 10).unwrap();
        let now = it.follow("a", &away, &stands(), moment(second, mono));
        (now.share, now.moves)
    };
    assert_eq!(at(HOUR - 1), (Ratio::ONE, false));
    // Half of the ramp is 16 of 32 steps: 1 - 0.5 · 0.5.
    assert_eq!(at(HOUR + 15), (Ratio::from_bits(3 << 30), true));
    assert_eq!(at(HOUR + 31), (half(), false));
    assert_eq!(at(2 * HOUR + 16), (Ratio::from_bits(3 << 30), true));
    assert_eq!(at(2 * HOUR + 32), (Ratio::ONE, false));
}

#[test]
fn a_clock_that_jumps_ends_no_event() {
    let mut it = Armed::default();
    let known = inputs(&[armed_for("grid", 0.5)], &[("1", timed())]);
    let mut at = |wall, mono| it.follow("a", &known, &stands(), moment(wall, mono)).share;
    assert_eq!(at(HOUR + 60, 100), half());
    assert_eq!(at(9 * HOUR, 200), half(), "forward, past the end");
    assert_eq!(at(0, 300), half(), "backward, before the start");
    // 3540 s are left of the event at 100 s, and then the ramp.
    assert_eq!(at(9 * HOUR, 100 + 3540 + 32), Ratio::ONE);
}

#[test]
fn what_is_known_survives_a_restart() {
    let folder = rig::test_machine::Folder::new();
    let kept = folder.0.join("grant.json");
    let file = ArmedFacts::file(&kept);
    let mut it = Armed::of_file(Some(&kept), None);
    it.follow("a", &inputs(&[armed_for("grid", 0.5)], &[("1", timed())]), &stands(), moment(0, 0));
    it.facts().write(&file).unwrap();
    let mut it = Armed::of_file(Some(&kept), None);
    let away = Inputs::default();
    assert_eq!(it.follow("a", &away, &stands(), moment(HOUR + 60, 5)).share, half());
}

#[test]
fn a_file_that_cannot_be_read_is_not_taken_for_no_event() {
    let folder = rig::test_machine::Folder::new();
    let kept = folder.0.join("grant.json");
    let file = ArmedFacts::file(&kept);
    let away = Inputs::default();
    let shares = [armed_for("grid", 0.5)];
    let unreadable = json!({"shares": [], "events": {"1": {"event": "grid", "end": "never"}}}).to_string();
    for text in ["", "{", "{}", "{\"shares\": 7}", "[]", unreadable.as_str()] {
        std::fs::write(&file, text).unwrap();
        let mut it = Armed::of_file(Some(&kept), None);
        let mut see = |inputs: &Inputs| {
            let now = it.follow("a", inputs, &stands(), moment(0, 5));
            (now.share, it.is_on(), it.to_keep().is_some())
        };
        // A part of what is known does not take the file's place: the next process would take it for all.
        let floors = (Ratio::ZERO, true, false);
        assert_eq!(see(&away), floors, "{text}: the API server is away");
        let unknown = Inputs { events: None, ..inputs(&shares, &[]) };
        assert_eq!(see(&unknown), floors, "{text}: no event was read");
        let nobodys = Inputs { grants: Vec::new(), ..inputs(&shares, &[("1", timed())]) };
        assert_eq!(see(&nobodys), floors, "{text}: what an event leaves is not known");
        let broken = inputs(&shares, &[("1", timed()), ("2", json!("nonsense"))]);
        assert_eq!(see(&broken), floors, "{text}: one of the events cannot be read and may be on");
        assert_eq!(
            see(&inputs(&shares, &[("1", timed())])),
            (Ratio::ONE, false, true),
            "{text}: all is told"
        );
        assert_eq!(see(&away).0, Ratio::ONE, "{text}: and stays known");
        // A file takes its place, also where there is nothing to know.
        let mut it = Armed::of_file(Some(&kept), None);
        let before = it.facts();
        it.follow("a", &inputs(&[], &[]), &stands(), moment(0, 5));
        assert_ne!(it.facts(), before, "{text}: a difference is what is written");
        it.facts().write(&file).unwrap();
        let mut it = Armed::of_file(Some(&kept), None);
        assert_eq!(it.follow("a", &away, &stands(), moment(0, 5)), ArmedNow::default(), "{text}");
    }
}

#[test]
fn a_file_of_an_earlier_and_of_a_later_version_is_read() {
    let folder = rig::test_machine::Folder::new();
    let kept = folder.0.join("grant.json");
    // The first version did not say when an event was first seen.
    let first = json!({"shares": [{"event": "grid", "share": 0.5}], "events": {"1": timed()}});
    let mut later = first.clone();
    later["seen"] = json!({"1": {"wallUs": 1, "boot": "b", "uptimeUs": 1, "since": "later"}});
    later["signal"] = json!({"of": "a later version"});
    later["events"]["1"]["of"] = json!("a later version");
    for text in [first, later] {
        std::fs::write(ArmedFacts::file(&kept), text.to_string()).unwrap();
        let mut it = Armed::of_file(Some(&kept), None);
        let now = it.follow("a", &Inputs::default(), &stands(), moment(HOUR + 60, 5));
        assert_eq!((now.share, now.full), (half(), vec!["grid".to_owned()]), "{text}");
    }
}

/// A process that began so many seconds after this boot.
fn begun(boot: &str, uptime_s: u64) -> Option<SinceBoot> {
    Some(SinceBoot { boot: boot.to_owned(), uptime: Duration::from_secs(uptime_s) })
}

#[test]
fn a_clock_that_jumps_ends_no_event_also_over_a_restart() {
    let folder = rig::test_machine::Folder::new();
    let kept = folder.0.join("grant.json");
    let known = inputs(&[armed_for("grid", 0.5)], &[("1", timed())]);
    let away = Inputs::default();
    // It begins 500 s after the boot, and sees the event 100 s later, a minute after its start.
    let mut it = Armed::of_file(Some(&kept), begun("b1", 500));
    assert_eq!(it.follow("a", &known, &stands(), moment(HOUR + 60, 100)).share, half());
    it.facts().write(&ArmedFacts::file(&kept)).unwrap();
    let again = |begun: Option<SinceBoot>, wall_s: i64, mono_s: u64| {
        Armed::of_file(Some(&kept), begun).follow("a", &away, &stands(), moment(wall_s, mono_s)).share
    };
    // The time of day is far past the end. 3,540 s of the event were left, and its ramp: until 600 + 3,572 s after the boot.
    assert_eq!(again(begun("b1", 700), 9 * HOUR, 10), half());
    // 16 of 32 steps of the ramp: 1 - 0.5 · 0.5.
    assert_eq!(again(begun("b1", 4_150), 9 * HOUR, 6), Ratio::from_bits(3 << 30));
    assert_eq!(again(begun("b1", 4_150), 9 * HOUR, 22), Ratio::ONE);
    // What another boot, or a clock that went back, says of the time is not known: then the time of day alone counts.
    for unknown in [begun("b2", 700), begun("b1", 599), None] {
        assert_eq!(again(unknown.clone(), 9 * HOUR, 10), Ratio::ONE, "{unknown:?}");
        assert_eq!(again(unknown, HOUR + 60, 10), half());
    }
    // It is the clock of this content: another end is counted from when it was seen.
    let longer = json!({"event": "grid", "start": "1970-01-01T01:00:00Z", "end": "1970-01-01T03:00:00Z"});
    let mut it = Armed::of_file(Some(&kept), begun("b1", 700));
    let changed = inputs(&[armed_for("grid", 0.5)], &[("1", longer)]);
    assert_eq!(it.follow("a", &changed, &stands(), moment(9 * HOUR, 10)).share, Ratio::ONE);
    // What is gone is not kept.
    it.follow("a", &inputs(&[armed_for("grid", 0.5)], &[]), &stands(), moment(9 * HOUR, 11));
    it.facts().write(&ArmedFacts::file(&kept)).unwrap();
    assert!(!std::fs::read_to_string(ArmedFacts::file(&kept)).unwrap().contains("seen"));
}

#[test]
fn events_that_do_not_concern_the_node_do_not_make_its_file_too_large() {
    let folder = rig::test_machine::Folder::new();
    let kept = folder.0.join("grant.json");
    let mut it = Armed::default();
    let mut known = inputs(&[armed_for("grid", 0.5)], &[("1", timed())]);
    let other: PowerEventSpec =
        serde_json::from_value(json!({"event": "of others", "active": true})).unwrap();
    let mut events = known.events.as_deref().cloned().unwrap();
    // 20,000 of more than 60 bytes are more than the file may have.
    events.extend((0..20_000).map(|number| (format!("other-{number}"), Some(other.clone()))));
    known.events = Some(Arc::new(events));
    it.follow("a", &known, &stands(), moment(0, 0));
    it.facts().write(&ArmedFacts::file(&kept)).unwrap();
    let mut it = Armed::of_file(Some(&kept), None);
    assert_eq!(it.follow("a", &Inputs::default(), &stands(), moment(HOUR + 60, 5)).share, half());
}

#[test]
fn a_share_that_is_no_number_leaves_the_floors() {
    let mut it = Armed::default();
    let shares = [ArmedShare { event: "grid".to_owned(), share: Number::from(-3) }];
    let now = it.follow("a", &inputs(&shares, &[("1", json!({"event": "grid"}))]), &stands(), moment(0, 0));
    assert_eq!(now.share, Ratio::ZERO);
}

#[test]
fn an_event_that_becomes_unreadable_stays_as_it_was_until_its_end_also_over_a_restart() {
    let folder = rig::test_machine::Folder::new();
    let kept = folder.0.join("grant.json");
    let mut it = Armed::default();
    let shares = [armed_for("grid", 0.5)];
    it.follow("a", &inputs(&shares, &[("1", timed())]), &stands(), moment(HOUR + 60, 10));
    // No object of the kind: the row has no spec.
    let unread = inputs(&shares, &[("1", json!("nonsense"))]);
    let mut at = |second: i64| {
        let mono = u64::try_from(second - HOUR - 50).unwrap();
        it.follow("a", &unread, &stands(), moment(second, mono)).share
    };
    assert_eq!(at(HOUR + 70), half());
    assert_eq!(at(2 * HOUR + 32), Ratio::ONE, "its end holds");
    it.facts().write(&ArmedFacts::file(&kept)).unwrap();
    let mut it = Armed::of_file(Some(&kept), None);
    assert_eq!(it.follow("a", &unread, &stands(), moment(HOUR + 80, 5)).share, half(), "after a restart");
    // Deleted it is over, and mended it is what it says.
    assert_eq!(it.follow("a", &inputs(&shares, &[]), &stands(), moment(HOUR + 90, 15)).share, Ratio::ONE);
    assert_eq!(
        it.follow("a", &unread, &stands(), moment(HOUR + 95, 20)).share,
        Ratio::ONE,
        "nothing was known"
    );
    let mended = inputs(&shares, &[("1", json!({"event": "grid"}))]);
    assert_eq!(it.follow("a", &mended, &stands(), moment(HOUR + 99, 24)).share, half());
}
