//! A virtual machine: zones, policies and hwmon devices on a plant, with a clock and scripted faults.

mod shared;

pub use shared::Shared;

use crate::cpufreq::VirtualPolicy;
use crate::faults::Faults;
use crate::gpu_clock::ClockFile;
use crate::hwmon::HwmonDevice;
use crate::msr::{self, Writes};
use crate::number::{Errno, strtobool};
use crate::nvidia::{self, CardFile};
use crate::powercap::Zone;
use crate::tree::FileTree;
use libc::{EACCES, EINVAL, ENODEV, ENXIO, EPERM};
use plant::{Plant, PlantDomain, PowerLimit, PowerLimitTerm};
use power_units::Micros;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Longer windows are treated as this long; a register can express 27 hours.
const WINDOW_MAX_S: f64 = 1000.0;

/// The attribute behind a virtual file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VirtualAttribute {
    /// A text that never changes.
    Text(String),
    /// A zone's `energy_uj`.
    Energy(usize),
    /// A zone's `enabled`.
    Enabled(usize),
    /// A zone's `constraint_N_power_limit_uw`.
    PowerLimit(usize, usize),
    /// A zone's `constraint_N_time_window_us`.
    TimeWindow(usize, usize),
    /// A policy's `scaling_max_freq`.
    MaxFreq(usize),
    /// A policy's `scaling_min_freq`.
    MinFreq(usize),
    /// A policy's `scaling_cur_freq`.
    CurFreq(usize),
    /// A policy's `cpuinfo_avg_freq`.
    AvgFreq(usize),
    /// A text of a policy. Like all its files, it cannot be read while all its processors are offline.
    PolicyText(usize, String),
    /// The turbo switch, `intel_pstate/no_turbo`.
    NoTurbo,
    /// A processor's registers.
    Msr(usize),
    /// A hwmon device's `power1_cap`.
    Cap(usize),
    /// Another number of a hwmon device.
    Power(usize, PowerFile),
    /// `power/runtime_status` of a hwmon device.
    RuntimeStatus(usize),
    /// `/dev/hsmp`, which can be neither read nor written.
    Hsmp,
    /// A message of `/dev/hsmp` to the socket of a hwmon device. It is not a file, but faults can be set on it:
    /// messages that read count as reads, the one that sets as a write.
    HsmpMessage(usize, u32),
    /// What a hwmon device of a GPU reports beside its power.
    GpuState(usize, GpuFile),
    /// The table `gpu_metrics` of an AMD GPU.
    GpuMetrics(usize),
    /// A file of the clock of a hwmon device's GPU.
    GpuClock(usize, ClockFile),
    /// A changing number of an NVIDIA card.
    Nvml(usize, CardFile),
    /// A function of the NVIDIA library, for a card or for all of them: the code that it returns before it does
    /// anything, or 0 to continue. Each call reads it once.
    NvmlCall(Option<usize>, &'static str),
    /// A function of the ROCm SMI library for the GPU with this hwmon device, or `init`; otherwise as above.
    RocmCall(Option<usize>, &'static str),
}

/// The read-only numbers of a hwmon device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PowerFile {
    /// `power1_average`.
    Average,
    /// `power1_cap_min`.
    Min,
    /// `power1_cap_max`.
    Max,
    /// `power1_cap_default`.
    Default,
    /// `powerN_rated_max`.
    Rated,
    /// `energyN_input`.
    Energy,
}

/// What a GPU reports beside its power.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GpuFile {
    /// Its temperature, in thousandths of a degree.
    Temperature,
    /// The percentage of time in which it computes.
    Busy,
    /// The memory in use, in bytes, which follows the utilisation.
    MemoryUsed,
    /// Its memory, in bytes.
    MemoryTotal,
    /// Whether anything slows it.
    Slowed,
    /// Whether its power limit slows it.
    SlowedByPower,
    /// Whether heat slows it.
    SlowedByHeat,
    /// A cause that the plant does not have.
    SlowedByNothing,
}

/// The memory of a GPU of hwmon, in bytes.
const GPU_MEMORY: u64 = 192 << 30;

