//! Which orders follow from the caps of the price: as few as serve what is wanted.
//!
//! 1. A limit that is exceeded, also once all receipts have come: nodes are lowered at once, the furthest above their
//!    priced caps first. While orders are scarce each of them goes further, so that fewer serve a limit that falls on.
//! 2. A node is raised out of the room, the reserve included, when it is throttled, or has work that it has not begun:
//!    first those below their entitlement, up to it, then by class, then the largest steps.
//! 3. A node is lowered only where another one could not be raised, or where the reserve is low: by what is missing less
//!    what is on its way, from the node with most to spare, and not soon after its own raise. Nobody loses a watt while
//!    nobody asks for one. What a node holds above its entitlement is not protected from one that is throttled below its
//!    own.
//!
//! A node with an order on its way gets no other, except by the first rule, and except that one that was only raised may be
//! lowered, or raised further towards its entitlement, before it has told of it. Steady demand gives no order.
//!
//! Only targets are made here. [`next_moves`](super::super::next_moves) orders them, and keeps every instant below the
//! limits.

use super::super::node::{BudgetNode, Priority};
use super::super::queue::sort;
use super::super::tree::{BudgetTree, Group, gather};
use super::super::{BudgetError, of_length, plus};
use super::price::{Appetite, Bid, GroupPrice, reserved};
use core::cmp::Reverse;
use power_units::{Micros, Ratio, Role, Watts};

/// The part of every limit that is kept free, so that a raise need not wait for a lowering: 1 %.
pub const RESERVE: Ratio = Ratio::from_bits(42_949_672);
/// A raise is at least 2 % of the cap, and this.
const RAISE_PART: Ratio = Ratio::from_bits(85_899_346);
const RAISE_LEAST: Watts = Watts::from_int(15);
/// A lowering for others is at least 6 % of the cap, or 2 % where one is throttled below its entitlement, and this.
const LOWER_PART: Ratio = Ratio::from_bits(257_698_038);
const LOWER_LEAST: Watts = Watts::from_int(20);
/// A lowering takes up to so many times what is needed, if the node can spare it: one order then serves what is wanted
/// next as well.
const LOWER_AHEAD: u32 = 3;
/// A lowering for a limit takes at least this part of the cap while orders are scarce: 10 %.
const FORCED_PART: Ratio = Ratio::from_bits(429_496_729);
/// A node keeps what it was raised to for so long.
const RESTS: Micros = Micros::new(10_000_000);
/// The same for an eco node.
const ECO_RESTS: Micros = Micros::new(30_000_000);

/// What bounds the orders of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OrderBounds {
    /// How many orders may go out, beside those that a limit needs.
    pub orders: usize,
    /// How many of them may serve what nodes want beyond their entitlements. The others are kept for those that are
    /// throttled below it, which must not wait.
    pub beyond: usize,
    /// Few are left: only changes of twice the size are worth one.
    pub scarce: bool,
    /// Nodes may be lowered for what others want. Not for a while after a new leader has begun.
    pub lends: bool,
    /// The part of every limit that is kept free.
    pub reserve: Ratio,
}

impl OrderBounds {
    fn of(&self, want: Want) -> usize {
        match want {
            Want::Entitled => self.orders,
            Want::More => self.beyond.min(self.orders),
        }
    }
}

/// A node in an order of preference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct OrderTurn {
    rank: u8,
    priority: Priority,
    size: Reverse<Watts>,
    key: u64,
    index: usize,
}

impl OrderTurn {
    /// Before the first use.
    pub const EMPTY: Self = Self {
        rank: u8::MAX,
        priority: Priority::Eco,
        size: Reverse(Watts::ZERO),
        key: u64::MAX,
        index: usize::MAX,
    };
}

/// Working memory for one group, and afterwards what is wanted and on its way in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupOrders {
    limit: Watts,
    reserve: Watts,
    load: Option<Watts>,
    /// What remains of the limit; raises reduce it.
    room: Option<Watts>,
    /// What the load falls by once the receipts have come.
    in_flight: Watts,
    /// What is wanted and has no room.
    missing: Watts,
    /// The part of it that is wanted below the entitlement.
    entitled: Watts,
    /// What must still be lowered.
    need: Watts,
}

impl GroupOrders {
    /// Before the first use.
    pub const EMPTY: Self = Self {
        limit: Watts::ZERO,
        reserve: Watts::ZERO,
        load: None,
        room: None,
        in_flight: Watts::ZERO,
        missing: Watts::ZERO,
        entitled: Watts::ZERO,
        need: Watts::ZERO,
    };

