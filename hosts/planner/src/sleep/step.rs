//! A round of the law: which nodes are needed, what follows for those with a mark, and which others are closed.

use super::ledger::Ledger;
use super::memory::{TAKES_WITHIN, is_awake};
use super::{
    PowerState, SleepFacts, SleepLaw, SleepMemory, SleepMode, SleepPhase, SleepReason, SleepRound, SleepStep,
};
use crate::migration::eviction::RequestedResources;
use power_units::{Micros, Stamp, Watts};
use std::collections::{BTreeMap, BTreeSet};

/// An order without an effect is given again after this time.
const RESEND: Micros = Micros::new(30_000_000);
/// While a node is on its way, it is looked at again after this time.
const LOOKS_AGAIN: Micros = Micros::new(2_000_000);
/// A boot costs the largest draw for the time of a wake. Where nobody knows what sleep saves, it is taken for an eighth of
/// that draw, and no node waits longer than that costs.
const BREAK_EVEN_MOST: u64 = 8;

/// The result of a round.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SleepDecision {
    /// What is done, by the index of the node.
    pub steps: Vec<(usize, SleepStep)>,
    /// The nodes that would be put to sleep, where that is only observed.
    pub would: Vec<usize>,
    /// The nodes that are to be awake and sleep on, because a limit above them has no room for their largest draw.
    pub unpaid: Vec<(usize, SleepReason)>,
    /// When to look again although nothing has changed.
    pub again: Option<Stamp>,
    /// What is there.
    pub counts: SleepCounts,
}

/// How many nodes are where.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SleepCounts {
    /// By phase, in the order of [`SleepPhase::ALL`].
    pub phases: [usize; 6],
    /// Nodes that take pods and have none.
    pub empty: usize,
    /// How many of them are to be awake.
    pub warm: u32,
    /// Pods that wait and for which no node is on its way.
    pub unhelped: usize,
    /// Nodes that are to be awake and that cannot be paid for.
    pub unpaid: usize,
}

/// What of a pool is awake.
#[derive(Clone, Copy, Debug, Default)]
struct Pool {
    awake: u32,
    /// Awake without pods.
    empty: u32,
    /// On their way back.
    coming: u32,
    /// Of those, for no pod.
    free: u32,
}

/// What a round knows.
struct Round<'a, 'r> {
    law: &'a SleepLaw,
    round: &'a SleepRound<'r>,
    pools: BTreeMap<&'r str, Pool>,
    /// The nodes that are needed and can be paid for, with the reason, in the order of their need.
    needed: Vec<(usize, SleepReason)>,
    /// The nodes that are needed and cannot be paid for.
    unpaid: BTreeMap<usize, SleepReason>,
    /// The nodes on their way back that pods will take.
    used: Vec<usize>,
    /// The nodes that are not to be woken after all, because a limit was cut meanwhile.
    returned: Vec<usize>,
    ledger: Ledger,
}

