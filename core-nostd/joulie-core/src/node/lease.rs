//! The lease of the caps: whether somebody still renews the desired state, and what happens when nobody does.
//!
//! The leader of the operator renews one Lease after each complete pass, whether the plan changed or not. Every renewal
//! writes its *time* into the Lease, and that time is only a mark that tells one renewal from the one before: a newer
//! one is a renewal at the moment it was received. How old a renewal is, a node judges by its own monotonic clock, and
//! never by the times that others write. When renewals stop (the API is away, the planner is dead) caps **hold**,
//! unless the node's own configuration chose to **relax** to the originals, each node a little later than the other, or
//! to go to the **safe** profile. No choice is silent: the step in which it happens carries an [`LeaseEvent`].
//!
//! ```text
//! Started ──newer time──▶ Renewed ──newer time──▶ Renewed
//! Started, Renewed ──longer than `term`──▶ Holding                       (hold)
//!                                          Waiting ──`delay`──▶ Relaxed  (relax)
//!                                          Safe                          (safe)
//! Waiting ──another choice──▶ Holding, Safe      (the configuration no longer chooses to relax)
//! Holding, Waiting, Relaxed, Safe ──newer time──▶ Renewed
//! ```
//!
//! A restart starts in `Started`: caps are adopted as they are found, and the lease runs from the start, because
//! nobody knows when it was last renewed. The first time that is read is no renewal: it may have lain there for hours.

use super::cap::{CapIntent, DesiredCap};
use crate::placement::freshness::UnixTime;
use core::fmt;
use power_units::{Micros, Ratio, Stamp};

/// The tuning of the lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseLaw {
    term: Micros,
    on_expiry: OnExpiry,
}

/// What the caps do when nobody has renewed the lease for its term.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnExpiry {
    /// They stay as they are.
    Hold,
    /// The originals come back, each node `delay` after its lease ended, so that a rack does not rise at one instant.
    Relax {
        /// This node's part of the spread; see [`LeaseJitter`].
        delay: Micros,
    },
    /// The safe profile of the node's configuration takes their place.
    Safe,
}

/// A fraction of the way from 0 to 1 that differs from node to node and never for one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseJitter(Ratio);

/// What the lease remembers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseMemory {
    phase: LeasePhase,
    times: Times,
}

/// How the lease stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeasePhase {
    /// Since the process started no renewal was seen.
    Started {
        /// When it started.
        since: Stamp,
    },
    /// Somebody renews it.
    Renewed {
        /// When the last renewal was received.
        at: Stamp,
    },
    /// It ended, and the caps hold.
    Holding,
    /// It ended; the caps hold until this node's turn to relax.
    Waiting {
        /// When it ended.
        since: Stamp,
    },
    /// It ended, and the originals are back.
    Relaxed,
    /// It ended, and the safe profile is in force.
    Safe,
}

/// The times of renewal that were seen. An old one that is delivered again, by a server that lags behind, is no
/// renewal, nor is the present one after it. Only a second old one that is newer than the first tells that the writer's
/// clock went back (it was set, or another replica leads), or that the API was restored from a backup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Times {
    None,
    Newest(UnixTime),
    Behind { newest: UnixTime, older: UnixTime },
}

/// What the lease may know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseFacts {
    /// The time of this step.
    pub now: Stamp,
    /// When the Lease says that it was last renewed (`renewTime`), where it could be read since the last step.
    pub renewal: Option<UnixTime>,
}

/// What holds now, and what has just happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseDecision {
    /// Whose caps are to be in force.
    pub caps: CapsSource,
    /// What changed in this step, for the log, the counter and the condition.
    pub event: Option<LeaseEvent>,
}

/// Whose caps are to be in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CapsSource {
    /// Those of the desired state. With nobody to change it they hold; a person who changes it by hand while the
    /// planner is away is still obeyed.
    Desired,
    /// None: the originals.
    Originals,
    /// Those of the safe profile, on a node that is to have caps.
    SafeProfile,
}

/// A change that must be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseEvent {
    /// Nobody renewed the lease for its term; what follows is the configured choice.
    Expired,
    /// This node's turn has come to go back to its originals.
    Relaxed,
    /// The configuration chooses otherwise than to relax, while this node waited for its turn.
    ChosenAnew,
    /// Somebody renews it again.
    RenewedAgain,
    /// The clock went backwards: the lease is measured from now.
    ClockBackwards,
}

/// Why a lease cannot be built so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseError {
    /// The term is zero.
    Term,
    /// The fraction is not from 0 to 1.
    Jitter,
}

impl fmt::Display for LeaseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Term => "expected a lease term above zero",
            Self::Jitter => "expected a fraction from 0 to 1",
        })
    }
}

impl core::error::Error for LeaseError {}

impl LeaseJitter {
    /// This fraction.
    ///
    /// # Errors
    /// When it is not from 0 to 1.
    pub fn new(fraction: Ratio) -> Result<Self, LeaseError> {
        let inside = fraction >= Ratio::ZERO && fraction <= Ratio::ONE;
        if inside { Ok(Self(fraction)) } else { Err(LeaseError::Jitter) }
    }

    /// The fraction of a node, from a hash of its identity that spreads over all 64 bits.
    #[must_use]
    pub fn of_identity(hash: u64) -> Self {
        Self(Ratio::from_bits(i64::try_from(hash >> 32).unwrap_or(0)))
    }

