//! Work that may wait, under a limit that is lower for a while, with the real kube-scheduler: a pod without a deadline is placed,
//! one with a deadline is not before it and is after it, and one whose deadline is far is placed once the limit is not lower
//! any more. The limit is so high that no node is lowered for it.

use crate::placement::NAMESPACE;
use crate::support::wait;
use k8s_openapi::api::core::v1::{Pod, PodCondition};
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};
use std::time::Duration;
use system::field::{self, Field};
use system::objects;
use system::world::{SIMULATED, TestSystem};
use tokio::time::Instant;

const BUDGET: &str = "evening";
/// kube-scheduler's backoff of 10 s, and the looks of this test.
const PLACED_WITHIN: Duration = Duration::from_secs(90);
/// From when the pod was refused on.
const DEADLINE: Duration = Duration::from_secs(5);

/// A pod for the simulated nodes, which may wait until then.
fn pod(name: &str, until: Option<Timestamp>) -> Value {
    let mut pod = field::pod(name);
    pod["spec"]["nodeSelector"] = json!({"joulie.io/simulated": "true"});
    if let Some(until) = until {
        pod["metadata"]["annotations"] = json!({"joulie.io/deferrable-until": until.to_string()});
    }
    pod
}

/// What is said of the scheduling of a pod.
async fn scheduled(pods: &Api<Pod>, name: &str) -> Option<PodCondition> {
    let pod = pods.get(name).await.unwrap();
    let all = pod.status.and_then(|status| status.conditions).unwrap_or_default();
    all.into_iter().find(|one| one.type_ == "PodScheduled")
}

async fn is_placed(pods: &Api<Pod>, name: &str) -> bool {
    scheduled(pods, name).await.is_some_and(|one| one.status == "True")
}

/// Whether kube-scheduler says that the pod waits for the limit.
async fn waits_for_the_limit(pods: &Api<Pod>, name: &str) -> bool {
    let said = scheduled(pods, name).await.filter(|one| one.status == "False");
    said.and_then(|one| one.message)
        .is_some_and(|text| text.contains("the pod may wait, and does for the limit of PowerBudget evening"))
}

/// Waits until a pod is placed, in a cluster in which pods come and go.
async fn placed(field: &Field, name: &str) {
    let (pods, begun) = (field.pods(), Instant::now());
    for number in 0.. {
        let other = format!("other-{name}-{number}");
        field.make(&pod(&other, None), 1).await.unwrap();
        wait("another pod comes", async || is_placed(&pods, &format!("{other}-0")).await).await;
        pods.delete(&format!("{other}-0"), &DeleteParams::default().grace_period(0)).await.unwrap();
        if is_placed(&pods, name).await {
            return;
        }
        assert!(begun.elapsed() < PLACED_WITHIN, "{name}: {:?}", scheduled(&pods, name).await);
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

/// A limit that windows lower at any time of the day.
fn limit(windows: bool) -> Value {
    let window = |name: &str, start: &str, end: &str| json!({"name": name, "start": start, "end": end, "timeZone": "UTC", "watts": 1_000_000});
    let windows =
        windows.then(|| json!([window("morning", "00:00", "12:00"), window("rest", "12:00", "24:00")]));
    let mut spec = json!({"watts": 2_000_000, "mode": "enforce",
        "nodeSelector": {"matchLabels": {"joulie.io/simulated": "true"}}});
    if let Some(windows) = windows {
        spec["windows"] = windows;
    }
    spec
}

pub(crate) async fn pods_that_may_wait_do(world: &TestSystem) {
    let field = Field::new(&world.client, NAMESPACE).await.unwrap();
    field.clear().await.unwrap();
    let pods = field.pods();
    let budget = async || objects::get(&world.client, "PowerBudget", BUDGET).await.unwrap();
    objects::write(&world.client, "PowerBudget", BUDGET, limit(true)).await.unwrap();
    wait("the limit is lowered", async || budget().await["status"]["lowered"]["by"] == "Window").await;
    // One window follows the other, so that none of them ends the wait.
    let until: Timestamp = budget().await["status"]["lowered"]["until"].as_str().unwrap().parse().unwrap();
    let now = Timestamp::now();
    assert!(until.as_second() - now.as_second() > 86_400, "lowered until {until}");
    wait("the twins name the budget", async || {
        let twins = objects::list(&world.client, "NodeTwin").await.unwrap();
        twins.iter().filter(|twin| twin["status"]["powerBudget"] == BUDGET).count() == SIMULATED
    })
    .await;

    let at = |later: Duration| {
        let seconds = i64::try_from(later.as_secs()).unwrap();
        Timestamp::from_second(Timestamp::now().as_second() + seconds).unwrap()
    };
    let far = at(Duration::from_secs(3_600));
    field.make(&pod("soon", Some(far)), 1).await.unwrap();
    field.make(&pod("far", Some(far)), 1).await.unwrap();
    field.make(&pod("now", None), 1).await.unwrap();
    wait("a pod without a deadline is placed", async || is_placed(&pods, "now-0").await).await;
    for name in ["soon-0", "far-0"] {
        wait("pods with a deadline wait", async || waits_for_the_limit(&pods, name).await).await;
    }
    // Its deadline is drawn near, and until then pods come and go, for each of which it is tried again.
    let soon = at(DEADLINE);
    let near = json!({"metadata": {"annotations": {"joulie.io/deferrable-until": soon.to_string()}}});
    pods.patch("soon-0", &PatchParams::default(), &Patch::Merge(&near)).await.unwrap();
    placed(&field, "soon-0").await;
    let bound = scheduled(&pods, "soon-0").await.and_then(|one| one.last_transition_time).unwrap().0;
    let late = bound.as_second() - soon.as_second();
    system::tell(&format!("  placed {late} s after its deadline, in a cluster in which pods come and go"));
    assert!(late >= 0, "placed at {bound}, and it could wait until {soon}");
    assert!(waits_for_the_limit(&pods, "far-0").await, "{:?}", scheduled(&pods, "far-0").await);

    objects::write(&world.client, "PowerBudget", BUDGET, limit(false)).await.unwrap();
    wait("the limit is not lowered any more", async || budget().await["status"]["lowered"].is_null()).await;
    placed(&field, "far-0").await;
    assert!(Timestamp::now() < far, "it was placed because the limit is not lower any more");

    // The stories that follow have no limit.
    objects::delete(&world.client, "PowerBudget", BUDGET).await.unwrap();
    field.clear().await.unwrap();
    wait("no grant is left", async || {
        objects::list(&world.client, "NodePowerGrant").await.unwrap().is_empty()
    })
    .await;
}
