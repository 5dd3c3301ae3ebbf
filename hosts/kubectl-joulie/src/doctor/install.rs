//! The installation: definitions, versions, the plan, budgets, and whether anybody scrapes.

use super::{Check, Findings, Seen};
use crate::api::{ApiError, path};
use crate::object::{age, age_seconds, condition, items, name, text, time};
use crate::run::PluginSession;
use serde_json::Value;
use std::collections::BTreeSet;

/// As `joulie-operator check` has it: the plan is renewed every few seconds.
const PLAN_OLD_SECONDS: i64 = 60;

/// The kinds as the server has them, against those of this program.
pub(super) async fn definitions(asked: &PluginSession, found: &mut Findings) {
    found.made(Check::Definitions);
    for own in joulie_api::crd::all() {
        let kind = own.metadata.name.clone().unwrap_or_default();
        let served = match asked.api.find(&format!("{}/{kind}", path::DEFINITIONS)).await {
            Ok(served) => served,
            Err(error) => return found.blind("the definitions of the kinds", &error),
        };
        let Some(served) = served else {
            // Clusters without that product have no use for its kind.
            if kind != "gpus.gpu.mle.com" {
                found.add(
                    Check::Definitions,
                    format!("the kind {kind} is not there"),
                    "what needs it does nothing, and nobody is told",
                    "install the chart joulie-crds of this version",
                );
            }
            continue;
        };
        let Ok(own) = serde_json::to_value(&own) else { continue };
        if let Some(field) = missing(&own, &served) {
            found.add(
                Check::Definitions,
                format!("the kind {kind} has no field {field}: it is of an earlier version"),
                "the API server drops that field silently from everything that is written",
                "upgrade the chart joulie-crds",
            );
        }
    }
}

/// The first field of our schema that the served one does not have.
fn missing(own: &Value, served: &Value) -> Option<String> {
    let schema = |definition: &Value, version: &str| {
        let versions = items(definition, "/spec/versions").iter();
        let of = versions
            .filter(|one| text(one, "/name") == version)
            .map(|one| one["schema"]["openAPIV3Schema"].clone());
        of.into_iter().next()
    };
    for version in items(own, "/spec/versions") {
        let version = text(version, "/name");
        let Some(served) = schema(served, version) else { return Some(format!("of version {version}")) };
        if let Some(field) = schema(own, version).and_then(|own| missing_in(&own, &served, "", 0)) {
            return Some(field);
        }
    }
    None
}

fn missing_in(own: &Value, served: &Value, at: &str, depth: usize) -> Option<String> {
    // A schema that keeps unknown fields drops none; ours are not deeper than this.
    if served["x-kubernetes-preserve-unknown-fields"] == true || depth > 32 {
        return None;
    }
    for (field, schema) in own["properties"].as_object().into_iter().flatten() {
        let below = format!("{at}.{field}");
        match served["properties"].get(field) {
            None => return Some(below.trim_start_matches('.').to_owned()),
            Some(served) => {
                if let Some(missing) = missing_in(schema, served, &below, depth + 1) {
                    return Some(missing);
                }
            }
        }
    }
    (!own["items"].is_null())
        .then(|| missing_in(&own["items"], &served["items"], &format!("{at}[]"), depth + 1))
        .flatten()
}

/// The versions of all programs, and whether their pods are ready.
pub(super) fn versions(seen: &Seen, found: &mut Findings) {
    found.made(Check::Versions);
    found.made(Check::Programs);
    let own = env!("CARGO_PKG_VERSION");
    let versions: BTreeSet<&str> =
        seen.programs.iter().map(|pod| pod.version.as_str()).filter(|version| !version.is_empty()).collect();
    if versions.len() > 1 {
        found.add(
            Check::Versions,
            format!(
                "the programs are of several versions: {}",
                versions.iter().copied().collect::<Vec<_>>().join(", ")
            ),
            "an upgrade has stopped half-way, and one program may not know what another writes",
            "finish the upgrade (helm upgrade), or look at the pods of the older version",
        );
    }
    if let [one] = versions.iter().copied().collect::<Vec<_>>().as_slice()
        && *one != own
    {
        found.add(
            Check::Versions,
            format!("the programs are of version {one}, and this plugin of {own}"),
            "it may not know what they say",
            "install the plugin of their version",
        );
    }
    for component in ["operator", "agent"] {
        let of = |pod: &&crate::remote::ProgramPod| pod.component.starts_with(component);
        if seen.programs.iter().filter(of).all(|pod| !pod.ready) {
            found.add(
                Check::Programs,
                format!("no {component} is ready in the namespace of the installation"),
                "without an operator nothing is planned, and without agents no cap is put in force",
                "kubectl get pods there, and look at the log of one; name another namespace with --joulie-namespace",
            );
        }
    }
    for pod in seen.programs.iter().filter(|pod| !pod.ready) {
        found.add(
            Check::Programs,
            format!("pod {} on node {} is not ready", pod.name, pod.node),
            "what it does is not done: of an agent, its node is not capped anew",
            "kubectl describe the pod, and look at its log",
        );
    }
}

