//! `budget`: each PowerBudget with what is counted, measured and unused in it, and where; and a change of its mode.

use crate::api::{ApiError, path};
use crate::args::{BudgetOrder, OneBudget};
use crate::clean::clean;
use crate::fleet;
use crate::object::{condition, condition_words, label, limit_watts, name, number, text};
use crate::run::{PluginSession, Reply};
use crate::show::{Sheet, watts};
use host_kit::config::parse::object_name;
use joulie_api::labels::object::POWER_BUDGET;
use joulie_api::node_power_grant::held_watts;
use serde_json::{Value, json};
use std::collections::BTreeMap;

const COLUMNS: [&str; 10] =
    ["BUDGET", "MODE", "LIMIT", "COUNTED", "MEASURED", "UNUSED", "SHORT", "NODES", "KEPT", "MOST UNUSED ON"];
const WIDE: [&str; 6] = ["PARENT", "PAUSED", "ROOM", "BITING", "PRICE", "WOULD LOWER"];
/// The nodes that are named for each budget.
const NAMED: usize = 3;
/// A chain of parents is no longer: one that is has a cycle.
const DEPTH_MAX: usize = 64;

/// What a node is allowed and does not draw.
struct Idle {
    node: String,
    watts: f64,
}

pub(crate) async fn list(asked: &PluginSession) -> Result<Reply, Reply> {
    let api = &asked.api;
    let (budgets, grants, twins) = tokio::join!(
        api.list(path::BUDGETS, &[], Some),
        fleet::by_node(api, path::GRANTS),
        fleet::by_node(api, path::TWINS)
    );
    let budgets = match budgets {
        Ok(budgets) => budgets,
        Err(ApiError::Absent) => {
            return Err(Reply::not_done("the kind PowerBudget is not there: install the chart joulie-crds"));
        }
        Err(error) => return Err(error.into()),
    };
    let mut notes = Vec::new();
    let mut or_nothing = |found: Result<fleet::ByNode, ApiError>, kind: &str| {
        found.unwrap_or_else(|error| {
            notes.push(format!("{kind} cannot be listed, so what is unused is not known: {error}"));
            fleet::ByNode::default()
        })
    };
    let (grants, twins) = (or_nothing(grants, "NodePowerGrants"), or_nothing(twins, "NodeTwins"));
    let idle = unused(&budgets, &grants, &twins);
    let mut sheet = Sheet::new("BudgetStatusList", &COLUMNS, &WIDE);
    if budgets.is_empty() {
        sheet.heading.push(
            "No PowerBudgets: nothing limits the nodes together, unless BUDGET_SITE_WATTS does".to_owned(),
        );
    }
    for budget in &budgets {
        let (cells, document) = row(budget, idle.get(name(budget)).map_or(&[], Vec::as_slice));
        sheet.row(format!("powerbudget.joulie.io/{}", name(budget)), cells, document);
    }
    Ok(Reply { text: sheet.text(asked.format()), notes, code: 0 })
}

/// A budget and those above it, by their parents. A cycle ends somewhere.
pub fn budget_and_above<'a>(
    parents: &'a BTreeMap<&'a str, &'a str>,
    budget: &'a str,
) -> impl Iterator<Item = &'a str> {
    let some = |name: &&str| !name.is_empty();
    let next = move |budget: &&'a str| parents.get(*budget).copied().filter(some);
    std::iter::successors(Some(budget).filter(some), next).take(DEPTH_MAX)
}

/// For each budget the nodes in it, with what they are allowed and do not draw; most first. A node whose power is not measured
/// is left out: what it does not draw is not known.
fn unused(budgets: &[Value], grants: &fleet::ByNode, twins: &fleet::ByNode) -> BTreeMap<String, Vec<Idle>> {
    let parents: BTreeMap<&str, &str> =
        budgets.iter().map(|budget| (name(budget), text(budget, "/spec/parent"))).collect();
    let mut all: BTreeMap<String, Vec<Idle>> = BTreeMap::new();
    for (node, grant) in &grants.all {
        let Some(granted) = fleet::granted(grant) else { continue };
        let held = number(grant, "/status/holds").and_then(|_| held_watts(grant)).unwrap_or(granted);
        let twin = twins.get(node);
        let drawn = twin.and_then(|twin| number(twin, "/status/powerMeasurement/measuredNodePowerW"));
        let Some(drawn) = drawn else { continue };
        for budget in budget_and_above(&parents, label(grant, POWER_BUDGET)) {
            all.entry(budget.to_owned())
                .or_default()
                .push(Idle { node: node.clone(), watts: (held - drawn).max(0.0) });
        }
    }
    for nodes in all.values_mut() {
        nodes.sort_by(|one, other| other.watts.total_cmp(&one.watts).then_with(|| one.node.cmp(&other.node)));
        nodes.dedup_by(|one, other| one.node == other.node);
    }
    all
}

