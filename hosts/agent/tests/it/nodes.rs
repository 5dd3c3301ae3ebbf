//! Nodes over HTTP, each of them a server of a few lines, and an agent in mode pool for them.

use crate::test_machine::{Cluster, settings};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::TcpListener;

/// The nodes behind an endpoint.
#[derive(Clone, Default)]
pub(crate) struct Nodes(Arc<Mutex<BTreeMap<String, Node>>>);

#[derive(Clone, Default)]
pub(crate) struct Node {
    pub(crate) cap: f64,
    pub(crate) throttle: i64,
    pub(crate) gpu_cap: f64,
    pub(crate) gpus: u64,
    /// What the processors draw without a cap and a throttle.
    pub(crate) wants: f64,
    pub(crate) hangs: bool,
    /// Its telemetry answers with an error, and its control works.
    pub(crate) silent: bool,
    /// What controls answer instead of doing anything.
    pub(crate) refuses: Option<&'static str>,
    /// The boot that it says it is in.
    pub(crate) boot: Option<&'static str>,
    /// The highest sum of all limits that was in force.
    pub(crate) peak: f64,
    pub(crate) posts: Vec<Value>,
}

impl Node {
    pub(crate) fn new() -> Self {
        Self { cap: 250.0, gpu_cap: 400.0, wants: 500.0, ..Self::default() }
    }

    /// All limits together.
    pub(crate) fn limits(&self) -> f64 {
        self.cap * 2.0 + self.gpu_cap * self.gpus as f64
    }

    fn draws(&self) -> f64 {
        let throttled = self.wants * (1.0 - self.throttle as f64 / 200.0);
        throttled.min(self.cap * 2.0)
    }

    fn telemetry(&self) -> Value {
        json!({
            "packagePowerWatts": self.draws() + 1000.0,
            "nodePowerWatts": self.draws() + 1100.0,
            "bootID": self.boot,
            "cpu": {
                "packagePowerWatts": self.draws(), "raplCapWatts": self.cap, "throttlePct": self.throttle,
                "sockets": 2, "capMinWatts": 80, "capMaxWatts": 250,
            },
            "gpu": {
                "present": self.gpus > 0, "count": self.gpus, "vendor": "nvidia", "product": "NVIDIA H100 NVL",
                "powerWattsTotal": 200.0 * self.gpus as f64, "capWattsPerGpuApplied": self.gpu_cap,
                "capMinWattsPerGpu": 200, "capMaxWattsPerGpu": 400,
            },
        })
    }

    fn control(&mut self, body: Value) -> Value {
        self.posts.push(body.clone());
        if let Some(refusal) = self.refuses {
            return json!({"ok": false, "result": refusal, "message": "the test says so"});
        }
        let watts = |field: &str| body[field].as_f64().unwrap();
        match body["action"].as_str().unwrap() {
            "rapl.set_power_cap_watts" => self.cap = watts("capWatts").clamp(80.0, 250.0),
            "dvfs.set_throttle_pct" => self.throttle = body["throttlePct"].as_i64().unwrap(),
            "gpu.set_power_cap_watts" => self.gpu_cap = watts("capWattsPerGpu").clamp(200.0, 400.0),
            other => panic!("{other}"),
        }
        self.peak = self.peak.max(self.limits());
        json!({"ok": true, "result": "applied", "state": {
            "capWatts": self.cap, "throttlePct": self.throttle, "gpuCapWattsPerGpuApplied": self.gpu_cap,
        }})
    }
}

