//! Releases a node that is no longer eligible: its caps are lifted, its labels removed, its desired state deleted.
//!
//! Caps are lifted by writing the highest limits and waiting until the agent has read them back, because an agent may
//! not touch what the desired state no longer names. Only then are the labels removed, so that no pod counts on power
//! that is not available yet. The wait is limited, for an agent that no longer runs or a cap that another owner holds
//! in the desired state of a node that is still selected. What a person wrote is never removed.

use super::{LabelsSay, NodeMemory, Objects, Pass, StateSays};
use crate::intent::NodeCaps;
use crate::node::{Carried, Confirmation, DesiredState, Node, Presence, Published};
use crate::profile::Profile;
use power_units::Stamp;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The release of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Release {
    /// Its name.
    pub node: Arc<str>,
    /// The reason.
    pub reason: ReleaseReason,
    /// The desired content of its objects; empty while waiting for the agent.
    pub objects: Objects,
    /// The memory after that is written; `None` when the node is released.
    pub remember: Option<NodeMemory>,
}

/// Why a node is released.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ReleaseReason {
    /// The node was removed.
    Deleted,
    /// `NODE_SELECTOR` no longer matches it.
    Deselected,
    /// It was reserved.
    Reserved,
    /// It was cordoned.
    Cordoned,
}

/// The releases of this pass, by name: of every ineligible node that was planned or for which something was published.
pub(super) fn releases<'a>(pass: &Pass<'_>, leaving: impl Iterator<Item = &'a Node>) -> Vec<Release> {
    // A node of which only the memory is left is removed from the memory too.
    let forgotten = pass.remembered.others().iter().map(|&(name, _)| {
        let nothing = Objects::default();
        let release =
            Release { node: name.into(), reason: ReleaseReason::Deleted, objects: nothing, remember: None };
        (release.node.clone(), release)
    });
    let mut releases: BTreeMap<Arc<str>, Release> = forgotten.collect();
    for node in leaving {
        if !is_ours(node) && !releases.contains_key(&node.name) {
            continue;
        }
        let (objects, remember) = steps(pass, node);
        let release = Release { node: node.name.clone(), reason: reason(node), objects, remember };
        releases.insert(node.name.clone(), release);
    }
    releases.into_values().collect()
}

/// Whether the operator owns something to remove. For a removed node no agent follows either object, so both count.
fn is_ours(node: &Node) -> bool {
    let Published { profile, twin, .. } = &node.published;
    let ours = |there: Option<&Carried>| there.is_some_and(|there| !there.persons);
    match node.presence {
        Presence::Gone => ours(profile.as_ref()) || ours(twin.as_ref()),
        Presence::Ready | Presence::Away | Presence::Lost => ours(node.published.obeyed()),
    }
}

const fn reason(node: &Node) -> ReleaseReason {
    match node {
        Node { presence: Presence::Gone, .. } => ReleaseReason::Deleted,
        Node { selected: false, .. } => ReleaseReason::Deselected,
        Node { reserved: true, .. } => ReleaseReason::Reserved,
        Node { .. } => ReleaseReason::Cordoned,
    }
}

fn steps(pass: &Pass<'_>, node: &Node) -> (Objects, Option<NodeMemory>) {
    let is_there = node.presence != Presence::Gone;
    let labels = is_there.then_some(LabelsSay::Nothing);
    let gone = Objects { labels, state: Some(StateSays::Nothing), ..Objects::default() };
    if !is_ours(node) {
        return (Objects { labels, ..Objects::default() }, None);
    }
    if !is_there {
        return (gone, None);
    }
    let since = match pass.remembered.other(&node.name) {
        Some(NodeMemory::Releasing { since }) => *since,
        Some(NodeMemory::Planned(_)) | None => pass.now,
    };
    if is_out_of_patience(pass, since) {
        return (gone, None);
    }
    let waiting = Some(NodeMemory::Releasing { since });
    let caps = node.published.caps();
    // The agent has found out itself that the node is deselected, so a cap that a person keeps in the object delays nothing.
    if node.confirmation == Confirmation::Lifted {
        return (gone, None);
    }
    if !caps.are_lifted() {
        let lifted = DesiredState {
            profile: Profile::Performance,
            caps: NodeCaps::default().after(&caps),
            draining: false,
            policy: Some(pass.policy.into()),
        };
        if !node.selected && is_theirs_alone(node, &lifted) {
            return (gone, None);
        }
        let state = Some(StateSays::Lifted(lifted));
        return (Objects { state, ..Objects::default() }, waiting);
    }
    match node.confirmation {
        Confirmation::Awaited => (Objects::default(), waiting),
        // The difference to the highest limit is due to the owner's own limit, which a release does not lift.
        Confirmation::InForce | Confirmation::Short | Confirmation::Lifted | Confirmation::Unenforced => {
            (gone, None)
        }
    }
}

/// Whether no cap is left but those that somebody else holds in the object, and its agent has followed that. No write of ours lifts
/// them, so there is nothing to wait for.
fn is_theirs_alone(node: &Node, lifted: &DesiredState) -> bool {
    let stands = |there: &Carried| lifted.over(there).caps.same_as(&there.desired.caps);
    node.confirmation != Confirmation::Awaited && node.published.obeyed().is_some_and(stands)
}

fn is_out_of_patience(pass: &Pass<'_>, since: Stamp) -> bool {
    pass.now.since(since).is_some_and(|waited| waited >= pass.settings.release_patience)
}