fn row(budget: &Value, idle: &[Idle]) -> (Vec<String>, Value) {
    let status = |field: &str| number(budget, &format!("/status/{field}"));
    // What a window or the signal leaves of it, while one does.
    let lowered = budget.pointer("/status/lowered").filter(|lowered| !lowered.is_null());
    let limit = limit_watts(budget);
    let (counted, measured) = (status("countedWatts"), status("measuredWatts"));
    let unused = (!idle.is_empty()).then(|| idle.iter().map(|one| one.watts).sum::<f64>());
    let nodes = budget.pointer("/status/nodes").and_then(Value::as_i64);
    let kept = condition(budget, "WithinBudget");
    let accepted = condition(budget, "Accepted").filter(|one| one["status"] != "True");
    let kept_word = match (accepted, kept) {
        (Some(_), _) => "not accepted".to_owned(),
        (None, Some(kept)) => kept["status"].as_str().unwrap_or_default().to_owned(),
        (None, None) => "not taken in".to_owned(),
    };
    let most: Vec<String> = idle
        .iter()
        .filter(|one| one.watts >= 1.0)
        .take(NAMED)
        .map(|one| format!("{} {}", one.node, watts(Some(one.watts))))
        .collect();
    let mode = text(budget, "/spec/mode");
    let paused = budget["spec"]["pause"] == true;
    let would = status("wouldLowerWatts").map_or("-".to_owned(), |by| {
        format!(
            "{} nodes by {}",
            budget.pointer("/status/wouldLowerNodes").and_then(Value::as_i64).unwrap_or_default(),
            watts(Some(by))
        )
    });
    let cells = vec![
        name(budget).to_owned(),
        if paused { format!("{mode}, paused") } else { mode.to_owned() },
        match lowered {
            Some(_) => format!("{} ({})", watts(limit), lowered_by(budget)),
            None => watts(limit),
        },
        watts(counted),
        watts(measured),
        watts(unused),
        watts(status("shortWatts")),
        nodes.map_or("-".to_owned(), |nodes| nodes.to_string()),
        kept_word,
        if most.is_empty() { "-".to_owned() } else { most.join(", ") },
        text(budget, "/spec/parent").to_owned(),
        paused.to_string(),
        watts(status("roomWatts")),
        watts(status("demand/bitingWatts")),
        price(budget),
        would,
    ];
    let idle: Vec<Value> = idle.iter().map(|one| json!({"node": one.node, "watts": one.watts})).collect();
    let document = json!({
        "name": name(budget), "parent": budget["spec"]["parent"], "mode": mode, "paused": paused, "limitWatts": limit,
        "countedWatts": counted, "measuredWatts": measured, "unusedWatts": unused, "shortWatts": status("shortWatts"),
        "roomWatts": status("roomWatts"), "nodes": nodes, "conditions": budget["status"]["conditions"], "unusedOn": idle,
        "demand": budget["status"]["demand"], "lowered": lowered,
    });
    (cells, document)
}

/// What lowers a limit: the name of a window, or the signal.
fn lowered_by(budget: &Value) -> String {
    let name = text(budget, "/status/lowered/name");
    if name.is_empty() { "signal".to_owned() } else { clean(name) }
}

/// For which share of the time nodes may want more than they are granted: performance, draining and eco.
fn price(budget: &Value) -> String {
    let of = |class: &str| number(budget, &format!("/status/demand/price/{class}"));
    let all: Option<Vec<String>> = ["performance", "draining", "eco"]
        .into_iter()
        .map(|class| of(class).map(|share| format!("{:.0}%", share * 100.0)))
        .collect();
    all.map_or("-".to_owned(), |all| all.join(" "))
}

pub(crate) async fn change(asked: &PluginSession, order: &BudgetOrder) -> Result<Reply, Reply> {
    let (OneBudget { name, yes }, spec, means) = match order {
        BudgetOrder::Enforce(one) => {
            (one, json!({"mode": "enforce"}), "nodes are granted power so that the limit is kept")
        }
        BudgetOrder::Observe(one) => {
            (one, json!({"mode": "observe"}), "the limit only counts, and no node is lowered for it")
        }
        BudgetOrder::Pause(one) => {
            (one, json!({"pause": true}), "nothing in it is raised, released or given another profile")
        }
        BudgetOrder::Resume(one) => {
            (one, json!({"pause": false}), "nodes in it are raised and released again")
        }
    };
    object_name(name).map_err(|wrong| Reply {
        code: 2,
        ..Reply::not_done(format!("{name:?} is no name of a budget: {wrong}"))
    })?;
    let at = format!("{}/{name}", path::BUDGETS);
    let budget = asked
        .api
        .find(&at)
        .await?
        .ok_or_else(|| Reply::not_done(format!("there is no PowerBudget {name}")))?;
    let is_so = spec.as_object().into_iter().flatten().all(|(field, value)| {
        budget["spec"][field] == *value || budget["spec"][field].is_null() && *value == json!(false)
    });
    if is_so {
        return Ok(Reply::done(format!("PowerBudget {name} is so already: {means}\n")));
    }
    let mut said = vec![format!("PowerBudget {name}: {spec}: {means}.")];
    if let Some(by) =
        number(&budget, "/status/wouldLowerWatts").filter(|_| matches!(order, BudgetOrder::Enforce(_)))
    {
        let nodes = budget.pointer("/status/wouldLowerNodes").and_then(Value::as_i64).unwrap_or_default();
        said.push(format!(
            "By the operator's last count {nodes} nodes would be lowered by {} together.",
            watts(Some(by))
        ));
    }
    said.extend(condition(&budget, "WithinBudget").map(condition_words));
    if *yes {
        // Without the version that was read: the operator writes the status of a budget every few seconds, and the field that is
        // written here is set to what was asked for, whatever else has changed.
        asked.api.merge(&at, &json!({"spec": spec})).await?;
        said.push("Written.".to_owned());
    } else {
        said.push("Nothing was written: add --yes.".to_owned());
    }
    Ok(Reply::done(crate::show::lines(&said.iter().map(|line| clean(line)).collect::<Vec<_>>())))
}
