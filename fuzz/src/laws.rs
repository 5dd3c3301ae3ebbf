//! Property: whatever the facts of a control law are, its command is in the range and has the reported direction;
//! without readings it never permits more; while a command is pending there is no second one; without a cap or a
//! range there is none; and the same facts give the same decision.

use crate::feed::Feed;
use joulie_core::node::classic::{self, Classic};
use joulie_core::node::energy::{Baseline, CounterSample, EnergyMeter, MeterReading};
use joulie_core::node::law::{
    Command, CommandOutcome, Decision, Facts, FrequencyRange, Law, LawAction, PowerReading,
};
use joulie_core::node::throttle::ThrottlePercent;
use joulie_core::node::tracking::{self, Tracking};
use power_hal::Counter;
use power_units::{KiloHertz, MicroJoules, Micros, Percent, Ratio, Stamp, Watts};

/// Longer inputs are cut: a law has reached all its states by then.
const STEPS_MAX: usize = 64;

pub(crate) fn run(bytes: &[u8]) {
    let mut feed = Feed::new(bytes);
    match feed.byte() % 3 {
        0 => classic(&mut feed),
        1 => tracking(&mut feed),
        _ => meter(&mut feed),
    }
}

fn ratio(feed: &mut Feed<'_>) -> Ratio {
    if feed.is_set() {
        Ratio::from_bits(feed.long().cast_signed())
    } else {
        Ratio::from_bits(i64::from(feed.word()))
    }
}

fn classic(feed: &mut Feed<'_>) {
    let tuning = if feed.is_set() {
        classic::DEFAULTS
    } else {
        classic::Tuning {
            ema_alpha: ratio(feed),
            high_margin: feed.watts(),
            low_margin: feed.watts(),
            step: ThrottlePercent::new(i64::from(feed.byte())).unwrap_or(ThrottlePercent::TEN),
            trip_count: u32::from(feed.byte()),
            cooldown: Micros::new(u64::from(feed.word())),
        }
    };
    let Ok(law) = Classic::new(tuning) else { return };
    drive(&law, feed, |decision, facts| {
        let throttle = |command: Option<Command>| match command {
            Some(Command::Throttle(throttle)) => throttle,
            Some(Command::MeanFrequency(_)) => panic!("{decision:?}"),
            None => ThrottlePercent::NONE,
        };
        if decision.action == LawAction::ThrottleUp {
            assert!(matches!(facts.power, PowerReading::Fresh { .. }), "blind: {decision:?}");
        }
        if decision.command.is_some() {
            let (from, to) = (throttle(decision.in_effect), throttle(decision.command));
            assert!(to <= ThrottlePercent::ALL && from != to);
            let is_blind = decision.action == LawAction::FailSafe && to == ThrottlePercent::ALL;
            let is_a_step = from.get().abs_diff(to.get()) <= tuning.step.get();
            assert!(is_a_step || is_blind, "{decision:?} in more than a step");
            assert_eq!(to > from, decision.action != LawAction::ThrottleDown, "{decision:?}");
        }
    });
}

fn tracking(feed: &mut Feed<'_>) {
    let tuning = if feed.is_set() {
        tracking::DEFAULTS
    } else {
        tracking::Tuning {
            elasticity: ratio(feed),
            guard: ratio(feed),
            deadband: ratio(feed),
            rise: ratio(feed),
            safe_level: Percent::from_int(i32::from(feed.byte())),
        }
    };
    let Ok(law) = Tracking::new(tuning) else { return };
    drive(&law, feed, |decision, facts| {
        let Some(command) = decision.command else { return };
        let (Command::MeanFrequency(to), Some(range)) = (command, facts.range) else {
            panic!("{decision:?} on {facts:?}")
        };
        assert!(to >= range.min() && to <= range.max(), "{decision:?} in {range:?}");
        let from = match decision.in_effect {
            Some(Command::MeanFrequency(limit)) => limit.within(range.min(), range.max()),
            Some(Command::Throttle(_)) | None => range.max(),
        };
        assert_eq!(to < from, decision.action != LawAction::ThrottleDown, "{decision:?} from {from}");
    });
}

