//! The cluster as one pass sees it: the objects combined for each node. It is kept from pass to pass, so that what has
//! not changed is not read again.

mod asking;
mod budgets;
mod confirm;
mod fresh;
mod interner;
mod movable;
mod objects;
mod observed;
mod occupants;
mod pods;
mod profiles;
mod unread;
mod watches;

pub(crate) use asking::Asking;
pub(crate) use budgets::{Budgets, ParentFault};
pub(crate) use fresh::WaitingForWatts;
pub(crate) use movable::{Movable, owner};
pub(crate) use observed::Observed;
pub(crate) use occupants::Occupants;
pub(crate) use unread::{Kind, Unread, Unreadable, Unreads};
pub(crate) use watches::{SILENCE_MAX, Watches};

use crate::publish::Carrier;
use crate::rows::{EventSeen, GrantSeen, HardwareSeen, NodeSeen, ProfileSeen, TwinSeen};
use confirm::confirmation;
use fresh::Fresh;
use host_kit::clock::Mono;
use host_kit::reflect::RowChanges;
use interner::Interner;
use joulie_api::labels::{self, PLAN_LEASE};
use joulie_api::workload_profile::{TrustRule, TrustedProfiles};
use joulie_core::placement::freshness::UnixTime;
use kube::core::{Selector, SelectorExt};
use objects::{Objects, Touched};
use planner::budget::LimitPlace;
use planner::catalog::Catalog;
use planner::demand::DemandBound;
use planner::density::Family;
use planner::facility::Facility;
use planner::inventory::{self, HardwareFacts, Implausible, LabelFacts, Peers};
use planner::node::{
    Confirmation, DesiredKind, Granted, Label, Labels, MachineFacts, Node, Power, Presence, Published,
    Visibility,
};
use planner::places::Places;
use planner::plan::ClusterState;
use planner::sleep::SleepCount;
use pods::{PodReader, PodsKept};
use power_units::{Micros, Stamp, Watts};
use profiles::ProfileReader;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// How nodes and pods are selected and read.
#[derive(Clone, Debug)]
pub(crate) struct Selectors {
    /// Which nodes are managed.
    pub(crate) selector: Selector,
    /// The label that excludes a node.
    pub(crate) reserved_key: String,
    /// The label of the profile.
    pub(crate) profile_key: String,
    /// The namespaces whose pods are outside managed scope: their pods are neither demand nor a reason to wait.
    pub(crate) ignored_namespaces: BTreeSet<String>,
    /// The labels that may name a GPU product.
    pub(crate) gpu_product_keys: Vec<String>,
    /// Which kind carries the desired state.
    pub(crate) source: DesiredKind,
    /// Which profiles of workloads are trusted.
    pub(crate) trust: TrustRule,
    /// Who may ask for performance, and for how much.
    pub(crate) bound: DemandBound,
    /// Whether the power of nodes can be switched.
    pub(crate) sleep: bool,
}

/// The cluster.
#[derive(Debug)]
pub(crate) struct Site {
    /// Every node in the order of names, what is left of deleted nodes, and the pods.
    pub(crate) cluster: ClusterState,
    /// The objects of each node, in the same order.
    pub(crate) observed: Vec<Arc<Observed>>,
    places: Places,
    /// The pods that may be moved.
    pub(crate) movable: Movable,
    /// The pods that ask for performance, where that is bounded.
    pub(crate) asking: Asking,
    /// The pods that keep nodes awake, and those that wait, where nodes may sleep.
    pub(crate) occupants: Occupants,
    /// The pods that do not run yet.
    pub(crate) fresh: Fresh,
    /// What trusted profiles say of workloads.
    pub(crate) workloads: TrustedProfiles,
    profile_reader: ProfileReader,
    /// The NodePowerProfiles.
    pub(crate) profiles: Objects<ProfileSeen>,
    /// The NodeTwins.
    pub(crate) twins: Objects<TwinSeen>,
    /// The NodePowerGrants.
    pub(crate) grants: Objects<GrantSeen>,
    /// The PowerBudgets.
    pub(crate) budgets: Budgets,
    /// The PowerEvents, in the order of their names.
    pub(crate) events: Vec<Arc<EventSeen>>,
    hardware: Objects<HardwareSeen>,
    hardware_known: bool,
    /// What nodes of models that the catalogue does not know report about these models together.
    peers: Peers,
    interner: Interner,
    /// Deleted nodes of which objects are left, in their last state.
    departed: BTreeMap<Arc<str>, Departed>,
    /// Whether nodes have been added or deleted since this was last read.
    pub(crate) other_nodes: bool,
    /// The objects that cannot be read.
    pub(crate) unread: Unreads,
    /// Whether every node is to be released.
    pub(crate) releases_all: bool,
}

