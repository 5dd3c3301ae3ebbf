//! The caps to write for a node: per package for CPUs, per GPU for GPUs.
//!
//! A cap is a percentage of the device's highest limit. If the cluster asks for absolute caps, watts are written, and
//! watts take precedence. Watts are always those of one device, never of the node, and a limit rounds down. They are
//! clamped to the user's range, else to the range that the node reports, else to the catalogue's, else not at all: the
//! agent clamps to what the device really supports.
//!
//! A node with GPUs gets no CPU cap unless the cluster asks for it: its CPUs are a small part of its power and feed the
//! GPUs.

use crate::catalog::{self, Catalog, CpuModel, GpuModel};
use crate::hardware::PowerRange;
use crate::inventory::Resolved;
use crate::profile::{PerProfile, Profile};
use power_units::{Percent, Watts};
use std::fmt;

/// The caps of one node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct NodeCaps {
    /// The cap of every package; `None` leaves the CPUs unchanged.
    pub cpu: Option<DeviceCap>,
    /// The cap of every GPU; `None` leaves the GPUs unchanged.
    pub gpu: Option<DeviceCap>,
}

/// A cap on one device, as in the objects. Watts take precedence over the percentage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct DeviceCap {
    /// The percentage of the device's highest limit.
    pub percent: Option<Percent>,
    /// The limit in watts.
    pub watts: Option<Watts>,
}

impl DeviceCap {
    /// The device's highest limit: an explicit "no cap".
    pub const LIFTED: Self = Self { percent: Some(Percent::HUNDRED), watts: None };

    /// Whether it is certainly lower, for any device.
    fn is_below(self, other: Self) -> bool {
        match (self.watts, other.watts) {
            (Some(watts), Some(other)) => watts < other,
            (None, None) => self.percent.zip(other.percent).is_some_and(|(percent, other)| percent < other),
            (Some(_), None) | (None, Some(_)) => false,
        }
    }

    fn same_as(self, other: Self) -> bool {
        let percent = |cap: Self| cap.percent.map(Percent::to_bits);
        let watts = |cap: Self| cap.watts.map(Watts::to_bits);
        close(percent(self), percent(other)) && close(watts(self), watts(other))
    }
}

/// A hundredth of a percent or of a watt: a smaller change is not written.
const DEAD_BAND_BITS: u64 = (1 << 32) / 100;

fn close(a: Option<i64>, b: Option<i64>) -> bool {
    match (a, b) {
        (Some(a), Some(b)) => a.abs_diff(b) <= DEAD_BAND_BITS,
        (None, None) => true,
        (Some(_), None) | (None, Some(_)) => false,
    }
}

impl NodeCaps {
    /// Whether they cap the same, apart from a difference too small to write.
    #[must_use]
    pub fn same_as(&self, other: &Self) -> bool {
        let same = |a: Option<DeviceCap>, b: Option<DeviceCap>| match (a, b) {
            (Some(a), Some(b)) => a.same_as(b),
            (None, None) => true,
            (Some(_), None) | (None, Some(_)) => false,
        };
        same(self.cpu, other.cpu) && same(self.gpu, other.gpu)
    }

    /// These caps after `published`: a device that is no longer capped gets its highest limit, because an agent does
    /// not touch a device that the desired state no longer names.
    #[must_use]
    pub fn after(self, published: &Self) -> Self {
        let lift = |cap: Option<DeviceCap>, was: Option<DeviceCap>| cap.or(was.map(|_| DeviceCap::LIFTED));
        Self { cpu: lift(self.cpu, published.cpu), gpu: lift(self.gpu, published.gpu) }
    }

    /// These caps, or those of `other` where they are certainly lower: a percentage is compared with a percentage,
    /// watts with watts, and any cap is lower than none. If they cannot be compared, the cap stays.
    #[must_use]
    pub fn lowered_to(self, other: &Self) -> Self {
        let lower = |cap: Option<DeviceCap>, other: Option<DeviceCap>| match (cap, other) {
            (Some(cap), Some(other)) => Some(if other.is_below(cap) { other } else { cap }),
            (cap, other) => cap.or(other),
        };
        Self { cpu: lower(self.cpu, other.cpu), gpu: lower(self.gpu, other.gpu) }
    }

    /// Whether no device is capped below its highest limit.
    #[must_use]
    pub fn are_lifted(&self) -> bool {
        let lifted = |cap: Option<DeviceCap>| cap.is_none_or(|cap| cap.same_as(DeviceCap::LIFTED));
        lifted(self.cpu) && lifted(self.gpu)
    }
}

/// Whether the CPUs of GPU nodes are capped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GpuNodeCpus {
    /// They are not capped.
    Leave,
    /// They are capped like any others.
    Cap,
}

