//! The ticket of an order: what its outcome is known by.
//!
//! Whoever carries an order out hands its ticket back with what became of it. Values do not tell orders apart: where
//! 300 W, 500 W and again 300 W are ordered, a late answer to the first would pass for one to the third.

/// The ticket of an order, of one thing that is ordered. Each order has the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket(u32);

impl Ticket {
    /// Before the first order.
    pub const NONE: Self = Self(0);

    /// The ticket of the order after this one. It wraps: no answer is four thousand million orders late.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.wrapping_add(1))
    }
}
