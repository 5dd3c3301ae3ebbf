//! Measures how long a change of a profile takes until the registers hold the cap, and until the status reports that it
//! was read back; then the agent's own use of memory and processor time. The agent runs as a process of its own on the
//! rig; this process serves its API.
#![expect(clippy::print_stdout, reason = "a table for a person")]

mod measured;

use embedded_api::{ApiOptions, EmbeddedApi};
use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams, PostParams};
use measured::{Any, Process, bars};
use plant::Load;
use rig::machine::{RigTime, Shared};
use serde_json::json;
use std::time::{Duration, Instant};

const CHANGES: u32 = 200;
const LOOK: Duration = Duration::from_millis(1);
const QUIET: Duration = Duration::from_secs(30);

#[expect(clippy::disallowed_methods, reason = "this is a measurement of time")]
fn now() -> Instant {
    Instant::now()
}

fn objects(api: &EmbeddedApi, group: &str, kind: &str, plural: &str) -> Api<DynamicObject> {
    let version = if group.is_empty() { "v1" } else { "v1alpha1" };
    let kind = kube::core::GroupVersionKind::gvk(group, version, kind);
    Api::all_with(api.client(), &ApiResource::from_gvk_with_plural(&kind, plural))
}

#[tokio::main]
async fn main() -> Result<(), Any> {
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
    let agent = Process::agent(&folder, "root", &[])?;
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
    let (before, begun) = (agent.processor_ms()?, now());
    tokio::time::sleep(QUIET).await;
    let millicores = (agent.processor_ms()? - before) / begun.elapsed().as_secs_f64();
    let resident = agent.resident_mib()?;
    println!("\nresident {resident:.1} MiB, {millicores:.1} millicores at 1 s sampling");
    let p99 = statuses.get(statuses.len() * 99 / 100).copied().unwrap_or(f64::INFINITY);
    bars(&[
        ("agent_change_to_status_p99_ms", p99, 1000.0),
        ("agent_resident_mib", resident, 16.0),
        ("agent_millicores", millicores, 5.0),
    ]);
    drop((agent, mounted));
    std::fs::remove_dir_all(&folder)?;
    Ok(())
}

/// Makes one change. Returns the milliseconds until the registers hold it, and until the status reports it.
async fn one(api: &EmbeddedApi, machine: &Shared, watts: u64) -> Result<(f64, f64), Any> {
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
