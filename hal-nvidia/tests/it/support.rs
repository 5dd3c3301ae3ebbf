//! A machine of virtual GPUs, with a separate library and folder for each test, and the HAL on it.

use hal_nvidia::{Library, LimitScope, Nvidia, NvidiaError};
use nvml_stub::{StubGpu, StubMachine};
use power_hal::contract::RefusableOriginals;
use power_hal::{Clock, Domains, Handle, Key, OriginalsInMemory, PowerHal, Setting};
use power_units::{KiloHertz, MicroWatts, Micros, Stamp};
use rig::test_machine::Folder;
use std::cell::Cell;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// In the order of the keys. The driver's order is that of the folders' names, which differs.
pub(crate) const FIRST: StubGpu = StubGpu {
    uuid: "GPU-11111111-0b1c-4d7e-9a55-0123456789ab",
    pci: "00000000:19:00.0",
    min_mw: 200_000,
    max_mw: 700_000,
    default_mw: 700_000,
};
pub(crate) const SECOND: StubGpu =
    StubGpu { uuid: "GPU-22222222-0b1c-4d7e-9a55-0123456789ab", pci: "00000000:C1:00.0", ..FIRST };
/// A card with a very small range.
pub(crate) const THIRD: StubGpu = StubGpu {
    uuid: "GPU-33333333-0b1c-4d7e-9a55-0123456789ab",
    pci: "00000000:DA:00.0",
    min_mw: 294_000,
    max_mw: 350_000,
    default_mw: 325_500,
};

pub(crate) type Hal = Nvidia<Ticks, RefusableOriginals<OriginalsInMemory<8>>>;

/// A clock that a test advances.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ticks(Rc<Cell<u64>>);

impl Ticks {
    pub(crate) fn advance(&self, span: Micros) {
        self.0.set(self.0.get() + span.get());
    }
}

impl Clock for Ticks {
    fn now(&self) -> Stamp {
        Stamp::new(Micros::new(self.0.get()))
    }
}

/// Virtual GPUs.
pub(crate) struct Bench {
    _folder: Folder,
    machine: StubMachine,
    pub(crate) ticks: Ticks,
}

impl Deref for Bench {
    type Target = StubMachine;

    fn deref(&self) -> &StubMachine {
        &self.machine
    }
}

impl Bench {
    /// The library, without cards.
    pub(crate) fn empty() -> Self {
        let folder = Folder::new();
        let machine = StubMachine::at(&folder.0);
        machine.library().unwrap();
        machine.put("driver", "570.86.16").unwrap();
        Self { _folder: folder, machine, ticks: Ticks::default() }
    }

    /// Two cards; the first key is at the second index.
    pub(crate) fn two() -> Self {
        let bench = Self::empty();
        bench.add("b", &FIRST).unwrap();
        bench.add("a", &SECOND).unwrap();
        bench
    }

    pub(crate) fn three() -> Self {
        let bench = Self::two();
        bench.add("c", &THIRD).unwrap();
        bench
    }

    /// One card on a module of a thousand watts.
    pub(crate) fn module() -> Self {
        let bench = Self::empty();
        bench.add("a", &FIRST).unwrap();
        for (file, text) in [
            ("min", "300000"),
            ("max", "1000000"),
            ("default", "1000000"),
            ("limit", "1000000"),
            ("average", "150000"),
            ("instant", "160000"),
        ] {
            bench.put(&format!("gpus/a/module/{file}_mw"), text).unwrap();
        }
        bench
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.root().join("libnvidia-ml.so.1")
    }

    pub(crate) fn open(&self) -> Hal {
        self.opened(LimitScope::Gpu).unwrap()
    }

    pub(crate) fn opened(&self, scope: LimitScope) -> Result<Hal, NvidiaError> {
        self.open_with(scope, RefusableOriginals::new(OriginalsInMemory::new()))
    }

    pub(crate) fn open_with(
        &self,
        scope: LimitScope,
        journal: RefusableOriginals<OriginalsInMemory<8>>,
    ) -> Result<Hal, NvidiaError> {
        Nvidia::open(Library::at(self.path()), scope, self.ticks.clone(), journal)
    }

    /// The name of the folder of a key's card.
    pub(crate) fn name(&self, key: &Key) -> Option<String> {
        let is = |name: &String| {
            let uuid = self.get(&format!("gpus/{name}/uuid")).and_then(|uuid| Key::gpu(&uuid).ok());
            uuid.as_ref() == Some(key)
        };
        self.names().into_iter().find(is)
    }

    /// The highest clock that a card's lock allows, or its highest clock without a lock.
    pub(crate) fn lock(&self, key: &Key) -> Option<Setting> {
        let name = self.name(key)?;
        let last = |file: &str, at: usize| {
            let text = self.get(&format!("gpus/{name}/{file}"))?;
            text.split_whitespace().nth(at)?.parse::<i32>().ok()
        };
        let locked = last("lock_mhz", 1).filter(|&mhz| mhz > 0);
        let mhz = locked.or_else(|| last("clocks_mhz", 1))?;
        Some(Setting::Frequency(KiloHertz::from_int(mhz * 1_000)))
    }

    pub(crate) fn number(&self, file: &str) -> u64 {
        self.get(file).unwrap().parse().unwrap()
    }
}

pub(crate) fn key(card: &StubGpu) -> Key {
    Key::gpu(card.uuid).unwrap()
}

pub(crate) fn find(hal: &Hal, card: &StubGpu) -> Handle {
    Hal::domains(hal).find(&key(card)).unwrap()
}

pub(crate) fn keys(domains: &Domains<'_>) -> Vec<Key> {
    domains.as_slice().iter().map(|domain| *domain.key()).collect()
}

pub(crate) fn w(watts: u64) -> MicroWatts {
    MicroWatts::new(watts * 1_000_000)
}

/// A path without a file.
pub(crate) fn nowhere() -> &'static Path {
    Path::new("/nowhere/libnvidia-ml.so.1")
}