impl Default for Site {
    fn default() -> Self {
        Self {
            cluster: ClusterState {
                nodes: Vec::new(),
                gone: Vec::new(),
                limits: Vec::new(),
                pods: None,
                facility: Facility::default(),
                now: Stamp::new(Micros::ZERO),
                wall_clock: Micros::ZERO,
                raises: false,
            },
            observed: Vec::new(),
            places: Places::default(),
            movable: Movable::default(),
            asking: Asking::default(),
            occupants: Occupants::default(),
            fresh: Fresh::default(),
            workloads: TrustedProfiles::default(),
            profile_reader: ProfileReader::default(),
            profiles: Objects::default(),
            twins: Objects::default(),
            grants: Objects::default(),
            budgets: Budgets::default(),
            events: Vec::new(),
            hardware: Objects::default(),
            hardware_known: false,
            peers: Peers::default(),
            interner: Interner::default(),
            departed: BTreeMap::new(),
            other_nodes: false,
            unread: Unreads::default(),
            releases_all: false,
        }
    }
}

/// What was known of a node when its object was deleted.
#[derive(Clone, Debug)]
struct Departed {
    uid: String,
    boot: String,
    /// The most that it could draw.
    most: Option<Watts>,
    /// Its labels, which say which PowerBudgets it was in.
    labels: BTreeMap<String, String>,
}

/// The result of reading the rows.
#[derive(Clone, Debug, Default)]
pub(crate) struct Changes {
    /// Whether something has changed that the plan depends on.
    pub(crate) plan: bool,
    /// The nodes that were combined again: a meter has reported, or something has changed that a plan or a twin depends
    /// on.
    pub(crate) nodes: Vec<Arc<Observed>>,
}

impl Changes {
    /// Whether nothing has changed.
    pub(crate) const fn is_empty(&self) -> bool {
        !self.plan && self.nodes.is_empty()
    }
}

impl Site {
    /// Says of every node what the pods will draw that were bound to it a moment ago.
    pub(crate) fn expect_pods(&mut self, now: UnixTime) {
        self.fresh.expect(&mut self.cluster.nodes, now);
    }

    /// Takes in how long the watch of the profiles of workloads has been silent.
    pub(crate) fn hear_profiles(&mut self, watches: &Watches, now: Mono) {
        self.profile_reader.hear(watches.workloads.as_ref().and_then(|rows| rows.silence(now)));
    }

