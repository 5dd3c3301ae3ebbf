use super::*;
use crate::power::PowerMeter;
use power_units::Watts;
use proptest::prelude::*;

fn law() -> HistoryLaw {
    HistoryLaw::new(WINDOW, HOLD).unwrap()
}

fn at(seconds: u64) -> Stamp {
    Stamp::new(Micros::new(seconds * 1_000_000))
}

fn http(seconds: u64, watts: i32) -> MeterResult {
    PowerSample::new(PowerMeter::Http, Watts::from_int(watts), at(seconds))
}

fn measured(watts: i32, age: u64) -> NodeReading {
    NodeReading::Measured {
        meter: PowerMeter::Http,
        watts: Watts::from_int(watts),
        age: Micros::new(age * 1_000_000),
    }
}

fn history(reports: &[(u64, MeterResult)]) -> History {
    let mut history = History::default();
    for &(seconds, report) in reports {
        history.record(&law(), at(seconds), report);
    }
    history
}

#[test]
fn a_failed_attempt_is_neither_zero_watts_nor_a_fall() {
    // Fix list operator B7: 400 W, 400 W, then the endpoint fails.
    let failed = history(&[(0, http(0, 400)), (60, http(60, 400)), (120, Err(NoMeasurement::HttpError))]);
    assert_eq!(failed.trend(&law(), at(120)), Some(WattsPerMinute::ZERO));
    let held = NodeReading::Held {
        meter: PowerMeter::Http,
        watts: Watts::from_int(400),
        age: Micros::new(60_000_000),
        failing: NoMeasurement::HttpError,
    };
    assert_eq!(failed.reading(&law(), at(120)), held);
    assert_eq!(failed.reading(&law(), at(361)), NodeReading::Absent(NoMeasurement::HttpError));
}

#[test]
fn a_sample_can_stand_longer_than_the_trend_looks_back() {
    let long = HistoryLaw::new(WINDOW, Micros::new(600_000_000)).unwrap();
    let mut history = History::default();
    history.record(&long, at(0), http(0, 400));
    history.record(&long, at(500), Err(NoMeasurement::HttpError));
    assert!(matches!(history.reading(&long, at(600)), NodeReading::Held { .. }));
    assert_eq!(history.reading(&long, at(601)), NodeReading::Absent(NoMeasurement::HttpError));
}

#[test]
fn a_meter_that_answers_again_is_fresh_again() {
    let back = history(&[(0, http(0, 400)), (60, Err(NoMeasurement::HttpError)), (120, http(120, 420))]);
    assert_eq!(back.reading(&law(), at(125)), measured(420, 5));
    assert_eq!(back.trend(&law(), at(120)), Some(WattsPerMinute::from_int(10)));
}

#[test]
fn a_meter_that_repeats_an_old_sample_grows_stale() {
    // Prometheus is up but the exporter is not: each query succeeds and returns the old time stamp.
    let old = history(&[(0, http(0, 400)), (100, http(0, 400)), (200, http(0, 400)), (299, http(0, 400))]);
    assert_eq!(old.reading(&law(), at(300)), measured(400, 300));
    assert_eq!(old.reading(&law(), at(301)), NodeReading::Absent(NoMeasurement::HttpError));
    assert_eq!(old.trend(&law(), at(300)), None);
}

#[test]
fn nothing_was_ever_read_is_said_as_it_is() {
    assert_eq!(History::default().reading(&law(), at(5)), NodeReading::Absent(NoMeasurement::NotConfigured));
    let unset = history(&[(0, Err(NoMeasurement::HttpNoEndpoint))]);
    assert_eq!(unset.reading(&law(), at(5)), NodeReading::Absent(NoMeasurement::HttpNoEndpoint));
}

#[test]
fn samples_older_than_the_window_leave_the_trend() {
    let reports = [(0, http(0, 1_000)), (290, http(290, 300)), (320, http(320, 300))];
    assert_eq!(history(&reports).trend(&law(), at(320)), Some(WattsPerMinute::ZERO));
    let mut idle = history(&reports);
    idle.record(&law(), at(700), Err(NoMeasurement::HttpError));
    assert_eq!(idle.trend(&law(), at(700)), None);
    assert!(idle.points.is_empty());
}

#[test]
fn duplicates_and_late_samples_change_nothing_but_what_they_add() {
    let in_order = history(&[(60, http(0, 300)), (60, http(30, 330)), (60, http(60, 360))]);
    let late = history(&[(60, http(60, 360)), (60, http(0, 300)), (60, http(30, 330)), (60, http(30, 330))]);
    assert_eq!(in_order, late);
    assert_eq!(late.trend(&law(), at(60)), Some(WattsPerMinute::from_int(60)));
    // A late sample never replaces a newer one.
    assert_eq!(late.reading(&law(), at(60)), measured(360, 0));
}

#[test]
fn of_two_samples_at_one_time_the_larger_counts_whichever_came_first() {
    let high_last = history(&[(0, http(0, 300)), (0, http(0, 400))]);
    let high_first = history(&[(0, http(0, 400)), (0, http(0, 300))]);
    assert_eq!(high_last, high_first);
    assert_eq!(high_first.reading(&law(), at(0)), measured(400, 0));
}

