//! A burst of equal performance pods and its placement: by the default scheduler, by the extender's scores alone, with
//! `POWER_FIT=filter`, and with `SHORTLIST=all`. With an extender none may be on an eco or a draining node.

use super::contender::Contender;
use super::{BenchPrograms, Size, twins};
use crate::field::{self, Field, Placed};
use crate::{SystemError, until};
use cluster::{Component, ControlPlane, NodeForm, Scheduler};
use serde_json::json;
use std::net::SocketAddr;
use std::time::Duration;

const PODS: u32 = 1_000;
/// The estimate: 0.7 · 8 of 64 processors · 500 W.
const POD_WATTS: f64 = 43.75;
const PATIENCE: Duration = Duration::from_secs(240);
/// How long the extender's watch may lag behind the scheduler.
const SEEN_WITHIN: Duration = Duration::from_secs(10);

/// The placement of a burst.
struct Outcome {
    how: &'static str,
    placed: Placed,
    /// The total watts that the extender assumes, if it was asked.
    assumed: Option<f64>,
}

/// Runs the bursts one after the other, and prints the table.
pub(super) async fn run(
    control_plane: &ControlPlane,
    programs: &BenchPrograms,
    size: Size,
) -> Result<(), SystemError> {
    let field = Field::new(&control_plane.client().await?, "burst").await?;
    let ours = Contender::Ours(NodeForm::Names);
    let mut outcomes = Vec::new();
    for (how, contender, fit) in [
        ("default scheduler", Contender::Nobody, "score"),
        ("scores alone", ours, "score"),
        ("POWER_FIT=filter", ours, "filter"),
        ("SHORTLIST=all", Contender::Short("all"), "score"),
    ] {
        control_plane.stop(Component::Scheduler);
        field.clear().await?;
        field.make(&pod(), PODS).await?;
        let asked = contender.start(control_plane, programs, &[("POWER_FIT", fit)]).await?;
        // The default configuration, in which kube-scheduler scores only a part of the nodes.
        let scheduler = Scheduler { percentage_of_nodes_to_score: None, ..asked.scheduler };
        let begin = async || Ok(control_plane.start_scheduler(&scheduler)?);
        let placed = field.placed(PODS, PATIENCE, begin).await?;
        let assumed = match asked.at {
            Some(at) => Some(assumed(at, placed.count()).await?),
            None => None,
        };
        outcomes.push(Outcome { how, placed, assumed });
    }
    print(size, &outcomes);
    Ok(())
}

fn pod() -> serde_json::Value {
    let mut pod = field::pod("burst");
    pod["metadata"]["annotations"] = json!({"joulie.io/workload-class": "performance"});
    pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!("8");
    pod
}

/// The total watts that the extender assumes once it has seen this many bound pods, or at the time limit.
async fn assumed(at: SocketAddr, count: u32) -> Result<f64, SystemError> {
    let http = crate::http::at(at)?;
    let mut page = serde_json::Value::Null;
    let seen = async || match http.get("/debug/scoring").await {
        Ok(now) => {
            page = now;
            page["cluster"]["assumedPods"] == count
        }
        Err(_) => false,
    };
    // The sum shows whether the wait succeeded.
    let _ = until("every pod is assumed", SEEN_WITHIN, seen).await;
    let nodes = page["nodes"].as_array().into_iter().flatten();
    Ok(nodes.filter_map(|node| node["assumedPowerW"].as_f64()).sum())
}

fn number(node: &str) -> u32 {
    node.strip_prefix("node-").and_then(|number| number.parse().ok()).unwrap_or_default()
}

fn print(size: Size, outcomes: &[Outcome]) {
    println!(
        "\n### {PODS} like performance pods of {POD_WATTS} W on {} nodes, a quarter of them eco or draining\n",
        size.nodes
    );
    println!(
        "| by | bound | nodes used | assumed W a node, mean ± deviation, most | nodes over the cap | most over it, in pods | on eco or draining nodes | the extender's own sum |"
    );
    println!("|---|---|---|---|---|---|---|---|");
    let mut barred = Vec::new();
    for Outcome { how, placed, assumed } in outcomes {
        let pods = |number: u32| placed.by_node.get(&format!("node-{number}")).copied().unwrap_or_default();
        let watts: Vec<f64> = (0..size.nodes).map(|node| f64::from(pods(node)) * POD_WATTS).collect();
        let count = f64::from(size.nodes);
        let mean = watts.iter().sum::<f64>() / count;
        let deviation =
            (watts.iter().map(|watts| (watts - mean) * (watts - mean)).sum::<f64>() / count).sqrt();
        let over = (0..size.nodes).zip(&watts).map(|(node, watts)| {
            f64::from(twins::measured_watts(node)) + watts - f64::from(twins::CAP_WATTS)
        });
        let over: Vec<f64> = over.filter(|over| *over > 0.0).collect();
        let wrong = placed.by_node.iter().filter(|(node, _)| !twins::takes_performance(number(node)));
        let misplaced: u32 = wrong.map(|(_, pods)| pods).sum();
        if assumed.is_some() {
            barred.push((how.to_ascii_lowercase().replace([' ', '='], "_"), placed.count(), misplaced));
        }
        let own = assumed.map_or("–".to_owned(), |assumed| format!("{assumed:.0} W"));
        println!(
            "| {how} | {} | {} | {mean:.0} ± {deviation:.0}, {:.0} | {} | {:.1} | {misplaced} | {own} |",
            placed.count(),
            placed.by_node.len(),
            watts.iter().copied().fold(0.0, f64::max),
            over.len(),
            over.iter().copied().fold(0.0, f64::max) / POD_WATTS,
        );
    }
    println!();
    for (how, bound, misplaced) in barred {
        // Pods that are not bound are nowhere wrong: they are no pass.
        let verdict = if misplaced == 0 && bound == PODS { "PASS" } else { "FAIL" };
        println!("BAR scheduler_misplaced_performance_pods_{how} {misplaced} 0 {verdict}");
    }
}
