//! A site whose orders and receipts get lost, doubled and late, whose nodes reboot, fall silent and read back less than
//! they were told, whose limits are cut and whose leader changes; the invariant is looked at after every single event.

use super::*;
use power_units::{Micros, Stamp, Watts};
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
        // Not whole watts, so that rounding has something to do.
        let span = u64::try_from((to - from) << 32).unwrap() + 1;
        Watts::from_bits((from << 32) + i64::try_from(self.below(span)).unwrap())
    }
}

/// What the operator does not see: the node itself.
struct Device {
    /// The lowest cap that the device really takes, which may be above the floor that the operator knows.
    holds_at_least: Watts,
    /// What limits it now; nothing after a reboot.
    in_force: Option<Watts>,
    /// The last order taken in since the last boot.
    taken: Option<Order>,
    /// The last order as long as it has not reached the node's object; it is gone when its writer is.
    under_way: Option<Order>,
    /// Every order that ever stood in the object, and every receipt ever made: any of them may arrive at any time.
    orders: Vec<Order>,
    receipts: Vec<Receipt>,
    /// How many of the receipts are from before the last boot, and how many the present leader can no longer hear,
    /// because it began with later ones.
    before_boot: usize,
    before_leader: usize,
}

impl Device {
    fn settle(&mut self) {
        self.in_force = self.in_force.zip(self.taken).map(|(_, order)| order.cap.max(self.holds_at_least));
    }
    fn land(&mut self) {
        self.orders.extend(self.under_way.take());
    }
}

