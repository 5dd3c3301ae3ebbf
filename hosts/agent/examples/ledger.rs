//! Measures what a node's agent costs with the energy ledger on: two sockets and eight GPUs of the rig, 100 pods with control groups
//! that work, a kubelet that says which of them hold the GPUs, and a bare loop that sleeps for a second beside it.
//!
//! The rig's files are served by this process, so that only what the agent itself does is counted. What it has of the GPUs are plain
//! files: NVML's stand-in opens several for each call, in the agent's own threads, and a file of the rig costs ten times as much there.
#![expect(clippy::print_stdout, reason = "a table for a person")]

mod measured;

use embedded_api::{ApiOptions, EmbeddedApi};
use http_body_util::{BodyExt, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, PostParams};
use measured::{Any, Process, bars};
use rig::machine::{RigTime, Shared};
use serde_json::json;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use tokio::net::{UnixListener, UnixStream};

const PODS: usize = 100;
const GPUS: usize = 8;
/// What the stand-in for NVML reads, below the root of the host.
const CARDS: &str = "lib/nvml";
const MEASURED: Duration = Duration::from_secs(60);
/// Until the first lists are read, and nothing is made for the first time any more.
const BEGINNING: Duration = Duration::from_secs(20);

#[expect(clippy::disallowed_methods, reason = "this is a measurement of time, beside a loop that sleeps")]
fn main() -> Result<(), Any> {
    if std::env::args().nth(1).as_deref() == Some("sleep") {
        loop {
            std::thread::sleep(Duration::from_secs(1));
        }
    }
    tokio::runtime::Runtime::new()?.block_on(measure(Instant::now))
}

async fn measure(now: fn() -> Instant) -> Result<(), Any> {
    let folder = std::env::temp_dir().join(format!("agent-ledger-{}", std::process::id()));
    fs::create_dir_all(folder.join("rig"))?;
    let build = rig::profile::find("gpu-2s8").ok_or("no such profile")?;
    let mounted = rig::fuse::mount(Shared::new(build(RigTime::Real(1.0))?), &folder.join("rig"))?;
    host(&folder)?;
    let api = EmbeddedApi::new(&ApiOptions::with(joulie_api::crd::all()))?;
    let serving = api.serve(([127, 0, 0, 1], 0).into(), None, None).await?;
    serving.write_kubeconfig(&folder.join("kubeconfig"))?;
    let groups = cluster(&api, &folder).await?;
    let cards = cards(&folder)?;
    let identifier = |card: &PathBuf| Ok::<_, Any>(fs::read_to_string(card.join("uuid"))?.trim().to_owned());
    let identifiers = cards.iter().map(identifier).collect::<Result<Vec<String>, Any>>()?;
    let kubelet = tokio::spawn(kubelet(UnixListener::bind(folder.join("kubelet.sock"))?, identifiers));
    let work = tokio::spawn(work(groups, cards));
    let ledger = [
        ("ENERGY_LEDGER", "on".into()),
        ("ENERGY_POD_RESOURCES_SOCKET", folder.join("kubelet.sock").into_os_string()),
    ];
    let agent = Process::agent(&folder, "host", &ledger)?;
    let sleeper = Process::start(Command::new(std::env::current_exe()?).arg("sleep"))?;
    tokio::time::sleep(BEGINNING).await;
    let (before, begun) = ([agent.processor_ms()?, sleeper.processor_ms()?], now());
    tokio::time::sleep(MEASURED).await;
    let seconds = begun.elapsed().as_secs_f64();
    let agent_costs = (agent.processor_ms()? - before[0]) / seconds;
    let sleeper_costs = (sleeper.processor_ms()? - before[1]) / seconds;
    let resident = agent.resident_mib()?;
    println!(
        "{PODS} pods, 2 sockets, {GPUS} GPUs, the ledger on: resident {resident:.1} MiB, {agent_costs:.2} millicores at 1 s \
         sampling; a loop that sleeps for a second: {sleeper_costs:.2} millicores"
    );
    bars(&[("agent_ledger_resident_mib", resident, 24.0), ("agent_ledger_millicores", agent_costs, 5.0)]);
    let failed = work.is_finished() || kubelet.is_finished();
    work.abort();
    kubelet.abort();
    drop((agent, sleeper, mounted));
    fs::remove_dir_all(&folder)?;
    if failed { Err("the pods or the kubelet ended before the measurement".into()) } else { Ok(()) }
}

/// The host as the agent sees it: the rig's files, and control groups beside them.
fn host(folder: &Path) -> Result<(), Any> {
    let (rig, host) = (folder.join("rig"), folder.join("host"));
    fs::create_dir_all(host.join("sys/fs/cgroup"))?;
    fs::create_dir_all(host.join("lib"))?;
    for (of, but) in [("", ["sys", "lib"]), ("sys", ["fs", ""]), ("lib", ["nvml", ""])] {
        for entry in fs::read_dir(rig.join(of))? {
            let entry = entry?;
            if !but.iter().any(|but| entry.file_name() == *but) {
                std::os::unix::fs::symlink(entry.path(), host.join(of).join(entry.file_name()))?;
            }
        }
    }
    copied(&rig.join("lib/nvml"), &host.join(CARDS))
}

/// Copies what cards say. Without `served` a limit is written into a file, and there is nothing that a call is made to answer.
fn copied(from: &Path, to: &Path) -> Result<(), Any> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        if entry.file_type()?.is_dir() {
            if entry.file_name() != "calls" {
                copied(&from, &to)?;
            }
        } else if entry.file_name() != "served" {
            // A file that cannot be read is a feature that the card lacks.
            fs::read(from).map_or(Ok(()), |text| fs::write(to, text))?;
        }
    }
    Ok(())
}

