//! GPU pods: whether a node's cards can take a pod, which of them, and with which score.
//!
//! A row is one physical card, as one `GPU` object describes it. An instance of a card (MIG) is never a row, and a card
//! that is divided into instances takes no pod of this kind: it is passed in as [`GpuPhase::Unknown`]. What is not known
//! for certain does not fit (fail closed): an unknown phase, VRAM that was not reported or is impossible, two rows of
//! one card.
//!
//! - **Fit**: the card is of one of the models, its phase is Available, and its total − allocated VRAM suffices for what
//!   the pod requests on each card, for as many cards as the pod requests; with [`Link::Required`] within one island. A
//!   pod that requests no VRAM takes whole cards, without any allocation.
//! - **Which cards**: [`choose`] defines the order.
//! - **Score**, 0 to 100, each part rounded down. VRAM is that of the node's cards of the models, and a card that a pod
//!   has alone counts as full:
//!
//! | packing | points |
//! |---|---|
//! | pack | 60 × VRAM taken after the pod ÷ all of it, plus 25 unless the pod breaks a group of free cards, plus 15 for the cards |
//! | spread | 85 × VRAM left after the pod ÷ all of it, plus 15 for the cards |
//!
//! A *group* is an island, or all cards of the node without an island. It is broken if all its cards were free, and the
//! pod takes some of them and not all: then no pod that needs the whole group can have it.
//!
//! | cards | points for the cards |
//! |---|---|
//! | one, or with [`Link::None`] | 15 × asked ÷ free VRAM of the cards: 15 leaves nothing over |
//! | more | 6 × asked ÷ free VRAM of the cards, plus 9 × (cards − islands) ÷ (cards − 1): 9 within one island |

mod ask;
mod choose;
mod grouped;

pub use ask::{AskError, BadWish, GpuRequest, Link, ModelSet, Packing};
pub use choose::{CARDS_MAX, choose};
pub use grouped::{AlikeCards, GroupedCards, alike, island_sets};

use core::fmt;
use core::num::NonZeroU32;

/// A model, as an interned number for its name; the caller interns the names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Model(pub u32);

/// Cards of one node that are connected by NVLink, as a number within the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Island(pub u16);

/// The text of `GPU.status.phase`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GpuPhase {
    /// It can take a pod.
    Available,
    /// A pod uses it.
    Allocated,
    /// Not reported, or reported with an unknown text.
    Unknown,
}

impl GpuPhase {
    /// Reads the object's text; any other text is unknown.
    #[must_use]
    pub fn read(text: &str) -> Self {
        match text {
            "Available" => Self::Available,
            "Allocated" => Self::Allocated,
            _ => Self::Unknown,
        }
    }
}

/// A card's memory in MB. The total is above zero; more than the total may be reported as allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Vram {
    total_mb: NonZeroU32,
    allocated_mb: u32,
}

impl Vram {
    /// Reads `spec.totalVRAMmb` and `status.allocatedVRAMmb`. A missing or negative value, or a total of zero, is
    /// unknown: a status that was never written does not mean that the card is free.
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

    /// What is not allocated; `None` when more is allocated than the total: then one of the numbers is wrong.
    #[must_use]
    pub const fn free_mb(self) -> Option<u32> {
        self.total_mb.get().checked_sub(self.allocated_mb)
    }
}

/// One physical card.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PhysicalGpu {
    /// Identifies the card (its UUID, interned); breaks ties where all else is equal.
    pub key: u64,
    /// Its model, if known.
    pub model: Option<Model>,
    /// Its memory, if known.
    pub vram: Option<Vram>,
    /// The cards to which NVLink connects it.
    pub island: Option<Island>,
    /// Whether it can take a pod.
    pub phase: GpuPhase,
}

// 40,000 cards are held in memory twice, in the snapshot and in its successor.
const _: () = assert!(size_of::<PhysicalGpu>() <= 32);

/// The cards chosen for a pod on one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fit {
    /// Bit `i` is for the `i`-th card of the caller's slice.
    pub cards: u64,
    /// 0 to 100.
    pub score: u8,
}

/// Why a node cannot take a pod. `have` is how many cards pass this test and all before it, in the order given here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reject {
    /// It has no cards.
    NoCards,
    /// It has more cards than the maximum.
    TooManyCards,
    /// Too few cards are of the model.
    Model {
        /// How many are.
        have: u32,
    },
    /// Too few cards have a known model and state.
    Unknown {
        /// How many have.
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
    /// No island is large enough, even when it is empty.
    NoIsland {
        /// How many suitable cards the largest has.
        have: u32,
    },
    /// Too few cards of one island can take the pod now.
    Island {
        /// How many cards of the best island can.
        have: u32,
    },
    /// The node's cards are divided into too few instances of a profile that the pod asks for.
    NoInstance {
        /// How many there are.
        have: u32,
    },
    /// Too few of these instances are free.
    Instance {
        /// How many are.
        have: u32,
    },
}