impl SleepLaw {
    /// Decides. `fits` says whether a pod may run on a node, by their indices, apart from the node's room.
    #[must_use]
    pub fn step(
        &self,
        memory: &mut SleepMemory,
        round: &SleepRound<'_>,
        fits: impl Fn(usize, usize) -> bool,
    ) -> SleepDecision {
        memory.note(self, round);
        let mut decision = SleepDecision { counts: counted(round), ..SleepDecision::default() };
        let mut all = Round::of(self, round, memory);
        decision.counts.unhelped = all.for_pods(memory, &fits);
        all.for_pools(memory);
        all.give_back(memory);
        decision.counts.warm =
            all.pools.keys().filter_map(|pool| memory.warm(self, pool)).fold(0, u32::saturating_add);
        all.marked(memory, &mut decision.steps);
        let closing = all.closing(memory);
        decision.unpaid = all.unpaid.into_iter().collect();
        decision.counts.unpaid = decision.unpaid.len();
        match self.0.mode {
            SleepMode::On => {
                let close = SleepStep::Mark(SleepPhase::Closing, SleepReason::Empty);
                decision.steps.extend(closing.into_iter().map(|at| (at, close)));
            }
            SleepMode::Observe => decision.would = closing,
            SleepMode::Off => {}
        }
        let moves = |facts: &SleepFacts<'_>| {
            facts.mark.is_some_and(|mark| {
                matches!(
                    mark.phase,
                    SleepPhase::Closing | SleepPhase::Stopping | SleepPhase::Waking | SleepPhase::Starting
                )
            })
        };
        let again = !decision.steps.is_empty() || round.nodes.iter().any(moves);
        decision.again = again.then(|| round.now + LOOKS_AGAIN);
        decision
    }

    /// How long a node must have been empty: at least so long that it would have paid for its next boot.
    fn idle_for(&self, facts: &SleepFacts<'_>) -> Micros {
        let takes = self.0.wake_takes.get();
        let longest = takes.saturating_mul(BREAK_EVEN_MOST);
        let saved = facts.draws.map(|draws| (draws - self.0.standby).or_zero()).filter(|w| *w > Watts::ZERO);
        let even = saved.zip(facts.max).map_or(longest, |(saved, max)| {
            let bits = |watts: Watts| u128::try_from(watts.to_bits()).unwrap_or(0);
            let even = u128::from(takes).saturating_mul(bits(max)) / bits(saved).max(1);
            u64::try_from(even).unwrap_or(u64::MAX).min(longest)
        });
        self.0.idle_for.max(Micros::new(even))
    }
}

fn counted(round: &SleepRound<'_>) -> SleepCounts {
    let mut counts = SleepCounts::default();
    for facts in round.nodes {
        if let Some(mark) = facts.mark {
            for (count, phase) in counts.phases.iter_mut().zip(SleepPhase::ALL) {
                *count += usize::from(phase == mark.phase);
            }
        }
        counts.empty += usize::from(is_awake(facts) && facts.pods == Some(0));
    }
    counts
}

pub(super) fn phase(facts: &SleepFacts<'_>) -> Option<SleepPhase> {
    facts.mark.map(|mark| mark.phase)
}

pub(super) fn has_pods(facts: &SleepFacts<'_>) -> bool {
    facts.pods.is_some_and(|pods| pods > 0)
}

fn is_coming(facts: &SleepFacts<'_>) -> bool {
    matches!(phase(facts), Some(SleepPhase::Waking | SleepPhase::Starting))
}

fn pools<'r>(round: &SleepRound<'r>) -> BTreeMap<&'r str, Pool> {
    let mut pools: BTreeMap<&str, Pool> = BTreeMap::new();
    for facts in round.nodes {
        let pool = pools.entry(facts.pool).or_default();
        pool.awake += u32::from(is_awake(facts));
        pool.empty += u32::from(is_awake(facts) && facts.pods == Some(0));
        pool.coming += u32::from(is_coming(facts));
        pool.free += u32::from(is_coming(facts));
    }
    pools
}

impl<'a, 'r> Round<'a, 'r> {
    fn of(law: &'a SleepLaw, round: &'a SleepRound<'r>, memory: &SleepMemory) -> Self {
        let mut ledger = Ledger::of(round.spares, law.0.standby, memory.overdrawn());
        // What was decided for a node and does not show yet may be a wake.
        let unseen = |facts: &&SleepFacts<'_>| facts.busy && phase(facts) == Some(SleepPhase::Asleep);
        round.nodes.iter().filter(unseen).for_each(|facts| ledger.take(facts));
        Self {
            law,
            round,
            pools: pools(round),
            needed: Vec::new(),
            unpaid: BTreeMap::new(),
            used: Vec::new(),
            returned: Vec::new(),
            ledger,
        }
    }

    fn pool(&mut self, at: usize) -> Option<&mut Pool> {
        let pool = self.round.nodes.get(at)?.pool;
        self.pools.get_mut(pool)
    }

    /// A node is needed, and sleeps on while it cannot be paid for; `for_pod`: it will not be empty.
    fn need(&mut self, at: usize, why: SleepReason, for_pod: bool) {
        let nodes = self.round.nodes;
        let Some(facts) = nodes.get(at) else { return };
        if !self.ledger.has_room(facts) {
            self.cannot_pay(at, why);
            return;
        }
        self.ledger.take(facts);
        self.needed.push((at, why));
        if let Some(pool) = self.pool(at) {
            pool.coming += 1;
            pool.free += u32::from(!for_pod);
        }
    }

