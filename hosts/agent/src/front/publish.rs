//! Writes statuses by server-side apply: only what has changed, and again after a failure.
//!
//! A document is compared with what was last written, without the times, so that a steady node writes nothing. The
//! agent alone knows what it read back, so it takes over its own fields from any previous writer, such as an agent of
//! another generation. It never applies a field of anybody else.

use super::outcome::{Outcome, RouteOutcome, RouteWhy, Said, Verdict};
use super::receipt::Receipt;
use super::rows::Seen;
use crate::metrics::{Metrics, Written};
use jiff::Timestamp;
use joulie_api::condition::{ConditionType, rfc3339};
use joulie_api::labels::{manager, object};
use joulie_api::names;
use joulie_api::node_hardware::NodeHardware;
use joulie_api::node_power_grant::{GrantDemand, NodePowerGrant};
use joulie_api::node_power_profile::NodePowerProfile;
use joulie_api::node_twin::NodeTwin;
use joulie_api::number::Number;
use joulie_api::telemetry_profile::TelemetryProfile;
use joulie_api::word::Vocabulary;
use kube::api::{ApiResource, DynamicObject, Patch, PatchParams};
use kube::{Api, Client, Resource};
use power_units::Watts;
use serde_json::{Map, Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;

/// The kind of object whose status a document is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Grant,
    Profile,
    Twin,
    Hardware,
    Route,
    /// A TelemetryProfile for the node that another one comes before: the first, the second and so on.
    Rival(u8),
}

impl Kind {
    fn resource(self) -> ApiResource {
        match self {
            Self::Grant => ApiResource::erase::<NodePowerGrant>(&()),
            Self::Profile => ApiResource::erase::<NodePowerProfile>(&()),
            Self::Twin => ApiResource::erase::<NodeTwin>(&()),
            Self::Hardware => ApiResource::erase::<NodeHardware>(&()),
            Self::Route | Self::Rival(_) => ApiResource::erase::<TelemetryProfile>(&()),
        }
    }

    /// The field of the status that holds the outcome.
    const fn control(self) -> &'static str {
        match self {
            Self::Grant | Self::Profile | Self::Hardware | Self::Route | Self::Rival(_) => {
                super::rows::CONTROL_OF_PROFILE
            }
            Self::Twin => super::rows::CONTROL_OF_TWIN,
        }
    }

    /// The part of a status that belongs to the agent.
    fn published(self, status: &Value) -> Value {
        match self {
            Self::Profile | Self::Twin => super::rows::published(status, self.control()),
            Self::Route | Self::Rival(_) => super::rows::published_route(status),
            Self::Grant | Self::Hardware => status.clone(),
        }
    }
}

/// A status to publish.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Doc {
    /// The object; `None` if it is still to be created.
    pub(crate) object: Option<(String, String)>,
    /// The status that the watch shows.
    pub(crate) seen: Arc<Seen>,
    pub(crate) content: Content,
}

/// What a document says, without the times.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Content {
    /// The outcome of the desired state.
    Outcome(Outcome),
    /// The receipt of a grant, and what the node wants to draw.
    Receipt(Receipt, Option<GrantDemand>),
    /// Whether a TelemetryProfile is followed, and the outcome where it leads.
    Route(RouteOutcome),
    /// The whole status of a NodeHardware.
    Hardware {
        /// The node's name and uid, for an object that is still to be created.
        node: (String, String),
        status: Arc<Value>,
    },
}

/// The fields that hold a time. Times do not count as content.
const TIMES: [&str; 2] = ["updatedAt", "lastTransitionTime"];

impl Content {
    /// The status to apply, where `base` is the present one; `None` if `base` already says the same.
    pub(crate) fn status(&self, kind: Kind, base: &Value, now: Timestamp) -> Option<Value> {
        let mut status = match self {
            Self::Outcome(outcome) => outcome_status(kind, outcome, base)?,
            Self::Receipt(receipt, demand) => receipt_status(receipt, demand.as_ref()),
            Self::Route(outcome) => route_status(outcome, base),
            Self::Hardware { status, .. } => Value::clone(status),
        };
        if says_the_same(&status, base) {
            return None;
        }
        fill_times(&mut status, base, &rfc3339(now));
        if matches!(self, Self::Hardware { .. } | Self::Receipt(..)) {
            status["updatedAt"] = Value::String(rfc3339(now));
        }
        Some(status)
    }
}

/// The outcome as a part of a status. A part about which there is nothing new keeps its present value.
fn outcome_status(kind: Kind, outcome: &Outcome, base: &Value) -> Option<Value> {
    let Outcome { cpu, gpu, verdict } = outcome;
    if cpu.is_none() && gpu.is_none() && verdict.is_none() {
        return None;
    }
    let mut control = Map::new();
    for (part, said) in [("cpu", cpu), ("gpu", gpu)] {
        let value = said.as_ref().map(said_value).or_else(|| base[kind.control()].get(part).cloned());
        control.extend(value.map(|value| (part.to_owned(), value)));
    }
    let mut status = Map::new();
    if !control.is_empty() {
        status.insert(kind.control().to_owned(), Value::Object(control));
    }
    let conditions = verdict.as_ref().map(|verdict| json!([condition_value(verdict)]));
    let conditions = conditions.or_else(|| base.get("conditions").cloned());
    status.extend(conditions.map(|conditions| ("conditions".to_owned(), conditions)));
    Some(Value::Object(status))
}

