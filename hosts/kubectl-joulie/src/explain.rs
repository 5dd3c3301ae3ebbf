//! `explain`: why a node is capped as it is, or a pod is where it is. Every line says where it is from, so that it can be
//! checked by hand.

use crate::api::{ApiError, path};
use crate::clean::clean;
use crate::decisions;
use crate::fleet;
use crate::object::{
    FieldOwner, age, annotation, condition, condition_words, items, label, name, number, owners, text, time,
};
use crate::remote;
use crate::run::{PluginSession, Reply};
use crate::score;
use crate::show::{document, lines, percent, watts};
use host_kit::config::parse::object_name;
use jiff::Timestamp;
use joulie_api::labels::{self, manager};
use joulie_api::node_power_grant::left_watts;
use joulie_api::sleep::SleepAnnotation;
use serde_json::{Value, json};

/// The newest Events that are shown.
const EVENTS_SHOWN: usize = 10;

/// What is explained, in parts.
struct Explanation {
    lines: Vec<String>,
    document: Value,
    notes: Vec<String>,
}

impl Explanation {
    fn new(kind: &str, name: &str) -> Self {
        Self {
            lines: vec![format!("{kind} {name}")],
            document: json!({"kind": "Explanation", "of": kind, "name": name}),
            notes: Vec::new(),
        }
    }

    fn part(&mut self, title: &str, body: Vec<String>) {
        let mut titled = title;
        for line in body {
            self.lines.push(format!("  {titled:<11} {line}"));
            titled = "";
        }
    }

    fn keep(&mut self, field: &str, value: Value) {
        self.document[field] = value;
    }

    fn reply(self, asked: &PluginSession) -> Reply {
        let text = if asked.format().is_some() {
            document(asked.format(), self.document)
        } else {
            lines(&self.lines.iter().map(|line| clean(line)).collect::<Vec<_>>())
        };
        Reply { text, notes: self.notes, code: 0 }
    }
}

/// The objects of a node.
pub(crate) struct NodeObjects {
    pub(crate) node: Option<Value>,
    pub(crate) profile: Option<Value>,
    pub(crate) twin: Option<Value>,
    pub(crate) grant: Option<Value>,
    pub(crate) hardware: Option<Value>,
}

impl NodeObjects {
    async fn of(asked: &PluginSession, name: &str) -> Result<Self, ApiError> {
        let api = &asked.api;
        let node = format!("{}/{name}", path::NODES);
        let (node, profile, twin, grant, hardware) = tokio::join!(
            api.find(&node),
            fleet::of_node(api, path::PROFILES, name),
            fleet::of_node(api, path::TWINS, name),
            fleet::of_node(api, path::GRANTS, name),
            fleet::of_node(api, path::HARDWARE, name),
        );
        let there = |found: Result<Option<Value>, ApiError>| match found {
            Ok(found) => Ok(found),
            Err(ApiError::Absent) => Ok(None),
            Err(error) => Err(error),
        };
        Ok(Self {
            node: node?,
            profile: there(profile)?,
            twin: there(twin)?,
            grant: there(grant)?,
            hardware: there(hardware)?,
        })
    }
}

