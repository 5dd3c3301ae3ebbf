use super::*;
use crate::clock::ManualClock;
use futures::FutureExt;

const SECOND: Duration = Duration::from_secs(1);

fn at(seconds: u64) -> Mono {
    Mono::at(SECOND * u32::try_from(seconds).unwrap())
}

fn wall(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + seconds).unwrap()
}

#[test]
fn a_process_is_named_after_its_pod_or_machine_and_is_no_other_of_that_name() {
    let named = |pod: Option<&str>| identity("joulie-operator", pod, 0xdead_beef_0000_0000);
    assert!(named(Some("operator-7d9f-x2x")).starts_with("operator-7d9f-x2x_"));
    assert_eq!(named(Some("a")), "a_deadbeef");
    // 100 bytes of the name, `_` and eight digits.
    let long = "a".repeat(253);
    assert_eq!(named(Some(&long)).len(), 109);
    let (name, chance) = named(None).rsplit_once('_').map(|(a, b)| (a.to_owned(), b.len())).unwrap();
    assert!(!name.is_empty() && chance == 8, "{name} {chance}");
}

fn candidate(name: &str) -> Candidate {
    Candidate::new(name, 15 * SECOND, 10 * SECOND, 2 * SECOND).unwrap()
}

/// A Lease of `holder`, renewed at `renewed` by the holder's clock.
fn lease(holder: &str, renewed: i64, version: &str) -> ObservedLease {
    let record = Record {
        holder: Some(holder.to_owned()),
        lease: Some(15 * SECOND),
        acquired: Some(wall(0)),
        renewed: Some(wall(renewed)),
        transitions: 3,
    };
    ObservedLease { record, version: version.to_owned() }
}

fn standby() -> LeadershipState {
    LeadershipState::Standby { seen: None }
}

#[test]
fn a_lease_that_does_not_exist_is_created() {
    let mut mode = standby();
    let (attempt, change) = candidate("a").attempt(&mut mode, None, at(0), wall(0));
    let Attempt::Create(record) = attempt else { panic!("{attempt:?}") };
    assert_eq!(
        (record.holder.as_deref(), record.transitions, change),
        (Some("a"), 0, LeadershipChange::Same)
    );
}

#[test]
fn a_live_leader_is_respected_whatever_its_clock_says() {
    for its_clock in [-1_000_000, 0, 1_000_000] {
        let (mut mode, us) = (standby(), candidate("a"));
        for second in 0..100 {
            let found = lease("b", its_clock + i64::try_from(second).unwrap(), "v");
            let (attempt, _) = us.attempt(&mut mode, Some(found), at(second), wall(0));
            assert_eq!(attempt, Attempt::Respect { holder: "b".to_owned(), at_least: 15 * SECOND });
        }
    }
}

#[test]
fn a_dead_leader_is_followed_after_its_lease_and_not_a_moment_before() {
    let (mut mode, us) = (standby(), candidate("a"));
    // Others may change the version: only what the holder wrote counts.
    for second in 5..20 {
        let (attempt, _) =
            us.attempt(&mut mode, Some(lease("b", 0, &second.to_string())), at(second), wall(0));
        let at_least = 15 * SECOND - at(second).since(at(5));
        assert_eq!(attempt, Attempt::Respect { holder: "b".to_owned(), at_least });
    }
    let (attempt, _) = us.attempt(&mut mode, Some(lease("b", 0, "v9")), at(20), wall(99));
    let Attempt::Replace(record, version) = attempt else { panic!("{attempt:?}") };
    assert_eq!((record.holder.as_deref(), record.transitions, version.as_str()), (Some("a"), 4, "v9"));
    assert_eq!((record.acquired, record.renewed), (Some(wall(99)), Some(wall(99))));
}

#[test]
fn a_released_lease_is_taken_at_once() {
    for holder in [None, Some(String::new())] {
        let mut found = lease("b", 0, "v");
        found.record.holder = holder;
        let (attempt, _) = candidate("a").attempt(&mut standby(), Some(found), at(0), wall(0));
        assert!(matches!(attempt, Attempt::Replace(..)));
    }
}

#[test]
fn a_lease_without_its_duration_is_respected_for_ours() {
    let mut found = lease("b", 0, "v");
    found.record.lease = None;
    let (attempt, _) = candidate("a").attempt(&mut standby(), Some(found), at(0), wall(0));
    assert_eq!(attempt, Attempt::Respect { holder: "b".to_owned(), at_least: 15 * SECOND });
}

