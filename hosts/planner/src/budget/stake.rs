//! The budget's input for one node besides its observed state, and the grant that the budget wants.

use super::BudgetLimits;
use crate::node::{Node, Presence};
use crate::sleep::SleepCount;
use joulie_core::budget::{BudgetNode as Row, Grant, GrantAccount, GrantReceipt, Move, Priority, Range};
use power_units::Watts;
use std::sync::Arc;

/// A node in one round. All watts are of its packages and GPUs together.
#[derive(Clone, Copy, Debug)]
pub struct Stake<'a> {
    /// The node.
    pub node: &'a Node,
    /// Its priority for power.
    pub priority: Priority,
    /// The most that the policy and persons let it draw; `None` without such a bound.
    pub wanted: Option<Watts>,
    /// It is no longer planned: unclaimed power raises it to its greatest power, and then it is released.
    pub leaves: bool,
    /// It may not be granted anything: it has no agent that could keep a grant, or it is not planned and was never
    /// granted anything.
    pub aside: bool,
}

/// The grant that a node should have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DesiredGrant {
    /// The node.
    pub node: Arc<str>,
    /// The most that the packages and GPUs may be allowed together.
    pub watts: Watts,
    /// The highest value of any grant that the node may still hold; its largest draw while no receipt fits.
    pub ceiling: Watts,
    /// The node is released.
    pub released: bool,
    /// Watts are short: the node gives back by itself what it does not want.
    pub lends: bool,
}

/// Whole watts, rounded down, for readable grants.
fn whole(watts: Watts) -> Watts {
    let bits = watts.or_zero().to_bits();
    Watts::from_bits(bits - bits.rem_euclid(1 << 32))
}

/// What a node draws beside its packages and GPUs: the most that the settings say, and its meter if it has shown more.
pub(super) fn rest(node: &Node, limits: &BudgetLimits) -> Watts {
    let shown = node.power.rest_most.filter(|_| limits.rest_measured);
    shown.map_or(limits.node_rest, |shown| shown.max(limits.node_rest))
}

impl<'a> Stake<'a> {
    /// Whether its grant cannot be changed.
    pub(super) fn is_fixed(&self) -> bool {
        let power_model = &self.node.machine.power_model;
        self.aside || self.node.sleep.is_aside() || !power_model.is_known() || !power_model.is_cappable()
    }

    /// Whether a person has a say in its caps.
    pub(super) fn is_owned(&self) -> bool {
        self.node.published.obeyed().is_some_and(|there| there.persons || there.theirs.any())
    }

