//! Faults on demand do what they promise, and only to the selected clients.

use crate::{server, soon, until};
use conformance::{probe, probes};
use embedded_api::{EmbeddedApi, InjectedResponse, Loss, Matching, Verb};
use futures::{StreamExt, TryStreamExt};
use kube::api::{Api, DynamicObject, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use kube::runtime::{WatchStreamExt, reflector, watcher};
use kube::{Client, Error};
use serde_json::json;
use std::pin::pin;
use std::time::Duration;
use tokio::time::Instant;

async fn made(server: &EmbeddedApi) -> Api<DynamicObject> {
    let api = probes(&server.client_as("maker"));
    api.create(&PostParams::default(), &probe("p", json!({}))).await.unwrap();
    api
}

async fn change(client: &Client, watts: u32) {
    let body = json!({"spec": {"watts": watts}});
    probes(client).patch("p", &PatchParams::default(), &Patch::Merge(&body)).await.unwrap();
}

#[tokio::test]
async fn planned_answers_meet_what_matches_so_many_times() {
    let server = server();
    let api = made(&server).await;
    let faults = server.faults();
    let gets = Matching::any().verb(Verb::Get).resource("probes").client("maker");
    faults.fail(gets.clone(), InjectedResponse::TooManyRequests { retry_after: 7 }, 2);
    faults.fail(gets.clone(), InjectedResponse::InternalError, 1);
    faults.fail(gets.clone(), InjectedResponse::Conflict, 1);
    faults.fail(gets.clone(), InjectedResponse::Forbidden, 1);
    faults.fail(gets, InjectedResponse::ConnectionLost, 1);
    api.list(&Default::default()).await.unwrap();
    probes(&server.client_as("other")).get("p").await.unwrap();
    let mut met = Vec::new();
    for _ in 0..7 {
        met.push(match api.get("p").await {
            Ok(_) => 200,
            Err(Error::Api(status)) => {
                let retry = status.details.as_ref().map_or(0, |details| details.retry_after_seconds);
                assert_eq!(retry, if status.code == 429 { 7 } else { 0 });
                status.code
            }
            Err(_) => 0,
        });
    }
    assert_eq!(met, [429, 429, 500, 409, 403, 0, 200]);
    assert_eq!(faults.left(), 0);
}

#[tokio::test]
async fn a_lost_answer_is_a_deed_done() {
    let server = server();
    let api = probes(&server.client());
    server.faults().fail(Matching::any().verb(Verb::Create), InjectedResponse::AnswerLost, 1);
    let lost = api.create(&PostParams::default(), &probe("p", json!({}))).await;
    assert!(matches!(lost, Err(Error::Service(_))), "{lost:?}");
    api.get("p").await.unwrap();
}

#[tokio::test]
async fn latency_delays_every_request() {
    let server = server();
    let api = made(&server).await;
    server.faults().latency(Duration::from_millis(120));
    let start = Instant::now();
    api.get("p").await.unwrap();
    assert!(start.elapsed() >= Duration::from_millis(120));
}

#[tokio::test]
async fn a_dropped_watch_ends_and_a_reflector_comes_back() {
    let server = server();
    let api = made(&server).await;
    let faults = server.faults();
    let client = server.client_as("follower");
    let kind = kube::api::ApiResource::from_gvk(&kube::api::GroupVersionKind::gvk(
        "conformance.joulie.io",
        "v1",
        "Probe",
    ));
    let config = watcher::Config::default();
    let stream = watcher(probes(&client), config).default_backoff();
    let mut follow = pin!(reflector(reflector::store::Writer::new(kind), stream).applied_objects());
    let first = soon("the list", follow.next()).await.unwrap().unwrap();
    assert_eq!(first.metadata.name.as_deref(), Some("p"));
    let watches = Matching::any().verb(Verb::Watch).client("follower");
    let seen = tokio::spawn({
        let (faults, client) = (faults.clone(), server.client());
        async move {
            until("the watch opens", || faults.open_watches(&watches) == 1).await;
            faults.drop_watches(&watches);
            change(&client, 42).await;
        }
    });
    let changed = soon("the change", async {
        loop {
            // A watch that ends may be reported as an error before the next one begins.
            if let Ok(object) = follow.next().await.unwrap()
                && object.data["spec"]["watts"] == 42
            {
                break object;
            }
        }
    })
    .await;
    assert_eq!(changed.metadata.name.as_deref(), Some("p"));
    seen.await.unwrap();
    drop(api);
}

#[tokio::test]
async fn a_stalled_watch_is_silent_until_it_heals() {
    let server = server();
    let api = made(&server).await;
    let mut events = Box::pin(api.watch(&WatchParams::default(), "0").await.unwrap());
    assert!(matches!(soon("the first event", events.try_next()).await.unwrap(), Some(WatchEvent::Added(_))));
    server.faults().stall_watches(Matching::any().resource("probes"));
    change(&server.client(), 2).await;
    let early = tokio::time::timeout(Duration::from_millis(200), events.try_next()).await;
    assert!(early.is_err(), "{early:?}");
    server.faults().heal();
    let late = soon("the change", events.try_next()).await.unwrap();
    assert!(matches!(late, Some(WatchEvent::Modified(_))), "{late:?}");
}

#[tokio::test]
async fn a_partition_cuts_off_one_client() {
    let server = server();
    made(&server).await;
    let (faults, cut) = (server.faults(), probes(&server.client_as("agent-n1")));
    let mut events = Box::pin(cut.watch(&WatchParams::default(), "0").await.unwrap());
    soon("the first event", events.try_next()).await.unwrap();
    faults.partition("agent-n1", Loss::Refused);
    assert!(matches!(cut.get("p").await, Err(Error::Service(_))));
    assert!(soon("the end", events.try_next()).await.unwrap().is_none(), "the watch ends");
    probes(&server.client_as("agent-n2")).get("p").await.unwrap();
    faults.heal();
    cut.get("p").await.unwrap();

    faults.partition("agent-n1", Loss::Silent);
    let asked = tokio::spawn({
        let cut = cut.clone();
        async move { cut.get("p").await }
    });
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(!asked.is_finished(), "nothing comes back");
    faults.heal();
    assert!(matches!(soon("the failure", asked).await.unwrap(), Err(Error::Service(_))));
    // A client can also be selected by its field manager.
    faults.partition("joulie-operator", Loss::Refused);
    let by = PatchParams::apply("joulie-operator");
    assert!(cut.patch("p", &by, &Patch::Apply(&probe("p", json!({})))).await.is_err());
    cut.get("p").await.unwrap();
}