pub(crate) async fn node(asked: &PluginSession, name: &str) -> Result<Reply, Reply> {
    object_name(name).map_err(|wrong| Reply::not_done(format!("{name:?} is no name of a node: {wrong}")))?;
    let objects = NodeObjects::of(asked, name).await?;
    let NodeObjects { node, profile, twin, grant, hardware } = &objects;
    if node.is_none() && profile.is_none() && twin.is_none() {
        return Err(Reply::not_done(format!("there is no node {name}, and no object of Joulie's about it")));
    }
    let now = asked.clock.wall();
    let mut said = Explanation::new("node", name);
    said.part("why", because(&objects, now));
    said.part(
        "desired",
        profile
            .as_ref()
            .map_or_else(|| vec!["nothing is asked of it: there is no NodePowerProfile".to_owned()], desired),
    );
    said.part("in force", profile.as_ref().map(in_force).unwrap_or_default());
    said.part(
        "grant",
        grant.as_ref().map_or_else(|| vec!["none: no limit is enforced above it".to_owned()], granted),
    );
    said.part("power", power(twin.as_ref(), now));
    said.part(
        "hardware",
        hardware
            .as_ref()
            .map_or_else(|| vec!["no NodeHardware: its agent has not reported".to_owned()], machine),
    );
    said.part(
        "label",
        node.as_ref().map_or_else(|| vec!["there is no Node object of this name".to_owned()], labels_of),
    );
    let decided = match grant {
        Some(grant) => decisions::above(asked, grant).await,
        None => Ok(Vec::new()),
    };
    said.part(
        "decisions",
        match (&decided, grant) {
            (Ok(all), Some(grant)) => decisions::lines(all, grant, now),
            (Err(why), _) => vec![format!("cannot be listed: {why}")],
            (Ok(_), None) => Vec::new(),
        },
    );
    let conditions = [profile.as_ref(), twin.as_ref()].into_iter().flatten();
    let conditions = conditions.flat_map(|object| items(object, "/status/conditions")).map(condition_words);
    said.part("conditions", conditions.collect());
    let about = format!("/debug/plan?node={name}");
    let (events, plan) =
        tokio::join!(events(asked, "", "Node", name), remote::debug(asked, "operator", &about));
    said.part(
        "events",
        events.as_ref().map_or_else(|why| vec![format!("cannot be listed: {why}")], |all| shown(all, now)),
    );
    said.part(
        "plan",
        plan.as_ref().map_or_else(|why| vec![format!("/debug/plan of the operator: {why}")], planned),
    );
    for (field, value) in
        [("node", node), ("profile", profile), ("twin", twin), ("grant", grant), ("hardware", hardware)]
    {
        said.keep(field, value.clone().unwrap_or_default());
    }
    said.keep("because", because(&objects, now).into());
    said.keep("decisions", decided.unwrap_or_default().into());
    said.keep("events", events.unwrap_or_default().into());
    said.keep("plan", plan.unwrap_or_default());
    Ok(said.reply(asked))
}

/// Who else than the operator has set this part of the desired state.
fn others(object: &Value, field: &str) -> Vec<FieldOwner> {
    owners(object, field)
        .into_iter()
        .filter(|owner| owner.who != manager::OPERATOR && owner.who != "operator")
        .collect()
}

/// The reasons for what the node is allowed, the strongest first.
fn because(objects: &NodeObjects, now: Timestamp) -> Vec<String> {
    let mut why = Vec::new();
    let Some(profile) = &objects.profile else {
        return vec!["it is not capped by a plan: the operator has written nothing for it".to_owned()];
    };
    for (field, devices) in [("cpu", "packages"), ("gpu", "GPUs")] {
        for FieldOwner { who, time } in others(profile, field) {
            why.push(format!(
                "the cap of its {devices} was set by {who} at {time}, and not by the plan{}",
                asked_by(profile, now)
            ));
        }
    }
    for FieldOwner { who, time } in others(profile, "profile") {
        why.push(format!("its profile was set by {who} at {time}, and not by the plan"));
    }
    let policy = text(profile, "/spec/policy/name");
    let since = owners(profile, "profile")
        .into_iter()
        .find(|owner| owner.who == manager::OPERATOR)
        .map(|owner| owner.time);
    let since = since.map_or(String::new(), |time| format!(", last written at {time}"));
    match text(profile, "/spec/profile") {
        "eco" => why.push(format!("the plan makes it eco (policy {policy}{since}): it runs capped")),
        "performance" => {
            why.push(format!("the plan makes it performance (policy {policy}{since}): it runs at full power"))
        }
        other => why.push(format!("its profile is {other:?}, which is none")),
    }
    if let Some(grant) = &objects.grant
        && let Some(granted) = fleet::granted(grant)
    {
        let budget = label(grant, labels::object::POWER_BUDGET);
        let of = if budget.is_empty() { String::new() } else { format!(" of PowerBudget {budget}") };
        why.push(format!(
            "its grant{of} allows {} for all its packages and GPUs together",
            watts(Some(granted))
        ));
    }
    if let Some(enforced) = condition(profile, "CapEnforced")
        && enforced["reason"] != "Enforced"
    {
        why.push(format!("its agent says: {}", condition_words(enforced)));
    }
    why
}

