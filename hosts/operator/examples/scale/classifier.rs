//! What the classifier costs: four workloads for each node, whose pods a made-up Prometheus knows all of. The rounds are timed by the
//! program's own metric, which leaves out queries and writes.

use super::cluster::{JOULIE, PODS_PER_NODE, fill_with_workloads, get, states};
use super::program::Program;
use super::{Any, agents, bar, tell, told};
use embedded_api::{ApiOptions, EmbeddedApi};
use kube::Client;
use std::fmt::Write;
use std::net::SocketAddr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;

const WORKLOADS_PER_NODE: usize = 4;
/// The most that a round may take.
const ROUND_MS: f64 = 2_000.0;
/// How often the number of rounds is read; they are a second apart at least.
const READ_EVERY: Duration = Duration::from_millis(200);
/// For so long nothing changes. All workloads are due in it twice.
const STEADY: Duration = Duration::from_secs(60);
const METRIC: &str = "joulie_operator_classifier_round_seconds";

pub(crate) async fn measure(nodes: usize) -> Result<(), Any> {
    let api = EmbeddedApi::new(&ApiOptions::with(joulie_api::crd::all()))?;
    let client = api.client_as("scale");
    let workloads = nodes * WORKLOADS_PER_NODE;
    fill_with_workloads(&client, nodes, workloads).await?;
    let serving = api.serve("127.0.0.1:0".parse()?, None, None).await?;
    let agents = tokio::spawn(agents::confirm(api.clone()));
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let prometheus = format!("http://{}", listener.local_addr()?);
    let answers = tokio::spawn(answer_all(listener, nodes * PODS_PER_NODE));
    tell(&format!("{nodes} nodes, {} pods of {workloads} workloads", nodes * PODS_PER_NODE))?;

    let metrics = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?;
    let shown = metrics.to_string();
    let settings = [
        ("PROMETHEUS_ADDRESS", prometheus.as_str()),
        ("METRICS_ADDR", shown.as_str()),
        ("CLASSIFY_INTERVAL", "5s"),
        ("RECLASSIFY_INTERVAL", "25s"),
    ];
    let began = Instant::now();
    let operator = Program::start(None, serving.address(), &settings)?;
    let mut rounds = Rounds { metrics, count: 0.0, sum: 0.0, took: Vec::new() };
    while with_status(&client).await? < workloads {
        let pause = Instant::now() + Duration::from_secs(5);
        while Instant::now() < pause {
            rounds.read().await?;
            tokio::time::sleep(READ_EVERY).await;
        }
        if agents.is_finished() || answers.is_finished() {
            return Err("the agents or the made-up Prometheus have ended".into());
        }
    }
    tell(&format!("all profiles are written {:.0} s after the start", began.elapsed().as_secs_f64()))?;
    told("rounds until then", std::mem::take(&mut rounds.took))?;
    // Until the first pass that knows the profiles has been written, too.
    super::settle(&client, Duration::from_secs(15)).await?;
    rounds.read().await?;
    rounds.took.clear();

    let (before, spent, until) = (states(&client).await?, operator.processor_ms()?, Instant::now() + STEADY);
    while Instant::now() < until {
        rounds.read().await?;
        tokio::time::sleep(READ_EVERY).await;
    }
    let spent = (operator.processor_ms()? - spent) / STEADY.as_secs_f64();
    let written = states(&client).await?.difference(&before).count();
    let worst = rounds.took.iter().max().map_or(f64::INFINITY, |round| round.as_secs_f64() * 1e3);
    told("rounds while nothing changes", rounds.took)?;
    let resident = operator.resident()?;
    tell(&format!(
        "resident: {:.0} MiB, {:.0} MiB at most; {spent:.0} ms of processor time a second, queries and passes included",
        resident.now, resident.most
    ))?;
    bar("classifier_round_worst_ms", worst, ROUND_MS)?;
    bar("classifier_steady_60_s_writes", f64::from(u32::try_from(written)?), 0.0)?;
    drop(operator);
    agents.abort();
    answers.abort();
    serving.stop().await;
    Ok(())
}

