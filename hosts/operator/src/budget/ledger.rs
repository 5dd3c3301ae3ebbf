//! What is known of every node's cap, and a round of the budget over all nodes.

use super::steady::{self, Band};
use super::{Claim, Grant, GroupStanding, Groups, Split, short};
use crate::rows::{self, DeviceSeen, StateSeen};
use crate::settings::Limits;
use joulie_api::condition::Status;
use joulie_core::budget::{
    Account, Law, Move, Node, Order, Range, Receipt, Share, Standing, Turn, allocate, next_moves,
};
use planner::intent::Caps;
use power_units::{Micros, Stamp, Watts};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What is known of one node's cap.
#[derive(Clone, Debug)]
struct Entry {
    key: u64,
    account: Account,
    /// The last order of ours, or the one that was found.
    order: Option<Order>,
    uid: String,
    /// States of the object before this generation are older than what was written.
    generation: i64,
    /// A write was sent and nobody knows what became of it.
    unresolved: bool,
    /// The caps that the policy wants, and those that they became: what the policy is shown in their place.
    granted: Option<(Caps, Caps)>,
    /// Since when it would have more if that were worth a write.
    waits_since: Option<Stamp>,
}

/// The books of one term of leading.
#[derive(Debug)]
pub(crate) struct Ledger {
    pub(super) limits: Limits,
    law: Law,
    entries: BTreeMap<Arc<str>, Entry>,
    keys: u64,
    /// The last round.
    standings: Vec<GroupStanding>,
    /// Since when each group counts more than its limit.
    over_since: BTreeMap<String, Stamp>,
}

/// A cut takes some seconds until it is read back; a group that is above its limit for longer is told of.
const GRACE: Micros = Micros::new(30_000_000);

impl Ledger {
    /// Empty books.
    ///
    /// # Errors
    /// When the dead-band makes no sense.
    pub(crate) fn new(limits: Limits) -> Result<Self, String> {
        let law = Law::new(limits.dead_band).map_err(|error| error.to_string())?;
        Ok(Self {
            limits,
            law,
            entries: BTreeMap::new(),
            keys: 0,
            standings: Vec::new(),
            over_since: BTreeMap::new(),
        })
    }

    /// How the groups stood in the last round, the site first.
    pub(crate) fn standings(&self) -> &[GroupStanding] {
        &self.standings
    }

    /// What the policy is shown of caps that stand: its own ones, where the budget made these of them.
    pub(crate) fn shown(&self, node: &str, stands: Caps) -> Caps {
        let granted = self.entries.get(node).and_then(|entry| entry.granted);
        granted.filter(|(_, made)| made.same_as(&stands)).map_or(stands, |(wanted, _)| wanted)
    }

    /// Takes in what a node's object says: the order that stands, and what was read back for it.
    pub(crate) fn observe(&mut self, node: &str, split: &Split, state: Option<&StateSeen>, now: Stamp) {
        let Some(state) = state else {
            // Where an object was, its cap is not lifted before an agent says so; but no order stands any more.
            if let Some(entry) = self.entries.get_mut(node).filter(|entry| !entry.unresolved) {
                if !entry.uid.is_empty() {
                    entry.account.lost();
                    (entry.order, entry.generation) = (None, 0);
                    entry.uid.clear();
                }
            } else if !self.entries.contains_key(node) {
                let entry = self.found(Account::unproven(), None, String::new());
                self.entries.insert(node.into(), entry);
            }
            return;
        };
        let stands = rows::caps(&state.desired);
        let Some(cap) = split.watts(&stands) else {
            // Nobody can say what this asks of the node, so what was asked before says nothing any more.
            let changed = |entry: &&mut Entry| !entry.unresolved && state.generation > entry.generation;
            if let Some(entry) = self.entries.get_mut(node).filter(changed) {
                entry.account.lost();
                (entry.order, entry.generation) = (None, state.generation);
            }
            return;
        };
        let read_back = read_back(split, state);
        let known =
            self.entries.get(node).filter(|entry| entry.uid == state.stamp.uid || entry.uid.is_empty());
        let serial = known.and_then(|entry| entry.order).map_or(1, |order| order.serial);
        match known {
            Some(entry) if state.generation < entry.generation => {}
            Some(entry) if entry.account.asked() == Some(cap) => {
                if let Some(entry) = self.entries.get_mut(node) {
                    entry.uid.clone_from(&state.stamp.uid);
                    let taken = Some(Order { serial, cap });
                    if let Some(read_back) = read_back {
                        entry.unresolved = false;
                        entry.account.hear(Receipt { taken, read_back });
                    }
                }
            }
            // Which of both the node will obey shows when the write has been repeated.
            Some(entry) if entry.unresolved => {}
            Some(_) | None => {
                // Somebody else's order, or the one of a leader before.
                let order = Order { serial: serial.saturating_add(1), cap };
                let receipt = read_back.map(|read_back| Receipt { taken: Some(order), read_back });
                let account = Account::resume(Some(order), receipt, now);
                let mut entry = self.found(account, Some(order), state.stamp.uid.clone());
                entry.generation = state.generation;
                self.entries.insert(node.into(), entry);
            }
        }
    }