    /// What of the limit is meant to be kept free.
    #[must_use]
    pub const fn reserve(&self) -> Watts {
        self.reserve
    }

    /// What is left of the limit after this round's raises; `None` while the load is unknown.
    #[must_use]
    pub const fn room(&self) -> Option<Watts> {
        self.room
    }

    /// What the load falls by once the receipts have come, those of this round's lowerings included.
    #[must_use]
    pub const fn in_flight(&self) -> Watts {
        self.in_flight
    }

    /// What is wanted here or below and has no room, because of this group's limit.
    #[must_use]
    pub const fn missing(&self) -> Watts {
        self.missing
    }

    /// The part of it that throttles nodes below their entitlement.
    #[must_use]
    pub const fn missing_entitled(&self) -> Watts {
        self.entitled
    }

    fn of(group: &Group, reserve: Ratio) -> Self {
        let reserve = reserved(group, reserve);
        Self { limit: group.limit(), reserve, load: group.base(), ..Self::EMPTY }
    }
}

/// What a round of orders comes to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OrderCount {
    /// Orders that take from the bound.
    pub orders: usize,
    /// Orders that a limit needs.
    pub forced: usize,
    /// Changes that were worth an order and had to wait for one.
    pub held_back: usize,
}

/// The nodes of a round.
#[derive(Clone, Copy, Debug)]
pub struct Bidders<'a> {
    /// What is observed of each.
    pub nodes: &'a [BudgetNode],
    /// What each wants.
    pub bids: &'a [Bid],
    /// The cap of each by the price.
    pub priced: &'a [Watts],
    /// How long ago each was raised last, as far as is known.
    pub raised: &'a [Option<Micros>],
}

/// Decides which nodes get another cap. `targets[i]` is for `nodes[i]`: its present cap, unless an order is worth it.
/// Afterwards `states[g]` holds what is wanted and on its way in group `g`.
///
/// # Errors
/// When a slice has the wrong length or a node's group does not exist; nothing may be ordered then.
pub fn orders(
    bounds: OrderBounds,
    (tree, prices): (BudgetTree<'_>, &[GroupPrice]),
    bidders: Bidders<'_>,
    (states, turns): (&mut [GroupOrders], &mut [OrderTurn]),
    targets: &mut [Watts],
) -> Result<OrderCount, BudgetError> {
    let (groups, count) = (tree.groups().len(), bidders.nodes.len());
    of_length("prices", prices, groups)?;
    of_length("states", states, groups)?;
    of_length("bids", bidders.bids, count)?;
    of_length("priced", bidders.priced, count)?;
    of_length("raised", bidders.raised, count)?;
    of_length("turns", turns, count)?;
    of_length("targets", targets, count)?;
    let mut round =
        Round { bounds, tree, prices, bidders, states, turns, targets, made: OrderCount::default() };
    round.survey()?;
    round.lower_what_is_exceeded();
    round.raise(Want::Entitled);
    round.raise(Want::More);
    if bounds.lends {
        round.lower_for_others();
    }
    Ok(round.made)
}

/// Up to what a raise goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Want {
    /// The entitlement, or what is wanted if that is less.
    Entitled,
    /// The cap of the price.
    More,
}

struct Round<'a> {
    bounds: OrderBounds,
    tree: BudgetTree<'a>,
    prices: &'a [GroupPrice],
    bidders: Bidders<'a>,
    states: &'a mut [GroupOrders],
    turns: &'a mut [OrderTurn],
    targets: &'a mut [Watts],
    made: OrderCount,
}

/// One node of a round.
#[derive(Clone, Copy)]
struct Node<'a> {
    index: usize,
    node: &'a BudgetNode,
    bid: &'a Bid,
    priced: Watts,
    raised: Option<Micros>,
}

