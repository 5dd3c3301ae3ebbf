//! The objects that a kubelet writes for its node: the Node, its status, and the Lease that is its heartbeat.
//!
//! It keeps the labels, annotations and taints that others have set on an existing node.

use crate::fleet::Member;
use crate::world::{self, KubeletSays, SimulatedWorld};
use futures::StreamExt;
use host_kit::shutdown::Stop;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::{ObjectMeta, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::Notify;

/// The field manager of all writes to nodes and pods.
pub(crate) const FIELD_MANAGER: &str = "joulie-simulator";
/// The namespace of the node heartbeats.
const LEASES: &str = "kube-node-lease";
/// How long a heartbeat is valid, and how often the whole status is written: the same values as a kubelet's.
const LEASE_SECONDS: i32 = 40;
const STATUS_EVERY: Duration = Duration::from_secs(300);
/// The most nodes that are written concurrently.
const WRITES_MAX: usize = 16;
/// When a status that was refused is written again.
const AGAIN: Duration = Duration::from_millis(500);

/// Registers all nodes, or takes over existing nodes of the same names.
///
/// # Errors
/// The API server's error for the first node that it refused.
pub async fn register(client: &Client, world: &SimulatedWorld) -> Result<(), kube::Error> {
    let now = world.clock().wall();
    let all = futures::stream::iter(world.nodes().values())
        .map(|node| {
            let says = world.at(node).told.clone();
            async move { register_one(client, node, &says, now).await }
        })
        .buffer_unordered(WRITES_MAX)
        .collect::<Vec<_>>()
        .await;
    all.into_iter().collect()
}

/// The heartbeat is written first and the status before the taints, because the node controller reads each of them.
async fn register_one(
    client: &Client,
    of: &world::SimulatedNode,
    says: &KubeletSays,
    now: Timestamp,
) -> Result<(), kube::Error> {
    let member = &of.member;
    beat_one(client, &member.name, now).await?;
    let nodes: Api<Node> = Api::all(client.clone());
    let node = Node {
        metadata: ObjectMeta {
            name: Some(member.name.clone()),
            labels: Some(member.labels.clone()),
            ..ObjectMeta::default()
        },
        ..Node::default()
    };
    let fresh = match nodes.create(&PostParams::default(), &node).await {
        Ok(_) => true,
        Err(kube::Error::Api(refused)) if refused.code == 409 => {
            let labels = json!({"metadata": {"labels": member.labels}});
            nodes.patch(&member.name, &by(), &Patch::Merge(labels)).await?;
            false
        }
        Err(error) => return Err(error),
    };
    nodes.patch_status(&member.name, &by(), &Patch::Strategic(status(member, says, now))).await?;
    if fresh {
        // Admission adds the not-ready taint to a new node. The node is ready, so remove it.
        let taints = json!({"spec": {"taints": null}});
        nodes.patch(&member.name, &by(), &Patch::Merge(taints)).await?;
    }
    Ok(())
}

/// Sends heartbeats until a stop is requested. The next heartbeat replaces a failed one. If none reaches the API
/// server, the node appears silent, as a real one would. A deleted node is not created again.
pub async fn beat(client: Client, world: Arc<SimulatedWorld>, every: Duration, stop: Stop) {
    let mut status_at = world.clock().mono();
    // After an outage the control plane has marked the nodes as dead, and only the nodes can correct their status.
    let mut missed = false;
    while !stop.requested_within(every).await {
        let now = world.clock().mono();
        let whole = missed || now.since(status_at) >= STATUS_EVERY;
        let failed = AtomicBool::new(false);
        if whole {
            status_at = now;
        }
        let wall = world.clock().wall();
        futures::stream::iter(world.nodes().values())
            .for_each_concurrent(WRITES_MAX, |node| {
                let (client, world, failed) = (client.clone(), &world, &failed);
                async move {
                    // A node that is off, or that nobody reaches, says nothing.
                    let Some(says) = world.at(node).says() else { return };
                    if let Err(error) = one_beat(&client, node, whole.then_some(&says), wall).await {
                        failed.store(true, Ordering::Relaxed);
                        tracing::debug!(node = node.member.name, "the heartbeat was refused: {error}");
                    }
                }
            })
            .await;
        missed = failed.into_inner();
    }
}

async fn one_beat(
    client: &Client,
    of: &world::SimulatedNode,
    whole: Option<&KubeletSays>,
    now: Timestamp,
) -> Result<(), kube::Error> {
    let member = &of.member;
    beat_one(client, &member.name, now).await?;
    if let Some(says) = whole {
        let nodes: Api<Node> = Api::all(client.clone());
        nodes.patch_status(&member.name, &by(), &Patch::Strategic(status(member, says, now))).await?;
    }
    Ok(())
}

/// Writes what kubelets say when their machines shut down, and when these are there again, until a stop is requested.
pub(crate) async fn follow_power(
    client: Client,
    world: Arc<SimulatedWorld>,
    switched: Arc<Notify>,
    stop: Stop,
) {
    loop {
        tokio::select! {
            () = switched.notified() => {}
            () = stop.requested() => return,
        }
        let wall = world.clock().wall();
        let untold = world.nodes().values().filter(|node| world.at(node).is_untold());
        futures::stream::iter(untold)
            .for_each_concurrent(WRITES_MAX, |node| {
                let (client, world) = (client.clone(), &world);
                async move {
                    let Some(says) = world.at(node).says() else { return };
                    match one_beat(&client, node, Some(&says), wall).await {
                        Ok(()) => world.at(node).told = says,
                        // It is still untold, so it is tried again.
                        Err(error) => {
                            tracing::debug!(node = node.member.name, "its status was refused: {error}");
                            tokio::time::sleep(AGAIN).await;
                        }
                    }
                }
            })
            .await;
    }
}

async fn beat_one(client: &Client, name: &str, now: Timestamp) -> Result<(), kube::Error> {
    let leases: Api<Lease> = Api::namespaced(client.clone(), LEASES);
    let renewed = json!({"spec": {"renewTime": MicroTime(now)}});
    match leases.patch(name, &by(), &Patch::Merge(renewed)).await {
        Err(kube::Error::Api(refused)) if refused.code == 404 => {}
        renewed => return renewed.map(drop),
    }
    let lease = Lease {
        metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() },
        spec: Some(LeaseSpec {
            holder_identity: Some(name.to_owned()),
            lease_duration_seconds: Some(LEASE_SECONDS),
            renew_time: Some(MicroTime(now)),
            ..LeaseSpec::default()
        }),
    };
    leases.create(&PostParams::default(), &lease).await.map(drop)
}

