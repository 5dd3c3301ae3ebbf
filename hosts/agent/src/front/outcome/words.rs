//! Describes for a person what the machine reports of the packages or the GPUs.

use super::Said;
use crate::machine::{Device, Means, Part};
use joulie_api::number::Number;
use joulie_core::node::cap::{Blocked, CapIntent, CapRange, CapReport, CapResult, Floor, Resolution};
use node_kit::LoopCause;
use power_units::{Amount, Role, Watts};

/// The two kinds of devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Cpu,
    Gpu,
}

impl Kind {
    const fn each(self, many: bool) -> &'static str {
        match (self, many) {
            (Self::Cpu, false) => "package",
            (Self::Cpu, true) => "packages",
            (Self::Gpu, false) => "GPU",
            (Self::Gpu, true) => "GPUs",
        }
    }
}

/// Reports on one kind of device; `None` while a change is in progress.
pub(super) fn said(
    kind: Kind,
    intent: CapIntent,
    part: &Part,
    control: bool,
    generation: Option<i64>,
) -> Option<Said> {
    let requested = (intent != CapIntent::NONE).then(|| requested(intent, part)).flatten();
    let say = |backend, result, message: String| Said {
        backend,
        result,
        message,
        generation,
        requested,
        cap: None,
    };
    if !control {
        let (result, message) = match intent {
            CapIntent::NONE => ("none", "the configuration of the agent leaves this part alone"),
            CapIntent { .. } => ("blocked", "the configuration of the agent leaves this part alone"),
        };
        return Some(say(Means::None, result, message.to_owned()));
    }
    let count = part.devices.len();
    let loops = clock_loops(part);
    let is_looped = loops.is_some();
    let loops = loops.unwrap_or_default();
    Some(match part.report {
        CapReport::Pending => return None,
        CapReport::NoIntent => say(Means::None, "none", no_intent(kind, count).to_owned()),
        CapReport::Throttled(throttle) => {
            let message = format!(
                "throttle={}% of the frequency policies; a percentage could not be resolved to watts here",
                throttle.get()
            );
            say(Means::Dvfs, "applied", message)
        }
        CapReport::Cap(CapResult::Applied { effective } | CapResult::Clamped { effective, .. })
            if part.means == Means::Dvfs =>
        {
            let held = format!(
                "a closed loop over the frequencies keeps the packages at {} W together",
                Number::tenths(effective)
            );
            let bound = match part.report {
                CapReport::Cap(CapResult::Clamped { requested, .. }) => format!(
                    "everything is throttled, and the packages still draw {} W of the {} W asked",
                    whole(effective),
                    Number::tenths(requested)
                ),
                CapReport::Cap(_) | CapReport::NoIntent | CapReport::Pending | CapReport::Throttled(_) => {
                    held
                }
            };
            say(Means::Dvfs, "applied", bound)
        }
        CapReport::Cap(CapResult::Applied { effective }) if is_looped => {
            let watts = Number::tenths(effective);
            say(part.means, "applied", format!("{}{watts} W together; {loops}", applied(kind)))
        }
        CapReport::Cap(CapResult::Clamped { requested: asked, effective }) if is_looped => {
            let message = format!(
                "{}asked for {} W together, and {} W are in force or drawn; {loops}",
                applied(kind),
                Number::tenths(asked),
                whole(effective)
            );
            say(part.means, "applied", message)
        }
        CapReport::Cap(CapResult::Applied { .. }) => {
            let cap = in_force(part);
            let message = format!("{}{}", applied(kind), each(kind, cap, count));
            Said { cap, ..say(part.means, "applied", message) }
        }
        CapReport::Cap(CapResult::Clamped { requested: asked, effective }) => {
            let cap = in_force(part);
            let message = format!(
                "{}asked for {} W together, {} {} W: {}",
                applied(kind),
                Number::tenths(asked),
                who_clamps(intent, part),
                Number::tenths(effective),
                each(kind, cap, count)
            );
            Said { cap, ..say(part.means, "applied", message) }
        }
        CapReport::Cap(CapResult::Blocked(reason)) => {
            let mut message = reason.to_string();
            if let Some(trouble) = part.trouble.as_ref().filter(|_| reason != Blocked::NoGpus) {
                message.push_str(&format!(" ({trouble})"));
            }
            say(Means::None, "blocked", message)
        }
        CapReport::Cap(CapResult::Failed(failure)) => {
            let message = match &part.trouble {
                Some(trouble) => format!("{failure}: {trouble}"),
                None => failure.to_string(),
            };
            say(part.means, "error", message)
        }
    })
}

