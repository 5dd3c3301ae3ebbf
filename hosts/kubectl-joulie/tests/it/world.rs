//! A cluster whose objects are as the programs write them, and a person who asks.

use clap::Parser;
use embedded_api::{ApiOptions, EmbeddedApi};
use host_kit::clock::{HostClock, Mono, SystemClock};
use http::{Method, Request, Response};
use jiff::Timestamp;
use kube::Client;
use kube::client::Body;
use kubectl_joulie::args::PluginCli;
use kubectl_joulie::{PluginSession, Reply, run};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use tower::service_fn;

pub(crate) const JOULIE: &str = "/apis/joulie.io/v1alpha1";
pub(crate) const PODS: &str = "/api/v1/namespaces/joulie-system/pods";
pub(crate) const REVIEWS: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
/// When everything was written, and is looked at.
pub(crate) const NOW: &str = "2026-11-27T20:00:00Z";
const VERSION: &str = env!("CARGO_PKG_VERSION");

type Canned = Arc<Mutex<BTreeMap<String, (u16, String)>>>;

/// A merge patch.
struct Patch {
    path: String,
    manager: String,
    body: Value,
}

impl Patch {
    fn of(path: &str, manager: &str, body: Value) -> Self {
        Self { path: path.to_owned(), manager: manager.to_owned(), body }
    }

    async fn send(&self, client: &Client) {
        let path = format!("{}?fieldManager={}", self.path, self.manager);
        send(client, "PATCH", &path, "application/merge-patch+json", &self.body).await;
    }
}

pub(crate) struct World {
    client: Client,
    /// Answers to paths that the API server in memory does not have.
    canned: Canned,
    /// What reviews say no to.
    denied: Arc<Mutex<Vec<Value>>>,
    /// What somebody writes just before each write of the person.
    between: Arc<Mutex<Vec<Patch>>>,
}

/// The time of day stands still; the other clock runs, because programs wait by it.
struct Noon(SystemClock);

impl HostClock for Noon {
    fn mono(&self) -> Mono {
        self.0.mono()
    }

    fn wall(&self) -> Timestamp {
        now()
    }
}

pub(crate) fn now() -> Timestamp {
    NOW.parse().unwrap()
}