impl Reject {
    /// Whether the node could take the pod if other pods left; if not, preemption there would be useless.
    #[must_use]
    pub const fn preemption_may_help(self) -> bool {
        match self {
            Self::NoCards
            | Self::TooManyCards
            | Self::Model { .. }
            | Self::Unknown { .. }
            | Self::TooSmall { .. }
            | Self::NoIsland { .. }
            | Self::NoInstance { .. } => false,
            Self::Allocated { .. } | Self::Vram { .. } | Self::Island { .. } | Self::Instance { .. } => true,
        }
    }
}

impl fmt::Display for Reject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoCards => f.write_str("no GPU of the node is known"),
            Self::TooManyCards => write!(f, "the node has more than {CARDS_MAX} GPUs"),
            Self::Model { have } => write!(f, "too few GPUs of the model asked for on the node ({have})"),
            Self::Unknown { have } => {
                write!(
                    f,
                    "too few GPUs of the model asked for are healthy, whole and known well enough ({have})"
                )
            }
            Self::TooSmall { have } => write!(f, "too few GPUs of the node have that much VRAM ({have})"),
            Self::Allocated { have } => write!(f, "too few GPUs of the model asked for are free ({have})"),
            Self::Vram { have } => write!(f, "too few GPUs of the node have that much VRAM left ({have})"),
            Self::NoIsland { have } => {
                write!(f, "the links of the node join too few GPUs of the model asked for ({have})")
            }
            Self::Island { have } => write!(f, "too few GPUs that are joined by links are free ({have})"),
            Self::NoInstance { have } => {
                write!(f, "too few MIG instances on the node are as asked for and known well enough ({have})")
            }
            Self::Instance { have } => write!(f, "too few MIG instances as asked for are free ({have})"),
        }
    }
}

/// Whether a node's cards can take a pod, which of them, and with which score.
///
/// # Errors
/// Why the node cannot take the pod.
pub fn fit(ask: GpuRequest, cards: &[PhysicalGpu]) -> Result<Fit, Reject> {
    let eligible = eligible(ask, cards)?;
    let chosen = choose(ask, cards, eligible);
    let score = score(ask, cards, chosen);
    Ok(Fit { cards: chosen, score: u8::try_from(score).unwrap_or(SCORE_MAX).min(SCORE_MAX) })
}

/// Whether a node's cards can take a pod, without choosing among them. Who asks the same of thousands of nodes groups their cards
/// beforehand: [`GroupedCards`].
///
/// # Errors
/// Why the node cannot take the pod.
pub fn fits(ask: GpuRequest, cards: &[PhysicalGpu]) -> Result<(), Reject> {
    eligible(ask, cards).map(|_| ())
}

const SCORE_MAX: u8 = 100;

/// The cards of a slice with their bits.
fn numbered(cards: &[PhysicalGpu]) -> impl Iterator<Item = (u64, &PhysicalGpu)> + Clone {
    (0_u32..64).map(|at| 1_u64.wrapping_shl(at)).zip(cards)
}

/// The cards that can take the pod, if they are enough.
fn eligible(ask: GpuRequest, cards: &[PhysicalGpu]) -> Result<u64, Reject> {
    grouped::eligible(ask, cards.len(), grouped::each(cards), island_sets(cards))
}

