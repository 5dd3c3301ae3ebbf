use super::*;
use crate::budget::rig::{Claim, round_of};
use crate::budget::{BudgetLimits, BudgetMemory, LimitPlace, NodePowerModel, PowerSharing};
use crate::hardware::{Cpu, ResolvedHardware};
use crate::intent::{DeviceCap, NodeCaps};
use joulie_core::budget::{Grant, GrantAccount, GrantReceipt, Range};
use power_units::{Micros, Percent, Stamp};
use proptest::prelude::*;

const NODES: usize = 12;

fn watts(watts: i32) -> Watts {
    Watts::from_int(watts)
}

/// Nodes of three kinds that follow their grants at once and confirm them a round later.
struct Cluster {
    limits: BudgetLimits,
    memory: BudgetMemory,
    grants: Vec<Option<Grant>>,
    receipts: Vec<Option<GrantReceipt>>,
    performance: Vec<bool>,
    second: u64,
    writes: usize,
    /// The most that could be drawn in the last round, for any subset of its writes.
    peak: Watts,
}

fn hardware(at: usize) -> ResolvedHardware {
    let max = [225, 360, 400][at % 3];
    let range = (Some(watts(max / 3)), Some(watts(max)));
    let cpu = Cpu { sockets: Some(2), min_per_socket: range.0, max_per_socket: range.1, ..Cpu::default() };
    ResolvedHardware { cpu, gpu: None }
}

fn most(at: usize) -> Watts {
    hardware(at).cpu.max_per_socket.unwrap().times(2)
}

impl Cluster {
    fn new(limit: i32) -> Self {
        let limits = BudgetLimits {
            site: Some(watts(limit)),
            site_base: Watts::ZERO,
            racks: Default::default(),
            rack_base: Default::default(),
            node_rest: Watts::ZERO,
            rest_measured: false,
            unknown_node: None,
            dead_band: watts(5),
            raise_band: Percent::from_int(5).to_ratio(Role::Limit),
            raise_dwell: Micros::new(30_000_000),
            answer_within: Micros::new(30_000_000),
            gone_hold: Micros::new(600_000_000),
            sharing: PowerSharing::Static,
        };
        Self {
            limits,
            memory: BudgetMemory::default(),
            grants: vec![None; NODES],
            receipts: vec![None; NODES],
            performance: vec![false; NODES],
            second: 0,
            writes: 0,
            peak: Watts::ZERO,
        }
    }

    fn claim(&self, at: usize) -> Claim {
        let performance = self.performance[at];
        let percent = Percent::from_int(if performance { 100 } else { 60 });
        let desired = NodeCaps { cpu: Some(DeviceCap { percent: Some(percent), watts: None }), gpu: None };
        let power_model = NodePowerModel::of(&hardware(at), (true, true));
        Claim {
            node: format!("n{at:02}").into(),
            priority: if performance { Priority::Performance } else { Priority::Eco },
            power_model,
            wanted: power_model.watts(&desired),
            leaves: false,
            grant: self.grants[at],
            released: false,
            receipt: self.receipts[at],
            registered_anew: false,
            sent: Vec::new(),
            gone: false,
            limits: LimitPlace::default(),
            aside: false,
            rack: None,
            rest_most: None,
            demand: None,
            sleep: crate::sleep::SleepCount::Awake,
            expected: None,
            power: crate::node::Power::UNMETERED,
        }
    }

    fn holds(&self, at: usize) -> Watts {
        self.grants[at].map_or(most(at), |grant| grant.watts)
    }

    /// One second: a round runs, its writes arrive, and the agents' receipts are read by the next round.
    fn round(&mut self) {
        self.second += 1;
        let now = Stamp::new(Micros::new(self.second * 1_000_000));
        let claims: Vec<Claim> = (0..NODES).map(|at| self.claim(at)).collect();
        let asks = round_of(&claims, &self.limits, &mut self.memory, now, true).0;
        self.peak = Watts::ZERO;
        for (at, ask) in asks.into_iter().enumerate() {
            let before = self.holds(at);
            let serial = self.grants[at].map_or(0, |grant| grant.serial);
            if let Some(ask) = ask {
                self.grants[at] = Some(Grant { serial: serial + 1, watts: ask.watts, ceiling: ask.ceiling });
                self.writes += 1;
            }
            self.peak += before.max(self.holds(at));
            let holds = self.holds(at);
            let heard =
                |grant: Grant| GrantReceipt { serial: grant.serial, holds, floor: Watts::ZERO, yields: None };
            self.receipts[at] = self.grants[at].map(heard);
        }
    }

