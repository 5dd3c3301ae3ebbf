//! Nodes without machines, with a real scheduler and real controllers.

use crate::support::{PATIENCE, pod, shared, until};
use cluster::life::{FINISH, FakeNode, Life, PodEnding};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{DeleteParams, PostParams};
use kube::runtime::wait::await_condition;
use kube::{Api, Client};
use serde_json::json;

async fn phase(pods: &Api<Pod>, name: &str, phase: &'static str) -> Pod {
    let is_so = move |pod: Option<&Pod>| {
        pod.and_then(|pod| pod.status.as_ref()).and_then(|status| status.phase.as_deref()) == Some(phase)
    };
    let waited = tokio::time::timeout(PATIENCE, await_condition(pods.clone(), name, is_so)).await;
    waited.unwrap_or_else(|_| panic!("{name} is not {phase}")).unwrap().unwrap()
}

async fn on_nodes(namespace: &str, machines: Vec<FakeNode>) -> Option<(Client, Life, Api<Pod>)> {
    let cluster = shared().await?;
    cluster.namespace(namespace).await.unwrap();
    let client = cluster.client().await.unwrap();
    let life = Life::start(client.clone(), machines).await.unwrap();
    let pods = Api::namespaced(client.clone(), namespace);
    Some((client, life, pods))
}

#[tokio::test]
async fn the_scheduler_binds_a_pod_that_runs_and_then_succeeds_on_request() {
    let machines =
        vec![FakeNode::named("scheduled-small").has("cpu", "1"), FakeNode::named("scheduled-large")];
    let machines = machines.into_iter().map(|machine| machine.label("suite", "scheduled")).collect();
    let Some((_, life, pods)) = on_nodes("scheduled", machines).await else { return };
    let wish = json!({
        "nodeSelector": {"suite": "scheduled"},
        "containers": [{"name": "main", "image": "none", "resources": {"requests": {"cpu": "8"}}}],
    });
    pods.create(&PostParams::default(), &pod("job", wish)).await.unwrap();

    let running = phase(&pods, "job", "Running").await;
    // Only the scheduler can have chosen the node, and only one of the two has eight processors.
    assert_eq!(running.spec.unwrap().node_name.as_deref(), Some("scheduled-large"));
    let conditions = running.status.unwrap().conditions.unwrap();
    for kind in ["PodScheduled", "Ready"] {
        assert!(conditions.iter().any(|c| c.type_ == kind && c.status == "True"), "{kind}: {conditions:?}");
    }

    life.finish("scheduled", "job", PodEnding::Succeeded).await.unwrap();
    let ended = phase(&pods, "job", "Succeeded").await.status.unwrap();
    let state = ended.container_statuses.unwrap()[0].state.clone().unwrap();
    assert_eq!(state.terminated.unwrap().exit_code, 0);
}

#[tokio::test]
async fn a_pod_that_is_to_fail_fails_and_a_wrong_wish_is_answered_in_its_status() {
    let machines = vec![FakeNode::named("ending").label("suite", "ending")];
    let Some((_, _life, pods)) = on_nodes("ending", machines).await else { return };
    for (name, wish) in [("failing", "Failed"), ("wrong", "Finished")] {
        let mut wishing = pod(name, json!({"nodeSelector": {"suite": "ending"}}));
        wishing.metadata.annotations = Some([(FINISH.to_owned(), wish.to_owned())].into());
        pods.create(&PostParams::default(), &wishing).await.unwrap();
    }
    phase(&pods, "failing", "Failed").await;
    until("the message", || async {
        let status = pods.get("wrong").await.unwrap().status.unwrap();
        let told = status.message.is_some_and(|message| message.contains("\"Finished\""));
        told && status.phase.as_deref() == Some("Running")
    })
    .await;
}

#[tokio::test]
async fn a_pod_deleted_with_grace_goes_and_one_of_a_foreign_node_stays() {
    let machines = vec![FakeNode::named("deleting").label("suite", "deleting")];
    let Some((client, _life, pods)) = on_nodes("deleting", machines).await else { return };
    // A node that is not managed here: its bound pod must not be touched.
    let foreign = serde_json::from_value(json!({"metadata": {"name": "foreign"}})).unwrap();
    Api::<Node>::all(client).create(&PostParams::default(), &foreign).await.unwrap();
    let there = pod("there", json!({"nodeName": "foreign", "tolerations": [{"operator": "Exists"}]}));
    pods.create(&PostParams::default(), &there).await.unwrap();
    pods.create(&PostParams::default(), &pod("here", json!({"nodeSelector": {"suite": "deleting"}})))
        .await
        .unwrap();
    phase(&pods, "here", "Running").await;

    for name in ["here", "there"] {
        pods.delete(name, &DeleteParams::default().grace_period(600)).await.unwrap();
    }
    until("the end of the pod", || async { pods.get_opt("here").await.unwrap().is_none() }).await;
    let there = pods.get("there").await.unwrap();
    assert!(there.metadata.deletion_timestamp.is_some());
    assert_eq!(there.status.unwrap().phase.as_deref(), Some("Pending"));
}

#[tokio::test]
async fn a_node_is_ready_untainted_and_sends_heartbeats() {
    let machines = vec![FakeNode::named("beating").label("suite", "beating").has("example.com/gpu", "8")];
    let Some((client, _life, _)) = on_nodes("beating", machines).await else { return };
    let nodes: Api<Node> = Api::all(client.clone());
    until("the node controller finds it in order", || async {
        let spec = nodes.get("beating").await.unwrap().spec.unwrap();
        spec.taints.unwrap_or_default().is_empty()
    })
    .await;
    let allocatable = nodes.get("beating").await.unwrap().status.unwrap().allocatable.unwrap();
    assert_eq!(allocatable["example.com/gpu"].0, "8");

    let leases: Api<Lease> = Api::namespaced(client, "kube-node-lease");
    let beat = || async { leases.get("beating").await.unwrap().spec.unwrap().renew_time.unwrap().0 };
    let first = beat().await;
    // Registering and starting each send a heartbeat; a later one shows that heartbeats are periodic.
    until("a later heartbeat", || async { beat().await.as_second() > first.as_second() + 5 }).await;
}
