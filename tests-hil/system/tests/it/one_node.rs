//! The node on virtual hardware, its agent, and a person who writes the profile. No operator runs until the last
//! story.

use crate::support::{Sampler, limited, reported, uw, wait};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::events::v1::Event;
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams};
use serde_json::json;
use std::time::Duration;
use system::objects;
use system::world::{PATIENCE, RIG, SystemProcess, TestSystem};
use tokio::time::Instant;

/// The number of changes in the measurement of the time that a change takes.
const CHANGES: u32 = 200;
/// The cap at the start of the stories about restarts.
const SETTLED_WATTS: u32 = 110;

pub(crate) async fn a_wish_becomes_limits(world: &TestSystem) {
    world.run(SystemProcess::Agent, &[]).unwrap();
    wait("the hardware is described", async || {
        let hardware = objects::get(&world.client, "NodeHardware", RIG).await.unwrap();
        hardware["spec"]["nodeName"] == RIG && hardware["status"]["cpu"]["sockets"] == 2
    })
    .await;
    let generation = objects::want(&world.client, RIG, 120).await.unwrap();
    limited(world, 120).await;
    let told = reported(world, generation, 120).await;
    let cpu = &told["status"]["control"]["cpu"];
    assert_eq!(cpu["result"], "applied", "{told:#}");
    assert_eq!(cpu["requestedWatts"].as_f64(), Some(120.0), "{told:#}");
    wait("its power is published", async || {
        let hardware = objects::get(&world.client, "NodeHardware", RIG).await.unwrap();
        hardware["status"]["power"]["cpuWatts"].as_f64().is_some_and(|watts| watts > 0.0)
    })
    .await;
}

/// The time is printed but not checked, because the machine is shared. The target is 1 s for 99 of 100 changes.
pub(crate) async fn changes_reach_the_hardware(world: &TestSystem) {
    let mut took = Vec::new();
    for change in 0..CHANGES {
        let watts = 100 + change % 50;
        let begun = Instant::now();
        objects::want(&world.client, RIG, watts).await.unwrap();
        while world.registers.limits_uw().unwrap() != [uw(watts); 2] {
            assert!(begun.elapsed() < PATIENCE, "{watts} W did not reach the hardware");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        took.push(begun.elapsed());
    }
    took.sort();
    let at = |percent: usize| took[(took.len() * percent / 100).min(took.len() - 1)];
    system::tell(&format!("  p50 {:.1?}, p99 {:.1?}, longest {:.1?}", at(50), at(99), at(100)));
    let generation = objects::want(&world.client, RIG, SETTLED_WATTS).await.unwrap();
    limited(world, SETTLED_WATTS).await;
    reported(world, generation, SETTLED_WATTS).await;
}

/// The profile of the node says what holds anyway, and then half of something else: the limits stay, and the profile and an Event say it.
pub(crate) async fn a_route_is_followed_or_refused(world: &TestSystem) {
    let mark = world.registers.mark();
    let mut spec = json!({
        "target": {"scope": "node", "nodeName": RIG},
        "sources": {"cpu": {"type": "host"}}, "controls": {"cpu": {"type": "host"}},
    });
    let write = async |spec| objects::write(&world.client, "TelemetryProfile", RIG, spec).await.unwrap();
    let told = async |generation: i64, status: &str| {
        let profile = objects::get(&world.client, "TelemetryProfile", RIG).await.unwrap();
        let accepted = objects::condition(&profile, "Accepted");
        accepted["status"] == status && accepted["observedGeneration"] == generation
    };
    let generation = write(spec.clone()).await;
    wait("it is followed", async || told(generation, "True").await).await;
    let profile = objects::get(&world.client, "TelemetryProfile", RIG).await.unwrap();
    assert_eq!(profile["status"]["control"]["cpu"]["result"], "applied", "{profile:#}");
    spec["controls"]["gpu"] = json!({"type": "http", "http": {"endpoint": "http://127.0.0.1:9/{node}"}});
    let generation = write(spec).await;
    wait("it is refused", async || told(generation, "False").await).await;
    // Events about a Node are in this namespace.
    let events: Api<Event> = Api::namespaced(world.client.clone(), "default");
    wait("an Event says so", async || {
        let all = events.list(&ListParams::default()).await.unwrap().items;
        all.iter().any(|event| event.reason.as_deref() == Some("RouteRefused"))
    })
    .await;
    objects::delete(&world.client, "TelemetryProfile", RIG).await.unwrap();
    assert_eq!(world.registers.limits_uw().unwrap(), [uw(SETTLED_WATTS); 2]);
    let written = world.registers.written_since(mark);
    assert!(written.iter().all(|&written| written <= uw(SETTLED_WATTS)), "{written:?}");
}

pub(crate) async fn a_rollout_keeps_the_cap(world: &TestSystem) {
    the_cap_stays_while(world, async || world.end(SystemProcess::Agent).await.unwrap()).await;
}

pub(crate) async fn a_killed_agent_leaves_the_cap(world: &TestSystem) {
    the_cap_stays_while(world, async || world.kill(SystemProcess::Agent)).await;
}

/// The agent stops and another one starts: before, during and after that no limit is above the cap, and the new agent
/// applies caps.
async fn the_cap_stays_while(world: &TestSystem, goes: impl AsyncFnOnce()) {
    let (mark, sampler) = (world.registers.mark(), Sampler::start(&world.registers));
    goes().await;
    assert_eq!(world.registers.limits_uw().unwrap(), [uw(SETTLED_WATTS); 2]);
    world.run(SystemProcess::Agent, &[]).unwrap();
    // A lower cap shows that the new agent works, without exceeding the highest limit so far.
    let generation = objects::want(&world.client, RIG, SETTLED_WATTS - 5).await.unwrap();
    limited(world, SETTLED_WATTS - 5).await;
    reported(world, generation, SETTLED_WATTS - 5).await;
    let (most, looks) = sampler.highest().await;
    assert!(looks > 10, "{looks}");
    assert_eq!(most, uw(SETTLED_WATTS), "seen");
    let written = world.registers.written_since(mark);
    assert!(written.iter().all(|&written| written <= uw(SETTLED_WATTS)), "{written:?}");
    objects::want(&world.client, RIG, SETTLED_WATTS).await.unwrap();
    limited(world, SETTLED_WATTS).await;
}

pub(crate) async fn a_release_restores(world: &TestSystem) {
    objects::release(&world.client, RIG).await.unwrap();
    wait("the originals", async || world.registers.limits_uw().unwrap() == ORIGINALS).await;
}

pub(crate) async fn a_deselected_node_is_restored(world: &TestSystem) {
    objects::want(&world.client, RIG, SETTLED_WATTS).await.unwrap();
    limited(world, SETTLED_WATTS).await;
    let nodes: Api<Node> = Api::all(world.client.clone());
    let unmanaged = json!({"metadata": {"labels": {"joulie.io/managed": null}}});
    nodes.patch(RIG, &PatchParams::default(), &Patch::Merge(&unmanaged)).await.unwrap();
    wait("the originals", async || world.registers.limits_uw().unwrap() == ORIGINALS).await;
}

/// The initial limits of the rig's profile `xeon-2s`.
pub(crate) const ORIGINALS: [u64; 2] = [250_000_000; 2];
