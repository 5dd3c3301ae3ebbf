//! `/debug/scoring`: explains the scores of the nodes.
//!
//! `GET` lists every node, with the fields of upstream's page and some more. `POST` with a request of
//! kube-scheduler's shows how that pod would be judged on each of its candidates, term by term.
//!
//! `/debug/explain?pod=NAMESPACE/NAME` shows the same for a pod of the cluster and every node that is known.

use crate::decide::{self, Asked, candidates};
use crate::scan::{Malformed, Message, text};
use crate::settings::PlacementSettings;
use crate::shortlist::{ListAnswer, ShortlistPods};
use crate::snapshot::{Node, View};
use joulie_api::extender::PodDeferral;
use joulie_core::placement::estimate::CoefficientSetting;
use joulie_core::placement::filter::PowerFit;
use joulie_core::placement::freshness::Freshness;
use joulie_core::placement::score::{
    Breakdown, Consolidated, ExplainedTerms as Why, Formula, HeadroomSource, HeldBack, Known, Points,
};
use joulie_core::placement::sensitivity::SensitivityLevel;
use power_units::Watts;
use serde_json::{Map, Value, json};
use std::fmt::Display;

/// A number as JSON; null if it cannot be represented.
fn number(value: impl Display) -> Value {
    let value: Option<f64> = value.to_string().parse().ok();
    value.map_or(Value::Null, Value::from)
}

fn maybe(value: Option<impl Display>) -> Value {
    value.map_or(Value::Null, number)
}

/// The part of the page that applies to all nodes.
fn head(view: &View<'_>, placement: &PlacementSettings) -> Map<String, Value> {
    let snapshot = view.snapshot;
    let coefficients = &placement.scoring.coefficients;
    let cluster = snapshot.fleet.cluster.as_ref();
    let mut head = Map::new();
    head.insert(
        "coefficients".to_owned(),
        json!({
            "cpuUtilCoeff": number(coefficients.get(CoefficientSetting::Cpu)),
            "gpuUtilCoeffStandard": number(coefficients.get(CoefficientSetting::GpuStandard)),
            "gpuUtilCoeffPerformance": number(coefficients.get(CoefficientSetting::GpuPerformance)),
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
            "waitingPods": snapshot.waiting_pods,
            "queuedPods": snapshot.queue.len(),
            "expectedPods": view.expected.of_others(None, view.now).count(),
            "unknownPods": view.expected.unknown(view.now),
            "trustedProfiles": snapshot.workloads.len(),
        }),
    );
    head.insert("synced".to_owned(), snapshot.fleet.synced.into());
    head.insert("snapshotAgeSeconds".to_owned(), view.now.since(snapshot.at).as_secs_f64().into());
    head.insert("seen".to_owned(), snapshot.seen.page());
    head.insert(
        "powerFit".to_owned(),
        (if placement.power_fit == PowerFit::Filter { "filter" } else { "score" }).into(),
    );
    head
}

/// Every node, in the order of their names.
pub(crate) fn nodes(view: &View<'_>, placement: &PlacementSettings) -> Value {
    let mut known: Vec<(usize, &Node)> = view.snapshot.fleet.known().collect();
    known.sort_by(|(_, a), (_, b)| a.name.cmp(&b.name));
    let (mut page, unseen) = (head(view, placement), view.unseen(None));
    let nodes = known.into_iter().map(|(number, node)| {
        let unseen = unseen.get(number).copied().unwrap_or(Watts::ZERO);
        entry(view, placement, number, unseen, node)
    });
    page.insert("nodes".to_owned(), nodes.collect());
    Value::Object(page)
}

fn entry(view: &View<'_>, placement: &PlacementSettings, place: usize, unseen: Watts, node: &Node) -> Value {
    let snapshot = view.snapshot;
    let power = node.twin.and_then(|twin| twin.power);
    let gpus = node.hardware.and_then(|hardware| hardware.gpus);
    // The score of a pod that adds nothing, for either class.
    let base = |class: &str| {
        let body =
            format!(r#"{{"Pod":{{"metadata":{{"annotations":{{"joulie.io/workload-class":"{class}"}}}}}}}}"#);
        let (_, asked) = decide::asked(snapshot, &Message::read(body.as_bytes()).ok()?, placement).ok()?;
        let score = snapshot.fleet.terms.get(place)?.score(asked.class, Watts::ZERO, unseen)?;
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
        "entitledPowerW": maybe(node.twin.and_then(|twin| twin.entitled)),
        "powerBudget": node.budget.as_deref(),
        "powerLeftW": maybe(snapshot.left.of(place)),
        "powerPrice": maybe(node.twin.map(|twin| twin.price)),
        "powerTrendWPerMin": maybe(power.and_then(|power| power.trend)),
        "assumedPowerW": number(snapshot.assumed(place)),
        "expectedPowerW": number(unseen - snapshot.assumed(place)),
        "baseScore": base("standard"),
        "baseScorePerformance": base("performance"),
        "cpuTotalCores": node.hardware.and_then(|hardware| hardware.cores),
        "cpuMaxWattsTotal": maybe(node.hardware.and_then(|hardware| hardware.cpu_max)),
        "gpuCount": gpus.and_then(|gpus| gpus.count),
        "gpuMaxWattsPerGpu": maybe(gpus.and_then(|gpus| gpus.max)),
        "gpuAddsWattsPerGpu": maybe(gpus.and_then(|gpus| gpus.adds)),
        "hasGpu": gpus.is_some(),
        "ecoLabel": node.eco_label,
        "stale": !node.freshness.is_fresh(),
        "staleBecause": because(node.freshness),
    })
}

