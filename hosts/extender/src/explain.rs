//! `/debug/scoring`: why nodes score as they do.
//!
//! `GET` tells of every node, in the words of upstream's page and some more. `POST` with a request of kube-scheduler's
//! tells what would become of that pod on each of its candidates, term by term.

use crate::decide::{self, Asked, candidates};
use crate::scan::{Malformed, Message, text};
use crate::settings::Placement;
use crate::snapshot::{Node, Snapshot};
use host_kit::clock::Mono;
use joulie_core::placement::estimate::Setting;
use joulie_core::placement::filter::PowerFit;
use joulie_core::placement::freshness::Freshness;
use joulie_core::placement::score::{Breakdown, Budget, Known, Placement as Why};
use serde_json::{Map, Value, json};
use std::fmt::Display;

/// A number that can be shown, as JSON has it.
fn number(value: impl Display) -> Value {
    let value: Option<f64> = value.to_string().parse().ok();
    value.map_or(Value::Null, Value::from)
}

fn maybe(value: Option<impl Display>) -> Value {
    value.map_or(Value::Null, number)
}

/// What holds for all nodes.
fn head(snapshot: &Snapshot, placement: &Placement, now: Mono) -> Map<String, Value> {
    let coefficients = &placement.scoring.coefficients;
    let cluster = snapshot.fleet.cluster.as_ref();
    let mut head = Map::new();
    head.insert(
        "coefficients".to_owned(),
        json!({
            "cpuUtilCoeff": number(coefficients.get(Setting::Cpu)),
            "gpuUtilCoeffStandard": number(coefficients.get(Setting::GpuStandard)),
            "gpuUtilCoeffPerformance": number(coefficients.get(Setting::GpuPerformance)),
        }),
    );
    head.insert(
        "cluster".to_owned(),
        json!({
            "perfPressure": maybe(cluster.map(|cluster| cluster.pressure_or_worst())),
            "clusterTrendWPerMin": maybe(cluster.and_then(|cluster| cluster.trend)),
            "trendScale": cluster.map(|cluster| cluster.trend_scale()),
            "freshTwins": cluster.map(|cluster| cluster.fresh),
            "assumedPods": snapshot.assumed_pods,
        }),
    );
    head.insert("synced".to_owned(), snapshot.fleet.synced.into());
    head.insert("snapshotAgeSeconds".to_owned(), now.since(snapshot.at).as_secs_f64().into());
    head.insert(
        "powerFit".to_owned(),
        (if placement.power_fit == PowerFit::Filter { "filter" } else { "score" }).into(),
    );
    head
}

/// Every node, in the order of their names.
pub(crate) fn nodes(snapshot: &Snapshot, placement: &Placement, now: Mono) -> Value {
    let mut known: Vec<(usize, &Node)> = snapshot.fleet.known().collect();
    known.sort_by(|(_, a), (_, b)| a.name.cmp(&b.name));
    let mut page = head(snapshot, placement, now);
    let nodes = known.into_iter().map(|(number, node)| entry(snapshot, placement, number, node));
    page.insert("nodes".to_owned(), nodes.collect());
    Value::Object(page)
}

