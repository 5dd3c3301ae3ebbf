//! The state of a node when nothing was to be written for it: while it stays the same, nothing has to be written.
//!
//! In a steady cluster this saves building thousands of documents in every pass that would all equal the present ones.

use crate::publish::Standing;
use crate::site::Observed;
use crate::stats::Shown;
use planner::node::DesiredState;
use planner::power::NodeDraw;
use planner::twin::Twin;
use power_units::Micros;
use std::sync::Arc;

/// All inputs to the writes for a node, and the values that are shown in its metrics.
#[derive(Clone, Debug)]
pub(super) struct Unchanged {
    observed: Arc<Observed>,
    twin: Twin,
    standing: Standing,
    desired: Option<DesiredState>,
    shown: Shown,
}

impl Unchanged {
    /// Records a node for which nothing was to be written.
    pub(super) fn new(
        observed: Arc<Observed>,
        twin: Twin,
        standing: Standing,
        desired: Option<DesiredState>,
        shown: Shown,
    ) -> Self {
        Self { observed, twin: ageless(twin), standing, desired, shown }
    }

    /// Whether a node is unchanged. The age of its power sample changes with every pass and does not count.
    pub(super) fn is(
        &self,
        observed: &Arc<Observed>,
        twin: Twin,
        standing: &Standing,
        desired: Option<&DesiredState>,
        shown: Shown,
    ) -> bool {
        Arc::ptr_eq(&self.observed, observed)
            && self.shown == shown
            && self.twin == ageless(twin)
            && self.standing == *standing
            && self.desired.as_ref() == desired
    }
}

fn ageless(mut twin: Twin) -> Twin {
    twin.power.draw = match twin.power.draw {
        NodeDraw::Measured { meter, watts, .. } => NodeDraw::Measured { meter, watts, age: Micros::ZERO },
        NodeDraw::Held { meter, watts, failing, .. } => {
            NodeDraw::Held { meter, watts, age: Micros::ZERO, failing }
        }
        draw @ (NodeDraw::Estimated { .. } | NodeDraw::Unknown { .. }) => draw,
    };
    twin
}
