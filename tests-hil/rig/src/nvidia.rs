//! NVIDIA GPUs as the driver's library shows them: a folder `nvml` on the plant, which `tests-hil/nvml-stub` reads at
//! every call and writes limits into.
//!
//! A card can lock its clocks, which it takes and does not tell. It need not keep to its power limit
//! ([`NvidiaGpu::obeys`]).
//!
//! A limit out of range is refused and not clamped. The card enforces the lower of the limit that was set and the one
//! of a management controller. A reload of the driver resets limits and counters and ends the sessions of clients.
//! The energy counter changes ten times a second, and `nvmlDeviceGetPowerUsage` is the mean of the last second, as
//! since Ampere.
//!
//! Faults can be set on calls of the library ([`VirtualAttribute::NvmlCall`]): [`Fault::nvml`] makes a call fail a
//! number of times, and [`Effect::Takes`](crate::faults::Effect::Takes) delays it.

use crate::faults::{Direction, Effect, Fault};
use crate::machine::{RigMachine, VirtualAttribute};
use crate::number::{Errno, kstrtou32};
use libc::{EINVAL, EIO, ENODEV, EPERM};
use nvml_stub::code;
use plant::{EnergyCounter, Noise, PlantDomain, PowerSensor};
use power_units::Micros;

/// How often a card updates its energy counter.
const ENERGY_EVERY: Micros = Micros::new(100_000);
/// The averaging time of a card's power.
const AVERAGED_OVER: Micros = Micros::new(1_000_000);

/// An NVIDIA card.
#[derive(Clone, Debug)]
pub struct NvidiaGpu {
    /// Its UUID.
    pub uuid: String,
    /// Its bus address.
    pub pci: String,
    /// Its product name.
    pub name: &'static str,
    /// Its memory.
    pub vram_mib: u64,
    /// The smallest limit that it accepts.
    pub min_mw: u32,
    /// The largest limit that it accepts.
    pub max_mw: u32,
    /// Its default limit.
    pub default_mw: u32,
    /// Its current limit.
    pub limit_mw: u32,
    /// A limit that a management controller has set.
    pub out_of_band_mw: Option<u32>,
    /// Whether it keeps to its power limit. A card that does not reads the limit back and draws what it likes.
    pub obeys: bool,
    /// The lowest and the highest clock, and the step between two clocks, MHz; `None` if its clocks cannot be locked.
    pub clocks_mhz: Option<[u32; 3]>,
    /// The lowest and the highest clock of the lock that is set, MHz.
    pub lock_mhz: Option<(u32, u32)>,
    /// Persistence mode.
    pub persistent: bool,
    /// Whether the caller may set a limit; false in a virtual GPU, and for users other than root.
    pub settable: bool,
    /// The code that every function returns for it, by the numbers of nvml.h: 15 after it fell off the bus.
    pub answers: Option<u32>,
    /// The index of its GPU in the plant.
    pub feeds: usize,
    /// The number of links to switches.
    pub links: usize,
    /// False while it is missing from the bus.
    pub present: bool,
    /// The energy at the last load of the driver, where its counter starts.
    counted_from_uj: u64,
    /// Likewise the time for which its limit had held it back.
    throttled_from: Micros,
}

impl NvidiaGpu {
    /// An H100 SXM with this number, as in machines with several of them.
    #[must_use]
    pub fn h100(number: usize) -> Self {
        Self {
            uuid: format!("GPU-{number:08x}-0b1c-4d7e-9a55-0123456789ab"),
            pci: format!("00000000:{:02X}:00.0", 0x19 + 0x11 * number),
            name: "NVIDIA H100 80GB HBM3",
            vram_mib: 81_559,
            min_mw: 200_000,
            max_mw: 700_000,
            default_mw: 700_000,
            limit_mw: 700_000,
            out_of_band_mw: None,
            obeys: true,
            clocks_mhz: Some([345, 1_980, 15]),
            lock_mhz: None,
            persistent: true,
            settable: true,
            answers: None,
            feeds: number,
            links: 18,
            present: true,
            counted_from_uj: 0,
            throttled_from: Micros::ZERO,
        }
    }

