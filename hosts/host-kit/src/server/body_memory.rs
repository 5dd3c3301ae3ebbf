//! Limits the memory that all request bodies of a server may use together.
//!
//! Memory is reserved for the whole body before any of it is stored. It is released when the last part of the body is
//! not needed any more: the answer may still be sent from it. A request that finds no free memory waits, in order of
//! arrival, for a limited time.

use hyper::body::Bytes;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Smaller bodies need no reservation: even one for each connection uses little memory. The names of 5,000 nodes fit,
/// so that a scheduler that sends names never waits behind those that send whole nodes.
const SMALL: usize = 256 << 10;

/// Memory is counted in this unit, since a semaphore has at most 2³² permits.
const UNIT: usize = 1 << 10;

/// The memory that is left.
pub(super) struct BodyMemory {
    left: Arc<Semaphore>,
    units: usize,
}

/// The reservation for one body.
pub(super) struct BodyPermit(Option<OwnedSemaphorePermit>);

impl BodyMemory {
    /// Creates it with this many bytes.
    pub(super) fn new(bytes: usize) -> Self {
        let units = bytes.div_ceil(UNIT).min(Semaphore::MAX_PERMITS);
        Self { left: Arc::new(Semaphore::new(units)), units }
    }

    /// Reserves memory for a body of this many bytes, if there is enough within this time. A body that is larger than
    /// all the memory takes all of it.
    pub(super) async fn take(&self, bytes: usize, within: Duration) -> Option<BodyPermit> {
        if bytes <= SMALL {
            return Some(BodyPermit(None));
        }
        let units = u32::try_from(bytes.div_ceil(UNIT).min(self.units)).unwrap_or(u32::MAX);
        let permit = tokio::time::timeout(within, self.left.clone().acquire_many_owned(units)).await;
        Some(BodyPermit(Some(permit.ok()?.ok()?)))
    }
}

/// A body and its reservation.
struct Kept {
    bytes: Vec<u8>,
    _room: OwnedSemaphorePermit,
}

impl AsRef<[u8]> for Kept {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl BodyPermit {
    /// Stores the body, and keeps the reservation until its last part is dropped.
    pub(super) fn keep(self, bytes: Vec<u8>) -> Bytes {
        match self.0 {
            None => Bytes::from(bytes),
            Some(room) => Bytes::from_owner(Kept { bytes, _room: room }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Duration = Duration::from_millis(20);
    const MIB: usize = 1 << 20;

    #[tokio::test]
    async fn room_comes_back_with_the_last_part_of_a_body() {
        let room = BodyMemory::new(2 * MIB);
        let first = room.take(MIB, SOON).await.unwrap().keep(vec![1; MIB]);
        let _second = room.take(MIB, SOON).await.unwrap();
        assert!(room.take(MIB, SOON).await.is_none());
        let part = first.slice(5..6);
        drop(first);
        assert!(room.take(MIB, SOON).await.is_none(), "an answer still needs a part of it");
        drop(part);
        assert!(room.take(MIB, SOON).await.is_some());
    }

    #[tokio::test]
    async fn small_bodies_pass_when_the_room_is_full_and_a_body_larger_than_all_room_takes_it_alone() {
        let room = BodyMemory::new(MIB);
        let all = room.take(5 * MIB, SOON).await.unwrap();
        assert!(room.take(SMALL + 1, SOON).await.is_none());
        assert!(room.take(SMALL, SOON).await.is_some());
        drop(all);
        assert!(room.take(SMALL + 1, SOON).await.is_some());
    }
}
