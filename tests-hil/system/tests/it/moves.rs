//! The six stages of the pipeline in one story. A load moves the next pod; a hot zone moves pods of every kind of controller, of
//! which a disruption budget forbids one, and the real kube-scheduler with the extender places what replaces them elsewhere; and
//! a Prometheus that is silent moves none.

use crate::placement::{all_enforced, profiles};
use crate::six_stages::{self, BUSY, Instruments, NEXT};
use crate::support::wait;
use cluster::PrometheusServer;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use system::field::Field;
use system::objects;
use system::world::{PATIENCE, SystemProcess, TestSystem};

pub(crate) const NAMESPACE: &str = "moves";
/// The label of the nodes that the pods may go to.
const MAY: &str = "stories.joulie.io/may";
const FROM: &str = "joulie.io/last-eviction-from-node";
/// The controllers: their kind, the group of it, and their name.
const OWNERS: [(&str, &str, &str); 4] = [
    ("Deployment", "apps", "web"),
    ("ReplicaSet", "apps", "bare"),
    ("StatefulSet", "apps", "store"),
    ("Job", "batch", "sums"),
];
/// The one whose load rises, and whose pods a disruption budget keeps.
pub(crate) const GUARDED: &str = "web";

pub(crate) const fn operators() -> [SystemProcess; 2] {
    [SystemProcess::OperatorA, SystemProcess::OperatorB]
}

/// An idle EPYC draws 209.6 W: 26 % of the 800 W that can be cooled at 20 °C, and 52 % of the half that can be at 45 °C
/// and above. With two pods of 80 processors at 90 % it draws some 430 W: 54 % at 20 °C, and more than all at 45 °C.
fn settings(address: &str) -> [(&str, &str); 20] {
    [
        ("PROMETHEUS_ADDRESS", address),
        ("PROMETHEUS_TIMEOUT", "1s"),
        ("ENABLE_FACILITY_METRICS", "true"),
        ("FACILITY_POLL_INTERVAL", "500ms"),
        ("FACILITY_HOLD", "3s"),
        ("FACILITY_ZONE_AMBIENT_METRIC_TEMPLATE", "zone_temperature_celsius"),
        ("OPERATOR_NODE_POWER_SOURCE", "kepler,agent"),
        ("OPERATOR_NODE_POWER_KEPLER_WINDOW", "5s"),
        ("POWER_POLL_INTERVAL", "1s"),
        ("CLASSIFY_INTERVAL", "1s"),
        ("RECLASSIFY_INTERVAL", "3s"),
        ("CLASSIFY_METRICS_WINDOW", "30s"),
        ("RESCHEDULE_THRESHOLD", "65"),
        ("ENABLE_ACTIVE_RESCHEDULING", "true"),
        ("RESCHEDULE_INTERVAL", "1s"),
        ("RESCHEDULE_STRESSED_FOR", "1s"),
        ("RESCHEDULE_WINDOW", "5s"),
        ("RESCHEDULE_MAX_EVICTIONS_PER_NODE", "4"),
        ("RESCHEDULE_MAX_EVICTIONS_PER_NAMESPACE", "4"),
        ("RESCHEDULE_MAX_EVICTIONS", "4"),
    ]
}

pub(crate) fn api(world: &TestSystem, group: &str, version: &str, kind: &str) -> Api<DynamicObject> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    Api::namespaced_with(world.client.clone(), NAMESPACE, &resource)
}

async fn create(world: &TestSystem, (group, version, kind): (&str, &str, &str), mut object: Value) {
    object["apiVersion"] = json!(format!("{group}/{version}"));
    object["kind"] = json!(kind);
    let made = serde_json::from_value(object).unwrap();
    api(world, group, version, kind).create(&PostParams::default(), &made).await.unwrap();
}