/// The part of the plant that a zone measures and limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Feeds {
    /// A package of the plant.
    Package(usize),
    /// The whole plant: psys.
    Platform,
    /// A part of a package that the plant does not model: this many hundredths of the package's energy.
    Share(usize, u64),
}

/// A zone and its place in the hierarchy.
#[derive(Clone, Debug)]
pub struct ZoneSlot {
    /// Its registers.
    pub zone: Zone,
    /// The part that it measures.
    pub feeds: Feeds,
    /// Its control type, such as `intel-rapl`.
    pub control_type: &'static str,
    /// Its parent zone.
    pub parent: Option<usize>,
    /// False while the last processor of its package is offline.
    pub present: bool,
}

/// The location of a logical processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuLocation {
    /// Its package.
    pub package: usize,
    /// Its die in the package.
    pub die: usize,
    /// Its core in the package. Siblings have the same core.
    pub core: usize,
}

/// A hwmon device and its location.
#[derive(Clone, Debug)]
pub struct HwmonSlot {
    /// The attributes.
    pub hwmon: HwmonDevice,
    /// The driver's name, `amdgpu`.
    pub name: &'static str,
    /// The device's folder, `sys/devices/pci0000:00/0000:03:00.0`.
    pub device_path: String,
    /// The part of the plant that it measures and caps.
    pub feeds: PlantDomain,
    /// False while no driver is bound to it.
    pub present: bool,
}

/// The time source of a machine.
#[derive(Clone, Copy, Debug)]
pub enum RigTime {
    /// Real time, multiplied by this factor.
    Real(f64),
    /// Time that a test advances.
    Manual,
}

/// The parts of which a machine is built.
pub struct MachineParts {
    /// The physical model.
    pub plant: Plant,
    /// Its zones.
    pub zones: Vec<ZoneSlot>,
    /// Its frequency policies, in the plant's order.
    pub policies: Vec<VirtualPolicy>,
    /// Its hwmon devices.
    pub hwmons: Vec<HwmonSlot>,
    /// Its logical processors.
    pub cpus: Vec<CpuLocation>,
    /// Whether and how registers can be written; `None` without an msr driver.
    pub msr: Option<Writes>,
}

/// A function that is called for every write that a file accepts, with the file, the written data, and the resulting
/// zones.
type Watcher = Box<dyn FnMut(&VirtualAttribute, &[u8], &[ZoneSlot]) + Send>;

/// The machine.
pub struct RigMachine {
    pub(crate) plant: Plant,
    pub(crate) zones: Vec<ZoneSlot>,
    pub(crate) policies: Vec<VirtualPolicy>,
    pub(crate) hwmons: Vec<HwmonSlot>,
    pub(crate) cpus: Vec<CpuLocation>,
    pub(crate) msr: Option<Writes>,
    /// The processors that are offline.
    pub(crate) offline: BTreeSet<usize>,
    /// The zones that were removed with the last processor of their package.
    unplugged: BTreeSet<usize>,
    /// Whether `die_id` is counted over the whole machine, as since Linux 6.9.
    pub(crate) dies_over_the_machine: bool,
    /// How often the cpufreq driver was reloaded. Each reload creates new files.
    cpufreq_loads: u64,
    /// The number of the first hwmon device, assigned at probe time.
    pub(crate) hwmon_base: usize,
    /// False while the powercap driver is not loaded.
    pub(crate) powercap_loaded: bool,
    watcher: Option<Watcher>,
    /// Whether the HSMP driver is new enough to register its sockets with hwmon.
    pub(crate) hsmp_in_hwmon: bool,
    /// Whether the GPUs' hwmon devices are visible.
    pub(crate) gpus_in_hwmon: bool,
    /// Whether the ROCm SMI library lists its GPUs in reverse order.
    pub(crate) rocm_turned: bool,
    pub(crate) nvidia: nvidia::Driver,
    /// The folder with the copies of the stub libraries, while the machine is mounted.
    pub(crate) libraries: Option<PathBuf>,
    faults: Faults,
    tree: FileTree,
    clock: RigTime,
    started: Instant,
    advanced: Duration,
}

