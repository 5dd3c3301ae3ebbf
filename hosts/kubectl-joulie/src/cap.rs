//! `cap`: a person's cap on a node, for a time, and its end. It is written into the NodePowerProfile that the operator has
//! made for the node: the fields are then the person's, the operator leaves them as they are, and the annotation with the
//! end lets it hand them back. A grant stays above it: a cap of a person never lifts what a budget allows.

use crate::api::{ApiError, ClusterApi, path};
use crate::args::{CapFlag, CapOrder};
use crate::clean::clean;
use crate::fleet;
use crate::object::{annotation, name, owners, text};
use crate::run::{PluginSession, Reply};
use crate::show::lines;
use host_kit::config::parse::object_name;
use joulie_api::condition::rfc3339;
use joulie_api::labels::{cap as annotations, manager};
use serde_json::{Map, Value, json};

/// A reason is a sentence.
const REASON_MAX: usize = 200;
/// How often a write is sent whose object had a new version.
const TRIES: usize = 5;

pub(crate) async fn cap(asked: &PluginSession, order: &CapOrder) -> Result<Reply, Reply> {
    let usage = |why: String| Reply { code: 2, ..Reply::not_done(why) };
    let CapOrder { node, package, gpu, lasting, reason, off, yes } = order;
    object_name(node).map_err(|wrong| usage(format!("{node:?} is no name of a node: {wrong}")))?;
    if reason
        .as_ref()
        .is_some_and(|reason| reason.chars().count() > REASON_MAX || reason.chars().any(char::is_control))
    {
        return Err(usage(format!("a reason is one line of at most {REASON_MAX} characters")));
    }
    let profile = fleet::of_node(&asked.api, path::PROFILES, node).await?;
    let profile = profile.ok_or_else(|| {
        Reply::not_done(format!("there is no NodePowerProfile of node {node}: the operator has not planned for it; is it labelled joulie.io/managed=true?"))
    })?;
    let theirs = others(&profile);
    if !theirs.is_empty() {
        return Err(Reply::not_done(format!(
            "the caps of node {node} were set by {}: they are left alone; whoever set them must take them off first",
            theirs.join(" and ")
        )));
    }
    let document = if *off {
        if owners(&profile, "cpu")
            .iter()
            .chain(&owners(&profile, "gpu"))
            .all(|owner| owner.who != manager::KUBECTL)
        {
            return Ok(Reply::done(format!("node {node} has no cap of a person\n")));
        }
        let ours = |field: &str| owners(&profile, field).iter().any(|owner| owner.who == manager::KUBECTL);
        let spec: Map<String, Value> = ["cpu", "gpu"]
            .into_iter()
            .filter(|field| ours(field))
            .map(|field| (field.to_owned(), Value::Null))
            .collect();
        json!({"metadata": {"annotations": {(annotations::UNTIL): null, (annotations::BY): null, (annotations::REASON): null}}, "spec": spec})
    } else {
        let until = lasting.map(|lasting| asked.clock.wall().saturating_add(lasting)).transpose();
        let until = until.map_err(|error| usage(error.to_string()))?.map(rfc3339);
        let mut spec = Map::new();
        if let Some(cap) = package {
            let (watts, percent) = numbers(*cap);
            spec.insert(
                "cpu".to_owned(),
                json!({"packagePowerCapWatts": watts, "packagePowerCapPctOfMax": percent}),
            );
        }
        if let Some(cap) = gpu {
            let (watts, percent) = numbers(*cap);
            spec.insert(
                "gpu".to_owned(),
                json!({"powerCap": {"scope": "perGpu", "capWattsPerGpu": watts, "capPctOfMax": percent}}),
            );
        }
        json!({"metadata": {"annotations": {
            (annotations::UNTIL): until, (annotations::BY): who(asked).await, (annotations::REASON): reason,
        }}, "spec": spec})
    };
    let mut said = told(node, &profile, &document);
    if *yes {
        write(&asked.api, &profile, document).await?;
        said.push(format!("Written. See it come into force: kubectl joulie explain node {node}"));
    } else {
        said.push("Nothing was written: add --yes.".to_owned());
    }
    Ok(Reply::done(lines(&said.iter().map(|line| clean(line)).collect::<Vec<_>>())))
}

