//! Nodes for tests.

use super::{Carried, MachineFacts, Node, Theirs};
use crate::catalog::Catalog;
use crate::inventory::HardwareFacts;
use crate::node::DesiredState;
use crate::profile::Profile;

/// An eligible node with these facts.
pub(crate) fn node(name: &str, facts: &HardwareFacts) -> Node {
    Node::ready(name, machine(facts))
}

/// A machine whose devices can all be capped.
pub(crate) fn machine(facts: &HardwareFacts) -> MachineFacts {
    MachineFacts::of(facts, None, false, (true, true), &Catalog::embedded().unwrap())
}

/// A desired state that the operator owns.
pub(crate) fn carried(desired: DesiredState) -> Carried {
    Carried { desired, theirs: Theirs::default(), persons: false }
}

/// A desired state without a policy.
pub(crate) fn state(profile: Profile, caps: crate::intent::NodeCaps) -> DesiredState {
    DesiredState { profile, caps, draining: false, policy: None }
}
