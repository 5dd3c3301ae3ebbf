use super::*;
use crate::node::law::{BLIND_STEPS_HELD, CommandOutcome, PowerReading};
use power_units::{KiloHertz, Role};
use proptest::prelude::*;
use std::string::ToString;
use std::vec::Vec;

const NO_COOLDOWN: Tuning = Tuning { cooldown: Micros::ZERO, ..DEFAULTS };
/// The settings of facts 17.1, cases 18 to 20.
const AT_ONCE: Tuning = Tuning {
    ema_alpha: Ratio::ONE,
    high_margin: Watts::ZERO,
    low_margin: Watts::ZERO,
    step: ThrottlePercent::TEN,
    trip_count: 1,
    cooldown: Micros::ZERO,
};

fn seconds(seconds: u64) -> Stamp {
    Stamp::new(Micros::new(seconds * 1_000_000))
}

fn pct(percent: u8) -> ThrottlePercent {
    ThrottlePercent::new(i64::from(percent)).unwrap()
}

fn fresh(watts: i32) -> PowerReading {
    PowerReading::Fresh { watts: Watts::from_int(watts), over: Micros::ZERO }
}

fn applied(throttle: ThrottlePercent) -> CommandOutcome {
    let asked = Command::Throttle(throttle);
    CommandOutcome::Applied { asked, in_effect: asked }
}

/// A loop with a machine that obeys at once, unless a test makes it refuse.
struct Loop {
    law: Classic,
    mode: Mode,
    facts: Facts,
}

impl Loop {
    fn new(tuning: Tuning, cap: i32, found: u8) -> Self {
        let law = Classic::new(tuning).unwrap();
        let mode = law.start(Some(Command::Throttle(pct(found))));
        let cap = Some(Watts::from_int(cap));
        let facts = Facts {
            now: seconds(0),
            cap,
            power: PowerReading::Missing,
            effective: None,
            range: None,
            outcome: CommandOutcome::Unknown,
        };
        Self { law, mode, facts }
    }

    fn step(&mut self, at: u64, power: PowerReading) -> Decision {
        self.facts = Facts { now: seconds(at), power, ..self.facts };
        let decision = self.law.step(&mut self.mode, &self.facts);
        self.facts.outcome = match decision.command {
            Some(asked) => CommandOutcome::Applied { asked, in_effect: asked },
            None => CommandOutcome::Unknown,
        };
        decision
    }

    fn watts(&mut self, at: u64, watts: i32) -> Decision {
        self.step(at, fresh(watts))
    }

    /// The throttle and the counters after the outcome of the last command.
    fn after(&mut self) -> (u8, u32, u32) {
        self.mode.settle(&self.facts);
        (self.mode.throttle().get(), self.mode.counts.above, self.mode.counts.below)
    }
}

/// The golden trace of facts section 10: power, EMA, counters and throttle after the step, action. The reference
/// reports row 18 as a "down" from 0 to 0, rewrites every file and restarts its counter. At the end of the range there
/// is nothing to do, so here it is a hold (Fix list agent C8), and the counter stays at its trip count.
#[test]
fn the_golden_trace() {
    use LawAction::{ThrottleDown as Down, ThrottleUp as Up};
    const HOLD: LawAction = LawAction::Hold(Hold::Steady);
    let rows = [
        (200, 200.00, (0, 1, 0), HOLD),
        (200, 200.00, (10, 0, 0), Up),
        (200, 200.00, (10, 1, 0), HOLD),
        (100, 170.00, (20, 0, 0), Up),
        (100, 149.00, (20, 1, 0), HOLD),
        (100, 134.30, (30, 0, 0), Up),
        (100, 124.01, (30, 0, 0), HOLD),
        (100, 116.81, (30, 0, 0), HOLD),
        (100, 111.76, (30, 0, 0), HOLD),
        (100, 108.24, (30, 0, 0), HOLD),
        (90, 102.76, (30, 0, 1), HOLD),
        (80, 95.94, (20, 0, 0), Down),
        (80, 91.15, (20, 0, 1), HOLD),
        (80, 87.81, (10, 0, 0), Down),
        (80, 85.47, (10, 0, 1), HOLD),
        (80, 83.83, (0, 0, 0), Down),
        (80, 82.68, (0, 0, 1), HOLD),
        (80, 81.87, (0, 0, 2), LawAction::Hold(Hold::AtBound)),
    ];
    let mut node = Loop::new(NO_COOLDOWN, 120, 0);
    for (row, (power, ema, after, action)) in (1_u64..).zip(rows) {
        let decision = node.watts(row * 20, power);
        assert_eq!(decision.action, action, "row {row}");
        let smoothed = decision.smoothed.unwrap().to_bits() as f64 / 2_f64.powi(32);
        assert!((smoothed - ema).abs() <= 0.005, "row {row}: {smoothed}");
        assert_eq!(node.after(), after, "row {row}");
        assert_eq!(decision.observed, Some(Watts::from_int(power)));
    }
}

