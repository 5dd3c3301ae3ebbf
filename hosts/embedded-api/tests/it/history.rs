//! Revisions that the log no longer holds: 410, and how clients recover from it.

use crate::{server, soon, until};
use conformance::{definition, probe, probes};
use embedded_api::{ApiOptions, EmbeddedApi, Matching, Verb};
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::{ConfigMap, Node};
use kube::api::{Api, DynamicObject, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Client, Error};
use serde_json::json;
use std::pin::pin;
use std::time::Duration;

async fn change(client: &Client, name: &str, watts: usize) {
    let body = json!({"spec": {"watts": watts}});
    probes(client).patch(name, &PatchParams::default(), &Patch::Merge(&body)).await.unwrap();
}

async fn make(api: &Api<DynamicObject>, name: &str) {
    api.create(&PostParams::default(), &probe(name, json!({}))).await.unwrap();
}

/// The code and the message of the error that ends a watch.
async fn watch_error(api: &Api<DynamicObject>, from: &str) -> (u16, String) {
    let mut events = Box::pin(api.watch(&WatchParams::default(), from).await.unwrap());
    match soon("the error", events.try_next()).await.unwrap() {
        Some(WatchEvent::Error(status)) => (status.code, status.message),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_watch_from_before_the_log_gets_410() {
    let server = server();
    let api = probes(&server.client());
    make(&api, "a").await;
    let from = api.get("a").await.unwrap().metadata.resource_version.unwrap();
    change(&server.client(), "a", 5).await;
    server.compact();
    let (code, message) = watch_error(&api, &from).await;
    assert_eq!(code, 410);
    assert_eq!(message, format!("too old resource version: {from} ({})", server.revision()));
    // A watch from the current revision works.
    drop(api.watch(&WatchParams::default(), &server.revision().to_string()).await.unwrap());
}

#[tokio::test]
async fn what_is_restored_is_as_it_was_and_who_watches_is_told_to_look_again() {
    let server = server();
    let api = probes(&server.client());
    make(&api, "a").await;
    let old = api.get("a").await.unwrap();
    let snapshot = server.snapshot();
    change(&server.client(), "a", 5).await;
    make(&api, "b").await;
    let from = server.revision();
    server.restore(&snapshot);
    assert_eq!(watch_error(&api, &from.to_string()).await.0, 410);
    assert_eq!(api.get("a").await.unwrap(), old);
    let all = api.list(&ListParams::default()).await.unwrap();
    assert_eq!(all.items.len(), 1);
    assert!(server.revision() > from);
    change(&server.client(), "a", 6).await;
}

#[tokio::test]
async fn a_log_of_few_events_forgets_the_first() {
    let options = ApiOptions { event_horizon: 3, ..ApiOptions::with(vec![definition()]) };
    let server = EmbeddedApi::new(&options).unwrap();
    let api = probes(&server.client());
    make(&api, "a").await;
    let from = server.revision();
    for watts in 1..=4 {
        change(&server.client(), "a", watts).await;
    }
    assert_eq!(watch_error(&api, &from.to_string()).await.0, 410);
    let mut events = Box::pin(api.watch(&WatchParams::default(), &(from + 1).to_string()).await.unwrap());
    let first = soon("the second change", events.try_next()).await.unwrap();
    assert!(matches!(first, Some(WatchEvent::Modified(object)) if object.data["spec"]["watts"] == 2));
}

#[tokio::test]
async fn a_page_from_before_the_log_gets_410() {
    let server = server();
    let api = probes(&server.client());
    make(&api, "a").await;
    make(&api, "b").await;
    let first = api.list(&ListParams::default().limit(1)).await.unwrap();
    assert_eq!(first.metadata.remaining_item_count, Some(1));
    let token = first.metadata.continue_.unwrap();
    change(&server.client(), "a", 3).await;
    server.compact();
    let expired = api.list(&ListParams::default().limit(1).continue_token(&token)).await;
    assert!(matches!(expired, Err(Error::Api(status)) if status.code == 410 && status.reason == "Expired"));
}

#[tokio::test]
async fn a_revision_to_come_is_refused() {
    let server = server();
    let api = probes(&server.client());
    let later = server.revision() + 100;
    let refused = api.watch(&WatchParams::default(), &later.to_string()).await;
    assert!(matches!(refused.err(), Some(Error::Api(status)) if status.code == 504));
}

#[tokio::test]
async fn what_happens_elsewhere_does_not_expire_an_idle_watch() {
    let options = ApiOptions { event_horizon: 5, ..ApiOptions::with(vec![definition()]) };
    let server = EmbeddedApi::new(&options).unwrap();
    let nodes: Api<Node> = Api::all(server.client());
    let node: Node = serde_json::from_value(json!({"metadata": {"name": "n"}})).unwrap();
    let mut events =
        Box::pin(nodes.watch(&WatchParams::default(), &server.revision().to_string()).await.unwrap());
    // Read the watch while others write, as a client does.
    let reader = tokio::spawn(async move { events.try_next().await });
    until("the watch opens", || server.faults().open_watches(&Matching::any().verb(Verb::Watch)) == 1).await;
    let maps: Api<ConfigMap> = Api::default_namespaced(server.client());
    for number in 0..50 {
        let map = serde_json::from_value(json!({"metadata": {"name": format!("m{number}")}})).unwrap();
        maps.create(&PostParams::default(), &map).await.unwrap();
        tokio::task::yield_now().await;
    }
    nodes.create(&PostParams::default(), &node).await.unwrap();
    let seen = soon("the node", reader).await.unwrap().unwrap();
    assert!(matches!(seen, Some(WatchEvent::Added(_))), "{seen:?}");
}

#[tokio::test]
async fn an_idle_watch_gets_bookmarks_that_move_on() {
    let options =
        ApiOptions { bookmark_every: Duration::from_millis(20), ..ApiOptions::with(vec![definition()]) };
    let server = EmbeddedApi::new(&options).unwrap();
    let api = probes(&server.client());
    let mut events =
        Box::pin(api.watch(&WatchParams::default(), &server.revision().to_string()).await.unwrap());
    let maps: Api<ConfigMap> = Api::default_namespaced(server.client());
    let map = serde_json::from_value(json!({"metadata": {"name": "m"}})).unwrap();
    maps.create(&PostParams::default(), &map).await.unwrap();
    let newest = server.revision().to_string();
    soon("a bookmark at the newest revision", async {
        loop {
            match events.try_next().await.unwrap().unwrap() {
                WatchEvent::Bookmark(bookmark) if bookmark.metadata.resource_version == newest => break,
                WatchEvent::Bookmark(_) => {}
                other => panic!("{other:?}"),
            }
        }
    })
    .await;
}

#[tokio::test]
async fn a_watch_ends_when_its_time_is_over() {
    let server = server();
    let api = probes(&server.client());
    let short = WatchParams::default().timeout(1);
    let mut events = Box::pin(api.watch(&short, &server.revision().to_string()).await.unwrap());
    assert!(soon("the end", events.try_next()).await.unwrap().is_none());
}

#[tokio::test]
async fn a_watcher_of_kube_comes_back_from_410() {
    let server = server();
    let api = probes(&server.client());
    make(&api, "a").await;
    let mut follow =
        pin!(watcher(api.clone(), watcher::Config::default()).default_backoff().applied_objects());
    soon("the list", follow.next()).await.unwrap().unwrap();
    let faults = server.faults();
    // Discard the log past the position of the silent watch.
    faults.stall_watches(Matching::any());
    change(&server.client(), "a", 7).await;
    server.compact();
    faults.heal();
    soon("the change", async {
        loop {
            if let Ok(object) = follow.next().await.unwrap()
                && object.data["spec"]["watts"] == 7
            {
                break;
            }
        }
    })
    .await;
}
