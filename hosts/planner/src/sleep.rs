//! Nodes that sleep: which empty nodes are switched off, which are woken, and what a sleeping node counts.
//!
//! ```text
//!            empty for long                 no pod has come               the controller says off
//!  (awake) ────────────────▶ Closing ────────────────────▶ Stopping ────────────────────▶ Asleep
//!     ▲                         │                              │ does not go off             │ is needed
//!     │ is needed               │                              ▼                             ▼
//!     ├─────────────────────────┘                            Left ◀──── does not wake ──── Starting ◀──── Waking
//!     │ is ready after another boot, or has run on            │                               │   is paid for
//!     └───────────────────────────────────────────────────────┴───────────────────────────────┘
//! ```
//!
//! The phase is a mark on the Node ([`SleepMark`]), written before anything is done that depends on it. So a new leader
//! finds all of it there, and what is remembered beside it are times, which begin anew with it: that only delays a sleep.
//! A node with a mark is cordoned and tainted. It is switched off last, and only while no pod is on it.
//!
//! What a node counts in its budgets follows from the mark and from what its management controller says now
//! ([`SleepCount::of`]): a node that sleeps counts nothing of its grant only while the controller says that it is off and its
//! kubelet is silent. A node that wakes counts its largest draw from before the order to start until it is there. As many are
//! to be woken at a time as the limits above them can pay for, in the order of their need; the others sleep on.

mod arrivals;
mod ledger;
mod memory;
mod step;

pub use joulie_core::placement::sleep::SleepPhase;
pub use memory::SleepMemory;
pub use step::{SleepCounts, SleepDecision};

use crate::migration::eviction::RequestedResources;
use power_units::{Micros, Ratio, Watts};
use std::fmt;
use std::sync::Arc;

/// Whether nodes are put to sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SleepMode {
    /// None is, and those that sleep are woken.
    Off,
    /// As off; and it is computed which would be.
    Observe,
    /// Nodes that ask for it are.
    On,
}

/// What is written on a Node about its sleep.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SleepMark {
    /// The phase.
    pub phase: SleepPhase,
    /// Since when, on the wall clock of who wrote it.
    pub since: Micros,
    /// The boot in which it was to be switched off, and before that the one in which it was closed; empty if that is not known.
    pub boot: String,
}

/// What a management controller says of the power of its machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PowerState {
    /// It is on.
    On,
    /// It is off.
    Off,
    /// It is on its way from one to the other.
    Changing,
}

/// What a node counts in its budgets because of its sleep.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SleepCount {
    /// What every node counts.
    #[default]
    Awake,
    /// What every node counts, and its grant stays as it is although the node is cordoned.
    Kept,
    /// So much, whatever its grant.
    Off(Watts),
    /// Its largest draw, whatever its grant.
    Full,
}

impl SleepCount {
    /// The count of a node. `ready`: its kubelet reports, so that it is not off, whatever its controller says.
    #[must_use]
    pub fn of(mark: Option<&SleepMark>, power: Option<PowerState>, ready: bool, standby: Watts) -> Self {
        match mark.map(|mark| mark.phase) {
            None => Self::Awake,
            Some(SleepPhase::Closing | SleepPhase::Stopping) => Self::Kept,
            Some(SleepPhase::Asleep) if power == Some(PowerState::Off) && !ready => Self::Off(standby),
            Some(SleepPhase::Asleep | SleepPhase::Waking | SleepPhase::Starting | SleepPhase::Left) => {
                Self::Full
            }
        }
    }

    /// Whether it has a mark.
    #[must_use]
    pub const fn is_marked(self) -> bool {
        !matches!(self, Self::Awake)
    }

    /// Whether its grant says nothing of what it draws, and is not changed.
    #[must_use]
    pub const fn is_aside(self) -> bool {
        matches!(self, Self::Off(_) | Self::Full)
    }
}

