//! GPU pods: whether a node's cards can take a pod, which of them, and how well.
//!
//! A row is one physical card, as one `GPU` object describes it; a slice of a card (MIG) is never a row, and a card
//! that is cut into slices takes no pod of this kind: it is handed in as [`GpuPhase::Unknown`]. Whatever is not known
//! for certain is no fit (fail closed): an unknown phase, VRAM that was not reported or cannot be true, two rows of
//! one card.
//!
//! - **Fit**: the card is of the model, its phase is Available, and total − allocated VRAM is what the pod asks for
//!   on each card, for as many cards as the pod asks for. A pod that says nothing about VRAM takes cards of which
//!   none is allocated, whole.
//! - **Which cards**: [`choose`] says in which order.
//! - **Score**, 0 to 100: the tens are **bin packing**, the node's allocated part of its VRAM in tenths, rounded
//!   down (all cards, before this pod), and so exactly the 0 to 10 of the protocol when divided by ten. The units, 0
//!   to 9, say how good the chosen cards are, so they decide among nodes that are packed alike:
//!
//! | cards | units, each part rounded down |
//! |---|---|
//! | one | 9 × asked ÷ free VRAM of the card: 9 leaves nothing over |
//! | more | 4 × asked ÷ free VRAM of the cards, plus 5 × (cards − islands) ÷ (cards − 1): 5 within one NVLink island |
//!
//! A node that fits has VRAM left, so its score is at most 99.

mod ask;
mod choose;

pub use ask::{AskError, GpuRequest};
pub use choose::{CARDS_MAX, choose};

use core::num::NonZeroU32;

/// A model, as a number that stands for its name; the caller interns the names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Model(pub u32);

/// Cards of one node that NVLink joins, as a number that is the node's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Island(pub u16);

/// The text of `GPU.status.phase`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GpuPhase {
    /// Can take a pod.
    Available,
    /// A pod has it.
    Allocated,
    /// Nobody has said, or said something that we do not know.
    Unknown,
}

impl GpuPhase {
    /// Reads the object's text; what we do not know is unknown.
    #[must_use]
    pub fn read(text: &str) -> Self {
        match text {
            "Available" => Self::Available,
            "Allocated" => Self::Allocated,
            _ => Self::Unknown,
        }
    }
}

/// A card's memory in MB. That there is some is certain; more may be allocated than there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Vram {
    total_mb: NonZeroU32,
    allocated_mb: u32,
}

impl Vram {
    /// Reads `spec.totalVRAMmb` and `status.allocatedVRAMmb`. What is missing, negative, or a total of nothing, is
    /// unknown: a status that nobody has written yet does not mean that the card is free.
    #[must_use]
    pub fn read(total_mb: Option<i64>, allocated_mb: Option<i64>) -> Option<Self> {
        let total_mb = NonZeroU32::new(u32::try_from(total_mb?).ok()?)?;
        Some(Self { total_mb, allocated_mb: u32::try_from(allocated_mb?).ok()? })
    }

    /// All of it.
    #[must_use]
    pub const fn total_mb(self) -> u32 {
        self.total_mb.get()
    }

    /// What no pod has, or nothing when more is allocated than there is: then one of the numbers is wrong.
    #[must_use]
    pub const fn free_mb(self) -> Option<u32> {
        self.total_mb.get().checked_sub(self.allocated_mb)
    }
}

/// One physical card.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PhysicalGpu {
    /// Names the card and no other (its UUID, interned); decides where all else is equal.
    pub key: u64,
    /// What it is, if that is known.
    pub model: Option<Model>,
    /// Its memory, if that is known.
    pub vram: Option<Vram>,
    /// With which cards NVLink joins it.
    pub island: Option<Island>,
    /// Whether it can take a pod.
    pub phase: GpuPhase,
}

// 40,000 cards are held in memory, in the snapshot and in its successor.
const _: () = assert!(size_of::<PhysicalGpu>() <= 32);

/// The cards for a pod on one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fit {
    /// Bit `i` stands for the `i`-th card of the caller's slice.
    pub cards: u64,
    /// 0 to 100.
    pub score: u8,
}

/// Why a node cannot take a pod. `have` is how many cards pass this test and all before it, in the order given here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reject {
    /// It has no cards.
    NoCards,
    /// It has more cards than can be judged.
    TooManyCards,
    /// Too few are of the model.
    Model {
        /// How many are.
        have: u32,
    },
    /// Of too few is it known what they are and what they have.
    Unknown {
        /// Of how many it is.
        have: u32,
    },
    /// Too few are large enough, even when empty.
    TooSmall {
        /// How many are.
        have: u32,
    },
    /// Too few are available.
    Allocated {
        /// How many are.
        have: u32,
    },
    /// Too few have enough VRAM left.
    Vram {
        /// How many have.
        have: u32,
    },
}

impl Reject {
    /// Whether the node could take the pod if other pods left; if not, preemption there would be for nothing.
    #[must_use]
    pub const fn preemption_may_help(self) -> bool {
        match self {
            Self::NoCards
            | Self::TooManyCards
            | Self::Model { .. }
            | Self::Unknown { .. }
            | Self::TooSmall { .. } => false,
            Self::Allocated { .. } | Self::Vram { .. } => true,
        }
    }
}

