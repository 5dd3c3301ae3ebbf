//! The HAL on the GPUs of the rig: through the library of the mounted machine, with the plant behind it.

mod faults;

use crate::support::w;
use ::rig::library::NVML;
use ::rig::nvidia::NvidiaGpu;
use ::rig::test_machine::{TestMachine, Ticks};
use hal_nvidia::{Library, LimitScope, Nvidia};
use nvml_stub::code;
use nvml_wrapper::Nvml;
use nvml_wrapper::enum_wrappers::device::TemperatureSensor;
use plant::{Load, PlantDomain};
use power_hal::contract::{ContractMode, ContractWorld, DomainFault, RefusableOriginals, Rule, check};
use power_hal::{
    Control, Error, ErrorKind, Handle, Key, Measured, OriginalsInMemory, PowerHal, Reading, Sample, Setting,
    Slowdown,
};
use power_units::{Celsius, KiloHertz, MicroWatts, Micros, Percent};
use std::path::PathBuf;
use std::process::Command;

type Journal = RefusableOriginals<OriginalsInMemory<8>>;
type Hal = Nvidia<Ticks, Journal>;

/// A machine with eight GPUs, and the clock of the HAL on it.
struct Bench {
    room: TestMachine,
    ticks: Ticks,
}

impl Bench {
    fn new() -> Option<Self> {
        Some(Self { room: TestMachine::profile("gpu-2s8")?, ticks: Ticks::default() })
    }

    fn library(&self) -> PathBuf {
        self.room.folder.0.join("lib").join(NVML)
    }

    fn open(&self) -> Hal {
        self.open_with(RefusableOriginals::new(OriginalsInMemory::new()))
    }

    fn open_with(&self, journal: Journal) -> Hal {
        Nvidia::open(Library::at(self.library()), LimitScope::Gpu, self.ticks.clone(), journal).unwrap()
    }

    fn pass(&self, milliseconds: u64) {
        self.room.advance(&self.ticks, Micros::new(milliseconds * 1_000));
    }

    fn key(&self, at: usize) -> Key {
        Key::gpu(&self.room.machine.lock().nvidia()[at].uuid).unwrap()
    }

    /// The index of the card with a key.
    fn at(&self, key: &Key) -> usize {
        (0..8).find(|&at| self.key(at) == *key).unwrap()
    }

    fn card<R>(&self, at: usize, by: impl FnOnce(&mut NvidiaGpu) -> R) -> R {
        let mut result = None;
        self.room.machine.lock().change_nvidia(at, |card| result = Some(by(card)));
        result.unwrap()
    }

    /// The real draw in the plant.
    fn watts(&self, at: usize) -> f64 {
        self.room.machine.lock().plant().watts(PlantDomain::Gpu(at)).unwrap()
    }
}

fn find(hal: &Hal, key: &Key) -> Handle {
    hal.domains().find(key).unwrap()
}

fn sample(hal: &mut Hal, key: &Key) -> Result<Sample, ErrorKind> {
    let mut batch = [Reading::new(find(hal, key))];
    hal.sample(&mut batch);
    batch[0].outcome
}

fn energy_uj(hal: &mut Hal, key: &Key) -> u64 {
    match sample(hal, key).unwrap().meter {
        Ok(Measured::Energy(energy)) => energy.get(),
        other => panic!("{other:?}"),
    }
}

fn set(hal: &mut Hal, key: &Key, limit: MicroWatts) -> Result<Setting, ErrorKind> {
    let handle = find(hal, key);
    hal.apply(handle, Setting::Power(limit))
        .map(|applied| applied.effective())
        .map_err(|failure| failure.kind())
}

impl ContractWorld<Hal> for Bench {
    fn in_force(&mut self, domain: &Key, control: Control) -> Option<Setting> {
        if control == Control::Frequency {
            let (clocks, lock) = self.card(self.at(domain), |card| (card.clocks_mhz, card.lock_mhz));
            let mhz = lock.map_or(clocks?[1], |(_, highest)| highest);
            return Some(Setting::Frequency(KiloHertz::from_int(i32::try_from(mhz * 1_000).unwrap())));
        }
        let enforced_mw = self.card(self.at(domain), |card| card.enforced_mw());
        (control == Control::Power).then(|| Setting::Power(MicroWatts::new(u64::from(enforced_mw) * 1_000)))
    }

    fn advance(&mut self, span: Micros) -> bool {
        self.room.advance(&self.ticks, span);
        true
    }

