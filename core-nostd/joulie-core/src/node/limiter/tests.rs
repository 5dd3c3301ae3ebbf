use super::super::actuation::InForce;
use super::super::backoff::Backoff;
use super::super::cap::{CapIntent, CapRange, Resolution};
use super::*;
use std::vec::Vec;

fn at(micros: u64) -> Stamp {
    Stamp::new(Micros::new(micros))
}

fn w(watts: i32) -> Watts {
    Watts::from_int(watts)
}

fn law() -> LimiterLaw {
    let backoff = Backoff::new(Micros::new(10), Micros::new(40)).unwrap();
    LimiterLaw {
        actuation: ActuationLaw::new(Micros::new(5), backoff).unwrap(),
        drift: DriftLaw::new(backoff, 3, Micros::new(1_000)).unwrap(),
    }
}

fn floor() -> Floor {
    Floor::new(w(60)).unwrap()
}

fn target(watts: i32) -> ResolvedCap {
    let Resolution::Watts(target) = CapIntent::of_watts(w(watts)).resolve(CapRange::UNKNOWN, floor()) else {
        panic!("{watts} W resolve to watts")
    };
    target
}

/// The last order of a limiter is read back as `found`.
fn set(limiter: &Limiter, found: i32) -> LimitFacts {
    LimitFacts {
        outcome: LimitOutcome::Set { ticket: limiter.ticket(), read_back: Ok(w(found)) },
        seen: LimitReading::Unknown,
    }
}

fn seen(seen: LimitReading) -> LimitFacts {
    LimitFacts { outcome: LimitOutcome::Unknown, seen }
}

fn found(watts: i32, read: u64) -> LimitReading {
    LimitReading::At { limit: w(watts), read: at(read) }
}

/// A limiter that holds 200 W, ordered at 1.
fn held() -> Limiter {
    let mut limiter = Limiter::UNTOUCHED;
    let step = limiter.step(&law(), at(1), LimitFacts::UNKNOWN, Want::Set(target(200)), floor());
    assert_eq!(step, LimitStep { order: LimitOrder::Set(w(200)), moved: false });
    let step = limiter.step(&law(), at(2), set(&limiter, 200), Want::Set(target(200)), floor());
    assert_eq!(step, LimitStep { order: LimitOrder::Leave, moved: false });
    limiter
}

#[test]
fn a_limit_is_held_when_it_was_read_back_and_not_when_it_was_ordered() {
    // Fix list agent S17: a firmware lock that ignores the write, and a write that wraps to zero.
    for (found, expected) in [
        (200, CapResult::Applied { effective: w(200) }),
        (150, CapResult::Clamped { requested: w(200), effective: w(150) }),
        (250, CapResult::Failed(ErrorKind::Locked)),
        (0, CapResult::Failed(ErrorKind::BadData)),
    ] {
        let mut limiter = Limiter::UNTOUCHED;
        limiter.step(&law(), at(1), LimitFacts::UNKNOWN, Want::Set(target(200)), floor());
        assert_eq!(limiter.result(target(200)), None, "nobody has said yet");
        limiter.step(&law(), at(2), set(&limiter, found), Want::Set(target(200)), floor());
        assert_eq!(limiter.result(target(200)), Some(expected), "read back {found}");
    }
}

#[test]
fn below_the_nodes_own_floor_a_limit_is_refused_when_read_back_as_when_seen_later() {
    for (found, accepted) in [(61, true), (60, true), (59, false), (1, false)] {
        let mut applied = Limiter::UNTOUCHED;
        applied.step(&law(), at(1), LimitFacts::UNKNOWN, Want::Set(target(200)), floor());
        applied.step(&law(), at(2), set(&applied, found), Want::Set(target(200)), floor());
        let mut watched = held();
        watched.step(&law(), at(20), seen(self::found(found, 20)), Want::Set(target(200)), floor());
        let stands = |limiter: Limiter| matches!(limiter.actuation(), Actuation::Held { .. });
        assert_eq!((stands(applied), stands(watched)), (accepted, accepted), "{found} W");
        if !accepted {
            assert_eq!(applied.result(target(200)), Some(CapResult::Failed(ErrorKind::Busy)));
            let again = applied.step(&law(), at(12), LimitFacts::UNKNOWN, Want::Set(target(200)), floor());
            assert_eq!(again.order, LimitOrder::Set(w(200)), "and is tried again");
        }
    }
}

