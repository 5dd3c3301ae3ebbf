//! The command that `helm uninstall` runs before it deletes anything.

use crate::support::wait;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, ServiceAccount};
use kube::Api;
use kube::api::ListParams;
use system::objects;
use system::rights::NAMESPACE;
use system::world::{SIMULATED, TestSystem};

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
