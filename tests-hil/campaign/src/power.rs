//! Checks the plant's true power against the cap.
//!
//! It is a violation if the power is above 105 % of the cap for more than two seconds in which the machine could have
//! kept it. Excused time does not count. It is summed up by reason, so that a check without effect is visible.

use std::collections::BTreeMap;

/// Why the cap could not have been kept at a moment. The list contains exactly what is needed to keep a cap; every
/// addition weakens the check. While the sum of the packages' limits in force is not above the cap, only
/// [`BelowTheFloor`](Self::BelowTheFloor) is an excuse, whatever else is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CapExcuse {
    /// The machine draws more than the cap even at the lowest clock of every core whose policy can be written.
    BelowTheFloor,
    /// There is no node, and the load, the cap or the hardware has changed since the last one.
    NoNode,
    /// A node was started and has not read the counter twice yet: power is a difference of two readings.
    NoReadingYet,
    /// Meters fail or return nonsense, and the node has not reached its safe frequency yet; or the node was started
    /// without readings.
    Blind,
    /// Neither power limits nor frequency limits can be reached; on a locked machine, frequency limits cannot.
    NoActuator,
    /// Power limits were lost a short time ago, and the closed loop is taking over.
    TakingOver,
    /// A lost part is back since a short time; the node finds it by polling.
    Recovering,
    /// Another program raises limits against the node, which gives up after some attempts.
    Rival,
    /// The journal cannot be written and lacks some originals, so some controls must not be touched.
    NoJournal,
}

/// The data for judging a span of time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    pub(crate) micros: u64,
    pub(crate) watts: f64,
    /// The cap of all packages together.
    pub(crate) cap: Option<f64>,
    pub(crate) excuse: Option<CapExcuse>,
}

/// The limits of the check.
const MARGIN: f64 = 1.05;
const LONGEST_US: u64 = 2_000_000;

/// The results of the power check.
#[derive(Clone, Debug, Default)]
pub(crate) struct Power {
    run_us: u64,
    run_worst: f64,
    /// The longest time above the limit, and the highest excess in it, as a part of the cap.
    pub(crate) longest_us: u64,
    pub(crate) worst: f64,
    pub(crate) judged_us: u64,
    /// The time in which the cap was below the power that the machine would have drawn without one.
    pub(crate) above_us: u64,
    pub(crate) uncapped_us: u64,
    pub(crate) excused_us: BTreeMap<CapExcuse, u64>,
    /// Excused time in which the power was above the limit nevertheless.
    pub(crate) excused_above_us: BTreeMap<CapExcuse, u64>,
    pub(crate) violation: Option<String>,
    is_above: bool,
}

impl Power {
    pub(crate) fn note(&mut self, span: Span) {
        let Some(cap) = span.cap else {
            self.uncapped_us += span.micros;
            self.is_above = false;
            return self.end_run();
        };
        let above = span.watts > cap * MARGIN;
        self.is_above = above;
        if let Some(excuse) = span.excuse {
            *self.excused_us.entry(excuse).or_default() += span.micros;
            if above {
                *self.excused_above_us.entry(excuse).or_default() += span.micros;
            }
            return self.end_run();
        }
        self.judged_us += span.micros;
        if !above {
            return self.end_run();
        }
        self.above_us += span.micros;
        self.run_us += span.micros;
        self.run_worst = self.run_worst.max(span.watts / cap);
        self.longest_us = self.longest_us.max(self.run_us);
        self.worst = self.worst.max(self.run_worst);
        if self.run_us > LONGEST_US && self.violation.is_none() {
            let ms = self.run_us / 1000;
            self.violation = Some(format!("{:.1} W at a cap of {cap:.0} W for {ms} ms", span.watts));
        }
    }

    fn end_run(&mut self) {
        (self.run_us, self.run_worst) = (0, 0.0);
    }

    /// Whether the power was last above 105 % of the cap, excused or not.
    pub(crate) fn is_above(&self) -> bool {
        self.is_above
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(watts: f64, excuse: Option<CapExcuse>) -> Span {
        Span { micros: 500_000, watts, cap: Some(100.0), excuse }
    }

    #[test]
    fn two_seconds_above_are_allowed_and_more_are_not() {
        let mut power = Power::default();
        for _ in 0..4 {
            power.note(span(105.1, None));
        }
        assert_eq!(power.violation, None);
        power.note(span(105.1, None));
        assert!(power.violation.is_some());
    }

    #[test]
    fn a_twentieth_above_is_allowed_for_ever() {
        let mut power = Power::default();
        (0..100).for_each(|_| power.note(span(105.0, None)));
        assert_eq!((power.violation, power.judged_us), (None, 50_000_000));
    }

    #[test]
    fn an_excuse_ends_a_run_and_is_counted() {
        let mut power = Power::default();
        for at in 0..20 {
            power.note(span(200.0, (at % 4 == 3).then_some(CapExcuse::Blind)));
        }
        assert_eq!(power.violation, None);
        assert_eq!(power.excused_above_us[&CapExcuse::Blind], 2_500_000);
        assert_eq!(power.longest_us, 1_500_000);
    }

    #[test]
    fn what_is_excused_is_above_all_the_same() {
        let mut power = Power::default();
        power.note(span(200.0, Some(CapExcuse::NoReadingYet)));
        assert!(power.is_above(), "a node that is killed now did not keep the cap");
        power.note(span(105.0, None));
        assert!(!power.is_above());
    }
}
