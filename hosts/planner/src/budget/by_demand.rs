//! The caps of nodes where power follows demand: each node's bid from what it reports, the price of each group, and the
//! few orders that are worth it.
//!
//! The cap that the policy wants is the most that a node is granted. A node that reports nothing keeps its entitlement;
//! where no node of any group lends, the caps are divided as without this.

use super::{BudgetMemory, Stake};
use joulie_core::budget::demand::{
    Appetite, Bid, Bidders, DemandReport, GroupOrders, GroupPrice, OrderBounds, OrderCount, OrderTurn,
    RESERVE, orders, price,
};
use joulie_core::budget::{BudgetNode as Row, BudgetTree, Priority};
use power_units::{Micros, Ratio, Stamp, Watts};
use std::collections::BTreeMap;
use std::sync::Arc;

/// How power is shared below a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PowerSharing {
    /// By what the policy wants for each node.
    Static,
    /// By what each node wants to draw, within what the policy wants for it.
    Demand,
}

/// A new leader lowers no node for others before it has heard of the nodes for so long.
const WATCHES: Micros = Micros::new(20_000_000);
/// What is missing is looked for again after this, if nothing else happens.
const LOOKS_AGAIN: Micros = Micros::new(1_000_000);
/// For how long it is remembered that a node was raised: an eco node keeps what it got for so long.
const REMEMBERED: Micros = Micros::new(30_000_000);

/// What is divided.
#[derive(Clone, Copy)]
pub(super) struct Shares<'a> {
    pub(super) tree: BudgetTree<'a>,
    pub(super) stakes: &'a [Stake<'a>],
    pub(super) rows: &'a [Row],
    /// Which nodes may not be raised, because of a limit of theirs.
    pub(super) kept: &'a [bool],
    /// Up to what each of those may get back what it has yielded.
    pub(super) returns: &'a [Option<Watts>],
    /// What each node draws besides its packages and GPUs.
    pub(super) rests: &'a [Watts],
}

/// The result of a round.
#[derive(Debug, Default)]
pub(super) struct Followed {
    pub(super) bids: Vec<Bid>,
    /// By group of the tree.
    pub(super) prices: Vec<GroupPrice>,
    pub(super) states: Vec<GroupOrders>,
    pub(super) made: OrderCount,
    /// Some group lends, so that the targets were set.
    pub(super) applies: bool,
    /// When to look again.
    pub(super) again: Option<Stamp>,
}

impl Followed {
    /// Whether watts are short in a group of the tree.
    pub(super) fn is_short(&self, group: usize) -> bool {
        self.applies && self.prices.get(group).is_some_and(GroupPrice::is_short)
    }
}

/// Sets the targets by demand; before, they are the entitlements. If no group lends anything, they stay.
pub(super) fn follow(
    shares: Shares<'_>,
    memory: &mut BudgetMemory,
    now: Stamp,
    raises: bool,
    targets: &mut [Watts],
) -> Result<Followed, String> {
    let begun = *memory.begun.get_or_insert(now);
    let Shares { tree, rows, .. } = shares;
    let bids = bids(shares, targets);
    let groups = tree.groups().len();
    let (mut prices, mut priced) = (vec![GroupPrice::EMPTY; groups], vec![Watts::ZERO; rows.len()]);
    price(tree, &bids, RESERVE, &mut prices, &mut priced).map_err(|error| error.to_string())?;
    let lends = |bid: &Bid| bid.wanted().is_some() && prices.get(bid.group).is_some_and(GroupPrice::lends);
    if !bids.iter().any(lends) {
        let states = vec![GroupOrders::EMPTY; groups];
        return Ok(Followed { bids, prices, states, ..Followed::default() });
    }
    let raised = raised(shares.stakes, memory, now);
    let watches = now.since(begun).is_none_or(|so_far| so_far < WATCHES);
    let left = memory.tokens.refill(now);
    let bounds = OrderBounds {
        orders: if raises { left } else { 0 },
        beyond: if raises { memory.tokens.beyond_half() } else { 0 },
        scarce: memory.tokens.is_scarce(),
        lends: raises && !watches,
        reserve: RESERVE,
    };
    let (mut states, mut turns) = (vec![GroupOrders::EMPTY; groups], vec![OrderTurn::EMPTY; rows.len()]);
    let bidders = Bidders { nodes: rows, bids: &bids, priced: &priced, raised: &raised };
    let made = orders(bounds, (tree, &prices), bidders, (&mut states, &mut turns), targets);
    let made = made.map_err(|error| error.to_string())?;
    memory.tokens.take(made.orders.saturating_add(made.forced));
    let waits = made.held_back > 0 || states.iter().any(|state| state.missing() > Watts::ZERO);
    let again = (raises && waits).then(|| if watches { begun + WATCHES } else { now + LOOKS_AGAIN });
    Ok(Followed { bids, prices, states, made, applies: true, again })
}

