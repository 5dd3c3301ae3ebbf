//! The messages about the limits of the budget; `planner::budget` keeps the limits.

use crate::reasons::{BUDGET_EXCEEDED, BUDGET_SHORT, HARDWARE_UNKNOWN, KEPT, LOAD_UNKNOWN};
use joulie_api::condition::{ConditionReason, ConditionStatus};
use planner::budget::GroupStanding;
use std::borrow::Cow;

/// Whether the limits above a node are kept, and why, for the node's condition.
pub(crate) type Said = (ConditionStatus, &'static str, Cow<'static, str>);

/// A reason with its text.
pub(crate) fn said(reason: ConditionReason, why: impl Into<Cow<'static, str>>) -> Said {
    (reason.status, reason.word, why.into())
}

/// The message for a node whose highest power is not known, in place of that about its groups.
pub(crate) fn of_unknown_hardware(is_assumed: bool) -> Said {
    let counts = if is_assumed {
        "it counts with BUDGET_UNKNOWN_NODE_WATTS"
    } else {
        "nothing beside it is raised (BUDGET_UNKNOWN_NODE_WATTS says what it counts with)"
    };
    let why = format!(
        "what the node can draw is not known, so it has no grant and {counts}; its agent's NodeHardware or labels can provide it"
    );
    said(HARDWARE_UNKNOWN, why)
}

/// Whether a group's limit is kept, and if not, why. The text does not change with every watt.
pub(crate) fn verdict(group: &GroupStanding) -> Said {
    let name = &group.name;
    if group.short.is_some() {
        let why = format!(
            "the limit of {name} cannot be kept: base load, nodes that do not answer and lowest caps are above it"
        );
        said(BUDGET_SHORT, why)
    } else if group.unknown {
        let why = format!("nobody can say what {name} draws: nothing there is raised");
        said(LOAD_UNKNOWN, why)
    } else if group.exceeded.is_some() {
        let why = format!(
            "{name} counts more than its limit: grants are not read back, or what cannot be capped draws too much"
        );
        said(BUDGET_EXCEEDED, why)
    } else {
        said(KEPT, KEPT.meaning)
    }
}
