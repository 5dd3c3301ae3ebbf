//! The documented behaviour of the drivers, each row on virtual hardware that answers as they do.

use crate::support::{TestMachine, apply, effective, keys, mi300x, release, sample, w};
use plant::Load;
use power_hal::{ApplyOutcome, Error, ErrorKind, Key, PowerHal, Released, Setting, ThrottledMeter};
use power_units::{Celsius, MicroWatts, Micros, Percent};
use rig::faults::{Direction, Effect, Fault};
use rig::hwmon;
use rig::machine::{PowerFile, VirtualAttribute};
use std::time::Duration;

/// hwmon: W truncation.
#[test]
fn a_gpu_truncates_a_cap_to_whole_watts_and_that_is_what_was_asked() {
    let Some(room) = TestMachine::profile("mi300x") else { return };
    let mut hal = room.open();
    let applied = apply(&mut hal, &mi300x(), MicroWatts::new(400_999_999)).unwrap();
    assert_eq!((applied.outcome(), applied.effective()), (ApplyOutcome::Exact, Setting::Power(w(400))));
    assert_eq!(room.cap(&mi300x()), 400_000_000);
    // A socket has a unit of milliwatts.
    let applied = apply(&mut hal, &Key::socket(1), MicroWatts::new(200_123_999)).unwrap();
    assert_eq!(applied.effective(), Setting::Power(MicroWatts::new(200_123_000)));
    assert_eq!(applied.outcome(), ApplyOutcome::Exact);
}

/// hwmon: EINVAL out of [min,max].
#[test]
fn a_wish_out_of_the_range_is_clamped_before_the_driver_could_refuse_it() {
    let Some(room) = TestMachine::profile("mi300x") else { return };
    let mut hal = room.open();
    for (wish, cap) in [(w(751), w(750)), (w(349), w(350)), (MicroWatts::new(1), w(350))] {
        assert_eq!(effective(&mut hal, &mi300x(), wish), cap, "{wish:?}");
    }
    let low = apply(&mut hal, &mi300x(), w(100)).unwrap();
    assert!(low.permits_more() && low.outcome() != ApplyOutcome::Exact);
    assert_eq!(apply(&mut hal, &mi300x(), MicroWatts::ZERO), Err(ErrorKind::OutOfRange));
    // The range has shrunk since it was listed: the driver refuses, and nothing changes.
    room.device(&mi300x(), |_, slot| slot.hwmon.max_uw = 600_000_000);
    assert_eq!(apply(&mut hal, &mi300x(), w(700)), Err(ErrorKind::OutOfRange));
    assert_eq!(room.cap(&mi300x()), 350_000_000);
}

/// hwmon: ERANGE >4294967295.
#[test]
fn what_32_bits_do_not_hold_is_never_written() {
    let Some(room) = TestMachine::profile("mi300x") else { return };
    room.device(&mi300x(), |_, slot| slot.hwmon.max_uw = 5_000_000_000);
    let mut hal = room.open();
    for wish in [w(4_295), w(5_000), MicroWatts::MAX] {
        assert_eq!(effective(&mut hal, &mi300x(), wish), w(4_294), "{wish:?}");
    }
}

/// hwmon: empty line.
#[test]
fn an_empty_line_is_bad_data_of_that_value_only() {
    let Some(room) = TestMachine::profile("mi300x") else { return };
    let mut hal = room.open();
    let at = room.device(&mi300x(), |at, _| at);
    let silent = |on| {
        let effect = Effect::Answers(b"\n".to_vec());
        room.machine.lock().faults().add(Fault { on, direction: Direction::Read, effect, times: 1 });
    };
    silent(VirtualAttribute::Power(at, PowerFile::Average));
    let sampled = sample(&mut hal, &mi300x()).unwrap();
    assert_eq!((sampled.meter, sampled.power_limit), (Err(ErrorKind::BadData), Ok(w(750))));
    silent(VirtualAttribute::Cap(at));
    let sampled = sample(&mut hal, &mi300x()).unwrap();
    assert!(sampled.meter.is_ok());
    assert_eq!(sampled.power_limit, Err(ErrorKind::BadData));
    // Firmware that does not answer at all gives no sample; the known range stays valid.
    room.device(&mi300x(), |_, slot| slot.hwmon.silent = true);
    assert_eq!(sample(&mut hal, &mi300x()), Err(ErrorKind::BadData));
    assert_eq!(apply(&mut hal, &mi300x(), w(400)), Err(ErrorKind::BadData));
    let before: Vec<_> = hal.domains().as_slice().to_vec();
    assert_eq!(hal.describe().unwrap().as_slice(), before);
    assert_eq!(hal.complaints().len(), 3);
    room.device(&mi300x(), |_, slot| slot.hwmon.silent = false);
    assert_eq!(room.cap(&mi300x()), 750_000_000);
    assert!(sample(&mut hal, &mi300x()).is_ok());
}