    fn found(&mut self, account: Account, order: Option<Order>, uid: String) -> Entry {
        self.keys += 1;
        let key = self.keys;
        Entry { key, account, order, uid, generation: 0, unresolved: false, granted: None, waits_since: None }
    }

    /// A round over all claims, in their order. Until `raises`, nothing is raised: a leader before may still be heard.
    ///
    /// # Errors
    /// When the books are broken, which would be a defect; nothing may be written then.
    pub(crate) fn round(&mut self, claims: &[Claim], raises: bool, now: Stamp) -> Result<Vec<Grant>, String> {
        let racks = claims.iter().filter_map(|claim| claim.rack.as_deref());
        let groups = Groups::of(&self.limits, racks)?;
        let tree = groups.tree()?;
        let nodes = claims.iter().map(|claim| self.node(claim, &groups)).collect::<Result<Vec<Node>, _>>()?;
        let count = groups.groups.len();
        let (mut shares, mut targets) = (vec![Share::EMPTY; count], vec![Watts::ZERO; nodes.len()]);
        allocate(tree, &nodes, &mut shares, &mut targets).map_err(|error| error.to_string())?;
        let impatient = self.wait(claims, &nodes, &targets, now);
        steady::hold(Band(self.limits.raise_band), &groups.groups, &nodes, &impatient, &mut targets);
        let mut standings = vec![Standing::EMPTY; count];
        let (mut queue, mut moves) = (vec![Turn::EMPTY; nodes.len()], vec![Move::Keep; nodes.len()]);
        next_moves(self.law, tree, (&nodes, &targets), (&mut standings, &mut queue), &mut moves)
            .map_err(|error| error.to_string())?;
        let over = standings.iter().enumerate().filter(|(_, standing)| standing.overrun().is_some());
        let since = over.map(|(at, _)| {
            let name = groups.name(at);
            (name.to_owned(), self.over_since.get(name).copied().unwrap_or(now))
        });
        self.over_since = since.collect();
        let lasts = |name: &str| {
            let since = self.over_since.get(name).and_then(|&since| now.since(since));
            since.is_some_and(|lasted| lasted >= GRACE)
        };
        let stands = shares.iter().zip(&standings).zip(&groups.groups).enumerate();
        self.standings = stands
            .map(|(at, ((share, standing), group))| GroupStanding {
                name: groups.name(at).to_owned(),
                limit: group.limit(),
                load: standing.load(),
                short: short(share.verdict()),
                unknown: standing.load().is_none(),
                exceeded: standing.overrun().map(|over| over.by).filter(|_| lasts(groups.name(at))),
            })
            .collect();
        let steps = moves.into_iter().zip(nodes.iter().zip(&targets)).zip(impatient);
        let steps = steps.map(|((step, (node, &target)), impatient)| match step {
            // A short part of the way is no more worth a write than a short way.
            Move::Raise(cap) if cap < target && !impatient && self.is_short(node, cap) => None,
            Move::Raise(_) | Move::Lower(_) | Move::Keep | Move::Await | Move::Wait(_) => Some(step),
        });
        let steps: Vec<Option<Move>> = steps.collect();
        let grants = claims.iter().zip(steps);
        Ok(grants
            .map(|(claim, step)| step.map_or(Grant::Wait, |step| self.grant(claim, step, raises)))
            .collect())
    }

    /// Which nodes would have more, and have waited for that for long enough.
    fn wait(&mut self, claims: &[Claim], nodes: &[Node], targets: &[Watts], now: Stamp) -> Vec<bool> {
        let dwell = self.limits.raise_dwell;
        let wait = |((claim, node), &target): ((&Claim, &Node), &Watts)| {
            let Some(entry) = self.entries.get_mut(&claim.node) else { return true };
            if claim.lifts {
                return true;
            }
            let more = node.account.asked().is_none_or(|cap| node.range.limit(target) > cap);
            entry.waits_since = if more { entry.waits_since.or(Some(now)) } else { None };
            entry.waits_since.and_then(|since| now.since(since)).is_some_and(|waited| waited >= dwell)
        };
        claims.iter().zip(nodes).zip(targets).map(wait).collect()
    }