/// Fix list agent C7, kept on purpose: the law acts on the smoothed power, which lags. So rows 4 and 6 of the golden
/// trace go on throttling although the power is already below the cap. Each step has the same size, however small the
/// error.
#[test]
fn the_average_lags_and_goes_on_throttling_below_the_cap() {
    let mut node = Loop::new(NO_COOLDOWN, 120, 0);
    let mut throttled_below = Vec::new();
    for (row, power) in (1..).zip([200, 200, 200, 100, 100, 100, 100]) {
        let decision = node.watts(row * 20, power);
        if power < 120 && decision.action == LawAction::ThrottleUp {
            throttled_below.push((row, decision.command));
        }
    }
    let up = |percent| Some(Command::Throttle(pct(percent)));
    assert_eq!(throttled_below, [(4, up(20)), (6, up(30))]);
}

/// Facts 17.1, cases 18 to 20.
#[test]
fn up_down_and_cooldown_are_told_apart() {
    let mut hot = Loop::new(AT_ONCE, 120, 0);
    let up = hot.watts(0, 200);
    assert_eq!((up.action.as_str(), up.command), ("throttle-up", Some(Command::Throttle(pct(10)))));

    let mut cool = Loop::new(AT_ONCE, 120, 20);
    let down = cool.watts(0, 80);
    assert_eq!((down.action.as_str(), down.command), ("throttle-down", Some(Command::Throttle(pct(10)))));

    let mut cooling = Loop::new(Tuning { cooldown: Micros::new(600_000_000), ..AT_ONCE }, 120, 0);
    cooling.watts(0, 300);
    let held = cooling.watts(1, 300);
    assert_eq!((held.action.as_str(), held.command), ("hold(cooldown)", None));
    assert_eq!(held.in_effect, Some(Command::Throttle(pct(10))));
}

#[test]
fn counters_are_frozen_in_cooldown_and_start_again_after_an_action() {
    let mut node = Loop::new(DEFAULTS, 120, 0);
    let actions: Vec<&str> = (0..7).map(|tick| node.watts(tick * 10, 300).action.as_str()).collect();
    // Action at 10 s; 20 s is in its cooldown; 30 s is not (20 s have passed) and counts one; 40 s trips.
    let expected = ["hold", "throttle-up", "hold(cooldown)", "hold", "throttle-up", "hold(cooldown)", "hold"];
    assert_eq!(actions, expected);
    assert_eq!(node.after(), (20, 1, 0));
    // During a cooldown the counters do not change.
    let mut frozen = Loop::new(DEFAULTS, 120, 0);
    frozen.watts(0, 300);
    frozen.watts(10, 300);
    assert_eq!(frozen.watts(15, 50).counts, Some(TripCounts::ZERO));
}

#[test]
fn a_power_on_a_threshold_is_not_beyond_it() {
    let tuning = Tuning { high_margin: Watts::from_int(10), low_margin: Watts::from_int(15), ..AT_ONCE };
    for (power, action) in [
        (130, LawAction::Hold(Hold::Steady)),
        (131, LawAction::ThrottleUp),
        (105, LawAction::Hold(Hold::Steady)),
        (104, LawAction::ThrottleDown),
    ] {
        assert_eq!(Loop::new(tuning, 120, 50).watts(0, power).action, action, "{power} W");
    }
}