/// The configuration of the caps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CapSettings {
    /// `CPU_PERFORMANCE_CAP_PCT_OF_MAX`, `CPU_ECO_CAP_PCT_OF_MAX`
    pub cpu_percent: PerProfile<Percent>,
    /// `PERFORMANCE_CAP_WATTS`, `ECO_CAP_WATTS`, of one package
    pub cpu_watts: PerProfile<Watts>,
    /// `CPU_WRITE_ABSOLUTE_CAPS`: watts in place of the percentage
    pub cpu_absolute: bool,
    /// Whether the CPU settings apply to GPU nodes.
    pub gpu_node_cpus: GpuNodeCpus,
    /// `GPU_PERFORMANCE_CAP_PCT_OF_MAX`, `GPU_ECO_CAP_PCT_OF_MAX`; zero or less does not cap the GPUs in that profile
    pub gpu_percent: PerProfile<Percent>,
    /// `GPU_WRITE_ABSOLUTE_CAPS`: watts beside the percentage
    pub gpu_absolute: bool,
}

/// The checked configuration of the caps.
#[derive(Clone, Debug)]
pub struct Intents {
    settings: CapSettings,
    ranges: UserRanges,
}

impl Intents {
    /// Caps with these settings, in watts within these ranges.
    ///
    /// # Errors
    /// When a setting is out of range, or eco would have more than performance.
    pub fn new(settings: CapSettings, ranges: UserRanges) -> Result<Self, IntentError> {
        let CapSettings { cpu_percent, cpu_watts, gpu_percent, .. } = settings;
        for profile in [Profile::Performance, Profile::Eco] {
            let percent = cpu_percent.of(profile);
            if percent <= Percent::ZERO || percent > Percent::HUNDRED {
                return Err(IntentError::CpuPercent { profile, found: percent });
            }
            if cpu_watts.of(profile) < Watts::from_int(1) {
                return Err(IntentError::CpuWatts { profile, found: cpu_watts.of(profile) });
            }
            if gpu_percent.of(profile) > Percent::HUNDRED {
                return Err(IntentError::GpuPercent { profile, found: gpu_percent.of(profile) });
            }
        }
        let gpu_inverted =
            gpu_percent.performance > Percent::ZERO && gpu_percent.eco > gpu_percent.performance;
        for (setting, inverted) in [
            ("the CPU percentage", cpu_percent.eco > cpu_percent.performance),
            ("the CPU watts", cpu_watts.eco > cpu_watts.performance),
            ("the GPU percentage", gpu_inverted),
        ] {
            if inverted {
                return Err(IntentError::Inverted { setting });
            }
        }
        Ok(Self { settings, ranges })
    }

    /// The caps of a node in a profile.
    #[must_use]
    pub fn caps(&self, node: &Resolved, profile: Profile) -> NodeCaps {
        NodeCaps { cpu: self.cpu(node, profile), gpu: self.gpu(node, profile) }
    }

    fn cpu(&self, node: &Resolved, profile: Profile) -> Option<DeviceCap> {
        let settings = &self.settings;
        if node.hardware.gpu.is_some() && settings.gpu_node_cpus == GpuNodeCpus::Leave {
            return None;
        }
        if !settings.cpu_absolute {
            return Some(DeviceCap { percent: Some(settings.cpu_percent.of(profile)), watts: None });
        }
        let target = settings.cpu_watts.of(profile);
        let range = user_range(&self.ranges.cpus, node.hardware.cpu.model.as_deref())
            .or(node.discovered_cpu)
            .or_else(|| node.cpu.as_deref().map(catalogue_cpu_range));
        Some(DeviceCap { percent: None, watts: Some(range.map_or(target, |range| clamp(target, range))) })
    }

    fn gpu(&self, node: &Resolved, profile: Profile) -> Option<DeviceCap> {
        let gpus = node.hardware.gpu.as_ref()?;
        let percent =
            Some(self.settings.gpu_percent.of(profile)).filter(|&percent| percent > Percent::ZERO)?;
        let range = user_range(&self.ranges.gpus, gpus.model.as_deref())
            .or(node.discovered_gpu)
            .or_else(|| node.gpu.as_deref().map(catalogue_gpu_range));
        let watts = range.filter(|_| self.settings.gpu_absolute).map(|range| gpu_watts(percent, range));
        Some(DeviceCap { percent: Some(percent), watts })
    }
}

/// A package may be capped between 55 % of its design power and its greatest power.
fn catalogue_cpu_range(model: &CpuModel) -> PowerRange {
    PowerRange { min: Some(part(model.tdp, Percent::from_int(55))), max: model.most() }
}

/// A board whose lowest limit is not published may be capped down to half of its highest.
fn catalogue_gpu_range(model: &GpuModel) -> PowerRange {
    let min = model.min.unwrap_or_else(|| part(model.max, Percent::from_int(50)));
    PowerRange { min: Some(min), max: model.max }
}

