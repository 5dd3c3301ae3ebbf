//! The machines of the campaign: small ones of its own, so that thousands of points fit into minutes, and whole
//! profiles of the rig.

use crate::random::Draw;
use plant::{Load, NodeSpec, Plant, SpecError, preset};
use power_units::Micros;
use rig::cpufreq::VirtualPolicy;
use rig::machine::{CpuLocation, Feeds, MachineParts, RigMachine, RigTime, ZoneSlot};
use rig::powercap::{Constraint, RegisterLock, Units, Zone};

/// A kind of machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum MachineKind {
    /// Two packages of four cores whose power limits work.
    Limits,
    /// Like `Limits`, but the BIOS has locked the limits: the closed loop holds the cap.
    Locked,
    /// Like `Limits`, but the limits of the second package are locked.
    Half,
    /// The rig's client: a package with a second zone for the same package, sub-zones, psys, and hardware that
    /// chooses the clock.
    Client,
    /// The rig's Xeon with 128 policies.
    Xeon,
    /// The rig's locked Xeon.
    XeonLocked,
    /// The rig's Xeon of two packages with two dies each.
    MultiDie,
}

impl MachineKind {
    /// Every kind.
    pub const ALL: [Self; 7] =
        [Self::Limits, Self::Locked, Self::Half, Self::Client, Self::Xeon, Self::XeonLocked, Self::MultiDie];

    /// Its name.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Limits => "limits",
            Self::Locked => "locked",
            Self::Half => "half",
            Self::Client => "client",
            Self::Xeon => "xeon-2s",
            Self::XeonLocked => "xeon-locked",
            Self::MultiDie => "xeon-multi-die",
        }
    }

    /// Whether every package has a power limit that can be set.
    pub(crate) const fn has_limits(self) -> bool {
        match self {
            Self::Limits | Self::Client | Self::Xeon | Self::MultiDie => true,
            Self::Locked | Self::Half | Self::XeonLocked => false,
        }
    }

    /// The range of the random caps of a package, W: from less than its cores need at their lowest clock to more than
    /// it can draw.
    pub(crate) const fn caps(self) -> (u32, u32) {
        match self {
            Self::Limits | Self::Locked | Self::Half | Self::Xeon | Self::XeonLocked => (55, 260),
            Self::Client => (5, 40),
            Self::MultiDie => (28, 130),
        }
    }

    /// The machine in the state before the first node starts: random limits, windows and frequencies, and on some
    /// machines a counter that is about to wrap.
    pub(crate) fn build(self, clock: RigTime, draw: &mut Draw) -> Result<RigMachine, SpecError> {
        let mut machine = match self {
            Self::Limits => small(clock, &[])?,
            Self::Locked => small(clock, &[0, 1])?,
            Self::Half => small(clock, &[1])?,
            Self::Client | Self::Xeon | Self::XeonLocked | Self::MultiDie => profile(self.label(), clock)?,
        };
        machine.change(|zones, policies, _| set_up(zones, policies, draw));
        if draw.percent(50) {
            // The counter holds 262 kJ: at 500 W it wraps every 524 s.
            machine.plant().advance(Micros::new(u64::from(draw.within(400, 530)) * 1_000_000));
        }
        Ok(machine)
    }
}

fn profile(name: &str, clock: RigTime) -> Result<RigMachine, SpecError> {
    let known = rig::profile::find(name);
    debug_assert!(known.is_some(), "{name} is a profile");
    known.map_or_else(|| small(clock, &[]), |build| build(clock))
}

const CORES: usize = 4;

