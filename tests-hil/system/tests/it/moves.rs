//! A hot zone: pods of every kind of controller leave it, a disruption budget forbids one of them, and the real
//! kube-scheduler with the extender places what replaces them elsewhere.

use crate::placement::{all_enforced, profiles};
use crate::support::{looked_on, wait};
use cluster::assets::Environment;
use cluster::{ClusterError, ProcessSignal, PrometheusServer};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;
use system::exporter::Exporter;
use system::field::Field;
use system::objects;
use system::world::{PATIENCE, SystemProcess, TestSystem};
use tokio::time::Instant;

const NAMESPACE: &str = "moves";
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
/// The one whose pods a disruption budget keeps.
const GUARDED: &str = "web";

const fn operators() -> [SystemProcess; 2] {
    [SystemProcess::OperatorA, SystemProcess::OperatorB]
}

/// An idle EPYC draws 209.6 W: 26 % of the 800 W that can be cooled at 20 °C, and 52 % of the half that can be at 45 °C
/// and above.
fn settings(address: &str) -> [(&str, &str); 14] {
    [
        ("PROMETHEUS_ADDRESS", address),
        ("PROMETHEUS_TIMEOUT", "1s"),
        ("ENABLE_FACILITY_METRICS", "true"),
        ("FACILITY_POLL_INTERVAL", "500ms"),
        ("FACILITY_HOLD", "3s"),
        ("FACILITY_ZONE_AMBIENT_METRIC_TEMPLATE", "zone_temperature_celsius"),
        ("RESCHEDULE_THRESHOLD", "40"),
        ("ENABLE_ACTIVE_RESCHEDULING", "true"),
        ("RESCHEDULE_INTERVAL", "1s"),
        ("RESCHEDULE_STRESSED_FOR", "1s"),
        ("RESCHEDULE_WINDOW", "5s"),
        ("RESCHEDULE_MAX_EVICTIONS_PER_NODE", "4"),
        ("RESCHEDULE_MAX_EVICTIONS_PER_NAMESPACE", "4"),
        ("RESCHEDULE_MAX_EVICTIONS", "4"),
    ]
}

fn lines(hot: u32) -> String {
    format!("zone_temperature_celsius{{zone=\"hot\"}} {hot}\ndatacenter_ambient_temperature_celsius 20\n")
}

fn api(world: &TestSystem, group: &str, version: &str, kind: &str) -> Api<DynamicObject> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    Api::namespaced_with(world.client.clone(), NAMESPACE, &resource)
}

async fn create(world: &TestSystem, (group, version, kind): (&str, &str, &str), mut object: Value) {
    object["apiVersion"] = json!(format!("{group}/{version}"));
    object["kind"] = json!(kind);
    let made = serde_json::from_value(object).unwrap();
    api(world, group, version, kind).create(&PostParams::default(), &made).await.unwrap();
}

/// Two pods of it, which draw nothing.
async fn controller(world: &TestSystem, (kind, group, name): (&str, &str, &str)) {
    let labels = json!({"app": name});
    let mut spec = json!({"template": {
        "metadata": {"labels": labels,
            "annotations": {"joulie.io/reschedulable": "true", "sim.joulie.io/cpu-util-pct": "0"}},
        "spec": {"nodeSelector": {MAY: "yes"},
            "containers": [{"name": "main", "image": "none", "resources": {"requests": {"cpu": "1"}}}]}}});
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
async fn spread(world: &TestSystem, node: &str) -> BTreeMap<String, (u32, u32)> {
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

async fn recommended(world: &TestSystem, node: &str) -> Vec<Value> {
    let twin = objects::get(&world.client, "NodeTwin", node).await.unwrap_or_default();
    twin["status"]["rescheduleRecommendations"].as_array().cloned().unwrap_or_default()
}

pub(crate) async fn a_hot_zone_moves_pods(world: &TestSystem) {
    let exporter = Exporter::start().await.unwrap();
    let targets = [("building", exporter.address())];
    let environment = Environment::of_this_process();
    let server = match PrometheusServer::new(&environment, &world.control_plane, &targets) {
        Ok(server) => server,
        Err(ClusterError::Absent(why)) => return system::skip(&format!("no Prometheus: {why}")),
        Err(why) => panic!("{why}"),
    };
    exporter.show(&lines(20));
    server.start(&world.control_plane).unwrap();

    // All pods are on the node that becomes hot.
    let all = profiles(world).await;
    let equal: Vec<&String> = all.keys().filter(|node| node.starts_with("sim-epyc-")).collect();
    let hot = equal[0].as_str();
    Field::new(&world.client, NAMESPACE).await.unwrap();
    label(world, hot, json!({MAY: "yes"})).await;
    for owner in OWNERS {
        controller(world, owner).await;
    }
    wait("two pods of each run", async || spread(world, hot).await == counts((2, 0), (2, 0))).await;
    for node in &equal {
        label(world, node, json!({MAY: "yes"})).await;
    }
    label(world, hot, json!({"joulie.io/cooling-zone": "hot"})).await;
    let guard = json!({"metadata": {"name": GUARDED},
        "spec": {"minAvailable": 2, "selector": {"matchLabels": {"app": GUARDED}}}});
    create(world, ("policy", "v1", "PodDisruptionBudget"), guard).await;
    let address = format!("http://{}", server.address());
    for operator in operators() {
        world.run(operator, &settings(&address)).unwrap();
    }
    all_enforced(world).await;
    assert_eq!(recommended(world, hot).await, Vec::<Value>::new());

    // The zone becomes hot: the pods are named with a better node, one of each controller leaves, but for the guarded one, and
    // each of these was told. The others wait for the cooldown of their controller.
    exporter.show(&lines(50));
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

    // Without a sensor nothing leaves, even where nothing forbids it any more.
    world.control_plane.signal_program(PrometheusServer::NAME, ProcessSignal::Stop).unwrap();
    tokio::time::sleep(Duration::from_secs(6)).await;
    api(world, "policy", "v1", "PodDisruptionBudget").delete(GUARDED, &Default::default()).await.unwrap();
    let (begun, lasts) = (Instant::now(), looked_on(Duration::from_secs(10)));
    while begun.elapsed() < lasts {
        tokio::time::sleep(Duration::from_millis(500)).await;
        assert_eq!(spread(world, hot).await, counts((1, 1), (2, 0)), "a silent sensor moves no pod");
    }
    world.control_plane.signal_program(PrometheusServer::NAME, ProcessSignal::Continue).unwrap();
    wait("a guarded pod leaves when the sensor is back", async || {
        spread(world, hot).await == counts((1, 1), (1, 1))
    })
    .await;

    // The stories that follow have the settings of the chart, and none of these pods.
    for (kind, group, name) in OWNERS {
        let background = kube::api::DeleteParams::background();
        api(world, group, "v1", kind).delete(name, &background).await.unwrap();
    }
    wait("the pods are gone", async || places(world).await.is_empty()).await;
    label(world, hot, json!({"joulie.io/cooling-zone": null})).await;
    for node in &equal {
        label(world, node, json!({MAY: null})).await;
    }
    for operator in operators() {
        world.run(operator, &[]).unwrap();
    }
    world.control_plane.kill_program(PrometheusServer::NAME);
    all_enforced(world).await;
}
