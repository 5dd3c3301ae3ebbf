//! What can be set on a domain, and the result.

use crate::Domain;
use power_units::{KiloHertz, MicroWatts, Percent};

/// A control of a domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Control {
    /// Its power limit.
    Power,
    /// Its frequency limit.
    Frequency,
    /// Its throttle.
    Throttle,
}

impl Control {
    /// Every control.
    pub const ALL: [Self; 3] = [Self::Power, Self::Frequency, Self::Throttle];

    /// The label for metrics and the journal.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Power => "power",
            Self::Frequency => "frequency",
            Self::Throttle => "throttle",
        }
    }

    /// The control with this label.
    #[must_use]
    pub fn from_label(label: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|control| control.label() == label)
    }
}

/// A value for a control.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Setting {
    /// Draw no more than this, as a mean over the device's own window.
    Power(MicroWatts),
    /// Run no faster than this.
    Frequency(KiloHertz),
    /// Reduce the speed by this fraction; zero is full speed.
    Throttle(Percent),
}

impl Setting {
    /// The control of this setting.
    #[must_use]
    pub const fn control(self) -> Control {
        match self {
            Self::Power(_) => Control::Power,
            Self::Frequency(_) => Control::Frequency,
            Self::Throttle(_) => Control::Throttle,
        }
    }

    /// Whether it permits more than `other`; `None` for two different controls.
    #[must_use]
    pub fn permits_more_than(self, other: Self) -> Option<bool> {
        match (self, other) {
            (Self::Power(this), Self::Power(other)) => Some(this > other),
            (Self::Frequency(this), Self::Frequency(other)) => Some(this > other),
            (Self::Throttle(this), Self::Throttle(other)) => Some(this < other),
            (Self::Power(_) | Self::Frequency(_) | Self::Throttle(_), _) => None,
        }
    }
}

/// The result of `apply`: what was asked, and what was read back afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Applied {
    requested: Setting,
    effective: Setting,
    exact: bool,
}

/// Whether the request is in force as asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApplyOutcome {
    /// What was asked is in force, apart from the step of the device.
    Exact,
    /// Something else is in force: the range ends earlier, or another limit is stricter.
    Clamped {
        /// What was asked.
        requested: Setting,
        /// What is in force.
        effective: Setting,
    },
}

impl Applied {
    /// Compares what was read back from `domain` with what was asked.
    #[must_use]
    pub fn new(domain: &Domain, requested: Setting, effective: Setting) -> Self {
        Self { requested, effective, exact: domain.grants(requested, effective) }
    }

    /// What was asked.
    #[must_use]
    pub const fn requested(&self) -> Setting {
        self.requested
    }

    /// What was read back: this is in force.
    #[must_use]
    pub const fn effective(&self) -> Setting {
        self.effective
    }

    /// Whether the request is in force as asked.
    #[must_use]
    pub const fn outcome(&self) -> ApplyOutcome {
        if self.exact {
            ApplyOutcome::Exact
        } else {
            ApplyOutcome::Clamped { requested: self.requested, effective: self.effective }
        }
    }

    /// Whether more is permitted than was asked, because the range begins above the wish. A law must know that,
    /// since the power will not fall to the wish.
    #[must_use]
    pub fn permits_more(&self) -> bool {
        self.effective.permits_more_than(self.requested).unwrap_or(true)
    }
}

/// The result of `release`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Released {
    /// No original was saved for this domain, so nothing was ever written.
    Untouched,
    /// The original is in force, and the journal no longer holds it.
    Restored,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Limit, Span};

    fn w(watts: u64) -> MicroWatts {
        MicroWatts::new(watts * 1_000_000)
    }

    #[test]
    fn an_answer_says_whether_it_is_what_was_asked() {
        let limit = Limit::new(Span { floor: w(75), ceiling: w(270) }, MicroWatts::new(125_000)).unwrap();
        let domain = Domain::package(0, None).with_power(limit);
        let applied = |asked, found| Applied::new(&domain, Setting::Power(asked), Setting::Power(found));
        assert_eq!(applied(MicroWatts::new(100_123_456), w(100)).outcome(), ApplyOutcome::Exact);
        let low = applied(w(20), w(75));
        let (requested, effective) = (Setting::Power(w(20)), Setting::Power(w(75)));
        assert_eq!(low.outcome(), ApplyOutcome::Clamped { requested, effective });
        assert!(low.permits_more() && !applied(w(300), w(270)).permits_more());
    }

    #[test]
    fn more_throttle_permits_less() {
        let throttle = |percent| Setting::Throttle(Percent::from_int(percent));
        assert_eq!(throttle(10).permits_more_than(throttle(20)), Some(true));
        assert_eq!(throttle(20).permits_more_than(throttle(20)), Some(false));
        assert_eq!(throttle(20).permits_more_than(Setting::Power(w(1))), None);
        let khz = |khz| Setting::Frequency(KiloHertz::from_int(khz));
        assert_eq!(khz(2).permits_more_than(khz(1)), Some(true));
    }

    #[test]
    fn a_control_is_found_by_its_label() {
        for control in Control::ALL {
            assert_eq!(Control::from_label(control.label()), Some(control));
        }
        assert_eq!(Control::from_label("Power"), None);
    }
}
