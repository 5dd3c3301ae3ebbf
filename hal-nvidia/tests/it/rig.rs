//! The HAL on the GPUs of the rig: through the library that the mounted machine shows, with the plant behind.

use crate::support::w;
use ::rig::library::NVML;
use ::rig::room::{Room, Ticks};
use hal_nvidia::{Library, Nvidia, Scope};
use power_hal::contract::Ledger;
use power_hal::{Handle, Key, Memory, PowerHal, Reading, Sample, Setting};
use power_units::{MicroWatts, Micros};

type Hal = Nvidia<Ticks, Ledger<Memory<8>>>;

/// A machine with eight GPUs, and the clock of the HAL on it.
struct Bench {
    room: Room,
    ticks: Ticks,
}

impl Bench {
    fn new() -> Option<Self> {
        Some(Self { room: Room::profile("gpu-2s8")?, ticks: Ticks::default() })
    }

    fn open(&self) -> Hal {
        self.open_with(Ledger::new(Memory::new()))
    }

    fn open_with(&self, journal: Ledger<Memory<8>>) -> Hal {
        let library = Library::at(self.room.folder.0.join("lib").join(NVML));
        Nvidia::open(library, Scope::Gpu, self.ticks.clone(), journal).unwrap()
    }

    fn pass(&self, seconds: u64) {
        self.room.advance(&self.ticks, Micros::new(seconds * 1_000_000));
    }

    fn key(&self, at: usize) -> Key {
        Key::gpu(&self.room.machine.lock().nvidia()[at].uuid).unwrap()
    }
}

fn find(hal: &Hal, key: &Key) -> Handle {
    hal.domains().find(key).unwrap()
}

fn sample(hal: &mut Hal, key: &Key) -> Sample {
    let mut batch = [Reading::new(find(hal, key))];
    hal.sample(&mut batch);
    batch[0].outcome.unwrap()
}

fn set(hal: &mut Hal, key: &Key, limit: MicroWatts) -> Setting {
    let handle = find(hal, key);
    hal.apply(handle, Setting::Power(limit)).unwrap().effective()
}

#[test]
fn the_root_of_the_machine_is_enough_to_see_its_gpus() {
    let Some(bench) = Bench::new() else { return };
    let mut hal = bench.open();
    assert_eq!((hal.absent(), hal.complaints()), (None, &[][..]));
    assert_eq!(hal.domains().len(), 8);
    let key = bench.key(3);
    assert_eq!(sample(&mut hal, &key).power_limit, Ok(w(700)));
    assert_eq!(set(&mut hal, &key, w(400)), Setting::Power(w(400)));
    assert_eq!(bench.room.machine.lock().nvidia()[3].limit_mw, 400_000);
    bench.pass(2);
}