/// Two pods of it, which draw nothing; those of the guarded one ask for many processors.
async fn controller(world: &TestSystem, (kind, group, name): (&str, &str, &str)) {
    let labels = json!({"app": name});
    let cpu = if name == GUARDED { "80" } else { "1" };
    let mut spec = json!({"template": {
        "metadata": {"labels": labels,
            "annotations": {"joulie.io/reschedulable": "true", BUSY: "0"}},
        "spec": {"nodeSelector": {MAY: "yes"},
            "containers": [{"name": "main", "image": "none", "resources": {"requests": {"cpu": cpu}}}]}}});
    if kind == "Job" {
        spec["parallelism"] = json!(2);
        spec["completions"] = json!(2);
        spec["template"]["spec"]["restartPolicy"] = json!("Never");
    } else {
        spec["replicas"] = json!(2);
        spec["selector"] = json!({"matchLabels": labels});
    }
    if kind == "StatefulSet" {
        spec["serviceName"] = json!(name);
        spec["podManagementPolicy"] = json!("Parallel");
    }
    create(world, (group, "v1", kind), json!({"metadata": {"name": name}, "spec": spec})).await;
}

async fn label(world: &TestSystem, node: &str, labels: Value) {
    let nodes: Api<Node> = Api::all(world.client.clone());
    let patch = Patch::Merge(json!({"metadata": {"labels": labels}}));
    nodes.patch(node, &PatchParams::default(), &patch).await.unwrap();
}

/// Where the running pods are: the controller's name and the node.
async fn places(world: &TestSystem) -> Vec<(String, String)> {
    let pods: Api<Pod> = Api::namespaced(world.client.clone(), NAMESPACE);
    let place = |pod: Pod| {
        let runs = pod.status.as_ref()?.phase.as_deref() == Some("Running");
        let stays = runs && pod.metadata.deletion_timestamp.is_none();
        let app = pod.labels().get("app")?.clone();
        stays.then_some((app, pod.spec?.node_name?))
    };
    pods.list(&ListParams::default()).await.unwrap().into_iter().filter_map(place).collect()
}

/// How many running pods of each controller are on the node, and how many elsewhere.
pub(crate) async fn spread(world: &TestSystem, node: &str) -> BTreeMap<String, (u32, u32)> {
    let mut all = BTreeMap::new();
    for (app, there) in places(world).await {
        let (here, elsewhere) = all.entry(app).or_default();
        *(if there == node { here } else { elsewhere }) += 1;
    }
    all
}

/// That of every controller, and that of the guarded one.
fn counts(all: (u32, u32), guarded: (u32, u32)) -> BTreeMap<String, (u32, u32)> {
    let of = |name: &str| if name == GUARDED { guarded } else { all };
    OWNERS.iter().map(|owner| (owner.2.to_owned(), of(owner.2))).collect()
}

/// What a controller was told of the node that its pod left.
async fn told(world: &TestSystem, (kind, group, name): (&str, &str, &str)) -> Option<String> {
    let owner = api(world, group, "v1", kind).get(name).await.unwrap();
    owner.annotations().get(FROM).cloned()
}

async fn was_denied(world: &TestSystem) -> bool {
    let events = api(world, "events.k8s.io", "v1", "Event").list(&ListParams::default()).await.unwrap();
    events.iter().any(|event| {
        event.data["reason"] == "EvictionDenied"
            && event.data["note"].as_str().is_some_and(|note| note.contains("disruption budget"))
    })
}

pub(crate) async fn recommended(world: &TestSystem, node: &str) -> Vec<Value> {
    let twin = objects::get(&world.client, "NodeTwin", node).await.unwrap_or_default();
    twin["status"]["rescheduleRecommendations"].as_array().cloned().unwrap_or_default()
}

