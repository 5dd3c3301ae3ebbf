//! The state of the cluster from public sources: watches of the API, the extender's scores, and the temperatures of
//! the simulated machines. It makes no decisions and writes nothing.

mod rows;

pub(super) use rows::{Classified, Grant, Hardware, Lease, Limit, Machine, Pod, Profile, Twin};

use super::events::standing;
use super::state::{Device, Node, Offer, Placement, Plan, Pods, State, Telemetry, Workload};
use host_kit::clock::{HostClock, Mono, ObservedRenewal};
use host_kit::reflect::{ObjectKey, Rows};
use joulie_api::labels;
use joulie_core::node::cap::CapIntent;
use power_units::{Celsius, Role, Watts};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// A reading that was not renewed for this long is stale. The demo's agents renew theirs every two seconds.
const READING_STALE: Duration = Duration::from_secs(8);
/// A label and a binding are reported by two watches. A pod that was placed within this time after a change of the
/// label counts as placed before it, because the order is not known.
const AT_ONCE: Duration = Duration::from_secs(1);
/// The number of placements that are kept for the view.
const PLACEMENTS: usize = 40;

/// The length of `joulie-operator_` and six letters.
const LEADER_LETTERS: usize = 22;

/// The values that `probe` reads over HTTP.
#[derive(Clone, Debug, Default)]
pub(super) struct Probed {
    pub(super) scores: BTreeMap<String, i64>,
    pub(super) temperatures: BTreeMap<String, Celsius>,
    /// Why the extender did not answer.
    pub(super) extender_silent: Option<String>,
}

/// The watches.
pub(super) struct Watched {
    pub(super) machines: Rows<Machine>,
    pub(super) profiles: Rows<Profile>,
    pub(super) twins: Rows<Twin>,
    pub(super) grants: Rows<Grant>,
    pub(super) hardware: Rows<Hardware>,
    pub(super) pods: Rows<Pod>,
    pub(super) workloads: Rows<Classified>,
    pub(super) limits: Rows<Limit>,
    pub(super) leases: Rows<Lease>,
}

/// Builds states from the watched objects.
pub(super) struct Observer {
    watched: Watched,
    probed: Arc<Mutex<Probed>>,
    clock: Arc<dyn HostClock>,
    began: Mono,
    budget: Option<Watts>,
    plan: ObservedRenewal,
    readings: BTreeMap<String, ObservedRenewal>,
    eco_since: BTreeMap<String, Duration>,
    bindings: Bindings,
    misplaced: u32,
    placements: Vec<Placement>,
}

/// The pods that were bound at the last look and at this one. Pods that are gone are dropped.
#[derive(Debug, Default)]
struct Bindings {
    last: BTreeSet<String>,
    now: BTreeSet<String>,
}

impl Bindings {
    /// Adds a bound pod of this look. Returns whether it was not bound at the last look.
    fn is_new(&mut self, pod: String) -> bool {
        let new = !self.last.contains(&pod);
        self.now.insert(pod);
        new
    }

    fn looked(&mut self) {
        self.last = std::mem::take(&mut self.now);
    }
}

impl Observer {
    pub(super) fn new(
        watched: Watched,
        probed: Arc<Mutex<Probed>>,
        (clock, began): (Arc<dyn HostClock>, Mono),
        budget: Option<Watts>,
    ) -> Self {
        Self {
            watched,
            probed,
            clock,
            began,
            budget,
            plan: ObservedRenewal::NOTHING,
            readings: BTreeMap::new(),
            eco_since: BTreeMap::new(),
            bindings: Bindings::default(),
            misplaced: 0,
            placements: Vec::new(),
        }
    }

    /// The current state.
    pub(super) fn look(&mut self, placed: &[Placement]) -> State {
        let now = self.clock.mono();
        let at = now.since(self.began);
        self.placements.extend_from_slice(placed);
        let old = self.placements.len().saturating_sub(PLACEMENTS);
        self.placements.drain(..old);
        let mut nodes = self.nodes(now);
        let is_eco = |node: &Node| matches!(node.offer, Offer::Eco | Offer::Draining);
        self.eco_since.retain(|name, _| nodes.get(name).is_some_and(is_eco));
        for (name, _) in nodes.iter().filter(|(_, node)| is_eco(node)) {
            self.eco_since.entry(name.clone()).or_insert(at);
        }
        let pods = self.pods(&mut nodes, at);
        let extender_silent =
            self.probed.lock().unwrap_or_else(PoisonError::into_inner).extender_silent.clone();
        State {
            at,
            budget: self.limit(),
            nodes,
            pods,
            workloads: self.workloads(),
            plan: self.plan(now),
            extender_silent,
            placements: self.placements.clone(),
        }
    }

    fn nodes(&mut self, now: Mono) -> BTreeMap<String, Node> {
        let profiles = by_node(&self.watched.profiles, |row| &row.node);
        let twins = by_node(&self.watched.twins, |row| &row.node);
        let hardware = by_node(&self.watched.hardware, |row| &row.node);
        let grants = by_node(&self.watched.grants, |row| &row.node);
        let probed = self.probed.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut nodes = BTreeMap::new();
        for (ObjectKey { name, .. }, held) in self.watched.machines.all() {
            let (profile, twin) = (profiles.get(&name).map(|row| &**row), twins.get(&name).map(|row| &**row));
            let hardware = hardware.get(&name).map(|row| &**row);
            let mut node = assemble(&held.row, profile, twin, hardware);
            node.power = self.power(&name, hardware, now);
            node.hold_by(grants.get(&name).and_then(|grant| grant.watts));
            node.score = probed.scores.get(&name).copied();
            node.temperature = probed.temperatures.get(&name).copied();
            nodes.insert(name, node);
        }
        nodes
    }

