//! A cluster of the first implementation becomes one of ours: its kinds and objects are there first, ours are installed
//! over them, nothing that is stored is refused, and its caps are put in force as they were.

use crate::support::{limited, wait};
use crate::{ONE_BESIDE, shipped};
use install::Helm;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams};
use kube::runtime::wait::{await_condition, conditions};
use kube::{Api, Client};
use serde_json::{Value, json};
use std::path::Path;
use system::rights::{self, ProgramAccount};
use system::world::{RIG, SystemProcess, TestSystem};

/// Its kinds: of v0.0.5, and those that v0.1 has beside or instead of them. Whether one has a status of its own matters:
/// v0.0.5 wrote profiles whole.
const KINDS: [(&str, &str, &str, bool); 5] = [
    ("NodePowerProfile", "nodepowerprofiles", "Cluster", false),
    ("TelemetryProfile", "telemetryprofiles", "Cluster", true),
    ("NodeHardware", "nodehardwares", "Cluster", true),
    ("NodeTwin", "nodetwins", "Cluster", true),
    ("WorkloadProfile", "workloadprofiles", "Namespaced", true),
];

/// Its objects, as each release wrote them.
const OBJECTS: [&str; 8] = [
    "nodepowerprofile-v0.0.1",
    "nodepowerprofile-v0.0.5",
    "telemetryprofile-v0.0.5",
    "nodehardware-v0.0.5",
    "nodehardware-v0.1.0",
    "nodetwin-v0.1.0",
    "nodetwin-v0.1.1",
    "workloadprofile-v0.1.0",
];

/// What its operator asked of the node on virtual hardware: by v0.0.5's kind and name, and by v0.1's.
const OLD_WATTS: u32 = 120;
const TWIN_WATTS: u32 = 110;

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_of_the_first_implementation_keeps_its_objects_and_its_caps() {
    let Some(helm) = Helm::or_skip() else { return };
    let _alone = ONE_BESIDE.lock().await;
    let keep = Path::new(env!("CARGO_TARGET_TMPDIR")).join("migration-logs");
    let before = async |kubeconfig: &Path, client: &Client| {
        for kind in KINDS {
            define(client, kind).await;
        }
        for object in theirs() {
            store(client, &object).await;
        }
        // Their kinds have no owner that helm knows.
        let chart = install::deploy().join("chart-crds");
        let (chart, kubeconfig) = (chart.to_str().unwrap(), kubeconfig.to_str().unwrap());
        let words = [
            "install",
            "joulie-crds",
            chart,
            "--take-ownership",
            "-n",
            "default",
            "--kubeconfig",
            kubeconfig,
        ];
        helm.run(&words).unwrap();
    };
    let Some(world) = TestSystem::start_after(shipped(), &keep, before).await.unwrap() else { return };

    // Every stored object is complete, and is valid under our definition when somebody writes it.
    for stored in theirs() {
        let (api, name) = api(&world.client, &stored);
        let label = json!({"metadata": {"labels": {"seen": "yes"}}});
        let now = api.patch(&name, &PatchParams::default(), &Patch::Merge(&label)).await;
        let now = serde_json::to_value(now.unwrap_or_else(|error| panic!("{name}: {error}"))).unwrap();
        assert_eq!(lost(&stored["spec"], &now["spec"]), None, "{name}");
        assert_eq!(lost(&stored["status"], &now["status"]), None, "{name}");
    }

    // Ours start with its chart's values, and its caps are in force as they were.
    let values = format!("{}/../install/tests/values/upstream.yaml", env!("CARGO_MANIFEST_DIR"));
    let chart = install::objects(&helm.template("chart", &["-f", &values]).unwrap()).unwrap();
    let run = |part, account, desired: &str| {
        let mut settings = rights::settings_in(&chart, account).unwrap();
        // Those of the machine stay the suite's.
        settings.retain(|(name, _)| {
            !["METRICS_ADDR", "EXTENDER_ADDR", "HOST_ROOT", "STATE_DIR", "DESIRED_SOURCE", "JOULIE_CONFIG"]
                .contains(&name.as_str())
        });
        // What the ConfigMap of the chart's values would hold.
        for (_, path) in settings.iter_mut().filter(|(name, _)| name == "HARDWARE_CATALOG_PATH") {
            *path = format!("{}/../../hosts/catalog-file/examples/hardware.yaml", env!("CARGO_MANIFEST_DIR"));
        }
        settings.push(("DESIRED_SOURCE".to_owned(), desired.to_owned()));
        let settings: Vec<(&str, &str)> =
            settings.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        world.run(part, &settings).unwrap();
    };
    run(SystemProcess::Agent, ProgramAccount::Agent, "profile");
    limited(&world, OLD_WATTS).await;
    world.end(SystemProcess::Agent).await.unwrap();
    run(SystemProcess::Agent, ProgramAccount::Agent, "twin");
    limited(&world, TWIN_WATTS).await;

    // Our operator and extender read what is there, and become ready.
    run(SystemProcess::OperatorA, ProgramAccount::Operator, "twin");
    run(SystemProcess::Extender, ProgramAccount::Extender, "twin");
    wait("a leader", async || crate::outages::leader(&world).await.is_some()).await;
    wait("the extender is ready", async || world.extender.answers("/readyz").await).await;
    assert_eq!(world.ended(), None);
}

