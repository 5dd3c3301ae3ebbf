//! The cluster as one pass sees it: rows put together node by node, kept from pass to pass, so that what has not changed
//! is not read again.

mod confirm;
mod pods;
mod unread;
mod watches;

pub(crate) use confirm::confirmation;
pub(crate) use unread::{Kind, Unread, Unreadable, Unreads};
pub(crate) use watches::{SILENCE_MAX, Watches};

use crate::rows::{self, HardwareSeen, NodeSeen, ProfileSeen, StateSeen, TwinSeen};
use futures::FutureExt;
use host_kit::reflect::{Held, Key, Rows};
use joulie_api::labels;
use kube::core::{Selector, SelectorExt};
use planner::catalog::Catalog;
use planner::hardware::Hardware;
use planner::inventory::{self, HardwareFacts, LabelFacts};
use planner::places::Places;
use planner::plan::{NodeRow, PublishedRow, Sight};
use pods::Pods;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Which kind carries the desired state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DesiredSource {
    /// NodePowerProfile.
    Profile,
    /// NodeTwin.
    Twin,
}

/// How nodes and pods are looked at.
#[derive(Clone, Debug)]
pub(crate) struct Lens {
    /// Which nodes are ours.
    pub(crate) selector: Selector,
    /// The label that keeps a node out.
    pub(crate) reserved_key: String,
    /// The label of the profile.
    pub(crate) profile_key: String,
    /// The labels that may name a GPU product.
    pub(crate) gpu_product_keys: Vec<String>,
    /// Which kind carries the desired state.
    pub(crate) source: DesiredSource,
}

/// All that is known of one node.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    /// The node.
    pub(crate) node: Arc<NodeSeen>,
    /// What its agent says of its hardware.
    pub(crate) hardware: Option<Arc<HardwareSeen>>,
    /// Its NodePowerProfile.
    pub(crate) profile: Option<Arc<ProfileSeen>>,
    /// Its NodeTwin.
    pub(crate) twin: Option<Arc<TwinSeen>>,
    /// The merged view of its hardware.
    pub(crate) resolved: Hardware,
    /// What is there and cannot be read.
    pub(crate) unreadable: Unreadable,
}

impl Member {
    /// The object that its agent obeys.
    pub(crate) fn state(&self, source: DesiredSource) -> Option<&StateSeen> {
        match source {
            DesiredSource::Profile => self.profile.as_deref().map(|profile| &profile.state),
            DesiredSource::Twin => self.twin.as_deref().map(|twin| &twin.state),
        }
    }

    /// Whether the object that its agent obeys is there and cannot be read.
    pub(crate) const fn is_state_unread(&self, source: DesiredSource) -> bool {
        match source {
            DesiredSource::Profile => self.unreadable.profile.is_some(),
            DesiredSource::Twin => self.unreadable.twin.is_some(),
        }
    }

    /// A label of the node.
    pub(crate) fn label(&self, key: &str) -> Option<&str> {
        self.node.label(key).filter(|value| !value.is_empty())
    }
}

/// The cluster.
#[derive(Debug, Default)]
pub(crate) struct Site {
    /// Every node, in the order of names.
    pub(crate) members: Vec<Arc<Member>>,
    places: Places,
    /// The planner's rows of them, in the same order.
    pub(crate) nodes: Vec<NodeRow>,
    /// The pods.
    pub(crate) pods: Pods,
    /// The objects that carry desired states, by node, also of nodes that are gone.
    pub(crate) profiles: BTreeMap<String, Arc<ProfileSeen>>,
    /// The twins, by node, also of nodes that are gone.
    pub(crate) twins: BTreeMap<String, Arc<TwinSeen>>,
    /// The nodes of the profiles and of the twins, by the objects' names.
    names: [BTreeMap<String, String>; 2],
    hardware: BTreeMap<String, Arc<HardwareSeen>>,
    hardware_known: bool,
    /// What is published, as it was last put together; lent to the planner as the rows are.
    pub(crate) published: Option<Vec<PublishedRow>>,
    /// Nodes have come or gone since somebody last asked.
    pub(crate) other_nodes: bool,
    /// What is there and cannot be read.
    pub(crate) unread: Unreads,
}

/// What a look at the rows found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Changes {
    /// Something that the plan depends on.
    pub(crate) plan: bool,
    /// A reading of a meter, or something that only the twins depend on.
    pub(crate) twins: bool,
}