    /// This node's part of a span.
    #[must_use]
    pub fn of(self, span: Micros) -> Micros {
        let fraction = u128::from(u64::try_from(self.0.to_bits()).unwrap_or(0));
        let part = u128::from(span.get()).wrapping_mul(fraction) >> 32;
        Micros::new(u64::try_from(part).unwrap_or(u64::MAX))
    }
}

impl LeaseLaw {
    /// A lease that ends when nobody renews it for `term`.
    ///
    /// # Errors
    /// When the term is zero.
    pub fn new(term: Micros, on_expiry: OnExpiry) -> Result<Self, LeaseError> {
        if term == Micros::ZERO { Err(LeaseError::Term) } else { Ok(Self { term, on_expiry }) }
    }

    /// Takes in what was received, and says whose caps are to be in force.
    #[must_use]
    pub fn step(&self, lease: &mut LeaseMemory, facts: &LeaseFacts) -> LeaseDecision {
        let renewed = facts.renewal.is_some_and(|renewal| lease.times.hears(renewal));
        let (phase, event) = if renewed {
            (LeasePhase::Renewed { at: facts.now }, lease.phase.event_of_renewal())
        } else {
            self.age(lease.phase, facts.now)
        };
        lease.phase = phase;
        LeaseDecision { caps: phase.caps(), event }
    }

    fn age(&self, phase: LeasePhase, now: Stamp) -> (LeasePhase, Option<LeaseEvent>) {
        match phase {
            LeasePhase::Started { since } => match now.since(since) {
                None => (LeasePhase::Started { since: now }, Some(LeaseEvent::ClockBackwards)),
                Some(age) if age > self.term => (self.expired(now), Some(LeaseEvent::Expired)),
                Some(_) => (phase, None),
            },
            LeasePhase::Renewed { at } => match now.since(at) {
                None => (LeasePhase::Renewed { at: now }, Some(LeaseEvent::ClockBackwards)),
                Some(age) if age > self.term => (self.expired(now), Some(LeaseEvent::Expired)),
                Some(_) => (phase, None),
            },
            LeasePhase::Waiting { since } => match (self.on_expiry, now.since(since)) {
                (OnExpiry::Hold | OnExpiry::Safe, _) => (self.expired(now), Some(LeaseEvent::ChosenAnew)),
                (OnExpiry::Relax { .. }, None) => {
                    (LeasePhase::Waiting { since: now }, Some(LeaseEvent::ClockBackwards))
                }
                (OnExpiry::Relax { delay }, Some(age)) if age < delay => (phase, None),
                (OnExpiry::Relax { .. }, Some(_)) => (LeasePhase::Relaxed, Some(LeaseEvent::Relaxed)),
            },
            LeasePhase::Holding | LeasePhase::Relaxed | LeasePhase::Safe => (phase, None),
        }
    }

    fn expired(&self, now: Stamp) -> LeasePhase {
        match self.on_expiry {
            OnExpiry::Hold => LeasePhase::Holding,
            OnExpiry::Relax { .. } => LeasePhase::Waiting { since: now },
            OnExpiry::Safe => LeasePhase::Safe,
        }
    }
}

impl LeaseMemory {
    /// A lease as a process finds it that starts at `now`, after a restart too.
    #[must_use]
    pub const fn start(now: Stamp) -> Self {
        Self { phase: LeasePhase::Started { since: now }, times: Times::None }
    }

    /// How it stands.
    #[must_use]
    pub const fn phase(&self) -> LeasePhase {
        self.phase
    }
}

impl CapsSource {
    /// What is desired under this lease. The safe profile takes the place of a cap, known or not; a node whose desired
    /// state is known to be gone is nobody's to cap, so it gets its originals whoever renews the lease.
    #[must_use]
    pub const fn desired(self, desired: DesiredCap, safe_profile: CapIntent) -> DesiredCap {
        match (self, desired) {
            (Self::Desired, _) | (Self::SafeProfile, DesiredCap::Gone | DesiredCap::Cap(CapIntent::NONE)) => {
                desired
            }
            (Self::Originals, _) => DesiredCap::Gone,
            (Self::SafeProfile, DesiredCap::Unknown | DesiredCap::Cap(_)) => DesiredCap::Cap(safe_profile),
        }
    }
}

impl LeasePhase {
    const fn caps(self) -> CapsSource {
        match self {
            Self::Started { .. } | Self::Renewed { .. } | Self::Holding | Self::Waiting { .. } => {
                CapsSource::Desired
            }
            Self::Relaxed => CapsSource::Originals,
            Self::Safe => CapsSource::SafeProfile,
        }
    }

    const fn event_of_renewal(self) -> Option<LeaseEvent> {
        match self {
            Self::Started { .. } | Self::Renewed { .. } => None,
            Self::Holding | Self::Waiting { .. } | Self::Relaxed | Self::Safe => {
                Some(LeaseEvent::RenewedAgain)
            }
        }
    }
}

impl Times {
    /// Takes in a time of renewal and says whether it is a new one.
    fn hears(&mut self, time: UnixTime) -> bool {
        let (next, renewed) = match *self {
            Self::None => (Self::Newest(time), false),
            Self::Newest(newest) | Self::Behind { newest, .. } if time > newest => (Self::Newest(time), true),
            Self::Newest(newest) | Self::Behind { newest, .. } if time == newest => {
                (Self::Newest(newest), false)
            }
            Self::Behind { older, .. } if time > older => (Self::Newest(time), true),
            Self::Newest(newest) | Self::Behind { newest, .. } => {
                (Self::Behind { newest, older: time }, false)
            }
        };
        *self = next;
        renewed
    }
}

#[cfg(test)]
mod tests;
