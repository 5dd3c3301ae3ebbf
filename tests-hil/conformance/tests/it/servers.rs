//! The servers under test.

use cluster::{Component, ControlPlane, ControlPlaneOptions, start_or_skip};
use conformance::{TestServer, definitions};
use embedded_api::{EmbeddedApi, Serving};
use futures::FutureExt;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::PostParams;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::runtime::wait::{await_condition, conditions};
use kube::{Api, Client, Config};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::OnceCell;

/// The embedded server with every definition.
pub(crate) fn embedded_api() -> EmbeddedApi {
    EmbeddedApi::new(&embedded_api::ApiOptions::with(definitions())).unwrap()
}

/// The embedded server with this client.
pub(crate) fn embedded(api: &EmbeddedApi, client: Client) -> TestServer {
    let api = api.clone();
    let compact = move || {
        api.compact();
        futures::future::ready(()).boxed()
    };
    TestServer { client, compact: Arc::new(compact) }
}

/// A client with a kubeconfig that returns every refusal instead of retrying.
pub(crate) async fn client(file: &Path) -> Client {
    let file = Kubeconfig::read_from(file).unwrap();
    let mut config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await.unwrap();
    config.default_retry = false;
    Client::try_from(config).unwrap()
}

/// A client with the kubeconfig of a listening server.
pub(crate) async fn client_of(serving: &Serving, name: &str) -> Client {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    serving.write_kubeconfig(&path).unwrap();
    client(&path).await
}

/// The control plane of this test program. It is never dropped; the library guarantees that it ends with the program.
pub(crate) async fn control_plane() -> Option<&'static ControlPlane> {
    static SHARED: OnceCell<Option<ControlPlane>> = OnceCell::const_new();
    SHARED.get_or_init(start).await.as_ref()
}

/// Without its watch cache, because only then the server reports 410 for compacted revisions.
async fn start() -> Option<ControlPlane> {
    // Its controllers create the accounts that pods need and maintain the status of budgets.
    let mut options = ControlPlaneOptions { controller_manager: true, ..ControlPlaneOptions::api_only() };
    options.flags.push((Component::ApiServer, "--watch-cache=false".to_owned()));
    let control_plane = start_or_skip(&options)?;
    prepare(&client(control_plane.kubeconfig()).await).await;
    Some(control_plane)
}

/// Installs the definitions, which the embedded API contains from the start.
async fn prepare(client: &Client) {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    for definition in definitions() {
        let name = definition.metadata.name.clone().unwrap();
        if let Err(error) = api.create(&PostParams::default(), &definition).await {
            panic!("the definition {name} is refused: {error:#?}");
        }
        let established = await_condition(api.clone(), &name, conditions::is_crd_established());
        tokio::time::timeout(Duration::from_secs(60), established).await.unwrap().unwrap();
    }
}

/// The real server, with a client that belongs to the caller's runtime.
pub(crate) async fn real(control_plane: &'static ControlPlane) -> TestServer {
    let compact = move || {
        async move {
            control_plane.compact().await.unwrap();
        }
        .boxed()
    };
    TestServer { client: client(control_plane.kubeconfig()).await, compact: Arc::new(compact) }
}
