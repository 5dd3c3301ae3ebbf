//! What a start provides, and its errors.

use crate::support::{alone, pod, shared};
use cluster::assets::{self, Environment};
use cluster::{ClusterError, Component, ControlPlane, ControlPlaneOptions, start_or_skip};
use k8s_openapi::api::core::v1::{Namespace, Pod, ServiceAccount};
use k8s_openapi::api::rbac::v1::RoleBinding;
use kube::api::{ListParams, PostParams};
use kube::{Api, Client};
use serde_json::json;
use std::net::TcpListener;
use std::process::Command;
use std::time::Duration;

#[tokio::test]
async fn the_admin_reaches_an_api_server_that_is_ready() {
    let Some(cluster) = shared().await else { return };
    let client = cluster.client().await.unwrap();
    let ready = client.request_text(http::Request::get("/readyz").body(Vec::new()).unwrap()).await.unwrap();
    assert_eq!(ready, "ok");
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let names: Vec<_> = namespaces
        .list(&ListParams::default())
        .await
        .unwrap()
        .into_iter()
        .filter_map(|n| n.metadata.name)
        .collect();
    assert!(names.contains(&"kube-system".to_owned()), "{names:?}");
    assert_eq!(client.apiserver_version().await.unwrap().major, "1");
}

#[tokio::test]
async fn kubectl_works_with_the_kubeconfig() {
    let Some(cluster) = shared().await else { return };
    let mut kubectl = Command::new("kubectl");
    kubectl.arg("--kubeconfig").arg(cluster.kubeconfig()).args(["get", "--raw", "/readyz"]);
    match kubectl.output() {
        Ok(answer) => assert_eq!(String::from_utf8_lossy(&answer.stdout), "ok", "{answer:?}"),
        Err(error) => println!("SKIP(no kubectl: {error})"),
    }
}

#[tokio::test]
async fn a_service_account_may_do_what_it_is_bound_to_and_nothing_else() {
    let Some(cluster) = shared().await else { return };
    cluster.namespace("rbac").await.unwrap();
    let admin = cluster.client().await.unwrap();
    let accounts: Api<ServiceAccount> = Api::namespaced(admin.clone(), "rbac");
    let account = serde_json::from_value(json!({"metadata": {"name": "somebody"}})).unwrap();
    accounts.create(&PostParams::default(), &account).await.unwrap();

    let somebody = cluster.service_account_client("rbac", "somebody").await.unwrap();
    // The client is authenticated and refused (403), not unknown (401): the token is valid, and RBAC denies the
    // request.
    assert_eq!(list_pods(&somebody, "rbac").await, Err(403));

    let binding: RoleBinding = serde_json::from_value(json!({
        "metadata": {"name": "view"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
        "subjects": [{"kind": "ServiceAccount", "name": "somebody", "namespace": "rbac"}],
    }))
    .unwrap();
    let bindings: Api<RoleBinding> = Api::namespaced(admin, "rbac");
    bindings.create(&PostParams::default(), &binding).await.unwrap();
    crate::support::until("the binding takes effect", || async {
        list_pods(&somebody, "rbac").await == Ok(0)
    })
    .await;
    assert_eq!(list_pods(&somebody, "default").await, Err(403));
    let written =
        Api::<Pod>::namespaced(somebody, "rbac").create(&PostParams::default(), &pod("p", json!({}))).await;
    assert!(matches!(written, Err(kube::Error::Api(status)) if status.code == 403));
}

async fn list_pods(client: &Client, namespace: &str) -> Result<usize, u16> {
    match Api::<Pod>::namespaced(client.clone(), namespace).list(&ListParams::default()).await {
        Ok(pods) => Ok(pods.items.len()),
        Err(kube::Error::Api(status)) => Err(status.code),
        Err(error) => panic!("{error}"),
    }
}

#[tokio::test]
async fn a_component_that_refuses_its_flags_is_told_with_its_own_words() {
    let _alone = alone().await;
    let mut options = ControlPlaneOptions::api_only();
    options.flags.push((Component::ApiServer, "--no-such-flag".to_owned()));
    let Some(told) = refusal(&options) else { return };
    assert!(told.contains("kube-apiserver ended") && told.contains("unknown flag: --no-such-flag"), "{told}");
}

#[tokio::test]
async fn a_port_that_is_taken_is_seen_as_one() {
    let _alone = alone().await;
    let somebody = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut options = ControlPlaneOptions::api_only();
    options
        .flags
        .push((Component::ApiServer, format!("--secure-port={}", somebody.local_addr().unwrap().port())));
    let Some(told) = refusal(&options) else { return };
    // The text by which a start recognises that other ports may help.
    assert!(told.contains("kube-apiserver ended") && told.contains("address already in use"), "{told}");
}

#[tokio::test]
async fn a_component_that_does_not_come_up_in_time_is_told_with_its_log() {
    let _alone = alone().await;
    let options =
        ControlPlaneOptions { deadline: Duration::from_millis(1), ..ControlPlaneOptions::api_only() };
    let Some(told) = refusal(&options) else { return };
    assert!(told.contains("etcd was not ready after 0 s"), "{told}");
}

fn refusal(options: &ControlPlaneOptions) -> Option<String> {
    match ControlPlane::start(options) {
        Ok(_) => panic!("it came up"),
        Err(ClusterError::Absent(_)) => start_or_skip(options).map(|_| String::new()),
        Err(error) => Some(error.to_string()),
    }
}

#[tokio::test]
async fn assets_without_a_scheduler_bring_up_an_api_and_refuse_a_whole_control_plane() {
    let _alone = alone().await;
    let own = Environment::of_this_process();
    let built = match assets::build(&own) {
        Ok(built) => built,
        Err(ClusterError::Absent(_)) => return drop(start_or_skip(&ControlPlaneOptions::api_only())),
        Err(error) => panic!("{error}"),
    };
    let folder = std::env::temp_dir().join(format!("joulie-assets-{}", std::process::id()));
    std::fs::create_dir(&folder).unwrap();
    for name in ["etcd", "kube-apiserver"] {
        std::os::unix::fs::symlink(built.join(name), folder.join(name)).unwrap();
    }
    let environment = Environment {
        kubebuilder_assets: Some(folder.clone().into()),
        path: None,
        cache_home: None,
        home: None,
    };
    let api = ControlPlane::start(&ControlPlaneOptions {
        environment: environment.clone(),
        ..ControlPlaneOptions::api_only()
    });
    let whole = ControlPlane::start(&ControlPlaneOptions { environment, ..ControlPlaneOptions::whole() });
    std::fs::remove_dir_all(&folder).unwrap();

    let api = api.unwrap();
    let etcd =
        std::fs::read_to_string(format!("/proc/{}/cmdline", api.pid(Component::Etcd).unwrap())).unwrap();
    assert!(etcd.starts_with(folder.to_str().unwrap()), "{etcd}");
    let told = whole.err().unwrap().to_string();
    assert!(told.contains("KUBEBUILDER_ASSETS is") && told.contains("no kube-scheduler"), "{told}");
}
