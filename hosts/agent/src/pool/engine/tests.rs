use super::super::http::Trouble;
use super::*;
use joulie_core::node::backend::{BackendLaw, BackendPreference};
use joulie_core::node::cap::{Blocked, CapIntent, CapReport, CapResult, DesiredCap};
use joulie_core::node::classic::{Classic, DEFAULTS, Tuning};
use joulie_core::node::engine::{LoopLaw, NodeParts};
use joulie_core::node::law::{self, LawAction as Step};
use node_kit::{Config, HardwareSources, NodeAccess};
use power_units::Ratio;
use serde_json::{Value, json};
use std::path::PathBuf;

/// Acts on the first reading above the cap, as the rows of the table assume.
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

fn laws(tuning: Tuning, preference: BackendPreference) -> EngineLaws {
    let period = Micros::new(1_000_000);
    let config =
        Config::standard(HardwareSources::machine(), PathBuf::new(), NodeAccess::Look, period).unwrap();
    EngineLaws {
        cpu: BackendLaw { preference, ..config.cpu },
        gpu: config.gpu,
        dvfs: LoopLaw::Classic(Classic::new(tuning).unwrap()),
        grants: NodeParts::ALL,
        access: NodeAccess::Control,
    }
}

fn adopt(reach: Reach, shape: Shape, found: Option<&Telemetry>) -> NodeEngine {
    NodeEngine::adopt(reach, shape, found, None, Stamp::new(Micros::ZERO))
}

fn step(
    node: &mut NodeEngine,
    laws: &EngineLaws,
    (now, occasion): (Stamp, Occasion),
    (cpu, gpu): (DesiredCap, DesiredCap),
) -> Vec<Order> {
    node.step(laws, Turn { now, occasion, renewal: None }, Desire { cpu, gpu, ..Desire::UNKNOWN }).0
}

const ALL: Reach = Reach { meter: true, gpu_meter: true, cpu: true, gpu: true };
const NONE: DesiredCap = DesiredCap::Unknown;

fn watts(count: i32) -> Watts {
    Watts::from_int(count)
}

fn cap(count: i32) -> DesiredCap {
    DesiredCap::Cap(CapIntent::of_watts(watts(count)))
}

fn percent(count: i32) -> DesiredCap {
    DesiredCap::Cap(CapIntent::of_percent(Percent::from_int(count)))
}

fn says(power: i32, throttle: i64) -> Telemetry {
    let body = json!({"cpu": {"packagePowerWatts": power, "throttlePct": throttle}});
    Telemetry::read(body.to_string().as_bytes()).unwrap()
}

/// Runs one period; returns what was posted and accepted.
fn period(
    node: &mut NodeEngine,
    laws: &EngineLaws,
    at: u64,
    told: &Telemetry,
    desired: (DesiredCap, DesiredCap),
) -> Vec<Order> {
    let now = Stamp::new(Micros::new(at * 1_000_000));
    node.sense(Some(told), [None; 2], now);
    let orders = step(node, laws, (now, Occasion::Period), desired);
    for order in &orders {
        node.land(*order, Ok(None));
    }
    orders
}

fn bodies(orders: &[Order]) -> Vec<Value> {
    orders.iter().map(|order| order.action.body("node-a", "T")).collect()
}

/// The throttle that is posted within some periods of a loop at 120 W that finds `throttle` and reads `power`.
fn looped(tuning: Tuning, power: i32, throttle: i64) -> (Option<Value>, NodeEngine) {
    let laws = laws(tuning, BackendPreference::ThrottleOnly);
    let told = says(power, throttle);
    let mut node = adopt(ALL, Shape { packages: 1, ..Shape::default() }, Some(&told));
    for second in 1..5 {
        let orders = period(&mut node, &laws, second, &told, (cap(120), NONE));
        if let Some(order) = orders.first() {
            return (Some(order.action.body("node-a", "T")), node);
        }
    }
    (None, node)
}

