//! What a tick of the law costs: the price of every group and the cap of every node, for 5,000 nodes.

use crate::bench::{Row, measure};
use joulie_core::budget::demand::{Appetite, Bid, DemandReport, GroupPrice, price};
use joulie_core::budget::{BudgetTree, Group, Priority};
use power_units::{Ratio, Watts};

const NODES: i32 = 5_000;
const RACK: i32 = 20;
/// The bar of a tick, in nanoseconds.
pub(super) const BAR_NANOS: f64 = 5e6;

/// Measures the price of 5,000 nodes in 250 racks under one limit.
pub(super) fn row() -> Row {
    let racks = NODES / RACK;
    let group =
        |parent, limit| Group::new(parent, Watts::from_int(limit), Some(Watts::ZERO)).expect("not negative");
    let mut groups = vec![group(None, NODES * 2_000)];
    groups.extend((0..racks).map(|_| group(Some(0), RACK * 2_500)));
    let bids: Vec<Bid> = (0..NODES).map(bid).collect();
    let tree = BudgetTree::new(&groups).expect("parents first");
    let reserve = Ratio::from_bits(Ratio::ONE.to_bits() / 100);
    let mut prices = vec![GroupPrice::EMPTY; groups.len()];
    let mut targets = vec![Watts::ZERO; bids.len()];
    measure("the price and the caps of 5,000 nodes in 250 racks", Some(BAR_NANOS), (1, 1), || {
        price(tree, &bids, reserve, &mut prices, &mut targets).expect("the slices fit");
        targets.first().copied()
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
