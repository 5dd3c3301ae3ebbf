//! The objects that a kubelet writes for its node: the Node, its status, and the Lease that is its heartbeat.

use super::{FIELD_MANAGER, FakeNode};
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, Time};
use k8s_openapi::jiff::Timestamp;
use kube::api::{ObjectMeta, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};

/// The namespace of the node heartbeats.
const LEASES: &str = "kube-node-lease";
/// How long a heartbeat is valid: a kubelet's value.
const LEASE_SECONDS: i32 = 40;

/// The size of every image.
const IMAGE_BYTES: u64 = 100_000_000;

/// The heartbeat is written first and the status before the taints, because the node controller reads each of them.
pub(super) async fn register(client: &Client, machine: &FakeNode) -> Result<(), kube::Error> {
    heartbeat(client, &machine.name).await?;
    let nodes: Api<Node> = Api::all(client.clone());
    match nodes.create(&PostParams::default(), &node(machine)).await {
        // An existing node of that name is taken over.
        Err(kube::Error::Api(status)) if status.code == 409 => {}
        created => drop(created?),
    }
    let by = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
    nodes.patch_status(&machine.name, &by, &Patch::Merge(status(machine))).await?;
    // Admission adds the not-ready taint to a new node. The node is ready, so remove it.
    let spec = json!({"spec": {"taints": machine.taints}});
    nodes.patch(&machine.name, &by, &Patch::Merge(spec)).await?;
    Ok(())
}

/// Reports the node as ready again. The node controller then removes its own taints.
pub(super) async fn ready(client: &Client, machine: &FakeNode) -> Result<(), kube::Error> {
    let nodes: Api<Node> = Api::all(client.clone());
    let by = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
    nodes.patch_status(&machine.name, &by, &Patch::Merge(status(machine))).await.map(drop)
}

pub(super) async fn heartbeat(client: &Client, name: &str) -> Result<(), kube::Error> {
    let leases: Api<Lease> = Api::namespaced(client.clone(), LEASES);
    let lease = Lease {
        metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() },
        spec: Some(LeaseSpec {
            holder_identity: Some(name.to_owned()),
            lease_duration_seconds: Some(LEASE_SECONDS),
            renew_time: Some(MicroTime(Timestamp::now())),
            ..LeaseSpec::default()
        }),
    };
    leases.patch(name, &PatchParams::apply(FIELD_MANAGER).force(), &Patch::Apply(lease)).await?;
    Ok(())
}

fn node(machine: &FakeNode) -> Node {
    let mut labels = machine.labels.clone();
    for (name, value) in [
        ("kubernetes.io/hostname", machine.name.as_str()),
        ("kubernetes.io/os", "linux"),
        ("kubernetes.io/arch", "amd64"),
    ] {
        labels.entry(name.to_owned()).or_insert_with(|| value.to_owned());
    }
    Node {
        metadata: ObjectMeta {
            name: Some(machine.name.clone()),
            labels: Some(labels),
            annotations: Some(machine.annotations.clone()),
            ..ObjectMeta::default()
        },
        ..Node::default()
    }
}

fn status(machine: &FakeNode) -> Value {
    let now = Time(Timestamp::now());
    let condition = |kind: &str, status: &str, reason: &str| {
        json!({
            "type": kind, "status": status, "reason": reason, "message": "",
            "lastHeartbeatTime": now, "lastTransitionTime": now,
        })
    };
    let images: Vec<_> =
        machine.images.iter().map(|name| json!({"names": [name], "sizeBytes": IMAGE_BYTES})).collect();
    json!({"status": {
        "images": images,
        "capacity": machine.capacity,
        "allocatable": machine.capacity,
        "conditions": [
            condition("Ready", "True", "KubeletReady"),
            condition("MemoryPressure", "False", "KubeletHasSufficientMemory"),
            condition("DiskPressure", "False", "KubeletHasNoDiskPressure"),
            condition("PIDPressure", "False", "KubeletHasSufficientPID"),
        ],
        "addresses": [
            {"type": "InternalIP", "address": "127.0.0.1"},
            {"type": "Hostname", "address": machine.name},
        ],
        "nodeInfo": {
            "bootID": boot_id(), "machineID": machine.name, "systemUUID": machine.name, "architecture": "amd64",
            "operatingSystem": "linux", "osImage": "", "kernelVersion": "", "containerRuntimeVersion": "",
            "kubeletVersion": "", "kubeProxyVersion": "",
        },
    }})
}

/// The boot id of this machine, as a kubelet reports it.
fn boot_id() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}