#[test]
fn an_order_without_an_answer_may_be_in_force_until_a_later_one_is_read_back() {
    let mut limiter = held();
    let orders = |limiter: &Limiter| (limiter.ordered(), limiter.highest_order());
    limiter.step(&law(), at(3), LimitFacts::UNKNOWN, Want::Set(target(300)), floor());
    assert_eq!(orders(&limiter), (Some(w(300)), Some(w(300))));
    limiter.step(&law(), at(9), LimitFacts::UNKNOWN, Want::Set(target(100)), floor());
    assert_eq!(orders(&limiter), (Some(w(100)), Some(w(300))));
    let refused = LimitOutcome::Set { ticket: limiter.ticket(), read_back: Err(ErrorKind::Io) };
    let refused = LimitFacts { outcome: refused, seen: LimitReading::Unknown };
    limiter.step(&law(), at(10), refused, Want::Set(target(100)), floor());
    assert_eq!(orders(&limiter), (Some(w(100)), Some(w(300))), "nobody knows what is in force");
    limiter.step(&law(), at(90), LimitFacts::UNKNOWN, Want::Set(target(100)), floor());
    let answer = set(&limiter, 100);
    let after = |outcome| limiter.highest_order_after(outcome, floor());
    assert_eq!(after(LimitOutcome::Unknown), Some(w(300)));
    assert_eq!(after(refused.outcome), Some(w(300)), "it is of an earlier order");
    assert_eq!(after(set(&limiter, 101).outcome), Some(w(300)), "it was not obeyed");
    assert_eq!(after(answer.outcome), Some(w(100)), "known before the step");
    limiter.step(&law(), at(91), answer, Want::Set(target(100)), floor());
    assert_eq!(orders(&limiter), (Some(w(100)), Some(w(100))));
}

#[test]
fn a_late_answer_to_an_earlier_order_confirms_no_later_one_of_the_same_watts() {
    let mut limiter = Limiter::UNTOUCHED;
    let mut order = |now, facts, watts| {
        let step = limiter.step(&law(), at(now), facts, Want::Set(target(watts)), floor());
        (step.order, limiter)
    };
    let (_, first) = order(1, LimitFacts::UNKNOWN, 300);
    // Each order is abandoned after 5 without an answer, and the next one is given at once.
    assert_eq!(order(7, LimitFacts::UNKNOWN, 500).0, LimitOrder::Set(w(500)));
    assert_eq!(order(13, LimitFacts::UNKNOWN, 300).0, LimitOrder::Set(w(300)));
    let (_, after) = order(14, set(&first, 300), 300);
    assert!(matches!(after.actuation(), Actuation::Pending { .. }), "confirmed by the first: {after:?}");
    let refused = LimitOutcome::Set { ticket: first.ticket(), read_back: Err(ErrorKind::Io) };
    let (_, after) = order(15, LimitFacts { outcome: refused, seen: LimitReading::Unknown }, 300);
    assert!(matches!(after.actuation(), Actuation::Pending { .. }), "refused by the first: {after:?}");
    let (_, after) = order(16, set(&after, 300), 300);
    assert_eq!(after.result(target(300)), Some(CapResult::Applied { effective: w(300) }));
}

#[test]
fn a_late_answer_to_an_earlier_release_brings_back_no_original() {
    let mut limiter = held();
    let mut order = |now, facts, want| {
        limiter.step(&law(), at(now), facts, want, floor());
        limiter
    };
    let first = order(20, LimitFacts::UNKNOWN, Want::Release);
    order(21, LimitFacts::UNKNOWN, Want::Set(target(200)));
    let again = order(30, LimitFacts::UNKNOWN, Want::Release);
    assert!(matches!(again.actuation(), Actuation::Releasing { .. }), "{again:?}");
    let back = |limiter: Limiter| {
        let outcome = LimitOutcome::Released { ticket: limiter.ticket(), outcome: Ok(()) };
        LimitFacts { outcome, seen: LimitReading::Unknown }
    };
    assert_eq!(order(31, back(first), Want::Release).actuation(), again.actuation());
    assert_eq!(order(32, back(again), Want::Release).actuation(), Actuation::Free);
}

#[test]
fn a_limit_that_somebody_raises_is_put_back_and_not_forever() {
    let mut limiter = held();
    let mut orders = Vec::new();
    let mut now = 10;
    for _ in 0..400 {
        // Another writer raises the limit at once after every order.
        now += 5;
        let outcome = if matches!(limiter.actuation(), Actuation::Pending { .. }) {
            set(&limiter, 200)
        } else {
            seen(found(250, now))
        };
        let step = limiter.step(&law(), at(now), outcome, Want::Set(target(200)), floor());
        if step.order == LimitOrder::Set(w(200)) {
            orders.push(now);
        }
    }
    // Seen at 15 and restored at once; seen again 10 later, with waits of 10 and 20; then once a truce of 1000.
    assert_eq!(orders, [15, 35, 65, 1_075]);
    assert!(matches!(limiter.drift(), Drift::Yielded { .. }));
    assert_eq!(limiter.result(target(200)), Some(CapResult::Failed(ErrorKind::Busy)), "and it is said");
}

