//! The operator's metrics. Their labels are closed lists, or names that the cluster bounds.
//!
//! The metrics of a node are set only when the node changes: a pass over thousands of nodes must not spend its time on
//! gauges that stay the same.

mod budget;
mod reschedule;
mod sleep;

pub(crate) use reschedule::RescheduleStats;
pub(crate) use sleep::SleepStats;

use crate::reconciler::{MoveCause, MoveWay};
use crate::rows::DemandFault;
use crate::site::Kind;
use crate::writes::{Target, Trouble};
use host_kit::metrics::MetricsRegistry;
use host_kit::{closed_label, label_set};
use joulie_api::number::Number;
use planner::density::Density;
use planner::facility::{Aged, Observation, View};
use planner::guard::{GuardDecision, StateName};
use planner::node::Node;
use planner::plan::{NodeDecision, Plan};
use planner::power::{MeasurementSource, PowerMeter};
use planner::profile::Profile;
use power_units::{Micros, Watts};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::exemplar::CounterWithExemplar;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

closed_label! {
    /// The outcome of a write.
    pub(crate) enum Became {
        /// It succeeded.
        Landed = "landed",
        /// Somebody else owns a field.
        Owned = "owned",
        /// The object had changed.
        Stale = "stale",
        /// The object was not there.
        Gone = "gone",
        /// The server refused it.
        Refused = "refused",
        /// The server was busy or away.
        Away = "away",
        /// This process did not lead any more.
        NotLeading = "not-leading",
    }
}

impl Became {
    /// The result for a write that failed.
    pub(crate) const fn of(trouble: &Trouble) -> Self {
        match trouble {
            Trouble::Owned(_) => Self::Owned,
            Trouble::Stale(_) => Self::Stale,
            Trouble::Gone => Self::Gone,
            Trouble::Refused(_) => Self::Refused,
            Trouble::Away(..) => Self::Away,
            Trouble::NotLeading => Self::NotLeading,
        }
    }
}

closed_label! {
    /// Whether a node that is not ready has a place in the plan.
    enum Place {
        /// It keeps the one that it had.
        Kept = "kept",
        /// It never had one, or is not waited for any more.
        None = "none",
    }
}

closed_label! {
    /// Why a pod that asks for performance counts as standard.
    pub(crate) enum Past {
        /// PERFORMANCE_NAMESPACES.
        Namespace = "namespace",
        /// PERFORMANCE_NODES_MAX.
        Nodes = "nodes",
    }
}

label_set! {
    struct ByPast {
        reason: Past,
    }

    struct ByFault {
        reason: DemandFault,
    }

    struct ByPlace {
        place: Place,
    }

    struct ByWrite {
        target: &'static str,
        result: Became,
    }

    struct ByKind {
        kind: Kind,
    }

    struct ByState {
        node: String,
        state: &'static str,
    }

    struct ByNode {
        node: String,
    }

    struct ByProfile {
        node: String,
        profile: &'static str,
    }

    struct ByComponent {
        node: String,
        component: &'static str,
    }

    struct ByTransition {
        node: String,
        from_state: &'static str,
        to_state: &'static str,
        result: &'static str,
    }
}

/// A gauge of floating numbers.
pub(crate) type Level = Gauge<f64, AtomicU64>;

label_set! {
    struct BySource {
        node: String,
        source: &'static str,
    }

    struct BySensor {
        what: &'static str,
        place: String,
    }
}

label_set! {
    struct ByGroup {
        group: String,
        what: &'static str,
    }

    struct ByGroupClass {
        group: String,
        class: &'static str,
    }

    struct OfGroup {
        group: String,
    }

    struct ByMove {
        way: MoveWay,
        cause: MoveCause,
    }

    /// The exemplar of a decision.
    struct ByDecision {
        decision: String,
    }
}