/// How many GPUs the closed loops over their clocks hold, and why; `None` if none.
pub(crate) fn clock_loops(part: &Part) -> Option<String> {
    let held = part.devices.iter().filter_map(|device| device.beside.clock.cause());
    let count = held.clone().count();
    let of_cause = |cause: LoopCause| {
        let count = held.clone().filter(|held| *held == cause).count();
        (count > 0).then(|| format!("{count} {}", cause.word()))
    };
    let causes: Vec<String> = LoopCause::ALL.into_iter().filter_map(of_cause).collect();
    let all = part.devices.len();
    (count > 0).then(|| {
        format!(
            "a closed loop over the clock holds {count} of {all} GPUs instead of a power limit: {}",
            causes.join(", ")
        )
    })
}

/// Whole watts, because the fraction changes from one reading to the next.
fn whole(watts: Watts) -> i64 {
    watts.to_bits() >> 32
}

const fn applied(kind: Kind) -> &'static str {
    match kind {
        Kind::Cpu => "",
        Kind::Gpu => "applied gpu cap: ",
    }
}

fn each(kind: Kind, cap: Option<Watts>, count: usize) -> String {
    match (cap.map(Number::tenths), count) {
        (None, _) => "the limit was taken, and nothing reads it back".to_owned(),
        (Some(cap), 1) => format!("{cap} W for the {}, read back", kind.each(false)),
        (Some(cap), _) => format!("{cap} W for each of {count} {}, read back", kind.each(true)),
    }
}

pub(super) const fn no_intent(kind: Kind, count: usize) -> &'static str {
    match (kind, count) {
        (Kind::Cpu, _) => "no CPU cap is asked, and none of ours is in force",
        (Kind::Gpu, 0) => "no GPU cap is asked, and the node has no GPU",
        (Kind::Gpu, _) => "no GPU cap is asked, and none of ours is in force on the node's GPUs",
    }
}

/// Names what keeps the limit in force from being the requested one.
fn who_clamps(intent: CapIntent, part: &Part) -> &'static str {
    let by_owner = |range: CapRange| match (intent.resolve(range, Floor::NONE), range.owners()) {
        (Resolution::Watts(target), Some(owners)) => {
            target.requested() > owners && target.effective() == owners
        }
        (Resolution::Watts(_) | Resolution::Percent(_) | Resolution::Blocked(_), _) => false,
    };
    let by_grant = |device: &Device| match intent.resolve(device.range, Floor::NONE) {
        Resolution::Watts(target) => device.share.is_some_and(|share| target.effective() > share),
        Resolution::Percent(_) | Resolution::Blocked(_) => false,
    };
    if part.devices.iter().any(by_grant) {
        "its grant under the budget allows"
    } else if part.devices.iter().any(|device| by_owner(device.range)) {
        "its owner's limit allows"
    } else {
        "the hardware takes"
    }
}

/// The highest cap that is requested of any device. A percentage refers to each device's own maximum.
fn requested(intent: CapIntent, part: &Part) -> Option<Watts> {
    let of_one = |range| match intent.resolve(range, Floor::NONE) {
        Resolution::Watts(target) => Some(target.requested()),
        Resolution::Percent(_) | Resolution::Blocked(_) => None,
    };
    part.devices.iter().filter_map(|device| of_one(device.range)).max().or(intent.watts)
}

/// The cap for each package that a closed loop holds: such packages have no limits of their own to read back.
pub(super) fn held_by_loop(part: &Part) -> Option<Watts> {
    match (part.means, part.report) {
        (Means::Dvfs, CapReport::Cap(CapResult::Applied { effective })) => {
            effective.part(1, u64::try_from(part.devices.len()).ok()?, Role::Demand)
        }
        (
            Means::None | Means::Limits(_) | Means::Dvfs | Means::Http,
            CapReport::NoIntent | CapReport::Pending | CapReport::Throttled(_) | CapReport::Cap(_),
        ) => None,
    }
}

/// The highest limit that was read back, or that a loop keeps to; `None` if one of them is not known.
pub(super) fn in_force(part: &Part) -> Option<Watts> {
    let all: Option<Vec<Watts>> = part.devices.iter().map(|device| device.limit).collect();
    all?.into_iter().max()
}
