//! What the budget is told of one node beside what is observed, and what is to stand in its grant.

use super::BudgetLimits;
use crate::node::{Node, Presence};
use joulie_core::budget::{BudgetNode as Row, Grant, GrantAccount, GrantReceipt, Move, Priority, Range};
use power_units::Watts;
use std::sync::Arc;

/// A node in one round. All watts are of its packages and GPUs together.
#[derive(Clone, Copy, Debug)]
pub struct Stake<'a> {
    /// The node.
    pub node: &'a Node,
    /// Who keeps more.
    pub priority: Priority,
    /// The most that the policy and persons let it draw; nothing where they say nothing.
    pub wanted: Option<Watts>,
    /// It is not planned any more: it is brought up to its largest draw by what nobody else wants, and then released.
    pub leaves: bool,
    /// Nobody may grant it anything: it has no agent that could keep to that, or nothing is planned for it and it was never
    /// granted anything.
    pub aside: bool,
}

/// What is to stand in a node's grant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DesiredGrant {
    /// The node.
    pub node: Arc<str>,
    /// The most that the packages and GPUs may be allowed together.
    pub watts: Watts,
    /// The most that any grant may allow that the node may still hold.
    pub ceiling: Watts,
    /// The node is released.
    pub released: bool,
}

/// Whole watts, rounded down, as persons read them.
fn whole(watts: Watts) -> Watts {
    let bits = watts.or_zero().to_bits();
    Watts::from_bits(bits - bits.rem_euclid(1 << 32))
}

impl<'a> Stake<'a> {
    /// Whether nothing can be asked of it.
    pub(super) fn is_fixed(&self) -> bool {
        let power_model = &self.node.machine.power_model;
        self.aside || !power_model.is_known() || !power_model.is_cappable()
    }

    /// Its rack, as its label says.
    pub(super) const fn rack(&self) -> Option<&'a Arc<str>> {
        self.node.labels.rack.as_ref()
    }

    /// The grant that it is held to.
    pub(super) fn grant(&self) -> Option<Grant> {
        self.node.granted.grant.filter(|_| !self.node.granted.released)
    }

    /// What is observed of its grant, with what the node draws beside packages and GPUs.
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
        });
        let account = GrantAccount::observed(self.grant().as_ref().map(grant), receipt);
        if self.node.granted.sent.is_empty() {
            return account;
        }
        let sent: Vec<Grant> = self.node.granted.sent.iter().map(grant).collect();
        account.after_sending(&sent)
    }

    /// The node as the core's budget sees it, which cannot see [`Node`]: the one place where its row is made.
    pub(super) fn row(&self, key: u64, group: usize, limits: &BudgetLimits) -> Result<Row, String> {
        let rest = limits.node_rest;
        let power_model = &self.node.machine.power_model;
        let account = self.account(rest);
        let max = power_model.max().map(|max| max + rest).or(limits.unknown_node);
        // A node of which it is not known what it can draw may draw what it was told at least.
        let max =
            if power_model.is_known() { max } else { max.map(|max| account.asked().unwrap_or(max).max(max)) };
        let floor = power_model.floor() + rest;
        // What nobody here may change counts as it stands, and is no room for anybody.
        let floor = match (self.is_fixed(), account.asked(), max) {
            (true, Some(stands), _) => stands.max(floor),
            (true, None, Some(max)) => max,
            (true, None, None) | (false, _, _) => floor,
        };
        let floor = max.map_or(floor, |max| floor.min(max));
        // Who leaves keeps what it has; what it is given beyond that nobody else wants.
        let wanted = self.wanted.filter(|_| !self.leaves).map(|wanted| wanted + rest);
        Ok(Row {
            key,
            group,
            priority: self.priority,
            range: Range::new(floor, max).map_err(|error| error.to_string())?,
            desired: wanted.or(account.asked()).or(max).unwrap_or(floor),
            // The agent of a node that is gone is there until it does not answer.
            reachable: matches!(self.node.presence, Presence::Ready | Presence::Gone),
            account,
        })
    }

    /// What is to stand in its grant after this move; nothing where what stands is to stay.
    pub(super) fn ask(
        &self,
        step: Move,
        row: &Row,
        target: Watts,
        limits: &BudgetLimits,
    ) -> Option<DesiredGrant> {
        if self.is_fixed() {
            return None;
        }
        let max = self.node.machine.power_model.max()?;
        let (stands, sent) = (self.grant().map(|grant| grant.watts), &self.node.granted.sent);
        let released = self.node.granted.released;
        let ask = |watts, ceiling, released| {
            Some(DesiredGrant { node: self.node.name.clone(), watts, ceiling, released })
        };
        if self.leaves {
            let is_free = released || (stands.is_none() && sent.is_empty());
            if is_free {
                return None;
            }
            // There is to be room for all that it can draw, and not only nobody that asks it for less yet.
            let has_room = row.range.max().is_none_or(|most| target >= most);
            if has_room && stands.is_some_and(|watts| watts >= whole(max)) {
                return ask(whole(max), max, true);
            }
        }
        let cap = match step {
            Move::Lower(cap) | Move::Raise(cap) => cap,
            Move::Keep | Move::Await | Move::Wait(_) => return None,
        };
        let watts = whole(cap - limits.node_rest);
        if stands == Some(watts) && !row.account.has_strayed() {
            return None;
        }
        // Under a grant that releases the node its devices are held to nothing.
        let ceiling = match released {
            true => max.max(watts),
            false => row.account.ceiling_of(watts + limits.node_rest) - limits.node_rest,
        };
        ask(watts, ceiling, false)
    }
}
