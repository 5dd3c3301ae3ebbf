//! Folders, virtual machines and the HAL on them.

use hal_files::Root;
use hal_intel::{Intel, IntelHwmon};
use power_hal::contract::RefusableOriginals;
use power_hal::{
    Applied, Error, ErrorKind, Handle, Key, OriginalsInMemory, PowerHal, Reading, Released, Sample, Setting,
};
use power_units::{KiloHertz, MicroWatts};
use rig::gpu_clock::{HwmonClock, IntelGt};
use rig::machine::HwmonSlot;
pub(crate) use rig::test_machine::{Folder, TestMachine, Ticks};
use std::path::Path;

pub(crate) type Journal = RefusableOriginals<OriginalsInMemory<16>>;
pub(crate) type Hal = Intel<Ticks, Journal>;

pub(crate) fn open(folder: &Path) -> Hal {
    open_with(folder, Ticks::default(), RefusableOriginals::new(OriginalsInMemory::new()))
}

pub(crate) fn open_with(folder: &Path, ticks: Ticks, journal: Journal) -> Hal {
    Intel::open(IntelHwmon::new(Root::at(folder)), ticks, journal).unwrap()
}

/// A folder of hwmon for the device at `device` below `sys/devices`, with these files.
pub(crate) fn hwmon(folder: &Folder, number: u32, device: &str, driver: &str, files: &[(&str, &str)]) {
    let path = format!("sys/devices/{device}/hwmon/hwmon{number}");
    folder.put(&format!("{path}/name"), format!("{driver}\n"));
    for (name, text) in files {
        folder.put(&format!("{path}/{name}"), format!("{text}\n"));
    }
    folder.link(&format!("{path}/device"), "../..");
    folder.link(&format!("sys/class/hwmon/hwmon{number}"), &format!("../../../{path}"));
}

/// A card of 600 W.
pub(crate) const GPU: &[(&str, &str)] = &[
    ("power1_max", "600000000"),
    ("power1_rated_max", "600000000"),
    ("power1_max_interval", "28000"),
    ("energy1_input", "123456789"),
];

pub(crate) const DEVICE: &str = "sys/devices/pci0000:00/0000:4d:00.0";
pub(crate) const FOLDER: &str = "sys/devices/pci0000:00/0000:4d:00.0/hwmon/hwmon4";

/// A folder with one card.
pub(crate) fn one() -> (Folder, Key) {
    (with("i915", GPU), card())
}

pub(crate) fn with(driver: &str, files: &[(&str, &str)]) -> Folder {
    let folder = Folder::new();
    hwmon(&folder, 4, "pci0000:00/0000:4d:00.0", driver, files);
    folder
}

/// Changes or reads a GPU of a virtual machine without the driver.
pub(crate) fn device<R>(room: &TestMachine, key: &Key, by: impl FnOnce(usize, &mut HwmonSlot) -> R) -> R {
    let mut result = None;
    room.machine.lock().change(|_, _, hwmons| {
        let is_it = |slot: &HwmonSlot| Key::gpu(slot.device_path.rsplit('/').next().unwrap()) == Ok(*key);
        let at = hwmons.iter().position(is_it).unwrap();
        result = Some(by(at, &mut hwmons[at]));
    });
    result.unwrap()
}

/// Changes or reads the clocks of a GPU's parts without the driver.
pub(crate) fn clocks<R>(room: &TestMachine, key: &Key, by: impl FnOnce(&mut Vec<IntelGt>) -> R) -> R {
    device(room, key, |_, slot| match &mut slot.hwmon.clock {
        Some(HwmonClock::Intel(parts)) => by(parts),
        other => panic!("{other:?}"),
    })
}

/// The highest clock in force after a wish.
pub(crate) fn lock(hal: &mut Hal, key: &Key, wish: KiloHertz) -> Result<KiloHertz, ErrorKind> {
    let handle = find(hal, key);
    let applied = hal.apply(handle, Setting::Frequency(wish)).map_err(|failure| failure.kind())?;
    match applied.effective() {
        Setting::Frequency(clock) => Ok(clock),
        other @ (Setting::Power(_) | Setting::Throttle(_)) => panic!("{other:?}"),
    }
}

pub(crate) fn mhz(mhz: u32) -> KiloHertz {
    KiloHertz::from_int(i32::try_from(mhz).unwrap() * 1_000)
}

pub(crate) const fn w(watts: u64) -> MicroWatts {
    MicroWatts::new(watts * 1_000_000)
}

/// The card of the plain folder, and on a virtual machine the one behind i915.
pub(crate) fn card() -> Key {
    Key::gpu("0000:4d:00.0").unwrap()
}

/// On a virtual machine: the GPU behind xe whose limit is the package's, and the one whose limits are in a mailbox.
pub(crate) fn package() -> Key {
    Key::gpu("0000:4e:00.0").unwrap()
}

pub(crate) fn mailbox() -> Key {
    Key::gpu("0000:4f:00.0").unwrap()
}

pub(crate) fn keys(hal: &Hal) -> Vec<String> {
    hal.domains().iter().map(|(_, domain)| domain.key().to_string()).collect()
}

pub(crate) fn find(hal: &Hal, key: &Key) -> Handle {
    hal.domains().find(key).unwrap()
}

/// The largest described limit.
pub(crate) fn most(hal: &Hal, key: &Key) -> Option<MicroWatts> {
    hal.domains().get(find(hal, key)).unwrap().power().unwrap().max()
}

pub(crate) fn sample(hal: &mut Hal, key: &Key) -> Result<Sample, ErrorKind> {
    let mut batch = [Reading::new(find(hal, key))];
    hal.sample(&mut batch);
    batch[0].outcome
}

pub(crate) fn apply(hal: &mut Hal, key: &Key, cap: MicroWatts) -> Result<Applied, ErrorKind> {
    let handle = find(hal, key);
    hal.apply(handle, Setting::Power(cap)).map_err(|failure| failure.kind())
}

/// The limit in force after a wish.
pub(crate) fn effective(hal: &mut Hal, key: &Key, cap: MicroWatts) -> MicroWatts {
    match apply(hal, key, cap).unwrap().effective() {
        Setting::Power(cap) => cap,
        other @ (Setting::Frequency(_) | Setting::Throttle(_)) => panic!("{other:?}"),
    }
}

pub(crate) fn release(hal: &mut Hal, key: &Key) -> Result<Released, ErrorKind> {
    let handle = find(hal, key);
    hal.release(handle).map_err(|failure| failure.kind())
}
