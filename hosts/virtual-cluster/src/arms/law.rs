//! The core's law alone: price, orders and moves over the nodes' reports, without the planner around them.

use super::node::NodeMemory;
use super::planned::{stamp, tokens, watts};
use super::{ArmView, CapWrite, Divider, NodeSays, NodeSecond, kinds};
use crate::STEPS_A_SECOND;
use crate::demand::DemandTrace;
use crate::numbers::quantile;
use crate::site::{LimitsNow, MachineModel, VirtualSite};
use joulie_core::budget::demand::{
    Appetite, Bid, Bidders, DemandReport, GroupOrders, GroupPrice, OrderBounds, OrderTurn, RESERVE,
    TokenBucket, orders, price,
};
use joulie_core::budget::{
    BudgetNode, BudgetTree, Grant, GrantAccount, GrantReceipt, Group, GroupState, Move, MoveTuning, Priority,
    Range, Turn, next_moves,
};
use power_units::{Micros, Ratio, Stamp, Watts};

/// Which parts of the law are on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LawParts {
    /// A part of each limit is kept free for raises that cannot wait.
    pub reserve: bool,
    /// Who is bitten below what he is entitled to is raised first, whatever the price.
    pub guarantee: bool,
    /// Nobody is lowered unless somebody asks for the watts.
    pub lazy: bool,
    /// Nodes give back by themselves what they do not want.
    pub yields: bool,
    /// So many orders a minute for 5,000 machines.
    pub orders: u32,
}

impl LawParts {
    /// All of it.
    pub const ALL: Self =
        Self { reserve: true, guarantee: true, lazy: true, yields: true, orders: TokenBucket::PER_MINUTE };
}

/// What a node has read back.
fn receipt(view: &ArmView) -> GrantReceipt {
    let yields = view.yields.map(watts);
    GrantReceipt { serial: view.heard, holds: watts(view.holds), floor: Watts::ZERO, yields }
}

/// How far one sees who knows the demand.
const SEEN: usize = 5 * STEPS_A_SECOND;

/// The law as an arm.
pub struct LawArm<'a> {
    parts: LawParts,
    kinds: Vec<&'static MachineModel>,
    groups_of: Vec<usize>,
    classes: Vec<Priority>,
    base: Vec<f64>,
    memory: Vec<NodeMemory>,
    on_their_way: Vec<(usize, usize, DemandReport)>,
    told: Vec<Option<DemandReport>>,
    heard: Vec<Option<GrantReceipt>>,
    grants: Vec<Option<Grant>>,
    raised: Vec<Option<Stamp>>,
    tokens: TokenBucket,
    /// The demand, where it is known: in place of the reports of the nodes, which then cost no write.
    known: Option<&'a DemandTrace>,
}

impl<'a> LawArm<'a> {
    /// The law for a site.
    #[must_use]
    pub fn new(parts: LawParts, site: &VirtualSite) -> Self {
        let count = site.machines.len();
        Self {
            parts,
            kinds: kinds(site),
            groups_of: site.machines.iter().map(|machine| 1 + machine.rack).collect(),
            classes: site.machines.iter().map(|machine| machine.class).collect(),
            base: site.base.clone(),
            memory: vec![NodeMemory::new(); count],
            on_their_way: Vec::new(),
            told: vec![None; count],
            heard: vec![None; count],
            grants: vec![None; count],
            raised: vec![None; count],
            tokens: tokens(parts.orders, site),
            known: None,
        }
    }

    /// The same law for one who knows at every moment what each machine will need in the next five seconds.
    #[must_use]
    pub fn knowing(self, trace: &'a DemandTrace) -> Self {
        Self { known: Some(trace), ..self }
    }

    /// What each machine will need from this step on.
    fn foresee(&mut self, step: usize, views: &[ArmView]) {
        let Some(trace) = self.known else { return };
        let mut needs: Vec<Vec<f64>> = vec![Vec::with_capacity(SEEN); views.len()];
        for at in step..(step + SEEN).min(trace.steps()) {
            for (need, one) in needs.iter_mut().zip(trace.at(at)) {
                need.push(one.needed);
            }
        }
        for ((told, view), need) in self.told.iter_mut().zip(views).zip(&mut needs) {
            need.sort_by(f64::total_cmp);
            let exceeded =
                [1.0, 0.95, 0.9, 0.8, 0.7, 0.5, 0.25, 0.05].map(|part| watts(quantile(need, part)));
            // A yield is of the cap that was read back.
            let left = view.yields.filter(|_| view.heard == view.serial).unwrap_or(view.asked);
            let bites = need.last().is_some_and(|most| *most > left + 0.5);
            *told = DemandReport::new(&exceeded, bites).ok();
        }
    }

    fn groups(&self, limits: &LimitsNow) -> Vec<Group> {
        let group =
            |parent, limit, base| Group::new(parent, watts(limit), Some(watts(base))).expect("not negative");
        let racks = limits.racks.iter().zip(&self.base).map(|(&limit, &base)| group(Some(0), limit, base));
        std::iter::once(group(None, limits.site, 0.0)).chain(racks).collect()
    }
}