#[test]
fn a_gpu_that_never_answered_is_listed_with_what_is_known_and_completed_later() {
    let Some(room) = TestMachine::profile("mi300x") else { return };
    room.device(&mi300x(), |_, slot| slot.hwmon.silent = true);
    let mut hal = room.open();
    let max = |hal: &crate::support::Hal<_>| {
        let handle = hal.domains().find(&mi300x()).unwrap();
        hal.domains().get(handle).unwrap().power().unwrap().max()
    };
    assert_eq!(max(&hal), None);
    room.device(&mi300x(), |_, slot| slot.hwmon.silent = false);
    hal.describe().unwrap();
    assert_eq!((max(&hal), hal.complaints()), (Some(w(750)), &[][..]));
}

/// hwmon: EPERM in reset.
#[test]
fn a_gpu_in_reset_is_busy_and_takes_the_cap_afterwards() {
    let Some(room) = TestMachine::profile("mi300x") else { return };
    let mut hal = room.open();
    room.device(&mi300x(), |_, slot| slot.hwmon.in_reset = true);
    let handle = crate::support::find(&hal, &mi300x());
    let failure = hal.apply(handle, Setting::Power(w(400))).unwrap_err();
    assert_eq!(failure.kind(), ErrorKind::Busy);
    let text = failure.to_string();
    assert!(
        text.contains("gpu-0000:0c:00.0") && text.contains("power1_cap") && text.contains("errno 1"),
        "{text}"
    );
    room.device(&mi300x(), |_, slot| slot.hwmon.in_reset = false);
    assert_eq!(release(&mut hal, &mi300x()), Ok(Released::Untouched), "nothing was touched");
    assert_eq!(effective(&mut hal, &mi300x(), w(400)), w(400));
}

/// hwmon: VF EINVAL.
#[test]
fn a_gpu_of_a_virtual_machine_says_that_it_takes_no_cap() {
    let Some(room) = TestMachine::profile("mi300x") else { return };
    room.device(&mi300x(), |_, slot| slot.hwmon.device = hwmon::HwmonChip::VirtualFunction);
    let mut hal = room.open();
    assert_eq!(apply(&mut hal, &mi300x(), w(400)), Err(ErrorKind::NotSupported));
    assert_eq!(release(&mut hal, &mi300x()), Ok(Released::Untouched));
    assert_eq!(sample(&mut hal, &mi300x()).unwrap().power_limit, Ok(w(750)));
}

/// hwmon: cap_max 0 on secondary die.
#[test]
fn the_secondary_die_of_a_module_is_no_domain() {
    let Some(room) = TestMachine::profile("mi300x") else { return };
    assert!(room.folder.0.join("sys/devices/pci0000:00/0000:0d:00.0/hwmon").is_dir());
    let hal = room.open();
    assert_eq!(keys(&hal), ["gpu-0000:0c:00.0", "socket-0", "socket-1"]);
    assert_eq!(hal.complaints(), []);
}

