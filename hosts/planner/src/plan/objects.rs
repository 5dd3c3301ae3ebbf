//! What the objects of a node should say, and what differs from that.
//!
//! A downgrade writes the label, then the cap: no pod may come that counts on full power. An upgrade writes the cap, sees
//! it confirmed, then the label. What already is as it should be is not written, and what somebody else owns never is.

use super::NodeDecision;
use crate::node::{Desired, Node, Publish};
use crate::profile::Profile;

/// What the objects of a node should say. What is nothing here is left as it stands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Objects {
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
    This(Desired),
    /// This, in as many of them as there are.
    Lifted(Desired),
    /// Nothing: they are deleted.
    Nothing,
}

/// A difference between what the objects of a node should say and what they say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
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

/// What the objects of a planned node should say.
#[must_use]
pub fn desired(decision: &NodeDecision, mark: DrainingLabel) -> Objects {
    let Some(desired) = &decision.desired else { return Objects::default() };
    let labels = LabelsSay::These {
        profile: decision.guard.publish.and_then(|publish| publish.label),
        draining: mark.wanted(desired.draining),
        drains: desired.draining,
    };
    Objects { labels: Some(labels), state: Some(StateSays::This(desired.clone())) }
}

/// What differs, in the order in which it is to be written. While another policy stands in for the configured one its name
/// alone is worth no write.
#[must_use]
pub fn diff(objects: &Objects, node: &Node, stands_in: bool) -> Vec<Change> {
    let Objects { labels, state } = objects;
    let labels_first = match labels {
        Some(LabelsSay::These { profile, .. }) => *profile == Some(Profile::Eco),
        Some(LabelsSay::Nothing) | None => true,
    };
    let labels = labels.and_then(|labels| of_labels(labels, node));
    let state = state.as_ref().and_then(|state| of_state(state, node, stands_in));
    let in_order = if labels_first { [labels, state] } else { [state, labels] };
    in_order.into_iter().flatten().collect()
}

fn of_labels(labels: LabelsSay, node: &Node) -> Option<Change> {
    let LabelsSay::These { profile, draining, drains } = labels else {
        let labels = &node.labels;
        return (labels.profile.text.is_some() || labels.draining.text.is_some()).then_some(Change::NoLabels);
    };
    let of_profile = profile.is_some() && profile != node.labelled() && !node.labels.profile.theirs;
    // Before a node has a profile nothing else is said on it either, but a mark that is wrong is taken back.
    let of_mark = if profile.is_some() {
        node.labels.draining.text.as_deref() != draining.map(mark_text)
    } else {
        node.is_marked() != drains
    };
    let differs = of_profile || (of_mark && !node.labels.draining.theirs);
    differs.then_some(Change::Labels { profile, draining })
}

fn of_state(state: &StateSays, node: &Node, stands_in: bool) -> Option<Change> {
    match state {
        StateSays::This(desired) => node.published.differs(desired, stands_in).map(Change::State),
        StateSays::Lifted(desired) => {
            let publish = node.published.differs(desired, true)?;
            let publish = Publish { twin: publish.twin && node.published.twin.is_some(), ..publish };
            (publish.profile || publish.twin).then_some(Change::State(publish))
        }
        StateSays::Nothing => Some(Change::NoState),
    }
}

/// The text of the draining label.
const fn mark_text(draining: bool) -> &'static str {
    if draining { "true" } else { "false" }
}
