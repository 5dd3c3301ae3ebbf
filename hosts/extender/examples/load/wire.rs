//! The shipped program over loopback, while a thousand twins a second change.

use super::api::{Api, EVENTS_PER_SECOND, PODS_A_NODE};
use super::{Any, Program, SIZES, bodies, tell};
use bytes::Bytes;
use host_kit::clock::{HostClock, SystemClock};
use host_kit::metrics::{BuildInfo, MetricsBuilder};
use host_kit::server::{Drain, HttpServer, Port, Routes, ServerLimits, ServerMetrics};
use host_kit::shutdown;
use http::{Request, Response};
use http_body_util::Full;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::Instant;

/// A server of the same kind that returns every body.
struct Echo;

impl Routes for Echo {
    type Body = Full<Bytes>;

    async fn answer(&self, request: Request<Bytes>, _: SocketAddr) -> Response<Full<Bytes>> {
        Response::new(Full::from(request.into_body()))
    }
}

pub(crate) async fn run() -> Result<(), Any> {
    let echo = echo().await?;
    tell(&format!(
        "\n### Over loopback, echo, extender and API server as processes, with and without {EVENTS_PER_SECOND} changes of twins a second\n"
    ))?;
    tell(
        "Callers ask one request after the other, or, where it says so, begin one at fixed times and so leave room between them. \
         Of several rounds the one in the middle, and the lowest and the highest p99.\n",
    )?;
    tell(
        "| nodes | form | changes a second | what | callers | requests | p50 ms | p99 ms | p99 of all rounds | a second | its CPU, us a request |",
    )?;
    tell("|---|---|---|---|---|---|---|---|---|---|---|")?;
    let mut memory = Vec::new();
    for count in SIZES {
        let mut api = Api::start(count)?;
        let extender = program(api.address, &[]).await?;
        let idle = resident(&extender.0)?;
        rows(count, "names", &api, &extender, &echo).await?;
        api.feed()?;
        for form in ["names", "nodes"] {
            rows(count, form, &api, &extender, &echo).await?;
        }
        memory.push((count, idle, resident(&extender.0)?));
    }
    tell("\n| nodes | resident when ready, MiB | resident after all of it, MiB | peak, MiB |")?;
    tell("|---|---|---|---|")?;
    for (count, idle, after) in memory {
        tell(&format!("| {count} | {:.1} | {:.1} | {:.1} |", idle.0, after.0, after.1))?;
    }
    gpus().await
}

/// The sizes of a cluster in docs/INSTALL.md, and the chart's limit in MiB.
const CLUSTERS: [usize; 3] = [50, 500, 5_000];
const LIMIT_MIB: f64 = 512.0;

/// The memory of the program with the Nodes and pods of a cluster, when it is ready and after it was asked.
pub(crate) async fn memory() -> Result<(), Any> {
    tell(&format!(
        "\n| nodes, {PODS_A_NODE} pods on each | resident when ready, MiB | after 800 requests of eight callers, MiB | peak, MiB |"
    ))?;
    tell("|---|---|---|---|")?;
    let mut most = 0.0_f64;
    for count in CLUSTERS {
        let api = Api::start_with_pods(count)?;
        let extender = program(api.address, &[]).await?;
        let (idle, _) = resident(&extender.0)?;
        let body = bodies::names("performance", count);
        for path in ["/filter", "/prioritize"] {
            round(&extender, path, &body, Load { requests: 400, callers: 8, every: None }).await?;
        }
        let (after, peak) = resident(&extender.0)?;
        tell(&format!("| {count} | {idle:.1} | {after:.1} | {peak:.1} |"))?;
        most = most.max(peak);
    }
    let verdict = if most <= LIMIT_MIB { "PASS" } else { "FAIL" };
    tell(&format!("BAR extender_resident_mib {most:.1} {LIMIT_MIB} {verdict}"))
}

/// The nodes with GPUs, and how much memory the program may have with them, in MiB.
const GPU_NODES: usize = 5_000;
const GPU_RESIDENT: f64 = 96.0;