impl Node<'_> {
    /// What could be taken from its present cap.
    fn slack(&self) -> Watts {
        let asked = self.node.account.asked().filter(|_| self.node.reachable);
        asked.map_or(Watts::ZERO, |asked| (asked - self.priced).or_zero())
    }

    /// Nothing is on its way that changes what counts. The receipt of a mere raise may take long.
    fn may_be_lowered(&self) -> bool {
        let account = &self.node.account;
        self.node.reachable && (!account.is_awaited() || account.is_only_raised())
    }

    fn may_be_raised(&self, want: Want) -> bool {
        match want {
            Want::Entitled => self.may_be_lowered(),
            // Before the node has told of its last raise, nobody knows whether it wants more.
            Want::More => self.node.reachable && !self.node.account.is_awaited(),
        }
    }

    /// Whether it wants more than its present cap.
    fn wants(&self, asked: Watts, lends: bool) -> bool {
        match self.bid.appetite {
            Appetite::Told { demand, assumed } => demand.bites() || assumed > asked || !lends,
            // Nobody knows whether it is throttled, so that it gets its entitlement back.
            Appetite::Blind(_) | Appetite::Owned(_) => true,
            Appetite::Stands(_) => false,
            Appetite::Returns(watts) => watts > asked,
        }
    }

    fn goal(&self, want: Want) -> Watts {
        match want {
            Want::Entitled => self.priced.min(self.bid.entitled),
            Want::More => self.priced,
        }
    }

    fn turn(&self, rank: u8, priority: Priority, size: Watts) -> OrderTurn {
        OrderTurn { rank, priority, size: Reverse(size), key: self.node.key, index: self.index }
    }

    fn rests(&self) -> bool {
        let rests = match self.bid.priority {
            Priority::Eco => ECO_RESTS,
            Priority::Performance | Priority::Draining => RESTS,
        };
        self.raised.is_some_and(|ago| ago < rests)
    }
}