impl World {
    /// An API server with Joulie's kinds.
    pub(crate) async fn empty() -> Self {
        let options = ApiOptions { clock: Arc::new(now), ..ApiOptions::with(joulie_api::crd::all()) };
        let api = EmbeddedApi::new(&options).unwrap();
        let world = Self {
            client: api.client(),
            canned: Canned::default(),
            denied: Arc::default(),
            between: Arc::default(),
        };
        world
            .apply(
                "/api/v1/namespaces",
                "person",
                json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "joulie-system"}}),
            )
            .await;
        world
    }

    /// Two nodes, one of them eco, under a limit of 1,500 W; nothing is wrong.
    pub(crate) async fn healthy() -> Self {
        let world = Self::empty().await;
        for (lease, holder) in
            [("joulie-plan", "joulie-operator-0_1"), ("joulie-operator", "joulie-operator-0_1")]
        {
            world.lease(lease, holder, "2026-11-27T19:59:58Z").await;
        }
        world.node("a", "performance", 100.0, 300.0, 700.0).await;
        world.node("b", "eco", 60.0, 200.0, 500.0).await;
        world.budget(json!({"limitWatts": 1500, "mode": "enforce", "nodes": 2, "countedWatts": 1200, "measuredWatts": 500,
            "roomWatts": 300, "conditions": [condition("Accepted", "True", "Accepted", ""), condition("WithinBudget", "True", "Kept", "")]})).await;
        for (name, component, node) in [
            ("joulie-operator-0", "operator", "a"),
            ("joulie-agent-a", "agent", "a"),
            ("joulie-agent-b", "agent", "b"),
            ("joulie-extender-0", "scheduler-extender", "b"),
        ] {
            world.program(name, component, node).await;
        }
        world.pod("web", "a", "32", "64Gi").await;
        let scheduler = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nextenders:\n\
            - {urlPrefix: 'http://10.96.0.50:9876', filterVerb: filter, prioritizeVerb: prioritize, weight: 1, nodeCacheCapable: true, httpTimeout: 1s, ignorable: true}\n";
        world.scheduler(scheduler).await;
        world.can("/api/v1/namespaces/joulie-system/services", 200,
            &json!({"items": [{"metadata": {"name": "joulie-operator", "annotations": {"prometheus.io/scrape": "true"}}}]}).to_string());
        world.can(REVIEWS, 201, &json!({"status": {"allowed": true}}).to_string());
        world.can(
            "/apis/authentication.k8s.io/v1/selfsubjectreviews",
            201,
            &json!({"status": {"userInfo": {"username": "anna@example.com"}}}).to_string(),
        );
        world
    }

    /// The answer to a path that the API server in memory does not have.
    pub(crate) fn can(&self, path: &str, status: u16, text: &str) {
        self.canned.lock().unwrap().insert(path.to_owned(), (status, text.to_owned()));
    }

    pub(crate) fn cannot(&self, path: &str) {
        self.canned.lock().unwrap().remove(path);
    }

    /// A review of what has all of this is answered with no.
    pub(crate) fn deny(&self, attributes: Value) {
        self.denied.lock().unwrap().push(attributes);
    }

    /// Somebody writes this just before the person's next write.
    pub(crate) fn written_between(&self, path: &str, manager: &str, body: Value) {
        self.between.lock().unwrap().push(Patch::of(path, manager, body));
    }

    fn person(&self) -> Client {
        let (inner, canned, denied) = (self.client.clone(), self.canned.clone(), self.denied.clone());
        let between = self.between.clone();
        let service = service_fn(move |request: Request<Body>| {
            let (inner, canned, denied) = (inner.clone(), canned.clone(), denied.clone());
            let first = (request.method() == Method::PATCH).then(|| between.lock().unwrap().pop()).flatten();
            async move {
                if let Some(first) = first {
                    first.send(&inner).await;
                }
                let found = canned.lock().unwrap().get(request.uri().path()).cloned();
                match found {
                    Some((201, _))
                        if request.uri().path() == REVIEWS && !denied.lock().unwrap().is_empty() =>
                    {
                        let review: Value =
                            serde_json::from_slice(&request.into_body().collect_bytes().await?).unwrap();
                        let asked = &review["spec"]["resourceAttributes"];
                        let is = |one: &Value| {
                            one.as_object().unwrap().iter().all(|(field, value)| asked[field] == *value)
                        };
                        let allowed = !denied.lock().unwrap().iter().any(is);
                        let answer = json!({"status": {"allowed": allowed}}).to_string();
                        Ok(Response::builder().status(201).body(Body::from(answer.into_bytes())).unwrap())
                    }
                    Some((status, text)) => {
                        let answer = Response::builder().status(status).body(Body::from(text.into_bytes()));
                        Ok::<_, kube::Error>(answer.unwrap())
                    }
                    None => inner.send(request).await,
                }
            }
        });
        Client::new(service, "default")
    }

    /// What a person sees who types this after `kubectl joulie`.
    pub(crate) async fn ask(&self, words: &[&str]) -> Reply {
        let cli = PluginCli::try_parse_from([&["kubectl-joulie"][..], words].concat()).unwrap();
        let asked =
            PluginSession::through(self.person(), Arc::new(Noon(SystemClock::new())), cli.common.clone())
                .unwrap();
        run(&asked, &cli.command).await
    }

    /// The text of a command that has to do what it is asked to.
    #[track_caller]
    pub(crate) fn text(reply: Reply) -> String {
        assert_eq!(reply.code, 0, "{reply:#?}");
        reply.text
    }

    pub(crate) async fn send(&self, method: &str, path: &str, kind: &str, body: &Value) -> Value {
        send(&self.client, method, path, kind, body).await
    }

    pub(crate) async fn get(&self, path: &str) -> Value {
        self.client.request(Request::get(path).body(Vec::new()).unwrap()).await.unwrap()
    }

    pub(crate) async fn delete(&self, path: &str) {
        self.send("DELETE", path, "application/json", &json!({})).await;
    }

    pub(crate) async fn merge(&self, path: &str, manager: &str, body: Value) {
        Patch::of(path, manager, body).send(&self.client).await;
    }

    /// Server-side apply of the object, and of its status by another manager if it has one.
    pub(crate) async fn apply(&self, path: &str, manager: &str, object: Value) {
        let (mut main, name) = (object, String::new());
        let name = main["metadata"]["name"].as_str().map_or(name, str::to_owned);
        let status = main.as_object_mut().unwrap().remove("status");
        let apply = "application/apply-patch+yaml";
        self.send("PATCH", &format!("{path}/{name}?fieldManager={manager}&force=true"), apply, &main).await;
        if let Some(status) = status {
            let of = json!({"apiVersion": main["apiVersion"], "kind": main["kind"], "metadata": {"name": name}, "status": status});
            let writer = if matches!(main["kind"].as_str(), Some("NodeTwin" | "PowerBudget")) {
                "joulie-operator"
            } else {
                "joulie-agent"
            };
            self.send("PATCH", &format!("{path}/{name}/status?fieldManager={writer}&force=true"), apply, &of)
                .await;
        }
    }

    pub(crate) async fn ours(&self, plural: &str, kind: &str, name: &str, spec: Value, status: Value) {
        let manager = if kind == "NodeHardware" { "joulie-agent" } else { "joulie-operator" };
        let mut object = json!({"apiVersion": "joulie.io/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec});
        if kind == "NodePowerGrant" {
            object["metadata"]["labels"] = json!({"joulie.io/power-budget": "site"});
        }
        if !status.is_null() {
            object["status"] = status;
        }
        self.apply(&format!("{JOULIE}/{plural}"), manager, object).await;
    }

    pub(crate) async fn lease(&self, name: &str, holder: &str, renewed: &str) {
        let object = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name, "namespace": "joulie-system"},
            "spec": {"holderIdentity": holder, "renewTime": renewed.replace('Z', ".000000Z")}});
        self.apply("/apis/coordination.k8s.io/v1/namespaces/joulie-system/leases", "joulie-operator", object)
            .await;
    }

    /// A node with all of Joulie's objects about it: two packages of 350 W at most, and of b eight GPUs.
    pub(crate) async fn node(&self, name: &str, class: &str, percent: f64, drawn: f64, granted: f64) {
        let mut allocatable = json!({"cpu": "64", "memory": "256Gi"});
        if name == "b" {
            allocatable["nvidia.com/gpu"] = json!("8");
        }
        let labels = json!({"joulie.io/managed": "true", "joulie.io/power-profile": class});
        self.apply(
            "/api/v1/nodes",
            "kubelet",
            json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels},
            "status": {"allocatable": allocatable, "conditions": [{"type": "Ready", "status": "True"}]}}),
        )
        .await;
        self.ours("nodehardwares", "NodeHardware", name, json!({"nodeName": name}),
            json!({"cpu": {"model": "Xeon 8480+", "totalCores": 64, "sockets": 2, "capRange": {"maxWattsPerSocket": 350}}})).await;
        let spec = json!({"nodeName": name, "profile": class, "cpu": {"packagePowerCapPctOfMax": percent}, "policy": {"name": "static-partition-v1"}});
        let watts = 350.0 * percent / 100.0;
        self.ours("nodepowerprofiles", "NodePowerProfile", name, spec.clone(), json!({
            "conditions": [enforced("True", "Enforced", "")],
            "control": {"cpu": {"backend": "rapl", "result": "applied", "observedGeneration": 1, "requestedWatts": watts, "capWatts": watts}},
        })).await;
        let (headroom, cooling) = if name == "a" { (72.5, 31.5) } else { (13.5, 10.0) };
        self.ours("nodetwins", "NodeTwin", name, spec, json!({
            "schedulableClass": class, "predictedPowerHeadroomScore": headroom, "predictedCoolingStressScore": cooling,
            "predictedPsuStressScore": 12.5, "effectiveCapState": {"cpuPct": percent, "gpuPct": 50},
            "powerMeasurement": {"source": "agent", "measuredNodePowerW": drawn, "nodeCappedPowerW": 2.0 * watts,
                "cpuCappedPowerW": 2.0 * watts, "nodeTdpW": 700, "cpuTdpW": 700, "powerTrendWPerMin": 0, "sampledAt": "2026-11-27T19:59:55Z"},
            "lastUpdated": "2026-11-27T19:59:55Z", "planLease": "joulie-plan",
            "conditions": [condition("TelemetryFresh", "True", "Sampled", "")],
        })).await;
        self.ours(
            "nodepowergrants",
            "NodePowerGrant",
            name,
            json!({"nodeName": name, "serial": 7, "watts": granted, "ceiling": granted}),
            json!({"serial": 7, "holds": granted, "floor": 200}),
        )
        .await;
    }

    pub(crate) async fn budget(&self, mut status: Value) {
        status["observedGeneration"] = json!(1);
        self.apply(
            &format!("{JOULIE}/powerbudgets"),
            "person",
            json!({"apiVersion": "joulie.io/v1alpha1", "kind": "PowerBudget",
            "metadata": {"name": "site"}, "spec": {"watts": 1500, "mode": "enforce"}, "status": status}),
        )
        .await;
    }

    pub(crate) async fn program(&self, name: &str, component: &str, node: &str) {
        let labels = json!({"app.kubernetes.io/component": component, "app.kubernetes.io/version": VERSION, "app.kubernetes.io/part-of": "joulie"});
        let ports = json!([{"name": "metrics", "containerPort": 8080}]);
        self.send(
            "POST",
            PODS,
            "application/json",
            &json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": "joulie-system", "labels": labels},
            "spec": {"nodeName": node, "containers": [{"name": "main", "image": "joulie", "ports": ports}]}}),
        )
        .await;
        self.ready(name, "True").await;
    }

    /// Sets variables of a program.
    pub(crate) async fn variables(&self, pod: &str, all: &[(&str, &str)]) {
        let env: Vec<Value> = all.iter().map(|(name, value)| json!({"name": name, "value": value})).collect();
        self.rolled_out(pod, json!({"env": env}), json!([])).await;
    }

    /// Another pod in the place of a program's, with these fields of its container and these volumes.
    pub(crate) async fn rolled_out(&self, pod: &str, container: Value, volumes: Value) {
        let path = format!("{PODS}/{pod}");
        let before = self.get(&path).await;
        self.delete(&format!("{path}?gracePeriodSeconds=0")).await;
        let mut spec = json!({"nodeName": before["spec"]["nodeName"], "containers": before["spec"]["containers"], "volumes": volumes});
        for (field, value) in container.as_object().unwrap() {
            spec["containers"][0][field] = value.clone();
        }
        let metadata =
            json!({"name": pod, "namespace": "joulie-system", "labels": before["metadata"]["labels"]});
        let made = json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec});
        self.send("POST", PODS, "application/json", &made).await;
        self.ready(pod, "True").await;
    }

    pub(crate) async fn ready(&self, name: &str, status: &str) {
        let body =
            json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": status}]}});
        self.merge(&format!("{PODS}/{name}/status"), "kubelet", body).await;
    }

    pub(crate) async fn pod(&self, name: &str, node: &str, cpu: &str, memory: &str) {
        let requests = json!({"cpu": cpu, "memory": memory});
        let mut spec =
            json!({"containers": [{"name": "main", "image": "x", "resources": {"requests": requests}}]});
        if !node.is_empty() {
            spec["nodeName"] = json!(node);
        }
        self.send("POST", "/api/v1/namespaces/default/pods", "application/json",
            &json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"}, "spec": spec})).await;
    }

    pub(crate) async fn scheduler(&self, config: &str) {
        self.apply("/api/v1/namespaces/joulie-system/configmaps", "helm", json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "joulie-scheduler-config", "namespace": "joulie-system"}, "data": {"config.yaml": config}})).await;
    }

    /// An Event of the operator about a limit.
    pub(crate) async fn decided(
        &self,
        reason: &str,
        message: &str,
        (kind, name, space): (&str, &str, &str),
        at: &str,
    ) {
        let space = if space.is_empty() { "default" } else { space };
        self.send("POST", &format!("/api/v1/namespaces/{space}/events"), "application/json", &json!({"apiVersion": "v1", "kind": "Event",
            "metadata": {"name": format!("{name}.{reason}{}", at.replace(':', "")).to_lowercase(), "namespace": space}, "type": "Normal", "reason": reason, "message": message,
            "involvedObject": {"kind": kind, "name": name, "namespace": if kind == "Lease" { space } else { "" }}, "lastTimestamp": at})).await;
    }

    pub(crate) async fn event(&self, name: &str, reason: &str, message: &str, node: &str) {
        self.send("POST", "/api/v1/namespaces/default/events", "application/json", &json!({"apiVersion": "v1", "kind": "Event",
            "metadata": {"name": name, "namespace": "default"}, "type": "Warning", "reason": reason, "message": message,
            "involvedObject": {"kind": "Node", "name": node}, "lastTimestamp": "2026-11-27T19:55:00Z"})).await;
    }
}

async fn send(client: &Client, method: &str, path: &str, kind: &str, body: &Value) -> Value {
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", kind)
        .body(body.to_string().into_bytes());
    client.request(request.unwrap()).await.unwrap_or_else(|error| panic!("{method} {path}: {error}"))
}

pub(crate) fn condition(about: &str, status: &str, reason: &str, message: &str) -> Value {
    json!({"type": about, "status": status, "reason": reason, "message": message, "lastTransitionTime": "2026-11-27T18:00:00Z"})
}

pub(crate) fn enforced(status: &str, reason: &str, message: &str) -> Value {
    let mut said = condition("CapEnforced", status, reason, message);
    said["observedGeneration"] = json!(1);
    said
}
