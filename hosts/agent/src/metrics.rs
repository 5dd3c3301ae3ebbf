//! The agent's metrics. The names and labels that dashboards query are those of the first implementation. When a node
//! leaves, its series are removed.

mod demand;
mod devices;
mod grants;
mod labels;
mod names;
mod window;

pub(crate) use grants::HeldGrant;
pub(crate) use labels::Written;
pub use window::PowerDetail;

use crate::front::grants::Ignored;
use crate::front::outcome::{Outcome, Why};
use crate::front::publish::Kind;
use crate::front::wanted::{Unknown, Wanted};
use crate::machine::{LeaseState, MIXED, Means, View};
use demand::Demand;
use devices::{Devices, KnownDevices};
use grants::Grants;
use host_kit::clock::Mono;
use host_kit::metrics::MetricsRegistry;
use labels::{
    Move, Node, NodeBackend, NodeCpu, NodeMode, NodeMove, NodePolicy, NodeZone, Object, WhichObject, Write,
};
use node_kit::{BackendKind, HalTarget, NodeGrant};
use power_units::Watts;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use window::PowerWindow;

/// The label of what tells the power of a node by its TelemetryProfile.
const PROMETHEUS: &str = "prometheus";

type Level<L> = Family<L, Gauge<f64, AtomicU64>>;

/// All of them. Clones share them.
#[derive(Clone, Default)]
pub(crate) struct Metrics {
    mode: Family<NodeMode, Gauge>,
    cap: Level<NodePolicy>,
    energy: Level<NodeZone>,
    zone_power: Level<NodeZone>,
    total_power: Level<Node>,
    gpu_power: Level<Node>,
    observed: Level<Node>,
    ema: Level<Node>,
    throttle: Family<Node, Gauge>,
    above: Family<Node, Gauge>,
    below: Family<Node, Gauge>,
    cur_freq: Level<NodeCpu>,
    max_freq: Level<NodeCpu>,
    actions: Family<NodeMove, Counter>,
    errors: Family<Node, Counter>,
    enforced: Family<Node, Gauge>,
    unconfirmed: Family<Node, Gauge>,
    malformed: Family<Node, Counter>,
    originals: Family<Node, Gauge>,
    moved: Family<Node, Counter>,
    blind: Family<Node, Counter>,
    late: Family<Node, Counter>,
    refused: Family<Node, Counter>,
    backend_ready: Family<NodeBackend, Gauge>,
    troubles: Family<NodeBackend, Counter>,
    writes: Family<Write, Counter>,
    put_back: Family<WhichObject, Counter>,
    route_refused: Family<Node, Gauge>,
    route_changes: Family<Node, Counter>,
    grants: Grants,
    demand: Demand,
    devices: Devices,
    /// Which series exist, so that they can be removed.
    known: Arc<Mutex<BTreeMap<String, Known>>>,
}

#[derive(Default)]
struct Known {
    policy: Option<String>,
    zones: Vec<String>,
    cpus: Vec<u16>,
    backends: Vec<&'static str>,
    /// What was last recorded of the queries to Prometheus.
    asked: Option<(bool, u64)>,
    devices: KnownDevices,
    power: PowerWindow,
}

impl Metrics {
    pub(crate) fn register(registry: &mut MetricsRegistry) -> Self {
        let all = Self::default();
        // These series exist from the start, so that an alert on their increase sees the first failure.
        for object in Object::ALL {
            drop(all.writes.get_or_create(&Write { object: *object, outcome: Written::Failed }));
        }
        all.register_kept(registry);
        all.register_own(registry);
        all.grants.register(registry);
        all.demand.register(registry);
        all.devices.register(registry);
        all
    }

    /// Records a change of what is wanted of a node.
    pub(crate) fn wants(&self, node: &str, wanted: &Wanted) {
        let malformed = match wanted {
            Wanted::Unknown(unknown) => matches!(unknown, Unknown::Malformed { .. }),
            Wanted::Nothing(_) => false,
            Wanted::Goal(goal) => goal.malformed.is_some(),
        };
        let label = Node { node: node.to_owned() };
        self.malformed.get_or_create(&label).inc_by(u64::from(malformed));
        let policy = wanted.goal().map(|goal| goal.policy.clone().unwrap_or_else(|| "none".to_owned()));
        self.with(node, |known| {
            if known.policy != policy {
                let gone = std::mem::replace(&mut known.policy, policy);
                if let Some(policy) = gone {
                    self.cap.remove(&NodePolicy { node: node.to_owned(), policy });
                }
            }
        });
    }

