//! Folders, virtual machines and the HAL on them.

use hal_amd::{Amd, DeviceBackend, DeviceSelection, Hwmon};
use hal_files::Root;
use power_hal::contract::RefusableOriginals;
use power_hal::{
    Applied, Error, ErrorKind, Handle, Key, OriginalsInMemory, PowerHal, Reading, Released, Sample, Setting,
};
use power_units::{KiloHertz, MicroWatts};
use rig::hwmon::HwmonChip;
use rig::machine::HwmonSlot;
pub(crate) use rig::test_machine::{Folder, Ticks};
use std::ops::Deref;
use std::path::Path;

pub(crate) type Journal = RefusableOriginals<OriginalsInMemory<16>>;
pub(crate) type Hal<B> = Amd<B, Ticks, Journal>;

pub(crate) fn open(folder: &Path) -> Hal<Hwmon> {
    over(Hwmon::new(Root::at(folder), DeviceSelection::All))
}

pub(crate) fn over<B: DeviceBackend>(backend: B) -> Hal<B> {
    Amd::open(backend, Ticks::default(), RefusableOriginals::new(OriginalsInMemory::new())).unwrap()
}

/// Trees of plain files in the layout of the drivers.
pub(crate) trait Drivers {
    /// A folder of hwmon for the device at `device` below `sys/devices`, with these files.
    fn hwmon(&self, number: u32, device: &str, driver: &str, files: &[(&str, &str)]);

    /// A GPU of 350 to 750 W with a cap of 750 W, drawing 500.25 W.
    fn gpu(&self, number: u32, address: &str) {
        self.hwmon(number, &format!("pci0000:00/{address}"), "amdgpu", GPU);
    }
}

impl Drivers for Folder {
    fn hwmon(&self, number: u32, device: &str, driver: &str, files: &[(&str, &str)]) {
        let folder = format!("sys/devices/{device}/hwmon/hwmon{number}");
        self.put(&format!("{folder}/name"), format!("{driver}\n"));
        for (name, text) in files {
            self.put(&format!("{folder}/{name}"), format!("{text}\n"));
        }
        self.link(&format!("{folder}/device"), "../..");
        self.link(&format!("sys/class/hwmon/hwmon{number}"), &format!("../../../{folder}"));
    }
}

pub(crate) const GPU: &[(&str, &str)] = &[
    ("power1_label", "PPT"),
    ("power1_cap", "750000000"),
    ("power1_cap_min", "350000000"),
    ("power1_cap_max", "750000000"),
    ("power1_cap_default", "750000000"),
    ("power1_average", "500250000"),
];

/// A virtual machine, mounted.
pub(crate) struct TestMachine(rig::test_machine::TestMachine);

impl Deref for TestMachine {
    type Target = rig::test_machine::TestMachine;

    fn deref(&self) -> &rig::test_machine::TestMachine {
        &self.0
    }
}

impl TestMachine {
    pub(crate) fn profile(name: &str) -> Option<Self> {
        rig::test_machine::TestMachine::profile(name).map(Self)
    }

    pub(crate) fn open(&self) -> Hal<Hwmon> {
        open(&self.folder.0)
    }

    /// Changes or reads a device without the driver.
    pub(crate) fn device<R>(&self, key: &Key, by: impl FnOnce(usize, &mut HwmonSlot) -> R) -> R {
        let mut result = None;
        self.machine.lock().change(|_, _, hwmons| {
            let at = hwmons.iter().position(|slot| key_of(slot) == Some(*key)).unwrap();
            result = Some(by(at, &mut hwmons[at]));
        });
        result.unwrap()
    }

    /// The cap in force in the firmware, in microwatts.
    pub(crate) fn cap(&self, key: &Key) -> u64 {
        self.device(key, |_, slot| slot.hwmon.cap_in_force_uw())
    }
}

fn key_of(slot: &HwmonSlot) -> Option<Key> {
    let name = slot.device_path.rsplit('/').next().unwrap();
    if slot.hwmon.device == HwmonChip::Hsmp {
        name.strip_prefix("amd_hsmp.").and_then(|number| number.parse().ok()).map(Key::socket)
    } else {
        Key::gpu(name).ok()
    }
}

pub(crate) const fn w(watts: u64) -> MicroWatts {
    MicroWatts::new(watts * 1_000_000)
}

pub(crate) fn mhz(mhz: u32) -> KiloHertz {
    KiloHertz::from_int(i32::try_from(mhz).unwrap() * 1_000)
}

/// The highest clock in force after a wish.
pub(crate) fn lock<B: DeviceBackend>(
    hal: &mut Hal<B>,
    key: &Key,
    wish: KiloHertz,
) -> Result<KiloHertz, ErrorKind> {
    let handle = find(hal, key);
    let applied = hal.apply(handle, Setting::Frequency(wish)).map_err(|failure| failure.kind())?;
    match applied.effective() {
        Setting::Frequency(clock) => Ok(clock),
        other @ (Setting::Power(_) | Setting::Throttle(_)) => panic!("{other:?}"),
    }
}

pub(crate) fn gpu(address: &str) -> Key {
    Key::gpu(address).unwrap()
}

/// The whole GPU of the profile.
pub(crate) fn mi300x() -> Key {
    gpu("0000:0c:00.0")
}

pub(crate) fn keys<B: DeviceBackend>(hal: &Hal<B>) -> Vec<String> {
    hal.domains().iter().map(|(_, domain)| domain.key().to_string()).collect()
}

pub(crate) fn find<B: DeviceBackend>(hal: &Hal<B>, key: &Key) -> Handle {
    hal.domains().find(key).unwrap()
}

pub(crate) fn sample<B: DeviceBackend>(hal: &mut Hal<B>, key: &Key) -> Result<Sample, ErrorKind> {
    let mut batch = [Reading::new(find(hal, key))];
    hal.sample(&mut batch);
    batch[0].outcome
}

pub(crate) fn apply<B: DeviceBackend>(
    hal: &mut Hal<B>,
    key: &Key,
    cap: MicroWatts,
) -> Result<Applied, ErrorKind> {
    let handle = find(hal, key);
    hal.apply(handle, Setting::Power(cap)).map_err(|failure| failure.kind())
}

/// The cap in force after a wish.
pub(crate) fn effective<B: DeviceBackend>(hal: &mut Hal<B>, key: &Key, cap: MicroWatts) -> MicroWatts {
    match apply(hal, key, cap).unwrap().effective() {
        Setting::Power(cap) => cap,
        other @ (Setting::Frequency(_) | Setting::Throttle(_)) => panic!("{other:?}"),
    }
}

pub(crate) fn release<B: DeviceBackend>(hal: &mut Hal<B>, key: &Key) -> Result<Released, ErrorKind> {
    let handle = find(hal, key);
    hal.release(handle).map_err(|failure| failure.kind())
}
