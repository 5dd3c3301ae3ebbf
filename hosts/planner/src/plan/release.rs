//! Releasing a node that is not eligible any more: its caps are lifted, its labels go, its desired state is deleted.
//!
//! Caps are lifted by writing the highest limits and waiting until the agent has read them back, because an agent may
//! leave alone what the desired state no longer names; the labels go only then, so that no pod counts on power that is
//! not there. An agent that is gone, or a cap that
//! somebody else holds in the desired state, is waited for only so long. What a person wrote is never taken back.

use super::{Action, Confirmation, Desired, NodeMemory, NodeRow, Pass, PublishedRow};
use crate::intent::Caps;
use crate::profile::Profile;
use power_units::Stamp;
use std::collections::BTreeSet;
use std::sync::Arc;

/// The release of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Release {
    /// Its name.
    pub node: Arc<str>,
    /// Why it is released.
    pub reason: ReleaseReason,
    /// What is to be written, in this order; none while the agent is waited for.
    pub actions: Vec<Action>,
    /// What to remember when that is done; nothing when the node is released.
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
pub(super) fn releases(pass: &Pass<'_>, rows: &[&NodeRow]) -> Vec<Release> {
    let remembered = pass.remembered.others().iter().map(|&(node, _)| node);
    let ours = pass.published.others().iter().filter(|(_, published)| published.ours);
    let known: BTreeSet<&str> = remembered.chain(ours.map(|&(node, _)| node)).collect();
    let release = |node: &str| {
        let found = rows.binary_search_by(|row| (*row.name).cmp(node));
        let row = found.ok().and_then(|at| rows.get(at).copied());
        let reason = reason(row)?;
        let published = pass.published.other(node).filter(|published| published.ours);
        let (actions, remember) = steps(pass, node, row, published);
        Some(Release { node: node.into(), reason, actions, remember })
    };
    known.into_iter().filter_map(release).collect()
}

fn reason(row: Option<&NodeRow>) -> Option<ReleaseReason> {
    match row {
        None => Some(ReleaseReason::Deleted),
        Some(row) if !row.selected => Some(ReleaseReason::Deselected),
        Some(row) if row.reserved => Some(ReleaseReason::Reserved),
        Some(row) if row.unschedulable => Some(ReleaseReason::Cordoned),
        Some(_) => None,
    }
}

fn steps(
    pass: &Pass<'_>,
    node: &str,
    row: Option<&NodeRow>,
    published: Option<&PublishedRow>,
) -> (Vec<Action>, Option<NodeMemory>) {
    let labelled = row.is_some_and(|row| row.profile_label.is_some() || row.draining_label.is_some());
    let labels = labelled.then_some(Action::RemoveLabels);
    let gone = |labels: Option<Action>| labels.into_iter().chain([Action::DeleteDesired]).collect();
    let (row, published) = match (row, published) {
        (_, None) => return (labels.into_iter().collect(), None),
        (None, Some(_)) => return (gone(None), None),
        (Some(row), Some(published)) => (row, published),
    };
    let since = match pass.remembered.other(node) {
        Some(NodeMemory::Releasing { since }) => *since,
        Some(NodeMemory::Planned(_)) | None => pass.now,
    };
    if is_out_of_patience(pass, since) {
        return (gone(labels), None);
    }
    let waiting = Some(NodeMemory::Releasing { since });
    if !published.caps.are_lifted() {
        let lifted = Desired {
            profile: Profile::Performance,
            caps: Caps::default().after(&published.caps),
            draining: false,
            policy: pass.policy,
        };
        return (vec![Action::WriteDesired(lifted)], waiting);
    }
    match row.confirmation {
        Confirmation::Awaited => (Vec::new(), waiting),
        // What is short of the highest limit is the owner's own, which no release lifts.
        Confirmation::InForce | Confirmation::Short | Confirmation::Unenforced => (gone(labels), None),
    }
}

fn is_out_of_patience(pass: &Pass<'_>, since: Stamp) -> bool {
    pass.now.since(since).is_some_and(|waited| waited >= pass.settings.release_patience)
}
