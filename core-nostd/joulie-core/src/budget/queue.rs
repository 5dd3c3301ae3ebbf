//! The order in which nodes are raised.

use super::node::Priority;

/// A node's entry in the queue of nodes to be raised; the caller provides one for every node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Turn {
    priority: Priority,
    key: u64,
    index: usize,
}

impl Turn {
    /// Before the first use.
    pub const EMPTY: Self = Self { priority: Priority::Eco, key: u64::MAX, index: usize::MAX };

    /// The turn of the node at `index`.
    pub(super) const fn new(priority: Priority, key: u64, index: usize) -> Self {
        Self { priority, key, index }
    }

    /// The node's index in the caller's slice.
    pub(super) const fn index(self) -> usize {
        self.index
    }
}

/// Sorts without allocation and without panics (heapsort: the library's sorts may panic on an inconsistent
/// order).
pub(super) fn sort<T: Copy + Ord>(turns: &mut [T]) {
    for start in (0..turns.len() >> 1).rev() {
        sift(turns, start, turns.len());
    }
    for end in (1..turns.len()).rev() {
        if let (Some(&largest), Some(&last)) = (turns.first(), turns.get(end)) {
            put(turns, 0, last);
            put(turns, end, largest);
        }
        sift(turns, 0, end);
    }
}

/// Lets the entry at `start` sink among the first `len` until no entry below it is larger.
fn sift<T: Copy + Ord>(turns: &mut [T], start: usize, len: usize) {
    let Some(&sinking) = turns.get(start) else { return };
    let mut hole = start;
    loop {
        let left = hole.saturating_mul(2).saturating_add(1);
        let right = left.saturating_add(1);
        let Some(&first) = turns.get(left).filter(|_| left < len) else { break };
        let (child, larger) = match turns.get(right).filter(|_| right < len) {
            Some(&second) if second > first => (right, second),
            Some(_) | None => (left, first),
        };
        if larger <= sinking {
            break;
        }
        put(turns, hole, larger);
        hole = child;
    }
    put(turns, hole, sinking);
}

fn put<T: Copy>(turns: &mut [T], index: usize, turn: T) {
    if let Some(slot) = turns.get_mut(index) {
        *slot = turn;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    proptest! {
        #[test]
        fn any_queue_is_sorted_by_priority_then_key(keys in prop::collection::vec((0_usize..3, 0_u64..50), 0..200)) {
            let mut turns: Vec<Turn> = keys.iter().enumerate()
                .map(|(index, &(priority, key))| Turn::new(Priority::ALL[priority], key, index))
                .collect();
            let mut expected = turns.clone();
            expected.sort();
            sort(&mut turns);
            prop_assert_eq!(turns, expected);
        }
    }
}
