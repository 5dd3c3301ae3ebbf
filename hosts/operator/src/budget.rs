//! The messages about the limits of the budget; `planner::budget` keeps the limits.

use crate::reasons::{
    BUDGET_EXCEEDED, BUDGET_SHORT, COUNTED_FAR_ABOVE, HARDWARE_UNKNOWN, KEPT, LOAD_UNKNOWN, MEASURED_ABOVE,
    MEASURED_WITHIN, NOT_MEASURED,
};
use joulie_api::condition::{ConditionReason, ConditionStatus};
use planner::budget::GroupStanding;
use power_units::{Ratio, Role, Watts};
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

/// What the meters of a group's nodes show.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Metered {
    /// Together, of the nodes that are measured.
    watts: Option<Watts>,
    /// How many these are.
    nodes: usize,
    /// They have shown more than is counted for longer than a grant takes to be seen in what is drawn.
    pub(crate) lasts: bool,
}

/// A difference below this is none, however small a group is.
const APART_LEAST: Watts = Watts::from_int(30);
/// What was said of a difference holds until it is this part of what it took.
const NEAR: Ratio = Ratio::from_bits(3 << 30);

/// What is counted of a group's nodes: the most that they may draw.
fn counted(group: &GroupStanding) -> Option<Watts> {
    group.load.map(|load| (load - group.base).or_zero())
}

impl Metered {
    /// Adds a node.
    pub(crate) fn add(&mut self, watts: Watts) {
        self.watts = Some(self.watts.unwrap_or(Watts::ZERO) + watts);
        self.nodes += 1;
    }

    /// What is measured less what is counted, if both are known of all nodes.
    pub(crate) fn drift(&self, group: &GroupStanding) -> Option<Watts> {
        let whole = self.watts.filter(|_| self.nodes >= group.nodes);
        whole.zip(counted(group)).map(|(watts, counted)| watts - counted)
    }

    /// Whether more is measured than is counted. A part of the nodes that draws more than all are counted with is more
    /// already.
    pub(crate) fn is_above(&self, group: &GroupStanding, apart: Ratio) -> bool {
        let both = self.watts.zip(counted(group));
        both.is_some_and(|(watts, counted)| watts - counted > allowed(counted, apart))
    }
}

fn allowed(counted: Watts, apart: Ratio) -> Watts {
    counted.scale(apart, Role::Nearest).max(APART_LEAST)
}

/// Whether the meters of a group's nodes show what is counted of them; `was` is the reason that was last said. Meters that
/// show more mean that something is not counted. The text does not change with every watt.
pub(crate) fn drift(group: &GroupStanding, metered: Metered, apart: Ratio, was: Option<&str>) -> Said {
    let (Some(measured), Some(counted)) = (metered.watts, counted(group)) else {
        return said(NOT_MEASURED, NOT_MEASURED.meaning);
    };
    let stays = |reason: ConditionReason| was == Some(reason.word);
    let is_near = measured - counted <= allowed(counted, apart).scale(NEAR, Role::Nearest);
    if (metered.lasts && metered.is_above(group, apart)) || (stays(MEASURED_ABOVE) && !is_near) {
        return said(MEASURED_ABOVE, MEASURED_ABOVE.meaning);
    }
    if metered.nodes < group.nodes {
        return said(NOT_MEASURED, NOT_MEASURED.meaning);
    }
    // Half of the count, and 60 % where that was said.
    let is_far = if stays(COUNTED_FAR_ABOVE) {
        measured.times(5) < counted.times(3)
    } else {
        measured.times(2) < counted
    };
    let reason = if is_far { COUNTED_FAR_ABOVE } else { MEASURED_WITHIN };
    said(reason, reason.meaning)
}

#[cfg(test)]
mod tests {
    use super::*;
    use planner::budget::{LimitSource, Sum};

    fn group(load: Option<i32>, base: i32, nodes: usize) -> GroupStanding {
        GroupStanding {
            name: "site".to_owned(),
            source: LimitSource::Site,
            parent: None,
            limit: None,
            enforced: true,
            nodes,
            lowered: Sum::default(),
            load: load.map(Watts::from_int),
            base: Watts::from_int(base),
            spare: None,
            short: None,
            unknown: false,
            exceeded: None,
            holders: Vec::new(),
            armed: false,
            power: None,
        }
    }

    fn drifts(group: &GroupStanding, watts: Option<i32>, nodes: usize, was: Option<&str>) -> &'static str {
        let apart = Ratio::parse("0.1", Role::Nearest).unwrap();
        let metered = Metered { watts: watts.map(Watts::from_int), nodes, lasts: true };
        drift(group, metered, apart, was).1
    }

    #[test]
    fn meters_that_show_more_than_is_counted_are_told_until_they_are_near_again() {
        // 1,200 W with a base load of 200 W: two nodes count 1,000 W, of which 10 % are 100 W.
        let two = group(Some(1_200), 200, 2);
        assert_eq!(drifts(&two, Some(1_100), 2, None), "MeasuredWithin");
        assert_eq!(drifts(&two, Some(1_101), 2, None), "MeasuredAbove");
        assert_eq!(drifts(&two, Some(1_076), 2, Some("MeasuredAbove")), "MeasuredAbove");
        assert_eq!(drifts(&two, Some(1_075), 2, Some("MeasuredAbove")), "MeasuredWithin");
        // One of the nodes alone draws more than both are counted with.
        assert_eq!(drifts(&two, Some(1_101), 1, None), "MeasuredAbove");
        // What has not lasted is not told: what is drawn under a lower grant is heard of later than the grant.
        let metered = Metered { watts: Some(Watts::from_int(1_500)), nodes: 2, lasts: false };
        let apart = Ratio::parse("0.1", Role::Nearest).unwrap();
        assert_eq!(drift(&two, metered, apart, None).1, "MeasuredWithin");
        // Of a small group a few watts are nothing.
        assert_eq!(drifts(&group(Some(100), 0, 1), Some(130), 1, None), "MeasuredWithin");
        assert_eq!(drifts(&group(Some(100), 0, 1), Some(131), 1, None), "MeasuredAbove");
    }

    #[test]
    fn what_is_not_measured_of_every_node_is_not_known_to_be_within() {
        let two = group(Some(1_000), 0, 2);
        assert_eq!(drifts(&two, Some(400), 1, None), "NotMeasured");
        assert_eq!(drifts(&two, None, 0, None), "NotMeasured");
        assert_eq!(drifts(&group(None, 0, 2), Some(400), 2, None), "NotMeasured");
        // Idle nodes draw far less than they may.
        assert_eq!(drifts(&two, Some(499), 2, None), "CountedFarAbove");
        assert_eq!(drifts(&two, Some(599), 2, Some("CountedFarAbove")), "CountedFarAbove");
        assert_eq!(drifts(&two, Some(600), 2, Some("CountedFarAbove")), "MeasuredWithin");
    }
}
