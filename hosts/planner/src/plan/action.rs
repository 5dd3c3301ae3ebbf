//! What is written, and in which order.
//!
//! A downgrade writes the label, then the cap: no pod may come that counts on full power. An upgrade writes the cap, sees
//! it confirmed, then the label. What already is as it should be is not written.

use super::{NodeRow, PublishedRow};
use crate::intent::Caps;
use crate::profile::Profile;

/// The desired state of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Desired {
    /// Its profile.
    pub profile: Profile,
    /// Its caps.
    pub caps: Caps,
    /// It drains.
    pub draining: bool,
    /// The policy that decided.
    pub policy: &'static str,
}

/// One write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Publish the desired state.
    WriteDesired(Desired),
    /// Set the node's labels.
    WriteLabels {
        /// The power-profile label; nothing leaves it as it is.
        profile: Option<Profile>,
        /// The text of the draining label; nothing takes the label away.
        draining: Option<bool>,
    },
    /// Take the node's labels away.
    RemoveLabels,
    /// Delete the desired state.
    DeleteDesired,
}

/// When a node carries the draining label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DrainingLabel {
    /// On every planned node: "set node label joulie.io/draining=false" once nothing blocks.
    Always,
    /// On draining nodes alone: an absent label is no mark.
    OnlyWhileDraining,
}

impl DrainingLabel {
    fn wanted(self, draining: bool) -> Option<bool> {
        match self {
            Self::Always => Some(draining),
            Self::OnlyWhileDraining => draining.then_some(true),
        }
    }
}

/// The writes that bring a node to its desired state. While another policy stands in for the configured one its name
/// alone is worth no write.
pub(super) fn changes(
    row: &NodeRow,
    published: Option<&PublishedRow>,
    desired: Option<&Desired>,
    label: Option<Profile>,
    mark: DrainingLabel,
    stands_in: bool,
) -> Vec<Action> {
    let Some(desired) = desired else { return Vec::new() };
    let profile_differs = label.is_some() && label != row.profile();
    let draining = mark.wanted(desired.draining);
    // Before a node has a profile nothing else is said on it either, but a mark that is wrong is taken back.
    let mark_differs = if label.is_some() {
        row.draining_label.as_deref() != draining.map(mark_text)
    } else {
        row.is_draining() != desired.draining
    };
    let labels =
        (profile_differs || mark_differs).then_some(Action::WriteLabels { profile: label, draining });
    let is_published = published.is_some_and(|published| is_same(published, desired, stands_in));
    let state = (!is_published).then(|| Action::WriteDesired(desired.clone()));
    let in_order = match label {
        Some(Profile::Eco) => [labels, state],
        Some(Profile::Performance) | None => [state, labels],
    };
    in_order.into_iter().flatten().collect()
}

/// The text of the draining label.
const fn mark_text(draining: bool) -> &'static str {
    if draining { "true" } else { "false" }
}

fn is_same(published: &PublishedRow, desired: &Desired, stands_in: bool) -> bool {
    published.profile == Some(desired.profile)
        && published.draining == desired.draining
        && published.caps.same_as(&desired.caps)
        && (stands_in || published.policy.as_deref() == Some(desired.policy))
}
