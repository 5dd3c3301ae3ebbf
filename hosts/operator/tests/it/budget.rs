//! The power never exceeds the limit, whatever agents do: the test plays the agents, which are late, and one of which
//! does not report at all.

use super::rig::{Cluster, JOULIE};
use embedded_api::{InjectedResponse, Matching, Verb};
use serde_json::json;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::task::JoinHandle;

pub(crate) const NODES: usize = 6;
const MAX: u64 = 720;

/// What the nodes may really draw: the cap that each one's devices hold.
pub(crate) struct Rack {
    pub(crate) caps: Mutex<[u64; NODES]>,
    /// The highest total since this was last read.
    peak: AtomicU64,
    /// An agent that applies caps but never reports.
    mute: Mutex<Option<usize>>,
    pub(crate) ended: AtomicBool,
}

impl Rack {
    pub(crate) fn draw(&self) -> u64 {
        self.caps.lock().unwrap().iter().sum()
    }

    fn take(&self, at: usize, cap: u64) {
        self.caps.lock().unwrap()[at] = cap;
        self.peak.fetch_max(self.draw(), Ordering::SeqCst);
    }

    pub(crate) fn watch(&self) {
        self.peak.store(self.draw(), Ordering::SeqCst);
    }

    pub(crate) fn peak(&self) -> u64 {
        self.peak.load(Ordering::SeqCst)
    }
}

pub(crate) fn name(at: usize) -> String {
    format!("n{at}")
}

/// An agent with delays between receiving, applying and reporting. It keeps its last grant until a grant says that the
/// node is released, whatever happens to the objects.
fn agent(cluster: &Arc<Cluster>, rack: &Arc<Rack>, at: usize) -> JoinHandle<()> {
    let (cluster, rack) = (cluster.clone(), rack.clone());
    tokio::spawn(async move {
        let mut granted: Option<f64> = None;
        while !rack.ended.load(Ordering::SeqCst) {
            tokio::time::sleep(Duration::from_millis(7 + 11 * at as u64)).await;
            let profile = cluster.profile(&name(at)).await;
            let spec = profile.as_ref().map(|profile| profile["spec"]["cpu"].clone()).unwrap_or_default();
            let watts = spec["packagePowerCapWatts"].as_f64();
            let percent = spec["packagePowerCapPctOfMax"].as_f64().map(|percent| percent * 3.6);
            let grant = cluster.grant(&name(at)).await;
            if let Some(grant) = &grant {
                let watts = grant["spec"]["watts"].as_f64().unwrap();
                granted = (grant["spec"]["released"] != true).then(|| (watts / 2.0).floor());
            }
            let each = watts.or(percent).unwrap_or(360.0).min(granted.unwrap_or(360.0)).clamp(100.0, 360.0);
            let holds = (2.0 * each).ceil();
            rack.take(at, format!("{holds:.0}").parse().unwrap());
            tokio::time::sleep(Duration::from_millis(5 + 13 * at as u64)).await;
            if *rack.mute.lock().unwrap() == Some(at) {
                continue;
            }
            if let Some(grant) = &grant {
                cluster.holds(grant, holds).await;
            }
            let Some(profile) = profile else { continue };
            let generation = &profile["metadata"]["generation"];
            let control = &profile["status"]["control"]["cpu"];
            if control["observedGeneration"] == *generation && control["capWatts"].as_f64() == Some(each) {
                continue;
            }
            let status = json!({"status": {"control": {"cpu": {"backend": "rapl", "result": "applied",
                "observedGeneration": generation, "requestedWatts": each, "capWatts": each}}}});
            let path = format!("{JOULIE}/nodepowerprofiles/{}/status?fieldManager=joulie-agent", name(at));
            let _ = cluster.send("PATCH", &path, &status).await;
        }
    })
}

pub(crate) async fn site() -> (Arc<Cluster>, Arc<Rack>, Vec<JoinHandle<()>>) {
    let cluster = Arc::new(Cluster::new().await);
    let rack = Arc::new(Rack {
        caps: Mutex::new([MAX; NODES]),
        peak: AtomicU64::new(0),
        mute: Mutex::new(None),
        ended: AtomicBool::new(false),
    });
    for at in 0..NODES {
        let pool = if at < 2 { "small" } else { "large" };
        cluster.labelled(&name(at), json!({"joulie.io/rack": "r1", "pool": pool})).await;
        cluster.hardware(&name(at), 300.0).await;
    }
    let agents = (0..NODES).map(|at| agent(&cluster, &rack, at)).collect();
    (cluster, rack, agents)
}

pub(crate) async fn below(cluster: &Cluster, rack: &Rack, limit: u64) {
    cluster.until(&format!("the rack is at {limit} W"), async || rack.draw() <= limit).await;
}

