//! The pipeline's stages around a hot zone ([`crate::moves`]): a load on a simulated node reaches Kepler's counters, the
//! classifier, a WorkloadProfile, the twin and the scores, and the next pod goes to another node; and while Prometheus is away,
//! answers garbage or answers late, nothing moves and everything says why.

use crate::moves::{GUARDED, NAMESPACE, api, operators, recommended, spread};
use crate::outages::{caps, leader, wishes};
use crate::pipeline::profile_of;
use crate::placement::{all_run, profiles};
use crate::support::{looked_on, wait};
use cluster::assets::Environment;
use cluster::{ClusterError, PrometheusServer};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::time::Duration;
use system::exporter::Exporter;
use system::field::{self, Field};
use system::objects::{self, condition};
use system::proxy::{FaultyProxy, ProxyMood};
use system::world::{PATIENCE, TestSystem};
use tokio::time::Instant;

/// How busy a simulated pod keeps its processors.
pub(crate) const BUSY: &str = "sim.joulie.io/cpu-util-pct";
/// The label of the nodes that the next pod may go to.
pub(crate) const NEXT: &str = "stories.joulie.io/next";
/// How far two scores, or two values of a twin, have to be apart to differ. Counters that are read over five seconds on a busy
/// machine are inexact by some points.
const POINTS: f64 = 5.0;
const INEXACT: f64 = 15.0;

/// The real Prometheus, the exporters that it scrapes, and what stands before it.
pub(crate) struct Instruments<'a> {
    world: &'a TestSystem,
    exporter: Exporter,
    server: PrometheusServer,
    proxy: FaultyProxy,
    /// The nodes that Kepler measures: the one that is loaded and becomes hot, and one like it.
    pub(crate) nodes: [&'a str; 2],
    /// The temperatures of the hot zone and of the building, °C.
    pub(crate) degrees: Cell<(u32, u32)>,
}