impl Site {
    /// Takes in what has changed.
    pub(crate) fn refresh(&mut self, watches: &mut Watches, lens: &Lens, catalog: &Catalog) -> Changes {
        let mut changes = Changes::default();
        if is_new(&mut watches.pods) || (self.pods.rows.is_none() && watches.pods.is_synced()) {
            changes.plan |= self.pods.read(&watches.pods, &lens.profile_key);
        }
        let mut objects = false;
        if is_new(&mut watches.hardware) {
            // What a node is made of does not change with what can be read of it.
            self.hardware =
                watches.hardware.with(|rows| by_node(rows, |row| (row.node.clone(), false), true));
            self.unread.hardware = Unread::of(&watches.hardware, |row| &row.node);
            objects = true;
        }
        if is_new(&mut watches.profiles) {
            let of = |row: &ProfileSeen| (row.state.desired.node.clone(), row.state.owners.ours);
            self.profiles = watches.profiles.with(|rows| by_node(rows, of, false));
            self.unread.profiles = Unread::of(&watches.profiles, |row| &row.state.desired.node);
            self.published = None;
            self.names[0] = watches.profiles.with(|rows| by_name(rows, |row| &row.state));
            objects = true;
        }
        if is_new(&mut watches.twins) {
            let of = |row: &TwinSeen| (row.state.desired.node.clone(), row.state.owners.ours);
            self.twins = watches.twins.with(|rows| by_node(rows, of, false));
            self.unread.twins = Unread::of(&watches.twins, |row| &row.state.desired.node);
            self.published = None;
            self.names[1] = watches.twins.with(|rows| by_name(rows, |row| &row.state));
            objects = true;
        }
        let known = watches.hardware.is_synced();
        if is_new(&mut watches.nodes) || objects || known != self.hardware_known {
            self.hardware_known = known;
            let nodes = watches.nodes.with(|rows| rows.values().map(|held| held.row.clone()).collect());
            let members = self.read_nodes(nodes, lens, catalog);
            changes.plan |= members.plan;
            changes.twins |= members.twins;
        }
        changes
    }

    fn read_nodes(&mut self, nodes: Vec<Arc<NodeSeen>>, lens: &Lens, catalog: &Catalog) -> Changes {
        let others = nodes.len() != self.members.len()
            || nodes.iter().zip(&self.members).any(|(node, member)| node.name != member.node.name);
        if others {
            self.places = Places::new(nodes.iter().map(|node| node.name.as_str()));
        }
        self.other_nodes |= others;
        let mut changes = Changes { plan: others, twins: false };
        let old_members = std::mem::take(&mut self.members);
        let old_rows = std::mem::take(&mut self.nodes);
        let mut old = old_members.into_iter().zip(old_rows).peekable();
        for node in nodes {
            while old.next_if(|(member, _)| member.node.name < node.name).is_some() {}
            let before = old.next_if(|(member, _)| member.node.name == node.name);
            let member = Member {
                hardware: self.hardware.get(&node.name).cloned(),
                profile: self.profiles.get(&node.name).cloned(),
                twin: self.twins.get(&node.name).cloned(),
                resolved: Hardware::default(),
                unreadable: self.unread.of_node(&node.name),
                node,
            };
            let (member, row): (Arc<Member>, NodeRow) = match before {
                Some((was, row)) if was.is_same(&member) && self.hardware_known => (was, row),
                before => {
                    let (member, row) =
                        self.put_together(member, before.as_ref().map(|(was, _)| &**was), lens, catalog);
                    changes.twins = true;
                    changes.plan |= before.is_none_or(|(_, was)| was != row);
                    (Arc::new(member), row)
                }
            };
            // What is published decides too, and is not in the planner's row of the node.
            self.members.push(member);
            self.nodes.push(row);
        }
        changes
    }

    fn put_together(
        &self,
        member: Member,
        was: Option<&Member>,
        lens: &Lens,
        catalog: &Catalog,
    ) -> (Member, NodeRow) {
        let Member { node, hardware, profile, twin, .. } = &member;
        let facts = HardwareFacts {
            reported: hardware.as_ref().map(|hardware| hardware.reported.clone()),
            labels: LabelFacts::read(|key| node.label(key), &lens.gpu_product_keys),
            capacity_cpus: node.capacity_cpus,
            allocatable_gpus: node.allocatable_gpus,
        };
        let state = match lens.source {
            DesiredSource::Profile => profile.as_deref().map(|profile| &profile.state),
            DesiredSource::Twin => twin.as_deref().map(|twin| &twin.state),
        };
        let gpu_cap = state.is_some_and(|state| rows::caps(&state.desired).gpu.is_some());
        let remembered = was.and_then(|was| was.resolved.gpu.as_ref());
        let resolved = inventory::resolve(&facts, remembered, gpu_cap, catalog).hardware;
        let row = NodeRow {
            name: node.name.clone(),
            selected: lens.selector.matches(&node.labels),
            reserved: labels::is_true(node.label(&lens.reserved_key)),
            unschedulable: node.unschedulable,
            ready: node.ready,
            profile_label: node.label(&lens.profile_key).map(str::to_owned),
            draining_label: node.label(labels::node::DRAINING).map(str::to_owned),
            hardware: facts,
            confirmation: confirmation(
                state,
                hardware.as_deref(),
                self.hardware_known && member.unreadable.hardware.is_none(),
            ),
            sight: Sight::Clear,
        };
        (Member { resolved, ..member }, row)
    }

