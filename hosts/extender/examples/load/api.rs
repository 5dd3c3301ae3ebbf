//! An API server in a process of its own, as in a cluster: its watches and the extender's clients must not delay each
//! other.

use super::{Any, Program, bodies};
use embedded_api::{ApiOptions, EmbeddedApi};
use http::Request;
use kube::{Client, Config};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::process::{ChildStdin, Command, Stdio};
use std::time::Duration;

pub(crate) const EVENTS_PER_SECOND: usize = 1_000;

/// The API server's process, as its parent sees it.
pub(crate) struct Api {
    pub(crate) address: SocketAddr,
    orders: ChildStdin,
    _program: Program,
}

impl Api {
    /// Starts it with this many nodes.
    pub(crate) fn start(nodes: usize) -> Result<Self, Any> {
        Self::start_with(&[&nodes.to_string()])
    }

    /// The same with eight GPUs on each node.
    pub(crate) fn start_with_gpus(nodes: usize) -> Result<Self, Any> {
        Self::start_with(&[&nodes.to_string(), GPUS])
    }

    /// The same with the Nodes themselves, and pods on them.
    pub(crate) fn start_with_pods(nodes: usize) -> Result<Self, Any> {
        Self::start_with(&[&nodes.to_string(), PODS])
    }

    fn start_with(words: &[&str]) -> Result<Self, Any> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("--api").args(words).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut program = Program(command.spawn()?);
        let orders = program.0.stdin.take().ok_or("its standard input")?;
        let mut address = String::new();
        BufReader::new(program.0.stdout.take().ok_or("its standard output")?).read_line(&mut address)?;
        Ok(Self { address: address.trim().parse()?, orders, _program: program })
    }

    /// A client of it.
    pub(crate) fn client(&self) -> Result<Client, Any> {
        Ok(Client::try_from(Config::new(format!("http://{}", self.address).parse()?))?)
    }

    /// The total number of writes so far.
    pub(crate) async fn writes(&self) -> Result<u64, Any> {
        let client = self.client()?;
        let request = Request::get("/apis/joulie.io/v1alpha1/nodetwins?limit=1").body(Vec::new())?;
        let list: Value = client.request(request).await?;
        Ok(list["metadata"]["resourceVersion"].as_str().ok_or("a list without a version")?.parse()?)
    }

    /// From now on twins change.
    pub(crate) fn feed(&mut self) -> Result<(), Any> {
        Ok(self.orders.write_all(b"feed\n")?)
    }
}

/// The word that asks for GPUs.
const GPUS: &str = "gpus";
/// The word that asks for Nodes and pods.
const PODS: &str = "pods";
/// As many as the operator's figures are for.
pub(crate) const PODS_A_NODE: usize = 10;

/// The process itself: prints its address once its nodes exist, and changes twins from the first order on.
pub(crate) async fn serve(nodes: &str, words: &[&str]) -> Result<(), Any> {
    let nodes = nodes.parse()?;
    let api = EmbeddedApi::new(&ApiOptions::with(joulie_api::crd::all()))?;
    fill(&api.client(), nodes).await?;
    if words.contains(&GPUS) {
        fill_gpus(&api.client(), nodes).await?;
    }
    if words.contains(&PODS) {
        fill_pods(&api.client(), nodes).await?;
    }
    let serving = api.serve("127.0.0.1:0".parse()?, None, None).await?;
    writeln!(std::io::stdout(), "{}", serving.address())?;
    if order().await? {
        tokio::select! {
            fed = feed(api.client(), nodes) => fed?,
            _ended = order() => {}
        }
    }
    Ok(())
}

/// Waits for an order. Returns false once the parent process is gone.
async fn order() -> Result<bool, Any> {
    let line = tokio::task::spawn_blocking(|| std::io::stdin().read_line(&mut String::new())).await??;
    Ok(line > 0)
}