/// A percentage of a GPU's range in watts, inside the range.
fn gpu_watts(percent: Percent, range: PowerRange) -> Watts {
    clamp(part(range.max, percent), range)
}

/// Never below the one watt that the objects' schema requires.
fn clamp(watts: Watts, range: PowerRange) -> Watts {
    watts.within(range.min.unwrap_or(Watts::from_int(1)), range.max)
}

/// `percent` of `max`, as a limit. The division by 100 comes last, so that 60 % of 700 W are exactly 420 W.
fn part(max: Watts, percent: Percent) -> Watts {
    let wide = i128::from(max.to_bits()) * i128::from(percent.to_bits());
    let bits = wide.div_euclid(i128::from(Percent::HUNDRED.to_bits()));
    Watts::from_bits(i64::try_from(bits).unwrap_or(if bits < 0 { i64::MIN } else { i64::MAX }))
}

/// The user's ranges for models, which take precedence over what the nodes report.
#[derive(Clone, Debug, Default)]
pub struct UserRanges {
    cpus: Vec<(String, PowerRange)>,
    gpus: Vec<(String, PowerRange)>,
}

impl UserRanges {
    /// Ranges of one package by CPU model, and of one GPU by product (`GPU_MODEL_CAPS_JSON`). A name may be any that
    /// the catalogue has for the model, or the raw name.
    ///
    /// # Errors
    /// When a range is impossible, or two ranges are for the same model.
    pub fn new(
        cpus: Vec<(String, PowerRange)>,
        gpus: Vec<(String, PowerRange)>,
        catalog: &Catalog,
    ) -> Result<Self, IntentError> {
        let cpu_key = |name: &str| catalog.cpu(name).map_or(name, |model| model.key.as_str()).to_owned();
        let gpu_key = |name: &str| catalog.gpu(name).map_or(name, |model| model.key.as_str()).to_owned();
        Ok(Self { cpus: checked(cpus, cpu_key)?, gpus: checked(gpus, gpu_key)? })
    }
}

fn checked(
    ranges: Vec<(String, PowerRange)>,
    key: impl Fn(&str) -> String,
) -> Result<Vec<(String, PowerRange)>, IntentError> {
    let mut checked: Vec<(String, PowerRange)> = Vec::with_capacity(ranges.len());
    for (name, range) in ranges {
        let least = Watts::from_int(1);
        let possible = range.max >= least && range.min.is_none_or(|min| min >= least && min <= range.max);
        if !possible || catalog::normal(&name).next().is_none() {
            return Err(IntentError::Range { model: name });
        }
        let key = key(&name);
        if user_range(&checked, Some(&key)).is_some() {
            return Err(IntentError::RangeTwice { model: name });
        }
        checked.push((key, range));
    }
    Ok(checked)
}

fn user_range(ranges: &[(String, PowerRange)], model: Option<&str>) -> Option<PowerRange> {
    let model = model?;
    ranges.iter().find(|(of, _)| catalog::compare(of, model).is_eq()).map(|&(_, range)| range)
}

/// Why cap settings are refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IntentError {
    /// A CPU percentage is not above 0 and at most 100.
    CpuPercent {
        /// The profile.
        profile: Profile,
        /// Its value.
        found: Percent,
    },
    /// A CPU cap is below one watt.
    CpuWatts {
        /// The profile.
        profile: Profile,
        /// Its value.
        found: Watts,
    },
    /// A GPU percentage is above 100.
    GpuPercent {
        /// The profile.
        profile: Profile,
        /// Its value.
        found: Percent,
    },
    /// Eco would have more power than performance.
    Inverted {
        /// The setting.
        setting: &'static str,
    },
    /// A user's range is impossible.
    Range {
        /// The model.
        model: String,
    },
    /// Two of the user's ranges are for the same model.
    RangeTwice {
        /// The model.
        model: String,
    },
}

impl fmt::Display for IntentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CpuPercent { profile, found } => {
                write!(
                    f,
                    "CPU cap of {}: expected a percentage above 0, at most 100, found {found}",
                    profile.as_str()
                )
            }
            Self::CpuWatts { profile, found } => {
                write!(f, "CPU cap of {}: expected at least 1 W, found {found} W", profile.as_str())
            }
            Self::GpuPercent { profile, found } => write!(
                f,
                "GPU cap of {}: expected a percentage of at most 100 (0 for no cap), found {found}",
                profile.as_str()
            ),
            Self::Inverted { setting } => {
                write!(f, "expected {setting} of eco not above that of performance")
            }
            Self::Range { model } => {
                write!(f, "range of {model:?}: expected a model's name, and 1 W <= minimum <= maximum")
            }
            Self::RangeTwice { model } => {
                write!(f, "range of {model:?}: expected one range for a model, found two")
            }
        }
    }
}

impl std::error::Error for IntentError {}

#[cfg(test)]
mod tests;
