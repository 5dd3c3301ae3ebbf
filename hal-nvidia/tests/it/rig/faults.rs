//! All faults that a campaign can cause behind the library, each observed by the HAL.

use super::{Bench, energy_uj, sample, set};
use crate::support::w;
use ::rig::faults::{Direction, Effect, Fault};
use ::rig::machine::VirtualAttribute;
use ::rig::nvidia::CardFile;
use hal_nvidia::Absent;
use nvml_stub::code;
use power_hal::{ErrorKind, PowerHal, Setting};
use std::time::{Duration, Instant};

const SET: &str = "nvmlDeviceSetPowerManagementLimit";

impl Bench {
    fn fault(&self, fault: Fault) {
        self.room.machine.lock().faults().add(fault);
    }
}

#[test]
fn a_lost_card_is_gone_until_it_is_back_and_the_others_stay() {
    let Some(bench) = Bench::new() else { return };
    let mut hal = bench.open();
    let (key, other) = (bench.key(2), bench.key(3));
    bench.card(2, |card| card.answers = Some(code::GPU_IS_LOST));
    assert_eq!(sample(&mut hal, &key), Err(ErrorKind::Gone));
    assert_eq!(set(&mut hal, &key, w(400)), Err(ErrorKind::Gone));
    assert!(sample(&mut hal, &other).is_ok());
    assert_eq!(hal.describe().unwrap().len(), 7);
    bench.card(2, |card| card.answers = None);
    assert_eq!(hal.describe().unwrap().len(), 8);
    assert_eq!(set(&mut hal, &key, w(400)), Ok(Setting::Power(w(400))));
}

#[test]
fn a_reload_of_the_driver_resets_limits_and_counters() {
    let Some(bench) = Bench::new() else { return };
    let mut hal = bench.open();
    let key = bench.key(7);
    set(&mut hal, &key, w(400)).unwrap();
    bench.pass(5_000);
    assert!(energy_uj(&mut hal, &key) > 2_000_000_000);
    assert!(bench.watts(7) < 408.0);
    bench.room.machine.lock().reload_nvidia();
    assert_eq!(sample(&mut hal, &key), Err(ErrorKind::Gone));
    hal.describe().unwrap();
    assert_eq!(sample(&mut hal, &key).unwrap().power_limit, Ok(w(700)));
    assert_eq!(energy_uj(&mut hal, &key), 0);
    bench.pass(5_000);
    assert!(bench.watts(7) > 690.0, "nothing holds the card any more");
}

#[test]
fn an_unloaded_driver_is_absent_until_it_is_loaded() {
    let Some(bench) = Bench::new() else { return };
    let mut hal = bench.open();
    bench.room.machine.lock().load_nvidia(false);
    assert_eq!(sample(&mut hal, &bench.key(0)), Err(ErrorKind::Gone));
    assert!(hal.describe().unwrap().is_empty());
    assert_eq!(hal.absent(), Some(&Absent::Driver { code: code::DRIVER_NOT_LOADED }));
    bench.room.machine.lock().load_nvidia(true);
    assert_eq!(hal.describe().unwrap().len(), 8);
}

#[test]
fn who_may_not_set_a_limit_is_told_so_and_changes_nothing() {
    let Some(bench) = Bench::new() else { return };
    let mut hal = bench.open();
    let key = bench.key(1);
    bench.card(1, |card| card.settable = false);
    assert_eq!(set(&mut hal, &key, w(400)), Err(ErrorKind::PermissionDenied));
    assert_eq!(bench.card(1, |card| card.limit_mw), 700_000);
    assert_eq!(sample(&mut hal, &key).unwrap().power_limit, Ok(w(700)));
}

#[test]
fn a_call_fails_as_often_as_it_is_told_to() {
    let Some(bench) = Bench::new() else { return };
    let mut hal = bench.open();
    let (key, other) = (bench.key(1), bench.key(2));
    bench.fault(Fault::nvml(Some(1), SET, code::IN_USE, 2));
    for _ in 0..2 {
        assert_eq!(set(&mut hal, &key, w(400)), Err(ErrorKind::Busy));
        assert_eq!(bench.card(1, |card| card.limit_mw), 700_000);
        assert_eq!(set(&mut hal, &other, w(500)), Ok(Setting::Power(w(500))));
    }
    assert_eq!(set(&mut hal, &key, w(400)), Ok(Setting::Power(w(400))));
    // A fault of the call that finds a card occurs once for each card and enumeration.
    let find = "nvmlDeviceGetHandleByIndex_v2";
    bench.fault(Fault::nvml(Some(1), find, code::UNKNOWN, 1));
    assert_eq!(hal.describe().unwrap().len(), 7);
    assert_eq!(hal.describe().unwrap().len(), 8);
    // A fault of a call without a card: the list cannot be built.
    bench.fault(Fault::nvml(None, "nvmlDeviceGetCount_v2", code::UNKNOWN, 1));
    assert!(hal.describe().is_err());
    assert_eq!(hal.describe().unwrap().len(), 8);
}

#[test]
#[expect(clippy::disallowed_methods, reason = "that a call takes its time is what is tested")]
fn a_call_that_hangs_is_waited_for_and_answers_then() {
    let Some(bench) = Bench::new() else { return };
    let mut hal = bench.open();
    let key = bench.key(0);
    let effect = Effect::Takes(Duration::from_millis(300));
    let on = VirtualAttribute::NvmlCall(Some(0), "nvmlDeviceGetTotalEnergyConsumption");
    bench.fault(Fault { on, direction: Direction::Read, effect, times: 1 });
    let (begun, _) = (Instant::now(), sample(&mut hal, &bench.key(1)).unwrap());
    let unhindered = begun.elapsed();
    let begun = Instant::now();
    assert!(sample(&mut hal, &key).is_ok());
    assert!(begun.elapsed() >= Duration::from_millis(300), "{:?}, else {unhindered:?}", begun.elapsed());
}

#[test]
fn a_number_that_the_firmware_does_not_give_leaves_the_others() {
    let Some(bench) = Bench::new() else { return };
    let mut hal = bench.open();
    let key = bench.key(4);
    let on = VirtualAttribute::Nvml(4, CardFile::Energy);
    bench.fault(Fault { on, direction: Direction::Read, effect: Effect::Fails(libc::EIO), times: 1 });
    let sampled = sample(&mut hal, &key).unwrap();
    assert_eq!((sampled.meter, sampled.power_limit), (Err(ErrorKind::Io), Ok(w(700))));
    assert!(sample(&mut hal, &key).unwrap().meter.is_ok());
}

#[test]
fn cards_keep_their_names_when_the_driver_lists_them_in_another_order() {
    let Some(bench) = Bench::new() else { return };
    let mut hal = bench.open();
    let key = bench.key(0);
    let order = || bench.room.folder.get("nvml/order").lines().map(str::to_owned).collect::<Vec<_>>();
    let mut before = order();
    bench.room.machine.lock().renumber_nvidia();
    before.reverse();
    assert_eq!(order(), before);
    hal.describe().unwrap();
    set(&mut hal, &key, w(250)).unwrap();
    assert_eq!(bench.card(0, |card| card.limit_mw), 250_000);
}
