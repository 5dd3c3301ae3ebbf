use super::*;
use crate::rows::{HardwareSeen, NodeSeen};
use crate::settings::{PowerAccess, PowerSource};
use crate::site::Unreadable;
use ::http::HeaderMap;
use host_kit::prometheus::{Login, PrometheusAccess};
use host_kit::reflect::Row;
use power_units::{Micros, Percent};
use serde_json::{Value, json};

const HOLD: Duration = Duration::from_secs(60);

fn meters(sources: Vec<PowerSource>) -> Meters {
    let apart = Percent::from_int(30).to_ratio(Role::Nearest);
    let power = NodePower { sources, every: HOLD, apart, drift: apart, http: PowerAccess::default() };
    Meters::new(&power, HOLD).unwrap()
}

fn agent() -> Meters {
    meters(vec![PowerSource::Agent])
}

fn member(power: Value) -> Arc<Observed> {
    let node = NodeSeen::read(&json!({"metadata": {"name": "a"}})).unwrap();
    let hardware = json!({"metadata": {"name": "a"}, "spec": {"nodeName": "a"}, "status": {"power": power}});
    let hardware = Some(Arc::new(HardwareSeen::read(&hardware).unwrap()));
    Arc::new(Observed::new(Arc::new(node), hardware, None, None, None, Unreadable::default()))
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
    let mut heard = agent();
    heard.listen(&[member(json!(null))], at(1), wall());
    assert!(awaits(&heard), "the agent has not measured yet");
    heard.listen(&[member(json!({"cpuWatts": -1}))], at(2), wall());
    assert!(!awaits(&heard));
    assert_eq!(metering(&heard, at(2)).reading, NodeReading::Absent(NoMeasurement::AgentNoData));
    // Without a configured meter nothing is waited for.
    assert!(!awaits(&meters(Vec::new())));
    let http = |endpoint| meters(vec![PowerSource::Http(endpoint)]);
    assert!(!awaits(&http(None)));
    let endpoint = host_kit::config::parse::url_template("http://{node}:9000/power").unwrap();
    let mut asked = http(Some(endpoint));
    assert!(awaits(&asked), "nobody has asked it yet");
    asked.record("a", PowerMeter::Http, at(1), Err(NoMeasurement::HttpError));
    assert!(!awaits(&asked));
}

