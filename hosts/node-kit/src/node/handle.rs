//! The interface of a host to a node that runs in another thread.

use super::{OpenNode, lock};
use crate::NodeReport;
use crate::worker::Wakeup;
use joulie_core::node::engine::Desire;
use joulie_core::placement::freshness::UnixTime;
use std::sync::{Arc, Mutex};

#[derive(Debug)]
pub(super) struct Inbox {
    pub(super) desire: Desire,
    pub(super) changed: bool,
    pub(super) renewal: Option<UnixTime>,
    pub(super) stop: bool,
}

impl Inbox {
    pub(super) const fn new() -> Self {
        Self { desire: Desire::UNKNOWN, changed: false, renewal: None, stop: false }
    }
}

/// A host's handle to a node. Clones refer to the same node.
#[derive(Clone, Debug)]
pub struct NodeHandle {
    inbox: Arc<Mutex<Inbox>>,
    published: Arc<Mutex<NodeReport>>,
    wakeup: Arc<Wakeup>,
}

impl OpenNode {
    /// A handle to this node for a host.
    #[must_use]
    pub fn handle(&self) -> NodeHandle {
        NodeHandle {
            inbox: self.inbox.clone(),
            published: self.published.clone(),
            wakeup: self.wakeup.clone(),
        }
    }
}

impl NodeHandle {
    /// Sets the desired state. A change begins a control period at once.
    pub fn desire(&self, desire: Desire) {
        let mut inbox = lock(&self.inbox);
        if inbox.desire != desire {
            inbox.desire = desire;
            inbox.changed = true;
            drop(inbox);
            self.wakeup.notify();
        }
    }

    /// Sets the lease's last renewal time, as the Lease contains it; see
    /// [`LeaseLaw`](joulie_core::node::lease::LeaseLaw).
    pub fn renewed(&self, at: UnixTime) {
        lock(&self.inbox).renewal = Some(at);
    }

    /// The current report of the node.
    #[must_use]
    pub fn report(&self) -> NodeReport {
        lock(&self.published).clone()
    }

    /// Ends [`OpenNode::run`]. Caps stay as they are.
    pub fn stop(&self) {
        lock(&self.inbox).stop = true;
        self.wakeup.notify();
    }
}
