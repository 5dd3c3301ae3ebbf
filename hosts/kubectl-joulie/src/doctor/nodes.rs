//! The nodes: does every managed node report, is its twin fresh, are its caps in force, and who else writes.

use super::{Check, Findings, Seen};
use crate::object::{age_seconds, annotation, condition, condition_words, items, name, owners, text};
use jiff::Timestamp;
use joulie_api::labels::{self, is_true, manager};
use serde_json::Value;
use std::collections::BTreeMap;

/// The operator hands back within a minute; more is no delay of a pass.
const HAND_BACK_SECONDS: i64 = 300;
/// Who may write the statuses and grants. `operator` and `agent` are those of the first implementation.
const PROGRAMS: [&str; 5] = [manager::OPERATOR, manager::AGENT, manager::CLASSIFIER, "operator", "agent"];

pub(super) fn all(seen: &Seen, found: &mut Findings) {
    for check in [
        Check::Reports,
        Check::Twins,
        Check::Caps,
        Check::Grants,
        Check::OneAgent,
        Check::Writers,
        Check::PersonsCaps,
        Check::OwnersLimits,
    ] {
        found.made(check);
    }
    if seen.nodes.is_empty() {
        found.add(
            Check::Reports,
            "no node is managed",
            "nothing is planned and nothing is capped",
            "kubectl label node NODE joulie.io/managed=true, or name your label with --node-selector",
        );
    }
    for (node, object) in &seen.nodes {
        let reserved = is_true(Some(crate::object::label(object, labels::node::RESERVED)));
        if !reserved && object["spec"]["unschedulable"] != true {
            of_node(node, seen, found);
        }
    }
    one_agent(seen, found);
    writers(seen, found);
    persons(seen, found);
}

/// The first thing that is not in order, in the order in which the steps happen.
fn of_node(node: &str, seen: &Seen, found: &mut Findings) {
    if seen.hardware.get(node).is_none_or(|object| object["status"].is_null()) {
        return found.add(
            Check::Reports,
            format!("node {node} has no NodeHardware with a status: its agent has not reported"),
            "nobody knows what it draws or can draw, and no cap is put in force there",
            "does a pod of the agent run there, and can it reach the API server? Look at its log",
        );
    }
    let Some(twin) = seen.twins.get(node).filter(|twin| twin["status"].is_object()) else {
        return found.add(
            Check::Twins,
            format!("node {node} has no NodeTwin with a status"),
            "the scheduler knows nothing of it, and scores it as unknown",
            "look at the operator's log: it plans for nodes by NODE_SELECTOR",
        );
    };
    if let Some(fresh) = condition(twin, "TelemetryFresh").filter(|one| one["status"] != "True") {
        found.add(
            Check::Twins,
            format!("node {node}: {}", condition_words(fresh)),
            "the node is not raised to full power, and is scored without what it draws",
            "docs/OPERATE.md, \"Power is not known\"; kubectl joulie explain node NODE",
        );
    }
    let Some(profile) = seen.profiles.get(node) else {
        return found.add(
            Check::Caps,
            format!("node {node} has no NodePowerProfile: nothing is asked of it"),
            "it runs without a cap, whatever the plan says",
            "look at the operator's log; with DESIRED_SOURCE=twin this is as it should be",
        );
    };
    enforced(node, profile, found);
    let grant = seen.grants.get(node);
    if let Some(grant) = grant
        && grant["spec"]["serial"] != grant["status"]["serial"]
        && grant["spec"]["released"] != true
    {
        found.add(
            Check::Grants,
            format!(
                "node {node}: grant {} is not read back; its agent holds {}",
                grant["spec"]["serial"], grant["status"]["serial"]
            ),
            "the budget counts the node with more than it is granted, and others get less",
            "look at its agent: does it run, and is it of a version that knows grants?",
        );
    }
}

