//! An API server in memory, an extender that watches it, and a caller.

use embedded_api::{ApiOptions, EmbeddedApi};
use extender::Started;
use extender::settings::{Settings, TABLE};
use host_kit::clock::SystemClock;
use host_kit::config::{self, Invocation, LiveConfig};
use host_kit::program::Context;
use host_kit::shutdown::{self, Tasks, Trigger};
use jiff::Timestamp;
use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Long enough that only a failing test waits this long.
pub(crate) const LONG: Duration = Duration::from_secs(30);

pub(crate) struct World {
    pub(crate) api: EmbeddedApi,
    pub(crate) client: Client,
    pub(crate) started: Started,
    pub(crate) trigger: Trigger,
    pub(crate) tasks: Tasks,
}

pub(crate) fn api() -> EmbeddedApi {
    EmbeddedApi::new(&ApiOptions::with(joulie_api::crd::all())).unwrap()
}

impl World {
    /// An extender on an empty cluster, with these settings.
    pub(crate) async fn start(settings: &[(&str, &str)]) -> Self {
        Self::on(api(), settings).await
    }

    pub(crate) async fn on(api: EmbeddedApi, settings: &[(&str, &str)]) -> Self {
        let world = Self::unready(api, settings).await;
        world.until("it is ready", async || world.get("/readyz").await.0 == 200).await;
        world
    }

    /// An extender that may never become ready.
    pub(crate) async fn unready(api: EmbeddedApi, settings: &[(&str, &str)]) -> Self {
        let client = api.client_as("test");
        // An expectation must last for the whole test.
        let base = [
            ("EXTENDER_ADDR", "127.0.0.1:0"),
            ("METRICS_ADDR", "127.0.0.1:0"),
            ("DRAIN_LINGER", "0s"),
            ("EXPECTED_MAX_AGE", "60s"),
        ];
        let base = base.iter().filter(|(name, _)| settings.iter().all(|(given, _)| given != name));
        let given = base.chain(settings).map(|(name, value)| ((*name).into(), (*value).into()));
        let Invocation::Run(sources) = Invocation::read([], given) else { panic!("a run") };
        let settings = Settings::read(&config::load(&TABLE, &sources).unwrap()).unwrap();
        let (trigger, stop) = shutdown::pair();
        let mut tasks = Tasks::new();
        let context = Context {
            client: api.client_as("joulie-extender"),
            clock: Arc::new(SystemClock::new()),
            stop,
            logs: None,
            config: LiveConfig::fixed(String::new()),
        };
        let started = extender::start(settings, context, &mut tasks).await.unwrap();
        Self { api, client, started, trigger, tasks }
    }

    /// Waits until a condition holds.
    pub(crate) async fn until(&self, what: &str, is: impl AsyncFn() -> bool) {
        let all = async {
            while !is().await {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        assert!(tokio::time::timeout(LONG, all).await.is_ok(), "waited in vain: {what}");
    }

    pub(crate) async fn get(&self, path: &str) -> (u16, String) {
        call(self.started.work, "GET", path, b"").await
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> Value {
        let (status, text) = call(self.started.work, "POST", path, body.to_string().as_bytes()).await;
        assert_eq!(status, 200, "{text}");
        serde_json::from_str(&text).unwrap()
    }

    /// Scores by name.
    pub(crate) async fn scores(&self, pod: &Value, names: &[&str]) -> Vec<(String, i64)> {
        let answer = self.post("/prioritize", &json!({"Pod": pod, "NodeNames": names})).await;
        let entry =
            |entry: &Value| (entry["host"].as_str().unwrap().to_owned(), entry["score"].as_i64().unwrap());
        answer.as_array().unwrap().iter().map(entry).collect()
    }

    /// One node's score.
    pub(crate) async fn score(&self, pod: &Value, name: &str) -> i64 {
        self.scores(pod, &[name]).await[0].1
    }

    /// A node's score from the debug page, which leaves no expectation behind.
    pub(crate) async fn would_score(&self, pod: &Value, name: &str) -> i64 {
        let page = self.post("/debug/scoring", &json!({"Pod": pod, "NodeNames": [name]})).await;
        page["nodes"][0]["answer"].as_i64().unwrap()
    }

    /// Waits until a node has this score.
    pub(crate) async fn scores_at_last(&self, pod: &Value, name: &str, score: i64) {
        self.until(&format!("{name} scores {score}"), async || self.score(pod, name).await == score).await;
    }

    pub(crate) fn kind(&self, group: &str, version: &str, kind: &str, plural: &str) -> Api<DynamicObject> {
        let resource =
            ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural);
        Api::all_with(self.client.clone(), &resource)
    }

    /// Writes the spec and the status of one of Joulie's cluster-scoped objects.
    async fn put(&self, kind: &str, plural: &str, name: &str, spec: Value, status: Value) {
        let api = self.kind("joulie.io", "v1alpha1", kind, plural);
        let by = PatchParams::apply("test").force();
        let head = json!({"apiVersion": "joulie.io/v1alpha1", "kind": kind, "metadata": {"name": name}});
        let (mut whole, mut said) = (head.clone(), head);
        whole["spec"] = spec;
        said["status"] = status;
        api.patch(name, &by, &Patch::Apply(&whole)).await.unwrap();
        api.patch_status(name, &by, &Patch::Apply(&said)).await.unwrap();
    }

    /// A twin that was written now; `status` is merged into it.
    pub(crate) async fn twin(&self, node: &str, profile: &str, status: Value) {
        let mut whole = json!({"lastUpdated": Timestamp::now().to_string(), "schedulableClass": profile});
        for (key, value) in status.as_object().unwrap() {
            whole[key] = value.clone();
        }
        let spec = json!({"nodeName": node, "profile": if profile == "eco" { "eco" } else { "performance" }});
        self.put("NodeTwin", "nodetwins", node, spec, whole).await;
    }

    /// A node with this many cores and watts.
    pub(crate) async fn hardware(&self, node: &str, cores: u32, watts: u32) {
        let status =
            json!({"cpu": {"totalCores": cores, "sockets": 1, "capRange": {"maxWattsPerSocket": watts}}});
        self.hardware_of(node, status).await;
    }

    /// A node with this hardware.
    pub(crate) async fn hardware_of(&self, node: &str, status: Value) {
        self.put("NodeHardware", "nodehardwares", node, json!({"nodeName": node}), status).await;
    }

    /// What a classifier says of a workload in `default`: the status of its WorkloadProfile.
    pub(crate) async fn profile(&self, kind: &str, name: &str, status: Value) {
        let resource = ApiResource::from_gvk_with_plural(
            &GroupVersionKind::gvk("joulie.io", "v1alpha1", "WorkloadProfile"),
            "workloadprofiles",
        );
        let api: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), "default", &resource);
        let by = PatchParams::apply("test").force();
        let head = json!({"apiVersion": "joulie.io/v1alpha1", "kind": "WorkloadProfile", "metadata": {"name": name}});
        let (mut whole, mut said) = (head.clone(), head);
        whole["spec"] = json!({"workloadRef": {"kind": kind, "name": name}});
        said["status"] = status;
        api.patch(name, &by, &Patch::Apply(&whole)).await.unwrap();
        api.patch_status(name, &by, &Patch::Apply(&said)).await.unwrap();
    }