#[test]
fn a_slope_is_forgotten_with_its_last_point() {
    // 900 W, 300 W a minute later, and then silence: the trend does not last forever.
    let fallen = history(&[(0, http(0, 900)), (60, http(60, 300))]);
    assert_eq!(fallen.trend(&law(), at(60)), Some(WattsPerMinute::from_int(-600)));
    assert_eq!(fallen.trend(&law(), at(361)), None);
    assert_eq!(fallen.trend(&law(), at(59)), None, "nor does a clock that was set back know it");
}

#[test]
fn a_clock_that_was_set_back_starts_over() {
    let mut back = history(&[(1_000, http(1_000, 400)), (1_060, http(1_060, 500))]);
    back.record(&law(), at(10), http(10, 300));
    assert_eq!(back.trend(&law(), at(10)), None);
    assert_eq!(back.reading(&law(), at(10)), measured(300, 0));
    back.record(&law(), at(70), http(70, 330));
    assert_eq!(back.trend(&law(), at(70)), Some(WattsPerMinute::from_int(30)));
    assert_eq!(back.reading(&law(), at(5)), NodeReading::Absent(NoMeasurement::HttpError));
}

#[test]
fn a_sample_from_the_future_counts_as_of_now() {
    let mut ahead = history(&[(0, http(9_999, 400))]);
    assert_eq!(ahead.reading(&law(), at(3)), measured(400, 3));
    ahead.record(&law(), at(60), http(60, 460));
    assert_eq!(ahead.trend(&law(), at(60)), Some(WattsPerMinute::from_int(60)));
}

#[test]
fn the_step_between_two_meters_is_no_trend() {
    let mut changed = history(&[(0, http(0, 300)), (60, http(60, 300))]);
    let agent = |seconds, watts| PowerSample::new(PowerMeter::Agent, Watts::from_int(watts), at(seconds));
    changed.record(&law(), at(120), agent(120, 250));
    assert_eq!(changed.trend(&law(), at(120)), None);
    changed.record(&law(), at(180), agent(180, 260));
    assert_eq!(changed.trend(&law(), at(180)), Some(WattsPerMinute::from_int(10)));
}

#[test]
fn an_hour_of_samples_every_second_stays_small_and_covers_the_window() {
    // Fix list operator B32.
    let mut busy = History::default();
    for second in 0_u64..3_600 {
        let watts = 300 + i32::try_from(second).unwrap();
        busy.record(&law(), at(second), http(second, watts));
        assert!(busy.points.len() <= POINTS_MAX);
    }
    assert_eq!(busy.trend(&law(), at(3_599)), Some(WattsPerMinute::from_int(60)));
    let (first, last) = (busy.points.first().unwrap().at, busy.points.last().unwrap().at);
    assert!(last.since(first).unwrap() >= Micros::new(200_000_000));
    let gap = |pair: &[Point]| pair[1].at.since(pair[0].at).unwrap();
    assert!(busy.points.windows(2).map(gap).max().unwrap() <= Micros::new(60_000_000));
}

#[test]
fn a_node_that_is_gone_is_forgotten() {
    // Fix list operator B32.
    let mut all = Histories::default();
    for node in ["a", "b", "c"] {
        all.record(&law(), node, at(0), http(0, 100));
    }
    all.keep_only(&BTreeSet::from(["b", "d"]));
    assert_eq!(all.len(), 1);
    assert_eq!(all.reading(&law(), "b", at(1)), (measured(100, 1), None));
    assert_eq!(all.reading(&law(), "a", at(1)), (NodeReading::Absent(NoMeasurement::NotConfigured), None));
}

#[test]
fn spans_that_make_no_sense_are_refused() {
    assert_eq!(HistoryLaw::new(Micros::new(5_999_999), HOLD), Err(HistoryLawError::Window));
    assert_eq!(HistoryLaw::new(Micros::MAX, HOLD), Err(HistoryLawError::Window));
    assert_eq!(HistoryLaw::new(WINDOW, Micros::ZERO), Err(HistoryLawError::Hold));
    assert_eq!(HistoryLaw::new(WINDOW, Micros::MAX), Err(HistoryLawError::Hold));
}

proptest! {
    #[test]
    fn any_sequence_of_reports_stays_bounded_and_in_order(
        reports in prop::collection::vec((0_u64..2_000, 0_u64..2_000, prop::option::of(0_i32..5_000)), 0..80),
    ) {
        let mut history = History::default();
        for (now, then, watts) in reports {
            let report = watts.map_or(Err(NoMeasurement::HttpError), |watts| http(then, watts));
            history.record(&law(), at(now), report);
            prop_assert!(history.points.len() <= POINTS_MAX);
            prop_assert!(history.points.is_sorted_by(|a, b| a.at < b.at));
            prop_assert!(history.points.iter().all(|point| point.at <= at(now)));
        }
    }

    #[test]
    fn samples_that_arrive_together_may_arrive_in_any_order(
        mut samples in prop::collection::vec((0_u64..250, 0_i32..5_000), 1..POINTS_MAX),
        seed in any::<u64>(),
    ) {
        let given = history(&samples.iter().map(|&(s, w)| (250, http(s, w))).collect::<Vec<_>>());
        let turn = usize::try_from(seed % 97).unwrap() % samples.len();
        samples.rotate_left(turn);
        samples.reverse();
        let turned = history(&samples.iter().map(|&(s, w)| (250, http(s, w))).collect::<Vec<_>>());
        prop_assert_eq!(given, turned);
    }
}
