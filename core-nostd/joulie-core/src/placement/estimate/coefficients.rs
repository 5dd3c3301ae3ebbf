//! The configurable coefficients of the marginal estimate. They have nine decimals, so that the configured value
//! is the one used in the calculation.

use crate::placement::class::WorkloadClass;
use crate::placement::wide::quotient;
use core::fmt;
use power_units::{DecimalError, Ratio, Role};

/// The fractions of a node's possible draw that its pods really draw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Coefficients {
    cpu_nano: u32,
    gpu_standard_nano: u32,
    gpu_performance_nano: u32,
}

const NANO: u64 = 1_000_000_000;

/// What a GiB of memory adds to the watts of the cores, and the most that memory adds.
const MEMORY_NANO_PER_GIB: u64 = NANO / 100;
const MEMORY_NANO_MAX: u64 = NANO / 10 * 3;

/// The largest accepted coefficient. One means that a pod draws all that its share allows; a value above two is
/// probably a percentage.
const MAX: Ratio = Ratio::from_int(2);

impl Coefficients {
    /// `powerest.DefaultCoefficients`: 0.7 for cores, 0.65 and 0.85 for GPUs of standard and performance pods.
    pub const REFERENCE: Self =
        Self { cpu_nano: 700_000_000, gpu_standard_nano: 650_000_000, gpu_performance_nano: 850_000_000 };

    /// Own coefficients.
    ///
    /// # Errors
    /// When one of them is not above 0, or is above 2. The error names its variable.
    pub fn new(cpu: Ratio, gpu_standard: Ratio, gpu_performance: Ratio) -> Result<Self, CoefficientError> {
        Ok(Self {
            cpu_nano: CoefficientSetting::Cpu.nano(cpu)?,
            gpu_standard_nano: CoefficientSetting::GpuStandard.nano(gpu_standard)?,
            gpu_performance_nano: CoefficientSetting::GpuPerformance.nano(gpu_performance)?,
        })
    }

    /// Replaces one coefficient by the text of its variable.
    ///
    /// # Errors
    /// When the text is not a number, or the number is out of range. The error names the variable.
    pub fn with(self, setting: CoefficientSetting, text: &str) -> Result<Self, CoefficientError> {
        let not_a_number = |cause| CoefficientError::NotANumber { setting, cause };
        let nano = setting.nano(Ratio::parse(text.trim(), Role::Nearest).map_err(not_a_number)?)?;
        Ok(match setting {
            CoefficientSetting::Cpu => Self { cpu_nano: nano, ..self },
            CoefficientSetting::GpuStandard => Self { gpu_standard_nano: nano, ..self },
            CoefficientSetting::GpuPerformance => Self { gpu_performance_nano: nano, ..self },
        })
    }

    /// One coefficient, for display.
    #[must_use]
    pub fn get(&self, setting: CoefficientSetting) -> Ratio {
        let nano = match setting {
            CoefficientSetting::Cpu => self.cpu_nano,
            CoefficientSetting::GpuStandard => self.gpu_standard_nano,
            CoefficientSetting::GpuPerformance => self.gpu_performance_nano,
        };
        let bits = quotient(u128::from(nano).wrapping_shl(32), NANO, Role::Nearest);
        Ratio::from_bits(i64::try_from(bits).unwrap_or(i64::MAX))
    }

    /// The watts of cores times the coefficient, rounded up; both in 2⁻³² W.
    pub(crate) fn of_cpu(&self, max: u64) -> u64 {
        quotient(u128::from(max).wrapping_mul(u128::from(self.cpu_nano)), NANO, Role::Demand)
    }

    /// The coefficient of a class's GPUs, rounded up, in 2⁻⁶².
    pub(crate) fn of_gpu(&self, class: WorkloadClass) -> u64 {
        let nano = match class {
            WorkloadClass::Standard => self.gpu_standard_nano,
            WorkloadClass::Performance => self.gpu_performance_nano,
        };
        quotient(u128::from(nano).wrapping_shl(62), NANO, Role::Demand)
    }

    /// 1 + 0.01 for each GiB, at most 1.3; rounded up, in 2⁻⁶².
    pub(crate) fn memory_factor(&self, bytes: u64) -> u64 {
        // In 2⁻³⁰ · 10⁻⁹.
        let most = u128::from(MEMORY_NANO_MAX).wrapping_shl(30);
        let extra = u128::from(bytes).wrapping_mul(u128::from(MEMORY_NANO_PER_GIB)).min(most);
        (1_u64 << 62).saturating_add(quotient(extra.wrapping_shl(32), NANO, Role::Demand))
    }
}