/// Steps through facts, and checks the properties of every law; `check` checks those of this law.
fn drive<L: Law>(law: &L, feed: &mut Feed<'_>, check: impl Fn(&Decision, &Facts))
where
    L::Mode: Clone + PartialEq + std::fmt::Debug,
{
    let found = if feed.is_set() { Some(command(feed)) } else { None };
    let mut mode = law.start(found);
    let (mut now, mut flying) = (Stamp::new(Micros::new(u64::from(feed.word()))), None);
    for _ in 0..STEPS_MAX {
        if feed.is_empty() {
            break;
        }
        now = time(feed, now);
        let facts = facts(feed, now, flying);
        if matches!(facts.outcome, CommandOutcome::Applied { asked, .. } | CommandOutcome::Refused { asked } if Some(asked) == flying)
        {
            flying = None;
        }
        let mut twin = mode.clone();
        let decision = law.step(&mut mode, &facts);
        assert_eq!(
            (law.step(&mut twin, &facts), &twin),
            (decision, &mode),
            "the same facts, another decision"
        );
        check_common(&decision, &facts, flying);
        check(&decision, &facts);
        flying = decision.command.or(flying);
    }
}

fn check_common(decision: &Decision, facts: &Facts, flying: Option<Command>) {
    assert_eq!(decision.command.is_none(), matches!(decision.action, LawAction::Hold(_)), "{decision:?}");
    if facts.cap.is_none_or(|cap| cap <= Watts::ZERO) || flying.is_some() {
        assert_eq!(decision.command, None, "{facts:?}, {flying:?} on its way");
    }
    match facts.power {
        PowerReading::Fresh { watts, .. } if watts > Watts::ZERO => {
            assert_ne!(decision.action, LawAction::FailSafe, "{facts:?}");
        }
        PowerReading::Fresh { .. }
        | PowerReading::Missing
        | PowerReading::Stale
        | PowerReading::Impossible => {
            assert!(decision.observed.is_none(), "{facts:?}");
            // A cap that is lowered meanwhile may lower a limit.
            assert_ne!(decision.action, LawAction::ThrottleDown, "blind: {decision:?}");
        }
    }
}

/// Usually a second later; occasionally any time.
fn time(feed: &mut Feed<'_>, now: Stamp) -> Stamp {
    match feed.byte() {
        0 => Stamp::new(Micros::new(feed.long())),
        1 => now,
        more => now + Micros::new(u64::from(more) * 50_000),
    }
}

fn frequency(feed: &mut Feed<'_>) -> KiloHertz {
    match feed.byte() {
        0 => KiloHertz::from_bits(feed.long().cast_signed()),
        1 => KiloHertz::ZERO,
        more => KiloHertz::from_int(i32::from(more) * 25_000),
    }
}

fn command(feed: &mut Feed<'_>) -> Command {
    if feed.is_set() {
        Command::MeanFrequency(frequency(feed))
    } else {
        Command::Throttle(ThrottlePercent::new(i64::from(feed.byte() % 101)).unwrap_or(ThrottlePercent::NONE))
    }
}

fn facts(feed: &mut Feed<'_>, now: Stamp, flying: Option<Command>) -> Facts {
    let kind = feed.byte();
    let asked = flying.filter(|_| kind & 1 == 0).unwrap_or_else(|| command(feed));
    let outcome = match kind >> 1 & 3 {
        0 | 1 => {
            CommandOutcome::Applied { asked, in_effect: if kind & 8 == 0 { asked } else { command(feed) } }
        }
        2 => CommandOutcome::Refused { asked },
        _ => CommandOutcome::Unknown,
    };
    let power = match kind >> 4 {
        0 => PowerReading::Missing,
        1 => PowerReading::Stale,
        2 => PowerReading::Impossible,
        _ => PowerReading::Fresh { watts: feed.watts(), over: Micros::new(u64::from(feed.half()) * 100) },
    };
    let shape = feed.byte();
    let cap = if shape & 7 == 0 { None } else { Some(feed.watts()) };
    let range = match shape >> 3 & 7 {
        0 => None,
        1 => FrequencyRange::new(frequency(feed), frequency(feed)),
        _ => FrequencyRange::new(KiloHertz::from_int(1_200_000), KiloHertz::from_int(3_200_000)),
    };
    let effective = if shape >> 6 == 0 { None } else { Some(frequency(feed)) };
    Facts { now, cap, power, effective, range, outcome }
}

/// Whatever a counter shows, a reading is positive and below the highest power of the package over the time between
/// two samples, or there is none.
fn meter(feed: &mut Feed<'_>) {
    let counter = match feed.byte() & 3 {
        0 => Counter::new(MicroJoules::new(feed.long())),
        1 => Counter::endless(),
        2 => Counter::Unknown,
        _ => Counter::of_range(Some(MicroJoules::new(262_143_328_850))),
    };
    let (most, least) = (feed.watts(), Micros::new(u64::from(feed.half())));
    let Ok(meter) = EnergyMeter::new(counter, most, least, Micros::new(u64::from(feed.word()))) else {
        return;
    };
    let mut baseline = Baseline::Nothing;
    let (mut now, mut at) = (Stamp::new(Micros::ZERO), Stamp::new(Micros::ZERO));
    for _ in 0..STEPS_MAX {
        if feed.is_empty() {
            break;
        }
        now = time(feed, now);
        at = if feed.is_set() { now } else { time(feed, at) };
        let energy =
            MicroJoules::new(if feed.is_set() { feed.long() } else { u64::from(feed.word()) * 1_000 });
        let sample = (feed.byte() != 0).then_some(CounterSample { energy, at });
        match meter.step(&mut baseline, now, sample) {
            MeterReading::Fresh { watts, over } => {
                assert!(watts >= Watts::ZERO && watts <= most && over >= least && over > Micros::ZERO);
                assert!(sample.is_some_and(|sample| counter.can_show(sample.energy)));
            }
            MeterReading::Stale { .. } | MeterReading::Missing(_) | MeterReading::Impossible(_) => {}
        }
    }
}
