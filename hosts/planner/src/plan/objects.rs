//! The desired content of a node's objects, and the differences from the present content.
//!
//! A downgrade writes the label, then the cap, so that no new pod counts on full power. An upgrade writes the cap,
//! waits for its confirmation, then writes the label. Equal content is not written, and parts of other owners never
//! are.

use super::{NodeDecision, Settings};
use crate::node::{DesiredState, Node, Publish};
use crate::profile::Profile;

/// The desired content of a node's objects. `None` leaves a part unchanged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Objects {
    /// Whether the node is tainted: it has no confirmed cap.
    pub taint: Option<bool>,
    /// The labels of the node.
    pub labels: Option<LabelsSay>,
    /// The objects with its desired state.
    pub state: Option<StateSays>,
}

/// The desired content of a node's labels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LabelsSay {
    /// These labels.
    These {
        /// The profile; `None` leaves the label unchanged.
        profile: Option<Profile>,
        /// The text of the draining label; `None` removes the label.
        draining: Option<bool>,
        /// It is draining.
        drains: bool,
    },
    /// No labels: they are removed.
    Nothing,
}

/// The desired content of the objects with a desired state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StateSays {
    /// This state.
    This(DesiredState),
    /// This state, in those objects that exist.
    Lifted(DesiredState),
    /// Nothing: the objects are deleted.
    Nothing,
}

/// A difference between the desired and the present content of a node's objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ObjectChange {
    /// The taint is added or removed.
    Taint(bool),
    /// Other labels.
    Labels {
        /// The profile; `None` leaves the label unchanged.
        profile: Option<Profile>,
        /// The text of the draining label; `None` removes the label.
        draining: Option<bool>,
    },
    /// No labels.
    NoLabels,
    /// Another desired state.
    State(Publish),
    /// No desired state.
    NoState,
}

/// When nodes carry the draining label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DrainingLabel {
    /// On every planned node: "set node label joulie.io/draining=false" once nothing blocks.
    Always,
    /// On draining nodes only: an absent label is no mark.
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

/// The desired content of a node's objects; without a decision only the taint is decided.
#[must_use]
pub fn desired(node: &Node, decision: Option<&NodeDecision>, settings: &Settings) -> Objects {
    let taint = Some(is_to_be_tainted(node, settings));
    let Some((decision, desired)) = decision.and_then(|made| Some((made, made.desired.as_ref()?))) else {
        return Objects { taint, ..Objects::default() };
    };
    let labels = LabelsSay::These {
        profile: decision.guard.publish.and_then(|publish| publish.label),
        draining: settings.draining_label.wanted(desired.draining),
        drains: desired.draining,
    };
    Objects { taint, labels: Some(labels), state: Some(StateSays::This(desired.clone())) }
}

/// Whether to keep pods away from a node: nobody knows whether it is capped as its limits need it.
fn is_to_be_tainted(node: &Node, settings: &Settings) -> bool {
    settings.taint_uncapped && node.is_eligible() && node.awaits_receipt(&settings.budget)
}

/// The differences, in the order of the writes. While a fallback policy replaces the configured one, a different
/// policy name alone is not written.
#[must_use]
pub fn diff(objects: &Objects, node: &Node, stands_in: bool) -> Vec<ObjectChange> {
    let Objects { taint, labels, state } = objects;
    let taint = taint.filter(|&taint| taint != node.tainted).map(ObjectChange::Taint);
    let labels_first = match labels {
        Some(LabelsSay::These { profile, .. }) => *profile == Some(Profile::Eco),
        Some(LabelsSay::Nothing) | None => true,
    };
    let labels = labels.and_then(|labels| of_labels(labels, node));
    let state = state.as_ref().and_then(|state| of_state(state, node, stands_in));
    let in_order = if labels_first { [labels, state] } else { [state, labels] };
    // The taint's write requires the version of the node that was read, so it comes first.
    taint.into_iter().chain(in_order.into_iter().flatten()).collect()
}

fn of_labels(labels: LabelsSay, node: &Node) -> Option<ObjectChange> {
    let LabelsSay::These { profile, draining, drains } = labels else {
        let labels = &node.labels;
        return (labels.profile.text.is_some() || labels.draining.text.is_some())
            .then_some(ObjectChange::NoLabels);
    };
    let of_profile = profile.is_some() && profile != node.labelled() && !node.labels.profile.theirs;
    // Before a node has a profile no other label is set on it, but a wrong mark is corrected.
    let of_mark = if profile.is_some() {
        node.labels.draining.text.as_deref() != draining.map(mark_text)
    } else {
        node.is_marked() != drains
    };
    let differs = of_profile || (of_mark && !node.labels.draining.theirs);
    differs.then_some(ObjectChange::Labels { profile, draining })
}

fn of_state(state: &StateSays, node: &Node, stands_in: bool) -> Option<ObjectChange> {
    match state {
        StateSays::This(desired) => node.published.differs(desired, stands_in).map(ObjectChange::State),
        StateSays::Lifted(desired) => {
            let publish = node.published.differs(desired, true)?;
            let publish = Publish { twin: publish.twin && node.published.twin.is_some(), ..publish };
            (publish.profile || publish.twin).then_some(ObjectChange::State(publish))
        }
        StateSays::Nothing => Some(ObjectChange::NoState),
    }
}

/// The text of the draining label.
const fn mark_text(draining: bool) -> &'static str {
    if draining { "true" } else { "false" }
}
