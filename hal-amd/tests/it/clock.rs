//! The clock of an Instinct GPU, limited as amdgpu does it.

use crate::support::{Hal, TestMachine, Ticks, find, lock, mhz, mi300x, release, sample};
use hal_amd::{Amd, DeviceSelection, Hwmon};
use hal_files::Root;
use power_hal::{Control, ErrorKind, Original, Originals, PowerHal, Released};
use power_units::KiloHertz;
use rig::faults::{Direction, Effect, Fault};
use rig::gpu_clock::{AmdClock, ClockFile, HwmonClock};
use rig::machine::VirtualAttribute;

/// Changes or reads the clock without the driver.
fn clock<R>(room: &TestMachine, by: impl FnOnce(&mut AmdClock) -> R) -> R {
    room.device(&mi300x(), |_, slot| match &mut slot.hwmon.clock {
        Some(HwmonClock::Amd(clock)) => by(clock),
        other => panic!("{other:?}"),
    })
}

/// The level, and the lowest and the highest clock in force.
fn now(room: &TestMachine) -> (&'static str, (u32, u32)) {
    clock(room, |clock| (clock.level, clock.in_force))
}

fn fault(room: &TestMachine, file: ClockFile, direction: Direction, effect: Effect) {
    let at = room.device(&mi300x(), |at, _| at);
    let on = VirtualAttribute::GpuClock(at, file);
    room.machine.lock().faults().add(Fault { on, direction, effect, times: 1 });
}

fn range(hal: &Hal<Hwmon>) -> Option<(KiloHertz, KiloHertz)> {
    let domain = hal.domains().get(find(hal, &mi300x())).unwrap();
    domain.frequency().map(|limit| (limit.lower(), limit.upper()))
}

/// A process that starts again with the journal.
fn again(room: &TestMachine, hal: &mut Hal<Hwmon>) -> Hal<Hwmon> {
    let backend = Hwmon::new(Root::at(&room.folder.0), DeviceSelection::All);
    Amd::open(backend, Ticks::default(), hal.originals().clone()).unwrap()
}

#[test]
fn a_clock_is_limited_in_the_level_manual_and_level_and_clock_come_back() {
    let Some(room) = TestMachine::profile("mi300x") else { return };
    let mut hal = room.open();
    // The driver refuses a highest clock that is not above the lowest one.
    assert_eq!(range(&hal), Some((mhz(140), mhz(2_100))));
    assert_eq!(lock(&mut hal, &mi300x(), mhz(1_209)), Ok(mhz(1_200)));
    assert_eq!(now(&room), ("manual", (132, 1_200)));
    let sampled = sample(&mut hal, &mi300x()).unwrap();
    assert_eq!(sampled.frequency_limit, Ok(mhz(1_200)));
    assert!(sampled.frequency.unwrap() <= mhz(1_200));
    assert_eq!(lock(&mut hal, &mi300x(), mhz(1)), Ok(mhz(140)));
    assert_eq!(lock(&mut hal, &mi300x(), mhz(9_000)), Ok(mhz(2_100)));
    assert_eq!(now(&room), ("manual", (132, 2_100)));
    lock(&mut hal, &mi300x(), mhz(800)).unwrap();
    // The next process knows the range from the journal.
    let mut hal = again(&room, &mut hal);
    assert_eq!(range(&hal), Some((mhz(140), mhz(2_100))));
    assert_eq!(release(&mut hal, &mi300x()), Ok(Released::Restored));
    assert_eq!(now(&room), ("auto", (132, 2_100)));
    assert_eq!(release(&mut hal, &mi300x()), Ok(Released::Untouched));
}

#[test]
fn what_its_owner_has_set_is_never_exceeded_and_comes_back() {
    for (level, low, least) in [("manual", 500, 510), ("perf_determinism", 132, 140)] {
        let Some(room) = TestMachine::profile("mi300x") else { return };
        clock(&room, |clock| (clock.level, clock.in_force) = (level, (low, 1_500)));
        let mut hal = room.open();
        assert_eq!(range(&hal), Some((mhz(least), mhz(1_500))));
        assert_eq!(lock(&mut hal, &mi300x(), mhz(9_000)), Ok(mhz(1_500)));
        assert_eq!(lock(&mut hal, &mi300x(), mhz(700)), Ok(mhz(700)));
        assert_eq!(now(&room), (level, (low, 700)), "the level takes limits, and stays");
        // Somebody resets it: that shows, and what the owner had comes back all the same.
        clock(&room, |clock| (clock.level, clock.in_force) = ("auto", (132, 2_100)));
        assert_eq!(sample(&mut hal, &mi300x()).unwrap().frequency_limit, Ok(mhz(2_100)));
        assert_eq!(release(&mut hal, &mi300x()), Ok(Released::Restored));
        assert_eq!(now(&room), (level, (low, 1_500)));
    }
}

#[test]
fn a_refused_clock_leaves_the_level_as_it_was() {
    let Some(room) = TestMachine::profile("mi300x") else { return };
    let mut hal = room.open();
    for file in [ClockFile::Table, ClockFile::Level] {
        for (errno, kind) in [
            (libc::EINVAL, ErrorKind::OutOfRange),
            (libc::EPERM, ErrorKind::Busy),
            (libc::EIO, ErrorKind::Io),
        ] {
            fault(&room, file, Direction::Write, Effect::Fails(errno));
            assert_eq!(lock(&mut hal, &mi300x(), mhz(800)), Err(kind), "{file:?}");
            assert_eq!(now(&room), ("auto", (132, 2_100)), "{file:?}");
            assert_eq!(release(&mut hal, &mi300x()), Ok(Released::Untouched), "{file:?}");
            assert_eq!(clock(&room, |clock| clock.edited_table()), (132, 2_100), "no line is left behind");
        }
    }
    // A line that stayed in the driver is not put in force with the next one.
    clock(&room, |clock| clock.edited = (Some(1_000), Some(900)));
    assert_eq!(lock(&mut hal, &mi300x(), mhz(800)), Ok(mhz(800)));
    assert_eq!(now(&room), ("manual", (132, 800)));
}

