//! TelemetryProfiles that ask Prometheus what a node draws, against a server of a few lines that speaks its API, and against a real one.

use crate::nodes::{Node, Nodes, cluster, pool};
use crate::test_machine::{Agent, Cluster, TestMachine, is_enforced};
use cluster::ClusterError;
use cluster::assets::Environment;
use cluster::prometheus::obtain;
use rig::test_machine::Folder;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

/// What the server answers: the watts of its series, each sampled so many seconds ago; `None`: an error.
#[derive(Clone, Default)]
struct Prometheus(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    series: Option<Vec<(&'static str, u32)>>,
    /// It hears a question and never answers.
    hangs: bool,
    /// The paths that were asked for.
    asked: Vec<String>,
}

impl Prometheus {
    async fn serve(&self) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, server) = (listener.local_addr().unwrap(), self.clone());
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let server = server.clone();
                tokio::spawn(async move { server.converse(stream).await });
            }
        });
        address
    }

    /// Until the agent closes the connection.
    async fn converse(&self, stream: TcpStream) -> Option<()> {
        let mut stream = BufReader::new(stream);
        loop {
            let mut lines = Vec::new();
            loop {
                let mut line = String::new();
                if stream.read_line(&mut line).await.ok()? == 0 {
                    return None;
                }
                if line.trim().is_empty() {
                    break;
                }
                lines.push(line);
            }
            let path = lines[0].split_whitespace().nth(1).unwrap();
            let (status, body) = self.answer(path);
            if self.0.lock().unwrap().hangs {
                std::future::pending::<()>().await;
            }
            let head = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n", body.len());
            stream.write_all(format!("{head}{body}").as_bytes()).await.ok()?;
        }
    }

    fn answer(&self, path: &str) -> (&'static str, String) {
        let mut state = self.0.lock().unwrap();
        state.asked.push(path.to_owned());
        let Some(series) = &state.series else { return ("500 Internal Server Error", String::new()) };
        let now = jiff::Timestamp::now().as_second();
        let one = |says: &str, value: &str| json!({"metric": {"joulie_says": says}, "value": [now, value]});
        let all = series.iter().flat_map(|(watts, ago)| {
            [one("watts", watts), one("time", &(now - i64::from(*ago)).to_string())]
        });
        let result: Vec<Value> = all.collect();
        let body = json!({"status": "success", "data": {"resultType": "vector", "result": result}});
        ("200 OK", body.to_string())
    }

    fn says(&self, series: &[(&'static str, u32)]) {
        self.0.lock().unwrap().series = Some(series.to_vec());
    }

    fn hangs(&self, hangs: bool) {
        self.0.lock().unwrap().hangs = hangs;
    }

    fn fails(&self) {
        self.0.lock().unwrap().series = None;
    }

    fn asked(&self, text: &str) -> usize {
        self.0.lock().unwrap().asked.iter().filter(|path| path.contains(text)).count()
    }

    async fn until_asked(&self, text: &str) {
        let look = async {
            while self.asked(text) == 0 {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        assert!(tokio::time::timeout(Duration::from_secs(60), look).await.is_ok(), "nobody asks for {text}");
    }
}

fn source(at: SocketAddr, query: &str) -> Value {
    json!({"type": "prometheus", "prometheus": {"endpoint": format!("http://{at}"), "query": query, "timeoutSeconds": 5}})
}

fn cpu_watts(hardware: &Value) -> Option<f64> {
    hardware["status"]["power"]["cpuWatts"].as_f64()
}

async fn until_cpu(cluster: &Cluster, node: &str, watts: Option<f64>) -> Value {
    cluster
        .until("NodeHardware", node, |it| it["status"]["power"].is_object() && cpu_watts(it) == watts)
        .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_over_http_is_reported_by_prometheus_and_capped_as_before() {
    let (nodes, cluster, prometheus) = (Nodes::default(), cluster(&["sim-1"]).await, Prometheus::default());
    nodes.put("sim-1", Node::new());
    let (at, server) = (nodes.serve().await, prometheus.serve().await);
    prometheus.says(&[("321", 60)]);
    cluster.profile("sim-1", "sim-1", 150).await;
    let agent = Agent::start(&pool(&cluster, at));
    cluster.until("NodePowerProfile", "sim-1", is_enforced).await;
    let query = |query: &str| json!({"target": {"scope": "node", "nodeName": "sim-1"}, "sources": {"cpu": source(server, query)}});
    cluster.apply("TelemetryProfile", "told", query("w{n=\"{node}\"}")).await;
    let told = until_cpu(&cluster, "sim-1", Some(321.0)).await;
    let power = &told["status"]["power"];
    assert_eq!(
        (power["source"].as_str(), told["status"]["cpu"]["telemetryAvailable"].as_bool()),
        (Some("prometheus"), Some(true))
    );
    let sampled: jiff::Timestamp = power["sampledAt"].as_str().unwrap().parse().unwrap();
    let age = jiff::Timestamp::now().as_second() - sampled.as_second();
    assert!(age >= 60, "it carries the time of its sample: {age} s");
    assert!(prometheus.asked("w%7Bn%3D%22sim-1%22%7D") > 0);

    // The limit is what it was, and nothing is judged by samples that are a minute old: 321 W are more than two times 150 W.
    let unmeasured = |it: &Value| {
        let all = it["status"]["conditions"].as_array().cloned().unwrap_or_default();
        all.iter().any(|one| {
            one["reason"] == "Unmeasured"
                && one["message"].as_str().unwrap_or_default().contains("what Prometheus says")
        })
    };
    let profile = cluster.until("NodePowerProfile", "sim-1", unmeasured).await;
    assert_eq!(profile["status"]["control"]["cpu"]["capWatts"], 150);
    assert_eq!((nodes.get("sim-1").cap, nodes.get("sim-1").throttle), (150.0, 0));
    let followed = |it: &Value| {
        it["status"]["control"]["cpu"]["result"] == "applied"
            && it["status"]["conditions"][0]["message"]
                .as_str()
                .unwrap_or_default()
                .contains("told by Prometheus")
    };
    cluster.until("TelemetryProfile", "told", followed).await;
    cluster.profile("sim-1", "sim-1", 140).await;
    nodes.until("sim-1", |node| node.cap == 140.0).await;

    // Another query is asked without a restart, and what cannot be used is unknown.
    cluster.apply("TelemetryProfile", "told", query("other{n=\"{node}\"}")).await;
    prometheus.until_asked("other%7B").await;
    prometheus.says(&[("100", 1), ("200", 1)]);
    agent.until_said("2 series of the answer are of the node").await;
    until_cpu(&cluster, "sim-1", None).await;
    agent.until_page("/metrics", "joulie_backend_ready{node=\"sim-1\",backend=\"prometheus\"} 0").await;
    prometheus.says(&[("77", 1)]);
    until_cpu(&cluster, "sim-1", Some(77.0)).await;
    let shows = |line: &str| line.contains("watts") && line.ends_with(" 77");
    assert!(!agent.page("/metrics").await.lines().any(shows), "a query over it would find its own answer");

    // Without the profile the node's telemetry counts again: 280 W under two limits of 140 W.
    cluster.delete("TelemetryProfile", "told").await;
    until_cpu(&cluster, "sim-1", Some(280.0)).await;
    cluster.until("NodePowerProfile", "sim-1", is_enforced).await;
    assert!(!agent.page("/metrics").await.contains("backend=\"prometheus\""));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_prometheus_that_fails_does_not_lead_to_the_meters_of_the_host_which_still_judge_its_caps() {
    let Some(machine) = TestMachine::profile("xeon-2s") else { return };
    let (cluster, prometheus) = (cluster(&["node-a"]).await, Prometheus::default());
    let server = prometheus.serve().await;
    prometheus.says(&[("1234", 1)]);
    cluster.profile("node-a", "node-a", 120).await;
    let spec = json!({"target": {"scope": "cluster"}, "sources": {"cpu": source(server, "w{n=\"{node}\"}")}});
    cluster.apply("TelemetryProfile", "of-all", spec).await;
    let agent = Agent::start(&machine.settings(&cluster));
    machine.until_limits(&[120, 120]).await;
    until_cpu(&cluster, "node-a", Some(1234.0)).await;
    // 1,234 W are no reason to doubt the limits: the host's own meters judge them.
    cluster.until("NodePowerProfile", "node-a", is_enforced).await;

    prometheus.fails();
    let hardware = until_cpu(&cluster, "node-a", None).await;
    assert_eq!(
        hardware["status"]["cpu"]["telemetryAvailable"], true,
        "a node that is metered and says nothing is blind"
    );
    agent.until_said("500 Internal Server Error").await;
    cluster.profile("node-a", "node-a", 110).await;
    machine.until_limits(&[110, 110]).await;
    cluster.until("NodePowerProfile", "node-a", is_enforced).await;
    assert_eq!(cpu_watts(&until_cpu(&cluster, "node-a", None).await), None);

    cluster.delete("TelemetryProfile", "of-all").await;
    let own = |it: &Value| cpu_watts(it).is_some_and(|watts| watts > 0.0 && watts < 500.0);
    cluster.until("NodeHardware", "node-a", own).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn processors_by_prometheus_and_gpus_over_http_are_each_read_where_the_profile_says() {
    let (nodes, cluster, prometheus) = (Nodes::default(), cluster(&["sim-1"]).await, Prometheus::default());
    nodes.put("sim-1", Node { gpus: 4, ..Node::new() });
    let (at, server) = (nodes.serve().await, prometheus.serve().await);
    prometheus.says(&[("321", 1)]);
    cluster.profile("sim-1", "sim-1", 150).await;
    let _agent = Agent::start(&pool(&cluster, at));
    cluster.until("NodePowerProfile", "sim-1", is_enforced).await;
    let gpu = json!({"type": "http", "http": {"endpoint": format!("http://{at}/telemetry/{{node}}")}});
    let sources = json!({"cpu": source(server, "w{n=\"{node}\"}"), "gpu": gpu});
    let spec = json!({"target": {"scope": "node", "nodeName": "sim-1"}, "sources": sources});
    cluster.apply("TelemetryProfile", "told", spec).await;
    let drawn = |gpus: Option<f64>| {
        move |it: &Value| {
            let power = &it["status"]["power"];
            power.is_object() && cpu_watts(it) == Some(321.0) && power["gpuWatts"].as_f64() == gpus
        }
    };
    // 4 x 200 W; what the endpoint says of the whole node has the processors in it, which are asked for elsewhere.
    let told = cluster.until("NodeHardware", "sim-1", drawn(Some(800.0))).await;
    assert_eq!(told["status"]["power"]["nodeWatts"], Value::Null, "{told:#}");
    assert_eq!(told["status"]["gpu"]["telemetryAvailable"], true, "{told:#}");
    let followed = |it: &Value| {
        let message = &it["status"]["conditions"][0]["message"];
        message.as_str().unwrap_or_default().contains("read over HTTP at nothing, GPUs at http")
    };
    cluster.until("TelemetryProfile", "told", followed).await;
    assert_eq!(nodes.get("sim-1").cap, 150.0);
    // The endpoint of the GPUs fails, which is no word about the processors.
    nodes.change("sim-1", |node| node.silent = true);
    cluster.until("NodeHardware", "sim-1", drawn(None)).await;
    cluster.profile("sim-1", "sim-1", 140).await;
    nodes.until("sim-1", |node| node.cap == 140.0).await;
    nodes.change("sim-1", |node| node.silent = false);
    cluster.until("NodeHardware", "sim-1", drawn(Some(800.0))).await;
}

/// When an agent that turns to Prometheus is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Killed {
    /// The profile has just been written.
    Written,
    /// A question is under way.
    Asking,
    /// The answer is published.
    Told,
}

impl Killed {
    const ALL: [Self; 3] = [Self::Written, Self::Asking, Self::Told];

    /// Starts an agent, waits until `is_capped`, turns it to Prometheus by `query`, and kills it at this moment.
    async fn play(
        self,
        (cluster, node, settings): (&Cluster, &str, &[(&'static str, String)]),
        prometheus: (&Prometheus, SocketAddr),
        is_capped: impl AsyncFn(),
    ) {
        let (prometheus, server) = prometheus;
        let agent = Agent::start(settings);
        is_capped().await;
        prometheus.hangs(self == Self::Asking);
        let query = format!("{self:?}{{n=\"{{node}}\"}}");
        let spec = json!({"target": {"scope": "node", "nodeName": node}, "sources": {"cpu": source(server, &query)}});
        cluster.apply("TelemetryProfile", "told", spec).await;
        match self {
            Self::Written => {}
            Self::Asking => prometheus.until_asked(&format!("{self:?}%7B")).await,
            Self::Told => drop(until_cpu(cluster, node, Some(321.0)).await),
        }
        agent.kill();
        prometheus.hangs(false);
        cluster.delete("TelemetryProfile", "told").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_is_killed_while_it_turns_to_prometheus_loses_no_cap_and_no_original() {
    let Some(machine) = TestMachine::profile("xeon-2s") else { return };
    let (cluster, prometheus) = (cluster(&["node-a"]).await, Prometheus::default());
    let server = prometheus.serve().await;
    prometheus.says(&[("321", 1)]);
    let (originals, settings) = (machine.limits(), machine.settings(&cluster));
    cluster.profile("node-a", "node-a", 120).await;
    cluster.grant("node-a", 1, 2_000).await;
    for killed in Killed::ALL {
        let is_capped = async || machine.until_limits(&[120, 120]).await;
        killed.play((&cluster, "node-a", &settings), (&prometheus, server), is_capped).await;
        assert_eq!(machine.limits(), [120, 120], "{killed:?}");
    }
    // The next one finds what was desired meanwhile, with Prometheus from its start.
    let spec =
        json!({"target": {"scope": "cluster"}, "sources": {"cpu": source(server, "last{n=\"{node}\"}")}});
    cluster.apply("TelemetryProfile", "of-all", spec).await;
    cluster.profile("node-a", "node-a", 110).await;
    let agent = Agent::start(&settings);
    machine.until_limits(&[110, 110]).await;
    prometheus.until_asked("last%7B").await;
    until_cpu(&cluster, "node-a", Some(321.0)).await;
    cluster.until("NodePowerProfile", "node-a", is_enforced).await;
    assert!(agent.log().contains("from before the start: "), "the grant was kept: {}", agent.log());
    cluster.receipt("node-a", 1).await;
    // What was there before the first agent is what comes back after the last.
    cluster.delete("NodePowerProfile", "node-a").await;
    machine.until_limits(&originals).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_over_http_whose_agent_is_killed_while_it_turns_to_prometheus_is_never_above_its_cap() {
    let (nodes, cluster, prometheus) = (Nodes::default(), cluster(&["sim-1"]).await, Prometheus::default());
    nodes.put("sim-1", Node::new());
    let (at, server) = (nodes.serve().await, prometheus.serve().await);
    prometheus.says(&[("321", 1)]);
    let settings = pool(&cluster, at);
    cluster.profile("sim-1", "sim-1", 150).await;
    for killed in Killed::ALL {
        let is_capped = async || nodes.until("sim-1", |node| node.cap == 150.0).await;
        killed.play((&cluster, "sim-1", &settings), (&prometheus, server), is_capped).await;
        let node = nodes.get("sim-1");
        // Two packages of 150 W.
        assert_eq!((node.cap, node.peak), (150.0, 300.0), "{killed:?}");
    }
    let spec =
        json!({"target": {"scope": "cluster"}, "sources": {"cpu": source(server, "last{n=\"{node}\"}")}});
    cluster.apply("TelemetryProfile", "of-all", spec).await;
    let _agent = Agent::start(&settings);
    prometheus.until_asked("last%7B").await;
    until_cpu(&cluster, "sim-1", Some(321.0)).await;
    cluster.profile("sim-1", "sim-1", 130).await;
    nodes.until("sim-1", |node| node.cap == 130.0).await;
    assert_eq!(nodes.get("sim-1").peak, 300.0);
    cluster.delete("TelemetryProfile", "of-all").await;
    until_cpu(&cluster, "sim-1", Some(260.0)).await;
    cluster.until("NodePowerProfile", "sim-1", is_enforced).await;
}

/// What an exporter shows.
const SHOWN: &str = "node_watts{node=\"sim-1\"} 321\nnode_watts{node=\"other\"} 5\n\
                     part_watts{node=\"sim-1\",part=\"a\"} 1\npart_watts{node=\"sim-1\",part=\"b\"} 2\n\
                     odd_watts{node=\"sim-1\"} NaN\n";

async fn exporter() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let mut stream = BufReader::new(listener.accept().await.unwrap().0);
            let mut line = String::new();
            while stream.read_line(&mut line).await.is_ok_and(|read| read > 2) {
                line.clear();
            }
            let head = "HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\nConnection: close\r\n";
            let answer = format!("{head}Content-Length: {}\r\n\r\n{SHOWN}", SHOWN.len());
            // A scrape that breaks off is the scraper's.
            let _sent = stream.write_all(answer.as_bytes()).await;
        }
    });
    address
}

/// A real server, which scrapes an exporter each second.
struct Scraping(Child);

impl Scraping {
    fn start(program: &Path, folder: &Path, (at, exporter): (SocketAddr, SocketAddr)) -> Self {
        let config = folder.join("prometheus.yml");
        let jobs = format!("[{{job_name: nodes, static_configs: [{{targets: ['{exporter}']}}]}}]");
        std::fs::write(&config, format!("global: {{scrape_interval: 1s}}\nscrape_configs: {jobs}\n"))
            .unwrap();
        let mut command = Command::new(program);
        command.arg(format!("--config.file={}", config.display()));
        command.arg(format!("--storage.tsdb.path={}", folder.join("data").display()));
        command.arg(format!("--web.listen-address={at}")).stderr(Stdio::null());
        Self(command.spawn().unwrap())
    }
}

impl Drop for Scraping {
    fn drop(&mut self) {
        // Killing fails if the process has already ended.
        let _ended = self.0.kill();
        let _waited = self.0.wait();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_real_prometheus_says_what_a_node_draws_and_when_it_was_sampled() {
    let program = match obtain(&Environment::of_this_process()) {
        Ok(program) => program,
        Err(ClusterError::Absent(why)) => return println!("SKIP(no Prometheus: {why})"),
        Err(why) => panic!("{why}"),
    };
    let (nodes, cluster, folder) = (Nodes::default(), cluster(&["sim-1"]).await, Folder::new());
    nodes.put("sim-1", Node::new());
    let at = nodes.serve().await;
    let server = std::net::TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).unwrap();
    let _scraping = Scraping::start(&program, &folder.0, (server, exporter().await));
    let agent = Agent::start(&pool(&cluster, at));
    let ask = async |query: &str| {
        let spec = json!({"target": {"scope": "cluster"}, "sources": {"cpu": source(server, query)}});
        cluster.apply("TelemetryProfile", "told", spec).await;
    };
    // The series whose label names the node, then the one that a query with its name yields.
    ask("node_watts").await;
    let told = until_cpu(&cluster, "sim-1", Some(321.0)).await;
    let sampled: jiff::Timestamp = told["status"]["power"]["sampledAt"].as_str().unwrap().parse().unwrap();
    let age = jiff::Timestamp::now().as_second() - sampled.as_second();
    assert!((0..=150).contains(&age), "{age} s");
    for (query, watts, why) in [
        ("part_watts{node=\"{node}\"}", None, "2 series of the answer are of the node"),
        ("sum(part_watts{node=\"{node}\"}) # of {node}", Some(3.0), ""),
        ("odd_watts{node=\"{node}\"}", None, "the value is no number"),
        ("sum(node_watts)", None, "no series of the answer names the node"),
        ("nothing{node=\"{node}\"}", None, "the answer has no series"),
        ("node_watts{node=\"{node}\"", None, "the server refuses the query"),
        ("node_watts{node=\"{node}\"}", Some(321.0), ""),
    ] {
        ask(query).await;
        agent.until_said(why).await;
        until_cpu(&cluster, "sim-1", watts).await;
    }
}
