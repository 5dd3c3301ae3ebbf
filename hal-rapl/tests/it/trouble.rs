//! Faults of a machine: files that fail, are slow, return wrong values or disappear.

use crate::bench::{Bench, CEILING_UW, Files};
use crate::golden::{apply, effective, find, kind, sample, w};
use hal_rapl::RaplError;
use power_hal::{ApplyOutcome, Control, ErrorKind, Original, Originals, PortError, PowerHal, Released};
use rig::faults::{Direction, Effect};
use rig::machine::VirtualAttribute;
use rig::powercap::RegisterLock;
use std::time::Duration;

const PL1: VirtualAttribute = VirtualAttribute::PowerLimit(0, 0);
const PL2: VirtualAttribute = VirtualAttribute::PowerLimit(0, 1);

fn open(name: &str) -> Option<(Bench, Files)> {
    let bench = Bench::mounted(name)?;
    let hal = bench.open();
    Some((bench, hal))
}

fn answers(bench: &Bench, on: &VirtualAttribute, text: &str, times: u32) {
    bench.fault(on.clone(), Direction::Read, Effect::Answers(text.into()), times);
}

fn fails(bench: &Bench, on: &VirtualAttribute, direction: Direction, errno: i32, times: u32) {
    bench.fault(on.clone(), direction, Effect::Fails(errno), times);
}

#[test]
fn a_counter_that_may_not_be_read_leaves_the_limit_readable() {
    let Some((bench, mut hal)) = open("xeon-2s") else { return };
    fails(&bench, &VirtualAttribute::Energy(0), Direction::Read, libc::EACCES, 1);
    let said = sample(&mut hal, "package-0").unwrap();
    assert_eq!((said.meter, said.power_limit), (Err(ErrorKind::PermissionDenied), Ok(w(250))));
}

#[test]
fn a_burst_of_eio_costs_the_values_it_hits_and_passes() {
    let Some((bench, mut hal)) = open("xeon-2s") else { return };
    fails(&bench, &VirtualAttribute::Energy(0), Direction::Read, libc::EIO, 2);
    fails(&bench, &PL1, Direction::Read, libc::EIO, 1);
    assert_eq!(sample(&mut hal, "package-0"), Err(ErrorKind::Io));
    assert_eq!(sample(&mut hal, "package-0").unwrap().meter, Err(ErrorKind::Io));
    assert!(sample(&mut hal, "package-0").unwrap().meter.is_ok());
}

#[test]
fn a_slow_file_is_waited_for() {
    let Some((bench, mut hal)) = open("xeon-2s") else { return };
    bench.fault(PL1, Direction::Read, Effect::Takes(Duration::from_millis(30)), 1);
    assert_eq!(sample(&mut hal, "package-0").unwrap().power_limit, Ok(w(250)));
}

/// The write is accepted and the value does not change: the limit in force is reported.
#[test]
fn a_silent_lock_is_seen_in_the_read_back() {
    let Some((bench, mut hal)) = open("xeon-2s") else { return };
    answers(&bench, &PL1, "250000000\n", u32::MAX);
    let applied = apply(&mut hal, "package-0", w(100)).unwrap();
    assert!(
        matches!(applied.outcome(), ApplyOutcome::Clamped { .. }) && applied.permits_more(),
        "{applied:?}"
    );
    assert_eq!(applied.effective(), power_hal::Setting::Power(w(250)));
}

#[test]
fn a_limit_that_reads_back_as_nothing_is_taken_back() {
    let Some((bench, mut hal)) = open("xeon-2s") else { return };
    // Reads for saving and comparing, and the read after the write.
    answers(&bench, &PL1, "250000000\n", 2);
    answers(&bench, &PL1, "0\n", 1);
    let error = apply(&mut hal, "package-0", w(100)).unwrap_err();
    assert!(matches!(error, PortError::Hal(RaplError::ReadBackZero(_))), "{error}");
    let long: Vec<_> =
        bench.writes().into_iter().filter(|write| write.on == PL1).map(|write| write.data).collect();
    assert_eq!(long, [b"100000000", b"250000000"]);
}

