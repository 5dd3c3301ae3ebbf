//! Churn on a cluster, and whether two replicas of the extender follow it. `cargo xtask bench soak` runs it for minutes with
//! the shipped program over HTTP, and a test for some ticks.
//!
//! Twins change, cards fall ill, and pods come, are bound and go ([`lives`](super::lives)). Meanwhile:
//!
//! - **No update is lost.** An answer names the versions of the objects that it knows of, in the header `joulie-seen`. Probes are
//!   nodes of which every write is recorded with its version, so that it can be told what an answer about them must be.
//! - **Replicas agree.** Two answers that name the same versions must be the same. Under churn that is so now and then; in each
//!   tenth tick nobody writes, until both replicas name the same versions.

use super::lives::{CARDS, Chance, Cluster, Failed, Tally, free, held, send, worker};
use kube::Client;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::Instant;

/// The settings of both replicas.
pub(crate) const SETTINGS: [(&str, &str); 4] = [
    ("GPU_PLACEMENT", "annotated"),
    ("GPU_BIND", "true"),
    ("POWER_FIT", "filter"),
    ("EXTENDER_CONNECTIONS_MAX", "400"),
];

/// How much happens.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    pub(crate) seed: u64,
    pub(crate) workers: usize,
    pub(crate) ticks: u32,
    /// The time from one tick to the next; zero begins each as soon as the one before is over.
    pub(crate) every: Duration,
    pub(crate) pods: u64,
    pub(crate) events: usize,
    /// How long a pod runs.
    pub(crate) lasts: Duration,
}

/// In each such tick nobody writes.
const QUIET: u32 = 10;
/// Who changes twins, at the same time.
const WRITERS: usize = 4;
/// Nodes of each kind of probe.
const PROBES: usize = 8;
const TWINS: &str = "/apis/joulie.io/v1alpha1/nodetwins";
const HARDWARES: &str = "/apis/joulie.io/v1alpha1/nodehardwares";
const GPUS: &str = "/apis/gpu.mle.com/v1alpha1/gpus";
const PODS: &str = "/api/v1/namespaces/default/pods";

/// Makes the nodes. Replicas that are started then name the same versions from the beginning.
pub(crate) async fn fill(client: &Client, workers: usize) -> Result<(), Failed> {
    for number in 0..workers {
        let name = worker(number);
        make_twin(client, &name, true).await?;
        for card in 0..CARDS {
            make_card(client, &name, card, "NVIDIA A100-SXM4-40GB").await?;
        }
    }
    for probe in 0..PROBES {
        make_card(client, &ProbeKind::Card.name(probe), 0, "Probe X1").await?;
        make_twin(client, &ProbeKind::Twin.name(probe), false).await?;
        make_twin(client, &ProbeKind::Pod.name(probe), true).await?;
    }
    Ok(())
}

fn now() -> String {
    jiff::Timestamp::now().to_string()
}

/// 500 W of 600, or nothing measured. Its sample is of the beginning, so that no later one shows what a pod draws.
fn twin(is_measured: bool, class: &str, watts: usize) -> Value {
    let mut status = json!({"schedulableClass": class, "lastUpdated": now()});
    if is_measured {
        status["powerMeasurement"] =
            json!({"source": "http", "measuredNodePowerW": watts, "nodeCappedPowerW": 600});
    }
    json!({"status": status})
}

