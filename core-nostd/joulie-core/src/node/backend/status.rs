//! What came of the desired state, in words that claim no more than was read back.

use super::plan::{Need, Wish};
use super::{BackendLaw, Curb, Facts, Mode, Package, Preference, Regulation};
use crate::node::cap::{Backend, Blocked, CapResult, Report, Resolution, Target};
use crate::node::lever::Lever;
use power_hal::ErrorKind;

/// The status of the CPU's control: `backend` and `result`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// Who brought the result about.
    pub backend: Backend,
    /// The result.
    pub report: Report,
}

/// What holds the node now. A throttle that stands is what holds it, also while limits take over; limits hold it when
/// every package has one.
pub(super) fn in_force(mode: &Mode, packages: &[Package]) -> Backend {
    let limited = |package: &Package| {
        package.facts.has_limit && (package.limiter.lever().stands() || is_as_found(package.wish))
    };
    if mode.throttle.stands() {
        Backend::Dvfs
    } else if !packages.is_empty() && packages.iter().all(limited) {
        Backend::Rapl
    } else {
        Backend::None
    }
}

/// Whether the limit that its owner has set holds the package.
fn is_as_found(wish: Wish<Resolution>) -> bool {
    match wish {
        Wish::Cap(Resolution::Watts(target)) => target.is_as_found(),
        Wish::Keep | Wish::Nothing | Wish::Cap(Resolution::Percent(_) | Resolution::Blocked(_)) => false,
    }
}

/// Why a package takes no cap, if one does not. A throttle for the sake of the others does not make up for it.
fn blocked(packages: &[Package]) -> Option<Blocked> {
    let of_one = |package: &Package| match package.wish {
        Wish::Cap(Resolution::Blocked(reason)) => Some(reason),
        Wish::Keep | Wish::Nothing | Wish::Cap(Resolution::Watts(_) | Resolution::Percent(_)) => None,
    };
    packages.iter().filter_map(of_one).max()
}

impl BackendLaw {
    /// Apart, so that what it copies is not on the stack of all of a step.
    #[inline(never)]
    pub(super) fn status(
        &self,
        mode: &Mode,
        packages: &[Package],
        need: Need,
        node_cap: Option<Target>,
        facts: &Facts,
    ) -> Status {
        let cap = |backend, result| Status { backend, report: Report::Cap(result) };
        let pending = Status { backend: in_force(mode, packages), report: Report::Pending };
        let need = match (need, blocked(packages)) {
            (Need::Throttle(_), Some(reason)) => Need::Blocked(reason),
            (Need::AsIs | Need::Nothing | Need::Blocked(_) | Need::Throttle(_), _) => need,
        };
        match (Wish::of(facts.desired).under_grant(packages), need) {
            (Wish::Keep, _) => pending,
            (Wish::Nothing, _) => released(mode, packages),
            (Wish::Cap(_), Need::Blocked(reason)) => cap(Backend::None, CapResult::Blocked(reason)),
            (Wish::Cap(_), Need::Throttle(curb)) if facts.throttle.is_some() => {
                throttled(mode, packages, curb, node_cap)
            }
            (Wish::Cap(_), Need::Throttle(_)) if packages.is_empty() => {
                cap(Backend::None, CapResult::Blocked(Blocked::NoBackend))
            }
            (Wish::Cap(_), Need::AsIs | Need::Nothing | Need::Throttle(_)) => {
                let results = packages.iter().map(|package| self.result(package));
                of_limits(results).map_or(pending, |result| cap(backend_of(result), result))
            }
        }
    }

    /// What came of the limit of one package; nothing while it is on its way.
    fn result(&self, package: &Package) -> Option<CapResult> {
        let limited = package.facts.has_limit && self.preference == Preference::LimitFirst;
        match package.wish {
            Wish::Keep | Wish::Nothing => None,
            Wish::Cap(Resolution::Watts(target)) if limited => package.limiter.result(target),
            Wish::Cap(Resolution::Watts(target)) if target.is_as_found() => package.limiter.result(target),
            Wish::Cap(Resolution::Watts(_)) => Some(CapResult::Blocked(Blocked::NoBackend)),
            Wish::Cap(Resolution::Percent(_)) => Some(CapResult::Blocked(Blocked::NoRange)),
            Wish::Cap(Resolution::Blocked(reason)) => Some(CapResult::Blocked(reason)),
        }
    }
}