/// A temporary wrong value when the original is saved must not become the original: 0 W would stop the machine.
#[test]
fn what_reads_as_nothing_when_the_original_is_saved_costs_no_original() {
    let Some((bench, mut hal)) = open("xeon-2s") else { return };
    answers(&bench, &PL1, "0\n", 1);
    assert_eq!(kind(apply(&mut hal, "package-0", w(100))), ErrorKind::BadData, "0 W is not in force");
    answers(&bench, &VirtualAttribute::TimeWindow(0, 0), "0\n", 1);
    assert_eq!(kind(apply(&mut hal, "package-0", w(100))), ErrorKind::BadData, "no window is that short");
    assert!(bench.writes().is_empty() && hal.originals().inner().is_empty());

    let limits =
        || bench.zone("intel-rapl:0", |slot| [0, 1].map(|at| slot.zone.power_limit_uw(at) / 1_000_000));
    answers(&bench, &PL2, "0\n", 1);
    assert_eq!(effective(&mut hal, "package-0", w(100)), (100_000_000, true));
    assert_eq!(limits(), [100, 300], "a short-term limit that is not used is never written");
    let handle = find(&hal, "package-0").0;
    assert_eq!(hal.release(handle).unwrap(), Released::Restored);
    assert_eq!(limits(), [250, 300]);
}

/// 4100 W do not fit in 15 bits: the register would keep 4 W of them.
#[test]
fn an_original_that_does_not_fit_leaves_the_cap() {
    let Some((bench, mut hal)) = open("xeon-2s") else { return };
    let (handle, domain) = find(&hal, "package-0");
    let key = *domain.key();
    assert_eq!(effective(&mut hal, "package-0", w(100)), (100_000_000, true));
    let spoilt = |long: u64| Original::new(1, &[0, long, 27_983_872, 300_000_000]).unwrap();
    for long in [4_100_000_000, 0, u64::MAX] {
        hal.originals().forget(&key, Control::Power).unwrap();
        hal.originals().keep(&key, Control::Power, &spoilt(long)).unwrap();
        let refused = hal.release(handle).unwrap_err();
        assert!(matches!(refused, PortError::Hal(RaplError::UnknownOriginal(_))), "{long}: {refused}");
        assert_eq!(bench.zone("intel-rapl:0", |slot| slot.zone.power_limit_uw(0)), 100_000_000, "{long}");
    }
}

/// Fix list agent S8: a partly written cap can be released.
#[test]
fn a_cap_that_fails_half_way_keeps_its_original() {
    let Some((bench, mut hal)) = open("xeon-2s") else { return };
    fails(&bench, &PL2, Direction::Write, libc::EIO, 1);
    assert_eq!(kind(apply(&mut hal, "package-0", w(100))), ErrorKind::Io);
    let limit = || bench.zone("intel-rapl:0", |slot| slot.zone.power_limit_uw(0));
    assert_eq!(limit(), 100_000_000, "the long-term limit had come down before");
    let handle = find(&hal, "package-0").0;
    assert_eq!(hal.release(handle).unwrap(), Released::Restored);
    assert_eq!(limit(), 250_000_000);
    fails(&bench, &PL1, Direction::Write, libc::EIO, 1);
    assert_eq!(kind(apply(&mut hal, "package-0", w(100))), ErrorKind::Io);
    assert!(hal.originals().inner().is_empty(), "the first write failed, so nothing was touched");
}

#[test]
fn a_window_that_is_refused_does_not_cost_the_cap_and_is_told() {
    let Some((bench, mut hal)) = open("xeon-2s") else { return };
    fails(&bench, &VirtualAttribute::TimeWindow(0, 0), Direction::Write, libc::EINVAL, 1);
    assert_eq!(effective(&mut hal, "package-0", w(100)), (100_000_000, true));
    let told: Vec<_> = hal.long_windows().map(|key| key.as_str().to_owned()).collect();
    assert_eq!(told, ["package-0"]);
    assert_eq!(effective(&mut hal, "package-0", w(100)), (100_000_000, true));
    assert_eq!(hal.long_windows().count(), 0, "the second try was taken");
}

