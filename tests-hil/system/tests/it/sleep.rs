//! A day in less than two minutes: 20 simulated nodes behind one limit, pods that come by night and by day, and an operator that
//! switches empty nodes off and on through the simulator's Redfish service. The real kube-scheduler packs them by
//! `SCORING_FORMULA=consolidate`.
//!
//! Every pod is done, no machine goes off with a pod on it, what all machines may draw is never above the limit, and the day costs
//! less than without sleep. What it would have cost without is computed from the same machines: their boots taken off, and what each
//! draws while it is on and idle put in the place of what it drew while it was off or booting. The pods are the same in both; without sleep
//! they would wait less.

use crate::budget::operators;
use crate::placement::NAMESPACE;
use crate::support::wait;
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use system::field::{self, Field};
use system::objects;
use system::world::{PATIENCE, SIMULATED, SystemProcess, TestSystem};
use tokio::time::Instant;

/// A second stands for half an hour.
const EVERY: Duration = Duration::from_millis(200);
/// No pod of a day waits and runs longer in all.
const DONE_WITHIN: Duration = Duration::from_secs(120);
/// By night this many of the 20 nodes sleep at least: one of each kind of GPU stays awake, and a node that has a pod.
const ASLEEP_LEAST: usize = 14;

/// The times of a site in seconds where it has minutes.
const SLEEP: [(&str, &str); 14] = [
    ("SLEEP", "on"),
    ("SLEEP_POLL", "1s"),
    ("SLEEP_IDLE_FOR", "2s"),
    ("SLEEP_MIN_ON", "1s"),
    ("SLEEP_SETTLE", "1s"),
    ("SLEEP_WAKE_TAKES", "1s"),
    ("SLEEP_WAKE_WITHIN", "40s"),
    ("SLEEP_OFF_WITHIN", "40s"),
    ("SLEEP_WARM_QUANTILE", "0.5"),
    ("SLEEP_STANDBY_WATTS", "12"),
    ("SLEEP_SLEEPS_AT_ONCE", "20"),
    ("SLEEP_WAKES_AT_ONCE", "20"),
    ("BUDGET_RAISE_DWELL", "1s"),
    ("RECONCILE_INTERVAL", "1s"),
];
const MACHINES: [(&str, &str); 5] = [
    // Its Redfish service is reached without TLS, so that no token can be shown there.
    ("SIM_TOKEN_FILE", ""),
    ("SIM_STOP_TAKES", "1s"),
    ("SIM_BOOT_TAKES", "1s"),
    ("SIM_STANDBY_WATTS", "12"),
    ("SIM_HEARTBEAT", "5s"),
];

/// A machine at one moment, as it is and not as anybody reports it.
#[derive(Clone, Debug)]
struct Truth {
    power: String,
    /// What it may draw: its limits, and what it draws beside what they limit.
    may_draw: f64,
    draws: f64,
    joules: f64,
    off: (f64, f64),
    booting: (f64, f64),
    lost: u64,
}

impl Truth {
    fn of(state: &Value) -> Self {
        let state = &state["state"];
        let (telemetry, cpu, gpu) =
            (&state["telemetry"], &state["telemetry"]["cpu"], &state["telemetry"]["gpu"]);
        let read = |value: &Value| value.as_f64().unwrap();
        let power = state["power"].as_str().unwrap().to_owned();
        let draws = read(&telemetry["nodePowerWatts"]);
        let beside = draws - read(&telemetry["instantPackagePowerWatts"]);
        let limits = read(&cpu["capWatts"]) * read(&cpu["sockets"])
            + gpu["capWattsPerGpuApplied"].as_f64().unwrap_or(0.0) * gpu["count"].as_f64().unwrap_or(0.0);
        Self {
            may_draw: if power == "off" { draws } else { limits + beside },
            power,
            draws,
            joules: read(&state["joules"]),
            off: (read(&state["offSeconds"]), read(&state["offJoules"])),
            booting: (read(&state["bootSeconds"]), read(&state["bootJoules"])),
            lost: state["lostPods"].as_u64().unwrap(),
        }
    }
}

async fn truth(world: &TestSystem) -> BTreeMap<String, Truth> {
    let listed = world.simulator.get("/nodes").await.unwrap();
    let names: Vec<String> =
        listed["nodes"].as_array().unwrap().iter().map(|name| name.as_str().unwrap().to_owned()).collect();
    futures::stream::iter(names)
        .map(|name| async move {
            let state = world.simulator.get(&format!("/state/{name}")).await?;
            Ok::<_, system::SystemError>((name, Truth::of(&state)))
        })
        .buffered(20)
        .try_collect()
        .await
        .unwrap()
}

/// What was seen of the day, at every look.
struct Day<'a> {
    world: &'a TestSystem,
    pods: Api<Pod>,
    limit: f64,
    /// The most that all machines might draw together, and did.
    most: (f64, f64),
    asleep_most: usize,
    looks: u32,
    phases: BTreeSet<String>,
}