    /// Takes in what has changed.
    pub(crate) fn refresh(
        &mut self,
        watches: &mut Watches,
        selectors: &Selectors,
        catalog: &Catalog,
    ) -> Changes {
        // Read before the changes, so that all known objects are among them.
        let known = watches.hardware.is_synced();
        let rows = watches.workloads.as_mut();
        let work_differs = self.profile_reader.read(&mut self.workloads, rows, selectors.trust);
        let read = PodReader { selectors, workloads: &self.workloads, anew: work_differs };
        let pods = PodsKept {
            counts: &mut self.cluster.pods,
            movable: &mut self.movable,
            asking: &mut self.asking,
            occupants: &mut self.occupants,
            fresh: &mut self.fresh,
        };
        let pods = read.read(pods, &mut watches.pods);
        if let Some(gpus) = &watches.gpus {
            self.fresh.measure(gpus);
        }
        let mut changes = Changes { plan: pods, nodes: Vec::new() };
        let unread = self.unread.clone();
        let mut touched = Touched::NOTHING;
        let mut others_say = false;
        if let Some(news) = watches.hardware.news(|news| self.hardware.take(&news)) {
            others_say = self.hear(&news);
            touched = touched.and(news);
            self.unread.hardware = Unread::of(&watches.hardware, |row| &row.node);
        }
        if let Some(news) = watches.profiles.news(|news| self.profiles.take(&news)) {
            touched = touched.and(news);
            self.unread.profiles = Unread::of(&watches.profiles, |row| &row.state.node);
        }
        if let Some(news) = watches.twins.news(|news| self.twins.take(&news)) {
            touched = touched.and(news);
            self.unread.twins = Unread::of(&watches.twins, |row| &row.state.node);
        }
        if let Some(news) = watches.grants.news(|news| self.grants.take(&news)) {
            touched = touched.and(news);
            self.unread.grants = Unread::of(&watches.grants, |row| &row.node);
            changes.plan = true;
        }
        let events =
            |news: RowChanges<'_, EventSeen>| news.rows.values().map(|held| held.row.clone()).collect();
        if let Some(events) = watches.events.news(events) {
            self.events = events;
            changes.plan = true;
        }
        let others_selected = self.is_to_be_released(watches) | self.take_limits(watches, &mut changes);
        // The meaning of an agent's confirmation changes once it is known which agents exist.
        let anew = known != self.hardware_known || others_say || others_selected;
        self.hardware_known = known;
        if anew || unread != self.unread {
            touched = Touched::All;
        }
        // Without changes in the rows, no node has changed.
        let nodes = watches.nodes.news(|news| same_nodes(&news)).unwrap_or_else(|| Some(BTreeMap::new()));
        match (touched, nodes) {
            (Touched::Few(touched), Some(nodes)) => {
                self.read_few(&touched, &nodes, selectors, catalog, &mut changes);
            }
            (Touched::Few(_) | Touched::All, _) => {
                let nodes = watches.nodes.with(|rows| rows.values().map(|held| held.row.clone()).collect());
                self.read_all(nodes, anew, selectors, catalog, &mut changes);
            }
        }
        changes
    }

    /// Takes in the PowerBudgets. Returns whether nodes may have other places under them.
    fn take_limits(&mut self, watches: &mut Watches, changes: &mut Changes) -> bool {
        if watches.budgets.news(|_| ()).is_none() {
            return false;
        }
        changes.plan = true;
        self.unread.budgets = Unread::of(&watches.budgets, |budget| &budget.name);
        let changed = self.budgets.take(&watches.budgets);
        self.cluster.limits.clone_from(&self.budgets.limits);
        changed
    }

    /// Checks whether all nodes are to be released. Returns whether that has changed.
    fn is_to_be_released(&mut self, watches: &mut Watches) -> bool {
        let asked = watches.plan.news(|news| news.rows.values().any(|held| held.row.releases_all));
        let Some(asked) = asked.filter(|&asked| asked != self.releases_all) else { return false };
        self.releases_all = asked;
        if asked {
            tracing::warn!("the Lease {PLAN_LEASE} asks for the release of all nodes: none is planned for");
        } else {
            tracing::info!(
                "the Lease {PLAN_LEASE} asks for no release any more: nodes are planned for again"
            );
        }
        true
    }

    /// Takes in what nodes report about their models. Returns whether what is believed of any model has changed, so
    /// that no node's facts may be reused.
    fn hear(&mut self, news: &Touched) -> bool {
        let Self { peers, hardware, .. } = self;
        let hardware = hardware.by_node();
        let mut changed = false;
        let mut hear = |node: &str, seen: Option<&Arc<HardwareSeen>>| {
            changed |= peers.note(node, seen.map(|seen| &seen.reported));
        };
        match news {
            Touched::Few(nodes) => {
                nodes.iter().for_each(|node| hear(node, hardware.get(node)));
                changed
            }
            Touched::All => {
                hardware.iter().for_each(|(node, seen)| hear(node, Some(seen)));
                peers.keep_only(|node| hardware.contains_key(node)) || changed
            }
        }
    }

