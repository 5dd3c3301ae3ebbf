//! `kubectl joulie` at 5,000 nodes: what `status` costs, and what `top` costs while it is looked at and the twins change.
//! `cargo xtask bench kubectl`, or `cargo build --release -p kubectl-joulie &&
//! cargo run --release -p kubectl-joulie --example kubectl_scale [NODES [SECONDS]]`.
//!
//! The plugin is the shipped program in processes of its own; the API server is in this process, over HTTP. The wall time of
//! `status` has the server's part in it.

use embedded_api::{ApiOptions, EmbeddedApi};
use kube::Client;
use serde_json::{Value, json};
use std::error::Error;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::time::Instant;

type Any = Box<dyn Error + Send + Sync>;

const JOULIE: &str = "/apis/joulie.io/v1alpha1";
const PODS_PER_NODE: usize = 10;
/// The images on a typical node in use.
const IMAGES: usize = 50;
const ROUNDS: u32 = 5;
/// Each node's twin changes so often: as often as an agent says what it draws.
const TWIN_EVERY: Duration = Duration::from_secs(10);
/// The changes are written in so many parts of a second.
const PARTS: u32 = 10;

/// The bars.
const STATUS_MS: f64 = 1_000.0;
const TOP_CORE_PERCENT: f64 = 5.0;

#[tokio::main]
async fn main() -> Result<(), Any> {
    let nodes: usize = std::env::args().nth(1).map_or(Ok(5_000), |text| text.parse())?;
    let seconds: u64 = std::env::args().nth(2).map_or(Ok(30), |text| text.parse())?;
    let beside = std::env::current_exe()?;
    let program =
        beside.parent().and_then(Path::parent).ok_or("the folder of this program")?.join("kubectl-joulie");
    let api = EmbeddedApi::new(&ApiOptions::with(joulie_api::crd::all()))?;
    let client = api.client_as("scale");
    fill(&client, nodes).await?;
    let serving = api.serve("127.0.0.1:0".parse()?, None, None).await?;
    let kubeconfig = std::env::temp_dir().join(format!("joulie-kubectl-scale-{}", std::process::id()));
    serving.write_kubeconfig(&kubeconfig)?;
    tell(&format!("{nodes} nodes with all of Joulie's objects, {} pods", nodes * PODS_PER_NODE))?;
    let plugin = Plugin { program, kubeconfig };
    let measured = measure(&plugin, &client, nodes, Duration::from_secs(seconds)).await;
    std::fs::remove_file(&plugin.kubeconfig)?;
    serving.stop().await;
    measured
}

struct Plugin {
    program: PathBuf,
    kubeconfig: PathBuf,
}

impl Plugin {
    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.arg("--kubeconfig").arg(&self.kubeconfig).args(words).stdin(Stdio::null());
        command
    }
}

async fn measure(plugin: &Plugin, client: &Client, nodes: usize, lasting: Duration) -> Result<(), Any> {
    for (name, words) in [("status", &["status"][..]), ("status_wide", &["status", "-o", "wide"])] {
        let (mut best, before) = (Duration::MAX, ended_children_ms()?);
        for _ in 0..ROUNDS {
            let began = Instant::now();
            let output = tokio::task::block_in_place(|| plugin.command(words).output())?;
            best = best.min(began.elapsed());
            let lines = output.stdout.split(|byte| *byte == b'\n').count();
            if !output.status.success() || lines < nodes {
                return Err(
                    format!("{words:?}: {lines} lines: {}", String::from_utf8_lossy(&output.stderr)).into()
                );
            }
        }
        let spent = (ended_children_ms()? - before) / f64::from(ROUNDS);
        bar(&format!("kubectl_{name}_ms"), best.as_secs_f64() * 1e3, STATUS_MS)?;
        bar(&format!("kubectl_{name}_processor_ms"), spent, STATUS_MS)?;
    }
    top(plugin, client, nodes, lasting).await
}