/// The operator's metrics. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Stats {
    passes: Counter,
    seconds: Histogram,
    writes: Family<ByWrite, Counter>,
    unread: Family<ByKind, Gauge>,
    implausible: Gauge,
    stands_in: Gauge,
    pods_known: Gauge,
    past_bound: Family<ByPast, Gauge>,
    overdue: Gauge,
    eligible: Gauge,
    not_ready: Family<ByPlace, Gauge>,
    state: Family<ByState, Gauge>,
    profile: Family<ByProfile, Gauge>,
    density: Family<ByComponent, Level>,
    transitions: Family<ByTransition, Counter>,
    budget: Family<ByGroup, Level>,
    price: Family<ByGroupClass, Level>,
    blind: Family<OfGroup, Gauge>,
    between: Family<OfGroup, Gauge>,
    lowered: Family<ByGroup, Gauge>,
    signal_age: Family<OfGroup, Level>,
    held_back: Gauge,
    moves: Family<ByMove, CounterWithExemplar<ByDecision>>,
    refused_demands: Family<ByFault, Counter>,
    power: Family<BySource, Level>,
    apart: Gauge,
    sensors: Family<BySensor, Level>,
    sensor_ages: Family<BySensor, Level>,
    /// The nodes and sources of which watts are shown.
    powers: BTreeSet<(Arc<str>, PowerMeter)>,
    /// The sensors that are shown.
    places: BTreeSet<(&'static str, String)>,
    /// The values that are shown for every node.
    shown: BTreeMap<Arc<str>, Shown>,
    /// The nodes that have changed their state.
    changed: BTreeSet<Arc<str>>,
    /// The groups of the budget that are shown.
    groups: BTreeSet<String>,
    would_grant: Family<ByNode, Level>,
    /// What is shown of groups that are only observed, and of the grants that nodes would have.
    would_lower: BTreeMap<String, Watts>,
    would_grants: BTreeMap<Arc<str>, Watts>,
    /// Recommendations and evictions.
    pub(crate) reschedule: RescheduleStats,
    /// Those of nodes that sleep.
    pub(crate) sleep: SleepStats,
}

/// The values that are shown for a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shown {
    state: StateName,
    label: Option<Profile>,
    density: Density,
}

impl Shown {
    /// The values to show for a planned node.
    pub(crate) fn of(node: &Node, decision: &NodeDecision) -> Self {
        let label = decision.guard.publish.and_then(|publish| publish.label);
        Self { state: decision.guard.state.name(), label, density: node.machine.density }
    }
}

const STATES: [StateName; 3] =
    [StateName::ActivePerformance, StateName::DrainingPerformance, StateName::ActiveEco];
/// The states from which and to which a change may lead.
const ENDS: [StateName; 4] =
    [StateName::ActivePerformance, StateName::DrainingPerformance, StateName::ActiveEco, StateName::Unknown];
const RESULTS: [&str; 2] = ["applied", "deferred"];
const OF_GROUPS: [&str; 4] = ["limit", "load", "short", "exceeded"];
/// Where power follows demand.
const OF_DEMAND: [&str; 6] = ["reserve", "in_flight", "biting", "missing", "missing_entitled", "reclaimable"];
const CLASSES: [&str; 3] = ["performance", "draining", "eco"];
const MEASURED: &str = "measured";
/// What is measured less what is counted of the same nodes.
const DRIFT: &str = "drift";
/// Of a limit with two: what may be drawn in the mean, and what was.
const OF_SUSTAINED: [&str; 2] = ["sustained", "window_mean"];
const WOULD_LOWER: &str = "would_lower";
const PROFILES: [Profile; 2] = [Profile::Performance, Profile::Eco];

