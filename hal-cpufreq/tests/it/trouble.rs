//! Faults of policies: other writers, thermal limits, drivers, hot-plug, and failing files.

use crate::support::{Hal, TestMachine, apply, find, in_force, khz, limit, open, release, sample};
use hal_cpufreq::{Driver, LimitStatus};
use power_hal::contract::RefusableOriginals;
use power_hal::{
    ApplyOutcome, Control, ErrorKind, Originals, OriginalsInMemory, PowerHal, Reading, Released,
};
use rig::faults::{Direction, Effect, Fault};
use rig::machine::VirtualAttribute;
use std::time::Duration;

fn fails(room: &TestMachine, on: VirtualAttribute, direction: Direction, errno: i32, times: u32) {
    let fault = Fault { on, direction, effect: Effect::Fails(errno), times };
    room.machine.lock().faults().add(fault);
}

fn written(room: &TestMachine, at: usize) -> u32 {
    room.machine.lock().policies()[at].user_max
}

fn holds_original(hal: &mut Hal, cpu: u16) -> bool {
    hal.originals().kept(&power_hal::Key::policy(cpu), Control::Frequency).is_some()
}

#[test]
fn a_read_back_below_the_wish_is_clamped_and_no_surprise() {
    let Some(room) = TestMachine::table() else { return };
    room.policy(0, |policy| policy.others_max = 1_700_000);
    let mut hal = open(&room.folder.0);
    let applied = apply(&mut hal, 0, 2_400_000).unwrap();
    let (requested, effective) = (limit(2_400_000), limit(1_600_000));
    assert_eq!(applied.outcome(), ApplyOutcome::Clamped { requested, effective });
    assert!(!applied.permits_more());
    assert_eq!(written(&room, 0), 2_400_000, "our request stands behind the stricter one");
    // When that request is removed, ours comes into force without a write.
    room.policy(0, |policy| policy.others_max = u32::MAX);
    assert_eq!(in_force(&mut hal, 0), 2_400_000);
    assert_eq!(hal.standing(find(&hal, 0)), Some(LimitStatus::Kept));
}

#[test]
fn a_limit_that_comes_into_force_late_is_waited_for_and_one_that_does_not_is_never_reported() {
    let Some(room) = TestMachine::table() else { return };
    let mut hal = open(&room.folder.0);
    room.policy(0, |policy| policy.late_reads = 4);
    for wish in [2_000_000, 1_600_000, 2_400_000] {
        assert_eq!(apply(&mut hal, 0, wish).unwrap().outcome(), ApplyOutcome::Exact);
        assert_eq!(i64::from(in_force(&mut hal, 0)), i64::from(wish));
    }
    assert_eq!(release(&mut hal, 0), Ok(Released::Restored));
    assert_eq!(in_force(&mut hal, 0), 3_200_000);
    room.policy(0, |policy| policy.late_reads = u32::MAX);
    let applied = apply(&mut hal, 0, 2_000_000).unwrap();
    assert_eq!(applied.effective(), limit(3_200_000), "what is in force, and not what was asked");
    assert!(applied.permits_more());
}

/// Another writer's lower request keeps a limit where it was: that is waited for once.
#[test]
#[expect(clippy::disallowed_methods, reason = "that nothing is waited for shows in the time")]
fn a_limit_that_another_request_holds_is_not_waited_for_again() {
    let Some(room) = TestMachine::table() else { return };
    room.policy(0, |policy| policy.others_max = 1_600_000);
    let mut hal = open(&room.folder.0);
    for wish in [2_000_000, 2_400_000, 2_800_000] {
        assert_eq!(apply(&mut hal, 0, wish).unwrap().effective(), limit(1_600_000));
    }
    let begun = std::time::Instant::now();
    for wish in [2_000_000, 2_400_000, 2_800_000, 2_000_000, 2_400_000, 2_800_000] {
        apply(&mut hal, 0, wish).unwrap();
    }
    assert!(begun.elapsed() < Duration::from_millis(190), "six waits would be 1.2 s");
}

