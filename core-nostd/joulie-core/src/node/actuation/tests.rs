use super::*;
use std::vec::Vec;

type L = Actuation<u8>;

const PATIENCE: u64 = 50;
const LONGEST: Micros = Micros::new(400);

fn at(micros: u64) -> Stamp {
    Stamp::new(Micros::new(micros))
}

fn law() -> ActuationLaw {
    ActuationLaw::new(Micros::new(PATIENCE), Backoff::new(Micros::new(100), LONGEST).unwrap()).unwrap()
}

const T0: u64 = 1_000;

fn pending(failures: u32, standing: InForce<u8>) -> L {
    Actuation::Pending { target: 7, since: at(T0), failures, standing }
}

fn refused(kind: ErrorKind, retry_at: u64, failures: u32, standing: InForce<u8>) -> L {
    Actuation::Refused { target: 7, kind, retry_at: at(retry_at), failures, standing }
}

fn stuck(kind: ErrorKind, retry_at: u64, failures: u32) -> L {
    Actuation::Stuck { kind, retry_at: at(retry_at), failures }
}

/// One of each state; the target is 7, and 6 is in force.
fn states() -> [L; 7] {
    [
        Actuation::Free,
        Actuation::Adopted,
        pending(1, InForce::At(3)),
        Actuation::Held { target: 7, as_is: 6, since: at(T0) },
        refused(ErrorKind::Locked, 1_200, 2, InForce::At(3)),
        Actuation::Releasing { since: at(T0), failures: 1 },
        stuck(ErrorKind::Io, 1_200, 2),
    ]
}

#[test]
fn every_state_meets_every_news() {
    use ErrorKind::{Busy, Gone, Io, Locked, Timeout};
    let now = 1_010;
    let lost = ActuationOutcome::Lost { kind: Busy, again_at: at(1_300), failures: 4 };
    // The outcome, and the resulting states; `None` means that the state does not change.
    let table: [(ActuationOutcome<u8>, [Option<L>; 7]); 8] = [
        (ActuationOutcome::None, [None; 7]),
        (
            ActuationOutcome::Set(Ok(5)),
            [
                None,
                None,
                Some(Actuation::Held { target: 7, as_is: 5, since: at(now) }),
                None,
                Some(Actuation::Held { target: 7, as_is: 5, since: at(now) }),
                None,
                None,
            ],
        ),
        (
            ActuationOutcome::Set(Err(Io)),
            [
                None,
                None,
                Some(refused(Io, now + 200, 2, InForce::At(3))),
                Some(refused(Io, now + 100, 1, InForce::At(6))),
                Some(refused(Io, 1_200, 2, InForce::At(3))),
                None,
                None,
            ],
        ),
        (
            ActuationOutcome::Released(Ok(())),
            [None, None, None, None, None, Some(Actuation::Free), Some(Actuation::Free)],
        ),
        (
            ActuationOutcome::Released(Err(Io)),
            [None, None, None, None, None, Some(stuck(Io, now + 200, 2)), None],
        ),
        (
            ActuationOutcome::Changed(4),
            [
                None,
                None,
                None,
                Some(Actuation::Held { target: 7, as_is: 4, since: at(T0) }),
                None,
                None,
                None,
            ],
        ),
        (
            lost,
            [
                None,
                None,
                Some(pending(1, InForce::Nothing)),
                Some(refused(Busy, 1_300, 4, InForce::Nothing)),
                Some(refused(Locked, 1_200, 2, InForce::Nothing)),
                None,
                None,
            ],
        ),
        // A device that is back gets its order at once, whatever its wait.
        (
            ActuationOutcome::Back,
            [
                None,
                None,
                Some(refused(Gone, now, 1, InForce::At(3))),
                None,
                Some(refused(Locked, now, 2, InForce::At(3))),
                Some(stuck(Gone, now, 1)),
                Some(stuck(Io, now, 2)),
            ],
        ),
    ];
    for (news, row) in table {
        for (state, expected) in states().into_iter().zip(row) {
            let next = law().learn(state, at(now), news);
            assert_eq!(next, expected.unwrap_or(state), "{state:?} meets {news:?}");
        }
    }
    // No answer for longer than the patience; at exactly the patience it is still awaited.
    let late = |state, now| law().learn(state, at(now), ActuationOutcome::None);
    for (i, state) in states().into_iter().enumerate() {
        let expected = match i {
            2 => refused(Timeout, 1_251, 2, InForce::At(3)),
            5 => stuck(Timeout, 1_251, 2),
            _ => state,
        };
        assert_eq!(late(state, T0 + PATIENCE), state, "{state:?}");
        assert_eq!(late(state, T0 + PATIENCE + 1), expected, "{state:?}");
    }
}

