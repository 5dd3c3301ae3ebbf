//! A real API server accepts every object of every combination with strict validation, and its policies work as
//! described.

use crate::values::{MATRIX, rendered};
use cluster::{ControlPlane, ControlPlaneOptions, start_or_skip};
use install::{Helm, NAMESPACE, kustomize, objects};
use k8s_openapi::api::core::v1::{Namespace, Pod, ServiceAccount};
use kube::api::{
    ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams, ValidationDirective,
};
use kube::{Api, Client};
use serde_json::{Value, json};
use std::time::Duration;

pub(crate) async fn namespace(client: &Client, name: &str) {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let namespace = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
    namespaces.create(&PostParams::default(), &namespace).await.unwrap();
}

async fn apply(client: &Client, object: &Value, dry_run: bool) -> Result<(), kube::Error> {
    let object: DynamicObject = serde_json::from_value(object.clone()).unwrap();
    let types = object.types.clone().unwrap();
    let resource = ApiResource::from_gvk(&GroupVersionKind::try_from(&types).unwrap());
    let api: Api<DynamicObject> = match &object.metadata.namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    };
    let mut by = PatchParams::apply("installation").force();
    by.field_validation = Some(ValidationDirective::Strict);
    by.dry_run = dry_run;
    api.patch(object.metadata.name.as_deref().unwrap(), &by, &Patch::Apply(&object)).await.map(drop)
}

