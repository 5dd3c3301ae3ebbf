//! The cluster as one pass sees it: rows put together node by node, kept from pass to pass, so that what has not changed
//! is not read again.

mod confirm;
mod member;
mod objects;
mod pods;
mod unread;
mod watches;

pub(crate) use confirm::confirmation;
pub(crate) use member::Member;
pub(crate) use unread::{Kind, Unread, Unreadable, Unreads};
pub(crate) use watches::{SILENCE_MAX, Watches};

use crate::rows::{self, HardwareSeen, NodeSeen, ProfileSeen, StateSeen, TwinSeen};
use futures::FutureExt;
use host_kit::reflect::Rows;
use joulie_api::labels;
use kube::core::{Selector, SelectorExt};
use objects::{Objects, Touched};
use planner::catalog::Catalog;
use planner::hardware::Hardware;
use planner::inventory::{self, HardwareFacts, LabelFacts};
use planner::places::Places;
use planner::plan::{NodeRow, PublishedRow, Sight};
use pods::Pods;
use std::collections::BTreeSet;
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
    /// The NodePowerProfiles.
    pub(crate) profiles: Objects<ProfileSeen>,
    /// The NodeTwins.
    pub(crate) twins: Objects<TwinSeen>,
    hardware: Objects<HardwareSeen>,
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
        let mut touched = Touched::NOTHING;
        let unread = self.unread.clone();
        if is_new(&mut watches.hardware) {
            touched = touched.and(self.hardware.read(&watches.hardware));
            self.unread.hardware = Unread::of(&watches.hardware, |row| &row.node);
        }
        if is_new(&mut watches.profiles) {
            self.published = None;
            touched = touched.and(self.profiles.read(&watches.profiles));
            self.unread.profiles = Unread::of(&watches.profiles, |row| &row.state.desired.node);
        }
        if is_new(&mut watches.twins) {
            self.published = None;
            touched = touched.and(self.twins.read(&watches.twins));
            self.unread.twins = Unread::of(&watches.twins, |row| &row.state.desired.node);
        }
        let known = watches.hardware.is_synced();
        if unread != self.unread || known != self.hardware_known {
            self.hardware_known = known;
            touched = Touched::All;
        }
        let is_new = is_new(&mut watches.nodes);
        let members = match touched {
            Touched::Few(nodes) if !is_new && (known || nodes.is_empty()) => {
                self.read_members(&nodes, lens, catalog)
            }
            Touched::Few(_) | Touched::All => {
                let nodes = watches.nodes.with(|rows| rows.values().map(|held| held.row.clone()).collect());
                self.read_nodes(nodes, lens, catalog)
            }
        };
        changes.plan |= members.plan;
        changes.twins |= members.twins;
        changes
    }

    /// Puts these nodes together anew; the others stay as they are.
    fn read_members(&mut self, nodes: &BTreeSet<String>, lens: &Lens, catalog: &Catalog) -> Changes {
        let mut changes = Changes::default();
        for at in nodes.iter().filter_map(|node| self.find(node)).collect::<Vec<_>>() {
            let Some(was) = self.members.get(at).cloned() else { continue };
            let member = self.gather(was.node.clone());
            if was.is_same(&member) {
                continue;
            }
            let (member, row) = self.put_together(member, Some(&was), lens, catalog);
            changes.twins = true;
            if let (Some(slot), Some(known)) = (self.members.get_mut(at), self.nodes.get_mut(at)) {
                changes.plan |= *known != row;
                (*slot, *known) = (Arc::new(member), row);
            }
        }
        changes
    }

    /// What is known of a node, its hardware not resolved.
    fn gather(&self, node: Arc<NodeSeen>) -> Member {
        Member {
            hardware: self.hardware.get(&node.name).cloned(),
            profile: self.profiles.get(&node.name).cloned(),
            twin: self.twins.get(&node.name).cloned(),
            resolved: Hardware::default(),
            unreadable: self.unread.of_node(&node.name),
            node,
        }
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
            let member = self.gather(node);
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
        match kind {
            DesiredSource::Profile => self.profiles.holder(name),
            DesiredSource::Twin => self.twins.holder(name),
        }
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
            DesiredSource::Profile => self
                .profiles
                .by_node()
                .iter()
                .map(|(node, seen)| row(node, &seen.state, drains(node)))
                .collect(),
            DesiredSource::Twin => self
                .twins
                .by_node()
                .iter()
                .map(|(node, seen)| row(node, &seen.state, seen.state.desired.draining))
                .collect(),
        }
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
