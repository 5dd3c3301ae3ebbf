//! A queue of jobs that wait for a writer.
//!
//! Under a budget a rise of one node changes the caps of some hundred others, and the writes that tell where pods may
//! go must not wait behind these. So there are two lanes, and each writer prefers one of them: while both have work,
//! each has half of the writers, and no writer is idle while there is any work.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::Semaphore;

/// The subject of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lane {
    /// Placement of pods: labels or the taint of the node, or another class in its twin.
    Placement,
    /// Only caps and reports.
    Power,
}

impl Lane {
    /// The lane that a writer prefers: every second writer prefers the caps.
    pub(super) const fn preferred_by(writer: usize) -> Self {
        if writer.is_multiple_of(2) { Self::Placement } else { Self::Power }
    }
}

/// The waiting jobs, in the order in which they came.
#[derive(Debug)]
struct Lanes<T> {
    placement: VecDeque<T>,
    power: VecDeque<T>,
}

/// The queue between the loop and the writers.
#[derive(Debug)]
pub(super) struct Queue<T> {
    lanes: Mutex<Lanes<T>>,
    /// One permit for each job that no writer is about to take.
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

    /// The next job, from the preferred lane if it has one; `None` once the queue is closed.
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

    /// Closes the queue: no writer gets another job.
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
