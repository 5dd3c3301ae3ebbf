//! Several pool agents that were given the same shard of the nodes.

use crate::nodes::{Node, Nodes, cluster, pool};
use crate::rights::{Rights, limited};
use crate::test_machine::{Agent, Cluster, is_enforced};
use agent::settings::Shards;
use host_kit::clock::{HostClock, SystemClock};
use host_kit::leader::{Candidate, Elections, LeaseName, elect};
use host_kit::metrics::{BuildInfo, MetricsBuilder};
use host_kit::shutdown;
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

fn named(cluster: &Cluster, at: SocketAddr, pod: &str) -> Vec<(&'static str, String)> {
    let mut settings = pool(cluster, at);
    settings.push(("POD_NAME", pod.to_owned()));
    settings
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_two_agents_of_a_part_works_and_the_other_waits_says_so_and_takes_over() {
    let (nodes, cluster) = (Nodes::default(), cluster(&["sim-1"]).await);
    nodes.put("sim-1", Node::new());
    let at = nodes.serve().await;
    cluster.profile("sim-1", "sim-1", 150).await;
    let first = Agent::start(&named(&cluster, at, "pool-a"));
    first.until_page("/readyz", "200 OK").await;
    cluster.until("NodePowerProfile", "sim-1", is_enforced).await;
    let second = Agent::start(&named(&cluster, at, "pool-b"));
    second.until_said("lease joulie-agent-pool-0: pool-a leads; standing by").await;
    let waits = "pool-a holds the Lease joulie-agent-pool-0 and works for this part; this agent waits";
    let page = second.until_page("/readyz?verbose", waits).await;
    assert!(page.starts_with("HTTP/1.1 5"), "{page}");
    second.until_page("/metrics", "joulie_leader 0").await;
    first.until_page("/metrics", "joulie_leader 1").await;
    // The agents do not overwrite each other.
    let version = |object: serde_json::Value| object["metadata"]["resourceVersion"].clone();
    let before = version(cluster.get("NodePowerProfile", "sim-1").await);
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(version(cluster.get("NodePowerProfile", "sim-1").await), before);
    assert_eq!(first.terminate().await.code(), Some(0));
    second.until_page("/readyz", "200 OK").await;
    cluster.profile("sim-1", "sim-1", 120).await;
    nodes.until("sim-1", |node| node.cap == 120.0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_loses_its_part_ends_and_leaves_the_limits_and_the_next_process_of_a_pod_does_not_wait()
{
    let (nodes, cluster) = (Nodes::default(), cluster(&["sim-1"]).await);
    nodes.put("sim-1", Node::new());
    let at = nodes.serve().await;
    cluster.profile("sim-1", "sim-1", 150).await;
    let killed = Agent::start(&named(&cluster, at, "pool-a"));
    killed.until_page("/readyz", "200 OK").await;
    killed.kill();
    let next = Agent::start(&named(&cluster, at, "pool-a"));
    next.until_page("/readyz", "200 OK").await;
    assert!(!next.log().contains("standing by"), "{}", next.log());
    nodes.until("sim-1", |node| node.cap == 150.0).await;
    let taken = json!({"spec": {"holderIdentity": "somebody"}});
    let leases = cluster.leases("joulie-system");
    leases.patch("joulie-agent-pool-0", &PatchParams::default(), &Patch::Merge(taken)).await.unwrap();
    next.until_said("somebody holds the Lease joulie-agent-pool-0 and works for this part; this agent stops")
        .await;
    assert_ne!(next.ended().await.code(), Some(0));
    assert_eq!(nodes.get("sim-1").cap, 150.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_account_of_the_pool_may_hold_the_lease_of_its_part_and_no_other() {
    let cluster = cluster(&[]).await;
    let rights = Rights::of(&["base/agent-rbac.yaml", "pool/agent-pool.yaml"], "joulie-agent-pool");
    let (client, forbidden) = limited(cluster.api.client(), rights);
    let mut metrics = MetricsBuilder::of(&BuildInfo { component: "test", version: "0", revision: "0" });
    let clock: Arc<dyn HostClock> = Arc::new(SystemClock::new());
    let seconds = Duration::from_secs;
    for (name, may) in [(Shards::WHOLE.lease_name(), true), ("joulie-operator".to_owned(), false)] {
        let candidate = Candidate::new("pool-a", seconds(10), seconds(7), seconds(2)).unwrap();
        let lease = LeaseName { namespace: "joulie-system".to_owned(), name: name.clone() };
        let elections = Elections::register(metrics.registry());
        let (trigger, stop) = shutdown::pair();
        // The operator's Lease already exists.
        let there =
            json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name}});
        let apply = PatchParams::apply("a-person");
        cluster.leases("joulie-system").patch(&name, &apply, &Patch::Apply(there)).await.unwrap();
        let (mut leadership, election) = elect(&client, lease, candidate, elections, clock.clone(), stop);
        let election = tokio::spawn(election);
        let led = tokio::time::timeout(seconds(5), leadership.changed()).await.unwrap_or(false);
        assert_eq!(led, may, "{name}: {:?}", forbidden.all());
        assert_eq!(forbidden.all().is_empty(), may);
        drop(trigger);
        election.await.unwrap();
        let leases: Api<Lease> = Api::namespaced(cluster.api.client(), "joulie-system");
        let holder = leases.get(&name).await.unwrap().spec.and_then(|spec| spec.holder_identity);
        assert_eq!(holder.unwrap_or_default(), "", "{name} is released, or was never held");
    }
}