impl<'a> Instruments<'a> {
    /// Starts them; `None`, with a message, where there is no Prometheus.
    pub(crate) async fn start(world: &'a TestSystem, nodes: [&'a str; 2]) -> Option<Self> {
        let exporter = Exporter::start().await.unwrap();
        let targets = [("building", exporter.address())];
        let server =
            match PrometheusServer::new(&Environment::of_this_process(), &world.control_plane, &targets) {
                Ok(server) => server,
                Err(ClusterError::Absent(why)) => {
                    system::skip(&format!("no Prometheus: {why}"));
                    return None;
                }
                Err(why) => panic!("{why}"),
            };
        server.start(&world.control_plane).unwrap();
        let proxy = FaultyProxy::before(server.address()).await.unwrap();
        Some(Self { world, exporter, server, proxy, nodes, degrees: Cell::new((20, 20)) })
    }

    /// Where operators ask.
    pub(crate) fn address(&self) -> String {
        format!("http://{}", self.proxy.address())
    }

    /// Shows what is measured, again and again: temperatures; Kepler's counters of nodes, which are the joules of the simulated
    /// machines, and of pods; cAdvisor's counters of pods.
    pub(crate) async fn follow(&self) {
        let pods: Api<Pod> = Api::namespaced(self.world.client.clone(), NAMESPACE);
        let (mut worked, mut last) = (BTreeMap::<String, f64>::new(), Instant::now());
        loop {
            let (hot, building) = self.degrees.get();
            let mut text = format!(
                "zone_temperature_celsius{{zone=\"hot\"}} {hot}\ndatacenter_ambient_temperature_celsius {building}\n"
            );
            for node in self.nodes {
                let joules = &truth(self.world, node).await["joules"];
                text.push_str(&format!(
                    "kepler_node_cpu_joules_total{{node_name=\"{node}\",path=\"p\",zone=\"package-0\"}} {joules}\n"
                ));
            }
            let listed = pods.list(&ListParams::default()).await.unwrap();
            let passed = last.elapsed().as_secs_f64();
            last = Instant::now();
            for (pod, cores) in listed.into_iter().filter_map(busy_cores) {
                let seconds = worked.entry(pod.clone()).or_default();
                *seconds += cores * passed;
                text.push_str(&counters(&pod, *seconds));
            }
            self.exporter.show(&text);
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Whether the real server, asked past the proxy, knows the temperature of now and has counters to make a rate of.
    async fn knows(&self) -> bool {
        let real = system::http::at(self.server.address()).unwrap();
        let ask = async |query: &str| {
            let answer = real.get(&format!("/api/v1/query?query={query}")).await.unwrap_or_default();
            answer["data"]["result"].as_array().cloned().unwrap_or_default()
        };
        let degrees = ask("datacenter_ambient_temperature_celsius").await;
        let (_, building) = self.degrees.get();
        degrees.first().is_some_and(|one| one["value"][1].as_str() == Some(&*format!("{building}")))
            && ask("rate(kepler_node_cpu_joules_total[5s])").await.len() == self.nodes.len()
            && !ask("rate(container_cpu_usage_seconds_total[30s])").await.is_empty()
    }
}

/// What a running pod works: its name, and how many processors it keeps busy.
fn busy_cores(pod: Pod) -> Option<(String, f64)> {
    let runs = pod.status.as_ref()?.phase.as_deref() == Some("Running");
    let percent: f64 = pod.annotations().get(BUSY)?.parse().ok()?;
    let asked = pod.spec.as_ref()?.containers.first()?.resources.as_ref()?.requests.as_ref()?.get("cpu")?;
    let cores: f64 = asked.0.parse().ok()?;
    runs.then(|| (pod.name_any(), cores * percent / 100.0))
}

/// The counters of a pod that has worked so long: 1.5 W of the packages and 0.1 W of the memory for each processor.
fn counters(pod: &str, seconds: f64) -> String {
    let kepler = |zone: &str, watts: f64| {
        format!(
            "kepler_pod_cpu_joules_total{{pod_namespace=\"{NAMESPACE}\",pod_name=\"{pod}\",state=\"running\",zone=\"{zone}\"}} {}\n",
            watts * seconds
        )
    };
    format!(
        "{}{}container_cpu_usage_seconds_total{{namespace=\"{NAMESPACE}\",pod=\"{pod}\",container=\"main\"}} {seconds}\n",
        kepler("package-0", 1.5),
        kepler("dram", 0.1)
    )
}

async fn truth(world: &TestSystem, node: &str) -> Value {
    world.simulator.get(&format!("/state/{node}")).await.unwrap()["state"].clone()
}

async fn twin(world: &TestSystem, node: &str) -> Value {
    objects::get(&world.client, "NodeTwin", node).await.map_or(Value::Null, |twin| twin["status"].clone())
}

/// What Kepler says that a node draws, as its twin has it.
async fn measured(world: &TestSystem, node: &str) -> Option<f64> {
    let power = twin(world, node).await["powerMeasurement"].clone();
    power["measuredNodePowerW"].as_f64().filter(|_| power["source"] == "kepler")
}

/// The score of a node for a standard pod that draws nothing, as kube-scheduler is told; not a number while it is not known.
async fn score(world: &TestSystem, node: &str) -> f64 {
    let page = world.extender.get("/debug/scoring").await.unwrap();
    let found = page["nodes"].as_array().unwrap().iter().find(|one| one["nodeName"] == node);
    found.and_then(|one| one["baseScore"].as_f64()).map_or(f64::NAN, |score| score.clamp(0.0, 100.0))
}

/// Waits until one node is clearly better than the other, and says where the next pod goes.
async fn next(world: &TestSystem, field: &Field, name: &str, [better, worse]: [&str; 2]) -> String {
    let mut seen = (0.0, 0.0);
    let outcome = system::until("the scores differ", PATIENCE, async || {
        seen = (score(world, better).await, score(world, worse).await);
        seen.0 > seen.1 + POINTS
    })
    .await;
    assert!(outcome.is_ok(), "{better} and {worse} have {seen:?}");
    system::tell(&format!("  {better} has {:.0} points, {worse} {:.0}", seen.0, seen.1));
    let mut pod = field::pod(name);
    pod["metadata"]["annotations"] = json!({BUSY: "0"});
    pod["spec"]["nodeSelector"] = json!({NEXT: "yes"});
    field.make(&pod, 1).await.unwrap();
    all_run(&field.pods(), name, 1).await.into_values().next().unwrap()
}

/// The load of a Deployment rises: Kepler and the classifier see it, its WorkloadProfile and the node's twin say it, and the pod
/// that comes next goes to a node that would have been the worse one before. To kube-scheduler itself the two nodes are alike.
pub(crate) async fn a_load_moves_the_next_pod(world: &TestSystem, tools: &Instruments<'_>, field: &Field) {
    let [loaded, calm] = tools.nodes;
    // It asks for as much as all pods of the other node, and draws more than they do while they are idle.
    let mut weight = field::pod("weight");
    weight["metadata"]["annotations"] = json!({BUSY: "30", "sim.joulie.io/cpu-class": "compute_bound"});
    weight["spec"]["nodeName"] = json!(calm);
    weight["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!("166");
    field.make(&weight, 1).await.unwrap();
    let mut idle = None;
    wait("Kepler measures both nodes", async || {
        idle = measured(world, loaded).await;
        idle.zip(measured(world, calm).await).is_some_and(|(loaded, calm)| calm > loaded * 1.2)
    })
    .await;
    assert_eq!(next(world, field, "before", [loaded, calm]).await, loaded);

    let busy = json!({BUSY: "90", "sim.joulie.io/cpu-class": "compute_bound"});
    let busy = json!({"spec": {"template": {"metadata": {"annotations": busy}}}});
    let deployments = api(world, "apps", "v1", "Deployment");
    deployments.patch(GUARDED, &PatchParams::default(), &Patch::Merge(&busy)).await.unwrap();
    wait("the twin has the load by Kepler", async || {
        measured(world, loaded).await.zip(idle).is_some_and(|(now, idle)| now > idle * 1.7)
    })
    .await;
    let mut profile = Value::Null;
    let outcome = system::until("the workload is classified", PATIENCE, async || {
        profile = profile_of(world, GUARDED).await.unwrap_or_default();
        let cpu = &profile["status"]["cpu"];
        cpu["bound"] == "compute"
            && cpu["capSensitivity"] == "high"
            && condition(&profile, "TelemetryFresh")["status"] == "True"
    })
    .await;
    assert!(outcome.is_ok(), "{profile:#}");
    caps_cost_its_pods_points(world, field).await;
    assert_eq!(next(world, field, "after", [calm, loaded]).await, calm);
}

/// The extender takes points off nodes in eco for a pod of the workload.
async fn caps_cost_its_pods_points(world: &TestSystem, field: &Field) {
    let profiles = profiles(world).await;
    let of_it = ListParams::default().labels(&format!("app={GUARDED}"));
    let mut page = Value::Null;
    let outcome = system::until("its cap sensitivity is in the scores", PATIENCE, async || {
        let pods = field.pods().list(&of_it).await.unwrap();
        let Some(pod) = pods.items.first() else { return false };
        let path = format!("/debug/explain?pod={NAMESPACE}/{}", pod.name_any());
        page = world.extender.get(&path).await.unwrap_or_default();
        let nodes = page["nodes"].as_array().cloned().unwrap_or_default();
        let mut eco = nodes.iter().filter(|node| {
            let name = node["nodeName"].as_str().unwrap_or_default();
            name.starts_with("sim-epyc-") && profiles.get(name).is_some_and(|profile| profile == "eco")
        });
        page["capSensitivity"]["cpu"] == "high"
            && eco.clone().count() > 0
            && eco.all(|node| {
                node["scoring"]["terms"]["capSensitivity"].as_f64().is_some_and(|points| points < 0.0)
            })
    })
    .await;
    assert!(outcome.is_ok(), "{page:#}");
}

/// What must not move: what is desired and in force of all nodes, and where the pods are; and what must not become better.
struct Standing {
    wishes: BTreeMap<String, Value>,
    caps: BTreeMap<String, (Value, Value)>,
    places: BTreeMap<String, (u32, u32)>,
    /// Headroom and cooling stress of each simulated node; what is not known counts as the worst.
    twins: BTreeMap<String, (f64, f64)>,
}

impl Standing {
    async fn of(tools: &Instruments<'_>) -> Self {
        let (world, [hot, _]) = (tools.world, tools.nodes);
        let twins = objects::list(&world.client, "NodeTwin").await.unwrap().into_iter().filter_map(|twin| {
            let node = twin["spec"]["nodeName"].as_str().filter(|node| node.starts_with("sim-"))?;
            let headroom = twin["status"]["predictedPowerHeadroomScore"].as_f64().unwrap_or(0.0);
            let cooling = twin["status"]["predictedCoolingStressScore"].as_f64().unwrap_or(100.0);
            Some((node.to_owned(), (headroom, cooling)))
        });
        Self {
            wishes: wishes(world).await,
            caps: caps(world).await,
            places: spread(world, hot).await,
            twins: twins.collect(),
        }
    }

    /// Fails where anything has moved since then, or a node looks better.
    fn stands(&self, then: &Self, what: &str) {
        assert_eq!((&self.wishes, &self.caps), (&then.wishes, &then.caps), "{what}: no cap moves");
        assert_eq!(self.places, then.places, "{what}: no pod moves");
        assert!(self.twins.keys().eq(then.twins.keys()));
        for (node, (headroom, cooling)) in &self.twins {
            let (headroom_then, cooling_then) = then.twins[node];
            assert!(*headroom < headroom_then + INEXACT, "{what}: {node}: {headroom} of {headroom_then}");
            assert!(*cooling > cooling_then - INEXACT, "{what}: {node}: {cooling} of {cooling_then}");
        }
    }
}

/// What both operators have logged since these lengths.
fn logged(world: &TestSystem, since: [usize; 2]) -> ([usize; 2], String) {
    let logs =
        operators().map(|part| std::fs::read(world.control_plane.program_log_file(part.name())).unwrap());
    let new: Vec<&[u8]> = logs.iter().zip(since).map(|(log, since)| &log[since..]).collect();
    let text = String::from_utf8_lossy(&new.concat()).into_owned();
    (logs.map(|log| log.len()), text)
}

/// Prometheus begins to fail in one way: logs, twin, profile and recommendations say so, and for a time nothing moves.
async fn fails(tools: &Instruments<'_>, what: &str, then: &Standing, begin: impl FnOnce()) {
    let (world, [hot, calm]) = (tools.world, tools.nodes);
    let (mark, _) = logged(world, [0, 0]);
    begin();
    let mut seen = Value::Null;
    let outcome = system::until(&format!("all say why: Prometheus {what}"), PATIENCE, async || {
        let (_, log) = logged(world, mark);
        let profile = profile_of(world, GUARDED).await.unwrap_or_default();
        seen = json!({
            "sensors": log.contains(": zone-ambient: "),
            "kepler": log.contains(": kepler-package: "),
            "power": twin(world, hot).await["powerMeasurement"]["source"],
            "profile": condition(&profile, "TelemetryFresh")["reason"],
            "recommended": recommended(world, hot).await.len(),
        });
        seen == json!({"sensors": true, "kepler": true, "power": "agent", "profile": "PrometheusSilent", "recommended": 0})
    })
    .await;
    assert!(outcome.is_ok(), "{what}: {seen:#}");
    let (begun, lasts) = (Instant::now(), looked_on(Duration::from_secs(6)));
    while begun.elapsed() < lasts {
        tokio::time::sleep(Duration::from_millis(500)).await;
        Standing::of(tools).await.stands(then, what);
        let (hot, calm) = (score(world, hot).await, score(world, calm).await);
        assert!(hot + POINTS < calm, "{what}: the hot node has {hot} points, the other one {calm}");
    }
}

/// Prometheus is stopped, answers garbage, and answers half a minute late. A guarded pod that nothing but the sensor keeps stays.
/// When it is back, two answers to each question make everything fresh.
pub(crate) async fn silence_moves_nothing(tools: &Instruments<'_>) {
    let (world, [hot, calm]) = (tools.world, tools.nodes);
    let then = Standing::of(tools).await;
    fails(tools, "is away", &then, || world.control_plane.kill_program(PrometheusServer::NAME)).await;
    let budgets = api(world, "policy", "v1", "PodDisruptionBudget");
    budgets.delete(GUARDED, &Default::default()).await.unwrap();
    fails(tools, "answers garbage", &then, || {
        tools.proxy.is(ProxyMood::Garbage);
        tools.server.start(&world.control_plane).unwrap();
    })
    .await;
    fails(tools, "answers late", &then, || tools.proxy.is(ProxyMood::Slow)).await;

    // Meanwhile it has become warmer everywhere. One replica alone asks.
    tools.degrees.set((50, 35));
    wait("the server knows it", async || tools.knows().await).await;
    let leads = leader(world).await.unwrap();
    operators().into_iter().filter(|part| *part != leads).for_each(|part| world.kill(part));
    tools.proxy.is(ProxyMood::Twice);
    // At 35 °C 70 % of what can be cooled at 20 °C: its stress is by 1/0.7 higher.
    let (_, cooling_then) = then.twins[calm];
    let warmer = cooling_then * 1.2;
    let mut fresh = [false; 3];
    let outcome = system::until("two answers to each question make all fresh", PATIENCE, async || {
        let profile = profile_of(world, GUARDED).await.unwrap_or_default();
        let cooling = twin(world, calm).await["predictedCoolingStressScore"].as_f64();
        fresh[0] |= measured(world, hot).await.is_some();
        fresh[1] |= cooling.is_some_and(|cooling| cooling > warmer);
        fresh[2] |= condition(&profile, "TelemetryFresh")["reason"] == "Measured";
        fresh == [true; 3]
    })
    .await;
    assert!(outcome.is_ok(), "Kepler, sensors, classifier: {fresh:?}");
    tools.proxy.is(ProxyMood::Honest);
}