    /// The power of a node, as long as its agent renews the reading.
    fn power(&mut self, name: &str, hardware: Option<&Hardware>, now: Mono) -> Option<Watts> {
        let hardware = hardware?;
        let receipt = self.readings.entry(name.to_owned()).or_insert(ObservedRenewal::NOTHING);
        receipt.hear(hardware.sampled_at.as_deref()?, now);
        hardware.power.filter(|_| receipt.age(now).is_some_and(|age| age <= READING_STALE))
    }

    /// The limit of the site as it is; before it is known, the one that the demo begins with.
    fn limit(&self) -> Option<Watts> {
        if !self.watched.limits.is_synced() {
            return self.budget;
        }
        self.watched
            .limits
            .get(&ObjectKey::cluster(super::cluster::SITE_BUDGET))
            .and_then(|held| held.row.watts)
    }

    fn workloads(&self) -> BTreeMap<String, Workload> {
        let about = |row: &Classified| row.about.clone();
        self.watched.workloads.with(|rows| rows.values().filter_map(|held| about(&held.row)).collect())
    }

    fn plan(&mut self, now: Mono) -> Plan {
        let leases = self.watched.leases.all();
        let find =
            |name: &str| leases.iter().find(|(key, _)| key.name == name).map(|(_, held)| held.row.clone());
        if let Some(renewed) = find(labels::PLAN_LEASE).and_then(|lease| lease.renewed.clone()) {
            self.plan.hear(&renewed, now);
        }
        let policy =
            self.watched.profiles.with(|rows| rows.values().find_map(|held| held.row.policy.clone()));
        let leader = find(super::LEADER_LEASE).and_then(|lease| lease.holder.clone());
        // Some letters of the random suffix are enough to distinguish two operators.
        let leader = leader.map(|name| name.chars().take(LEADER_LETTERS).collect());
        Plan { leader, age: self.plan.age(now), policy }
    }

    fn pods(&mut self, nodes: &mut BTreeMap<String, Node>, at: Duration) -> Pods {
        let mut pods = Pods::default();
        for (key, held) in self.watched.pods.all() {
            let pod = &held.row;
            match pod.phase.as_str() {
                "Succeeded" => pods.ended += 1,
                "Failed" => pods.failed += 1,
                _ if pod.node.is_none() => {
                    pods.waiting += 1;
                    pods.waiting_performance += u32::from(pod.performance);
                }
                _ => {
                    pods.running += 1;
                    if let Some(node) = pod.node.as_ref().and_then(|name| nodes.get_mut(name)) {
                        node.running += 1;
                        node.performance += u32::from(pod.performance);
                    }
                }
            }
            let Some(node) = &pod.node else { continue };
            let new = self.bindings.is_new(format!("{key} {}", pod.uid));
            let eco = self.eco_since.get(node).is_some_and(|since| at.saturating_sub(*since) > AT_ONCE);
            self.misplaced += u32::from(new && pod.performance && eco);
        }
        self.bindings.looked();
        pods.misplaced = self.misplaced;
        pods
    }
}

fn by_node<R: host_kit::reflect::Row>(rows: &Rows<R>, node: fn(&R) -> &String) -> BTreeMap<String, Arc<R>> {
    rows.all().into_values().map(|held| (node(&held.row).clone(), held.row)).collect()
}

/// Builds a node from the objects that describe it.
fn assemble(
    machine: &Machine,
    profile: Option<&Profile>,
    twin: Option<&Twin>,
    hardware: Option<&Hardware>,
) -> Node {
    let none = Hardware::default();
    let made = hardware.unwrap_or(&none);
    let device = |count, most: Option<Watts>, intent: fn(&Profile) -> CapIntent, gpu: bool| {
        let Some(profile) = profile else { return Device { count, ..Device::default() } };
        let outcome = if gpu { &profile.gpu } else { &profile.cpu };
        let answered = outcome.generation.is_some() && outcome.generation == profile.generation;
        let asked =
            asked(intent(profile), most).map(|asked| outcome.requested.filter(|_| answered).unwrap_or(asked));
        let mut device = Device { count, asked, in_force: outcome.in_force, ..Device::default() };
        let refused = outcome.refused.as_deref().filter(|_| answered && asked.is_some());
        device.standing = standing(&device, answered, refused);
        device
    };
    let cpu = device(machine.packages.max(made.packages), made.package_most, |row| row.asks_cpu, false);
    let gpu = device(machine.gpus.max(made.gpus), made.gpu_most, |row| row.asks_gpu, true);
    let most = twin.and_then(|twin| twin.most).or_else(|| {
        let cpus = made.package_most?.times(made.packages);
        Some(cpus + made.gpu_most.unwrap_or(Watts::ZERO).times(made.gpus))
    });
    Node {
        kind: machine.kind.clone(),
        zone: machine.zone.clone(),
        offer: match (machine.offer, twin.is_some_and(|twin| twin.draining)) {
            (Offer::Eco, true) => Offer::Draining,
            (offer, _) => offer,
        },
        reserved: machine.reserved,
        by_hand: profile.is_some_and(|profile| profile.overridden),
        ready: machine.ready,
        most,
        cpu,
        gpu,
        telemetry: twin.map_or(Telemetry::Unknown, |twin| twin.telemetry.clone()),
        advice: twin.and_then(|twin| twin.advice.clone()),
        ..Node::default()
    }
}

/// The watts of a cap for one device. A percentage of an unknown maximum is unknown.
fn asked(intent: CapIntent, most: Option<Watts>) -> Option<Watts> {
    intent.watts.or_else(|| Some(most?.scale(intent.percent?.to_ratio(Role::Limit), Role::Limit)))
}

#[cfg(test)]
mod tests;