async fn make_twin(client: &Client, name: &str, is_measured: bool) -> Result<(), Failed> {
    let head = |kind: &str, spec: Value| json!({"apiVersion": "joulie.io/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec});
    send(client, "POST", TWINS, &head("NodeTwin", json!({"nodeName": name, "profile": "performance"})))
        .await?;
    let mut status = twin(is_measured, "performance", 500);
    if is_measured {
        status["status"]["powerMeasurement"]["sampledAt"] = json!(now());
        send(client, "POST", HARDWARES, &head("NodeHardware", json!({"nodeName": name}))).await?;
        let hardware = json!({"status": {"cpu": {"totalCores": 96, "sockets": 2, "capRange": {"maxWattsPerSocket": 360}}}});
        send(client, "PATCH", &format!("{HARDWARES}/{name}/status"), &hardware).await?;
    }
    send(client, "PATCH", &format!("{TWINS}/{name}/status"), &status).await?;
    Ok(())
}

async fn make_card(client: &Client, node: &str, card: u64, model: &str) -> Result<(), Failed> {
    let name = format!("{node}-{card}");
    let spec = json!({"nodeName": node, "uuid": format!("GPU-{name}"), "model": model, "totalVRAMmb": 40_000, "vendor": "nvidia",
                      "island": card / 4});
    let made = json!({"apiVersion": "gpu.mle.com/v1alpha1", "kind": "GPU", "metadata": {"name": name}, "spec": spec});
    send(client, "POST", GPUS, &made).await?;
    send(client, "PATCH", &format!("{GPUS}/{name}/status"), &json!({"status": free()})).await?;
    Ok(())
}

/// What is written of a probe, and asked about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ProbeKind {
    /// Its card is free or held.
    Card,
    /// Its twin admits performance pods or not.
    Twin,
    /// A pod on it leaves no watts for another one, or there is none.
    Pod,
}

impl ProbeKind {
    const ALL: [Self; 3] = [Self::Card, Self::Twin, Self::Pod];

    fn name(self, probe: usize) -> String {
        format!("{}-{probe}", self.kind())
    }

    /// The kind of the objects that are written, as `joulie-seen` names it.
    const fn kind(self) -> &'static str {
        match self {
            Self::Card => "gpus",
            Self::Twin => "nodetwins",
            Self::Pod => "pods",
        }
    }

    /// A pod that the probe takes or does not, and about which all probes of the kind are asked.
    fn request(self) -> Value {
        let mut pod = json!({"metadata": {"name": "probe", "namespace": "default", "annotations": {}},
                             "spec": {"containers": [{"name": "c", "image": "x", "resources": {"requests": {"cpu": "1"}}}]}});
        match self {
            Self::Card => {
                pod["metadata"]["annotations"]["gpu-extender.mle.com/model"] = json!("X1");
                pod["spec"]["containers"][0]["resources"]["limits"] = json!({"nvidia.com/gpu": "1"});
            }
            Self::Twin => pod["metadata"]["annotations"]["joulie.io/workload-class"] = json!("performance"),
            Self::Pod => {}
        }
        let names: Vec<String> = (0..PROBES).map(|probe| self.name(probe)).collect();
        json!({"Pod": pod, "Nodes": null, "NodeNames": names})
    }
}

/// The probes of one kind: whether each takes the pod, from which version on.
struct Probes {
    kind: ProbeKind,
    history: Vec<Vec<(u64, bool)>>,
    /// The name of the pod on each, if there is one.
    pods: Vec<Option<String>>,
    made: u64,
}

/// An answer about the probes of a kind.
struct Told {
    kind: ProbeKind,
    replica: usize,
    seen: String,
    kept: Vec<Value>,
}

impl Probes {
    fn new(kind: ProbeKind) -> Self {
        Self { kind, history: vec![vec![(0, true)]; PROBES], pods: vec![None; PROBES], made: 0 }
    }

    fn takes(&self, probe: usize, version: u64) -> bool {
        let history = self.history.get(probe).map(Vec::as_slice).unwrap_or_default();
        history.iter().rev().find(|(since, _)| *since <= version).is_some_and(|(_, takes)| *takes)
    }

    /// Turns one over, and records it.
    async fn flip(&mut self, cluster: &Cluster, probe: usize) -> Result<(), Failed> {
        let takes = !self.takes(probe, u64::MAX);
        let name = self.kind.name(probe);
        let written = match self.kind {
            ProbeKind::Card => {
                let status = if takes { free() } else { held("somebody", "somebody") };
                cluster.send("PATCH", &format!("{GPUS}/{name}-0/status"), &json!({"status": status})).await?
            }
            ProbeKind::Twin => {
                let class = if takes { "performance" } else { "eco" };
                cluster.send("PATCH", &format!("{TWINS}/{name}/status"), &twin(false, class, 0)).await?
            }
            ProbeKind::Pod => self.flip_pod(cluster, probe, &name).await?,
        };
        let version = written["metadata"]["resourceVersion"].as_str().unwrap_or_default().parse()?;
        self.history.get_mut(probe).ok_or("no such probe")?.push((version, takes));
        Ok(())
    }

