//! What is said of the limits that the budget keeps; the keeping is `planner::budget`'s.

use joulie_api::condition::Status;
use planner::budget::GroupStanding;
use std::borrow::Cow;

/// Whether the limits above a node are kept, and why, for its condition.
pub(crate) type Said = (Status, &'static str, Cow<'static, str>);

/// What is said of a node of which nobody knows what it can draw, in the place of what is said of its groups.
pub(crate) fn of_unknown_hardware(is_assumed: bool) -> Said {
    let counts = if is_assumed {
        "it counts with BUDGET_UNKNOWN_NODE_WATTS"
    } else {
        "nothing beside it is raised (BUDGET_UNKNOWN_NODE_WATTS says what it counts with)"
    };
    let why = format!(
        "what the node can draw is not known, so that it has no grant and {counts}; its agent's NodeHardware or labels tell"
    );
    (Status::Unknown, "HardwareUnknown", why.into())
}

/// Whether a group's limit is kept, and if not, why, in words that do not change with every watt.
pub(crate) fn verdict(group: &GroupStanding) -> Said {
    let name = &group.name;
    if group.short.is_some() {
        let why = format!(
            "the limit of {name} cannot be kept: base load, nodes that do not answer and lowest caps are above it"
        );
        (Status::False, "BudgetShort", why.into())
    } else if group.unknown {
        let why = format!("nobody can say what {name} draws: nothing there is raised");
        (Status::False, "LoadUnknown", why.into())
    } else if group.exceeded.is_some() {
        let why = format!(
            "{name} counts more than its limit: grants are not read back, or what cannot be capped draws too much"
        );
        (Status::False, "BudgetExceeded", why.into())
    } else {
        (Status::True, "Kept", "every limit above the node is kept".into())
    }
}
