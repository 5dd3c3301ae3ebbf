//! GPU placement over a cluster, and the budget of a site.

use crate::bench::{Row, measure};
use joulie_core::budget::{
    BudgetNode, BudgetTree, Grant, GrantAccount, GrantReceipt, Group, GroupShare, GroupState, Move,
    MoveTuning, Priority, Range, Turn, allocate, next_moves,
};
use joulie_core::placement::gpu::{GpuPhase, GpuRequest, Island, Model, PhysicalGpu, Vram, fit};
use power_units::Watts;

const NODES: u32 = 5_000;

/// All rows of this benchmark.
pub(crate) fn rows() -> Vec<Row> {
    let mut rows = gpu_rows();
    rows.extend(budget_rows());
    rows
}

/// 5,000 nodes of 8 cards: two islands of four on every other node, one of eight on the rest, filled unevenly.
fn cluster() -> Vec<[PhysicalGpu; 8]> {
    let card = |node: u32, card: u32| {
        let number = node * 8 + card;
        let allocated = i64::from(number.wrapping_mul(2_654_435_761) % 5) * 8_000;
        PhysicalGpu {
            key: u64::from(number.wrapping_mul(2_654_435_761)),
            model: Some(Model(u32::from(node % 10 == 9))),
            vram: Vram::read(Some(40_000), Some(allocated)),
            island: Some(Island(if node.is_multiple_of(2) { u16::from(card > 3) } else { 0 })),
            phase: GpuPhase::Available,
        }
    };
    (0..NODES).map(|node| std::array::from_fn(|at| card(node, u32::try_from(at).unwrap_or(0)))).collect()
}

fn gpu_rows() -> Vec<Row> {
    let nodes = cluster();
    let row = |what: &str, vram, count| {
        let Ok(ask) = GpuRequest::new(Some(Model(0)), vram, count) else {
            unreachable!("the asks are sound")
        };
        measure(what, None, (NODES, 1), || {
            nodes.iter().filter_map(|cards| fit(ask, cards).ok()).fold(0_u64, |sum, fit| sum ^ fit.cards)
        })
    };
    vec![
        row("GPU fit, node of 8 cards: one card, 16 GB", Some(16_000), 1),
        row("GPU fit, node of 8 cards: four cards, 16 GB each", Some(16_000), 4),
        row("GPU fit, node of 8 cards: eight cards, 8 GB each", Some(8_000), 8),
        row("GPU fit, node of 8 cards: does not fit", Some(50_000), 1),
    ]
}

struct Site {
    groups: Vec<Group>,
    nodes: Vec<BudgetNode>,
    shares: Vec<GroupShare>,
    targets: Vec<Watts>,
    standings: Vec<GroupState>,
    queue: Vec<Turn>,
    moves: Vec<Move>,
}

/// One site, 10 zones, 250 racks of 20 nodes; a third of the nodes are performance nodes. `held` is their current
/// total limit.
fn site(limit: i32, held: i32) -> Site {
    let watts = Watts::from_int;
    let group = |parent, limit| match Group::new(parent, watts(limit), Some(watts(50))) {
        Ok(group) => group,
        Err(error) => unreachable!("{error}"),
    };
    let mut groups = vec![group(None, limit)];
    groups.extend((0..10).map(|_| group(Some(0), limit / 9)));
    groups.extend((0..250).map(|rack| group(Some(1 + rack % 10), limit / 220)));
    let Ok(range) = Range::new(watts(800), Some(watts(10_000))) else { unreachable!("the range is sound") };
    let node = |index: u32| {
        let grant = Grant { serial: 1, watts: watts(held), ceiling: watts(held) };
        let account = GrantAccount::observed(
            Some(grant),
            Some(GrantReceipt { serial: 1, holds: watts(held), floor: Watts::ZERO, yields: None }),
        );
        let performance = index.is_multiple_of(3);
        BudgetNode {
            key: u64::from(index.wrapping_mul(2_654_435_761)),
            group: 11 + usize::try_from(index % 250).unwrap_or(0),
            priority: if performance { Priority::Performance } else { Priority::Eco },
            range,
            desired: watts(if performance { 9_000 } else { 4_000 }),
            reachable: index % 100 != 99,
            account,
        }
    };
    let nodes: Vec<BudgetNode> = (0..NODES).map(node).collect();
    Site {
        shares: vec![GroupShare::EMPTY; groups.len()],
        standings: vec![GroupState::EMPTY; groups.len()],
        targets: vec![Watts::ZERO; nodes.len()],
        queue: vec![Turn::EMPTY; nodes.len()],
        moves: vec![Move::Keep; nodes.len()],
        groups,
        nodes,
    }
}

fn budget_rows() -> Vec<Row> {
    let row = |what: &str, limit, held| {
        let mut site = site(limit, held);
        let Ok(law) = MoveTuning::new(Watts::from_int(5)) else { unreachable!("the dead-band is sound") };
        measure(what, None, (NODES, 1), move || {
            let Site { groups, nodes, shares, targets, standings, queue, moves } = &mut site;
            let tree = BudgetTree::new(groups).ok()?;
            let allocation = allocate(tree, nodes, shares, targets).ok()?;
            let summary = next_moves(law, tree, (nodes, targets), (standings, queue), moves).ok()?;
            Some((allocation.curtailed, summary.raised))
        })
    };
    vec![
        row("budget, node of 5,000 in 3 levels: limits far off, all raised", 60_000_000, 1_000),
        row("budget, node of 5,000 in 3 levels: tight, some raised and some lowered", 20_000_000, 3_900),
        row("budget, node of 5,000 in 3 levels: limits cut, all lowered", 8_000_000, 6_000),
    ]
}