impl RigMachine {
    /// A machine of these parts, with this time source.
    #[must_use]
    #[expect(
        clippy::disallowed_methods,
        reason = "virtual hardware has a clock of its own, as real hardware has"
    )]
    pub fn new(parts: MachineParts, clock: RigTime) -> Self {
        let MachineParts { plant, zones, policies, hwmons, cpus, msr } = parts;
        let mut machine = Self {
            plant,
            zones,
            policies,
            hwmons,
            cpus,
            msr,
            offline: BTreeSet::new(),
            unplugged: BTreeSet::new(),
            dies_over_the_machine: false,
            cpufreq_loads: 0,
            hwmon_base: 0,
            powercap_loaded: true,
            watcher: None,
            hsmp_in_hwmon: true,
            gpus_in_hwmon: true,
            rocm_turned: false,
            nvidia: nvidia::Driver::default(),
            libraries: None,
            faults: Faults::default(),
            tree: FileTree::new(),
            clock,
            started: Instant::now(),
            advanced: Duration::ZERO,
        };
        machine.settle();
        machine
    }

    /// The current files.
    #[must_use]
    pub fn tree(&self) -> &FileTree {
        &self.tree
    }

    /// The plant, to set its load and to read the true values.
    pub fn plant(&mut self) -> &mut Plant {
        &mut self.plant
    }

    /// The scripted faults.
    pub fn faults(&mut self) -> &mut Faults {
        &mut self.faults
    }

    /// The current frequency policies.
    #[must_use]
    pub fn policies(&self) -> &[VirtualPolicy] {
        &self.policies
    }

    /// Changes the hardware without the driver's knowledge (a BIOS, another writer, hot-plug), and updates files and
    /// plant.
    pub fn change(
        &mut self,
        by: impl FnOnce(&mut Vec<ZoneSlot>, &mut Vec<VirtualPolicy>, &mut Vec<HwmonSlot>),
    ) {
        by(&mut self.zones, &mut self.policies, &mut self.hwmons);
        self.settle();
    }

    /// Takes a processor offline or online. A policy goes offline with its last processor, and a package's zones with
    /// the package's last one.
    pub fn set_online(&mut self, cpu: usize, online: bool) {
        if online {
            self.offline.remove(&cpu);
        } else {
            self.offline.insert(cpu);
        }
        for policy in &mut self.policies {
            policy.inactive = policy.cpus.iter().all(|cpu| self.offline.contains(cpu));
        }
        if let Some(place) = self.cpus.get(cpu).copied() {
            self.plug(place);
        }
        self.settle();
    }

    /// The packages, or dies, with registers of their own, in the order of the plant's packages.
    pub(crate) fn dies(&self) -> Vec<(usize, usize)> {
        let dies: BTreeSet<_> = self.cpus.iter().map(|place| (place.package, place.die)).collect();
        dies.into_iter().collect()
    }

    /// Updates the zones of a package after a change of its processors. Zones without a package belong to the first
    /// one.
    fn plug(&mut self, CpuLocation { package, die, .. }: CpuLocation) {
        let number = self.dies().iter().position(|&other| other == (package, die)).unwrap_or(0);
        let mut cpus = self.cpus.iter().enumerate();
        let is_up =
            cpus.any(|(cpu, at)| (at.package, at.die) == (package, die) && !self.offline.contains(&cpu));
        for (at, slot) in self.zones.iter_mut().enumerate() {
            let home = match slot.feeds {
                Feeds::Package(package) | Feeds::Share(package, _) => package,
                Feeds::Platform => 0,
            };
            if home != number {
                continue;
            }
            if is_up && self.unplugged.remove(&at) {
                slot.present = true;
                slot.zone.arrive();
            } else if !is_up && slot.present {
                slot.present = false;
                slot.zone.leave();
                self.unplugged.insert(at);
            }
        }
    }

    /// Reloads the cpufreq driver: limits are lost, and open files become invalid.
    pub fn reload_cpufreq(&mut self) {
        self.policies.iter_mut().for_each(VirtualPolicy::reload);
        self.cpufreq_loads += 1;
        self.settle();
    }

    /// The number of the file that is currently at a path, if it was replaced.
    pub(crate) fn edition(&self, path: &str) -> u64 {
        if path.starts_with("sys/devices/system/cpu/cpufreq/") { self.cpufreq_loads } else { 0 }
    }

    /// Probes the hwmon devices again, which changes their numbers.
    pub fn renumber_hwmons(&mut self, base: usize) {
        self.hwmon_base = base;
        self.settle();
    }

    /// Loads or unloads the powercap driver. Without it only the registers remain, with the limits switched off.
    pub fn load_powercap(&mut self, loaded: bool) {
        if loaded != self.powercap_loaded {
            let meet = if loaded { Zone::arrive } else { Zone::leave };
            self.zones.iter_mut().for_each(|slot| meet(&mut slot.zone));
        }
        self.powercap_loaded = loaded;
        self.settle();
    }

    /// Turns it into a machine that was booted without the powercap driver: the registers are as the firmware has set
    /// them.
    pub fn boot_without_powercap(&mut self) {
        self.powercap_loaded = false;
        self.settle();
    }

    /// Calls `watcher` for every write that a file accepts from now on.
    pub fn watch(&mut self, watcher: impl FnMut(&VirtualAttribute, &[u8], &[ZoneSlot]) + Send + 'static) {
        self.watcher = Some(Box::new(watcher));
    }

    /// The current zones.
    #[must_use]
    pub fn zones(&self) -> &[ZoneSlot] {
        &self.zones
    }

    /// The caps of the hwmon devices that are in force, in µW.
    pub fn caps_in_force_uw(&self) -> impl Iterator<Item = u64> + '_ {
        self.hwmons.iter().map(|slot| slot.hwmon.cap_in_force_uw())
    }

    /// Replaces the HSMP driver by one without hwmon support: only `/dev/hsmp` exists.
    pub fn age_hsmp_driver(&mut self) {
        self.hsmp_in_hwmon = false;
        self.settle();
    }

    /// Advances a manual clock.
    pub fn advance(&mut self, by: Duration) {
        self.plant.advance(Micros::new(u64::try_from(by.as_micros()).unwrap_or(u64::MAX)));
    }

    fn catch_up(&mut self) {
        if let RigTime::Real(speed) = self.clock {
            let due = self.started.elapsed().mul_f64(speed);
            self.advance(due.saturating_sub(self.advanced));
            self.advanced = due;
        }
    }

    /// Updates the files and the plant from the registers.
    pub(crate) fn settle(&mut self) {
        self.tree = crate::layout::files(self);
        self.drive();
    }

    /// Applies the registers to the plant. If a package has several limits, the lowest one applies.
    fn drive(&mut self) {
        for package in 0..self.plant.packages() {
            for (term, name) in [(PowerLimitTerm::Long, "long_term"), (PowerLimitTerm::Short, "short_term")] {
                let limits =
                    self.zones.iter().filter(|slot| slot.feeds == Feeds::Package(package) && slot.present);
                let held = limits.flat_map(|slot| slot.zone.in_force(name));
                let lowest = held.chain(self.socket_cap(package)).min_by_key(|&(watts_uw, _)| watts_uw);
                let limit = lowest.map(|(limit_uw, window_us)| PowerLimit {
                    watts: Duration::from_micros(limit_uw).as_secs_f64(),
                    window_s: Duration::from_micros(window_us).as_secs_f64().min(WINDOW_MAX_S),
                });
                let taken = self.plant.set_power_limit(package, term, limit);
                debug_assert!(taken.is_ok(), "the plant refused {limit:?}: {taken:?}");
            }
        }
        for (at, policy) in self.policies.iter().enumerate() {
            let _kept_below_its_floor = self.plant.set_frequency(at, policy.effective_max());
        }
        for slot in &self.hwmons {
            if let PlantDomain::Gpu(gpu) = slot.feeds {
                let watts = Duration::from_micros(slot.hwmon.cap_in_force_uw()).as_secs_f64();
                let _brought_into_range = self.plant.set_gpu_cap(gpu, watts);
                if let Some(clock) = &slot.hwmon.clock {
                    let _a_die_without_a_gpu = self.plant.lock_gpu_clock(gpu, clock.allowed_part());
                }
            }
        }
        for card in &self.nvidia.cards {
            let limit_mw = if card.obeys { card.enforced_mw() } else { card.max_mw };
            let watts = Duration::from_millis(limit_mw.into()).as_secs_f64();
            let _brought_into_range = self.plant.set_gpu_cap(card.feeds, watts);
            let _a_card_without_a_gpu = self.plant.lock_gpu_clock(card.feeds, card.locked_part());
        }
    }

    /// The cap of a package that its own firmware enforces, over a window that is too short for an observable excess.
    fn socket_cap(&self, package: usize) -> Option<(u64, u64)> {
        const WINDOW_US: u64 = 10_000;
        let socket =
            self.hwmons.iter().find(|slot| slot.feeds == PlantDomain::Package(package) && slot.present)?;
        Some((socket.hwmon.cap_in_force_uw(), WINDOW_US))
    }

    fn energy_uj(&self, slot: &ZoneSlot) -> u64 {
        let drawn = |domain| self.plant.energy(domain).map_or(0, power_units::MicroJoules::get);
        slot.zone.units.energy_uj(match slot.feeds {
            Feeds::Package(package) => drawn(PlantDomain::Package(package)),
            Feeds::Platform => drawn(PlantDomain::Node),
            Feeds::Share(package, hundredths) => drawn(PlantDomain::Package(package)) / 100 * hundredths,
        })
    }

    fn package_zone(&self, cpu: usize) -> Result<usize, Errno> {
        let place = self.cpus.get(cpu).filter(|_| !self.offline.contains(&cpu)).ok_or(ENXIO)?;
        let found =
            self.zones.iter().position(|slot| slot.feeds == Feeds::Package(place.package) && slot.present);
        found.ok_or(ENXIO)
    }

    fn text(&self, attribute: &VirtualAttribute) -> Result<String, Errno> {
        let zone = |at: usize| self.zones.get(at).filter(|slot| slot.present).ok_or(ENODEV);
        let policy = |at: usize| self.policies.get(at).filter(|policy| policy.present).ok_or(ENODEV);
        let line = |value: u64| format!("{value}\n");
        match attribute {
            VirtualAttribute::Text(text) => Ok(text.clone()),
            VirtualAttribute::Energy(at) => Ok(line(self.energy_uj(zone(*at)?))),
            VirtualAttribute::Enabled(at) => Ok(line(zone(*at)?.zone.enabled().into())),
            VirtualAttribute::PowerLimit(at, constraint) => {
                Ok(line(zone(*at)?.zone.power_limit_uw(*constraint)))
            }
            VirtualAttribute::TimeWindow(at, constraint) => {
                Ok(line(zone(*at)?.zone.time_window_us(*constraint)))
            }
            VirtualAttribute::MaxFreq(at) => Ok(line(policy(*at)?.max_freq()?.into())),
            VirtualAttribute::MinFreq(at) => Ok(line(policy(*at)?.min_freq()?.into())),
            VirtualAttribute::PolicyText(at, text) => policy(*at)?.active().map(|()| text.clone()),
            VirtualAttribute::NoTurbo => Ok(line(self.policies.iter().any(|policy| policy.turbo_off).into())),
            VirtualAttribute::CurFreq(at) | VirtualAttribute::AvgFreq(at) => {
                policy(*at)?.active()?;
                Ok(format!("{:.0}\n", self.plant.effective_khz(*at).unwrap_or(0.0)))
            }
            VirtualAttribute::Cap(at) => Ok(self.hwmon(*at)?.hwmon.cap()),
            VirtualAttribute::RuntimeStatus(at) => {
                Ok(if self.hwmon(*at)?.hwmon.asleep { "suspended\n" } else { "active\n" }.to_owned())
            }
            VirtualAttribute::Power(at, file) => self.power_file(*at, *file),
            VirtualAttribute::GpuState(at, file) => self.gpu_state(*at, *file),
            VirtualAttribute::GpuClock(at, file) => self.clock_text(*at, *file),
            VirtualAttribute::Nvml(at, file) => self.card_text(*at, *file),
            VirtualAttribute::NvmlCall(card, _) => Ok(line(self.nvml_code(*card).into())),
            VirtualAttribute::RocmCall(..) => Ok(line(0)),
            VirtualAttribute::Msr(_)
            | VirtualAttribute::GpuMetrics(_)
            | VirtualAttribute::Hsmp
            | VirtualAttribute::HsmpMessage(..) => Err(EINVAL),
        }
    }

    pub(crate) fn hwmon(&self, at: usize) -> Result<&HwmonSlot, Errno> {
        self.hwmons.get(at).filter(|slot| slot.present).ok_or(ENODEV)
    }

    /// Reading or writing a number of a device wakes it.
    fn wake(&mut self, attribute: &VirtualAttribute) {
        if let VirtualAttribute::Cap(at)
        | VirtualAttribute::Power(at, _)
        | VirtualAttribute::GpuState(at, _)
        | VirtualAttribute::GpuMetrics(at)
        | VirtualAttribute::GpuClock(at, _) = attribute
            && let Some(slot) = self.hwmons.get_mut(*at)
        {
            slot.hwmon.asleep = false;
        }
    }

    /// The power of a hwmon device, in microwatts.
    pub(crate) fn drawn_uw(&self, slot: &HwmonSlot) -> u64 {
        let watts = self.plant.watts(slot.feeds).unwrap_or(0.0).max(0.0);
        u64::try_from(Duration::from_secs_f64(watts).as_micros()).unwrap_or(u64::MAX)
    }

    fn power_file(&self, at: usize, file: PowerFile) -> Result<String, Errno> {
        let slot = self.hwmon(at)?;
        let hwmon = &slot.hwmon;
        Ok(hwmon.number(match file {
            PowerFile::Rated => return Ok(hwmon.rated()),
            // The driver's sum started before the machine's clock, so it is never 0.
            PowerFile::Energy => self.plant.energy(slot.feeds).map_or(0, |energy| energy.get() + 1),
            PowerFile::Average => self.drawn_uw(slot),
            PowerFile::Min => hwmon.min_uw,
            PowerFile::Max => hwmon.max_uw,
            PowerFile::Default => hwmon.default_uw,
        }))
    }

    fn gpu_state(&self, at: usize, file: GpuFile) -> Result<String, Errno> {
        let slot = self.hwmon(at)?;
        let whole = |value: f64| format!("{:.0}", value.max(0.0)).parse::<u64>().unwrap_or(0);
        let busy = match slot.feeds {
            PlantDomain::Gpu(gpu) => self.plant.gpu_utilisation(gpu).unwrap_or(0.0),
            PlantDomain::Node | PlantDomain::Package(_) => 0.0,
        };
        let why = self.plant.throttle(slot.feeds).unwrap_or_default();
        Ok(slot.hwmon.number(match file {
            GpuFile::Temperature => whole(self.plant.celsius(slot.feeds).unwrap_or(0.0) * 1_000.0),
            GpuFile::Busy => whole(busy * 100.0),
            GpuFile::MemoryUsed => {
                if busy > 0.0 {
                    GPU_MEMORY / 2
                } else {
                    0
                }
            }
            GpuFile::MemoryTotal => GPU_MEMORY,
            GpuFile::Slowed => u64::from(why.power || why.thermal),
            GpuFile::SlowedByPower => u64::from(why.power),
            GpuFile::SlowedByHeat => u64::from(why.thermal),
            GpuFile::SlowedByNothing => 0,
        }))
    }

    fn clock_text(&self, at: usize, file: ClockFile) -> Result<String, Errno> {
        let slot = self.hwmon(at)?;
        let clock = slot.hwmon.clock.as_ref().ok_or(ENODEV)?;
        let running = match slot.feeds {
            PlantDomain::Gpu(gpu) => self.plant.gpu_clock(gpu).unwrap_or(0.0),
            PlantDomain::Node | PlantDomain::Package(_) => 0.0,
        };
        if slot.hwmon.silent { Ok("\n".to_owned()) } else { clock.text(file, running) }
    }

    fn store_clock(&mut self, at: usize, file: ClockFile, data: &[u8]) -> Result<(), Errno> {
        self.hwmon(at)?;
        let hwmon = &mut self.hwmons.get_mut(at).ok_or(ENODEV)?.hwmon;
        if hwmon.in_reset {
            return Err(EPERM);
        }
        hwmon.clock.as_mut().ok_or(ENODEV)?.write(file, data)
    }

    /// The table of an MI300 (version 1.6): the firmware counts a period each millisecond.
    fn gpu_metrics(&self, at: usize) -> Result<Vec<u8>, Errno> {
        const SIZE: u16 = 1_664;
        let slot = self.hwmon(at)?;
        let counted = |time: Micros| u32::try_from((time.get() / 1_000) & u64::from(u32::MAX)).unwrap_or(0);
        let held = self.plant.throttled_for(slot.feeds).unwrap_or(Micros::ZERO);
        let mut table = vec![0; SIZE.into()];
        table[..2].copy_from_slice(&SIZE.to_le_bytes());
        table[2..4].copy_from_slice(&[1, 6]);
        table[32..36].copy_from_slice(&counted(self.plant.now()).to_le_bytes());
        table[40..44].copy_from_slice(&counted(held).to_le_bytes());
        Ok(table)
    }

    /// For how long the power limit of a processor's package has held it back.
    fn package_held(&self, slot: &ZoneSlot) -> Micros {
        match slot.feeds {
            Feeds::Package(package) | Feeds::Share(package, _) => {
                self.plant.throttled_for(PlantDomain::Package(package)).unwrap_or(Micros::ZERO)
            }
            Feeds::Platform => Micros::ZERO,
        }
    }

    fn store(&mut self, attribute: &VirtualAttribute, offset: u64, data: &[u8]) -> Result<(), Errno> {
        let zone = |zones: &mut Vec<ZoneSlot>, at: usize| -> Result<usize, Errno> {
            zones.get(at).filter(|slot| slot.present).map(|_| at).ok_or(ENODEV)
        };
        match *attribute {
            VirtualAttribute::Enabled(at) => {
                let at = zone(&mut self.zones, at)?;
                self.zones[at].zone.write_enabled(data)
            }
            VirtualAttribute::PowerLimit(at, constraint) => {
                let at = zone(&mut self.zones, at)?;
                self.zones[at].zone.write_power_limit(constraint, data)
            }
            VirtualAttribute::TimeWindow(at, constraint) => {
                let at = zone(&mut self.zones, at)?;
                self.zones[at].zone.write_time_window(constraint, data)
            }
            VirtualAttribute::MaxFreq(at) => self.policy_mut(at)?.write_max_freq(data),
            VirtualAttribute::MinFreq(at) => self.policy_mut(at)?.write_min_freq(data),
            VirtualAttribute::NoTurbo => {
                let off = strtobool(data)?;
                self.policies.iter_mut().for_each(|policy| policy.turbo_off = off);
                Ok(())
            }
            VirtualAttribute::Cap(at) => {
                self.hwmon(at)?;
                self.hwmons.get_mut(at).ok_or(ENODEV)?.hwmon.write_cap(data)
            }
            VirtualAttribute::Msr(cpu) => {
                let at = self.package_zone(cpu)?;
                msr::write(&mut self.zones[at].zone, self.msr.ok_or(ENXIO)?, offset, data)
            }
            VirtualAttribute::GpuClock(at, file) => self.store_clock(at, file, data),
            VirtualAttribute::Nvml(at, CardFile::Limit) => self.store_limit(at, data),
            VirtualAttribute::Nvml(at, CardFile::Lock) => self.store_lock(at, data),
            VirtualAttribute::Text(_)
            | VirtualAttribute::Nvml(..)
            | VirtualAttribute::NvmlCall(..)
            | VirtualAttribute::RocmCall(..)
            | VirtualAttribute::PolicyText(..)
            | VirtualAttribute::Energy(_)
            | VirtualAttribute::CurFreq(_)
            | VirtualAttribute::AvgFreq(_)
            | VirtualAttribute::Power(..)
            | VirtualAttribute::GpuState(..)
            | VirtualAttribute::GpuMetrics(_)
            | VirtualAttribute::RuntimeStatus(_) => Err(EACCES),
            VirtualAttribute::Hsmp | VirtualAttribute::HsmpMessage(..) => Err(EINVAL),
        }
    }

    fn policy_mut(&mut self, at: usize) -> Result<&mut VirtualPolicy, Errno> {
        self.policies.get_mut(at).filter(|policy| policy.present).ok_or(ENODEV)
    }
}