/// When nodes sleep and wake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SleepTuning {
    /// Whether they do.
    pub mode: SleepMode,
    /// How long a node must have been empty.
    pub idle_for: Micros,
    /// How long it must have been awake.
    pub min_on: Micros,
    /// How long a closed node waits for a pod that is still on its way to it.
    pub settle: Micros,
    /// How long switching off may take.
    pub off_within: Micros,
    /// How long waking usually takes: demand that comes within it must find nodes that are awake.
    pub wake_takes: Micros,
    /// How long waking may take.
    pub wake_within: Micros,
    /// How many nodes of each zone and GPU model stay awake.
    pub floor: u32,
    /// For what share of the times in which a node wakes there are enough empty nodes awake.
    pub quantile: Ratio,
    /// What a node draws that is off.
    pub standby: Watts,
    /// How many nodes may be on their way to sleep.
    pub sleeps_at_once: u32,
    /// How many nodes may be on their way back.
    pub wakes_at_once: u32,
}

/// The law of sleep: checked tuning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SleepLaw(SleepTuning);

/// Why tuning is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SleepError {
    /// A node would count as not waking before it can have woken.
    WakeWithin,
    /// A node would count as not stopping before the wait for late pods is over.
    OffWithin,
    /// Nothing could ever move.
    AtOnce,
    /// It is no share.
    Quantile,
    /// It is below zero.
    Standby,
}

impl fmt::Display for SleepError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::WakeWithin => "a node may take longer to wake than it usually takes",
            Self::OffWithin => "switching off may take longer than the wait for pods on their way",
            Self::AtOnce => "at least one node at once must be allowed to move",
            Self::Quantile => "the quantile is between 0 and 1",
            Self::Standby => "what a node draws that is off is 0 watts or more",
        })
    }
}

impl std::error::Error for SleepError {}

impl SleepLaw {
    /// Checks the tuning.
    ///
    /// # Errors
    /// If its parts do not go together.
    pub fn new(tuning: SleepTuning) -> Result<Self, SleepError> {
        let bad = [
            (
                tuning.wake_within < tuning.wake_takes || tuning.wake_takes == Micros::ZERO,
                SleepError::WakeWithin,
            ),
            (tuning.off_within < tuning.settle || tuning.off_within == Micros::ZERO, SleepError::OffWithin),
            (tuning.sleeps_at_once == 0 || tuning.wakes_at_once == 0, SleepError::AtOnce),
            (!(Ratio::ZERO..=Ratio::ONE).contains(&tuning.quantile), SleepError::Quantile),
            (tuning.standby < Watts::ZERO, SleepError::Standby),
        ];
        match bad.into_iter().find(|(is_bad, _)| *is_bad) {
            Some((_, error)) => Err(error),
            None => Ok(Self(tuning)),
        }
    }

    /// Its tuning.
    #[must_use]
    pub const fn tuning(&self) -> &SleepTuning {
        &self.0
    }
}

/// What it takes to wake a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum WakePrice {
    /// Nothing: no limit binds it.
    #[default]
    Free,
    /// Room for its largest draw under each of these limits, by their places in [`SleepRound::spares`].
    Watts {
        /// Its largest draw.
        full: Watts,
        /// The limits.
        under: Vec<usize>,
    },
    /// What nobody can pay now: nothing may be raised there, or its largest draw is not known.
    Shut,
}

/// What is known of a node now.
#[derive(Clone, Debug)]
pub struct SleepFacts<'a> {
    /// Its name.
    pub name: &'a Arc<str>,
    /// Its zone and GPU model: for each of them some nodes stay awake.
    pub pool: &'a str,
    /// It may sleep: it is asked for, nobody has refused it, and its power can be switched.
    pub may_sleep: bool,
    /// Its mark.
    pub mark: Option<&'a SleepMark>,
    /// It is cordoned.
    pub cordoned: bool,
    /// Its Ready condition is true.
    pub ready: bool,
    /// The boot that its kubelet reports.
    pub boot: &'a str,
    /// What its controller has just said; `None` if it has not.
    pub power: Option<PowerState>,
    /// The pods on it that would be lost, so without those of DaemonSets; `None` if they are not known.
    pub pods: Option<u32>,
    /// What it can give to further pods.
    pub room: RequestedResources,
    /// What it draws now, if that is measured.
    pub draws: Option<Watts>,
    /// The most that it can draw, if that is known.
    pub max: Option<Watts>,
    /// What it takes to wake it.
    pub price: WakePrice,
    /// Its largest draw is counted, and every limit above it is kept.
    pub paid: bool,
    /// Something that was ordered for it does not show yet: nothing is decided.
    pub busy: bool,
}

/// A pod that the scheduler has found no node for.
#[derive(Clone, Copy, Debug)]
pub struct WaitingPod<'a> {
    /// What names it in all rounds.
    pub key: &'a str,
    /// What it needs.
    pub needs: RequestedResources,
}

