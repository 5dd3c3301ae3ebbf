//! All nodes run at full load under a budget, which is cut by a fifth. Once every limit is lowered, the power must
//! not exceed the budget, whichever program is killed meanwhile.
//!
//! The limits are lowered when the operator with the new budget leads and has written, and every agent has applied
//! its limit. From two seconds later, which the power needs to settle, each watt above the budget counts.

use crate::one_node::ORIGINALS;
use crate::outages::leader;
use crate::placement::{NAMESPACE, all_enforced, profiles};
use crate::support::{Sampler, wait};
use install::Helm;
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::ListParams;
use serde_json::{Value, json};
use std::time::Duration;
use system::field::{self, Field};
use system::rights::{self, ProgramAccount};
use system::watt_seconds::{EnergySampler, Stretch};
use system::world::{PATIENCE, RIG, SIMULATED, Shipped, SystemProcess, TestSystem};
use tokio::time::Instant;

/// The sampling interval.
const EVERY: Duration = Duration::from_millis(150);
/// A limit averages over one second, and the power follows with a small delay.
const SETTLES: Duration = Duration::from_secs(2);
/// How long the power is observed after the limits were lowered, including the kills.
const WATCHED: Duration = Duration::from_secs(20);

pub(crate) async fn a_cut_budget_is_kept(world: &TestSystem) {
    load_everything(world).await;
    let rest = rest_watts(world).await;
    operators(world, &[]).await;
    wait("every node at full power", async || profiles(world).await.values().all(|one| one == "performance"))
        .await;
    all_enforced(world).await;
    let full = settled_watts(world, 1.0).await;
    let nodes = f64::from(u32::try_from(SIMULATED).unwrap() + 1);
    system::tell(&format!(
        "  full load draws {full:.0} W, of which at most {:.0} W are no package's and no GPU's",
        rest * nodes
    ));
    let old = full.ceil();
    budgeted(world, old, rest).await;
    let mut meter = EnergySampler::new(world).await.unwrap();
    until_limited(world, &mut meter, old - rest * nodes).await;

    let new = (old * 0.8).floor();
    let cut = Instant::now();
    budgeted(world, new, rest).await;
    let honoured = until_limited(world, &mut meter, new - rest * nodes).await;
    system::tell(&format!(
        "  {old:.0} W → {new:.0} W: every limit is lowered {:.1?} after the cut",
        cut.elapsed()
    ));

    let stretches = watched(world, &mut meter).await;
    let judged: Vec<&Stretch> =
        stretches.iter().filter(|stretch| stretch.from >= honoured + SETTLES).collect();
    let above: f64 = judged.iter().map(|one| (one.watts - new).max(0.0) * one.took.as_secs_f64()).sum();
    let most = judged.iter().map(|one| one.watts).fold(0.0, f64::max);
    let limits = stretches.iter().map(|one| one.limits).fold(0.0, f64::max);
    system::tell(&format!(
        "  {} looks: {above:.1} Ws above {new:.0} W, at most {most:.0} W; limits at most {:.0} W with the rest",
        judged.len(),
        limits + rest * nodes
    ));
    assert!(judged.len() > 20, "{}", judged.len());
    assert!(limits + rest * nodes <= new + 1.0, "limits of {limits} W");
    assert!(above <= f64::EPSILON, "{above} Ws above {new} W");
    // The system must use its budget, and not stay at half of it.
    assert!(most > new * 0.6, "{most} of {new} W");
}

/// The pods of an upgrade, one after the other: each program is ended, and started with what the changed chart gives it.
/// All nodes are at full load under the budget of the story before, which the upgrade lowers by a twentieth. Agents of
/// before carry that out for the new operator, and with `PREVIOUS_PROGRAMS` new agents another cut for the old one.
pub(crate) async fn an_upgrade_lets_no_cap_go(world: &TestSystem) {
    let Some(helm) = Helm::or_skip() else { return };
    let rest = rest_watts(world).await;
    let others = rest * f64::from(u32::try_from(SIMULATED).unwrap() + 1);
    let mut meter = EnergySampler::new(world).await.unwrap();
    meter.look(world).await.unwrap();
    let before = meter.look(world).await.unwrap().unwrap().limits;
    // The story before has killed a leader.
    budgeted(world, before + others, rest).await;
    until_limited(world, &mut meter, before).await;
    all_enforced(world).await;
    let sampler = Sampler::start(&world.registers);
    let mut rollout = Rollout { world, meter, most: 0.0 };

    let installed = changes(&helm, before + others, rest);
    let previous = previous_programs(world);
    if let Some(previous) = &previous {
        rollout.of(&OPERATORS, previous, &installed).await;
        rollout.of(&AGENTS, previous, &installed).await;
        all_enforced(world).await;
    }
    let cut = (before + others) * 0.95;
    let upgraded = changes(&helm, cut, rest);
    rollout.of(&OPERATORS, &world.shipped, &upgraded).await;
    until_limited(world, &mut rollout.meter, cut - others).await;
    rollout.of(&AGENTS, &world.shipped, &upgraded).await;
    all_enforced(world).await;
    let mut end = cut;
    if let Some(previous) = &previous {
        end *= 0.95;
        let back = changes(&helm, end, rest);
        rollout.of(&OPERATORS, previous, &back).await;
        until_limited(world, &mut rollout.meter, end - others).await;
        rollout.of(&OPERATORS, &world.shipped, &back).await;
        all_enforced(world).await;
    }
    let (highest, looks) = sampler.highest().await;
    let most = rollout.most;
    system::tell(&format!(
        "  from {}: limits of {before:.0} W, at most {most:.0} W; the budget {:.0} W → {end:.0} W",
        if previous.is_some() { "the release before" } else { "the same programs" },
        before + others
    ));
    assert!(looks > 100, "{looks}");
    // Watts may move between nodes, but no limit is let go.
    assert!(highest < ORIGINALS[0], "{highest} µW on the virtual hardware");
    assert!(most <= before + 1.0, "limits of {most} W, and {before} W before");
}