    fn cause(&mut self, trouble: DomainFault) -> bool {
        match trouble {
            // NVML has no lock: a process without permission gets a permission error.
            DomainFault::Locked(_) | DomainFault::Moved(_, Setting::Frequency(_) | Setting::Throttle(_)) => {
                return false;
            }
            DomainFault::Unreadable(domain) => {
                self.card(self.at(&domain), |card| card.answers = Some(code::UNKNOWN));
            }
            DomainFault::Vanished(domain) => self.card(self.at(&domain), |card| card.present = false),
            DomainFault::Moved(domain, Setting::Power(to)) => {
                let limit_mw = u32::try_from(to.get() / 1_000).unwrap();
                self.card(self.at(&domain), |card| card.limit_mw = limit_mw);
            }
            DomainFault::Renumbered => self.room.machine.lock().renumber_nvidia(),
        }
        true
    }

    fn heal(&mut self, trouble: DomainFault) {
        match trouble {
            DomainFault::Unreadable(domain) => self.card(self.at(&domain), |card| card.answers = None),
            DomainFault::Vanished(domain) => self.card(self.at(&domain), |card| card.present = true),
            DomainFault::Renumbered => self.room.machine.lock().renumber_nvidia(),
            DomainFault::Locked(_) | DomainFault::Moved(..) => {}
        }
    }

    fn restart(&mut self, hal: &mut Hal) -> bool {
        let journal = hal.originals().clone();
        // The old session ends with the process, before the next one begins.
        let nowhere = Library::at("/nowhere/libnvidia-ml.so.1");
        *hal = Nvidia::open(nowhere, LimitScope::Gpu, self.ticks.clone(), journal.clone()).unwrap();
        *hal = self.open_with(journal);
        true
    }
}

#[test]
fn the_contract_holds_on_eight_cards_with_a_plant_behind() {
    let Some(mut bench) = Bench::new() else { return };
    let mut hal = bench.open();
    assert_eq!((hal.absent(), hal.complaints()), (None, &[][..]));
    let report = check(&mut hal, &mut bench, ContractMode::Full).unwrap_or_else(|breach| panic!("{breach}"));
    assert_eq!((report.domains, report.controls, report.blocked, report.blind), (8, 16, 0, 0));
    // The library changes one limit in one call, and has no lock.
    assert_eq!(report.unseen().collect::<Vec<_>>(), [Rule::Ordered, Rule::LockedSaid]);
}

/// The limiter of the plant's GPU has a time constant of 0.1 s: from 700 W it is within 2 % of 400 W, at 408 W, after
/// at most half a second, and at 400 W after three.
#[test]
fn power_falls_below_a_limit_that_is_written_and_the_other_cards_go_on() {
    let Some(bench) = Bench::new() else { return };
    let mut hal = bench.open();
    let (key, other) = (bench.key(3), bench.key(4));
    bench.pass(2_000);
    let handle = find(&hal, &key);
    assert_eq!(hal.draw(handle).unwrap().average, Ok(w(700)));
    assert_eq!(set(&mut hal, &key, w(400)), Ok(Setting::Power(w(400))));
    bench.pass(500);
    assert!(hal.draw(handle).unwrap().instant.unwrap() < w(408));
    bench.pass(2_500);
    let draw = hal.draw(handle).unwrap();
    for shown in [draw.instant, draw.average, draw.usage] {
        assert!(shown.unwrap().get().abs_diff(w(400).get()) < 100_000, "{draw:?}");
    }
    let handle = find(&hal, &other);
    assert_eq!(hal.draw(handle).unwrap().instant, Ok(w(700)));
}

#[test]
fn the_counter_of_energy_is_the_integral_of_the_power() {
    let Some(bench) = Bench::new() else { return };
    let mut hal = bench.open();
    let key = bench.key(0);
    bench.pass(1_000);
    let before = energy_uj(&mut hal, &key);
    set(&mut hal, &key, w(300)).unwrap();
    let mut joules = 0.0;
    for _ in 0..400 {
        bench.pass(10);
        joules += bench.watts(0) * 0.010;
    }
    let counted = Micros::new(energy_uj(&mut hal, &key) - before).get();
    // The counter is updated at whole tenths of a second, where the four seconds begin and end. The power of each 10 ms
    // is that of its last millisecond, which during the fall of 400 W in 0.1 s is up to 4 W·s too low.
    let integral = std::time::Duration::from_secs_f64(joules).as_micros();
    assert!(u128::from(counted).abs_diff(integral) < 4_500_000, "{counted} µJ, integral {integral} µJ");
    assert!(
        (1_200_000_000..1_400_000_000).contains(&counted),
        "four seconds at 300 W, and the fall: {counted}"
    );
}