fn throttled(mode: &Mode, packages: &[Package], curb: Curb, node_cap: Option<Target>) -> Status {
    let report = match (mode.throttle, curb) {
        (Lever::Held { target, .. }, Curb::Fixed(throttle)) if target == curb => Report::Throttled(throttle),
        (Lever::Held { target, .. }, Curb::Loop) if target == curb && !packages.iter().any(is_on_its_way) => {
            regulated(mode.regulation, node_cap)
        }
        (Lever::Refused { kind, .. }, _) => Report::Cap(CapResult::refused(kind)),
        (
            Lever::Held { .. }
            | Lever::Free
            | Lever::Adopted
            | Lever::Pending { .. }
            | Lever::Releasing { .. }
            | Lever::Stuck { .. },
            _,
        ) => Report::Pending,
    };
    let backend = match report {
        Report::Cap(CapResult::Blocked(_)) => Backend::None,
        Report::Cap(_) | Report::Throttled(_) => Backend::Dvfs,
        Report::Pending | Report::NoIntent => in_force(mode, packages),
    };
    Status { backend, report }
}

/// So many orders for a limit may get lost before a closed loop counts in its place.
const LOST_MAX: u32 = 8;

/// Whether a limit under a grant has not landed yet and may land with the next order: an order that was lost says nothing
/// of the device. What is in force meanwhile is the old limit, and others may not have the watts above the new one because
/// little is drawn at the moment.
fn is_on_its_way(package: &Package) -> bool {
    let lost = match package.limiter.lever() {
        Lever::Refused { kind: ErrorKind::Timeout | ErrorKind::Io, failures, .. } => failures,
        Lever::Pending { failures, .. } => failures,
        Lever::Refused { .. }
        | Lever::Held { .. }
        | Lever::Free
        | Lever::Adopted
        | Lever::Releasing { .. }
        | Lever::Stuck { .. } => return false,
    };
    package.share().is_some() && lost < LOST_MAX
}

/// The closed loop's result. A reading is part of it: a loop that sees nothing holds nothing.
fn regulated(regulation: Regulation, node_cap: Option<Target>) -> Report {
    match (regulation, node_cap) {
        (Regulation::Blind(kind), _) => Report::Cap(CapResult::Failed(kind)),
        (_, None) => Report::Pending,
        (Regulation::Keeping, Some(cap)) => Report::Cap(cap.result(cap)),
        (Regulation::AtBound { drawn }, Some(cap)) => {
            Report::Cap(CapResult::Clamped { requested: cap.requested(), effective: drawn })
        }
    }
}

/// The verdict over the limits; nothing while one of them is on its way.
fn of_limits(results: impl Iterator<Item = Option<CapResult>> + Clone) -> Option<CapResult> {
    if results.clone().any(|result| result.is_none()) {
        return None;
    }
    CapResult::of_all(results.flatten())
}

const fn backend_of(result: CapResult) -> Backend {
    match result {
        CapResult::Applied { .. } | CapResult::Clamped { .. } | CapResult::Failed(_) => Backend::Rapl,
        CapResult::Blocked(_) => Backend::None,
    }
}

/// Nothing is desired: whether everything of ours is gone.
fn released(mode: &Mode, packages: &[Package]) -> Status {
    let stuck = |backend, kind| Status { backend, report: Report::Cap(CapResult::Failed(kind)) };
    if let Lever::Stuck { kind, .. } = mode.throttle {
        return stuck(Backend::Dvfs, kind);
    }
    let mut free = mode.throttle == Lever::Free;
    for package in packages {
        if let Lever::Stuck { kind, .. } = package.limiter.lever() {
            return stuck(Backend::Rapl, kind);
        }
        free &= package.limiter.lever() == Lever::Free;
    }
    let report = if free { Report::NoIntent } else { Report::Pending };
    Status { backend: in_force(mode, packages), report }
}