/// The driver was switched: an original that was no limit is no limit under the new driver either.
#[test]
fn an_original_that_was_the_highest_clock_is_the_highest_of_another_driver() {
    let Some(room) = TestMachine::table() else { return };
    let mut hal = open(&room.folder.0);
    apply(&mut hal, 0, 2_000_000).unwrap();
    room.policy(0, |policy| {
        policy.hardware = 1_200_000..=3_600_000;
        policy.table.push(3_600_000);
        policy.user_max = 3_600_000;
    });
    hal.describe().unwrap();
    apply(&mut hal, 0, 2_000_000).unwrap();
    assert_eq!(release(&mut hal, 0), Ok(Released::Restored));
    assert_eq!(written(&room, 0), 3_600_000);
}

#[test]
fn a_read_back_above_the_wish_is_answered_as_it_is() {
    let Some(room) = TestMachine::table() else { return };
    let mut hal = open(&room.folder.0);
    // Another writer writes between our write and the read-back.
    let effect = Effect::Answers(b"2800000\n".to_vec());
    // For as long as a limit is waited for.
    let fault = Fault { on: VirtualAttribute::MaxFreq(0), direction: Direction::Read, effect, times: 1000 };
    let handle = find(&hal, 0);
    assert!(sample(&mut hal, handle).is_ok());
    room.machine.lock().faults().add(fault);
    let applied = apply(&mut hal, 0, 2_000_000).unwrap();
    assert_eq!(applied.effective(), limit(2_800_000));
    assert!(applied.permits_more());
    assert_eq!(hal.standing(handle), Some(LimitStatus::Moved));
}

#[test]
fn another_writer_is_seen_whichever_way_it_moves_the_limit() {
    let Some(room) = TestMachine::table() else { return };
    let mut hal = open(&room.folder.0);
    let handle = find(&hal, 0);
    assert_eq!(hal.standing(handle), Some(LimitStatus::Untouched));
    apply(&mut hal, 0, 2_000_000).unwrap();
    for (theirs, standing) in
        [(2_800_000, LimitStatus::Moved), (1_200_000, LimitStatus::Stricter), (2_000_000, LimitStatus::Kept)]
    {
        room.policy(0, |policy| policy.user_max = theirs);
        assert_eq!(in_force(&mut hal, 0), theirs);
        assert_eq!(hal.standing(handle), Some(standing));
    }
    // The same wish is written again, since it is no longer in force.
    room.policy(0, |policy| policy.user_max = 2_800_000);
    assert_eq!(apply(&mut hal, 0, 2_000_000).unwrap().outcome(), ApplyOutcome::Exact);
    assert_eq!(written(&room, 0), 2_000_000);
    release(&mut hal, 0).unwrap();
    assert_eq!(hal.standing(handle), Some(LimitStatus::Untouched));
}

/// A limit that reads as wanted is not always ours: it would rise above the wish as soon as the machine cools.
#[test]
fn a_limit_that_somebody_else_holds_at_the_wish_is_written_all_the_same() {
    let Some(room) = TestMachine::table() else { return };
    room.policy(0, |policy| policy.others_max = 2_000_000);
    let mut hal = open(&room.folder.0);
    assert_eq!(in_force(&mut hal, 0), 2_000_000);
    assert_eq!(apply(&mut hal, 0, 2_000_000).unwrap().outcome(), ApplyOutcome::Exact);
    room.policy(0, |policy| policy.others_max = u32::MAX);
    assert_eq!(in_force(&mut hal, 0), 2_000_000);
}

#[test]
fn releasing_a_hot_machine_leaves_nothing_of_ours_behind() {
    let Some(room) = TestMachine::table() else { return };
    room.policy(0, |policy| policy.user_max = 2_800_000);
    let mut hal = open(&room.folder.0);
    apply(&mut hal, 0, 1_600_000).unwrap();
    room.policy(0, |policy| policy.others_max = 1_200_000);
    assert_eq!(release(&mut hal, 0), Ok(Released::Restored));
    assert_eq!((written(&room, 0), in_force(&mut hal, 0)), (2_800_000, 1_200_000));
    assert!(!holds_original(&mut hal, 0));
    room.policy(0, |policy| policy.others_max = u32::MAX);
    assert_eq!(in_force(&mut hal, 0), 2_800_000);
}

/// Our request of 2.4 GHz is hidden by a thermal limit of 2 GHz, which is also the saved original.
#[test]
fn an_original_that_reads_as_if_it_were_in_force_is_written_back() {
    let Some(room) = TestMachine::table() else { return };
    room.policy(0, |policy| policy.user_max = 2_000_000);
    let mut hal = open(&room.folder.0);
    apply(&mut hal, 0, 2_400_000).unwrap();
    room.policy(0, |policy| policy.others_max = 2_000_000);
    assert_eq!(release(&mut hal, 0), Ok(Released::Restored));
    room.policy(0, |policy| policy.others_max = u32::MAX);
    assert_eq!(in_force(&mut hal, 0), 2_000_000);
}