struct World {
    dice: Dice,
    groups: Vec<Group>,
    nodes: Vec<Node>,
    devices: Vec<Device>,
    clock: u64,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut dice = Dice(seed | 1);
        let groups = tree(&mut dice);
        let mut world = Self { dice, groups, nodes: Vec::new(), devices: Vec::new(), clock: 0 };
        for key in 0..2 + world.dice.below(14) {
            world.add_node(key * 7 % 16);
        }
        world
    }

    fn add_node(&mut self, key: u64) {
        let floor = self.dice.watts(50, 250);
        let max = floor + self.dice.watts(0, 500);
        let refuses = if self.dice.one_in(5) { self.dice.watts(0, 40) } else { Watts::ZERO };
        self.nodes.push(Node {
            key,
            group: self.dice.pick(self.groups.len()),
            priority: Priority::ALL[self.dice.pick(3)],
            range: Range::new(floor, Some(max)).unwrap(),
            desired: self.dice.watts(0, 800),
            reachable: true,
            account: Account::unproven(),
        });
        self.devices.push(Device {
            holds_at_least: (floor + refuses).min(max),
            in_force: None,
            taken: None,
            under_way: None,
            orders: Vec::new(),
            receipts: Vec::new(),
            before_boot: 0,
            before_leader: 0,
        });
    }

    /// The most that a node really can draw at this instant.
    fn truth(&self, at: usize) -> Watts {
        let max = self.nodes[at].range.max().unwrap();
        self.devices[at].in_force.map_or(max, |cap| cap.min(max))
    }

    /// What every group carries: as the operator counts it, and in truth.
    fn loads(&self) -> Vec<(Watts, Watts)> {
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

    /// Does something that is no disturbance, and holds it against the invariant.
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
        let tree = Tree::new(&self.groups).unwrap();
        let mut targets = vec![Watts::ZERO; self.nodes.len()];
        let mut shares = vec![Share::EMPTY; self.groups.len()];
        let allocation = allocate(tree, &self.nodes, &mut shares, &mut targets).unwrap();
        let mut moves = vec![Move::Keep; self.nodes.len()];
        let mut standings = vec![Standing::EMPTY; self.groups.len()];
        let mut queue = vec![Turn::EMPTY; self.nodes.len()];
        let law = Law::new(Watts::ZERO).unwrap();
        next_moves(law, tree, (&self.nodes, &targets), (&mut standings, &mut queue), &mut moves).unwrap();
        (allocation, targets, moves)
    }

    fn write(&mut self, at: usize, cap: Watts) {
        self.clock += 1;
        let now = Stamp::new(Micros::new(self.clock));
        let order = self.nodes[at].account.write(cap, now);
        let late = self.dice.one_in(4);
        let lost = self.dice.one_in(2);
        let device = &mut self.devices[at];
        if lost {
            device.under_way = None;
        }
        device.land();
        device.under_way = Some(order);
        if !late {
            device.land();
        }
    }

    /// A round of orders, each of which is an instant of its own.
    fn order(&mut self, only_some: bool) -> (Allocation, Vec<Watts>, Vec<Move>) {
        let planned = self.plan();
        let mut order: Vec<usize> = (0..self.nodes.len()).collect();
        for at in (1..order.len()).rev() {
            let with = self.dice.pick(at + 1);
            order.swap(at, with);
        }
        for at in order {
            let (Move::Lower(cap) | Move::Raise(cap)) = planned.2[at] else { continue };
            if only_some && self.dice.one_in(3) {
                continue;
            }
            self.checked(|world| world.write(at, cap));
        }
        planned
    }

    /// The node sees one of the orders that it has not seen, not always the last and perhaps never the others. Its
    /// devices may take less than they were told.
    fn deliver(&mut self, at: usize, last: bool) {
        let device = &mut self.devices[at];
        if last || self.dice.one_in(3) {
            device.land();
        }
        let taken = device.taken.map_or(0, |order| order.serial);
        let new: Vec<Order> = device.orders.iter().copied().filter(|order| order.serial > taken).collect();
        if let Some(&order) = if last { new.last() } else { new.get(self.dice.pick(new.len().max(1))) } {
            let less = if self.dice.one_in(3) { self.dice.watts(0, 200) } else { Watts::ZERO };
            device.in_force = Some((order.cap - less).max(device.holds_at_least));
            device.taken = Some(order);
        }
    }

    fn report(&mut self, at: usize) {
        let device = &mut self.devices[at];
        if let Some(read_back) = device.in_force {
            device.receipts.push(Receipt { taken: device.taken, read_back });
        }
    }

    /// Another leader knows only what stands in the objects: every node's last order and last receipt.
    fn change_leader(&mut self) {
        self.clock += 1;
        let now = Stamp::new(Micros::new(self.clock));
        for (node, device) in self.nodes.iter_mut().zip(&mut self.devices) {
            if self.dice.one_in(2) {
                device.land();
            }
            device.under_way = None;
            let receipt = device.receipts[device.before_boot..].last().copied();
            device.before_leader = device.receipts.len();
            node.account = Account::resume(device.orders.last().copied(), receipt, now);
        }
        for (group, (counted, drawn)) in self.loads().into_iter().enumerate() {
            assert!(drawn <= counted, "a new leader counts {counted} where group {group} draws {drawn}");
        }
    }

    /// The operator hears any receipt that was ever made: late, doubled, out of order.
    fn hear(&mut self, at: usize, last: bool) {
        let receipts = &self.devices[at].receipts[self.devices[at].before_leader..];
        if receipts.is_empty() {
            return;
        }
        let which = if last { receipts.len() - 1 } else { self.dice.pick(receipts.len()) };
        let receipt = receipts[which];
        self.nodes[at].account.hear(receipt);
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
                (device.in_force, device.taken) = (None, None);
                device.before_boot = device.receipts.len();
                self.nodes[at].account.lost();
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
            match self.dice.below(24) {
                0 | 1 => self.disturb(),
                2 => self.change_leader(),
                3..=7 => drop(self.order(true)),
                8..=12 => self.checked(|world| world.deliver(at, false)),
                13 => self.checked(|world| world.devices[at].settle()),
                14..=17 => self.checked(|world| world.report(at)),
                _ => self.checked(|world| world.hear(at, false)),
            }
        }
    }

    /// All is well again: every order arrives, every receipt comes back. How many rounds until nothing is left to do?
    fn heal(&mut self) -> (usize, Allocation, Vec<Watts>) {
        for node in &mut self.nodes {
            node.reachable = true;
        }
        for round in 0..20 {
            let (allocation, targets, moves) = self.order(false);
            if moves.iter().all(|step| *step == Move::Keep) {
                return (round, allocation, targets);
            }
            for at in 0..self.nodes.len() {
                self.checked(|world| world.deliver(at, true));
                self.checked(|world| world.report(at));
                self.checked(|world| world.hear(at, true));
            }
        }
        panic!("the targets are not reached");
    }
}

/// Up to three levels with random parents; limits from far too little to plenty.
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
    fn no_order_takes_a_load_above_its_limit_and_all_is_reached_when_the_world_heals(seed in any::<u64>()) {
        let mut world = World::new(seed);
        world.chaos(150);
        let (rounds, allocation, targets) = world.heal();
        // Lower, raise, and the same once more for devices that turned out not to go as low as they were told.
        prop_assert!(rounds <= 6, "{rounds} rounds");
        for (node, &target) in world.nodes.iter().zip(&targets) {
            prop_assert_eq!(node.count().unwrap(), target);
        }
        let over = world.loads().into_iter().zip(&world.groups).filter(|(load, group)| load.0 > group.limit()).count();
        prop_assert_eq!(over, allocation.short);
    }
}