    async fn flip_pod(&mut self, cluster: &Cluster, probe: usize, node: &str) -> Result<Value, Failed> {
        let slot = self.pods.get_mut(probe).ok_or("no such probe")?;
        if let Some(pod) = slot.take() {
            let ended = json!({"status": {"phase": "Succeeded"}});
            let written = cluster.send("PATCH", &format!("{PODS}/{pod}/status"), &ended).await?;
            cluster.send("DELETE", &format!("{PODS}/{pod}"), &json!({"gracePeriodSeconds": 0})).await?;
            return Ok(written);
        }
        self.made += 1;
        let pod = format!("{node}-{}", self.made);
        // 0.7 × 24 ÷ 96 × 720 W = 126 W of the 100 W that are left.
        let resources = json!({"requests": {"cpu": "24"}});
        let made = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": pod, "namespace": "default"},
                          "spec": {"nodeName": node, "containers": [{"name": "c", "image": "x", "resources": resources}]}});
        *slot = Some(pod);
        Ok(cluster.send("POST", PODS, &made).await?)
    }

    /// Compares an answer with what was written up to the version that it names.
    fn check(&self, told: &Told, tally: &mut Tally) {
        let of_kind = |one: &str| one.strip_prefix(self.kind.kind())?.strip_prefix('=')?.parse::<u64>().ok();
        let Some(version) = told.seen.split(", ").find_map(of_kind) else {
            tally.failed += 1;
            return tally.complain(format!(
                "an answer does not say which {} it has seen: {:?}",
                self.kind.kind(),
                told.seen
            ));
        };
        tally.checked += 1;
        for probe in 0..PROBES {
            let (name, takes) = (self.kind.name(probe), self.takes(probe, version));
            if told.kept.iter().any(|kept| *kept == name) != takes {
                tally.lost += 1;
                tally.complain(format!(
                    "replica {} says at {} that {name} {}, and it was written otherwise: {:?}",
                    told.replica,
                    told.seen,
                    if takes { "is full" } else { "is free" },
                    self.history.get(probe)
                ));
            }
        }
    }
}

/// The churn. Its nodes exist, and both replicas are ready.
pub(crate) async fn run(client: Client, replicas: [SocketAddr; 2], pace: Pace) -> Result<Tally, Failed> {
    let cluster = Arc::new(Cluster::new(client, replicas, pace.workers));
    let mut probes = ProbeKind::ALL.map(Probes::new);
    let (mut pods, mut number) = (JoinSet::new(), pace.seed.wrapping_mul(1 << 32));
    let (mut chance, mut told) = (Chance::of(pace.seed), Vec::new());
    let begun = Instant::now();
    for tick in 0..pace.ticks {
        tokio::time::sleep_until(begun + pace.every * tick).await;
        // Where the processors are busy a tick takes longer; the whole does not.
        if !pace.every.is_zero() && begun.elapsed() >= pace.every * pace.ticks {
            break;
        }
        if tick % QUIET == QUIET - 1 {
            quiet(&cluster, &probes, &mut told).await?;
            continue;
        }
        for _ in 0..pace.pods {
            let (cluster, lasts) = (cluster.clone(), pace.lasts);
            number = number.wrapping_add(1);
            let number = number;
            pods.spawn(async move { cluster.live(number, lasts).await });
        }
        let seeds = [(); WRITERS].map(|()| u64::try_from(chance.roll(1 << 30)).unwrap_or(0));
        let [one, two, three, four] = seeds.map(|seed| events(&cluster, seed, pace.events / WRITERS));
        let flips = async {
            for probes in &mut probes {
                probes.flip(&cluster, chance.roll(PROBES)).await?;
                probes.flip(&cluster, chance.roll(PROBES)).await?;
            }
            Ok::<(), Failed>(())
        };
        let (flipped, ..) = tokio::join!(flips, look(&cluster, &mut told), one, two, three, four);
        flipped?;
        while let Some(ended) = pods.try_join_next() {
            ended??;
        }
    }
    while let Some(ended) = pods.join_next().await {
        ended??;
    }
    quiet(&cluster, &probes, &mut told).await?;
    cluster.count_leaks().await?;
    Ok(cluster.count(std::mem::take))
}