/// What `kubectl joulie cap` has left about a person's cap.
fn asked_by(profile: &Value, now: Timestamp) -> String {
    let (by, until, reason) = (
        annotation(profile, labels::cap::BY),
        annotation(profile, labels::cap::UNTIL),
        annotation(profile, labels::cap::REASON),
    );
    let mut said = String::new();
    if !by.is_empty() {
        said.push_str(&format!("; asked for by {by}"));
    }
    if !reason.is_empty() {
        said.push_str(&format!("; because: {reason}"));
    }
    match until.parse::<Timestamp>() {
        Ok(end) if end <= now => {
            said.push_str(&format!("; it ended at {until}, and the operator is to hand it back"))
        }
        Ok(_) => said.push_str(&format!("; until {until}, then the plan's follows")),
        Err(_) if until.is_empty() => said.push_str("; without an end"),
        Err(_) => said.push_str(&format!("; without an end: {until:?} is no time")),
    }
    said
}

fn cap_words(watts: Option<f64>, percent: Option<f64>) -> String {
    match (watts, percent) {
        (Some(watts), _) => format!("{watts} W"),
        (None, Some(percent)) => format!("{percent} % of the maximum"),
        (None, None) => "no cap".to_owned(),
    }
}

fn desired(profile: &Value) -> Vec<String> {
    let package = cap_words(
        number(profile, "/spec/cpu/packagePowerCapWatts"),
        number(profile, "/spec/cpu/packagePowerCapPctOfMax"),
    );
    let gpu = cap_words(
        number(profile, "/spec/gpu/powerCap/capWattsPerGpu"),
        number(profile, "/spec/gpu/powerCap/capPctOfMax"),
    );
    let mut said = vec![format!(
        "{}; each package {package}, each GPU {gpu} (NodePowerProfile {})",
        text(profile, "/spec/profile"),
        name(profile)
    )];
    for field in ["profile", "cpu", "gpu"] {
        said.extend(
            owners(profile, field)
                .into_iter()
                .map(|owner| format!("spec.{field}: {} at {}", owner.who, owner.time)),
        );
    }
    said
}

fn in_force(profile: &Value) -> Vec<String> {
    let mut said =
        vec![condition(profile, "CapEnforced").map_or("its agent does not say".to_owned(), condition_words)];
    for (field, device) in [("cpu", "package"), ("gpu", "GPU")] {
        let at = format!("/status/control/{field}");
        if profile.pointer(&at).is_none() {
            continue;
        }
        let of = |part: &str| number(profile, &format!("{at}/{part}"));
        let word = |part: &str| text(profile, &format!("{at}/{part}"));
        said.push(format!(
            "each {device}: {} read back, {} asked for ({}, {}) {}",
            watts(of("capWatts")),
            watts(of("requestedWatts")),
            word("backend"),
            word("result"),
            word("message"),
        ));
    }
    said
}

fn granted(grant: &Value) -> Vec<String> {
    let serial = |part: &str| grant.pointer(part).and_then(Value::as_i64);
    let (given, read) = (serial("/spec/serial"), serial("/status/serial"));
    let receipt = match read {
        Some(read) if Some(read) == given => "read back".to_owned(),
        Some(read) => format!("NOT read back: its agent holds serial {read}"),
        None => "NOT read back by its agent yet".to_owned(),
    };
    if grant["spec"]["released"] == true {
        return vec!["released: the agent forgets every grant".to_owned()];
    }
    let yielded = match left_watts(grant) {
        Some(left) if number(grant, "/spec/watts").is_some_and(|given| left < given) => {
            format!(", of which it has yielded all but {}", watts(Some(left)))
        }
        Some(_) | None => String::new(),
    };
    let by = match decisions::of_grant(grant) {
        "" => String::new(),
        decision => format!(", by decision {decision}"),
    };
    vec![format!(
        "{} in all{yielded}, serial {}{by}, {receipt}; its devices hold {} (floor {})",
        watts(number(grant, "/spec/watts")),
        given.unwrap_or_default(),
        watts(number(grant, "/status/holds")),
        watts(number(grant, "/status/floor")),
    )]
}

