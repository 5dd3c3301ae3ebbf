//! What the limits can still pay for in a round: a node is to be woken only where every limit above it has room for its largest
//! draw once the others are brought to the least that they can be. Whether it is switched on says what is counted then.

use super::step::{has_pods, phase};
use super::{SleepCount, SleepFacts, SleepMark, SleepPhase, WakePrice};
use power_units::{Micros, Watts};
use std::collections::BTreeSet;

/// What is left of each limit.
#[derive(Clone, Debug)]
pub(super) struct Ledger {
    spares: Vec<Option<Watts>>,
    standby: Watts,
    /// The limits under which only nodes with a pod on them are woken, because they could not keep what was counted a while ago.
    overdrawn: BTreeSet<usize>,
}

impl Ledger {
    pub(super) fn of(spares: &[Option<Watts>], standby: Watts, overdrawn: BTreeSet<usize>) -> Self {
        Self { spares: spares.to_vec(), standby, overdrawn }
    }

    /// What this node counts more while it wakes than while it sleeps: nothing where it is not known to be off.
    fn more(&self, facts: &SleepFacts<'_>, full: Watts) -> Watts {
        if !matches!(phase(facts), Some(SleepPhase::Asleep | SleepPhase::Waking)) {
            return Watts::ZERO;
        }
        let asleep = SleepMark { phase: SleepPhase::Asleep, since: Micros::ZERO, boot: String::new() };
        match SleepCount::of(Some(&asleep), facts.power, facts.ready, self.standby) {
            SleepCount::Off(standby) => (full - standby).or_zero(),
            SleepCount::Full | SleepCount::Kept | SleepCount::Awake => Watts::ZERO,
        }
    }

    /// Whether this node can be woken beside those that were taken so far. One that is not off yet is only opened.
    pub(super) fn has_room(&self, facts: &SleepFacts<'_>) -> bool {
        match &facts.price {
            WakePrice::Free => true,
            WakePrice::Shut => phase(facts) != Some(SleepPhase::Asleep),
            WakePrice::Watts { full, under } => {
                let more = self.more(facts, *full);
                let is_open = |at: &usize| has_pods(facts) || !self.overdrawn.contains(at);
                let fits = |at: &usize| self.spares.get(*at).copied().flatten().is_some_and(|it| it >= more);
                more == Watts::ZERO || under.iter().all(|at| is_open(at) && fits(at))
            }
        }
    }

    /// This node is to be woken.
    pub(super) fn take(&mut self, facts: &SleepFacts<'_>) {
        self.change(facts, |spare, more| spare - more);
    }

    /// The limits above this node that cannot keep what is counted already, and can with this node asleep, or sooner.
    pub(super) fn overdrawn(&self, facts: &SleepFacts<'_>) -> Vec<usize> {
        let WakePrice::Watts { full, under } = &facts.price else { return Vec::new() };
        if self.more(facts, *full) <= Watts::ZERO {
            return Vec::new();
        }
        let below = |at: &usize| self.spares.get(*at).copied().flatten().is_some_and(|it| it < Watts::ZERO);
        under.iter().copied().filter(below).collect()
    }

    /// This node sleeps on, because these limits cannot keep what is counted.
    pub(super) fn give_back(&mut self, facts: &SleepFacts<'_>, limits: &[usize]) {
        self.change(facts, |spare, more| spare + more);
        self.overdrawn.extend(limits);
    }

    fn change(&mut self, facts: &SleepFacts<'_>, by: impl Fn(Watts, Watts) -> Watts) {
        let WakePrice::Watts { full, under } = &facts.price else { return };
        let more = self.more(facts, *full);
        for at in under {
            if let Some(Some(spare)) = self.spares.get_mut(*at) {
                *spare = by(*spare, more);
            }
        }
    }
}
