//! The only file of this crate that depends on the mechanism of a budget: the operators' settings, the deadline of a
//! cut, and the definition of a receipt. All other files judge by the machines alone, so another mechanism changes
//! only this file.

use std::time::Duration;

/// How long after a cut, once every operator was informed of it, the limits may still be above it: a new leader acts
/// within 13 s, an agent without a connection has `BUDGET_ANSWER_WITHIN`, 30 s, and then the others have 10 s to make
/// up for it.
pub(crate) const CUT_DEADLINE: Duration = Duration::from_secs(53);
/// How long the limits may be above the budget after the API server was restored to an older state and all nodes are
/// reachable again: an agent waits 15 s if a watch shows less than it has written, and then the deadline of a cut
/// applies.
pub(crate) const RESTORE_DEADLINE: Duration = Duration::from_secs(68);
/// A booted machine is excused until its first receipt. After this time the others must have made room for what it
/// may draw, as for a cut.
pub(crate) const REBOOT_DEADLINE: Duration = CUT_DEADLINE;
/// At the start of an hour every machine has just booted and there is no leader.
pub(crate) const BEGINNING: Duration = Duration::from_secs(300);
/// A refused write is repeated within a minute; a device is excused for this long after its last refusal.
pub(crate) const REFUSAL_AFTER: Duration = Duration::from_secs(65);
/// The agent corrects what another writer has written, within this time.
pub(crate) const RIVAL_AT_MOST: Duration = Duration::from_secs(120);

/// The settings of an operator.
pub(crate) fn operator(site_watts: f64) -> Vec<(&'static str, String)> {
    vec![
        ("BUDGET_SITE_WATTS", format!("{site_watts:.0}")),
        // A node with unknown hardware counts with more watts than any node of the fleet.
        ("BUDGET_UNKNOWN_NODE_WATTS", "7000".to_owned()),
        ("GPU_NODE_CPU_CAPS", "true".to_owned()),
        ("RECONCILE_INTERVAL", "10s".to_owned()),
    ]
}

/// The result of an agent's request to a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Landed {
    /// The limit is in force.
    InForce,
    /// The device refuses the limit, or reports success without applying it.
    Refused,
}

impl Landed {
    /// Whether it ends the excuse of a booted machine: the first limit in force, which is not later than the receipt.
    pub(crate) const fn is_receipt(self) -> bool {
        match self {
            Self::InForce => true,
            Self::Refused => false,
        }
    }
}