/// The caller repeats a cap after a temporary failure, but not after a permanent refusal by the firmware.
#[test]
fn a_window_that_cannot_be_written_just_now_is_no_cap_yet() {
    for (errno, expected) in
        [(libc::EBUSY, ErrorKind::Busy), (libc::ETIMEDOUT, ErrorKind::Timeout), (libc::EIO, ErrorKind::Io)]
    {
        let Some((bench, mut hal)) = open("xeon-2s") else { return };
        fails(&bench, &VirtualAttribute::TimeWindow(0, 0), Direction::Write, errno, 1);
        assert_eq!(kind(apply(&mut hal, "package-0", w(100))), expected);
        assert_eq!(hal.long_windows().count(), 0);
        assert_eq!(effective(&mut hal, "package-0", w(100)), (100_000_000, true));
        assert_eq!(bench.zone("intel-rapl:0", |slot| slot.zone.time_window_us(0)), 499_712, "{errno}");
    }
}

/// Fix list agent S3: the twin is the same package.
#[test]
fn a_package_and_its_twin_are_one_domain_with_the_lower_limit_in_force() {
    let Some((bench, mut hal)) = open("client") else { return };
    assert_eq!(hal.domains().len(), 1);
    bench.zone("intel-rapl-mmio:0", |slot| slot.zone.write_power_limit(0, b"12000000").unwrap());
    assert_eq!(sample(&mut hal, "package-0").unwrap().power_limit, Ok(w(12)), "thermald has been here");
    assert_eq!(effective(&mut hal, "package-0", w(20)), (20_000_000, true));
    let limits = |id: &str| bench.zone(id, |slot| slot.zone.power_limit_uw(0) / 1_000_000);
    assert_eq!((limits("intel-rapl:0"), limits("intel-rapl-mmio:0")), (20, 20));
    let handle = find(&hal, "package-0").0;
    assert_eq!(hal.release(handle).unwrap(), Released::Restored);
    assert_eq!((limits("intel-rapl:0"), limits("intel-rapl-mmio:0")), (35, 12), "each goes back to its own");
}

/// A twin can be absent in two cases: when the original is saved, and when it is restored.
#[test]
fn a_twin_that_is_away_loses_no_original_and_one_that_came_late_has_none() {
    let Some((bench, mut hal)) = open("client") else { return };
    let limits = |id: &str| bench.zone(id, |slot| slot.zone.power_limit_uw(0) / 1_000_000);
    let present = |here| bench.zone("intel-rapl-mmio:0", |slot| slot.present = here);
    present(false);
    hal.describe().unwrap();
    assert_eq!(effective(&mut hal, "package-0", w(20)), (20_000_000, true));
    present(true);
    hal.describe().unwrap();
    assert_eq!(effective(&mut hal, "package-0", w(18)), (18_000_000, true));
    assert_eq!((limits("intel-rapl:0"), limits("intel-rapl-mmio:0")), (18, 35), "the late one is left alone");
    let handle = find(&hal, "package-0").0;
    assert_eq!(hal.release(handle).unwrap(), Released::Restored);
    assert_eq!((limits("intel-rapl:0"), limits("intel-rapl-mmio:0")), (35, 35));

    assert_eq!(effective(&mut hal, "package-0", w(20)), (20_000_000, true));
    present(false);
    hal.describe().unwrap();
    let handle = find(&hal, "package-0").0;
    assert_eq!(kind(hal.release(handle)), ErrorKind::Gone);
    present(true);
    hal.describe().unwrap();
    let handle = find(&hal, "package-0").0;
    assert_eq!(hal.release(handle).unwrap(), Released::Restored);
    assert_eq!((limits("intel-rapl:0"), limits("intel-rapl-mmio:0")), (35, 35));
}

#[test]
fn one_zone_of_two_is_enough_for_a_cap() {
    let Some((bench, mut hal)) = open("client") else { return };
    bench.zone("intel-rapl-mmio:0", |slot| slot.zone.lock = RegisterLock::WindowRefused);
    assert_eq!(effective(&mut hal, "package-0", w(20)), (20_000_000, true));
    assert_eq!(effective(&mut hal, "package-0", w(50)), (35_000_000, false), "the locked one holds at 35 W");
    let handle = find(&hal, "package-0").0;
    assert_eq!(hal.release(handle).unwrap(), Released::Restored);
    bench.zone("intel-rapl:0", |slot| slot.zone.lock = RegisterLock::WindowRefused);
    assert_eq!(kind(apply(&mut hal, "package-0", w(20))), ErrorKind::Locked, "none of two is not");
}

