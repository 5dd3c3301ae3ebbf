//! The places for connections, and who gives way when there is none.
//!
//! A connection *waits for its client* before its first request, while a head comes in, and between two requests. Only such a
//! one gives way: first those that have asked nothing yet, the oldest first, then the one that has waited longest. A
//! request that is being read or answered is never broken off for another one.

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
    /// The connection holds it too for as long as it lives.
    progress: Arc<Progress>,
    task: AbortHandle,
}

/// What a new connection meets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// There is one.
    Free,
    /// The connection of this client gave way.
    Instead(IpAddr),
    /// There is none, and nobody waits for its client.
    Full,
    /// There is none for this client, none of whose connections waits for it.
    PeerFull,
}

impl Places {
    pub(super) fn new(most: usize, peer_max: usize) -> Self {
        Self { most, peer_max, held: Vec::new() }
    }

    /// A place for a client: where there is none, a connection that waits for its client is closed.
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