/// A coefficient that an environment variable sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CoefficientSetting {
    /// For cores.
    Cpu,
    /// For GPUs of standard pods.
    GpuStandard,
    /// For GPUs of performance pods.
    GpuPerformance,
}

impl CoefficientSetting {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Cpu, Self::GpuStandard, Self::GpuPerformance];

    /// The environment variable.
    #[must_use]
    pub const fn variable(self) -> &'static str {
        match self {
            Self::Cpu => "MARGINAL_CPU_UTIL_COEFF",
            Self::GpuStandard => "MARGINAL_GPU_UTIL_COEFF_STANDARD",
            Self::GpuPerformance => "MARGINAL_GPU_UTIL_COEFF_PERFORMANCE",
        }
    }

    fn nano(self, value: Ratio) -> Result<u32, CoefficientError> {
        let refused = CoefficientError::OutOfRange { setting: self, value };
        if value <= Ratio::ZERO || value > MAX {
            return Err(refused);
        }
        let bits = u64::try_from(value.to_bits()).unwrap_or(0);
        let nano = u128::from(bits).wrapping_mul(u128::from(NANO)).wrapping_add(1 << 31) >> 32;
        u32::try_from(nano).ok().filter(|&nano| nano > 0).ok_or(refused)
    }
}

/// Why a coefficient was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CoefficientError {
    /// The variable's text is not a number.
    NotANumber {
        /// The variable.
        setting: CoefficientSetting,
        /// What is wrong with it.
        cause: DecimalError,
    },
    /// The number is out of range.
    OutOfRange {
        /// The variable.
        setting: CoefficientSetting,
        /// The number.
        value: Ratio,
    },
}

impl fmt::Display for CoefficientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotANumber { setting, cause } => write!(f, "{}: {cause}", setting.variable()),
            Self::OutOfRange { setting, value } => {
                write!(
                    f,
                    "{}: expected a number above 0 and at most {MAX}, found {value}",
                    setting.variable()
                )
            }
        }
    }
}

impl core::error::Error for CoefficientError {}

#[cfg(test)]
mod tests {
    use super::*;
    use std::format;
    use std::string::ToString;

    #[test]
    fn nonsense_in_a_variable_is_refused_by_name() {
        // Fix list extender B10.
        for setting in CoefficientSetting::ALL {
            for text in ["NaN", "inf", "", "0,7", "-0.1", "0", "2.1", "70", "1e400", "1e-10"] {
                let error = Coefficients::REFERENCE.with(setting, text).unwrap_err();
                assert!(error.to_string().starts_with(setting.variable()), "{text}: {error}");
            }
        }
        let error = Coefficients::REFERENCE.with(CoefficientSetting::Cpu, "70").unwrap_err().to_string();
        assert_eq!(error, "MARGINAL_CPU_UTIL_COEFF: expected a number above 0 and at most 2, found 70");
    }

    #[test]
    fn what_is_written_is_what_counts_to_nine_decimals() {
        for (text, nano) in
            [("0.7", 700_000_000), ("2", 2_000_000_000), ("1e-9", 1), ("0.123456789", 123_456_789)]
        {
            let tuned = Coefficients::REFERENCE.with(CoefficientSetting::Cpu, text).unwrap();
            assert_eq!(tuned.cpu_nano, nano, "{text}");
            assert_eq!(tuned.gpu_standard_nano, 650_000_000);
        }
        let ratio = |text| Ratio::parse(text, Role::Nearest).unwrap();
        let built = Coefficients::new(ratio("0.7"), ratio("0.65"), ratio("0.85"));
        assert_eq!(built, Ok(Coefficients::REFERENCE));
        assert_eq!(
            format!("{:.3}", Coefficients::REFERENCE.get(CoefficientSetting::GpuPerformance)),
            "0.850"
        );
        let refused = Coefficients::new(ratio("0.7"), Ratio::ZERO, ratio("0.85"));
        assert!(refused.unwrap_err().to_string().contains("MARGINAL_GPU_UTIL_COEFF_STANDARD"));
    }

    #[test]
    fn memory_adds_a_hundredth_for_each_gib_and_no_more_than_three_tenths() {
        let factor =
            |gib: u64| Coefficients::REFERENCE.memory_factor(gib << 30) as f64 / (1_u64 << 62) as f64;
        for (gib, expected) in [(0, 1.0), (1, 1.01), (10, 1.1), (30, 1.3), (31, 1.3), (1 << 30, 1.3)] {
            assert!((factor(gib) - expected).abs() < 1e-15, "{gib}");
        }
    }
}
