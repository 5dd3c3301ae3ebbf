//! The driver of a policy, and the behaviour that depends on it.

use std::fmt;
use std::num::NonZeroU32;

/// A scaling driver, by the name in `scaling_driver`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Driver {
    /// Intel, active mode: one policy for each logical CPU, any value in the range; the hardware or the driver selects
    /// the frequency below the limit. While `no_turbo` is set the limit reads at most `base_frequency`; afterwards it
    /// reads as before.
    IntelPstate,
    /// Intel, passive mode: as above, with a governor of the kernel; `max_perf_pct` becomes a request, which the
    /// limit's read-back includes.
    IntelCpufreq,
    /// AMD, passive or guided mode: any value in the range, with a governor of the kernel.
    AmdPstate,
    /// AMD, active mode: any value in the range; the hardware selects the frequency below the limit.
    AmdPstateEpp,
    /// ACPI: a table of a few frequencies (three on an older EPYC); a policy may cover several CPUs; `bios_limit`
    /// contains what the platform allows. The highest entry includes the hardware's own boost, so the machine may run
    /// faster than the limit.
    AcpiCpufreq,
    /// Any other driver; its policies are handled according to their files.
    Unknown(Box<str>),
}

impl Driver {
    /// The driver of this name.
    #[must_use]
    pub fn named(name: &str) -> Self {
        match name {
            "intel_pstate" => Self::IntelPstate,
            "intel_cpufreq" => Self::IntelCpufreq,
            "amd-pstate" => Self::AmdPstate,
            "amd-pstate-epp" => Self::AmdPstateEpp,
            "acpi-cpufreq" => Self::AcpiCpufreq,
            other => Self::Unknown(other.into()),
        }
    }

    /// Its name, as the kernel writes it.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::IntelPstate => "intel_pstate",
            Self::IntelCpufreq => "intel_cpufreq",
            Self::AmdPstate => "amd-pstate",
            Self::AmdPstateEpp => "amd-pstate-epp",
            Self::AcpiCpufreq => "acpi-cpufreq",
            Self::Unknown(name) => name,
        }
    }

    /// The step, kHz, to which it rounds a limit down, although the limit reads back as it was written.
    #[must_use]
    pub const fn step(&self) -> Option<NonZeroU32> {
        match self {
            Self::IntelPstate | Self::IntelCpufreq => NonZeroU32::new(100_000),
            Self::AmdPstate | Self::AmdPstateEpp | Self::AcpiCpufreq | Self::Unknown(_) => None,
        }
    }

    /// Whether the hardware or the driver itself selects the frequency below the limit, without a governor of the
    /// kernel: then nothing but the limit bounds the frequency.
    #[must_use]
    pub const fn picks_itself(&self) -> Option<bool> {
        match self {
            Self::IntelPstate | Self::AmdPstateEpp => Some(true),
            Self::IntelCpufreq | Self::AmdPstate | Self::AcpiCpufreq => Some(false),
            Self::Unknown(_) => None,
        }
    }
}

impl fmt::Display for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_driver_is_known_by_its_name_and_a_new_one_is_tolerated() {
        let known = ["intel_pstate", "intel_cpufreq", "amd-pstate", "amd-pstate-epp", "acpi-cpufreq"];
        for name in known {
            let driver = Driver::named(name);
            assert!(!matches!(driver, Driver::Unknown(_)), "{name}");
            assert_eq!((driver.name(), driver.to_string().as_str()), (name, name));
            assert!(driver.picks_itself().is_some());
        }
        let other = Driver::named("cppc_cpufreq");
        assert_eq!(other, Driver::Unknown("cppc_cpufreq".into()));
        assert_eq!((other.name(), other.picks_itself()), ("cppc_cpufreq", None));
    }
}
