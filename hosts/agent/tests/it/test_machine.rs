//! A cluster in memory, a virtual machine, and agents as processes. This process serves the virtual hardware, so only
//! another process may open it.

use embedded_api::{ApiOptions, EmbeddedApi, Serving};
use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams, PostParams};
use plant::Load;
use rig::test_machine::{self, Folder};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Longer than anything here takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// An API in memory, served over HTTP.
pub(crate) struct Cluster {
    pub(crate) api: EmbeddedApi,
    _serving: Serving,
    pub(crate) kubeconfig: PathBuf,
    _folder: Folder,
}

impl Cluster {
    pub(crate) async fn new() -> Self {
        let api = EmbeddedApi::new(&ApiOptions::with(joulie_api::crd::all())).unwrap();
        let serving = api.serve(([127, 0, 0, 1], 0).into(), None, None).await.unwrap();
        let folder = Folder::new();
        let kubeconfig = folder.0.join("kubeconfig");
        serving.write_kubeconfig(&kubeconfig).unwrap();
        Self { api, _serving: serving, kubeconfig, _folder: folder }
    }

    pub(crate) fn of(&self, kind: &str) -> Api<DynamicObject> {
        let (group, version, plural) = match kind {
            "Node" => ("", "v1", "nodes"),
            "Lease" => ("coordination.k8s.io", "v1", "leases"),
            other => ("joulie.io", "v1alpha1", plural(other)),
        };
        let resource = ApiResource::from_gvk_with_plural(
            &kube::core::GroupVersionKind::gvk(group, version, kind),
            plural,
        );
        Api::all_with(self.api.client(), &resource)
    }

    /// Creates a namespace, if it does not exist yet.
    pub(crate) async fn namespace(&self, name: &str) {
        let kind = kube::core::GroupVersionKind::gvk("", "v1", "Namespace");
        let api: Api<DynamicObject> =
            Api::all_with(self.api.client(), &ApiResource::from_gvk_with_plural(&kind, "namespaces"));
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        let params = PatchParams::apply("a-person").force();
        api.patch(name, &params, &Patch::Apply(namespace)).await.unwrap();
    }

    pub(crate) fn leases(&self, namespace: &str) -> Api<DynamicObject> {
        let kind = kube::core::GroupVersionKind::gvk("coordination.k8s.io", "v1", "Lease");
        let resource = ApiResource::from_gvk_with_plural(&kind, "leases");
        Api::namespaced_with(self.api.client(), namespace, &resource)
    }

