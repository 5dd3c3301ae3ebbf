//! Dynamic resource allocation: what a driver would publish, and a claim that the real kube-scheduler allocates.

use super::{GpuSystem, NAMESPACE, card, wait, wants};
use crate::gpus::field;
use serde_json::{Value, json};

const NODE: &str = "claimed";
const MODEL: &str = "NVIDIA L20";
const API: &str = "/apis/resource.k8s.io/v1";

impl GpuSystem {
    async fn send(&self, method: &str, path: &str, kind: &str, body: &Value) -> Result<Value, kube::Error> {
        let request = ::http::Request::builder().method(method).uri(path).header("content-type", kind);
        self.client.request(request.body(body.to_string().into_bytes()).unwrap()).await
    }

    async fn post(&self, path: &str, body: &Value) -> Value {
        self.send("POST", &format!("{API}/{path}"), "application/json", body).await.unwrap()
    }

    async fn claim(&self) -> Value {
        let path = format!("{API}/namespaces/{NAMESPACE}/resourceclaims/one");
        self.send("GET", &path, "application/json", &Value::Null).await.unwrap()
    }
}

/// A pod that has its card by a claim.
fn claiming() -> Value {
    let mut pod = field::pod("claiming");
    pod["metadata"]["namespace"] = json!(NAMESPACE);
    pod["spec"]["resourceClaims"] = json!([{"name": "card", "resourceClaimName": "one"}]);
    pod["spec"]["containers"][0]["resources"]["claims"] = json!([{"name": "card"}]);
    pod
}

/// kube-scheduler allocates the only card of a node to a claim: no pod with annotations gets it, until the claim has given it
/// back.
pub(super) async fn a_card_that_a_claim_holds_takes_no_pod(system: &GpuSystem) {
    let wanted = wants("other", MODEL, 1);
    system.pass(&wanted, &[NODE]).await;
    let driver = "gpu.nvidia.com";
    let class = json!({"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": driver},
        "spec": {"selectors": [{"cel": {"expression": "device.driver == 'gpu.nvidia.com'"}}]}});
    system.post("deviceclasses", &class).await;
    let slice = json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": "claimed-gpus"},
        "spec": {"driver": driver, "nodeName": NODE, "pool": {"name": NODE, "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": "gpu-0", "capacity": {"memory": {"value": "40000Mi"}}, "attributes": {
                "type": {"string": "gpu"}, "uuid": {"string": format!("GPU-{}", card(NODE, 0))},
                "productName": {"string": MODEL}, "architecture": {"string": "Ada Lovelace"}}}]}});
    system.post("resourceslices", &slice).await;
    // What the driver says is what the object said.
    system.pass(&wanted, &[NODE]).await;
    let claim = json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "one"},
        "spec": {"devices": {"requests": [{"name": "card", "exactly": {"deviceClassName": driver}}]}}});
    system.post(&format!("namespaces/{NAMESPACE}/resourceclaims"), &claim).await;
    // Nothing is allocated yet.
    system.pass(&wanted, &[NODE]).await;
    system.create(&claiming()).await;
    system.lands("claiming", NODE).await;
    let allocation = system.claim().await["status"]["allocation"]["devices"]["results"][0].clone();
    assert_eq!((&allocation["driver"], &allocation["device"]), (&json!(driver), &json!("gpu-0")));
    system.pass(&wanted, &[]).await;
    system.create(&wanted).await;
    wait("the pod is told", async || {
        system.why_not("other").await.contains("joulie: too few GPUs of the model asked for are free")
    })
    .await;
    assert_eq!(system.node_of("other").await, None);
    // Bind says the same, whoever asks.
    let pod = serde_json::to_value(system.pods().get("other").await.unwrap()).unwrap();
    let answer = system.bind(1, &pod, NODE).await;
    assert!(answer["Error"].as_str().unwrap().starts_with("joulie: a card cannot be taken"), "{answer}");
    system.delete("other").await;
    // The pod leaves, and the claim is given back, as the controller of claims would do it.
    system.delete("claiming").await;
    let path = format!("{API}/namespaces/{NAMESPACE}/resourceclaims/one");
    let nothing = json!({"status": {"allocation": null, "reservedFor": null}});
    system.send("PATCH", &format!("{path}/status"), "application/merge-patch+json", &nothing).await.unwrap();
    system.pass(&wanted, &[NODE]).await;
    system.create(&wanted).await;
    system.lands("other", NODE).await;
    system.delete("other").await;
}
