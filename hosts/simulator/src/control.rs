//! `POST /control/{node}`: the requests of an agent to a machine, and the answers.
//!
//! The contract is upstream's (facts/agent.md section 12, facts/simulator.md section 3.9). A body that is no JSON
//! object of the right types is answered with 400. Everything else, including an unknown action, is answered with
//! 200, and `result` gives the outcome. `capWatts` is the limit of **each package**, `capWattsPerGpu` that of each
//! GPU.

use crate::faults::{ControlFault, NodeFaults};
use crate::machine::SimulatedMachine;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Sets the limit of each package.
pub const SET_POWER: &str = "rapl.set_power_cap_watts";
/// Reduces the highest clock by a percentage.
pub const SET_THROTTLE: &str = "dvfs.set_throttle_pct";
/// Sets the cap of each GPU.
pub const SET_GPU_POWER: &str = "gpu.set_power_cap_watts";

/// The body of a request. Fields that the action does not need are ignored, as is a node name in addition to the
/// path.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Asked {
    action: String,
    cap_watts: f64,
    throttle_pct: i64,
    cap_watts_per_gpu: f64,
}

host_kit::closed_label! {
    /// The actions that can be requested.
    pub enum ControlAction {
        /// Set the limit of each package.
        Power = "rapl.set_power_cap_watts",
        /// Set the throttle.
        Throttle = "dvfs.set_throttle_pct",
        /// Set the cap of each GPU.
        GpuPower = "gpu.set_power_cap_watts",
        /// Any other action.
        Unknown = "unknown",
    }
}

host_kit::closed_label! {
    /// The outcome of a request.
    pub enum ControlEffect {
        /// It is in force.
        Applied = "applied",
        /// The machine has no device that it applies to.
        Blocked = "blocked",
        /// The request is invalid.
        Error = "error",
    }
}

/// The last request to a machine.
#[derive(Clone, Debug, PartialEq)]
pub struct Last {
    /// The requested action, as it was written.
    pub action: String,
    /// The outcome.
    pub outcome: ControlEffect,
    /// When, by the wall clock.
    pub at: Timestamp,
    /// The last requested limit of each package, clamped to the range, W.
    pub target_watts: Option<f64>,
    /// The last requested throttle, percent.
    pub target_throttle_pct: Option<u8>,
    /// The last requested cap of each GPU, clamped to the range, W.
    pub target_gpu_watts: Option<f64>,
}

impl Last {
    /// Nothing was requested since the machine was started.
    #[must_use]
    pub fn nothing(at: Timestamp) -> Self {
        Self {
            action: String::new(),
            outcome: ControlEffect::Applied,
            at,
            target_watts: None,
            target_throttle_pct: None,
            target_gpu_watts: None,
        }
    }
}

/// The result of a request, for the answer and the metrics.
#[derive(Clone, Debug, PartialEq)]
pub struct Done {
    /// The action.
    pub action: ControlAction,
    /// The outcome.
    pub outcome: ControlEffect,
    /// A message for people.
    pub message: String,
}

/// The answer.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ControlResponse<'a> {
    ok: bool,
    result: &'static str,
    node: &'a str,
    message: &'a str,
    state: State<'a>,
    simulated_package_power_watts: f64,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct State<'a> {
    cap_watts: f64,
    target_cap_watts: f64,
    throttle_pct: u8,
    target_throttle_pct: u8,
    freq_scale: f64,
    cpu_util: f64,
    last_action: &'a str,
    last_result: &'static str,
    last_update: Timestamp,
    pods_running: usize,
    gpu_cap_watts_per_gpu_applied: f64,
    gpu_cap_watts_per_gpu_target: f64,
}

/// Executes the request in a body. A control fault takes effect before the machine.
///
/// # Errors
/// If the body is no JSON object of the right types: for a 400.
pub fn act(
    machine: &mut SimulatedMachine,
    last: &mut Last,
    faults: &NodeFaults,
    body: &[u8],
    now: Timestamp,
) -> Result<Done, String> {
    let asked = read(body)?;
    let done = match faults.control {
        ControlFault::Ok => apply(machine, last, &asked),
        ControlFault::Ignored => Done {
            action: action(&asked.action),
            outcome: ControlEffect::Applied,
            message: "applied".to_owned(),
        },
        ControlFault::Blocked => Done {
            action: action(&asked.action),
            outcome: ControlEffect::Blocked,
            message: "the node's controls are locked".to_owned(),
        },
        ControlFault::Error => Done {
            action: action(&asked.action),
            outcome: ControlEffect::Error,
            message: "the node's controls are broken".to_owned(),
        },
    };
    last.action = asked.action.chars().take(64).collect();
    last.outcome = done.outcome;
    last.at = now;
    Ok(done)
}

