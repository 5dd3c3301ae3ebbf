//! All that this crate knows of how a budget is kept: what the operator is told of it, what a person grants a cut, and what
//! counts as a receipt. Everything else judges by the machines alone, so that another mechanism changes this file.

use std::time::Duration;

/// How long after a cut, when every operator has been told of it, the limits may still be above it: a new leader comes
/// within 13 s, an agent that is cut off has `BUDGET_ANSWER_WITHIN`, 30 s, and then the others have 10 s to make up for it.
pub(crate) const CUT_DEADLINE: Duration = Duration::from_secs(53);
/// How long after the API server was brought back to an older state, and everybody can be told again, the limits may be
/// above the budget: an agent gives a watch that shows less than it wrote 15 s, and then it is as after a cut.
pub(crate) const RESTORE_DEADLINE: Duration = Duration::from_secs(68);
/// A machine that has booted is excused until its first receipt; after this the others must have made room for what it may
/// draw, as for a cut.
pub(crate) const REBOOT_DEADLINE: Duration = CUT_DEADLINE;
/// When an hour begins, every machine has booted and nobody leads.
pub(crate) const BEGINNING: Duration = Duration::from_secs(300);
/// A device that refused is tried again within a minute; it is excused for so long after it last refused.
pub(crate) const REFUSAL_AFTER: Duration = Duration::from_secs(65);
/// What a rival has written is put back by the agent; no longer than this.
pub(crate) const RIVAL_AT_MOST: Duration = Duration::from_secs(120);

/// What an operator is told.
pub(crate) fn operator(site_watts: f64) -> Vec<(&'static str, String)> {
    vec![
        ("BUDGET_SITE_WATTS", format!("{site_watts:.0}")),
        // A node whose hardware nobody has told of yet counts with more than any of the fleet.
        ("BUDGET_UNKNOWN_NODE_WATTS", "7000".to_owned()),
        ("GPU_NODE_CPU_CAPS", "true".to_owned()),
        ("RECONCILE_INTERVAL", "10s".to_owned()),
    ]
}

/// What came of a control that an agent has sent to a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Landed {
    /// It is in force.
    InForce,
    /// The device refuses it, or says that it did and did not.
    Refused,
}

impl Landed {
    /// Whether it ends the excuse of a machine that has booted: the first limit in force, which is no later than the receipt.
    pub(crate) const fn is_receipt(self) -> bool {
        match self {
            Self::InForce => true,
            Self::Refused => false,
        }
    }
}