impl Day<'_> {
    /// Looks at all machines and pods; returns how many machines are off, and how many pods are done.
    async fn look(&mut self) -> (usize, usize) {
        // The pods first: a node on which a pod was seen does not go off at once, but one that boots may get a pod at once.
        let pods = self.pods.list(&ListParams::default()).await.unwrap().items;
        let all = truth(self.world).await;
        let sum = |of: fn(&Truth) -> f64| all.values().map(of).sum::<f64>();
        let (may, does) = (sum(|one| one.may_draw), sum(|one| one.draws));
        assert!(may <= self.limit + 1.0, "{may} W may be drawn, the limit is {} W: {all:#?}", self.limit);
        self.most = (self.most.0.max(may), self.most.1.max(does));
        let phase =
            |pod: &Pod| pod.status.as_ref().and_then(|status| status.phase.clone()).unwrap_or_default();
        for pod in pods.iter().filter(|pod| !matches!(phase(pod).as_str(), "Succeeded" | "Failed")) {
            let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_ref());
            if let Some(node) = node.filter(|node| all.get(*node).is_some_and(|one| one.power != "on")) {
                panic!("{node} is {}, and {:?} is bound to it", all[node].power, pod.metadata.name);
            }
        }
        let lost: u64 = all.values().map(|one| one.lost).sum();
        assert_eq!(lost, 0, "pods were on machines that went off");
        let off = all.values().filter(|one| one.power == "off").count();
        self.asleep_most = self.asleep_most.max(off);
        self.looks += 1;
        (off, pods.iter().filter(|pod| phase(pod) == "Succeeded").count())
    }

    /// Looks until something is so.
    async fn until(&mut self, what: &str, within: Duration, is_so: impl Fn(usize, usize) -> bool) {
        let begun = Instant::now();
        loop {
            let (off, done) = self.look().await;
            if is_so(off, done) {
                system::tell(&format!(
                    "  {what}: {:.1?}; {off} machines off, {done} pods done",
                    begun.elapsed()
                ));
                return;
            }
            assert!(begun.elapsed() < within, "in vain: {what}; {off} machines off, {done} pods done");
            tokio::time::sleep(EVERY).await;
        }
    }

    /// No node was left to people.
    async fn marks(&mut self) {
        let nodes: Api<Node> = Api::all(self.world.client.clone());
        for node in nodes.list(&ListParams::default()).await.unwrap() {
            let mark = node.metadata.annotations.unwrap_or_default().remove("joulie.io/sleep-state");
            self.phases.extend(mark.and_then(|mark| mark.split_whitespace().next().map(str::to_owned)));
        }
        assert!(!self.phases.contains("left"), "{:?}", self.phases);
    }
}

/// Pods that run for this long at full speed.
async fn arrive(field: &Field, name: &str, count: u32, (asks, seconds): (Value, u32)) {
    let mut pod = field::pod(name);
    pod["metadata"]["annotations"] = json!({"sim.joulie.io/duration": format!("{seconds}s")});
    pod["spec"]["containers"][0]["resources"] = json!({"requests": asks, "limits": asks});
    pod["spec"]["nodeSelector"] = json!({"joulie.io/simulated": "true"});
    field.make(&pod, count).await.unwrap();
}

async fn label_all(world: &TestSystem, value: Option<&str>) {
    let nodes: Api<Node> = Api::all(world.client.clone());
    let simulated = ListParams::default().labels("joulie.io/simulated=true");
    for node in nodes.list(&simulated).await.unwrap() {
        let patch = Patch::Merge(json!({"metadata": {"labels": {"joulie.io/sleep": value}}}));
        nodes.patch(&node.metadata.name.unwrap(), &PatchParams::default(), &patch).await.unwrap();
    }
}

/// Where the power of each machine is switched.
fn controllers(world: &TestSystem, names: impl Iterator<Item = String>) -> String {
    let address = world.simulator.address();
    let entry =
        |name: String| format!("  {name}: {{redfish: 'http://{address}/redfish/v1/Systems/{name}'}}\n");
    let file = world.control_plane.folder().join("controllers.yaml");
    std::fs::write(&file, format!("nodes:\n{}", names.map(entry).collect::<String>())).unwrap();
    file.to_string_lossy().into_owned()
}

/// Waits until no node has a mark.
async fn all_wake(world: &TestSystem) {
    let nodes: Api<Node> = Api::all(world.client.clone());
    let mut marked = BTreeMap::new();
    let outcome = system::until("all are awake", PATIENCE, async || {
        let all = nodes.list(&ListParams::default()).await.unwrap();
        let mark = |node: Node| {
            let mut notes = node.metadata.annotations.unwrap_or_default();
            Some((node.metadata.name?, notes.remove("joulie.io/sleep-state")?))
        };
        marked = all.into_iter().filter_map(mark).collect();
        marked.is_empty()
    })
    .await;
    let log = [SystemProcess::OperatorA, SystemProcess::OperatorB]
        .map(|part| world.control_plane.program_log(part.name()));
    assert!(outcome.is_ok(), "{marked:#?}\n{}", log.concat());
}

