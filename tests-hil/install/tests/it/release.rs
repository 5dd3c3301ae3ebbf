//! helm installs, upgrades and uninstalls on a real control plane, whose controllers create the pods. Meanwhile the owner of a
//! namespace tries to touch what is installed.

use crate::server::namespace;
use cluster::{ControlPlane, ControlPlaneOptions, start_or_skip};
use install::{Helm, NAMESPACE, deploy};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::authorization::v1::SelfSubjectRulesReview;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Node};
use k8s_openapi::api::rbac::v1::RoleBinding;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{
    ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams, PostParams,
};
use kube::discovery::{Discovery, Scope, verbs};
use kube::{Api, Client};
use serde_json::json;
use std::collections::BTreeSet;
use std::fmt::Debug;
use std::time::Duration;

/// All objects with our label as `KIND NAME`, except those that are created for objects of others.
async fn ours(client: &Client) -> Vec<String> {
    let mut found = Vec::new();
    let chosen = ListParams::default().labels("app.kubernetes.io/part-of=joulie");
    let discovery = Discovery::new(client.clone()).run().await.unwrap();
    for group in discovery.groups() {
        for (resource, capabilities) in group.recommended_resources() {
            assert!(matches!(capabilities.scope, Scope::Cluster | Scope::Namespaced));
            if capabilities.supports_operation(verbs::LIST) {
                let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
                for object in api.list(&chosen).await.unwrap() {
                    found.push(format!("{} {}", resource.kind, object.metadata.name.unwrap_or_default()));
                }
            }
        }
    }
    found.sort();
    found
}

/// A namespace that is not ours.
const TENANT: &str = "tenant";

fn refused<T: Debug>(what: &str, answer: Result<T, kube::Error>) {
    let is_refused = matches!(&answer, Err(kube::Error::Api(status)) if status.code == 403);
    assert!(is_refused, "{what}: {answer:?}");
}

