//! GPU objects: one for each card of the virtual NVML, by a right of its own.

use crate::rights::{Rights, limited};
use crate::test_machine::{Agent, Cluster, TestMachine};
use joulie_api::gpu::Gpu;
use kube::api::{Api, ApiResource, DynamicObject, ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Duration;

fn api(cluster: &Cluster) -> Api<DynamicObject> {
    Api::all_with(cluster.api.client(), &ApiResource::erase::<Gpu>(&()))
}

async fn all(cluster: &Cluster) -> Vec<Value> {
    let list = api(cluster).list(&ListParams::default()).await.unwrap();
    list.items.into_iter().map(|object| serde_json::to_value(object).unwrap()).collect()
}

async fn until(cluster: &Cluster, what: &str, is: impl Fn(&[Value]) -> bool) -> Vec<Value> {
    let look = async {
        loop {
            let now = all(cluster).await;
            if is(&now) {
                return now;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), look).await.unwrap_or_else(|_| panic!("in vain: {what}"))
}

/// An object of the node that no card of this machine is behind.
async fn stray(cluster: &Cluster, name: &str, labels: Value) {
    let object = json!({"apiVersion": "gpu.mle.com/v1alpha1", "kind": "GPU", "metadata": {"name": name, "labels": labels},
                        "spec": {"nodeName": "node-a", "uuid": format!("GPU-{name}"), "vendor": "nvidia"}});
    let params = PatchParams::apply("a-person").force();
    api(cluster).patch(name, &params, &Patch::Apply(object)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn each_card_has_an_object_that_says_what_it_is_and_one_that_has_left_has_none() {
    let Some(room) = TestMachine::profile("gpu-2s8") else { return };
    let cluster = Cluster::new().await;
    let labels = json!({"joulie.io/managed": "true", "nvidia.com/gpu.sharing-strategy": "none"});
    cluster.node("node-a", labels).await;
    stray(&cluster, "left", json!({"joulie.io/managed-by": "agent"})).await;
    stray(&cluster, "foreign", json!({})).await;
    let mut settings = room.settings(&cluster);
    settings.push(("GPU_OBJECTS", "on".to_owned()));
    settings.push(("ENERGY_POD_RESOURCES_SOCKET", "/nowhere/kubelet.sock".to_owned()));
    let agent = Agent::start(&settings);
    // Eight cards, and what somebody else has made; the object of a card that is not there any more is deleted.
    let names = |gpus: &[Value]| {
        gpus.iter().map(|gpu| gpu["metadata"]["name"].clone().to_string()).collect::<BTreeSet<_>>()
    };
    let is = |gpus: &[Value]| gpus.len() == 9 && !names(gpus).contains("\"left\"");
    let gpus = until(&cluster, "eight objects", is).await;
    let node = cluster.get("Node", "node-a").await;
    let ours: Vec<&Value> = gpus.iter().filter(|gpu| gpu["metadata"]["name"] != "foreign").collect();
    let uuids: BTreeSet<&str> = ours.iter().filter_map(|gpu| gpu["spec"]["uuid"].as_str()).collect();
    assert_eq!(uuids.len(), 8, "{gpus:#?}");
    for gpu in &ours {
        let (spec, meta) = (&gpu["spec"], &gpu["metadata"]);
        assert_eq!(
            (&spec["nodeName"], &spec["vendor"], &spec["sharing"]),
            (&json!("node-a"), &json!("nvidia"), &json!("none"))
        );
        assert!(spec["uuid"].as_str().unwrap().starts_with("GPU-"), "{gpu:#}");
        assert_eq!(meta["ownerReferences"][0]["uid"], node["metadata"]["uid"]);
        // Nobody says yet who holds it, so no status says that it is free.
        assert_eq!(gpu["status"]["phase"], Value::Null);
    }
    agent.until_page("/metrics", "joulie_gpu_objects_total{outcome=\"kubelet_silent\"}").await;
    // A steady node writes nothing.
    let versions = |gpus: &[Value]| {
        gpus.iter().map(|gpu| gpu["metadata"]["resourceVersion"].clone()).collect::<Vec<_>>()
    };
    let before = versions(&gpus);
    let silent = |page: &str| page.lines().find(|line| line.contains("kubelet_silent")).map(str::to_owned);
    let first = silent(&agent.page("/metrics").await);
    let rounds = async {
        while silent(&agent.page("/metrics").await) == first {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), rounds).await.unwrap();
    assert_eq!(versions(&all(&cluster).await), before);
}

#[test]
fn gpu_objects_are_for_the_agents_own_node() {
    let settings = |more: &[(&'static str, &str)]| {
        let base = [("NODE_NAME", "node-a"), ("GPU_OBJECTS", "on")];
        let all: Vec<_> = base.iter().chain(more).map(|(name, value)| (*name, (*value).to_owned())).collect();
        Agent::run(&[], &all)
    };
    let pool = [
        ("AGENT_MODE", "pool"),
        ("TELEMETRY_CPU_SOURCE", "http"),
        ("TELEMETRY_CPU_HTTP_ENDPOINT", "http://{node}/"),
    ];
    for (more, says) in [(&pool[..], "mode daemonset"), (&[("GPU_OBJECTS_", "on")][..], "GPU_OBJECTS_")] {
        let (code, said) = settings(more);
        assert!(code == Some(2) && said.contains(says), "{code:?} {said}");
    }
}

/// The rights to GPU objects ship with the option, and with nothing else of the agent's.
#[tokio::test]
async fn gpu_objects_are_written_by_a_right_of_their_own() {
    let cluster = Cluster::new().await;
    for (files, refused) in [
        (&["base/agent-rbac.yaml"][..], 4),
        (&["base/agent-rbac.yaml", "gpu-placement/gpu-placement.yaml"], 0),
    ] {
        let (client, forbidden) = limited(cluster.api.client(), Rights::of(files, "joulie-agent"));
        let gpus = "/apis/gpu.mle.com/v1alpha1/gpus";
        for (method, uri) in [
            ("GET", format!("{gpus}?fieldSelector=spec.nodeName%3Dnode-a")),
            ("PATCH", format!("{gpus}/a?fieldManager=joulie-agent")),
            ("PATCH", format!("{gpus}/a/status?fieldManager=joulie-agent")),
            ("DELETE", format!("{gpus}/a")),
        ] {
            let request = http::Request::builder().method(method).uri(uri).body(Vec::new()).unwrap();
            let _answer = client.request_text(request).await;
        }
        assert_eq!(forbidden.all().len(), refused, "{files:?}");
    }
}