    /// Records the outcome for a node.
    pub(crate) fn concludes(&self, node: &str, outcome: &Outcome) {
        let label = Node { node: node.to_owned() };
        if let Some(verdict) = &outcome.verdict {
            let level = match verdict.why.status() {
                joulie_api::condition::ConditionStatus::True => 1,
                joulie_api::condition::ConditionStatus::False => 0,
                joulie_api::condition::ConditionStatus::Unknown => -1,
            };
            self.enforced.get_or_create(&label).set(level);
            let policy = self.with(node, |known| known.policy.clone());
            let caps = outcome.cpu.as_ref().filter(|_| verdict.why != Why::NoCap);
            if let (Some(policy), Some(said)) = (policy, caps.and_then(|said| said.requested)) {
                let label = NodePolicy { node: node.to_owned(), policy };
                self.cap.get_or_create(&label).set(as_f64(said));
            }
        }
    }

    /// Records what a machine reports of itself.
    pub(crate) fn sees(&self, node: &str, view: &View, (now, detail): (Mono, PowerDetail)) {
        let label = Node { node: node.to_owned() };
        for mode in modes() {
            let labels = NodeMode { node: node.to_owned(), mode };
            self.mode.get_or_create(&labels).set(i64::from(mode == view.details.mode.word()));
        }
        self.unconfirmed.get_or_create(&label).set(i64::from(view.lease != LeaseState::Desired));
        if let Some(power) = self.with(node, |known| known.power.take(view, now, detail)) {
            level(&self.total_power, &label, power.packages);
            level(&self.gpu_power, &label, power.gpus);
            level(&self.observed, &label, power.observed);
            level(&self.ema, &label, power.smoothed);
            for (zone, watts, energy) in power.zones {
                let zone = NodeZone { node: node.to_owned(), zone };
                level(&self.energy, &zone, energy.map(whole));
                level(&self.zone_power, &zone, watts);
            }
            self.devices.draw(node, power.devices);
        }
        let law = view.details.law;
        let counts = law.and_then(|law| law.counts);
        self.above.get_or_create(&label).set(counts.map_or(0, |counts| i64::from(counts.above)));
        self.below.get_or_create(&label).set(counts.map_or(0, |counts| i64::from(counts.below)));
        self.throttle.get_or_create(&label).set(view.details.throttle_pct.map_or(0, i64::from));
        for (cpu, running, limit) in &view.details.policies {
            let labels = NodeCpu { node: node.to_owned(), cpu: *cpu };
            level(
                &self.cur_freq,
                &labels,
                running.map(|khz| f64::from(khz.to_whole(power_units::Role::Nearest))),
            );
            level(
                &self.max_freq,
                &labels,
                limit.map(|khz| f64::from(khz.to_whole(power_units::Role::Nearest))),
            );
        }
        self.count(node, view, &label);
        self.demand.see(node, view);
        self.with(node, |known| {
            let zones = view.cpu.devices.iter().map(|device| device.key.clone()).collect();
            let gone = std::mem::replace(&mut known.zones, zones);
            for zone in gone.into_iter().filter(|zone| !known.zones.contains(zone)) {
                let zone = NodeZone { node: node.to_owned(), zone };
                self.energy.remove(&zone);
                self.zone_power.remove(&zone);
            }
            self.devices.see(node, view, &mut known.devices);
            known.cpus = view.details.policies.iter().map(|(cpu, _, _)| *cpu).collect();
            known.backends = view.details.troubles.iter().map(|(backend, _, _)| *backend).collect();
        });
    }

    fn count(&self, node: &str, view: &View, label: &Node) {
        let details = &view.details;
        for (action, count) in [(Move::Up, details.actions.0), (Move::Down, details.actions.1)] {
            raise(&self.actions, &NodeMove { node: node.to_owned(), action }, count);
        }
        self.originals.get_or_create(label).set(i64::try_from(details.originals).unwrap_or(i64::MAX));
        raise(&self.moved, label, details.moved);
        raise(&self.blind, label, details.blind);
        raise(&self.late, label, details.late);
        raise(&self.refused, label, details.refused);
        let mut errors = 0_u64;
        for (backend, ready, troubles) in &details.troubles {
            let labels = NodeBackend { node: node.to_owned(), backend };
            self.backend_ready.get_or_create(&labels).set(i64::from(*ready));
            raise(&self.troubles, &labels, *troubles);
            errors = errors.saturating_add(*troubles);
        }
        raise(&self.errors, label, errors);
    }

    /// Records whether Prometheus answers, and how often it did not; `None` if it is not asked.
    pub(crate) fn asks(&self, node: &str, asked: Option<(bool, u64)>) {
        let known =
            self.known.lock().unwrap_or_else(PoisonError::into_inner).get(node).and_then(|it| it.asked);
        if known == asked {
            return;
        }
        self.with(node, |known| known.asked = asked);
        let label = NodeBackend { node: node.to_owned(), backend: PROMETHEUS };
        match asked {
            Some((is_ready, troubles)) => {
                self.backend_ready.get_or_create(&label).set(i64::from(is_ready));
                raise(&self.troubles, &label, troubles);
            }
            None => {
                self.backend_ready.remove(&label);
                self.troubles.remove(&label);
            }
        }
    }

