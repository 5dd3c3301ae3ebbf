//! What a node is told at start: where its hardware is, where it remembers, and by which laws it controls.

use hal_amd::Where;
use hal_files::Root;
use hal_nvidia::LimitScope;
use joulie_core::node::actuation::ActuationLaw;
use joulie_core::node::backend::{BackendLaw, BackendPreference};
use joulie_core::node::backoff::Backoff;
use joulie_core::node::cap::Floor;
use joulie_core::node::classic::{self, Classic};
use joulie_core::node::drift::DriftLaw;
use joulie_core::node::engine::{EngineLaws, LeaseTerms, LoopLaw, NodeAccess, NodeParts};
use joulie_core::node::gpu_cap::GpuLaw;
use joulie_core::node::limiter::LimiterLaw;
use joulie_core::node::tracking::{self, Tracking};
use power_units::{KiloHertz, Micros};
use std::fmt;
use std::path::{Path, PathBuf};

/// Where the hardware is.
#[derive(Clone, Debug)]
pub struct HardwareSources {
    /// The folder that holds `sys`, `dev` and `proc`.
    pub root: Root,
    /// Whether model-specific registers may be used where powercap does not have the limits.
    pub registers: RegisterAccess,
    /// The file of NVML; none lets the loader find it.
    pub nvml: Option<PathBuf>,
    /// Whose limit an NVIDIA GPU's is on a module with a CPU.
    pub scope: LimitScope,
    /// Where the ROCm SMI library is.
    pub rocm: Where,
}

/// Whether model-specific registers may be used. Writing to them taints the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegisterAccess {
    /// Never.
    Off,
    /// By the kernel's driver.
    Msr,
    /// By msr-safe.
    MsrSafe,
    /// By the kernel's driver through the crate msru, which knows the registers of this machine only. Who only looks
    /// reads them as with [`Msr`](Self::Msr), since that crate opens them to be written.
    Msru,
}

/// Everything that a node is told at start.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where the hardware is.
    pub sources: HardwareSources,
    /// The folder of the journal and the lock.
    pub state: PathBuf,
    /// Whether it may be written to.
    pub access: NodeAccess,
    /// How often the hardware is read and the closed loop steps.
    pub period: Micros,
    /// How the backends of the packages take turns.
    pub cpu: BackendLaw,
    /// How the GPUs are capped.
    pub gpu: GpuLaw,
    /// The closed loop of the DVFS fallback.
    pub law: LoopLaw,
    /// The lowest limit that a throttle sets, where that is above the lowest that a policy takes; none leaves the
    /// policies their own.
    pub frequency_floor: Option<KiloHertz>,
    /// Between two tries to open a backend.
    pub retry: Backoff,
    /// The lease; none lets caps hold for ever.
    pub lease: Option<LeaseTerms>,
    /// Which parts a grant may cap; what is left alone counts with all that it draws.
    pub grants: NodeParts,
}

/// Which part of the configuration cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfigError {
    /// The period is outside its bounds.
    Period,
    /// The registers are to be reached in a way that knows this machine only, and the hardware is elsewhere.
    Registers,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Period => f.write_str("the control period must be from 100 ms to 60 s"),
            Self::Registers => {
                f.write_str("msru reaches the registers of this machine only; with another root use msr")
            }
        }
    }
}

impl std::error::Error for ConfigError {}

impl HardwareSources {
    /// This machine.
    #[must_use]
    pub fn machine() -> Self {
        let root = Root::machine();
        let (scope, rocm) = (LimitScope::Gpu, Where::Installed);
        Self { root, registers: RegisterAccess::Off, nvml: None, scope, rocm }
    }

    /// A machine whose `sys` and `dev` are below a folder, as virtual hardware has them; its GPU libraries are in `lib`
    /// there, and never those of this machine.
    #[must_use]
    pub fn below(folder: &Path) -> Self {
        let lib = folder.join("lib");
        Self {
            root: Root::at(folder),
            registers: RegisterAccess::Off,
            nvml: Some(lib.join("libnvidia-ml.so.1")),
            scope: LimitScope::Gpu,
            rocm: Where::At(lib.join("librocm_smi64.so")),
        }
    }

