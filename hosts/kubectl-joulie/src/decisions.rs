//! What was decided of the limits above a node: the operator's Events of them, and which of these decisions wrote its grant.

use crate::api::{ApiError, path};
use crate::budget::budget_and_above;
use crate::explain::{all_events, last};
use crate::object::{age, label, name, text};
use crate::run::PluginSession;
use jiff::Timestamp;
use joulie_api::labels::{PLAN_LEASE, object::POWER_BUDGET};
use serde_json::Value;
use std::collections::BTreeMap;

/// The reasons of Events about a limit, as the operator posts them.
const REASONS: [&str; 6] =
    ["BudgetLowers", "BudgetRaises", "LimitChanged", "BudgetShort", "BudgetExceeded", "BudgetKept"];
/// The newest of them that are shown. That of the grant's decision is shown beside them, however old it is.
const SHOWN: usize = 5;
/// The limits above a node that are asked for.
const ABOVE_MAX: usize = 4;

/// The Events about the limits above a node, the newest first.
pub(crate) async fn above(asked: &PluginSession, grant: &Value) -> Result<Vec<Value>, ApiError> {
    let nearest = label(grant, POWER_BUDGET);
    // Limits of the settings have no object: what is told of them is about the plan's Lease.
    let mut all = all_events(asked, &asked.common.joulie_namespace, "Lease", PLAN_LEASE).await?;
    if !nearest.is_empty() {
        let budgets = asked.api.list(path::BUDGETS, &[], Some).await?;
        let parents: BTreeMap<&str, &str> =
            budgets.iter().map(|budget| (name(budget), text(budget, "/spec/parent"))).collect();
        for budget in budget_and_above(&parents, nearest).take(ABOVE_MAX) {
            all.extend(all_events(asked, "", "PowerBudget", budget).await?);
        }
    }
    all.retain(|event| REASONS.contains(&text(event, "/reason")));
    all.sort_by(|one, other| last(other).cmp(last(one)));
    let mut shown = 0;
    all.retain(|event| {
        shown += 1;
        shown <= SHOWN || wrote(event, grant)
    });
    Ok(all)
}

/// The decision that wrote a grant; empty if it does not say.
pub(crate) fn of_grant(grant: &Value) -> &str {
    text(grant, "/spec/decision")
}

/// Whether an Event is about the decision that wrote a grant.
fn wrote(event: &Value, grant: &Value) -> bool {
    let decision = of_grant(grant);
    !decision.is_empty() && text(event, "/message").starts_with(&format!("decision {decision}:"))
}

/// The Events in lines, and that of the grant's decision marked.
pub(crate) fn lines(events: &[Value], grant: &Value, now: Timestamp) -> Vec<String> {
    let decision = of_grant(grant);
    let line = |event: &Value| {
        let ago =
            last(event).parse().map_or("at an unknown time".to_owned(), |at| format!("{} ago", age(at, now)));
        let its = if wrote(event, grant) { "this grant: " } else { "" };
        let about = match text(event, "/involvedObject/kind") {
            "PowerBudget" => format!(" of {}", text(event, "/involvedObject/name")),
            _ => String::new(),
        };
        format!("{ago}: {its}{}{about}: {}", text(event, "/reason"), text(event, "/message"))
    };
    let mut said: Vec<String> = events.iter().map(line).collect();
    if !decision.is_empty() && !events.iter().any(|event| wrote(event, grant)) {
        said.push(format!(
            "no Event of decision {decision}, which wrote this grant: it moved less than a twentieth of each limit, or was one of many, or is older than an hour"
        ));
    }
    said
}
