//! Limits the number of connections, and decides which one to close when the limit is reached.
//!
//! A connection *waits for its client* before its first request, while a head arrives, and between two requests. Only
//! such a connection may be closed for a new one: first those without any request yet, the oldest first, then the one
//! that has waited longest. A request that is being read or answered is never interrupted for another one.

use super::clocked::Progress;
use std::net::IpAddr;
use std::sync::Arc;
use tokio::task::AbortHandle;

/// The connections of one server.
pub(super) struct Places {
    most: usize,
    peer_max: usize,
    held: Vec<Held>,
}

/// One connection.
struct Held {
    peer: IpAddr,
    /// The connection also holds it for as long as it lives.
    progress: Arc<Progress>,
    task: AbortHandle,
}

/// The result for a new connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// There is a free place.
    Free,
    /// A connection of this client was closed for it.
    Instead(IpAddr),
    /// The limit is reached, and no connection waits for its client.
    Full,
    /// The limit of this client is reached, and none of its connections waits for it.
    PeerFull,
}

impl Places {
    pub(super) fn new(most: usize, peer_max: usize) -> Self {
        Self { most, peer_max, held: Vec::new() }
    }

    /// Finds a place for a client. If there is none, closes a connection that waits for its client.
    pub(super) fn find(&mut self, peer: IpAddr) -> Place {
        self.held.retain(|held| Arc::strong_count(&held.progress) > 1);
        let own = self.held.iter().filter(|held| held.peer == peer).count();
        let (none, among) = if own >= self.peer_max {
            (Place::PeerFull, Some(peer))
        } else if self.held.len() >= self.most {
            (Place::Full, None)
        } else {
            return Place::Free;
        };
        let waiting =
            self.held.iter().enumerate().filter(|(_, held)| among.is_none_or(|peer| held.peer == peer));
        let waiting = waiting.filter_map(|(at, held)| Some((held.progress.waits_since()?, at)));
        let Some((_, at)) = waiting.min() else { return none };
        let held = self.held.swap_remove(at);
        held.task.abort();
        Place::Instead(held.peer)
    }

    pub(super) fn hold(&mut self, peer: IpAddr, progress: Arc<Progress>, task: AbortHandle) {
        self.held.push(Held { peer, progress, task });
    }
}
