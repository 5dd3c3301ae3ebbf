//! Decisions that move much power are told: each is one line of the log and one Event on the limit, with its cause and its
//! name, which every grant has that it writes (`spec.decision`).

use super::Reconciler;
use super::response::LimitLowering;
use crate::reasons::{BUDGET_LOWERS, BUDGET_RAISES};
use host_kit::clock::Mono;
use host_kit::closed_label;
use planner::budget::{DesiredGrant, GroupStanding, LimitSource, SITE, Sum};
use planner::node::Node;
use power_units::Watts;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// A decision is told that moves a twentieth of a limit.
const PART: u32 = 20;
/// For how long a change counts as the cause of what is moved: nodes are raised only as others have been lowered.
const RECENT: Duration = Duration::from_secs(60);
/// How often it is told of one limit, while something changes all the time.
const TELL_AGAIN: Duration = Duration::from_secs(30);
/// The same while power only follows demand: an object may have 25 Events, and one more in five minutes.
const TELL_DEMAND_AGAIN: Duration = Duration::from_secs(900);

closed_label! {
    /// Which way a decision moves power.
    pub(crate) enum MoveWay {
        /// Nodes have less.
        Lowers = "lowers",
        /// Nodes have more.
        Raises = "raises",
    }
}

closed_label! {
    /// Why a decision moves power.
    pub(crate) enum MoveCause {
        /// The limit, or one above it, has changed within a minute.
        Limit = "limit",
        /// More is counted than the limit.
        Excess = "excess",
        /// Other nodes count in it than a minute before.
        Nodes = "nodes",
        /// Other nodes are planned for full power than a minute before.
        Plan = "plan",
        /// The operator has begun to lead within a minute.
        Term = "term",
        /// What nodes want to draw.
        Demand = "demand",
        /// What nodes may draw or count with.
        Other = "other",
    }
}

/// A number, and what it was before its last change and when that was.
#[derive(Clone, Copy, Debug)]
struct ChangedLately<T> {
    is: T,
    was: Option<(T, Mono)>,
}

impl<T: Copy + PartialEq> ChangedLately<T> {
    const fn new(is: T) -> Self {
        Self { is, was: None }
    }

    /// Takes in what it is now. Of changes within a minute the first one counts.
    fn see(&mut self, is: T, now: Mono) {
        if is != self.is {
            let lately = self.was.filter(|(_, at)| now.since(*at) < RECENT);
            self.was = lately.or(Some((self.is, now)));
            self.is = is;
        }
    }

    /// What it was, if it has changed lately.
    fn before(&self, now: Mono) -> Option<T> {
        self.was.filter(|(was, at)| *was != self.is && now.since(*at) < RECENT).map(|(was, _)| was)
    }
}

/// When it was last told of a limit, and of how many decisions it was not since.
#[derive(Clone, Copy, Debug)]
struct LastTold {
    at: Mono,
    untold: u32,
}

/// What is remembered of decisions that move much power.
#[derive(Debug, Default)]
pub(super) struct MoveMemory {
    began: Option<Mono>,
    /// The nodes that are planned for full power.
    full: Option<ChangedLately<usize>>,
    /// The limit of each group while it is enforced, and how many nodes count there.
    groups: BTreeMap<String, (ChangedLately<Option<Watts>>, ChangedLately<usize>)>,
    told: BTreeMap<(String, MoveWay), LastTold>,
}

impl MoveMemory {
    /// Begins anew with a term.
    pub(super) fn begin(&mut self, now: Mono) {
        *self = Self { began: Some(now), ..Self::default() };
    }

    /// Takes in how many nodes are planned for full power.
    pub(super) fn planned(&mut self, full: usize, now: Mono) {
        self.full.get_or_insert(ChangedLately::new(full)).see(full, now);
    }

    fn follow(&mut self, standings: &[GroupStanding], now: Mono) {
        let is_first = self.groups.is_empty();
        for GroupStanding { name, limit, enforced, nodes, .. } in standings {
            let limit = limit.filter(|_| *enforced);
            match self.groups.get_mut(name) {
                Some((limits, counts)) => {
                    limits.see(limit, now);
                    counts.see(*nodes, now);
                }
                None => {
                    // A limit that is new binds nobody before; those of the first pass may have stood for long.
                    let mut limits = ChangedLately::new(if is_first { limit } else { None });
                    limits.see(limit, now);
                    self.groups.insert(name.clone(), (limits, ChangedLately::new(*nodes)));
                }
            }
        }
        // Most passes have the groups of the one before.
        if self.groups.len() > standings.len() {
            let there: BTreeSet<&str> = standings.iter().map(|group| group.name.as_str()).collect();
            self.groups.retain(|name, _| there.contains(name.as_str()));
            self.told.retain(|(name, _), _| there.contains(name.as_str()));
        }
    }