/// How many profiles have a status.
async fn with_status(client: &Client) -> Result<usize, Any> {
    let all = get(client, &format!("{JOULIE}/workloadprofiles")).await?;
    let items = all["items"].as_array().map(Vec::as_slice).unwrap_or_default();
    Ok(items.iter().filter(|profile| profile["status"]["confidence"].is_number()).count())
}

/// The rounds as the program counts them.
struct Rounds {
    metrics: SocketAddr,
    count: f64,
    sum: f64,
    took: Vec<Duration>,
}

impl Rounds {
    /// Notes the rounds since the last reading. Those that end between two readings have their mean.
    async fn read(&mut self) -> Result<(), Any> {
        // Until the program listens there is nothing to read.
        let Ok(mut stream) = TcpStream::connect(self.metrics).await else { return Ok(()) };
        let request = format!("GET /metrics HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", self.metrics);
        stream.write_all(request.as_bytes()).await?;
        let mut page = String::new();
        stream.read_to_string(&mut page).await?;
        let value = |end: &str| {
            let line =
                page.lines().find_map(|line| line.strip_prefix(METRIC)?.strip_prefix(end)?.strip_prefix(' '));
            line.and_then(|number| number.trim().parse::<f64>().ok())
        };
        let (Some(count), Some(sum)) = (value("_count"), value("_sum")) else { return Ok(()) };
        if count > self.count {
            self.took.push(Duration::try_from_secs_f64((sum - self.sum) / (count - self.count))?);
            (self.count, self.sum) = (count, sum);
        }
        Ok(())
    }
}

/// Answers all queries for so many pods, as long as this task lives.
async fn answer_all(listener: TcpListener, pods: usize) -> Result<(), Any> {
    loop {
        let (stream, _) = listener.accept().await?;
        // A client that goes away is the client's.
        tokio::spawn(async move { answer(stream, pods).await.is_ok() });
    }
}

async fn answer(mut stream: TcpStream, pods: usize) -> Result<(), Any> {
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") && request.len() < 64 << 10 {
        request.push(stream.read_u8().await?);
    }
    let request = String::from_utf8_lossy(&request).into_owned();
    let body = tokio::task::spawn_blocking(move || body(&request, pods)).await??;
    let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n";
    stream.write_all(format!("{head}Content-Length: {}\r\n\r\n{body}", body.len()).as_bytes()).await?;
    Ok(stream.shutdown().await?)
}

/// The answer to the query in a request. Every third pod is busy, every third has much memory, and the others do little.
#[expect(clippy::disallowed_methods, reason = "an answer of Prometheus says when it was evaluated")]
fn body(request: &str, pods: usize) -> Result<String, Any> {
    let (labels, values) = if request.contains("container_cpu_usage") {
        (["namespace", "pod"], ["0.9", "0.4", "0.05"])
    } else if request.contains("container_memory") {
        (["namespace", "pod"], ["104857600", "966367641", "52428800"])
    } else if request.contains("kepler_container_package") {
        (["container_namespace", "pod_name"], ["20", "8", "1"])
    } else if request.contains("kepler_container_dram") {
        (["container_namespace", "pod_name"], ["2", "6", "0.2"])
    } else {
        return Ok(r#"{"status":"success","data":{"resultType":"vector","result":[]}}"#.to_owned());
    };
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
    let mut body = r#"{"status":"success","data":{"resultType":"vector","result":["#.to_owned();
    for pod in 0..pods {
        let comma = if pod == 0 { "" } else { "," };
        let value = values[pod % values.len()];
        let name = format!("p-{}-{}", pod / PODS_PER_NODE, pod % PODS_PER_NODE);
        write!(
            body,
            r#"{comma}{{"metric":{{"{}":"default","{}":"{name}"}},"value":[{now},"{value}"]}}"#,
            labels[0], labels[1]
        )?;
    }
    body.push_str("]}}");
    Ok(body)
}
