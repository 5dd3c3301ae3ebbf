//! Simulates a site with faults: grants and receipts are lost or delayed, nodes reboot, stop answering, yield watts and read
//! back other limits than were written, limits are cut, and the leader changes. The invariant is checked after every
//! single event.

use super::*;
use power_units::Watts;
use proptest::prelude::*;
use std::vec;
use std::vec::Vec;

/// Xorshift: the same run from the same seed on every machine.
struct Dice(u64);

impl Dice {
    fn below(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }
    fn pick(&mut self, len: usize) -> usize {
        usize::try_from(self.below(len as u64)).unwrap()
    }
    fn one_in(&mut self, sides: u64) -> bool {
        self.below(sides) == 0
    }
    fn watts(&mut self, from: i64, to: i64) -> Watts {
        // Fractions of a watt, so that rounding is exercised.
        let span = u64::try_from((to - from) << 32).unwrap() + 1;
        Watts::from_bits((from << 32) + i64::try_from(self.below(span)).unwrap())
    }
}

/// A grant that was sent and may land, and the serial that it replaces.
#[derive(Clone, Copy)]
struct Sent {
    over: u64,
    grant: Grant,
}

/// The node's object and the node itself, which the operator sees with a delay.
struct Device {
    /// Every grant that the object has had; the last one is the present grant.
    object: Vec<Grant>,
    /// The status of the object, and in which boot it was written.
    status: Option<(GrantReceipt, u64)>,
    /// Writes on their way: any of them may still land.
    under_way: Vec<Sent>,
    boot: u64,
    /// The last grant that the agent has accepted, less what it has yielded of it; it is on disk.
    taken: Option<Grant>,
    /// It has yielded some of that grant.
    yields: bool,
    /// What limits the devices now; nothing after a reboot.
    in_force: Option<Watts>,
    /// The floor that the agent knows and reports.
    floor: Watts,
    /// The lowest cap that the devices really accept, which may be above the floor that the operator knows.
    holds_at_least: Watts,
    /// What the operator's watch has shown of the object.
    seen: (Option<Grant>, Option<(GrantReceipt, u64)>),
    /// What the operator has sent and has no answer to.
    unresolved: Vec<Sent>,
}

impl Device {
    fn land(&mut self, sent: Sent) -> bool {
        let stands = self.object.last().map_or(0, |grant| grant.serial);
        let lands = stands == sent.over;
        if lands {
            self.object.push(sent.grant);
        }
        lands
    }

    fn look(&mut self) {
        self.seen = (self.object.last().copied(), self.status);
        let serial = self.seen.0.map_or(0, |grant| grant.serial);
        self.unresolved.retain(|sent| serial <= sent.over);
    }

    fn account(&self) -> GrantAccount {
        let receipt = self.seen.1.filter(|(_, boot)| *boot == self.boot).map(|(receipt, _)| receipt);
        let sent: Vec<Grant> = self.unresolved.iter().map(|sent| sent.grant).collect();
        GrantAccount::observed(self.seen.0, receipt).after_sending(&sent)
    }

    fn take(&mut self, grant: Grant, less: Watts) {
        let asked = grant.watts - less;
        if asked < self.holds_at_least {
            self.floor = self.holds_at_least;
        }
        self.in_force = Some(asked.max(self.holds_at_least));
        self.taken = Some(grant);
    }
}