fn by() -> PatchParams {
    PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() }
}

fn status(member: &Member, says: &KubeletSays, now: Timestamp) -> Value {
    // A kubelet says so while its system ends.
    let (ready, why, message) = match says.ready {
        true => ("True", "KubeletReady", "a simulated node"),
        false => ("False", "KubeletNotReady", "node is shutting down"),
    };
    let condition = |kind: &str, status: &str, reason: &str, message: &str| {
        json!({
            "type": kind, "status": status, "reason": reason, "message": message,
            "lastHeartbeatTime": now, "lastTransitionTime": now,
        })
    };
    json!({"status": {
        "capacity": member.capacity,
        "allocatable": member.capacity,
        "conditions": [
            condition("Ready", ready, why, message),
            condition("MemoryPressure", "False", "KubeletHasSufficientMemory", "a simulated node"),
            condition("DiskPressure", "False", "KubeletHasNoDiskPressure", "a simulated node"),
            condition("PIDPressure", "False", "KubeletHasSufficientPID", "a simulated node"),
        ],
        "addresses": [
            {"type": "InternalIP", "address": "127.0.0.1"},
            {"type": "Hostname", "address": member.name},
        ],
        "nodeInfo": {
            "architecture": "amd64", "bootID": says.boot, "containerRuntimeVersion": "sim://1", "kernelVersion": "simulated",
            "kubeProxyVersion": "", "kubeletVersion": concat!("v", env!("CARGO_PKG_VERSION"), "-simulated"),
            "machineID": member.name, "operatingSystem": "linux", "osImage": "simulated",
            "systemUUID": member.name,
        },
    }})
}
