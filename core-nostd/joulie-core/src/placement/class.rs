//! The two classes on which placement depends: what a pod requires, and what a node offers.

/// What a pod requires by the annotation `joulie.io/workload-class`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WorkloadClass {
    /// Must not run on eco or draining nodes.
    Performance,
    /// Runs anywhere; the default.
    Standard,
}

/// A pod's class, and whether the text of the annotation is a known one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Classified {
    /// The class that the pod is treated as.
    pub class: WorkloadClass,
    /// False for a text that is neither class: probably a mistake, which must be reported.
    pub recognised: bool,
}

impl WorkloadClass {
    /// Reads the annotation. Case and surrounding space do not matter, and a missing or empty text is the default:
    /// a typing error must not send a performance pod to a capped node.
    #[must_use]
    pub fn read(annotation: Option<&str>) -> Classified {
        let text = annotation.map_or("", str::trim);
        if text.eq_ignore_ascii_case("performance") {
            return Classified { class: Self::Performance, recognised: true };
        }
        let recognised = text.is_empty() || text.eq_ignore_ascii_case("standard");
        Classified { class: Self::Standard, recognised }
    }
}

/// What a node offers, as `NodeTwin.status.schedulableClass` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SchedulableClass {
    /// Full power.
    Performance,
    /// Capped.
    Eco,
    /// On its way to eco while performance pods still run there.
    Draining,
    /// Not reported, or reported with an unknown text.
    Unknown,
}

impl SchedulableClass {
    /// Reads the twin's text; any other text is unknown.
    #[must_use]
    pub fn read(text: &str) -> Self {
        match text {
            "performance" => Self::Performance,
            "eco" => Self::Eco,
            "draining" => Self::Draining,
            _ => Self::Unknown,
        }
    }

    /// The text in a twin.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Performance => "performance",
            Self::Eco => "eco",
            Self::Draining => "draining",
            Self::Unknown => "unknown",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_of_the_pen_is_still_performance_and_nonsense_is_told_apart() {
        // Fix list extender B16.
        let read = |text| {
            let read = WorkloadClass::read(text);
            (read.class, read.recognised)
        };
        for text in ["performance", "Performance", " performance ", "PERFORMANCE"] {
            assert_eq!(read(Some(text)), (WorkloadClass::Performance, true), "{text:?}");
        }
        for text in [None, Some(""), Some("  "), Some("standard"), Some("Standard")] {
            assert_eq!(read(text), (WorkloadClass::Standard, true), "{text:?}");
        }
        for text in ["batch", "eco", "best-effort", "perf"] {
            assert_eq!(read(Some(text)), (WorkloadClass::Standard, false), "{text:?}");
        }
    }

    #[test]
    fn what_a_twin_writes_is_read_back() {
        use SchedulableClass::{Draining, Eco, Performance, Unknown};
        for class in [Performance, Eco, Draining, Unknown] {
            assert_eq!(SchedulableClass::read(class.as_str()), class);
        }
        assert_eq!(SchedulableClass::read("Eco"), Unknown);
    }
}