    fn cannot_pay(&mut self, at: usize, why: SleepReason) {
        self.unpaid.entry(at).or_insert(why);
    }

    fn is_needed(&self, at: usize) -> Option<SleepReason> {
        self.needed.iter().find(|(one, _)| *one == at).map(|(_, why)| *why)
    }

    /// The nodes that could be had, the soonest first: one that is still on, then the one with the least draw.
    fn reserve(&self, memory: &SleepMemory) -> Vec<usize> {
        let rank = |at: usize, facts: &SleepFacts<'_>| {
            let soon = match phase(facts)? {
                SleepPhase::Closing => 0,
                SleepPhase::Asleep if !memory.rests(facts.name) => 1,
                SleepPhase::Stopping => 2,
                SleepPhase::Asleep | SleepPhase::Waking | SleepPhase::Starting | SleepPhase::Left => {
                    return None;
                }
            };
            Some((soon, facts.max.unwrap_or(Watts::MAX), at))
        };
        let nodes = self.round.nodes.iter().enumerate();
        let mut all: Vec<_> = nodes.filter_map(|(at, facts)| rank(at, facts)).collect();
        all.sort_unstable();
        all.into_iter().map(|(.., at)| at).collect()
    }

    /// The nodes that pods need. Returns how many pods nobody helps.
    fn for_pods(&mut self, memory: &mut SleepMemory, fits: &impl Fn(usize, usize) -> bool) -> usize {
        let nodes = self.round.nodes;
        for (at, facts) in nodes.iter().enumerate() {
            if phase(facts) == Some(SleepPhase::Asleep) && has_pods(facts) {
                self.need(at, SleepReason::PodBound, true);
            }
        }
        let now = self.round.now;
        // What is on its way, and what has just come, takes pods first.
        let is_fresh = |facts: &SleepFacts<'_>| {
            is_awake(facts) && memory.empty_for(facts.name, now).is_some_and(|so_far| so_far < TAKES_WITHIN)
        };
        let mut rooms: BTreeMap<usize, RequestedResources> = nodes
            .iter()
            .enumerate()
            .filter(|(_, facts)| is_coming(facts) || is_fresh(facts))
            .map(|(at, facts)| (at, facts.room))
            .collect();
        let reserve = self.reserve(memory);
        let mut unhelped = 0;
        for (number, pod) in self.round.waiting.iter().enumerate() {
            let helps = |(at, room): (&usize, &RequestedResources)| {
                (room.holds(pod.needs) && fits(number, *at)).then_some(*at)
            };
            if let Some(at) = rooms.iter().find_map(helps) {
                if let Some(room) = rooms.get_mut(&at) {
                    *room = room.less(pod.needs);
                }
                if nodes.get(at).is_some_and(is_coming) && !self.used.contains(&at) {
                    self.used.push(at);
                }
                continue;
            }
            let could = |&at: &usize| {
                let facts = nodes.get(at).filter(|facts| {
                    !rooms.contains_key(&at)
                        && facts.room.holds(pod.needs)
                        && memory.may_try(pod.key, facts.name)
                        && fits(number, at)
                });
                Some((at, facts?))
            };
            // One that is needed already has been paid for. It is asked first, because it costs less than whether the pod fits.
            let can_be_had = |at: &&usize| {
                nodes.get(**at).is_some_and(|facts| self.ledger.has_room(facts))
                    || self.is_needed(**at).is_some()
            };
            let Some((at, facts)) = reserve.iter().filter(can_be_had).find_map(could) else {
                unhelped += 1;
                if let Some((at, _)) = reserve.iter().find_map(could) {
                    self.cannot_pay(at, SleepReason::PodWaits);
                }
                continue;
            };
            memory.tries(pod.key, facts.name, now);
            rooms.insert(at, facts.room.less(pod.needs));
            if self.is_needed(at).is_none() {
                self.need(at, SleepReason::PodWaits, true);
            }
        }
        for at in self.used.clone() {
            if let Some(pool) = self.pool(at) {
                pool.free = pool.free.saturating_sub(1);
            }
        }
        unhelped
    }

    /// The nodes that the floors and the warm pools need. Of those that cannot be paid for, one of each pool is named.
    fn for_pools(&mut self, memory: &SleepMemory) {
        let nodes = self.round.nodes;
        let mut named: BTreeSet<&str> = BTreeSet::new();
        for at in self.reserve(memory) {
            let Some(facts) = nodes.get(at).filter(|_| self.is_needed(at).is_none()) else {
                continue;
            };
            let warm = memory.warm(self.law, facts.pool).unwrap_or(0);
            let Some(pool) = self.pools.get(facts.pool) else { continue };
            let why = if pool.awake.saturating_add(pool.coming) < self.law.0.floor {
                SleepReason::Floor
            } else if pool.empty.saturating_add(pool.free) < warm {
                SleepReason::WarmPool
            } else {
                continue;
            };
            if self.ledger.has_room(facts) || named.insert(facts.pool) {
                self.need(at, why, false);
            }
        }
    }

    /// Nodes that wait to be woken sleep on where a limit above them cannot keep what is counted: those first that no pod needs,
    /// and the last of them first. Nothing was ordered for them yet. A limit that hovers would have them marked by turns, so for as
    /// long as a wake takes nobody else is woken under it.
    fn give_back(&mut self, memory: &mut SleepMemory) {
        let waits = |facts: &SleepFacts<'_>| {
            phase(facts) == Some(SleepPhase::Waking) && !facts.paid && !facts.busy && !has_pods(facts)
        };
        let nodes = self.round.nodes;
        let nodes = nodes.iter().enumerate().rev().filter(|(_, facts)| waits(facts));
        let (used, free): (Vec<_>, Vec<_>) = nodes.partition(|(at, _)| self.used.contains(at));
        for (at, facts) in free.into_iter().chain(used) {
            let limits = self.ledger.overdrawn(facts);
            if limits.is_empty() {
                continue;
            }
            self.ledger.give_back(facts, &limits);
            self.returned.push(at);
            let until = self.round.now + self.law.0.wake_takes;
            limits.into_iter().for_each(|limit| memory.overdraws(limit, until));
        }
    }

    /// Whether a node is not to sleep, or not any more.
    fn is_refused(&self, facts: &SleepFacts<'_>) -> bool {
        self.law.0.mode != SleepMode::On || !facts.may_sleep || !facts.cordoned
    }

    /// Why a node with a mark is to be awake.
    fn wakes(&self, at: usize, facts: &SleepFacts<'_>) -> Option<SleepReason> {
        self.is_needed(at).or_else(|| self.is_refused(facts).then_some(SleepReason::NotAskedFor))
    }

    /// What follows for the nodes with a mark.
    fn marked(&mut self, memory: &mut SleepMemory, steps: &mut Vec<(usize, SleepStep)>) {
        let nodes = self.round.nodes;
        let mut waking =
            u32::try_from(nodes.iter().filter(|facts| is_coming(facts)).count()).unwrap_or(u32::MAX);
        let needed: Vec<usize> = self.needed.iter().map(|(at, _)| *at).collect();
        // Who is needed comes first, as only so many wake at once.
        let others: Vec<usize> = (0..nodes.len()).filter(|at| self.is_needed(*at).is_none()).collect();
        for at in needed.into_iter().chain(others) {
            let Some(facts) = nodes.get(at).filter(|facts| !facts.busy) else { continue };
            let Some(step) = self.follow(at, facts, memory) else { continue };
            if let SleepStep::Mark(SleepPhase::Waking, why) = step {
                // What is needed was paid for before.
                let is_new = self.is_needed(at).is_none();
                if is_new && !self.ledger.has_room(facts) {
                    self.cannot_pay(at, why);
                    continue;
                }
                if waking >= self.law.0.wakes_at_once {
                    continue;
                }
                waking += 1;
                if is_new {
                    self.ledger.take(facts);
                }
            }
            steps.push((at, step));
        }
    }

    fn follow(&self, at: usize, facts: &SleepFacts<'_>, memory: &mut SleepMemory) -> Option<SleepStep> {
        let mark = facts.mark?;
        let law = &self.law.0;
        let age = self.round.wall.checked_sub(mark.since).unwrap_or(Micros::ZERO);
        let seen_for = memory.marked_for(facts.name, self.round.now);
        let wakes = self.wakes(at, facts);
        // A mark that could not be read, or is from the future, names no boot.
        let are_known = !mark.boot.is_empty() && !facts.boot.is_empty();
        let has_booted = are_known && facts.boot != mark.boot;
        let is_on = facts.power != Some(PowerState::Off);
        match mark.phase {
            SleepPhase::Closing => {
                let wakes = if has_pods(facts) { Some(SleepReason::PodBound) } else { wakes };
                let step = self.close(facts, (age, seen_for), wakes);
                if matches!(step, Some(SleepStep::Mark(SleepPhase::Stopping, _))) {
                    memory.stops(facts.name, self.round.wall);
                }
                step
            }
            SleepPhase::Stopping => self.stop(facts, (seen_for, has_booted), memory),
            SleepPhase::Asleep if facts.ready && facts.power == Some(PowerState::On) => {
                // Somebody else has switched it on, or it was never off.
                (has_booted || seen_for >= law.off_within).then_some(SleepStep::Reopen(SleepReason::IsAwake))
            }
            SleepPhase::Asleep if memory.rests(facts.name) && wakes != Some(SleepReason::PodBound) => None,
            SleepPhase::Asleep => wakes.map(|why| SleepStep::Mark(SleepPhase::Waking, why)),
            SleepPhase::Waking | SleepPhase::Starting if facts.ready && is_on && has_booted => {
                Some(SleepStep::Reopen(SleepReason::IsAwake))
            }
            SleepPhase::Waking if facts.paid => {
                Some(SleepStep::Mark(SleepPhase::Starting, SleepReason::Paid))
            }
            SleepPhase::Waking if self.returned.contains(&at) => {
                Some(SleepStep::Mark(SleepPhase::Asleep, SleepReason::NoRoom))
            }
            SleepPhase::Waking if age >= law.wake_within => {
                memory.rest(facts.name, self.round.now + law.wake_takes);
                Some(SleepStep::Mark(SleepPhase::Asleep, SleepReason::NoRoom))
            }
            SleepPhase::Waking => None,
            SleepPhase::Starting => self.start(facts, seen_for, memory),
            SleepPhase::Left if facts.ready && is_on && (has_booted || seen_for >= law.off_within) => {
                memory.rest(facts.name, self.round.now + law.wake_within);
                Some(SleepStep::Reopen(SleepReason::IsAwake))
            }
            SleepPhase::Left => None,
        }
    }

    /// `age`: of the mark, by the time of day; `seen_for`: by the clock that does not jump.
    fn close(
        &self,
        facts: &SleepFacts<'_>,
        (age, seen_for): (Micros, Micros),
        wakes: Option<SleepReason>,
    ) -> Option<SleepStep> {
        let settle = self.law.0.settle;
        if let Some(why) = wakes {
            return Some(SleepStep::Reopen(why));
        }
        let is_seen = facts.ready && facts.pods == Some(0) && facts.power == Some(PowerState::On);
        match is_seen {
            // A pod may still be on its way to it.
            true => {
                (seen_for >= settle).then_some(SleepStep::Mark(SleepPhase::Stopping, SleepReason::Settled))
            }
            // Whoever cannot be seen is not switched off.
            false => {
                (age >= self.law.0.off_within.max(settle)).then_some(SleepStep::Reopen(SleepReason::Unseen))
            }
        }
    }

    /// `seen_for`: how long its mark has been seen here, by the clock that does not jump; `has_booted`: since its mark.
    fn stop(
        &self,
        facts: &SleepFacts<'_>,
        (seen_for, has_booted): (Micros, bool),
        memory: &mut SleepMemory,
    ) -> Option<SleepStep> {
        let takes = self.law.0.off_within;
        let is_late = seen_for >= takes;
        let left = |why| is_late.then_some(SleepStep::Mark(SleepPhase::Left, why));
        // Why no order is given any more.
        let withheld = if has_pods(facts) {
            Some(SleepReason::PodBound)
        } else if self.is_refused(facts) {
            Some(SleepReason::NotAskedFor)
        } else {
            // It has been off since, by an order that was given here or by the leader before, and somebody has switched it on; or it
            // has restarted by itself since then. It may be closed anew.
            has_booted.then_some(SleepReason::IsAwake)
        };
        let now = self.round.now;
        match (facts.power, withheld) {
            (Some(PowerState::Off), _) if !facts.ready => {
                Some(SleepStep::Mark(SleepPhase::Asleep, SleepReason::IsOff))
            }
            (Some(PowerState::Off), _) => left(SleepReason::Contradiction),
            // It would lose its pods if it took any while an order to switch off may still be carried out.
            (Some(PowerState::On), Some(why)) if facts.ready => {
                memory.is_still(facts.name, now, takes).then_some(SleepStep::Reopen(why))
            }
            // What is needed meanwhile is off sooner than it is known not to go off, and is then woken.
            (Some(PowerState::On), None) if !is_late && facts.pods == Some(0) => {
                let is_due = !memory.was_sent(facts.name, now, RESEND);
                is_due.then(|| {
                    memory.send(facts.name, now);
                    SleepStep::SwitchOff
                })
            }
            (Some(PowerState::On | PowerState::Changing), _) => left(SleepReason::DidNotStop),
            (None, _) => left(SleepReason::Unseen),
        }
    }

    /// `seen_for`: as for one that is stopped.
    fn start(&self, facts: &SleepFacts<'_>, seen_for: Micros, memory: &mut SleepMemory) -> Option<SleepStep> {
        let law = &self.law.0;
        if facts.ready && facts.power == Some(PowerState::On) {
            // It was never off.
            return (seen_for >= law.off_within).then_some(SleepStep::Reopen(SleepReason::IsAwake));
        }
        if seen_for >= law.wake_within {
            return Some(SleepStep::Mark(SleepPhase::Left, SleepReason::DidNotWake));
        }
        let now = self.round.now;
        let is_due = facts.paid
            && !matches!(facts.power, Some(PowerState::On | PowerState::Changing))
            && !memory.was_sent(facts.name, now, RESEND);
        is_due.then(|| {
            memory.send(facts.name, now);
            SleepStep::SwitchOn
        })
    }

    /// The empty nodes to close now, those that have been empty for the longest first.
    fn closing(&mut self, memory: &SleepMemory) -> Vec<usize> {
        let law = &self.law.0;
        let now = self.round.now;
        let is_moving = |facts: &&SleepFacts<'_>| {
            matches!(phase(facts), Some(SleepPhase::Closing | SleepPhase::Stopping))
        };
        let moving = self.round.nodes.iter().filter(is_moving).count();
        let most = usize::try_from(law.sleeps_at_once).unwrap_or(usize::MAX).saturating_sub(moving);
        let mut empty: Vec<(Micros, usize)> = Vec::new();
        for (at, facts) in self.round.nodes.iter().enumerate() {
            let is_free = is_awake(facts) && facts.may_sleep && !facts.busy && facts.pods == Some(0);
            let is_up = memory.up_for(facts.name, now).is_some_and(|so_far| so_far >= law.min_on);
            let is_known = facts.power == Some(PowerState::On) && !memory.rests(facts.name);
            let so_far = memory.empty_for(facts.name, now).filter(|_| is_free && is_up && is_known);
            empty.extend(
                so_far.filter(|so_far| *so_far >= self.law.idle_for(facts)).map(|so_far| (so_far, at)),
            );
        }
        empty.sort_by(|(one, at), (other, place)| other.cmp(one).then(at.cmp(place)));
        let mut closing = Vec::new();
        for (_, at) in empty {
            if closing.len() >= most {
                break;
            }
            let Some(facts) = self.round.nodes.get(at) else { continue };
            let (Some(warm), floor) = (memory.warm(self.law, facts.pool), law.floor) else { continue };
            let Some(pool) = self.pools.get_mut(facts.pool) else { continue };
            if pool.awake > floor && pool.empty > warm {
                (pool.awake, pool.empty) = (pool.awake - 1, pool.empty - 1);
                closing.push(at);
            }
        }
        closing
    }
}