impl Stats {
    /// Registers them.
    pub(crate) fn register(registry: &mut MetricsRegistry) -> Self {
        let seconds = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0];
        let all = Self {
            passes: Counter::default(),
            seconds: Histogram::new(seconds),
            writes: Family::default(),
            unread: Family::default(),
            implausible: Gauge::default(),
            stands_in: Gauge::default(),
            pods_known: Gauge::default(),
            past_bound: Family::default(),
            overdue: Gauge::default(),
            eligible: Gauge::default(),
            not_ready: Family::default(),
            state: Family::default(),
            profile: Family::default(),
            density: Family::default(),
            transitions: Family::default(),
            budget: Family::default(),
            between: Family::default(),
            lowered: Family::default(),
            signal_age: Family::default(),
            price: Family::default(),
            blind: Family::default(),
            held_back: Gauge::default(),
            moves: Family::default(),
            refused_demands: Family::default(),
            power: Family::default(),
            apart: Gauge::default(),
            sensors: Family::default(),
            sensor_ages: Family::default(),
            powers: BTreeSet::new(),
            places: BTreeSet::new(),
            shown: BTreeMap::new(),
            changed: BTreeSet::new(),
            groups: BTreeSet::new(),
            would_grant: Family::default(),
            would_lower: BTreeMap::new(),
            would_grants: BTreeMap::new(),
            reschedule: RescheduleStats::register(registry),
            sleep: SleepStats::register(registry),
        };
        registry.register("joulie_operator_passes", "Passes that were made", all.passes.clone());
        registry.register("joulie_operator_pass_seconds", "How long a pass takes", all.seconds.clone());
        // These series exist from the start, so that an alert on their increase sees the first refusal.
        for target in Target::ALL {
            let refused = ByWrite { target: target.word(), result: Became::Refused };
            drop(all.writes.get_or_create(&refused));
        }
        registry.register("joulie_operator_writes", "Writes by what they were to", all.writes.clone());
        registry.register(
            "joulie_operator_unreadable_objects",
            "Objects that are there and cannot be read",
            all.unread.clone(),
        );
        registry.register(
            "joulie_operator_implausible_nodes",
            "Nodes that say of their hardware what is not believed",
            all.implausible.clone(),
        );
        registry.register(
            "joulie_operator_policy_stands_in",
            "1 while another policy stands in for the configured one",
            all.stands_in.clone(),
        );
        registry.register("joulie_operator_pods_known", "1 while the pods are known", all.pods_known.clone());
        registry.register(
            "joulie_operator_past_bound_pods",
            "Pods that ask for performance and count as standard, by the bound that they are past",
            all.past_bound.clone(),
        );
        registry.register(
            "joulie_operator_drain_overdue_nodes",
            "Nodes that performance pods keep from becoming eco nodes for longer than DRAIN_DEADLINE",
            all.overdue.clone(),
        );
        registry.register("joulie_operator_planned_nodes", "Ready nodes in the plan", all.eligible.clone());
        registry.register(
            "joulie_operator_not_ready_nodes",
            "Eligible nodes that are not ready, by whether they have a place in the plan",
            all.not_ready.clone(),
        );
        registry.register("joulie_operator_node_state", "1 for the state of a node", all.state.clone());
        registry.register(
            "joulie_operator_node_profile_label",
            "1 for the label of a node",
            all.profile.clone(),
        );
        registry.register("joulie_operator_node_compute_density", "The order of nodes", all.density.clone());
        registry.register("joulie_operator_state_transitions", "Changes of state", all.transitions.clone());
        registry.register(
            "joulie_operator_budget_watts",
            "Limit, load and shortage of groups; measured: what the meters of its nodes show; drift: measured less counted, without base loads, where every node is measured; of a group with two limits also sustained (the limit for the mean, where limit is what is in use) and window_mean (NaN until a whole window is known); where power follows demand also reserve, in_flight (falls once receipts have come), biting (what throttled nodes would draw more), missing and missing_entitled (what of it has no room, and what of that is below entitlements), and reclaimable (held and not wanted)",
            all.budget.clone(),
        );
        registry.register(
            "joulie_operator_budget_price",
            "For what share of the time the demand of nodes may be above their grants, from 0 to 1, by class",
            all.price.clone(),
        );
        registry.register(
            "joulie_operator_budget_blind_nodes",
            "Nodes of a group that do not report what they want to draw: they keep what they have, and at least their entitlement",
            all.blind.clone(),
        );
        registry.register(
            "joulie_operator_budget_between_seconds",
            "Of a group with two limits: for how long of the last window more was measured than the limit for its mean",
            all.between.clone(),
        );
        registry.register(
            "joulie_operator_budget_lowered",
            "1 while a window of the week or the signal lowers the limit of a group, by what does",
            all.lowered.clone(),
        );
        registry.register(
            "joulie_operator_budget_signal_age_seconds",
            "How long ago a group's signal was last heard; +Inf if never",
            all.signal_age.clone(),
        );
        registry.register(
            "joulie_operator_budget_held_back_orders",
            "Changes of grants by demand that wait because 3,000 were written within a minute",
            all.held_back.clone(),
        );
        registry.register(
            "joulie_operator_budget_moves",
            "Decisions that lowered or raised a twentieth of a limit or more; the exemplar names the last one",
            all.moves.clone(),
        );
        registry.register(
            "joulie_operator_budget_refused_reports",
            "Reports of what a node wants to draw that cannot be read: the node counts as blind",
            all.refused_demands.clone(),
        );
        registry.register(
            "joulie_operator_node_power_watts",
            "What a node draws, by a source that the operator asks itself",
            all.power.clone(),
        );
        registry.register(
            "joulie_operator_meters_disagree_nodes",
            "Nodes with two sources of power that are far apart",
            all.apart.clone(),
        );
        registry.register(
            "joulie_operator_facility",
            "The last good values of the building's sensors, in degrees Celsius and watts, and the PUE that follows",
            all.sensors.clone(),
        );
        registry.register(
            "joulie_operator_facility_age_seconds",
            "How old the last good value of a sensor is",
            all.sensor_ages.clone(),
        );
        registry.register(
            "joulie_operator_would_grant_watts",
            "What a node would be granted if every limit were enforced, where that is another grant than it has",
            all.would_grant.clone(),
        );
        all
    }

    /// Shows how many drains are overdue.
    pub(crate) fn overdue(&self, nodes: usize) {
        self.overdue.set(i64::try_from(nodes).unwrap_or(i64::MAX));
    }

    /// Shows how many pods are past the bounds on performance, in the order of the labels.
    pub(crate) fn past_bound(&self, counts: [usize; 2]) {
        for (reason, count) in Past::ALL.iter().zip(counts) {
            let gauge = self.past_bound.get_or_create(&ByPast { reason: *reason });
            gauge.set(i64::try_from(count).unwrap_or(i64::MAX));
        }
    }

    /// Shows what a source says of a node; `None` if it says nothing.
    pub(crate) fn power(&mut self, node: &Arc<str>, meter: PowerMeter, watts: Option<Watts>) {
        let of = by_source(node, meter);
        match watts {
            Some(watts) => {
                self.power.get_or_create(&of).set(Number::tenths(watts).get());
                self.powers.insert((node.clone(), meter));
            }
            None => {
                if self.powers.remove(&(node.clone(), meter)) {
                    self.power.remove(&of);
                }
            }
        }
    }

    /// Shows how many nodes have sources of power that disagree.
    pub(crate) fn apart(&self, nodes: usize) {
        self.apart.set(i64::try_from(nodes).unwrap_or(i64::MAX));
    }

    /// Shows the building's sensors. Those that are forgotten leave.
    pub(crate) fn facility(&mut self, facility: &View<'_>) {
        let mut there = BTreeSet::new();
        let mut show = |what: &'static str, place: &str, value: f64, age: Micros| {
            let of = BySensor { what, place: place.to_owned() };
            self.sensors.get_or_create(&of).set(value);
            self.sensor_ages.get_or_create(&of).set(Duration::from_micros(age.get()).as_secs_f64());
            there.insert((what, place.to_owned()));
        };
        let number = |text: String| text.parse().unwrap_or(f64::NAN);
        for Aged { value, age, .. } in facility.values() {
            match value {
                Observation::Ambient(degrees) => {
                    show("ambient_celsius", "", number(degrees.to_string()), age)
                }
                Observation::ZoneAmbient(zone, degrees) => {
                    show("ambient_celsius", zone, number(degrees.to_string()), age);
                }
                Observation::ItPower(watts) => show("it_watts", "", Number::tenths(watts).get(), age),
                Observation::CoolingPower(watts) => {
                    show("cooling_watts", "", Number::tenths(watts).get(), age)
                }
                Observation::RackPower(rack, watts) => {
                    show("rack_watts", rack, Number::tenths(watts).get(), age)
                }
            }
        }
        if let Some(pue) = facility.pue() {
            show("pue", "", number(pue.value.to_string()), pue.age);
        }
        for (what, place) in std::mem::replace(&mut self.places, there).difference(&self.places) {
            let of = BySensor { what, place: place.clone() };
            self.sensors.remove(&of);
            self.sensor_ages.remove(&of);
        }
    }

    /// Counts a report of demand that cannot be read.
    pub(crate) fn refuses_demand(&self, reason: DemandFault) {
        self.refused_demands.get_or_create(&ByFault { reason }).inc();
    }

    /// Shows how many objects of a kind cannot be read.
    pub(crate) fn unread(&self, kind: Kind, count: usize) {
        self.unread.get_or_create(&ByKind { kind }).set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// Shows how many nodes report hardware facts that are not believed.
    pub(crate) fn implausible(&self, nodes: usize) {
        self.implausible.set(i64::try_from(nodes).unwrap_or(i64::MAX));
    }

    /// Records a pass and its duration.
    pub(crate) fn passed(&self, took: Duration) {
        self.passes.inc();
        self.seconds.observe(took.as_secs_f64());
    }

    /// Counts a write by its result.
    pub(crate) fn wrote(&self, target: Target, result: Became) {
        self.writes.get_or_create(&ByWrite { target: target.word(), result }).inc();
    }

    /// Counts a transition when a node's plan was carried out.
    pub(crate) fn transition(&mut self, node: &Arc<str>, guard: &GuardDecision) {
        for (change, result) in [guard.applied, guard.deferred].into_iter().zip(RESULTS) {
            if let Some((from, to)) = change {
                self.transitions.get_or_create(&by_transition(node, from, to, result)).inc();
                self.changed.insert(node.clone());
            }
        }
    }

    /// Removes the counters of nodes that do not exist any more.
    pub(crate) fn keep_only(&mut self, nodes: &BTreeSet<&str>) {
        self.reschedule.keep_only(nodes);
        let power = &self.power;
        self.powers.retain(|(node, meter)| {
            let is_there = nodes.contains(&**node);
            if !is_there {
                power.remove(&by_source(node, *meter));
            }
            is_there
        });
        let transitions = &self.transitions;
        self.changed.retain(|node| {
            let is_there = nodes.contains(&**node);
            for (from, to) in ENDS.into_iter().flat_map(|from| ENDS.map(|to| (from, to))) {
                for result in RESULTS.into_iter().filter(|_| !is_there) {
                    transitions.remove(&by_transition(node, from, to, result));
                }
            }
            is_there
        });
    }

    /// Shows the plan for all nodes together.
    pub(crate) fn planned(&self, plan: &Plan) {
        self.stands_in.set(i64::from(plan.fallback.is_some()));
        self.pods_known.set(i64::from(plan.demand.is_some()));
        let count = |nodes: usize| i64::try_from(nodes).unwrap_or(i64::MAX);
        self.eligible.set(count(plan.nodes.len()));
        for (place, nodes) in [(Place::Kept, &plan.away), (Place::None, &plan.out)] {
            self.not_ready.get_or_create(&ByPlace { place }).set(count(nodes.len()));
        }
    }

    /// Shows the plan for a node.
    pub(crate) fn show(&mut self, node: &Arc<str>, now: Shown) {
        if self.shown.get(node) == Some(&now) {
            return;
        }
        for state in STATES {
            let by = ByState { node: node.to_string(), state: state.as_str() };
            self.state.get_or_create(&by).set(i64::from(state == now.state));
        }
        for profile in PROFILES {
            let by = ByProfile { node: node.to_string(), profile: profile.as_str() };
            self.profile.get_or_create(&by).set(i64::from(Some(profile) == now.label));
        }
        for (component, value) in [("cpu", now.density.cpu), ("gpu", now.density.gpu)] {
            let by = ByComponent { node: node.to_string(), component };
            let value = value.to_string().parse().unwrap_or(f64::NAN);
            self.density.get_or_create(&by).set(value);
        }
        self.shown.insert(node.clone(), now);
    }

    /// Removes the series of nodes that are not planned any more; every planned node has been shown before.
    pub(crate) fn forget_others(&mut self, plan: &Plan) {
        if self.shown.len() > plan.nodes.len() {
            let planned: BTreeSet<&str> = plan.nodes.iter().map(|node| &*node.node).collect();
            let gone: Vec<Arc<str>> =
                self.shown.keys().filter(|node| !planned.contains(&***node)).cloned().collect();
            gone.iter().for_each(|node| self.forget(node));
        }
    }

    fn forget(&mut self, node: &str) {
        for state in STATES {
            self.state.remove(&ByState { node: node.to_owned(), state: state.as_str() });
        }
        for profile in PROFILES {
            self.profile.remove(&ByProfile { node: node.to_owned(), profile: profile.as_str() });
        }
        for component in ["cpu", "gpu"] {
            self.density.remove(&ByComponent { node: node.to_owned(), component });
        }
        self.shown.remove(node);
    }
}

