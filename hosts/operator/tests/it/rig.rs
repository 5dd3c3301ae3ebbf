//! A cluster for a test: an API server in memory, nodes, agents that apply what is requested, and operators.

use super::rights::{ACCOUNT, Forbidden, Rights, limited};
use embedded_api::{ApiOptions, EmbeddedApi};
use host_kit::clock::{HostClock, SystemClock};
use host_kit::config::{ConfigMetrics, ConfigNews, Invocation, LiveConfig, SettingSources, load};
use host_kit::metrics::MetricsBuilder;
use host_kit::program::Context;
use host_kit::shutdown::{self, Tasks, Trigger};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, CustomResourceValidation, JSONSchemaProps,
};
use kube::Client;
use operator::settings::TABLE;
use operator::{Settings, Started, start};
use serde_json::{Value, json};
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

pub(crate) const JOULIE: &str = "/apis/joulie.io/v1alpha1";
pub(crate) const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/joulie-system/leases";

/// An API server with Joulie's kinds and namespace.
pub(crate) struct Cluster {
    pub(crate) api: EmbeddedApi,
    pub(crate) client: Client,
}

impl Cluster {
    pub(crate) async fn new() -> Self {
        Self::with(joulie_api::crd::all()).await
    }

    /// An API server whose definitions accept anything: older than the programs, as after the upgrade of a chart.
    pub(crate) async fn lenient() -> Self {
        let anything = JSONSchemaProps {
            type_: Some("object".to_owned()),
            x_kubernetes_preserve_unknown_fields: Some(true),
            ..JSONSchemaProps::default()
        };
        let schema = CustomResourceValidation { open_api_v3_schema: Some(anything) };
        let mut all = joulie_api::crd::all();
        let versions = all.iter_mut().flat_map(|definition| &mut definition.spec.versions);
        versions.for_each(|version| version.schema = Some(schema.clone()));
        Self::with(all).await
    }

    async fn with(definitions: Vec<CustomResourceDefinition>) -> Self {
        // The operator's log is shown with a test that fails; the first test of the process enables it.
        let _ = host_kit::log::start(host_kit::log::Format::Text, &"warn,operator=debug".parse().unwrap());
        let api = EmbeddedApi::new(&ApiOptions::with(definitions)).unwrap();
        let cluster = Self { client: api.client_as("test"), api };
        cluster.create("/api/v1/namespaces", &json!({"metadata": {"name": "joulie-system"}})).await;
        cluster
    }

    pub(crate) async fn send(&self, method: &str, path: &str, body: &Value) -> Result<Value, kube::Error> {
        let kind = match method {
            "PATCH" => "application/merge-patch+json",
            _ => "application/json",
        };
        let bytes = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        let request =
            http::Request::builder().method(method).uri(path).header("content-type", kind).body(bytes);
        self.client.request(request.unwrap()).await
    }

    /// Applies a part of an object's status, like a writer that owns only that part.
    pub(crate) async fn apply_status(&self, manager: &str, kind: &str, path: &str, status: &Value) {
        let name = path.rsplit('/').next().unwrap();
        let body = json!({"apiVersion": "joulie.io/v1alpha1", "kind": kind, "metadata": {"name": name}, "status": status});
        let request = http::Request::patch(format!("{path}/status?fieldManager={manager}"))
            .header("content-type", "application/apply-patch+yaml")
            .body(body.to_string().into_bytes());
        let _: Value = self.client.request(request.unwrap()).await.unwrap();
    }

    pub(crate) async fn create(&self, path: &str, body: &Value) -> Value {
        self.send("POST", path, body).await.unwrap()
    }

    pub(crate) async fn patch(&self, path: &str, body: &Value) -> Value {
        self.send("PATCH", path, body).await.unwrap()
    }

    pub(crate) async fn get(&self, path: &str) -> Option<Value> {
        self.send("GET", path, &Value::Null).await.ok()
    }

    pub(crate) async fn list(&self, path: &str) -> Vec<Value> {
        self.get(path).await.unwrap()["items"].as_array().unwrap().clone()
    }

    /// A managed node with two packages of 360 W.
    pub(crate) async fn node(&self, name: &str) {
        self.labelled(name, json!({})).await;
    }

