//! What is known of every node's cap, and a round of the budget over all nodes.

use super::books::Books;
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
    entries: Books<Entry>,
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
            entries: Books::default(),
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
    pub(crate) fn shown(&mut self, node: &Arc<str>, stands: Caps) -> Caps {
        let granted = self.entries.page(node).and_then(|page| self.entries.get(page)?.granted);
        granted.filter(|(_, made)| made.same_as(&stands)).map_or(stands, |(wanted, _)| wanted)
    }

    /// Takes in what a node's object says: the order that stands, and what was read back for it.
    pub(crate) fn observe(&mut self, node: &Arc<str>, split: &Split, state: Option<&StateSeen>, now: Stamp) {
        let page = self.entries.page(node);
        let known = page.and_then(|page| self.entries.get_mut(page));
        let Some(state) = state else {
            let is_known = known.is_some();
            // Where an object was, its cap is not lifted before an agent says so; but no order stands any more.
            if let Some(entry) = known.filter(|entry| !entry.unresolved && !entry.uid.is_empty()) {
                entry.account.lost();
                (entry.order, entry.generation) = (None, 0);
                entry.uid.clear();
            }
            if !is_known {
                let entry = self.found(Account::unproven(), None, String::new());
                self.entries.insert(node, entry);
            }
            return;
        };
        let stands = rows::caps(&state.desired);
        let Some(cap) = split.watts(&stands) else {
            // Nobody can say what this asks of the node, so what was asked before says nothing any more.
            let changed = |entry: &&mut Entry| !entry.unresolved && state.generation > entry.generation;
            if let Some(entry) = known.filter(changed) {
                entry.account.lost();
                (entry.order, entry.generation) = (None, state.generation);
            }
            return;
        };
        let read_back = read_back(split, state);
        let known = known.filter(|entry| entry.uid == state.stamp.uid || entry.uid.is_empty());
        let serial = known.as_ref().and_then(|entry| entry.order).map_or(1, |order| order.serial);
        match known {
            Some(entry) if state.generation < entry.generation => {}
            Some(entry) if entry.account.asked() == Some(cap) => {
                entry.uid.clone_from(&state.stamp.uid);
                let taken = Some(Order { serial, cap });
                if let Some(read_back) = read_back {
                    entry.unresolved = false;
                    entry.account.hear(Receipt { taken, read_back });
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
                self.entries.insert(node, entry);
            }
        }
    }

    fn found(&mut self, account: Account, order: Option<Order>, uid: String) -> Entry {
        self.keys += 1;
        let key = self.keys;
        Entry { key, account, order, uid, generation: 0, unresolved: false, granted: None, waits_since: None }
    }

    /// A round over all claims, in their order, and no others: of nodes that claim nothing nothing is kept. Until `raises`,
    /// nothing is raised: a leader before may still be heard.
    ///
    /// # Errors
    /// When the books are broken, which would be a defect; nothing may be written then.
    pub(crate) fn round(&mut self, claims: &[Claim], raises: bool, now: Stamp) -> Result<Vec<Grant>, String> {
        let pages = self.pages(claims);
        // Neighbours are often of one rack, and share its name.
        let mut racks: Vec<&Arc<str>> = claims.iter().filter_map(|claim| claim.rack.as_ref()).collect();
        racks.dedup_by(|one, other| Arc::ptr_eq(one, other));
        let groups = Groups::of(&self.limits, racks.into_iter().map(|rack| &**rack))?;
        let places = groups.places(claims);
        let tree = groups.tree()?;
        let both = || claims.iter().zip(&pages);
        let nodes = both().zip(places).map(|((claim, &page), group)| self.node(claim, page, group));
        let nodes = nodes.collect::<Result<Vec<Node>, _>>()?;
        let count = groups.groups.len();
        let (mut shares, mut targets) = (vec![Share::EMPTY; count], vec![Watts::ZERO; nodes.len()]);
        allocate(tree, &nodes, &mut shares, &mut targets).map_err(|error| error.to_string())?;
        let waits = both().zip(&nodes).zip(&targets).map(|(((claim, &page), node), &target)| {
            let entry = page.and_then(|page| self.entries.get_mut(page));
            entry.is_none_or(|entry| entry.waits(claim, node, target, (now, self.limits.raise_dwell)))
        });
        let impatient: Vec<bool> = waits.collect();
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
        let grants = both().zip(steps).map(|((claim, &page), step)| {
            let entry = page.and_then(|page| self.entries.get_mut(page));
            step.map_or(Grant::Wait, |step| grant(claim, entry, step, raises))
        });
        Ok(grants.collect())
    }

    /// Where the claims are in the books, from which all other pages are torn out.
    fn pages(&mut self, claims: &[Claim]) -> Vec<Option<usize>> {
        let mut claimed = vec![false; self.entries.len()];
        let page = |claim: &Claim| {
            let page = self.entries.page(&claim.node)?;
            *claimed.get_mut(page)? = true;
            Some(page)
        };
        let pages = claims.iter().map(page).collect();
        if claimed.iter().all(|&claimed| claimed) {
            return pages;
        }
        self.entries.keep_only(|page| claimed.get(page) == Some(&true));
        claims.iter().map(|claim| self.entries.page(&claim.node)).collect()
    }

    fn is_short(&self, node: &Node, cap: Watts) -> bool {
        let band = Band(self.limits.raise_band);
        node.account.asked().is_some_and(|from| band.is_within(from, cap))
    }

    /// How the group that binds a node stands: the first above it that is not kept, else the nearest.
    pub(crate) fn standing_of(&self, rack: Option<&str>) -> Option<&GroupStanding> {
        let site = self.standings.first()?;
        // Behind the site the racks are in the order of their names.
        let racks = self.standings.get(1..).unwrap_or_default();
        let rack = rack.and_then(|rack| {
            let found = racks.binary_search_by(|group| group.name.as_str().cmp(rack)).ok();
            found.and_then(|at| racks.get(at))
        });
        let all = [rack, Some(site)];
        all.into_iter().flatten().find(|group| group.verdict().0 != Status::True).or(rack).or(Some(site))
    }

    fn node(&self, claim: &Claim, page: Option<usize>, group: usize) -> Result<Node, String> {
        let entry = page.and_then(|page| self.entries.get(page));
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
            group,
            priority: claim.priority,
            range: Range::new(floor, max).map_err(|error| error.to_string())?,
            desired: wanted.or(stands).or(max).unwrap_or(floor),
            reachable: claim.reachable,
            account,
        })
    }

    /// These caps are about to be written to a node; `desired` are those of the policy that they come from.
    pub(crate) fn order(&mut self, claim: &Claim, caps: Caps, now: Stamp) {
        let entry = self.entries.find(&claim.node).and_then(|page| self.entries.get_mut(page));
        let (Some(cap), Some(entry)) = (claim.split.watts(&caps), entry) else { return };
        entry.order = Some(entry.account.write(cap, now));
        entry.unresolved = true;
        // A part of the way is not what the policy wants.
        (entry.granted, entry.waits_since) = (None, None);
    }

    /// A write to the object of a node's desired state has landed.
    pub(crate) fn landed(&mut self, node: &str, generation: Option<i64>) {
        let entry = self.entries.find(node).and_then(|page| self.entries.get_mut(page));
        if let (Some(entry), Some(generation)) = (entry, generation) {
            entry.generation = entry.generation.max(generation);
            entry.unresolved = false;
        }
    }
}

