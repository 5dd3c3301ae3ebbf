use super::super::http::Trouble;
use super::*;
use joulie_core::node::backend::Preference;
use joulie_core::node::cap::{Blocked, CapIntent, CapResult, Report};
use joulie_core::node::classic::{DEFAULTS, Tuning};
use node_kit::{Access, Config, Sources};
use power_units::{Percent, Ratio};
use serde_json::{Value, json};
use std::path::PathBuf;

/// Acts on the first reading beyond the cap itself: that of the rows.
fn eager() -> Tuning {
    Tuning {
        ema_alpha: Ratio::ONE,
        high_margin: Watts::ZERO,
        low_margin: Watts::ZERO,
        trip_count: 1,
        cooldown: Micros::ZERO,
        ..DEFAULTS
    }
}

fn laws(tuning: Tuning, preference: Preference) -> Laws {
    let period = Micros::new(1_000_000);
    let config = Config::standard(Sources::machine(), PathBuf::new(), Access::Look, period).unwrap();
    Laws {
        cpu: BackendLaw { preference, ..config.cpu },
        gpu: config.gpu,
        classic: Classic::new(tuning).unwrap(),
    }
}

const ALL: Reach = Reach { meter: true, cpu: true, gpu: true };
const NONE: Desired = Desired::Unknown;

fn watts(count: i32) -> Watts {
    Watts::from_int(count)
}

fn cap(count: i32) -> Desired {
    Desired::Cap(CapIntent::of_watts(watts(count)))
}

fn percent(count: i32) -> Desired {
    Desired::Cap(CapIntent::of_percent(Percent::from_int(count)))
}

fn says(power: i32, throttle: i64) -> Telemetry {
    let body = json!({"cpu": {"packagePowerWatts": power, "throttlePct": throttle}});
    Telemetry::read(body.to_string().as_bytes()).unwrap()
}

/// One period; what was posted, and taken.
fn period(
    levers: &mut Levers,
    laws: &Laws,
    at: u64,
    told: &Telemetry,
    desired: (Desired, Desired),
) -> Vec<Order> {
    let now = Stamp::new(Micros::new(at * 1_000_000));
    levers.sense(Ok(Some(told)), now);
    let orders = levers.step(laws, (now, Occasion::Period), desired);
    for order in &orders {
        levers.land(*order, Ok(None));
    }
    orders
}

fn bodies(orders: &[Order]) -> Vec<Value> {
    orders.iter().map(|order| order.action().body("node-a", "T")).collect()
}

/// The throttle that is posted within some periods of a loop at 120 W that finds `throttle` and reads `power`.
fn looped(tuning: Tuning, power: i32, throttle: i64) -> (Option<Value>, Levers) {
    let laws = laws(tuning, Preference::ThrottleOnly);
    let told = says(power, throttle);
    let mut levers = Levers::adopt(ALL, Shape { packages: 1, ..Shape::default() }, Some(&told));
    for second in 1..5 {
        let orders = period(&mut levers, &laws, second, &told, (cap(120), NONE));
        if let Some(order) = orders.first() {
            return (Some(order.action().body("node-a", "T")), levers);
        }
    }
    (None, levers)
}

#[test]
fn the_loop_throttles_above_the_cap_and_eases_below_it_over_http() {
    // Agent table, rows 18 and 19.
    let (up, levers) = looped(eager(), 200, 0);
    let up = up.unwrap();
    assert_eq!(
        (up["action"].as_str(), up["throttlePct"].as_i64()),
        (Some("dvfs.set_throttle_pct"), Some(10))
    );
    assert_eq!((levers.law.unwrap().action, levers.actions), (Step::ThrottleUp, (1, 0)));
    let (down, levers) = looped(eager(), 80, 20);
    let down = down.unwrap();
    assert_eq!((down["capWatts"].as_i64(), down["throttlePct"].as_i64()), (Some(120), Some(10)));
    assert_eq!((levers.law.unwrap().action, levers.actions), (Step::ThrottleDown, (0, 1)));
}

#[test]
fn the_loop_holds_while_it_cools_down() {
    // Agent table, row 20.
    let laws = laws(Tuning { cooldown: Micros::new(600_000_000), ..eager() }, Preference::ThrottleOnly);
    let mut levers = Levers::adopt(ALL, Shape { packages: 1, ..Shape::default() }, Some(&says(300, 0)));
    let mut posted = Vec::new();
    for second in 1..20 {
        let throttle = levers.throttle.map_or(0, |throttle| i64::from(throttle.get()));
        posted.extend(period(&mut levers, &laws, second, &says(300, throttle), (cap(120), NONE)));
    }
    assert_eq!(posted.len(), 1, "{posted:?}");
    assert_eq!(levers.law.unwrap().action, Step::Hold(law::Hold::Cooldown));
}

