//! Three cases in which a site once stayed above its limit permanently, repeated under a full budget: a write that
//! the API server refuses, nodes that leave, and a person's cap that is handed back. The limits of the hardware are
//! checked.

use crate::budget::{budgeted, operators, rest_watts, until_limited};
use crate::support::{looked_on, wait};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::api::{
    ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams, PostParams,
};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use std::time::Duration;
use system::watt_seconds::EnergySampler;
use system::world::{PATIENCE, RIG, SIMULATED, TestSystem};
use tokio::time::Instant;

const EVERY: Duration = Duration::from_millis(200);

/// A site limit that leaves packages and GPUs nineteen twentieths of their current limits: three such cuts in a row leave
/// the virtual hardware, at full load, above what it draws at its lowest frequency. Below that it counts with its most.
/// Returns the site limit, the watts of each node outside them, and the watts that they may have together.
async fn tightened(world: &TestSystem, meter: &mut EnergySampler) -> (f64, f64, f64) {
    let rest = rest_watts(world).await;
    let nodes = f64::from(u32::try_from(SIMULATED).unwrap() + 1);
    let now = limits(world, meter).await;
    let limit = (now * 0.95 + rest * nodes).floor();
    (limit, rest, limit - rest * nodes)
}

async fn limits(world: &TestSystem, meter: &mut EnergySampler) -> f64 {
    meter.look(world).await.unwrap();
    meter.look(world).await.unwrap().unwrap().limits
}

/// The highest sum of the limits during this time, or half of it in the everyday run.
async fn most(world: &TestSystem, meter: &mut EnergySampler, long: Duration) -> f64 {
    let (begun, mut most, lasts) = (Instant::now(), 0.0_f64, looked_on(long));
    while begun.elapsed() < lasts {
        tokio::time::sleep(EVERY).await;
        most = most.max(meter.look(world).await.unwrap().map_or(0.0, |stretch| stretch.limits));
    }
    most
}

/// Grants the operator the right to change grants, or revokes it.
async fn may_patch(world: &TestSystem, may: bool) {
    let roles: Api<ClusterRole> = Api::all(world.client.clone());
    let mut role = roles.get("joulie-operator").await.unwrap();
    for rule in role.rules.iter_mut().flatten() {
        let of_grants = rule.resources.iter().flatten().any(|resource| resource == "nodepowergrants");
        if of_grants {
            rule.verbs.retain(|verb| verb != "patch");
            rule.verbs.extend(may.then(|| "patch".to_owned()));
        }
    }
    let name = role.name_any();
    let rules = json!({"rules": role.rules});
    roles.patch(&name, &PatchParams::default(), &Patch::Merge(rules)).await.unwrap();
}

pub(crate) async fn a_refused_grant_is_sent_again(world: &TestSystem) {
    let mut meter = EnergySampler::new(world).await.unwrap();
    let before = limits(world, &mut meter).await;
    let (limit, rest, devices) = tightened(world, &mut meter).await;
    may_patch(world, false).await;
    budgeted(world, limit, rest).await;
    // The API server refuses every write that would lower a node's grant.
    let refused = most(world, &mut meter, Duration::from_secs(12)).await;
    assert!(refused > devices, "limits of {refused} W, of {before} W before: nothing was refused");
    may_patch(world, true).await;
    let begun = Instant::now();
    until_limited(world, &mut meter, devices).await;
    system::tell(&format!(
        "  {before:.0} W → {devices:.0} W of limits, {:.1?} after the right to write was given back",
        begun.elapsed()
    ));
}

pub(crate) async fn nodes_that_leave_a_full_budget_take_nothing_from_it(world: &TestSystem) {
    let mut meter = EnergySampler::new(world).await.unwrap();
    let (limit, rest, devices) = tightened(world, &mut meter).await;
    budgeted(world, limit, rest).await;
    until_limited(world, &mut meter, devices).await;
    let nodes: Api<Node> = Api::all(world.client.clone());
    let label = async |name: &str, labels: Value| {
        let patch = Patch::Merge(json!({"metadata": {"labels": labels}}));
        nodes.patch(name, &PatchParams::default(), &patch).await.unwrap();
    };
    label("sim-gpu-0", json!({"joulie.io/reserved": "true"})).await;
    for epyc in ["sim-epyc-0", "sim-epyc-1"] {
        label(epyc, json!({"joulie.io/managed": null})).await;
    }
    let left = most(world, &mut meter, Duration::from_secs(15)).await;
    system::tell(&format!("  three nodes leave: limits of {left:.0} W at most, of {devices:.0} W"));
    assert!(left <= devices + 1.0, "limits of {left} W, of {devices} W");
    label("sim-gpu-0", json!({"joulie.io/reserved": null})).await;
    for epyc in ["sim-epyc-0", "sim-epyc-1"] {
        label(epyc, json!({"joulie.io/managed": "true"})).await;
    }
    let back = most(world, &mut meter, Duration::from_secs(10)).await;
    assert!(back <= devices + 1.0, "limits of {back} W when they are back");
}