    /// Why power of a group is moved, and the same in words.
    fn cause(&self, standings: &[GroupStanding], at: usize, way: MoveWay, now: Mono) -> (MoveCause, String) {
        let Some(group) = standings.get(at) else { return (MoveCause::Other, String::new()) };
        if let Some(changed) = path(standings, at).find_map(|group| self.limit_changed(group, way, now)) {
            return (MoveCause::Limit, changed);
        }
        if let Some(by) = group.exceeded.or(group.short).filter(|_| way == MoveWay::Lowers) {
            return (MoveCause::Excess, format!("it counts {by:.1} W more than its limit"));
        }
        let (_, counts) = self.groups.get(&group.name).copied().unzip();
        if let Some((was, is)) = counts.and_then(|counts| Some((counts.before(now)?, counts.is))) {
            return (MoveCause::Nodes, format!("{is} nodes count in it instead of {was}"));
        }
        if let Some((was, is)) = self.full.and_then(|full| Some((full.before(now)?, full.is))) {
            return (MoveCause::Plan, format!("{is} nodes are planned for full power instead of {was}"));
        }
        if self.began.is_some_and(|began| now.since(began) < RECENT) {
            return (MoveCause::Term, "this operator has just begun to lead".to_owned());
        }
        match group.power {
            Some(_) => (MoveCause::Demand, "what nodes want to draw has changed".to_owned()),
            None => (MoveCause::Other, "what nodes may draw or count with has changed".to_owned()),
        }
    }

    /// How the limit of a group has changed, if that moves power this way.
    fn limit_changed(&self, group: &GroupStanding, way: MoveWay, now: Mono) -> Option<String> {
        let (limits, _) = self.groups.get(&group.name)?;
        let (was, is) = (limits.before(now)?, limits.is?);
        let name = said(&group.name);
        let Some(was) = was else {
            return (way == MoveWay::Lowers)
                .then(|| format!("the limit of {name}, {is:.1} W, is enforced since a moment ago"));
        };
        let fits = match way {
            MoveWay::Lowers => is < was,
            MoveWay::Raises => is > was,
        };
        // A limit for the mean of a window moves a little in each pass.
        let is_large = (was - is).abs().times(2 * PART) >= is;
        (fits && is_large).then(|| format!("the limit of {name} is {is:.1} W instead of {was:.1} W"))
    }

    /// Whether it is to be told of a limit again, and of how many decisions it was not since.
    fn is_due(&mut self, group: &str, way: MoveWay, cause: MoveCause, now: Mono) -> Option<u32> {
        let wait = match cause {
            MoveCause::Demand | MoveCause::Other => TELL_DEMAND_AGAIN,
            MoveCause::Limit | MoveCause::Excess | MoveCause::Nodes | MoveCause::Plan | MoveCause::Term => {
                TELL_AGAIN
            }
        };
        let key = (group.to_owned(), way);
        if let Some(told) = self.told.get_mut(&key).filter(|told| now < told.at.plus(wait)) {
            told.untold = told.untold.saturating_add(1);
            return None;
        }
        let before = self.told.insert(key, LastTold { at: now, untold: 0 });
        Some(before.map_or(0, |before| before.untold))
    }
}