#[test]
fn a_leader_stops_before_anybody_else_may_begin() {
    let (mut mode, us) = (standby(), candidate("a"));
    assert_eq!(us.succeeded(&mut mode, at(100), lease("a", 0, "v1")), LeadershipChange::Won);
    assert_eq!(us.succeeded(&mut mode, at(102), lease("a", 2, "v2")), LeadershipChange::Same);
    assert_eq!(
        us.leads_until(&mode),
        Some(at(112)),
        "from when it was sent and not from when it was answered"
    );
    assert_eq!(us.look(&mut mode, Mono::from_millis(111_999)), LeadershipChange::Same);
    assert_eq!(
        us.look(&mut mode, at(112)),
        LeadershipChange::Lost("it could not be renewed for 10s".to_owned())
    );
    // A standby that saw the renewal at the moment when it was sent waits until 117.
    let mut other = standby();
    candidate("b").attempt(&mut other, Some(lease("a", 2, "v2")), at(102), wall(0));
    let (attempt, _) = candidate("b").attempt(&mut other, Some(lease("a", 2, "v2")), at(116), wall(0));
    assert!(matches!(attempt, Attempt::Respect { .. }));
}

#[test]
fn a_leader_that_finds_somebody_else_on_the_lease_stops_at_once() {
    let (mut mode, us) = (standby(), candidate("a"));
    us.succeeded(&mut mode, at(0), lease("a", 0, "v1"));
    let (attempt, change) = us.attempt(&mut mode, Some(lease("b", 0, "v2")), at(1), wall(0));
    assert_eq!(change, LeadershipChange::Lost("b holds the lease".to_owned()));
    assert_eq!(attempt, Attempt::Respect { holder: "b".to_owned(), at_least: 15 * SECOND });
    us.succeeded(&mut mode, at(0), lease("a", 0, "v1"));
    let (_, change) = us.attempt(&mut mode, None, at(1), wall(0));
    assert_eq!(change, LeadershipChange::Lost("the lease is gone".to_owned()));
}

#[test]
fn a_write_whose_answer_was_lost_is_found_to_be_ours() {
    let (mut mode, us) = (standby(), candidate("a"));
    us.succeeded(&mut mode, at(0), lease("a", 0, "v1"));
    let (attempt, change) = us.attempt(&mut mode, Some(lease("a", 2, "v2")), at(4), wall(4));
    let Attempt::Replace(record, version) = attempt else { panic!("{attempt:?}") };
    assert_eq!((record.transitions, version.as_str(), change), (3, "v2", LeadershipChange::Same));
    assert_eq!((record.acquired, record.renewed), (Some(wall(0)), Some(wall(4))));
}

#[test]
fn a_release_leaves_a_lease_that_is_nobodys_and_a_standby_releases_nothing() {
    let (mut mode, us) = (standby(), candidate("a"));
    assert_eq!(us.release(&mut mode, wall(0)), None);
    us.succeeded(&mut mode, at(0), lease("a", 0, "v1"));
    let (record, version) = us.release(&mut mode, wall(9)).unwrap();
    assert_eq!((record.holder, record.lease, record.transitions), (None, Some(SECOND), 3));
    assert_eq!((version.as_str(), us.leads_until(&mode)), ("v1", None));
}

#[test]
fn two_candidates_never_lead_at_once_whatever_is_delayed_or_lost() {
    // Every pattern of ten renewals that succeed or fail, for a leader; the other candidate reads each second.
    for pattern in 0..1024_u32 {
        let (a, b) = (candidate("a"), candidate("b"));
        let (mut of_a, mut of_b) = (standby(), standby());
        let mut server = lease("a", 0, "0");
        a.succeeded(&mut of_a, at(0), server.clone());
        for second in 1..60_u64 {
            let due = second % 2 == 0 && second <= 20;
            let comes_through = due && (pattern >> (second / 2 - 1)) & 1 == 1;
            if comes_through
                && let Some((record, version)) = a.renewal(&of_a, wall(i64::try_from(second).unwrap()))
                && version == server.version
            {
                server = ObservedLease { record, version: second.to_string() };
                a.succeeded(&mut of_a, at(second), server.clone());
            }
            a.look(&mut of_a, at(second));
            if let (Attempt::Replace(record, _), _) =
                b.attempt(&mut of_b, Some(server.clone()), at(second), wall(0))
            {
                server = ObservedLease { record, version: format!("b{second}") };
                b.succeeded(&mut of_b, at(second), server.clone());
            }
            let leads = |law: &Candidate, mode| law.leads_until(mode).is_some_and(|until| at(second) < until);
            assert!(!(leads(&a, &of_a) && leads(&b, &of_b)), "pattern {pattern:b} at {second}");
        }
        assert!(b.leads_until(&of_b).is_some(), "the other leads in the end");
    }
}