async fn fill(client: &Client, count: usize) -> Result<(), Any> {
    for number in 0..count {
        let name = bodies::name(number);
        let class = if bodies::is_eco(number) { "eco" } else { "performance" };
        let head = |kind: &str, spec: Value| json!({"apiVersion": "joulie.io/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec});
        let twin = head("NodeTwin", json!({"nodeName": name, "profile": class}));
        let hardware = head("NodeHardware", json!({"nodeName": name}));
        send(client, "POST", "/apis/joulie.io/v1alpha1/nodetwins", &twin).await?;
        send(client, "POST", "/apis/joulie.io/v1alpha1/nodehardwares", &hardware).await?;
        let status = json!({"status": {"cpu": {"totalCores": 96, "sockets": 2, "capRange": {"maxWattsPerSocket": 360}}}});
        send(client, "PATCH", &format!("/apis/joulie.io/v1alpha1/nodehardwares/{name}/status"), &status)
            .await?;
        measure(client, number, 300).await?;
    }
    Ok(())
}

async fn fill_gpus(client: &Client, count: usize) -> Result<(), Any> {
    for gpu in bodies::gpus(count) {
        let name = &gpu["metadata"]["name"];
        let made = json!({"apiVersion": gpu["apiVersion"], "kind": gpu["kind"], "metadata": {"name": name}, "spec": gpu["spec"]});
        send(client, "POST", "/apis/gpu.mle.com/v1alpha1/gpus", &made).await?;
        let path = format!("/apis/gpu.mle.com/v1alpha1/gpus/{}/status", name.as_str().unwrap_or_default());
        send(client, "PATCH", &path, &json!({"status": gpu["status"]})).await?;
    }
    Ok(())
}

async fn fill_pods(client: &Client, count: usize) -> Result<(), Any> {
    let has = json!({"cpu": "96", "memory": "384Gi", "pods": "250"});
    for number in 0..count {
        let name = bodies::name(number);
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {"joulie.io/managed": "true"}}});
        send(client, "POST", "/api/v1/nodes", &node).await?;
        let status = json!({"status": {"capacity": has, "allocatable": has, "conditions": [{"type": "Ready", "status": "True"}]}});
        send(client, "PATCH", &format!("/api/v1/nodes/{name}/status"), &status).await?;
        for pod in 0..PODS_A_NODE {
            let mut spec = bodies::pod("standard")["spec"].take();
            spec["nodeName"] = json!(name);
            let pod = json!({"apiVersion": "v1", "kind": "Pod", "spec": spec,
                "metadata": {"name": format!("p-{number}-{pod}"), "namespace": "default", "labels": {"app": "web"}}});
            send(client, "POST", "/api/v1/namespaces/default/pods", &pod).await?;
        }
    }
    Ok(())
}

async fn measure(client: &Client, number: usize, watts: usize) -> Result<(), Any> {
    let class = if bodies::is_eco(number) { "eco" } else { "performance" };
    let status = json!({"status": {
        "schedulableClass": class, "predictedPowerHeadroomScore": 60, "predictedCoolingStressScore": 10,
        "lastUpdated": jiff::Timestamp::now().to_string(),
        "powerMeasurement": {"source": "http", "measuredNodePowerW": watts, "nodeCappedPowerW": 720, "powerTrendWPerMin": 1.5},
    }});
    let path = format!("/apis/joulie.io/v1alpha1/nodetwins/{}/status", bodies::name(number));
    send(client, "PATCH", &path, &status).await
}

async fn send(client: &Client, method: &str, path: &str, body: &Value) -> Result<(), Any> {
    let kind = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
    let request = Request::builder().method(method).uri(path).header("content-type", kind);
    client.request::<Value>(request.body(body.to_string().into_bytes())?).await?;
    Ok(())
}

/// Changes this many twins a second until the task is aborted.
async fn feed(client: Client, count: usize) -> Result<(), Any> {
    let mut beat = tokio::time::interval(Duration::from_millis(10));
    let mut number = 0;
    loop {
        beat.tick().await;
        for _ in 0..EVENTS_PER_SECOND / 100 {
            number += 1;
            measure(&client, number % count, 300 + number % 97).await?;
        }
    }
}