const OPERATORS: [(SystemProcess, ProgramAccount); 3] = [
    (SystemProcess::OperatorA, ProgramAccount::Operator),
    (SystemProcess::OperatorB, ProgramAccount::Operator),
    (SystemProcess::Extender, ProgramAccount::Extender),
];
const AGENTS: [(SystemProcess, ProgramAccount); 2] =
    [(SystemProcess::Agent, ProgramAccount::Agent), (SystemProcess::Pool, ProgramAccount::Pool)];

/// Replaces programs one after the other, and keeps the highest sum of all limits.
struct Rollout<'a> {
    world: &'a TestSystem,
    meter: EnergySampler,
    most: f64,
}

impl Rollout<'_> {
    /// With the settings that differ from those of the chart as it comes.
    async fn of(&mut self, parts: &[(SystemProcess, ProgramAccount)], programs: &Shipped, chart: &[Value]) {
        for &(part, account) in parts {
            self.world.end(part).await.unwrap();
            let installed = rights::settings(account).unwrap();
            let mut changed = rights::settings_in(chart, account).unwrap();
            changed.retain(|one| !installed.contains(one));
            assert!(!changed.is_empty(), "{part:?} has no changed value");
            let changed: Vec<(&str, &str)> =
                changed.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
            self.world.run_of(programs, part, &changed).unwrap();
            for _ in 0..20 {
                tokio::time::sleep(EVERY).await;
                let stretch = self.meter.look(self.world).await.unwrap().unwrap();
                self.most = self.most.max(stretch.limits);
            }
        }
    }
}

/// The programs of the release before this one, where a folder with them is named.
#[expect(clippy::disallowed_methods, reason = "what a release is compared with is named from outside")]
fn previous_programs(world: &TestSystem) -> Option<Shipped> {
    let folder = std::path::PathBuf::from(std::env::var_os("PREVIOUS_PROGRAMS")?);
    Some(Shipped {
        agent: folder.join("joulie-agent"),
        operator: folder.join("joulie-operator"),
        extender: folder.join("joulie-extender"),
        ..world.shipped.clone()
    })
}

/// The objects of a chart with values that are changed for each program.
fn changes(helm: &Helm, watts: f64, rest: f64) -> Vec<Value> {
    let operator = [
        "STATIC_HP_FRAC=1".to_owned(),
        "BUDGET_DEAD_BAND_WATTS=1".to_owned(),
        format!("BUDGET_SITE_WATTS={watts:.0}"),
        format!("BUDGET_NODE_REST_WATTS={rest:.0}"),
    ];
    let mut flags = vec![
        "--set".to_owned(),
        "agent.mode=both,agent.env.RECONCILE_INTERVAL=2s,agent.env.LEASE_SOURCE=plan".to_owned(),
    ];
    flags.extend(["--set".to_owned(), "schedulerExtender.env.LOG_FORMAT=json".to_owned()]);
    for variable in operator {
        flags.extend(["--set-string".to_owned(), format!("operator.env.{variable}")]);
    }
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    install::objects(&helm.template("chart", &flags).unwrap()).unwrap()
}

