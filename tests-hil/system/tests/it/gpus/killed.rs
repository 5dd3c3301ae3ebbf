//! A replica that is killed between the card that it took and the binding. The API server is made to wait before it binds: it
//! asks a webhook that never answers.

use super::{GpuSystem, alone, binding, card, wait, wants};
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use serde_json::{Value, json};
use std::time::Duration;
use system::{http, ports};
use tokio::net::TcpListener;
use tokio::time::timeout;

const NAME: &str = "silent";
const REPLICA: &str = "extender-2";
const A_MOMENT: Duration = Duration::from_millis(500);

/// Returns the UID of the pod that nobody tries again, and for which the card stays taken.
pub(super) async fn a_replica_dies_with_a_card_in_its_hand(system: &GpuSystem) -> String {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let hooks: Api<ValidatingWebhookConfiguration> = Api::all(system.client.clone());
    let hook = json!({"metadata": {"name": NAME}, "webhooks": [{
        "name": "silent.example.com", "admissionReviewVersions": ["v1"], "sideEffects": "None", "timeoutSeconds": 30,
        "clientConfig": {"url": format!("https://{}/", silent.local_addr().unwrap())},
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods/binding"]}],
    }]});
    hooks.create(&PostParams::default(), &serde_json::from_value(hook).unwrap()).await.unwrap();
    wait("bindings have to wait", async || {
        let (asked, _answer) =
            tokio::join!(timeout(A_MOMENT, silent.accept()), timeout(A_MOMENT, bind_nobody(system)));
        asked.is_ok()
    })
    .await;

    let orphan = system.create(&alone(wants("orphan", "A40", 1))).await;
    let uid = orphan["metadata"]["uid"].as_str().unwrap().to_owned();
    let (address, killed) = (ports::free().unwrap(), card("killed", 0));
    let replica = http::at(address).unwrap();
    system.run_extender(REPLICA, address, &replica).await;
    let is_taken = async || system.taken(&killed).await.contains(&uid);
    tokio::select! {
        answer = replica.post("/bind", binding(&orphan, "killed")) => panic!("nothing can be bound: {answer:?}"),
        () = wait("the card is taken", is_taken) => {}
    }
    system.control_plane.kill_program(REPLICA);
    hooks.delete(NAME, &DeleteParams::default()).await.unwrap();
    wait("bindings need not wait", async || timeout(A_MOMENT, bind_nobody(system)).await.is_ok()).await;
    system.pass(&wants("any", "A40", 1), &[]).await;
    assert_eq!(system.node_of("orphan").await, None, "it was not bound");
    uid
}

/// Tries to bind a pod that does not exist: the webhook is asked before that is seen.
async fn bind_nobody(system: &GpuSystem) {
    let path = format!("/api/v1/namespaces/{}/pods/nobody/binding", super::NAMESPACE);
    let target = json!({"apiVersion": "v1", "kind": "Node", "name": "killed"});
    let body =
        json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "nobody"}, "target": target});
    let request = ::http::Request::post(path).header("content-type", "application/json");
    let request = request.body(body.to_string().into_bytes()).unwrap();
    let _refused = system.client.request::<Value>(request).await;
}