    /// The same, with the libraries of GPUs that somebody names.
    #[must_use]
    pub fn with_libraries(self, nvml: Option<PathBuf>, rocm: Option<PathBuf>) -> Self {
        Self { nvml: nvml.or(self.nvml), rocm: rocm.map_or(self.rocm, Where::At), ..self }
    }
}

const fn seconds(count: u64) -> Micros {
    Micros::new(count * 1_000_000)
}

impl Config {
    /// A configuration with the tuning that is spelled out below. Whoever wants another changes the fields.
    ///
    /// # Errors
    /// When the period is not one, or the registers cannot be reached so.
    pub fn standard(
        sources: HardwareSources,
        state: PathBuf,
        access: NodeAccess,
        period: Micros,
    ) -> Result<Self, ConfigError> {
        if period < Micros::new(100_000) || period > seconds(60) {
            return Err(ConfigError::Period);
        }
        if sources.registers == RegisterAccess::Msru && sources.root != Root::machine() {
            return Err(ConfigError::Registers);
        }
        let backoff = valid(Backoff::new(seconds(1), seconds(60)));
        // A driver that has not answered for two periods will not answer in this one.
        let patience = (period + period).max(seconds(2));
        let actuation = valid(ActuationLaw::new(patience, backoff));
        let drift = valid(DriftLaw::new(backoff, 5, seconds(600)));
        let limits = LimiterLaw { actuation, drift };
        let cpu = BackendLaw {
            limits,
            throttle: actuation,
            settle: seconds(2),
            floor: Floor::NONE,
            preference: BackendPreference::LimitFirst,
        };
        let gpu = GpuLaw { limits, floor: Floor::NONE };
        let law = LoopLaw::Classic(valid(Classic::new(classic::DEFAULTS)));
        let frequency_floor = None;
        let (retry, lease, grants) = (backoff, None, NodeParts::ALL);
        Ok(Self { sources, state, access, period, cpu, gpu, law, frequency_floor, retry, lease, grants })
    }

    /// The laws of the engine.
    pub(crate) const fn laws(&self) -> EngineLaws {
        EngineLaws { cpu: self.cpu, gpu: self.gpu, dvfs: self.law, grants: self.grants, access: self.access }
    }

    /// The law `tracking` with its standard tuning.
    #[must_use]
    pub fn tracking() -> LoopLaw {
        LoopLaw::Tracking(valid(Tracking::new(tracking::DEFAULTS)))
    }
}

/// What this file itself spells out; a test opens every one of them.
fn valid<T, E: fmt::Debug>(standard: Result<T, E>) -> T {
    standard.expect("the standard tuning is within its own bounds")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_of_gpus_are_looked_for_where_they_are_named() {
        let below = || HardwareSources::below(Path::new("/host"));
        let inside = below().with_libraries(None, None);
        assert_eq!(inside.rocm, Where::At("/host/lib/librocm_smi64.so".into()));
        assert_eq!(inside.nvml.as_deref(), Some(Path::new("/host/lib/libnvidia-ml.so.1")));
        let named = below().with_libraries(Some("/n".into()), Some("/r".into()));
        assert_eq!((named.nvml, named.rocm), (Some("/n".into()), Where::At("/r".into())));
        assert_eq!(HardwareSources::machine().with_libraries(None, None).rocm, Where::Installed);
    }

    #[test]
    fn the_standard_tuning_is_valid_for_every_period() {
        let config = |period| {
            Config::standard(
                HardwareSources::machine(),
                PathBuf::from("/x"),
                NodeAccess::Look,
                Micros::new(period),
            )
        };
        for period in [100_000, 500_000, 1_000_000, 60_000_000] {
            assert!(config(period).is_ok());
        }
        for period in [0, 99_999, 60_000_001, u64::MAX] {
            assert_eq!(config(period).map(|_| ()), Err(ConfigError::Period));
        }
        assert!(matches!(Config::tracking(), LoopLaw::Tracking(_)));
    }

    #[test]
    fn msru_is_never_given_the_hardware_of_another_root() {
        let config = |sources| {
            let sources = HardwareSources { registers: RegisterAccess::Msru, ..sources };
            Config::standard(sources, PathBuf::from("/x"), NodeAccess::Control, Micros::new(1_000_000))
                .map(|_| ())
        };
        assert_eq!(config(HardwareSources::machine()), Ok(()));
        assert_eq!(config(HardwareSources::below(Path::new("/rig"))), Err(ConfigError::Registers));
    }
}
