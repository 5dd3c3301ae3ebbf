//! Mode pool: many nodes over HTTP, each of them a server of a few lines.

use crate::room::{Agent, Cluster, enforced, is_enforced, settings};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

/// The nodes behind an endpoint.
#[derive(Clone, Default)]
struct Nodes(Arc<Mutex<BTreeMap<String, Node>>>);

#[derive(Clone, Default)]
struct Node {
    cap: f64,
    throttle: i64,
    gpu_cap: f64,
    gpus: u64,
    /// What the processors draw with neither cap nor throttle.
    wants: f64,
    hangs: bool,
    /// What controls answer instead of doing anything.
    refuses: Option<&'static str>,
    posts: Vec<Value>,
}

impl Node {
    fn new() -> Self {
        Self { cap: 250.0, gpu_cap: 400.0, wants: 500.0, ..Self::default() }
    }

    fn draws(&self) -> f64 {
        let throttled = self.wants * (1.0 - self.throttle as f64 / 200.0);
        throttled.min(self.cap * 2.0)
    }

    fn telemetry(&self) -> Value {
        json!({
            "packagePowerWatts": self.draws() + 1000.0,
            "nodePowerWatts": self.draws() + 1100.0,
            "cpu": {
                "packagePowerWatts": self.draws(), "raplCapWatts": self.cap, "throttlePct": self.throttle,
                "sockets": 2, "capMinWatts": 80, "capMaxWatts": 250,
            },
            "gpu": {
                "present": self.gpus > 0, "count": self.gpus, "vendor": "nvidia", "product": "NVIDIA H100 NVL",
                "powerWattsTotal": 1000, "capWattsPerGpuApplied": self.gpu_cap,
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
        json!({"ok": true, "result": "applied", "state": {
            "capWatts": self.cap, "throttlePct": self.throttle, "gpuCapWattsPerGpuApplied": self.gpu_cap,
        }})
    }
}

impl Nodes {
    async fn serve(&self) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let nodes = self.clone();
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let nodes = nodes.clone();
                // A connection that the agent closes ends with an error, which is its end.
                tokio::spawn(async move { nodes.converse(stream).await });
            }
        });
        address
    }

    async fn converse(&self, stream: TcpStream) -> Option<()> {
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
                Some(node) if what == "telemetry" => Some(node.telemetry()),
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

    fn put(&self, name: &str, node: Node) {
        self.0.lock().unwrap().insert(name.to_owned(), node);
    }

    fn change(&self, name: &str, change: impl FnOnce(&mut Node)) {
        change(self.0.lock().unwrap().get_mut(name).unwrap());
    }

    fn get(&self, name: &str) -> Node {
        self.0.lock().unwrap()[name].clone()
    }

    async fn until(&self, name: &str, is: impl Fn(&Node) -> bool) {
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

fn pool(cluster: &Cluster, at: SocketAddr) -> Vec<(&'static str, String)> {
    let mut all = settings(cluster);
    let url = |what: &str| format!("http://{at}/{what}/{{node}}");
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

async fn cluster(nodes: &[&str]) -> Cluster {
    let cluster = Cluster::new().await;
    for node in nodes {
        cluster.node(node, json!({"joulie.io/managed": "true"})).await;
    }
    cluster
}

#[tokio::test(flavor = "multi_thread")]
async fn a_nodes_caps_go_over_http_and_come_back_when_they_are_released() {
    let (nodes, cluster) = (Nodes::default(), cluster(&["sim-1"]).await);
    nodes.put("sim-1", Node { gpus: 4, ..Node::new() });
    let at = nodes.serve().await;
    let spec = json!({
        "nodeName": "sim-1", "profile": "eco", "cpu": {"packagePowerCapPctOfMax": 60},
        "gpu": {"powerCap": {"scope": "perGpu", "capPctOfMax": 75}},
    });
    cluster.apply("NodePowerProfile", "sim-1", spec).await;
    let agent = Agent::start(&pool(&cluster, at));
    // 60 % of 250 W, and 75 % of 400 W. Fix list agent C17: a percentage needs no tools of this host.
    nodes.until("sim-1", |node| node.cap == 150.0 && node.gpu_cap == 300.0).await;
    let profile = cluster.until("NodePowerProfile", "sim-1", is_enforced).await;
    let control = &profile["status"]["control"];
    assert_eq!(
        (control["cpu"]["capWatts"].as_i64(), control["cpu"]["backend"].as_str()),
        (Some(150), Some("rapl"))
    );
    assert_eq!(
        (control["gpu"]["capWatts"].as_i64(), control["gpu"]["backend"].as_str()),
        (Some(300), Some("http"))
    );
    let hardware =
        cluster.until("NodeHardware", "sim-1", |it| it["status"]["power"]["cpuWatts"] == 300).await;
    assert_eq!(hardware["status"]["gpu"]["count"], 4);
    assert_eq!(hardware["status"]["gpu"]["model"], "NVIDIA_H100_NVL");
    // The same wish again posts nothing again.
    let posts = nodes.get("sim-1").posts.len();
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(nodes.get("sim-1").posts.len(), posts, "{:?}", nodes.get("sim-1").posts);
    assert_eq!(agent.terminate().await.code(), Some(0));
    assert_eq!(nodes.get("sim-1").cap, 150.0, "the end of a process lifts no cap");
    let _next = Agent::start(&pool(&cluster, at));
    cluster.delete("NodePowerProfile", "sim-1").await;
    nodes.until("sim-1", |node| node.cap == 250.0 && node.gpu_cap == 400.0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_limit_that_is_refused_becomes_a_throttle_and_a_limit_again() {
    let (nodes, cluster) = (Nodes::default(), cluster(&["sim-1"]).await);
    nodes.put("sim-1", Node::new());
    let at = nodes.serve().await;
    cluster.profile("sim-1", "sim-1", 200).await;
    let mut settings = pool(&cluster, at);
    settings.push(("TELEMETRY_CPU_CONTROL_MODE", "dvfs".to_owned()));
    let agent = Agent::start(&settings);
    // 500 W are drawn of the 400 W of two packages; the loop throttles until 410 W or less: 40 %.
    let held = |it: &Value| it["status"]["control"]["cpu"]["backend"] == "dvfs" && is_enforced(it);
    nodes.until("sim-1", |node| node.throttle >= 40).await;
    cluster.until("NodePowerProfile", "sim-1", held).await;
    assert_eq!(agent.terminate().await.code(), Some(0));
    // Fix list agent S13 C14: the next process finds the throttle, sets the limit, and then lifts it over HTTP.
    let _next = Agent::start(&pool(&cluster, at));
    nodes.until("sim-1", |node| node.cap == 200.0 && node.throttle == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_endpoint_refuses_is_told_and_one_that_hangs_delays_nobody() {
    let names: Vec<String> = (0..30).map(|number| format!("sim-{number}")).collect();
    let all: Vec<&str> = names.iter().map(String::as_str).collect();
    let (nodes, cluster) = (Nodes::default(), cluster(&all).await);
    for name in &names {
        nodes.put(name, Node::new());
        cluster.profile(name, name, 150).await;
    }
    nodes.change("sim-0", |node| node.refuses = Some("blocked"));
    nodes.change("sim-1", |node| node.refuses = Some("error"));
    // Fix list agent K2 K3: more nodes hang than there are places, and each for a whole timeout.
    for name in &names[2..16] {
        nodes.change(name, |node| node.hangs = true);
    }
    let at = nodes.serve().await;
    let mut settings = pool(&cluster, at);
    settings.push(("POOL_CONCURRENCY", "8".to_owned()));
    let agent = Agent::start(&settings);
    for name in &names[16..] {
        cluster.until("NodePowerProfile", name, is_enforced).await;
    }
    for (name, result) in [("sim-0", "blocked"), ("sim-1", "error")] {
        let told = |it: &Value| it["status"]["control"]["cpu"]["result"] == result;
        let profile = cluster.until("NodePowerProfile", name, told).await;
        let text = profile["status"]["control"]["cpu"]["message"].as_str().unwrap();
        assert!(text.contains("the test says so"), "{text}");
        assert_eq!(enforced(&profile).0, "False");
    }
    for name in &names[2..16] {
        nodes.change(name, |node| node.hangs = false);
    }
    for name in &names[2..16] {
        cluster.until("NodePowerProfile", name, is_enforced).await;
    }
    let metrics = agent.page("/metrics").await;
    assert!(metrics.contains("joulie_backend_mode{node=\"sim-29\",mode=\"rapl\"} 1"), "{metrics}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_leaves_takes_its_series_along_and_one_of_another_part_is_left_alone() {
    // kwok-node-0 is in part 1 of 2, kwok-node-1 in part 0.
    let (nodes, cluster) = (Nodes::default(), cluster(&["kwok-node-0", "kwok-node-1"]).await);
    for name in ["kwok-node-0", "kwok-node-1"] {
        nodes.put(name, Node::new());
        cluster.profile(name, name, 150).await;
    }
    let at = nodes.serve().await;
    let mut settings = pool(&cluster, at);
    settings.push(("POOL_SHARDS", "2".to_owned()));
    settings.push(("POD_NAME", "joulie-agent-pool-1".to_owned()));
    let agent = Agent::start(&settings);
    cluster.until("NodePowerProfile", "kwok-node-0", is_enforced).await;
    assert!(agent.page("/metrics").await.contains("kwok-node-0"));
    cluster.label("kwok-node-0", json!({"joulie.io/managed": null})).await;
    nodes.until("kwok-node-0", |node| node.cap == 250.0).await;
    agent.until_said("the node leaves the pool").await;
    // Fix list agent C22.
    assert!(!agent.page("/metrics").await.contains("kwok-node-0"));
    assert!(nodes.get("kwok-node-1").posts.is_empty());
}
