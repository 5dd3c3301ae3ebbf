//! Builds the plant of a node from the models of its kind.
//!
//! The catalogue provides frequencies and design power. Other values are the same for all models, and each has its
//! source beside it. The highest clock of a plant is the all-core clock, so that a pod on a node without limits runs
//! at speed 1.

use crate::fleet::{FleetError, NodeKind, refuse};
use planner::catalog::{Catalog, CpuModel, GpuModel};
use plant::{
    ActuatorSpec, Curve, Exponent, Governor, NodeSpec, PackageSpec, PlantGpuSpec, PolicyLayout, ThermalSpec,
};
use power_units::{KiloHertz, Micros, Role};

/// The hardware of a node.
#[derive(Clone, Debug, PartialEq)]
pub struct SimulatedHardware {
    /// The catalogue's name of the processor.
    pub cpu_model: String,
    /// The number of packages.
    pub sockets: u32,
    /// Cores of a package.
    pub cores_per_socket: u32,
    /// Logical processors of a core.
    pub threads_per_core: u32,
    /// The lowest and the highest power limit of a package, W. The highest applies at the start.
    pub package_cap: (f64, f64),
    /// The graphics processors.
    pub gpus: Option<SimulatedGpus>,
    /// The parameters of the physical model.
    pub plant: NodeSpec,
}

/// The graphics processors of a node.
#[derive(Clone, Debug, PartialEq)]
pub struct SimulatedGpus {
    /// The catalogue's name.
    pub model: String,
    /// Their vendor.
    pub vendor: Vendor,
    /// Their number.
    pub count: u32,
    /// The lowest and the highest cap of each GPU, W.
    pub cap: (f64, f64),
}

/// The vendors of graphics processors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vendor {
    /// NVIDIA.
    Nvidia,
    /// AMD.
    Amd,
}

impl Vendor {
    /// The extended resource that pods request.
    #[must_use]
    pub const fn resource(self) -> &'static str {
        match self {
            Self::Nvidia => "nvidia.com/gpu",
            Self::Amd => "amd.com/gpu",
        }
    }

    /// The name in telemetry.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Nvidia => "nvidia",
            Self::Amd => "amd",
        }
    }

    pub(crate) const fn pci_label(self) -> &'static str {
        match self {
            Self::Nvidia => "feature.node.kubernetes.io/pci-10de.present",
            Self::Amd => "feature.node.kubernetes.io/pci-1002.present",
        }
    }
}

impl SimulatedHardware {
    /// The physical cores of the node.
    #[must_use]
    pub const fn cores(&self) -> u32 {
        self.sockets * self.cores_per_socket
    }

    /// The logical processors, which Kubernetes counts as cpu.
    #[must_use]
    pub const fn cpus(&self) -> u32 {
        self.cores() * self.threads_per_core
    }

    pub(crate) fn cpu_vendor(&self) -> &'static str {
        if self.cpu_model.starts_with("AMD") { "AuthenticAMD" } else { "GenuineIntel" }
    }
}

/// The position of the all-core clock between the base clock and the highest single-core clock.
const ALL_CORE_PART: f64 = 0.6;
/// The idle power of a package as a part of its design power: 64 W of 360 W on the published curve of the EPYC 9654.
const IDLE_PART: f64 = 0.18;
/// The lowest power limit of a package as a part of its design power (facts/simulator.md section 3.7).
const CAP_MIN_PART: f64 = 0.55;
/// The power of fans, drives, memory and conversion; nodes with GPUs have more fans.
const BASE_WATTS: f64 = 80.0;
const BASE_WATTS_GPU: f64 = 250.0;
/// The idle power of GPU models that are not in the table below.
const GPU_IDLE_WATTS: f64 = 30.0;
/// Idle power by model (facts/simulator.md section 3.7, class file).
const GPU_IDLE: [(&str, f64); 5] = [
    ("NVIDIA_H100_NVL", 60.0),
    ("NVIDIA_H100_SXM", 100.0),
    ("NVIDIA_L40S", 35.0),
    ("AMD_INSTINCT_MI300X", 120.0),
    ("AMD_RADEON_PRO_W7900", 25.0),
];

