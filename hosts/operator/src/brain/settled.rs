//! What a node looked like when nothing was to be written for it: while it looks the same, nothing is.
//!
//! In a steady cluster this spares thousands of documents in every pass, which would all come out as they are.

use crate::publish::{Standing, Wanted};
use crate::site::Member;
use crate::stats::Shown;
use planner::power::Draw;
use planner::twin::Twin;
use power_units::Micros;
use std::sync::Arc;

/// Everything that the writes for a node follow from, and what is shown of it beside.
#[derive(Clone, Debug)]
pub(super) struct Settled {
    member: Arc<Member>,
    twin: Twin,
    standing: Standing,
    wanted: Option<Wanted>,
    shown: Shown,
}

impl Settled {
    /// Of a node for which nothing was to be written.
    pub(super) fn new(
        member: Arc<Member>,
        twin: Twin,
        (standing, wanted): (Standing, Option<Wanted>),
        shown: Shown,
    ) -> Self {
        Self { member, twin: ageless(twin), standing, wanted, shown }
    }

    /// Whether a node still looks so. How long ago its power was measured changes with every pass and decides nothing.
    pub(super) fn is(
        &self,
        member: &Arc<Member>,
        twin: Twin,
        (standing, wanted): (&Standing, Option<&Wanted>),
        shown: Shown,
    ) -> bool {
        Arc::ptr_eq(&self.member, member)
            && self.shown == shown
            && self.twin == ageless(twin)
            && self.standing == *standing
            && self.wanted.as_ref() == wanted
    }
}

fn ageless(mut twin: Twin) -> Twin {
    twin.power.draw = match twin.power.draw {
        Draw::Measured { meter, watts, .. } => Draw::Measured { meter, watts, age: Micros::ZERO },
        Draw::Held { meter, watts, failing, .. } => Draw::Held { meter, watts, age: Micros::ZERO, failing },
        draw @ (Draw::Estimated { .. } | Draw::Unknown { .. }) => draw,
    };
    twin
}
