//! What a pass may know: one row for each node, each pod and each desired state that is published.

use crate::demand::PodRow;
use crate::intent::Caps;
use crate::inventory::HardwareFacts;
use crate::places::Places;
use crate::profile::Profile;
use power_units::{Micros, Stamp};
use std::collections::BTreeMap;

/// The cluster at one moment.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// Every node, eligible or not.
    pub nodes: Vec<NodeRow>,
    /// Every pod, or nothing when they could not be listed.
    pub pods: Option<Vec<PodRow>>,
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
    pub name: String,
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
    /// No cap can be in force: no agent has ever reported from the node, or it has nothing to cap with.
    Unenforced,
}

/// A desired state as it is published.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PublishedRow {
    /// The node that it is for.
    pub node: String,
    /// We wrote it; one that a person wrote is never taken back.
    pub ours: bool,
    /// Its profile, if it is one.
    pub profile: Option<Profile>,
    /// Its caps.
    pub caps: Caps,
    /// Its draining mark.
    pub draining: bool,
    /// Its policy's name.
    pub policy: Option<String>,
}

/// Rows by name, one for each: of rows that share a name the smallest, whatever their order.
pub(super) fn sorted_nodes(rows: &[NodeRow]) -> Vec<&NodeRow> {
    let mut rows: Vec<&NodeRow> = rows.iter().collect();
    rows.sort_unstable();
    rows.dedup_by(|a, b| a.name == b.name);
    rows
}

/// What is published, by the places of the eligible nodes and by name for all others; of rows for one node the smallest
/// counts, whatever their order.
pub(super) struct Published<'a> {
    eligible: Vec<Option<&'a PublishedRow>>,
    others: BTreeMap<&'a str, &'a PublishedRow>,
}

impl<'a> Published<'a> {
    pub(super) fn new(rows: &'a [PublishedRow], places: &ByNode<'_>) -> Self {
        let mut published = Self { eligible: vec![None; places.len()], others: BTreeMap::new() };
        for row in rows {
            let slot = places.find(&row.node).and_then(|at| published.eligible.get_mut(at));
            match slot {
                Some(slot) => *slot = Some(slot.map_or(row, |other| other.min(row))),
                None => {
                    let slot = published.others.entry(&row.node).or_insert(row);
                    *slot = (*slot).min(row);
                }
            }
        }
        published
    }

    /// What is published for the eligible node at this place.
    pub(super) fn at(&self, place: usize) -> Option<&'a PublishedRow> {
        self.eligible.get(place).copied().flatten()
    }

    /// What is published for nodes that are not eligible, by name.
    pub(super) const fn others(&self) -> &BTreeMap<&'a str, &'a PublishedRow> {
        &self.others
    }
}

/// Finds the place of a node by its name, for many pods.
pub(super) struct ByNode<'a> {
    names: Vec<&'a str>,
    places: Places,
}

impl<'a> ByNode<'a> {
    pub(super) fn new(names: impl Iterator<Item = &'a str>) -> Self {
        let names: Vec<&str> = names.collect();
        let places = Places::new(names.iter().copied());
        Self { names, places }
    }

    pub(super) fn len(&self) -> usize {
        self.names.len()
    }

    pub(super) fn find(&self, name: &str) -> Option<usize> {
        self.places.find(name, |at| self.names.get(at).copied())
    }
}
