//! Whether the power stays at the cap, as the plant knows it.
//!
//! Above the cap and a twentieth for more than two seconds that the machine could have kept it is a violation. Time
//! that is excused does not count, and is counted by its reason, so that a check without substance shows.

use std::collections::BTreeMap;

/// Why the cap could not have been kept at a moment. The list is what it takes to keep a cap, and nothing else: whoever
/// adds to it makes the bar weaker. While the packages' own limits in force add up to no more than the cap, only
/// [`BelowTheFloor`](Self::BelowTheFloor) excuses anything, whatever else is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CapExcuse {
    /// The machine draws more than the cap at the lowest clock of every core whose policy can be written.
    BelowTheFloor,
    /// There is no node, and since it was there the load, the cap or the hardware has become another.
    NoNode,
    /// A node was started and has not had its second reading of the counter: power is the difference of two.
    NoReadingYet,
    /// Meters do not answer, or answer nonsense, and the node is not at its safe frequency yet; or it was started blind.
    Blind,
    /// Power limits and frequency limits are all out of reach; on a locked machine, frequency limits are.
    NoActuator,
    /// Power limits have been out of reach for a moment, and the closed loop is taking over.
    TakingOver,
    /// What was out of reach has been back for a moment; nobody tells the node, it looks again.
    Recovering,
    /// Somebody else raises limits against the node, which does not fight for ever.
    Rival,
    /// The journal cannot be written and does not hold every original, so something may not be touched.
    NoJournal,
}

/// Everything that is needed to judge a span of time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    pub(crate) micros: u64,
    pub(crate) watts: f64,
    /// What all packages together may draw.
    pub(crate) cap: Option<f64>,
    pub(crate) excuse: Option<CapExcuse>,
}

/// The limits of the bar.
const MARGIN: f64 = 1.05;
const LONGEST_US: u64 = 2_000_000;

/// What was seen of the power.
#[derive(Clone, Debug, Default)]
pub(crate) struct Power {
    run_us: u64,
    run_worst: f64,
    /// The longest time above, and the most above the cap in it, as a part of the cap.
    pub(crate) longest_us: u64,
    pub(crate) worst: f64,
    pub(crate) judged_us: u64,
    /// Of which the cap was less than what the machine would have drawn without one.
    pub(crate) above_us: u64,
    pub(crate) uncapped_us: u64,
    pub(crate) excused_us: BTreeMap<CapExcuse, u64>,
    /// Excused time in which the power was above all the same.
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

    /// Whether the power was above the cap and a twentieth at last, excused or not.
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