    /// Whose object of a kind has this name.
    pub(crate) fn holder(&self, kind: DesiredSource, name: &str) -> Option<&str> {
        let [profiles, twins] = &self.names;
        let names = match kind {
            DesiredSource::Profile => profiles,
            DesiredSource::Twin => twins,
        };
        names.get(name).map(String::as_str)
    }

    /// The place of a node.
    pub(crate) fn find(&self, node: &str) -> Option<usize> {
        self.places.find(node, |at| self.members.get(at).map(|member| member.node.name.as_str()))
    }

    /// A node.
    pub(crate) fn member(&self, node: &str) -> Option<&Arc<Member>> {
        self.find(node).and_then(|at| self.members.get(at))
    }

    /// What is published, as the planner sees it.
    pub(crate) fn read_published(&self, source: DesiredSource) -> Vec<PublishedRow> {
        let row = |node: &String, state: &StateSeen, draining: bool| PublishedRow {
            node: node.clone(),
            ours: !state.is_a_persons(),
            profile: Some(rows::profile(state.desired.profile)),
            caps: rows::caps(&state.desired),
            draining,
            policy: state.desired.policy.clone(),
        };
        let drains = |node: &str| self.twins.get(node).is_some_and(|twin| twin.state.desired.draining);
        match source {
            DesiredSource::Profile => {
                self.profiles.iter().map(|(node, seen)| row(node, &seen.state, drains(node))).collect()
            }
            DesiredSource::Twin => self
                .twins
                .iter()
                .map(|(node, seen)| row(node, &seen.state, seen.state.desired.draining))
                .collect(),
        }
    }
}

impl Member {
    /// Whether nothing about the node has arrived since.
    fn is_same(&self, other: &Self) -> bool {
        fn same<T>(one: &Option<Arc<T>>, other: &Option<Arc<T>>) -> bool {
            match (one, other) {
                (Some(one), Some(other)) => Arc::ptr_eq(one, other),
                (None, None) => true,
                (Some(_), None) | (None, Some(_)) => false,
            }
        }
        Arc::ptr_eq(&self.node, &other.node)
            && same(&self.hardware, &other.hardware)
            && same(&self.profile, &other.profile)
            && same(&self.twin, &other.twin)
            && self.unreadable == other.unreadable
    }
}

/// Whether rows have changed since this was last asked.
fn is_new<R: host_kit::reflect::Row>(rows: &mut Rows<R>) -> bool {
    let mut new = false;
    while rows.changed().now_or_never() == Some(true) {
        new = true;
    }
    new
}

/// The nodes of objects, by the objects' names.
fn by_name<R>(rows: &BTreeMap<Key, Held<R>>, of: impl Fn(&R) -> &StateSeen) -> BTreeMap<String, String> {
    let pair = |held: &Held<R>| (of(&held.row).name.clone(), of(&held.row).desired.node.clone());
    rows.values().map(pair).collect()
}

/// Objects by their nodes. Of several for one node the operator's own counts, else the first by name. What an object
/// said before it could not be read any more counts only where it does so for long.
fn by_node<R>(
    rows: &BTreeMap<Key, Held<R>>,
    of: impl Fn(&R) -> (String, bool),
    lasts: bool,
) -> BTreeMap<String, Arc<R>> {
    let mut found: BTreeMap<String, Arc<R>> = BTreeMap::new();
    for held in rows.values().filter(|held| lasts || held.stale_since.is_none()) {
        let (node, ours) = of(&held.row);
        match found.get_mut(&node) {
            Some(first) if ours && !of(first).1 => *first = held.row.clone(),
            Some(_) => {}
            None => drop(found.insert(node, held.row.clone())),
        }
    }
    found
}