    /// The limit that the card enforces.
    #[must_use]
    pub fn enforced_mw(&self) -> u32 {
        self.out_of_band_mw.map_or(self.limit_mw, |other| other.min(self.limit_mw))
    }

    /// The highest clock that the lock allows, as a fraction of the highest there is.
    #[must_use]
    pub fn locked_part(&self) -> f64 {
        let (Some([_, highest, _]), Some((_, locked))) = (self.clocks_mhz, self.lock_mhz) else { return 1.0 };
        (f64::from(locked) / f64::from(highest)).min(1.0)
    }

    /// Its links in the stub's format, each to a separate switch.
    pub(crate) fn nvlinks(&self) -> String {
        (0..self.links).map(|link| format!("{link} 1 00000000:{:02X}:00.0 2\n", 0xa0 + link)).collect()
    }
}

/// The changing numbers of a card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CardFile {
    /// The limit that was set; it can be written.
    Limit,
    /// The lock of the clocks; it can be written, and the library tells it to nobody.
    Lock,
    /// The clock at which it runs.
    Clock,
    /// Energy since the driver was loaded.
    Energy,
    /// The mean power of the last second.
    Average,
    /// The power of this instant.
    Instant,
    /// The temperature of the die.
    Celsius,
    /// The percentage of time in which it computes.
    Busy,
    /// What slows it, in the bits of nvml.h.
    Reasons,
    /// For how long its power limit has held it back, in nanoseconds.
    Throttled,
    /// The memory in use, which follows the utilisation.
    MemoryUsed,
}

/// The driver and its cards.
#[derive(Clone, Debug, Default)]
pub(crate) struct Driver {
    pub(crate) cards: Vec<NvidiaGpu>,
    /// The cards in the order of their indices.
    pub(crate) order: Vec<usize>,
    pub(crate) unloaded: bool,
    /// How often the sessions of clients were ended.
    pub(crate) epoch: u64,
}

/// The name of a card's folder, which only the stub uses.
pub(crate) fn folder(at: usize) -> String {
    format!("card{at}")
}

impl RigMachine {
    /// Adds NVIDIA cards to the machine, and loads their driver.
    pub fn install_nvidia(&mut self, cards: Vec<NvidiaGpu>) {
        self.nvidia = Driver { order: (0..cards.len()).collect(), cards, ..Driver::default() };
        self.settle();
    }

    /// The current NVIDIA cards.
    #[must_use]
    pub fn nvidia(&self) -> &[NvidiaGpu] {
        &self.nvidia.cards
    }

    /// Changes a card without the driver's knowledge (a management controller, another writer, a fall off the bus),
    /// and updates files and plant. A card that does not exist is ignored.
    pub fn change_nvidia(&mut self, at: usize, by: impl FnOnce(&mut NvidiaGpu)) {
        self.nvidia.cards.get_mut(at).map(by);
        self.settle();
    }

    /// Unloads the NVIDIA driver, or loads it.
    pub fn load_nvidia(&mut self, loaded: bool) {
        self.nvidia.unloaded = !loaded;
        self.forget_nvidia();
    }

    /// Unloads the NVIDIA driver and loads it again: limits are reset to the defaults, counters start at zero, and
    /// users of the library must initialise it again.
    pub fn reload_nvidia(&mut self) {
        self.load_nvidia(true);
    }

    /// Reverses the order of the cards' indices and ends all sessions, as a reload can do. Limits are kept, as if the
    /// persistence daemon restored them.
    pub fn renumber_nvidia(&mut self) {
        self.nvidia.order.reverse();
        self.nvidia.epoch += 1;
        self.settle();
    }

    fn forget_nvidia(&mut self) {
        for at in 0..self.nvidia.cards.len() {
            let counted = self.counted_uj(at);
            let throttled = self.held_back(at);
            let card = &mut self.nvidia.cards[at];
            card.limit_mw = card.default_mw;
            card.lock_mhz = None;
            card.counted_from_uj = counted;
            card.throttled_from = throttled;
        }
        self.nvidia.epoch += 1;
        self.settle();
    }

