//! What a pass may know: one row for each node, each pod and each desired state that is published.

use crate::demand::PodCounts;
use crate::intent::Caps;
use crate::inventory::HardwareFacts;
use crate::profile::Profile;
use power_units::{Micros, Stamp};
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
    /// Whether it can supply anything now.
    pub presence: Presence,
    /// The text of its power-profile label.
    pub profile_label: Option<Arc<str>>,
    /// The text of its draining label.
    pub draining_label: Option<Arc<str>>,
    /// What is said about its hardware.
    pub hardware: HardwareFacts,
    /// What its agent says about the desired state that is published.
    pub confirmation: Confirmation,
    /// How well it is seen.
    pub sight: Sight,
    /// Where whoever plans has it; its plan says so again, and depends on it in nothing.
    pub place: usize,
}

/// Whether a node can supply anything now, as Kubernetes sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Presence {
    /// Its Ready condition is true.
    Ready,
    /// It is not ready, and has not been for so short a time that it is expected back. After an outage of the API server
    /// all nodes are so, and come back one by one.
    Away,
    /// It is not ready, and nobody waits for it any more.
    Lost,
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

/// Rows in the order of names, one for each: of rows that share a name the smallest, whatever their order.
pub(super) fn sorted<Row: Ord>(rows: &[Row], name: impl Fn(&Row) -> &str) -> Vec<&Row> {
    let mut rows: Vec<&Row> = rows.iter().collect();
    // Mostly they are so already.
    if !rows.is_sorted_by(|a, b| name(a) < name(b)) {
        rows.sort_unstable();
        rows.dedup_by(|a, b| name(a) == name(b));
    }
    rows
}
