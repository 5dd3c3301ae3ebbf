//! The result of the desired state. It claims no more than what was read back.

use super::plan::{Need, Wish};
use super::{BackendLaw, BackendPreference, Facts, Mode, Package, Regulation, Throttling};
use crate::node::actuation::Actuation;
use crate::node::cap::{Backend, Blocked, CapReport, CapResult, Resolution, ResolvedCap};
use power_hal::ErrorKind;

/// The status of the CPU's control: `backend` and `result`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuControlStatus {
    /// The backend that brought the result about.
    pub backend: Backend,
    /// The result.
    pub report: CapReport,
}

/// What holds the node now. While a throttle is in force, it holds the node, also while limits take over. Limits hold
/// the node when every package has one.
pub(super) fn in_force(mode: &Mode, packages: &[Package]) -> Backend {
    let limited = |package: &Package| {
        package.facts.has_limit && (package.limiter.actuation().stands() || is_as_found(package.wish))
    };
    if mode.throttle.stands() {
        Backend::Dvfs
    } else if !packages.is_empty() && packages.iter().all(limited) {
        Backend::Rapl
    } else {
        Backend::None
    }
}

/// Whether the limit that the package's owner has set holds the package.
fn is_as_found(wish: Wish<Resolution>) -> bool {
    match wish {
        Wish::Cap(Resolution::Watts(target)) => target.is_as_found(),
        Wish::Keep | Wish::Nothing | Wish::Cap(Resolution::Percent(_) | Resolution::Blocked(_)) => false,
    }
}

/// Why a package takes no cap, if one does not. A throttle for the other packages does not replace its cap.
fn blocked(packages: &[Package]) -> Option<Blocked> {
    let of_one = |package: &Package| match package.wish {
        Wish::Cap(Resolution::Blocked(reason)) => Some(reason),
        Wish::Keep | Wish::Nothing | Wish::Cap(Resolution::Watts(_) | Resolution::Percent(_)) => None,
    };
    packages.iter().filter_map(of_one).max()
}

impl BackendLaw {
    /// A function of its own, so that its copies are not on the stack for the whole step.
    #[inline(never)]
    pub(super) fn status(
        &self,
        mode: &Mode,
        packages: &[Package],
        need: Need,
        node_cap: Option<ResolvedCap>,
        facts: &Facts,
    ) -> CpuControlStatus {
        let cap = |backend, result| CpuControlStatus { backend, report: CapReport::Cap(result) };
        let pending = CpuControlStatus { backend: in_force(mode, packages), report: CapReport::Pending };
        let need = match (need, blocked(packages)) {
            (Need::Throttle(_), Some(reason)) => Need::Blocked(reason),
            (Need::AsIs | Need::Nothing | Need::Blocked(_) | Need::Throttle(_), _) => need,
        };
        match (Wish::of(facts.desired).under_grant(packages), need) {
            (Wish::Keep, _) => pending,
            (Wish::Nothing, _) => released(mode, packages),
            (Wish::Cap(_), Need::Blocked(reason)) => cap(Backend::None, CapResult::Blocked(reason)),
            (Wish::Cap(_), Need::Throttle(throttling)) if facts.throttle.is_some() => {
                throttled(mode, packages, throttling, node_cap)
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

    /// The result of the limit of one package; `None` while it is on its way.
    fn result(&self, package: &Package) -> Option<CapResult> {
        let limited = package.facts.has_limit && self.preference == BackendPreference::LimitFirst;
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

fn throttled(
    mode: &Mode,
    packages: &[Package],
    throttling: Throttling,
    node_cap: Option<ResolvedCap>,
) -> CpuControlStatus {
    let report = match (mode.throttle, throttling) {
        (Actuation::Held { target, .. }, Throttling::Fixed(throttle)) if target == throttling => {
            CapReport::Throttled(throttle)
        }
        (Actuation::Held { target, .. }, Throttling::Loop)
            if target == throttling && !packages.iter().any(is_on_its_way) =>
        {
            regulated(mode.regulation, node_cap)
        }
        (Actuation::Refused { kind, .. }, _) => CapReport::Cap(CapResult::refused(kind)),
        (
            Actuation::Held { .. }
            | Actuation::Free
            | Actuation::Adopted
            | Actuation::Pending { .. }
            | Actuation::Releasing { .. }
            | Actuation::Stuck { .. },
            _,
        ) => CapReport::Pending,
    };
    let backend = match report {
        CapReport::Cap(CapResult::Blocked(_)) => Backend::None,
        CapReport::Cap(_) | CapReport::Throttled(_) => Backend::Dvfs,
        CapReport::Pending | CapReport::NoIntent => in_force(mode, packages),
    };
    CpuControlStatus { backend, report }
}

/// This many orders for a limit may be lost before a closed loop counts in its place.
const LOST_MAX: u32 = 8;

/// Whether a limit under a grant has not landed yet and may land with the next order: a lost order proves nothing
/// about the device. Until then the old limit is in force, and the watts above the new limit may not go to others
/// only because the node draws little at the moment.
fn is_on_its_way(package: &Package) -> bool {
    let lost = match package.limiter.actuation() {
        Actuation::Refused { kind: ErrorKind::Timeout | ErrorKind::Io, failures, .. } => failures,
        Actuation::Pending { failures, .. } => failures,
        Actuation::Refused { .. }
        | Actuation::Held { .. }
        | Actuation::Free
        | Actuation::Adopted
        | Actuation::Releasing { .. }
        | Actuation::Stuck { .. } => return false,
    };
    package.share().is_some() && lost < LOST_MAX && !package.disobeys()
}

/// The result of the closed loop. It depends on the reading: a loop without a reading holds nothing.
fn regulated(regulation: Regulation, node_cap: Option<ResolvedCap>) -> CapReport {
    match (regulation, node_cap) {
        (Regulation::Blind(kind), _) => CapReport::Cap(CapResult::Failed(kind)),
        (_, None) => CapReport::Pending,
        (Regulation::Keeping, Some(cap)) => CapReport::Cap(cap.result(cap)),
        (Regulation::AtBound { drawn }, Some(cap)) => {
            CapReport::Cap(CapResult::Clamped { requested: cap.requested(), effective: drawn })
        }
    }
}

/// The result of all limits; `None` while one of them is on its way.
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

/// The result when nothing is desired: whether everything of ours is released.
fn released(mode: &Mode, packages: &[Package]) -> CpuControlStatus {
    let stuck = |backend, kind| CpuControlStatus { backend, report: CapReport::Cap(CapResult::Failed(kind)) };
    if let Actuation::Stuck { kind, .. } = mode.throttle {
        return stuck(Backend::Dvfs, kind);
    }
    let mut free = mode.throttle == Actuation::Free;
    for package in packages {
        if let Actuation::Stuck { kind, .. } = package.limiter.actuation() {
            return stuck(Backend::Rapl, kind);
        }
        free &= package.limiter.actuation() == Actuation::Free;
    }
    let report = if free { CapReport::NoIntent } else { CapReport::Pending };
    CpuControlStatus { backend: in_force(mode, packages), report }
}
