//! A burst of 200 pods: placed by watts, and only on permitted nodes.

use crate::placement::{CLASS, NAMESPACE, all_run, profiles};
use crate::support::wait;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;
use system::field::{self, Field};
use system::world::TestSystem;

/// The pods of the burst, with eight processors each, and how many of them are performance pods.
const BURST: u32 = 200;
const FAST: u32 = 50;
/// The candidate nodes. GPU nodes are left out: compared with the headroom of eight idle GPUs a pod needs very
/// little, so they would rightly take all pods.
const NODES: usize = 16;
/// The most attempts.
const TRIES: usize = 3;

/// Equal nodes, with values computed by hand from their hardware: idle packages draw 18 % of their design power, and
/// the rest of a machine 80 W; eco is 60 % of the highest limits. A pod counts with 0.7 of its share of the
/// processors' highest power, and a hundredth of that for its GiB of memory.
#[derive(Clone, Copy, Debug)]
struct Like {
    idle_watts: f64,
    cap_watts: f64,
    pod_watts: f64,
}

impl Like {
    /// The values of a node with this name and profile.
    fn of(node: &str, profile: &str) -> Self {
        // 2 × EPYC 9654 of 360 W, at most 400 W, 384 processors: 0.18 · 720 + 80 and 1.01 · 0.7 · 8/384 · 800.
        // 2 × Xeon Gold 6530 of 270 W, 128 processors: 0.18 · 540 + 80 and 1.01 · 0.7 · 8/128 · 540.
        let (idle_watts, most, pod_watts) =
            if node.starts_with("sim-epyc-") { (209.6, 800.0, 11.78) } else { (177.2, 540.0, 23.86) };
        Self { idle_watts, cap_watts: if profile == "eco" { 0.6 * most } else { most }, pod_watts }
    }

    /// The number of pods that fit under its cap.
    fn room(self) -> f64 {
        (self.cap_watts - self.idle_watts) / self.pod_watts
    }

    /// The accepted difference in the number of pods: two points, because points are integers and one of several best
    /// nodes is offered with one point more; the pod that causes the difference; one pod that is expected; and the
    /// dead-band of a twin's draw, a twentieth. A point is a hundredth of the cap divided by 0.7.
    fn apart(self) -> f64 {
        (2.0 * self.cap_watts / 70.0 + self.idle_watts / 20.0) / self.pod_watts + 2.0
    }
}

/// The placement of the burst on equal nodes.
struct Outcome {
    like: Like,
    /// The number of pods on each node; 0 for an unused one.
    pods: Vec<u32>,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Like { idle_watts, cap_watts, pod_watts } = self.like;
        write!(f, "{:?} pods of {pod_watts} W on nodes of {cap_watts} W, idle {idle_watts} W", self.pods)
    }
}

/// Checks that the assumed watts of no node exceed its cap, no performance pod is on an eco node, every permitted
/// node has pods, and equal nodes have nearly the same number. Upstream's scores place a burst on a few nodes,
/// because they ignore the pods that were just placed. These pods draw no power, like pods that are starting: the
/// measurement does not change, and only the assumed watts account for them.
///
/// How many nodes must be used follows from the score, which is 0.7 points for a hundredth of headroom, plus 10 for a
/// standard pod on an eco node:
///
/// | idle | 0.7 · headroom | a pod takes |
/// |---|---|---|
/// | EPYC, performance | 51.7 | 1.0 |
/// | EPYC, eco | 39.4 + 10 | 1.7 |
/// | Xeon, performance | 47.0 | 3.1 |
/// | Xeon, eco | 31.7 + 10 | 5.2 |
///
/// For a standard pod a performance node has 8 points less, because a quarter of the performance capacity is used,
/// and a warm Xeon has 1 point less. So an idle Xeon is at most 12 points behind an idle EPYC, and its first pod
/// costs at most 5 points. When the EPYCs have lost 17 points, which takes 17 pods on each of five performance nodes
/// and 10 on each of three eco nodes, every Xeon has its first pod: 123 pods in all. The other plugins of
/// kube-scheduler also prefer the emptier node.
///
/// An answer counts once the extender's watch has reported its pod. On a busy machine that watch may be interrupted
/// for half a second, and pods that are placed meanwhile do not count until it is back. So a burst that is not spread
/// is repeated, at most twice.
pub(crate) async fn a_burst_spreads(world: &TestSystem) {
    let mut judgement = Ok(());
    for _ in 0..TRIES {
        judgement = spread(&burst(world).await);
        match &judgement {
            Ok(()) => break,
            Err(why) => system::tell(&format!("  again: {why}")),
        }
    }
    judgement.unwrap();
}