fn enforced(node: &str, profile: &Value, found: &mut Findings) {
    let Some(enforced) = condition(profile, "CapEnforced") else {
        return found.add(
            Check::Caps,
            format!("node {node}: its agent does not say whether its caps are in force"),
            "a cap that nobody reads back is no cap",
            "does its agent run there?",
        );
    };
    let reason = text(enforced, "/reason");
    if enforced["status"] != "True" {
        let act = match reason {
            "SimulateOnly" => {
                "the agent only simulates: set SIMULATE_ONLY=false if caps are to be put in force"
            }
            "Deselected" => {
                "the node is labelled out of what the agent works for: label it, or leave it out of the plan"
            }
            _ => "docs/OPERATE.md, \"A cap is not in force\", by the reason; on the node: joulie node doctor",
        };
        return found.add(
            Check::Caps,
            format!("node {node}: {}", condition_words(enforced)),
            "the node may draw more than the plan counts on",
            act,
        );
    }
    if enforced["observedGeneration"].is_i64()
        && enforced["observedGeneration"] != profile["metadata"]["generation"]
    {
        found.add(
            Check::Caps,
            format!("node {node}: its agent has not answered to what is asked now"),
            "the caps that are in force may be those of before",
            "wait a moment; if it stays, look at its agent's log",
        );
    }
    if reason == "Clamped" {
        found.add(
            Check::OwnersLimits,
            format!("node {node}: {}", condition_words(enforced)),
            "a limit that somebody has set below full power stays, and is counted as if the node had it",
            "put the limit back (firmware, BMC or tool that set it), or label the node joulie.io/reserved=true",
        );
    }
}

/// Two agents for one machine: two reports of it, or two pods on it.
fn one_agent(seen: &Seen, found: &mut Findings) {
    let mut twice = |text: String| {
        found.add(
            Check::OneAgent,
            text,
            "two agents write the limits of one machine in turn, or one waits for the other for ever",
            "keep one: a node is of the DaemonSet or of the pool; delete the object or the pod of the other",
        );
    };
    for (node, first, second) in &seen.hardware.doubles {
        twice(format!("node {node} is reported twice, by NodeHardware {first} and {second}"));
    }
    let mut on: BTreeMap<&str, &str> = BTreeMap::new();
    for pod in
        seen.programs.iter().filter(|pod| pod.component == "agent" && pod.ready && !pod.node.is_empty())
    {
        if let Some(first) = on.insert(&pod.node, &pod.name) {
            twice(format!("the agents {first} and {} run on node {}", pod.name, pod.node));
        }
    }
}

/// Programs that write limits on the machines, or statuses in the API.
fn writers(seen: &Seen, found: &mut Findings) {
    for event in &seen.events {
        found.add(
            Check::Writers,
            format!("node {}: {}", text(event, "/involvedObject/name"), text(event, "/message")),
            "two programs set the same limit in turn, and neither holds it",
            "find the other program (joulie node show, who writes), or label the node joulie.io/reserved=true",
        );
    }
    let objects = [&seen.profiles, &seen.twins, &seen.grants, &seen.hardware];
    for object in objects.into_iter().flat_map(|kind| kind.all.values()) {
        for entry in items(object, "/metadata/managedFields") {
            let who = text(entry, "/manager");
            let status = !entry["fieldsV1"]["f:status"].is_null();
            let grant = text(object, "/kind") == "NodePowerGrant" || !object["spec"]["serial"].is_null();
            let spec = grant && !entry["fieldsV1"]["f:spec"].is_null();
            if (status || spec) && !PROGRAMS.contains(&who) {
                found.add(
                    Check::Writers,
                    format!(
                        "{who} has written the {} of {}",
                        if status { "status" } else { "grant" },
                        name(object)
                    ),
                    "the programs believe what stands there: only they may write it",
                    "find out who that is, and take the right from them; the field comes back by itself",
                );
            }
        }
    }
}

/// Caps of persons: an end that cannot be read, one that has passed, and none at all.
fn persons(seen: &Seen, found: &mut Findings) {
    for (node, profile) in &seen.profiles.all {
        let mut owners = owners(profile, "cpu").into_iter().chain(owners(profile, "gpu"));
        let theirs = owners.rfind(|owner| owner.who != manager::OPERATOR && owner.who != "operator");
        let Some(owner) = theirs else { continue };
        let until = annotation(profile, labels::cap::UNTIL);
        let by = annotation(profile, labels::cap::BY);
        let of = format!("the cap of node {node} was set by {} at {}", owner.who, owner.time);
        let of = if by.is_empty() { of } else { format!("{of}, asked for by {by}") };
        match until.parse::<Timestamp>() {
            Ok(end) if age_seconds(end, seen.now) <= HAND_BACK_SECONDS => {}
            Ok(_) => found.add(
                Check::PersonsCaps,
                format!("{of}, was to end at {until}, and stands"),
                "the plan does not decide for the node",
                "does an operator of this version lead? Take it off by kubectl joulie cap NODE --off --yes",
            ),
            Err(_) => found.add(
                Check::PersonsCaps,
                if until.is_empty() {
                    format!("{of}, and has no end")
                } else {
                    format!("{of}, and its end {until:?} is no time")
                },
                "it stays until somebody takes it off, and the plan does not decide for the node",
                "kubectl joulie cap NODE --off --yes, or set it anew with --for",
            ),
        }
    }
}