#[test]
fn the_loop_throttles_above_the_cap_and_eases_below_it_over_http() {
    // Agent table, rows 18 and 19.
    let (up, node) = looped(eager(), 200, 0);
    let up = up.unwrap();
    assert_eq!(
        (up["action"].as_str(), up["throttlePct"].as_i64()),
        (Some("dvfs.set_throttle_pct"), Some(10))
    );
    assert_eq!((node.engine.law().unwrap().action, node.engine.actions()), (Step::ThrottleUp, (1, 0)));
    let (down, node) = looped(eager(), 80, 20);
    let down = down.unwrap();
    assert_eq!((down["capWatts"].as_i64(), down["throttlePct"].as_i64()), (Some(120), Some(10)));
    assert_eq!((node.engine.law().unwrap().action, node.engine.actions()), (Step::ThrottleDown, (0, 1)));
}

#[test]
fn the_loop_holds_while_it_cools_down() {
    // Agent table, row 20.
    let laws =
        laws(Tuning { cooldown: Micros::new(600_000_000), ..eager() }, BackendPreference::ThrottleOnly);
    let mut node = adopt(ALL, Shape { packages: 1, ..Shape::default() }, Some(&says(300, 0)));
    let mut posted = Vec::new();
    for second in 1..20 {
        let throttle = node.throttle.map_or(0, |throttle| i64::from(throttle.get()));
        posted.extend(period(&mut node, &laws, second, &says(300, throttle), (cap(120), NONE)));
    }
    assert_eq!(posted.len(), 1, "{posted:?}");
    assert_eq!(node.engine.law().unwrap().action, Step::Hold(law::Hold::Cooldown));
}

#[test]
fn tracking_holds_a_cap_by_throttles_over_http() {
    let laws = EngineLaws { dvfs: Config::tracking(), ..laws(eager(), BackendPreference::ThrottleOnly) };
    let mut node = adopt(ALL, Shape { packages: 2, ..Shape::default() }, Some(&says(400, 0)));
    let mut drawn = 400;
    for second in 1..30 {
        let throttle = node.throttle.map_or(0, ThrottlePercent::get);
        // A full throttle halves the power.
        drawn = 400 - 2 * i32::from(throttle);
        period(&mut node, &laws, second, &says(drawn, i64::from(throttle)), (cap(150), NONE));
    }
    assert!((288..=300).contains(&drawn), "{drawn} W under a cap of 300 W");
    assert_eq!(node.engine.cpu().unwrap().status.report, HELD_BY_THE_LOOP);
    // When nothing is desired any more, the throttle is lifted.
    for second in 30..34 {
        period(&mut node, &laws, second, &says(300, 50), (DesiredCap::Gone, NONE));
    }
    assert_eq!(node.throttle, Some(ThrottlePercent::NONE));
}

/// A limit of 150 W that reads back, and 200 W of each package for three minutes: the loop takes over by the throttle of the
/// node, and the limit stays where it is.
#[test]
fn a_limit_over_http_that_is_read_back_and_not_kept_is_replaced_by_the_loop() {
    let laws = EngineLaws { dvfs: Config::tracking(), ..laws(eager(), BackendPreference::LimitFirst) };
    let range = Some(CapRange::new(Some(watts(50)), Some(watts(250)), None));
    let mut node = adopt(ALL, Shape { packages: 2, range, ..Shape::default() }, Some(&says(400, 0)));
    let mut limit = 250;
    let mut drawn = 400;
    for second in 1..220 {
        let throttle = node.throttle.map_or(0, ThrottlePercent::get);
        // Only the throttle limits it: a full one halves the power.
        drawn = 400 - 2 * i32::from(throttle);
        let telemetry = Telemetry { cap: Some(watts(limit)), ..says(drawn, i64::from(throttle)) };
        for order in period(&mut node, &laws, second, &telemetry, (cap(150), NONE)) {
            if let Action::Cap(watts) = order.action {
                limit = i32::try_from(watts.to_bits() >> 32).unwrap();
            }
        }
        assert!(second > 180 || throttle == 0, "{second} s: a limit has three minutes");
    }
    assert!((288..=300).contains(&drawn), "{drawn} W under a cap of 300 W");
    assert!(limit <= 150, "it stays in place: {limit} W");
    assert!(node.engine.packages().iter().all(Package::disobeys));
    assert_eq!(node.engine.cpu().unwrap().status.report, HELD_BY_THE_LOOP);
}

const HELD_BY_THE_LOOP: CapReport = CapReport::Cap(CapResult::Applied { effective: Watts::from_int(300) });