pub(crate) async fn a_persons_cap_is_handed_back(world: &TestSystem) {
    let mut meter = EnergySampler::new(world).await.unwrap();
    let allowed = limits(world, &mut meter).await;
    let kind = GroupVersionKind::gvk("joulie.io", "v1alpha1", "NodePowerProfile");
    let profiles: Api<DynamicObject> = Api::all_with(world.client.clone(), &ApiResource::from_gvk(&kind));
    let profile = profiles.get("sim-gpu-1").await.unwrap();
    let person = json!({"apiVersion": "joulie.io/v1alpha1", "kind": "NodePowerProfile",
        "metadata": {"name": "sim-gpu-1"}, "spec": {"nodeName": "sim-gpu-1", "profile": profile.data["spec"]["profile"],
            "gpu": {"powerCap": {"capWattsPerGpu": 250}}}});
    profiles.patch("sim-gpu-1", &PatchParams::apply("alice").force(), &Patch::Apply(person)).await.unwrap();
    let gpu = async || profiles.get("sim-gpu-1").await.unwrap().data["spec"]["gpu"]["powerCap"].clone();
    wait("her cap stands", async || gpu().await["capWattsPerGpu"] == 250).await;
    let hers = most(world, &mut meter, Duration::from_secs(5)).await;
    // As the documentation describes it.
    let hand_back = http::Request::patch("/apis/joulie.io/v1alpha1/nodepowerprofiles/sim-gpu-1")
        .header("content-type", "application/json-patch+json")
        .body(json!([{"op": "remove", "path": "/spec/gpu"}]).to_string().into_bytes());
    let _: Value = world.client.request(hand_back.unwrap()).await.unwrap();
    let back = most(world, &mut meter, Duration::from_secs(8)).await;
    system::tell(&format!("  limits of {allowed:.0} W, {hers:.0} W with her cap, {back:.0} W after it"));
    // Watts that nobody had drawn are lent meanwhile, within the limit; a GPU node without caps would exceed it by kilowatts.
    assert!(hers.max(back) <= allowed + 500.0, "limits of {hers} W and {back} W, of {allowed} W");
    wait("the policy's cap is back", async || gpu().await["capPctOfMax"].is_number()).await;
}

/// All objects of a kind of Joulie's.
fn objects(world: &TestSystem, kind: &str) -> Api<DynamicObject> {
    let mut resource = ApiResource::from_gvk(&GroupVersionKind::gvk("joulie.io", "v1alpha1", kind));
    resource.plural = format!("{}s", kind.to_lowercase());
    Api::all_with(world.client.clone(), &resource)
}

/// Waits until every grant is deleted.
async fn until_none(grants: &Api<DynamicObject>) {
    let left = async || grants.list(&ListParams::default()).await.unwrap().items;
    if let Err(why) = system::until("no grant is left", PATIENCE, async || left().await.is_empty()).await {
        let left: Vec<Value> = left().await.into_iter().map(|grant| grant.data).collect();
        panic!("{why}: {left:#?}");
    }
}

