//! helm installs, upgrades and uninstalls on a real control plane, whose controllers create the pods.

use crate::server::namespace;
use cluster::{ControlPlaneOptions, start_or_skip};
use install::{Helm, NAMESPACE, deploy};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DynamicObject, ListParams, PostParams};
use kube::discovery::{Discovery, Scope, verbs};
use kube::{Api, Client};

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
            tokio::time::sleep(std::time::Duration::from_millis(500)).await;
        }
    };
    let outcome = tokio::time::timeout(std::time::Duration::from_secs(60), gone).await;
    assert!(outcome.is_ok(), "left: {:?}", ours(&client).await);
    assert_eq!(kinds.list(&ListParams::default()).await.unwrap().items.len(), 9);
}
