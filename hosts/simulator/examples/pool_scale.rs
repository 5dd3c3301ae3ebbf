//! What one agent in mode pool costs: `cargo xtask bench pool`, or
//! `cargo build --release -p agent && cargo run --release -p simulator --example pool_scale -- NODES PARTS`.
//!
//! NODES simulated nodes and an API server in memory are in this process. The agent is the shipped program in a process of its own, one
//! of PARTS that share the nodes: it watches the objects of all of them, and reads and caps those of its part. Each node has a profile
//! and a grant. Memory and processor time are the agent's alone; whether this machine carries all of it is told by the readings a second.
#![expect(clippy::print_stdout, reason = "the figures are what it is for")]

use bytes::Bytes;
use embedded_api::{ApiOptions, EmbeddedApi};
use host_kit::clock::SystemClock;
use host_kit::config::LiveConfig;
use host_kit::http_client::{ClientLimits, HttpClient, Trust};
use host_kit::program::Context;
use host_kit::shutdown::{self, Tasks};
use http::Request;
use kube::Client;
use serde_json::{Value, json};
use simulator::fleet::Fleet;
use simulator::{Settings, start};
use std::error::Error;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

type Any = Box<dyn Error>;

const JOULIE: &str = "/apis/joulie.io/v1alpha1";
/// Percent of what a package can do.
const CAP: u32 = 60;
/// Less than nodes with GPUs want, more than the others can draw.
const GRANT_WATTS: u32 = 4_000;
/// After so long without another cap in force, all are that will be.
const SETTLED: Duration = Duration::from_secs(10);
/// How long the start and a change may take.
const PATIENCE: Duration = Duration::from_secs(300);
/// How long the steady state is measured.
const WATCHED: Duration = Duration::from_secs(30);
/// The chart's limit for a replica.
const LIMIT_MIB: f64 = 256.0;
/// Nodes for each replica, as INSTALL says.
const NODES_A_REPLICA: u32 = 500;
/// Ticks of the kernel's processor time in a second.
const USER_HZ: f64 = 100.0;

/// A process and a folder that end with their owner.
struct Agent {
    child: Child,
    folder: PathBuf,
    metrics: SocketAddr,
}

impl Drop for Agent {
    fn drop(&mut self) {
        // It may have ended already.
        let _killed = self.child.kill();
        let _waited = self.child.wait();
        let _left_behind = std::fs::remove_dir_all(&self.folder);
    }
}