/// Fix list agent C8.
#[test]
fn the_rails_are_not_acted_on() {
    let mut idle = Loop::new(AT_ONCE, 120, 0);
    let mut hot = Loop::new(AT_ONCE, 120, 100);
    for tick in 0..50 {
        assert_eq!(idle.watts(tick, 30).command, None);
        let held = hot.watts(tick, 500);
        assert_eq!((held.action, held.command), (LawAction::Hold(Hold::AtBound), None));
        assert_eq!(held.reach, Reach::NotAchievable);
    }
    // The law leaves the end of the range as soon as there is a reason.
    assert_eq!(idle.watts(60, 500).action, LawAction::ThrottleUp);
    assert_eq!(hot.watts(60, 30).action, LawAction::ThrottleDown);
    // The last step is cut at the end of the range.
    let mut near = Loop::new(AT_ONCE, 120, 95);
    assert_eq!(near.watts(0, 500).command, Some(Command::Throttle(ThrottlePercent::ALL)));
}

/// Fix list agent S14.
#[test]
fn a_refused_command_changes_nothing_and_is_asked_again_at_once() {
    let mut node = Loop::new(Tuning { trip_count: 2, cooldown: DEFAULTS.cooldown, ..AT_ONCE }, 120, 10);
    node.watts(0, 300);
    let asked = node.watts(1, 300).command.unwrap();
    node.facts.outcome = CommandOutcome::Refused { asked };
    let again = node.watts(2, 300);
    assert_eq!((again.action, again.command), (LawAction::ThrottleUp, Some(asked)));
    assert_eq!(again.in_effect, Some(Command::Throttle(pct(10))));
}

/// Fix list agent S14.
#[test]
fn nothing_advances_while_a_command_is_on_its_way() {
    let mut node = Loop::new(AT_ONCE, 120, 10);
    let asked = node.watts(0, 300).command.unwrap();
    for tick in 1..4 {
        node.facts.outcome = CommandOutcome::Unknown;
        let held = node.watts(tick, 300);
        assert_eq!((held.action, held.command), (LawAction::Hold(Hold::Pending), None));
        assert_eq!(held.in_effect, Some(Command::Throttle(pct(10))));
        assert_eq!(held.counts, Some(TripCounts { above: 1, below: 0 }));
    }
    node.facts.outcome = CommandOutcome::Applied { asked, in_effect: asked };
    assert_eq!(node.watts(4, 110).in_effect, Some(asked));
}

#[test]
fn what_was_read_back_is_the_throttle() {
    let mut node = Loop::new(AT_ONCE, 120, 0);
    let asked = node.watts(0, 300).command.unwrap();
    node.facts.outcome = CommandOutcome::Applied { asked, in_effect: Command::Throttle(pct(25)) };
    assert_eq!(node.watts(1, 300).command, Some(Command::Throttle(pct(35))));
}

/// Fix list agent C6.
#[test]
fn a_new_cap_is_met_without_waiting_for_the_old_ones_cooldown() {
    let mut node = Loop::new(DEFAULTS, 200, 0);
    node.watts(0, 300);
    assert_eq!(node.watts(1, 300).action, LawAction::ThrottleUp);
    assert_eq!(node.watts(2, 300).action, LawAction::Hold(Hold::Cooldown));
    node.facts.cap = Some(Watts::from_int(120));
    let first = node.watts(3, 300);
    assert_eq!(
        (first.action, first.counts),
        (LawAction::Hold(Hold::Steady), Some(TripCounts { above: 1, below: 0 }))
    );
    assert_eq!(first.smoothed, Some(Watts::from_int(300)), "the EMA is about power, not about the cap");
    assert_eq!(node.watts(4, 300).action, LawAction::ThrottleUp);
}

/// Fix list agent C6.
#[test]
fn a_gap_in_the_readings_starts_the_average_again() {
    for (lost, ema) in [(3, 200), (4, 100)] {
        let mut node = Loop::new(Tuning { ema_alpha: Ratio::from_bits(1 << 31), ..DEFAULTS }, 500, 0);
        node.watts(0, 300);
        for tick in 1..=lost {
            node.step(tick, PowerReading::Stale);
        }
        assert_eq!(node.watts(20, 100).smoothed, Some(Watts::from_int(ema)), "{lost} steps lost");
    }
}

