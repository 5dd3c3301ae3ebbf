//! The cost of simulated nodes: `cargo run -p simulator --example sim_scale -- NODES [SPEED]`.
//!
//! The nodes, an API server in memory and three pods a node run in this process. It prints how long registration and
//! the start of the pods take, and the memory and processor time of the process before and after. It has no pass or
//! fail limits.
#![expect(clippy::print_stdout, reason = "the figures are what it is for")]

use embedded_api::{ApiOptions, EmbeddedApi};
use host_kit::clock::{HostClock, SystemClock};
use host_kit::config::LiveConfig;
use host_kit::program::Context;
use host_kit::shutdown::{self, Tasks};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{ListParams, PostParams};
use serde_json::json;
use simulator::fleet::{Fleet, NodeKind};
use simulator::{Settings, start};
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

/// How long the steady state is measured.
const WATCHED: Duration = Duration::from_secs(20);

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let nodes: u32 = arguments.next().ok_or("say how many nodes")?.parse()?;
    let speed: f64 = arguments.next().map_or(Ok(1.0), |text| text.parse())?;
    let api = EmbeddedApi::new(&ApiOptions::with(Vec::new()))?;
    let clock = Arc::new(SystemClock::new());
    let (_trigger, stop) = shutdown::pair();
    let config = LiveConfig::fixed(String::new());
    let context = Context { client: api.client(), clock: clock.clone(), stop, logs: None, config };
    let mut tasks = Tasks::new();
    let empty = memory_kib()?;
    let began = clock.mono();
    let settings = Settings { speed, ..Settings::of(fleet(nodes)?) };
    let started = start(settings, context, &mut tasks).await?;
    let registered = clock.mono();
    println!("{nodes} nodes registered in {:?}; {} KiB more", registered.since(began), memory_kib()? - empty);

    let pods: Api<Pod> = Api::namespaced(api.client(), "default");
    for node in started.world.nodes().keys() {
        for number in 0..3 {
            pods.create(&PostParams::default(), &pod(&format!("{node}-{number}"), node)?).await?;
        }
    }
    let begun = clock.mono();
    let runs = ListParams::default().fields("status.phase=Running");
    while pods.list_metadata(&runs).await?.items.len() < started.world.nodes().len() * 3 {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    println!(
        "{} pods run after {:?}; {} KiB more",
        nodes * 3,
        clock.mono().since(begun),
        memory_kib()? - empty
    );

    let (before, from) = (processor_ms()?, clock.mono());
    tokio::time::sleep(WATCHED).await;
    let (spent, passed) = (processor_ms()? - before, clock.mono().since(from));
    let behind = started.world.now().get();
    println!(
        "steady at speed {speed}: {:.1} ms of processor in a second; {} KiB in all, {empty} KiB of them before",
        spent as f64 / passed.as_secs_f64(),
        memory_kib()?,
    );
    println!("simulated time {:.1} s", behind as f64 / 1e6);
    Ok(())
}

/// The same proportions as in the demo: a half, a third and a sixth.
fn fleet(nodes: u32) -> Result<Fleet, Box<dyn Error>> {
    let (xeon, epyc) = (nodes.div_ceil(2), nodes / 3);
    let of = |name: &str| NodeKind::built_in(name).ok_or("a kind is missing");
    let kinds = vec![(of("xeon")?, xeon), (of("epyc")?, epyc), (of("gpu")?, nodes - xeon - epyc)];
    Ok(Fleet { kinds, racks: 3, zones: 1, prefix: "sim".to_owned() })
}

fn pod(name: &str, node: &str) -> Result<Pod, serde_json::Error> {
    serde_json::from_value(json!({
        "metadata": {"name": name},
        "spec": {"nodeName": node, "containers": [
            {"name": "work", "image": "pause", "resources": {"requests": {"cpu": "16", "memory": "8Gi"}}},
        ]},
    }))
}

fn memory_kib() -> Result<u64, Box<dyn Error>> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("no VmRSS")?;
    Ok(line.trim().trim_end_matches("kB").trim().parse()?)
}

/// User and system time of the process; a tick of the kernel is 10 ms.
fn processor_ms() -> Result<u64, Box<dyn Error>> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let after = stat.rsplit_once(") ").ok_or("no name")?.1;
    let fields: Vec<&str> = after.split(' ').collect();
    let ticks = |at: usize| fields.get(at).ok_or("too short")?.parse::<u64>().map_err(|_| "no number");
    Ok((ticks(11)? + ticks(12)?) * 10)
}