#[test]
fn a_limit_that_was_set_out_of_band_is_told_and_obeyed() {
    let Some(bench) = Bench::new() else { return };
    let mut hal = bench.open();
    let key = bench.key(5);
    bench.card(5, |card| card.out_of_band_mw = Some(350_000));
    assert_eq!(set(&mut hal, &key, w(500)), Ok(Setting::Power(w(350))));
    assert_eq!(bench.card(5, |card| card.limit_mw), 500_000);
    bench.pass(3_000);
    assert!((bench.watts(5) - 350.0).abs() < 1.0, "{}", bench.watts(5));
}

#[test]
fn temperature_and_utilisation_are_the_plants() {
    let Some(bench) = Bench::new() else { return };
    bench.room.machine.lock().plant().set_gpu_load(1, Load::busy(0.5)).unwrap();
    bench.room.machine.lock().plant().set_gpu_load(2, Load::IDLE).unwrap();
    bench.pass(120_000);
    let nvml = Nvml::builder().lib_path(bench.library().as_os_str()).init().unwrap();
    let shown: Vec<(u32, u32)> = (0..3)
        .map(|index| {
            let card = nvml.device_by_index(index).unwrap();
            (card.utilization_rates().unwrap().gpu, card.temperature(TemperatureSensor::Gpu).unwrap())
        })
        .collect();
    // 0.06 K/W above the air: 700 W, 100 + 600·0.5 = 400 W and 100 W give 42, 24 and 6 K.
    let ambient = shown[2].1 - 6;
    assert_eq!(shown, [(100, ambient + 42), (50, ambient + 24), (0, ambient + 6)]);
}

/// Tells the other process its library.
const CHILD: &str = "JOULIE_RIG_TEST_LIBRARY";

/// What another process sees that has the root of the machine, or its folder for a library at another path.
#[test]
fn another_process_sees_the_gpus_by_the_root_or_by_the_environment() {
    let Some(bench) = Bench::new() else { return };
    bench.card(6, |card| card.limit_mw = 654_000);
    let elsewhere = rig::test_machine::Folder::new();
    let copy = elsewhere.0.join("a-copy.so");
    std::fs::copy(bench.library(), &copy).unwrap();
    for (library, folder) in [(bench.library(), None), (copy, Some(bench.room.folder.0.join("nvml")))] {
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["--exact", "rig::the_other_process", "--nocapture"]).env(CHILD, library);
        child.env_remove("JOULIE_NVML_STUB");
        child.envs(folder.map(|folder| ("JOULIE_NVML_STUB", folder)));
        let told = child.output().unwrap();
        let told = String::from_utf8_lossy(&told.stdout).into_owned();
        assert!(told.contains("8 cards, one of 654000000 µW"), "{told}");
    }
}

#[test]
fn the_other_process() {
    #[expect(clippy::disallowed_methods, reason = "the test above speaks to this one through it")]
    let Some(library) = std::env::var_os(CHILD) else { return };
    let journal: Journal = RefusableOriginals::new(OriginalsInMemory::new());
    let mut hal =
        Nvidia::open(Library::at(PathBuf::from(library)), LimitScope::Gpu, Ticks::default(), journal)
            .unwrap();
    let keys = crate::support::keys(&hal.domains());
    let limits = keys.iter().map(|key| sample(&mut hal, key).unwrap().power_limit.unwrap());
    let lowest = limits.min().unwrap();
    println!("{} cards, one of {} µW", keys.len(), lowest.get());
}

fn lock(hal: &mut Hal, key: &Key, mhz: i32) -> Result<Setting, ErrorKind> {
    let handle = find(hal, key);
    let applied = hal.apply(handle, Setting::Frequency(KiloHertz::from_int(mhz * 1_000)));
    applied.map(|applied| applied.effective()).map_err(|failure| failure.kind())
}

/// 100 W + 600 W · (990/1980)^2.375 = 215.66 W.
#[test]
fn a_lock_holds_the_power_of_a_card_that_keeps_to_no_limit_and_is_ended_after_a_kill() {
    let Some(bench) = Bench::new() else { return };
    let mut hal = bench.open();
    let key = bench.key(3);
    bench.card(3, |card| card.obeys = false);
    assert_eq!(set(&mut hal, &key, w(300)), Ok(Setting::Power(w(300))));
    bench.pass(3_000);
    assert!((bench.watts(3) - 700.0).abs() < 1.0, "{}", bench.watts(3));
    // Clocks are multiples of 15 MHz: rounded down.
    let at = |mhz: i32| Setting::Frequency(KiloHertz::from_int(mhz * 1_000));
    assert_eq!(lock(&mut hal, &key, 1_004), Ok(at(990)));
    bench.pass(3_000);
    assert!((bench.watts(3) - 215.66).abs() < 0.1, "{}", bench.watts(3));
    let told = sample(&mut hal, &key).unwrap();
    assert_eq!(
        (told.frequency_limit, told.frequency),
        (Ok(KiloHertz::from_int(990_000)), Ok(KiloHertz::from_int(990_000)))
    );
    // Somebody else ends the lock: the clock shows it.
    bench.card(3, |card| card.lock_mhz = None);
    bench.pass(3_000);
    assert_eq!(sample(&mut hal, &key).unwrap().frequency_limit, Ok(KiloHertz::from_int(1_980_000)));
    lock(&mut hal, &key, 990).unwrap();
    // The process is killed. What is locked is not known to the next one, and its journal says that there was a lock.
    let journal = hal.originals().clone();
    drop(hal);
    let mut hal = bench.open_with(journal);
    assert_eq!(bench.card(3, |card| card.lock_mhz), Some((345, 990)));
    let handle = find(&hal, &key);
    assert_eq!(
        hal.release_control(handle, Control::Frequency).map_err(|error| error.kind()),
        Ok(power_hal::Released::Restored)
    );
    assert_eq!(bench.card(3, |card| (card.lock_mhz, card.limit_mw)), (None, 300_000), "the limit stays");
    hal.release(handle).unwrap();
    assert_eq!(bench.card(3, |card| card.limit_mw), 700_000);
}