impl<'a> Round<'a> {
    fn node(&self, index: usize) -> Option<Node<'a>> {
        let Bidders { nodes, bids, priced, raised } = self.bidders;
        Some(Node {
            index,
            node: nodes.get(index)?,
            bid: bids.get(index)?,
            priced: *priced.get(index)?,
            raised: *raised.get(index)?,
        })
    }

    fn target(&self, index: usize) -> Watts {
        self.targets.get(index).copied().unwrap_or(Watts::ZERO)
    }

    fn set(&mut self, index: usize, watts: Watts) {
        if let Some(target) = self.targets.get_mut(index) {
            *target = watts;
        }
    }

    /// Changes the states of a group and of those above it.
    fn each_above(&mut self, group: usize, mut change: impl FnMut(&mut GroupOrders)) {
        for at in self.tree.path(group) {
            if let Some(state) = self.states.get_mut(at) {
                change(state);
            }
        }
    }

    /// What each group counts and what is on its way. Every node starts with its present cap; one without a cap gets
    /// that of the price.
    fn survey(&mut self) -> Result<(), BudgetError> {
        for (state, group) in self.states.iter_mut().zip(self.tree.groups()) {
            *state = GroupOrders::of(group, self.bounds.reserve);
        }
        let Bidders { nodes, priced, .. } = self.bidders;
        for ((node, &priced), target) in nodes.iter().zip(priced).zip(self.targets.iter_mut()) {
            let missing = BudgetError::NoSuchGroup { node: node.key };
            let state = self.states.get_mut(node.group).ok_or(missing)?;
            let (count, asked) = (node.count(), node.account.asked());
            state.load = plus(state.load, count);
            *target = asked.unwrap_or(priced);
            let settles = match asked {
                Some(_) if node.reachable => node.account.count_when_heard(node.range),
                // It is about to be told.
                None if node.reachable => Some(node.range.limit(priced)),
                Some(_) | None => count,
            };
            let falls =
                count.zip(settles).map_or(Watts::ZERO, |(count, settles)| (count - settles).or_zero());
            state.in_flight += falls;
            // Where a sum is unknown nothing is lent, and the policy's own wishes are followed.
            let is_known = self.prices.get(node.group).is_some_and(GroupPrice::is_known);
            if !is_known && node.reachable {
                *target = (*target).min(priced);
            }
        }
        gather(self.tree, self.states, |parent, child| {
            parent.load = plus(parent.load, child.load);
            parent.in_flight += child.in_flight;
        });
        for state in self.states.iter_mut() {
            state.room = state.load.map(|load| state.limit - load);
        }
        Ok(())
    }

    /// Fills the turns with these nodes, and sorts them. Returns how many there are.
    fn queue(&mut self, mut of: impl FnMut(&Self, Node<'a>) -> Option<OrderTurn>) -> usize {
        let mut queued = 0_usize;
        for index in 0..self.bidders.nodes.len() {
            let turn = self.node(index).and_then(|node| of(self, node));
            if let Some((turn, place)) = turn.zip(self.turns.get_mut(queued)) {
                *place = turn;
                queued = queued.saturating_add(1);
            }
        }
        if let Some(turns) = self.turns.get_mut(..queued) {
            sort(turns);
        }
        queued
    }

    /// The node whose turn it is.
    fn turn(&self, at: usize) -> Option<Node<'a>> {
        self.turns.get(at).and_then(|turn| self.node(turn.index))
    }

    /// The most that must be lowered on the way up from a group.
    fn need(&self, group: usize) -> Watts {
        let needs = self.tree.path(group).filter_map(|at| self.states.get(at)).map(|state| state.need);
        needs.max().unwrap_or(Watts::ZERO)
    }

    /// Lowers a node by some watts, and takes them off what its groups need.
    fn lower(&mut self, node: Node<'a>, by: Watts) {
        let from = self.target(node.index);
        self.set(node.index, from - by);
        self.each_above(node.node.group, |state| {
            state.need = (state.need - by).or_zero();
            state.in_flight += by;
        });
    }

    fn lower_what_is_exceeded(&mut self) {
        let mut any = false;
        for state in self.states.iter_mut() {
            let settles = state.load.map(|load| load - state.in_flight);
            state.need = settles.map_or(Watts::ZERO, |settles| (settles - state.limit).or_zero());
            any |= state.need > Watts::ZERO;
        }
        if !any {
            return;
        }
        let queued = self.queue(|_, node| {
            let slack = node.slack();
            (slack > Watts::ZERO).then(|| node.turn(0, Priority::Eco, slack))
        });
        for at in 0..queued {
            let Some(node) = self.turn(at) else { continue };
            let by = self.need(node.node.group).min(self.forced(&node));
            if by > Watts::ZERO {
                self.lower(node, by);
                self.made.forced = self.made.forced.saturating_add(1);
            }
        }
    }

    /// What may be taken from a node for a limit. One that does not say what it wants, or that a person has capped, keeps its
    /// entitlement.
    fn forced(&self, node: &Node<'a>) -> Watts {
        let slack = node.slack();
        let is_told = matches!(node.bid.appetite, Appetite::Told { .. });
        if !(self.bounds.scarce && is_told) {
            return slack;
        }
        let from = self.target(node.index);
        let step = from.scale(FORCED_PART, Role::Limit).min(from - node.node.lowest());
        slack.max(step)
    }

    fn raise(&mut self, want: Want) {
        let queued = self.queue(|round, node| round.raise_turn(node, want));
        for at in 0..queued {
            if let Some(node) = self.turn(at) {
                self.raise_one(node, want);
            }
        }
    }

    fn raise_turn(&self, node: Node<'a>, want: Want) -> Option<OrderTurn> {
        let asked = node.node.account.asked().filter(|_| node.may_be_raised(want))?;
        let price = self.prices.get(node.node.group).filter(|price| price.is_known())?;
        let from = self.target(node.index);
        // What was lowered in this round is not raised in it.
        let is_free = from >= asked && node.wants(asked, price.lends());
        let goal = node.goal(want);
        if !is_free || goal <= from || !self.is_worth(asked, goal - asked, RAISE_PART, RAISE_LEAST) {
            return None;
        }
        let has_work = match node.bid.appetite {
            Appetite::Told { assumed, .. } => assumed > asked,
            Appetite::Blind(_) | Appetite::Owned(_) | Appetite::Stands(_) | Appetite::Returns(_) => false,
        };
        Some(node.turn(u8::from(!has_work), node.bid.priority, goal - from))
    }

    /// Raises a node as far as the groups above it have room; what it does not get is missing in the group with the
    /// least.
    fn raise_one(&mut self, node: Node<'a>, want: Want) {
        let (from, goal) = (self.target(node.index), node.goal(want));
        let asked = node.node.account.asked().unwrap_or(from);
        let Some(count) = node.node.count() else { return };
        let Some((nearest, room)) = self.least_room(node.node.group) else { return };
        // Up to what it counts already it takes no room.
        let counted = from.max(count);
        let cap = match goal > counted {
            _ if room < Watts::ZERO => from,
            true => (counted + room.min(goal - counted)).max(from),
            false => goal,
        };
        let has_order = from > asked;
        let is_worth = cap == goal || has_order || self.is_worth(asked, cap - asked, RAISE_PART, RAISE_LEAST);
        let cap = if is_worth { cap } else { from };
        let has_token = has_order || self.made.orders < self.bounds.of(want);
        if cap > from && !has_token {
            self.made.held_back = self.made.held_back.saturating_add(1);
            return;
        }
        if cap > from {
            self.set(node.index, cap);
            self.made.orders = self.made.orders.saturating_add(usize::from(!has_order));
            let taken = (cap - counted).or_zero();
            self.each_above(node.node.group, |state| state.room = state.room.map(|room| room - taken));
        }
        // What is missing of the entitlement was counted before, unless so little was missing that it was passed over.
        let entitled = node.goal(Want::Entitled);
        let is_counted =
            want == Want::More && self.is_worth(asked, entitled - asked, RAISE_PART, RAISE_LEAST);
        let told = if is_counted { cap.max(entitled) } else { cap };
        let missing = (goal - told).or_zero();
        if let Some(state) = self.states.get_mut(nearest) {
            state.missing += missing;
            if want == Want::Entitled {
                state.entitled += missing;
            }
        }
    }

    /// The group with the least room on the way up, the nearest of equals; `None` where any room is unknown.
    fn least_room(&self, group: usize) -> Option<(usize, Watts)> {
        let mut least = (group, Watts::MAX);
        for at in self.tree.path(group) {
            let room = self.states.get(at)?.room?;
            if room < least.1 {
                least = (at, room);
            }
        }
        Some(least)
    }

    /// Whether a change is worth an order.
    fn is_worth(&self, asked: Watts, change: Watts, part: Ratio, least: Watts) -> bool {
        let times = if self.bounds.scarce { 2 } else { 1 };
        change >= asked.scale(part, Role::Limit).max(least).times(times)
    }

    fn lower_for_others(&mut self) {
        let is_free = self.made.orders < self.bounds.of(Want::More);
        let want = if is_free { Want::More } else { Want::Entitled };
        // What is missing in a part is missing above as well.
        let mut any = false;
        for state in self.states.iter_mut() {
            state.need = match want {
                Want::Entitled => state.entitled,
                Want::More => state.missing,
            };
        }
        gather(self.tree, self.states, |parent, child| parent.need += child.need);
        for state in self.states.iter_mut() {
            let Some(room) = state.room else {
                state.need = Watts::ZERO;
                continue;
            };
            let half = Watts::from_bits(state.reserve.to_bits() >> 1);
            let is_wanted = state.need > Watts::ZERO || room < half;
            let wanted = if is_wanted { state.need + state.reserve } else { Watts::ZERO };
            state.need = (wanted - room - state.in_flight).or_zero();
            any |= state.need > Watts::ZERO;
        }
        if !any {
            return;
        }
        let queued = self.queue(Self::donor_turn);
        for at in 0..queued {
            let Some(node) = self.turn(at) else { continue };
            let (need, slack) = (self.need(node.node.group), self.lendable(&node));
            if need <= Watts::ZERO {
                continue;
            }
            if self.made.orders >= self.bounds.of(want) {
                self.made.held_back = self.made.held_back.saturating_add(1);
                continue;
            }
            // A small lowering is not worth an order.
            let least = self.target(node.index).scale(LOWER_PART, Role::Limit).max(LOWER_LEAST);
            self.lower(node, need.times(LOWER_AHEAD).max(least).min(slack));
            self.made.orders = self.made.orders.saturating_add(1);
        }
    }

    fn donor_turn(&self, node: Node<'a>) -> Option<OrderTurn> {
        let asked = node.node.account.asked().filter(|_| node.may_be_lowered())?;
        let slack = self.lendable(&node);
        let is_free = self.target(node.index) == asked;
        // For who is throttled below its entitlement, less is worth an order.
        let part = if self.is_called(&node) { RAISE_PART } else { LOWER_PART };
        let is_worth = self.is_worth(asked, slack, part, LOWER_LEAST);
        (is_free && is_worth).then(|| node.turn(0, Priority::Eco, slack))
    }

    /// What a node can lend now. Soon after its raise it is only what it holds above its entitlement, and only for those
    /// below theirs.
    fn lendable(&self, node: &Node<'a>) -> Watts {
        if !node.rests() {
            return node.slack();
        }
        let above = (self.target(node.index) - node.bid.entitled).or_zero();
        if self.is_called(node) { node.slack().min(above) } else { Watts::ZERO }
    }

    /// Whether another one under its limits is throttled below its entitlement and found no room.
    fn is_called(&self, node: &Node<'a>) -> bool {
        let mut above = self.tree.path(node.node.group).filter_map(|at| self.states.get(at));
        above.any(|state| state.entitled > Watts::ZERO)
    }
}