/// Whether every spec and every grant in force was read back.
pub(crate) async fn confirmed(cluster: &Cluster) -> bool {
    let all = cluster.list(&format!("{JOULIE}/nodepowerprofiles")).await;
    let grants = cluster.list(&format!("{JOULIE}/nodepowergrants")).await;
    all.len() == NODES
        && all.iter().all(|profile| {
            profile["status"]["control"]["cpu"]["observedGeneration"] == profile["metadata"]["generation"]
        })
        && grants.len() == NODES
        && grants.iter().all(|grant| grant["status"]["serial"] == grant["spec"]["serial"])
}

#[tokio::test(flavor = "multi_thread")]
async fn the_rack_never_draws_more_than_its_limit_once_it_was_below_it() {
    let (cluster, rack, agents) = site().await;
    // 6 × 720 W are 4320 W: half of the nodes have 432 W, the others share the rest of 3000 W.
    let options = |frac: &'static str, watts: &'static str| {
        [
            ("STATIC_HP_FRAC", frac),
            ("BUDGET_RACK_WATTS", watts),
            ("WRITE_TIMEOUT", "300ms"),
            ("FAMILY_FLOOR", "off"),
        ]
    };
    let first = cluster.operator(&options("0.5", "r1=3000")).await;
    below(&cluster, &rack, 3000).await;
    rack.watch();
    cluster.until("all is confirmed", async || confirmed(&cluster).await).await;
    cluster.quiet(Duration::from_millis(500)).await;
    let labels = async || {
        let mut performance = Vec::new();
        for at in 0..NODES {
            if cluster.label(&name(at)).await.as_deref() == Some("performance") {
                performance.push(at);
            }
        }
        performance
    };
    cluster.until("three nodes are performance nodes", async || labels().await == [0, 1, 2]).await;
    assert!(rack.peak() <= 3000, "{} W", rack.peak());
    // Performance nodes come first: they get what three eco nodes at their minimum leave.
    cluster.until("what there is is given", async || rack.draw() > 2900).await;
    assert!(rack.peak() <= 3000, "{} W", rack.peak());

    // The limit is cut by a fifth and the policy is reversed, while one agent stops reporting.
    *rack.mute.lock().unwrap() = Some(4);
    first.stop().await;
    let second = cluster.operator(&options("1", "r1=2400")).await;
    below(&cluster, &rack, 2400).await;
    rack.watch();
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert!(rack.peak() <= 2400, "{} W while one node says nothing", rack.peak());
    // It counts with the most that it may draw, so the others have less.
    *rack.mute.lock().unwrap() = None;
    cluster.until("all is confirmed", async || confirmed(&cluster).await).await;
    cluster.quiet(Duration::from_millis(500)).await;
    cluster.until("all are performance nodes", async || labels().await.len() == NODES).await;
    assert!(rack.peak() <= 2400, "{} W", rack.peak());
    cluster.until("what there is is given", async || rack.draw() > 2300).await;

    // A leader is killed in the middle, and there is more to give.
    second.kill();
    let third = cluster.operator(&options("0.5", "r1=3600")).await;
    cluster.until("more is given", async || rack.draw() > 3300).await;
    cluster.quiet(Duration::from_millis(500)).await;
    assert!(rack.peak() <= 3600, "{} W", rack.peak());
    third.stop().await;
    rack.ended.store(true, Ordering::SeqCst);
    for agent in agents {
        agent.await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_kept_is_said_and_everybody_is_at_the_lowest() {
    let (cluster, rack, agents) = site().await;
    // The lowest caps are 6 × 200 W.
    let operator = cluster.operator(&[("BUDGET_SITE_WATTS", "1100"), ("WRITE_TIMEOUT", "300ms")]).await;
    cluster.until("all are at the lowest", async || rack.draw() == 1200).await;
    let said = async || {
        let twin = cluster.twin("n0").await;
        let conditions = twin.as_ref().and_then(|twin| twin["status"]["conditions"].as_array());
        conditions.into_iter().flatten().any(|condition| {
            condition["type"] == "WithinBudget"
                && condition["status"] == "False"
                && condition["reason"] == "BudgetShort"
        })
    };
    cluster.until("the twin says so", said).await;
    let events = async || {
        let events = cluster.list("/apis/events.k8s.io/v1/namespaces/joulie-system/events").await;
        events.iter().any(|event| event["reason"] == "BudgetShort")
    };
    cluster.until("an Event says so", events).await;
    operator.stop().await;
    rack.ended.store(true, Ordering::SeqCst);
    for agent in agents {
        agent.await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_waits_for_room_and_a_persons_cap_counts() {
    let (cluster, rack, agents) = site().await;
    let options = [
        ("STATIC_HP_FRAC", "0"),
        ("FAMILY_FLOOR", "off"),
        ("BUDGET_SITE_WATTS", "2600"),
        ("WRITE_TIMEOUT", "300ms"),
    ];
    let operator = cluster.operator(&options).await;
    // 6 × 432 W are 2592 W.
    below(&cluster, &rack, 2600).await;
    cluster.until("all is confirmed", async || confirmed(&cluster).await).await;
    rack.watch();
    cluster.patch("/api/v1/nodes/n5", &json!({"metadata": {"labels": {"joulie.io/managed": null}}})).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(rack.peak() <= 2600, "{} W", rack.peak());
    // A person requests more on one node: a person's cap can only lower what the budget grants.
    let person = |watts: u32| json!({"spec": {"cpu": {"packagePowerCapWatts": watts, "packagePowerCapPctOfMax": null}}});
    let path = format!("{JOULIE}/nodepowerprofiles/n0?fieldManager=kubectl-edit");
    cluster.patch(&path, &person(350)).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(rack.peak() <= 2600, "{} W", rack.peak());
    cluster.patch(&path, &person(120)).await;
    let is_low = async || (230..=240).contains(&rack.caps.lock().unwrap()[0]);
    cluster.until("the person's cap is in force", is_low).await;
    assert!(rack.peak() <= 2600, "{} W", rack.peak());
    operator.stop().await;
    rack.ended.store(true, Ordering::SeqCst);
    for agent in agents {
        agent.await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_whose_hardware_is_not_known_is_asked_for_no_cap_of_the_budget() {
    let cluster = Arc::new(Cluster::new().await);
    for at in 0..NODES {
        cluster.labelled(&name(at), json!({"joulie.io/hw.cpu-model": ""})).await;
    }
    let operator = cluster.operator(&[("BUDGET_SITE_WATTS", "3000"), ("WRITE_TIMEOUT", "300ms")]).await;
    let reason = async |at: usize| {
        let twin = cluster.twin(&name(at)).await?;
        let all = twin["status"]["conditions"].as_array()?.clone();
        let budget = all.iter().find(|condition| condition["type"] == "WithinBudget")?;
        Some(format!("{} {}", budget["status"].as_str()?, budget["reason"].as_str()?))
    };
    for at in 0..NODES {
        let unknown = async || reason(at).await.as_deref() == Some("Unknown HardwareUnknown");
        cluster.until("it is said that the hardware is not known", unknown).await;
    }
    let nobody_knows = "joulie_operator_budget_watts{group=\"site\",what=\"load\"} NaN";
    cluster.until("the metric says so", async || operator.shows(nobody_knows).await).await;
    cluster.quiet(Duration::from_millis(300)).await;
    assert_eq!(cluster.list(&format!("{JOULIE}/nodepowergrants")).await.len(), 0);
    for at in 0..NODES {
        cluster.hardware(&name(at), 300.0).await;
    }
    // 4320 W are above the limit of 3000 W, so all are granted less once their hardware is known.
    let all = async || {
        let grants = cluster.list(&format!("{JOULIE}/nodepowergrants")).await;
        let watts: Vec<f64> = grants.iter().map(|grant| grant["spec"]["watts"].as_f64().unwrap()).collect();
        watts.len() == NODES
            && watts.iter().all(|&watts| watts >= 200.0)
            && watts.iter().sum::<f64>() <= 3000.0
    };
    cluster.until("all are within the limit", all).await;
    cluster
        .until("the limit is said to be kept", async || reason(0).await.as_deref() == Some("True Kept"))
        .await;
    operator.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_is_no_limit_that_cannot_be_kept() {
    let cluster = Arc::new(Cluster::new().await);
    for at in 0..NODES {
        cluster.labelled(&name(at), json!({"joulie.io/rack": "r1"})).await;
        cluster.hardware(&name(at), 300.0).await;
    }
    // At 60 % of 720 W six nodes draw 2592 W; but before the pods are known no node may be lowered, and they draw 4320 W.
    cluster.api.faults().fail(
        Matching::any().resource("pods").verb(Verb::List),
        InjectedResponse::InternalError,
        2,
    );
    let operator = cluster.operator(&[("STATIC_HP_FRAC", "0"), ("BUDGET_RACK_WATTS", "r1=3000")]).await;
    let agents = cluster.agents();
    cluster.until("all is confirmed", async || confirmed(&cluster).await).await;
    cluster.quiet(Duration::from_millis(500)).await;
    let events = cluster.list("/apis/events.k8s.io/v1/namespaces/joulie-system/events").await;
    let short: Vec<_> = events.iter().filter(|event| event["reason"] == "BudgetShort").collect();
    assert!(short.is_empty(), "{short:?}");
    operator.stop().await;
    agents.abort();
}