/// A sensitivity, in the words of WorkloadProfiles.
const fn word(sensitivity: SensitivityLevel) -> &'static str {
    match sensitivity {
        SensitivityLevel::Low => "low",
        SensitivityLevel::Medium => "medium",
        SensitivityLevel::High => "high",
    }
}

fn because(freshness: Freshness) -> Option<String> {
    match freshness {
        Freshness::Fresh { .. } => None,
        Freshness::Stale(why) => Some(format!("{why:?}")),
        Freshness::Absent => Some("there is no NodeTwin status".to_owned()),
    }
}

/// So many nodes are explained for a pod of the cluster.
const NODES_MAX: usize = 200;

/// How a pod of the cluster would be judged on this node, or on all that are known: the best first, and no more than
/// `NODES_MAX`.
pub(crate) fn pod(
    view: &View<'_>,
    placement: &PlacementSettings,
    pod: &Value,
    node: Option<&str>,
) -> Result<Value, Malformed> {
    let mut names: Vec<&str> = match node {
        Some(node) => vec![node],
        None => view.snapshot.fleet.known().map(|(_, node)| &*node.name).collect(),
    };
    names.sort_unstable();
    let body = json!({"Pod": pod, "NodeNames": names}).to_string();
    let mut page = judged(view, placement, body.as_bytes(), NODES_MAX)?;
    page["nodesLeftOut"] = names.len().saturating_sub(NODES_MAX).into();
    for (key, value) in [("pod", &pod["metadata"]["name"]), ("boundTo", &pod["spec"]["nodeName"])] {
        page[key] = value.clone();
    }
    if let Some(nodes) = page["nodes"].as_array_mut() {
        nodes.sort_by_key(|node| std::cmp::Reverse(node["answer"].as_i64()));
    }
    Ok(page)
}

/// How a request would be answered.
pub(crate) fn request(
    view: &View<'_>,
    placement: &PlacementSettings,
    body: &[u8],
) -> Result<Value, Malformed> {
    judged(view, placement, body, usize::MAX)
}

/// The positions of the `most` best points.
fn best(points: &[Points], most: usize) -> Vec<bool> {
    let mut order: Vec<usize> = (0..points.len()).collect();
    order.sort_by_key(|&at| std::cmp::Reverse(points.get(at).map(|points| points.get())));
    let mut is_best = vec![false; points.len()];
    for at in order.into_iter().take(most) {
        if let Some(one) = is_best.get_mut(at) {
            *one = true;
        }
    }
    is_best
}