/// The memory of the program that watches 40,000 GPU objects, after it was asked about pods with GPUs.
pub(crate) async fn gpus() -> Result<(), Any> {
    let api = Api::start_with_gpus(GPU_NODES)?;
    let extender = program(api.address, &[("GPU_PLACEMENT", "all")]).await?;
    let idle = resident(&extender.0)?;
    let body = bodies::gpu_names(2, GPU_NODES);
    let load = Load { requests: 400, callers: 1, every: None };
    let mut rounds = Vec::new();
    for path in ["/filter", "/prioritize"] {
        rounds.push((path, round(&extender, path, &body, load).await?));
    }
    let after = resident(&extender.0)?;
    tell(&format!("\n| {GPU_NODES} nodes of {} GPUs | p50 ms | p99 ms |", bodies::CARDS))?;
    tell("|---|---|---|")?;
    for (path, Round { p50, p99, .. }) in rounds {
        tell(&format!("| {path} | {p50:.3} | {p99:.3} |"))?;
    }
    tell(&format!(
        "\nResident when ready {:.1} MiB, after it {:.1}, peak {:.1}\n",
        idle.0, after.0, after.1
    ))?;
    let verdict = if after.0 <= GPU_RESIDENT { "PASS" } else { "FAIL" };
    tell(&format!("BAR extender_gpu_resident_mib {:.1} {GPU_RESIDENT} {verdict}", after.0))
}

/// Rounds per request of names: all processes share two cores, and other load on the machine may disturb a round.
const ROUNDS: usize = 5;

async fn rows(
    count: usize,
    form: &str,
    api: &Api,
    extender: &(Program, SocketAddr),
    echo: &(Program, SocketAddr),
) -> Result<(), Any> {
    let names = form == "names";
    let make: fn(&str, usize) -> Bytes = if names { bodies::names } else { bodies::nodes };
    let body = make("performance", count);
    let requests = if names { 4_000_000 / (count + 500) } else { (100_000 / count).clamp(16, 400) };
    for (what, server, path) in
        [("echo", echo, "/echo"), ("filter", extender, "/filter"), ("prioritize", extender, "/prioritize")]
    {
        let paced = names.then(|| (8, Some(pace(count))));
        for (callers, every) in [(1_u32, None), (8, None)].into_iter().chain(paced) {
            let (began, before) = (Instant::now(), api.writes().await?);
            let mut rounds = Vec::new();
            for _ in 0..if names { ROUNDS } else { 1 } {
                rounds.push(round(server, path, &body, Load { requests, callers, every }).await?);
            }
            let changes = f64::from(u32::try_from(api.writes().await?.saturating_sub(before))?);
            let changes = changes / began.elapsed().as_secs_f64();
            rounds.sort_by(|one, other| one.p99.total_cmp(&other.p99));
            let (Some(lowest), Some(highest)) = (rounds.first(), rounds.last()) else { continue };
            let Some(Round { requests, p50, p99, rate, spent }) = rounds.get(rounds.len() / 2) else {
                continue;
            };
            let every =
                every.map_or_else(String::new, |every| format!(", each every {} ms", every.as_millis()));
            let all = format!("{:.3} to {:.3}", lowest.p99, highest.p99);
            tell(&format!(
                "| {count} | {form} | {changes:.0} | {what} | {callers}{every} | {requests} | {p50:.3} | {p99:.3} | {all} | {rate:.0} | {spent:.0} |",
            ))?;
        }
    }
    Ok(())
}

/// The result of several requests: latencies in ms, requests a second, and the server's processor time in µs per
/// request.
struct Round {
    requests: usize,
    p50: f64,
    p99: f64,
    rate: f64,
    spent: f64,
}

/// So many requests of so many callers, each as soon as the one before it was answered, or every so often.
#[derive(Clone, Copy)]
struct Load {
    requests: usize,
    callers: u32,
    every: Option<Duration>,
}