fn power(twin: Option<&Value>, now: Timestamp) -> Vec<String> {
    let Some(twin) = twin else { return vec!["not known: there is no NodeTwin".to_owned()] };
    let of = |part: &str| number(twin, &format!("/status/powerMeasurement/{part}"));
    let sampled = time(twin, "/status/powerMeasurement/sampledAt");
    let sampled = sampled.map_or("never sampled".to_owned(), |at| format!("sampled {} ago", age(at, now)));
    vec![
        format!(
            "draws {} of {} that its caps allow and {} that it can ({}, {sampled})",
            watts(of("measuredNodePowerW")),
            watts(of("nodeCappedPowerW")),
            watts(of("nodeTdpW")),
            text(twin, "/status/powerMeasurement/source"),
        ),
        format!(
            "class {}, headroom {}, cooling stress {}, PSU stress {}, trend {} per minute",
            text(twin, "/status/schedulableClass"),
            percent(number(twin, "/status/predictedPowerHeadroomScore")),
            percent(number(twin, "/status/predictedCoolingStressScore")),
            percent(number(twin, "/status/predictedPsuStressScore")),
            watts(of("powerTrendWPerMin")),
        ),
    ]
}

fn machine(hardware: &Value) -> Vec<String> {
    let of = |part: &str| text(hardware, &format!("/status/{part}"));
    let mut said = vec![format!("CPU {}", or_unknown(of("cpu/model")))];
    if !hardware["status"]["gpu"].is_null() {
        let count = hardware.pointer("/status/gpu/count").and_then(Value::as_i64).unwrap_or_default();
        said.push(format!("{count} GPUs {}", or_unknown(of("gpu/model"))));
    }
    said
}

fn or_unknown(text: &str) -> &str {
    if text.is_empty() { "of an unknown model" } else { text }
}

fn labels_of(node: &Value) -> Vec<String> {
    let all = [
        labels::node::POWER_PROFILE,
        labels::node::DRAINING,
        labels::node::MANAGED,
        labels::node::RESERVED,
        labels::node::RACK,
        labels::node::COOLING_ZONE,
    ];
    let mut said: Vec<String> = all
        .into_iter()
        .filter(|key| !label(node, key).is_empty())
        .map(|key| format!("{key}={}", label(node, key)))
        .collect();
    if node["spec"]["unschedulable"] == true {
        said.push("it is cordoned".to_owned());
    }
    if let Some(state) = SleepAnnotation::text(node) {
        said.push(format!("{}={state}: {}", labels::node::SLEEP_STATE, SleepAnnotation::meaning(state)));
    }
    if said.is_empty() { vec!["none of Joulie's".to_owned()] } else { said }
}

/// The newest Events about an object, the newest first.
async fn events(
    asked: &PluginSession,
    namespace: &str,
    kind: &str,
    name: &str,
) -> Result<Vec<Value>, ApiError> {
    let mut all = all_events(asked, namespace, kind, name).await?;
    all.truncate(EVENTS_SHOWN);
    Ok(all)
}

/// All Events about an object, the newest first.
pub(crate) async fn all_events(
    asked: &PluginSession,
    namespace: &str,
    kind: &str,
    name: &str,
) -> Result<Vec<Value>, ApiError> {
    let path = if namespace.is_empty() { "/api/v1/events".to_owned() } else { path::events_of(namespace) };
    let field = format!("involvedObject.kind={kind},involvedObject.name={name}");
    let mut all = asked.api.list(&path, &[("fieldSelector", &field)], Some).await?;
    all.sort_by(|one, other| last(other).cmp(last(one)));
    Ok(all)
}

/// When an Event was last seen. RFC 3339 in UTC sorts as text.
pub(crate) fn last(event: &Value) -> &str {
    let fields = ["/series/lastObservedTime", "/lastTimestamp", "/eventTime", "/metadata/creationTimestamp"];
    fields.into_iter().map(|field| text(event, field)).find(|time| !time.is_empty()).unwrap_or_default()
}