    fn rounds(&mut self, count: usize) {
        (0..count).for_each(|_| self.round());
    }

    fn drawn(&self) -> Watts {
        (0..NODES).fold(Watts::ZERO, |sum, at| sum + self.holds(at))
    }

    /// Keeps the number of nodes at full power but changes which: one leaves and one joins.
    fn swap(&mut self, step: usize) {
        let (out, into) = (step % NODES, (step + 4) % NODES);
        (self.performance[out], self.performance[into]) = (false, true);
    }
}

#[test]
fn a_change_of_one_profile_writes_to_few_nodes_and_never_draws_more_than_the_limit() {
    // 12 nodes, 7880 W at most; eco for all are 4728 W.
    let limit = 4400;
    let mut cluster = Cluster::new(limit);
    (0..4).for_each(|at| cluster.performance[at] = true);
    cluster.rounds(40);
    assert!(cluster.drawn() <= watts(limit));
    cluster.writes = 0;
    // A profile changes every fifth second for five minutes.
    for step in 0..60 {
        cluster.swap(step);
        for _ in 0..5 {
            cluster.round();
            assert!(cluster.peak <= watts(limit), "{} W", cluster.peak);
        }
    }
    // At least two writes a change are needed: 120.
    assert!(cluster.writes <= 220, "{} writes", cluster.writes);
    // All available power is granted in the end, when nothing changes any more.
    cluster.rounds(120);
    let left = watts(limit) - cluster.drawn();
    assert!(left <= watts(2 * 12 + 5 * 12), "{left} W are left");
    cluster.writes = 0;
    cluster.rounds(120);
    assert_eq!(cluster.writes, 0, "nothing changes, nothing is written");
}

#[test]
fn a_cut_of_the_limit_is_kept_at_once() {
    let mut cluster = Cluster::new(6000);
    (0..4).for_each(|at| cluster.performance[at] = true);
    cluster.rounds(40);
    cluster.limits.site = Some(watts(4800));
    cluster.round();
    assert!(cluster.drawn() <= watts(4800), "one round of writes is enough: {} W", cluster.drawn());
    for _ in 0..20 {
        cluster.round();
        assert!(cluster.peak <= watts(4800));
    }
}

#[test]
fn a_short_way_up_waits_and_a_long_one_does_not() {
    let band = Band(Percent::from_int(5).to_ratio(Role::Limit));
    assert!(band.is_within(watts(400), watts(419)));
    assert!(!band.is_within(watts(400), watts(420)));
    assert!(!band.is_within(watts(400), watts(400)) && !band.is_within(watts(400), watts(300)));
}

/// A node that holds its cap.
fn holding(key: usize, (group, cap, desired, reachable): (usize, i32, i32, bool)) -> BudgetNode {
    let grant = Grant { serial: 1, watts: watts(cap), ceiling: watts(cap) };
    let receipt = GrantReceipt { serial: 1, holds: watts(cap), floor: Watts::ZERO, yields: None };
    BudgetNode {
        key: key as u64,
        group,
        priority: if key.is_multiple_of(2) { Priority::Eco } else { Priority::Performance },
        range: Range::new(watts(100), Some(watts(400))).unwrap(),
        desired: watts(desired),
        reachable,
        account: GrantAccount::observed(Some(grant), Some(receipt)),
    }
}

/// The power of a group; `None` when unknown.
fn load(group: usize, groups: &[Group], nodes: &[BudgetNode], targets: &[Watts]) -> Option<Watts> {
    let mut sum = Watts::ZERO;
    for (at, part) in groups.iter().enumerate() {
        if is_in(at, group, groups) {
            sum = sum.checked_add(part.base()?)?;
        }
    }
    for (node, &target) in nodes.iter().zip(targets) {
        if is_in(node.group, group, groups) {
            sum = sum.checked_add(if node.reachable { target } else { node.count()? })?;
        }
    }
    Some(sum)
}

