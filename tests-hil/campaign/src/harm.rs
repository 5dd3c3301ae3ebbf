//! The parts of the machine that the node cannot reach at the moment, and since when.
//!
//! Nothing here excuses a cap that the hardware limits hold: the caller checks the limits in force first.

use crate::power::CapExcuse;

/// A part of the machine that can become unreachable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Meters,
    Limits,
    /// Every frequency limit. If only some are lost, the floor accounts for them.
    Policies,
    Journal,
    /// Limits that somebody else raises.
    Rival,
    /// A part that no excuse depends on.
    Nothing,
}

/// How a part is lost. This determines how soon it is found again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Loss {
    /// Its files fail, hang or return wrong data; the next access after the repair succeeds.
    Silent,
    /// Its device disappears; the node looks for it once a second.
    Away,
}

/// How long the closed loop may take to replace the limits: an unanswered order is given up after 2 s, plus the
/// period in which that time ends.
const TAKE_OVER_US: u64 = 2_500_000;
/// How long a node may take from its first period without a reading to its safe frequency: the period in which the
/// meter was lost, three periods of waiting, and the next one.
const BLIND_US: u64 = 2_500_000;
/// The next period finds that files answer again, and acts at its end.
const RECOVERY_US: u64 = 500_000;
/// A device that is back is looked for once a second, and is used in the period after that.
const FOUND_US: u64 = 1_500_000;
/// After a meter is back, its first count is the first after the gap, and power needs two counts.
const READING_US: u64 = 500_000;

#[derive(Clone, Copy, Debug)]
struct Lost {
    at: u64,
    how: Loss,
}

#[derive(Clone, Copy, Debug, Default)]
struct Reach {
    lost: Option<Lost>,
    /// Until when the node may not have noticed that the part is back.
    fresh_until: u64,
}

/// The parts that are out of reach.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Harms {
    meters: Reach,
    limits: Reach,
    policies: Reach,
    journal: Reach,
    rival: Reach,
    nothing: Reach,
}

/// The state of the node that excuses depend on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Situation {
    pub(crate) now: u64,
    /// Whether every package has a power limit that can be set.
    pub(crate) has_limits: bool,
    /// Whether the journal's file holds every original that has to be touched, and the node knows that.
    pub(crate) all_held: bool,
    /// When the current process was started.
    pub(crate) started_at: u64,
    /// When the desired state was last changed.
    pub(crate) told_at: u64,
}

impl Harms {
    fn reach(&mut self, part: Part) -> &mut Reach {
        match part {
            Part::Meters => &mut self.meters,
            Part::Limits => &mut self.limits,
            Part::Policies => &mut self.policies,
            Part::Journal => &mut self.journal,
            Part::Rival => &mut self.rival,
            Part::Nothing => &mut self.nothing,
        }
    }

    pub(crate) fn lose(&mut self, part: Part, how: Loss, now: u64) {
        let lost = self.reach(part).lost.get_or_insert(Lost { at: now, how });
        if how == Loss::Away {
            lost.how = how;
        }
    }

    pub(crate) fn heal(&mut self, now: u64) {
        let parts = [Part::Meters, Part::Limits, Part::Policies, Part::Journal, Part::Rival, Part::Nothing];
        for part in parts {
            let reach = self.reach(part);
            if let Some(lost) = reach.lost.take() {
                let found = match lost.how {
                    Loss::Silent => RECOVERY_US,
                    Loss::Away => FOUND_US,
                };
                let read = if part == Part::Meters { READING_US } else { 0 };
                // If the loop had begun to take over, it continues to do so.
                let taken_over = if part == Part::Limits { lost.at + TAKE_OVER_US } else { 0 };
                reach.fresh_until = (now + found + read).max(taken_over);
            }
        }
    }

    pub(crate) fn has_no_journal(&self) -> bool {
        self.journal.lost.is_some()
    }

    pub(crate) fn any(&self) -> bool {
        [self.meters, self.limits, self.policies, self.journal, self.rival, self.nothing]
            .iter()
            .any(|reach| reach.lost.is_some())
    }

    /// Why the machine could not keep a cap now because of parts that are out of reach.
    pub(crate) fn excuse(&self, of: &Situation) -> Option<CapExcuse> {
        let within = |lost: Lost, time: u64| of.now.saturating_sub(lost.at.max(of.told_at)) < time;
        if self.journal.lost.is_some() && !of.all_held {
            return Some(CapExcuse::NoJournal);
        }
        if self.rival.lost.is_some() {
            return Some(CapExcuse::Rival);
        }
        let limits_lost = !of.has_limits || self.limits.lost.is_some();
        if limits_lost && self.policies.lost.is_some() {
            return Some(CapExcuse::NoActuator);
        }
        let take_over = if of.has_limits { TAKE_OVER_US } else { 0 };
        if limits_lost
            && let Some(lost) = self.meters.lost
            // A new process learns from the meter which packages exist and have a meter.
            && (within(lost, take_over + BLIND_US) || of.started_at > lost.at)
        {
            return Some(CapExcuse::Blind);
        }
        if self.limits.lost.is_some_and(|lost| within(lost, TAKE_OVER_US)) {
            return Some(CapExcuse::TakingOver);
        }
        let fresh = [self.journal, self.rival, self.limits, self.policies, self.meters]
            .iter()
            .any(|reach| of.now < reach.fresh_until);
        fresh.then_some(CapExcuse::Recovering)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOOP: Situation =
        Situation { now: 0, has_limits: false, all_held: true, started_at: 0, told_at: 0 };

    fn at(ms: u64) -> Situation {
        Situation { now: ms * 1_000, ..LOOP }
    }

    #[test]
    fn a_blind_node_is_excused_until_it_is_at_its_safe_frequency() {
        let mut harms = Harms::default();
        harms.lose(Part::Meters, Loss::Silent, 1_000_000);
        assert_eq!(harms.excuse(&at(3_499)), Some(CapExcuse::Blind));
        assert_eq!(harms.excuse(&at(3_500)), None, "for as long as it is blind it is safe");
        let restarted = Situation { started_at: 5_000_000, ..at(60_000) };
        assert_eq!(harms.excuse(&restarted), Some(CapExcuse::Blind));
        harms.heal(60_000_000);
        assert_eq!(harms.excuse(&at(60_999)), Some(CapExcuse::Recovering));
        assert_eq!(harms.excuse(&at(61_000)), None);
    }

    #[test]
    fn what_the_loop_takes_over_is_excused_once() {
        let limits = |ms| Situation { has_limits: true, ..at(ms) };
        let mut harms = Harms::default();
        harms.lose(Part::Limits, Loss::Silent, 0);
        assert_eq!(harms.excuse(&limits(2_499)), Some(CapExcuse::TakingOver));
        assert_eq!(harms.excuse(&limits(2_500)), None);
        harms.heal(10_000_000);
        assert_eq!(harms.excuse(&limits(10_500)), None, "the loop holds until the limits do");
    }

    #[test]
    fn a_journal_that_holds_everything_need_not_be_written() {
        let mut harms = Harms::default();
        harms.lose(Part::Journal, Loss::Silent, 0);
        assert_eq!(harms.excuse(&at(1)), None);
        assert_eq!(harms.excuse(&Situation { all_held: false, ..at(1) }), Some(CapExcuse::NoJournal));
    }
}
