//! What is known of one node's cap, from the writes and the read-backs alone.
//!
//! ```text
//!             write                          receipt for the last order
//!  Unproven ────────▶ Unproven {order} ─────────────────────────────▶ Proven ◀─┐ receipt (somebody moved it)
//!     ▲                   │ receipt for an earlier order                │  └────┘
//!     │                   ▼                                             │ write
//!     │               Pending {order} ◀─────────────────────────────────┘
//!     │                   │  └─ receipt for the last order ─▶ Proven
//!     └── lost: the node has rebooted, or its cap is gone ──── (from everywhere)
//! ```
//!
//! An **order** is a cap that was written and that the node keeps to until the next one; it carries a **serial**. A
//! **receipt** is what the node read back from its devices, with the order that it had then taken in. Where less was
//! read back than was asked for, the order counts: the node may come up to it without another. So a receipt without
//! its order would prove nothing to a leader that did not write the order.
//!
//! Until the last order's receipt has come, any of the orders since the last proof may be in force: the account
//! keeps the highest. Receipts may be lost, doubled and late; of one node they are handed in as the node made them,
//! which the versions of its object tell.

use super::node::Range;
use power_units::{Stamp, Watts};

/// What is known of a node's cap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Account {
    state: State,
    /// The serial of the last order; zero before the first.
    serial: u64,
    /// Receipts for earlier serials say nothing: the cap that they tell of is gone or overtaken.
    valid_from: u64,
    /// What the devices held when they were last asked for less: they do not go lower.
    refused_below: Option<Watts>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// No cap is known to be in force.
    Unproven { orders: Option<Orders> },
    /// A cap is known to have been in force, and orders have been written since.
    Pending { orders: Orders },
    /// The last order was read back; or a cap was found where no order of ours stands.
    Proven { asked: Option<Watts>, read_back: Watts },
}

/// Orders whose receipts are awaited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Orders {
    /// The last one.
    asked: Watts,
    /// The highest cap that may be in force meanwhile, as far as it comes from orders or from a proof.
    highest: Watts,
    /// When the first of them was written.
    since: Stamp,
}

impl Orders {
    fn then(self, asked: Watts) -> Self {
        Self { asked, highest: self.highest.max(asked), since: self.since }
    }
}

/// What is to be written to a node: the cap, and the serial of which there is one for every order. The node's receipt
/// names both as they were written, to the last digit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Order {
    /// Which order this is; grows with every order to the node.
    pub serial: u64,
    /// The most that the node may draw from now on.
    pub cap: Watts,
}

/// What a node says about the cap that its devices hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Receipt {
    /// The last order that the node had taken in; nothing when it never saw one.
    pub taken: Option<Order>,
    /// What was read back.
    pub read_back: Watts,
}

/// What a receipt changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// The last order is in force.
    Confirmed,
    /// An earlier order is in force; the last one is still awaited.
    Earlier,
    /// Nothing: it is late, or tells of a cap that is gone.
    Late,
    /// It answers an order that this account never wrote, or another cap under a serial that it did write, so
    /// somebody else gives orders to the node.
    Foreign,
    /// Nothing: a cap below zero is no reading.
    Impossible,
}

impl Account {
    /// Nothing has ever been written or read back.
    #[must_use]
    pub const fn unproven() -> Self {
        Self { state: State::Unproven { orders: None }, serial: 0, valid_from: 0, refused_below: None }
    }

    /// What a new leader finds: the order that stands in the node's object, and the node's last receipt.
    ///
    /// A receipt for the order before the last bounds what may be in force: that order's cap, what was read back, and
    /// the last order's cap. Behind an older receipt there may be orders of which nothing is left to see, so it proves
    /// nothing.
    ///
    /// Both must be what the server holds now and not what a cache held once. A receipt from before this one, or from
    /// before the node's last boot, is to be left out here and in [`Account::hear`]: without the memory of the leader
    /// before, nothing tells it from one that holds.
    #[must_use]
    pub fn resume(standing: Option<Order>, receipt: Option<Receipt>, now: Stamp) -> Self {
        let mut found = Self::unproven();
        if let Some(order) = standing {
            let orders = Some(Orders { asked: order.cap, highest: order.cap, since: now });
            found.state = State::Unproven { orders };
            found.serial = order.serial;
            found.valid_from = order.serial.saturating_sub(1);
        }
        if let Some(receipt) = receipt {
            found.hear(receipt);
        }
        found
    }

    /// Records that `cap` is being written. Whether the write then lands, fails or is repeated changes nothing: from
    /// now on it may be in force.
    pub fn write(&mut self, cap: Watts, now: Stamp) -> Order {
        let first = Orders { asked: cap, highest: cap, since: now };
        self.state = match self.state {
            State::Unproven { orders } => {
                State::Unproven { orders: Some(orders.map_or(first, |orders| orders.then(cap))) }
            }
            State::Pending { orders } => State::Pending { orders: orders.then(cap) },
            State::Proven { asked, read_back } => {
                let before = asked.unwrap_or(read_back).max(read_back);
                State::Pending { orders: Orders { highest: cap.max(before), ..first } }
            }
        };
        self.serial = self.serial.saturating_add(1);
        Order { serial: self.serial, cap }
    }

