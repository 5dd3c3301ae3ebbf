use super::*;
use crate::rows::{HardwareSeen, NodeSeen};
use crate::site::Unreadable;
use host_kit::reflect::Row;
use power_units::Micros;
use serde_json::{Value, json};

const HOLD: Duration = Duration::from_secs(60);

fn member(power: Value) -> Arc<Observed> {
    let node = NodeSeen::read(&json!({"metadata": {"name": "a"}})).unwrap();
    let hardware = json!({"metadata": {"name": "a"}, "spec": {"nodeName": "a"}, "status": {"power": power}});
    Arc::new(Observed {
        node: Arc::new(node),
        hardware: Some(Arc::new(HardwareSeen::read(&hardware).unwrap())),
        profile: None,
        twin: None,
        grant: None,
        unreadable: Unreadable::default(),
    })
}

fn at(second: u64) -> Stamp {
    Stamp::new(Micros::new(second * 1_000_000))
}

fn metering(meters: &Meters, now: Stamp) -> Power {
    meters.readings(["a"].into_iter(), now)[0]
}

fn awaits(meters: &Meters) -> bool {
    metering(meters, at(1)).awaited
}

fn wall() -> Timestamp {
    "2026-05-01T12:00:00Z".parse().unwrap()
}

#[test]
fn a_meter_of_which_nothing_was_heard_yet_is_no_failing_one_and_a_failing_one_was_heard() {
    let mut meters = Meters::new(&PowerSource::Agent, HOLD).unwrap();
    meters.listen(&[member(json!(null))], at(1), wall());
    assert!(awaits(&meters), "the agent has not measured yet");
    meters.listen(&[member(json!({"cpuWatts": -1}))], at(2), wall());
    assert!(!awaits(&meters));
    assert_eq!(metering(&meters, at(2)).reading, NodeReading::Absent(NoMeasurement::AgentNoData));
    // Without a configured meter nothing is waited for.
    assert!(!awaits(&Meters::new(&PowerSource::Static, HOLD).unwrap()));
    let http = |endpoint| Meters::new(&PowerSource::Http(endpoint, HOLD), HOLD).unwrap();
    assert!(!awaits(&http(None)));
    let endpoint = host_kit::config::parse::url_template("http://{node}:9000/power").unwrap();
    let mut asked = http(Some(endpoint));
    assert!(awaits(&asked), "nobody has asked it yet");
    asked.record("a", at(1), Err(NoMeasurement::HttpError));
    assert!(!awaits(&asked));
}

#[test]
fn what_is_found_at_the_first_look_is_as_old_as_it_says() {
    let of = |sampled: &str| {
        let mut meters = Meters::new(&PowerSource::Agent, HOLD).unwrap();
        meters.listen(&[member(json!({"cpuWatts": 200, "sampledAt": sampled}))], at(1), wall());
        meters
    };
    let speaks = |meters: &Meters, now| matches!(metering(meters, now).reading, NodeReading::Measured { .. });
    assert!(speaks(&of("2026-05-01T11:59:01Z"), at(1)));
    let mut old = of("2026-05-01T11:58:59Z");
    assert!(!speaks(&old, at(1)), "an agent that died before we began does not look alive");
    // Every later sample is new, whatever its timestamp.
    old.listen(&[member(json!({"cpuWatts": 200, "sampledAt": "2026-05-01T11:00:00Z"}))], at(2), wall());
    assert!(speaks(&old, at(2)));
    assert!(speaks(&of("yesterday"), at(1)) && speaks(&of("2026-05-01T13:00:00Z"), at(1)));
    assert!(!speaks(&old, at(63)));
}