/// Fix list agent C2.
#[test]
fn a_step_without_a_reading_says_that_nothing_was_observed() {
    for missing in [PowerReading::Missing, PowerReading::Stale, PowerReading::Impossible, fresh(0), fresh(-5)]
    {
        let mut node = Loop::new(DEFAULTS, 120, 0);
        let decision = node.step(0, missing);
        assert_eq!((decision.action, decision.command), (LawAction::Hold(Hold::Blind), None));
        assert_eq!((decision.observed, decision.smoothed, decision.reach), (None, None, Reach::Unknown));
    }
}

#[test]
fn blind_for_long_throttles_everything_at_once() {
    let mut node = Loop::new(DEFAULTS, 120, 20);
    // Not even a very recent action delays it.
    node.watts(0, 300);
    assert_eq!(node.watts(1, 300).action, LawAction::ThrottleUp);
    let actions: Vec<&str> =
        (2..8).map(|tick| node.step(tick, PowerReading::Missing).action.as_str()).collect();
    let mut expected = ["hold(blind)"; BLIND_STEPS_HELD as usize].to_vec();
    expected.extend(["fail-safe", "hold(at-bound)", "hold(at-bound)"]);
    assert_eq!(actions, expected);
    assert_eq!(node.after(), (100, 0, 0));
    // The first reading ends the fail-safe state.
    assert_eq!(node.watts(100, 20).action, LawAction::Hold(Hold::Steady));
    assert_eq!(node.watts(110, 20).action, LawAction::ThrottleDown);
}

#[test]
fn without_a_cap_nothing_is_done_and_what_was_counted_is_forgotten() {
    for nothing in [None, Some(Watts::ZERO), Some(Watts::MIN)] {
        let mut node = Loop::new(DEFAULTS, 120, 10);
        node.watts(0, 300);
        node.facts.cap = nothing;
        let held = node.watts(1, 300);
        assert_eq!((held.action, held.command), (LawAction::Hold(Hold::NoCap), None));
        assert_eq!((held.smoothed, held.counts, held.reach), (None, Some(TripCounts::ZERO), Reach::Unknown));
        node.facts.cap = Some(Watts::from_int(120));
        assert_eq!(node.watts(2, 300).action, LawAction::Hold(Hold::Steady));
    }
}

/// Fix list agent C14: the law continues from the throttle that it finds at the start.
#[test]
fn a_restart_goes_on_from_the_throttle_that_it_finds() {
    let mut node = Loop::new(AT_ONCE, 120, 40);
    assert_eq!(node.watts(0, 80).command, Some(Command::Throttle(pct(30))));
    let law = Classic::new(AT_ONCE).unwrap();
    for other in [None, Some(Command::MeanFrequency(KiloHertz::from_int(2_000_000)))] {
        assert_eq!(law.start(other).throttle(), ThrottlePercent::NONE);
    }
}

/// Fix list agent S15.
#[test]
fn tunables_outside_their_bounds_are_refused_with_what_is_accepted() {
    let below_zero = Ratio::from_bits(-1);
    let above_one = Ratio::from_bits((1 << 32) + 1);
    for (tuning, error) in [
        (Tuning { ema_alpha: Ratio::ZERO, ..DEFAULTS }, TuningError::EmaAlpha),
        (Tuning { ema_alpha: below_zero, ..DEFAULTS }, TuningError::EmaAlpha),
        (Tuning { ema_alpha: above_one, ..DEFAULTS }, TuningError::EmaAlpha),
        (Tuning { high_margin: Watts::from_bits(-1), ..DEFAULTS }, TuningError::HighMargin),
        (Tuning { low_margin: Watts::MIN, ..DEFAULTS }, TuningError::LowMargin),
        (Tuning { step: ThrottlePercent::NONE, ..DEFAULTS }, TuningError::Step),
        (Tuning { trip_count: 0, ..DEFAULTS }, TuningError::TripCount),
    ] {
        assert_eq!(Classic::new(tuning), Err(error));
    }
    assert_eq!(TuningError::EmaAlpha.to_string(), "DVFS_EMA_ALPHA must be above 0 and at most 1");
    assert!(Classic::new(DEFAULTS).is_ok());
}

