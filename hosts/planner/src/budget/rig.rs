//! Nodes as the budget's tests describe them.

use super::{
    BudgetLimits, BudgetMemory, DesiredGrant, LimitPlace, NodePowerModel, Round, Rules, Stake, round,
};
use crate::inventory::HardwareFacts;
use crate::node::{Node, Power, Presence, Signed, rig};
use crate::sleep::SleepCount;
use joulie_core::budget::demand::DemandReport;
use joulie_core::budget::{Grant, GrantReceipt, Priority};
use power_units::{Stamp, Watts};
use std::sync::Arc;

/// A node, its decision, and its grant.
#[derive(Clone, Debug)]
pub(super) struct Claim {
    pub(super) node: Arc<str>,
    pub(super) priority: Priority,
    pub(super) power_model: NodePowerModel,
    pub(super) wanted: Option<Watts>,
    pub(super) leaves: bool,
    pub(super) grant: Option<Grant>,
    pub(super) released: bool,
    pub(super) receipt: Option<GrantReceipt>,
    /// The receipt is of a Node object that another one replaced.
    pub(super) registered_anew: bool,
    pub(super) sent: Vec<Grant>,
    /// Its Node object was removed.
    pub(super) gone: bool,
    /// Its place under the written limits.
    pub(super) limits: LimitPlace,
    /// No grant may be written to it.
    pub(super) aside: bool,
    /// Its rack.
    pub(super) rack: Option<Arc<str>>,
    /// The most that its meter has shown beside its devices.
    pub(super) rest_most: Option<Watts>,
    /// What its meter shows.
    pub(super) power: Power,
    /// What it reports that it wants.
    pub(super) demand: Option<DemandReport>,
    /// What it counts because of its sleep.
    pub(super) sleep: SleepCount,
    /// What it will want at least.
    pub(super) expected: Option<Watts>,
}

impl Claim {
    pub(super) fn node(&self) -> Node {
        let mut node = rig::node(&self.node, &HardwareFacts::default());
        node.presence = Presence::Ready;
        node.machine.power_model = self.power_model;
        node.power = Power { rest_most: self.rest_most, ..self.power };
        let signed = |receipt| Signed { receipt, boot: node.boot.clone(), node_uid: node.uid.clone() };
        node.granted.signed = self.receipt.map(signed);
        if self.registered_anew {
            node.uid.push_str("-anew");
        }
        if self.gone {
            node.presence = Presence::Gone;
            (node.boot, node.uid) = (String::new(), String::new());
        }
        node.sleep = self.sleep;
        node.granted.demand = self.demand;
        node.expected = self.expected;
        node.granted.grant = self.grant;
        node.granted.released = self.released;
        node.granted.sent.clone_from(&self.sent);
        node.limits.clone_from(&self.limits);
        node.labels.rack.clone_from(&self.rack);
        node
    }
}

/// Runs a round for these nodes, and returns the desired grant of each.
pub(super) fn round_of(
    claims: &[Claim],
    limits: &BudgetLimits,
    memory: &mut BudgetMemory,
    now: Stamp,
    raises: bool,
) -> (Vec<Option<DesiredGrant>>, Round) {
    round_under(claims, Rules { settings: limits, limits: &[], trial: false }, memory, now, raises)
}

/// The same under these limits.
pub(super) fn round_under(
    claims: &[Claim],
    rules: Rules<'_>,
    memory: &mut BudgetMemory,
    now: Stamp,
    raises: bool,
) -> (Vec<Option<DesiredGrant>>, Round) {
    let nodes: Vec<Node> = claims.iter().map(Claim::node).collect();
    let stakes: Vec<Stake<'_>> = claims
        .iter()
        .zip(&nodes)
        .map(|(claim, node)| Stake {
            node,
            priority: claim.priority,
            wanted: claim.wanted,
            leaves: claim.leaves,
            aside: claim.aside,
        })
        .collect();
    let made = round(&stakes, rules, memory, now, raises).unwrap();
    let of = |claim: &Claim| made.asks.iter().find(|ask| ask.node == claim.node).cloned();
    (claims.iter().map(of).collect(), made)
}
