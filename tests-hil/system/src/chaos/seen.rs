//! The grants and leaders in the API while it is reachable: every grant through a watch, and both Leases by polling.

use super::truth::Truth;
use crate::SystemError;
use crate::rights::NAMESPACE;
use futures::TryStreamExt;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, ListParams, WatchEvent, WatchParams};
use kube::{Api, Client};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// The polling interval of the Leases, which is the accuracy of a takeover time.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// The delay before an ended watch is opened again.
const AGAIN: Duration = Duration::from_millis(200);

/// A grant with its receipt.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Grant {
    pub(super) serial: u64,
    pub(super) watts: f64,
    /// The serial that was read back, and the boot id.
    pub(super) read_back: u64,
    pub(super) boot: String,
}

impl Grant {
    fn read(object: &Value) -> Option<(String, Self)> {
        let (spec, status) = (&object["spec"], &object["status"]);
        let grant = Self {
            serial: spec["serial"].as_u64()?,
            watts: spec["watts"].as_f64()?,
            read_back: status["serial"].as_u64().unwrap_or_default(),
            boot: status["bootID"].as_str().unwrap_or_default().to_owned(),
        };
        Some((spec["nodeName"].as_str()?.to_owned(), grant))
    }
}

/// A grant that was lowered.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Lowered {
    pub(super) at: Instant,
    pub(super) node: String,
    pub(super) from: f64,
    pub(super) to: f64,
    /// The sum of the limits of all machines at that moment, and the limit of the site.
    pub(super) sum: f64,
    pub(super) limit: f64,
}

/// The holder of the Lease and the renewer of the plan's Lease, from a moment on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Reign {
    pub(super) at: Instant,
    pub(super) holder: String,
    pub(super) planner: String,
}

#[derive(Default)]
struct State {
    /// The boot id of each machine, if known.
    boots: BTreeMap<String, String>,
    grants: BTreeMap<String, Grant>,
    lowered: Vec<Lowered>,
    /// When a grant was last written.
    changed: Option<Instant>,
    reigns: Vec<Reign>,
    /// When the plan's Lease was last renewed, and its content then.
    planned: Option<(Instant, String)>,
}

impl State {
    /// Whether a machine has reported its limits in its current boot.
    fn has_receipt(&self, node: &str) -> bool {
        let said = self.grants.get(node).filter(|grant| grant.read_back > 0);
        said.is_some_and(|grant| self.boots.get(node) == Some(&grant.boot))
    }
}

/// See the module documentation.
pub(super) struct Seen {
    truth: Arc<Truth>,
    state: Mutex<State>,
}

impl Seen {
    /// Starts following the API, until the process ends.
    pub(super) fn start(client: &Client, truth: &Arc<Truth>) -> Arc<Self> {
        let seen = Arc::new(Self { truth: Arc::clone(truth), state: Mutex::default() });
        tokio::spawn(Arc::clone(&seen).follow_grants(client.clone()));
        tokio::spawn(Arc::clone(&seen).follow_leases(client.clone()));
        seen
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the current boot ids; empty while they are unknown.
    pub(super) fn booted(&self, boots: BTreeMap<String, String>) {
        let mut state = self.state();
        state.boots = boots;
        let heard: Vec<_> = state.boots.keys().filter(|node| state.has_receipt(node)).cloned().collect();
        drop(state);
        heard.iter().for_each(|node| self.truth.receipt(node));
    }

    /// The machines whose grant is not read back in their current boot.
    pub(super) fn missing(&self) -> Vec<(String, Option<Grant>)> {
        let state = self.state();
        let is_missing = |node: &&String| {
            let grant = state.grants.get(*node);
            !state.has_receipt(node) || grant.is_none_or(|grant| grant.read_back != grant.serial)
        };
        let missing = state.boots.keys().filter(is_missing);
        missing.map(|node| (node.clone(), state.grants.get(node).cloned())).collect()
    }

    /// How many machines have reported their limits in their current boot.
    pub(super) fn receipts(&self) -> usize {
        let state = self.state();
        state.boots.keys().filter(|node| state.has_receipt(node)).count()
    }

    /// Whether the leader has made a whole plan since then.
    pub(super) fn has_planned_since(&self, since: Instant) -> bool {
        self.state().planned.as_ref().is_some_and(|(at, _)| *at >= since)
    }

    pub(super) fn grants(&self) -> BTreeMap<String, Grant> {
        self.state().grants.clone()
    }

    /// The grants that were lowered since then.
    pub(super) fn lowered_since(&self, since: Instant) -> Vec<Lowered> {
        self.state().lowered.iter().filter(|one| one.at >= since).cloned().collect()
    }

    /// How long no grant has changed.
    pub(super) fn quiet(&self) -> Duration {
        self.state().changed.map_or(Duration::ZERO, |at| at.elapsed())
    }

    pub(super) fn reigns(&self) -> Vec<Reign> {
        self.state().reigns.clone()
    }

    async fn follow_grants(self: Arc<Self>, client: Client) {
        let kind = GroupVersionKind::gvk("joulie.io", "v1alpha1", "NodePowerGrant");
        let mut resource = ApiResource::from_gvk(&kind);
        "nodepowergrants".clone_into(&mut resource.plural);
        let grants = Api::all_with(client, &resource);
        loop {
            // If the API server is unreachable, try again.
            let _ = self.watch_grants(&grants).await;
            tokio::time::sleep(AGAIN).await;
        }
    }

    async fn watch_grants(&self, grants: &Api<DynamicObject>) -> Result<(), SystemError> {
        let listed = grants.list(&ListParams::default()).await?;
        for object in &listed.items {
            self.note(&serde_json::to_value(object)?);
        }
        let version = listed.metadata.resource_version.unwrap_or_default();
        let mut events = Box::pin(grants.watch(&WatchParams::default().timeout(290), &version).await?);
        while let Some(event) = events.try_next().await? {
            match event {
                WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                    self.note(&serde_json::to_value(&object)?);
                }
                WatchEvent::Deleted(object) => {
                    if let Some((node, _)) = Grant::read(&serde_json::to_value(&object)?) {
                        self.state().grants.remove(&node);
                    }
                }
                WatchEvent::Bookmark(_) => {}
                WatchEvent::Error(error) => return Err(format!("{error:?}").into()),
            }
        }
        Ok(())
    }