pub(crate) async fn empty_nodes_sleep_through_a_day(world: &TestSystem) {
    let field = Field::new(&world.client, NAMESPACE).await.unwrap();
    field.clear().await.unwrap();
    world.run(SystemProcess::Simulator, &MACHINES).unwrap();
    wait("the machines are there", async || world.simulator.answers("/nodes").await).await;
    let idle = truth(world).await;
    assert_eq!(idle.len(), SIMULATED);
    let rest = idle.values().map(|one| one.may_draw).sum::<f64>();
    // At their highest limits all machines together may draw a third more than that.
    let limit = (rest * 0.75).floor();
    let beside = crate::budget::rest_watts(world).await.to_string();
    let file = controllers(world, idle.keys().cloned());
    let mut variables: Vec<(&str, &str)> = SLEEP.to_vec();
    variables.extend([("SLEEP_BMC_FILE", file.as_str()), ("BUDGET_NODE_REST_WATTS", &beside)]);
    world.run(SystemProcess::Extender, &[("SCORING_FORMULA", "consolidate")]).unwrap();
    let spec = json!({"watts": limit, "mode": "enforce",
        "nodeSelector": {"matchLabels": {"joulie.io/simulated": "true"}}});
    objects::write(&world.client, "PowerBudget", "day", spec).await.unwrap();
    // No node may sleep yet, so that the day begins with all of them awake below the limit.
    operators(world, &variables).await;
    wait("the limit is in force", async || {
        truth(world).await.values().map(|one| one.may_draw).sum::<f64>() <= limit
    })
    .await;
    wait("the extender is ready", async || world.extender.answers("/readyz").await).await;

    label_all(world, Some("true")).await;
    let begin = truth(world).await;
    let begun = Instant::now();
    let mut day = Day {
        world,
        pods: field.pods(),
        limit,
        most: (0.0, 0.0),
        asleep_most: 0,
        looks: 0,
        phases: BTreeSet::new(),
    };
    let mut made = 0;
    for number in 0..crate::support::days() {
        let name = |part: &str| format!("{part}-{number}");
        // By night a few small pods run, and the empty nodes go to sleep.
        arrive(&field, &name("night"), 2, (json!({"cpu": "4", "memory": "1Gi"}), 8)).await;
        made += 2;
        let wanted = made;
        day.until("by night nodes sleep", DONE_WITHIN, |off, done| off >= ASLEEP_LEAST && done >= wanted)
            .await;
        day.marks().await;
        // By day more comes than what is awake has room for, on processors and on GPUs.
        let gpus = json!({"cpu": "16", "memory": "16Gi", "nvidia.com/gpu": "8"});
        arrive(&field, &name("day"), 40, (json!({"cpu": "32", "memory": "8Gi"}), 6)).await;
        arrive(&field, &name("train"), 2, (gpus, 6)).await;
        made += 42;
        let wanted = made;
        day.until("by day all pods are done", DONE_WITHIN, |_, done| done >= wanted).await;
        day.marks().await;
        day.until("in the evening nodes sleep again", DONE_WITHIN, |off, _| off >= ASLEEP_LEAST).await;
    }
    day.marks().await;
    let end = truth(world).await;
    let (took, seen) = (begun.elapsed(), day.phases.clone());
    let (mut with, mut without, mut woken) = (0.0, 0.0, 0);
    for (name, end) in &end {
        let (begin, idle) = (&begin[name], &idle[name]);
        let spent = |of: fn(&Truth) -> (f64, f64)| (of(end).0 - of(begin).0, of(end).1 - of(begin).1);
        let (off, booting) = (spent(|one| one.off), spent(|one| one.booting));
        let own = end.joules - begin.joules;
        with += own;
        without += own - off.1 - booting.1 + idle.draws * (off.0 + booting.0);
        woken += usize::from(booting.0 > 0.0);
    }
    let (most_may, most_does) = day.most;
    system::tell(&format!(
        "  {made} pods done in {took:.1?}; up to {} of {SIMULATED} machines off, {woken} woken; {:.0} kJ with sleep, {:.0} kJ without ({:.0} %); {} looks: at most {most_may:.0} W may be drawn and {most_does:.0} W are, of {limit:.0} W; phases seen {seen:?}",
        day.asleep_most,
        with / 1e3,
        without / 1e3,
        100.0 * with / without,
        day.looks,
    ));
    assert!(day.asleep_most >= ASLEEP_LEAST && woken >= 2, "{woken} of {} were woken", day.asleep_most);
    assert!(with < without, "{with} J with sleep, {without} J without");

    // The stories that follow have the settings of the chart, and all nodes are awake. Under the day's limit few could be
    // woken at a time. A node that was told to go off, and does not go, is known to be awake once this time is over.
    objects::delete(&world.client, "PowerBudget", "day").await.unwrap();
    operators(world, &[&variables[..], &[("SLEEP", "off"), ("SLEEP_OFF_WITHIN", "10s")][..]].concat()).await;
    all_wake(world).await;
    label_all(world, None).await;
    field.clear().await.unwrap();
    world.run(SystemProcess::Simulator, &[]).unwrap();
    world.run(SystemProcess::Extender, &[]).unwrap();
    operators(world, &[]).await;
    wait("no grant is left", async || {
        objects::list(&world.client, "NodePowerGrant").await.unwrap().is_empty()
    })
    .await;
}
