use bytes::Bytes;
use embedded_api::{ApiOptions, EmbeddedApi};
use host_kit::clock::SystemClock;
use host_kit::shutdown::{self, Stop, Tasks, Trigger};
use http::{Request, Response, StatusCode};
use http_body_util::BodyExt;
use page::explain::UiExplainer;
use page::hub::{UiBody, UiHub};
use page::observe::{UiObserver, UiSource};
use page::serve::Ui;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

/// An API server with one node under a budget, and the page of it.
struct Shown {
    api: EmbeddedApi,
    ui: Ui,
    _tasks: Tasks,
    _trigger: Trigger,
}

async fn write(api: &EmbeddedApi, method: &str, path: &str, body: Value) {
    let kind = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
    let request = Request::builder().method(method).uri(path).header("content-type", kind);
    let request = request.body(body.to_string().into_bytes()).unwrap();
    api.client_as("test")
        .request_text(request)
        .await
        .unwrap_or_else(|error| panic!("{method} {path}: {error}"));
}

async fn objects(api: &EmbeddedApi) {
    let joulie = "/apis/joulie.io/v1alpha1";
    let object = |kind: &str, name: &str, spec: Value| json!({"apiVersion": "joulie.io/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec});
    let labels =
        json!({"joulie.io/managed": "true", "joulie.io/rack": "r1", "joulie.io/power-profile": "eco"});
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a", "labels": labels}});
    write(api, "POST", "/api/v1/nodes", node).await;
    let budget = object("PowerBudget", "site", json!({"watts": 9000, "mode": "enforce"}));
    write(api, "POST", &format!("{joulie}/powerbudgets"), budget).await;
    let mut grant =
        object("NodePowerGrant", "a", json!({"nodeName": "a", "watts": 500, "ceiling": 500, "serial": 1}));
    grant["metadata"]["labels"] = json!({"joulie.io/power-budget": "site"});
    write(api, "POST", &format!("{joulie}/nodepowergrants"), grant).await;
    write(
        api,
        "POST",
        &format!("{joulie}/nodetwins"),
        object("NodeTwin", "a", json!({"nodeName": "a", "profile": "eco"})),
    )
    .await;
    let fresh = json!([{"type": "TelemetryFresh", "status": "True", "reason": "Sampled", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z"}]);
    let status = json!({"status": {"schedulableClass": "eco", "predictedPowerHeadroomScore": 40, "conditions": fresh,
        "powerMeasurement": {"measuredNodePowerW": 300, "nodeCappedPowerW": 500, "nodeTdpW": 900}}});
    write(api, "PATCH", &format!("{joulie}/nodetwins/a/status"), status).await;
}

impl Shown {
    async fn start() -> Self {
        let api = EmbeddedApi::new(&ApiOptions::with(joulie_api::crd::all())).unwrap();
        objects(&api).await;
        let (trigger, stop) = shutdown::pair();
        let mut tasks = Tasks::new();
        let clock = Arc::new(SystemClock::new());
        let hub = UiHub::new(1);
        let source = UiSource {
            title: "Joulie".to_owned(),
            client: api.client_as("page"),
            clock: clock.clone(),
            namespace: "joulie-system".to_owned(),
            hold: Duration::from_secs(60),
            extras: None,
        };
        let observer = UiObserver::start(source, (&mut tasks, &stop));
        tasks.spawn("page", observer.run(hub.clone(), stop.clone()));
        let explained = api.clone();
        let explainer =
            UiExplainer::start(move || explained.client_as("page"), clock, "joulie-system".to_owned());
        let ui = Ui::new(hub, explainer.unwrap(), None, Stop::clone(&stop));
        Self { api, ui, _tasks: tasks, _trigger: trigger }
    }

    async fn ask(&self, method: &str, path: &str) -> Response<UiBody> {
        let request = Request::builder().method(method).uri(path).body(Bytes::new()).unwrap();
        let (head, body) = request.into_parts();
        self.ui.answer(&head, &body).await.unwrap()
    }
}

async fn json_of(response: Response<UiBody>) -> Value {
    let body = response.into_body().collect().await.unwrap().to_bytes();
    serde_json::from_slice(&body).unwrap()
}

/// A page as a browser keeps it: the whole, and the merge patches.
struct Kept {
    body: UiBody,
    state: Value,
}

impl Kept {
    /// Takes events in until this is true.
    async fn until(&mut self, is: impl Fn(&Value) -> bool) {
        let taking = async {
            while !is(&self.state) {
                let bytes = self.body.frame().await.unwrap().unwrap().into_data().unwrap();
                let text = String::from_utf8(bytes.to_vec()).unwrap();
                let Some(data) = text.lines().find_map(|line| line.strip_prefix("data: ")) else { continue };
                let data: Value = serde_json::from_str(data).unwrap();
                if text.contains("event: full") {
                    self.state = data;
                } else {
                    merge(&mut self.state, data);
                }
            }
        };
        let taken = tokio::time::timeout(Duration::from_secs(30), taking).await;
        assert!(taken.is_ok(), "{:#}", self.state);
    }
}

/// RFC 7386; the lists are put to the ends of those before.
fn merge(target: &mut Value, patch: Value) {
    let Value::Object(patch) = patch else {
        *target = patch;
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    for (name, value) in patch {
        if value.is_null() {
            target.as_object_mut().unwrap().remove(&name);
            continue;
        }
        match (value, &mut target[name.as_str()]) {
            (Value::Array(new), Value::Array(all)) => all.extend(new),
            (value, place) => merge(place, value),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_follows_the_cluster_from_the_objects_to_the_stream() {
    let shown = Shown::start().await;
    let events = shown.ask("GET", "/ui/events").await;
    assert_eq!(events.headers()["content-type"], "text/event-stream");
    let mut page = Kept { body: events.into_body(), state: Value::Null };
    page.until(|state| state["nodes"]["a"]["unused"] == 200.0 && state["budgets"]["site"]["unused"] == 200.0)
        .await;
    let node = &page.state["nodes"]["a"];
    assert_eq!((&node["class"], &node["watts"], &node["rack"]), (&json!("eco"), &json!(300.0), &json!("r1")));
    assert_eq!((&node["enforced"], &node["notReady"]), (&json!("unknown"), &json!(true)));
    let site = &page.state["site"];
    assert_eq!(
        (&site["watts"], &site["limit"], &site["unmeasured"]),
        (&json!(300.0), &json!(9000.0), &json!(0))
    );
    assert!(site["controls"].is_null() && site["leader"].is_null());

    let stale = json!({"status": {"conditions": [{"type": "TelemetryFresh", "status": "False", "reason": "Old",
        "message": "no sample", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}});
    write(&shown.api, "PATCH", "/apis/joulie.io/v1alpha1/nodetwins/a/status", stale).await;
    page.until(|state| state["nodes"]["a"]["watts"].is_null()).await;
    assert!(
        page.state["site"]["watts"].is_null() && page.state["site"]["unmeasured"] == 1,
        "{:#}",
        page.state
    );
    let limit = json!({"spec": {"watts": 8000}});
    write(&shown.api, "PATCH", "/apis/joulie.io/v1alpha1/powerbudgets/site", limit).await;
    page.until(|state| state["budgets"]["site"]["limit"] == 8000.0).await;
    let told = page.state["lines"].to_string();
    assert!(told.contains("a: not measured any more"), "{told}");
    assert!(told.contains("PowerBudget site: limit 8000 W, enforced; was limit 9000 W, enforced"), "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_path_has_the_headers_of_a_strict_policy_and_a_page_that_shows_takes_no_order() {
    let shown = Shown::start().await;
    for (method, path, status) in [
        ("GET", "/ui", StatusCode::TEMPORARY_REDIRECT),
        ("GET", "/ui/", StatusCode::OK),
        ("GET", "/ui/page.js", StatusCode::OK),
        ("GET", "/ui/page.css", StatusCode::OK),
        ("GET", "/ui/icon.svg", StatusCode::OK),
        ("GET", "/ui/events", StatusCode::OK),
        ("GET", "/ui/../etc/passwd", StatusCode::NOT_FOUND),
        ("GET", "/ui/explain", StatusCode::BAD_REQUEST),
        ("GET", "/ui/explain?node=", StatusCode::BAD_REQUEST),
        ("GET", "/ui/explain?zone=a", StatusCode::BAD_REQUEST),
        ("GET", "/ui/explain?node=a&pod=b", StatusCode::BAD_REQUEST),
        ("GET", "/ui/explain?node=nobody", StatusCode::NOT_FOUND),
        ("GET", "/ui/explain?node=..%2f..", StatusCode::NOT_FOUND),
        ("POST", "/ui/", StatusCode::METHOD_NOT_ALLOWED),
        ("POST", "/ui/do", StatusCode::FORBIDDEN),
    ] {
        let answer = shown.ask(method, path).await;
        assert_eq!(answer.status(), status, "{method} {path}");
        let policy = answer.headers()["content-security-policy"].to_str().unwrap();
        assert!(policy.starts_with("default-src 'none'; ") && !policy.contains("unsafe"), "{policy}");
        assert_eq!(answer.headers()["x-content-type-options"], "nosniff", "{path}");
    }
    let refused = json_of(shown.ask("POST", "/ui/do").await).await;
    assert!(refused["said"].as_str().unwrap().starts_with("this page only shows"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_is_explained_by_the_code_of_kubectl_joulie() {
    let shown = Shown::start().await;
    let said = json_of(shown.ask("GET", "/ui/explain?node=a").await).await;
    let text = said["text"].as_str().unwrap();
    assert!(text.starts_with("node a\n  why         it is not capped by a plan"), "{text}");
    assert!(text.contains("  power       draws 300 W of 500 W that its caps allow"), "{text}");
}
