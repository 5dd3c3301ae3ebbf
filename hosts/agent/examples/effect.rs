//! Measures how long a change of a profile takes until the registers hold the cap, and until the status reports that it
//! was read back; then the agent's own use of memory and processor time. The agent runs as a process of its own on the
//! rig; this process serves its API.
#![expect(clippy::print_stdout, reason = "a table for a person")]

use embedded_api::{ApiOptions, EmbeddedApi};
use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams, PostParams};
use plant::Load;
use rig::machine::{RigTime, Shared};
use serde_json::json;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

const CHANGES: u32 = 200;
const LOOK: Duration = Duration::from_millis(1);
const QUIET: Duration = Duration::from_secs(30);
/// Ticks of the kernel's processor time in a second.
const USER_HZ: f64 = 100.0;

#[expect(clippy::disallowed_methods, reason = "this is a measurement of time")]
fn now() -> Instant {
    Instant::now()
}

/// A process that ends with its owner.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        // Killing fails if the process has already ended.
        let _killed = self.0.kill();
        let _waited = self.0.wait();
    }
}

fn objects(api: &EmbeddedApi, group: &str, kind: &str, plural: &str) -> Api<DynamicObject> {
    let version = if group.is_empty() { "v1" } else { "v1alpha1" };
    let kind = kube::core::GroupVersionKind::gvk(group, version, kind);
    Api::all_with(api.client(), &ApiResource::from_gvk_with_plural(&kind, plural))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let folder = std::env::temp_dir().join(format!("agent-effect-{}", std::process::id()));
    std::fs::create_dir_all(folder.join("root"))?;
    let build = rig::profile::find("xeon-2s").ok_or("no such profile")?;
    let machine = Shared::new(build(RigTime::Real(1.0))?);
    machine.lock().plant().set_load(Load::busy(1.0))?;
    let mounted = rig::fuse::mount(machine.clone(), &folder.join("root"))?;
    let api = EmbeddedApi::new(&ApiOptions::with(joulie_api::crd::all()))?;
    let serving = api.serve(([127, 0, 0, 1], 0).into(), None, None).await?;
    serving.write_kubeconfig(&folder.join("kubeconfig"))?;
    let node = json!({"apiVersion": "v1", "kind": "Node",
        "metadata": {"name": "node-a", "labels": {"joulie.io/managed": "true"}}});
    objects(&api, "", "Node", "nodes").create(&PostParams::default(), &serde_json::from_value(node)?).await?;
    let agent = Process(start(&folder)?);
    let (mut registers, mut statuses) = (Vec::new(), Vec::new());
    for change in 0..=CHANGES {
        let watts = if change % 2 == 0 { 120 } else { 160 };
        let (register, status) = one(&api, &machine, watts).await?;
        // The first change also includes the agent's start.
        if change > 0 {
            registers.push(register);
            statuses.push(status);
        }
    }
    println!("| {CHANGES} changes of a profile | p50 | p99 | most | bar of p99 |");
    println!("|---|---|---|---|---|");
    println!("| until the registers hold the cap | {} | |", quantiles(&mut registers));
    println!("| until the status says it was read back | {} | 1000 ms |", quantiles(&mut statuses));
    let id = agent.0.id();
    let (before, begun) = (cpu_seconds(id)?, now());
    tokio::time::sleep(QUIET).await;
    let millicores = (cpu_seconds(id)? - before) / begun.elapsed().as_secs_f64() * 1000.0;
    let resident = resident_mib(id)?;
    println!("\nresident {resident:.1} MiB, {millicores:.1} millicores at 1 s sampling");
    let p99 = statuses.get(statuses.len() * 99 / 100).copied().unwrap_or(f64::INFINITY);
    for (name, value, limit) in [
        ("agent_change_to_status_p99_ms", p99, 1000.0),
        ("agent_resident_mib", resident, 16.0),
        ("agent_millicores", millicores, 5.0),
    ] {
        let verdict = if value <= limit { "PASS" } else { "FAIL" };
        println!("BAR {name} {value:.1} {limit:.0} {verdict}");
    }
    drop((agent, mounted));
    std::fs::remove_dir_all(&folder)?;
    Ok(())
}