/// A process that is killed between a line and its `c` leaves a clock in the driver that no file shows. In a level that takes
/// limits everything that shows is then as the owner has set it.
#[test]
fn a_line_that_was_not_put_in_force_before_a_kill_does_not_outlive_a_release() {
    for (level, owners) in [("manual", (500, 1_500)), ("auto", (132, 2_100))] {
        for (low, high) in [(Some(132), None), (Some(132), Some(800))] {
            let Some(room) = TestMachine::profile("mi300x") else { return };
            clock(&room, |clock| (clock.level, clock.in_force) = (level, owners));
            let mut hal = room.open();
            lock(&mut hal, &mi300x(), mhz(1_000)).unwrap();
            // The journal has the original, and what shows is again as it was before the first write.
            clock(&room, |clock| {
                (clock.level, clock.in_force, clock.edited) = (level, owners, (low, high));
            });
            let mut hal = again(&room, &mut hal);
            assert_eq!(release(&mut hal, &mi300x()), Ok(Released::Restored), "{level} {low:?} {high:?}");
            assert_eq!(now(&room), (level, owners), "{low:?} {high:?}");
            assert_eq!(clock(&room, |clock| clock.edited_table()), owners, "{level} {low:?} {high:?}");
            assert_eq!(release(&mut hal, &mi300x()), Ok(Released::Untouched));
        }
    }
}

/// What the driver refuses is said and tried again, and the level is not left changed for it.
#[test]
fn an_original_that_is_refused_leaves_the_level_as_it_was_and_is_kept() {
    let Some(room) = TestMachine::profile("mi300x") else { return };
    let mut hal = room.open();
    lock(&mut hal, &mi300x(), mhz(1_000)).unwrap();
    clock(&room, |clock| (clock.level, clock.in_force) = ("auto", (132, 2_100)));
    fault(&room, ClockFile::Table, Direction::Write, Effect::Fails(libc::EIO));
    assert_eq!(release(&mut hal, &mi300x()), Err(ErrorKind::Io));
    assert_eq!(now(&room), ("auto", (132, 2_100)));
    assert_eq!(release(&mut hal, &mi300x()), Ok(Released::Restored));
    assert_eq!(now(&room), ("auto", (132, 2_100)));
}

#[test]
fn a_level_that_is_not_known_could_not_be_restored_so_nothing_is_written() {
    let Some(room) = TestMachine::profile("mi300x") else { return };
    let mut hal = room.open();
    fault(&room, ClockFile::Level, Direction::Read, Effect::Answers(b"turbo\n".to_vec()));
    assert_eq!(lock(&mut hal, &mi300x(), mhz(800)), Err(ErrorKind::BadData));
    assert_eq!(now(&room), ("auto", (132, 2_100)));
}

#[test]
fn a_table_of_another_form_is_left_alone_and_a_broken_one_is_no_clock() {
    let Some(room) = TestMachine::profile("mi300x") else { return };
    let radeon = b"OD_SCLK:\n0: 500Mhz\n1: 2475Mhz\nOD_RANGE:\nSCLK:     500Mhz       3000Mhz\n";
    fault(&room, ClockFile::Table, Direction::Read, Effect::Answers(radeon.to_vec()));
    let mut hal = room.open();
    assert_eq!(range(&hal), None);
    assert_eq!(sample(&mut hal, &mi300x()).unwrap().frequency_limit, Err(ErrorKind::NotSupported));
    assert_eq!(hal.complaints(), [], "a card of another kind is no trouble");
    // What could not be read is looked for again, and what is known stays known.
    hal.describe().unwrap();
    let known = range(&hal);
    assert_eq!(known, Some((mhz(140), mhz(2_100))));
    fault(&room, ClockFile::Table, Direction::Read, Effect::Answers(b"unavailable\n".to_vec()));
    hal.describe().unwrap();
    assert_eq!(range(&hal), known);
    fault(&room, ClockFile::Table, Direction::Read, Effect::Answers(b"OD_SCLK:\n0: 132Mhz\n".to_vec()));
    assert_eq!(sample(&mut hal, &mi300x()).unwrap().frequency_limit, Err(ErrorKind::BadData));
}

#[test]
fn a_spoilt_journal_is_not_written_to_the_clock() {
    for words in [&[0, 132][..], &[10, 132, 2_100], &[0, 2_100, 132], &[0, 0, u64::MAX]] {
        let Some(room) = TestMachine::profile("mi300x") else { return };
        let mut hal = room.open();
        let original = Original::new(1, words).unwrap();
        hal.originals().keep(&mi300x(), Control::Frequency, &original).unwrap();
        assert_eq!(release(&mut hal, &mi300x()), Err(ErrorKind::BadData), "{words:?}");
        assert_eq!(now(&room), ("auto", (132, 2_100)), "{words:?}");
    }
}

#[test]
fn a_gpu_that_sleeps_keeps_its_known_range_and_is_not_woken() {
    let Some(room) = TestMachine::profile("mi300x") else { return };
    let mut hal = room.open();
    let known = range(&hal);
    room.device(&mi300x(), |_, slot| slot.hwmon.asleep = true);
    hal.describe().unwrap();
    assert_eq!(range(&hal), known);
    assert!(room.device(&mi300x(), |_, slot| slot.hwmon.asleep));
}
