//! Folders, virtual machines and a clock for the tests.

use hal_amd::{Amd, Backend, Devices, Hwmon};
use hal_files::Root;
use power_hal::contract::Ledger;
use power_hal::{
    Applied, Clock, Error, ErrorKind, Handle, Key, Memory, PowerHal, Reading, Released, Sample, Setting,
};
use power_units::{MicroWatts, Micros, Stamp};
use rig::fuse::Mounted;
use rig::hwmon::Device;
use rig::machine::{self, HwmonSlot, Machine, Shared};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Time that a test moves; every look at it takes a microsecond.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ticks(Arc<AtomicU64>);

impl Ticks {
    pub(crate) fn advance(&self, by: Micros) {
        self.0.fetch_add(by.get(), Ordering::Relaxed);
    }
}

impl Clock for Ticks {
    fn now(&self) -> Stamp {
        Stamp::new(Micros::new(self.0.fetch_add(1, Ordering::Relaxed)))
    }
}

pub(crate) type Journal = Ledger<Memory<16>>;
pub(crate) type Hal<B> = Amd<B, Ticks, Journal>;

pub(crate) fn open(folder: &Path) -> Hal<Hwmon> {
    over(Hwmon::new(Root::at(folder), Devices::All))
}

pub(crate) fn over<B: Backend>(backend: B) -> Hal<B> {
    Amd::open(backend, Ticks::default(), Ledger::new(Memory::new())).unwrap()
}

/// A folder that goes away with the test.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("hal-amd-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub(crate) fn put(&self, path: &str, content: impl AsRef<[u8]>) {
        let path = self.0.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }

    pub(crate) fn get(&self, path: &str) -> String {
        std::fs::read_to_string(self.0.join(path)).unwrap()
    }

    pub(crate) fn link(&self, path: &str, target: &str) {
        let path = self.0.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::os::unix::fs::symlink(target, path).unwrap();
    }

    pub(crate) fn remove(&self, path: &str) {
        std::fs::remove_file(self.0.join(path)).unwrap();
    }

    /// A folder of hwmon for the device at `device` below `sys/devices`, with these files.
    pub(crate) fn hwmon(&self, number: u32, device: &str, driver: &str, files: &[(&str, &str)]) {
        let folder = format!("sys/devices/{device}/hwmon/hwmon{number}");
        self.put(&format!("{folder}/name"), format!("{driver}\n"));
        for (name, text) in files {
            self.put(&format!("{folder}/{name}"), format!("{text}\n"));
        }
        self.link(&format!("{folder}/device"), "../..");
        self.link(&format!("sys/class/hwmon/hwmon{number}"), &format!("../../../{folder}"));
    }

    /// A GPU of 350 to 750 W with a cap of 750 W, drawing 500.25 W.
    pub(crate) fn gpu(&self, number: u32, address: &str) {
        self.hwmon(number, &format!("pci0000:00/{address}"), "amdgpu", GPU);
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

impl Drop for Folder {
    fn drop(&mut self) {
        // What is left behind is in the folder for temporary files.
        let _left = std::fs::remove_dir_all(&self.0);
    }
}

/// A virtual machine, mounted.
pub(crate) struct Room {
    pub(crate) machine: Shared,
    mounted: Option<Mounted>,
    pub(crate) folder: Folder,
}

impl Room {
    /// Nothing, and a word about it, where the kernel does not let us mount.
    pub(crate) fn new(machine: Machine) -> Option<Self> {
        let (machine, folder) = (Shared::new(machine), Folder::new());
        match rig::fuse::mount(machine.clone(), &folder.0) {
            Ok(mounted) => Some(Self { machine, mounted: Some(mounted), folder }),
            Err(error) => {
                println!("SKIP(no virtual hardware: {error})");
                None
            }
        }
    }

    pub(crate) fn profile(name: &str) -> Option<Self> {
        Self::new(rig::profile::find(name).unwrap()(machine::Clock::Manual).unwrap())
    }

    pub(crate) fn open(&self) -> Hal<Hwmon> {
        open(&self.folder.0)
    }

    /// Changes or looks at a device behind the driver's back.
    pub(crate) fn device<R>(&self, key: &Key, by: impl FnOnce(usize, &mut HwmonSlot) -> R) -> R {
        let mut result = None;
        self.machine.lock().change(|_, _, hwmons| {
            let at = hwmons.iter().position(|slot| key_of(slot) == Some(*key)).unwrap();
            result = Some(by(at, &mut hwmons[at]));
        });
        result.unwrap()
    }

    /// The cap that the firmware holds, in microwatts.
    pub(crate) fn cap(&self, key: &Key) -> u64 {
        self.device(key, |_, slot| slot.hwmon.cap_in_force_uw())
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        drop(self.mounted.take());
    }
}

fn key_of(slot: &HwmonSlot) -> Option<Key> {
    let name = slot.device_path.rsplit('/').next().unwrap();
    if slot.hwmon.device == Device::Hsmp {
        name.strip_prefix("amd_hsmp.").and_then(|number| number.parse().ok()).map(Key::socket)
    } else {
        Key::gpu(name).ok()
    }
}

pub(crate) const fn w(watts: u64) -> MicroWatts {
    MicroWatts::new(watts * 1_000_000)
}

pub(crate) fn gpu(address: &str) -> Key {
    Key::gpu(address).unwrap()
}

/// The GPU of the profile that is a whole one.
pub(crate) fn mi300x() -> Key {
    gpu("0000:0c:00.0")
}

pub(crate) fn keys<B: Backend>(hal: &Hal<B>) -> Vec<String> {
    hal.domains().iter().map(|(_, domain)| domain.key().to_string()).collect()
}

pub(crate) fn find<B: Backend>(hal: &Hal<B>, key: &Key) -> Handle {
    hal.domains().find(key).unwrap()
}

pub(crate) fn sample<B: Backend>(hal: &mut Hal<B>, key: &Key) -> Result<Sample, ErrorKind> {
    let mut batch = [Reading::new(find(hal, key))];
    hal.sample(&mut batch);
    batch[0].outcome
}

pub(crate) fn apply<B: Backend>(hal: &mut Hal<B>, key: &Key, cap: MicroWatts) -> Result<Applied, ErrorKind> {
    let handle = find(hal, key);
    hal.apply(handle, Setting::Power(cap)).map_err(|failure| failure.kind())
}

/// The cap that is in force after a wish.
pub(crate) fn effective<B: Backend>(hal: &mut Hal<B>, key: &Key, cap: MicroWatts) -> MicroWatts {
    match apply(hal, key, cap).unwrap().effective() {
        Setting::Power(cap) => cap,
        other @ (Setting::Frequency(_) | Setting::Throttle(_)) => panic!("{other:?}"),
    }
}

pub(crate) fn release<B: Backend>(hal: &mut Hal<B>, key: &Key) -> Result<Released, ErrorKind> {
    let handle = find(hal, key);
    hal.release(handle).map_err(|failure| failure.kind())
}
