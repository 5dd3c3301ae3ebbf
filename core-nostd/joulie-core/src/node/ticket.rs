//! The ticket of an order: it identifies the outcome of that order.
//!
//! The carrier returns the ticket of an order with its outcome. Values alone do not identify an order: when 300 W,
//! 500 W and again 300 W are ordered, a late answer to the first would be taken for one to the third.

/// The ticket of an order. Each order for the same setting gets the next ticket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket(u32);

impl Ticket {
    /// Before the first order.
    pub const NONE: Self = Self(0);

    /// The ticket of the next order. It wraps: no answer is four thousand million orders late.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.wrapping_add(1))
    }
}
