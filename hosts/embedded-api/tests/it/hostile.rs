//! Malformed, binary, deeply nested or misplaced input gets a clear answer, and the next request is served.

use crate::server;
use conformance::{probe, probes};
use http::{Method, Request};
use http_body_util::BodyExt;
use kube::Client;
use kube::api::PostParams;
use kube::client::Body;
use serde_json::{Value, json};

async fn ask(
    client: &Client,
    method: &str,
    path: &str,
    media: &str,
    body: impl Into<Vec<u8>>,
) -> (u16, Value) {
    let request = Request::builder().method(Method::from_bytes(method.as_bytes()).unwrap()).uri(path);
    let request = request.header("content-type", media).body(Body::from(body.into())).unwrap();
    let response = client.send(request).await.unwrap();
    let code = response.status().as_u16();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    (code, serde_json::from_slice(&bytes).unwrap_or_default())
}

#[tokio::test]
async fn bad_requests_are_answered_with_a_status() {
    const JSON: &str = "application/json";
    const MERGE: &str = "application/merge-patch+json";
    let server = server();
    let client = server.client();
    probes(&client).create(&PostParams::default(), &probe("p", json!({}))).await.unwrap();
    let deep = "[".repeat(100_000);
    let cases: Vec<(&str, &str, &str, &[u8], u16)> = vec![
        ("POST", "~", JSON, b"", 400),
        ("POST", "~", JSON, b"{", 400),
        ("POST", "~", JSON, b"[]", 400),
        ("POST", "~", JSON, b"\x00\xff\xfe", 400),
        ("POST", "~", JSON, deep.as_bytes(), 400),
        ("POST", "~", JSON, br#"{"metadata": 3}"#, 400),
        ("POST", "~", JSON, br#"{"metadata": {"name": 3}}"#, 422),
        ("POST", "~", JSON, br#"{"metadata": {"name": "x", "labels": 5}, "spec": {"nodeName": "n"}}"#, 422),
        (
            "POST",
            "~",
            JSON,
            br#"{"metadata": {"name": "x", "labels": {"a": {}}}, "spec": {"nodeName": "n"}}"#,
            422,
        ),
        (
            "POST",
            "~",
            JSON,
            br#"{"metadata": {"name": "x"}, "spec": {"nodeName": "n", "watts": 1e999}}"#,
            400,
        ),
        (
            "POST",
            "~",
            JSON,
            br#"{"metadata": {"name": "x"}, "spec": {"nodeName": "n", "weight": -9e99}}"#,
            422,
        ),
        ("POST", "~", JSON, br#"{"kind": "Node", "metadata": {"name": "x"}}"#, 400),
        ("POST", "~", JSON, br#"{"apiVersion": "v1", "metadata": {"name": "x"}}"#, 400),
        ("POST", "~", "application/vnd.kubernetes.protobuf", b"k8s\x00", 415),
        ("POST", "~/p", JSON, b"{}", 405),
        ("PUT", "~", JSON, b"{}", 405),
        ("PUT", "~/p", JSON, b"3", 400),
        ("PATCH", "~/p", MERGE, b"3", 400),
        ("PATCH", "~/p", MERGE, br#"{"spec": 3}"#, 422),
        ("PATCH", "~/p", MERGE, br#"{"metadata": null}"#, 400),
        ("PATCH", "~/p", "application/json-patch+json", b"{}", 400),
        (
            "PATCH",
            "~/p",
            "application/json-patch+json",
            br#"[{"op": "replace", "path": "", "value": 3}]"#,
            400,
        ),
        ("PATCH", "~/p", "application/json-patch+json", br#"[{"op": "remove", "path": "/no"}]"#, 422),
        ("PATCH", "~/p", "text/plain", b"{}", 415),
        ("PATCH", "~/p?fieldManager=a&force=true", "application/apply-patch+yaml", b"a: b", 400),
        ("PATCH", "~/p?fieldManager=a", "application/apply-patch+yaml", b"{}", 400),
        ("DELETE", "~/p", JSON, b"nonsense", 400),
        ("GET", "/apis/conformance.joulie.io/v1/none", JSON, b"", 404),
        ("GET", "/apis/none/v1", JSON, b"", 404),
        ("GET", "/nothing/here", JSON, b"", 404),
        ("GET", "~/p/scale", JSON, b"", 404),
        ("GET", "/api/v1/namespaces/default/nodes", JSON, b"", 404),
        ("POST", "/apis", JSON, b"{}", 405),
        ("GET", "~?limit=-1", JSON, b"", 400),
        ("GET", "~?limit=1&continue=%ff", JSON, b"", 400),
        ("GET", "~?labelSelector=%28%28", JSON, b"", 400),
        ("GET", "~?watch=1&resourceVersion=x", JSON, b"", 400),
        ("GET", "~?watch=1&sendInitialEvents=true", JSON, b"", 400),
        ("POST", "~?fieldValidation=Maybe", JSON, b"{}", 400),
        ("POST", "~?dryRun=Some", JSON, b"{}", 400),
        ("POST", "/api/v1/namespaces/default/pods/none/binding", JSON, b"{}", 422),
        ("POST", "/api/v1/namespaces/default/pods/none/eviction", JSON, b"[]", 400),
    ];
    for (method, path, media, body, expected) in cases {
        let shown = String::from_utf8_lossy(body.get(..body.len().min(90)).unwrap());
        let path = &path.replacen('~', "/apis/conformance.joulie.io/v1/probes", 1);
        let (code, status) = ask(&client, method, path, media, body).await;
        assert_eq!(code, expected, "{method} {path} {shown}: {status}");
        assert_eq!(status["kind"], "Status", "{method} {path} {shown}");
        assert_eq!(status["code"], expected);
        assert!(status["message"].as_str().is_some_and(|message| !message.is_empty()), "{status}");
    }
    probes(&client).get("p").await.unwrap();
}

#[tokio::test]
async fn numbers_beyond_every_clock_are_numbers() {
    const MAX: u64 = u64::MAX;
    let server = server();
    let client = server.client();
    probes(&client).create(&PostParams::default(), &probe("p", json!({}))).await.unwrap();
    for query in [
        format!("watch=1&timeoutSeconds={MAX}"),
        format!("limit={MAX}"),
        format!("watch=1&timeoutSeconds=0&resourceVersion={}", server.revision()),
    ] {
        let path = format!("/apis/conformance.joulie.io/v1/probes?{query}");
        let response = client.send(Request::get(path).body(Body::empty()).unwrap()).await.unwrap();
        assert_eq!(response.status(), 200, "{query}");
    }
    let path = format!("/apis/conformance.joulie.io/v1/probes/p?gracePeriodSeconds={MAX}");
    assert_eq!(ask(&client, "DELETE", &path, "", "").await.0, 200);
    assert_eq!(ask(&client, "GET", "/apis/conformance.joulie.io/v1/probes/p", "", "").await.0, 404);
}
