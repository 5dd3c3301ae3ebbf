use super::*;
use proptest::prelude::*;
use std::vec::Vec;

const TERM: u64 = 90;
const DELAY: u64 = 20;
const CHOICES: [OnExpiry; 3] =
    [OnExpiry::Hold, OnExpiry::Relax { delay: Micros::new(DELAY) }, OnExpiry::Safe];

fn at(micros: u64) -> Stamp {
    Stamp::new(Micros::new(micros))
}

fn law(on_expiry: OnExpiry) -> LeaseLaw {
    LeaseLaw::new(Micros::new(TERM), on_expiry).unwrap()
}

fn unix(micros: i64) -> UnixTime {
    UnixTime::from_micros(micros)
}

/// Steps through pairs of our time and the Lease's renewal time, and returns the caps and the event of each step.
fn run(law: LeaseLaw, steps: &[(u64, Option<i64>)]) -> Vec<(CapsSource, Option<LeaseEvent>)> {
    let mut lease = LeaseMemory::start(at(0));
    steps
        .iter()
        .map(|&(now, renewal)| {
            let facts = LeaseFacts { now: at(now), renewal: renewal.map(unix) };
            let decision = law.step(&mut lease, &facts);
            (decision.caps, decision.event)
        })
        .collect()
}

#[test]
fn caps_hold_when_nobody_renews_and_it_is_said_once() {
    // Fix list agent S7.
    let steps = [(0, Some(1)), (10, Some(2)), (100, None), (101, None), (10_000, None)];
    assert_eq!(
        run(law(OnExpiry::Hold), &steps),
        [
            (CapsSource::Desired, None),
            (CapsSource::Desired, None),
            (CapsSource::Desired, None),
            (CapsSource::Desired, Some(LeaseEvent::Expired)),
            (CapsSource::Desired, None),
        ]
    );
}

/// The contract's Lease as the API delivers it: the plan's generation and the renewal time. The law gets the value
/// that changes with every renewal.
#[test]
fn a_leader_that_renews_an_unchanged_plan_keeps_the_lease() {
    const GENERATION: i64 = 41;
    let noon = 1_700_000_000_000_000;
    let told = |renewal_of: fn(i64, i64) -> i64| {
        // A renewal every 30 over ten terms; the plan never changes.
        let steps: Vec<_> = (0..30_i64)
            .map(|pass| (30 * pass as u64, Some(renewal_of(GENERATION, noon + 30 * pass))))
            .collect();
        run(law(CHOICES[1]), &steps)
    };
    let by_time = told(|_, renewed| renewed);
    assert!(by_time.iter().all(|step| *step == (CapsSource::Desired, None)), "{by_time:?}");
    let by_generation = told(|generation, _| generation);
    assert_eq!(
        by_generation.last(),
        Some(&(CapsSource::Originals, None)),
        "what does not change renews nothing"
    );
}

#[test]
fn relaxing_waits_for_this_nodes_turn_and_is_said_twice() {
    // Fix list agent S7: an announced relaxation really happens.
    let steps = [(10, Some(1)), (20, Some(2)), (111, None), (130, None), (131, None), (132, None)];
    assert_eq!(
        run(law(CHOICES[1]), &steps),
        [
            (CapsSource::Desired, None),
            (CapsSource::Desired, None),
            (CapsSource::Desired, Some(LeaseEvent::Expired)),
            (CapsSource::Desired, None),
            (CapsSource::Originals, Some(LeaseEvent::Relaxed)),
            (CapsSource::Originals, None),
        ]
    );
}

#[test]
fn the_safe_profile_is_a_choice_too() {
    assert_eq!(
        run(law(OnExpiry::Safe), &[(91, None), (92, None)]),
        [(CapsSource::SafeProfile, Some(LeaseEvent::Expired)), (CapsSource::SafeProfile, None)]
    );
}

#[test]
fn a_restart_runs_the_lease_from_its_start_and_the_first_time_that_is_read_is_no_renewal() {
    // The time in it may be hours old, so reading it at 80 does not extend the lease past 90.
    let steps = [(80, Some(7)), (90, Some(7)), (91, Some(7))];
    assert_eq!(
        run(law(OnExpiry::Hold), &steps),
        [
            (CapsSource::Desired, None),
            (CapsSource::Desired, None),
            (CapsSource::Desired, Some(LeaseEvent::Expired))
        ]
    );
}

