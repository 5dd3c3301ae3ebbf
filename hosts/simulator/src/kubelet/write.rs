//! The writes to one pod.

use crate::nodes::FIELD_MANAGER;
use crate::pods::{BoundPod, Next, failed, finished, progress, running};
use host_kit::reflect::ObjectKey;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod as Object;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use kube::{Api, Client};
use serde_json::json;

/// Writes the next step of a pod. The UID makes the write fail if another pod has the name by now.
pub(super) async fn write(
    client: &Client,
    key: &ObjectKey,
    pod: &BoundPod,
    next: &Next,
    now: Timestamp,
) -> Result<(), kube::Error> {
    let pods: Api<Object> = Api::namespaced(client.clone(), &key.namespace);
    let status = match next {
        Next::Wait => return Ok(()),
        Next::Remove => {
            let only_this = Preconditions { uid: Some(pod.id.0.clone()), resource_version: None };
            let at_once = DeleteParams::default().grace_period(0).preconditions(only_this);
            return pods.delete(&key.name, &at_once).await.map(drop);
        }
        Next::Run => running(pod, now),
        Next::Finish(code) => finished(pod, *code, now),
        Next::Checkpoint(part) => progress(*part, now),
        Next::Reject(reason, message) => failed(reason, message, now),
    };
    let patch = json!({"metadata": {"uid": pod.id.0}, "status": status});
    let by = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
    pods.patch_status(&key.name, &by, &Patch::Strategic(patch)).await.map(drop)
}
