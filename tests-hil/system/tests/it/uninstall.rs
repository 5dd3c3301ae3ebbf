//! The command that `helm uninstall` runs before it deletes anything.

use crate::placement::NAMESPACE as STORIES;
use crate::support::wait;
use cluster::assets::Environment;
use cluster::{ClusterError, PrometheusServer};
use install::Helm;
use install::audited::AuditedPart;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Pod, ServiceAccount};
use kube::Api;
use kube::api::ListParams;
use std::collections::BTreeSet;
use system::audit::AuditLog;
use system::field::Field;
use system::rights::NAMESPACE;
use system::world::{SIMULATED, SystemProcess, TestSystem};
use system::{audit, objects};

/// The command runs with the operator's own account. Afterwards no profile and no label of ours is left although all
/// programs still run, and the account owns both Leases, so that they are deleted with it.
pub(crate) async fn every_node_is_released(world: &TestSystem) {
    let profiles = async || {
        let mut all = objects::list(&world.client, "NodePowerProfile").await.unwrap();
        // A person's profile is kept.
        all.retain(|one| one["metadata"]["labels"]["joulie.io/managed-by"] == "operator");
        all
    };
    wait("the simulated nodes are planned for", async || profiles().await.len() >= SIMULATED).await;
    world.uninstall().await.unwrap();

    assert_eq!(profiles().await.len(), 0);
    let nodes: Api<Node> = Api::all(world.client.clone());
    for node in nodes.list(&ListParams::default()).await.unwrap().items {
        let labels = node.metadata.labels.unwrap_or_default();
        let ours =
            ["joulie.io/power-profile", "joulie.io/draining"].iter().any(|key| labels.contains_key(*key));
        assert!(!ours, "{:?}: {labels:?}", node.metadata.name);
    }
    let accounts: Api<ServiceAccount> = Api::namespaced(world.client.clone(), NAMESPACE);
    let account = accounts.get("joulie-operator").await.unwrap().metadata.uid.unwrap();
    let leases: Api<Lease> = Api::namespaced(world.client.clone(), NAMESPACE);
    for name in ["joulie-plan", "joulie-operator"] {
        let owners = leases.get(name).await.unwrap().metadata.owner_references.unwrap_or_default();
        assert!(owners.iter().any(|owner| owner.uid == account), "{name}: {owners:?}");
    }
}

/// The simulator makes a workload by itself, in a namespace that it makes, and takes finished pods away.
pub(crate) async fn the_simulator_makes_a_workload(world: &TestSystem) {
    // The pods of the stories before fill every node.
    Field::new(&world.client, STORIES).await.unwrap().clear().await.unwrap();
    let namespace = "made-by-itself";
    world
        .run(
            SystemProcess::Simulator,
            &[("SIM_WORKLOAD", "500ms/1s"), ("SIM_WORKLOAD_NAMESPACE", namespace), ("SIM_SPEED", "10")],
        )
        .unwrap();
    let pods: Api<Pod> = Api::namespaced(world.client.clone(), namespace);
    let names = async || -> BTreeSet<String> {
        let all = pods.list(&ListParams::default()).await.unwrap().items;
        all.into_iter().filter_map(|pod| pod.metadata.name).collect()
    };
    let mut seen = BTreeSet::new();
    let one_is_gone = async || {
        let now = names().await;
        seen.extend(now.iter().cloned());
        seen.len() > now.len()
    };
    wait("a pod is made, runs and is taken away", one_is_gone).await;
    world.run(SystemProcess::Simulator, &[]).unwrap();
}

/// The API server has logged the requests of all stories; those that were played beside them had another one.
pub(crate) async fn each_right_was_used(world: &TestSystem, beside: &AuditLog) {
    // Without it there was no story of an upgrade, whose agents read the plan's Lease.
    if Helm::or_skip().is_none() {
        return;
    }
    // Without it no zone was hot, and nothing was evicted.
    let environment = Environment::of_this_process();
    if matches!(PrometheusServer::new(&environment, &world.control_plane, &[]), Err(ClusterError::Absent(_)))
    {
        return;
    }
    let all =
        audit::each_was_used_here_or(beside, &world.control_plane, AuditedPart::Installed).await.unwrap();
    assert!(all > 40, "{all} rights");
}

/// The API server has put the requests of our accounts into our levels of priority.
pub(crate) async fn requests_had_seats_of_their_own(world: &TestSystem) {
    let request = http::Request::get("/metrics").body(Vec::new()).unwrap();
    let metrics = world.client.request_text(request).await.unwrap();
    for level in ["joulie-control", "joulie-agents"] {
        let of = |line: &&str| {
            line.starts_with("apiserver_flowcontrol_dispatched_requests_total{")
                && line.contains(&format!("priority_level=\"{level}\""))
        };
        let line = metrics.lines().find(of).unwrap_or_else(|| panic!("no request in {level}"));
        let dispatched: f64 = line.rsplit(' ').next().unwrap().parse().unwrap();
        system::tell(&format!("  {level}: {dispatched} requests"));
        assert!(dispatched > 100.0, "{line}");
    }
}
