//! Jobs that wait until somebody writes them.
//!
//! Under a budget one node's rise moves the caps of some hundred others, and what says where pods may go must not come
//! behind them. So there are two lanes, and each writer has one that it prefers: while both have work each has half of the
//! writers, and none is idle while there is any.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::Semaphore;

/// What a job is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lane {
    /// Where pods may go: labels of the node, or another class in its twin.
    Placement,
    /// Caps and reports, and no more.
    Power,
}

impl Lane {
    /// The one that a writer prefers: every other one has the caps.
    pub(super) const fn preferred_by(writer: usize) -> Self {
        if writer.is_multiple_of(2) { Self::Placement } else { Self::Power }
    }
}

/// What waits, in the order in which it came.
#[derive(Debug)]
struct Lanes<T> {
    placement: VecDeque<T>,
    power: VecDeque<T>,
}

/// The queue between the loop and the writers.
#[derive(Debug)]
pub(super) struct Queue<T> {
    lanes: Mutex<Lanes<T>>,
    /// A permit for each that nobody is about to take out.
    waiting: Semaphore,
}

impl<T> Queue<T> {
    pub(super) const fn new() -> Self {
        let lanes = Lanes { placement: VecDeque::new(), power: VecDeque::new() };
        Self { lanes: Mutex::new(lanes), waiting: Semaphore::const_new(0) }
    }

    fn lanes(&self) -> MutexGuard<'_, Lanes<T>> {
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn put(&self, lane: Lane, one: T) {
        match lane {
            Lane::Placement => self.lanes().placement.push_back(one),
            Lane::Power => self.lanes().power.push_back(one),
        }
        self.waiting.add_permits(1);
    }

    /// The next one, of the preferred lane if there is one; nothing once the queue is closed.
    pub(super) async fn next(&self, preferred: Lane) -> Option<T> {
        self.waiting.acquire().await.ok()?.forget();
        let mut lanes = self.lanes();
        let Lanes { placement, power } = &mut *lanes;
        let (first, second) = match preferred {
            Lane::Placement => (placement, power),
            Lane::Power => (power, placement),
        };
        first.pop_front().or_else(|| second.pop_front())
    }

    /// Nobody gets anything more.
    pub(super) fn close(&self) {
        self.waiting.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn each_lane_is_in_its_order_and_whoever_prefers_an_empty_one_helps_with_the_other() {
        let queue = Queue::new();
        for cap in ["cap 1", "cap 2", "cap 3"] {
            queue.put(Lane::Power, cap);
        }
        queue.put(Lane::Placement, "label 1");
        queue.put(Lane::Placement, "label 2");
        let mut taken = Vec::new();
        for preferred in [Lane::Placement, Lane::Power, Lane::Placement, Lane::Placement, Lane::Power] {
            taken.extend(queue.next(preferred).await);
        }
        assert_eq!(taken, ["label 1", "cap 1", "label 2", "cap 2", "cap 3"]);
        queue.put(Lane::Placement, "label 3");
        assert_eq!(queue.next(Lane::Power).await, Some("label 3"));
        queue.put(Lane::Power, "late");
        queue.close();
        assert_eq!(queue.next(Lane::Power).await, None);
    }

    #[test]
    fn writers_prefer_both_lanes_alike() {
        let preferred = [0, 1, 2, 3].map(Lane::preferred_by);
        assert_eq!(preferred, [Lane::Placement, Lane::Power, Lane::Placement, Lane::Power]);
    }
}