async fn round(
    (program, address): &(Program, SocketAddr),
    path: &'static str,
    body: &Bytes,
    Load { requests, callers, every }: Load,
) -> Result<Round, Any> {
    let each = (requests / usize::try_from(callers)?).max(2);
    let (began, spent) = (Instant::now(), processor_time(program)?);
    let one = |caller| {
        // Callers are independent of each other: their times are interleaved.
        let every = every.map(|every| (every * caller / callers, every));
        tokio::spawn(calls(*address, path, body.clone(), each, every))
    };
    let all = (0..callers).map(one);
    let mut took = Vec::new();
    for one in all.collect::<Vec<_>>() {
        took.extend(one.await??);
    }
    let count = f64::from(u32::try_from(took.len())?);
    let rate = count / began.elapsed().as_secs_f64();
    took.sort();
    let at = |hundredth: usize| took.get((took.len() * hundredth / 100).min(took.len() - 1));
    let ms = |hundredth| at(hundredth).map_or(0.0, |took| took.as_secs_f64() * 1e3);
    let spent = (processor_time(program)? - spent) * 1e6 / count;
    Ok(Round { requests: took.len(), p50: ms(50), p99: ms(99), rate, spent })
}

/// How often each of eight callers sends a request. Together they send at least four times as many as kube-scheduler
/// does at its fastest: some 450 a second at 500 nodes, some 80 at 5,000.
fn pace(count: usize) -> Duration {
    Duration::from_millis(if count > 1_000 { 20 } else { 4 })
}

/// Sends requests one after the other on one connection, or at fixed times (the first delay, and the interval), and
/// returns how long each took. A request that was due while the one before it was under way counts from the time when
/// it was due.
async fn calls(
    address: SocketAddr,
    path: &'static str,
    body: Bytes,
    count: usize,
    every: Option<(Duration, Duration)>,
) -> Result<Vec<Duration>, Any> {
    let mut stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let head = format!("POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n", body.len());
    let mut took = Vec::with_capacity(count);
    let mut answer = vec![0_u8; 1 << 20];
    let mut due = Instant::now() + every.map_or(Duration::ZERO, |(first, _)| first);
    for _ in 0..count {
        let mut began = Instant::now();
        if let Some((_, every)) = every {
            due += every;
            if began < due {
                tokio::time::sleep_until(due).await;
                began = Instant::now();
            } else {
                began = due;
            }
        }
        // The echo answers while the body is still being received, which could fill both directions: so read and
        // write concurrently.
        let (mut reader, mut writer) = stream.split();
        let send = async {
            writer.write_all(head.as_bytes()).await?;
            writer.write_all(&body).await
        };
        let receive = async {
            let (mut filled, mut left) = (0_usize, None::<usize>);
            loop {
                let room = answer.get_mut(if left.is_some() { 0 } else { filled }..).unwrap_or_default();
                let got = reader.read(room).await?;
                if got == 0 {
                    return Err(std::io::Error::from(std::io::ErrorKind::UnexpectedEof));
                }
                match &mut left {
                    Some(left) => *left = left.saturating_sub(got),
                    None => {
                        filled += got;
                        left = rest_of(answer.get(..filled).unwrap_or_default())?;
                    }
                }
                if left == Some(0) {
                    return Ok(());
                }
            }
        };
        tokio::try_join!(send, receive)?;
        took.push(began.elapsed());
    }
    Ok(took)
}

/// How many bytes are still missing, once the head of an answer is complete.
fn rest_of(answer: &[u8]) -> std::io::Result<Option<usize>> {
    let Some(end) = answer.windows(4).take(4096).position(|four| four == b"\r\n\r\n") else {
        return Ok(None);
    };
    let head = String::from_utf8_lossy(answer.get(..end).unwrap_or_default()).to_ascii_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse::<usize>().ok());
    match length {
        Some(length) if head.starts_with("http/1.1 200") => {
            Ok(Some((end + 4 + length).saturating_sub(answer.len())))
        }
        Some(_) | None => Err(std::io::Error::other(head)),
    }
}