/// DVFS_EMA_ALPHA 0.30, DVFS_HIGH_MARGIN_W 10, DVFS_LOW_MARGIN_W 15, DVFS_STEP_PCT 10, DVFS_COOLDOWN 20 s,
/// DVFS_TRIP_COUNT 2.
#[test]
fn the_defaults_are_those_of_the_manual() {
    assert_eq!(DEFAULTS.ema_alpha, Ratio::parse("0.30", Role::Nearest).unwrap());
    assert_eq!((DEFAULTS.high_margin, DEFAULTS.low_margin), (Watts::from_int(10), Watts::from_int(15)));
    assert_eq!((DEFAULTS.step.get(), DEFAULTS.trip_count), (10, 2));
    assert_eq!(DEFAULTS.cooldown, Micros::new(20_000_000));
}

fn readings() -> impl Strategy<Value = PowerReading> {
    prop_oneof![
        6 => (0_i64..(1000 << 32)).prop_map(Watts::from_bits),
        1 => any::<i64>().prop_map(Watts::from_bits),
    ]
    .prop_map(|watts| PowerReading::Fresh { watts, over: Micros::ZERO })
    .boxed()
    .prop_union(Just(PowerReading::Missing).boxed())
}

fn outcomes() -> impl Strategy<Value = CommandOutcome> {
    (0_u8..=100, 0_u8..4).prop_map(|(percent, kind)| match kind {
        0 => CommandOutcome::Unknown,
        1 => CommandOutcome::Refused { asked: Command::Throttle(pct(percent)) },
        _ => applied(pct(percent)),
    })
}

proptest! {
    #[test]
    fn a_lower_cap_never_throttles_less(
        watts in proptest::collection::vec(0_i32..600, 1..40), cap in 50_i32..500, lower_by in 0_i32..200,
        found in 0_u8..=100,
    ) {
        // The same readings under two caps: a reading above the upper threshold of the higher cap is above that of the
        // lower cap, too, and the reverse holds below.
        let mut high = Loop::new(NO_COOLDOWN, cap, found);
        let mut low = Loop::new(NO_COOLDOWN, cap - lower_by.min(cap - 1), found);
        for (second, watts) in (1..).zip(watts) {
            high.watts(second, watts);
            low.watts(second, watts);
            prop_assert!(low.after().0 >= high.after().0);
        }
    }

    /// For any facts in any order: the law answers, moves by at most one step from what is in effect (or to the safe
    /// side without readings), never commands what is in effect already, and never commands while a command is on its
    /// way.
    #[test]
    fn any_history_is_answered_with_small_steps(
        history in prop::collection::vec((readings(), outcomes(), any::<bool>(), any::<u64>(), any::<i64>()), 1..60),
    ) {
        let mut node = Loop::new(AT_ONCE, 120, 0);
        for (power, noise, answered, at, cap) in history {
            if !answered {
                node.facts.outcome = noise;
            }
            if cap % 5 == 0 {
                node.facts.cap = Some(Watts::from_bits(cap));
            }
            node.facts.now = Stamp::new(Micros::new(at));
            node.facts.power = power;
            let before = node.mode;
            let decision = node.law.step(&mut node.mode, &node.facts);
            if let Some(Command::Throttle(next)) = decision.command {
                let Some(Command::Throttle(current)) = decision.in_effect else { panic!("a throttle is in effect") };
                prop_assert!(next != current);
                let small = next.get().abs_diff(current.get()) <= 10;
                prop_assert!(small || decision.action == LawAction::FailSafe && next == ThrottlePercent::ALL);
                let mut pending = before;
                prop_assert!(pending.settle(&node.facts) != Landing::Pending);
                node.facts.outcome = applied(next);
            }
            prop_assert_eq!(decision.command.is_none(), matches!(decision.action, LawAction::Hold(_)));
        }
    }

    #[test]
    fn the_average_lies_between_the_average_before_and_the_reading(
        ema in 1_i64..i64::MAX, watts in 1_i64..i64::MAX, alpha in 1_i64..=(1 << 32),
    ) {
        let law = Classic::new(Tuning { ema_alpha: Ratio::from_bits(alpha), ..DEFAULTS }).unwrap();
        let (ema, watts) = (Watts::from_bits(ema), Watts::from_bits(watts));
        let next = law.smooth(Some(ema), watts);
        prop_assert!(ema.min(watts) <= next && next <= ema.max(watts));
    }
}