    fn is_short(&self, node: &Node, cap: Watts) -> bool {
        let band = Band(self.limits.raise_band);
        node.account.asked().is_some_and(|from| band.is_within(from, cap))
    }

    /// How the group that binds a node stands: the first above it that is not kept, else the nearest.
    pub(crate) fn standing_of(&self, rack: Option<&str>) -> Option<&GroupStanding> {
        let site = self.standings.first()?;
        let rack = rack.and_then(|rack| self.standings.iter().skip(1).find(|group| group.name == rack));
        let all = [rack, Some(site)];
        all.into_iter().flatten().find(|group| group.verdict().0 != Status::True).or(rack).or(Some(site))
    }

    fn node(&self, claim: &Claim, groups: &Groups) -> Result<Node, String> {
        let entry = self.entries.get(&claim.node);
        let account = entry.map_or(Account::unproven(), |entry| entry.account);
        let (floor, max) = (claim.split.floor(), claim.split.max());
        let stands = account.asked();
        // A node of which it is not known what it can draw may draw what it was told at least.
        let max = if claim.split.is_known() { max } else { max.map(|max| stands.unwrap_or(max).max(max)) };
        // What nobody here may change counts as it stands, and is no room for anybody.
        let floor = match (claim.fixed, stands, max) {
            (true, Some(stands), _) => stands.max(floor),
            (true, None, Some(max)) => max,
            (true, None, None) | (false, _, _) => floor,
        };
        let floor = max.map_or(floor, |max| floor.min(max));
        let wanted = claim.desired.and_then(|caps| claim.split.watts(&caps));
        Ok(Node {
            key: entry.map_or(u64::MAX, |entry| entry.key),
            group: groups.find(claim.rack.as_deref()),
            priority: claim.priority,
            range: Range::new(floor, max).map_err(|error| error.to_string())?,
            desired: wanted.or(stands).or(max).unwrap_or(floor),
            reachable: claim.reachable,
            account,
        })
    }

    fn grant(&mut self, claim: &Claim, step: Move, raises: bool) -> Grant {
        let Some(desired) = claim.desired else { return Grant::Wait };
        let caps = match step {
            Move::Lower(cap) => claim.split.caps(&desired, cap),
            Move::Raise(cap) if raises => claim.split.caps(&desired, cap),
            Move::Keep | Move::Await => {
                self.stands_for(claim, desired);
                return Grant::Stands;
            }
            Move::Raise(_) | Move::Wait(_) => return Grant::Wait,
        };
        if claim.fixed {
            return Grant::Stands;
        }
        if claim.stands.is_some_and(|stands| stands.same_as(&caps)) {
            // Devices are told whole watts, so the node is as near to its target as it can be.
            self.stands_for(claim, desired);
            return Grant::Stands;
        }
        Grant::Write(caps)
    }

    /// The caps that stand are what became of the desired ones.
    fn stands_for(&mut self, claim: &Claim, desired: Caps) {
        if let (Some(entry), Some(stands)) =
            (self.entries.get_mut(&claim.node), claim.stands.filter(|_| !claim.fixed))
        {
            entry.granted = Some((desired, stands));
        }
    }

    /// These caps are about to be written to a node; `desired` are those of the policy that they come from.
    pub(crate) fn order(&mut self, claim: &Claim, caps: Caps, now: Stamp) {
        let (Some(cap), Some(entry)) = (claim.split.watts(&caps), self.entries.get_mut(&claim.node)) else {
            return;
        };
        entry.order = Some(entry.account.write(cap, now));
        entry.unresolved = true;
        // A part of the way is not what the policy wants.
        (entry.granted, entry.waits_since) = (None, None);
    }

    /// A write to the object of a node's desired state has landed.
    pub(crate) fn landed(&mut self, node: &str, generation: Option<i64>) {
        if let (Some(entry), Some(generation)) = (self.entries.get_mut(node), generation) {
            entry.generation = entry.generation.max(generation);
            entry.unresolved = false;
        }
    }

    /// Forgets a node that is gone.
    pub(crate) fn keep_only(&mut self, known: impl Fn(&str) -> bool) {
        self.entries.retain(|node, _| known(node));
    }
}

/// What the agent read back for the spec that stands.
fn read_back(split: &Split, state: &StateSeen) -> Option<Watts> {
    let of = |awaited: bool, device: Option<&DeviceSeen>| {
        if !awaited {
            return Some(None);
        }
        let device = device.filter(|device| device.observed == Some(state.generation))?;
        Some(device.cap)
    };
    let (cpu, gpu) = split.awaits();
    let cpu = of(cpu, state.control.cpu.as_ref())?;
    let gpu = of(gpu, state.control.gpu.as_ref())?;
    split.read_back(cpu, gpu)
}