/// A PowerBudget is observed, enforced, cut and deleted under one operator.
pub(crate) async fn a_limit_that_a_person_writes_needs_no_restart(world: &TestSystem) {
    let mut meter = EnergySampler::new(world).await.unwrap();
    let (limit, rest, devices) = tightened(world, &mut meter).await;
    let rest = format!("{rest:.0}");
    operators(world, &[("BUDGET_NODE_REST_WATTS", &rest), ("BUDGET_RAISE_DWELL", "1s")]).await;
    let (budgets, grants) = (objects(world, "PowerBudget"), objects(world, "NodePowerGrant"));
    let budget = json!({"apiVersion": "joulie.io/v1alpha1", "kind": "PowerBudget", "metadata": {"name": "site"},
        "spec": {"watts": limit, "mode": "observe"}});
    budgets.create(&PostParams::default(), &serde_json::from_value(budget).unwrap()).await.unwrap();
    let change = async |spec: Value| {
        let patch = Patch::Merge(json!({"spec": spec}));
        budgets.patch("site", &PatchParams::apply("alice"), &patch).await.unwrap();
    };
    let count = async || grants.list(&ListParams::default()).await.unwrap().items.len();
    let status = async || budgets.get("site").await.unwrap().data["status"].clone();
    wait("it says what it would cost", async || status().await["wouldLowerNodes"].as_i64() > Some(0)).await;
    let would = status().await["wouldLowerWatts"].clone();
    assert_eq!((count().await, &status().await["nodes"]), (0, &json!(SIMULATED + 1)));
    change(json!({"mode": "enforce"})).await;
    let begun = Instant::now();
    until_limited(world, &mut meter, devices).await;
    let enforced = begun.elapsed();
    // The hardware of the rig may not be known yet.
    assert!(count().await >= SIMULATED);
    // A twentieth less.
    change(json!({"watts": (limit * 0.95).floor()})).await;
    let begun = Instant::now();
    until_limited(world, &mut meter, devices - limit * 0.05).await;
    system::tell(&format!(
        "  {would} W would be lowered; in force {enforced:.1?} after enforce, and {:.1?} after a cut",
        begun.elapsed()
    ));
    let kept = async || {
        let conditions = status().await["conditions"].clone();
        let within = conditions.as_array().unwrap().iter().find(|one| one["type"] == "WithinBudget");
        within.is_some_and(|within| within["status"] == "True")
    };
    if let Err(why) = system::until("it is kept", PATIENCE, kept).await {
        let hardware = system::objects::get(&world.client, "NodeHardware", RIG).await.unwrap();
        panic!("{why}: {:#}, and of {RIG} {:#}", status().await, hardware["status"]);
    }
    an_armed_event(world, &mut meter).await;
    budgets.delete("site", &DeleteParams::default()).await.unwrap();
    until_none(&grants).await;
}

/// An event that leaves every node its floors, switched on and off by one write each.
async fn an_armed_event(world: &TestSystem, meter: &mut EnergySampler) {
    let (budgets, grants) = (objects(world, "PowerBudget"), objects(world, "NodePowerGrant"));
    let shares = json!({"performance": 0, "draining": 0, "eco": 0});
    let armed = Patch::Merge(json!({"spec": {"armed": [{"event": "feed-b", "shares": shares}]}}));
    budgets.patch("site", &PatchParams::apply("alice"), &armed).await.unwrap();
    let is_armed = async || {
        let all = grants.list(&ListParams::default()).await.unwrap().items;
        all.iter().all(|grant| grant.data["spec"]["armed"][0]["event"] == "feed-b")
    };
    wait("every grant says what the event leaves", is_armed).await;
    let before = limits(world, meter).await;
    let write = async |active: bool| {
        let spec = json!({"event": "feed-b", "active": active});
        system::objects::write(&world.client, "PowerEvent", "feed-b-is-lost", spec).await.unwrap();
    };
    let status = async || {
        let event = system::objects::get(&world.client, "PowerEvent", "feed-b-is-lost").await.unwrap();
        event["status"].clone()
    };
    write(true).await;
    let begun = Instant::now();
    until_limited(world, meter, before * 0.9).await;
    let lowered = begun.elapsed();
    wait("the operator tells of it", async || status().await["phase"] == "On").await;
    write(false).await;
    let begun = Instant::now();
    wait("the grants hold again", async || {
        meter.look(world).await.unwrap().is_some_and(|stretch| stretch.limits > before * 0.97)
    })
    .await;
    system::tell(&format!(
        "  an armed event: {before:.0} W of limits are below {:.0} W after {lowered:.1?}, and back {:.1?} after its end",
        before * 0.9,
        begun.elapsed()
    ));
    system::objects::delete(&world.client, "PowerEvent", "feed-b-is-lost").await.unwrap();
}

pub(crate) async fn limits_that_are_taken_away_release_every_node(world: &TestSystem) {
    let grants = objects(world, "NodePowerGrant");
    let count = async || grants.list(&ListParams::default()).await.unwrap().items.len();
    assert_eq!(count().await, SIMULATED + 1);
    operators(world, &[]).await;
    until_none(&grants).await;
}