    /// Combines these nodes again; the others stay as they are.
    fn read_few(
        &mut self,
        touched: &BTreeSet<String>,
        nodes: &BTreeMap<Arc<str>, Arc<NodeSeen>>,
        selectors: &Selectors,
        catalog: &Catalog,
        changes: &mut Changes,
    ) {
        let names: BTreeSet<&str> =
            touched.iter().map(String::as_str).chain(nodes.keys().map(|name| &**name)).collect();
        let mut of_the_gone = false;
        for name in names {
            let Some(at) = self.find(name) else {
                of_the_gone = true;
                continue;
            };
            let Some(was) = self.observed.get(at).cloned() else { continue };
            let observed = self.observe(nodes.get(name).unwrap_or(&was.node).clone());
            if was.is_same(&observed) {
                continue;
            }
            let before = self.cluster.nodes.get(at).cloned();
            let node = self.put_together(&observed, before.as_ref(), selectors, catalog);
            changes.plan |= before.as_ref() != Some(&node);
            let observed = Arc::new(observed);
            changes.nodes.push(observed.clone());
            if let (Some(slot), Some(known)) = (self.observed.get_mut(at), self.cluster.nodes.get_mut(at)) {
                (*slot, *known) = (observed, node);
            }
        }
        if of_the_gone {
            self.read_gone(selectors, catalog, changes);
        }
    }

    /// Collects the objects of a node.
    fn observe(&self, node: Arc<NodeSeen>) -> Observed {
        let name = node.name.clone();
        Observed::new(
            node,
            self.hardware.get(&name).cloned(),
            self.profiles.get(&name).cloned(),
            self.twins.get(&name).cloned(),
            self.grants.get(&name).cloned(),
            self.unread.of_node(&name),
        )
    }

    fn read_all(
        &mut self,
        nodes: Vec<Arc<NodeSeen>>,
        anew: bool,
        selectors: &Selectors,
        catalog: &Catalog,
        changes: &mut Changes,
    ) {
        let others = nodes.len() != self.observed.len()
            || nodes.iter().zip(&self.observed).any(|(node, known)| node.name != known.node.name);
        if others {
            self.places = Places::new(nodes.iter().map(|node| &*node.name));
        }
        self.other_nodes |= others;
        changes.plan |= others;
        let observed_before = std::mem::take(&mut self.observed);
        let nodes_before = std::mem::take(&mut self.cluster.nodes);
        let mut old = observed_before.into_iter().zip(nodes_before).peekable();
        for node in nodes {
            while let Some((known, gone)) = old.next_if(|(known, _)| known.node.name < node.name) {
                self.departs(&known, gone);
            }
            self.departed.remove(&node.name);
            let before = old.next_if(|(known, _)| known.node.name == node.name);
            let observed = self.observe(node);
            let (observed, node) = match before {
                Some((was, node)) if was.is_same(&observed) && !anew => (was, node),
                before => {
                    let was = before.as_ref().map(|(_, node)| node);
                    let node = self.put_together(&observed, was, selectors, catalog);
                    changes.plan |= was != Some(&node);
                    let observed = Arc::new(observed);
                    changes.nodes.push(observed.clone());
                    (observed, node)
                }
            };
            self.observed.push(observed);
            self.cluster.nodes.push(node);
        }
        old.for_each(|(known, gone)| self.departs(&known, gone));
        self.read_gone(selectors, catalog, changes);
        self.interner.forget_unused();
    }

    /// Records a deleted node. A node that never reported its boot is not recorded: a reboot of it could not be
    /// noticed.
    fn departs(&mut self, known: &Observed, Node { name, uid, boot, machine, .. }: Node) {
        if !boot.is_empty() {
            let labels = known.node.labels.clone();
            self.departed.insert(name, Departed { uid, boot, most: machine.power_model.max(), labels });
        }
    }

    /// Looks for objects of nodes that are gone.
    fn read_gone(&mut self, selectors: &Selectors, catalog: &Catalog, changes: &mut Changes) {
        let profiles = self.profiles.by_node().keys();
        let all = profiles.chain(self.twins.by_node().keys()).chain(self.grants.by_node().keys());
        let names: BTreeSet<&String> = all.filter(|node| self.find(node).is_none()).collect();
        let gone: Vec<Node> =
            names.into_iter().map(|name| self.gone(name, selectors.source, catalog)).collect();
        self.departed.retain(|name, _| gone.iter().any(|node| node.name == *name));
        changes.plan |= gone != self.cluster.gone;
        self.cluster.gone = gone;
    }