impl Nodes {
    pub(crate) async fn serve(&self) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let nodes = self.clone();
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let nodes = nodes.clone();
                // If the agent closes the connection, the task ends with an error.
                tokio::spawn(async move { nodes.converse(stream).await });
            }
        });
        address
    }

    /// As [`Nodes::serve`], with TLS. Returns also the certificate, which is self-signed.
    pub(crate) async fn serve_tls(&self) -> (SocketAddr, String) {
        let made = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
        let key = rustls::pki_types::PrivateKeyDer::Pkcs8(made.signing_key.serialize_der().into());
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![made.cert.der().clone()], key)
            .unwrap();
        let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let nodes = self.clone();
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (nodes, acceptor) = (nodes.clone(), acceptor.clone());
                // A client that does not trust the certificate ends the handshake.
                tokio::spawn(async move { nodes.converse(acceptor.accept(stream).await.ok()?).await });
            }
        });
        (address, made.cert.pem())
    }

    async fn converse(&self, stream: impl AsyncRead + AsyncWrite + Unpin) -> Option<()> {
        let mut stream = BufReader::new(stream);
        loop {
            let (mut first, mut length) = (String::new(), 0);
            if stream.read_line(&mut first).await.ok()? == 0 {
                return None;
            }
            loop {
                let mut line = String::new();
                stream.read_line(&mut line).await.ok()?;
                if line.trim().is_empty() {
                    break;
                }
                if let Some(said) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                    length = said.trim().parse().unwrap();
                }
            }
            let mut body = vec![0; length];
            stream.read_exact(&mut body).await.ok()?;
            let path = first.split_whitespace().nth(1).unwrap();
            let (what, name) = path.trim_start_matches('/').split_once('/').unwrap();
            if self.0.lock().unwrap().get(name).is_some_and(|node| node.hangs) {
                std::future::pending::<()>().await;
            }
            let answer = match self.0.lock().unwrap().get_mut(name) {
                None => None,
                Some(node) if what == "telemetry" => Some(node.telemetry()).filter(|_| !node.silent),
                Some(node) => Some(node.control(serde_json::from_slice(&body).unwrap())),
            };
            let (status, text) = match answer {
                None => ("404 Not Found", String::new()),
                Some(answer) => ("200 OK", answer.to_string()),
            };
            let answer = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n{text}", text.len());
            stream.write_all(answer.as_bytes()).await.ok()?;
        }
    }

    pub(crate) fn put(&self, name: &str, node: Node) {
        self.0.lock().unwrap().insert(name.to_owned(), node);
    }

    pub(crate) fn change(&self, name: &str, change: impl FnOnce(&mut Node)) {
        change(self.0.lock().unwrap().get_mut(name).unwrap());
    }

    pub(crate) fn get(&self, name: &str) -> Node {
        self.0.lock().unwrap()[name].clone()
    }

    pub(crate) async fn until(&self, name: &str, is: impl Fn(&Node) -> bool) {
        let look = async {
            while !is(&self.get(name)) {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let found = tokio::time::timeout(Duration::from_secs(60), look).await;
        let node = self.get(name);
        assert!(
            found.is_ok(),
            "cap {} throttle {} gpu {} {:?}",
            node.cap,
            node.throttle,
            node.gpu_cap,
            node.posts
        );
    }
}

pub(crate) fn pool(cluster: &Cluster, at: SocketAddr) -> Vec<(&'static str, String)> {
    pool_by(cluster, "http", at)
}

/// The settings of an agent for such nodes, by `http` or `https`.
pub(crate) fn pool_by(cluster: &Cluster, scheme: &str, at: SocketAddr) -> Vec<(&'static str, String)> {
    let mut all = settings(cluster);
    let url = |what: &str| format!("{scheme}://{at}/{what}/{{node}}");
    for (name, value) in [
        ("AGENT_MODE", "pool".to_owned()),
        ("TELEMETRY_CPU_SOURCE", "http".to_owned()),
        ("TELEMETRY_CPU_HTTP_ENDPOINT", url("telemetry")),
        ("TELEMETRY_CPU_CONTROL", "http".to_owned()),
        ("TELEMETRY_CPU_CONTROL_HTTP_ENDPOINT", url("control")),
        ("TELEMETRY_GPU_CONTROL", "http".to_owned()),
        ("TELEMETRY_GPU_CONTROL_HTTP_ENDPOINT", url("control")),
        ("DVFS_COOLDOWN", "0s".to_owned()),
    ] {
        all.push((name, value));
    }
    all
}

pub(crate) async fn cluster(nodes: &[&str]) -> Cluster {
    let cluster = Cluster::new().await;
    // A pool agent looks for the Lease of its shard there.
    cluster.namespace("joulie-system").await;
    for node in nodes {
        cluster.node(node, json!({"joulie.io/managed": "true"})).await;
    }
    cluster
}
