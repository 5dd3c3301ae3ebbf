//! Alerts and dashboards on a real Prometheus: the tests of the rules by promtool, and every query while the demo is scraped.

use bytes::Bytes;
use cluster::ClusterError;
use cluster::assets::Environment;
use cluster::prometheus::{obtain, promtool};
use host_kit::http_client::{ClientLimits, HttpClient, Trust};
use http::Request;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// What has no answer in the demo: a part of the query, why, and lines of a site that has it. `N` grows with each scrape.
const EMPTY: &[(&str, &str, &[&str])] = &[
    (
        "joulie_energy_",
        "the ledger reads cgroups, and simulated nodes have none",
        &[
            r#"joulie_energy_joules_total{node="n1",account="workload",namespace="team-a",workload="Job/a",part="cpu"} N"#,
            r#"joulie_energy_joules_total{node="n1",account="idle",namespace="",workload="",part="cpu"} N"#,
            r#"joulie_energy_cost_total{node="n1",account="workload",namespace="team-a",workload="Job/a",part="cpu"} N"#,
            r#"joulie_energy_co2_grams_total{node="n1",account="workload",namespace="team-a",workload="Job/a",part="cpu"} N"#,
            r#"joulie_energy_gap_seconds_total{node="n1",part="gpu"} 0"#,
            r#"joulie_energy_pods{node="n1"} 3"#,
        ],
    ),
    (
        "joulie_operator_facility",
        "the demo has no sensors of racks and of the power of cooling",
        &[
            r#"joulie_operator_facility{what="it_watts",place=""} 9000"#,
            r#"joulie_operator_facility{what="pue",place=""} 1.2"#,
            r#"joulie_operator_facility{what="ambient_celsius",place="hot"} 27"#,
            r#"joulie_operator_facility{what="rack_watts",place="r1"} 3000"#,
            r#"joulie_operator_facility_age_seconds{what="pue",place=""} 4"#,
        ],
    ),
    (
        "joulie_operator_node_power_watts",
        "the operator asks no meter itself",
        &[r#"joulie_operator_node_power_watts{node="n1",source="kepler"} 400"#],
    ),
    (
        "would_lower",
        "every limit of the demo is enforced",
        &[r#"joulie_operator_budget_watts{group="observed",what="would_lower"} 500"#],
    ),
    (
        "joulie_dvfs_observed_power_watts",
        "limits hold the caps, so no closed loop looks",
        &[r#"joulie_dvfs_observed_power_watts{node="n1"} 200"#],
    ),
    (
        "joulie_dvfs_ema_power_watts",
        "limits hold the caps, so no closed loop looks",
        &[r#"joulie_dvfs_ema_power_watts{node="n1"} 200"#],
    ),
    (
        "joulie_dvfs_cpu_max_freq_khz",
        "a node over HTTP tells no frequency policies",
        &[r#"joulie_dvfs_cpu_max_freq_khz{node="n1",cpu="0"} 3200000"#],
    ),
];

/// What alerts look at and a healthy demo does not show: a part of it, and why.
const NOT_SHOWN: &[(&str, &str)] = &[
    ("joulie_reflector_forbidden_total", "nothing is forbidden"),
    ("joulie_operator_prometheus_queries_total{result!~", "no query fails"),
];

/// How often the queries without an answer are asked again, each second.
const ROUNDS: u32 = 100;

pub(super) fn deploy() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/chart")
}

fn alert_tests() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/alerts.yaml")
}

pub(super) fn yaml(path: &Path) -> Value {
    serde_saphyr::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// A program of the package; `None` after a SKIP, if it cannot be had.
pub(super) fn or_skip(found: Result<PathBuf, ClusterError>) -> Option<PathBuf> {
    match found {
        Ok(program) => Some(program),
        Err(ClusterError::Absent(why)) => {
            println!("SKIP(no Prometheus: {why})");
            None
        }
        Err(why) => panic!("{why}"),
    }
}

/// A new folder with the rules in it.
pub(super) fn folder(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
    let _old = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::copy(deploy().join("alerts/joulie.yaml"), folder.join("joulie.yaml")).unwrap();
    folder
}

/// The names of all alerts.
pub(super) fn alerts() -> BTreeSet<String> {
    let rules = yaml(&deploy().join("alerts/joulie.yaml"));
    let groups = rules["groups"].as_array().unwrap().iter();
    let rules = groups.flat_map(|group| group["rules"].as_array().unwrap());
    rules.map(|rule| rule["alert"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn every_alert_has_a_test_in_which_it_fires_and_one_in_which_it_does_not() {
    let names = alerts();
    let tests = yaml(&alert_tests());
    let (mut fires, mut silent) = (BTreeSet::new(), BTreeSet::new());
    for test in tests["tests"].as_array().unwrap() {
        for case in test["alert_rule_test"].as_array().unwrap() {
            let alert = case["alertname"].as_str().unwrap().to_owned();
            let is_healthy = test["name"] == "a healthy cluster is silent";
            match (is_healthy, case["exp_alerts"].as_array().unwrap().is_empty()) {
                (true, true) => silent.insert(alert),
                (true, false) => panic!("{alert} is expected in a healthy cluster"),
                (false, true) => true,
                (false, false) => fires.insert(alert),
            };
        }
    }
    assert_eq!(fires, names);
    assert_eq!(silent, names);
}

/// The names of our series in an expression.
fn series_in(text: &str) -> impl Iterator<Item = &str> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.split(move |c: char| !is_part(c)).filter(|word| word.starts_with("joulie_"))
}

/// What an expression takes of our series: names, with the labels that are asked for.
fn selectors_in(text: &str) -> Vec<String> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let starts = text.match_indices("joulie_").map(|(at, _)| at);
    let words = starts.filter(|at| !text[..*at].ends_with(is_part)).map(|at| &text[at..]);
    let whole = words.map(|rest| {
        let name = rest.find(|c: char| !is_part(c)).unwrap_or(rest.len());
        let labels = rest[name..].starts_with('{').then(|| rest[name..].find('}')).flatten();
        rest[..name + labels.map_or(0, |end| end + 1)].to_owned()
    });
    whole.collect()
}

/// An alert on a series that is not there is silent whatever happens.
#[test]
fn the_healthy_cluster_of_the_tests_has_every_series_that_an_alert_looks_at() {
    let tests = yaml(&alert_tests());
    let healthy = tests["tests"].as_array().unwrap().iter();
    let healthy = healthy.filter(|test| test["name"] == "a healthy cluster is silent");
    let there: BTreeSet<&str> = healthy
        .flat_map(|test| test["input_series"].as_array().unwrap())
        .flat_map(|series| series_in(series["series"].as_str().unwrap()))
        .collect();
    let rules = yaml(&deploy().join("alerts/joulie.yaml"));
    let groups = rules["groups"].as_array().unwrap().iter();
    for rule in groups.flat_map(|group| group["rules"].as_array().unwrap()) {
        for series in series_in(rule["expr"].as_str().unwrap()) {
            assert!(there.contains(series), "{}: {series} is not in the healthy cluster", rule["alert"]);
        }
    }
}

/// The tests of the alerts; in each fault every other alert is expected to be silent at the moment at which its own fires.
fn tests_with_silence() -> Value {
    let mut tests = yaml(&alert_tests());
    for test in tests["tests"].as_array_mut().unwrap() {
        let cases = test["alert_rule_test"].as_array_mut().unwrap();
        let fires = cases.iter().find(|case| case["exp_alerts"] != json!([])).cloned();
        let Some(fires) = fires else { continue };
        let others = alerts().into_iter().filter(|other| fires["alertname"] != *other);
        cases.extend(
            others
                .map(|other| json!({"alertname": other, "eval_time": fires["eval_time"], "exp_alerts": []})),
        );
    }
    tests
}

#[test]
fn each_alert_fires_in_its_fault_and_no_other_does() {
    let Some(promtool) = or_skip(promtool(&Environment::of_this_process())) else { return };
    let folder = folder("promtool");
    std::fs::write(folder.join("alerts.yaml"), tests_with_silence().to_string()).unwrap();
    for words in [["check", "rules", "joulie.yaml"], ["test", "rules", "alerts.yaml"]] {
        let output = Command::new(&promtool).args(words).current_dir(&folder).output().unwrap();
        let said = [output.stdout, output.stderr].concat();
        assert!(output.status.success(), "{words:?}\n{}", String::from_utf8_lossy(&said));
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

/// A process that ends with its handle.
struct Running(Child);

impl Running {
    fn start(command: &mut Command) -> Self {
        Self(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ended = self.0.kill();
        let _status = self.0.wait();
    }
}

/// A Prometheus that scrapes whatever the file names, and evaluates the rules.
pub(super) struct Prometheus {
    _running: Running,
    client: HttpClient,
    address: SocketAddr,
}

impl Prometheus {
    pub(super) fn start(program: &Path, folder: &Path, targets: &Path) -> Self {
        let config = folder.join("prometheus.yml");
        let text = format!(
            "global: {{scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}}\n\
             rule_files: ['{}']\n\
             scrape_configs:\n\
             - {{job_name: joulie, honor_labels: true, file_sd_configs: [{{files: ['{}'], refresh_interval: 1s}}]}}\n",
            folder.join("joulie.yaml").display(),
            targets.display()
        );
        std::fs::write(&config, text).unwrap();
        let address = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap();
        let mut command = Command::new(program);
        command
            .arg(format!("--config.file={}", config.display()))
            .arg(format!("--storage.tsdb.path={}", folder.join("data").display()))
            .arg(format!("--web.listen-address={address}"));
        let limits =
            ClientLimits { timeout: Duration::from_secs(10), bytes_max: 16 * 1024 * 1024, idle_max: 2 };
        let client = HttpClient::new("joulie-test", limits, Trust::Nobody).unwrap();
        Self { _running: Running::start(&mut command), client, address }
    }

    /// Asks until every query that matters shows something, and returns those that show nothing.
    async fn unanswered(
        &self,
        mut queries: Vec<(String, String)>,
        matters: impl Fn(&str) -> bool,
    ) -> Vec<(String, String)> {
        for _ in 0..ROUNDS {
            let mut still = Vec::new();
            for (of, query) in queries {
                // A curve of what is no number is not drawn.
                if !self.values(&query).await.iter().any(|value| value != "NaN") {
                    still.push((of, query));
                }
            }
            queries = still;
            if !queries.iter().any(|(_, query)| matters(query)) {
                break;
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        queries
    }

    pub(super) async fn get(&self, path: &str) -> Option<Value> {
        let request = Request::get(format!("http://{}{path}", self.address)).body(Bytes::new()).unwrap();
        serde_json::from_slice(&self.client.ask(request).await.ok()?).ok()
    }

    /// The values of a query; none while it is not answered.
    pub(super) async fn values(&self, query: &str) -> Vec<String> {
        let encoded: String = query.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let answer = self.get(&format!("/api/v1/query?query={encoded}")).await.unwrap_or_default();
        let series = answer["data"]["result"].as_array().cloned().unwrap_or_default();
        series.iter().filter_map(|one| one["value"][1].as_str().map(str::to_owned)).collect()
    }
}

/// Shows the lines of what the demo has not, at this address, until the process ends.
fn site() -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for (scrape, stream) in (1_u32..).zip(listener.incoming()) {
            // A scrape that breaks off is the scraper's.
            let _answered = stream.and_then(|stream| show(stream, scrape));
        }
    });
    address
}

fn show(mut stream: TcpStream, scrape: u32) -> std::io::Result<()> {
    let mut head = BufReader::new(stream.try_clone()?);
    let mut line = String::new();
    while head.read_line(&mut line)? > 2 {
        line.clear();
    }
    let mut page = "joulie_leader 1\n".to_owned();
    for line in EMPTY.iter().flat_map(|(_, _, lines)| *lines) {
        page.push_str(&line.replace(" N", &format!(" {}", 100 * scrape)));
        page.push('\n');
    }
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/plain; version=0.0.4\r\nconnection: close\r\n";
    stream.write_all(format!("{head}content-length: {}\r\n\r\n{page}", page.len()).as_bytes())
}

/// Every query of every panel, with the name of the panel and without Grafana's variables.
fn queries() -> Vec<(String, String)> {
    let mut queries = Vec::new();
    for entry in std::fs::read_dir(deploy().join("dashboards")).unwrap() {
        let board: Value = serde_json::from_slice(&std::fs::read(entry.unwrap().path()).unwrap()).unwrap();
        let rows = board["panels"].as_array().unwrap();
        for panel in rows.iter().flat_map(|row| row["panels"].as_array().into_iter().flatten().chain([row])) {
            for target in panel["targets"].as_array().into_iter().flatten() {
                let mut query = target["expr"].as_str().unwrap().replace("$__range", "1m");
                for variable in board["templating"]["list"].as_array().unwrap() {
                    query = query.replace(&format!("${}", variable["name"].as_str().unwrap()), ".*");
                }
                queries.push((format!("{}: {}", board["uid"], panel["title"]), query));
            }
        }
    }
    queries
}

#[tokio::test(flavor = "multi_thread")]
async fn every_panel_shows_something_and_every_rule_is_evaluated() {
    let Some(program) = or_skip(obtain(&Environment::of_this_process())) else { return };
    let folder = folder("prometheus");
    let targets = folder.join("targets.json");
    let mut command = Command::new(env!("CARGO_BIN_EXE_joulie"));
    command.args(["demo", "--plain", "--for", "10m", "--targets"]).arg(&targets);
    let demo = Running::start(command.arg("--kubeconfig").arg(folder.join("kubeconfig")));
    let prometheus = Prometheus::start(&program, &folder, &targets);
    let all = queries();
    assert!(all.len() > 80, "{}", all.len());
    let is_excused = |query: &str| EMPTY.iter().any(|(part, _, _)| query.contains(part));
    let unanswered = prometheus.unanswered(all, |query| !is_excused(query)).await;
    let (excused, empty): (Vec<_>, Vec<_>) = unanswered.into_iter().partition(|(_, query)| is_excused(query));
    assert!(empty.is_empty(), "these panels are empty: {empty:#?}");
    for (part, why, _) in EMPTY {
        let is_so = excused.iter().any(|(_, query)| query.contains(part));
        assert!(is_so, "{part} has an answer by now; it was excused because {why}");
    }

    assert_eq!(prometheus.values("count(up == 1)").await, ["4"], "agent, operator, extender, simulator");
    let metadata = prometheus.get("/api/v1/metadata?metric=joulie_policy_cap_watts").await.unwrap();
    assert_eq!(metadata["data"]["joulie_policy_cap_watts"][0]["unit"], "watts", "{metadata}");

    // A rule whose series is not there is silent whatever happens, and the increase of a counter that is not there at 0 misses the first
    // failure.
    let rules = yaml(&deploy().join("alerts/joulie.yaml"));
    let groups = rules["groups"].as_array().unwrap().iter();
    let exprs = groups.flat_map(|group| group["rules"].as_array().unwrap());
    let looked_at: BTreeSet<String> =
        exprs.flat_map(|rule| selectors_in(rule["expr"].as_str().unwrap())).collect();
    let is_shown = |selector: &str| !NOT_SHOWN.iter().any(|(part, _)| selector.starts_with(part));
    let (shown, not): (Vec<_>, Vec<_>) =
        looked_at.into_iter().map(|one| ("an alert".to_owned(), one)).partition(|(_, one)| is_shown(one));
    assert!(shown.len() > 25 && not.len() == NOT_SHOWN.len(), "{shown:?} {not:?}");
    let counts = |all: Vec<(String, String)>| {
        all.into_iter().map(|(of, one)| (of, format!("count({one})"))).collect::<Vec<_>>()
    };
    let missing = prometheus.unanswered(counts(shown), |_| true).await;
    assert!(missing.is_empty(), "nothing exports these: {missing:#?}");
    for (of, one) in counts(not) {
        assert!(prometheus.values(&one).await.is_empty(), "{of}: {one} has an answer by now");
    }

    let rules = prometheus.get("/api/v1/rules").await.unwrap();
    let groups = rules["data"]["groups"].as_array().unwrap().iter();
    for rule in groups.flat_map(|group| group["rules"].as_array().unwrap()) {
        assert_eq!(rule["health"], "ok", "{rule:#}");
        assert_ne!(rule["state"], "firing", "{rule:#}");
    }

    // A site that has what the demo has not fills the other panels.
    let mut groups: Value = serde_json::from_slice(&std::fs::read(&targets).unwrap()).unwrap();
    let site = site().to_string();
    groups.as_array_mut().unwrap().push(json!({"targets": [site], "labels": {"job": "site"}}));
    let new = folder.join("targets.new");
    std::fs::write(&new, groups.to_string()).unwrap();
    std::fs::rename(&new, &targets).unwrap();
    let empty = prometheus.unanswered(excused, |_| true).await;
    assert!(empty.is_empty(), "these panels are empty: {empty:#?}");
    drop((prometheus, demo));
    std::fs::remove_dir_all(&folder).unwrap();
}
