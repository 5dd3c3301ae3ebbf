//! Two limits for a group: what may be drawn at an instant, and less in the mean over a window. In each round the first is
//! lowered to what the second leaves.

use super::site_limits::overlapped;
use super::{BudgetMemory, Rules, SiteLimit, Stake};
use crate::power::NodeReading;
use crate::sleep::SleepCount;
use joulie_core::budget::sustained::{SustainedFacts, SustainedLimit, SustainedState};
use power_units::{Micros, Stamp, Watts};
use std::borrow::Cow;
use std::collections::BTreeMap;

/// In how much time grants come down: until all receipts have come, and one round of lowerings.
const LOWERED_WITHIN: Micros = Micros::new(10_000_000);
/// With two limits a round is made this often, if nothing else happens.
pub(super) const LOOKS: Micros = Micros::new(1_000_000);
/// Where more than one of so many nodes is not measured, too little is.
const BLIND_MOST: usize = 20;

/// What follows for each limit that has two, by its index.
pub type SustainedStates = BTreeMap<usize, SustainedState>;

/// What is summed up below a limit.
struct Sums {
    drawn: Option<Watts>,
    counted: Option<Watts>,
    nodes: usize,
    blind: usize,
    lag: Micros,
}

/// The limits as they are in this round.
pub(super) fn limits<'a>(
    stakes: &[Stake<'_>],
    rules: Rules<'a>,
    memory: &mut BudgetMemory,
    now: Stamp,
) -> Result<(Cow<'a, [SiteLimit]>, SustainedStates), String> {
    let binds = |limit: &SiteLimit| limit.enforced || rules.trial;
    let both = |limit: &SiteLimit| limit.sustained.filter(|_| binds(limit));
    let all = rules.limits;
    memory.sustained.retain(|name, (law, _)| {
        all.iter().any(|limit| limit.name == *name && both(limit).is_some_and(|both| is_alike(both, *law)))
    });
    if all.iter().all(|limit| both(limit).is_none()) {
        return Ok((Cow::Borrowed(all), SustainedStates::new()));
    }
    let mut sums: Vec<Sums> = all.iter().map(|_| Sums::nothing()).collect();
    for (at, limit) in all.iter().enumerate() {
        for above in path(all, Some(at)) {
            if let Some(sums) = sums.get_mut(above) {
                sums.add(Some(limit.base), Some(limit.base));
            }
        }
    }
    for stake in stakes {
        let count = stake.row(0, 0, rules.settings)?.count();
        let reading = reading(stake, rules);
        for at in path(all, stake.node.limits.limit) {
            let Some((sums, both)) = sums.get_mut(at).zip(all.get(at).and_then(both)) else { continue };
            sums.nodes += 1;
            match reading.filter(|(_, age)| *age <= both.late()) {
                Some((watts, age)) => {
                    sums.lag = sums.lag.max(age);
                    sums.add(Some(watts), count);
                }
                // What a node counts that is off, its controller has just said.
                None => {
                    sums.blind += usize::from(!matches!(stake.node.sleep, SleepCount::Off(_)));
                    sums.add(count, count);
                }
            }
        }
    }
    let overlapped = overlapped(stakes.iter().map(|stake| stake.node), all.len());
    let (mut limits, mut states) = (all.to_vec(), SustainedStates::new());
    for ((at, limit), sums) in limits.iter_mut().enumerate().zip(&sums) {
        let Some(both) = both(limit) else { continue };
        let is_known = overlapped.get(at) != Some(&true);
        let is_seen = sums.blind * BLIND_MOST <= sums.nodes;
        let facts = SustainedFacts {
            now,
            drawn: sums.drawn.filter(|_| is_known && is_seen),
            counted: sums.counted.filter(|_| is_known),
            lag: sums.lag,
            lowered_within: LOWERED_WITHIN,
        };
        let (law, known) =
            memory.sustained.entry(limit.name.clone()).or_insert_with(|| (both, Box::default()));
        *law = both;
        let state = both.step(known, &facts);
        limit.watts = state.effective;
        states.insert(at, state);
    }
    Ok((Cow::Owned(limits), states))
}

impl Sums {
    const fn nothing() -> Self {
        Self { drawn: Some(Watts::ZERO), counted: Some(Watts::ZERO), nodes: 0, blind: 0, lag: Micros::ZERO }
    }

    fn add(&mut self, drawn: Option<Watts>, counted: Option<Watts>) {
        let plus = |sum: Option<Watts>, part: Option<Watts>| sum?.checked_add(part?);
        (self.drawn, self.counted) = (plus(self.drawn, drawn), plus(self.counted, counted));
    }
}

/// What a node draws in all, and how long ago that was measured; `None` if one of both is not known. A meter of packages and GPUs
/// shows nothing of the rest.
fn reading(stake: &Stake<'_>, rules: Rules<'_>) -> Option<(Watts, Micros)> {
    let power = &stake.node.power;
    let rest = if power.rest.is_none() { stake.rest(rules.settings) } else { Watts::ZERO };
    match power.reading {
        NodeReading::Measured { watts, age, .. } | NodeReading::Held { watts, age, .. } if !power.undated => {
            Some((watts + rest, age))
        }
        NodeReading::Measured { .. } | NodeReading::Held { .. } | NodeReading::Absent(_) => None,
    }
}

/// Whether what is remembered of one is still true of the other: other watts forget nothing that was drawn.
fn is_alike(one: SustainedLimit, other: SustainedLimit) -> bool {
    one.window() == other.window()
}

/// A limit and those above it.
fn path(limits: &[SiteLimit], from: Option<usize>) -> impl Iterator<Item = usize> {
    std::iter::successors(from, |&at| limits.get(at).and_then(|limit| limit.parent))
}