#[test]
fn a_reading_is_that_of_telemetry_or_none() {
    // Agent table, row 21.
    let mut levers = Levers::adopt(ALL, Shape::default(), None);
    levers.sense(Ok(Some(&says(42, 0))), Stamp::new(Micros::ZERO));
    assert!(matches!(levers.power, PowerReading::Fresh { watts, .. } if watts == Watts::from_int(42)));
    levers.sense(Ok(None), Stamp::new(Micros::ZERO));
    assert_eq!(levers.power, PowerReading::Missing);
}

#[test]
fn a_cap_of_a_node_that_answers_no_more_is_not_called_applied() {
    let laws = laws(eager(), Preference::LimitFirst);
    let range = Some(CapRange::new(Some(watts(50)), Some(watts(250)), None));
    let shape = Shape { packages: 1, gpus: 1, range, gpu_range: range };
    let mut levers = Levers::adopt(ALL, shape, Some(&says(100, 0)));
    for second in 1..4 {
        period(&mut levers, &laws, second, &says(100, 0), (cap(120), cap(120)));
    }
    let applied = Report::Cap(CapResult::Applied { effective: watts(120) });
    assert_eq!((levers.cpu.unwrap().status.report, levers.gpus.unwrap().report), (applied, applied));
    let trouble = Trouble { kind: ErrorKind::Timeout, text: "no answer".to_owned() };
    for second in 4..30 {
        levers.sense(Err(ErrorKind::Timeout), Stamp::new(Micros::new(second * 1_000_000)));
        let now = Stamp::new(Micros::new(second * 1_000_000));
        for order in levers.step(&laws, (now, Occasion::Period), (cap(120), cap(120))) {
            levers.land(order, Err(&trouble));
        }
        // For the patience of two periods one answer may be missing.
        if second > 7 {
            let reports = [levers.cpu.unwrap().status.report, levers.gpus.unwrap().report];
            assert!(!reports.contains(&applied), "at {second}: {reports:?}");
        }
    }
}

#[test]
fn a_percentage_without_a_maximum_is_a_throttle_whatever_is_known_of_the_processors() {
    // Agent table, row 16: nobody knows how many processors there are.
    let laws = laws(eager(), Preference::LimitFirst);
    let told = says(250, 0);
    let mut levers = Levers::adopt(ALL, Shape::default(), Some(&told));
    let mut posted = Vec::new();
    for second in 1..4 {
        posted.extend(bodies(&period(&mut levers, &laws, second, &told, (percent(60), NONE))));
    }
    let throttles: Vec<_> = posted
        .iter()
        .filter(|body| body["action"] == "dvfs.set_throttle_pct")
        .map(|body| &body["throttlePct"])
        .collect();
    assert_eq!(throttles, [&json!(40)], "{posted:?}");
    assert_eq!(levers.cpu.unwrap().status.report, Report::Throttled(Throttle::new(40).unwrap()));
}

#[test]
fn without_any_way_to_control_the_processors_every_cap_is_blocked_and_nothing_is_posted() {
    // Agent table, rows 17 and 24.
    let laws = laws(eager(), Preference::LimitFirst);
    let reach = Reach { cpu: false, ..ALL };
    for desired in [cap(120), percent(60)] {
        let told = says(250, 0);
        let mut levers = Levers::adopt(reach, Shape { packages: 2, ..Shape::default() }, Some(&told));
        for second in 1..4 {
            assert_eq!(period(&mut levers, &laws, second, &told, (desired, NONE)), []);
        }
        let report = levers.cpu.unwrap().status.report;
        assert!(matches!(report, Report::Cap(CapResult::Blocked(_))), "{desired:?}: {report:?}");
    }
}

fn gpus(range: Option<(i32, i32)>) -> Levers {
    let gpu_range = range.map(|(min, max)| CapRange::new(Some(watts(min)), Some(watts(max)), None));
    Levers::adopt(ALL, Shape { packages: 1, gpus: 2, gpu_range, ..Shape::default() }, Some(&says(100, 0)))
}

#[test]
fn a_cap_of_gpus_is_posted_for_each_of_them() {
    let laws = laws(eager(), Preference::LimitFirst);
    let told = says(100, 0);
    // Agent table, rows 32 and 33: 60 % of 350 W; 220 W as they are.
    for (desired, range, posted) in
        [(percent(60), Some((200, 350)), 210), (cap(220), Some((200, 350)), 220), (cap(250), None, 250)]
    {
        let mut levers = gpus(range);
        let orders = bodies(&period(&mut levers, &laws, 1, &told, (NONE, desired)));
        let expected = json!({
            "node": "node-a", "action": "gpu.set_power_cap_watts", "capWattsPerGpu": posted, "ts": "T",
        });
        assert_eq!(orders, [expected]);
        assert_eq!(period(&mut levers, &laws, 2, &told, (NONE, desired)), []);
        let effective = watts(posted);
        let report = levers.gpus.unwrap().report;
        assert_eq!(report, Report::Cap(CapResult::Applied { effective }), "{desired:?}");
    }
}