fn start(folder: &Path) -> Result<Child, Box<dyn Error>> {
    let own: PathBuf = std::env::current_exe()?;
    let bin =
        own.parent().and_then(Path::parent).ok_or("this program lies in no folder")?.join("joulie-agent");
    let path = |name: &str| folder.join(name).into_os_string();
    let child = Command::new(bin)
        .env_clear()
        .env("KUBECONFIG", path("kubeconfig"))
        .env("NODE_NAME", "node-a")
        .env("HOST_ROOT", path("root"))
        .env("STATE_DIR", path("state"))
        .env("METRICS_ADDR", "127.0.0.1:0")
        .env("LOG_LEVEL", "warn")
        .spawn()?;
    Ok(child)
}

/// Makes one change. Returns the milliseconds until the registers hold it, and until the status reports it.
async fn one(api: &EmbeddedApi, machine: &Shared, watts: u64) -> Result<(f64, f64), Box<dyn Error>> {
    let profiles = objects(api, "joulie.io", "NodePowerProfile", "nodepowerprofiles");
    let body = json!({"apiVersion": "joulie.io/v1alpha1", "kind": "NodePowerProfile", "metadata": {"name": "node-a"},
        "spec": {"nodeName": "node-a", "profile": "eco", "cpu": {"packagePowerCapWatts": watts}}});
    let begun = now();
    let params = PatchParams::apply("a-person").force();
    let written = profiles.patch("node-a", &params, &Patch::Apply(body)).await?;
    let generation = written.metadata.generation;
    let mut register = None;
    loop {
        let holds = machine
            .lock()
            .zones()
            .iter()
            .filter(|slot| slot.zone.name.starts_with("package"))
            .all(|slot| slot.zone.power_limit_uw(0) == watts * 1_000_000);
        if holds && register.is_none() {
            register = Some(begun.elapsed());
        }
        let seen = profiles.get("node-a").await?;
        let cpu = &seen.data["status"]["control"]["cpu"];
        if cpu["observedGeneration"].as_i64() == generation && cpu["capWatts"].as_u64() == Some(watts) {
            let status = begun.elapsed();
            let millis = |time: Duration| time.as_secs_f64() * 1000.0;
            return Ok((millis(register.unwrap_or(status)), millis(status)));
        }
        if begun.elapsed() > Duration::from_secs(60) {
            return Err(format!("no effect within a minute: {cpu:#}").into());
        }
        tokio::time::sleep(LOOK).await;
    }
}

fn quantiles(all: &mut [f64]) -> String {
    all.sort_by(f64::total_cmp);
    let at =
        |hundredths: usize| all.get((all.len() * hundredths / 100).min(all.len().saturating_sub(1))).copied();
    let text = |value: Option<f64>| value.map_or("?".to_owned(), |value| format!("{value:.1} ms"));
    format!("{} | {} | {}", text(at(50)), text(at(99)), text(all.last().copied()))
}

fn resident_mib(id: u32) -> Result<f64, Box<dyn Error>> {
    let text = std::fs::read_to_string(format!("/proc/{id}/status"))?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("no VmRSS")?;
    Ok(line.trim().trim_end_matches(" kB").parse::<f64>()? / 1024.0)
}

fn cpu_seconds(id: u32) -> Result<f64, Box<dyn Error>> {
    let text = std::fs::read_to_string(format!("/proc/{id}/stat"))?;
    let (_, rest) = text.rsplit_once(')').ok_or("no stat")?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let number = |at: usize| fields.get(at).and_then(|text| text.parse::<f64>().ok()).ok_or("no time");
    Ok((number(11)? + number(12)?) / USER_HZ)
}
