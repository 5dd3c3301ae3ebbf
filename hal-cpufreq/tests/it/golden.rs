//! The rows of facts/hardware.md section 11 for cpufreq, each as a test that names it.

use crate::support::{TestMachine, apply, find, in_force, khz, limit, open, release, sample};
use power_hal::{ApplyOutcome, ErrorKind, PowerHal, Released, Setting};
use power_units::KiloHertz;
use proptest::prelude::*;
use std::cell::RefCell;

const MAX: &str = "cpufreq/policy0/scaling_max_freq";
const MIN: &str = "cpufreq/policy0/scaling_min_freq";

fn shown(room: &TestMachine, file: &str) -> String {
    std::fs::read_to_string(room.path(file)).unwrap().trim().to_owned()
}

#[test]
fn floor_to_table() {
    let Some(room) = TestMachine::table() else { return };
    let mut hal = open(&room.folder.0);
    let domain = *hal.domains().get(find(&hal, 0)).unwrap();
    assert_eq!(domain.frequency().unwrap().step(), khz(400_000));
    for (wish, found) in [(2_000_000, 2_000_000), (2_100_000, 2_000_000), (1_900_000, 1_600_000)] {
        let applied = apply(&mut hal, 0, wish).unwrap();
        assert_eq!((applied.effective(), applied.outcome()), (limit(found), ApplyOutcome::Exact));
        // The written value is an entry of the table, on kernels that round and on those that do not.
        assert_eq!(room.policy(0, |policy| policy.user_max), found.unsigned_abs());
        assert_eq!(shown(&room, MAX), found.to_string());
    }
    let handle = find(&hal, 4);
    let table = hal.policy(handle).unwrap().table();
    assert_eq!(table.khz(), [1_200_000, 1_600_000, 2_000_000, 2_400_000, 2_800_000, 3_200_000]);
}

#[test]
fn clamp_both_ends_silently() {
    let Some(room) = TestMachine::table() else { return };
    for (text, found) in [("100", "1200000"), ("0", "1200000"), ("999999999", "3200000")] {
        std::fs::write(room.path(MAX), text).unwrap();
        assert_eq!(shown(&room, MAX), found, "what the kernel does with {text}");
    }
    let mut hal = open(&room.folder.0);
    for (wish, end) in [(100, 1_200_000), (1, 1_200_000), (999_999_999, 3_200_000), (i32::MAX, 3_200_000)] {
        let applied = apply(&mut hal, 0, wish).unwrap();
        let (requested, effective) = (limit(wish), limit(end));
        assert_eq!(applied.outcome(), ApplyOutcome::Clamped { requested, effective });
        assert_eq!(
            room.policy(0, |policy| policy.user_max),
            end.unsigned_abs(),
            "clamped before the kernel is"
        );
    }
    for nothing in [0, -1, i32::MIN] {
        assert_eq!(apply(&mut hal, 0, nothing), Err(ErrorKind::OutOfRange));
    }
}

#[test]
fn trailing_garbage_hex_and_33_bits_are_never_written() {
    let Some(room) = TestMachine::table() else { return };
    for (text, found) in [("2400000xyz", "2400000"), ("0x1", "1200000"), ("4294967296", "1200000")] {
        std::fs::write(room.path(MAX), "3200000").unwrap();
        std::fs::write(room.path(MAX), text).unwrap();
        assert_eq!(shown(&room, MAX), found, "the trap of {text}");
    }
    for text in ["-1", "abc"] {
        assert_eq!(std::fs::write(room.path(MAX), text).unwrap_err().raw_os_error(), Some(libc::EINVAL));
    }
    std::fs::write(room.path(MAX), "3200000").unwrap();
    let hal = RefCell::new(open(&room.folder.0));
    let handle = find(&hal.borrow(), 0);
    let mut config = ProptestConfig::with_cases(256);
    config.failure_persistence = None;
    proptest!(config, |(bits in prop_oneof![any::<i64>(), 0_i64..(4_000_000_i64 << 32), Just(i64::MAX)])| {
        let wish = KiloHertz::from_bits(bits);
        let applied = hal.borrow_mut().apply(handle, Setting::Frequency(wish));
        let written = room.machine.lock().policies()[0].user_max;
        prop_assert!(written.is_multiple_of(400_000) && (1_200_000..=3_200_000).contains(&written));
        match applied {
            Ok(applied) => {
                let Setting::Frequency(found) = applied.effective() else { panic!("not a frequency") };
                prop_assert_eq!(found, khz(written.cast_signed()));
                prop_assert!(found <= wish || found == khz(1_200_000));
            }
            Err(failure) => {
                prop_assert!(wish < khz(1));
                prop_assert_eq!(power_hal::Error::kind(&failure), ErrorKind::OutOfRange);
            }
        }
    });
}

