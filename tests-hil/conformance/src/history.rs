//! Revisions that the server no longer has: 410, and how a client recovers.

use crate::{TestServer, clear, probe, probes, status, version};
use futures::TryStreamExt;
use kube::api::{Api, DynamicObject, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use serde_json::json;
use std::time::Duration;

async fn change(api: &Api<DynamicObject>, name: &str, watts: u32) {
    let body = json!({"spec": {"watts": watts}});
    api.patch(name, &PatchParams::default(), &Patch::Merge(&body)).await.unwrap();
}

/// The first event of a watch.
async fn first(api: &Api<DynamicObject>, name: &str, from: &str) -> WatchEvent<DynamicObject> {
    let only = WatchParams::default().fields(&format!("metadata.name={name}"));
    let mut events = Box::pin(api.watch(&only, from).await.unwrap());
    let event = tokio::time::timeout(Duration::from_secs(30), events.try_next()).await;
    event.expect("the watch is silent").unwrap().expect("the watch ended")
}

pub(crate) async fn a_compacted_watch_is_told(on: TestServer) {
    let api = probes(&on.client);
    clear(&api, "forgotten").await;
    let made = api.create(&PostParams::default(), &probe("forgotten", json!({}))).await.unwrap();
    for watts in 1..=3 {
        change(&api, "forgotten", watts).await;
    }
    (on.compact)().await;
    match first(&api, "forgotten", version(&made)).await {
        WatchEvent::Error(status) => assert_eq!((status.code, status.reason.as_str()), (410, "Expired")),
        other => panic!("{other:?}"),
    }
    // The recovery: list, and watch from there.
    let all = api.list(&ListParams::default()).await.unwrap();
    let there = all.items.iter().find(|object| object.metadata.name.as_deref() == Some("forgotten")).unwrap();
    assert_eq!(there.data["spec"]["watts"], 3);
    change(&api, "forgotten", 4).await;
    match first(&api, "forgotten", &all.metadata.resource_version.unwrap()).await {
        WatchEvent::Modified(object) => assert_eq!(object.data["spec"]["watts"], 4),
        other => panic!("{other:?}"),
    }
    clear(&api, "forgotten").await;
}

pub(crate) async fn a_compacted_page_is_told(on: TestServer) {
    let api = probes(&on.client);
    for name in ["page-a", "page-b"] {
        clear(&api, name).await;
        api.create(&PostParams::default(), &probe(name, json!({}))).await.unwrap();
    }
    let page = api.list(&ListParams::default().limit(1)).await.unwrap();
    let token = page.metadata.continue_.unwrap();
    change(&api, "page-a", 1).await;
    change(&api, "page-a", 2).await;
    (on.compact)().await;
    let next = api.list(&ListParams::default().limit(1).continue_token(&token)).await;
    let expired = status(next.expect_err("the rest of that list is gone"));
    assert_eq!((expired.code, expired.reason.as_str()), (410, "Expired"));
    for name in ["page-a", "page-b"] {
        clear(&api, name).await;
    }
}
