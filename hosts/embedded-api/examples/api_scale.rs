//! The cost of 10,000 nodes with twins and hardware: `cargo run --release -p embedded-api --example api_scale`.
//!
//! Everything runs in this process. Until the watches open, the memory is that of the server. The times include the
//! client's copy of the answers, but no decoding of objects.

use embedded_api::{ApiOptions, EmbeddedApi};
use futures::StreamExt;
use http_body_util::BodyExt;
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use std::error::Error;
use std::io::Write;
use std::time::Duration;
use tokio::time::Instant;

type Any = Box<dyn Error + Send + Sync>;

const NODES: usize = 10_000;
const WATCHERS: usize = 10;
const CHANGES: usize = 10_000;
const ROUNDS: usize = 7;

#[tokio::main]
async fn main() -> Result<(), Any> {
    let api = EmbeddedApi::new(&ApiOptions::with(vec![
        kind("nodetwins", "NodeTwin")?,
        kind("nodehardwares", "NodeHardware")?,
    ]))?;
    let client = api.client_as("scale");
    tell(&format!("empty: {:.0} MiB resident", resident()?))?;
    let start = Instant::now();
    for number in 0..NODES {
        make(&client, "/api/v1/nodes", &node(number)).await?;
        make(&client, "/apis/joulie.io/v1alpha1/nodetwins", &object("NodeTwin", number)).await?;
        make(&client, "/apis/joulie.io/v1alpha1/nodehardwares", &object("NodeHardware", number)).await?;
    }
    let took = start.elapsed();
    let each = took.as_secs_f64() * 1e6 / (3.0 * 10_000.0);
    tell(&format!(
        "{NODES} nodes, twins and hardware: created in {:.1} s, {each:.0} us each",
        took.as_secs_f64()
    ))?;
    tell(&format!("memory: {:.0} MiB resident", resident()?))?;
    lists("in process", &client).await?;
    let serving = api.serve("127.0.0.1:0".parse()?, None, None).await?;
    let remote = Client::try_from(kube::Config::new(format!("http://{}", serving.address()).parse()?))?;
    lists("over HTTP", &remote).await?;
    fan_out("in process", &client, &client).await?;
    fan_out("over HTTP", &client, &remote).await?;
    tell(&format!("memory in the end, clients included: {:.0} MiB resident", resident()?))?;
    serving.stop().await;
    Ok(())
}

async fn lists(how: &str, client: &Client) -> Result<(), Any> {
    for path in ["/api/v1/nodes", "/apis/joulie.io/v1alpha1/nodetwins", "/api/v1/nodes?limit=500"] {
        let mut best = Duration::MAX;
        let mut size = 0;
        for _ in 0..ROUNDS {
            let start = Instant::now();
            let (mut pages, mut next) = (0, String::new());
            loop {
                let request = http::Request::get(format!("{path}{next}")).body(Body::empty())?;
                let bytes = client.send(request).await?.into_body().collect().await?.to_bytes();
                size = if pages == 0 { bytes.len() } else { size + bytes.len() };
                pages += 1;
                let head = bytes.get(..300).and_then(|head| std::str::from_utf8(head).ok()).unwrap_or("");
                match head.split_once("\"continue\":\"").and_then(|(_, rest)| rest.split_once('"')) {
                    Some((token, _)) => next = format!("&continue={token}"),
                    None => break,
                }
            }
            best = best.min(start.elapsed());
        }
        let (ms, mega) = (best.as_secs_f64() * 1e3, size / 1_000_000);
        tell(&format!("list {how} {path}: {ms:.1} ms, {mega} MB, best of {ROUNDS}"))?;
    }
    Ok(())
}

/// Patches twins one after the other while the watchers read.
async fn fan_out(how: &str, writer: &Client, reader: &Client) -> Result<(), Any> {
    let twins = "/apis/joulie.io/v1alpha1/nodetwins";
    let mut watchers = Vec::new();
    let revision = revision(writer).await?;
    for _ in 0..WATCHERS {
        let path = format!("{twins}?watch=true&resourceVersion={revision}");
        let response = reader.send(http::Request::get(path).body(Body::empty())?).await?;
        watchers.push(tokio::spawn(async move {
            let mut body = response.into_body().into_data_stream();
            let mut lines = 0;
            while lines < CHANGES {
                let Some(Ok(bytes)) = body.next().await else { break };
                lines += bytes.iter().filter(|byte| **byte == b'\n').count();
            }
            lines
        }));
    }
    let start = Instant::now();
    for number in 0..CHANGES {
        let body = json!({"status": {"score": revision + number, "conditions": []}}).to_string();
        let path = format!("{twins}/node-{:05}/status", number % NODES);
        let request = http::Request::patch(path).header("content-type", "application/merge-patch+json");
        let response = writer.send(request.body(Body::from(body.into_bytes()))?).await?;
        if !response.status().is_success() {
            return Err(format!("a patch was answered by {}", response.status()).into());
        }
    }
    let written = start.elapsed();
    let mut seen = 0;
    for watcher in watchers {
        seen += watcher.await?;
    }
    let (written, all) = (written.as_secs_f64(), start.elapsed().as_secs_f64());
    let rate = f64::from(u32::try_from(seen)?) / all;
    tell(&format!(
        "fan-out {how}: {CHANGES} patches in {written:.2} s, {seen} events at {WATCHERS} watchers after {all:.2} s, \
         {rate:.0} events/s"
    ))
}

