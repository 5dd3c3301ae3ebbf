//! The documented behaviour of the drivers, each row on virtual hardware that answers as they do.

use crate::support::{
    Hal, TestMachine, apply, card, device, effective, find, keys, mailbox, most, open, open_with, package,
    release, sample, w,
};
use plant::Load;
use power_hal::contract::RefusableOriginals;
use power_hal::{
    ApplyOutcome, Error, ErrorKind, Key, OriginalsInMemory, PowerHal, Released, Setting, Slowdown, Slowdowns,
    Throttled,
};
use power_units::{Celsius, MicroWatts};
use rig::faults::{Direction, Effect, Fault};
use rig::hwmon::{self, IntelGpu, Switch};
use rig::machine::{PowerFile, VirtualAttribute};
use std::path::Path;
use std::time::Duration;

fn intel(room: &TestMachine, key: &Key, change: impl FnOnce(&mut IntelGpu)) {
    device(room, key, |_, slot| match &mut slot.hwmon.device {
        hwmon::HwmonChip::Intel(intel) => change(intel),
        other @ (hwmon::HwmonChip::Amdgpu { .. }
        | hwmon::HwmonChip::VirtualFunction
        | hwmon::HwmonChip::Hsmp) => {
            panic!("{other:?}")
        }
    });
}

fn cap(room: &TestMachine, key: &Key) -> u64 {
    device(room, key, |_, slot| slot.hwmon.cap_in_force_uw())
}

/// A process that starts again with the journal.
fn again(root: &Path, hal: &mut Hal) -> Hal {
    open_with(root, crate::support::Ticks::default(), hal.originals().clone())
}

#[test]
fn the_three_kinds_of_cards_are_found_metered_and_capped() {
    let Some(room) = TestMachine::profile("max1550") else { return };
    let mut hal = open(&room.folder.0);
    assert_eq!(keys(&hal), ["gpu-0000:4d:00.0", "gpu-0000:4e:00.0", "gpu-0000:4f:00.0"]);
    for key in [card(), package(), mailbox()] {
        let sampled = sample(&mut hal, &key).unwrap();
        assert!(sampled.meter.is_ok());
        assert_eq!(sampled.power_limit, Ok(w(600)));
        // The register's steps are 1/8 W, and the driver rounds to the nearest: 400.99 W would become 401 W.
        let applied = apply(&mut hal, &key, MicroWatts::new(400_990_000)).unwrap();
        assert_eq!((applied.outcome(), applied.effective()), (ApplyOutcome::Exact, Setting::Power(w(400))));
        assert_eq!(cap(&room, &key), 400_000_000);
        assert_eq!(release(&mut hal, &key), Ok(Released::Restored));
        assert_eq!(cap(&room, &key), 600_000_000);
    }
}

#[test]
fn what_the_card_clamps_is_said() {
    let Some(room) = TestMachine::profile("max1550") else { return };
    device(&room, &card(), |_, slot| slot.hwmon.min_uw = 100_000_000);
    let mut hal = open(&room.folder.0);
    let low = apply(&mut hal, &card(), w(50)).unwrap();
    assert!(low.permits_more());
    assert_eq!(low.effective(), Setting::Power(w(100)));
    assert_eq!(effective(&mut hal, &card(), w(9_000)), w(600));
    assert_eq!(apply(&mut hal, &card(), MicroWatts::ZERO), Err(ErrorKind::OutOfRange));
}

#[test]
fn a_limit_in_force_above_the_rated_one_is_in_the_range_and_restored() {
    let Some(room) = TestMachine::profile("max1550") else { return };
    device(&room, &card(), |_, slot| slot.hwmon.cap_uw = 650_125_000);
    let mut hal = open(&room.folder.0);
    assert_eq!(most(&hal, &card()), Some(MicroWatts::new(650_125_000)));
    assert_eq!(effective(&mut hal, &card(), w(400)), w(400));
    assert_eq!(release(&mut hal, &card()), Ok(Released::Restored));
    assert_eq!(cap(&room, &card()), 650_125_000, "to its last step");
}

#[test]
fn a_cap_behind_a_mailbox_is_never_taken_for_the_maximum() {
    let Some(room) = TestMachine::profile("max1550") else { return };
    let mut hal = open(&room.folder.0);
    assert_eq!(effective(&mut hal, &mailbox(), w(300)), w(300));
    hal.describe().unwrap();
    assert_eq!(most(&hal, &mailbox()), Some(w(600)), "the rated limit reads 300 W now");
    // The next process reads it from the journal.
    let mut hal = again(&room.folder.0, &mut hal);
    assert_eq!(most(&hal, &mailbox()), Some(w(600)));
    assert_eq!(effective(&mut hal, &mailbox(), w(450)), w(450));
    assert_eq!(release(&mut hal, &mailbox()), Ok(Released::Restored));
    assert_eq!(cap(&room, &mailbox()), 600_000_000);
}

#[test]
fn a_locked_register_is_read_back_and_not_believed() {
    let Some(room) = TestMachine::profile("max1550") else { return };
    intel(&room, &card(), |intel| intel.locked = true);
    let mut hal = open(&room.folder.0);
    let applied = apply(&mut hal, &card(), w(400)).unwrap();
    assert!(applied.permits_more());
    assert_eq!(applied.effective(), Setting::Power(w(600)));
}