#[test]
fn limits_that_are_refused_begin_the_loop_in_the_same_period() {
    let laws = laws(eager(), BackendPreference::LimitFirst);
    let mut node = adopt(ALL, Shape { packages: 1, ..Shape::default() }, Some(&says(300, 0)));
    let now = Stamp::new(Micros::new(1_000_000));
    node.sense(Some(&says(300, 0)), [None; 2], now);
    let refused = Trouble { kind: ErrorKind::NotSupported, text: "blocked".to_owned() };
    let limits = step(&mut node, &laws, (now, Occasion::Period), (cap(120), NONE));
    limits.iter().for_each(|order| node.land(*order, Err(&refused)));
    let throttles = step(&mut node, &laws, (now, Occasion::News), (cap(120), NONE));
    assert!(
        matches!(throttles[..], [Order { action: Action::Throttle { percent: 10, .. }, .. }]),
        "{throttles:?}"
    );
}

#[test]
fn a_node_of_more_than_fits_is_held_as_far_as_it_does() {
    let laws = laws(eager(), BackendPreference::LimitFirst);
    let range = Some(CapRange::new(Some(watts(50)), Some(watts(250)), None));
    let shape = Shape { packages: 64, gpus: 64, range, gpu_range: range };
    let mut node = adopt(ALL, shape, Some(&says(100, 0)));
    let grant = Some(node_kit::NodeGrant { serial: 1, watts: watts(30_000) });
    let now = Stamp::new(Micros::new(1_000_000));
    node.sense(Some(&says(100, 0)), [None; 2], now);
    let turn = Turn { now, occasion: Occasion::Period, renewal: None };
    node.step(&laws, turn, Desire { cpu: cap(200), gpu: cap(200), grant, ..Desire::UNKNOWN });
    let beyond = node.engine.beyond();
    assert_eq!((beyond.packages, beyond.gpus), (56, 48));
    let share = node.engine.packages()[0].share().unwrap().times(8);
    let gpus = node.engine.gpus()[0].share().unwrap().times(16);
    assert!(share + gpus + beyond.package_watts + beyond.gpu_watts <= watts(30_000));
}

#[test]
fn a_reading_is_that_of_telemetry_or_none() {
    // Agent table, row 21.
    let mut node = adopt(ALL, Shape::default(), None);
    node.sense(Some(&says(42, 0)), [None; 2], Stamp::new(Micros::ZERO));
    assert!(matches!(node.power, MeterReading::Fresh { watts, .. } if watts == Watts::from_int(42)));
    node.sense(None, [None; 2], Stamp::new(Micros::ZERO));
    assert_eq!(node.power, MeterReading::Missing(Gap::Unread));
}

#[test]
fn a_source_of_gpus_that_fails_says_nothing_of_the_processors_and_the_other_way_round() {
    let told = says(42, 0);
    let (now, failed) = (Stamp::new(Micros::ZERO), Some(ErrorKind::Timeout));
    let unread = LimitReading::Unread(ErrorKind::Timeout);
    let mut node = adopt(ALL, Shape::default(), None);
    node.sense(Some(&told), [None, failed], now);
    assert!(matches!(node.power, MeterReading::Fresh { .. }));
    assert_eq!((node.seen == unread, node.gpu_seen), (false, unread));
    node.sense(Some(&Telemetry::default().with_gpus_of(&told)), [failed, None], now);
    assert_eq!(node.power, MeterReading::Missing(Gap::Unread));
    assert_eq!((node.seen, node.gpu_seen == unread), (unread, false));
}

#[test]
fn a_cap_of_a_node_that_answers_no_more_is_not_called_applied() {
    let laws = laws(eager(), BackendPreference::LimitFirst);
    let range = Some(CapRange::new(Some(watts(50)), Some(watts(250)), None));
    let shape = Shape { packages: 1, gpus: 1, range, gpu_range: range };
    let mut node = adopt(ALL, shape, Some(&says(100, 0)));
    for second in 1..4 {
        period(&mut node, &laws, second, &says(100, 0), (cap(120), cap(120)));
    }
    let applied = CapReport::Cap(CapResult::Applied { effective: watts(120) });
    assert_eq!(
        (node.engine.cpu().unwrap().status.report, node.engine.gpu().unwrap().report),
        (applied, applied)
    );
    let trouble = Trouble { kind: ErrorKind::Timeout, text: "no answer".to_owned() };
    for second in 4..30 {
        node.sense(None, [Some(ErrorKind::Timeout); 2], Stamp::new(Micros::new(second * 1_000_000)));
        let now = Stamp::new(Micros::new(second * 1_000_000));
        for order in step(&mut node, &laws, (now, Occasion::Period), (cap(120), cap(120))) {
            node.land(order, Err(&trouble));
        }
        // Within the patience of two periods one answer may be missing.
        if second > 7 {
            let reports = [node.engine.cpu().unwrap().status.report, node.engine.gpu().unwrap().report];
            assert!(!reports.contains(&applied), "at {second}: {reports:?}");
        }
    }
}

