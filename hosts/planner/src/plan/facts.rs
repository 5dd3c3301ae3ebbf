//! What a pass may know: one row for each node, each pod and each desired state that is published.

use crate::demand::PodRow;
use crate::intent::Caps;
use crate::inventory::HardwareFacts;
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

/// Rows by node, one for each: of rows for one node the smallest, whatever their order.
pub(super) fn sorted_published(rows: &[PublishedRow]) -> BTreeMap<&str, &PublishedRow> {
    let mut rows: Vec<&PublishedRow> = rows.iter().collect();
    rows.sort_unstable();
    rows.dedup_by(|a, b| a.node == b.node);
    rows.into_iter().map(|row| (row.node.as_str(), row)).collect()
}

/// Finds the place of a node by its name, for many pods.
pub(super) struct ByNode<'a>(BTreeMap<&'a str, usize>);

impl<'a> ByNode<'a> {
    pub(super) fn new(names: impl Iterator<Item = &'a str>) -> Self {
        Self(names.enumerate().map(|(at, name)| (name, at)).collect())
    }

    pub(super) fn find(&self, name: &str) -> Option<usize> {
        self.0.get(name).copied()
    }
}
