//! The server over HTTP: the token, the body limit, and stopping the server.

use crate::{server, soon};
use conformance::probes;
use embedded_api::{EmbeddedApi, Serving, Tls, Token};
use futures::TryStreamExt;
use http_body_util::BodyExt;
use kube::api::{ListParams, WatchParams};
use kube::client::Body;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config, Error};
use std::path::PathBuf;

fn scratch(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name)
}

async fn serve(api: &EmbeddedApi, token: Option<&str>) -> Serving {
    let token = token.map(|token| Token::new(token).unwrap());
    api.serve("127.0.0.1:0".parse().unwrap(), None, token).await.unwrap()
}

/// A client that is configured from the file.
async fn client(serving: &Serving, file: &str) -> Client {
    let path = scratch(file);
    serving.write_kubeconfig(&path).unwrap();
    let file = Kubeconfig::read_from(&path).unwrap();
    let mut config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await.unwrap();
    // The test must see a 429, so the client must not retry.
    config.default_retry = false;
    Client::try_from(config).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_token_is_unauthorized_and_the_file_is_private() {
    use std::os::unix::fs::PermissionsExt;
    let serving = serve(&server(), Some("right")).await;
    let good = client(&serving, "kubeconfig-token").await;
    probes(&good).list(&ListParams::default()).await.unwrap();
    let mode = std::fs::metadata(scratch("kubeconfig-token")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let bad =
        Client::try_from(Config::new(format!("http://{}", serving.address()).parse().unwrap())).unwrap();
    let refused = probes(&bad).list(&ListParams::default()).await;
    assert!(matches!(refused, Err(Error::Api(status)) if status.code == 401));
    for token in ["wrong", "righ", "rightt", ""] {
        let request = http::Request::get("/api").header("authorization", format!("Bearer {token}"));
        let response = bad.send(request.body(Body::empty()).unwrap()).await.unwrap();
        assert_eq!(response.status(), 401, "{token:?}");
    }
    assert!(Token::new("").is_none() && Token::new("a b").is_none());
    serving.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_beyond_the_limit_is_refused() {
    let serving = serve(&server(), None).await;
    let client = client(&serving, "kubeconfig-limit").await;
    let large = vec![b' '; 3 * 1024 * 1024 + 1];
    let request = http::Request::post("/api/v1/namespaces").body(Body::from(large)).unwrap();
    let response = client.send(request).await.unwrap();
    assert_eq!(response.status(), 413);
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    assert!(String::from_utf8_lossy(&bytes).contains("limit is 3145728"));
    serving.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_server_ends_its_watches_and_its_port_is_free() {
    let api = server();
    let serving = serve(&api, None).await;
    let address = serving.address();
    let client = client(&serving, "kubeconfig-stop").await;
    let mut events = Box::pin(probes(&client).watch(&WatchParams::default(), "0").await.unwrap());
    // Stopping the listening server does not affect a watch in process.
    let mut inner = Box::pin(probes(&api.client()).watch(&WatchParams::default(), "0").await.unwrap());
    soon("the stop", serving.stop()).await;
    assert!(soon("the end", events.try_next()).await.unwrap().is_none());
    assert!(tokio::time::timeout(std::time::Duration::from_millis(50), inner.try_next()).await.is_err());
    let again = api.serve(address, None, None).await.unwrap();
    assert_eq!(again.address(), address);
    again.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_for_loopback_is_trusted_by_whoever_has_the_file_and_by_nobody_else() {
    let address = "127.0.0.1:0".parse().unwrap();
    let serving = server().serve(address, Some(Tls::loopback().unwrap()), Token::new("t")).await.unwrap();
    let client = client(&serving, "kubeconfig-loopback").await;
    probes(&client).list(&ListParams::default()).await.unwrap();
    let mut config = Config::new(format!("https://{}", serving.address()).parse().unwrap());
    config.default_retry = false;
    let stranger = Client::try_from(config).unwrap();
    assert!(matches!(
        probes(&stranger).list(&ListParams::default()).await,
        Err(Error::HyperError(_) | Error::Service(_))
    ));
    serving.stop().await;
}
