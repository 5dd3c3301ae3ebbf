//! All that is known of one node.

use super::{DesiredSource, Unreadable};
use crate::rows::{GrantSeen, HardwareSeen, NodeSeen, ProfileSeen, StateSeen, TwinSeen};
use planner::budget::Split;
use planner::hardware::Hardware;
use planner::intent::Caps;
use std::sync::Arc;

/// All that is known of one node.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    /// The name of the node, which all that is kept of it shares.
    pub(crate) name: Arc<str>,
    /// The node.
    pub(crate) node: Arc<NodeSeen>,
    /// What its agent says of its hardware.
    pub(crate) hardware: Option<Arc<HardwareSeen>>,
    /// Its NodePowerProfile.
    pub(crate) profile: Option<Arc<ProfileSeen>>,
    /// Its NodeTwin.
    pub(crate) twin: Option<Arc<TwinSeen>>,
    /// Its NodePowerGrant.
    pub(crate) grant: Option<Arc<GrantSeen>>,
    /// The merged view of its hardware.
    pub(crate) resolved: Hardware,
    /// What is there and cannot be read.
    pub(crate) unreadable: Unreadable,
    /// What every pass asks, so that it need not look for it in all of the above.
    pub(crate) brief: Brief,
}

/// What every pass asks of a node.
#[derive(Clone, Debug, Default)]
pub(crate) struct Brief {
    /// Its rack, as its label says.
    pub(crate) rack: Option<Arc<str>>,
    /// Its cooling zone, as its label says.
    pub(crate) zone: Option<Arc<str>>,
    /// The caps that stand, where a desired state is published.
    pub(crate) caps: Option<Caps>,
    /// Whether its agent can cap processors and GPUs, as far as it says; nobody can where there is none.
    pub(crate) can_cap: (bool, bool),
    /// What it says of its hardware and is not believed, in a sentence.
    pub(crate) implausible: Option<Arc<str>>,
    /// Its agent has found nothing that meters it.
    pub(crate) has_no_meter: bool,
    /// Somebody else owns a part of its desired state or its profile label.
    pub(crate) has_other_owners: bool,
}

impl Member {
    /// The object that its agent obeys.
    pub(crate) fn state(&self, source: DesiredSource) -> Option<&StateSeen> {
        match source {
            DesiredSource::Profile => self.profile.as_deref().map(|profile| &profile.state),
            DesiredSource::Twin => self.twin.as_deref().map(|twin| &twin.state),
        }
    }

    /// Whether the object that its agent obeys is there and cannot be read.
    pub(crate) const fn is_state_unread(&self, source: DesiredSource) -> bool {
        match source {
            DesiredSource::Profile => self.unreadable.profile.is_some(),
            DesiredSource::Twin => self.unreadable.twin.is_some(),
        }
    }

    /// What its watts are made of.
    pub(crate) fn split(&self) -> Split {
        Split::of(&self.resolved, self.brief.can_cap)
    }

    /// These caps as the agent holds them under the grant that stands.
    pub(crate) fn under_grant(&self, caps: Caps) -> Caps {
        let grant = self.grant.as_deref().filter(|grant| !grant.released);
        grant.map_or(caps, |grant| self.split().under_grant(&caps, grant.grant.watts))
    }

    /// A label of the node.
    pub(crate) fn label(&self, key: &str) -> Option<&str> {
        self.node.label(key).filter(|value| !value.is_empty())
    }

    /// Whether nothing about the node has arrived since.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        fn same<T>(one: &Option<Arc<T>>, other: &Option<Arc<T>>) -> bool {
            match (one, other) {
                (Some(one), Some(other)) => Arc::ptr_eq(one, other),
                (None, None) => true,
                (Some(_), None) | (None, Some(_)) => false,
            }
        }
        Arc::ptr_eq(&self.node, &other.node)
            && same(&self.hardware, &other.hardware)
            && same(&self.profile, &other.profile)
            && same(&self.twin, &other.twin)
            && same(&self.grant, &other.grant)
            && self.unreadable == other.unreadable
    }
}