#[test]
fn a_new_cap_is_ordered_at_once_during_a_truce_and_the_truce_goes_on() {
    let mut limiter = held();
    for now in [20, 21, 40, 80, 81, 120, 160, 161, 190] {
        let is_pending = matches!(limiter.actuation(), Actuation::Pending { .. });
        let facts = if is_pending { set(&limiter, 200) } else { seen(found(250, now)) };
        limiter.step(&law(), at(now), facts, Want::Set(target(200)), floor());
    }
    assert!(matches!(limiter.drift(), Drift::Yielded { .. }), "{limiter:?}");
    let lower = Want::Set(target(150));
    let step = limiter.step(&law(), at(200), LimitFacts::UNKNOWN, lower, floor());
    assert_eq!(step.order, LimitOrder::Set(w(150)));
    limiter.step(&law(), at(201), set(&limiter, 150), lower, floor());
    let step = limiter.step(&law(), at(210), seen(found(250, 210)), lower, floor());
    assert_eq!(step, LimitStep { order: LimitOrder::Leave, moved: true });
    let order_at =
        |mut limiter: Limiter, now| limiter.step(&law(), at(now), LimitFacts::UNKNOWN, lower, floor()).order;
    assert_eq!(order_at(limiter, 1_209), LimitOrder::Leave);
    assert_eq!(order_at(limiter, 1_210), LimitOrder::Set(w(150)));
}

#[test]
fn a_limit_that_was_switched_off_or_pushed_below_the_floor_is_put_back() {
    for gone in [LimitReading::Off { read: at(20) }, found(0, 20), found(59, 20), found(201, 20)] {
        let mut limiter = held();
        let step = limiter.step(&law(), at(20), seen(gone), Want::Set(target(200)), floor());
        assert_eq!(step, LimitStep { order: LimitOrder::Set(w(200)), moved: true }, "{gone:?}");
        assert!(!limiter.actuation().lacks(), "the first time is no reason to throttle");
        assert_eq!(limiter.actuation().standing(), InForce::Nothing);
    }
}

#[test]
fn a_limit_that_somebody_lowers_is_obeyed_and_said() {
    let mut limiter = held();
    let mut step = |limit| {
        let step = limiter.step(&law(), at(20), seen(limit), Want::Set(target(200)), floor());
        (step.order, step.moved, limiter.result(target(200)))
    };
    let clamped = |effective| Some(CapResult::Clamped { requested: w(200), effective: w(effective) });
    assert_eq!(step(found(120, 20)), (LimitOrder::Leave, true, clamped(120)));
    assert_eq!(step(found(120, 20)), (LimitOrder::Leave, false, clamped(120)), "counted once");
    assert_eq!(step(LimitReading::Unknown), (LimitOrder::Leave, false, clamped(120)));
    let applied = Some(CapResult::Applied { effective: w(200) });
    assert_eq!(step(found(200, 20)), (LimitOrder::Leave, true, applied), "given back");
}

#[test]
fn what_was_read_before_the_limit_was_confirmed_is_no_drift_however_late_it_arrives() {
    // Confirmed at 2; each of these readings would be contested if it were read later.
    for (limit, off) in [(300, false), (59, false), (0, true)] {
        for (read, now, moved) in [(1, 2, false), (1, 3, false), (2, 3, false), (1, 900, false), (3, 3, true)]
        {
            let mut limiter = Limiter::UNTOUCHED;
            limiter.step(&law(), at(1), LimitFacts::UNKNOWN, Want::Set(target(200)), floor());
            let sample = if off { LimitReading::Off { read: at(read) } } else { found(limit, read) };
            let beside = if now == 2 { sample } else { LimitReading::Unknown };
            let facts = LimitFacts { seen: beside, ..set(&limiter, 200) };
            let mut step = limiter.step(&law(), at(2), facts, Want::Set(target(200)), floor());
            if now > 2 {
                step = limiter.step(&law(), at(now), seen(sample), Want::Set(target(200)), floor());
            }
            assert_eq!(step.moved, moved, "{sample:?} at {now}");
            assert_eq!(limiter.drift() == Drift::Calm, !moved);
        }
    }
}

#[test]
fn a_clock_that_went_back_hides_no_drift() {
    let mut limiter = Limiter::UNTOUCHED;
    limiter.step(&law(), at(1_000), LimitFacts::UNKNOWN, Want::Set(target(200)), floor());
    limiter.step(&law(), at(1_001), set(&limiter, 200), Want::Set(target(200)), floor());
    let step = limiter.step(&law(), at(5), seen(found(300, 5)), Want::Set(target(200)), floor());
    assert_eq!(step, LimitStep { order: LimitOrder::Set(w(200)), moved: true });
}

#[test]
fn the_original_comes_back_when_nothing_is_wanted() {
    // Fix list agent S6.
    for mut limiter in [held(), Limiter::ADOPTED] {
        let step = limiter.step(&law(), at(20), LimitFacts::UNKNOWN, Want::Release, floor());
        assert_eq!(step.order, LimitOrder::Release);
        let back = LimitFacts {
            outcome: LimitOutcome::Released { ticket: limiter.ticket(), outcome: Ok(()) },
            seen: LimitReading::Unknown,
        };
        let step = limiter.step(&law(), at(21), back, Want::Release, floor());
        assert_eq!((step.order, limiter.actuation()), (LimitOrder::Leave, Actuation::Free));
    }
    let mut untouched = Limiter::UNTOUCHED;
    let step = untouched.step(&law(), at(20), LimitFacts::UNKNOWN, Want::Release, floor());
    assert_eq!(step.order, LimitOrder::Leave, "what was never touched is not released");
}
