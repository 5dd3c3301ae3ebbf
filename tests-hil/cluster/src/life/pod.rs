//! What a kubelet does for one pod: decides the next step from the object alone, then writes it.
//!
//! ```text
//! Pending ──► Running ──► Succeeded | Failed        deleted, in any of them ──► gone
//! ```

use super::{FIELD_MANAGER, FINISH};
use k8s_openapi::api::core::v1::{Container, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};

/// How a pod ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodEnding {
    /// Every container with exit code 0.
    Succeeded,
    /// Every container with exit code 1.
    Failed,
}

impl PodEnding {
    /// The phase of the pod.
    #[must_use]
    pub const fn phase(self) -> &'static str {
        match self {
            Self::Succeeded => "Succeeded",
            Self::Failed => "Failed",
        }
    }

    fn of_phase(phase: &str) -> Option<Self> {
        [Self::Succeeded, Self::Failed].into_iter().find(|outcome| outcome.phase() == phase)
    }
}

/// The next step of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Nothing, until it changes.
    Wait,
    /// Its containers start.
    Run,
    /// Its containers end.
    Finish(PodEnding),
    /// Its status gets this message.
    Say(String),
    /// Its containers have stopped, so its object is deleted.
    Remove,
}

pub(super) fn next(pod: &Pod) -> Next {
    if pod.metadata.deletion_timestamp.is_some() {
        // Without a grace period it is deleted already, unless finalizers remain that others remove.
        let confirmed = pod.metadata.deletion_grace_period_seconds == Some(0);
        return if confirmed { Next::Wait } else { Next::Remove };
    }
    let status = pod.status.as_ref();
    match status.and_then(|status| status.phase.as_deref()) {
        None | Some("Pending") => Next::Run,
        Some("Running") => match pod.annotations().get(FINISH) {
            None => Next::Wait,
            Some(asked) => finish(asked, status.and_then(|status| status.message.as_deref())),
        },
        // Succeeded and Failed are final, and only the node controller sets Unknown.
        Some(_) => Next::Wait,
    }
}

fn finish(asked: &str, said: Option<&str>) -> Next {
    if let Some(outcome) = PodEnding::of_phase(asked) {
        return Next::Finish(outcome);
    }
    let message = format!("{FINISH} is {asked:?}; Succeeded and Failed are accepted");
    if said == Some(message.as_str()) { Next::Wait } else { Next::Say(message) }
}

/// Performs the step. `number` is the number of the pod among all that were started.
pub(super) async fn act(client: &Client, pod: &Pod, next: Next, number: u32) -> Result<(), kube::Error> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), &pod.namespace().unwrap_or_default());
    let name = pod.name_any();
    let status = match next {
        Next::Wait => return Ok(()),
        Next::Remove => {
            let only_this = Preconditions { uid: pod.uid(), resource_version: None };
            let now = DeleteParams::default().grace_period(0).preconditions(only_this);
            pods.delete(&name, &now).await?;
            return Ok(());
        }
        Next::Run => running(pod, number),
        Next::Finish(outcome) => finished(pod, outcome),
        Next::Say(message) => json!({"message": message}),
    };
    // The UID makes the write fail if another pod has the name by now.
    let patch = json!({"metadata": {"uid": pod.uid()}, "status": status});
    let by = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
    pods.patch_status(&name, &by, &Patch::Strategic(patch)).await?;
    Ok(())
}

fn running(pod: &Pod, number: u32) -> Value {
    let now = Time(Timestamp::now());
    let [_, _, high, low] = number.to_be_bytes();
    let address = format!("10.244.{high}.{low}");
    json!({
        "phase": "Running",
        "startTime": now,
        "hostIP": "127.0.0.1",
        "podIP": address,
        "podIPs": [{"ip": address}],
        "conditions": [
            condition("Initialized", true, "", &now),
            condition("ContainersReady", true, "", &now),
            condition("Ready", true, "", &now),
        ],
        "initContainerStatuses": containers(pod, true, |_| ended(PodEnding::Succeeded, &now, &now)),
        "containerStatuses": containers(pod, false, |_| json!({"running": {"startedAt": now}})),
    })
}

fn finished(pod: &Pod, outcome: PodEnding) -> Value {
    let now = Time(Timestamp::now());
    let started =
        pod.status.as_ref().and_then(|status| status.start_time.clone()).unwrap_or_else(|| now.clone());
    let reason = match outcome {
        PodEnding::Succeeded => "PodCompleted",
        PodEnding::Failed => "PodFailed",
    };
    json!({
        "phase": outcome.phase(),
        "conditions": [
            condition("ContainersReady", false, reason, &now),
            condition("Ready", false, reason, &now),
        ],
        "containerStatuses": containers(pod, false, |_| ended(outcome, &started, &now)),
    })
}

fn condition(kind: &str, is_so: bool, reason: &str, since: &Time) -> Value {
    let status = if is_so { "True" } else { "False" };
    json!({"type": kind, "status": status, "reason": reason, "lastTransitionTime": since})
}

fn ended(outcome: PodEnding, started: &Time, now: &Time) -> Value {
    let (code, reason) = match outcome {
        PodEnding::Succeeded => (0, "Completed"),
        PodEnding::Failed => (1, "Error"),
    };
    json!({"terminated": {"exitCode": code, "reason": reason, "startedAt": started, "finishedAt": now}})
}

/// The status of each container: of the init containers, which have all ended, or of the others.
fn containers(pod: &Pod, initial: bool, state: impl Fn(&Container) -> Value) -> Vec<Value> {
    let Some(spec) = &pod.spec else { return Vec::new() };
    let of = if initial { spec.init_containers.as_deref().unwrap_or_default() } else { &spec.containers };
    let one = |container: &Container| {
        let state = state(container);
        let runs = state.get("running").is_some();
        json!({
            "name": container.name,
            "image": container.image,
            "imageID": "",
            "containerID": format!("life://{}/{}", pod.uid().unwrap_or_default(), container.name),
            "ready": runs || initial,
            "started": runs,
            "restartCount": 0,
            "state": state,
        })
    };
    of.iter().map(one).collect()
}

#[cfg(test)]
mod tests;