#[test]
fn a_cap_that_only_its_control_confirms_is_posted_less_and_less_often() {
    let laws = laws(eager(), BackendPreference::LimitFirst);
    let range = Some(CapRange::new(Some(watts(50)), Some(watts(250)), None));
    let shape = Shape { packages: 1, range, ..Shape::default() };
    let mut node = adopt(ALL, shape, Some(&says(100, 0)));
    let mut posted = Vec::new();
    for second in 1..300 {
        let now = Stamp::new(Micros::new(second * 1_000_000));
        node.sense(None, [Some(ErrorKind::Timeout); 2], now);
        for order in step(&mut node, &laws, (now, Occasion::Period), (cap(120), NONE)) {
            if let Action::Cap(watts) = order.action {
                posted.push(second);
                node.land(order, Ok(Some(watts)));
            } else {
                node.land(order, Ok(None));
            }
        }
    }
    assert!((4..=12).contains(&posted.len()), "{posted:?}");
    let last = posted.len() - 1;
    assert!(posted[last] - posted[last - 1] > 40, "{posted:?}");
}

#[test]
fn a_percentage_without_a_maximum_is_a_throttle_whatever_is_known_of_the_processors() {
    // Agent table, row 16: nobody knows how many processors there are.
    let laws = laws(eager(), BackendPreference::LimitFirst);
    let told = says(250, 0);
    let mut node = adopt(ALL, Shape::default(), Some(&told));
    let mut posted = Vec::new();
    for second in 1..4 {
        posted.extend(bodies(&period(&mut node, &laws, second, &told, (percent(60), NONE))));
    }
    let throttles: Vec<_> = posted
        .iter()
        .filter(|body| body["action"] == "dvfs.set_throttle_pct")
        .map(|body| &body["throttlePct"])
        .collect();
    assert_eq!(throttles, [&json!(40)], "{posted:?}");
    assert_eq!(
        node.engine.cpu().unwrap().status.report,
        CapReport::Throttled(ThrottlePercent::new(40).unwrap())
    );
}

#[test]
fn without_any_way_to_control_the_processors_every_cap_is_blocked_and_nothing_is_posted() {
    // Agent table, rows 17 and 24.
    let laws = laws(eager(), BackendPreference::LimitFirst);
    let reach = Reach { cpu: false, ..ALL };
    for desired in [cap(120), percent(60)] {
        let told = says(250, 0);
        let mut node = adopt(reach, Shape { packages: 2, ..Shape::default() }, Some(&told));
        for second in 1..4 {
            assert_eq!(period(&mut node, &laws, second, &told, (desired, NONE)), []);
        }
        let report = node.engine.cpu().unwrap().status.report;
        assert!(matches!(report, CapReport::Cap(CapResult::Blocked(_))), "{desired:?}: {report:?}");
    }
}

fn gpus(range: Option<(i32, i32)>) -> NodeEngine {
    let gpu_range = range.map(|(min, max)| CapRange::new(Some(watts(min)), Some(watts(max)), None));
    adopt(ALL, Shape { packages: 1, gpus: 2, gpu_range, ..Shape::default() }, Some(&says(100, 0)))
}

