//! What a node looked like when nothing was to be written for it: while it looks the same, nothing is.
//!
//! In a steady cluster this spares thousands of documents in every pass, which would all come out as they are.

use crate::publish::Standing;
use crate::site::Observed;
use crate::stats::Shown;
use planner::node::DesiredState;
use planner::power::NodeDraw;
use planner::twin::Twin;
use power_units::Micros;
use std::sync::Arc;

/// Everything that the writes for a node follow from, and what is shown of it beside.
#[derive(Clone, Debug)]
pub(super) struct Unchanged {
    observed: Arc<Observed>,
    twin: Twin,
    standing: Standing,
    desired: Option<DesiredState>,
    shown: Shown,
}

impl Unchanged {
    /// Of a node for which nothing was to be written.
    pub(super) fn new(
        observed: Arc<Observed>,
        twin: Twin,
        standing: Standing,
        desired: Option<DesiredState>,
        shown: Shown,
    ) -> Self {
        Self { observed, twin: ageless(twin), standing, desired, shown }
    }

    /// Whether a node still looks so. How long ago its power was measured changes with every pass and decides nothing.
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
