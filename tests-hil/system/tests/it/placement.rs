//! The operator plans, the agents cap, the extender and the real kube-scheduler place pods.

use crate::support::wait;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Api;
use kube::api::ListParams;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;
use system::field::{self, Field};
use system::objects;
use system::world::{PATIENCE, Part, RIG, SIMULATED, World};

/// Where the stories' pods are.
pub(crate) const NAMESPACE: &str = "stories";
const PROFILE: &str = "joulie.io/power-profile";
const CLASS: &str = "joulie.io/workload-class";
/// Pods of the burst.
const BURST: u32 = 200;

pub(crate) async fn all_nodes_are_planned(world: &World) {
    for part in [Part::Simulator, Part::Pool, Part::OperatorA] {
        world.run(part, &[]).await.unwrap();
    }
    world.run(Part::OperatorB, &[]).await.unwrap();
    wait("every node has its profile's label", async || profiles(world).await.len() == SIMULATED + 1).await;
    let profiles = profiles(world).await;
    assert!(profiles.values().any(|profile| profile == "eco"), "{profiles:?}");
    assert!(profiles.values().any(|profile| profile == "performance"), "{profiles:?}");
    all_enforced(world).await;
    wait("every twin tells of its node", async || {
        let twins = objects::list(&world.client, "NodeTwin").await.unwrap();
        twins.len() == SIMULATED + 1
            && twins.iter().all(|twin| {
                let node = twin["spec"]["nodeName"].as_str().unwrap_or_default();
                let schedulable = &twin["status"]["schedulableClass"];
                profiles
                    .get(node)
                    .is_some_and(|profile| twin["spec"]["profile"] == *profile && schedulable == profile)
                    && twin["status"]["predictedPowerHeadroomScore"].is_number()
                    && ["cpu", "gpu"]
                        .iter()
                        .any(|part| twin["status"]["controlStatus"][part]["result"].is_string())
            })
    })
    .await;
    caps_are_what_the_profiles_say(world).await;
}

/// Every node's agent says that it does what is asked now.
pub(crate) async fn all_enforced(world: &World) {
    let mut missing = Vec::new();
    let outcome = system::until("every profile is enforced", PATIENCE, async || {
        let objects = objects::list(&world.client, "NodePowerProfile").await.unwrap();
        missing = objects.iter().filter(|object| !is_enforced(object)).cloned().collect();
        objects.len() == SIMULATED + 1 && missing.is_empty()
    })
    .await;
    assert!(
        outcome.is_ok(),
        "{} are not enforced, as {:#}",
        missing.len(),
        missing.first().unwrap_or(&Value::Null)
    );
}

fn is_enforced(profile: &Value) -> bool {
    let enforced = objects::condition(profile, "CapEnforced");
    enforced["status"] == "True" && enforced["observedGeneration"] == profile["metadata"]["generation"]
}

/// On the machines themselves, whatever anybody reports.
async fn caps_are_what_the_profiles_say(world: &World) {
    for (node, profile) in profiles(world).await {
        let wish = objects::get(&world.client, "NodePowerProfile", &node).await.unwrap();
        let Some(percent) = wish["spec"]["cpu"]["packagePowerCapPctOfMax"].as_f64() else { continue };
        let (cap, most) = if node == RIG {
            (world.registers.limits_uw().unwrap()[0] as f64 / 1e6, 250.0)
        } else {
            let cpu =
                &world.simulator.get(&format!("/state/{node}")).await.unwrap()["state"]["telemetry"]["cpu"];
            (cpu["capWatts"].as_f64().unwrap(), cpu["capMaxWatts"].as_f64().unwrap())
        };
        let wanted = most * percent / 100.0;
        assert!(
            (cap - wanted).abs() <= 1.0,
            "{node} ({profile}) at {cap} W, {percent} % of {most} W is wanted"
        );
    }
}

/// The profile of each node that has one, by its label.
pub(crate) async fn profiles(world: &World) -> BTreeMap<String, String> {
    let nodes: Api<Node> = Api::all(world.client.clone());
    let listed = nodes.list(&ListParams::default()).await.unwrap();
    let profile = |node: Node| {
        let profile = node.metadata.labels?.remove(PROFILE)?;
        Some((node.metadata.name?, profile))
    };
    listed.into_iter().filter_map(profile).collect()
}

pub(crate) async fn classes_go_where_they_belong(world: &World) {
    world.run(Part::Extender, &[]).await.unwrap();
    wait("the extender is ready", async || world.extender.answers("/readyz").await).await;
    let scheduler = world.scheduler().unwrap();
    tokio::task::block_in_place(|| world.control_plane.start_scheduler(&scheduler)).unwrap();
    let field = Field::new(&world.client, NAMESPACE).await.unwrap();
    let mut performance = field::pod("performance");
    performance["metadata"]["annotations"] = json!({CLASS: "performance"});
    let profiles = profiles(world).await;
    for (pod, count, preferred) in [(performance, 12, "performance"), (field::pod("standard"), 12, "eco")] {
        let prefix = pod["metadata"]["name"].as_str().unwrap().to_owned();
        field.make(&pod, count).await.unwrap();
        let nodes = all_run(&field.pods(), &prefix, count).await;
        let there =
            nodes.values().filter(|node| profiles.get(*node).is_some_and(|profile| profile == preferred));
        let there = u32::try_from(there.count()).unwrap();
        system::tell(&format!("  {there} of {count} {prefix} pods on {preferred} nodes"));
        if prefix == "performance" {
            assert_eq!(there, count, "{nodes:?}");
        } else {
            assert!(there * 3 > count * 2, "{nodes:?}");
        }
    }
}

/// Waits until so many pods of a prefix run, and tells where.
pub(crate) async fn all_run(pods: &Api<Pod>, prefix: &str, count: u32) -> BTreeMap<String, String> {
    let mut seen = BTreeMap::new();
    let outcome = system::until("pods run", PATIENCE * 2, async || {
        seen = running(pods, prefix).await;
        u32::try_from(seen.len()).unwrap() == count
    })
    .await;
    assert!(outcome.is_ok(), "{} of {count} {prefix} pods run", seen.len());
    seen
}

async fn running(pods: &Api<Pod>, prefix: &str) -> BTreeMap<String, String> {
    let runs = |pod: Pod| {
        let phase = pod.status?.phase?;
        let (name, node) = (pod.metadata.name?, pod.spec?.node_name?);
        (phase == "Running" && name.starts_with(&format!("{prefix}-"))).then_some((name, node))
    };
    pods.list(&ListParams::default()).await.unwrap().into_iter().filter_map(runs).collect()
}

/// Upstream's scores put a burst on a handful of nodes, because none of them knows of the pods just placed.
pub(crate) async fn a_burst_spreads(world: &World) {
    let field = Field::new(&world.client, NAMESPACE).await.unwrap();
    field.make(&field::pod("burst"), BURST).await.unwrap();
    let nodes = all_run(&field.pods(), "burst", BURST).await;
    let mut by_node: BTreeMap<&str, u32> = BTreeMap::new();
    for node in nodes.values() {
        *by_node.entry(node).or_default() += 1;
    }
    let most = by_node.values().max().copied().unwrap_or_default();
    system::tell(&format!("  {BURST} pods on {} nodes, at most {most} on one: {by_node:?}", by_node.len()));
    assert!(by_node.len() * 2 > SIMULATED, "{by_node:?}");
    assert!(most * 4 < BURST, "{by_node:?}");
    field.clear().await.unwrap();
    tokio::time::sleep(Duration::from_millis(500)).await;
}
