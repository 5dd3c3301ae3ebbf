//! The API server stops and starts again, and etcd is compacted.

use crate::support::{alone, pod, until};
use cluster::life::{FakeNode, Life};
use cluster::{Component, ControlPlaneOptions, start_or_skip};
use futures::TryStreamExt;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, ServiceAccount};
use kube::api::{ListParams, PostParams, WatchEvent, WatchParams};
use kube::{Api, Client};
use serde_json::json;

#[tokio::test]
async fn an_old_watch_is_told_of_a_compaction_and_life_goes_on_after_an_outage() {
    let _alone = alone().await;
    let mut options = ControlPlaneOptions::api_only();
    // The watch cache keeps events that a compaction does not remove.
    options.flags.push((Component::ApiServer, "--watch-cache=false".to_owned()));
    let Some(cluster) = start_or_skip(&options) else { return };
    let client = cluster.client().await.unwrap();
    let _life = Life::start(client.clone(), vec![FakeNode::named("patient")]).await.unwrap();
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "default");
    let before = maps.list(&ListParams::default()).await.unwrap().metadata.resource_version.unwrap();
    for name in ["a", "b"] {
        let map = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
        maps.create(&PostParams::default(), &map).await.unwrap();
    }

    assert_eq!(first_event(&maps, &before).await, "added a");
    let revision = cluster.compact().await.unwrap();
    assert!(revision > before.parse::<i64>().unwrap());
    assert_eq!(first_event(&maps, &before).await, "error 410");

    cluster.stop(Component::ApiServer);
    assert!(maps.list(&ListParams::default()).await.is_err());
    cluster.run(Component::ApiServer).unwrap();
    maps.get("b").await.unwrap();

    // The nodes have connected again.
    account(&client).await;
    let pods: Api<Pod> = Api::namespaced(client, "default");
    pods.create(&PostParams::default(), &pod("late", json!({"nodeName": "patient"}))).await.unwrap();
    until("the pod runs", || async {
        pods.get("late").await.unwrap().status.unwrap().phase.as_deref() == Some("Running")
    })
    .await;
}

async fn first_event(maps: &Api<ConfigMap>, since: &str) -> String {
    let watch = maps.watch(&WatchParams::default().timeout(30), since).await;
    let mut events = match watch {
        Ok(events) => Box::pin(events),
        Err(kube::Error::Api(status)) => return format!("error {}", status.code),
        Err(error) => panic!("{error}"),
    };
    match events.try_next().await {
        Ok(Some(WatchEvent::Added(map))) => format!("added {}", map.metadata.name.unwrap()),
        Ok(Some(WatchEvent::Error(status))) => format!("error {}", status.code),
        other => format!("{other:?}"),
    }
}

/// Creates the account that the controller manager would create; without it pods are refused.
async fn account(client: &Client) {
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), "default");
    let account = serde_json::from_value(json!({"metadata": {"name": "default"}})).unwrap();
    accounts.create(&PostParams::default(), &account).await.unwrap();
}
