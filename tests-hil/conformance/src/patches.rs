//! Patches of all kinds.

use crate::{clear, probe, probes, refused};
use k8s_openapi::api::core::v1::Node;
use kube::Client;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

pub(crate) async fn of_custom_objects(client: Client) {
    let api = probes(&client);
    clear(&api, "patched").await;
    api.create(&PostParams::default(), &probe("patched", json!({"watts": 1, "order": ["a", "b"]})))
        .await
        .unwrap();
    let by = PatchParams::default();
    let operations: json_patch::Patch = serde_json::from_value(json!([
        {"op": "test", "path": "/spec/watts", "value": 1},
        {"op": "replace", "path": "/spec/watts", "value": 2},
        {"op": "add", "path": "/spec/order/-", "value": "c"},
    ]))
    .unwrap();
    let patched = api.patch("patched", &by, &Patch::Json::<()>(operations.clone())).await.unwrap();
    assert_eq!(
        (&patched.data["spec"]["watts"], &patched.data["spec"]["order"]),
        (&json!(2), &json!(["a", "b", "c"]))
    );
    assert_eq!(
        refused(api.patch("patched", &by, &Patch::Json::<()>(operations)).await).code,
        422,
        "the test fails now"
    );
    let merge = json!({"spec": {"order": ["z"], "watts": null}});
    let merged = api.patch("patched", &by, &Patch::Merge(&merge)).await.unwrap();
    assert_eq!((&merged.data["spec"]["watts"], &merged.data["spec"]["order"]), (&Value::Null, &json!(["z"])));
    assert_eq!(refused(api.patch("patched", &by, &Patch::Strategic(&merge)).await).code, 415);
    let rename = json!({"metadata": {"name": "other"}});
    assert_eq!(refused(api.patch("patched", &by, &Patch::Merge(&rename)).await).code, 400);
    assert_eq!(refused(api.patch("absent", &by, &Patch::Merge(&merge)).await).code, 404);
    clear(&api, "patched").await;
}

pub(crate) async fn of_nodes(client: Client) {
    let api: Api<Node> = Api::all(client);
    drop(api.delete("conf-node", &DeleteParams::default()).await);
    let body = json!({"metadata": {"name": "conf-node"}, "status": {"conditions": [
        {"type": "Ready", "status": "True", "reason": "KubeletReady"}, {"type": "DiskPressure", "status": "False"}]}});
    let made = api.create(&PostParams::default(), &serde_json::from_value(body).unwrap()).await.unwrap();
    assert_eq!(made.status.unwrap().conditions.unwrap().len(), 2, "a node comes with its status");
    let by = PatchParams::default();
    let taint = json!({"spec": {"unschedulable": true, "taints": [{"key": "joulie.io/draining", "effect": "NoSchedule"}]},
        "metadata": {"labels": {"joulie.io/power-profile": "eco"}}});
    let cordoned = api.patch("conf-node", &by, &Patch::Strategic(&taint)).await.unwrap();
    let spec = cordoned.spec.unwrap();
    assert_eq!(spec.unschedulable, Some(true));
    assert!(spec.taints.unwrap().iter().any(|taint| taint.key == "joulie.io/draining"));
    let one = json!({"status": {"conditions": [{"type": "Ready", "status": "False"}]}});
    let told = api.patch_status("conf-node", &by, &Patch::Strategic(&one)).await.unwrap();
    let conditions = told.status.unwrap().conditions.unwrap();
    assert_eq!(conditions.len(), 2, "conditions merge by their type");
    let ready = conditions.iter().find(|condition| condition.type_ == "Ready").unwrap();
    assert_eq!((ready.status.as_str(), ready.reason.as_deref()), ("False", Some("KubeletReady")));
    let gone = json!({"status": {"conditions": [{"type": "DiskPressure", "$patch": "delete"}]}});
    let told = api.patch_status("conf-node", &by, &Patch::Strategic(&gone)).await.unwrap();
    assert_eq!(told.status.unwrap().conditions.unwrap().len(), 1);
    let mistyped = json!({"spec": {"unschedulable": "yes"}});
    assert!(api.patch("conf-node", &by, &Patch::Strategic(&mistyped)).await.is_err());
    api.delete("conf-node", &DeleteParams::default()).await.unwrap();
}