    fn note(&self, object: &Value) {
        let Some((node, grant)) = Grant::read(object) else { return };
        let look = self.truth.look();
        let mut state = self.state();
        let before = state.grants.insert(node.clone(), grant.clone());
        if state.has_receipt(&node) {
            self.truth.receipt(&node);
        }
        if before.as_ref().is_none_or(|before| before.serial != grant.serial) {
            state.changed = Some(Instant::now());
        }
        if let Some(before) = before.filter(|before| grant.watts < before.watts - 1.0) {
            let (from, to) = (before.watts, grant.watts);
            self.truth.note(&format!("{node} is granted {to} W after {from} W"));
            let (sum, limit) = (look.sum, look.limit);
            state.lowered.push(Lowered { at: Instant::now(), node, from, to, sum, limit });
        }
    }

    async fn follow_leases(self: Arc<Self>, client: Client) {
        let leases: Api<Lease> = Api::namespaced(client, NAMESPACE);
        let read = async |name: &str| {
            let spec = leases.get_opt(name).await.ok()?.and_then(|lease| lease.spec).unwrap_or_default();
            let renewed = spec.renew_time.map(|time| time.0.to_string()).unwrap_or_default();
            Some((spec.holder_identity.unwrap_or_default(), renewed))
        };
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            let plan = read("joulie-plan").await;
            let (Some((planner, renewed)), Some((holder, _))) = (plan, read("joulie-operator").await) else {
                continue;
            };
            let mut state = self.state();
            let now = Instant::now();
            if !renewed.is_empty() && state.planned.as_ref().is_none_or(|(_, before)| *before != renewed) {
                state.planned = Some((now, renewed));
            }
            let last = state.reigns.last();
            let is_known = last.is_some_and(|last| last.holder == holder && last.planner == planner);
            if !is_known {
                self.truth.note(&format!("the Lease is {holder:?}'s, the plan {planner:?}'s"));
                state.reigns.push(Reign { at: now, holder, planner });
            }
        }
    }
}

/// How long after the kill of a leader another one held the Lease, and had renewed the plan's Lease.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Takeover {
    pub(super) held: Duration,
    pub(super) acted: Option<Duration>,
}

/// The takeover after the holder of the Lease was killed; `None` if there was none before the record ends.
pub(super) fn takeover(reigns: &[Reign], killed: &str, at: Instant) -> Option<Takeover> {
    let later = || reigns.iter().filter(|reign| reign.at >= at);
    let next = later().find(|reign| reign.holder != killed && !reign.holder.is_empty())?;
    let acted = later().find(|reign| reign.planner == next.holder);
    Some(Takeover { held: next.at - at, acted: acted.map(|reign| reign.at - at) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_takeover_is_from_the_kill_to_the_plan_of_the_next_leader() {
        let start = Instant::now();
        let reign = |ms: u64, holder: &str, planner: &str| Reign {
            at: start + Duration::from_millis(ms),
            holder: holder.to_owned(),
            planner: planner.to_owned(),
        };
        let reigns = [
            reign(0, "a", "a"),
            reign(5_000, "b", "a"),
            reign(5_400, "b", "b"),
            reign(20_000, "c", "b"),
            reign(30_000, "d", "b"),
        ];
        let of = |killed: &str, ms: u64| takeover(&reigns, killed, start + Duration::from_millis(ms));
        let ms = Duration::from_millis;
        assert_eq!(of("a", 1_000), Some(Takeover { held: ms(4_000), acted: Some(ms(4_400)) }));
        assert_eq!(
            of("b", 6_000),
            Some(Takeover { held: ms(14_000), acted: None }),
            "killed before it acted"
        );
        assert_eq!(of("d", 31_000), None);
    }

    #[test]
    fn a_grant_is_read_with_its_receipt() {
        let mut object = json!({"spec": {"nodeName": "a", "serial": 3, "watts": 400.0, "ceiling": 500.0}});
        let (node, grant) = Grant::read(&object).unwrap();
        assert_eq!((node.as_str(), grant.serial, grant.watts, grant.read_back), ("a", 3, 400.0, 0));
        object["status"] = json!({"serial": 3, "bootID": "sim-1"});
        assert_eq!(Grant::read(&object).unwrap().1.boot, "sim-1");
        assert_eq!(Grant::read(&json!({"spec": {}})), None);
    }
}