async fn revision(client: &Client) -> Result<usize, Any> {
    let request = http::Request::get("/api/v1/namespaces").body(Body::empty())?;
    let bytes = client.send(request).await?.into_body().collect().await?.to_bytes();
    let list: Value = serde_json::from_slice(&bytes)?;
    Ok(list["metadata"]["resourceVersion"].as_str().unwrap_or("0").parse()?)
}

async fn make(client: &Client, path: &str, body: &Value) -> Result<(), Any> {
    let request = http::Request::post(path).header("content-type", "application/json");
    let response = client.send(request.body(Body::from(body.to_string().into_bytes()))?).await?;
    if response.status().is_success() { Ok(()) } else { Err(format!("{path}: {}", response.status()).into()) }
}

/// A node as a kubelet and its plugins write it.
fn node(number: usize) -> Value {
    let labels: serde_json::Map<_, _> = (0..16)
        .map(|label| (format!("feature.node.kubernetes.io/cpu-cpuid.feature-{label}"), json!("true")))
        .chain([
            ("joulie.io/managed".to_owned(), json!("true")),
            ("joulie.io/rack".to_owned(), json!(format!("r{}", number / 40))),
        ])
        .collect();
    let conditions: Vec<_> = ["MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable", "Ready"]
        .iter()
        .map(|name| {
            json!({"type": name, "status": if *name == "Ready" { "True" } else { "False" },
            "lastHeartbeatTime": "2026-01-01T00:00:00Z", "lastTransitionTime": "2026-01-01T00:00:00Z",
            "reason": "KubeletHasSufficient", "message": "kubelet has sufficient of everything it needs"})
        })
        .collect();
    let resources = json!({"cpu": "128", "memory": "1056444112Ki", "ephemeral-storage": "3750000000Ki", "pods": "110",
        "nvidia.com/gpu": "8", "hugepages-1Gi": "0", "hugepages-2Mi": "0"});
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": format!("node-{number:05}"), "labels": labels},
        "spec": {"podCIDR": "10.0.0.0/24", "providerID": format!("metal://{number}")},
        "status": {"capacity": resources, "allocatable": resources, "conditions": conditions,
            "addresses": [{"type": "InternalIP", "address": "10.1.2.3"}, {"type": "Hostname", "address": "node"}],
            "nodeInfo": {"machineID": "m", "systemUUID": "s", "bootID": "b", "kernelVersion": "6.8.0",
                "osImage": "Debian GNU/Linux 12", "containerRuntimeVersion": "containerd://2.0", "kubeletVersion": "v1.33.0",
                "kubeProxyVersion": "", "operatingSystem": "linux", "architecture": "amd64"}}})
}

fn object(kind: &str, number: usize) -> Value {
    let name = format!("node-{number:05}");
    json!({"apiVersion": "joulie.io/v1alpha1", "kind": kind, "metadata": {"name": name, "labels": {"joulie.io/managed-by": "operator"}},
        "spec": {"nodeName": name, "profile": "eco", "cpu": {"packagePowerCapWatts": 250, "packagePowerCapPctOfMax": 60},
            "gpu": {"powerCap": {"scope": "perGpu", "capWattsPerGpu": 400}}, "policy": {"name": "static-partition-v1"}}})
}

/// A kind with an unrestricted specification and status, so that the cost is in the objects and not in validation.
fn kind(
    plural: &str,
    kind: &str,
) -> Result<k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition, Any>
{
    let free = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    Ok(serde_json::from_value(json!({
        "metadata": {"name": format!("{plural}.joulie.io")},
        "spec": {"group": "joulie.io", "scope": "Cluster", "names": {"plural": plural, "kind": kind},
            "versions": [{"name": "v1alpha1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": free, "status": free}}}}]},
    }))?)
}

/// The resident memory in MiB.
fn resident() -> Result<f64, Any> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("no VmRSS")?;
    Ok(line.trim().trim_end_matches(" kB").trim().parse::<f64>()? / 1024.0)
}

fn tell(line: &str) -> Result<(), Any> {
    Ok(writeln!(std::io::stdout(), "{line}")?)
}