    /// Its rack, from its label.
    pub(super) const fn rack(&self) -> Option<&'a Arc<str>> {
        self.node.labels.rack.as_ref()
    }

    /// The grant that applies to it.
    pub(super) fn grant(&self) -> Option<Grant> {
        self.node.granted.grant.filter(|_| !self.node.granted.released)
    }

    /// The same, less what the node has yielded. That counts here even where the receipt is of another boot or Node object:
    /// every write ends a yield, so that for a node that still keeps to it the old watts would be a raise.
    fn stands(&self) -> Option<Grant> {
        self.node.granted.stands().filter(|_| !self.node.granted.released)
    }

    /// What is left of its grant after what the node has yielded.
    pub(super) fn left(&self) -> Option<Watts> {
        self.stands().map(|grant| grant.watts)
    }

    /// Its grant with the node's other power, if the node has yielded some of it.
    pub(super) fn yielded_from(&self, row: &Row, limits: &BudgetLimits) -> Option<Watts> {
        let granted = self.grant()?.watts + self.rest(limits);
        Some(granted).filter(|&granted| row.account.asked().is_some_and(|left| left < granted))
    }

    /// By how much this grant is below what the policy lets it draw now.
    pub(super) fn lowered_by(&self, ask: &DesiredGrant) -> Watts {
        let stands = self.left().or(self.node.machine.power_model.max());
        let stands = stands.unwrap_or(ask.watts);
        // Grants are whole watts.
        (whole(self.wanted.map_or(stands, |wanted| wanted.min(stands))) - ask.watts).or_zero()
    }

    /// What it draws beside its packages and GPUs.
    pub(super) fn rest(&self, limits: &BudgetLimits) -> Watts {
        rest(self.node, limits)
    }

    /// The observed state of its grant, with the node's other power added.
    fn account(&self, rest: Watts) -> GrantAccount {
        let plus = |watts: Watts| watts + rest;
        let grant = |grant: &Grant| Grant {
            serial: grant.serial,
            watts: plus(grant.watts),
            ceiling: plus(grant.ceiling),
        };
        let receipt = self.node.receipt().map(|receipt| GrantReceipt {
            serial: receipt.serial,
            holds: plus(receipt.holds),
            floor: if receipt.floor > Watts::ZERO { plus(receipt.floor) } else { Watts::ZERO },
            yields: receipt.yields.filter(|&left| left >= Watts::ZERO).map(plus),
        });
        let account = GrantAccount::observed(self.stands().as_ref().map(grant), receipt);
        if self.node.granted.sent.is_empty() {
            return account;
        }
        let sent: Vec<Grant> = self.node.granted.sent.iter().map(grant).collect();
        account.after_sending(&sent)
    }

    /// The node as a row of the core's budget, which does not know [`Node`]: the only place where this row is made.
    pub(super) fn row(&self, key: u64, group: usize, limits: &BudgetLimits) -> Result<Row, String> {
        let rest = self.rest(limits);
        let power_model = &self.node.machine.power_model;
        let account = self.account(rest);
        let max = power_model.max().map(|max| max + rest).or(limits.unknown_node);
        // A node whose greatest power is unknown may draw at least its grant.
        let granted = match self.node.receipt() {
            Some(_) => account.asked(),
            None => self.grant().map(|grant| grant.watts + rest),
        };
        let max = if power_model.is_known() { max } else { max.map(|max| granted.unwrap_or(max).max(max)) };
        // Of a removed node only its grant is known; a grant that was sent may still reach its machine.
        let sent = self.node.granted.sent.iter().filter(|_| self.node.presence == Presence::Gone);
        let max = max.map(|max| sent.fold(max, |max, sent| max.max(sent.ceiling + rest)));
        // What a node that sleeps or wakes draws, no grant says: whatever it holds counts for nothing.
        let fixed = match self.node.sleep {
            SleepCount::Awake | SleepCount::Kept => None,
            SleepCount::Off(standby) => Some(Some(standby)),
            SleepCount::Full => Some(max),
        };
        if let Some(counts) = fixed {
            let floor = counts.unwrap_or_else(|| power_model.floor() + rest);
            return Ok(Row {
                key,
                group,
                priority: self.priority,
                range: Range::new(floor, counts).map_err(|error| error.to_string())?,
                desired: floor,
                reachable: false,
                account: GrantAccount::NONE,
            });
        }
        let floor = power_model.floor() + rest;
        // A grant that cannot be changed here counts as it is, and leaves nothing for others.
        let floor = match (self.is_fixed(), account.asked(), max) {
            (true, Some(stands), _) => stands.max(floor),
            (true, None, Some(max)) => max,
            (true, None, None) | (false, _, _) => floor,
        };
        let floor = max.map_or(floor, |max| floor.min(max));
        // A leaving node keeps its grant; beyond that it is given unclaimed power only.
        let wanted = self.wanted.filter(|_| !self.leaves).map(|wanted| wanted + rest);
        Ok(Row {
            key,
            group,
            priority: self.priority,
            range: Range::new(floor, max).map_err(|error| error.to_string())?,
            desired: wanted.or(account.asked()).or(max).unwrap_or(floor),
            // The agent of a removed node counts as reachable until it stops answering.
            reachable: matches!(self.node.presence, Presence::Ready | Presence::Gone),
            account,
        })
    }

    /// The grant that it should have after this move; `None` where the present grant stays. `fits`: it leaves, and the
    /// limits above it can be kept.
    pub(super) fn ask(
        &self,
        step: Move,
        row: &Row,
        (target, fits): (Watts, bool),
        limits: &BudgetLimits,
    ) -> Option<DesiredGrant> {
        if self.is_fixed() {
            return None;
        }
        let max = self.node.machine.power_model.max()?;
        let (stands, sent) = (self.left(), &self.node.granted.sent);
        let released = self.node.granted.released;
        let ask = |watts, ceiling, released| {
            Some(DesiredGrant { node: self.node.name.clone(), watts, ceiling, released, lends: false })
        };
        if self.leaves {
            let is_free = released || (stands.is_none() && sent.is_empty());
            if is_free {
                return None;
            }
            // There must be enough for its greatest power; it is not enough that no other node was asked for less
            // yet.
            let has_room = row.range.max().is_none_or(|most| target >= most);
            // A node whose devices draw all that they can, whatever they are granted, counts that already and is not raised,
            // so that there is no higher grant to wait for.
            let counts_all = || {
                fits && row.account.is_proven()
                    && row.count().zip(row.range.max()).is_some_and(|(count, max)| count >= max)
            };
            if has_room && stands.is_some_and(|watts| watts >= whole(max) || counts_all()) {
                return ask(whole(max), max, true);
            }
        }
        let cap = match step {
            Move::Lower(cap) | Move::Raise(cap) => cap,
            Move::Keep | Move::Await | Move::Wait(_) => return None,
        };
        let rest = self.rest(limits);
        let watts = whole(cap - rest);
        if stands == Some(watts) && !row.account.has_strayed(row.range) {
            return None;
        }
        // A grant that releases the node does not bound its devices.
        let ceiling = match released {
            true => max.max(watts),
            false => row.account.ceiling_of(watts + rest, row.range) - rest,
        };
        ask(watts, ceiling, false)
    }
}