impl Divider for LawArm<'_> {
    fn sense(&mut self, step: usize, machine: usize, second: NodeSecond) -> NodeSays {
        let (Some(memory), Some(kind)) = (self.memory.get_mut(machine), self.kinds.get(machine)) else {
            return NodeSays::default();
        };
        let (says, report) = memory.learn(stamp(step), &second, (kind.floor(), kind.max()));
        if self.known.is_some() {
            return NodeSays { reports: false, ..says };
        }
        self.on_their_way.extend(report.map(|report| (step + 1, machine, report)));
        says
    }

    fn defers(&self) -> bool {
        self.known.is_none()
    }

    fn decide(&mut self, step: usize, limits: &LimitsNow, views: &[ArmView], caps: &mut Vec<CapWrite>) {
        let told = &mut self.told;
        self.on_their_way.retain(|(at, machine, report)| {
            if *at <= step
                && let Some(told) = told.get_mut(*machine)
            {
                *told = Some(*report);
            }
            *at > step
        });
        let now = stamp(step);
        for (at, view) in views.iter().enumerate() {
            let receipt = Some(receipt(view));
            if self.heard[at] != receipt {
                self.heard[at] = receipt;
                self.told[at] = self.memory[at].with_receipt(now).or(self.told[at]);
            }
        }
        self.foresee(step, views);
        let groups = self.groups(limits);
        let tree = BudgetTree::new(&groups).expect("parents first");
        let mut rows = Vec::with_capacity(views.len());
        let mut bids = Vec::with_capacity(views.len());
        for (at, view) in views.iter().enumerate() {
            let (floor, max) = (watts(self.kinds[at].floor()), watts(self.kinds[at].max()));
            let grant = *self.grants[at].get_or_insert_with(|| {
                let first = watts(view.asked);
                Grant { serial: view.serial, watts: first, ceiling: first }
            });
            let row = BudgetNode {
                key: at as u64,
                group: self.groups_of[at],
                priority: self.classes[at],
                range: Range::new(floor, Some(max)).expect("in order"),
                desired: max,
                reachable: true,
                account: GrantAccount::observed(Some(grant), Some(receipt(view))),
            };
            rows.push(row);
            let entitled = if self.parts.guarantee { watts(limits.entitled[at]) } else { floor };
            bids.push(Bid {
                key: at as u64,
                group: self.groups_of[at],
                priority: self.classes[at],
                floor,
                most: max,
                entitled,
                appetite: match self.told[at] {
                    Some(demand) => Appetite::Told { demand, assumed: Watts::ZERO },
                    None => Appetite::Blind(row.count()),
                },
            });
        }
        let reserve = if self.parts.reserve { RESERVE } else { Ratio::ZERO };
        let mut prices = vec![GroupPrice::EMPTY; groups.len()];
        let mut priced = vec![Watts::ZERO; rows.len()];
        price(tree, &bids, reserve, &mut prices, &mut priced).expect("the slices fit");
        let free = self.tokens.refill(now);
        let bounds = OrderBounds {
            orders: free,
            beyond: self.tokens.beyond_half(),
            scarce: self.tokens.is_scarce(),
            lends: step >= 20 * STEPS_A_SECOND,
            reserve,
        };
        let raised: Vec<Option<Micros>> =
            self.raised.iter().map(|at| at.and_then(|at| now.since(at))).collect();
        let mut states = vec![GroupOrders::EMPTY; groups.len()];
        let mut turns = vec![OrderTurn::EMPTY; rows.len()];
        let mut targets = vec![Watts::ZERO; rows.len()];
        let bidders = Bidders { nodes: &rows, bids: &bids, priced: &priced, raised: &raised };
        let made = orders(bounds, (tree, &prices), bidders, (&mut states, &mut turns), &mut targets)
            .expect("the slices fit");
        self.tokens.take(made.orders + made.forced);
        if !self.parts.lazy {
            targets.copy_from_slice(&priced);
        }
        let mut standings = vec![GroupState::EMPTY; groups.len()];
        let (mut queue, mut moves) = (vec![Turn::EMPTY; rows.len()], vec![Move::Keep; rows.len()]);
        let tuning = MoveTuning::new(Watts::from_int(1)).expect("not negative");
        next_moves(tuning, tree, (&rows, &targets), (&mut standings, &mut queue), &mut moves)
            .expect("the slices fit");
        for (machine, (row, step)) in rows.iter().zip(&moves).enumerate() {
            let (cap, is_raise) = match step {
                Move::Lower(cap) => (*cap, false),
                Move::Raise(cap) => (*cap, true),
                Move::Keep | Move::Await | Move::Wait(_) => continue,
            };
            let whole = watts(plant::from_watts(cap).floor());
            let before = self.grants[machine].expect("every node has one");
            if row.account.asked() == Some(whole) {
                continue;
            }
            let ceiling = row.account.ceiling_of(whole, row.range);
            self.grants[machine] = Some(Grant { serial: before.serial + 1, watts: whole, ceiling });
            if is_raise {
                self.raised[machine] = Some(now);
            }
            let lends = self.parts.yields && prices.get(row.group).is_some_and(GroupPrice::is_short);
            caps.push(CapWrite { machine, watts: plant::from_watts(whole), lends });
        }
    }
}