/// The status of a TelemetryProfile. A part about which there is nothing new keeps what is said of this generation.
fn route_status(outcome: &RouteOutcome, base: &Value) -> Value {
    let RouteOutcome { node, why, message, generation, cpu, gpu } = outcome;
    let part = |name: &str, said: &Option<Said>| match said {
        Some(said) => route_said(node, said),
        // Of one that is not followed nothing came, whatever came of it before.
        None if *why != RouteWhy::Outranked && base["observedGeneration"].as_i64() == *generation => {
            base[super::rows::CONTROL_OF_PROFILE][name].clone()
        }
        // What is there is about the route of before.
        None => Value::Null,
    };
    let condition = json!({
        "type": ConditionType::Accepted.as_str(),
        "status": why.status().as_str(),
        "reason": why.word(),
        "message": message,
        "observedGeneration": generation,
    });
    without_nulls(json!({
        "control": {"cpu": part("cpu", cpu), "gpu": part("gpu", gpu)},
        "conditions": [condition],
        "observedGeneration": generation,
    }))
}

fn route_said(node: &str, said: &Said) -> Value {
    let Said { backend, result, message, generation: _, requested, cap } = said;
    let watts = |watts: &Option<Watts>| watts.map(Number::from);
    let observed = json!({"node": node, "requestedWatts": watts(requested), "capWatts": watts(cap)});
    json!({"backend": backend.word(), "result": result, "message": message, "observed": observed})
}

fn receipt_status(receipt: &Receipt, demand: Option<&GrantDemand>) -> Value {
    let Receipt { serial, boot, node, holds, floor, yields, armed } = receipt;
    let armed = Some(armed).filter(|armed| !armed.is_empty());
    let whole = |watts: &Watts| watts.to_bits().saturating_add(u32::MAX.into()) >> 32;
    without_nulls(json!({
        "serial": serial, "bootID": boot, "nodeUID": node, "holds": holds.as_ref().map(whole),
        "floor": floor.as_ref().map(whole), "yields": yields.as_ref().map(whole), "armed": armed, "demand": demand,
    }))
}

fn said_value(said: &Said) -> Value {
    let Said { backend, result, message, generation, requested, cap } = said;
    let watts = |watts: &Option<Watts>| watts.map(Number::from);
    without_nulls(json!({
        "backend": backend.word(),
        "result": result,
        "message": message,
        "observedGeneration": generation,
        "requestedWatts": watts(requested),
        "capWatts": watts(cap),
    }))
}

fn condition_value(verdict: &Verdict) -> Value {
    let Verdict { why, message, generation } = verdict;
    without_nulls(json!({
        "type": ConditionType::CapEnforced.as_str(),
        "status": why.status().as_str(),
        "reason": why.word(),
        "message": message,
        "observedGeneration": generation,
    }))
}

pub(crate) fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(parts) => {
            let parts = parts.into_iter().filter(|(_, part)| !part.is_null());
            Value::Object(parts.map(|(key, part)| (key, without_nulls(part))).collect())
        }
        Value::Array(items) => Value::Array(items.into_iter().map(without_nulls).collect()),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value,
    }
}

/// Whether two values are equal but for their times. A null is the same as nothing, and numbers are equal whatever their
/// form is.
fn says_the_same(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Object(one), Value::Object(other)) => {
            let counts = |(key, part): &(&String, &Value)| !TIMES.contains(&key.as_str()) && !part.is_null();
            let count = other.iter().filter(counts).count();
            let mut mine = one.iter().filter(counts);
            one.iter().filter(counts).count() == count
                && mine.all(|(key, part)| other.get(key).is_some_and(|other| says_the_same(part, other)))
        }
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| says_the_same(one, other))
        }
        (Value::Number(one), Value::Number(other)) => one.as_f64() == other.as_f64(),
        (one, other) => one == other,
    }
}

/// Sets the time of each part: its previous time if the content is the same, otherwise now.
fn fill_times(status: &mut Value, base: &Value, now: &str) {
    for control in [super::rows::CONTROL_OF_PROFILE, super::rows::CONTROL_OF_TWIN] {
        for part in ["cpu", "gpu"] {
            let Some(said) = status.get_mut(control).and_then(|control| control.get_mut(part)) else {
                continue;
            };
            let before = &base[control][part];
            let same = says_the_same(said, before);
            let time = before["updatedAt"].as_str().filter(|_| same).unwrap_or(now);
            said["updatedAt"] = Value::String(time.to_owned());
        }
    }
    let about = |all: &Value, kind: &Value| {
        let all = all["conditions"].as_array().cloned().unwrap_or_default();
        all.into_iter().find(|one| one["type"] == *kind)
    };
    for condition in status.get_mut("conditions").and_then(Value::as_array_mut).into_iter().flatten() {
        let before = about(base, &condition["type"]).filter(|before| before["status"] == condition["status"]);
        let time = before.as_ref().and_then(|before| before["lastTransitionTime"].as_str()).unwrap_or(now);
        condition["lastTransitionTime"] = Value::String(time.to_owned());
    }
}