impl Entry {
    /// Whether the node would have more, and has waited for that for long enough.
    fn waits(&mut self, claim: &Claim, node: &Node, target: Watts, (now, dwell): (Stamp, Micros)) -> bool {
        if claim.lifts {
            return true;
        }
        let more = node.account.asked().is_none_or(|cap| node.range.limit(target) > cap);
        self.waits_since = if more { self.waits_since.or(Some(now)) } else { None };
        self.waits_since.and_then(|since| now.since(since)).is_some_and(|waited| waited >= dwell)
    }
}

fn grant(claim: &Claim, entry: Option<&mut Entry>, step: Move, raises: bool) -> Grant {
    let Some(desired) = claim.desired else { return Grant::Wait };
    // The caps that stand are what became of the desired ones.
    let stand = |stands: Option<Caps>| {
        if let (Some(entry), Some(stands)) = (entry, stands) {
            entry.granted = Some((desired, stands));
        }
        Grant::Stands
    };
    let ours = claim.stands.filter(|_| !claim.fixed);
    let caps = match step {
        Move::Lower(cap) => claim.split.caps(&desired, cap),
        Move::Raise(cap) if raises => claim.split.caps(&desired, cap),
        Move::Keep | Move::Await => return stand(ours),
        Move::Raise(_) | Move::Wait(_) => return Grant::Wait,
    };
    if claim.fixed {
        return Grant::Stands;
    }
    // Devices are told whole watts, so the node may be as near to its target as it can be.
    if ours.is_some_and(|stands| stands.same_as(&caps)) { stand(ours) } else { Grant::Write(caps) }
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
