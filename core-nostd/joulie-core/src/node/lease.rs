//! The lease of the caps: whether the desired state is still renewed, and what happens when it is not.
//!
//! The leader of the operator renews one Lease after each complete pass, whether the plan changed or not. Every renewal
//! writes its *time* into the Lease. A node uses that time only to tell one renewal from the one before: a newer time
//! is a renewal at the moment it was received. A node measures the age of a renewal by its own monotonic clock, never
//! by times that others write. When renewals stop (the API is unreachable, the planner has failed) caps **hold**,
//! unless the node's own configuration chose to **relax** to the originals, each node with a different delay, or to go
//! to the **safe** profile. Every such change is reported: the step in which it happens carries an [`LeaseEvent`].
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
//! A restart starts in `Started`: caps are adopted as they are found, and the lease runs from the start, because the
//! time of the last renewal is not known. The first time that is read does not count as a renewal: it may be hours old.

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

/// What happens to the caps when the lease was not renewed for its term.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnExpiry {
    /// They stay as they are.
    Hold,
    /// The originals are restored, each node `delay` after its lease ended, so that the power of a rack does not rise
    /// at one instant.
    Relax {
        /// This node's part of the spread; see [`LeaseJitter`].
        delay: Micros,
    },
    /// The safe profile of the node's configuration replaces them.
    Safe,
}

/// A fraction from 0 to 1 that differs between nodes and is constant for one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseJitter(Ratio);

/// The state of the lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseMemory {
    phase: LeasePhase,
    times: Times,
}

/// The phase of the lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeasePhase {
    /// No renewal was seen since the process started.
    Started {
        /// When it started.
        since: Stamp,
    },
    /// It is being renewed.
    Renewed {
        /// When the last renewal was received.
        at: Stamp,
    },
    /// It ended, and the caps hold.
    Holding,
    /// It ended; the caps hold until this node's delay has passed.
    Waiting {
        /// When it ended.
        since: Stamp,
    },
    /// It ended, and the originals are restored.
    Relaxed,
    /// It ended, and the safe profile is in force.
    Safe,
}

/// The renewal times that were seen. An older time that a lagging server delivers again is no renewal, and neither is
/// the current one after it. Only a second older time that is newer than the first older one proves that the writer's
/// clock went back (it was set, or another replica leads), or that the API was restored from a backup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Times {
    None,
    Newest(UnixTime),
    Behind { newest: UnixTime, older: UnixTime },
}

/// The facts about the lease in one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseFacts {
    /// The time of this step.
    pub now: Stamp,
    /// The renewal time in the Lease (`renewTime`), if it was read since the last step.
    pub renewal: Option<UnixTime>,
}

/// Which caps are to be in force, and what has just happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseDecision {
    /// Which caps are to be in force.
    pub caps: CapsSource,
    /// What changed in this step, for the log, the counter and the condition.
    pub event: Option<LeaseEvent>,
}

/// Which caps are to be in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CapsSource {
    /// Those of the desired state. Without a planner they hold; a manual change of the desired state is still followed.
    Desired,
    /// None: the originals.
    Originals,
    /// Those of the safe profile, on a node that is to have caps.
    SafeProfile,
}

/// A change that must be reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseEvent {
    /// The lease was not renewed for its term; the configured choice takes effect.
    Expired,
    /// This node's delay has passed, and it goes back to its originals.
    Relaxed,
    /// The configuration no longer chooses to relax, while this node waited for its delay.
    ChosenAnew,
    /// It is renewed again.
    RenewedAgain,
    /// The clock went backwards: the lease is measured from now.
    ClockBackwards,
}

/// Why a lease is refused.
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
    /// The given fraction.
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
    /// A lease that ends when it is not renewed for `term`.
    ///
    /// # Errors
    /// When the term is zero.
    pub fn new(term: Micros, on_expiry: OnExpiry) -> Result<Self, LeaseError> {
        if term == Micros::ZERO { Err(LeaseError::Term) } else { Ok(Self { term, on_expiry }) }
    }

    /// Takes in what was received, and returns which caps are to be in force.
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
    /// The lease of a process that starts at `now`, also after a restart.
    #[must_use]
    pub const fn start(now: Stamp) -> Self {
        Self { phase: LeasePhase::Started { since: now }, times: Times::None }
    }

    /// The phase of the lease.
    #[must_use]
    pub const fn phase(&self) -> LeasePhase {
        self.phase
    }
}

impl CapsSource {
    /// The cap that is desired under this lease. The safe profile replaces a cap, known or not. A node whose desired
    /// state is known to be absent gets its originals, whoever renews the lease.
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
    /// Takes in a renewal time, and returns whether it is a new renewal.
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
