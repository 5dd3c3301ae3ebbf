//! What a tick of the law costs: the price of every group, the cap of every node and the orders, for 5,000 nodes.

use crate::bench::{Row, measure};
use joulie_core::budget::demand::{
    Appetite, Bid, Bidders, DemandReport, GroupOrders, GroupPrice, OrderBounds, OrderTurn, RESERVE, orders,
    price,
};
use joulie_core::budget::{
    BudgetNode, BudgetTree, Grant, GrantAccount, GrantReceipt, Group, Priority, Range,
};
use power_units::Watts;

const NODES: i32 = 5_000;
const RACK: i32 = 20;
/// The bar of a tick, in nanoseconds.
pub(super) const BAR_NANOS: f64 = 5e6;

/// Measures a tick for 5,000 nodes in 250 racks under one limit.
pub(super) fn row() -> Row {
    let racks = NODES / RACK;
    let group =
        |parent, limit| Group::new(parent, Watts::from_int(limit), Some(Watts::ZERO)).expect("not negative");
    let mut groups = vec![group(None, NODES * 2_000)];
    groups.extend((0..racks).map(|_| group(Some(0), RACK * 2_500)));
    let bids: Vec<Bid> = (0..NODES).map(bid).collect();
    let tree = BudgetTree::new(&groups).expect("parents first");
    let nodes: Vec<BudgetNode> = bids.iter().map(node).collect();
    let mut prices = vec![GroupPrice::EMPTY; groups.len()];
    let (mut priced, mut targets) = (vec![Watts::ZERO; bids.len()], vec![Watts::ZERO; bids.len()]);
    let (mut states, mut turns) =
        (vec![GroupOrders::EMPTY; groups.len()], vec![OrderTurn::EMPTY; bids.len()]);
    let raised = vec![None; bids.len()];
    let bounds = OrderBounds { orders: 1_500, beyond: 750, scarce: false, lends: true, reserve: RESERVE };
    measure("a tick of the law, 5,000 nodes in 250 racks", Some(BAR_NANOS), (1, 1), || {
        price(tree, &bids, RESERVE, &mut prices, &mut priced).expect("the slices fit");
        let bidders = Bidders { nodes: &nodes, bids: &bids, priced: &priced, raised: &raised };
        orders(bounds, (tree, &prices), bidders, (&mut states, &mut turns), &mut targets)
            .expect("the slices fit")
    })
}

/// A node whose demand falls from a highest value that differs from its neighbours'.
fn bid(at: i32) -> Bid {
    let highest = 1_500 + at.wrapping_mul(7_919).rem_euclid(2_500);
    let quantile = |part: i32| Watts::from_int(highest * part / 20);
    let quantiles = [20, 20, 19, 17, 14, 10, 8, 6].map(quantile);
    Bid {
        key: u64::from(at.unsigned_abs()),
        group: usize::try_from(1 + at / RACK).unwrap_or(0),
        priority: match at % 4 {
            0 => Priority::Eco,
            _ => Priority::Performance,
        },
        floor: Watts::from_int(500),
        most: Watts::from_int(4_000),
        entitled: Watts::from_int(2_000),
        appetite: Appetite::Told {
            demand: DemandReport::new(&quantiles, at % 5 == 0).expect("falling"),
            assumed: Watts::ZERO,
        },
    }
}

/// It holds the entitlement.
fn node(bid: &Bid) -> BudgetNode {
    let Bid { key, group, priority, floor, most, entitled, .. } = *bid;
    let grant = Grant { serial: 1, watts: entitled, ceiling: entitled };
    let receipt = GrantReceipt { serial: 1, holds: entitled, floor: Watts::ZERO, yields: None };
    BudgetNode {
        key,
        group,
        priority,
        range: Range::new(floor, Some(most)).expect("in order"),
        desired: most,
        reachable: true,
        account: GrantAccount::observed(Some(grant), Some(receipt)),
    }
}
