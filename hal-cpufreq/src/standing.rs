//! Whether a written limit is still in force, and the cause if it is not.

/// The status of the last limit that this HAL wrote to a policy, by its last reading.
///
/// ```text
/// Untouched ─write─▶ Kept ◀─▶ Stricter      somebody else's request is lower: thermal, platform, another writer
///     ▲               ▲ │
///     │               │ ▼
///     └──release──── Moved                  more than was written is in force: another writer, a reloaded driver
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitStatus {
    /// This HAL has written nothing since it was opened, or has released the limit.
    Untouched,
    /// What was written is in force.
    Kept,
    /// Less is in force than after the write. No action is needed: if the cause is another request, a write would not
    /// raise the limit, since the kernel takes the lowest. A write by another process to the same file looks the same.
    Stricter,
    /// More is in force than was written. Another writer wrote the same file, or the driver was reloaded; the limit
    /// must be written again.
    Moved,
}

/// A write that was accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wrote {
    /// What was written, kHz.
    pub(crate) told: u32,
    /// What was read back.
    pub(crate) found: u32,
}

impl LimitStatus {
    pub(crate) fn judge(wrote: Option<Wrote>, seen: Option<u32>) -> Self {
        match (wrote, seen) {
            (None, Some(_) | None) => Self::Untouched,
            (Some(_), None) => Self::Kept,
            (Some(wrote), Some(seen)) if seen > wrote.told => Self::Moved,
            (Some(wrote), Some(seen)) if seen < wrote.found => Self::Stricter,
            (Some(_), Some(_)) => Self::Kept,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_stands_until_more_or_less_than_it_is_in_force() {
        let exact = Some(Wrote { told: 20, found: 20 });
        let held = Some(Wrote { told: 20, found: 16 });
        for (wrote, seen, standing) in [
            (None, None, LimitStatus::Untouched),
            (None, Some(32), LimitStatus::Untouched),
            (exact, None, LimitStatus::Kept),
            (exact, Some(20), LimitStatus::Kept),
            (exact, Some(19), LimitStatus::Stricter),
            (exact, Some(21), LimitStatus::Moved),
            (held, Some(16), LimitStatus::Kept),
            // The request that held it lower was removed.
            (held, Some(18), LimitStatus::Kept),
            (held, Some(20), LimitStatus::Kept),
            (held, Some(15), LimitStatus::Stricter),
            (held, Some(21), LimitStatus::Moved),
        ] {
            assert_eq!(LimitStatus::judge(wrote, seen), standing, "{wrote:?} {seen:?}");
        }
    }
}
