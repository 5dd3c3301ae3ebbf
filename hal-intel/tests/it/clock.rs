//! The clocks of GPUs, limited as i915 and xe do it.

use crate::support::{
    TestMachine, Ticks, card, clocks, device, lock, mailbox, mhz, open, open_with, package, release, sample,
    w,
};
use power_hal::{ErrorKind, Key, PowerHal, Released};
use rig::faults::{Direction, Effect, Fault};
use rig::gpu_clock::ClockFile;
use rig::machine::VirtualAttribute;

/// The lowest, the highest and the boost clock of each part, MHz.
fn all(room: &TestMachine, key: &Key) -> Vec<(u32, u32, Option<u32>)> {
    clocks(room, key, |parts| parts.iter().map(|part| (part.low, part.high, part.boost)).collect())
}

#[test]
fn a_limit_of_i915_lowers_the_lowest_and_the_boost_clock_too_and_all_three_come_back() {
    let Some(room) = TestMachine::profile("max1550") else { return };
    let before = vec![(1_600, 1_600, Some(1_600))];
    assert_eq!(all(&room, &card()), before);
    let mut hal = open(&room.folder.0);
    // Down to whole steps of 50 MHz.
    assert_eq!(lock(&mut hal, &card(), mhz(849)), Ok(mhz(800)));
    assert_eq!(all(&room, &card()), [(800, 800, Some(800))]);
    assert_eq!(sample(&mut hal, &card()).unwrap().frequency_limit, Ok(mhz(800)));
    assert_eq!(lock(&mut hal, &card(), mhz(1_200)), Ok(mhz(1_200)));
    assert_eq!(all(&room, &card()), [(800, 1_200, Some(800))]);
    assert_eq!(lock(&mut hal, &card(), mhz(1)), Ok(mhz(300)), "RPn");
    assert_eq!(lock(&mut hal, &card(), mhz(9_000)), Ok(mhz(1_600)), "RP0");
    assert_eq!(release(&mut hal, &card()), Ok(Released::Restored));
    assert_eq!(all(&room, &card()), before);
    assert_eq!(release(&mut hal, &card()), Ok(Released::Untouched));
}

#[test]
fn every_tile_of_xe_gets_the_limit_and_a_part_for_media_stays_within_its_own_clocks() {
    let Some(room) = TestMachine::profile("max1550") else { return };
    let mut hal = open(&room.folder.0);
    assert_eq!(lock(&mut hal, &package(), mhz(800)), Ok(mhz(800)));
    assert_eq!(all(&room, &package()), [(800, 800, None); 2]);
    assert_eq!(lock(&mut hal, &mailbox(), mhz(2_000)), Ok(mhz(2_000)));
    assert_eq!(all(&room, &mailbox()), [(400, 2_000, None), (300, 1_500, None)]);
    // The next process puts back what was before the first.
    let mut hal = open_with(&room.folder.0, Ticks::default(), hal.originals().clone());
    for key in [package(), mailbox()] {
        assert_eq!(release(&mut hal, &key), Ok(Released::Restored));
    }
    assert_eq!(all(&room, &package()), [(1_600, 1_600, None); 2]);
    assert_eq!(all(&room, &mailbox()), [(400, 2_400, None), (300, 1_500, None)]);
}

#[test]
fn a_clock_that_its_owner_has_limited_is_given_back_as_it_was() {
    let Some(room) = TestMachine::profile("max1550") else { return };
    clocks(&room, &card(), |parts| (parts[0].low, parts[0].high, parts[0].boost) = (500, 1_000, Some(700)));
    let mut hal = open(&room.folder.0);
    assert_eq!(lock(&mut hal, &card(), mhz(400)), Ok(mhz(400)));
    assert_eq!(all(&room, &card()), [(400, 400, Some(400))]);
    // Somebody raises the lowest clock above what the owner had as the highest one.
    clocks(&room, &card(), |parts| (parts[0].low, parts[0].high) = (1_500, 1_600));
    assert_eq!(release(&mut hal, &card()), Ok(Released::Restored));
    assert_eq!(all(&room, &card()), [(500, 1_000, Some(700))]);
}

#[test]
fn a_refused_clock_changes_nothing_and_a_part_that_sleeps_tells_none() {
    let Some(room) = TestMachine::profile("max1550") else { return };
    let mut hal = open(&room.folder.0);
    let at = device(&room, &mailbox(), |at, _| at);
    let fault = |file, direction, effect| {
        let fault = Fault { on: VirtualAttribute::GpuClock(at, file), direction, effect, times: 1 };
        room.machine.lock().faults().add(fault);
    };
    for (errno, kind) in [
        (libc::EACCES, ErrorKind::Locked),
        (libc::EAGAIN, ErrorKind::Busy),
        (libc::EINVAL, ErrorKind::OutOfRange),
        (libc::EIO, ErrorKind::Io),
    ] {
        fault(ClockFile::High(0), Direction::Write, Effect::Fails(errno));
        assert_eq!(lock(&mut hal, &mailbox(), mhz(800)), Err(kind));
        assert_eq!(release(&mut hal, &mailbox()), Ok(Released::Untouched));
    }
    for part in 0..2 {
        fault(ClockFile::Actual(part), Direction::Read, Effect::Answers(b"0\n".to_vec()));
    }
    let asleep = sample(&mut hal, &mailbox()).unwrap();
    assert_eq!((asleep.frequency, asleep.power_limit), (Err(ErrorKind::Busy), Ok(w(600))));
    // Nonsense is no clock.
    for text in [&b"\n"[..], b"-5\n", b"99999\n", b"0\n"] {
        fault(ClockFile::High(0), Direction::Read, Effect::Answers(text.to_vec()));
        assert_eq!(
            sample(&mut hal, &mailbox()).unwrap().frequency_limit,
            Err(ErrorKind::BadData),
            "{text:?}"
        );
    }
    assert!(sample(&mut hal, &mailbox()).unwrap().frequency_limit.is_ok());
}

#[test]
fn a_gpu_that_sleeps_keeps_its_known_range_and_is_not_woken() {
    let Some(room) = TestMachine::profile("max1550") else { return };
    let mut hal = open(&room.folder.0);
    let before: Vec<_> = hal.domains().as_slice().to_vec();
    assert!(before.iter().all(|domain| domain.frequency().is_some() && domain.tells_frequency()));
    device(&room, &package(), |_, slot| slot.hwmon.asleep = true);
    assert_eq!(hal.describe().unwrap().as_slice(), before);
    assert!(device(&room, &package(), |_, slot| slot.hwmon.asleep));
}