pub(crate) async fn load_and_heat_move_pods(world: &TestSystem) {
    let profiles = profiles(world).await;
    let equal: Vec<&str> =
        profiles.keys().map(String::as_str).filter(|node| node.starts_with("sim-epyc-")).collect();
    let fast: Vec<&str> = equal.iter().copied().filter(|node| profiles[*node] == "performance").collect();
    let Some(tools) = Instruments::start(world, [fast[0], fast[1]]).await else { return };
    tokio::select! {
        () = tools.follow() => {}
        () = stages(world, &tools, &equal) => {}
    }
    world.control_plane.kill_program(PrometheusServer::NAME);
}

async fn stages(world: &TestSystem, tools: &Instruments<'_>, equal: &[&str]) {
    // All pods are on the node that becomes hot.
    let [hot, _] = tools.nodes;
    let field = Field::new(&world.client, NAMESPACE).await.unwrap();
    label(world, hot, json!({MAY: "yes", "joulie.io/cooling-zone": "hot"})).await;
    for owner in OWNERS {
        controller(world, owner).await;
    }
    wait("two pods of each run", async || spread(world, hot).await == counts((2, 0), (2, 0))).await;
    let guard = json!({"metadata": {"name": GUARDED},
        "spec": {"minAvailable": 2, "selector": {"matchLabels": {"app": GUARDED}}}});
    create(world, ("policy", "v1", "PodDisruptionBudget"), guard).await;
    let address = tools.address();
    for operator in operators() {
        world.run(operator, &settings(&address)).unwrap();
    }
    all_enforced(world).await;
    assert_eq!(recommended(world, hot).await, Vec::<Value>::new());
    for node in tools.nodes {
        label(world, node, json!({NEXT: "yes"})).await;
    }
    six_stages::a_load_moves_the_next_pod(world, tools, &field).await;
    wait("no earlier pod is left", async || spread(world, hot).await == counts((2, 0), (2, 0))).await;
    for node in equal {
        label(world, node, json!({MAY: "yes"})).await;
    }

    heat_moves_pods(world, tools).await;
    six_stages::silence_moves_nothing(tools).await;
    wait("a guarded pod leaves when the sensor is back", async || {
        spread(world, hot).await == counts((1, 1), (1, 1))
    })
    .await;
    leave(world, &field, equal).await;
}

/// The zone becomes hot: the pods are named with a better node, one of each controller leaves, but for the guarded one, and
/// each of these was told. The others wait for the cooldown of their controller.
async fn heat_moves_pods(world: &TestSystem, tools: &Instruments<'_>) {
    let [hot, _] = tools.nodes;
    tools.degrees.set((50, 20));
    let outcome = system::until("a pod is recommended to leave, to a better node", PATIENCE, async || {
        let named = recommended(world, hot).await;
        named.iter().any(|one| one["cause"] == "cooling_stress" && one["targetNode"].is_string())
    })
    .await;
    let twin = objects::get(&world.client, "NodeTwin", hot).await;
    assert!(outcome.is_ok(), "{twin:#?}");
    wait("one pod of each but the guarded ones runs elsewhere", async || {
        spread(world, hot).await == counts((1, 1), (2, 0))
    })
    .await;
    wait("the budget's refusal is told", async || was_denied(world).await).await;
    for owner in OWNERS {
        let from = told(world, owner).await;
        // An eviction that is denied takes back what the controller was told; another attempt may be under way.
        assert!(owner.2 == GUARDED || from.as_deref() == Some(hot), "{owner:?} was told {from:?}");
    }
}

/// The stories that follow have the settings of the chart, and none of these pods.
async fn leave(world: &TestSystem, field: &Field, equal: &[&str]) {
    for (kind, group, name) in OWNERS {
        let background = kube::api::DeleteParams::background();
        api(world, group, "v1", kind).delete(name, &background).await.unwrap();
    }
    wait("the pods are gone", async || places(world).await.is_empty()).await;
    field.clear().await.unwrap();
    for node in equal {
        label(world, node, json!({MAY: null, NEXT: null, "joulie.io/cooling-zone": null})).await;
    }
    for operator in operators() {
        world.run(operator, &[]).unwrap();
    }
    all_enforced(world).await;
}
