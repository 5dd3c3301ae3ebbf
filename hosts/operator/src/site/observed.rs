//! The present objects of one node.

use super::Unreadable;
use crate::rows::{GrantSeen, HardwareSeen, NodeSeen, ProfileSeen, StateSeen, TwinSeen};
use planner::node::DesiredKind;
use std::sync::Arc;

/// The objects of one node.
#[derive(Clone, Debug)]
pub(crate) struct Observed {
    /// The Node.
    pub(crate) node: Arc<NodeSeen>,
    /// Its NodeHardware.
    pub(crate) hardware: Option<Arc<HardwareSeen>>,
    /// Its NodePowerProfile.
    pub(crate) profile: Option<Arc<ProfileSeen>>,
    /// Its NodeTwin.
    pub(crate) twin: Option<Arc<TwinSeen>>,
    /// Its NodePowerGrant.
    pub(crate) grant: Option<Arc<GrantSeen>>,
    /// The objects that cannot be read.
    pub(crate) unreadable: Unreadable,
}

impl Observed {
    /// The object that its agent follows.
    pub(crate) fn state(&self, source: DesiredKind) -> Option<&StateSeen> {
        match source {
            DesiredKind::Profile => self.profile.as_deref().map(|profile| &profile.state),
            DesiredKind::Twin => self.twin.as_deref().map(|twin| &twin.state),
        }
    }

    /// Whether the object that its agent follows exists but cannot be read.
    pub(crate) const fn is_state_unread(&self, source: DesiredKind) -> bool {
        match source {
            DesiredKind::Profile => self.unreadable.profile.is_some(),
            DesiredKind::Twin => self.unreadable.twin.is_some(),
        }
    }

    /// Whether none of the node's objects has changed.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        fn same<T>(one: Option<&Arc<T>>, other: Option<&Arc<T>>) -> bool {
            match (one, other) {
                (Some(one), Some(other)) => Arc::ptr_eq(one, other),
                (None, None) => true,
                (Some(_), None) | (None, Some(_)) => false,
            }
        }
        let Self { node, hardware, profile, twin, grant, unreadable } = self;
        Arc::ptr_eq(node, &other.node)
            && same(hardware.as_ref(), other.hardware.as_ref())
            && same(profile.as_ref(), other.profile.as_ref())
            && same(twin.as_ref(), other.twin.as_ref())
            && same(grant.as_ref(), other.grant.as_ref())
            && *unreadable == other.unreadable
    }
}