/// The cards with more than one row: it is not known which of the rows is correct.
fn doubled(cards: &[PhysicalGpu]) -> u64 {
    if differ_in_last_bits(cards) {
        return 0;
    }
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

/// Whether no two keys have the same last six bits, so that none need be compared with another.
fn differ_in_last_bits(cards: &[PhysicalGpu]) -> bool {
    let last = |card: &PhysicalGpu| u32::try_from(card.key & 63).unwrap_or(0);
    let seen = cards.iter().fold(0_u64, |seen, card| seen | 1_u64.wrapping_shl(last(card)));
    usize::try_from(seen.count_ones()).is_ok_and(|seen| seen == cards.len())
}

/// The score, as the table at the top defines it.
fn score(ask: GpuRequest, cards: &[PhysicalGpu], chosen: u64) -> u64 {
    let (mut total, mut taken) = (0_u64, 0_u64);
    for (bit, card) in numbered(cards).filter(|(_, card)| ask.may_take(card.model)) {
        let Some(vram) = card.vram else { continue };
        let asked = if chosen & bit == 0 { 0 } else { ask.need_mb(vram) };
        let all = vram.total_mb();
        let before = if card.phase == GpuPhase::Allocated { all } else { vram.allocated_mb.min(all) };
        total = total.saturating_add(u64::from(all));
        taken = taken.saturating_add(u64::from(before.saturating_add(asked).min(all)));
    }
    let placed = match ask.packing() {
        Packing::Pack if breaks(cards, chosen) => part_of(60, taken, total),
        Packing::Pack => part_of(60, taken, total).saturating_add(25),
        Packing::Spread => part_of(85, total.saturating_sub(taken), total),
    };
    placed.saturating_add(quality(ask, cards, chosen))
}

/// The groups that the chosen cards are of, each with all its cards, and whether it is an island.
fn groups(cards: &[PhysicalGpu], chosen: u64) -> impl Iterator<Item = (u64, bool)> + '_ {
    let mut seen = 0;
    numbered(cards).filter(move |(bit, _)| chosen & bit != 0).filter_map(move |(bit, card)| {
        if seen & bit != 0 {
            return None;
        }
        let group = set(cards, |other| other.island == card.island);
        seen |= group;
        Some((group, card.island.is_some()))
    })
}

/// All cards of a slice.
fn all(cards: &[PhysicalGpu]) -> u64 {
    let above = u32::try_from(cards.len()).ok().and_then(|len| 1_u64.checked_shl(len));
    above.map_or(u64::MAX, |bit| bit.wrapping_sub(1))
}

/// The cards of which this is true.
fn set(cards: &[PhysicalGpu], is_in: impl Fn(&PhysicalGpu) -> bool) -> u64 {
    numbered(cards).fold(0, |set, (bit, card)| if is_in(card) { set | bit } else { set })
}

/// Whether the chosen cards are a part of a group of which all cards are free.
fn breaks(cards: &[PhysicalGpu], chosen: u64) -> bool {
    let free = set(cards, |card| {
        card.phase == GpuPhase::Available && card.vram.is_some_and(|vram| vram.allocated_mb == 0)
    });
    groups(cards, chosen).any(|(group, _)| group & !chosen != 0 && group & !free == 0)
}

/// The points for the chosen cards.
fn quality(ask: GpuRequest, cards: &[PhysicalGpu], chosen: u64) -> u64 {
    let (mut asked, mut free) = (0_u64, 0_u64);
    let mut count = 0_u64;
    for vram in numbered(cards).filter(|(bit, _)| chosen & bit != 0).filter_map(|(_, card)| card.vram) {
        asked = asked.saturating_add(u64::from(ask.need_mb(vram)));
        free = free.saturating_add(u64::from(vram.free_mb().unwrap_or(0)));
        count = count.saturating_add(1);
    }
    if count < 2 || ask.link() == Link::None {
        return part_of(15, asked, free);
    }
    let joined = count.saturating_sub(islands(cards, chosen));
    part_of(6, asked, free).saturating_add(part_of(9, joined, count.saturating_sub(1)))
}

/// How many islands the chosen cards are spread over; a card without NVLink counts as one island.
fn islands(cards: &[PhysicalGpu], chosen: u64) -> u64 {
    groups(cards, chosen).fold(0, |islands, (group, is_island)| {
        islands.saturating_add(if is_island { 1 } else { u64::from((group & chosen).count_ones()) })
    })
}

/// The score of a node for a pod with GPUs: `share` percent for its cards and the rest for everything else, each from 0 to 100.
/// Half of the part for the cards is how full the processors and the memory of the node are with the pod, where that is given.
/// Otherwise kube-scheduler's LeastAllocated decides between nodes whose cards are alike, and prefers the one with the smaller
/// pods.
#[must_use]
pub fn mixed(cards: u8, fill: Option<u8>, rest: u8, share: u8) -> u8 {
    let (share, cards) = (u32::from(share.min(100)), u32::from(cards).saturating_mul(100));
    let cards = fill.map_or(cards, |fill| cards.saturating_add(u32::from(fill).saturating_mul(100)) >> 1);
    let of_cards = cards.saturating_mul(share).checked_div(100).unwrap_or(0);
    let rest = u32::from(rest).saturating_mul(100_u32.saturating_sub(share));
    u8::try_from(of_cards.saturating_add(rest).checked_div(100).unwrap_or(0)).unwrap_or(u8::MAX)
}

/// `scale × part ÷ whole`, rounded down and at most `scale`; zero when `whole` is zero.
fn part_of(scale: u64, part: u64, whole: u64) -> u64 {
    power_units::Amount::part(scale, part, whole, power_units::Role::Limit).unwrap_or(0).min(scale)
}

#[cfg(test)]
mod tests;