/// Serves the echo until the process is stopped.
pub(crate) async fn serve_echo(at: &str) -> Result<(), Any> {
    let mut metrics = MetricsBuilder::of(&BuildInfo { component: "echo", version: "0", revision: "0" });
    let servers = ServerMetrics::register(metrics.registry());
    let clock: Arc<dyn HostClock> = Arc::new(SystemClock::new());
    let limits = ServerLimits::new(1 << 28, 64)?;
    let at = at.parse().map_err(|_| "an address")?;
    let server = HttpServer::bind(at, Port::Work, Echo, limits, &servers, clock).await?;
    let (_held, stop) = shutdown::pair();
    server.run(stop, Drain::new(Duration::ZERO, Duration::ZERO)).await;
    Ok(())
}

/// The echo as a process of its own, like the extender: waking another process costs more than all the work of an
/// echo.
async fn echo() -> Result<(Program, SocketAddr), Any> {
    let at = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?;
    let mut command = Command::new(std::env::current_exe()?);
    let program = Program(command.arg("--echo").arg(at.to_string()).stdin(Stdio::null()).spawn()?);
    for _ in 0..100 {
        tokio::time::sleep(Duration::from_millis(20)).await;
        if calls(at, "/echo", Bytes::from_static(b"{}"), 1, None).await.is_ok() {
            return Ok((program, at));
        }
    }
    Err("the echo did not become ready".into())
}

/// The seconds of processor time that a program has used.
fn processor_time(program: &Program) -> Result<f64, Any> {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", program.0.id()))?;
    // After the name in parentheses, which may contain anything: utime and stime are the 12th and the 13th field, in
    // hundredths of a second.
    let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace().skip(11).take(2);
    Ok(fields.filter_map(|ticks| ticks.parse::<f64>().ok()).sum::<f64>() / 100.0)
}

/// Starts the shipped program, which was built beside this one, and waits until it is ready.
pub(crate) async fn program(
    api: SocketAddr,
    variables: &[(&str, &str)],
) -> Result<(Program, SocketAddr), Any> {
    let mut path = std::env::current_exe()?;
    path.pop();
    path.pop();
    path.push("joulie-extender");
    let kubeconfig: PathBuf = std::env::temp_dir().join(format!("joulie-load-{}.yaml", std::process::id()));
    std::fs::write(
        &kubeconfig,
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters: [{{name: c, cluster: {{server: 'http://{api}'}}}}]\n\
             users: [{{name: u, user: {{}}}}]\ncontexts: [{{name: c, context: {{cluster: c, user: u}}}}]\n"
        ),
    )?;
    let free = || Ok::<_, Any>(std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?);
    let (work, metrics) = (free()?, free()?);
    let child = Command::new(path)
        .env("KUBECONFIG", &kubeconfig)
        .env("EXTENDER_ADDR", work.to_string())
        .env("METRICS_ADDR", metrics.to_string())
        .env("EXTENDER_BODY_MAX", (1 << 28).to_string())
        .env("LOG_LEVEL", "warn")
        .envs(variables.iter().copied())
        .stdin(Stdio::null())
        .spawn()?;
    let program = Program(child);
    for _ in 0..600 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        if calls(work, "/prioritize", Bytes::from_static(b"{}"), 1, None).await.is_ok() {
            std::fs::remove_file(&kubeconfig)?;
            return Ok((program, work));
        }
    }
    Err("the extender did not become ready".into())
}

/// The resident memory now and its peak, in MiB.
pub(crate) fn resident(program: &Program) -> Result<(f64, f64), Any> {
    let status = std::fs::read_to_string(format!("/proc/{}/status", program.0.id()))?;
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        Some(line.split_whitespace().next()?.parse::<f64>().ok()? / 1024.0)
    };
    Ok((field("VmRSS:").unwrap_or(0.0), field("VmHWM:").unwrap_or(0.0)))
}