#[test]
fn a_renewal_twice_is_one_and_a_late_one_renews() {
    let steps = [(0, Some(1)), (10, Some(2)), (50, Some(2)), (101, Some(2)), (500, Some(3)), (590, None)];
    assert_eq!(
        run(law(OnExpiry::Hold), &steps)[2..],
        [
            (CapsSource::Desired, None),
            (CapsSource::Desired, Some(LeaseEvent::Expired)),
            (CapsSource::Desired, Some(LeaseEvent::RenewedAgain)),
            (CapsSource::Desired, None),
        ]
    );
}

#[test]
fn a_server_that_lags_behind_keeps_no_lease_alive() {
    // Old and new times alternate from 10 on, as two API servers answer in turn: the last renewal is the one at 10.
    let steps: Vec<_> = (0..12).map(|i| (i * 10, Some(if i % 2 == 1 { 9 } else { 5 }))).collect();
    let told = run(law(OnExpiry::Hold), &steps);
    assert!(told[..11].iter().all(|step| *step == (CapsSource::Desired, None)), "{told:?}");
    assert_eq!(told[11], (CapsSource::Desired, Some(LeaseEvent::Expired)));
}

#[test]
fn a_writers_clock_that_was_set_back_renews_once_it_advances() {
    let steps = [
        (0, Some(900)),
        (10, Some(901)),
        (50, Some(3)),
        (60, Some(4)),
        (110, None),
        (140, Some(5)),
        (150, None),
    ];
    let told = run(law(OnExpiry::Hold), &steps);
    assert!(told.iter().all(|step| *step == (CapsSource::Desired, None)), "{told:?}");
}

#[test]
fn a_clock_that_goes_backwards_is_said_and_ends_no_lease() {
    let steps = [(50, Some(1)), (60, Some(2)), (5, None), (95, None), (96, None), (7, None), (27, None)];
    assert_eq!(
        run(law(CHOICES[1]), &steps)[2..],
        [
            (CapsSource::Desired, Some(LeaseEvent::ClockBackwards)),
            (CapsSource::Desired, None),
            (CapsSource::Desired, Some(LeaseEvent::Expired)),
            (CapsSource::Desired, Some(LeaseEvent::ClockBackwards)),
            (CapsSource::Originals, Some(LeaseEvent::Relaxed)),
        ]
    );
}

#[test]
fn a_node_that_waits_to_relax_does_not_when_the_configuration_no_longer_says_so() {
    for (choice, phase, caps) in [
        (OnExpiry::Hold, LeasePhase::Holding, CapsSource::Desired),
        (OnExpiry::Safe, LeasePhase::Safe, CapsSource::SafeProfile),
    ] {
        // Before its delay has passed, after it, and with a clock that went back.
        for now in [100, 100 + DELAY, 5] {
            let mut lease =
                LeaseMemory { phase: LeasePhase::Waiting { since: at(100) }, times: Times::Newest(unix(5)) };
            let decision = law(choice).step(&mut lease, &LeaseFacts { now: at(now), renewal: None });
            assert_eq!((lease.phase(), decision.caps), (phase, caps), "{choice:?} at {now}");
            assert_eq!(decision.event, Some(LeaseEvent::ChosenAnew));
        }
    }
}

#[test]
fn every_phase_meets_every_event() {
    use LeasePhase::{Holding, Relaxed, Renewed, Safe, Started, Waiting};
    let (then, now) = (at(1_000), at(1_050));
    let phases =
        [Started { since: then }, Renewed { at: then }, Holding, Waiting { since: then }, Relaxed, Safe];
    // The cases: nothing within the term and the delay; the delay has passed; the term has passed; the clock went
    // back; a renewal.
    let times = [at(1_010), now, at(1_091), at(999), at(1_010)];
    for choice in CHOICES {
        let ended = match choice {
            OnExpiry::Hold => Holding,
            OnExpiry::Relax { .. } => Waiting { since: times[2] },
            OnExpiry::Safe => Safe,
        };
        for (i, phase) in phases.into_iter().enumerate() {
            for (what, &now) in times.iter().enumerate() {
                let mut lease = LeaseMemory { phase, times: Times::Newest(unix(5)) };
                let renewal = (what == 4).then_some(unix(6));
                let event = law(choice).step(&mut lease, &LeaseFacts { now, renewal }).event;
                let turn = now >= at(1_000 + DELAY);
                let expected = match (what, phase) {
                    (4, Started { .. } | Renewed { .. }) => (Renewed { at: now }, None),
                    (4, _) => (Renewed { at: now }, Some(LeaseEvent::RenewedAgain)),
                    (_, Holding | Relaxed | Safe) => (phase, None),
                    (_, Waiting { .. }) if choice == OnExpiry::Hold => {
                        (Holding, Some(LeaseEvent::ChosenAnew))
                    }
                    (_, Waiting { .. }) if choice == OnExpiry::Safe => (Safe, Some(LeaseEvent::ChosenAnew)),
                    (3, Started { .. }) => (Started { since: now }, Some(LeaseEvent::ClockBackwards)),
                    (3, Renewed { .. }) => (Renewed { at: now }, Some(LeaseEvent::ClockBackwards)),
                    (3, Waiting { .. }) => (Waiting { since: now }, Some(LeaseEvent::ClockBackwards)),
                    (2, Started { .. } | Renewed { .. }) => (ended, Some(LeaseEvent::Expired)),
                    (_, Started { .. } | Renewed { .. }) => (phase, None),
                    (_, Waiting { .. }) if turn => (Relaxed, Some(LeaseEvent::Relaxed)),
                    (_, Waiting { .. }) => (phase, None),
                };
                assert_eq!(
                    (lease.phase(), event),
                    expected,
                    "{choice:?}: {:?} at {now:?} ({what})",
                    phases[i]
                );
            }
        }
    }
}

