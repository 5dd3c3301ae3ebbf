//! The policy that restricts an agent to its own node (`hosts/deploy/kustomize/base/admission.yaml`), on a real
//! server, because the embedded one has no policies.

use crate::servers::{client, control_plane};
use cluster::ControlPlane;
use k8s_openapi::api::core::v1::Node;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams};
use kube::{Api, Client, Error};
use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;

const NAMESPACE: &str = "joulie-system";
const MINE: &str = "adm-mine";
const OTHER: &str = "adm-other";

/// Applies the shipped files one by one.
async fn install(admin: &Client) {
    let deploy = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../hosts/deploy/kustomize");
    for file in ["base/00-namespace", "base/agent-rbac", "pool/agent-pool", "base/admission"] {
        let text = std::fs::read_to_string(deploy.join(file).with_extension("yaml")).unwrap();
        for document in text.split("\n---\n") {
            let object: DynamicObject = serde_saphyr::from_str(document).unwrap();
            let types = object.types.clone().unwrap();
            let resource = ApiResource::from_gvk(&GroupVersionKind::try_from(&types).unwrap());
            let api: Api<DynamicObject> = match &object.metadata.namespace {
                Some(namespace) => Api::namespaced_with(admin.clone(), namespace, &resource),
                None => Api::all_with(admin.clone(), &resource),
            };
            let name = object.metadata.name.as_deref().unwrap();
            let by = PatchParams::apply("installation").force();
            api.patch(name, &by, &Patch::Apply(&object)).await.unwrap();
        }
    }
}

/// A client of an account. With a node it has the token of a pod on that node, as a kubelet would request it.
async fn agent(control_plane: &ControlPlane, account: &str, node: Option<&str>) -> Client {
    let kubeconfig = match node {
        Some(node) => control_plane.pod_kubeconfig(NAMESPACE, account, node).await,
        None => control_plane.service_account_kubeconfig(NAMESPACE, account).await,
    };
    client(&kubeconfig.unwrap()).await
}

fn kind(client: &Client, kind: &str) -> Api<DynamicObject> {
    Api::all_with(
        client.clone(),
        &ApiResource::from_gvk(&GroupVersionKind::gvk("joulie.io", "v1alpha1", kind)),
    )
}

fn object(of: &str, name: &str, part: &str, value: Value) -> Value {
    json!({"apiVersion": "joulie.io/v1alpha1", "kind": of, "metadata": {"name": name}, part: value})
}

/// Applies a NodeHardware of this name for this node.
async fn hardware(client: &Client, name: &str, node: &str) -> Result<DynamicObject, Error> {
    let document = object("NodeHardware", name, "spec", json!({"nodeName": node}));
    let by = PatchParams::apply("joulie-agent").force();
    kind(client, "NodeHardware").patch(name, &by, &Patch::Apply(&document)).await
}

/// Applies a status to an object of this kind and name.
async fn report(client: &Client, of: &str, name: &str) -> Result<DynamicObject, Error> {
    let status = match of {
        "NodeHardware" => json!({"cpu": {"sockets": 2}}),
        "NodePowerProfile" => json!({"control": {"cpu": {"backend": "rapl", "result": "applied"}}}),
        _ => json!({"controlStatus": {"cpu": {"backend": "rapl", "result": "applied"}}}),
    };
    let by = PatchParams::apply("joulie-agent").force();
    let document = object(of, name, "status", status);
    kind(client, of).patch_status(name, &by, &Patch::Apply(&document)).await
}

/// The policy's message of a refused request.
fn refusal(answer: Result<DynamicObject, Error>) -> String {
    match answer {
        Err(Error::Api(status)) if status.code == 403 && status.message.contains("joulie-agent-own-node") => {
            status.message.clone()
        }
        other => panic!("the policy refuses it, and not {other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_writes_the_objects_of_its_own_node_and_of_no_other() {
    let Some(control_plane) = control_plane().await else { return };
    let admin = client(control_plane.kubeconfig()).await;
    install(&admin).await;
    let nodes: Api<Node> = Api::all(admin.clone());
    for name in [MINE, OTHER] {
        let node = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
        nodes.create(&PostParams::default(), &node).await.unwrap();
        hardware(&admin, name, name).await.unwrap();
        for of in ["NodePowerProfile", "NodeTwin"] {
            let spec = json!({"nodeName": name, "profile": "eco"});
            let document = object(of, name, "spec", spec);
            let by = PatchParams::apply("admin");
            kind(&admin, of).patch(name, &by, &Patch::Apply(&document)).await.unwrap();
        }
    }
    let mine = agent(control_plane, "joulie-agent", Some(MINE)).await;
    // A policy and a role take effect a moment after they were written.
    let counts = async {
        while !matches!(hardware(&mine, OTHER, OTHER).await, Err(Error::Api(status)) if status.message.contains("own-node"))
        {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), counts).await.unwrap();

    hardware(&mine, MINE, MINE).await.unwrap();
    for of in ["NodeHardware", "NodePowerProfile", "NodeTwin"] {
        report(&mine, of, MINE).await.unwrap();
        let why = refusal(report(&mine, of, OTHER).await);
        assert!(
            why.contains("the agent on node adm-mine may not write an object of node adm-other")
                && !why.contains(" or adm-other"),
            "{why}"
        );
    }
    // Refused are a new object for another node, changing another node's object to the own node, and changing the own
    // object to another node. For the last two the definition itself requires that the node of an object does not
    // change.
    refusal(hardware(&mine, "adm-new", OTHER).await);
    assert!(hardware(&mine, OTHER, MINE).await.is_err());
    assert!(hardware(&mine, MINE, OTHER).await.is_err());

    // A token that is not bound to a pod names no node, so it may not write for any.
    let nobody = agent(control_plane, "joulie-agent", None).await;
    let why = refusal(report(&nobody, "NodeHardware", MINE).await);
    assert!(why.contains("joulie-agent-pool"), "{why}");

    // The agent of a pool may write for many nodes, and so may people.
    let pool = agent(control_plane, "joulie-agent-pool", None).await;
    for name in [MINE, OTHER] {
        hardware(&pool, name, name).await.unwrap();
        report(&pool, "NodePowerProfile", name).await.unwrap();
        report(&admin, "NodeTwin", name).await.unwrap();
    }
}
