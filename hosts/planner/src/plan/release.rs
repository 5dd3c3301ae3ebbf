//! Releasing a node that is not eligible any more: its caps are lifted, its labels go, its desired state is deleted.
//!
//! Caps are lifted by writing the highest limits and waiting until the agent has read them back, because an agent may
//! leave alone what the desired state no longer names; the labels go only then, so that no pod counts on power that is
//! not there. An agent that is gone, or a cap that
//! somebody else holds in the desired state, is waited for only so long. What a person wrote is never taken back.

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
    /// Why it is released.
    pub reason: ReleaseReason,
    /// What its objects should say; nothing while the agent is waited for.
    pub objects: Objects,
    /// What to remember when that is so; nothing when the node is released.
    pub remember: Option<NodeMemory>,
}

/// Why a node is released.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ReleaseReason {
    /// The node is gone.
    Deleted,
    /// `NODE_SELECTOR` does not match it any more.
    Deselected,
    /// It was reserved.
    Reserved,
    /// It was cordoned.
    Cordoned,
}

/// The releases of this pass, by name: of every node that we planned or published something for and that is not
/// eligible.
pub(super) fn releases<'a>(pass: &Pass<'_>, leaving: impl Iterator<Item = &'a Node>) -> Vec<Release> {
    // Of whom nothing is left but the memory, that goes too.
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

/// Whether there is something that is ours to take back. Of a node that is gone nothing is obeyed any more, so that both
/// objects count.
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
    // The agent has seen by itself that the node is deselected. A cap that a person keeps in the object then holds nobody up.
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
        let state = Some(StateSays::Lifted(lifted));
        return (Objects { state, ..Objects::default() }, waiting);
    }
    match node.confirmation {
        Confirmation::Awaited => (Objects::default(), waiting),
        // What is short of the highest limit is the owner's own, which no release lifts.
        Confirmation::InForce | Confirmation::Short | Confirmation::Lifted | Confirmation::Unenforced => {
            (gone, None)
        }
    }
}

fn is_out_of_patience(pass: &Pass<'_>, since: Stamp) -> bool {
    pass.now.since(since).is_some_and(|waited| waited >= pass.settings.release_patience)
}