/// Creates a pod on every simulated node that uses all of it. The node on virtual hardware is always at full load.
async fn load_everything(world: &TestSystem) {
    let field = Field::new(&world.client, NAMESPACE).await.unwrap();
    field.clear().await.unwrap();
    let nodes: Api<Node> = Api::all(world.client.clone());
    for node in nodes.list(&ListParams::default()).await.unwrap() {
        let name = node.metadata.name.unwrap();
        if name == RIG {
            continue;
        }
        let capacity = node.status.unwrap().capacity.unwrap();
        let mut asks = json!({"cpu": capacity["cpu"].0});
        for (resource, much) in capacity.iter().filter(|(resource, _)| resource.ends_with("/gpu")) {
            asks[resource] = json!(much.0);
        }
        let mut pod = field::pod(&format!("load-{name}"));
        pod["metadata"]["annotations"] = json!({
            "sim.joulie.io/cpu-class": "compute_bound",
            "sim.joulie.io/cpu-util-pct": "100",
            "sim.joulie.io/gpu-class": "compute_bound",
            "sim.joulie.io/gpu-util-pct": "100",
        });
        pod["spec"]["nodeName"] = json!(name);
        pod["spec"]["containers"][0]["resources"] = json!({"requests": asks, "limits": asks});
        field.make(&pod, 1).await.unwrap();
    }
    crate::placement::all_run(&field.pods(), "load", u32::try_from(SIMULATED).unwrap()).await;
}

/// The highest power of any node outside its packages and GPUs.
pub(crate) async fn rest_watts(world: &TestSystem) -> f64 {
    let listed = world.simulator.get("/nodes").await.unwrap();
    // That of the virtual hardware, from its preset.
    let mut most: f64 = RIG_REST_WATTS;
    for name in listed["nodes"].as_array().unwrap() {
        let state = world.simulator.get(&format!("/state/{}", name.as_str().unwrap())).await.unwrap();
        let telemetry = &state["state"]["telemetry"];
        let read = |part: &Value| part.as_f64().unwrap();
        let rest = read(&telemetry["nodePowerWatts"]) - read(&telemetry["instantPackagePowerWatts"]);
        most = most.max(rest);
    }
    most.ceil()
}

const RIG_REST_WATTS: f64 = 0.0;

/// Starts both operators with the same variables, one after the other, as a rollout does.
pub(crate) async fn operators(world: &TestSystem, variables: &[(&str, &str)]) {
    let mut all = vec![("STATIC_HP_FRAC", "1"), ("BUDGET_DEAD_BAND_WATTS", "1")];
    all.extend_from_slice(variables);
    for part in [SystemProcess::OperatorA, SystemProcess::OperatorB] {
        world.kill(part);
    }
    for part in [SystemProcess::OperatorA, SystemProcess::OperatorB] {
        world.run(part, &all).unwrap();
    }
    wait("a leader", async || leader(world).await.is_some()).await;
}

pub(crate) async fn budgeted(world: &TestSystem, watts: f64, rest: f64) {
    let (watts, rest) = (format!("{watts:.0}"), format!("{rest:.0}"));
    operators(world, &[("BUDGET_SITE_WATTS", &watts), ("BUDGET_NODE_REST_WATTS", &rest)]).await;
}

/// The total power once it is steady.
async fn settled_watts(world: &TestSystem, within_percent: f64) -> f64 {
    let mut meter = EnergySampler::new(world).await.unwrap();
    meter.look(world).await.unwrap();
    let mut before = 0.0;
    let begun = Instant::now();
    loop {
        tokio::time::sleep(Duration::from_secs(2)).await;
        let now = meter.look(world).await.unwrap().unwrap().watts;
        if (now - before).abs() <= now * within_percent / 100.0 {
            return now;
        }
        assert!(begun.elapsed() < PATIENCE, "{before} W, then {now} W");
        before = now;
    }
}

/// Waits until the sum of all limits is at most this, and returns the time.
pub(crate) async fn until_limited(world: &TestSystem, meter: &mut EnergySampler, watts: f64) -> Instant {
    let mut seen = f64::INFINITY;
    let outcome = system::until("the limits", PATIENCE, async || {
        if let Some(stretch) = meter.look(world).await.unwrap() {
            seen = stretch.limits;
        }
        seen <= watts + 1.0
    })
    .await;
    assert!(outcome.is_ok(), "limits of {seen} W, and not of {watts} W");
    Instant::now()
}

/// Samples for a while, during which the agents are restarted and the leader is killed.
async fn watched(world: &TestSystem, meter: &mut EnergySampler) -> Vec<Stretch> {
    let begun = Instant::now();
    let mut stretches = Vec::new();
    let mut kills = [SystemProcess::Agent, SystemProcess::Pool, leader(world).await.unwrap()].into_iter();
    while begun.elapsed() < WATCHED {
        tokio::time::sleep(EVERY).await;
        stretches.extend(meter.look(world).await.unwrap());
        let due = begun.elapsed() >= WATCHED / 8 * (4 - u32::try_from(kills.len()).unwrap());
        if let Some(part) = due.then(|| kills.next()).flatten() {
            system::tell(&format!("  {} is killed", part.name()));
            world.kill(part);
            if matches!(part, SystemProcess::Agent | SystemProcess::Pool) {
                world.run(part, &[]).unwrap();
            }
        }
    }
    stretches
}