    /// Takes in what the node read back.
    pub fn hear(&mut self, receipt: Receipt) -> Heard {
        let Receipt { taken, read_back } = receipt;
        let answers = taken.map_or(0, |order| order.serial);
        if read_back < Watts::ZERO {
            return Heard::Impossible;
        }
        if answers < self.valid_from {
            return Heard::Late;
        }
        let last = answers == self.serial;
        let other_cap = taken.is_some_and(|taken| self.asked() != Some(taken.cap));
        if answers > self.serial || (last && other_cap) {
            self.serial = answers;
            self.lost();
            return Heard::Foreign;
        }
        let (state, heard) = match (self.state, last) {
            (State::Unproven { orders: None }, _) => {
                (State::Proven { asked: None, read_back }, Heard::Confirmed)
            }
            (State::Unproven { orders: Some(orders) } | State::Pending { orders }, true) => {
                (State::Proven { asked: Some(orders.asked), read_back }, Heard::Confirmed)
            }
            (State::Unproven { orders: Some(orders) } | State::Pending { orders }, false) => {
                let told = taken.map_or(read_back, |order| order.cap);
                let highest = orders.highest.max(told).max(read_back);
                (State::Pending { orders: Orders { highest, ..orders } }, Heard::Earlier)
            }
            (State::Proven { asked, .. }, true) => (State::Proven { asked, read_back }, Heard::Confirmed),
            (State::Proven { .. }, false) => return Heard::Late,
        };
        self.state = state;
        self.valid_from = self.valid_from.max(answers);
        self.learn_floor(read_back);
        heard
    }

    fn learn_floor(&mut self, read_back: Watts) {
        if let State::Proven { asked: Some(asked), .. } = self.state {
            if asked < read_back {
                self.refused_below = Some(read_back);
            } else if self.refused_below.is_some_and(|held| read_back < held) {
                self.refused_below = None;
            }
        }
    }

    /// The devices may go lower now than they once did: they were discovered again, or whoever held them up is gone.
    pub fn forget_refusal(&mut self) {
        self.refused_below = None;
    }

    /// The node has rebooted or was reset: whatever cap it had is gone, and no receipt for an order from before is
    /// believed.
    pub fn lost(&mut self) {
        self.valid_from = self.serial.saturating_add(1);
        self.state = State::Unproven { orders: None };
        self.refused_below = None;
    }

    /// Whether the last order was read back.
    #[must_use]
    pub const fn is_proven(&self) -> bool {
        matches!(self.state, State::Proven { .. })
    }

    /// The cap that the node was last told; nothing before the first order, and after its cap was lost.
    #[must_use]
    pub fn asked(&self) -> Option<Watts> {
        match self.state {
            State::Unproven { orders } => orders.map(|orders| orders.asked),
            State::Pending { orders } => Some(orders.asked),
            State::Proven { asked, .. } => asked,
        }
    }

    /// Since when a receipt is awaited, if one is.
    #[must_use]
    pub fn awaited_since(&self) -> Option<Stamp> {
        match self.state {
            State::Unproven { orders } => orders.map(|orders| orders.since),
            State::Pending { orders } => Some(orders.since),
            State::Proven { .. } => None,
        }
    }

    /// The most that the node may draw; nothing when nobody can say. A cap that was asked for counts even where a
    /// lower one was read back: the order stands, and the node may come up to it without another.
    pub(super) fn count(&self, range: Range) -> Option<Watts> {
        match self.state {
            State::Unproven { .. } => range.max(),
            State::Pending { orders } => Some(range.limit(orders.highest)),
            State::Proven { asked, read_back } => {
                Some(range.limit(asked.unwrap_or(read_back).max(read_back)))
            }
        }
    }

    /// What the node counts once its last order has been read back as it was given.
    pub(super) fn count_when_heard(&self, range: Range) -> Option<Watts> {
        match self.state {
            State::Unproven { orders: None } | State::Proven { .. } => self.count(range),
            State::Unproven { orders: Some(orders) } | State::Pending { orders } => {
                Some(range.limit(orders.asked))
            }
        }
    }

    /// What the devices held when they were last asked for less.
    pub(super) const fn refused_below(&self) -> Option<Watts> {
        self.refused_below
    }

    /// Whether the last order's cap could not be reached, and `target` cannot be reached any better.
    pub(super) fn is_as_low_as(&self, target: Watts) -> bool {
        match self.state {
            State::Proven { asked: Some(asked), read_back } => asked <= target && target <= read_back,
            State::Unproven { .. } | State::Pending { .. } | State::Proven { asked: None, .. } => false,
        }
    }
}