    /// Records the grant in force for a node, since when, and its outcome.
    pub(crate) fn grants(&self, node: &str, grant: Option<(NodeGrant, Duration)>, held: &HeldGrant<'_>) {
        self.grants.tell(node, grant, held);
    }

    /// Counts a grant that is not followed.
    pub(crate) fn ignores(&self, node: &str, why: Ignored) {
        self.grants.ignores(node, why);
    }

    /// Counts a write to the API.
    pub(crate) fn wrote(&self, kind: Kind, outcome: Written) {
        self.writes.get_or_create(&Write { object: Object::of(kind), outcome }).inc();
    }

    /// Counts a status that somebody else had overwritten and that was written again.
    pub(crate) fn put_back(&self, kind: Kind) {
        self.put_back.get_or_create(&WhichObject { object: Object::of(kind) }).inc();
    }

    /// Records whether the TelemetryProfile of a node is refused, and whether the node is reached in another way now.
    pub(crate) fn routes(&self, node: &str, is_refused: bool, is_moved: bool) {
        let label = Node { node: node.to_owned() };
        self.route_refused.get_or_create(&label).set(i64::from(is_refused));
        self.route_changes.get_or_create(&label).inc_by(u64::from(is_moved));
    }

    /// Removes the series of the route of a node. They outlive a machine to which the node is not routed any more.
    pub(crate) fn forget_routes(&self, node: &str) {
        let label = Node { node: node.to_owned() };
        self.route_refused.remove(&label);
        self.route_changes.remove(&label);
    }

    /// Removes the series of a node that does not belong to this agent any more.
    pub(crate) fn forget(&self, node: &str) {
        let known =
            self.known.lock().unwrap_or_else(PoisonError::into_inner).remove(node).unwrap_or_default();
        self.grants.forget(node);
        self.demand.forget(node);
        self.devices.forget(node, known.devices);
        let owned = || node.to_owned();
        let label = Node { node: owned() };
        for mode in modes() {
            self.mode.remove(&NodeMode { node: owned(), mode });
        }
        if let Some(policy) = known.policy {
            self.cap.remove(&NodePolicy { node: owned(), policy });
        }
        for zone in known.zones {
            let zone = NodeZone { node: owned(), zone };
            self.energy.remove(&zone);
            self.zone_power.remove(&zone);
        }
        for cpu in known.cpus {
            let cpu = NodeCpu { node: owned(), cpu };
            self.cur_freq.remove(&cpu);
            self.max_freq.remove(&cpu);
        }
        for backend in known.backends.into_iter().chain(known.asked.map(|_| PROMETHEUS)) {
            let backend = NodeBackend { node: owned(), backend };
            self.backend_ready.remove(&backend);
            self.troubles.remove(&backend);
        }
        for action in Move::ALL {
            self.actions.remove(&NodeMove { node: owned(), action: *action });
        }
        for family in [&self.total_power, &self.gpu_power, &self.observed, &self.ema] {
            family.remove(&label);
        }
        for family in
            [&self.throttle, &self.above, &self.below, &self.enforced, &self.unconfirmed, &self.originals]
        {
            family.remove(&label);
        }
        for family in [&self.errors, &self.malformed, &self.moved, &self.blind, &self.late, &self.refused] {
            family.remove(&label);
        }
    }

    fn with<T>(&self, node: &str, change: impl FnOnce(&mut Known) -> T) -> T {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if !known.contains_key(node) {
            known.insert(node.to_owned(), Known::default());
        }
        let mut nothing = Known::default();
        change(known.get_mut(node).unwrap_or(&mut nothing))
    }
}

/// What may hold the packages: nothing, or a class of node-kit's table.
fn modes() -> BTreeSet<&'static str> {
    let rows = BackendKind::ALL.into_iter().map(BackendKind::facts);
    let classes = rows.filter(|facts| facts.caps != HalTarget::Gpu).map(|facts| facts.class);
    classes.chain([Means::None.word(), MIXED]).collect()
}

/// A value that is not known has no series, because zero would be a value.
fn level<L>(family: &Level<L>, labels: &L, value: Option<f64>)
where
    L: Clone + std::hash::Hash + Eq,
{
    match value {
        Some(value) => drop(family.get_or_create(labels).set(value)),
        None => drop(family.remove(labels)),
    }
}

/// Raises a counter to a count that is kept elsewhere.
fn raise<L>(family: &Family<L, Counter>, labels: &L, to: u64)
where
    L: Clone + std::hash::Hash + Eq,
{
    let counter = family.get_or_create(labels);
    counter.inc_by(to.saturating_sub(counter.get()));
}

fn as_f64(watts: Watts) -> f64 {
    joulie_api::number::Number::tenths(watts).get()
}

/// Exact below 2^53 µJ, which is 9 GJ.
#[expect(clippy::cast_precision_loss, reason = "a metric is a float")]
fn whole(count: u64) -> f64 {
    count as f64
}
