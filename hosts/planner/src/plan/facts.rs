//! What a pass may know: one row for each node, each pod and each desired state that is published.

use crate::demand::PodCounts;
use crate::intent::Caps;
use crate::inventory::HardwareFacts;
use crate::profile::Profile;
use power_units::{Micros, Stamp};
use std::cmp::Ordering;
use std::sync::Arc;

/// The cluster at one moment.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// Every node, eligible or not.
    pub nodes: Vec<NodeRow>,
    /// The pods in managed scope, or nothing when they could not be listed.
    pub pods: Option<PodCounts>,
    /// Every desired state that is published, also those of nodes that are gone.
    pub published: Vec<PublishedRow>,
    /// The monotonic clock.
    pub now: Stamp,
    /// The wall clock, since 1970.
    pub wall_clock: Micros,
}

/// A node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NodeRow {
    /// Its name.
    pub name: Arc<str>,
    /// `NODE_SELECTOR` matches it.
    pub selected: bool,
    /// It is reserved, so not ours to plan.
    pub reserved: bool,
    /// It is cordoned.
    pub unschedulable: bool,
    /// Its Ready condition is true.
    pub ready: bool,
    /// The text of its power-profile label.
    pub profile_label: Option<String>,
    /// The text of its draining label.
    pub draining_label: Option<String>,
    /// What is said about its hardware.
    pub hardware: HardwareFacts,
    /// What its agent says about the desired state that is published.
    pub confirmation: Confirmation,
    /// How well it is seen.
    pub sight: Sight,
}

/// How well a node is seen. Unknown is never good news: a node that is not seen clearly is never raised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Sight {
    /// Its meter says what it draws, or it has none that could fail; and everything that is said of it can be read.
    Clear,
    /// Its meter is silent, or something that is said of it cannot be read. It may be capped, and it may keep what it has.
    Blind,
    /// Its desired state is there and cannot be read: nobody knows what it was told, so nothing is told to it.
    Unreadable,
}

impl NodeRow {
    /// Selected, neither reserved nor unschedulable.
    #[must_use]
    pub const fn is_eligible(&self) -> bool {
        self.selected && !self.reserved && !self.unschedulable
    }

    /// The profile on its label, if it is one.
    #[must_use]
    pub fn profile(&self) -> Option<Profile> {
        self.profile_label.as_deref().and_then(Profile::read)
    }

    /// Its label says that it drains. An absent mark is no mark.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.draining_label.as_deref() == Some("true")
    }
}

/// What a node's agent says about the caps in its published desired state, as that stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Confirmation {
    /// It read them back.
    InForce,
    /// It has not said so yet, or it failed and will try again.
    Awaited,
    /// It read back far less than was asked, and that is all there will be: its owner's limit allows no more.
    Short,
    /// No cap can be in force: no agent has ever reported from the node, or it has nothing to cap with.
    Unenforced,
}

/// A desired state as it is published.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PublishedRow {
    /// The node that it is for.
    pub node: Arc<str>,
    /// We wrote it; one that a person wrote is never taken back.
    pub ours: bool,
    /// Its profile, if it is one.
    pub profile: Option<Profile>,
    /// Its caps.
    pub caps: Caps,
    /// Its draining mark.
    pub draining: bool,
    /// Its policy's name.
    pub policy: Option<Arc<str>>,
}

/// Rows by name, one for each: of rows that share a name the smallest, whatever their order.
pub(super) fn sorted_nodes(rows: &[NodeRow]) -> Vec<&NodeRow> {
    let mut rows: Vec<&NodeRow> = rows.iter().collect();
    rows.sort_unstable();
    rows.dedup_by(|a, b| a.name == b.name);
    rows
}

/// What is published, one for each node and in the order of their names: of rows for one node the smallest, whatever
/// their order.
pub(super) fn sorted_published(rows: &[PublishedRow]) -> Vec<&PublishedRow> {
    let mut rows: Vec<&PublishedRow> = rows.iter().collect();
    rows.sort_unstable();
    rows.dedup_by(|a, b| a.node == b.node);
    rows
}

/// What there is for each of some nodes, by their places, and what there is for others.
pub(super) struct Beside<'a, T> {
    at: Vec<Option<T>>,
    others: Vec<(&'a str, T)>,
}

impl<'a, T: Copy> Beside<'a, T> {
    /// Nodes and things come in the order of names, each name once.
    pub(super) fn new(nodes: &[&NodeRow], things: impl Iterator<Item = (&'a str, T)>) -> Self {
        let (mut at, mut others) = (Vec::with_capacity(nodes.len()), Vec::new());
        let mut things = things.peekable();
        for node in nodes {
            let found = loop {
                let Some(&(name, thing)) = things.peek() else { break None };
                match name.cmp(&node.name) {
                    Ordering::Less => others.extend(things.next()),
                    Ordering::Equal => {
                        things.next();
                        break Some(thing);
                    }
                    Ordering::Greater => break None,
                }
            };
            at.push(found);
        }
        others.extend(things);
        Self { at, others }
    }

    /// What there is for the node at this place.
    pub(super) fn at(&self, place: usize) -> Option<T> {
        self.at.get(place).copied().flatten()
    }

    /// What there is for the nodes, in their order.
    pub(super) fn each(&self) -> impl Iterator<Item = Option<T>> {
        self.at.iter().copied()
    }

    /// What there is for others, by name.
    pub(super) fn others(&self) -> &[(&'a str, T)] {
        &self.others
    }

    /// What there is for one of the others.
    pub(super) fn other(&self, name: &str) -> Option<T> {
        let found = self.others.binary_search_by_key(&name, |&(other, _)| other);
        found.ok().and_then(|at| self.others.get(at)).map(|&(_, thing)| thing)
    }
}
