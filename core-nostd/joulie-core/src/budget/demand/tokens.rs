//! A bound on the orders in time: what the API can carry, with a burst.

use power_units::{Micros, Stamp};

/// One order, in parts: a rate of so many orders a minute adds that many parts in each microsecond.
const ORDER: u64 = 60_000_000;

/// How many orders may go out now. It starts full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenBucket {
    per_minute: u64,
    most: u64,
    level: u64,
    at: Option<Stamp>,
}

impl TokenBucket {
    /// What the path of the grants carries without haste: with the receipts and the reports of the demand that they bring
    /// about, 150 writes a second.
    pub const PER_MINUTE: u32 = 3_000;
    /// The burst: half a minute of it.
    pub const BURST: Micros = Micros::new(30_000_000);

    /// `per_minute` orders, of which those of `burst` may go out at once.
    #[must_use]
    pub fn new(per_minute: u32, burst: Micros) -> Self {
        let per_minute = u64::from(per_minute);
        let most = per_minute.saturating_mul(burst.get());
        Self { per_minute, most, level: most, at: None }
    }

    /// Fills up by the time that has passed, and returns how many orders may go out.
    pub fn refill(&mut self, now: Stamp) -> usize {
        let passed = self.at.and_then(|at| now.since(at)).unwrap_or(Micros::ZERO).get();
        self.level = self.level.saturating_add(passed.saturating_mul(self.per_minute)).min(self.most);
        // A clock that goes backwards adds nothing twice.
        self.at = Some(self.at.map_or(now, |at| at.max(now)));
        usize::try_from(self.level.div_euclid(ORDER)).unwrap_or(usize::MAX)
    }

    /// Takes out the orders that were sent. Those that must not wait take it below zero orders: it stays empty.
    pub fn take(&mut self, orders: usize) {
        let parts = u64::try_from(orders).unwrap_or(u64::MAX).saturating_mul(ORDER);
        self.level = self.level.saturating_sub(parts);
    }

    /// How many orders there are beyond a half of the most.
    #[must_use]
    pub fn beyond_half(&self) -> usize {
        let beyond = self.level.saturating_sub(self.most >> 1);
        usize::try_from(beyond.div_euclid(ORDER)).unwrap_or(usize::MAX)
    }

    /// Whether four fifths are gone.
    #[must_use]
    pub const fn is_scarce(&self) -> bool {
        self.level.saturating_mul(5) < self.most
    }
}

impl Default for TokenBucket {
    fn default() -> Self {
        Self::new(Self::PER_MINUTE, Self::BURST)
    }
}