#[test]
fn a_percentage_of_gpus_whose_maximum_nobody_knows_is_blocked() {
    // Agent table, row 36.
    let mut levers = gpus(None);
    let laws = laws(eager(), Preference::LimitFirst);
    assert_eq!(period(&mut levers, &laws, 1, &says(100, 0), (NONE, percent(70))), []);
    assert_eq!(levers.gpus.unwrap().report, Report::Cap(CapResult::Blocked(Blocked::NoRange)));
    assert!(Blocked::NoRange.to_string().contains("cannot resolve capPctOfMax"));
}

/// What is known after each second of `drawn`, of a node with two packages whose control takes a cap of 120 W for each and
/// answers nothing; `tells` is the limit that its telemetry tells.
fn silent(
    drawn: impl Fn(u64, bool) -> Option<i32>,
    tells: impl Fn(u64) -> Option<i32>,
    seconds: u64,
) -> Vec<(Report, Option<Watts>)> {
    let laws = laws(eager(), Preference::LimitFirst);
    let shape = Shape { packages: 2, ..Shape::default() };
    let mut levers = Levers::adopt(ALL, shape, Some(&says(0, 0)));
    let mut known = Vec::new();
    for second in 0..seconds {
        let looped = levers.throttle.is_some_and(|throttle| throttle != Throttle::NONE);
        let (drawn, limit) = (drawn(second, looped), tells(second));
        let body = json!({"cpu": {"packagePowerWatts": drawn, "capWatts": limit}});
        let told = Telemetry::read(body.to_string().as_bytes()).unwrap();
        period(&mut levers, &laws, second + 1, &told, (cap(120), NONE));
        // As the task does, until the laws are content.
        for _ in 0..3 {
            let now = Stamp::new(Micros::new((second + 1) * 1_000_000));
            for order in levers.step(&laws, (now, Occasion::News), (cap(120), NONE)) {
                levers.land(order, Ok(None));
            }
        }
        known.push((levers.cpu.unwrap().status.report, levers.in_force().0));
    }
    known
}

const HELD: Report = Report::Cap(CapResult::Applied { effective: Watts::from_int(240) });

#[test]
fn a_limit_that_nobody_reads_back_and_nothing_shows_is_not_said_to_be_in_force() {
    // Neither telemetry tells it, nor is power measured.
    for (report, limit) in silent(|_, _| None, |_| None, 30) {
        assert_eq!(limit, None, "{report:?}");
    }
}

#[test]
fn what_telemetry_tells_confirms_a_limit_and_a_higher_one_does_not() {
    let told = silent(|_, _| Some(200), |second| Some(if second == 0 { 250 } else { 120 }), 5);
    assert_eq!(told[0], (Report::Pending, None), "it was taken, and that is all");
    assert_eq!(told[4], (HELD, Some(watts(120))));
    let ignored = silent(|_, _| Some(400), |_| Some(250), 30);
    assert!(ignored.iter().all(|(_, limit)| *limit != Some(watts(120))), "{ignored:?}");
    assert!(!ignored.iter().any(|known| *known == (HELD, Some(watts(120)))), "{ignored:?}");
}

#[test]
fn what_is_drawn_judges_a_limit_that_nothing_tells_and_the_loop_takes_over_where_it_fails() {
    // 240 W for both packages, and 3 % more.
    let shown = silent(|_, _| Some(247), |_| None, 4);
    assert_eq!(shown.last(), Some(&(HELD, Some(watts(120)))));
    // A control that does nothing: what is drawn stays above, until the loop throttles.
    let ignored = silent(|_, looped| Some(if looped { 230 } else { 400 }), |_| None, 60);
    assert!(ignored.iter().all(|(_, limit)| limit.is_none()), "{ignored:?}");
    assert!(
        matches!(ignored[59].0, Report::Cap(CapResult::Applied { .. })),
        "held by the loop: {:?}",
        ignored[59]
    );
    // One that was within while the node was idle, and is not kept under load.
    let later = silent(|second, looped| Some(if second > 10 && !looped { 400 } else { 100 }), |_| None, 20);
    assert_eq!((later[9].1, later[18].1), (Some(watts(120)), None), "{later:?}");
}