fn small(clock: RigTime, locked: &[usize]) -> Result<RigMachine, SpecError> {
    let xeon = preset::xeon_2s();
    let packages = xeon.packages.iter().map(|package| plant::PackageSpec { cores: CORES, ..package.clone() });
    let spec = NodeSpec { packages: packages.collect(), ..xeon };
    let mut plant = Plant::new(&spec, 1)?;
    let taken = plant.set_load(Load::busy(1.0));
    debug_assert!(taken.is_ok(), "a full load is a load");
    let mut zones = Vec::new();
    // psys is registered with the first package.
    for (package, number) in [(0, 0), (1, 2)] {
        let lock = if locked.contains(&package) { RegisterLock::WindowIgnored } else { RegisterLock::Open };
        let parent = zones.len();
        let limits = vec![limit("long_term", 250, 250), limit("short_term", 300, 500)];
        let whole =
            Zone { lock, ..zone(format!("intel-rapl:{number}"), format!("package-{package}"), limits) };
        zones.push(slot(whole, Feeds::Package(package), None));
        let off = Constraint { enabled: false, clamps: false, ..limit("long_term", 0, 41) };
        let dram = zone(format!("intel-rapl:{number}:0"), "dram".into(), vec![off]);
        zones.push(slot(dram, Feeds::Share(package, 12), Some(parent)));
    }
    let off = Constraint { enabled: false, clamps: false, ..limit("long_term", 0, 0) };
    zones.push(slot(zone("intel-rapl:1".into(), "psys".into(), vec![off]), Feeds::Platform, None));
    let cpus = (0..2)
        .flat_map(|package| (0..CORES).map(move |core| CpuLocation { package, die: 0, core }))
        .collect();
    let policies = (0..plant.policies()).map(|at| policy(&plant, at)).collect();
    Ok(RigMachine::new(MachineParts { plant, zones, policies, hwmons: vec![], cpus, msr: None }, clock))
}

fn policy(plant: &Plant, at: usize) -> VirtualPolicy {
    let (min, max) = plant.frequency_range(at).unwrap_or((0, 0));
    VirtualPolicy {
        cpus: vec![at],
        driver: "intel_cpufreq",
        table: Vec::new(),
        hardware: min..=max,
        user_max: max,
        user_min: min,
        others_max: u32::MAX,
        inactive: false,
        present: true,
        base: None,
        turbo_off: false,
        averages: false,
        // Some reads are delayed, as Linux 6.12 delays a kernel worker when all processors are busy.
        late_reads: 2,
        coming: None,
    }
}

/// A limit with a window of 28 s, as vendors ship it.
fn limit(name: &'static str, watts: u64, max_watts: u64) -> Constraint {
    let window_raw = if name == "long_term" { 0x6e } else { 0x01 };
    let max_uw = max_watts * 1_000_000;
    Constraint { name, power_raw: watts * 8, window_raw, max_uw, enabled: true, clamps: true }
}

fn zone(id: String, name: String, constraints: Vec<Constraint>) -> Zone {
    Zone { id, name, units: Units::XEON, constraints, lock: RegisterLock::Open, enabled_is_hollow: false }
}

fn slot(zone: Zone, feeds: Feeds, parent: Option<usize>) -> ZoneSlot {
    ZoneSlot { zone, feeds, control_type: "intel-rapl", parent, present: true }
}

/// Whether a zone belongs to a package, whichever driver provides it.
pub(crate) fn is_package(slot: &ZoneSlot) -> bool {
    slot.parent.is_none() && slot.zone.name.starts_with("package-")
}

/// The random settings of an administrator or the firmware: limits below those that the vendor ships, one package in
/// ten without any, one in five with a short-term limit of 0 W that is off, and policies below their maximum.
fn set_up(zones: &mut [ZoneSlot], policies: &mut [VirtualPolicy], draw: &mut Draw) {
    for slot in zones.iter_mut().filter(|slot| is_package(slot)) {
        let enabled = !draw.percent(10);
        for constraint in &mut slot.zone.constraints {
            let lower = u64::from(draw.within(0, 5)) * 10;
            constraint.power_raw -= constraint.power_raw * lower / 400;
            (constraint.enabled, constraint.clamps) = (enabled, enabled);
        }
        if draw.percent(20)
            && let Some(short) = slot.zone.constraints.get_mut(1)
        {
            (short.power_raw, short.enabled, short.clamps) = (0, false, false);
        }
    }
    let step = 100_000;
    for policy in policies {
        if draw.percent(30) {
            policy.user_max -= step * draw.within(0, 6);
        }
    }
}
