//! Workload classes: how much a workload uses a node, what bounds it, and how much a power cap would hurt it.
//!
//! "The classifier reads metrics and pod annotations to produce a WorkloadProfile for each observed workload":
//! criticality class, CPU and GPU *intensity*, cap *sensitivity* and a *confidence* score, "how much data backs the
//! classification". The rules are in [`rules`], their inputs are in [`metrics`], and [`memory`] reclassifies every
//! 15 minutes. It does not flap at a threshold, and keeps a profile when metrics fail for a while.

pub mod memory;
pub mod metrics;
pub mod rules;

use joulie_core::placement::class::{Classified, WorkloadClass};
use power_units::{Percent, Ratio, Role};

/// The profile of a workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkloadProfile {
    /// Drives hard scheduling constraints.
    pub class: WorkloadClass,
    /// Whether it may be restarted elsewhere.
    pub reschedulable: bool,
    /// Its use of processors.
    pub cpu: DeviceUsage,
    /// Its use of graphics processors.
    pub gpu: DeviceUsage,
    /// How much data backs this.
    pub confidence: Confidence,
    /// Which rules led to this, in the words of the rules.
    pub reason: String,
}

/// A workload's use of one kind of device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceUsage {
    /// How much it uses the device.
    pub intensity: Intensity,
    /// What bounds it on the device.
    pub bound: Bound,
    /// How much a power cap would hurt it.
    pub sensitivity: Sensitivity,
    /// The observed utilisation, if there is one.
    pub utilization: Option<Percent>,
}

/// How much a device is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Intensity {
    /// It is not used; graphics processors only.
    None,
    /// Below 30 % of the processors, 25 % of the graphics processors.
    Low,
    /// Between the two.
    Medium,
    /// From 75 % of the processors, 70 % of the graphics processors.
    High,
}

/// From which utilisation, in percent, an intensity is medium and high.
pub(crate) struct Grades {
    pub(crate) medium: i32,
    pub(crate) high: i32,
}

/// The grades of processors.
pub(crate) const CPU_GRADES: Grades = Grades { medium: 30, high: 75 };
/// The grades of graphics processors.
pub(crate) const GPU_GRADES: Grades = Grades { medium: 25, high: 70 };

/// What bounds a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Bound {
    /// Nothing: the device is not used.
    None,
    /// Computing.
    Compute,
    /// Memory.
    Memory,
    /// Waiting for input and output.
    Io,
    /// No single resource.
    Mixed,
}

/// How much a power cap would hurt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Sensitivity {
    /// Not at all: the device is not used.
    None,
    /// Little.
    Low,
    /// Somewhat.
    Medium,
    /// Much.
    High,
}

impl Intensity {
    /// The text in objects.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
        }
    }
}

impl Bound {
    /// The text in objects.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Compute => "compute",
            Self::Memory => "memory",
            Self::Io => "io",
            Self::Mixed => "mixed",
        }
    }
}

impl Sensitivity {
    /// The text in objects.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
        }
    }
}

/// How much data backs a statement: 0 to 1 in tenths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Confidence(u8);

impl Confidence {
    /// This many tenths, at most ten.
    #[must_use]
    pub const fn tenths(tenths: u8) -> Self {
        Self(if tenths > 10 { 10 } else { tenths })
    }

    /// As a number between 0 and 1.
    #[must_use]
    pub fn to_ratio(self) -> Ratio {
        Percent::from_int(i32::from(self.0) * 10).to_ratio(Role::Nearest)
    }

    /// "high" from 0.7, "medium" from 0.5, "low" below.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self.0 {
            7.. => "high",
            5..7 => "medium",
            0..5 => "low",
        }
    }

    /// Lowered by this many tenths.
    #[must_use]
    pub const fn less(self, tenths: u8) -> Self {
        Self(self.0.saturating_sub(tenths))
    }
}

/// The annotations of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hints {
    /// Its class, and whether the text is recognised.
    pub class: Classified,
    /// Whether it names a class at all.
    pub explicit: bool,
    /// Whether it may be restarted elsewhere.
    pub reschedulable: bool,
}

impl Hints {
    /// Reads the annotations `joulie.io/workload-class` and `joulie.io/reschedulable`; the latter counts only if it
    /// is exactly `true`.
    #[must_use]
    pub fn read(class: Option<&str>, reschedulable: Option<&str>) -> Self {
        Self {
            class: WorkloadClass::read(class),
            explicit: class.is_some_and(|text| !text.trim().is_empty()),
            reschedulable: reschedulable == Some("true"),
        }
    }
}

impl WorkloadProfile {
    /// Whether the profile is trusted: its confidence is at least `least`.
    #[must_use]
    pub fn is_trusted(&self, least: Confidence) -> bool {
        self.confidence >= least
    }

    /// One line for people.
    #[must_use]
    pub fn summary(&self) -> String {
        let device =
            |verdict: DeviceUsage| format!("{}/{}", verdict.intensity.as_str(), verdict.bound.as_str());
        let gpu = match self.gpu.intensity {
            Intensity::None => String::new(),
            Intensity::Low | Intensity::Medium | Intensity::High => format!(" gpu={}", device(self.gpu)),
        };
        format!("cpu={}{gpu} {}-confidence", device(self.cpu), self.confidence.label())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn confidence_has_the_labels_of_the_table() {
        let labels: Vec<_> = (0..=11).map(|tenths| Confidence::tenths(tenths).label()).collect();
        let (low, medium, high) = (["low"; 5], ["medium"; 2], ["high"; 5]);
        assert_eq!(labels, [&low[..], &medium[..], &high[..]].concat());
        assert_eq!(Confidence::tenths(200).to_ratio(), Ratio::ONE);
        assert_eq!(Confidence::tenths(5).to_ratio(), Ratio::from_bits(1 << 31));
        assert_eq!(Confidence::tenths(1).less(2), Confidence::tenths(0));
    }

    #[test]
    fn only_the_literal_true_makes_a_pod_reschedulable() {
        assert!(Hints::read(None, Some("true")).reschedulable);
        for text in [None, Some(""), Some("True"), Some("yes"), Some("1"), Some(" true"), Some("false")] {
            assert!(!Hints::read(None, text).reschedulable, "{text:?}");
        }
    }
}
