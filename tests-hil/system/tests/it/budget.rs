//! All nodes run at full load under a budget, which is cut by a fifth. Once every limit is lowered, the power must
//! not exceed the budget, whichever program is killed meanwhile.
//!
//! The limits are lowered when the operator with the new budget leads and has written, and every agent has applied
//! its limit. From two seconds later, which the power needs to settle, each watt above the budget counts.

use crate::outages::leader;
use crate::placement::{NAMESPACE, all_enforced, profiles};
use crate::support::wait;
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::ListParams;
use serde_json::{Value, json};
use std::time::Duration;
use system::field::{self, Field};
use system::watt_seconds::{EnergySampler, Stretch};
use system::world::{PATIENCE, RIG, SIMULATED, SystemProcess, TestSystem};
use tokio::time::Instant;

/// The sampling interval.
const EVERY: Duration = Duration::from_millis(150);
/// A limit averages over one second, and the power follows with a small delay.
const SETTLES: Duration = Duration::from_secs(2);
/// How long the power is observed after the limits were lowered, including the kills.
const WATCHED: Duration = Duration::from_secs(20);

pub(crate) async fn a_cut_budget_is_kept(world: &TestSystem) {
    load_everything(world).await;
    let rest = rest_watts(world).await;
    operators(world, &[]).await;
    wait("every node at full power", async || profiles(world).await.values().all(|one| one == "performance"))
        .await;
    all_enforced(world).await;
    let full = settled_watts(world, 1.0).await;
    let nodes = f64::from(u32::try_from(SIMULATED).unwrap() + 1);
    system::tell(&format!(
        "  full load draws {full:.0} W, of which at most {:.0} W are no package's and no GPU's",
        rest * nodes
    ));
    let old = full.ceil();
    budgeted(world, old, rest).await;
    let mut meter = EnergySampler::new(world).await.unwrap();
    until_limited(world, &mut meter, old - rest * nodes).await;

    let new = (old * 0.8).floor();
    let cut = Instant::now();
    budgeted(world, new, rest).await;
    let honoured = until_limited(world, &mut meter, new - rest * nodes).await;
    system::tell(&format!(
        "  {old:.0} W → {new:.0} W: every limit is lowered {:.1?} after the cut",
        cut.elapsed()
    ));

    let stretches = watched(world, &mut meter).await;
    let judged: Vec<&Stretch> =
        stretches.iter().filter(|stretch| stretch.from >= honoured + SETTLES).collect();
    let above: f64 = judged.iter().map(|one| (one.watts - new).max(0.0) * one.took.as_secs_f64()).sum();
    let most = judged.iter().map(|one| one.watts).fold(0.0, f64::max);
    let limits = stretches.iter().map(|one| one.limits).fold(0.0, f64::max);
    system::tell(&format!(
        "  {} looks: {above:.1} Ws above {new:.0} W, at most {most:.0} W; limits at most {:.0} W with the rest",
        judged.len(),
        limits + rest * nodes
    ));
    assert!(judged.len() > 20, "{}", judged.len());
    assert!(limits + rest * nodes <= new + 1.0, "limits of {limits} W");
    assert!(above <= f64::EPSILON, "{above} Ws above {new} W");
    // The system must use its budget, and not stay at half of it.
    assert!(most > new * 0.6, "{most} of {new} W");
}

/// Creates a pod on every simulated node that uses all of it. The node on virtual hardware is always at full load.
async fn load_everything(world: &TestSystem) {
    let field = Field::new(&world.client, NAMESPACE).await.unwrap();
    field.clear().await.unwrap();
    let nodes: Api<Node> = Api::all(world.client.clone());
    for node in nodes.list(&ListParams::default()).await.unwrap() {
        let name = node.metadata.name.unwrap();
        if name == RIG {
            continue;
        }
        let capacity = node.status.unwrap().capacity.unwrap();
        let mut asks = json!({"cpu": capacity["cpu"].0});
        for (resource, much) in capacity.iter().filter(|(resource, _)| resource.ends_with("/gpu")) {
            asks[resource] = json!(much.0);
        }
        let mut pod = field::pod(&format!("load-{name}"));
        pod["metadata"]["annotations"] = json!({
            "sim.joulie.io/cpu-class": "compute_bound",
            "sim.joulie.io/cpu-util-pct": "100",
            "sim.joulie.io/gpu-class": "compute_bound",
            "sim.joulie.io/gpu-util-pct": "100",
        });
        pod["spec"]["nodeName"] = json!(name);
        pod["spec"]["containers"][0]["resources"] = json!({"requests": asks, "limits": asks});
        field.make(&pod, 1).await.unwrap();
    }
    crate::placement::all_run(&field.pods(), "load", u32::try_from(SIMULATED).unwrap()).await;
}