fn entry(snapshot: &Snapshot, placement: &Placement, place: usize, node: &Node) -> Value {
    let power = node.twin.and_then(|twin| twin.power);
    let gpus = node.hardware.and_then(|hardware| hardware.gpus);
    // The score of a pod that adds nothing, for either class.
    let base = |class: &str| {
        let pod = format!(r#"{{"metadata":{{"annotations":{{"joulie.io/workload-class":"{class}"}}}}}}"#);
        let message = Message { body: &[], pod: Some(&pod), candidates: Default::default() };
        let asked = decide::asked(&message, placement).ok()?;
        let score = snapshot.fleet.terms.get(place)?.score(&asked.terms, snapshot.assumed(place))?;
        Some(number(score.exact()))
    };
    json!({
        "nodeName": &*node.name,
        "schedulableClass": node.twin.map(|twin| twin.class.as_str()),
        "headroom": maybe(node.twin.and_then(|twin| twin.headroom)),
        "coolingStress": maybe(node.twin.and_then(|twin| twin.cooling)),
        "psuStress": maybe(node.twin.and_then(|twin| twin.psu)),
        "estimatedPUE": maybe(node.twin.and_then(|twin| twin.pue)),
        "measuredPowerW": maybe(power.and_then(|power| power.measured)),
        "cappedPowerW": maybe(power.and_then(|power| power.capped)),
        "nodeTdpW": node.tdp,
        "powerTrendWPerMin": maybe(power.and_then(|power| power.trend)),
        "assumedPowerW": number(snapshot.assumed(place)),
        "baseScore": base("standard"),
        "baseScorePerformance": base("performance"),
        "cpuTotalCores": node.hardware.and_then(|hardware| hardware.cores),
        "cpuMaxWattsTotal": maybe(node.hardware.and_then(|hardware| hardware.cpu_max)),
        "gpuCount": gpus.and_then(|gpus| gpus.count),
        "gpuMaxWattsPerGpu": maybe(gpus.and_then(|gpus| gpus.max)),
        "hasGpu": gpus.is_some(),
        "ecoLabel": node.eco_label,
        "stale": !node.freshness.is_fresh(),
        "staleBecause": because(node.freshness),
    })
}

fn because(freshness: Freshness) -> Option<String> {
    match freshness {
        Freshness::Fresh { .. } => None,
        Freshness::Stale(why) => Some(format!("{why:?}")),
        Freshness::Absent => Some("there is no NodeTwin status".to_owned()),
    }
}

/// What would become of a request.
pub(crate) fn request(
    snapshot: &Snapshot,
    placement: &Placement,
    body: &[u8],
    now: Mono,
) -> Result<Value, Malformed> {
    let message = Message::read(body)?;
    let asked = decide::asked(&message, placement)?;
    let mut page = head(snapshot, placement, now);
    let class = if asked.recognised { format!("{:?}", asked.class) } else { "unrecognised".to_owned() };
    page.insert("workloadClass".to_owned(), class.to_lowercase().into());
    let all = candidates(&message.candidates).map(|candidate| {
        let place = candidate.number(snapshot, body);
        let power = placement.power_fit == PowerFit::Filter;
        let verdict = decide::judge(snapshot, body, &asked, &candidate, power);
        let mut entry = json!({
            "nodeName": &*text(body, candidate.name, candidate.escaped),
            "filter": verdict.err().map_or("pass".to_owned(), |why| why.to_string()),
        });
        let terms = place.and_then(|place| explained(snapshot, placement, place, &asked));
        entry["scoring"] = terms.unwrap_or_else(|| json!({"unknown": "nothing is known of this node"}));
        entry
    });
    page.insert("nodes".to_owned(), all.collect());
    Ok(Value::Object(page))
}

fn explained(snapshot: &Snapshot, placement: &Placement, place: usize, asked: &Asked) -> Option<Value> {
    let (node, cluster) = (snapshot.fleet.nodes.get(place)?, snapshot.fleet.cluster.as_ref()?);
    let assumed = snapshot.assumed(place);
    let why = Breakdown::of(&node.facts(), cluster, &placement.scoring, &asked.terms, assumed);
    let terms = match &why.placement {
        Why::Known(known) => terms(known),
        Why::Unknown(freshness) => json!({"unknown": because(*freshness)}),
    };
    Some(json!({
        "marginalCpuW": number(why.estimate.cpu),
        "marginalGpuW": number(why.estimate.gpu),
        "assumedPowerW": number(why.assumed),
        "terms": terms,
    }))
}

fn terms(known: &Known) -> Value {
    let budget = match known.budget {
        Budget::Capped { measured, projected, capped } => json!({
            "measuredPowerW": number(measured), "projectedPowerW": number(projected), "cappedPowerW": number(capped),
        }),
        Budget::Predicted { added, against } => {
            json!({"addedPowerW": number(added), "against": format!("{against:?}")})
        }
    };
    json!({
        "budget": budget,
        "pue": number(known.pue),
        "headroomScore": number(known.headroom_score),
        "headroom": number(known.headroom),
        "cooling": number(known.cooling),
        "psu": number(known.psu),
        "trendBonus": number(known.trend),
        "profileBonus": number(known.profile),
        "pressureRelief": number(known.relief),
        "score": number(known.score.exact()),
        "points": known.score.whole(),
    })
}