struct World {
    dice: Dice,
    groups: Vec<Group>,
    nodes: Vec<BudgetNode>,
    devices: Vec<Device>,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut dice = Dice(seed | 1);
        let groups = tree(&mut dice);
        let mut world = Self { dice, groups, nodes: Vec::new(), devices: Vec::new() };
        for key in 0..2 + world.dice.below(14) {
            world.add_node(key * 7 % 16);
        }
        world
    }

    fn add_node(&mut self, key: u64) {
        let floor = self.dice.watts(50, 250);
        let max = floor + self.dice.watts(0, 500);
        let refuses = if self.dice.one_in(5) { self.dice.watts(0, 40) } else { Watts::ZERO };
        self.nodes.push(BudgetNode {
            key,
            group: self.dice.pick(self.groups.len()),
            priority: Priority::ALL[self.dice.pick(3)],
            range: Range::new(floor, Some(max)).unwrap(),
            desired: self.dice.watts(0, 800),
            reachable: true,
            account: GrantAccount::NONE,
        });
        self.devices.push(Device {
            object: Vec::new(),
            status: None,
            under_way: Vec::new(),
            boot: 1,
            taken: None,
            yields: false,
            in_force: None,
            floor: Watts::ZERO,
            holds_at_least: (floor + refuses).min(max),
            seen: (None, None),
            unresolved: Vec::new(),
        });
    }

    /// The most that a node can really draw at this instant.
    fn truth(&self, at: usize) -> Watts {
        let max = self.nodes[at].range.max().unwrap();
        self.devices[at].in_force.map_or(max, |cap| cap.min(max))
    }

    /// The load of every group: as the operator counts it, and the real one.
    fn loads(&mut self) -> Vec<(Watts, Watts)> {
        for (node, device) in self.nodes.iter_mut().zip(&self.devices) {
            node.account = device.account();
        }
        let mut loads: Vec<_> = self.groups.iter().map(|g| (g.base().unwrap(), g.base().unwrap())).collect();
        for at in 0..self.nodes.len() {
            let own = &mut loads[self.nodes[at].group];
            *own = (own.0 + self.nodes[at].count().unwrap(), own.1 + self.truth(at));
        }
        for group in (0..loads.len()).rev() {
            if let Some(parent) = self.groups[group].parent() {
                loads[parent] = (loads[parent].0 + loads[group].0, loads[parent].1 + loads[group].1);
            }
        }
        loads
    }

    /// Runs an event that is no disturbance, and checks the invariant afterwards.
    fn checked(&mut self, event: impl FnOnce(&mut Self)) {
        let before = self.loads();
        event(self);
        for (group, (now, was)) in self.loads().into_iter().zip(before).enumerate() {
            assert!(now.1 <= now.0, "group {group} draws {} where {} is counted", now.1, now.0);
            let allowed = self.groups[group].limit().max(was.0);
            assert!(now.0 <= allowed, "group {group} rises from {} to {}, above {allowed}", was.0, now.0);
        }
    }

    fn plan(&mut self) -> (Allocation, Vec<Watts>, Vec<Move>) {
        self.loads();
        let tree = BudgetTree::new(&self.groups).unwrap();
        let mut targets = vec![Watts::ZERO; self.nodes.len()];
        let mut shares = vec![GroupShare::EMPTY; self.groups.len()];
        let allocation = allocate(tree, &self.nodes, &mut shares, &mut targets).unwrap();
        let mut moves = vec![Move::Keep; self.nodes.len()];
        let mut standings = vec![GroupState::EMPTY; self.groups.len()];
        let mut queue = vec![Turn::EMPTY; self.nodes.len()];
        let law = MoveTuning::new(Watts::ZERO).unwrap();
        next_moves(law, tree, (&self.nodes, &targets), (&mut standings, &mut queue), &mut moves).unwrap();
        (allocation, targets, moves)
    }

    /// Sends the next grant: it lands and is answered, lands without an answer, is on its way, or is lost.
    fn write(&mut self, at: usize, watts: Watts, all_is_well: bool) {
        let fate = if all_is_well { 0 } else { self.dice.below(6) };
        let range = self.nodes[at].range;
        let device = &mut self.devices[at];
        let over = device.seen.0.map_or(0, |grant| grant.serial);
        let ceiling = device.account().ceiling_of(watts, range);
        let sent = Sent { over, grant: Grant { serial: over + 1, watts, ceiling } };
        match fate {
            0..=2 => {
                // An answer shows the object as it is at that time; a refusal is definite too.
                device.land(sent);
                device.look();
            }
            3 => {
                device.unresolved.push(sent);
                device.land(sent);
            }
            4 => {
                device.unresolved.push(sent);
                device.under_way.push(sent);
            }
            _ => device.unresolved.push(sent),
        }
    }

    /// A round of grants. The invariant is checked after each.
    fn order(&mut self, all_is_well: bool) -> (Allocation, Vec<Watts>, Vec<Move>) {
        let planned = self.plan();
        let mut order: Vec<usize> = (0..self.nodes.len()).collect();
        for at in (1..order.len()).rev() {
            let with = self.dice.pick(at + 1);
            order.swap(at, with);
        }
        for at in order {
            let (Move::Lower(cap) | Move::Raise(cap)) = planned.2[at] else { continue };
            if !all_is_well && self.dice.one_in(3) {
                continue;
            }
            self.checked(|world| world.write(at, cap, all_is_well));
        }
        planned
    }

    /// The agent sees one of the grants that it has not seen yet: not always the last, and perhaps never the others.
    /// Its devices may accept less than was ordered.
    fn deliver(&mut self, at: usize, last: bool) {
        let device = &mut self.devices[at];
        let taken = device.taken.map_or(0, |grant| grant.serial);
        let new: Vec<Grant> = device.object.iter().copied().filter(|grant| grant.serial > taken).collect();
        if !new.is_empty() {
            device.yields = false;
        }
        if let Some(&grant) = if last { new.last() } else { new.get(self.dice.pick(new.len().max(1))) } {
            let less = if self.dice.one_in(3) { self.dice.watts(0, 200) } else { Watts::ZERO };
            device.take(grant, less);
        }
    }

    /// The agent yields some of its grant: from now on it keeps to less, and the devices follow now or later.
    fn give_way(&mut self, at: usize) {
        let left = self.dice.watts(0, 800);
        let follows = self.dice.one_in(2);
        let device = &mut self.devices[at];
        let Some(taken) = device.taken.as_mut().filter(|taken| left < taken.watts) else { return };
        taken.watts = left;
        device.yields = true;
        if follows {
            self.settle(at);
        }
    }

    /// After a reboot the agent puts the grant on its disk in force. Devices that held less come up to it.
    fn settle(&mut self, at: usize) {
        let device = &mut self.devices[at];
        if let Some(grant) = device.taken {
            device.take(grant, Watts::ZERO);
        }
    }

    fn report(&mut self, at: usize) {
        let device = &mut self.devices[at];
        if let Some((grant, holds)) = device.taken.zip(device.in_force) {
            let yields = Some(grant.watts).filter(|_| device.yields);
            let receipt = GrantReceipt { serial: grant.serial, holds, floor: device.floor, yields };
            device.status = Some((receipt, device.boot));
        }
    }

    fn arrive(&mut self, at: usize) {
        let device = &mut self.devices[at];
        if !device.under_way.is_empty() {
            let sent = device.under_way.remove(self.dice.pick(device.under_way.len()));
            device.land(sent);
        }
    }

    /// A new leader waits until no write of the previous leader can land any more, and then reads the objects as they
    /// are. It knows nothing else.
    fn change_leader(&mut self) {
        for at in 0..self.nodes.len() {
            if self.dice.one_in(2) {
                self.arrive(at);
            }
            let device = &mut self.devices[at];
            device.under_way.clear();
            device.unresolved.clear();
            device.look();
        }
        for (group, (counted, drawn)) in self.loads().into_iter().enumerate() {
            assert!(drawn <= counted, "a new leader counts {counted} where group {group} draws {drawn}");
        }
    }

    fn disturb(&mut self) {
        let at = self.dice.pick(self.nodes.len());
        match self.dice.below(6) {
            0 => {
                let group = self.dice.pick(self.groups.len());
                let (limit, base) = (self.dice.watts(200, 6000), self.dice.watts(0, 300));
                self.groups[group] = Group::new(self.groups[group].parent(), limit, Some(base)).unwrap();
            }
            1 => {
                let device = &mut self.devices[at];
                device.in_force = None;
                device.boot += 1;
            }
            2 | 3 => self.nodes[at].reachable = !self.nodes[at].reachable,
            _ => {
                self.nodes[at].desired = self.dice.watts(0, 800);
                self.nodes[at].priority = Priority::ALL[self.dice.pick(3)];
            }
        }
    }

    fn chaos(&mut self, events: usize) {
        for _ in 0..events {
            let at = self.dice.pick(self.nodes.len());
            match self.dice.below(26) {
                24 | 25 => self.checked(|world| world.give_way(at)),
                0 | 1 => self.disturb(),
                2 => self.change_leader(),
                3..=7 => drop(self.order(false)),
                8..=10 => self.checked(|world| world.deliver(at, false)),
                11 | 12 => self.checked(|world| world.arrive(at)),
                13 => self.checked(|world| world.settle(at)),
                14..=17 => self.checked(|world| world.report(at)),
                _ => self.checked(|world| world.devices[at].look()),
            }
        }
    }

    /// Heals all faults: every grant arrives and every receipt comes back. Returns the number of rounds until nothing
    /// is left to do.
    fn heal(&mut self) -> (usize, Allocation, Vec<Watts>) {
        for node in &mut self.nodes {
            node.reachable = true;
        }
        for at in 0..self.nodes.len() {
            self.devices[at].under_way.clear();
            self.checked(|world| world.devices[at].look());
        }
        for round in 0..20 {
            let (allocation, targets, moves) = self.order(true);
            if moves.iter().all(|step| *step == Move::Keep) {
                return (round, allocation, targets);
            }
            for at in 0..self.nodes.len() {
                self.checked(|world| world.deliver(at, true));
                self.checked(|world| world.settle(at));
                self.checked(|world| world.report(at));
                self.checked(|world| world.devices[at].look());
            }
        }
        panic!("the targets are not reached");
    }
}

/// Up to three levels with random parents; limits from much too low to ample.
fn tree(dice: &mut Dice) -> Vec<Group> {
    let mut groups = Vec::new();
    for index in 0..1 + dice.pick(7) {
        let parent = (index > 0 && !dice.one_in(8)).then(|| dice.pick(index));
        groups.push(Group::new(parent, dice.watts(200, 6000), Some(dice.watts(0, 300))).unwrap());
    }
    groups
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn no_grant_takes_a_load_above_its_limit_and_all_is_reached_when_the_world_heals(seed in any::<u64>()) {
        let mut world = World::new(seed);
        world.chaos(150);
        let (rounds, allocation, targets) = world.heal();
        // Lower, raise, and the same once more for devices that could not be lowered as far as ordered.
        prop_assert!(rounds <= 6, "{rounds} rounds");
        world.loads();
        for (node, &target) in world.nodes.iter().zip(&targets) {
            prop_assert_eq!(node.count().unwrap(), target);
        }
        let over = world.loads().into_iter().zip(world.groups.clone()).filter(|(load, group)| load.0 > group.limit()).count();
        prop_assert_eq!(over, allocation.short);
    }
}
