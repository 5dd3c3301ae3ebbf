//! `status`: upstream's table and summary, with more columns in `-o wide`.

use crate::api::{ApiError, path};
use crate::fleet::{self, ByNode, PodUse, Room};
use crate::object::{condition, name, number, text};
use crate::run::{PluginSession, Reply};
use crate::show::{Sheet, percent, watts};
use joulie_api::labels;
use serde_json::{Value, json};
use std::collections::BTreeMap;

const COLUMNS: [&str; 10] =
    ["NODE", "CLASS", "HEADROOM", "COOLING", "CPU%", "MEM%", "GPU%", "PODS", "CPU CAP", "GPU CAP"];
const WIDE: [&str; 6] = ["POWER", "ALLOWED", "GRANTED", "ENFORCED", "REASON", "MEASURED"];

/// The order of the classes in the summary.
const CLASSES: [&str; 3] = ["eco", "performance", "draining"];

pub(crate) async fn status(asked: &PluginSession) -> Result<Reply, Reply> {
    let api = &asked.api;
    let (twins, nodes, pods) =
        tokio::join!(api.list(path::TWINS, &[], Some), fleet::nodes(api, &[]), fleet::pods(api));
    let twins = match twins {
        Ok(twins) => twins,
        Err(ApiError::Absent) => Vec::new(),
        Err(error) => return Err(Reply::not_done(format!("NodeTwins cannot be listed: {error}"))),
    };
    let mut notes = Vec::new();
    let nodes = nodes.unwrap_or_else(|error| {
        notes.push(format!("nodes cannot be listed, so CPU%, MEM% and GPU% are not known: {error}"));
        BTreeMap::new()
    });
    let pods = pods.unwrap_or_else(|error| {
        notes.push(format!("pods cannot be listed, so CPU%, MEM%, GPU% and PODS are not known: {error}"));
        Vec::new()
    });
    let (profiles, grants) = if asked.format().is_some() {
        let (profiles, grants) =
            tokio::join!(fleet::by_node(api, path::PROFILES), fleet::by_node(api, path::GRANTS));
        (profiles.unwrap_or_default(), grants.unwrap_or_default())
    } else {
        Default::default()
    };
    let is_sleeping = |node: &&Value| {
        let mut taints = node["spec"]["taints"].as_array().into_iter().flatten();
        taints.any(|taint| taint["key"].as_str() == Some(labels::node::SLEEPING))
    };
    let asleep: Vec<&str> = nodes.values().filter(is_sleeping).map(name).collect();
    let asleep = (!asleep.is_empty())
        .then(|| format!("asleep, or on the way to sleep or back: {}", asleep.join(", ")));
    let known = Known {
        nodes,
        pods: per_node(&pods),
        all_pods: pods.len(),
        notes: !notes.is_empty(),
        profiles,
        grants,
    };
    let sheet = sheet(&twins, &known);
    notes.extend(asleep);
    Ok(Reply { text: sheet.text(asked.format()), notes, code: 0 })
}

/// What is known beside the twins.
struct Known {
    nodes: BTreeMap<String, Value>,
    pods: BTreeMap<String, (usize, Room)>,
    all_pods: usize,
    /// Something could not be listed.
    notes: bool,
    profiles: ByNode,
    grants: ByNode,
}

fn per_node(pods: &[PodUse]) -> BTreeMap<String, (usize, Room)> {
    let mut all: BTreeMap<String, (usize, Room)> = BTreeMap::new();
    for pod in pods {
        let (count, room) = all.entry(pod.node.clone()).or_default();
        *count += 1;
        room.add(pod.asks);
    }
    all
}

/// A twin is of the node that it names.
fn node_of(twin: &Value) -> &str {
    match text(twin, "/spec/nodeName") {
        "" => name(twin),
        node => node,
    }
}

fn sheet(twins: &[Value], known: &Known) -> Sheet {
    let mut sheet = Sheet::new("NodeStatusList", &COLUMNS, &WIDE);
    if twins.is_empty() {
        sheet.heading.push(
            "No NodeTwins: is Joulie installed, and is a node labelled joulie.io/managed=true?".to_owned(),
        );
        return sheet;
    }
    sheet.heading = summary(twins, known);
    for twin in twins {
        let node = node_of(twin);
        let (cells, document) = row(node, twin, known);
        sheet.row(format!("node/{node}"), cells, document);
    }
    sheet
}