/// Writes into the object that was looked at. Its status is the agent's, and is written at any time: a version that differs in
/// nothing else is no reason to ask the person again.
async fn write(api: &ClusterApi, looked_at: &Value, mut document: Value) -> Result<(), Reply> {
    let at = format!("{}/{}", path::PROFILES, name(looked_at));
    let mut newest = looked_at.clone();
    for _ in 0..TRIES {
        document["metadata"]["resourceVersion"] = newest["metadata"]["resourceVersion"].take();
        match api.merge(&at, &document).await {
            Err(ApiError::Conflict(_)) => newest = api.get(&at).await?,
            answer => return Ok(answer.map(drop)?),
        }
        let same = |pointer: &str| newest.pointer(pointer) == looked_at.pointer(pointer);
        let theirs = !others(&newest).is_empty();
        if theirs || !(same("/metadata/uid") && same("/metadata/annotations") && same("/spec")) {
            break;
        }
    }
    Err(Reply::not_done("somebody else has changed the object in this moment: look again, and repeat it"))
}

/// Persons and programs that have set caps in another way.
fn others(profile: &Value) -> Vec<String> {
    let known = [manager::OPERATOR, "operator", manager::KUBECTL];
    let all = owners(profile, "cpu").into_iter().chain(owners(profile, "gpu"));
    let mut others: Vec<String> =
        all.map(|owner| owner.who).filter(|who| !known.contains(&who.as_str())).collect();
    others.sort();
    others.dedup();
    others
}

const fn numbers(cap: CapFlag) -> (Option<f64>, Option<f64>) {
    match cap {
        CapFlag::Watts(watts) => (Some(watts), None),
        CapFlag::Percent(percent) => (None, Some(percent)),
    }
}

/// What would be written, and what it means.
fn told(node: &str, profile: &Value, document: &Value) -> Vec<String> {
    let mut said = vec![format!("NodePowerProfile {} of node {node}:", name(profile))];
    for field in ["cpu", "gpu"] {
        let Some(new) = document["spec"].get(field) else { continue };
        said.push(format!("  spec.{field}: {} becomes {}", shown(&profile["spec"][field]), shown(new)));
    }
    let until = annotation(document, annotations::UNTIL);
    said.push(if document["spec"].as_object().is_some_and(|spec| spec.values().all(Value::is_null)) {
        "  the caps are the plan's again".to_owned()
    } else if until.is_empty() {
        "  without an end: it stays until it is taken off with --off".to_owned()
    } else {
        format!(
            "  until {until}; within a minute after that the operator hands it back, also after a restart"
        )
    });
    let by = annotation(document, annotations::BY);
    if !by.is_empty() {
        said.push(format!("  asked for by {by}"));
    }
    if text(profile, "/spec/profile") == "performance" && !document["spec"]["cpu"].is_null() {
        said.push(
            "  the node stays labelled performance: pods that need full power may still go there".to_owned(),
        );
    }
    said
}

/// A part of a spec without what is null in it.
fn shown(part: &Value) -> String {
    match part {
        Value::Null => "nothing".to_owned(),
        Value::Object(fields) => {
            let fields = fields.iter().filter(|(_, value)| !value.is_null());
            fields.map(|(field, value)| format!("{field} {}", shown(value))).collect::<Vec<_>>().join(", ")
        }
        Value::String(text) => text.clone(),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) => part.to_string(),
    }
}

/// Who asks, as the API server knows them.
async fn who(asked: &PluginSession) -> String {
    let body = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let answer = asked.api.post("/apis/authentication.k8s.io/v1/selfsubjectreviews", &body).await;
    let user = answer.map(|answer| text(&answer, "/status/userInfo/username").to_owned()).unwrap_or_default();
    if user.is_empty() { "somebody whom the API server does not name".to_owned() } else { user }
}