/// Null counts as an object without fields, as in upstream. A list is refused, although serde can read a struct from
/// one.
fn read(body: &[u8]) -> Result<Asked, String> {
    let value: Value = serde_json::from_slice(body).map_err(|error| error.to_string())?;
    match value {
        Value::Null => Ok(Asked::default()),
        Value::Object(_) => serde_json::from_value(value).map_err(|error| error.to_string()),
        Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            Err("the body is not a JSON object".to_owned())
        }
    }
}

fn action(text: &str) -> ControlAction {
    match text {
        SET_POWER => ControlAction::Power,
        SET_THROTTLE => ControlAction::Throttle,
        SET_GPU_POWER => ControlAction::GpuPower,
        _ => ControlAction::Unknown,
    }
}

fn apply(machine: &mut SimulatedMachine, last: &mut Last, asked: &Asked) -> Done {
    let action = action(&asked.action);
    let (outcome, message) = match action {
        // Upstream treats a limit of zero or less as no change, and reports it as applied.
        ControlAction::Power if asked.cap_watts <= 0.0 => {
            (ControlEffect::Applied, "a limit of 0 W or less changes nothing".to_owned())
        }
        ControlAction::Power => {
            let set = machine.set_package_cap(asked.cap_watts);
            last.target_watts = Some(set);
            (ControlEffect::Applied, told("each package is limited to", set, asked.cap_watts))
        }
        ControlAction::Throttle => {
            let set = machine.set_throttle(asked.throttle_pct);
            last.target_throttle_pct = Some(set);
            (ControlEffect::Applied, format!("{set} % are taken off the highest clock"))
        }
        ControlAction::GpuPower if machine.board_cap().is_none() => {
            (ControlEffect::Blocked, "the node has no GPU".to_owned())
        }
        ControlAction::GpuPower if asked.cap_watts_per_gpu <= 0.0 => {
            (ControlEffect::Error, "capWattsPerGpu must be above 0".to_owned())
        }
        ControlAction::GpuPower => {
            let set = machine.set_board_cap(asked.cap_watts_per_gpu);
            last.target_gpu_watts = set;
            let set = set.unwrap_or(asked.cap_watts_per_gpu);
            (ControlEffect::Applied, told("each GPU is limited to", set, asked.cap_watts_per_gpu))
        }
        ControlAction::Unknown => {
            let known = format!("accepted: {SET_POWER}, {SET_THROTTLE}, {SET_GPU_POWER}");
            (ControlEffect::Error, format!("unknown action; {known}"))
        }
    };
    Done { action, outcome, message }
}

fn told(what: &str, set: f64, asked: f64) -> String {
    if (set - asked).abs() < 1e-9 {
        format!("{what} {set} W")
    } else {
        format!("{what} {set} W; {asked} W is outside of what it takes")
    }
}

/// The answer for a result.
pub fn answer<'a>(
    machine: &mut SimulatedMachine,
    last: &'a Last,
    done: &'a Done,
    node: &'a str,
) -> ControlResponse<'a> {
    let reading = machine.read();
    let gpu = machine.board_cap().unwrap_or(0.0);
    ControlResponse {
        ok: done.outcome == ControlEffect::Applied,
        result: done.outcome.word(),
        node,
        message: &done.message,
        state: State {
            cap_watts: machine.package_cap(),
            target_cap_watts: last.target_watts.unwrap_or(machine.package_cap()),
            throttle_pct: machine.throttle_pct(),
            target_throttle_pct: last.target_throttle_pct.unwrap_or(machine.throttle_pct()),
            freq_scale: reading.cpu_clock,
            cpu_util: reading.cpu_utilisation,
            last_action: &last.action,
            last_result: last.outcome.word(),
            last_update: last.at,
            pods_running: reading.pods,
            gpu_cap_watts_per_gpu_applied: gpu,
            gpu_cap_watts_per_gpu_target: last.target_gpu_watts.unwrap_or(gpu),
        },
        simulated_package_power_watts: reading.cpu_watts_now,
    }
}

#[cfg(test)]
mod tests;