    pub(crate) async fn node(&self, name: &str, labels: Value) {
        let node = json!({
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels},
            "status": {
                "capacity": {"cpu": "128", "memory": "256Gi"}, "allocatable": {"cpu": "128"},
                "nodeInfo": {
                    "architecture": "amd64", "bootID": "boot-by-kubelet", "containerRuntimeVersion": "r", "kernelVersion": "k",
                    "kubeProxyVersion": "p", "kubeletVersion": "v", "machineID": "m", "operatingSystem": "linux",
                    "osImage": "i", "systemUUID": "u",
                },
            },
        });
        let node: DynamicObject = serde_json::from_value(node).unwrap();
        self.of("Node").create(&PostParams::default(), &node).await.unwrap();
    }

    /// Writes an object of ours as a person with kubectl would.
    pub(crate) async fn apply(&self, kind: &str, name: &str, spec: Value) {
        let object = json!({
            "apiVersion": "joulie.io/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec,
        });
        let params = PatchParams::apply("a-person").force();
        self.of(kind).patch(name, &params, &Patch::Apply(object)).await.unwrap();
    }

    /// Grants a node this many watts, as the operator does.
    pub(crate) async fn grant(&self, node: &str, serial: u64, watts: i32) {
        let spec = json!({"nodeName": node, "serial": serial, "watts": watts, "ceiling": 100_000});
        self.apply("NodePowerGrant", node, spec).await;
    }

    /// Waits for the receipt of a grant, and returns it.
    pub(crate) async fn receipt(&self, node: &str, serial: u64) -> Value {
        let given = |grant: &Value| grant["status"]["serial"] == serial;
        self.until("NodePowerGrant", node, given).await["status"].clone()
    }

    pub(crate) async fn profile(&self, name: &str, node: &str, watts: i32) {
        let spec = json!({"nodeName": node, "profile": "eco", "cpu": {"packagePowerCapWatts": watts}});
        self.apply("NodePowerProfile", name, spec).await;
    }

    /// Sets labels of a node, or takes them off with null.
    pub(crate) async fn label(&self, node: &str, labels: Value) {
        let patch = Patch::Merge(json!({"metadata": {"labels": labels}}));
        self.of("Node").patch(node, &PatchParams::default(), &patch).await.unwrap();
    }

    pub(crate) async fn delete(&self, kind: &str, name: &str) {
        self.of(kind).delete(name, &Default::default()).await.unwrap();
    }

    pub(crate) async fn get(&self, kind: &str, name: &str) -> Value {
        match self.of(kind).get_opt(name).await.unwrap() {
            Some(object) => serde_json::to_value(object).unwrap(),
            None => Value::Null,
        }
    }

    /// Waits until an object meets a condition, and returns it.
    pub(crate) async fn until(&self, kind: &str, name: &str, is: impl Fn(&Value) -> bool) -> Value {
        let mut last = Value::Null;
        let look = async {
            loop {
                last = self.get(kind, name).await;
                if is(&last) {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let found = tokio::time::timeout(PATIENCE, look).await;
        assert!(found.is_ok(), "{kind} {name} is {last:#}");
        last
    }
}

fn plural(kind: &str) -> &'static str {
    match kind {
        "NodePowerProfile" => "nodepowerprofiles",
        "NodeTwin" => "nodetwins",
        "NodeHardware" => "nodehardwares",
        "NodePowerGrant" => "nodepowergrants",
        "PowerEvent" => "powerevents",
        "TelemetryProfile" => "telemetryprofiles",
        other => panic!("{other}"),
    }
}

/// The condition `CapEnforced`: status and reason.
pub(crate) fn enforced(object: &Value) -> (&str, &str) {
    let all = object["status"]["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
    let found = all.iter().find(|condition| condition["type"] == "CapEnforced");
    let text = |field: &str| found.and_then(|condition| condition[field].as_str()).unwrap_or_default();
    (text("status"), text("reason"))
}

/// Whether the condition is true, of the present generation.
pub(crate) fn is_enforced(object: &Value) -> bool {
    object["status"]["control"]["cpu"]["observedGeneration"] == object["metadata"]["generation"]
        && enforced(object) == ("True", "Enforced")
}

/// A virtual machine, mounted.
pub(crate) struct TestMachine(test_machine::TestMachine);

impl Deref for TestMachine {
    type Target = test_machine::TestMachine;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl TestMachine {
    /// Returns `None`, and prints a note, if the kernel does not allow mounts.
    pub(crate) fn profile(name: &str) -> Option<Self> {
        let mut machine = test_machine::TestMachine::running(name);
        machine.plant().set_load(Load::busy(1.0)).unwrap();
        test_machine::TestMachine::with_room(machine).map(Self)
    }

    /// The limits of the packages in watts, as the files say.
    pub(crate) fn limits(&self) -> Vec<u64> {
        let machine = self.machine.lock();
        let zones = machine.zones().iter().filter(|slot| slot.zone.name.starts_with("package"));
        zones.map(|slot| slot.zone.power_limit_uw(0) / 1_000_000).collect()
    }

    pub(crate) async fn until_limits(&self, watts: &[u64]) {
        self.until(Self::limits, watts).await;
    }

    /// The limits of the GPUs in watts, as their driver has them.
    pub(crate) fn gpus(&self) -> Vec<u64> {
        let machine = self.machine.lock();
        machine.nvidia().iter().map(|card| u64::from(card.limit_mw / 1_000)).collect()
    }

    /// The highest clocks to which the GPUs are locked, in MHz, as their driver has them; 0 for no lock.
    pub(crate) fn locks(&self) -> Vec<u64> {
        let machine = self.machine.lock();
        machine
            .nvidia()
            .iter()
            .map(|card| card.lock_mhz.map_or(0, |(_, highest)| u64::from(highest)))
            .collect()
    }

    /// The limits of the sockets in watts, as their firmware has them.
    pub(crate) fn sockets(&self) -> Vec<u64> {
        self.machine.lock().caps_in_force_uw().map(|cap| cap / 1_000_000).collect()
    }

    pub(crate) async fn until(&self, are: impl Fn(&Self) -> Vec<u64>, watts: &[u64]) {
        let look = async {
            while are(self) != watts {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let found = tokio::time::timeout(PATIENCE, look).await;
        assert!(found.is_ok(), "the limits are {:?}", are(self));
    }

    /// The settings of an agent on this machine.
    pub(crate) fn settings(&self, cluster: &Cluster) -> Vec<(&'static str, String)> {
        let mut all = settings(cluster);
        all.push(("NODE_NAME", "node-a".to_owned()));
        all.push(("HOST_ROOT", self.root().display().to_string()));
        all.push(("STATE_DIR", self.state().display().to_string()));
        all
    }
}

/// The settings of any agent.
pub(crate) fn settings(cluster: &Cluster) -> Vec<(&'static str, String)> {
    vec![
        ("KUBECONFIG", cluster.kubeconfig.display().to_string()),
        ("METRICS_ADDR", "127.0.0.1:0".to_owned()),
        ("RECONCILE_INTERVAL", "500ms".to_owned()),
    ]
}

/// An agent as a process.
pub(crate) struct Agent {
    child: Child,
    lines: Arc<Mutex<Vec<String>>>,
}

const PROGRAM: &str = env!("CARGO_BIN_EXE_joulie-agent");

fn command(arguments: &[&str], settings: &[(&'static str, String)]) -> Command {
    let mut command = Command::new(Path::new(PROGRAM));
    command.args(arguments).env_clear();
    command.envs(settings.iter().map(|(name, value)| (name, value)));
    command
}

impl Agent {
    pub(crate) fn start(settings: &[(&'static str, String)]) -> Self {
        Self::start_with(&[], settings)
    }

    pub(crate) fn start_with(arguments: &[&str], settings: &[(&'static str, String)]) -> Self {
        let mut child = command(arguments, settings).stderr(Stdio::piped()).spawn().unwrap();
        let lines = Arc::new(Mutex::new(Vec::new()));
        let (reader, into) = (BufReader::new(child.stderr.take().unwrap()), lines.clone());
        std::thread::spawn(move || {
            for line in reader.lines().map_while(Result::ok) {
                into.lock().unwrap().push(line);
            }
        });
        Self { child, lines }
    }

    /// Runs a command of the program to its end.
    pub(crate) fn run(arguments: &[&str], settings: &[(&'static str, String)]) -> (Option<i32>, String) {
        let output = command(arguments, settings).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    }

    pub(crate) fn log(&self) -> String {
        self.lines.lock().unwrap().join("\n")
    }

    pub(crate) async fn until_said(&self, text: &str) {
        let look = async {
            while !self.log().contains(text) {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        assert!(tokio::time::timeout(PATIENCE, look).await.is_ok(), "{text:?} is not in\n{}", self.log());
    }

    /// The address of metrics and health.
    pub(crate) async fn port(&self) -> String {
        const SAYS: &str = "metrics and health are served on ";
        self.until_said(SAYS).await;
        let log = self.log();
        let (_, rest) = log.split_once(SAYS).unwrap();
        rest.split_whitespace().next().unwrap().to_owned()
    }

    /// Fetches a page from that address: its status line and its body.
    pub(crate) async fn page(&self, path: &str) -> String {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let mut stream = tokio::net::TcpStream::connect(self.port().await).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: agent\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).await.unwrap();
        text
    }

    pub(crate) async fn until_page(&self, path: &str, has: &str) -> String {
        let mut text = String::new();
        let look = async {
            loop {
                text = self.page(path).await;
                if text.contains(has) {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        let found = tokio::time::timeout(PATIENCE, look).await;
        assert!(found.is_ok(), "{has:?} is not in\n{text}");
        text
    }

    /// Ends it as the kubelet does.
    pub(crate) async fn terminate(self) -> ExitStatus {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
        self.ended().await
    }

    /// Waits until it has ended.
    pub(crate) async fn ended(mut self) -> ExitStatus {
        let wait = async {
            loop {
                if let Some(status) = self.child.try_wait().unwrap() {
                    return status;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(PATIENCE, wait).await.expect("it ends")
    }

    /// Ends it as the kernel does when memory is short.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        // Killing fails if the process has already ended.
        let _ended = self.child.kill();
        let _waited = self.child.wait();
        if std::thread::panicking() {
            println!("the agent said:\n{}", self.log());
        }
    }
}
