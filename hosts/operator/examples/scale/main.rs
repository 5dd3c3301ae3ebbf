//! What 5,000 nodes cost the operator: `cargo run --release -p operator --example scale [NODES]`.
//!
//! API server and operator are one process: the operator's memory is what the process grows by while it works, its own
//! copies of the answers included.

use embedded_api::{EmbeddedApi, Options};
use futures::StreamExt;
use host_kit::clock::{Clock, SystemClock};
use host_kit::config::{Invocation, load};
use host_kit::program::Context;
use host_kit::shutdown::{self, Tasks};
use kube::Client;
use operator::settings::TABLE;
use operator::{Settings, start};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::error::Error;
use std::ffi::OsString;
use std::io::Write;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::Instant;

type Any = Box<dyn Error + Send + Sync>;

const PODS_PER_NODE: usize = 10;
const EVENTS: usize = 20;
const STEADY: Duration = Duration::from_secs(20);
const JOULIE: &str = "/apis/joulie.io/v1alpha1";

#[tokio::main]
async fn main() -> Result<(), Any> {
    let nodes: usize = std::env::args().nth(1).map_or(Ok(5_000), |text| text.parse())?;
    let api = EmbeddedApi::new(&Options::with(joulie_api::crd::all()))?;
    let client = api.client_as("scale");
    make(&client, "/api/v1/namespaces", &json!({"metadata": {"name": "joulie-system"}})).await?;
    for number in 0..nodes {
        machine(&client, number).await?;
        for pod in 0..PODS_PER_NODE {
            running(&client, &format!("p-{number}-{pod}"), &name(number), "standard").await?;
        }
    }
    let before = resident()?;
    tell(&format!("{nodes} nodes with agents, {} pods: {before:.0} MiB", nodes * PODS_PER_NODE))?;

    let began = Instant::now();
    let (trigger, stop) = shutdown::pair();
    let mut tasks = Tasks::new();
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let context =
        Context { client: api.client_as("operator"), clock, stop, logs: None, shown: String::new() };
    let started = start(settings()?, context, &mut tasks).await?;
    let (_signals, receiver) = tokio::sync::mpsc::channel(1);
    let ended = tokio::spawn(tasks.run(trigger.clone(), receiver, Duration::from_secs(10)));
    let twins = format!("{JOULIE}/nodetwins");
    loop {
        let all = get(&client, &twins).await?;
        let items = all["items"].as_array().map(Vec::as_slice).unwrap_or_default();
        let done = items.iter().filter(|twin| twin["status"]["schedulableClass"].is_string()).count();
        if done == nodes {
            break;
        }
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
    tell(&format!("first plan applied: {:.1} s after the start", began.elapsed().as_secs_f64()))?;
    settle(&api).await;

    let (revision, before_steady) = (api.revision(), states(&client).await?);
    tokio::time::sleep(STEADY).await;
    let objects = states(&client).await?.difference(&before_steady).count();
    let leases = api.revision() - revision;
    tell(&format!(
        "steady for {} s: {objects} objects written, {leases} renewals of the two Leases",
        STEADY.as_secs()
    ))?;

    let mut took = Vec::new();
    for event in 0..EVENTS {
        // One after the other with room between them: passes keep a distance under a storm.
        tokio::time::sleep(Duration::from_secs(2)).await;
        took.push(drained(&api, &client, nodes, event).await?);
    }
    took.sort_unstable();
    let ms = |one: Option<&Duration>| one.map_or(f64::NAN, |one| one.as_secs_f64() * 1e3);
    let (best, half, most) = (ms(took.first()), ms(took.get(EVENTS / 2)), ms(took.last()));
    tell(&format!(
        "pod event to its consequence in the twin, of {EVENTS}: best {best:.1} ms, median {half:.1} ms, worst {most:.1} ms"
    ))?;
    passes(started.metrics).await?;
    tell(&format!(
        "memory of the operator, with its copies of what was written: {:.0} MiB",
        resident()? - before
    ))?;
    trigger.request("the measurement has ended");
    ended.await?;
    Ok(())
}

fn settings() -> Result<Settings, Any> {
    let variables = [("METRICS_ADDR", "127.0.0.1:0")];
    let variables = variables.into_iter().map(|(name, value)| (OsString::from(name), OsString::from(value)));
    match Invocation::read(std::iter::empty(), variables) {
        Invocation::Run(sources) => Ok(Settings::read(&load(&TABLE, &sources)?)?),
        Invocation::Help | Invocation::Version => Err("neither was asked for".into()),
    }
}

fn name(number: usize) -> String {
    format!("ip-10-0-{}-{}.internal", number / 250, number % 250)
}

/// A node and what its agent publishes.
async fn machine(client: &Client, number: usize) -> Result<(), Any> {
    let name = name(number);
    let node = json!({"apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "labels": {"joulie.io/managed": "true", "joulie.io/rack": format!("r{}", number / 40)}},
        "status": {"capacity": {"cpu": "192"}, "allocatable": {"cpu": "192"}, "conditions": [{"type": "Ready", "status": "True"}]}});
    make(client, "/api/v1/nodes", &node).await?;
    patch(client, &format!("/api/v1/nodes/{name}/status"), &json!({"status": node["status"]})).await?;
    let object = format!("node-{number:05}");
    let hardware = json!({"apiVersion": "joulie.io/v1alpha1", "kind": "NodeHardware", "metadata": {"name": object}, "spec": {"nodeName": name}});
    make(client, &format!("{JOULIE}/nodehardwares"), &hardware).await?;
    let status = json!({"status": {
        "cpu": {"rawModel": "AMD EPYC 9654 96-Core Processor", "sockets": 2, "totalCores": 192, "controlAvailable": false,
            "capRange": {"minWattsPerSocket": 100, "maxWattsPerSocket": 360}},
        "power": {"cpuWatts": 300 + number % 100, "sampledAt": "2026-01-01T00:00:00Z", "source": "rapl"}}});
    patch(client, &format!("{JOULIE}/nodehardwares/{object}/status"), &status).await
}

async fn running(client: &Client, pod: &str, node: &str, class: &str) -> Result<(), Any> {
    let object = json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": pod, "namespace": "default", "annotations": {"joulie.io/workload-class": class}},
        "spec": {"nodeName": node, "containers": [{"name": "main", "image": "none"}]}, "status": {"phase": "Running"}});
    make(client, "/api/v1/namespaces/default/pods", &object).await?;
    let path = format!("/api/v1/namespaces/default/pods/{pod}/status");
    patch(client, &path, &json!({"status": {"phase": "Running"}})).await
}

