//! What is out of the node's reach at the moment, and since when.

use crate::power::Excuse;

/// A part of the machine that can be out of reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Meters,
    Limits,
    Policies,
    Journal,
    /// Limits that somebody else raises.
    Rival,
}

/// How long the closed loop may take to hold what the limits have held: the limit's outcome, the first look of the
/// loop, and the step after it.
const TAKE_OVER_US: u64 = 2_500_000;
/// How long the node may take to see that something is back: it looks for devices that are gone once a second, and a
/// write that failed once is tried again after a second.
const RECOVERY_US: u64 = 2_500_000;

#[derive(Clone, Copy, Debug, Default)]
struct Reach {
    lost_at: Option<u64>,
    back_at: Option<u64>,
}

/// Which parts are out of reach.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Harms {
    meters: Reach,
    limits: Reach,
    policies: Reach,
    journal: Reach,
    rival: Reach,
}

impl Reach {
    fn is_lost(self) -> bool {
        self.lost_at.is_some()
    }

    fn lost_for(self, now: u64) -> Option<u64> {
        self.lost_at.map(|at| now.saturating_sub(at))
    }

    fn is_fresh(self, now: u64) -> bool {
        self.back_at.is_some_and(|at| now.saturating_sub(at) < RECOVERY_US)
    }
}

impl Harms {
    fn reach(&mut self, part: Part) -> &mut Reach {
        match part {
            Part::Meters => &mut self.meters,
            Part::Limits => &mut self.limits,
            Part::Policies => &mut self.policies,
            Part::Journal => &mut self.journal,
            Part::Rival => &mut self.rival,
        }
    }

    pub(crate) fn lose(&mut self, part: Part, now: u64) {
        self.reach(part).lost_at.get_or_insert(now);
    }

    pub(crate) fn heal(&mut self, now: u64) {
        for part in [Part::Meters, Part::Limits, Part::Policies, Part::Journal, Part::Rival] {
            let reach = self.reach(part);
            if reach.lost_at.take().is_some() {
                reach.back_at = Some(now);
            }
        }
    }

    pub(crate) fn any(&self) -> bool {
        [self.meters, self.limits, self.policies, self.journal, self.rival]
            .iter()
            .any(|reach| reach.is_lost())
    }

    /// Why the machine could not keep a cap now, as far as it is up to what can be reached.
    pub(crate) fn excuse(&self, has_limits: bool, now: u64) -> Option<Excuse> {
        if self.journal.is_lost() {
            return Some(Excuse::NoJournal);
        }
        if self.rival.is_lost() {
            return Some(Excuse::Rival);
        }
        let limits_lost = !has_limits || self.limits.is_lost();
        if limits_lost && self.policies.is_lost() {
            return Some(Excuse::NoActuator);
        }
        if limits_lost && self.meters.is_lost() {
            return Some(Excuse::Blind);
        }
        if self.limits.lost_for(now).is_some_and(|lost| lost < TAKE_OVER_US) {
            return Some(Excuse::TakingOver);
        }
        // On a machine that holds the cap by its limits, what happens to the policies does not matter.
        let matters = [self.journal, self.rival, self.limits];
        let only_in_the_loop = [self.policies, self.meters];
        let fresh = matters.iter().any(|reach| reach.is_fresh(now))
            || !has_limits && only_in_the_loop.iter().any(|reach| reach.is_fresh(now));
        fresh.then_some(Excuse::Recovering)
    }
}