#[test]
fn a_lease_that_would_end_at_once_is_refused() {
    assert_eq!(LeaseLaw::new(Micros::ZERO, OnExpiry::Hold), Err(LeaseError::Term));
    assert_eq!(LeaseJitter::new(Ratio::from_bits(-1)), Err(LeaseError::Jitter));
    assert_eq!(LeaseJitter::new(Ratio::from_bits((1 << 32) + 1)), Err(LeaseError::Jitter));
}

#[test]
fn the_lease_says_what_is_desired() {
    let cap = |watts| DesiredCap::Cap(CapIntent::of_watts(power_units::Watts::from_int(watts)));
    let safe = CapIntent::of_watts(power_units::Watts::from_int(80));
    for desired in [DesiredCap::Unknown, DesiredCap::Gone, cap(120)] {
        assert_eq!(CapsSource::Desired.desired(desired, safe), desired);
        assert_eq!(CapsSource::Originals.desired(desired, safe), DesiredCap::Gone);
    }
    for desired in [DesiredCap::Unknown, cap(120)] {
        assert_eq!(CapsSource::SafeProfile.desired(desired, safe), cap(80));
    }
}

#[test]
fn the_safe_profile_caps_no_node_that_is_known_to_have_no_cap() {
    let safe = CapIntent::of_watts(power_units::Watts::from_int(80));
    for gone in [DesiredCap::Gone, DesiredCap::Cap(CapIntent::NONE)] {
        assert_eq!(CapsSource::SafeProfile.desired(gone, safe), gone);
    }
}

#[test]
fn jitter_spreads_over_the_whole_span() {
    let span = Micros::new(600_000_000);
    assert_eq!(LeaseJitter::of_identity(0).of(span), Micros::ZERO);
    assert_eq!(LeaseJitter::of_identity(1 << 63).of(span), Micros::new(300_000_000));
    assert_eq!(LeaseJitter::new(Ratio::ONE).unwrap().of(Micros::MAX), Micros::MAX);
    let most = LeaseJitter::of_identity(u64::MAX).of(span);
    assert!(most < span && most > Micros::new(599_999_000), "{most:?}");
}

proptest! {
    #[test]
    fn no_lease_ends_or_begins_again_without_an_event(
        choice in 0_usize..3,
        steps in proptest::collection::vec((any::<u64>(), proptest::option::of(-3_i64..3)), 1..40),
    ) {
        let law = law(CHOICES[choice]);
        let mut lease = LeaseMemory::start(at(0));
        let ended = |lease: &LeaseMemory| !matches!(lease.phase(), LeasePhase::Started { .. } | LeasePhase::Renewed { .. });
        for (now, renewal) in steps {
            let before = lease;
            let facts = LeaseFacts { now: at(now % 1_000), renewal: renewal.map(unix) };
            let decision = law.step(&mut lease, &facts);
            prop_assert!(decision.event.is_some() || ended(&before) == ended(&lease));
            prop_assert!(decision.event.is_some() || before.phase().caps() == decision.caps);
        }
    }

    #[test]
    fn renewals_in_time_never_end_a_lease(gaps in proptest::collection::vec(1..=TERM, 1..50)) {
        let mut now = 0;
        let steps: Vec<_> = (0..).zip(gaps).map(|(renewal, gap)| { now += gap; (now, Some(renewal)) }).collect();
        // The first time is a baseline, so the second must arrive within the term of the start.
        prop_assume!(steps.get(1).is_none_or(|second| second.0 <= TERM));
        for step in run(law(CHOICES[2]), &steps) {
            prop_assert_eq!(step, (CapsSource::Desired, None));
        }
    }
}