    pub(crate) async fn labelled(&self, name: &str, labels: Value) {
        let mut all = json!({"joulie.io/managed": "true", "joulie.io/hw.cpu-model": "AMD_EPYC_9654",
            "joulie.io/hw.cpu-sockets": "2"});
        all.as_object_mut().unwrap().extend(labels.as_object().unwrap().clone());
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": all},
            "status": {"nodeInfo": node_info(&format!("boot-{name}")), "capacity": {"cpu": "192"}, "allocatable": {"cpu": "192", "memory": "512Gi", "pods": "110"},
                "conditions": [{"type": "Ready", "status": "True"}]}});
        self.create("/api/v1/nodes", &node).await;
        self.patch(&format!("/api/v1/nodes/{name}/status"), &json!({"status": node["status"]})).await;
    }

    /// The node controller's report on a node, and since when.
    pub(crate) async fn ready(&self, name: &str, status: &str, since: Option<&str>) {
        let ready = json!({"type": "Ready", "status": status, "lastTransitionTime": since});
        let path = format!("/api/v1/nodes/{name}/status");
        self.patch(&path, &json!({"status": {"conditions": [ready]}})).await;
    }

    /// What an agent publishes about its node.
    pub(crate) async fn hardware(&self, name: &str, watts: f64) {
        let object = json!({"apiVersion": "joulie.io/v1alpha1", "kind": "NodeHardware", "metadata": {"name": name},
            "spec": {"nodeName": name}});
        self.create(&format!("{JOULIE}/nodehardwares"), &object).await;
        let status = json!({"status": {"cpu": {"rawModel": "AMD EPYC 9654 96-Core Processor", "sockets": 2,
            "totalCores": 192, "controlAvailable": true,
            "capRange": {"type": "package", "minWattsPerSocket": 100, "maxWattsPerSocket": 360}},
            "power": {"cpuWatts": watts, "sampledAt": SystemClock::new().wall().to_string(), "source": "rapl"}}});
        self.patch(&format!("{JOULIE}/nodehardwares/{name}/status"), &status).await;
    }

    pub(crate) async fn pod(&self, name: &str, node: Option<&str>, class: &str) {
        let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default",
            "annotations": {"joulie.io/workload-class": class}},
            "spec": {"containers": [{"name": "main", "image": "none"}]}});
        if let Some(node) = node {
            pod["spec"]["nodeName"] = json!(node);
        }
        self.create("/api/v1/namespaces/default/pods", &pod).await;
        if node.is_some() {
            let path = format!("/api/v1/namespaces/default/pods/{name}/status");
            self.patch(&path, &json!({"status": {"phase": "Running"}})).await;
        }
    }

    pub(crate) async fn label(&self, node: &str) -> Option<String> {
        let node = self.get(&format!("/api/v1/nodes/{node}")).await?;
        node["metadata"]["labels"]["joulie.io/power-profile"].as_str().map(str::to_owned)
    }

    pub(crate) async fn profile(&self, node: &str) -> Option<Value> {
        self.get(&format!("{JOULIE}/nodepowerprofiles/{node}")).await
    }

    pub(crate) async fn twin(&self, node: &str) -> Option<Value> {
        self.get(&format!("{JOULIE}/nodetwins/{node}")).await
    }

    pub(crate) async fn grant(&self, node: &str) -> Option<Value> {
        self.get(&format!("{JOULIE}/nodepowergrants/{node}")).await
    }

    /// Reports what the packages and GPUs of a node hold under this grant, as its agent would.
    pub(crate) async fn holds(&self, grant: &Value, watts: f64) {
        let name = grant["spec"]["nodeName"].as_str().unwrap();
        let Some(node) = self.get(&format!("/api/v1/nodes/{name}")).await else { return };
        let said = json!({"serial": grant["spec"]["serial"], "holds": watts,
            "bootID": node["status"]["nodeInfo"]["bootID"], "nodeUID": node["metadata"]["uid"]});
        let there = &grant["status"];
        if ["serial", "holds", "bootID", "nodeUID"].iter().all(|field| there[*field] == said[*field]) {
            return;
        }
        let path = format!("{JOULIE}/nodepowergrants/{name}/status?fieldManager=joulie-agent");
        // The operator may have deleted it meanwhile.
        let _ = self.send("PATCH", &path, &json!({"status": said})).await;
    }

    /// Reports for a node that its profile and its grant are in force, as its agent would.
    pub(crate) async fn confirm(&self, name: &str) {
        let Some(profile) = self.profile(name).await else { return };
        let grant = self.grant(name).await;
        let granted = grant.as_ref().and_then(|grant| grant["spec"]["watts"].as_f64());
        let cpu = &profile["spec"]["cpu"];
        let percent = cpu["packagePowerCapPctOfMax"].as_f64().map(|percent| percent * 3.6);
        let cap = cpu["packagePowerCapWatts"].as_f64().or(percent).unwrap_or(360.0);
        let cap = cap.min(granted.map_or(360.0, |watts| (watts / 2.0).floor())).clamp(100.0, 360.0);
        if let Some(grant) = &grant {
            self.holds(grant, 2.0 * cap).await;
        }
        let generation = profile["metadata"]["generation"].as_i64().unwrap();
        let control = &profile["status"]["control"]["cpu"];
        if control["observedGeneration"] == json!(generation) && control["capWatts"].as_f64() == Some(cap) {
            return;
        }
        let status = json!({"status": {"control": {"cpu": {"backend": "rapl", "result": "applied",
            "observedGeneration": generation, "requestedWatts": cap, "capWatts": cap}}}});
        let path = format!("{JOULIE}/nodepowerprofiles/{name}/status?fieldManager=joulie-agent");
        // The operator may have deleted it meanwhile.
        let _ = self.send("PATCH", &path, &status).await;
    }

    /// Agents for all nodes, which confirm whatever is requested.
    pub(crate) fn agents(self: &Arc<Self>) -> JoinHandle<()> {
        let cluster = self.clone();
        tokio::spawn(async move {
            loop {
                for profile in cluster.list(&format!("{JOULIE}/nodepowerprofiles")).await {
                    cluster.confirm(profile["metadata"]["name"].as_str().unwrap()).await;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        })
    }

    /// Waits until a condition holds; `what` describes it if the wait fails.
    pub(crate) async fn until(&self, what: &str, holds: impl AsyncFn() -> bool) {
        let all = async {
            while !holds().await {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        assert!(tokio::time::timeout(Duration::from_secs(60), all).await.is_ok(), "not in a minute: {what}");
    }

    /// Waits until nothing except Leases has been written for this long.
    pub(crate) async fn quiet(&self, time: Duration) {
        let mut last = self.writes().await;
        let all = async {
            loop {
                tokio::time::sleep(time).await;
                let now = self.writes().await;
                if now == last {
                    return;
                }
                last = now;
            }
        };
        assert!(tokio::time::timeout(Duration::from_secs(60), all).await.is_ok(), "it never becomes quiet");
    }

    /// The versions of all objects except Leases: they change with every write.
    pub(crate) async fn writes(&self) -> Vec<String> {
        let mut all = Vec::new();
        for path in [
            "/api/v1/nodes".to_owned(),
            format!("{JOULIE}/nodepowerprofiles"),
            format!("{JOULIE}/nodetwins"),
            format!("{JOULIE}/nodepowergrants"),
            format!("{JOULIE}/powerbudgets"),
        ] {
            let items = self.list(&path).await;
            all.extend(
                items.iter().map(|item| item["metadata"]["resourceVersion"].as_str().unwrap().to_owned()),
            );
        }
        all
    }

    pub(crate) async fn operator(&self, variables: &[(&str, &str)]) -> Operator {
        Operator::start(self.api.client_as("operator"), variables).await
    }
}

/// What a kubelet reports about its machine in this boot.
pub(crate) fn node_info(boot: &str) -> Value {
    json!({"bootID": boot, "architecture": "amd64", "containerRuntimeVersion": "", "kernelVersion": "",
        "kubeProxyVersion": "", "kubeletVersion": "", "machineID": "", "operatingSystem": "linux", "osImage": "",
        "systemUUID": ""})
}

/// A running operator.
pub(crate) struct Operator {
    /// Where its metrics and its debug pages are.
    pub(crate) metrics: SocketAddr,
    trigger: Trigger,
    ended: JoinHandle<shutdown::Ending>,
    forbidden: Forbidden,
    _signals: mpsc::Sender<shutdown::ShutdownSignal>,
}

fn sources(variables: &[(&str, &str)]) -> SettingSources {
    let quick = [
        ("METRICS_ADDR", "127.0.0.1:0"),
        ("LEADER_LEASE_DURATION", "6s"),
        ("LEADER_RENEW_DEADLINE", "4s"),
        ("LEADER_RETRY_PERIOD", "100ms"),
        ("PLAN_RENEW_INTERVAL", "1s"),
    ];
    let said = |name: &str| variables.iter().any(|(other, _)| *other == name);
    let all = quick.iter().filter(|(name, _)| !said(name)).chain(variables);
    let variables = all.map(|(name, value)| (OsString::from(name), OsString::from(value)));
    match Invocation::read(std::iter::empty(), variables) {
        Invocation::Run(sources) => sources,
        Invocation::Help | Invocation::Version => panic!("neither was asked for"),
    }
}

pub(crate) fn settings(variables: &[(&str, &str)]) -> Settings {
    Settings::read(&load(&TABLE, &sources(variables)).unwrap()).unwrap()
}

/// An operator with a file of settings. The test says when the program looks at it.
pub(crate) struct Configured {
    pub(crate) operator: Operator,
    file: PathBuf,
    config: LiveConfig,
    metrics: ConfigMetrics,
}

impl Configured {
    /// Starts it with this text in its file.
    pub(crate) async fn start(cluster: &Cluster, name: &str, text: &str, rights: Rights) -> Self {
        let file = std::env::temp_dir().join(format!("operator-{}-{name}.conf", std::process::id()));
        std::fs::write(&file, text).unwrap();
        let sources = sources(&[("JOULIE_CONFIG", file.to_str().unwrap())]);
        let values = load(&TABLE, &sources).unwrap();
        let settings = Settings::read(&values).unwrap();
        let config = LiveConfig::new(&TABLE, sources, values, Settings::read, SystemClock::new().wall());
        let client = cluster.api.client_as("operator");
        let operator = Operator::begin(client, rights, settings, config.clone()).await;
        let metrics = ConfigMetrics::register(MetricsBuilder::of(&operator::BUILD).registry());
        Self { operator, file, config, metrics }
    }

    /// Writes another text, and lets the program look at it twice; returns what became of it.
    pub(crate) fn write(&self, text: &str) -> ConfigNews {
        std::fs::write(&self.file, text).unwrap();
        let now = SystemClock::new().wall();
        assert_eq!(self.config.look(&self.metrics, now), None);
        self.config.look(&self.metrics, now).expect("the file is judged").news
    }

    pub(crate) fn page(&self) -> String {
        self.config.page()
    }

    pub(crate) async fn stop(self) {
        std::fs::remove_file(&self.file).unwrap();
        self.operator.stop().await;
    }
}

impl Operator {
    pub(crate) async fn start(client: Client, variables: &[(&str, &str)]) -> Self {
        let evicts = variables.contains(&("ENABLE_ACTIVE_RESCHEDULING", "true"));
        let rights = if evicts {
            Rights::of(&["base/operator.yaml", "rescheduling/rescheduling.yaml"], ACCOUNT)
        } else {
            Rights::shipped()
        };
        Self::begin(client, rights, settings(variables), LiveConfig::fixed(String::new())).await
    }

    async fn begin(client: Client, rights: Rights, settings: Settings, config: LiveConfig) -> Self {
        let (client, forbidden) = limited(client, rights);
        let (trigger, stop) = shutdown::pair();
        let mut tasks = Tasks::new();
        let clock = Arc::new(SystemClock::new());
        let context = Context { client, clock, stop, logs: None, config };
        let Started { metrics, .. } = start(settings, context, &mut tasks).await.unwrap();
        let (signals, receiver) = mpsc::channel(1);
        let ended = tokio::spawn(tasks.run(trigger.clone(), receiver, Duration::from_secs(10)));
        Self { metrics, trigger, ended, forbidden, _signals: signals }
    }

    /// Asks it to end, and waits until it has. Checks that it requested nothing that its roles do not grant.
    pub(crate) async fn stop(self) {
        self.trigger.request("the test");
        assert_eq!(self.ended.await.unwrap(), shutdown::Ending::Clean);
        assert_eq!(self.forbidden.all(), Vec::<String>::new());
    }

    /// Ends it as SIGKILL does.
    pub(crate) fn kill(self) {
        self.ended.abort();
    }
}
