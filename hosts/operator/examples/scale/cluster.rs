//! The cluster: nodes with agents, running pods, and requests to its API.

use super::Any;
use kube::Client;
use serde_json::{Value, json};
use std::collections::BTreeSet;

pub(crate) const JOULIE: &str = "/apis/joulie.io/v1alpha1";
pub(crate) const PODS_PER_NODE: usize = 10;
pub(crate) const NODES_PER_RACK: usize = 40;

/// Creates everything that exists before the operator starts.
pub(crate) async fn fill(client: &Client, nodes: usize) -> Result<(), Any> {
    make(client, "/api/v1/namespaces", &json!({"metadata": {"name": "joulie-system"}})).await?;
    for number in 0..nodes {
        machine(client, number).await?;
        for pod in 0..PODS_PER_NODE {
            running(client, &format!("p-{number}-{pod}"), &name(number), "standard").await?;
        }
    }
    Ok(())
}

/// Creates nodes, and pods of so many workloads in turn.
pub(crate) async fn fill_with_workloads(client: &Client, nodes: usize, workloads: usize) -> Result<(), Any> {
    make(client, "/api/v1/namespaces", &json!({"metadata": {"name": "joulie-system"}})).await?;
    for number in 0..nodes {
        machine(client, number).await?;
        for pod in 0..PODS_PER_NODE {
            let owner = (number * PODS_PER_NODE + pod) % workloads;
            of_workload(client, &format!("p-{number}-{pod}"), &name(number), owner).await?;
        }
    }
    Ok(())
}

/// A running pod of a StatefulSet.
async fn of_workload(client: &Client, pod: &str, node: &str, owner: usize) -> Result<(), Any> {
    let owner = json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "name": format!("w-{owner}"),
        "uid": format!("w-{owner}"), "controller": true});
    let resources = json!({"requests": {"cpu": "1"}, "limits": {"memory": "1Gi"}});
    let object = json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": pod, "namespace": "default", "ownerReferences": [owner]},
        "spec": {"nodeName": node, "containers": [{"name": "main", "image": "none", "resources": resources}]}});
    make(client, "/api/v1/namespaces/default/pods", &object).await?;
    let path = format!("/api/v1/namespaces/default/pods/{pod}/status");
    patch(client, &path, &json!({"status": {"phase": "Running"}})).await
}

/// The name of a node.
pub(crate) fn name(number: usize) -> String {
    format!("ip-10-0-{}-{}.internal", number / 250, number % 250)
}

/// A node and what its agent publishes.
async fn machine(client: &Client, number: usize) -> Result<(), Any> {
    let name = name(number);
    let said = [
        "architecture",
        "containerRuntimeVersion",
        "kernelVersion",
        "kubeProxyVersion",
        "kubeletVersion",
        "machineID",
        "operatingSystem",
        "osImage",
        "systemUUID",
    ];
    let mut info: Value = said.into_iter().map(|field| (field.to_owned(), json!("none"))).collect();
    info["bootID"] = json!(format!("boot-{number}"));
    let node = json!({"apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "labels": {"joulie.io/managed": "true", "joulie.io/rack": format!("r{}", number / NODES_PER_RACK)}},
        "status": {"nodeInfo": info, "capacity": {"cpu": "192"}, "allocatable": {"cpu": "192"}, "conditions": [{"type": "Ready", "status": "True"}]}});
    make(client, "/api/v1/nodes", &node).await?;
    patch(client, &format!("/api/v1/nodes/{name}/status"), &json!({"status": node["status"]})).await?;
    let object = format!("node-{number:05}");
    // Two models in turn: the policies order the nodes by model, not by name.
    let (model, cores) = if number.is_multiple_of(2) {
        ("AMD EPYC 9654 96-Core Processor", 192)
    } else {
        ("Intel(R) Xeon(R) Platinum 8480+", 112)
    };
    let hardware = json!({"apiVersion": "joulie.io/v1alpha1", "kind": "NodeHardware", "metadata": {"name": object}, "spec": {"nodeName": name}});
    make(client, &format!("{JOULIE}/nodehardwares"), &hardware).await?;
    let status = json!({"status": {
        "cpu": {"rawModel": model, "sockets": 2, "totalCores": cores, "controlAvailable": true,
            "capRange": {"minWattsPerSocket": 100, "maxWattsPerSocket": 360}},
        "power": {"cpuWatts": 300 + number % 100, "sampledAt": "2026-01-01T00:00:00Z", "source": "rapl"}}});
    patch(client, &format!("{JOULIE}/nodehardwares/{object}/status"), &status).await
}

/// A pod that runs on a node.
pub(crate) async fn running(client: &Client, pod: &str, node: &str, class: &str) -> Result<(), Any> {
    let object = json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": pod, "namespace": "default", "annotations": {"joulie.io/workload-class": class}},
        "spec": {"nodeName": node, "containers": [{"name": "main", "image": "none"}]}, "status": {"phase": "Running"}});
    make(client, "/api/v1/namespaces/default/pods", &object).await?;
    let path = format!("/api/v1/namespaces/default/pods/{pod}/status");
    patch(client, &path, &json!({"status": {"phase": "Running"}})).await
}

/// How many twins have a status.
pub(crate) async fn twins_with_status(client: &Client) -> Result<usize, Any> {
    let all = get(client, &format!("{JOULIE}/nodetwins")).await?;
    let items = all["items"].as_array().map(Vec::as_slice).unwrap_or_default();
    Ok(items.iter().filter(|twin| twin["status"]["schedulableClass"].is_string()).count())
}

/// The states of everything that the operator writes, except Leases.
pub(crate) async fn states(client: &Client) -> Result<BTreeSet<String>, Any> {
    let mut states = BTreeSet::new();
    for kind in ["nodepowerprofiles", "nodepowergrants", "nodetwins", "workloadprofiles", "nodes"] {
        let path = if kind == "nodes" { "/api/v1/nodes".to_owned() } else { format!("{JOULIE}/{kind}") };
        let all = get(client, &path).await?;
        let items = all["items"].as_array().into_iter().flatten();
        states
            .extend(items.filter_map(|item| {
                Some(format!("{kind} {}", item["metadata"]["resourceVersion"].as_str()?))
            }));
    }
    Ok(states)
}

pub(crate) async fn get(client: &Client, path: &str) -> Result<Value, Any> {
    Ok(client.request(http::Request::get(path).body(Vec::new())?).await?)
}

async fn make(client: &Client, path: &str, body: &Value) -> Result<(), Any> {
    let request = http::Request::post(path).header("content-type", "application/json");
    client.request::<Value>(request.body(body.to_string().into_bytes())?).await?;
    Ok(())
}

pub(crate) async fn patch(client: &Client, path: &str, body: &Value) -> Result<(), Any> {
    let request = http::Request::patch(path).header("content-type", "application/merge-patch+json");
    client.request::<Value>(request.body(body.to_string().into_bytes())?).await?;
    Ok(())
}