/// hwmon: hwmonN renumbering.
#[test]
fn a_key_stays_with_its_hardware_when_hwmon_is_numbered_anew() {
    let Some(room) = TestMachine::profile("mi300x") else { return };
    let mut hal = room.open();
    assert_eq!(effective(&mut hal, &mi300x(), w(400)), w(400));
    let old = crate::support::find(&hal, &mi300x());
    for base in [1, 8, 99] {
        room.machine.lock().renumber_hwmons(base);
        assert_eq!(hal.apply(old, Setting::Power(w(500))).unwrap_err().kind(), ErrorKind::Gone, "{base}");
        hal.describe().unwrap();
        assert_eq!(sample(&mut hal, &mi300x()).unwrap().power_limit, Ok(w(400)), "{base}");
    }
    assert_eq!(release(&mut hal, &mi300x()), Ok(Released::Restored));
    assert_eq!((room.cap(&mi300x()), room.cap(&Key::socket(0))), (750_000_000, 400_000_000));
}

/// HSMP: clip to max. The firmware clips by itself; the port has clamped before that.
#[test]
fn a_socket_is_clipped_at_its_maximum() {
    let Some(room) = TestMachine::profile("epyc") else { return };
    let mut hal = room.open();
    assert_eq!(effective(&mut hal, &Key::socket(0), w(500)), w(400));
    // Its maximum has fallen since it was listed.
    room.device(&Key::socket(0), |_, slot| slot.hwmon.max_uw = 300_000_000);
    assert_eq!(effective(&mut hal, &Key::socket(0), w(350)), w(300));
}

#[test]
fn a_stricter_cap_out_of_band_is_reported_as_clamped_and_does_not_stand_in_the_way_of_a_release() {
    let Some(room) = TestMachine::profile("epyc") else { return };
    let (mut hal, key) = (room.open(), Key::socket(0));
    assert_eq!(effective(&mut hal, &key, w(350)), w(350));
    room.device(&key, |_, slot| slot.hwmon.out_of_band_uw = Some(300_000_000));
    assert_eq!(sample(&mut hal, &key).unwrap().power_limit, Ok(w(300)));
    let (requested, in_force) = (Setting::Power(w(350)), Setting::Power(w(300)));
    let applied = apply(&mut hal, &key, w(350)).unwrap();
    assert_eq!(applied.outcome(), ApplyOutcome::Clamped { requested, effective: in_force });
    assert!(!applied.permits_more());
    assert_eq!(release(&mut hal, &key), Ok(Released::Restored));
    room.device(&key, |_, slot| slot.hwmon.out_of_band_uw = None);
    assert_eq!(room.cap(&key), 400_000_000);
}

#[test]
fn a_cap_that_stays_above_its_original_is_not_released() {
    let Some(room) = TestMachine::profile("mi300x") else { return };
    room.device(&mi300x(), |_, slot| slot.hwmon.cap_uw = 500_000_000);
    let mut hal = room.open();
    assert_eq!(effective(&mut hal, &mi300x(), w(600)), w(600));
    let at = room.device(&mi300x(), |at, _| at);
    let effect = Effect::Answers(b"600000000\n".to_vec());
    let fault = Fault { on: VirtualAttribute::Cap(at), direction: Direction::Read, effect, times: 1 };
    room.machine.lock().faults().add(fault);
    assert_eq!(release(&mut hal, &mi300x()), Err(ErrorKind::Busy));
    assert_eq!(release(&mut hal, &mi300x()), Ok(Released::Restored));
    assert_eq!(room.cap(&mi300x()), 500_000_000);
}

#[test]
fn sampling_does_not_wake_a_gpu_and_setting_its_cap_does() {
    let Some(room) = TestMachine::profile("mi300x") else { return };
    let mut hal = room.open();
    let asleep = || room.device(&mi300x(), |_, slot| slot.hwmon.asleep);
    room.device(&mi300x(), |_, slot| slot.hwmon.asleep = true);
    let before: Vec<_> = hal.domains().as_slice().to_vec();
    for _ in 0..3 {
        assert_eq!(sample(&mut hal, &mi300x()), Err(ErrorKind::Busy));
        assert_eq!(hal.describe().unwrap().as_slice(), before);
    }
    assert!(asleep());
    assert!(sample(&mut hal, &Key::socket(0)).is_ok(), "the others are read");
    assert_eq!(effective(&mut hal, &mi300x(), w(400)), w(400));
    assert!(!asleep());
    assert_eq!(sample(&mut hal, &mi300x()).unwrap().power_limit, Ok(w(400)));
    // A GPU that was never seen awake is woken once, to learn its range.
    room.device(&mi300x(), |_, slot| slot.hwmon.asleep = true);
    let hal = room.open();
    assert!(!asleep());
    assert_eq!(hal.domains().as_slice(), before);
}