#[test]
fn ebusy_on_an_inactive_policy_which_stays_described_and_limit_survives_offline_online() {
    let Some(room) = TestMachine::table() else { return };
    let mut hal = open(&room.folder.0);
    apply(&mut hal, 0, 2_000_000).unwrap();
    let (handle, before) = (find(&hal, 0), hal.domains().as_slice().to_vec());
    // Three of four CPUs are offline: the policy remains.
    (1..4).for_each(|cpu| room.machine.lock().set_online(cpu, false));
    hal.describe().unwrap();
    assert_eq!(hal.domains().as_slice(), before);
    assert_eq!(hal.policy(handle).unwrap().online().to_string(), "0");
    assert_eq!(in_force(&mut hal, 0), 2_000_000);

    room.machine.lock().set_online(0, false);
    for describes in [false, true] {
        if describes {
            hal.describe().unwrap();
            assert_eq!(hal.complaints(), []);
            assert!(hal.policy(handle).unwrap().online().lowest().is_none());
        }
        assert_eq!(hal.domains().as_slice(), before, "the domain stays described, and the handle good");
        assert_eq!(sample(&mut hal, handle), Err(ErrorKind::Busy));
        assert_eq!(apply(&mut hal, 0, 1_600_000), Err(ErrorKind::Busy));
        assert_eq!(release(&mut hal, 0), Err(ErrorKind::Busy));
        assert_eq!(in_force(&mut hal, 4), 3_200_000, "the other one is as it was");
    }
    room.machine.lock().set_online(3, true);
    // The old descriptors still work.
    assert_eq!(in_force(&mut hal, 0), 2_000_000);
    assert_eq!(release(&mut hal, 0), Ok(Released::Restored));
    assert_eq!(in_force(&mut hal, 0), 3_200_000);
}

#[test]
fn lost_on_driver_reload() {
    let Some(room) = TestMachine::table() else { return };
    room.policy(0, |policy| policy.user_max = 2_800_000);
    let mut hal = open(&room.folder.0);
    apply(&mut hal, 0, 2_000_000).unwrap();
    let handle = find(&hal, 0);
    room.machine.lock().reload_cpufreq();
    assert_eq!(sample(&mut hal, handle), Err(ErrorKind::Gone), "the files of before answer ENODEV");
    assert_eq!(apply(&mut hal, 0, 2_000_000), Err(ErrorKind::Gone));
    hal.describe().unwrap();
    assert_eq!(find(&hal, 0), handle, "the same list has the same handles");
    assert_eq!(in_force(&mut hal, 0), 3_200_000, "the loss can be seen");
    assert_eq!(hal.standing(handle), Some(hal_cpufreq::LimitStatus::Moved));
    assert_eq!(apply(&mut hal, 0, 2_000_000).unwrap().effective(), limit(2_000_000));
    assert_eq!(release(&mut hal, 0), Ok(Released::Restored));
    assert_eq!(in_force(&mut hal, 0), 2_800_000);
}

#[test]
fn max_below_min_lowers_displayed_min_and_recovers_without_a_write_to_it() {
    let Some(room) = TestMachine::table() else { return };
    room.policy(0, |policy| policy.user_min = 2_400_000);
    let mut hal = open(&room.folder.0);
    apply(&mut hal, 0, 1_600_000).unwrap();
    assert_eq!((shown(&room, MIN), shown(&room, MAX)), ("1600000".into(), "1600000".into()));
    release(&mut hal, 0).unwrap();
    assert_eq!(shown(&room, MIN), "2400000");
    assert_eq!(room.policy(0, |policy| policy.user_min), 2_400_000);
}

/// Fix list agent S9: 8 CPUs in 2 policies are 10 folders by two paths, and low throttles then reached no policy.
#[test]
fn symlinked_cpu_cpufreq_is_no_policy_of_its_own() {
    let Some(room) = TestMachine::table() else { return };
    assert!(room.path("cpu3/cpufreq/scaling_max_freq").exists());
    let hal = open(&room.folder.0);
    let keys: Vec<String> = hal.domains().as_slice().iter().map(|domain| domain.key().to_string()).collect();
    assert_eq!(keys, ["cpu-0", "cpu-4"]);
}