fn bids(shares: Shares<'_>, entitled: &[Watts]) -> Vec<Bid> {
    let Shares { stakes, rows, kept, returns, rests, .. } = shares;
    let each = stakes.iter().zip(rows).zip(kept.iter().zip(returns)).zip(rests.iter().zip(entitled));
    each.map(|(((stake, row), (&kept, &returns)), (&rest, &entitled))| {
        let appetite = match kept && row.reachable {
            true => wants_back(stake, row, returns, (rest, entitled)),
            false => appetite(stake, row, (rest, entitled)),
        };
        Bid::of(row, entitled, appetite)
    })
    .collect()
}

/// What a node wants that may not be raised: at most what it has yielded, within its entitlement.
fn wants_back(
    stake: &Stake<'_>,
    row: &Row,
    returns: Option<Watts>,
    (rest, entitled): (Watts, Watts),
) -> Appetite {
    let biting = stake.node.demand().filter(DemandReport::bites);
    match returns.zip(biting).zip(row.account.asked()) {
        Some(((most, demand), asked)) => {
            Appetite::Returns(demand.with(rest).highest().min(most).min(entitled).max(asked))
        }
        None => Appetite::Stands(row.count()),
    }
}

fn appetite(stake: &Stake<'_>, row: &Row, (rest, entitled): (Watts, Watts)) -> Appetite {
    let count = row.count();
    if !row.reachable || stake.leaves || stake.is_fixed() {
        return Appetite::Stands(count);
    }
    if row.account.asked().is_none() {
        // Its first grant is its entitlement.
        return Appetite::Stands(Some(entitled));
    }
    if stake.is_owned() {
        return Appetite::Owned(count);
    }
    match stake.node.demand() {
        Some(demand) => {
            let assumed = stake.node.expected.map_or(Watts::ZERO, |watts| watts + rest);
            Appetite::Told { demand: demand.with(rest), assumed }
        }
        None => Appetite::Blind(count),
    }
}

/// How long ago each node was raised; older raises are forgotten.
fn raised(stakes: &[Stake<'_>], memory: &mut BudgetMemory, now: Stamp) -> Vec<Option<Micros>> {
    memory.raised.retain(|_, at| now.since(*at).is_some_and(|ago| ago < REMEMBERED));
    let ago = |stake: &Stake<'_>| memory.raised.get(&stake.node.name).and_then(|at| now.since(*at));
    stakes.iter().map(ago).collect()
}

/// When nodes were raised.
pub(super) type Raised = BTreeMap<Arc<str>, Stamp>;

/// What follows demand in a group, as it is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupPower {
    /// For what share of the time nodes are let bite: performance, draining and eco.
    pub price: [Ratio; 3],
    /// Watts are lent here.
    pub lends: bool,
    /// Everybody is held to the entitlements.
    pub overloaded: bool,
    /// What of the limit is meant to be kept free.
    pub reserve: Watts,
    /// What the group will count less once the receipts have come.
    pub in_flight: Watts,
    /// What is wanted and has no room here.
    pub missing: Watts,
    /// The part of it by which nodes are throttled below their entitlement.
    pub missing_entitled: Watts,
    /// By how much more nodes would draw that are throttled, and how many they are.
    pub biting: super::Sum,
    /// What nodes of the same or a lower class hold and do not want: for performance, draining and eco.
    pub reclaimable: [Watts; 3],
    /// What a node here could be granted beside what is drawn, by its class: performance, draining and eco. It is bounded by
    /// every limit above.
    pub grantable: [Watts; 3],
    /// What pods will draw that are bound to nodes here and do not show yet.
    pub assumed: Watts,
    /// How many nodes report nothing.
    pub blind: usize,
}

