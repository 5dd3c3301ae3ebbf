//! The present objects of one node.

use super::Unreadable;
use crate::rows::{GrantSeen, HardwareSeen, NodeSeen, ProfileSeen, StateSeen, TwinSeen};
use joulie_api::node_twin::NodeTwinStatus;
use planner::node::DesiredKind;
use planner::sleep::SleepMark;
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
    /// What every pass asks of them.
    glance: Glance,
}

/// What a pass asks of every node. Reading the objects of thousands of nodes for it would dominate a pass in which one pod
/// has changed.
#[derive(Clone, Copy, Debug)]
struct Glance {
    ready: bool,
    marked: bool,
    gpus: bool,
    advised: bool,
    profile_theirs: bool,
    twin_theirs: bool,
}

impl Observed {
    pub(crate) fn new(
        node: Arc<NodeSeen>,
        hardware: Option<Arc<HardwareSeen>>,
        profile: Option<Arc<ProfileSeen>>,
        twin: Option<Arc<TwinSeen>>,
        grant: Option<Arc<GrantSeen>>,
        unreadable: Unreadable,
    ) -> Self {
        let glance = Glance {
            ready: node.ready,
            marked: node.mark().is_some(),
            gpus: hardware.as_ref().is_some_and(|hardware| hardware.has_gpus),
            advised: twin.as_ref().is_some_and(|twin| {
                let (status, list) = (&twin.status, &twin.status.reschedule_recommendations);
                status.reschedule_cause.is_some() || list.as_ref().is_some_and(|list| !list.is_empty())
            }),
            profile_theirs: profile.as_ref().is_some_and(|profile| profile.state.carried.theirs.any()),
            twin_theirs: twin.as_ref().is_some_and(|twin| twin.state.carried.theirs.any()),
        };
        Self { node, hardware, profile, twin, grant, unreadable, glance }
    }

    /// Whether the kubelet is ready.
    pub(crate) const fn is_ready(&self) -> bool {
        self.glance.ready
    }

    /// The mark about its sleep, if it has one.
    pub(crate) fn sleep_mark(&self) -> Option<&SleepMark> {
        self.glance.marked.then(|| self.node.mark()).flatten()
    }

    /// Its NodeHardware, if that has GPUs.
    pub(crate) fn gpu_hardware(&self) -> Option<&HardwareSeen> {
        self.hardware.as_deref().filter(|_| self.glance.gpus)
    }

    /// The status of its NodeTwin, if that recommends anything.
    pub(crate) fn advising(&self) -> Option<&NodeTwinStatus> {
        self.twin.as_deref().filter(|_| self.glance.advised).map(|twin| &*twin.status)
    }

    /// The object that its agent follows, if another field manager owns a part of it.
    pub(crate) fn overridden_state(&self, source: DesiredKind) -> Option<&StateSeen> {
        let theirs = match source {
            DesiredKind::Profile => self.glance.profile_theirs,
            DesiredKind::Twin => self.glance.twin_theirs,
        };
        self.state(source).filter(|_| theirs)
    }

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
        let Self { node, hardware, profile, twin, grant, unreadable, glance: _ } = self;
        Arc::ptr_eq(node, &other.node)
            && same(hardware.as_ref(), other.hardware.as_ref())
            && same(profile.as_ref(), other.profile.as_ref())
            && same(twin.as_ref(), other.twin.as_ref())
            && same(grant.as_ref(), other.grant.as_ref())
            && *unreadable == other.unreadable
    }
}