fn summary(twins: &[Value], known: &Known) -> Vec<String> {
    let class = |twin: &Value| text(twin, "/status/schedulableClass").to_owned();
    let mut groups = Vec::new();
    for of in CLASSES {
        let count = twins.iter().filter(|twin| class(twin) == of).count();
        groups.push((count, of));
    }
    let sorted: usize = groups.iter().map(|(count, _)| count).sum();
    groups.push((twins.len() - sorted, "unknown"));
    let groups: Vec<String> = groups
        .into_iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, of)| format!("{count} {of}"))
        .collect();
    let mean = |pointer: &str| {
        let all: Vec<f64> =
            twins.iter().filter_map(|twin| number(twin, pointer)).map(|one| one.max(0.0)).collect();
        (!all.is_empty()).then(|| all.iter().sum::<f64>() / all.len() as f64)
    };
    let cooling = "/status/predictedCoolingStressScore";
    let peak = twins
        .iter()
        .filter_map(|twin| Some((number(twin, cooling)?, node_of(twin))))
        .filter(|(stress, _)| *stress > 0.0)
        .reduce(|most, one| if one.0 > most.0 { one } else { most });
    let peak =
        peak.map_or(String::new(), |(stress, node)| format!("  |  Peak: {} ({node})", percent(Some(stress))));
    vec![
        "Joulie Cluster Status".to_owned(),
        format!("  Nodes: {} total ({})", twins.len(), groups.join(", ")),
        format!("  Avg cooling stress: {}{peak}", percent(mean(cooling))),
        format!("  Avg PSU stress: {}", percent(mean("/status/predictedPsuStressScore"))),
        format!("  Avg headroom: {}", percent(mean("/status/predictedPowerHeadroomScore"))),
        if known.notes {
            "  Running pods: -".to_owned()
        } else {
            format!("  Running pods: {}", known.all_pods)
        },
    ]
}

fn row(node: &str, twin: &Value, known: &Known) -> (Vec<String>, Value) {
    let class = text(twin, "/status/schedulableClass");
    let headroom = number(twin, "/status/predictedPowerHeadroomScore");
    let cooling = number(twin, "/status/predictedCoolingStressScore");
    let has = known.nodes.get(node).map(|node| Room::of(&node["status"]["allocatable"]));
    let (pods, asks) = known.pods.get(node).copied().unwrap_or_default();
    let used = |has: Option<f64>, asks: f64| has.filter(|has| *has > 0.0).map(|has| asks / has * 100.0);
    let cpu = used(has.map(|has| has.cpu), asks.cpu);
    let memory = used(has.map(|has| has.memory), asks.memory);
    let gpu = used(has.map(|has| has.gpus), asks.gpus);
    let has_gpus = has.is_some_and(|has| has.gpus > 0.0);
    let cpu_cap = number(twin, "/status/effectiveCapState/cpuPct");
    let gpu_cap = number(twin, "/status/effectiveCapState/gpuPct").filter(|_| has_gpus);
    let measured = number(twin, "/status/powerMeasurement/measuredNodePowerW");
    let allowed = number(twin, "/status/powerMeasurement/nodeCappedPowerW");
    let granted = known.grants.get(node).and_then(fleet::granted);
    let enforced = known.profiles.get(node).and_then(|profile| condition(profile, "CapEnforced"));
    let word = |field: &str| enforced.map_or("", |one| one[field].as_str().unwrap_or_default()).to_owned();
    let fresh =
        condition(twin, "TelemetryFresh").map_or("Unknown", |one| one["status"].as_str().unwrap_or_default());
    let cells = vec![
        node.to_owned(),
        class.to_owned(),
        percent(headroom.map(|headroom| headroom.max(0.0))),
        percent(cooling),
        percent(cpu),
        percent(memory),
        percent(gpu),
        pods.to_string(),
        percent(cpu_cap),
        percent(gpu_cap),
        watts(measured),
        watts(allowed),
        watts(granted),
        word("status"),
        word("reason"),
        fresh.to_owned(),
    ];
    let document = json!({
        "node": node, "class": class, "headroomPct": headroom, "coolingStressPct": cooling,
        "psuStressPct": number(twin, "/status/predictedPsuStressScore"),
        "cpuRequestedPct": cpu, "memoryRequestedPct": memory, "gpuRequestedPct": gpu, "pods": pods,
        "cpuCapPct": cpu_cap, "gpuCapPct": gpu_cap, "measuredWatts": measured, "allowedWatts": allowed,
        "grantedWatts": granted, "capEnforced": enforced, "telemetryFresh": fresh,
        "draining": twin["spec"]["scheduling"]["draining"] == true,
    });
    (cells, document)
}