#[test]
fn a_release_that_another_writer_undoes_is_said_and_can_be_repeated() {
    let Some(room) = TestMachine::table() else { return };
    room.policy(0, |policy| policy.user_max = 2_400_000);
    let mut hal = open(&room.folder.0);
    apply(&mut hal, 0, 2_000_000).unwrap();
    let effect = Effect::Answers(b"3200000\n".to_vec());
    let fault = Fault { on: VirtualAttribute::MaxFreq(0), direction: Direction::Read, effect, times: 1000 };
    room.machine.lock().faults().add(fault);
    assert_eq!(release(&mut hal, 0), Err(ErrorKind::Busy));
    assert!(holds_original(&mut hal, 0));
    room.machine.lock().faults().heal();
    assert_eq!(release(&mut hal, 0), Ok(Released::Restored));
}

/// Fix list agent S10: writing `cpuinfo_max_freq` would destroy the administrator's limit.
#[test]
fn the_administrators_limit_comes_back_and_not_the_hardwares() {
    let Some(room) = TestMachine::table() else { return };
    room.policy(1, |policy| policy.user_max = 2_400_000);
    let mut hal = open(&room.folder.0);
    for wish in [2_000_000, 1_200_000, 3_200_000] {
        apply(&mut hal, 4, wish).unwrap();
    }
    assert_eq!(release(&mut hal, 4), Ok(Released::Restored));
    assert_eq!(written(&room, 1), 2_400_000);
    assert_eq!(release(&mut hal, 4), Ok(Released::Untouched));
    assert_eq!(written(&room, 0), 3_200_000, "a policy that was never touched is never written");
}

/// Fix list agent S14: a failed write changes nothing in the HAL either, so that no caller relies on it.
#[test]
fn a_refused_write_leaves_no_trace() {
    let Some(room) = TestMachine::table() else { return };
    let mut hal = open(&room.folder.0);
    let handle = find(&hal, 0);
    for (errno, kind) in [
        (libc::EACCES, ErrorKind::PermissionDenied),
        (libc::EROFS, ErrorKind::PermissionDenied),
        (libc::EPERM, ErrorKind::PermissionDenied),
        (libc::EIO, ErrorKind::Io),
        (libc::EBUSY, ErrorKind::Busy),
        (libc::EAGAIN, ErrorKind::Busy),
        (libc::EINVAL, ErrorKind::OutOfRange),
    ] {
        fails(&room, VirtualAttribute::MaxFreq(0), Direction::Write, errno, 1);
        assert_eq!(apply(&mut hal, 0, 2_000_000), Err(kind), "{errno}");
        assert!(!holds_original(&mut hal, 0), "nothing was written, so nothing is to be put back");
        assert_eq!(hal.standing(handle), Some(LimitStatus::Untouched));
        assert_eq!(in_force(&mut hal, 0), 3_200_000);
    }
    apply(&mut hal, 0, 2_000_000).unwrap();
    fails(&room, VirtualAttribute::MaxFreq(0), Direction::Write, libc::EACCES, 1);
    assert_eq!(apply(&mut hal, 0, 1_600_000), Err(ErrorKind::PermissionDenied));
    assert_eq!((in_force(&mut hal, 0), hal.standing(handle)), (2_000_000, Some(LimitStatus::Kept)));
    assert!(holds_original(&mut hal, 0));
}

#[test]
fn a_write_that_cannot_be_read_back_is_an_error_and_is_released_all_the_same() {
    let Some(room) = TestMachine::table() else { return };
    let mut hal = open(&room.folder.0);
    apply(&mut hal, 0, 2_800_000).unwrap();
    fails(&room, VirtualAttribute::MaxFreq(0), Direction::Read, libc::EIO, 1);
    assert_eq!(apply(&mut hal, 0, 2_000_000), Err(ErrorKind::Io));
    assert_eq!(written(&room, 0), 2_000_000);
    // It does not count as in force before it was read back.
    assert_eq!(apply(&mut hal, 0, 2_000_000).unwrap().outcome(), ApplyOutcome::Exact);
    assert_eq!(release(&mut hal, 0), Ok(Released::Restored));
    assert_eq!(written(&room, 0), 3_200_000);
}