/// A control plane with the namespaces of the installations.
async fn server() -> Option<(ControlPlane, Client)> {
    let control_plane = start_or_skip(&ControlPlaneOptions::api_only())?;
    let client = control_plane.client().await.unwrap();
    namespace(&client, NAMESPACE).await;
    Some((control_plane, client))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_takes_every_object_of_every_combination() {
    let Some(helm) = Helm::or_skip() else { return };
    let Some((_control_plane, client)) = server().await else { return };
    for (what, of) in MATRIX {
        let (mut taken, mut unknown) = (0, Vec::new());
        for object in rendered(&helm, of) {
            // Kinds of another product, which this server does not have.
            if ["monitoring.coreos.com/v1", "cert-manager.io/v1"]
                .iter()
                .any(|other| object["apiVersion"] == *other)
            {
                unknown.push(object["kind"].clone());
                continue;
            }
            // A pod is refused without its account.
            let dry_run = object["kind"] != "ServiceAccount";
            let outcome = apply(&client, &object, dry_run).await;
            assert!(outcome.is_ok(), "{what}: {outcome:?}: {object:#}");
            taken += 1;
        }
        assert!(taken > 5 && unknown.len() <= 3, "{what}: {taken}, {unknown:?}");
    }
}

/// Affinities of a pod, and the places where the requirement must be added.
fn affinities() -> Vec<(Value, Vec<&'static str>)> {
    let required = "requiredDuringSchedulingIgnoredDuringExecution";
    let exists = json!({"key": "a", "operator": "Exists"});
    let field = json!({"key": "metadata.name", "operator": "In", "values": ["n"]});
    let eco = json!({"key": "joulie.io/power-profile", "operator": "NotIn", "values": ["eco"]});
    let preferred = json!([{"weight": 1, "preference": {"matchExpressions": [exists]}}]);
    let terms = |terms: Value| json!({"nodeAffinity": {required: {"nodeSelectorTerms": terms}}});
    vec![
        (Value::Null, vec!["0/0"]),
        (json!({"podAntiAffinity": {}}), vec!["0/0"]),
        (
            json!({"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}),
            vec!["0/0"],
        ),
        (terms(json!([{"matchExpressions": [exists]}, {"matchFields": [field]}])), vec!["0/1", "1/0"]),
        (terms(json!([{"matchExpressions": [eco]}])), vec!["0/0"]),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_performance_pod_keeps_off_eco_nodes_by_itself() {
    let Some((_control_plane, client)) = server().await else { return };
    let file = kustomize::folder().join("performance-affinity/performance-affinity.yaml");
    for object in objects(&std::fs::read_to_string(file).unwrap()).unwrap() {
        apply(&client, &object, false).await.unwrap();
    }
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), "default");
    let account = serde_json::from_value(json!({"metadata": {"name": "default"}})).unwrap();
    accounts.create(&PostParams::default(), &account).await.unwrap();
    let pods: Api<Pod> = Api::namespaced(client.clone(), "default");
    let admitted = async |class: &str, affinity: &Value| {
        let mut pod = json!({"metadata": {"name": "p", "annotations": {"joulie.io/workload-class": class}},
            "spec": {"containers": [{"name": "c", "image": "i"}]}});
        if affinity.is_object() {
            pod["spec"]["affinity"] = affinity.clone();
        }
        let dry = PostParams { dry_run: true, ..PostParams::default() };
        let made = pods.create(&dry, &serde_json::from_value(pod).unwrap()).await.unwrap();
        serde_json::to_value(made).unwrap()["spec"]["affinity"].clone()
    };
    // A policy takes effect a moment after it was written.
    let counts = async {
        while admitted("performance", &Value::Null).await.is_null() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), counts).await.unwrap();
    for (before, places) in affinities() {
        let after = admitted("performance", &before).await;
        let terms =
            &after["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"];
        assert_eq!(terms.as_array().unwrap().len(), places.len(), "{before}: {after}");
        for place in places {
            let (term, expression) = place.split_once('/').unwrap();
            let (term, expression): (usize, usize) = (term.parse().unwrap(), expression.parse().unwrap());
            let there = &terms[term]["matchExpressions"][expression];
            let eco = json!({"key": "joulie.io/power-profile", "operator": "NotIn", "values": ["eco"]});
            assert_eq!(there, &eco, "{before}: {after}");
            assert!(terms[term]["matchExpressions"].get(expression + 1).is_none(), "{after}");
        }
        // The user's own settings must be kept.
        for part in ["podAntiAffinity", "preferredDuringSchedulingIgnoredDuringExecution", "matchFields"] {
            assert_eq!(
                before.to_string().contains(part),
                after.to_string().contains(part),
                "{before}: {after}"
            );
        }
        assert_eq!(admitted("standard", &before).await, before);
    }
}

/// A pod with an annotation and a specification, and whether it asks for performance.
fn asking() -> Vec<(&'static str, Value, bool)> {
    let label = "joulie.io/power-profile";
    let term = |operator: &str, values: &[&str]| json!({"matchExpressions": [{"key": label, "operator": operator, "values": values}]});
    let other = json!({"matchExpressions": [{"key": "a", "operator": "Exists"}]});
    let terms = |terms: Value| json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}});
    vec![
        ("", json!({}), false),
        ("standard", json!({}), false),
        (" Performance", json!({}), true),
        ("", json!({"nodeSelector": {"a": "performance"}}), false),
        ("", json!({"nodeSelector": {label: "eco"}}), false),
        ("", json!({"nodeSelector": {label: "performance"}}), true),
        ("", terms(json!([term("In", &["performance", "eco"])])), false),
        ("", terms(json!([term("In", &["performance"])])), true),
        ("", terms(json!([term("NotIn", &["eco"])])), true),
        ("", terms(json!([term("NotIn", &["eco"]), other])), false),
        ("", terms(json!([term("NotIn", &["eco"]), term("In", &["performance"])])), true),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn who_asks_for_performance_outside_the_named_namespaces_is_refused_where_that_is_asked_for() {
    let Some(helm) = Helm::or_skip() else { return };
    let Some((_control_plane, client)) = server().await else { return };
    let values = "performanceAdmission.enabled=true,operator.config.PERFORMANCE_NAMESPACES=batch\\, train";
    let named = "joulie-performance-admission";
    for object in rendered(&helm, &["--set", values]).iter().filter(|one| one["metadata"]["name"] == named) {
        apply(&client, object, false).await.unwrap();
    }
    for name in ["batch", "web"] {
        namespace(&client, name).await;
        let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), name);
        let account = serde_json::from_value(json!({"metadata": {"name": "default"}})).unwrap();
        accounts.create(&PostParams::default(), &account).await.unwrap();
    }
    let create = async |namespace: &str, class: &str, spec: &Value, dry_run: bool| {
        let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
        let mut pod = json!({"metadata": {"name": "p", "annotations": {"joulie.io/workload-class": class}}, "spec": spec});
        pod["spec"]["containers"] = json!([{"name": "c", "image": "i"}]);
        let how = PostParams { dry_run, ..PostParams::default() };
        pods.create(&how, &serde_json::from_value(pod).unwrap())
            .await
            .map(drop)
            .map_err(|error| error.to_string())
    };
    // One that was made before. A policy takes effect a moment after it was written, so it has to be tried until then.
    let bare = json!({});
    let counts = async {
        while create("web", "performance", &bare, true).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), counts).await.unwrap();
    for (class, spec, asks) in asking() {
        let told = create("web", class, &spec, true).await;
        assert_eq!(told.is_err(), asks, "{class:?} {spec}: {told:?}");
        if let Err(why) = told {
            assert!(why.contains("the namespace web may not: only batch, train"), "{why}");
        }
        create("batch", class, &spec, true).await.unwrap();
    }
    // A pod that is there may be changed, and may not begin to ask.
    create("web", "", &bare, false).await.unwrap();
    let pods: Api<Pod> = Api::namespaced(client.clone(), "web");
    let annotate = async |key: &str, value: &str| {
        let change = json!({"metadata": {"annotations": {key: value}}});
        pods.patch("p", &PatchParams::default(), &Patch::Merge(&change)).await.map(drop)
    };
    annotate("a", "b").await.unwrap();
    assert!(annotate("joulie.io/workload-class", "performance").await.is_err());
    annotate("joulie.io/workload-class", "standard").await.unwrap();
}
