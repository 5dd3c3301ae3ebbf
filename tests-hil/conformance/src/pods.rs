//! Pods: binding, eviction, and deletion.

use crate::{fields, namespace, refused};
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::Client;
use kube::api::{Api, DeleteParams, EvictParams, ListParams, Patch, PatchParams, PostParams};
use kube::core::Status;
use serde_json::json;
use std::time::Duration;
use tokio::time::{Instant, sleep};

async fn make(client: &Client, namespace: &str, name: &str) -> Pod {
    let api: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let at_once = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
    drop(api.delete(name, &at_once).await);
    let body = json!({"metadata": {"name": name, "labels": {"app": namespace}},
        "spec": {"containers": [{"name": "c", "image": "none", "ports": [{"containerPort": 80}]}]}});
    let body = serde_json::from_value(body).unwrap();
    let deadline = Instant::now() + PATIENCE;
    loop {
        match api.create(&PostParams::default(), &body).await {
            Ok(made) => return made,
            // If a controller creates the account of a new namespace, that takes a moment.
            Err(error) => {
                let status = crate::status(error);
                assert!(status.message.contains("serviceaccount \"default\" not found"), "{status:?}");
                assert!(Instant::now() < deadline, "the namespace gets no account");
            }
        }
        sleep(PAUSE).await;
    }
}

/// The controllers of a server take some time to react.
const PATIENCE: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(100);

/// A node for bound pods; without it the controllers of a real server would delete them.
async fn node(client: &Client) {
    let api: Api<Node> = Api::all(client.clone());
    let body = serde_json::from_value(json!({"metadata": {"name": "conf-host"}})).unwrap();
    drop(api.create(&PostParams::default(), &body).await);
}

async fn bind(client: &Client, namespace: &str, name: &str) -> Result<serde_json::Value, kube::Error> {
    let api: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name, "annotations": {"gpu": "0"}},
        "target": {"kind": "Node", "name": "conf-host"}});
    api.create_subresource("binding", name, &PostParams::default(), &binding).await
}

pub(crate) async fn are_bound_once(client: Client) {
    let space = "conf-binding";
    namespace(&client, space).await;
    node(&client).await;
    let made = make(&client, space, "bound").await;
    let spec = made.spec.unwrap();
    assert_eq!(spec.scheduler_name.as_deref(), Some("default-scheduler"));
    assert_eq!(spec.restart_policy.as_deref(), Some("Always"));
    assert_eq!(spec.containers[0].ports.as_ref().unwrap()[0].protocol.as_deref(), Some("TCP"));
    assert_eq!(made.status.unwrap().phase.as_deref(), Some("Pending"));
    bind(&client, space, "bound").await.unwrap();
    let api: Api<Pod> = Api::namespaced(client.clone(), space);
    let bound = api.get("bound").await.unwrap();
    assert_eq!(bound.spec.unwrap().node_name.as_deref(), Some("conf-host"));
    assert_eq!(bound.metadata.annotations.unwrap()["gpu"], "0");
    let conditions = bound.status.unwrap().conditions.unwrap();
    assert!(
        conditions.iter().any(|condition| condition.type_ == "PodScheduled" && condition.status == "True")
    );
    assert_eq!(refused(bind(&client, space, "bound").await).code, 409);
    assert_eq!(refused(bind(&client, space, "absent").await).code, 404);
    let on = ListParams::default().fields("spec.nodeName=conf-host");
    assert_eq!(api.list(&on).await.unwrap().items.len(), 1);
    let moved = json!({"spec": {"nodeName": "elsewhere"}});
    let moved = refused(api.patch("bound", &PatchParams::default(), &Patch::Merge(&moved)).await);
    assert_eq!((moved.code, fields(&moved)), (422, vec!["spec"]));
    let at_once = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
    api.delete("bound", &at_once).await.unwrap();
}

/// Repeats the request until the pod is evicted, or is refused for this cause. A budget that its controller has not
/// processed yet refuses every eviction.
async fn evicted_when(api: &Api<Pod>, name: &str, cause: impl Fn(Option<&str>) -> bool) -> Option<Status> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let status = crate::status(api.evict(name, &EvictParams::default()).await.err()?);
        assert_eq!(status.code, 429, "{status:?}");
        let causes = status.details.as_ref().map(|details| details.causes.as_slice()).unwrap_or_default();
        if cause(causes.first().map(|cause| cause.message.as_str())) {
            return Some(status);
        }
        assert!(Instant::now() < deadline, "still {status:?}");
        sleep(PAUSE).await;
    }
}

pub(crate) async fn budgets_hold(client: Client) {
    let space = "conf-budgets";
    namespace(&client, space).await;
    node(&client).await;
    let api: Api<Pod> = Api::namespaced(client.clone(), space);
    for name in ["one", "two"] {
        make(&client, space, name).await;
        bind(&client, space, name).await.unwrap();
        let running =
            json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
        api.patch_status(name, &PatchParams::default(), &Patch::Merge(&running)).await.unwrap();
    }
    let budgets: Api<PodDisruptionBudget> = Api::namespaced(client.clone(), space);
    drop(budgets.delete("budget", &DeleteParams::default()).await);
    let body = json!({"metadata": {"name": "budget"},
        "spec": {"minAvailable": 2, "selector": {"matchLabels": {"app": space}}}});
    budgets.create(&PostParams::default(), &serde_json::from_value(body).unwrap()).await.unwrap();
    let told = "The disruption budget budget needs 2 healthy pods and has 2 currently";
    let status = evicted_when(&api, "one", |said| said == Some(told)).await.unwrap();
    assert_eq!((status.code, status.reason.as_str()), (429, "TooManyRequests"));
    assert_eq!(status.message, "Cannot evict pod as it would violate the pod's disruption budget.");
    let fewer = json!({"spec": {"minAvailable": 1}});
    budgets.patch("budget", &PatchParams::default(), &Patch::Merge(&fewer)).await.unwrap();
    assert!(evicted_when(&api, "one", |_| false).await.is_none(), "the budget allows one");
    assert!(api.get("one").await.unwrap().metadata.deletion_timestamp.is_some(), "it stops with grace");
    assert_eq!(refused(api.evict("two", &EvictParams::default()).await).code, 429);
    assert_eq!(refused(api.evict("absent", &EvictParams::default()).await).code, 404);
    for name in ["one", "two"] {
        let at_once = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
        api.delete(name, &at_once).await.unwrap();
    }
}

pub(crate) async fn stop_with_grace(client: Client) {
    let space = "conf-grace";
    namespace(&client, space).await;
    node(&client).await;
    let api: Api<Pod> = Api::namespaced(client.clone(), space);
    make(&client, space, "unbound").await;
    api.delete("unbound", &DeleteParams::default()).await.unwrap();
    assert_eq!(refused(api.get("unbound").await).code, 404, "nobody runs it, so nobody has to stop it");
    make(&client, space, "running").await;
    bind(&client, space, "running").await.unwrap();
    let marked = api.delete("running", &DeleteParams::default()).await.unwrap().left().unwrap();
    assert_eq!(marked.metadata.deletion_grace_period_seconds, Some(30));
    assert!(marked.metadata.deletion_timestamp.is_some());
    let again = api.delete("running", &DeleteParams::default()).await.unwrap().left().unwrap();
    assert_eq!(again.metadata.resource_version, marked.metadata.resource_version, "twice is once");
    // Confirm the deletion as the kubelet does.
    let at_once = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
    api.delete("running", &at_once).await.unwrap();
    assert_eq!(refused(api.get("running").await).code, 404);
}