fn shown(events: &[Value], now: Timestamp) -> Vec<String> {
    if events.is_empty() {
        return vec!["none; the API server forgets them after an hour".to_owned()];
    }
    let line = |event: &Value| {
        let ago =
            last(event).parse().map_or("at an unknown time".to_owned(), |at| format!("{} ago", age(at, now)));
        format!("{ago}: {} {}: {}", text(event, "/type"), text(event, "/reason"), text(event, "/message"))
    };
    events.iter().map(line).collect()
}

/// What the operator's last pass says of the node, in the words of its page.
fn planned(page: &Value) -> Vec<String> {
    let Some(node) = items(page, "/nodes").first() else {
        return vec!["no node of this name is planned".to_owned()];
    };
    let fields =
        ["planned", "by", "state", "class", "held", "desired", "performancePods", "overdue", "writing"];
    let mut said: Vec<String> = fields
        .iter()
        .filter(|field| !node[**field].is_null())
        .map(|field| format!("{field}: {}", plain(&node[*field])))
        .collect();
    let inputs = node["inputs"].as_object().into_iter().flatten();
    said.extend(
        inputs
            .filter(|(_, value)| !value.is_null())
            .map(|(field, value)| format!("inputs.{field}: {}", plain(value))),
    );
    said
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

pub(crate) async fn pod(asked: &PluginSession, name: &str) -> Result<Reply, Reply> {
    let (namespace, name) = name.split_once('/').unwrap_or((asked.namespace.as_str(), name));
    for part in [namespace, name] {
        object_name(part).map_err(|wrong| Reply::not_done(format!("{part:?} is no name: {wrong}")))?;
    }
    let pod = asked.api.find(&format!("{}/{name}", path::pods_of(namespace))).await?;
    let pod = pod.ok_or_else(|| Reply::not_done(format!("there is no pod {namespace}/{name}")))?;
    let now = asked.clock.wall();
    let mut said = Explanation::new("pod", &format!("{namespace}/{name}"));
    let node = text(&pod, "/spec/nodeName");
    let class = annotation(&pod, labels::pod::WORKLOAD_CLASS);
    let scheduled = condition(&pod, "PodScheduled").map(condition_words);
    said.part(
        "where",
        vec![
            if node.is_empty() {
                "it waits for a node".to_owned()
            } else {
                format!("it is on node {node}, {}", text(&pod, "/status/phase"))
            },
            format!(
                "class {}",
                if class.is_empty() { "standard: it has no joulie.io/workload-class" } else { class }
            ),
        ],
    );
    said.part("scheduled", scheduled.into_iter().collect());
    let about = format!("/debug/explain?pod={namespace}/{name}");
    let (events, page) = tokio::join!(
        events(asked, namespace, "Pod", name),
        remote::debug(asked, "scheduler-extender", &about)
    );
    // The same code judges it here, with the extender's default settings.
    let (page, from) = match page {
        Ok(page) => (Ok(page), "as the extender of the cluster says".to_owned()),
        Err(why) => {
            let known = fleet::nodes(&asked.api, &[]).await.map(|nodes| nodes.into_keys().collect());
            let scored = match known {
                Ok(names) => score::judged(asked, &pod, names).await,
                Err(error) => Err(format!("nodes cannot be listed: {error}")),
            };
            (scored, format!("as this program judges by the extender's default settings ({why})"))
        }
    };
    match &page {
        Ok(page) => {
            said.part("scores", std::iter::once(from).chain(score::lines(page, node)).collect());
            said.keep("scoring", page.clone());
        }
        Err(why) => said.notes.push(format!("no scores: {why}")),
    }
    said.part(
        "events",
        events.as_ref().map_or_else(|why| vec![format!("cannot be listed: {why}")], |all| shown(all, now)),
    );
    if !node.is_empty() {
        let objects = NodeObjects::of(asked, node).await?;
        said.part("its node", because(&objects, now));
        said.keep("nodeBecause", because(&objects, now).into());
    }
    said.keep("pod", json!({"metadata": {"name": name, "namespace": namespace}, "spec": {"nodeName": node}, "class": class}));
    said.keep("events", events.unwrap_or_default().into());
    Ok(said.reply(asked))
}