    /// A node with labels.
    pub(crate) async fn node(&self, name: &str, labels: Value) {
        let api: Api<DynamicObject> = self.kind("", "v1", "Node", "nodes");
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}});
        let node: DynamicObject = serde_json::from_value(node).unwrap();
        api.create(&PostParams::default(), &node).await.unwrap();
    }

    /// The plan's Lease in the namespace `default`, renewed now.
    pub(crate) async fn lease(&self) {
        let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": "joulie-plan", "namespace": "default"},
            "spec": {"holderIdentity": "test", "renewTime": format!("{:.6}", Timestamp::now())}});
        let path = "/apis/coordination.k8s.io/v1/namespaces/default/leases";
        let request = http::Request::post(path).header("content-type", "application/json");
        let request = request.body(lease.to_string().into_bytes()).unwrap();
        self.client.request::<Value>(request).await.unwrap();
    }

    /// What the operator says in the plan's Lease of its classifier, in the namespace `default`.
    pub(crate) async fn classifier(&self, word: &str) {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("coordination.k8s.io", "v1", "Lease"));
        let api: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), "default", &resource);
        let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": "joulie-plan", "annotations": {"joulie.io/classifier": word}},
            "spec": {"holderIdentity": "test", "renewTime": format!("{:.6}", Timestamp::now())}});
        let by = PatchParams::apply("test").force();
        api.patch("joulie-plan", &by, &Patch::Apply(&lease)).await.unwrap();
    }

    /// Stops it, and returns how it ended.
    pub(crate) async fn end(self) -> shutdown::Ending {
        self.trigger.request("the test is over");
        let (_signals, received) = tokio::sync::mpsc::channel(1);
        self.tasks.run(self.trigger, received, LONG).await
    }
}

/// One request on a new connection. Returns the status and the body.
pub(crate) async fn call(address: SocketAddr, method: &str, path: &str, body: &[u8]) -> (u16, String) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(body).await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    let text = String::from_utf8(answer).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    assert!(!head.to_ascii_lowercase().contains("transfer-encoding"), "the length is announced: {head}");
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, body.to_owned())
}

/// A pod of this class with this many cores and a unique UID: a request for its scores makes the extender expect it
/// on the offered node.
pub(crate) fn pod(class: &str, cpu: &str) -> Value {
    static PODS: AtomicU64 = AtomicU64::new(0);
    let uid = format!("pod-{}", PODS.fetch_add(1, Ordering::Relaxed));
    json!({
        "metadata": {"name": "p", "namespace": "default", "uid": uid,
                     "annotations": {"joulie.io/workload-class": class}},
        "spec": {"containers": [{"name": "c", "image": "x", "resources": {"requests": {"cpu": cpu}}}]},
    })
}

pub(crate) fn measured(watts: u32, capped: u32) -> Value {
    json!({"source": "http", "measuredNodePowerW": watts, "nodeCappedPowerW": capped,
           "sampledAt": Timestamp::now().to_string()})
}