#[tokio::main]
async fn main() -> Result<(), Any> {
    let mut arguments = std::env::args().skip(1);
    let mut number = || -> Result<u32, Any> { Ok(arguments.next().ok_or("say NODES and PARTS")?.parse()?) };
    let (nodes, parts) = (number()?, number()?);
    let api = EmbeddedApi::new(&ApiOptions::with(joulie_api::crd::all()))?;
    let client = api.client_as("pool-scale");
    let (trigger, stop) = shutdown::pair();
    let context = Context {
        client: api.client(),
        clock: Arc::new(SystemClock::new()),
        stop,
        logs: None,
        config: LiveConfig::fixed(String::new()),
    };
    let mut tasks = Tasks::new();
    let settings = Settings { heartbeat: Duration::from_secs(30), ..Settings::of(fleet(nodes)?) };
    let simulated = start(settings, context, &mut tasks).await?;
    send(&client, "POST", "/api/v1/namespaces", &json!({"metadata": {"name": "joulie-system"}})).await?;
    for node in simulated.world.nodes().keys() {
        wanted(&client, node).await?;
    }
    let serving = api.serve((Ipv4Addr::LOCALHOST, 0).into(), None, None).await?;
    let folder = std::env::temp_dir().join(format!("joulie-pool-scale-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    serving.write_kubeconfig(&folder.join("kubeconfig"))?;

    let begun = Instant::now();
    let agent = begin(folder, simulated.work, parts)?;
    let (own, took) = until_settled(&client, nodes / parts / 2, begun).await?;
    println!(
        "{nodes} nodes in {parts} parts; {own} of the part of this agent are capped {took:.1?} after its start"
    );
    let measured = measure(&agent, simulated.metrics).await;
    // It would complain of an API server that is gone.
    drop(agent);
    trigger.request("it is measured");
    serving.stop().await;
    let Figures { resident, most, page, cores, readings, writes } = measured?;
    println!("resident {resident:.1} MiB, and {most:.1} MiB at most, with scrapes of {page:.1} MiB");
    println!("processor {:.1} % of a core, {:.0} us for each reading", cores * 100.0, cores * 1e6 / readings);
    println!(
        "{readings:.0} readings and {writes:.1} writes a second; {} readings are due (period 1 s)",
        nodes / parts
    );
    if nodes / parts <= NODES_A_REPLICA {
        let verdict = if most <= LIMIT_MIB { "PASS" } else { "FAIL" };
        println!("BAR pool_{nodes}_in_{parts}_resident_mib {most:.1} {LIMIT_MIB:.0} {verdict}");
    }
    Ok(())
}

/// A half, a third and a sixth, as in the demo.
fn fleet(nodes: u32) -> Result<Fleet, Any> {
    let (xeon, epyc) = (nodes.div_ceil(2), nodes / 3);
    let kinds = format!("xeon:{xeon},epyc:{epyc},gpu:{}", nodes - xeon - epyc);
    Ok(Fleet { racks: nodes.div_ceil(40).min(1_000), ..Fleet::parse(&kinds)? })
}

async fn send(client: &Client, method: &str, path: &str, body: &Value) -> Result<(), Any> {
    let request = Request::builder().method(method).uri(path).header("content-type", "application/json");
    client.request_text(request.body(body.to_string().into_bytes())?).await.map(drop)?;
    Ok(())
}

/// What an operator with limits writes for a node.
async fn wanted(client: &Client, node: &str) -> Result<(), Any> {
    let profile = json!({"nodeName": node, "profile": "eco", "cpu": {"packagePowerCapPctOfMax": CAP}});
    let grant = json!({"nodeName": node, "serial": 1, "watts": GRANT_WATTS, "ceiling": GRANT_WATTS});
    for (kind, plural, spec) in
        [("NodePowerProfile", "nodepowerprofiles", profile), ("NodePowerGrant", "nodepowergrants", grant)]
    {
        let object = json!({"apiVersion": "joulie.io/v1alpha1", "kind": kind, "metadata": {"name": node}, "spec": spec});
        send(client, "POST", &format!("{JOULIE}/{plural}"), &object).await?;
    }
    Ok(())
}

/// Starts the program that was built together with this example.
fn begin(folder: PathBuf, nodes: SocketAddr, parts: u32) -> Result<Agent, Any> {
    let own = std::env::current_exe()?;
    let program = own.parent().and_then(Path::parent).ok_or("this program lies in no folder")?;
    let metrics = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?;
    let endpoint = |what: &str| format!("http://{nodes}/{what}/{{node}}");
    let child = Command::new(program.join("joulie-agent"))
        .env_clear()
        .env("KUBECONFIG", folder.join("kubeconfig"))
        .env("AGENT_MODE", "pool")
        .env("POD_NAME", "joulie-agent-pool-0")
        .env("POOL_SHARDS", parts.to_string())
        .env("STATE_DIR", folder.join("state"))
        .env("TELEMETRY_CPU_SOURCE", "http")
        .env("TELEMETRY_CPU_HTTP_ENDPOINT", endpoint("telemetry"))
        .env("TELEMETRY_CPU_CONTROL", "http")
        .env("TELEMETRY_CPU_CONTROL_HTTP_ENDPOINT", endpoint("control"))
        .env("TELEMETRY_GPU_CONTROL", "http")
        .env("TELEMETRY_GPU_CONTROL_HTTP_ENDPOINT", endpoint("control"))
        .env("METRICS_ADDR", metrics.to_string())
        .env("LOG_LEVEL", "warn")
        .spawn()?;
    Ok(Agent { child, folder, metrics })
}

/// How many caps came into force until no more did, at least so many, and after which time. Under more than this machine carries some
/// leave it again: then the most that were seen.
async fn until_settled(client: &Client, least: u32, begun: Instant) -> Result<(u32, Duration), Any> {
    let (mut most, mut since) = (0, begun);
    loop {
        tokio::time::sleep(Duration::from_millis(500)).await;
        let now = in_force(client).await?;
        if now > most {
            (most, since) = (now, Instant::now());
        }
        if most > least && since.elapsed() >= SETTLED {
            return Ok((most, since - begun));
        }
        if begun.elapsed() > PATIENCE {
            return Err(format!("{now} caps are in force after {PATIENCE:?}, {most} at most").into());
        }
    }
}

async fn in_force(client: &Client) -> Result<u32, Any> {
    let request = Request::get(format!("{JOULIE}/nodepowerprofiles")).body(Vec::new())?;
    let all: Value = client.request(request).await?;
    let is_in_force = |profile: &&Value| {
        let conditions = profile["status"]["conditions"].as_array();
        conditions
            .is_some_and(|all| all.iter().any(|one| one["type"] == "CapEnforced" && one["status"] == "True"))
    };
    Ok(u32::try_from(all["items"].as_array().into_iter().flatten().filter(is_in_force).count())?)
}

struct Figures {
    /// MiB before the first scrape, the most with them, and of a scrape.
    resident: f64,
    most: f64,
    page: f64,
    /// Processor time in a second.
    cores: f64,
    /// Of the simulated nodes, in a second.
    readings: f64,
    /// Of objects, in a second.
    writes: f64,
}

/// The steady state. Pages of metrics are asked for outside of the time that is measured.
async fn measure(agent: &Agent, simulator: SocketAddr) -> Result<Figures, Any> {
    let limits = ClientLimits { timeout: Duration::from_secs(60), bytes_max: 1 << 30, idle_max: 1 };
    let client = HttpClient::new("pool-scale", limits, Trust::Nobody)?;
    let page = async |at: SocketAddr| -> Result<String, Any> {
        let request = Request::get(format!("http://{at}/metrics")).body(Bytes::new())?;
        let page = client.ask(request).await.map_err(|why| format!("{at}: {why:?}"))?;
        Ok(String::from_utf8(page.to_vec())?)
    };
    let requests = async || -> Result<f64, Any> {
        Ok(sum(&page(simulator).await?, "joulie_http_requests_total{", "port=\"work\""))
    };
    let resident = mib(&agent.child, "VmRSS:")?;
    let scraped = page(agent.metrics).await?;
    let written = |page: &str| sum(page, "joulie_agent_writes_total{", "outcome=\"done\"");
    let before = (written(&scraped), requests().await?, cpu_seconds(&agent.child)?, Instant::now());
    tokio::time::sleep(WATCHED).await;
    let (spent, passed) = (cpu_seconds(&agent.child)? - before.2, before.3.elapsed().as_secs_f64());
    let asked = requests().await? - before.1;
    let writes = written(&page(agent.metrics).await?) - before.0;
    Ok(Figures {
        resident,
        most: mib(&agent.child, "VmHWM:")?,
        page: f64::from(u32::try_from(scraped.len())?) / 1_048_576.0,
        cores: spent / passed,
        readings: asked / passed,
        writes: writes / passed,
    })
}

/// Of a metric's series that have this label.
fn sum(page: &str, metric: &str, label: &str) -> f64 {
    let series = page.lines().filter(|line| line.starts_with(metric) && line.contains(label));
    series.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
}

fn mib(process: &Child, field: &str) -> Result<f64, Any> {
    let text = std::fs::read_to_string(format!("/proc/{}/status", process.id()))?;
    let line = text.lines().find_map(|line| line.strip_prefix(field)).ok_or("no such field")?;
    Ok(line.trim().trim_end_matches(" kB").parse::<f64>()? / 1024.0)
}

fn cpu_seconds(process: &Child) -> Result<f64, Any> {
    let text = std::fs::read_to_string(format!("/proc/{}/stat", process.id()))?;
    let (_, rest) = text.rsplit_once(')').ok_or("no stat")?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let ticks = |at: usize| fields.get(at).and_then(|text| text.parse::<f64>().ok()).ok_or("no time");
    Ok((ticks(11)? + ticks(12)?) / USER_HZ)
}