/// Asks both replicas about the probes while others write.
async fn look(cluster: &Cluster, told: &mut Vec<Told>) {
    for kind in ProbeKind::ALL {
        let body = kind.request();
        let (one, other) = tokio::join!(cluster.ask(0, "/filter", &body), cluster.ask(1, "/filter", &body));
        if let (Some(one), Some(other)) = (&one, &other) {
            compare(cluster, one, other, |seen, also| seen == also && !seen.is_empty());
        }
        for (replica, (seen, answer)) in
            [one, other].into_iter().enumerate().filter_map(|(at, one)| Some((at, one?)))
        {
            let kept = answer["nodenames"].as_array().cloned().unwrap_or_default();
            told.push(Told { kind, replica, seen, kept });
        }
    }
}

/// Compares two answers of which `are_comparable` says that they are about the same objects; false where they are not.
fn compare(
    cluster: &Cluster,
    (seen, one): &(String, Value),
    (also, other): &(String, Value),
    are_comparable: impl Fn(&str, &str) -> bool,
) -> bool {
    let are_comparable = are_comparable(seen, also);
    if are_comparable {
        cluster.count(|tally| {
            tally.compared += 1;
            if one != other {
                tally.disagreements += 1;
                tally.complain(format!("at {seen} one says {one}, and at {also} the other {other}"));
            }
        });
    }
    are_comparable
}

/// Changes twins of workers, and now and then the health of a card.
async fn events(cluster: &Cluster, seed: u64, count: usize) {
    let mut chance = Chance::of(seed);
    for _ in 0..count {
        let Some(node) = cluster.workers.get(chance.roll(cluster.workers.len())) else { break };
        let written = if chance.roll(20) == 0 {
            let health = if chance.roll(2) == 0 { "Unknown" } else { "Healthy" };
            let body = json!({"status": {"health": health}});
            cluster.send("PATCH", &format!("{GPUS}/{node}-{}/status", CARDS - 1), &body).await
        } else {
            let class = if chance.roll(2) == 0 { "eco" } else { "performance" };
            let body = twin(true, class, 400 + chance.roll(150));
            cluster.send("PATCH", &format!("{TWINS}/{node}/status"), &body).await
        };
        let failed = written.err();
        cluster.count(|tally| match failed {
            None => tally.events += 1,
            Some(error) => {
                tally.failed += 1;
                tally.complain(format!("{node}: {error}"));
            }
        });
    }
}

/// Waits until nobody writes, judges the answers that came before, and compares the replicas once they have seen the same.
async fn quiet(cluster: &Cluster, probes: &[Probes], told: &mut Vec<Told>) -> Result<(), Failed> {
    let _nobody_writes = cluster.gate.write().await;
    // Their twins must not grow old.
    for probe in 0..PROBES {
        let name = ProbeKind::Pod.name(probe);
        cluster.send("PATCH", &format!("{TWINS}/{name}/status"), &twin(true, "performance", 500)).await?;
    }
    for one in told.drain(..) {
        for probes in probes.iter().filter(|probes| probes.kind == one.kind) {
            cluster.count(|tally| probes.check(&one, tally));
        }
    }
    let mut bodies: Vec<Value> = ProbeKind::ALL.map(ProbeKind::request).into();
    for (class, cards) in [("standard", "0"), ("performance", "0"), ("standard", "2"), ("standard", "4")] {
        let annotations = json!({"joulie.io/workload-class": class, "gpu-extender.mle.com/model": "A100",
                                 "gpu-extender.mle.com/link": "required"});
        let mut pod = json!({"metadata": {"name": "all", "namespace": "default", "annotations": annotations},
                             "spec": {"containers": [{"resources": {"requests": {"cpu": "8"}, "limits": {"nvidia.com/gpu": cards}}}]}});
        if cards == "0" {
            pod["metadata"]["annotations"] = json!({"joulie.io/workload-class": class});
        }
        bodies.push(json!({"Pod": pod, "Nodes": null, "NodeNames": cluster.workers}));
    }
    for body in &bodies {
        for _ in 0..100 {
            let (one, other) = tokio::join!(cluster.ask(0, "/filter", body), cluster.ask(1, "/filter", body));
            let (Some(one), Some(other)) = (one, other) else { break };
            if compare(cluster, &one, &other, |seen, also| cluster.are_of_the_same(seen, also)) {
                break;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
    Ok(())
}