/// Makes the node, its pods and their control groups; returns the files with processor time, those of the whole first.
async fn cluster(api: &EmbeddedApi, folder: &Path) -> Result<Vec<PathBuf>, Any> {
    let made = PostParams::default();
    let node = json!({"metadata": {"name": "node-a", "labels": {"joulie.io/managed": "true"}}});
    Api::<Node>::all(api.client()).create(&made, &serde_json::from_value(node)?).await?;
    let root = folder.join("host/sys/fs/cgroup");
    fs::write(root.join("cgroup.controllers"), "cpu memory\n")?;
    let burstable = root.join("kubepods.slice/kubepods-burstable.slice");
    let mut files = vec![root.join("cpu.stat"), root.join("kubepods.slice/cpu.stat")];
    let pods: Api<Pod> = Api::namespaced(api.client(), "default");
    for at in 0..PODS {
        let pod = json!({"metadata": {"name": format!("p-{at}")},
            "spec": {"nodeName": "node-a", "containers": [{"name": "main", "image": "none"}]}});
        let pod: Pod = pods.create(&made, &serde_json::from_value(pod)?).await?;
        let uid = pod.metadata.uid.ok_or("a pod without a UID")?.replace('-', "_");
        let own = burstable.join(format!("kubepods-burstable-pod{uid}.slice"));
        fs::create_dir_all(&own)?;
        files.push(own.join("cpu.stat"));
    }
    write_times(&files, 0)?;
    Ok(files)
}

/// Each pod uses 100 ms of a processor in each second, and what is no pod a second.
async fn work(files: Vec<PathBuf>, cards: Vec<PathBuf>) -> Result<(), Any> {
    for second in 1.. {
        tokio::time::sleep(Duration::from_secs(1)).await;
        write_times(&files, second)?;
        draw(&cards, second)?;
    }
    Ok(())
}

fn write_times(files: &[PathBuf], second: u64) -> Result<(), Any> {
    let of_all = u64::try_from(PODS)? * 100_000;
    for (at, file) in files.iter().enumerate() {
        let each_second = match at {
            0 => of_all + 1_000_000,
            1 => of_all,
            _ => 100_000,
        };
        replace(file, &format!("usage_usec {}\nuser_usec 1\nsystem_usec 2\n", second * each_second))?;
    }
    Ok(())
}

/// Writes a file so that nobody reads a part of it.
fn replace(file: &Path, text: &str) -> Result<(), Any> {
    let beside = file.with_extension("new");
    fs::write(&beside, text)?;
    Ok(fs::rename(beside, file)?)
}

/// Each card draws 300 W.
fn draw(cards: &[PathBuf], second: u64) -> Result<(), Any> {
    cards.iter().try_for_each(|card| replace(&card.join("energy_mj"), &format!("{}\n", second * 300_000)))
}

/// The folders of the cards.
fn cards(folder: &Path) -> Result<Vec<PathBuf>, Any> {
    let cards = fs::read_dir(folder.join("host").join(CARDS).join("gpus"))?.map(|card| Ok(card?.path()));
    let cards: Vec<PathBuf> = cards.collect::<Result<_, Any>>()?;
    if cards.len() == GPUS { Ok(cards) } else { Err(format!("the rig has {} cards", cards.len()).into()) }
}

/// A field of a message: its number and its bytes.
fn field(number: u8, bytes: &[u8]) -> Result<Vec<u8>, Any> {
    let mut length = bytes.len();
    let mut all = vec![(number << 3) | 2];
    while length >= 0x80 {
        all.push(u8::try_from(length & 0x7f)? | 0x80);
        length >>= 7;
    }
    all.push(u8::try_from(length)?);
    all.extend_from_slice(bytes);
    Ok(all)
}

/// The kubelet's list: each card has two holders, and the other pods hold nothing.
fn list(cards: &[String]) -> Result<Vec<u8>, Any> {
    let mut list = Vec::new();
    for at in 0..PODS {
        let mut container = field(1, b"main")?;
        if at < 2 * cards.len() {
            let card = field(2, cards[at % cards.len()].as_bytes())?;
            container.extend(field(2, &[field(1, b"nvidia.com/gpu")?, card].concat())?);
        }
        let name = field(1, format!("p-{at}").as_bytes())?;
        list.extend(field(1, &[name, field(2, b"default")?, field(3, &container)?].concat())?);
    }
    Ok(list)
}

async fn kubelet(socket: UnixListener, cards: Vec<String>) -> Result<(), Any> {
    let list = list(&cards)?;
    let mut framed = vec![0];
    framed.extend(u32::try_from(list.len())?.to_be_bytes());
    framed.extend(list);
    loop {
        let (stream, _) = socket.accept().await?;
        tokio::spawn(serve(stream, framed.clone()));
    }
}

async fn serve(stream: UnixStream, framed: Vec<u8>) {
    let service = hyper::service::service_fn(move |_| {
        let framed = framed.clone();
        async move {
            let trailers = http::HeaderMap::from_iter([(
                http::HeaderName::from_static("grpc-status"),
                http::HeaderValue::from_static("0"),
            )]);
            let body =
                Full::new(bytes::Bytes::from(framed)).with_trailers(std::future::ready(Some(Ok(trailers))));
            let answer = http::Response::builder().header("content-type", "application/grpc").body(body);
            answer.map_err(|error| error.to_string())
        }
    });
    let server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
    // A client that goes away is the client's.
    let _ended = server.serve_connection(TokioIo::new(stream), service).await;
}