fn judged(
    view: &View<'_>,
    placement: &PlacementSettings,
    body: &[u8],
    most: usize,
) -> Result<Value, Malformed> {
    let message = Message::read(body)?;
    let (pod, asked) = decide::asked(view.snapshot, &message, placement)?;
    let (snapshot, unseen) = (view.snapshot, view.unseen(pod));
    let mut page = head(view, placement);
    let class = if asked.recognised { format!("{:?}", asked.class) } else { "unrecognised".to_owned() };
    page.insert("workloadClass".to_owned(), class.to_lowercase().into());
    if asked.deferral == PodDeferral::Malformed {
        page.insert("deferrableUntil".to_owned(), "it is no time, and counts as none".into());
    }
    let hurt = asked.terms.sensitivity();
    let levels = json!({"cpu": word(hurt.cpu), "gpu": word(hurt.gpu)});
    page.insert("capSensitivity".to_owned(), levels);
    page.insert("shortlist".to_owned(), shortlist(view, placement, &message).into());
    let power = (placement.power_fit == PowerFit::Filter).then(|| snapshot.fleet.kinds.weigh(&asked.terms));
    let points = decide::scored(view, placement, &message, pod, &asked).points;
    let listed = candidates(&message.candidates);
    let is_best = best(&points, most);
    let shown = listed.clone().zip(points).enumerate().zip(is_best).filter(|(_, is_best)| *is_best);
    let all = shown.map(|((at, (candidate, points)), _)| {
        let place = candidate.number(&snapshot.fleet.index, message.body);
        let object = || listed.object(at, message.body);
        let needs = decide::GpuNeeds::of(&asked, placement);
        let verdict = decide::judge(snapshot, (asked.class, needs), place, power.as_ref(), object);
        let mut entry = json!({
            "nodeName": &*text(message.body, candidate.name, candidate.escaped),
            "filter": verdict.reason().map_or("pass".to_owned(), |why| why.to_string()),
            "answer": points.get(),
        });
        let unseen = place.and_then(|place| unseen.get(place)).copied().unwrap_or(Watts::ZERO);
        let terms = place.and_then(|place| explained(view, placement, place, unseen, &asked));
        entry["scoring"] = terms.unwrap_or_else(|| json!({"unknown": "nothing is known of this node"}));
        entry
    });
    page.insert("nodes".to_owned(), all.collect());
    Ok(Value::Object(page))
}

/// Whether filter may answer a pod with the best candidates only; and if not, why.
fn shortlist(view: &View<'_>, placement: &PlacementSettings, message: &Message<'_>) -> &'static str {
    match placement.shortlist.pods {
        ShortlistPods::Nobody => "off",
        ShortlistPods::All => ListAnswer::Short.word(),
        ShortlistPods::Safe => match view.snapshot.other_scores.indifferent(message.pod) {
            Ok(()) => ListAnswer::Short.word(),
            Err(why) => why.word(),
        },
    }
}

fn explained(
    view: &View<'_>,
    placement: &PlacementSettings,
    place: usize,
    unseen: Watts,
    asked: &Asked,
) -> Option<Value> {
    let snapshot = view.snapshot;
    let (node, cluster) = (snapshot.fleet.nodes.get(place)?, snapshot.fleet.cluster.as_ref()?);
    let why = Breakdown::of(&node.facts(), cluster, &placement.scoring, &asked.terms, unseen);
    let consolidated = match placement.scoring.formula {
        Formula::Consolidate => snapshot.consolidated(Some(place)),
        Formula::Headroom | Formula::Facility => None,
    };
    let terms = match (&why.placement, consolidated) {
        (Why::Known(_), Some(terms)) => {
            consolidation(&terms.explain(&asked.consolidate, why.estimate.total(), unseen))
        }
        (Why::Known(_), None) if placement.scoring.formula == Formula::Consolidate => {
            json!({"unknown": "the size of the node is not known"})
        }
        (Why::Known(known), None) => terms(known),
        (Why::Unknown(freshness), _) => json!({"unknown": because(*freshness)}),
    };
    Some(json!({
        "marginalCpuW": number(why.estimate.cpu),
        "marginalGpuW": number(why.estimate.gpu),
        "assumedPowerW": number(snapshot.assumed(place)),
        "expectedPowerW": number(unseen - snapshot.assumed(place)),
        "powerLeftW": maybe(snapshot.left.of(place)),
        "leftBy": snapshot.fleet.budgets.name(snapshot.left.by(place)),
        "terms": terms,
    }))
}

/// The terms of `SCORING_FORMULA=consolidate`.
fn consolidation(why: &Consolidated) -> Value {
    json!({
        "costW": maybe(why.cost),
        "watts": why.watts,
        "fill": why.fill,
        "whole": why.whole,
        "cores": why.cores,
        "heldBack": why.held_back.map(HeldBack::word),
        "points": why.score,
    })
}

fn terms(known: &Known) -> Value {
    let budget = match known.budget {
        HeadroomSource::Capped { measured, projected, capped } => json!({
            "measuredPowerW": number(measured), "projectedPowerW": number(projected), "cappedPowerW": number(capped),
        }),
        HeadroomSource::Predicted { added, against } => {
            json!({"addedPowerW": number(added), "against": format!("{against:?}")})
        }
    };
    json!({
        "budget": budget,
        "pue": number(known.pue),
        "powerPrice": number(known.price),
        "headroomScore": number(known.headroom_score),
        "headroom": number(known.headroom),
        "cooling": number(known.cooling),
        "psu": number(known.psu),
        "trendBonus": number(known.trend),
        "profileBonus": number(known.profile),
        "pressureRelief": number(known.relief),
        "stressMark": number(known.mark),
        "capSensitivity": number(known.caps),
        "score": number(known.score.exact()),
        "points": known.score.whole(),
    })
}
