//! Watches, directly and through kube's runtime.

use crate::{clear, probe, probes, version};
use futures::{Stream, StreamExt, TryStreamExt};
use kube::Client;
use kube::api::{DynamicObject, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use kube::runtime::{WatchStreamExt, reflector, watcher};
use serde_json::json;
use std::pin::{Pin, pin};
use std::time::Duration;

type Events = Pin<Box<dyn Stream<Item = kube::Result<WatchEvent<DynamicObject>>> + Send>>;

/// The next event that is not a bookmark: its type, the object's name, and its version.
async fn next(events: &mut Events) -> (&'static str, String, String) {
    loop {
        let event = tokio::time::timeout(Duration::from_secs(30), events.try_next()).await;
        let event = event.expect("the watch is silent").unwrap().expect("the watch ended");
        let (what, object) = match event {
            WatchEvent::Added(object) => ("ADDED", object),
            WatchEvent::Modified(object) => ("MODIFIED", object),
            WatchEvent::Deleted(object) => ("DELETED", object),
            WatchEvent::Bookmark(_) => continue,
            WatchEvent::Error(error) => panic!("the watch failed: {error:?}"),
        };
        return (what, object.metadata.name.clone().unwrap(), version(&object).to_owned());
    }
}

async fn patch(client: &Client, name: &str, body: serde_json::Value) {
    probes(client).patch(name, &PatchParams::default(), &Patch::Merge(&body)).await.unwrap();
}

pub(crate) async fn changes_come_in_order(client: Client) {
    let api = probes(&client);
    clear(&api, "ordered").await;
    let from = api.list(&Default::default()).await.unwrap().metadata.resource_version.unwrap();
    let only = WatchParams::default().fields("metadata.name=ordered");
    let mut events: Events = Box::pin(api.watch(&only, &from).await.unwrap());
    let made = api.create(&PostParams::default(), &probe("ordered", json!({}))).await.unwrap();
    patch(&client, "ordered", json!({"spec": {"watts": 5}})).await;
    clear(&api, "ordered").await;
    assert_eq!(next(&mut events).await, ("ADDED", "ordered".to_owned(), version(&made).to_owned()));
    assert_eq!(next(&mut events).await.0, "MODIFIED");
    let (what, _, last) = next(&mut events).await;
    assert_eq!(what, "DELETED");
    assert_ne!(last, version(&made), "a deletion has a version of its own");
    // A watch from the version of the first event repeats the later events.
    let mut again: Events = Box::pin(api.watch(&only, version(&made)).await.unwrap());
    assert_eq!(next(&mut again).await.0, "MODIFIED");
    assert_eq!(next(&mut again).await, ("DELETED", "ordered".to_owned(), last));
}

pub(crate) async fn a_selection_is_left(client: Client) {
    let api = probes(&client);
    clear(&api, "leaver").await;
    let from = api.list(&Default::default()).await.unwrap().metadata.resource_version.unwrap();
    let mut events: Events =
        Box::pin(api.watch(&WatchParams::default().labels("joins=yes"), &from).await.unwrap());
    api.create(&PostParams::default(), &probe("leaver", json!({}))).await.unwrap();
    patch(&client, "leaver", json!({"metadata": {"labels": {"joins": "yes"}}})).await;
    patch(&client, "leaver", json!({"spec": {"watts": 5}})).await;
    patch(&client, "leaver", json!({"metadata": {"labels": {"joins": "no"}}})).await;
    patch(&client, "leaver", json!({"metadata": {"labels": {"joins": "yes"}}})).await;
    clear(&api, "leaver").await;
    for expected in ["ADDED", "MODIFIED", "DELETED", "ADDED", "DELETED"] {
        let (what, name, _) = next(&mut events).await;
        assert_eq!((what, name.as_str()), (expected, "leaver"));
    }
}

pub(crate) async fn a_streamed_list_ends(client: Client) {
    let api = probes(&client);
    clear(&api, "streamed").await;
    api.create(&PostParams::default(), &probe("streamed", json!({}))).await.unwrap();
    let parameters = WatchParams::default().fields("metadata.name=streamed").initial_events();
    let mut events = pin!(api.watch(&parameters, "0").await.unwrap());
    let mut there = Vec::new();
    loop {
        match events.next().await.unwrap().unwrap() {
            WatchEvent::Added(object) => there.push(object.metadata.name.unwrap()),
            WatchEvent::Bookmark(bookmark) => {
                let end = bookmark.metadata.annotations.get("k8s.io/initial-events-end").map(String::as_str);
                assert_eq!(end, Some("true"));
                assert_ne!(bookmark.metadata.resource_version, "0");
                break;
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(there, ["streamed"]);
    clear(&api, "streamed").await;
}

pub(crate) async fn a_reflector_follows(client: Client) {
    let api = probes(&client);
    for streaming in [false, true] {
        clear(&api, "reflected").await;
        let config = watcher::Config::default().fields("metadata.name=reflected");
        let config = if streaming { config.streaming_lists() } else { config };
        let kind = kube::api::ApiResource::from_gvk(&kube::api::GroupVersionKind::gvk(
            "conformance.joulie.io",
            "v1",
            "Probe",
        ));
        let writer = reflector::store::Writer::<DynamicObject>::new(kind);
        let store = writer.as_reader();
        let mut follow = pin!(reflector(writer, watcher(api.clone(), config)).applied_objects());
        api.create(&PostParams::default(), &probe("reflected", json!({"watts": 1}))).await.unwrap();
        let seen =
            tokio::time::timeout(Duration::from_secs(30), follow.next()).await.unwrap().unwrap().unwrap();
        assert_eq!(seen.data["spec"]["watts"], 1);
        patch(&client, "reflected", json!({"spec": {"watts": 2}})).await;
        let seen =
            tokio::time::timeout(Duration::from_secs(30), follow.next()).await.unwrap().unwrap().unwrap();
        assert_eq!(seen.data["spec"]["watts"], 2);
        assert_eq!(store.state().len(), 1);
    }
    clear(&api, "reflected").await;
}
