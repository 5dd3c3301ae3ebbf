//! The pods that were given a shortlist and were not seen bound since.
//!
//! A table of a fixed size without a lock: a slot holds a part of the pod's UID and the second in which it was last asked
//! about. If it has no place for a pod, that pod is given no shortlist; so no pod is given one that could not be
//! recognised when it comes back.

use host_kit::clock::Mono;
use joulie_core::placement::assumed::PodUid;
use std::sync::atomic::{AtomicU64, Ordering};

/// How long a pod is remembered. kube-scheduler tries a pod again after at most five minutes
/// (`podMaxInUnschedulablePodsDuration`) and ten seconds of back-off.
const KEEP_SECONDS: u64 = 600;
/// The number of slots in which a pod may be.
const WAYS: usize = 8;
const BUCKETS: usize = 2048;
/// A slot has the seconds in its lower bits and a part of the UID above them.
const SECOND_BITS: u32 = 24;
const SECONDS: u64 = (1 << SECOND_BITS) - 1;

/// The table. Without slots no pod is given a shortlist.
#[derive(Debug, Default)]
pub(crate) struct Remembered(Box<[AtomicU64]>);

/// Whether a pod may be given a shortlist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// It may; it is remembered from now on.
    First,
    /// It was given one before.
    Again,
    /// It could not be remembered.
    Full,
}

impl Remembered {
    pub(crate) fn new() -> Self {
        Self((0..BUCKETS * WAYS).map(|_| AtomicU64::new(0)).collect())
    }

    /// Asks for a pod that waits for a node.
    pub(crate) fn ask(&self, pod: PodUid, now: Mono) -> Turn {
        let (slots, tag) = self.place(pod);
        let seconds = (now.as_millis() / 1000) & SECONDS;
        let value = tag | seconds;
        let is_alive = |slot: u64| {
            let age = seconds.wrapping_sub(slot) & SECONDS;
            // The second half of the range is a slot that another thread has just written.
            slot != 0 && !(KEEP_SECONDS..=SECONDS / 2).contains(&age)
        };
        for slot in slots {
            let found = slot.load(Ordering::Acquire);
            if found & !SECONDS == tag && is_alive(found) {
                // If another thread was faster, it has written the same.
                let _ = slot.compare_exchange(found, value, Ordering::AcqRel, Ordering::Relaxed);
                return Turn::Again;
            }
        }
        for slot in slots {
            let found = slot.load(Ordering::Acquire);
            if !is_alive(found)
                && slot.compare_exchange(found, value, Ordering::AcqRel, Ordering::Relaxed).is_ok()
            {
                return Turn::First;
            }
        }
        Turn::Full
    }

    /// Forgets a pod that was seen bound, or is gone.
    pub(crate) fn forget(&self, pod: PodUid) {
        let (slots, tag) = self.place(pod);
        for slot in slots {
            let found = slot.load(Ordering::Acquire);
            if found & !SECONDS == tag {
                // If it fails, the pod has just been asked about again.
                let _ = slot.compare_exchange(found, 0, Ordering::AcqRel, Ordering::Relaxed);
            }
        }
    }

    /// The slots in which a pod may be, and what such a slot holds above the seconds: never zero.
    fn place(&self, pod: PodUid) -> (&[AtomicU64], u64) {
        let mixed = pod.0.wrapping_mul(0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835);
        let high = u64::try_from(mixed >> 64).unwrap_or(0);
        let bucket = usize::try_from(mixed >> 32 & 0xFFFF_FFFF).unwrap_or(0) % BUCKETS;
        let slots = self.0.get(bucket * WAYS..(bucket + 1) * WAYS).unwrap_or_default();
        (slots, (high | 1 << 63) & !SECONDS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Mono {
        Mono::from_millis(seconds * 1000)
    }

    #[test]
    fn a_pod_has_one_turn_until_it_is_bound_or_long_not_asked_about() {
        let all = Remembered::new();
        let (a, b) = (PodUid(1), PodUid(2));
        assert_eq!(all.ask(a, at(0)), Turn::First);
        assert_eq!(all.ask(b, at(1)), Turn::First);
        assert_eq!(all.ask(a, at(599)), Turn::Again);
        // Each request renews it.
        assert_eq!(all.ask(a, at(1_198)), Turn::Again);
        assert_eq!(all.ask(b, at(601)), Turn::First);
        all.forget(a);
        assert_eq!(all.ask(a, at(1_199)), Turn::First);
        // A thread whose clock was read a moment earlier.
        assert_eq!(all.ask(a, at(1_198)), Turn::Again);
        // The seconds wrap around after 194 days.
        let end = SECONDS - 1;
        assert_eq!(all.ask(PodUid(3), at(end)), Turn::First);
        assert_eq!(all.ask(PodUid(3), at(end + 300)), Turn::Again);
    }

    #[test]
    fn a_pod_that_finds_no_place_has_no_turn() {
        let all = Remembered::new();
        let mut given = 0;
        for pod in 0..100_000_u128 {
            let turn = all.ask(PodUid(pod), at(0));
            assert_ne!(turn, Turn::Again, "{pod}");
            given += usize::from(turn == Turn::First);
        }
        assert_eq!(given, BUCKETS * WAYS);
        assert_eq!(all.ask(PodUid(0), at(1)), Turn::Again);
        assert_eq!(Remembered::default().ask(PodUid(0), at(0)), Turn::Full);
        // All of them are old now.
        assert_eq!(all.ask(PodUid(100_001), at(700)), Turn::First);
    }
}
