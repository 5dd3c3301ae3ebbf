//! Cards that claims of dynamic resource allocation hold, where the API server has such claims and where it has none.

use super::gpus::{args, free, pod as gpu_pod};
use super::world::World;
use embedded_api::{ApiOptions, EmbeddedApi};
use serde_json::{Value, json};

const ON: [(&str, &str); 3] = [("GPU_PLACEMENT", "annotated"), ("GPU_BIND", "true"), ("GPU_DRA", "read")];
const API: &str = "/apis/resource.k8s.io/v1";

fn definition(plural: &str, kind: &str, scope: &str) -> Value {
    let any = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.resource.k8s.io")}, "spec": {"group": "resource.k8s.io", "scope": scope,
            "names": {"plural": plural, "singular": kind.to_lowercase(), "kind": kind, "listKind": format!("{kind}List")},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object", "properties": {"spec": any, "status": any}}}}]}})
}

fn api() -> EmbeddedApi {
    let mut definitions = joulie_api::crd::all();
    let more =
        [("resourceslices", "ResourceSlice", "Cluster"), ("resourceclaims", "ResourceClaim", "Namespaced")];
    for (plural, kind, scope) in more {
        definitions.push(serde_json::from_value(definition(plural, kind, scope)).unwrap());
    }
    EmbeddedApi::new(&ApiOptions::with(definitions)).unwrap()
}

fn slice(node: &str, uuids: &[&str]) -> Value {
    let device = |(at, uuid): (usize, &&str)| {
        json!({"name": format!("gpu-{at}"), "attributes": {
        "type": {"string": "gpu"}, "uuid": {"string": uuid}, "productName": {"string": "NVIDIA H100 80GB HBM3"}}})
    };
    let devices: Vec<Value> = uuids.iter().enumerate().map(device).collect();
    json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": format!("{node}-slice")},
           "spec": {"driver": "gpu.nvidia.com", "nodeName": node, "devices": devices,
                    "pool": {"name": node, "generation": 1, "resourceSliceCount": 1}}})
}

fn claim(name: &str, node: &str, device: &str) -> Value {
    json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": name}, "spec": {},
           "status": {"reservedFor": [{"resource": "pods", "name": "p", "uid": "claiming"}],
                      "allocation": {"devices": {"results": [
                          {"request": "r", "driver": "gpu.nvidia.com", "pool": node, "device": device}]}}}})
}

#[tokio::test]
async fn a_claim_takes_its_card_from_filter_and_from_bind_until_it_is_gone() {
    let world = World::on(api(), &ON).await;
    world.card("n", 0, json!({}), free()).await;
    world.card("n", 1, json!({}), free()).await;
    let any = gpu_pod(1, &[("model", "A100")]);
    world.passes_at_last(&any, &["n"], &["n"]).await;
    // The driver says what the cards are.
    world.send("POST", &format!("{API}/resourceslices"), &slice("n", &["GPU-n-0", "GPU-n-1"])).await;
    world.passes_at_last(&any, &["n"], &[]).await;
    let wanted = gpu_pod(1, &[("model", "H100")]);
    world.passes_at_last(&gpu_pod(2, &[("model", "H100")]), &["n"], &["n"]).await;
    let claims = format!("{API}/namespaces/default/resourceclaims");
    world.send("POST", &claims, &claim("one", "n", "gpu-0")).await;
    world.passes_at_last(&gpu_pod(2, &[("model", "H100")]), &["n"], &[]).await;
    assert_eq!(world.filtered(&wanted, &["n"]).await["nodenames"], json!(["n"]));
    // Bind takes the card that is left.
    let made = world.create("left", &wanted).await;
    assert_eq!(world.post("/bind", &args(&made, "n")).await["Error"], "");
    assert_eq!(world.taken("n-1").await, [made["metadata"]["uid"].clone()]);
    world.passes_at_last(&wanted, &["n"], &[]).await;
    world.send("DELETE", &format!("{claims}/one"), &json!({})).await;
    world.passes_at_last(&wanted, &["n"], &["n"]).await;
    // A device that nobody publishes may be either card.
    world.send("POST", &claims, &claim("two", "n", "gpu-9")).await;
    world.passes_at_last(&wanted, &["n"], &[]).await;
    let why = &world.filtered(&wanted, &["n"]).await["failedNodes"]["n"];
    assert_eq!(why, "joulie: too few GPUs of the model asked for are free (0)");
}

#[tokio::test]
async fn where_the_api_server_has_no_claims_nothing_changes() {
    let world = World::start(&ON).await;
    world.card("n", 0, json!({}), free()).await;
    world.passes_at_last(&gpu_pod(1, &[("model", "A100")]), &["n"], &["n"]).await;
}