impl Reconciler {
    /// Tells of large moves of power. Where a limit and one above it move, it is told of the one above.
    pub(super) fn say_moves(&mut self, now: Mono) {
        self.moves.follow(&self.round.standings, now);
        let sums = self.moved();
        let decision = self.decision();
        for (at, group) in self.round.standings.iter().enumerate() {
            for (way, reason, word) in
                [(MoveWay::Lowers, BUDGET_LOWERS, "lowered"), (MoveWay::Raises, BUDGET_RAISES, "raised")]
            {
                let sum = |at: usize| sums.get(at).map(|moved| moved.of(way)).unwrap_or_default();
                let mut above = above(&self.round.standings, at);
                if !is_large(group, sum(at)) || above.any(|(at, above)| is_large(above, sum(at))) {
                    continue;
                }
                let (cause, mut why) = self.moves.cause(&self.round.standings, at, way, now);
                self.stats.moved(way, cause, &decision);
                let untold = self.moves.is_due(&group.name, way, cause, now);
                let Sum { watts, nodes } = sum(at);
                let Some(untold) = untold else {
                    tracing::debug!(
                        %decision,
                        "{nodes} nodes of {} are {word} by {watts:.1} W together",
                        group.name
                    );
                    continue;
                };
                if let (LimitSource::Written(at), MoveCause::Limit) = (group.source, cause) {
                    why.push_str(&self.lowering_of(at).map(LimitLowering::words).unwrap_or_default());
                }
                let text = text(group, (&decision, word), sum(at), &why, untold);
                tracing::info!(%decision, "{text}");
                let mut note = self.of_a_group(&group.name, reason, text);
                // Each decision is an Event of its own.
                note.regarding.resource_version = Some(decision.clone());
                self.recorder.say(note);
            }
        }
    }

    /// What this pass moves in each group.
    fn moved(&self) -> Vec<Moved> {
        let mut sums = vec![Moved::default(); self.round.standings.len()];
        for ask in &self.round.asks {
            let Some((node, by)) =
                self.site.node(&ask.node).and_then(|node| Some((node, change(node, ask)?)))
            else {
                continue;
            };
            for (at, _) in self.round.groups_of(node) {
                if let Some(moved) = sums.get_mut(at) {
                    moved.add(by);
                }
            }
        }
        sums
    }
}

/// What is taken from the nodes of a group, and what is given to them.
#[derive(Clone, Copy, Debug, Default)]
struct Moved {
    lowered: Sum,
    raised: Sum,
}

impl Moved {
    const fn of(&self, way: MoveWay) -> Sum {
        match way {
            MoveWay::Lowers => self.lowered,
            MoveWay::Raises => self.raised,
        }
    }

    fn add(&mut self, by: Watts) {
        let sum = if by < Watts::ZERO { &mut self.lowered } else { &mut self.raised };
        sum.watts += by.abs();
        sum.nodes += 1;
    }
}

/// By how much an order moves what its node has; `None` for one that moves nothing, or that counted when it was sent before.
fn change(node: &Node, ask: &DesiredGrant) -> Option<Watts> {
    let granted = &node.granted;
    if !granted.sent.is_empty() {
        return None;
    }
    // What it has yielded is not moved, whatever boot or Node object its receipt is of.
    let stands = granted.stands().filter(|_| !granted.released);
    let has = stands.map(|grant| grant.watts).or(node.machine.power_model.max())?;
    Some(ask.watts - has).filter(|by| *by != Watts::ZERO)
}

fn is_large(group: &GroupStanding, Sum { watts, nodes }: Sum) -> bool {
    group.enforced && nodes > 0 && group.limit.is_some_and(|limit| watts.times(PART) >= limit)
}

/// The groups above one.
fn above(standings: &[GroupStanding], at: usize) -> impl Iterator<Item = (usize, &GroupStanding)> {
    let next = move |at: usize| {
        let above = standings.get(at)?.parent?;
        Some((above, standings.get(above)?))
    };
    std::iter::successors(next(at), move |(at, _)| next(*at))
}

/// A group and those above it.
fn path(standings: &[GroupStanding], at: usize) -> impl Iterator<Item = &GroupStanding> {
    standings.get(at).into_iter().chain(above(standings, at).map(|(_, group)| group))
}

fn said(group: &str) -> &str {
    if group == SITE { "the site" } else { group }
}

/// A decision in words.
fn text(
    group: &GroupStanding,
    (decision, word): (&str, &str),
    Sum { watts, nodes }: Sum,
    why: &str,
    untold: u32,
) -> String {
    let load = group.load.map_or_else(|| "unknown".to_owned(), |load| format!("{load:.1}"));
    let limit = group.limit.unwrap_or(Watts::ZERO);
    let others = match untold {
        0 => String::new(),
        many => format!("; {many} decisions like it since the last Event of it have none"),
    };
    let name = said(&group.name);
    format!(
        "decision {decision}: {nodes} nodes of {name} are {word} by {watts:.1} W together, because {why}; {name} counts {load} W of {limit:.1} W{others}"
    )
}

#[cfg(test)]
mod tests;