    /// The names of the cards' folders in the order of their indices.
    pub(crate) fn nvidia_order(&self) -> String {
        let there = |at: &&usize| self.nvidia.cards.get(**at).is_some_and(|card| card.present);
        self.nvidia.order.iter().filter(there).map(|&at| folder(at) + "\n").collect()
    }

    /// The energy of the plant's GPU at the card's last update of its counter.
    fn counted_uj(&self, at: usize) -> u64 {
        let Some(card) = self.nvidia.cards.get(at) else { return 0 };
        let counter = EnergyCounter::new(PlantDomain::Gpu(card.feeds), ENERGY_EVERY, Noise::NONE, 0, 0);
        counter.ok().and_then(|mut counter| counter.read(&self.plant)).map_or(0, |energy| energy.get())
    }

    /// For how long the limit has held a card back, since the plant's start.
    fn held_back(&self, at: usize) -> Micros {
        let feeds = self.nvidia.cards.get(at).map(|card| PlantDomain::Gpu(card.feeds));
        feeds.and_then(|gpu| self.plant.throttled_for(gpu)).unwrap_or(Micros::ZERO)
    }

    /// The content of a card's file.
    pub(crate) fn card_text(&self, at: usize, file: CardFile) -> Result<String, Errno> {
        let card = self.nvidia.cards.get(at).filter(|card| card.present).ok_or(ENODEV)?;
        let gpu = PlantDomain::Gpu(card.feeds);
        let line = |value: f64| format!("{value:.0}\n");
        Ok(match file {
            CardFile::Limit => format!("{}\n", card.limit_mw),
            CardFile::Lock => {
                let (min, max) = card.lock_mhz.unwrap_or((0, 0));
                format!("{min} {max}\n")
            }
            CardFile::Clock => {
                let [_, highest, _] = card.clocks_mhz.ok_or(EIO)?;
                line(self.plant.gpu_clock(card.feeds).ok_or(EIO)? * f64::from(highest))
            }
            CardFile::Energy => {
                format!("{}\n", self.counted_uj(at).saturating_sub(card.counted_from_uj) / 1_000)
            }
            CardFile::Average => {
                let sensor = PowerSensor::new(gpu, AVERAGED_OVER, Noise::NONE, 0, 0);
                let watts = sensor.ok().and_then(|mut sensor| sensor.read(&self.plant)).ok_or(EIO)?;
                line(watts * 1_000.0)
            }
            CardFile::Instant => line(self.plant.watts(gpu).ok_or(EIO)? * 1_000.0),
            CardFile::Celsius => line(self.plant.celsius(gpu).ok_or(EIO)?),
            CardFile::Busy => line(self.plant.gpu_utilisation(card.feeds).ok_or(EIO)? * 100.0),
            CardFile::Reasons => {
                let why = self.plant.throttle(gpu).ok_or(EIO)?;
                format!("{}\n", if why.power { 0x4 } else { 0 } | if why.thermal { 0x20 } else { 0 })
            }
            CardFile::Throttled => {
                format!("{}\n", (self.held_back(at) - card.throttled_from).get().saturating_mul(1_000))
            }
            CardFile::MemoryUsed => {
                let busy = self.plant.gpu_utilisation(card.feeds).ok_or(EIO)?;
                format!("{}\n", if busy > 0.0 { card.vram_mib / 2 } else { 0 })
            }
        })
    }

    /// Sets a card's limit.
    pub(crate) fn store_limit(&mut self, at: usize, data: &[u8]) -> Result<(), Errno> {
        let card = self.nvidia.cards.get_mut(at).filter(|card| card.present).ok_or(ENODEV)?;
        if !card.settable {
            return Err(EPERM);
        }
        let limit = kstrtou32(data)?;
        if !(card.min_mw..=card.max_mw).contains(&limit) {
            return Err(EINVAL);
        }
        card.limit_mw = limit;
        Ok(())
    }