#[test]
fn a_burst_of_errors_hides_one_value_of_one_policy_while_it_lasts() {
    let Some(room) = TestMachine::table() else { return };
    let mut hal = open(&room.folder.0);
    let (first, second) = (find(&hal, 0), find(&hal, 4));
    fails(&room, VirtualAttribute::MaxFreq(0), Direction::Read, libc::EIO, 3);
    for _ in 0..3 {
        let mut batch = [Reading::new(first), Reading::new(second)];
        hal.sample(&mut batch);
        let hurt = batch[0].outcome.unwrap();
        assert_eq!(hurt.frequency_limit, Err(ErrorKind::Io));
        assert!(hurt.frequency.is_ok());
        assert_eq!(batch[1].outcome.unwrap().frequency_limit, Ok(khz(3_200_000)));
    }
    assert_eq!(in_force(&mut hal, 0), 3_200_000);
}

#[test]
fn a_slow_file_is_late_and_right() {
    let Some(room) = TestMachine::table() else { return };
    let mut hal = open(&room.folder.0);
    let effect = Effect::Takes(Duration::from_millis(30));
    let fault = Fault { on: VirtualAttribute::MaxFreq(0), direction: Direction::Read, effect, times: 1 };
    room.machine.lock().faults().add(fault);
    assert_eq!(in_force(&mut hal, 0), 3_200_000);
    assert_eq!(in_force(&mut hal, 4), 3_200_000);
}

#[test]
fn what_the_kernel_averages_goes_first_and_an_idle_cpu_is_asked_otherwise() {
    let Some(room) = TestMachine::profile("xeon-tpmi") else { return };
    let mut hal = open(&room.folder.0);
    let handle = find(&hal, 0);
    let answers = |on, text: &str| {
        let effect = Effect::Answers(text.as_bytes().to_vec());
        let fault = Fault { on, direction: Direction::Read, effect, times: 1 };
        room.machine.lock().faults().add(fault);
    };
    answers(VirtualAttribute::AvgFreq(0), "2345678\n");
    assert_eq!(sample(&mut hal, handle).unwrap().frequency, Ok(khz(2_345_678)));
    for errno in [libc::EAGAIN, libc::EINVAL, libc::ENODATA] {
        fails(&room, VirtualAttribute::AvgFreq(0), Direction::Read, errno, 1);
        answers(VirtualAttribute::CurFreq(0), "1111111\n");
        assert_eq!(sample(&mut hal, handle).unwrap().frequency, Ok(khz(1_111_111)), "{errno}");
    }
}

#[test]
fn every_driver_of_the_profiles_is_known_and_an_unknown_one_works() {
    let expected = [
        ("xeon-2s", Driver::IntelPstate),
        ("xeon-multi-die", Driver::IntelCpufreq),
        ("epyc", Driver::AcpiCpufreq),
        ("mi300x", Driver::AmdPstateEpp),
    ];
    for (name, driver) in expected {
        let Some(room) = TestMachine::profile(name) else { return };
        let hal = open(&room.folder.0);
        assert_eq!(hal.complaints(), []);
        let handle = find(&hal, 0);
        assert_eq!(hal.policy(handle).unwrap().driver(), &driver, "{name}");
    }
    let Some(room) = TestMachine::table() else { return };
    let mut hal = open(&room.folder.0);
    for (name, driver) in
        [("amd-pstate", Driver::AmdPstate), ("cppc_cpufreq", Driver::Unknown("cppc_cpufreq".into()))]
    {
        // Fix list agent C11: a driver that is switched at run time is detected, with its continuous range.
        room.policy(0, |policy| (policy.driver, policy.table) = (name, vec![]));
        room.machine.lock().reload_cpufreq();
        hal.describe().unwrap();
        let handle = find(&hal, 0);
        assert_eq!(hal.policy(handle).unwrap().driver(), &driver);
        assert_eq!(apply(&mut hal, 0, 2_345_678).unwrap().effective(), limit(2_345_678));
        release(&mut hal, 0).unwrap();
    }
}

