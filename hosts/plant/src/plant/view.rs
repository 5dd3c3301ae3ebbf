//! The true state of a node. Sensors may show other values.
//!
//! Queries about a part that the node does not have return `None`.

use super::{Plant, PlantDomain, PowerLimitTerm, present};
use crate::gpu::Gpu;
use crate::limiter::PowerLimit;
use crate::meter::{GRID_US, Meter, REACH_US};
use crate::package::{Package, ThrottleReasons};
use crate::units::real;
use power_units::{MicroJoules, Micros};
use std::ops::Range;

impl Plant {
    /// The time since the start.
    #[must_use]
    pub fn now(&self) -> Micros {
        Micros::new(self.stepped_us() + self.rest_us)
    }

    /// The time of the last whole step.
    pub(crate) fn stepped(&self) -> Micros {
        Micros::new(self.stepped_us())
    }

    /// The number of frequency policies.
    #[must_use]
    pub fn policies(&self) -> usize {
        self.policies.len()
    }

    /// The number of cores.
    #[must_use]
    pub fn cores(&self) -> usize {
        self.policies.cores()
    }

    /// The number of packages.
    #[must_use]
    pub fn packages(&self) -> usize {
        self.packages.len()
    }

    /// The number of GPUs.
    #[must_use]
    pub fn gpus(&self) -> usize {
        self.gpus.len()
    }

    /// The cores that a policy covers.
    #[must_use]
    pub fn cores_of(&self, policy: usize) -> Option<Range<usize>> {
        (policy < self.policies()).then(|| self.policies.cores_of(policy))
    }

    /// The package that a core is in.
    #[must_use]
    pub fn package_of(&self, core: usize) -> Option<usize> {
        (core < self.cores()).then(|| self.policies.place(core).0)
    }

    /// The lowest and the highest limit that a policy accepts, kHz.
    #[must_use]
    pub fn frequency_range(&self, policy: usize) -> Option<(u32, u32)> {
        (policy < self.policies()).then(|| self.policies.range(policy))
    }

    /// The last value written to a policy, kHz.
    #[must_use]
    pub fn frequency(&self, policy: usize) -> Option<u32> {
        (policy < self.policies()).then(|| self.policies.written(policy))
    }

    /// The clock of a policy's cores while they are busy, kHz, as APERF over MPERF would show it. It may be below
    /// the limit (turbo, power, heat, the hardware's own choice) or above it (a sibling requested more).
    #[must_use]
    pub fn effective_khz(&self, policy: usize) -> Option<f64> {
        let cores = self.cores_of(policy)?;
        let count = real(cores.len() as u64);
        let sum: f64 = cores.filter_map(|core| self.core_khz(core)).sum();
        Some(sum / count)
    }

    /// The clock of a core while it is busy, kHz.
    #[must_use]
    pub fn core_khz(&self, core: usize) -> Option<f64> {
        present(core, self.cores()).ok()?;
        let (package, index) = self.policies.place(core);
        Some(self.packages[package].core_khz(index))
    }

    /// One of a package's power limits; `None` when it is not enabled or there is no such package.
    #[must_use]
    pub fn power_limit(&self, package: usize, term: PowerLimitTerm) -> Option<PowerLimit> {
        let limiter = self.packages.get(package)?.limiter();
        match term {
            PowerLimitTerm::Long => limiter.long(),
            PowerLimitTerm::Short => limiter.short(),
        }
    }

    /// The running average that a package's power limiter compares with the long-term limit, W.
    #[must_use]
    pub fn limiter_average(&self, package: usize) -> Option<f64> {
        Some(self.packages.get(package)?.limiter().average())
    }

    /// The cap of a GPU, W.
    #[must_use]
    pub fn gpu_cap(&self, gpu: usize) -> Option<f64> {
        Some(self.gpus.get(gpu)?.cap())
    }

    /// The lowest and the highest cap that a GPU accepts, W.
    #[must_use]
    pub fn gpu_cap_range(&self, gpu: usize) -> Option<(f64, f64)> {
        Some(self.gpus.get(gpu)?.cap_range())
    }

    /// A GPU's clock, as a fraction of its highest.
    #[must_use]
    pub fn gpu_clock(&self, gpu: usize) -> Option<f64> {
        Some(self.gpus.get(gpu)?.clock())
    }

    /// The fraction of the time in which a GPU is busy, by its load.
    #[must_use]
    pub fn gpu_utilisation(&self, gpu: usize) -> Option<f64> {
        Some(self.gpus.get(gpu)?.utilisation())
    }

    /// The power drawn in the last step, W.
    #[must_use]
    pub fn watts(&self, domain: PlantDomain) -> Option<f64> {
        self.meters(domain).map(|meters| meters.map(Meter::watts).sum())
    }