#[test]
fn every_state_meets_every_want() {
    let now = 1_010;
    let order = |target, failures, standing| {
        (Actuation::Pending { target, since: at(now), failures, standing }, ActuationOrder::Set(target))
    };
    let release = |failures| (Actuation::Releasing { since: at(now), failures }, ActuationOrder::Release);
    let stays = |state| (state, ActuationOrder::Leave);
    for (i, state) in states().into_iter().enumerate() {
        assert_eq!(state.pursue(at(now), Want::Keep, LONGEST), stays(state), "{state:?}");
        for target in [7, 8] {
            let expected = match i {
                0 => order(target, 0, InForce::Nothing),
                1 | 5 | 6 => order(target, 0, InForce::Unknown),
                2 => stays(state),
                3 if target == 7 => stays(state),
                3 => order(target, 0, InForce::At(6)),
                _ if target == 7 => stays(state),
                _ => order(target, 2, InForce::At(3)),
            };
            assert_eq!(state.pursue(at(now), Want::Set(target), LONGEST), expected, "{state:?} to {target}");
        }
        let expected = match i {
            1 | 3 | 4 => release(0),
            _ => stays(state),
        };
        assert_eq!(state.pursue(at(now), Want::Release, LONGEST), expected, "{state:?} to release");
    }
}

#[test]
fn what_was_refused_is_tried_again_when_due_and_not_before() {
    let [.., refused, _, stuck] = states();
    let again =
        |failures| Actuation::Pending { target: 7, since: at(1_200), failures, standing: InForce::At(3) };
    assert_eq!(refused.pursue(at(1_199), Want::Set(7), LONGEST).1, ActuationOrder::Leave);
    assert_eq!(refused.pursue(at(1_200), Want::Set(7), LONGEST), (again(2), ActuationOrder::Set(7)));
    assert_eq!(stuck.pursue(at(1_199), Want::Release, LONGEST).1, ActuationOrder::Leave);
    let releasing = Actuation::Releasing { since: at(1_200), failures: 2 };
    assert_eq!(stuck.pursue(at(1_200), Want::Release, LONGEST), (releasing, ActuationOrder::Release));
    // The clock went back by more than any wait.
    assert_eq!(refused.pursue(at(700), Want::Set(7), LONGEST).1, ActuationOrder::Set(7));
    assert_eq!(stuck.pursue(at(700), Want::Release, LONGEST).1, ActuationOrder::Release);
}

#[test]
fn another_target_does_not_wait_for_the_old_ones_retry_and_its_own_wait_is_no_shorter() {
    let old = refused(ErrorKind::Locked, 1_200, 2, InForce::Nothing);
    let (actuation, order) = old.pursue(at(1_010), Want::Set(5), LONGEST);
    assert_eq!(order, ActuationOrder::Set(5));
    let refused = law().learn(actuation, at(1_011), ActuationOutcome::Set(Err(ErrorKind::Locked)));
    let Actuation::Refused { target, retry_at, failures, .. } = refused else { panic!("{refused:?}") };
    assert_eq!((target, retry_at, failures), (5, at(1_011 + 400), 3));
    assert_eq!(refused.pursue(at(1_012), Want::Set(5), LONGEST).1, ActuationOrder::Leave);
}

#[test]
fn a_clock_that_goes_backwards_waits_anew_and_not_forever() {
    for state in [states()[2], states()[5]] {
        let rebased = law().learn(state, at(10), ActuationOutcome::None);
        assert_ne!(rebased, state);
        assert_eq!(law().learn(rebased, at(10 + PATIENCE), ActuationOutcome::None), rebased);
        assert_ne!(law().learn(rebased, at(11 + PATIENCE), ActuationOutcome::None), rebased);
    }
}

#[test]
fn waits_grow_while_it_is_refused_and_are_forgotten_once_it_is_held() {
    let mut actuation: L = Actuation::Free;
    let mut now = 0;
    let mut orders = Vec::new();
    for _ in 0..1_500 {
        now += 1;
        let outcome = ActuationOutcome::Set(Err(ErrorKind::Locked));
        actuation = law().learn(actuation, at(now), outcome);
        let (next, order) = actuation.pursue(at(now), Want::Set(7), LONGEST);
        actuation = next;
        if order != ActuationOrder::Leave {
            orders.push(now);
        }
    }
    // Each answer comes one step after its order; waits of 100, 200, 400, 400 from there.
    assert_eq!(orders, [1, 102, 303, 704, 1_105]);
    actuation = law().learn(actuation, at(now), ActuationOutcome::Set(Ok(7)));
    actuation = law().learn(actuation, at(now), ActuationOutcome::Set(Err(ErrorKind::Locked)));
    assert_eq!(actuation.pursue(at(now + 100), Want::Set(7), LONGEST).1, ActuationOrder::Set(7));
}

#[test]
fn what_lacks_and_what_stands_is_told_of_every_state() {
    let told =
        states().map(|state| (state.lacks(), state.standing(), state.held_since(7), state.held_since(6)));
    assert_eq!(
        told,
        [
            (false, InForce::Nothing, None, None),
            (false, InForce::Unknown, None, None),
            (true, InForce::At(3), None, None),
            (false, InForce::At(6), Some(at(T0)), None),
            (true, InForce::At(3), None, None),
            (false, InForce::Unknown, None, None),
            (false, InForce::Unknown, None, None),
        ]
    );
    assert!(!pending(0, InForce::Nothing).lacks(), "a first try lacks nothing yet");
}

#[test]
fn a_law_without_patience_is_refused() {
    let backoff = Backoff::new(Micros::new(1), Micros::new(1)).unwrap();
    assert_eq!(ActuationLaw::new(Micros::ZERO, backoff), Err(ActuationError));
}
