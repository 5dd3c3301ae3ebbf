//! The outcome of the requested caps, as it was read back or measured, in words for people.

use super::words;
use crate::args::Caps;
use joulie_core::node::cap::{Backend, CapReport as Outcome, CapResult};
use joulie_core::node::energy::MeterReading;
use node_kit::{DeviceReport, LoopCause, NodeReport};
use power_units::{Percent, Ratio, Role, Watts};

/// The verdict on one kind of device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Verdict {
    pub(super) stands: Stands,
    /// Whether it is about GPUs; else it is about packages.
    pub(super) of_gpus: bool,
    /// Whether a closed loop holds the cap, which ends with this process.
    pub(super) by_loop: bool,
    pub(super) text: String,
}

/// Whether the requested cap is in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stands {
    /// Not known yet.
    Waiting,
    /// It was read back or is measured, and is not above the request.
    InForce,
    /// A higher limit is in force.
    Above,
    /// It was refused, and is repeated.
    Failing,
    /// It is not possible.
    Blocked,
}

/// A loop that controls the mean exceeds its cap now and then; above this tolerance it does not hold the cap.
const LOOP_TOLERANCE: Percent = Percent::from_int(103);

/// The verdicts on the requested caps, packages first.
pub(super) fn of(report: &NodeReport, caps: &Caps) -> Vec<Verdict> {
    let packages = caps.package.map(|_| of_packages(report));
    let gpus = caps.gpu.map(|_| of_gpus(report));
    packages.into_iter().chain(gpus).collect()
}

fn verdict(stands: Stands, text: impl Into<String>) -> Verdict {
    Verdict { stands, of_gpus: false, by_loop: false, text: text.into() }
}

fn of_packages(report: &NodeReport) -> Verdict {
    let Some(decision) = report.cpu else {
        return verdict(Stands::Waiting, "packages: nothing is known yet");
    };
    let by_loop = decision.status.backend == Backend::Dvfs;
    match decision.status.report {
        Outcome::Throttled(share) => verdict(
            Stands::InForce,
            format!(
                "packages: their maximum is unknown, so {} % of the frequency policies are held at their lowest",
                share.get()
            ),
        ),
        Outcome::Cap(CapResult::Applied { .. } | CapResult::Clamped { .. }) if by_loop => {
            Verdict { by_loop, ..of_loop(report, decision.node_cap) }
        }
        other @ (Outcome::NoIntent | Outcome::Pending | Outcome::Cap(_)) => {
            of_limits("packages", other, report.packages.len())
        }
    }
}

fn of_gpus(report: &NodeReport) -> Verdict {
    let all = report.gpus.len();
    let one = report.gpu.map_or_else(
        || verdict(Stands::Waiting, "gpus: nothing is known yet"),
        |decision| of_limits("gpus", decision.report, all),
    );
    let held = report.gpus.iter().filter(|gpu| loop_over_clock(gpu).is_some()).count();
    let text = match held {
        0 => one.text,
        _ => format!(
            "{}; closed loops over the clock hold {held} of {all} instead of the power limit",
            one.text
        ),
    };
    Verdict { of_gpus: true, by_loop: held > 0, text, ..one }
}

/// Why a closed loop over the clock holds a GPU, while it does.
pub(super) fn loop_over_clock(gpu: &DeviceReport) -> Option<LoopCause> {
    gpu.clock.and_then(|clock| clock.cause)
}

fn of_limits(what: &str, outcome: Outcome, count: usize) -> Verdict {
    match outcome {
        Outcome::NoIntent | Outcome::Pending | Outcome::Throttled(_) => {
            verdict(Stands::Waiting, format!("{what}: the write is pending"))
        }
        Outcome::Cap(CapResult::Applied { effective }) => verdict(
            Stands::InForce,
            format!("{what}: in force, {} for {count} together", words::watts(effective)),
        ),
        Outcome::Cap(CapResult::Clamped { requested, effective }) => {
            let stands = if effective > requested { Stands::Above } else { Stands::InForce };
            let (asked, found) = (words::watts(requested), words::watts(effective));
            let text =
                format!("{what}: clamped, {asked} were asked for {count} together and {found} are in force");
            verdict(stands, text)
        }
        Outcome::Cap(CapResult::Blocked(reason)) => {
            verdict(Stands::Blocked, format!("{what}: not in force, blocked: {reason}"))
        }
        Outcome::Cap(CapResult::Failed(kind)) => {
            verdict(Stands::Failing, format!("{what}: not in force: {kind}"))
        }
    }
}

/// The loop's own report is not sufficient: the measured power decides.
fn of_loop(report: &NodeReport, cap: Option<Watts>) -> Verdict {
    let Some(cap) = cap else { return verdict(Stands::Waiting, "packages: the closed loop has no cap yet") };
    let most = cap.scale(LOOP_TOLERANCE.to_ratio(Role::Nearest), Role::Limit);
    debug_assert!(LOOP_TOLERANCE.to_ratio(Role::Nearest) > Ratio::ONE, "a tolerance above the cap");
    let how = format!("the closed loop over {} frequency policies", report.policies.len());
    let cap = words::watts(cap);
    match report.power {
        Some(MeterReading::Fresh { watts, .. }) if watts <= most => verdict(
            Stands::InForce,
            format!("packages: held by {how}: {} are drawn of {cap} together", words::watts(watts)),
        ),
        Some(MeterReading::Fresh { watts, .. }) => verdict(
            Stands::Above,
            format!(
                "packages: {how} has not reached the cap yet: {} are drawn of {cap} together",
                words::watts(watts)
            ),
        ),
        Some(reading) => verdict(
            Stands::Failing,
            format!(
                "packages: {how} has no reading: the power is {}",
                words::power(reading).say(|_| String::new())
            ),
        ),
        None => verdict(Stands::Waiting, format!("packages: {how} is starting")),
    }
}
