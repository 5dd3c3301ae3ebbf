//! The pod status that a kubelet writes.

use super::{BoundPod, PROGRESS};
use jiff::Timestamp;
use serde_json::{Value, json};

/// The status of running containers.
#[must_use]
pub fn running(pod: &BoundPod, now: Timestamp) -> Value {
    let address = address(&pod.id.0);
    let since = |state: &str| -> Value { json!({state: {"startedAt": now}}) };
    json!({
        "phase": "Running",
        "startTime": now,
        "hostIP": "127.0.0.1",
        "podIP": address,
        "podIPs": [{"ip": address}],
        "conditions": [
            condition("Initialized", true, "", now),
            condition("ContainersReady", true, "", now),
            condition("Ready", true, "", now),
        ],
        "initContainerStatuses": containers(pod, &pod.initial, true, &ended(0, &now.to_string(), now)),
        "containerStatuses": containers(pod, &pod.containers, true, &since("running")),
    })
}

/// The status after the containers have ended with this code.
#[must_use]
pub fn finished(pod: &BoundPod, code: u8, now: Timestamp) -> Value {
    let (phase, reason) = if code == 0 { ("Succeeded", "PodCompleted") } else { ("Failed", "PodFailed") };
    let started = pod.started.clone().unwrap_or_else(|| now.to_string());
    let mut conditions =
        vec![condition("ContainersReady", false, reason, now), condition("Ready", false, reason, now)];
    conditions.push(done(1.0, now));
    json!({
        "phase": phase,
        "conditions": conditions,
        "containerStatuses": containers(pod, &pod.containers, false, &ended(code, &started, now)),
    })
}

/// The status of a pod that was not admitted.
#[must_use]
pub fn failed(reason: &str, message: &str, now: Timestamp) -> Value {
    json!({"phase": "Failed", "reason": reason, "message": message, "startTime": now})
}

/// The status with this part of the work done.
#[must_use]
pub fn progress(part: f64, now: Timestamp) -> Value {
    json!({"conditions": [done(part, now)]})
}

fn done(part: f64, now: Timestamp) -> Value {
    let mut said = condition(PROGRESS, true, "Simulated", now);
    said["message"] = json!(format!("{part:.6} of the work is done"));
    said
}

fn condition(kind: &str, is_so: bool, reason: &str, since: Timestamp) -> Value {
    let status = if is_so { "True" } else { "False" };
    json!({"type": kind, "status": status, "reason": reason, "lastTransitionTime": since})
}

fn ended(code: u8, started: &str, now: Timestamp) -> Value {
    let reason = if code == 0 { "Completed" } else { "Error" };
    json!({"terminated": {"exitCode": code, "reason": reason, "startedAt": started, "finishedAt": now}})
}

fn containers(pod: &BoundPod, of: &[(String, String)], ready: bool, state: &Value) -> Vec<Value> {
    let started = state.get("running").is_some();
    let one = |(name, image): &(String, String)| {
        json!({
            "name": name,
            "image": image,
            "imageID": "",
            "containerID": format!("sim://{}/{name}", pod.id),
            "ready": ready,
            "started": started,
            "restartCount": 0,
            "state": state,
        })
    };
    of.iter().map(one).collect()
}

/// An address that belongs to the pod as long as it lives, also across restarts. It cannot be reached.
fn address(uid: &str) -> String {
    let fold = |hash: u32, byte: u8| (hash ^ u32::from(byte)).wrapping_mul(16_777_619);
    let [_, a, b, c] = uid.bytes().fold(2_166_136_261, fold).to_be_bytes();
    format!("10.{}.{b}.{c}", 128 | (a & 0x7f))
}
