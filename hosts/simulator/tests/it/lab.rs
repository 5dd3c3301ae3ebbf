//! A simulator on an API server in memory, with a clock of its own.

use embedded_api::{ApiOptions, EmbeddedApi};
use host_kit::clock::ManualClock;
use host_kit::config::LiveConfig;
use host_kit::program::Context;
use host_kit::shutdown::{self, Tasks, Trigger};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::PostParams;
use kube::{Api, Client};
use serde_json::{Value, json};
use simulator::world::SimulatedWorld;
use simulator::{Fleet, Settings};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// Long enough for a busy machine. A wait that does not end fails with a message.
const LONG: Duration = Duration::from_secs(60);

pub(crate) struct Lab {
    pub(crate) api: EmbeddedApi,
    pub(crate) clock: ManualClock,
    pub(crate) client: Client,
}

/// A running simulator.
pub(crate) struct Simulator {
    pub(crate) address: SocketAddr,
    pub(crate) world: Arc<SimulatedWorld>,
    trigger: Trigger,
    ended: JoinHandle<()>,
}

/// Waits until a condition holds.
pub(crate) async fn eventually(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let waited = tokio::time::timeout(LONG, async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
    assert!(waited.await.is_ok(), "still waiting: {what}");
}

impl Lab {
    pub(crate) fn new() -> Self {
        let api = EmbeddedApi::new(&ApiOptions::with(Vec::new())).unwrap();
        let client = api.client();
        Self { api, client, clock: ManualClock::at("2026-01-01T00:00:00Z".parse::<Timestamp>().unwrap()) }
    }

    pub(crate) async fn start(&self, fleet: &str) -> Simulator {
        let settings = Settings::of(Fleet::parse(fleet).unwrap());
        self.start_with(Settings { checkpoint: None, ..settings }).await
    }

    pub(crate) async fn start_with(&self, settings: Settings) -> Simulator {
        let (trigger, stop) = shutdown::pair();
        let context = Context {
            client: self.client.clone(),
            clock: Arc::new(self.clock.clone()),
            stop,
            logs: None,
            config: LiveConfig::fixed(String::new()),
        };
        let mut tasks = Tasks::new();
        let started = simulator::start(settings, context, &mut tasks).await.unwrap();
        let (_signals, never) = mpsc::channel(1);
        let run = tasks.run(trigger.clone(), never, LONG);
        let ended = tokio::spawn(async move {
            assert_eq!(run.await.code(), 0);
        });
        Simulator { address: started.work, world: started.world, trigger, ended }
    }

    pub(crate) fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), "default")
    }

    pub(crate) fn nodes(&self) -> Api<Node> {
        Api::all(self.client.clone())
    }

    /// Creates a pod that is bound to this node, with these annotations and resources.
    pub(crate) async fn pod(&self, name: &str, node: &str, annotations: &Value, resources: &Value) {
        let pod = json!({
            "metadata": {"name": name, "annotations": annotations},
            "spec": {
                "nodeName": node,
                "containers": [{"name": "work", "image": "pause", "resources": {"requests": resources}}],
            },
        });
        let pod = serde_json::from_value(pod).unwrap();
        self.pods().create(&PostParams::default(), &pod).await.unwrap();
    }

    pub(crate) async fn phase(&self, name: &str) -> String {
        let pod = self.pods().get_opt(name).await.unwrap();
        let status = pod.map(|pod| pod.status.unwrap_or_default());
        status.map_or("gone".to_owned(), |status| status.phase.unwrap_or_default())
    }

    /// Waits until a pod is in this phase, or `gone`.
    pub(crate) async fn until(&self, name: &str, wanted: &str) {
        eventually(&format!("{name} is {wanted}"), async || self.phase(name).await == wanted).await;
    }
}

impl Simulator {
    /// The status and the body of an answer.
    pub(crate) async fn ask(&self, verb: &str, path: &str, body: &str) -> (u16, String) {
        self.ask_with("", verb, path, body).await
    }

    /// The same with another line in the head.
    pub(crate) async fn ask_with(&self, line: &str, verb: &str, path: &str, body: &str) -> (u16, String) {
        let asked = async {
            let mut stream = TcpStream::connect(self.address).await.unwrap();
            let length = body.len();
            let head = format!(
                "{verb} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{line}Content-Length: {length}\r\n\r\n"
            );
            stream.write_all(head.as_bytes()).await.unwrap();
            stream.write_all(body.as_bytes()).await.unwrap();
            let mut answer = Vec::new();
            stream.read_to_end(&mut answer).await.unwrap();
            String::from_utf8(answer).unwrap()
        };
        let answer = tokio::time::timeout(LONG, asked).await.unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head[9..12].parse().unwrap(), body.to_owned())
    }

    pub(crate) async fn json(&self, verb: &str, path: &str, body: &str) -> Value {
        let (status, body) = self.ask(verb, path, body).await;
        assert_eq!(status, 200, "{verb} {path}: {body}");
        serde_json::from_str(&body).unwrap()
    }

    pub(crate) async fn telemetry(&self, node: &str) -> Value {
        self.json("GET", &format!("/telemetry/{node}"), "").await
    }

    /// Requests a stop, and waits until it has ended.
    pub(crate) async fn stop(self) {
        self.trigger.request("the test");
        tokio::time::timeout(LONG, self.ended).await.unwrap().unwrap();
    }

    /// Ends it like a crash, without a graceful stop.
    pub(crate) fn crash(self) {
        self.ended.abort();
    }
}