/// Why a write failed.
#[derive(Debug)]
pub(crate) enum WriteError {
    /// The object does not exist (any more).
    Gone,
    /// Anything else.
    Failed(String),
}

impl From<kube::Error> for WriteError {
    fn from(error: kube::Error) -> Self {
        if let kube::Error::Api(status) = &error {
            return match status.code {
                404 => Self::Gone,
                code => Self::Failed(format!("{code} {}", status.message)),
            };
        }
        Self::Failed(error.to_string())
    }
}

/// Writes to the API for all nodes.
pub(crate) struct Writer {
    client: Client,
    /// Limits how many requests run at once: a pool writes for thousands of nodes.
    turns: Semaphore,
    /// Receipts have slots of their own, because the budget waits for them.
    first: Semaphore,
    metrics: Metrics,
}

const AT_ONCE: usize = 16;
const TIMEOUT: Duration = Duration::from_secs(10);

impl Writer {
    pub(crate) fn new(client: Client, metrics: Metrics) -> Self {
        Self { client, turns: Semaphore::new(AT_ONCE), first: Semaphore::new(AT_ONCE), metrics }
    }

    /// Applies a status. Returns the part of it that the object then carries.
    pub(crate) async fn apply(&self, kind: Kind, name: &str, status: &Value) -> Result<Seen, WriteError> {
        let resource = kind.resource();
        let body = json!({
            "apiVersion": resource.api_version, "kind": resource.kind,
            "metadata": {"name": name}, "status": status,
        });
        let api: Api<DynamicObject> = Api::all_with(self.client.clone(), &resource);
        let params = PatchParams::apply(manager::AGENT).force();
        let patch = Patch::Apply(body);
        let done = self.in_turn(kind, api.patch_status(name, &params, &patch)).await;
        self.count(kind, done.as_ref().map(drop));
        let object = done?;
        let status = kind.published(&object.data["status"]);
        Ok(Seen { version: object.metadata.resource_version.unwrap_or_default(), status })
    }

    /// Creates the NodeHardware of a node, and returns its name and uid. An object of that name that belongs to another
    /// node is left alone.
    pub(crate) async fn make(&self, node: (&str, &str)) -> Result<(String, String), WriteError> {
        let (node, uid) = node;
        let resource = Kind::Hardware.resource();
        let api: Api<DynamicObject> = Api::all_with(self.client.clone(), &resource);
        let plain = names::plain(node);
        let there = self.in_turn(Kind::Hardware, api.get_opt(&plain)).await?;
        let holder = there.as_ref().and_then(|there| there.data["spec"]["nodeName"].as_str());
        let name = names::name_for(node, |name| if name == plain { holder } else { None });
        let mut metadata = json!({"name": name, "labels": {object::MANAGED_BY: object::BY_AGENT}});
        if !uid.is_empty() {
            // The object is deleted with its Node.
            metadata["ownerReferences"] =
                json!([{"apiVersion": "v1", "kind": "Node", "name": node, "uid": uid}]);
        }
        let body = json!({
            "apiVersion": resource.api_version, "kind": resource.kind,
            "metadata": metadata, "spec": {"nodeName": node},
        });
        let params = PatchParams::apply(manager::AGENT);
        let patch = Patch::Apply(body);
        let made = self.in_turn(Kind::Hardware, api.patch(&name, &params, &patch)).await;
        self.count(Kind::Hardware, made.as_ref().map(drop));
        Ok((name, made?.meta().uid.clone().unwrap_or_default()))
    }

    async fn in_turn<T>(
        &self,
        kind: Kind,
        work: impl Future<Output = kube::Result<T>>,
    ) -> Result<T, WriteError> {
        let turns = match kind {
            Kind::Grant => &self.first,
            Kind::Profile | Kind::Twin | Kind::Hardware | Kind::Route | Kind::Rival(_) => &self.turns,
        };
        // The semaphores are never closed.
        let _turn = turns.acquire().await;
        match tokio::time::timeout(TIMEOUT, work).await {
            Ok(done) => Ok(done?),
            Err(_) => Err(WriteError::Failed("the API server did not answer in 10s".to_owned())),
        }
    }

    fn count(&self, kind: Kind, done: Result<(), &WriteError>) {
        let outcome = match done {
            Ok(()) => Written::Done,
            Err(WriteError::Gone) => Written::Gone,
            Err(WriteError::Failed(_)) => Written::Failed,
        };
        self.metrics.wrote(kind, outcome);
    }
}

#[cfg(test)]
mod tests;