/// Nothing was locked, so nothing is left that would have to be ended, which would be refused as well.
#[test]
fn a_first_lock_that_is_refused_leaves_no_original() {
    let Some(bench) = Bench::new() else { return };
    let mut hal = bench.open();
    let key = bench.key(0);
    bench.card(0, |card| card.settable = false);
    assert_eq!(lock(&mut hal, &key, 600), Err(ErrorKind::PermissionDenied));
    assert!(hal.originals().inner().is_empty());
    let handle = find(&hal, &key);
    assert_eq!(
        hal.release_control(handle, Control::Frequency).map_err(|error| error.kind()),
        Ok(power_hal::Released::Untouched)
    );
    // One that stands stays so when another is refused.
    bench.card(0, |card| card.settable = true);
    lock(&mut hal, &key, 600).unwrap();
    bench.card(0, |card| card.settable = false);
    assert_eq!(lock(&mut hal, &key, 900), Err(ErrorKind::PermissionDenied));
    assert_eq!(sample(&mut hal, &key).unwrap().frequency_limit, Ok(KiloHertz::from_int(600_000)), "it stays");
    assert!(!hal.originals().inner().is_empty());
}

/// A reload of the driver ends every lock, and its session knows none.
#[test]
fn a_reload_of_the_driver_ends_a_lock() {
    let Some(bench) = Bench::new() else { return };
    let mut hal = bench.open();
    let key = bench.key(0);
    lock(&mut hal, &key, 600).unwrap();
    bench.room.machine.lock().reload_nvidia();
    hal.describe().unwrap();
    assert_eq!(sample(&mut hal, &key).unwrap().frequency_limit, Ok(KiloHertz::from_int(1_980_000)));
    let handle = find(&hal, &key);
    hal.release(handle).unwrap();
    assert!(hal.originals().inner().is_empty());
}

/// The plant's limiter counts for how long it holds a GPU back, and the library shows that as the violation time.
#[test]
fn the_counter_of_throttling_advances_while_the_limit_bites_and_only_then() {
    let Some(bench) = Bench::new() else { return };
    bench.room.machine.lock().plant().set_gpu_load(0, Load::busy(0.5)).unwrap();
    let (mut hal, key) = (bench.open(), bench.key(0));
    let meter = hal.domains().get(find(&hal, &key)).unwrap().throttled().unwrap();
    let share = |hal: &mut Hal| {
        let mut told = || sample(hal, &key).map(|it| (it.at, it.throttled.unwrap())).unwrap();
        let before = told();
        bench.pass(1_000);
        meter.share(before, told()).unwrap()
    };
    bench.pass(5_000);
    assert_eq!(share(&mut hal), Percent::ZERO, "700 W are enough for it");
    set(&mut hal, &key, w(200)).unwrap();
    bench.pass(2_000);
    // The clock of the readings ticks between them, so that the span is a little longer than what passed.
    assert!(share(&mut hal) > Percent::from_int(99));
    let told = sample(&mut hal, &key).unwrap();
    assert!(told.slowdowns.unwrap().has(Slowdown::PowerLimit));
    assert_eq!(told.utilisation, Ok(Percent::from_int(50)));
    assert!(told.temperature.unwrap() > Celsius::from_int(20));
    // The counter starts at zero with the driver: that is unknown, and not a share.
    let before = (told.at, told.throttled.unwrap());
    bench.room.machine.lock().reload_nvidia();
    hal.describe().unwrap();
    let after = sample(&mut hal, &key).unwrap();
    assert_eq!(meter.share(before, (after.at, after.throttled.unwrap())), None);
}