    /// What is left of a deleted node.
    fn gone(&self, name: &str, source: DesiredKind, catalog: &Catalog) -> Node {
        let granted = self.granted(name);
        let (uid, boot, most, limits) = match self.departed.get(name) {
            Some(Departed { uid, boot, most, labels }) => {
                (uid.clone(), boot.clone(), *most, self.budgets.place(labels))
            }
            None => {
                let budget = self.grants.get(name).and_then(|grant| grant.budget.as_deref());
                (String::new(), String::new(), None, self.budgets.place_of_grant(budget))
            }
        };
        let mut node = Node {
            name: name.into(),
            uid,
            boot,
            selected: false,
            reserved: false,
            unschedulable: false,
            tainted: false,
            presence: Presence::Gone,
            visibility: Visibility::Clear,
            labels: Labels::default(),
            limits,
            machine: MachineFacts::lump(&granted, catalog),
            published: self.published(name, source),
            confirmation: Confirmation::Awaited,
            granted,
            power: Power::UNMETERED,
            sleep: SleepCount::Awake,
            expected: None,
        };
        // Without a receipt that fits its boot and its Node object it may draw all that it could, and no less than the
        // ceiling.
        if node.receipt().is_none() {
            let ceiling = node.granted.grant.map_or(Watts::ZERO, |grant| grant.ceiling);
            let may_draw = most.map_or(ceiling, |most| most.max(ceiling));
            node.machine = MachineFacts::lump_of(&node.granted, may_draw, catalog);
        }
        node
    }

    fn granted(&self, node: &str) -> Granted {
        let seen = self.grants.get(node);
        let unread = self.unread.grants.of_node(node).is_some();
        Granted { unread, ..seen.map(|seen| seen.granted.clone()).unwrap_or_default() }
    }

    fn published(&self, node: &str, source: DesiredKind) -> Published {
        Published {
            source,
            profile: self.profiles.get(node).map(|profile| profile.state.carried.clone()),
            twin: self.twins.get(node).map(|twin| twin.state.carried.clone()),
            twin_unread: self.unread.twins.of_node(node).is_some(),
        }
    }

    /// Combines a node from its objects. Facts of the moment stay as they were: how well it is observed, whether it is
    /// waited for, what it draws, and what was sent to it.
    fn put_together(
        &mut self,
        observed: &Observed,
        was: Option<&Node>,
        selectors: &Selectors,
        catalog: &Catalog,
    ) -> Node {
        let Observed { node, hardware, unreadable, .. } = observed;
        let published = self.published(&node.name, selectors.source);
        let machine = self.machine(observed, was.map(|was| &was.machine), &published, selectors, catalog);
        let sent = was.map(|was| was.granted.sent.clone()).unwrap_or_default();
        let granted = Granted { sent, ..self.granted(&node.name) };
        let interner = &mut self.interner;
        let mut text = |key: &str| node.label(key).map(|text| interner.share(text));
        let mut label = |key: &str| Label { text: text(key), theirs: node.owner_of(key).is_some() };
        let labels = Labels {
            profile: label(&selectors.profile_key),
            draining: label(labels::node::DRAINING),
            rack: text(labels::node::RACK).filter(|rack| !rack.is_empty()),
            zone: text(labels::node::COOLING_ZONE).filter(|zone| !zone.is_empty()),
        };
        let state = observed.state(selectors.source);
        let grant = granted.stands().filter(|_| !granted.released);
        let asked = machine.power_model.watts(&published.caps());
        let lends = grant.zip(asked).is_some_and(|(grant, asked)| grant.watts < asked);
        let hardware_known = self.hardware_known && unreadable.hardware.is_none();
        let confirmation =
            confirmation(state, hardware.as_deref(), &machine.resolved.hardware, lends, hardware_known);
        let presence = match was {
            _ if node.ready => Presence::Ready,
            Some(Node { presence: Presence::Away, .. }) => Presence::Away,
            Some(_) | None => Presence::Lost,
        };
        Node {
            name: was.map_or_else(|| node.name.clone(), |was| was.name.clone()),
            uid: node.stamp.uid.clone(),
            boot: node.boot.clone(),
            selected: !self.releases_all && selectors.selector.matches(&node.labels),
            reserved: labels::is_true(node.label(&selectors.reserved_key)),
            unschedulable: node.unschedulable,
            tainted: node.taints.iter().any(NodeSeen::is_uncapped),
            presence,
            visibility: was.map_or(Visibility::Clear, |was| was.visibility),
            labels,
            limits: self.place(&node.labels),
            machine,
            published,
            confirmation,
            granted,
            power: was.map_or(Power::UNMETERED, |was| was.power),
            sleep: was.map_or(SleepCount::Awake, |was| was.sleep),
            expected: was.and_then(|was| was.expected),
        }
    }

