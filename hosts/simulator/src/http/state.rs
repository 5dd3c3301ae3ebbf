//! `GET /state/{node}`: the true state of a node, for people and tests, whatever its telemetry reports.

use crate::telemetry::TelemetryResponse;
use crate::world::SimulatedState;
use serde_json::{Value, json};

/// The whole state of a node.
pub(super) fn of(state: &mut SimulatedState) -> Value {
    let truth = TelemetryResponse::of(&mut state.machine, &state.last, state.last.at);
    let machine = &state.machine;
    let pods: Vec<Value> = machine
        .pods()
        .iter()
        .map(|(id, pod)| {
            json!({
                "uid": id.to_string(),
                "done": pod.done(),
                "finished": pod.is_finished(),
                "performance": pod.work.performance,
                "cpus": pod.work.cpus,
                "gpus": pod.work.gpus,
                "cpuClass": pod.work.cpu_class.word(),
                "durationSeconds": pod.work.duration.map(|duration| duration.as_secs_f64()),
            })
        })
        .collect();
    json!({
        "node": machine.name(),
        "state": {
            "simulatedSeconds": machine.now().get() as f64 / 1e6,
            "joules": machine.joules(),
            "lastAction": state.last.action,
            "lastResult": state.last.outcome.word(),
            "lastUpdate": state.last.at,
            "faults": state.faults,
            "telemetry": truth,
            "pods": pods,
        },
    })
}
