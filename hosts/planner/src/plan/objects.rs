//! What the objects of a node should say, and what differs from that.
//!
//! A downgrade writes the label, then the cap: no pod may come that counts on full power. An upgrade writes the cap, sees
//! it confirmed, then the label. What already is as it should be is not written, and what somebody else owns never is.

use super::{NodeDecision, Settings};
use crate::node::{DesiredState, Node, Publish};
use crate::profile::Profile;

/// What the objects of a node should say. What is nothing here is left as it stands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Objects {
    /// Whether the node is tainted: nobody is known to cap it.
    pub taint: Option<bool>,
    /// The labels of the node.
    pub labels: Option<LabelsSay>,
    /// The objects that carry its desired state.
    pub state: Option<StateSays>,
}

/// What the labels of a node should say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LabelsSay {
    /// This.
    These {
        /// The profile; nothing leaves the label as it is.
        profile: Option<Profile>,
        /// The text of the draining label; nothing takes the label away.
        draining: Option<bool>,
        /// It drains.
        drains: bool,
    },
    /// Nothing: they are taken away.
    Nothing,
}

/// What the objects that carry a desired state should say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StateSays {
    /// This.
    This(DesiredState),
    /// This, in as many of them as there are.
    Lifted(DesiredState),
    /// Nothing: they are deleted.
    Nothing,
}

/// A difference between what the objects of a node should say and what they say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ObjectChange {
    /// The taint comes, or goes.
    Taint(bool),
    /// Other labels.
    Labels {
        /// The profile; nothing leaves the label as it is.
        profile: Option<Profile>,
        /// The text of the draining label; nothing takes the label away.
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

/// What the objects of a node should say; nothing is decided for one that is not planned.
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

/// Whether pods are to be kept away from a node: it is under a limit, and nobody has said since its boot that it keeps to its
/// grant. For one whose agent has nothing to cap with there is nothing to wait for.
fn is_to_be_tainted(node: &Node, settings: &Settings) -> bool {
    let machine = &node.machine;
    let may_be_capped = !machine.has_agent || machine.power_model.is_cappable();
    let under_limits = settings.taint_uncapped && settings.budget.any();
    under_limits && node.is_eligible() && may_be_capped && node.receipt().is_none()
}

/// What differs, in the order in which it is to be written. While another policy stands in for the configured one its name
/// alone is worth no write.
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
    // Its write holds to the version of the node that was seen, so that it comes before all others.
    taint.into_iter().chain(in_order.into_iter().flatten()).collect()
}

fn of_labels(labels: LabelsSay, node: &Node) -> Option<ObjectChange> {
    let LabelsSay::These { profile, draining, drains } = labels else {
        let labels = &node.labels;
        return (labels.profile.text.is_some() || labels.draining.text.is_some())
            .then_some(ObjectChange::NoLabels);
    };
    let of_profile = profile.is_some() && profile != node.labelled() && !node.labels.profile.theirs;
    // Before a node has a profile nothing else is said on it either, but a mark that is wrong is taken back.
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