impl GroupPower {
    /// Bounds what could be granted here by what could be granted above.
    pub(super) fn bound_by(&mut self, above: &Self) {
        for (here, above) in self.grantable.iter_mut().zip(above.grantable) {
            *here = (*here).min(above);
        }
    }
}

/// What a node adds to its groups.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Wants {
    pub(super) biting: super::Sum,
    pub(super) reclaimable: [i64; 3],
    pub(super) assumed: i64,
    pub(super) blind: usize,
}

impl Wants {
    pub(super) fn of(bid: &Bid, row: &Row) -> Self {
        let asked = row.account.asked().unwrap_or(Watts::ZERO);
        let Some(wanted) = bid.wanted() else {
            let blind = usize::from(matches!(bid.appetite, Appetite::Blind(_)));
            return Self { blind, ..Self::default() };
        };
        let more = (wanted - asked).or_zero();
        let bites = bid.bites() && more > Watts::ZERO;
        let spare = (asked - wanted).or_zero().to_bits();
        // Who may take it: its own class and those before it.
        let reclaimable = match bid.priority {
            Priority::Performance => [spare, 0, 0],
            Priority::Draining => [spare, spare, 0],
            Priority::Eco => [spare, spare, spare],
        };
        let biting = if bites { super::Sum { watts: more, nodes: 1 } } else { super::Sum::default() };
        let assumed = match bid.appetite {
            Appetite::Told { demand, .. } => (wanted - demand.highest()).or_zero().to_bits(),
            Appetite::Blind(_) | Appetite::Owned(_) | Appetite::Stands(_) | Appetite::Returns(_) => 0,
        };
        Self { biting, reclaimable, assumed, blind: 0 }
    }

    pub(super) fn add(&mut self, part: &Self) {
        self.biting.watts += part.biting.watts;
        self.biting.nodes += part.biting.nodes;
        self.blind += part.blind;
        self.assumed = self.assumed.saturating_add(part.assumed);
        for (sum, part) in self.reclaimable.iter_mut().zip(part.reclaimable) {
            *sum = sum.saturating_add(part);
        }
    }

    /// The state of a group.
    pub(super) fn shown(&self, price: &GroupPrice, state: &GroupOrders) -> GroupPower {
        let reclaimable = self.reclaimable.map(Watts::from_bits);
        // Where nothing is lent, nobody gets more than its entitlement. What is not known cannot be granted.
        let room = state.room().filter(|_| price.lends()).map(|room| room - state.reserve());
        GroupPower {
            grantable: reclaimable.map(|spare| room.map_or(Watts::ZERO, |room| (room + spare).or_zero())),
            assumed: Watts::from_bits(self.assumed),
            price: [Priority::Performance, Priority::Draining, Priority::Eco].map(|class| price.of(class)),
            lends: price.lends(),
            overloaded: price.is_overloaded(),
            reserve: state.reserve(),
            in_flight: state.in_flight(),
            missing: state.missing(),
            missing_entitled: state.missing_entitled(),
            biting: self.biting,
            reclaimable,
            blind: self.blind,
        }
    }
}