/// Its objects, with those for the node on virtual hardware.
fn theirs() -> Vec<Value> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../hosts/joulie-api/examples/good");
    let mut objects = Vec::new();
    for name in OBJECTS {
        let text = std::fs::read_to_string(folder.join(format!("{name}.yaml"))).unwrap();
        objects.extend(install::objects(&text).unwrap());
    }
    let spec = |watts: u32| {
        json!({"nodeName": RIG, "profile": "eco", "cpu": {"packagePowerCapWatts": watts},
            "policy": {"name": "static-partition-v1"}})
    };
    for (kind, name, watts) in
        [("NodePowerProfile", format!("node-{RIG}"), OLD_WATTS), ("NodeTwin", RIG.to_owned(), TWIN_WATTS)]
    {
        objects.push(json!({
            "apiVersion": "joulie.io/v1alpha1",
            "kind": kind,
            "metadata": {"name": name, "labels": {"joulie.io/managed-by": "operator"}},
            "spec": spec(watts),
        }));
    }
    objects
}

/// A definition as its chart has it, as far as this matters for what comes after: names, scope, version and subresource.
/// Its schemas refuse less than this says, so that each field of its objects is stored.
async fn define(client: &Client, (kind, plural, scope, has_status): (&str, &str, &str, bool)) {
    let open = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let mut version = json!({
        "name": "v1alpha1",
        "served": true,
        "storage": true,
        "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": open, "status": open}}},
    });
    if has_status {
        version["subresources"] = json!({"status": {}});
    }
    let name = format!("{plural}.joulie.io");
    let definition: CustomResourceDefinition = serde_json::from_value(json!({
        "metadata": {"name": name},
        "spec": {
            "group": "joulie.io",
            "scope": scope,
            "names": {"kind": kind, "plural": plural, "singular": kind.to_lowercase(), "listKind": format!("{kind}List")},
            "versions": [version],
        },
    }))
    .unwrap();
    let kinds: Api<CustomResourceDefinition> = Api::all(client.clone());
    kinds.create(&PostParams::default(), &definition).await.unwrap();
    await_condition(kinds, &name, conditions::is_crd_established()).await.unwrap();
}

/// Writes an object as its programs do: whole, and then its status.
async fn store(client: &Client, object: &Value) {
    let (api, name) = api(client, object);
    let body: DynamicObject = serde_json::from_value(object.clone()).unwrap();
    api.create(&PostParams::default(), &body).await.unwrap();
    if object["status"].is_object() {
        let status = json!({"status": object["status"]});
        api.patch_status(&name, &PatchParams::default(), &Patch::Merge(&status)).await.unwrap();
    }
}

fn api(client: &Client, object: &Value) -> (Api<DynamicObject>, String) {
    let kind = object["kind"].as_str().unwrap();
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("joulie.io", "v1alpha1", kind));
    let api = match object["metadata"]["namespace"].as_str() {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    };
    (api, object["metadata"]["name"].as_str().unwrap().to_owned())
}

/// The first part of an object that another one lacks or has otherwise, by its path. A null is no part.
fn lost(stored: &Value, now: &Value) -> Option<String> {
    match (stored, now) {
        (Value::Null, _) => None,
        (Value::Object(stored), now) => stored
            .iter()
            .find_map(|(name, value)| lost(value, &now[name]).map(|path| format!("/{name}{path}"))),
        (stored, now) if stored.as_f64().is_some() && stored.as_f64() == now.as_f64() => None,
        (stored, now) => (stored != now).then(|| format!(": {stored} is {now}")),
    }
}