/// Like [`hold`], but sums up each group's power anew at every use.
fn hold_slowly(groups: &[Group], nodes: &[BudgetNode], impatient: &[bool], targets: &mut [Watts]) {
    let above = keep(Band(Ratio::ZERO), groups, nodes, impatient, targets);
    for group in (0..groups.len()).rev() {
        for one in above.iter().filter(|one| is_in(nodes[one.at].group, group, groups)) {
            if load(group, groups, nodes, targets).is_none_or(|load| load > groups[group].limit()) {
                targets[one.at] = one.share;
            }
        }
    }
}

proptest! {
    #[test]
    fn what_is_added_up_once_is_what_is_added_up_anew(
        facts in prop::collection::vec(((0_usize..4, 100_i32..400, 250_i32..400, prop::bool::weighted(0.9)), 100_i32..300, any::<bool>()), 1..20),
        limits in prop::collection::vec((500_i32..4_000, prop::bool::weighted(0.95)), 4),
        unheard in prop::collection::vec(prop::bool::weighted(0.02), 20),
    ) {
        let parents = [None, Some(0), Some(1), Some(1)];
        let group = |(&parent, &(limit, known)): (&Option<usize>, &(i32, bool))| {
            Group::new(parent, watts(limit), known.then(|| watts(50))).unwrap()
        };
        let groups: Vec<Group> = parents.iter().zip(&limits).map(group).collect();
        let nodes: Vec<BudgetNode> = facts.iter().zip(&unheard).enumerate().map(|(key, ((node, _, _), &unheard))| {
            let node = holding(key, *node);
            // The power of an unreachable node without any receipt and with an unknown maximum is unknown.
            let nothing = BudgetNode { account: GrantAccount::NONE, range: Range::new(watts(100), None).unwrap(), ..node };
            if unheard { nothing } else { node }
        }).collect();
        let impatient: Vec<bool> = facts.iter().map(|(_, _, impatient)| *impatient).collect();
        let mut targets: Vec<Watts> = facts.iter().map(|(_, target, _)| watts(*target)).collect();
        let mut slowly = targets.clone();
        hold(Band(Ratio::ZERO), &groups, &nodes, &impatient, &mut targets);
        hold_slowly(&groups, &nodes, &impatient, &mut slowly);
        prop_assert_eq!(targets, slowly);
    }

    #[test]
    fn targets_that_fit_every_limit_still_do_when_caps_are_kept(
        nodes in prop::collection::vec(((0_usize..4, 100_i32..400, 100_i32..400, prop::bool::weighted(0.9)), 100_i32..400), 1..20),
        slack in prop::collection::vec(0_i32..300, 4),
    ) {
        // The site, a row of racks in it, and two racks in the row.
        let parents = [None, Some(0), Some(1), Some(1)];
        let tree = |limits: &[Watts]| -> Vec<Group> {
            let group = |(&parent, &limit)| Group::new(parent, limit, Some(watts(50))).unwrap();
            parents.iter().zip(limits).map(group).collect()
        };
        let (facts, mut targets): (Vec<_>, Vec<Watts>) =
            nodes.iter().map(|(node, target)| (*node, watts(*target))).unzip();
        let nodes: Vec<BudgetNode> = facts.into_iter().enumerate().map(|(key, node)| holding(key, node)).collect();
        let open = tree(&[Watts::MAX; 4]);
        let limits: Vec<Watts> =
            (0..4).map(|at| load(at, &open, &nodes, &targets).unwrap() + watts(slack[at])).collect();
        let groups = tree(&limits);
        hold(Band(Ratio::ZERO), &groups, &nodes, &vec![true; nodes.len()], &mut targets);
        for (at, limit) in limits.into_iter().enumerate() {
            prop_assert!(load(at, &groups, &nodes, &targets).unwrap() <= limit, "group {at}");
        }
    }
}