/// The account of a namespace, with all that its owner may give it there (the ClusterRole `admin`), reads and writes nothing of ours,
/// in that namespace or elsewhere.
async fn who_owns_a_namespace_touches_nothing_of_ours(control_plane: &ControlPlane, client: &Client) {
    control_plane.namespace(TENANT).await.unwrap();
    let owner = json!({"metadata": {"name": "owner"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "admin"},
        "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": TENANT}]});
    let bindings: Api<RoleBinding> = Api::namespaced(client.clone(), TENANT);
    bindings.create(&PostParams::default(), &serde_json::from_value(owner).unwrap()).await.unwrap();
    let tenant = control_plane.service_account_client(TENANT, "default").await.unwrap();

    // The groups of everything that the account may do in a namespace.
    let reviews: Api<SelfSubjectRulesReview> = Api::all(tenant.clone());
    let groups = async |namespace: &str| -> BTreeSet<String> {
        let asked = serde_json::from_value(json!({"spec": {"namespace": namespace}})).unwrap();
        let answer = reviews.create(&PostParams::default(), &asked).await.unwrap();
        let rules = answer.status.unwrap().resource_rules;
        rules.into_iter().flat_map(|rule| rule.api_groups.unwrap_or_default()).collect()
    };
    // A binding counts a moment after it was written, and `admin` is put together by a controller.
    let is_owner = async {
        while !groups(TENANT).await.contains("apps") {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), is_owner).await.unwrap();
    for namespace in [TENANT, NAMESPACE, "default"] {
        let groups = groups(namespace).await;
        let is_ours = ["joulie.io", "gpu.mle.com", "*"].iter().any(|group| groups.contains(*group));
        assert!(!is_ours, "{namespace}: {groups:?}");
    }

    let kinds: Api<CustomResourceDefinition> = Api::all(client.clone());
    for kind in kinds.list(&ListParams::default()).await.unwrap() {
        let (group, names) = (&kind.spec.group, &kind.spec.names);
        let version = GroupVersionKind::gvk(group, &kind.spec.versions[0].name, &names.kind);
        let resource = ApiResource::from_gvk_with_plural(&version, &names.plural);
        let api: Api<DynamicObject> = match kind.spec.scope.as_str() {
            "Namespaced" => Api::namespaced_with(tenant.clone(), TENANT, &resource),
            _ => Api::all_with(tenant.clone(), &resource),
        };
        let mine = DynamicObject::new("mine", &resource);
        refused(&names.plural, api.list(&ListParams::default()).await);
        refused(&names.plural, api.patch("mine", &PatchParams::apply("tenant"), &Patch::Apply(&mine)).await);
        refused(&names.plural, api.delete("mine", &DeleteParams::default()).await);
    }
    let (plain, release) =
        (PatchParams::default(), json!({"metadata": {"annotations": {"joulie.io/release": "all"}}}));
    let release = Patch::Merge(release);
    let leases: Api<Lease> = Api::namespaced(tenant.clone(), NAMESPACE);
    refused("the plan's Lease", leases.patch("joulie-plan", &plain, &release).await);
    let settings: Api<ConfigMap> = Api::namespaced(tenant.clone(), NAMESPACE);
    refused("the operator's settings", settings.patch("joulie-operator-config", &plain, &release).await);
    let programs: Api<Deployment> = Api::namespaced(tenant.clone(), NAMESPACE);
    refused("the operator", programs.patch("joulie-operator", &plain, &release).await);
    let nodes: Api<Node> = Api::all(tenant);
    refused("a node", nodes.patch("node-0", &plain, &release).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_is_installed_upgraded_and_taken_away_and_the_kinds_stay() {
    let Some(helm) = Helm::or_skip() else { return };
    let Some(control_plane) = start_or_skip(&ControlPlaneOptions::whole()) else { return };
    let client = control_plane.client().await.unwrap();
    namespace(&client, NAMESPACE).await;
    let kubeconfig = control_plane.kubeconfig().to_string_lossy().into_owned();
    let run = |words: &[&str], chart: Option<&str>| {
        let mut words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
        words.extend(chart.map(|chart| deploy().join(chart).to_string_lossy().into_owned()));
        words.extend(["-n", NAMESPACE, "--kubeconfig", &kubeconfig].map(str::to_owned));
        helm.run(&words.iter().map(String::as_str).collect::<Vec<_>>()).unwrap()
    };

    // Another product's kind exists before, and must be neither taken over nor changed.
    let file = std::fs::read_to_string(deploy().join("chart-crds/files/gpu.mle.com_gpus.yaml")).unwrap();
    let theirs: CustomResourceDefinition = serde_saphyr::from_str(&file).unwrap();
    let kinds: Api<CustomResourceDefinition> = Api::all(client.clone());
    kinds.create(&PostParams::default(), &theirs).await.unwrap();

    run(&["install", "--set", "gpu=true", "joulie-crds"], Some("chart-crds"));
    let gpu = kinds.get("gpus.gpu.mle.com").await.unwrap();
    assert_eq!(gpu.metadata.annotations, None);
    assert_eq!(kinds.list(&ListParams::default()).await.unwrap().items.len(), 9);

    assert_eq!(ours(&client).await, Vec::<String>::new());
    let notes = run(&["install", "joulie"], Some("chart"));
    assert!(notes.contains("kubectl label node NODE joulie.io/managed=true"), "{notes}");
    assert!(ours(&client).await.len() > 20);
    who_owns_a_namespace_touches_nothing_of_ours(&control_plane, &client).await;

    let deployments: Api<Deployment> = Api::namespaced(client.clone(), NAMESPACE);
    let before = deployments.get("joulie-operator").await.unwrap();
    run(&["upgrade", "--set", "operator.env.BUDGET_SITE_WATTS=40000", "joulie"], Some("chart"));
    let after = deployments.get("joulie-operator").await.unwrap();
    assert_eq!(before.metadata.uid, after.metadata.uid);
    let container = &after.spec.unwrap().template.spec.unwrap().containers[0];
    let budget = container.env.iter().flatten().find(|one| one.name == "BUDGET_SITE_WATTS").unwrap();
    assert_eq!(budget.value.as_deref(), Some("40000"));
    // Values that an upgrade does not name stay unchanged.
    let extender = deployments.get("joulie-scheduler-extender").await.unwrap();
    assert_eq!(extender.metadata.generation, Some(1));

    // Without the hook: its Job releases nodes, and no kubelet would run it here.
    run(&["uninstall", "--wait", "--no-hooks", "joulie"], None);
    run(&["uninstall", "joulie-crds"], None);
    let gone = async {
        loop {
            let left = ours(&client).await;
            // Events have no such label; pods and replica sets are deleted with their owners.
            if left.is_empty() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    };
    let outcome = tokio::time::timeout(Duration::from_secs(60), gone).await;
    assert!(outcome.is_ok(), "left: {:?}", ours(&client).await);
    assert_eq!(kinds.list(&ListParams::default()).await.unwrap().items.len(), 9);
}