pub(crate) fn of(kind: &NodeKind, catalog: &Catalog) -> Result<SimulatedHardware, FleetError> {
    let Some(cpu) = catalog.cpu(&kind.cpu_model) else {
        return refuse(format!(
            "kind {}: the catalogue has no processor {:?}; an example is AMD_EPYC_9654",
            kind.name, kind.cpu_model
        ));
    };
    let Some(cores) = kind.cores_per_socket.or(cpu.cores) else {
        return refuse(format!(
            "kind {}: the catalogue does not know the cores; set coresPerSocket",
            kind.name
        ));
    };
    let package = package(cpu, cores);
    let package_cap = package_cap(cpu);
    let mut gpus = None;
    let mut boards = Vec::new();
    if let Some(asked) = &kind.gpus {
        let Some(model) = catalog.gpu(&asked.model) else {
            return refuse(format!(
                "kind {}: the catalogue has no graphics processor {:?}; an example is NVIDIA_H100_SXM",
                kind.name, asked.model
            ));
        };
        let vendor = if model.key.starts_with("AMD") { Vendor::Amd } else { Vendor::Nvidia };
        let board = board(model);
        let cap = (board.cap_min, board.cap_max);
        boards = vec![board; usize::try_from(asked.count).unwrap_or(0)];
        gpus = Some(SimulatedGpus { model: model.key.clone(), vendor, count: asked.count, cap });
    }
    let plant = NodeSpec {
        step: Micros::new(10_000),
        base_watts: if boards.is_empty() { BASE_WATTS } else { BASE_WATTS_GPU },
        ambient_c: 24.0,
        packages: vec![package; usize::try_from(kind.sockets).unwrap_or(0)],
        layout: PolicyLayout::PerPackage,
        actuator: ActuatorSpec { dead_time: Micros::ZERO, lag_s: 0.1 },
        gpus: boards,
    };
    Ok(SimulatedHardware {
        cpu_model: cpu.key.clone(),
        sockets: kind.sockets,
        cores_per_socket: cores,
        threads_per_core: kind.threads_per_core,
        package_cap,
        gpus,
        plant,
    })
}

/// On some models the design power can be configured upwards; full load draws the configured power.
fn package_cap(cpu: &CpuModel) -> (f64, f64) {
    (CAP_MIN_PART * plant::from_watts(cpu.tdp), plant::from_watts(cpu.most()))
}

fn package(cpu: &CpuModel, cores: u32) -> PackageSpec {
    let (base, boost) = (khz(cpu.base), khz(cpu.boost));
    let all_core = base + (boost - base) * ALL_CORE_PART;
    let (_, full) = package_cap(cpu);
    let idle = IDLE_PART * plant::from_watts(cpu.tdp);
    let amd = cpu.key.starts_with("AMD");
    PackageSpec {
        cores: usize::try_from(cores).unwrap_or(1),
        // A quarter of the highest clock, such as 800 MHz of 3.2 GHz.
        min_khz: whole_khz(all_core / 4.0),
        max_khz: whole_khz(all_core),
        static_watts: idle,
        dynamic_watts: full - idle,
        curve: if amd { Curve::VoltageFloor { knee: 0.6 } } else { Curve::Power(Exponent::NOMINAL) },
        turbo: None,
        governor: Governor::AtLimit,
        licence: None,
        // Full load heats it by 50 K, whatever its size: the cooler is dimensioned for the package.
        thermal: ThermalSpec { kelvin_per_watt: 50.0 / full, ..plant::preset::xeon_2s().packages[0].thermal },
        limiter_lag_s: 0.05,
    }
}

fn board(model: &GpuModel) -> PlantGpuSpec {
    let like = plant::preset::h100_sxm();
    let full = plant::from_watts(model.max);
    let idle = GPU_IDLE.iter().find(|(key, _)| *key == model.key).map_or(GPU_IDLE_WATTS, |(_, watts)| *watts);
    let idle = idle.min(full / 2.0);
    PlantGpuSpec {
        idle_watts: idle,
        full_watts: full,
        cap_min: model.min.map_or(full / 2.0, plant::from_watts),
        cap_max: full,
        cap_default: full,
        thermal: ThermalSpec { kelvin_per_watt: 42.0 / full, ..like.thermal },
        ..like
    }
}

fn khz(clock: KiloHertz) -> f64 {
    f64::from(clock.to_whole(Role::Limit))
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the catalogue's clocks are some millions of kHz"
)]
fn whole_khz(clock: f64) -> u32 {
    clock as u32
}
