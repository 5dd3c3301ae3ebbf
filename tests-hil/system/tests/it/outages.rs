//! Parts stop and start again: caps are kept, and no pod is lost.

use crate::placement::{NAMESPACE, all_run, profiles};
use crate::support::{Sampler, wait};
use cluster::Component;
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::Duration;
use system::field::{self, Field};
use system::objects;
use system::rights::NAMESPACE as JOULIE;
use system::world::{RIG, SystemProcess, TestSystem};
use tokio::time::Instant;

/// Longer than the election's lease, the node controller's timeout, and the idle timeout of any watch.
const API_AWAY: Duration = Duration::from_secs(60);

/// The replica that holds the Lease. Holders have random names, and each logs its own when it begins to lead.
pub(crate) async fn leader(world: &TestSystem) -> Option<SystemProcess> {
    let leases: Api<Lease> = Api::namespaced(world.client.clone(), JOULIE);
    let holder = leases.get_opt("joulie-operator").await.ok()??.spec?.holder_identity?;
    [SystemProcess::OperatorA, SystemProcess::OperatorB].into_iter().find(|part| {
        let log = std::fs::read_to_string(world.control_plane.program_log_file(part.name()));
        log.is_ok_and(|log| log.contains(&format!("{holder} leads from now on")))
    })
}

async fn plan_renewed(world: &TestSystem) -> Option<String> {
    let leases: Api<Lease> = Api::namespaced(world.client.clone(), JOULIE);
    Some(leases.get_opt("joulie-plan").await.ok()??.spec?.renew_time?.0.to_string())
}

/// The desired caps of every node, without fields that change by themselves.
pub(crate) async fn wishes(world: &TestSystem) -> BTreeMap<String, Value> {
    let objects = objects::list(&world.client, "NodePowerProfile").await.unwrap();
    objects
        .into_iter()
        .map(|object| (object["metadata"]["name"].to_string(), object["spec"].clone()))
        .collect()
}

/// Checks that another replica leads and renews the plan, and that no desired cap has changed.
pub(crate) async fn fails_over(world: &TestSystem, from: SystemProcess, goes: impl AsyncFnOnce()) {
    let (asked, labels) = (wishes(world).await, profiles(world).await);
    goes().await;
    wait("another leader", async || leader(world).await.is_some_and(|now| now != from)).await;
    let before = plan_renewed(world).await;
    wait("the plan is renewed", async || plan_renewed(world).await != before).await;
    assert_eq!(wishes(world).await, asked);
    assert_eq!(profiles(world).await, labels);
    world.run(from, &[]).unwrap();
}

async fn current_leader(world: &TestSystem) -> SystemProcess {
    let mut found = None;
    wait("a leader", async || {
        found = leader(world).await;
        found.is_some()
    })
    .await;
    found.unwrap()
}

pub(crate) async fn a_killed_leader_is_replaced(world: &TestSystem) {
    let (leads, limits) = (current_leader(world).await, world.registers.limits_uw().unwrap());
    let sampler = Sampler::start(&world.registers);
    fails_over(world, leads, async || world.kill(leads)).await;
    let (most, _) = sampler.highest().await;
    assert_eq!([most; 2], limits);
}

pub(crate) async fn a_leader_hands_over(world: &TestSystem) {
    let leads = current_leader(world).await;
    fails_over(world, leads, async || world.end(leads).await.unwrap()).await;
}

pub(crate) async fn pods_wait_for_the_extender(world: &TestSystem) {
    let field = Field::new(&world.client, NAMESPACE).await.unwrap();
    world.kill(SystemProcess::Extender);
    field.make(&field::pod("waiting"), 5).await.unwrap();
    tokio::time::sleep(Duration::from_secs(2)).await;
    let listed = field.pods().list(&kube::api::ListParams::default()).await.unwrap();
    assert!(
        listed.items.iter().all(|pod| pod.spec.as_ref().unwrap().node_name.is_none()),
        "placed by nobody"
    );
    world.run(SystemProcess::Extender, &[]).unwrap();
    all_run(&field.pods(), "waiting", 5).await;
}

pub(crate) async fn the_api_server_is_away(world: &TestSystem) {
    let (asked, limits) = (wishes(world).await, world.registers.limits_uw().unwrap());
    let simulated = caps(world).await;
    let sampler = Sampler::start(&world.registers);
    world.control_plane.stop(Component::ApiServer);
    tokio::time::sleep(API_AWAY).await;
    assert_eq!(world.ended(), None, "nobody ends for want of an API server");
    assert_eq!(caps(world).await, simulated);
    tokio::task::block_in_place(|| world.control_plane.run(Component::ApiServer)).unwrap();
    let back = Instant::now();
    // With leader election, as in a cluster, they end when they have no API server, and are started again. Here they go on, and
    // wait up to a minute before they ask again.
    for component in [Component::ControllerManager, Component::Scheduler] {
        tokio::task::block_in_place(|| world.control_plane.run(component)).unwrap();
    }
    let before = plan_renewed(world).await;
    wait("the plan is renewed again", async || {
        let now = plan_renewed(world).await;
        now.is_some() && now != before
    })
    .await;
    system::tell(&format!("  the plan is renewed {:.1?} after the API server is back", back.elapsed()));
    let (most, _) = sampler.highest().await;
    assert_eq!([most; 2], limits, "the cap held");
    assert_eq!(caps(world).await, simulated);
    assert_eq!(wishes(world).await, asked);
    // Earlier pods still run, and new ones are placed.
    let field = Field::new(&world.client, NAMESPACE).await.unwrap();
    field.make(&field::pod("later"), 5).await.unwrap();
    all_run(&field.pods(), "later", 5).await;
    system::tell(&format!("  new pods run {:.1?} after it", back.elapsed()));
    all_run(&field.pods(), "waiting", 5).await;
}

/// The caps in force on each simulated machine.
pub(crate) async fn caps(world: &TestSystem) -> BTreeMap<String, (Value, Value)> {
    let mut caps = BTreeMap::new();
    let listed = world.simulator.get("/nodes").await.unwrap();
    for name in listed["nodes"].as_array().unwrap() {
        let name = name.as_str().unwrap();
        assert_ne!(name, RIG);
        let state = &world.simulator.get(&format!("/state/{name}")).await.unwrap()["state"]["telemetry"];
        caps.insert(
            name.to_owned(),
            (state["cpu"]["capWatts"].clone(), state["gpu"]["capWattsPerGpuApplied"].clone()),
        );
    }
    caps
}
