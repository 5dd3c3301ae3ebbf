//! The suite on the embedded server, in process and over HTTP.

use crate::report;
use crate::servers::{client_of, embedded, embedded_api};
use conformance::{ServerKind, run};
use embedded_api::{Tls, Token};
use rustls::pki_types::PrivateKeyDer;
use std::sync::Arc;

#[tokio::test(flavor = "multi_thread")]
async fn every_case_holds_in_process_and_once_more() {
    // Twice on the same server: a case must leave nothing that makes another case or its own repetition fail.
    let api = embedded_api();
    for _ in 0..2 {
        let on = async || embedded(&api, api.client_as("conformance"));
        report("embedded, in process", &run(ServerKind::Embedded, on).await);
    }
}

/// A self-signed certificate for loopback.
fn tls() -> Tls {
    let made = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config =
        rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = config.with_no_client_auth().with_single_cert(vec![made.cert.der().clone()], key).unwrap();
    Tls { config: Arc::new(config), authority: made.cert.pem() }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_case_holds_over_http_with_tls_and_a_token() {
    let api = embedded_api();
    let serving = api.serve("127.0.0.1:0".parse().unwrap(), Some(tls()), Token::new("s3cret")).await.unwrap();
    let client = client_of(&serving, "kubeconfig-tls").await;
    report("embedded, over HTTP", &run(ServerKind::Embedded, async || embedded(&api, client.clone())).await);
    serving.stop().await;
}