    /// The place of a node under the PowerBudgets. Neither a pause nor an overlap holds a node that is to be released with all
    /// others.
    fn place(&self, labels: &BTreeMap<String, String>) -> LimitPlace {
        let place = self.budgets.place(labels);
        match self.releases_all {
            true => LimitPlace { paused: false, overlaps: Vec::new(), ..place },
            false => place,
        }
    }

    /// The hardware of a node, as far as the reports about it can be believed.
    fn machine(
        &mut self,
        Observed { node, hardware, .. }: &Observed,
        was: Option<&MachineFacts>,
        published: &Published,
        selectors: &Selectors,
        catalog: &Catalog,
    ) -> MachineFacts {
        let facts = HardwareFacts {
            reported: hardware.as_ref().map(|hardware| hardware.reported.clone()),
            labels: LabelFacts::read(|key| node.label(key), &selectors.gpu_product_keys),
            capacity_cpus: node.capacity_cpus,
            allocatable_gpus: node.allocatable_gpus,
        };
        let (facts, implausible) = inventory::believed(facts, catalog, &self.peers);
        let can_cap = hardware.as_ref().map_or((false, false), |hardware| {
            (hardware.cpu_control != Some(false), hardware.gpu_control != Some(false))
        });
        let mut machine = MachineFacts::of(&facts, was, published.caps().gpu.is_some(), can_cap, catalog);
        let MachineFacts { resolved, family, .. } = &mut machine;
        self.interner.share_all([&mut resolved.hardware.cpu.model]);
        if let Some(gpu) = &mut resolved.hardware.gpu {
            self.interner.share_all([&mut gpu.model]);
        }
        *family = Family::of(&resolved.hardware);
        MachineFacts {
            has_no_meter: hardware.as_ref().is_some_and(|hardware| hardware.metered == Some(false)),
            implausible: said(&implausible),
            ..machine
        }
    }

    /// The node whose object of this kind has this name.
    pub(crate) fn holder(&self, kind: Carrier, name: &str) -> Option<&str> {
        match kind {
            Carrier::Profile => self.profiles.holder(name),
            Carrier::Twin => self.twins.holder(name),
        }
    }

    /// The name for a node's grant that does not exist yet.
    pub(crate) fn grant_name(&self, node: &str) -> String {
        joulie_api::names::name_for(node, |name| self.grants.holder(name))
    }

    /// The index of a node.
    pub(crate) fn find(&self, node: &str) -> Option<usize> {
        self.places.find(node, |at| self.cluster.nodes.get(at).map(|node| &*node.name))
    }

    /// The objects of a node.
    pub(crate) fn observed(&self, node: &str) -> Option<&Arc<Observed>> {
        self.find(node).and_then(|at| self.observed.get(at))
    }

    /// A node, or what is left of a deleted one.
    pub(crate) fn node(&self, name: &str) -> Option<&Node> {
        let there = self.find(name).and_then(|at| self.cluster.nodes.get(at));
        let gone = &self.cluster.gone;
        there.or_else(|| gone.iter().find(|node| &*node.name == name))
    }
}

/// What a node reports about itself and is not believed, in a sentence.
fn said(implausible: &[Implausible]) -> Option<Arc<str>> {
    let all: Vec<String> = implausible.iter().map(ToString::to_string).collect();
    (!all.is_empty()).then(|| all.join("; ").into())
}

/// The nodes that have changed; `None` if one was added or deleted.
fn same_nodes(news: &RowChanges<'_, NodeSeen>) -> Option<BTreeMap<Arc<str>, Arc<NodeSeen>>> {
    let mut nodes = BTreeMap::new();
    for change in news.changes.as_ref()? {
        let now = change.now.filter(|_| change.before.is_some())?;
        nodes.insert(now.row.name.clone(), now.row.clone());
    }
    Some(nodes)
}

#[cfg(test)]
pub(crate) mod tests;