    /// Sets or ends the lock of a card's clocks.
    pub(crate) fn store_lock(&mut self, at: usize, data: &[u8]) -> Result<(), Errno> {
        let card = self.nvidia.cards.get_mut(at).filter(|card| card.present).ok_or(ENODEV)?;
        if !card.settable {
            return Err(EPERM);
        }
        let text = std::str::from_utf8(data).map_err(|_| EINVAL)?;
        let (min, max) = text.trim_end().split_once(' ').ok_or(EINVAL)?;
        let (min, max) = (kstrtou32(min.as_bytes())?, kstrtou32(max.as_bytes())?);
        if min > max || card.clocks_mhz.is_none() {
            return Err(EINVAL);
        }
        card.lock_mhz = Some((min, max)).filter(|&(_, max)| max > 0);
        Ok(())
    }

    /// The code that a function of the library returns before it does anything.
    pub(crate) fn nvml_code(&self, card: Option<usize>) -> u32 {
        match card {
            None if self.nvidia.unloaded => code::DRIVER_NOT_LOADED,
            None => code::SUCCESS,
            Some(at) => self.nvidia.cards.get(at).and_then(|card| card.answers).unwrap_or(code::SUCCESS),
        }
    }
}

impl Fault {
    /// A fault: a function of the NVIDIA library returns `code` this many times, for one card or for the whole
    /// machine ([`nvml_stub::OF_A_CARD`], [`nvml_stub::OF_THE_MACHINE`]).
    #[must_use]
    pub fn nvml(card: Option<usize>, function: &'static str, code: u32, times: u32) -> Self {
        let effect = Effect::Answers(format!("{code}\n").into_bytes());
        Self { on: VirtualAttribute::NvmlCall(card, function), direction: Direction::Read, effect, times }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Shared;
    use crate::test_machine::TestMachine;
    use libc::ERANGE;

    #[test]
    fn a_limit_out_of_range_is_refused_and_not_clamped() {
        let machine = Shared::new(TestMachine::machine_of("gpu-2s8"));
        let limit = VirtualAttribute::Nvml(0, CardFile::Limit);
        for (text, errno) in [("199999", EINVAL), ("700001", EINVAL), ("-1", EINVAL), ("4294967296", ERANGE)]
        {
            assert_eq!(machine.write(&limit, 0, text.as_bytes()), Err(errno), "{text}");
        }
        assert_eq!(machine.lock().nvidia()[0].limit_mw, 700_000);
        assert_eq!(machine.write(&limit, 0, b"200000\n"), Ok(()));
        assert_eq!(machine.lock().plant().gpu_cap(0), Some(200.0));
        assert_eq!(machine.write(&VirtualAttribute::Nvml(0, CardFile::Energy), 0, b"1"), Err(libc::EACCES));
    }

    #[test]
    fn a_lock_holds_the_clock_and_a_card_that_disobeys_keeps_to_the_lock_alone() {
        let machine = Shared::new(TestMachine::machine_of("gpu-2s8"));
        let lock = VirtualAttribute::Nvml(0, CardFile::Lock);
        assert_eq!(machine.write(&lock, 0, b"345 990\n"), Ok(()));
        assert_eq!(machine.lock().plant().gpu_clock(0), Some(0.5));
        for bad in [&b"990 345"[..], b"345", b"-1 5", b"345 x", b"345 4294967296"] {
            assert!(machine.write(&lock, 0, bad).is_err());
        }
        assert_eq!(machine.lock().nvidia()[0].lock_mhz, Some((345, 990)));
        machine.lock().change_nvidia(0, |card| card.obeys = false);
        assert_eq!(machine.write(&VirtualAttribute::Nvml(0, CardFile::Limit), 0, b"200000"), Ok(()));
        assert_eq!(machine.lock().plant().gpu_cap(0), Some(700.0));
        assert_eq!(machine.write(&lock, 0, b"0 0\n"), Ok(()));
        assert_eq!(machine.lock().nvidia()[0].lock_mhz, None);
    }
}