/// Whether an operator leads, and renews the plan.
pub(super) fn plan(seen: &Seen, found: &mut Findings) {
    found.made(Check::Plan);
    let leases = [("joulie-plan", &seen.plan_lease), ("joulie-operator", &seen.leader_lease)];
    for (lease, object) in leases {
        let renewed = object.as_ref().and_then(|object| time(object, "/spec/renewTime"));
        let old = match renewed {
            None => format!("nobody has ever renewed the Lease {lease}"),
            Some(renewed) if age_seconds(renewed, seen.now) > PLAN_OLD_SECONDS => {
                let holder = object.as_ref().map_or("", |object| text(object, "/spec/holderIdentity"));
                format!("the Lease {lease} was last renewed {} ago by {holder}", age(renewed, seen.now))
            }
            Some(_) => continue,
        };
        found.add(
            Check::Plan,
            old,
            "nobody plans: caps stay as they are, and all twins are stale for the scheduler",
            "look at the operator's pods and their log",
        );
    }
}

/// Whether limits are accepted and kept.
pub(super) fn budgets(seen: &Seen, found: &mut Findings) {
    found.made(Check::Budgets);
    for budget in &seen.budgets {
        let current = budget["status"]["observedGeneration"] == budget["metadata"]["generation"];
        for about in ["Accepted", "WithinBudget"] {
            match condition(budget, about).filter(|_| current) {
                Some(of) if of["status"] == "False" => found.add(
                    Check::Budgets,
                    format!("PowerBudget {}: {}", name(budget), crate::object::condition_words(of)),
                    "the limit is not kept, or not in the way in which it is written",
                    "docs/OPERATE.md, \"The budget is exceeded or short\", by the reason",
                ),
                Some(_) => {}
                None => {
                    found.add(
                        Check::Budgets,
                        format!("PowerBudget {}: the operator has not taken it in", name(budget)),
                        "the limit is not in use",
                        "look at the operator: does it run, and may it watch powerbudgets?",
                    );
                    break;
                }
            }
        }
    }
}

/// Whether anything points a Prometheus at the programs.
pub(super) async fn scraped(asked: &PluginSession, found: &mut Findings) {
    let space = &asked.common.joulie_namespace;
    let part = [("labelSelector", "app.kubernetes.io/part-of=joulie")];
    let mut any = false;
    for kind in ["podmonitors", "servicemonitors"] {
        let monitors = asked.api.list(&format!("/apis/monitoring.coreos.com/v1/{kind}"), &part, Some).await;
        match monitors {
            Ok(monitors) => any |= !monitors.is_empty(),
            // Without the Prometheus operator there is no such kind.
            Err(ApiError::Absent) => {}
            Err(error) => return found.skipped.push(format!("who scrapes: {kind}: {error}")),
        }
    }
    let scrape = "prometheus.io/scrape";
    for at in [format!("/api/v1/namespaces/{space}/services"), path::pods_of(space)] {
        match asked.api.list(&at, &[], Some).await {
            Ok(all) => any |= all.iter().any(|one| crate::object::annotation(one, scrape) == "true"),
            Err(ApiError::Absent) => {}
            Err(error) => return found.skipped.push(format!("who scrapes: {error}")),
        }
    }
    found.made(Check::Scraped);
    if !any {
        found.add(
            Check::Scraped,
            "there is no PodMonitor, no ServiceMonitor and no annotation prometheus.io/scrape of Joulie's",
            "nobody sees a cap that fails or a limit that is exceeded, and alerts cannot fire",
            "set podMonitor.enabled or serviceMonitor.enabled in the chart, or scrape the Services",
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_field_that_the_server_does_not_know_is_named_by_its_path() {
        let of = |spec: Value| json!({"spec": {"versions": [{"name": "v1", "schema": {"openAPIV3Schema": spec}}]}});
        let own = of(json!({"properties": {"a": {"items": {"properties": {"b": {}, "c": {}}}}}}));
        assert_eq!(missing(&own, &own), None);
        let older = of(json!({"properties": {"a": {"items": {"properties": {"b": {}}}}}}));
        assert_eq!(missing(&own, &older).as_deref(), Some("a[].c"));
        assert_eq!(missing(&older, &own), None, "a later server has more");
        assert_eq!(missing(&own, &json!({})).as_deref(), Some("of version v1"));
        let keeps = of(json!({"x-kubernetes-preserve-unknown-fields": true}));
        assert_eq!(missing(&own, &keeps), None);
    }
}