/// Fix list agent C11: a list that is fixed at start misses added and removed policies.
#[test]
fn a_policy_that_comes_or_goes_is_noticed_and_old_handles_reach_nothing() {
    let Some(room) = TestMachine::table() else { return };
    room.policy(0, |policy| policy.present = false);
    let mut hal = open(&room.folder.0);
    assert_eq!(hal.domains().len(), 1);
    let old = find(&hal, 4);
    room.policy(0, |policy| policy.present = true);
    hal.describe().unwrap();
    assert_eq!(hal.domains().len(), 2);
    assert_eq!(sample(&mut hal, old), Err(ErrorKind::Gone));
    assert_eq!(hal.standing(old), None);
    assert!(hal.policy(old).is_none());
    assert_eq!(in_force(&mut hal, 4), 3_200_000);
}

#[test]
fn a_policy_that_was_never_seen_online_is_a_complaint_until_it_is() {
    let Some(room) = TestMachine::table() else { return };
    (4..8).for_each(|cpu| room.machine.lock().set_online(cpu, false));
    let mut hal = open(&room.folder.0);
    assert_eq!(hal.domains().len(), 1);
    let [complaint] = hal.complaints() else { panic!("{:?}", hal.complaints()) };
    assert_eq!(power_hal::Error::kind(complaint), ErrorKind::Busy);
    assert!(complaint.to_string().contains("policy4"), "{complaint}");
    room.machine.lock().set_online(6, true);
    hal.describe().unwrap();
    assert_eq!((hal.domains().len(), hal.complaints().len()), (2, 0));
    assert_eq!(hal.domains().get(find(&hal, 4)).unwrap().package_number(), Some(1));
}

/// An offline sibling runs nothing. When it is back the core is as before, and in between all handles stay valid.
#[test]
fn siblings_stay_one_group_while_one_of_them_is_offline() {
    let Some(room) = TestMachine::profile("xeon-2s") else { return };
    let mut hal = open(&room.folder.0);
    let group = |hal: &Hal, cpu| hal.domains().get(find(hal, cpu)).unwrap().covers().unwrap().group();
    let before = hal.domains().as_slice().to_vec();
    assert_eq!((group(&hal, 5), group(&hal, 69)), (5, 5));
    room.machine.lock().set_online(69, false);
    hal.describe().unwrap();
    assert_eq!(hal.domains().as_slice(), before);
    assert_eq!((group(&hal, 5), group(&hal, 69)), (5, 5));
    room.machine.lock().set_online(69, true);
    hal.describe().unwrap();
    assert_eq!(hal.domains().as_slice(), before);
}

#[test]
fn without_turbo_limits_above_the_base_read_as_the_base_and_come_back() {
    let Some(room) = TestMachine::profile("xeon-2s") else { return };
    let mut hal = open(&room.folder.0);
    assert_eq!(hal.turbo(), Ok(Some(true)));
    let handle = find(&hal, 3);
    assert_eq!(hal.policy(handle).unwrap().base(), Some(khz(2_400_000)));
    apply(&mut hal, 3, 2_800_000).unwrap();
    std::fs::write(room.path("intel_pstate/no_turbo"), "1").unwrap();
    assert_eq!((hal.turbo(), in_force(&mut hal, 3)), (Ok(Some(false)), 2_400_000));
    assert_eq!(hal.standing(handle), Some(LimitStatus::Stricter));
    let applied = apply(&mut hal, 3, 2_600_000).unwrap();
    assert_eq!((applied.effective(), applied.permits_more()), (limit(2_400_000), false));
    std::fs::write(room.path("intel_pstate/no_turbo"), "0").unwrap();
    assert_eq!(in_force(&mut hal, 3), 2_600_000);
}

#[test]
fn an_original_that_no_kernel_would_take_is_never_written() {
    let Some(room) = TestMachine::table() else { return };
    for words in [&[4_294_967_296_u64][..], &[0], &[2_147_483_648], &[], &[1, 2]] {
        let mut journal = OriginalsInMemory::new();
        let spoilt = power_hal::Original::new(0, words).unwrap();
        journal.keep(&power_hal::Key::policy(0), Control::Frequency, &spoilt).unwrap();
        let root = hal_files::Root::at(&room.folder.0);
        let mut hal: Hal =
            hal_cpufreq::Cpufreq::open(root, Default::default(), RefusableOriginals::new(journal)).unwrap();
        assert_eq!(release(&mut hal, 0), Err(ErrorKind::BadData), "{words:?}");
        assert_eq!(written(&room, 0), 3_200_000);
    }
}