/// The share of a core that `top` takes from its first picture on, while the twins change.
async fn top(plugin: &Plugin, client: &Client, nodes: usize, lasting: Duration) -> Result<(), Any> {
    let changing = tokio::spawn(change(client.clone(), nodes));
    let words = ["top", "--for", "10m"];
    let mut child = Killed(plugin.command(&words).stdout(Stdio::piped()).spawn()?);
    let pictures = pictures(&mut child.0)?;
    let seen = || pictures.load(Ordering::Relaxed);
    while seen() == 0 {
        if let Some(status) = child.0.try_wait()? {
            return Err(format!("top ended with {status}").into());
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let (began, before, first) = (Instant::now(), processor_ms(&child.0)?, seen());
    tokio::time::sleep(lasting).await;
    let (took, spent, shown) = (began.elapsed(), processor_ms(&child.0)? - before, seen() - first);
    changing.abort();
    let percent = spent / (took.as_secs_f64() * 1e3) * 100.0;
    tell(&format!("top: {shown} pictures in {:.1} s, {spent:.0} ms of processor time", took.as_secs_f64()))?;
    bar("kubectl_top_core_percent", percent, TOP_CORE_PERCENT)?;
    // Once a second, where something changes in each.
    let most = took.as_secs_f64() / f64::from(u32::try_from(shown)?).max(f64::MIN_POSITIVE);
    bar("kubectl_top_seconds_for_each_picture", most, 1.1)
}

/// A process that ends with this.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _gone_already = self.0.kill();
        let _reaped = self.0.wait();
    }
}

/// Counts the pictures that a process draws: each begins in the corner.
fn pictures(child: &mut Child) -> Result<Arc<AtomicUsize>, Any> {
    let mut drawn = child.stdout.take().ok_or("its standard output")?;
    let count: Arc<AtomicUsize> = Arc::default();
    let counted = Arc::clone(&count);
    std::thread::spawn(move || {
        let mut part = [0; 1 << 16];
        while let Ok(length @ 1..) = drawn.read(&mut part) {
            let corners =
                part.get(..length).unwrap_or_default().windows(3).filter(|three| three == b"\x1b[H").count();
            counted.fetch_add(corners, Ordering::Relaxed);
        }
    });
    Ok(count)
}

/// Changes what each node draws, node after node, and does not end.
async fn change(client: Client, nodes: usize) -> Result<(), Any> {
    let mut ticks = tokio::time::interval(Duration::from_secs(1) / PARTS);
    let each = nodes.div_ceil(usize::try_from(TWIN_EVERY.as_secs() * u64::from(PARTS))?);
    let (mut at, mut round) = (0, 0);
    loop {
        ticks.tick().await;
        for _ in 0..each {
            let drawn = 300 + (at * 37 + round * 53) % 200;
            let status = json!({"status": {"powerMeasurement": {"measuredNodePowerW": drawn}}});
            patch(&client, &format!("{JOULIE}/nodetwins/{}/status", name(at)), &status).await?;
            at += 1;
            if at == nodes {
                (at, round) = (0, round + 1);
            }
        }
    }
}

/// The processor time of a process, in milliseconds.
fn processor_ms(child: &Child) -> Result<f64, Any> {
    let mut nanos = 0.0;
    for thread in std::fs::read_dir(format!("/proc/{}/task", child.id()))? {
        let text = std::fs::read_to_string(thread?.path().join("schedstat"))?;
        nanos += text.split_whitespace().next().ok_or("schedstat is empty")?.parse::<f64>()?;
    }
    Ok(nanos / 1e6)
}

/// The processor time of the processes that this one has started and that have ended, in milliseconds. The kernel counts it in
/// hundredths of a second.
fn ended_children_ms() -> Result<f64, Any> {
    let text = std::fs::read_to_string("/proc/self/stat")?;
    // The name of the program, in parentheses, may have spaces; after it the fields begin with the third.
    let (_, rest) = text.rsplit_once(')').ok_or("no name in stat")?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let ticks = |at: usize| -> Result<f64, Any> { Ok(fields.get(at).ok_or("stat is short")?.parse()?) };
    Ok((ticks(13)? + ticks(14)?) * 10.0)
}

fn name(number: usize) -> String {
    format!("ip-10-0-{}-{}.internal", number / 250, number % 250)
}