#[test]
fn a_burst_of_errors_passes_and_a_lost_device_is_gone_until_it_is_back() {
    let Some(room) = TestMachine::profile("mi300x") else { return };
    let mut hal = room.open();
    let at = room.device(&mi300x(), |at, _| at);
    for errno in [libc::EIO, libc::ETIMEDOUT] {
        for on in [VirtualAttribute::Cap(at), VirtualAttribute::Power(at, PowerFile::Average)] {
            let fault = Fault { on, direction: Direction::Read, effect: Effect::Fails(errno), times: 2 };
            room.machine.lock().faults().add(fault);
        }
        let kind = if errno == libc::EIO { ErrorKind::Io } else { ErrorKind::Timeout };
        assert_eq!(sample(&mut hal, &mi300x()), Err(kind));
        assert_eq!(sample(&mut hal, &mi300x()), Err(kind));
        assert!(sample(&mut hal, &mi300x()).is_ok());
    }
    room.device(&mi300x(), |_, slot| slot.present = false);
    assert_eq!(sample(&mut hal, &mi300x()), Err(ErrorKind::Gone));
    assert_eq!(apply(&mut hal, &mi300x(), w(400)), Err(ErrorKind::Gone));
    hal.describe().unwrap();
    assert_eq!(keys(&hal), ["socket-0", "socket-1"]);
    room.device(&mi300x(), |_, slot| slot.present = true);
    hal.describe().unwrap();
    assert_eq!(effective(&mut hal, &mi300x(), w(400)), w(400));
}

/// amdgpu: the sensors, the shares and the table `gpu_metrics` of an MI300.
#[test]
fn a_gpu_reports_its_state_and_for_how_long_its_limit_holds_it_back() {
    let Some(room) = TestMachine::profile("mi300x") else { return };
    room.machine.lock().plant().set_gpu_load(0, Load::busy(1.0)).unwrap();
    let mut hal = room.open();
    apply(&mut hal, &mi300x(), w(350)).unwrap();
    let pass = |seconds| room.machine.lock().advance(Duration::from_secs(seconds));
    pass(5);
    let before = sample(&mut hal, &mi300x()).unwrap();
    assert_eq!(before.utilisation, Ok(Percent::HUNDRED));
    assert_eq!(before.memory.map(|it| (it.used_bytes() >> 30, it.total_bytes() >> 30)), Ok((96, 192)));
    let celsius = before.temperature.unwrap();
    assert!(Celsius::from_int(20) < celsius && celsius < Celsius::from_int(120), "{celsius}");
    assert_eq!(before.slowdowns, Err(ErrorKind::NotSupported), "its table counts, and shows no instant");
    pass(1);
    let after = sample(&mut hal, &mi300x()).unwrap();
    // The clock of this HAL stands still; the firmware counts its own periods.
    let share = ThrottledMeter::Periods.share(
        (before.at, before.throttled.unwrap()),
        (before.at + Micros::new(1), after.throttled.unwrap()),
    );
    assert_eq!(share, Some(Percent::HUNDRED));
    // A socket has none of it.
    let socket = sample(&mut hal, &Key::socket(0)).unwrap();
    assert_eq!(
        (socket.temperature.err(), socket.throttled.err()),
        (Some(ErrorKind::NotSupported), Some(ErrorKind::NotSupported))
    );
}

#[test]
fn a_gpu_that_sleeps_is_not_woken_to_learn_what_it_reports() {
    let Some(room) = TestMachine::profile("mi300x") else { return };
    let mut hal = room.open();
    let before: Vec<_> = hal.domains().as_slice().to_vec();
    room.device(&mi300x(), |_, slot| slot.hwmon.asleep = true);
    assert_eq!(hal.describe().unwrap().as_slice(), before);
    assert!(room.device(&mi300x(), |_, slot| slot.hwmon.asleep), "it still sleeps");
}