#[test]
fn what_is_found_at_the_first_look_is_as_old_as_it_says() {
    let of = |sampled: &str| {
        let mut meters = agent();
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

fn endpoint() -> PowerSource {
    PowerSource::Http(Some(host_kit::config::parse::url_template("http://{node}:9000/power").unwrap()))
}

fn says(meters: &mut Meters, meter: PowerMeter, second: u64, watts: Option<i32>) {
    let watts = watts.map(Watts::from_int).ok_or(meter.silent());
    let report = watts.and_then(|watts| PowerSample::new(meter, watts, at(second)));
    meters.record("a", meter, at(second), report);
}

fn counts(meters: &Meters, second: u64) -> (Option<PowerMeter>, Option<PowerMeter>) {
    let power = metering(meters, at(second));
    let meter = match power.reading {
        NodeReading::Measured { meter, .. } | NodeReading::Held { meter, .. } => Some(meter),
        NodeReading::Absent(_) => None,
    };
    (meter, power.apart)
}

#[test]
fn the_first_source_that_has_a_value_counts_and_none_is_averaged() {
    use PowerMeter::{Agent, Http};
    let mut meters = meters(vec![PowerSource::Agent, endpoint()]);
    assert!(awaits(&meters));
    says(&mut meters, Http, 1, Some(210));
    assert_eq!(counts(&meters, 1), (Some(Http), None), "the agent has not said anything");
    meters.listen(&[member(json!({"cpuWatts": 200, "sampledAt": "2026-05-01T12:00:00Z"}))], at(2), wall());
    assert_eq!(counts(&meters, 2), (Some(Agent), None));
    let reading = metering(&meters, at(2)).reading;
    assert!(matches!(reading, NodeReading::Measured { watts, .. } if watts == Watts::from_int(200)));
    // The first one fails: what is measured goes before what was.
    meters.listen(&[member(json!({"cpuWatts": null}))], at(3), wall());
    assert_eq!(counts(&meters, 3), (Some(Http), None));
    // Both fail: the last value of the first one is held.
    says(&mut meters, Http, 4, None);
    assert_eq!(counts(&meters, 4), (Some(Agent), None));
    assert_eq!(counts(&meters, 62), (Some(Agent), None));
    assert_eq!(counts(&meters, 63), (None, None));
}

#[test]
fn sources_that_are_far_apart_are_told_until_they_are_near_again() {
    use PowerMeter::{Agent, Http};
    let mut meters = meters(vec![endpoint(), PowerSource::Agent]);
    let mut apart = |second, agent: i32| {
        says(&mut meters, Http, second, Some(1_000));
        says(&mut meters, Agent, second, Some(agent));
        counts(&meters, second)
    };
    // 30 % of the larger value: 300 W of 1000 W, 450 W of 1500 W; it ends at three quarters of that.
    assert_eq!(apart(1, 1_420), (Some(Http), None));
    assert_eq!(apart(2, 1_440), (Some(Http), Some(Agent)));
    assert_eq!(apart(3, 1_320), (Some(Http), Some(Agent)));
    assert_eq!(apart(4, 1_280), (Some(Http), None));
    assert_eq!(apart(5, 690), (Some(Http), Some(Agent)));
    // One that says nothing agrees and disagrees with nobody.
    says(&mut meters, Agent, 6, None);
    assert_eq!(counts(&meters, 6), (Some(Http), None));
    // A few watts are no disagreement, however many times more they are.
    says(&mut meters, Http, 7, Some(5));
    says(&mut meters, Agent, 7, Some(30));
    assert_eq!(counts(&meters, 7), (Some(Http), None));
}

#[test]
fn while_the_meter_of_a_whole_node_is_silent_what_it_showed_beside_the_devices_still_counts() {
    let mut meters = agent();
    let mut tell = |second: u64, power: Value| {
        let mut power = power;
        power["sampledAt"] = json!(format!("2026-05-01T12:00:{second:02}Z"));
        meters.listen(&[member(power)], at(second), wall());
        let Power { reading, rest, rest_most, .. } = metering(&meters, at(second));
        let NodeReading::Measured { watts, .. } = reading else { panic!("{reading:?}") };
        (watts, rest, rest_most)
    };
    let w = Watts::from_int;
    let at_plug = |node: i32, rest: i32| json!({"cpuWatts": 500, "nodeWatts": node, "nodeSource": "dcmi", "restWatts": rest});
    assert_eq!(tell(1, at_plug(640, 141)), (w(640), Some(w(141)), Some(w(150))));
    assert_eq!(tell(2, at_plug(630, 130)), (w(630), Some(w(130)), Some(w(150))), "the most stays");
    // 400 W of the packages, and the 130 W of before.
    let silent = json!({"cpuWatts": 400, "nodeSource": "silent"});
    assert_eq!(tell(3, silent), (w(530), Some(w(130)), Some(w(150))));
    // The agent has begun anew, and has not compared the two yet.
    let fresh = json!({"cpuWatts": 400, "nodeWatts": 560, "nodeSource": "dcmi"});
    assert_eq!(tell(4, fresh), (w(560), Some(w(130)), Some(w(150))));
    // It has no such meter any more.
    assert_eq!(tell(5, json!({"cpuWatts": 400})), (w(400), None, Some(w(150))));
    // An endpoint over HTTP says the whole node, and no meter by name.
    let over_http = json!({"cpuWatts": 400, "nodeWatts": 480, "restWatts": 80});
    assert_eq!(tell(6, over_http), (w(480), Some(w(80)), Some(w(150))));
}

#[test]
fn what_an_agent_has_from_prometheus_stays_undated_until_there_are_other_watts() {
    let mut meters = agent();
    let mut tell = |second: u64, watts: Value, source: &str| {
        let sampled = format!("2026-05-01T12:00:{second:02}Z");
        let power = json!({"cpuWatts": watts, "source": source, "sampledAt": sampled});
        meters.listen(&[member(power)], at(second), wall());
        metering(&meters, at(second)).undated
    };
    assert!(!tell(1, json!(400), "rapl"));
    assert!(tell(2, json!(300), "prometheus"));
    // The last value is held, whoever measures next.
    assert!(tell(3, json!(null), "rapl"));
    assert!(!tell(4, json!(310), "rapl"));
}

#[test]
fn what_prometheus_says_is_undated_however_fresh_its_answer_is() {
    use PowerMeter::{Agent, Http, Kepler, Prometheus};
    let access = || PrometheusAccess {
        address: "http://prometheus:9090".parse().unwrap(),
        authorities: None,
        login: Login::None,
        headers: HeaderMap::new(),
        timeout: Duration::from_secs(5),
    };
    for (source, meter, undated) in [
        (PowerSource::Prometheus(access(), "node_watts".to_owned()), Prometheus, true),
        (PowerSource::Kepler(access(), Duration::from_secs(60)), Kepler, true),
        (endpoint(), Http, false),
    ] {
        let mut meters = meters(vec![source, PowerSource::Agent]);
        says(&mut meters, meter, 1, Some(200));
        let told = metering(&meters, at(1));
        assert!(matches!(told.reading, NodeReading::Measured { age: Micros::ZERO, .. }), "{told:?}");
        assert_eq!(told.undated, undated, "{meter:?}");
        // It fails, and its last value is held.
        says(&mut meters, meter, 2, None);
        assert_eq!((counts(&meters, 2).0, metering(&meters, at(2)).undated), (Some(meter), undated));
        // The agent stands in by its own meters.
        says(&mut meters, Agent, 3, Some(210));
        assert_eq!((counts(&meters, 3).0, metering(&meters, at(3)).undated), (Some(Agent), false));
    }
}

#[test]
fn what_is_heard_is_as_old_as_its_source_says_and_never_of_the_future() {
    let lag = |power: Value| {
        let mut meters = agent();
        meters.listen(&[member(power)], at(1), wall());
        metering(&meters, at(1)).lag.get() / 1_000_000
    };
    // It is 12:00:00.
    let dated = |at: &str| json!({"cpuWatts": 200, "sampledAt": at});
    assert_eq!(lag(dated("2026-05-01T11:59:20Z")), 40);
    assert_eq!(lag(dated("2026-05-01T12:00:30Z")), 0, "a clock that is ahead");
    let at_plug = |at: &str, node: &str| json!({"cpuWatts": 200, "sampledAt": at, "nodeWatts": 300, "nodeSource": "dcmi", "nodeSampledAt": node});
    assert_eq!(lag(at_plug("2026-05-01T11:59:50Z", "2026-05-01T11:59:30Z")), 30, "the older of both");
    assert_eq!(lag(at_plug("2026-05-01T11:59:30Z", "2026-05-01T11:59:50Z")), 30);
    // Without a date that can be read it is as old as a sample may be.
    for undated in [json!({"cpuWatts": 200}), dated("yesterday"), at_plug("2026-05-01T12:00:00Z", "noon")] {
        assert_eq!(lag(undated.clone()), HOLD.as_secs(), "{undated}");
    }
    // The last good one is held with its own.
    let mut asked = meters(vec![endpoint()]);
    let sample = PowerSample::new(PowerMeter::Http, Watts::from_int(7), at(1)).unwrap();
    asked.record("a", PowerMeter::Http, at(1), Ok(sample.late_by(Micros::new(9))));
    says(&mut asked, PowerMeter::Http, 2, None);
    assert_eq!(metering(&asked, at(2)).lag, Micros::new(9));
    says(&mut asked, PowerMeter::Http, 3, Some(8));
    assert_eq!(metering(&asked, at(3)).lag, Micros::ZERO);
}