#[test]
fn leadership_ends_by_the_clock_though_nobody_says_so() {
    let (office, leadership) = Office::open();
    let (us, mut mode) = (candidate("a"), standby());
    assert_eq!(leadership.term(at(0)), None);
    us.succeeded(&mut mode, at(0), lease("a", 0, "v"));
    office.show(&us, &mode, &ManualClock::at(wall(0)));
    assert_eq!((leadership.term(at(9)), leadership.term(at(10))), (Some(Term(3)), None));
}

#[test]
fn a_lease_that_is_deleted_is_respected_for_as_long_as_if_it_were_there() {
    // The holder may act until it reads the Lease again.
    let (mut mode, us) = (standby(), candidate("a"));
    us.attempt(&mut mode, Some(lease("b", 0, "v")), at(100), wall(0));
    for second in 101..115 {
        let (attempt, _) = us.attempt(&mut mode, None, at(second), wall(0));
        let at_least = at(115).since(at(second));
        assert_eq!(attempt, Attempt::Respect { holder: "b".to_owned(), at_least });
    }
    let (attempt, _) = us.attempt(&mut mode, None, at(115), wall(0));
    let Attempt::Create(record) = attempt else { panic!("{attempt:?}") };
    assert_eq!((record.holder.as_deref(), record.transitions), (Some("a"), 4), "terms only ever rise");
}

#[test]
fn a_leader_whose_lease_is_deleted_makes_a_new_one_with_a_higher_term() {
    let (mut mode, us) = (standby(), candidate("a"));
    us.succeeded(&mut mode, at(0), lease("a", 0, "v1"));
    // The first attempt to create it fails.
    for second in [1, 2] {
        let (attempt, _) = us.attempt(&mut mode, None, at(second), wall(0));
        let Attempt::Create(record) = attempt else { panic!("{attempt:?}") };
        assert_eq!(record.transitions, 4);
    }
}

#[test]
fn whoever_found_the_term_to_be_over_is_told_when_a_late_renewal_makes_it_go_on() {
    let clock = ManualClock::at(wall(0));
    let (office, mut leadership) = Office::open();
    let (us, mut mode) = (candidate("a"), standby());
    us.succeeded(&mut mode, at(0), lease("a", 0, "v1"));
    office.show(&us, &mode, &clock);
    assert_eq!(leadership.changed().now_or_never(), Some(true));
    clock.advance(10 * SECOND);
    assert_eq!(leadership.term(clock.mono()), None);
    us.succeeded(&mut mode, at(9), lease("a", 9, "v2"));
    office.show(&us, &mode, &clock);
    assert_eq!(leadership.changed().now_or_never(), Some(true), "else it waits for ever");
    us.succeeded(&mut mode, at(10), lease("a", 10, "v3"));
    office.show(&us, &mode, &clock);
    assert_eq!(leadership.changed().now_or_never(), None, "a renewal in time is no news");
}

#[test]
fn who_leads_has_no_rival() {
    let clock = ManualClock::at(wall(0));
    let (office, leadership) = Office::open();
    let (us, mut mode) = (candidate("a"), standby());
    office.respect(Some("b"));
    us.succeeded(&mut mode, at(0), lease("a", 0, "v1"));
    office.show(&us, &mode, &clock);
    assert_eq!((leadership.term(clock.mono()), leadership.rival()), (Some(Term(3)), None));
}

#[test]
fn times_that_leave_no_room_are_refused() {
    assert_eq!(Candidate::new(" ", 15 * SECOND, 10 * SECOND, SECOND).unwrap_err(), CandidateError::Nameless);
    for (lease, renew, retry) in [(10, 10, 2), (15, 4, 2), (15, 10, 0), (0, 0, 0), (7200, 10, 2)] {
        let refused = Candidate::new("a", SECOND * lease, SECOND * renew, SECOND * retry).unwrap_err();
        assert!(refused.to_string().contains("such as 10s, 7s and 2s"), "{refused}");
    }
}