/// From a performance pod on an eco node to the twin that says that the node drains.
async fn drained(api: &EmbeddedApi, client: &Client, nodes: usize, event: usize) -> Result<Duration, Any> {
    let node = name(nodes - 1 - event);
    let path = format!("{JOULIE}/nodetwins?watch=true&resourceVersion={}", api.revision());
    let response = client.send(http::Request::get(path).body(kube::client::Body::empty())?).await?;
    let mut body = http_body_util::BodyExt::into_data_stream(response.into_body());
    let began = Instant::now();
    running(client, &format!("busy-{event}"), &node, "performance").await?;
    let wanted = format!("\"nodeName\":\"{node}\"");
    while let Some(bytes) = body.next().await {
        let bytes = bytes?;
        let text = String::from_utf8_lossy(&bytes);
        if text.contains(&wanted) && text.contains("\"schedulableClass\":\"draining\"") {
            return Ok(began.elapsed());
        }
    }
    Err("the watch has ended".into())
}

/// Waits until nothing but Leases is written.
async fn settle(api: &EmbeddedApi) {
    loop {
        let before = api.revision();
        tokio::time::sleep(Duration::from_secs(3)).await;
        if api.revision() - before < 6 {
            return;
        }
    }
}

/// The states of everything that the operator writes but Leases.
async fn states(client: &Client) -> Result<BTreeSet<String>, Any> {
    let mut states = BTreeSet::new();
    for path in
        ["/api/v1/nodes".to_owned(), format!("{JOULIE}/nodepowerprofiles"), format!("{JOULIE}/nodetwins")]
    {
        let all = get(client, &path).await?;
        let items = all["items"].as_array().into_iter().flatten();
        states
            .extend(items.filter_map(|item| item["metadata"]["resourceVersion"].as_str().map(str::to_owned)));
    }
    Ok(states)
}

/// What the operator itself counted.
async fn passes(address: SocketAddr) -> Result<(), Any> {
    let mut stream = tokio::net::TcpStream::connect(address).await?;
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await?;
    let mut text = String::new();
    stream.read_to_string(&mut text).await?;
    for line in text.lines().filter(|line| line.starts_with("joulie_operator_pass")) {
        tell(line)?;
    }
    Ok(())
}

async fn get(client: &Client, path: &str) -> Result<Value, Any> {
    Ok(client.request(http::Request::get(path).body(Vec::new())?).await?)
}

async fn make(client: &Client, path: &str, body: &Value) -> Result<(), Any> {
    let request = http::Request::post(path).header("content-type", "application/json");
    client.request::<Value>(request.body(body.to_string().into_bytes())?).await?;
    Ok(())
}

async fn patch(client: &Client, path: &str, body: &Value) -> Result<(), Any> {
    let request = http::Request::patch(path).header("content-type", "application/merge-patch+json");
    client.request::<Value>(request.body(body.to_string().into_bytes())?).await?;
    Ok(())
}

/// MiB.
fn resident() -> Result<f64, Any> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("no VmRSS")?;
    Ok(line.trim().trim_end_matches(" kB").trim().parse::<f64>()? / 1024.0)
}

fn tell(line: &str) -> Result<(), Any> {
    Ok(writeln!(std::io::stdout(), "{line}")?)
}