#[test]
fn a_firmware_that_refuses_is_locked_and_a_busy_one_is_busy() {
    let Some(room) = TestMachine::profile("max1550") else { return };
    let mut hal = open(&room.folder.0);
    let at = device(&room, &mailbox(), |at, _| at);
    for (errno, kind) in [
        (libc::EACCES, ErrorKind::Locked),
        (libc::EPERM, ErrorKind::Locked),
        (libc::EBUSY, ErrorKind::Busy),
        (libc::ETIMEDOUT, ErrorKind::Timeout),
        (libc::EIO, ErrorKind::Io),
    ] {
        let on = VirtualAttribute::Cap(at);
        let fault = Fault { on, direction: Direction::Write, effect: Effect::Fails(errno), times: 1 };
        room.machine.lock().faults().add(fault);
        assert_eq!(apply(&mut hal, &mailbox(), w(400)), Err(kind), "errno {errno}");
        assert_eq!(release(&mut hal, &mailbox()), Ok(Released::Untouched), "nothing was touched");
    }
    assert_eq!(effective(&mut hal, &mailbox(), w(400)), w(400));
}

#[test]
fn a_limit_that_cannot_be_switched_off_again_is_left_at_its_largest_and_said() {
    // On i915 the hardware refuses; xe would hold the card at 0 W, and gets no such order.
    for (key, switch) in [(card(), Switch::Refused(libc::ENODEV)), (package(), Switch::Nothing)] {
        let Some(room) = TestMachine::profile("max1550") else { return };
        device(&room, &key, |_, slot| slot.hwmon.cap_uw = hwmon::OFF_UW);
        intel(&room, &key, |intel| intel.switch = switch);
        let mut hal = open(&room.folder.0);
        assert_eq!(effective(&mut hal, &key, w(400)), w(400));
        for _ in 0..2 {
            let handle = find(&hal, &key);
            let failure = hal.release(handle).unwrap_err();
            assert_eq!(failure.kind(), ErrorKind::NotSupported);
            assert!(failure.to_string().contains("switched off"), "{failure}");
            assert_eq!(cap(&room, &key), 600_000_000, "{switch:?}");
        }
        // The original is still known: if somebody switches the limit off, that restores it.
        device(&room, &key, |_, slot| slot.hwmon.cap_uw = hwmon::OFF_UW);
        assert_eq!(release(&mut hal, &key), Ok(Released::Restored), "{switch:?}");
    }
}

#[test]
fn a_lost_gpu_is_gone_until_it_is_back() {
    let Some(room) = TestMachine::profile("max1550") else { return };
    let mut hal = open(&room.folder.0);
    let at = device(&room, &package(), |at, _| at);
    for on in [VirtualAttribute::Cap(at), VirtualAttribute::Power(at, PowerFile::Energy)] {
        let effect = Effect::Fails(libc::ENODEV);
        room.machine.lock().faults().add(Fault { on, direction: Direction::Read, effect, times: 1 });
    }
    assert_eq!(sample(&mut hal, &package()), Err(ErrorKind::Gone));
    assert!(sample(&mut hal, &package()).is_ok());
    device(&room, &package(), |_, slot| slot.present = false);
    assert_eq!(sample(&mut hal, &package()), Err(ErrorKind::Gone));
    assert_eq!(apply(&mut hal, &package(), w(400)), Err(ErrorKind::Gone));
    hal.describe().unwrap();
    assert_eq!(keys(&hal), ["gpu-0000:4d:00.0", "gpu-0000:4f:00.0"]);
    device(&room, &package(), |_, slot| slot.present = true);
    hal.describe().unwrap();
    assert_eq!(effective(&mut hal, &package(), w(400)), w(400));
}

#[test]
fn the_counter_moves_with_what_the_plant_draws() {
    let Some(room) = TestMachine::profile("max1550") else { return };
    let mut hal = open_with(
        &room.folder.0,
        crate::support::Ticks::default(),
        RefusableOriginals::new(OriginalsInMemory::new()),
    );
    let energy = |hal: &mut Hal| match sample(hal, &card()).unwrap().meter {
        Ok(power_hal::Measured::Energy(energy)) => energy.get(),
        other => panic!("{other:?}"),
    };
    let before = energy(&mut hal);
    room.machine.lock().advance(std::time::Duration::from_secs(1));
    let drawn = energy(&mut hal) - before;
    assert!((500_000_000..=700_000_000).contains(&drawn), "{drawn} µJ in a second at full load");
}

/// i915 and xe show what slows a GPU as files of the instant, at different places.
#[test]
fn a_gpu_reports_its_temperature_and_whether_its_limit_holds_it_back() {
    let Some(room) = TestMachine::profile("max1550") else { return };
    room.machine.lock().plant().set_gpu_load(0, Load::busy(1.0)).unwrap();
    let mut hal = open(&room.folder.0);
    for key in [card(), package(), mailbox()] {
        let idle = sample(&mut hal, &key).unwrap();
        assert!(idle.temperature.unwrap() > Celsius::from_int(10));
        assert!(idle.slowdowns.is_ok() && idle.throttled.is_ok());
        assert_eq!(
            (idle.utilisation, idle.memory),
            (Err(ErrorKind::NotSupported), Err(ErrorKind::NotSupported))
        );
    }
    let fed = hal.domains().as_slice()[0].key().to_owned();
    apply(&mut hal, &fed, w(200)).unwrap();
    room.machine.lock().advance(Duration::from_secs(5));
    let told = sample(&mut hal, &fed).unwrap();
    assert_eq!(told.slowdowns, Ok(Slowdowns::NONE.with(Slowdown::PowerLimit)));
    assert_eq!(told.throttled, Ok(Throttled::Instant(true)));
}
