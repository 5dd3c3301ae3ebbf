//! The configuration of a node: the location of its hardware and of its state, and its laws.

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

/// The location of the hardware.
#[derive(Clone, Debug)]
pub struct HardwareSources {
    /// The folder that holds `sys`, `dev` and `proc`.
    pub root: Root,
    /// Whether model-specific registers may be used if powercap does not have the limits.
    pub registers: RegisterAccess,
    /// The file of NVML; with `None` the loader searches it.
    pub nvml: Option<PathBuf>,
    /// The scope of an NVIDIA GPU's limit on a module with a CPU.
    pub scope: LimitScope,
    /// The location of the ROCm SMI library.
    pub rocm: Where,
}

/// Whether model-specific registers may be used. Writing to them taints the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegisterAccess {
    /// Never.
    Off,
    /// Through the kernel's driver.
    Msr,
    /// Through msr-safe.
    MsrSafe,
    /// Through the kernel's driver and the crate msru, which can only access the registers of this machine. An
    /// observing process reads them as with [`Msr`](Self::Msr), since that crate opens them for writing.
    Msru,
}

/// The configuration of a node.
#[derive(Clone, Debug)]
pub struct Config {
    /// The location of the hardware.
    pub sources: HardwareSources,
    /// The folder of the journal and the lock.
    pub state: PathBuf,
    /// Whether the node may be written to.
    pub access: NodeAccess,
    /// How often the hardware is read and the closed loop steps.
    pub period: Micros,
    /// How the backend of the packages is selected.
    pub cpu: BackendLaw,
    /// How the GPUs are capped.
    pub gpu: GpuLaw,
    /// The closed loop of the DVFS fallback.
    pub law: LoopLaw,
    /// The lowest limit that a throttle sets, if that is above a policy's minimum; with `None` the policies' own
    /// minimum is used.
    pub frequency_floor: Option<KiloHertz>,
    /// The waits between attempts to open a backend.
    pub retry: Backoff,
    /// The lease; with `None` caps hold forever.
    pub lease: Option<LeaseTerms>,
    /// Which parts a grant may cap; the others count with the most that they draw.
    pub grants: NodeParts,
    /// Whether the report says which control groups use GPUs.
    pub tells_uses: bool,
}

/// The invalid part of the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfigError {
    /// The period is outside its bounds.
    Period,
    /// The chosen register access works on this machine only, but the hardware has another root.
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

    /// A machine whose `sys` and `dev` are below a folder, like virtual hardware. Its GPU libraries are in `lib` there,
    /// and those of this machine are never used.
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

    /// The same, with the given libraries of GPUs.
    #[must_use]
    pub fn with_libraries(self, nvml: Option<PathBuf>, rocm: Option<PathBuf>) -> Self {
        Self { nvml: nvml.or(self.nvml), rocm: rocm.map_or(self.rocm, Where::At), ..self }
    }
}

const fn seconds(count: u64) -> Micros {
    Micros::new(count * 1_000_000)
}

impl Config {
    /// A configuration with the standard tuning below. A caller can change its fields.
    ///
    /// # Errors
    /// When the period is out of range, or the registers cannot be accessed in that way.
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
        // A driver that has not answered for two periods is not expected to answer.
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
        let law = Self::tracking();
        let frequency_floor = None;
        let (retry, lease, grants) = (backoff, None, NodeParts::ALL);
        let tells_uses = false;
        Ok(Self {
            sources,
            state,
            access,
            period,
            cpu,
            gpu,
            law,
            frequency_floor,
            retry,
            lease,
            grants,
            tells_uses,
        })
    }

    /// The laws of the engine.
    pub(crate) const fn laws(&self) -> EngineLaws {
        EngineLaws { cpu: self.cpu, gpu: self.gpu, dvfs: self.law, grants: self.grants, access: self.access }
    }

    /// The law `classic` with its standard tuning.
    #[must_use]
    pub fn classic() -> LoopLaw {
        LoopLaw::Classic(valid(Classic::new(classic::DEFAULTS)))
    }

    /// The law `tracking` with its standard tuning.
    #[must_use]
    pub fn tracking() -> LoopLaw {
        LoopLaw::Tracking(valid(Tracking::new(tracking::DEFAULTS)))
    }
}

/// Unwraps a constant of this file; a test covers every one of them.
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
        assert!(matches!(Config::classic(), LoopLaw::Classic(_)));
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