/// Why a node is marked, or its mark is taken off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SleepReason {
    /// It was empty for long enough.
    Empty,
    /// No pod has come since it was closed.
    Settled,
    /// Its controller says that it is off, and its kubelet is silent.
    IsOff,
    /// A pod waits that would fit on it.
    PodWaits,
    /// A pod is bound to it.
    PodBound,
    /// Too few nodes of its zone and GPU model are awake.
    Floor,
    /// Too few empty nodes are awake for what usually comes while a node wakes.
    WarmPool,
    /// It is not to sleep any more: a person, a label or the settings say so.
    NotAskedFor,
    /// Its largest draw is counted, and every limit above it is kept.
    Paid,
    /// There is no room for its largest draw, nothing may be raised, or that is not known.
    NoRoom,
    /// It is there again.
    IsAwake,
    /// It is not there in time.
    DidNotWake,
    /// It is not off in time.
    DidNotStop,
    /// Its controller says that it is off while its kubelet reports.
    Contradiction,
    /// It cannot be known whether it is on.
    Unseen,
}

impl SleepReason {
    /// All reasons.
    pub const ALL: [Self; 15] = [
        Self::Empty,
        Self::Settled,
        Self::IsOff,
        Self::PodWaits,
        Self::PodBound,
        Self::Floor,
        Self::WarmPool,
        Self::NotAskedFor,
        Self::Paid,
        Self::NoRoom,
        Self::IsAwake,
        Self::DidNotWake,
        Self::DidNotStop,
        Self::Contradiction,
        Self::Unseen,
    ];

    /// Its word for metrics.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Empty => "empty",
            Self::Settled => "settled",
            Self::IsOff => "is_off",
            Self::PodWaits => "pod_waits",
            Self::PodBound => "pod_bound",
            Self::Floor => "floor",
            Self::WarmPool => "warm_pool",
            Self::NotAskedFor => "not_asked_for",
            Self::Paid => "paid",
            Self::NoRoom => "no_room",
            Self::IsAwake => "is_awake",
            Self::DidNotWake => "did_not_wake",
            Self::DidNotStop => "did_not_stop",
            Self::Contradiction => "contradiction",
            Self::Unseen => "unseen",
        }
    }

    /// The reason in words.
    #[must_use]
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::Empty => "it has been empty for long enough",
            Self::Settled => "no pod has come since it was closed",
            Self::IsOff => "its management controller says that it is off",
            Self::PodWaits => "a pod waits that would fit on it",
            Self::PodBound => "a pod is bound to it",
            Self::Floor => "too few nodes of its zone and GPU model are awake",
            Self::WarmPool => "too few empty nodes are awake for what usually comes while a node wakes",
            Self::NotAskedFor => "it is not to sleep any more",
            Self::Paid => "the budgets above it have room for its largest draw",
            Self::NoRoom => {
                "a budget above it has no room for its largest draw, raises nobody now, or is not known"
            }
            Self::IsAwake => "it is there again",
            Self::DidNotWake => "it was switched on and is not there in time",
            Self::DidNotStop => "it was told to switch off and is not off in time",
            Self::Contradiction => "its management controller says that it is off while its kubelet reports",
            Self::Unseen => "nobody can say whether it is on",
        }
    }
}

/// What is done for a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SleepStep {
    /// It is marked, cordoned and tainted.
    Mark(SleepPhase, SleepReason),
    /// Mark, cordon and taint are taken off.
    Reopen(SleepReason),
    /// It is told to switch off, if no pod is on it at that moment.
    SwitchOff,
    /// It is switched on.
    SwitchOn,
}

/// What is known of all nodes now.
#[derive(Clone, Copy, Debug)]
pub struct SleepRound<'a> {
    /// The time.
    pub now: power_units::Stamp,
    /// The time of day, since 1970.
    pub wall: Micros,
    /// The nodes.
    pub nodes: &'a [SleepFacts<'a>],
    /// The pods that wait, in the order in which they are helped.
    pub waiting: &'a [WaitingPod<'a>],
    /// What is left of each limit when everything in it is brought to the least that it can be; `None` while it is not known.
    pub spares: &'a [Option<Watts>],
}

#[cfg(test)]
mod tests;