    /// The power that the whole node drew in the last step, W.
    #[must_use]
    pub fn node_watts(&self) -> f64 {
        self.all_meters().map(Meter::watts).sum()
    }

    /// The energy drawn since the start. It does not wrap: see [`wrapped`](crate::wrapped).
    #[must_use]
    pub fn energy(&self, domain: PlantDomain) -> Option<MicroJoules> {
        self.meters(domain).map(|meters| meters.map(Meter::energy).fold(MicroJoules::ZERO, |a, b| a + b))
    }

    /// The energy at the last point of the history's grid (10 ms) that is at least `ago` back, with that point's
    /// time; `None` outside the history or before the start.
    pub(crate) fn energy_before(&self, domain: PlantDomain, ago: Micros) -> Option<(Micros, MicroJoules)> {
        let at = self.stepped_us().checked_sub(ago.get())?;
        let at = at - at % GRID_US;
        if self.stepped_us() - at > REACH_US {
            return None;
        }
        let sum = self.meters(domain)?.map(|meter| meter.energy_at(at)).fold(MicroJoules::ZERO, |a, b| a + b);
        Some((Micros::new(at), sum))
    }

    /// The temperature of a package or a GPU, °C; `None` for the node as a whole.
    #[must_use]
    pub fn celsius(&self, domain: PlantDomain) -> Option<f64> {
        match domain {
            PlantDomain::Node => None,
            PlantDomain::Package(package) => Some(self.packages.get(package)?.celsius()),
            PlantDomain::Gpu(gpu) => Some(self.gpus.get(gpu)?.celsius()),
        }
    }

    /// The work done since the start: seconds of one core, or of one GPU, fully busy at its highest clock. Work of
    /// cores and GPUs cannot be added, so it is `None` for the node as a whole.
    #[must_use]
    pub fn work(&self, domain: PlantDomain) -> Option<f64> {
        match domain {
            PlantDomain::Node => None,
            PlantDomain::Package(package) => Some(self.packages.get(package)?.work().done()),
            PlantDomain::Gpu(gpu) => Some(self.gpus.get(gpu)?.work().done()),
        }
    }

    /// The work of all cores since the start.
    #[must_use]
    pub fn cpu_work(&self) -> f64 {
        self.packages.iter().map(|package| package.work().done()).sum()
    }

    /// The speed in the last step, in work per second.
    #[must_use]
    pub fn speed(&self, domain: PlantDomain) -> Option<f64> {
        match domain {
            PlantDomain::Node => None,
            PlantDomain::Package(package) => Some(self.packages.get(package)?.speed()),
            PlantDomain::Gpu(gpu) => Some(self.gpus.get(gpu)?.speed()),
        }
    }

    /// The speed of all cores in the last step.
    #[must_use]
    pub fn cpu_speed(&self) -> f64 {
        self.packages.iter().map(Package::speed).sum()
    }

    /// Why a package or a GPU runs slower than requested.
    #[must_use]
    pub fn throttle(&self, domain: PlantDomain) -> Option<ThrottleReasons> {
        match domain {
            PlantDomain::Node => None,
            PlantDomain::Package(package) => Some(self.packages.get(package)?.throttle()),
            PlantDomain::Gpu(gpu) => Some(self.gpus.get(gpu)?.throttle()),
        }
    }

    /// How long a package or a GPU has been slowed down by its power limiter.
    #[must_use]
    pub fn throttled_for(&self, domain: PlantDomain) -> Option<Micros> {
        let micros = match domain {
            PlantDomain::Node => return None,
            PlantDomain::Package(package) => self.packages.get(package)?.throttled_us(),
            PlantDomain::Gpu(gpu) => self.gpus.get(gpu)?.throttled_us(),
        };
        Some(Micros::new(micros))
    }

    fn all_meters(&self) -> impl Iterator<Item = &Meter> {
        let packages = self.packages.iter().map(Package::meter);
        std::iter::once(&self.base).chain(packages).chain(self.gpus.iter().map(Gpu::meter))
    }

    /// The meters of a domain; `None` when there is no such domain.
    fn meters(&self, domain: PlantDomain) -> Option<impl Iterator<Item = &Meter>> {
        let count = 1 + self.packages.len() + self.gpus.len();
        let range = match domain {
            PlantDomain::Node => 0..count,
            PlantDomain::Package(package) => {
                present(package, self.packages.len()).ok()?;
                1 + package..2 + package
            }
            PlantDomain::Gpu(gpu) => {
                present(gpu, self.gpus.len()).ok()?;
                let first = 1 + self.packages.len() + gpu;
                first..first + 1
            }
        };
        Some(self.all_meters().skip(range.start).take(range.len()))
    }
}
