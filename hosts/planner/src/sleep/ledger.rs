//! What the limits can still pay for in a round: a node is to be woken only where every limit above it has room for its largest
//! draw once the others are brought to the least that they can be. Whether it is switched on says what is counted then.

use super::step::phase;
use super::{SleepCount, SleepFacts, SleepMark, SleepPhase, WakePrice};
use power_units::{Micros, Watts};

/// What is left of each limit.
#[derive(Clone, Debug)]
pub(super) struct Ledger {
    spares: Vec<Option<Watts>>,
    standby: Watts,
}

impl Ledger {
    pub(super) fn of(spares: &[Option<Watts>], standby: Watts) -> Self {
        Self { spares: spares.to_vec(), standby }
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
                let fits = |at: &usize| self.spares.get(*at).copied().flatten().is_some_and(|it| it >= more);
                more == Watts::ZERO || under.iter().all(fits)
            }
        }
    }

    /// This node is to be woken.
    pub(super) fn take(&mut self, facts: &SleepFacts<'_>) {
        self.change(facts, |spare, more| spare - more);
    }

    /// Whether a limit above this node cannot keep what is counted already, and can with this node asleep, or sooner.
    pub(super) fn is_overdrawn(&self, facts: &SleepFacts<'_>) -> bool {
        let WakePrice::Watts { full, under } = &facts.price else { return false };
        let below = |at: &usize| self.spares.get(*at).copied().flatten().is_some_and(|it| it < Watts::ZERO);
        self.more(facts, *full) > Watts::ZERO && under.iter().any(below)
    }

    /// This node sleeps on.
    pub(super) fn give_back(&mut self, facts: &SleepFacts<'_>) {
        self.change(facts, |spare, more| spare + more);
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