async fn burst(world: &TestSystem) -> Vec<Outcome> {
    let field = Field::new(&world.client, NAMESPACE).await.unwrap();
    field.clear().await.unwrap();
    wait("no pod is assumed on a simulated node", async || {
        let page = world.extender.get("/debug/scoring").await.unwrap();
        simulated(&page).all(|node| node["assumedPowerW"] == 0.0)
    })
    .await;
    let standard = pod("standard", "standard");
    let fast = pod("fast", "performance");
    let made = tokio::join!(field.make(&standard, BURST - FAST), field.make(&fast, FAST));
    made.0.unwrap();
    made.1.unwrap();
    let mut nodes = all_run(&field.pods(), "standard", BURST - FAST).await;
    let fast = all_run(&field.pods(), "fast", FAST).await;
    let profiles = profiles(world).await;
    assert!(fast.values().all(|node| profiles[node] == "performance"), "{fast:?} of {profiles:?}");
    nodes.extend(fast);
    let outcomes = outcomes(&nodes, &profiles);
    for outcome in &outcomes {
        system::tell(&format!("  {outcome}"));
    }
    field.clear().await.unwrap();
    tokio::time::sleep(Duration::from_millis(500)).await;
    let all = || outcomes.iter().flat_map(|outcome| &outcome.pods);
    assert_eq!(all().sum::<u32>(), BURST, "none is elsewhere");
    outcomes
}

fn simulated(page: &Value) -> impl Iterator<Item = &Value> {
    let nodes = page["nodes"].as_array().unwrap().iter();
    nodes.filter(|node| node["nodeName"].as_str().unwrap().starts_with("sim-"))
}

fn pod(name: &str, class: &str) -> Value {
    let mut pod = field::pod(name);
    pod["metadata"]["annotations"] = json!({CLASS: class, "sim.joulie.io/cpu-util-pct": "0"});
    pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!("8");
    pod["spec"]["affinity"] = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": [{"matchExpressions": [
            {"key": "joulie.io/hw.kind", "operator": "In", "values": ["xeon", "epyc"]},
        ]}],
    }}});
    pod
}

/// The candidates, grouped by equal nodes.
fn outcomes(nodes: &BTreeMap<String, String>, profiles: &BTreeMap<String, String>) -> Vec<Outcome> {
    let mut outcomes: BTreeMap<(&str, &str), Outcome> = BTreeMap::new();
    for (node, profile) in profiles {
        let Some(kind) = ["sim-epyc-", "sim-xeon-"].into_iter().find(|kind| node.starts_with(kind)) else {
            continue;
        };
        let pods = nodes.values().filter(|on| *on == node).count();
        let new = || Outcome { like: Like::of(node, profile), pods: Vec::new() };
        outcomes.entry((kind, profile)).or_insert_with(new).pods.push(u32::try_from(pods).unwrap());
    }
    outcomes.into_values().collect()
}

fn spread(outcomes: &[Outcome]) -> Result<(), String> {
    let all = || outcomes.iter().flat_map(|outcome| &outcome.pods);
    let used = all().filter(|pods| **pods > 0).count();
    if (all().count(), used) != (NODES, NODES) {
        return Err(format!("{used} nodes are used, of {NODES}"));
    }
    for outcome in outcomes {
        let pods = || outcome.pods.iter().copied().map(f64::from);
        let (least, most) = (pods().fold(f64::INFINITY, f64::min), pods().fold(0.0, f64::max));
        let (room, apart) = (outcome.like.room(), outcome.like.apart());
        if most > room {
            return Err(format!("over its cap, which holds {room:.1} pods: {outcome}"));
        }
        if most - least > apart {
            return Err(format!("like nodes are more than {apart:.1} pods apart: {outcome}"));
        }
    }
    Ok(())
}