/// All objects, as the programs write them.
async fn fill(client: &Client, nodes: usize) -> Result<(), Any> {
    for number in 0..nodes {
        node(client, number).await?;
        for (plural, kind, spec, status) in about(number) {
            let object = json!({"apiVersion": "joulie.io/v1alpha1", "kind": kind, "metadata": {"name": name(number)}, "spec": spec});
            make(client, &format!("{JOULIE}/{plural}"), &object).await?;
            patch(client, &format!("{JOULIE}/{plural}/{}/status", name(number)), &json!({"status": status}))
                .await?;
        }
        for pod in 0..PODS_PER_NODE {
            let object = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": format!("p-{number}-{pod}"), "namespace": "default"},
                "spec": {"nodeName": name(number), "containers": [{"name": "main", "image": "none", "resources": {"requests": {"cpu": "4", "memory": "8Gi"}}}]}});
            make(client, "/api/v1/namespaces/default/pods", &object).await?;
        }
    }
    let budget = json!({"apiVersion": "joulie.io/v1alpha1", "kind": "PowerBudget", "metadata": {"name": "site"},
        "spec": {"watts": nodes * 500, "mode": "enforce"}});
    make(client, &format!("{JOULIE}/powerbudgets"), &budget).await
}

async fn node(client: &Client, number: usize) -> Result<(), Any> {
    let name = name(number);
    let image = |at: usize| json!({"names": [format!("images.example/team-{at}/service-{at}@sha256:{at:064x}")], "sizeBytes": 100_000_000});
    let images: Vec<Value> = (0..IMAGES).map(image).collect();
    let labels = json!({"joulie.io/managed": "true", "joulie.io/power-profile": class(number)});
    let object = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}});
    make(client, "/api/v1/nodes", &object).await?;
    let status = json!({"status": {"capacity": {"cpu": "192"}, "allocatable": {"cpu": "192", "memory": "768Gi"},
        "conditions": [{"type": "Ready", "status": "True"}], "images": images}});
    patch(client, &format!("/api/v1/nodes/{name}/status"), &status).await
}

fn class(number: usize) -> &'static str {
    if number.is_multiple_of(3) { "performance" } else { "eco" }
}

type About = (&'static str, &'static str, Value, Value);

/// The objects about a node: plural and kind, spec and status.
fn about(number: usize) -> [About; 4] {
    let (name, class, drawn) = (name(number), class(number), 300 + number % 200);
    let at = "2026-01-01T00:00:00Z";
    let condition = |about: &str, reason: &str| json!([{"type": about, "status": "True", "reason": reason, "message": "", "lastTransitionTime": at}]);
    let desired = json!({"nodeName": name, "profile": class, "cpu": {"packagePowerCapPctOfMax": 60}, "policy": {"name": "queue-aware-v1"}});
    let power = json!({"source": "agent", "measuredNodePowerW": drawn, "nodeCappedPowerW": 520, "cpuCappedPowerW": 520, "nodeTdpW": 720,
        "cpuTdpW": 720, "powerTrendWPerMin": 0, "sampledAt": at});
    [
        (
            "nodehardwares",
            "NodeHardware",
            json!({"nodeName": name}),
            json!({
            "cpu": {"rawModel": "AMD EPYC 9654 96-Core Processor", "sockets": 2, "totalCores": 192, "controlAvailable": true,
                "capRange": {"minWattsPerSocket": 100, "maxWattsPerSocket": 360}},
            "power": {"cpuWatts": drawn, "sampledAt": at, "source": "rapl"}}),
        ),
        (
            "nodepowerprofiles",
            "NodePowerProfile",
            desired.clone(),
            json!({
            "conditions": condition("CapEnforced", "Enforced"),
            "control": {"cpu": {"backend": "rapl", "result": "applied", "observedGeneration": 1, "requestedWatts": 216, "capWatts": 216}}}),
        ),
        (
            "nodetwins",
            "NodeTwin",
            desired,
            json!({
            "schedulableClass": class, "predictedPowerHeadroomScore": number % 80, "predictedCoolingStressScore": number % 60,
            "predictedPsuStressScore": 30, "effectiveCapState": {"cpuPct": 60, "gpuPct": 100}, "powerMeasurement": power,
            "lastUpdated": at, "planLease": "joulie-plan", "conditions": condition("TelemetryFresh", "Sampled")}),
        ),
        (
            "nodepowergrants",
            "NodePowerGrant",
            json!({"nodeName": name, "serial": 7, "watts": 560, "ceiling": 700}),
            json!({"serial": 7, "holds": 550, "floor": 200}),
        ),
    ]
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

/// Prints one line for comparing runs.
fn bar(name: &str, value: f64, limit: f64) -> Result<(), Any> {
    let verdict = if value <= limit { "PASS" } else { "FAIL" };
    tell(&format!("BAR {name} {value:.1} {limit} {verdict}"))
}

fn tell(line: &str) -> Result<(), Any> {
    Ok(writeln!(std::io::stdout(), "{line}")?)
}