/// Whether a node's cards can take a pod, which of them, and how well.
///
/// # Errors
/// Why it cannot.
pub fn fit(ask: GpuRequest, cards: &[PhysicalGpu]) -> Result<Fit, Reject> {
    let eligible = eligible(ask, cards)?;
    let chosen = choose(ask, cards, eligible);
    let score = packing(cards).saturating_add(quality(ask, cards, chosen));
    Ok(Fit { cards: chosen, score: u8::try_from(score).unwrap_or(SCORE_MAX).min(SCORE_MAX) })
}

const SCORE_MAX: u8 = 100;

/// The cards of a slice with their bits.
fn numbered(cards: &[PhysicalGpu]) -> impl Iterator<Item = (u64, &PhysicalGpu)> {
    (0_u32..64).map(|at| 1_u64.wrapping_shl(at)).zip(cards)
}

/// The cards that can take the pod, if they are enough.
fn eligible(ask: GpuRequest, cards: &[PhysicalGpu]) -> Result<u64, Reject> {
    if cards.is_empty() {
        return Err(Reject::NoCards);
    }
    if cards.len() > CARDS_MAX {
        return Err(Reject::TooManyCards);
    }
    // How many cards pass one test after the other.
    let (mut of_model, mut known, mut large, mut available, mut free) = (0_u32, 0_u32, 0_u32, 0_u32, 0_u32);
    let mut eligible = 0;
    let doubled = doubled(cards);
    for (bit, card) in numbered(cards) {
        if ask.model().is_some() && card.model.is_some() && card.model != ask.model() {
            continue;
        }
        of_model = of_model.saturating_add(1);
        let known_model = ask.model().is_none() || card.model.is_some();
        let Some(vram) =
            card.vram.filter(|_| known_model && card.phase != GpuPhase::Unknown && doubled & bit == 0)
        else {
            continue;
        };
        let Some(left) = vram.free_mb() else { continue };
        known = known.saturating_add(1);
        if ask.need_mb(vram) > vram.total_mb() {
            continue;
        }
        large = large.saturating_add(1);
        if card.phase != GpuPhase::Available {
            continue;
        }
        available = available.saturating_add(1);
        if ask.need_mb(vram) <= left {
            free = free.saturating_add(1);
            eligible |= bit;
        }
    }
    let count = ask.count();
    match () {
        () if of_model < count => Err(Reject::Model { have: of_model }),
        () if known < count => Err(Reject::Unknown { have: known }),
        () if large < count => Err(Reject::TooSmall { have: large }),
        () if available < count => Err(Reject::Allocated { have: available }),
        () if free < count => Err(Reject::Vram { have: free }),
        () => Ok(eligible),
    }
}

/// The cards of which there is more than one row: nobody can say which of the rows is true.
fn doubled(cards: &[PhysicalGpu]) -> u64 {
    let mut doubled = 0;
    for (at, (bit, card)) in numbered(cards).enumerate() {
        for (other_bit, other) in numbered(cards).take(at) {
            if other.key == card.key {
                doubled |= bit | other_bit;
            }
        }
    }
    doubled
}

/// The tens of the score: the allocated part of the node's known VRAM.
fn packing(cards: &[PhysicalGpu]) -> u64 {
    let (mut total, mut allocated) = (0_u64, 0_u64);
    for vram in cards.iter().filter_map(|card| card.vram) {
        total = total.saturating_add(u64::from(vram.total_mb()));
        allocated = allocated.saturating_add(u64::from(vram.allocated_mb.min(vram.total_mb())));
    }
    part_of(10, allocated, total).saturating_mul(10)
}

/// The units of the score: how good the chosen cards are.
fn quality(ask: GpuRequest, cards: &[PhysicalGpu], chosen: u64) -> u64 {
    let (mut asked, mut free) = (0_u64, 0_u64);
    let mut count = 0_u64;
    for vram in numbered(cards).filter(|(bit, _)| chosen & bit != 0).filter_map(|(_, card)| card.vram) {
        asked = asked.saturating_add(u64::from(ask.need_mb(vram)));
        free = free.saturating_add(u64::from(vram.free_mb().unwrap_or(0)));
        count = count.saturating_add(1);
    }
    if count < 2 {
        return part_of(9, asked, free);
    }
    let joined = count.saturating_sub(islands(cards, chosen));
    part_of(4, asked, free).saturating_add(part_of(5, joined, count.saturating_sub(1)))
}

/// How many islands the chosen cards are spread over; a card that NVLink joins to no other is one of its own.
fn islands(cards: &[PhysicalGpu], chosen: u64) -> u64 {
    let mut islands = 0_u64;
    for (at, (bit, card)) in numbered(cards).enumerate() {
        let seen =
            |island| numbered(cards).take(at).any(|(b, c)| chosen & b != 0 && c.island == Some(island));
        if chosen & bit != 0 && !card.island.is_some_and(seen) {
            islands = islands.saturating_add(1);
        }
    }
    islands
}

/// `scale × part ÷ whole`, rounded down and at most `scale`; nothing of nothing.
fn part_of(scale: u64, part: u64, whole: u64) -> u64 {
    power_units::Amount::part(scale, part, whole, power_units::Role::Limit).unwrap_or(0).min(scale)
}

#[cfg(test)]
mod tests;