fn by_source(node: &str, meter: PowerMeter) -> BySource {
    BySource { node: node.to_owned(), source: MeasurementSource::Meter(meter).as_str() }
}

fn by_transition(node: &str, from: StateName, to: StateName, result: &'static str) -> ByTransition {
    ByTransition { node: node.to_owned(), from_state: from.as_str(), to_state: to.as_str(), result }
}

#[cfg(test)]
mod tests {
    use super::*;
    use planner::budget::GroupStanding;

    fn shown(registry: &MetricsRegistry) -> String {
        registry.render().unwrap()
    }

    #[test]
    fn the_series_of_nodes_that_are_gone_are_removed() {
        let mut registry = MetricsRegistry::default();
        let mut stats = Stats::register(&mut registry);
        for node in ["stays", "goes"] {
            let of = by_transition(node, StateName::Unknown, StateName::ActiveEco, "applied");
            stats.transitions.get_or_create(&of).inc();
            stats.changed.insert(node.into());
        }
        assert!(shown(&registry).contains("goes"));
        stats.keep_only(&BTreeSet::from(["stays"]));
        let text = shown(&registry);
        assert!(text.contains("stays") && !text.contains("goes"), "{text}");
    }

    #[test]
    fn the_series_of_racks_that_are_gone_are_removed() {
        let mut registry = MetricsRegistry::default();
        let mut stats = Stats::register(&mut registry);
        let group = |name: &str| GroupStanding {
            name: name.to_owned(),
            source: planner::budget::LimitSource::Rack,
            parent: None,
            limit: Some(Watts::from_int(9)),
            enforced: true,
            nodes: 0,
            lowered: planner::budget::Sum::default(),
            load: None,
            base: Watts::ZERO,
            spare: None,
            short: None,
            unknown: true,
            exceeded: None,
            holders: Vec::new(),
            armed: false,
            power: None,
        };
        stats.budget(&[group("site"), group("rack r1")]);
        assert!(shown(&registry).contains("rack r1"));
        stats.budget(&[group("site")]);
        let text = shown(&registry);
        assert!(text.contains("site") && !text.contains("rack r1"), "{text}");
    }
}