#[test]
fn a_cap_of_gpus_is_posted_for_each_of_them() {
    let laws = laws(eager(), BackendPreference::LimitFirst);
    let told = says(100, 0);
    // Agent table, rows 32 and 33: 60 % of 350 W; 220 W as they are.
    for (desired, range, posted) in
        [(percent(60), Some((200, 350)), 210), (cap(220), Some((200, 350)), 220), (cap(250), None, 250)]
    {
        let mut node = gpus(range);
        let orders = bodies(&period(&mut node, &laws, 1, &told, (NONE, desired)));
        let expected = json!({
            "node": "node-a", "action": "gpu.set_power_cap_watts", "capWattsPerGpu": posted, "ts": "T",
        });
        assert_eq!(orders, [expected]);
        assert_eq!(period(&mut node, &laws, 2, &told, (NONE, desired)), []);
        // Of two GPUs.
        let effective = watts(posted).times(2);
        let report = node.engine.gpu().unwrap().report;
        assert_eq!(report, CapReport::Cap(CapResult::Applied { effective }), "{desired:?}");
    }
}

#[test]
fn a_percentage_of_gpus_whose_maximum_nobody_knows_is_blocked() {
    // Agent table, row 36.
    let mut node = gpus(None);
    let laws = laws(eager(), BackendPreference::LimitFirst);
    assert_eq!(period(&mut node, &laws, 1, &says(100, 0), (NONE, percent(70))), []);
    assert_eq!(node.engine.gpu().unwrap().report, CapReport::Cap(CapResult::Blocked(Blocked::NoRange)));
    assert!(Blocked::NoRange.to_string().contains("cannot resolve capPctOfMax"));
}

/// What is known after each second of `drawn`, for a node with two packages. Its control accepts a cap of 120 W for
/// each and returns no read-back. `tells` is the limit that its telemetry reports.
fn silent(
    drawn: impl Fn(u64, bool) -> Option<i32>,
    tells: impl Fn(u64) -> Option<i32>,
    seconds: u64,
) -> Vec<(CapReport, Option<Watts>)> {
    let laws = laws(eager(), BackendPreference::LimitFirst);
    let shape = Shape { packages: 2, ..Shape::default() };
    let mut node = adopt(ALL, shape, Some(&says(0, 0)));
    let mut known = Vec::new();
    for second in 0..seconds {
        let looped = node.throttle.is_some_and(|throttle| throttle != ThrottlePercent::NONE);
        let (drawn, limit) = (drawn(second, looped), tells(second));
        let body = json!({"cpu": {"packagePowerWatts": drawn, "capWatts": limit}});
        let told = Telemetry::read(body.to_string().as_bytes()).unwrap();
        period(&mut node, &laws, second + 1, &told, (cap(120), NONE));
        // As the task does, until nothing is left to post.
        for _ in 0..3 {
            let now = Stamp::new(Micros::new((second + 1) * 1_000_000));
            for order in step(&mut node, &laws, (now, Occasion::News), (cap(120), NONE)) {
                node.land(order, Ok(None));
            }
        }
        known.push((node.engine.cpu().unwrap().status.report, node.in_force().0));
    }
    known
}

const HELD: CapReport = CapReport::Cap(CapResult::Applied { effective: Watts::from_int(240) });

#[test]
fn a_limit_that_nobody_reads_back_and_nothing_shows_is_not_said_to_be_in_force() {
    // Telemetry does not report the limit, and power is not measured.
    for (report, limit) in silent(|_, _| None, |_| None, 30) {
        assert_eq!(limit, None, "{report:?}");
    }
}

#[test]
fn what_telemetry_tells_confirms_a_limit_and_a_higher_one_does_not() {
    let told = silent(|_, _| Some(200), |second| Some(if second == 0 { 250 } else { 120 }), 5);
    assert_eq!(told[0], (CapReport::Pending, None), "it was taken, and that is all");
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
    // The control has no effect: the drawn power stays above the cap until the loop throttles.
    let ignored = silent(|_, looped| Some(if looped { 230 } else { 400 }), |_| None, 60);
    assert!(ignored.iter().all(|(_, limit)| limit.is_none()), "{ignored:?}");
    assert!(
        matches!(ignored[59].0, CapReport::Cap(CapResult::Applied { .. })),
        "held by the loop: {:?}",
        ignored[59]
    );
    // The node was within the limit while idle, but does not keep it under load.
    let later = silent(|second, looped| Some(if second > 10 && !looped { 400 } else { 100 }), |_| None, 20);
    assert_eq!((later[9].1, later[18].1), (Some(watts(120)), None), "{later:?}");
}