/// The highest power of any node outside its packages and GPUs.
pub(crate) async fn rest_watts(world: &TestSystem) -> f64 {
    let listed = world.simulator.get("/nodes").await.unwrap();
    // That of the virtual hardware, from its preset.
    let mut most: f64 = RIG_REST_WATTS;
    for name in listed["nodes"].as_array().unwrap() {
        let state = world.simulator.get(&format!("/state/{}", name.as_str().unwrap())).await.unwrap();
        let telemetry = &state["state"]["telemetry"];
        let read = |part: &Value| part.as_f64().unwrap();
        let rest = read(&telemetry["nodePowerWatts"]) - read(&telemetry["instantPackagePowerWatts"]);
        most = most.max(rest);
    }
    most.ceil()
}

const RIG_REST_WATTS: f64 = 0.0;

/// Starts both operators with the same variables, one after the other, as a rollout does.
pub(crate) async fn operators(world: &TestSystem, variables: &[(&str, &str)]) {
    let mut all = vec![("STATIC_HP_FRAC", "1"), ("BUDGET_DEAD_BAND_WATTS", "1")];
    all.extend_from_slice(variables);
    for part in [SystemProcess::OperatorA, SystemProcess::OperatorB] {
        world.kill(part);
    }
    for part in [SystemProcess::OperatorA, SystemProcess::OperatorB] {
        world.run(part, &all).unwrap();
    }
    wait("a leader", async || leader(world).await.is_some()).await;
}

pub(crate) async fn budgeted(world: &TestSystem, watts: f64, rest: f64) {
    let (watts, rest) = (format!("{watts:.0}"), format!("{rest:.0}"));
    operators(world, &[("BUDGET_SITE_WATTS", &watts), ("BUDGET_NODE_REST_WATTS", &rest)]).await;
}

/// The total power once it is steady.
async fn settled_watts(world: &TestSystem, within_percent: f64) -> f64 {
    let mut meter = EnergySampler::new(world).await.unwrap();
    meter.look(world).await.unwrap();
    let mut before = 0.0;
    let begun = Instant::now();
    loop {
        tokio::time::sleep(Duration::from_secs(2)).await;
        let now = meter.look(world).await.unwrap().unwrap().watts;
        if (now - before).abs() <= now * within_percent / 100.0 {
            return now;
        }
        assert!(begun.elapsed() < PATIENCE, "{before} W, then {now} W");
        before = now;
    }
}

/// Waits until the sum of all limits is at most this, and returns the time.
pub(crate) async fn until_limited(world: &TestSystem, meter: &mut EnergySampler, watts: f64) -> Instant {
    let mut seen = f64::INFINITY;
    let outcome = system::until("the limits", PATIENCE, async || {
        if let Some(stretch) = meter.look(world).await.unwrap() {
            seen = stretch.limits;
        }
        seen <= watts + 1.0
    })
    .await;
    assert!(outcome.is_ok(), "limits of {seen} W, and not of {watts} W");
    Instant::now()
}

/// Samples for a while, during which the agents are restarted and the leader is killed.
async fn watched(world: &TestSystem, meter: &mut EnergySampler) -> Vec<Stretch> {
    let begun = Instant::now();
    let mut stretches = Vec::new();
    let mut kills = [SystemProcess::Agent, SystemProcess::Pool, leader(world).await.unwrap()].into_iter();
    while begun.elapsed() < WATCHED {
        tokio::time::sleep(EVERY).await;
        stretches.extend(meter.look(world).await.unwrap());
        let due = begun.elapsed() >= WATCHED / 8 * (4 - u32::try_from(kills.len()).unwrap());
        if let Some(part) = due.then(|| kills.next()).flatten() {
            system::tell(&format!("  {} is killed", part.name()));
            world.kill(part);
            if matches!(part, SystemProcess::Agent | SystemProcess::Pool) {
                world.run(part, &[]).unwrap();
            }
        }
    }
    stretches
}