#[test]
fn a_package_that_went_and_came_back_unseen_is_gone_until_it_is_listed_anew() {
    let Some((bench, mut hal)) = open("xeon-2s") else { return };
    let old = find(&hal, "package-0").0;
    bench.zone("intel-rapl:0", |slot| slot.present = false);
    assert_eq!(sample(&mut hal, "package-0"), Err(ErrorKind::Gone));
    bench.zone("intel-rapl:0", |slot| slot.present = true);
    assert_eq!(
        sample(&mut hal, "package-0"),
        Err(ErrorKind::Gone),
        "its descriptors are of a device that is no more"
    );
    assert_eq!(kind(apply(&mut hal, "package-0", w(100))), ErrorKind::Gone);
    hal.describe().unwrap();
    assert!(sample(&mut hal, "package-0").is_ok());
    assert!(hal.domains().get(old).is_none());
}

#[test]
fn a_locked_package_is_known_by_its_name_after_a_renumbering() {
    let Some((bench, mut hal)) = open("xeon-locked") else { return };
    bench.zone("intel-rapl:0", |slot| {
        slot.zone.lock = RegisterLock::Open;
        slot.zone.write_power_limit(0, b"200000000").unwrap();
    });
    bench.renumber();
    hal.describe().unwrap();
    assert_eq!(effective(&mut hal, "package-0", w(100)), (100_000_000, true));
    assert_eq!(kind(apply(&mut hal, "package-1", w(100))), ErrorKind::Locked);
}

#[test]
fn an_original_of_another_layout_is_refused_and_nothing_is_written() {
    let Some((bench, mut hal)) = open("xeon-2s") else { return };
    let foreign = power_hal::Original::new(9, &[1, 2, 3]).unwrap();
    let handle = find(&hal, "package-0").0;
    let error = hal.restore(handle, power_hal::Control::Power, &foreign).unwrap_err();
    assert_eq!(
        error.to_string(),
        "package-0: the saved original is not one that this version saves, or not of this package; the limit is left as it \
         is: mend or move the journal of originals"
    );
    assert_eq!(kind(Err::<(), _>(error)), ErrorKind::BadData);
    assert!(bench.writes().is_empty());
}

/// Between the two writes the package must not be above both the old and the new limits.
#[test]
fn the_zone_that_falls_is_written_before_the_one_that_rises() {
    let Some((bench, mut hal)) = open("client") else { return };
    bench.zone("intel-rapl:0", |slot| slot.zone.write_power_limit(0, b"12000000").unwrap());
    effective(&mut hal, "package-0", w(20));
    let writes = bench.writes();
    let long = writes.iter().filter_map(|write| {
        if let VirtualAttribute::PowerLimit(zone, 0) = write.on { Some(zone) } else { None }
    });
    let order: Vec<usize> = long.collect();
    let twin = bench.machine.lock().zones().iter().position(|slot| slot.control_type == "intel-rapl-mmio");
    assert_eq!(order, [twin.unwrap(), 0]);
}

#[test]
fn a_release_that_is_refused_says_why_and_can_be_repeated() {
    let Some((bench, mut hal)) = open("xeon-2s") else { return };
    effective(&mut hal, "package-0", w(100));
    let handle = find(&hal, "package-0").0;
    fails(&bench, &PL1, Direction::Write, libc::EROFS, 1);
    assert_eq!(kind(hal.release(handle)), ErrorKind::PermissionDenied);
    assert_eq!(hal.originals().inner().len(), 1);
    assert_eq!(hal.release(handle).unwrap(), Released::Restored);
    assert_eq!(bench.zone("intel-rapl:0", |slot| slot.zone.power_limit_uw(0)), 250_000_000);
}

#[test]
fn a_lock_that_is_gone_is_forgotten() {
    let Some((bench, mut hal)) = open("xeon-locked") else { return };
    assert_eq!(kind(apply(&mut hal, "package-0", w(100))), ErrorKind::Locked);
    let limit = |hal: &mut Files| sample(hal, "package-0").unwrap().power_limit.unwrap();
    bench.zone("intel-rapl:0", |slot| slot.zone.lock = RegisterLock::Open);
    assert_eq!(limit(&mut hal), w(250));
    bench.zone("intel-rapl:0", |slot| slot.zone.write_enabled(b"0").unwrap());
    assert_eq!(limit(&mut hal).get(), CEILING_UW, "now it is off, and not locked");
}
