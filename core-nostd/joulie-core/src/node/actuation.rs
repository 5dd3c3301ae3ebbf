//! One setting of the hardware that is written and must be read back: a power limit, or a throttle.
//!
//! An ordered setting is *pending* until the facts bring its outcome; only then is it *held*. There is one order in
//! flight at a time. Only a set order may overtake a release, because a setting that is wanted again must not wait
//! until its release is done. What was in force before stays *standing* until then. An abandoned order may still be
//! answered: the caller passes on only the outcome of its last order, which it recognizes by its
//! [`Ticket`](super::ticket::Ticket).
//!
//! ```text
//!          Set                read back
//! Free ──────────▶ Pending ──────────────▶ Held
//! Adopted ─Set──────▲ │ ▲ ▲                │ │
//!                   │ │ │ └─another target─┘ │ refused later, or lost (somebody else changed it)
//!   Set when due, or│ │ │                    │
//!     another target│ ▼ │                    │
//!                  Refused ◀─────────────────┘     (Pending also: no answer within the patience)
//!                                                  (Refused is due at once, and Pending ordered again, when what was
//!                                                   out of reach is back)
//!
//! Adopted, Held, Refused ──Release──▶ Releasing ──done──▶ Free
//!                                       │   ▲
//!                          not put back ▼   │ Release when due
//!                                       Stuck      (Set takes Releasing and Stuck back to Pending)
//! ```
//!
//! A wait belongs to the target that was refused. Another target is ordered at once, also during a truce, since a
//! lower cap must not wait for the old one's retry. That is one order for each change of the target. The count of
//! failures goes on, so the next wait is no shorter.
//!
//! *Free*: as its owner left it. *Adopted*: set by us before a restart, to an unknown value.

use super::backoff::{Backoff, has_come};
use core::fmt;
use power_hal::ErrorKind;
use power_units::{Micros, Stamp};

/// One setting: what was ordered, and whether it is in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Actuation<T> {
    /// As its owner left it.
    Free,
    /// Set by us before a restart, to an unknown value.
    Adopted,
    /// Ordered; the outcome is not known yet.
    Pending {
        /// What was ordered.
        target: T,
        /// When.
        since: Stamp,
        /// How many times in a row it failed before.
        failures: u32,
        /// What is in force until then.
        standing: InForce<T>,
    },
    /// In force, as it was read back.
    Held {
        /// What was ordered.
        target: T,
        /// What is in force.
        as_is: T,
        /// Since when.
        since: Stamp,
    },
    /// Not in force; it will be ordered again.
    Refused {
        /// What was ordered.
        target: T,
        /// Why it is not in force.
        kind: ErrorKind,
        /// When to order it again.
        retry_at: Stamp,
        /// How many times in a row it failed.
        failures: u32,
        /// What is in force instead.
        standing: InForce<T>,
    },
    /// The original was ordered back.
    Releasing {
        /// When.
        since: Stamp,
        /// How many times in a row that failed before.
        failures: u32,
    },
    /// The original could not be put back; it will be ordered again.
    Stuck {
        /// Why.
        kind: ErrorKind,
        /// When to order it again.
        retry_at: Stamp,
        /// How many times in a row it failed.
        failures: u32,
    },
}

/// What is in force because of our orders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InForce<T> {
    /// Nothing.
    Nothing,
    /// Something, but it is unknown what.
    Unknown,
    /// This.
    At(T),
}

/// What is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want<T> {
    /// The setting stays as it is.
    Keep,
    /// This target is in force.
    Set(T),
    /// The original is restored.
    Release,
}

/// What the facts say about the last order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ActuationOutcome<T> {
    /// Nothing yet.
    None,
    /// The outcome of setting the target: what is in force, or why it is not.
    Set(Result<T, ErrorKind>),
    /// The outcome of restoring the original.
    Released(Result<(), ErrorKind>),
    /// Somebody else has changed it, in an acceptable way.
    Changed(T),
    /// It is not in force, or that cannot be determined.
    Lost {
        /// Why: somebody else has changed it, or it is out of reach.
        kind: ErrorKind,
        /// From when on to set it again.
        again_at: Stamp,
        /// How often that happened before.
        failures: u32,
    },
    /// It was out of reach and is back. What was ordered meanwhile did not reach it, and a failed order need not wait.
    Back,
}

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ActuationOrder<T> {
    /// Nothing.
    Leave,
    /// Set this, and read it back.
    Set(T),
    /// Restore the original.
    Release,
}

/// How long to wait for an answer and between two tries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ActuationLaw {
    patience: Micros,
    backoff: Backoff,
}

/// The patience is zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ActuationError;

impl fmt::Display for ActuationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("expected a time above zero to wait for the outcome of an order")
    }
}

impl core::error::Error for ActuationError {}

impl ActuationLaw {
    /// An order without an outcome for `patience` counts as timed out. Refused orders are repeated with `backoff`.
    ///
    /// # Errors
    /// When the patience is zero.
    pub fn new(patience: Micros, backoff: Backoff) -> Result<Self, ActuationError> {
        if patience == Micros::ZERO { Err(ActuationError) } else { Ok(Self { patience, backoff }) }
    }

    /// Updates the state by what the facts report.
    pub(crate) fn learn<T: Copy>(
        &self,
        actuation: Actuation<T>,
        now: Stamp,
        news: ActuationOutcome<T>,
    ) -> Actuation<T> {
        match actuation {
            Actuation::Free | Actuation::Adopted => actuation,
            Actuation::Pending { target, since, failures, standing } => match news {
                ActuationOutcome::Set(outcome) => match outcome {
                    Ok(as_is) => Actuation::Held { target, as_is, since: now },
                    Err(kind) => self.refused(target, kind, now, failures, standing),
                },
                ActuationOutcome::Lost { .. } => {
                    Actuation::Pending { target, since, failures, standing: InForce::Nothing }
                }
                ActuationOutcome::Back => {
                    Actuation::Refused { target, kind: ErrorKind::Gone, retry_at: now, failures, standing }
                }
                ActuationOutcome::None | ActuationOutcome::Released(_) | ActuationOutcome::Changed(_) => {
                    match now.since(since) {
                        None => Actuation::Pending { target, since: now, failures, standing },
                        Some(waited) if waited <= self.patience => actuation,
                        Some(_) => self.refused(target, ErrorKind::Timeout, now, failures, standing),
                    }
                }
            },
            Actuation::Held { target, as_is, since } => match news {
                ActuationOutcome::Set(Err(kind)) => self.refused(target, kind, now, 0, InForce::At(as_is)),
                ActuationOutcome::Changed(as_is) => Actuation::Held { target, as_is, since },
                ActuationOutcome::Lost { kind, again_at: retry_at, failures } => {
                    Actuation::Refused { target, kind, retry_at, failures, standing: InForce::Nothing }
                }
                ActuationOutcome::None
                | ActuationOutcome::Set(Ok(_))
                | ActuationOutcome::Released(_)
                | ActuationOutcome::Back => actuation,
            },
            Actuation::Refused { target, kind, retry_at, failures, standing } => match news {
                ActuationOutcome::Set(outcome) => match outcome {
                    Ok(as_is) => Actuation::Held { target, as_is, since: now },
                    Err(kind) => Actuation::Refused { target, kind, retry_at, failures, standing },
                },
                ActuationOutcome::Lost { .. } => {
                    Actuation::Refused { target, kind, retry_at, failures, standing: InForce::Nothing }
                }
                ActuationOutcome::Back => {
                    Actuation::Refused { target, kind, retry_at: now, failures, standing }
                }
                ActuationOutcome::None | ActuationOutcome::Released(_) | ActuationOutcome::Changed(_) => {
                    actuation
                }
            },
            Actuation::Releasing { since, failures } => match news {
                ActuationOutcome::Released(Ok(())) => Actuation::Free,
                ActuationOutcome::Released(Err(kind)) => self.stuck(kind, now, failures),
                ActuationOutcome::Back => Actuation::Stuck { kind: ErrorKind::Gone, retry_at: now, failures },
                ActuationOutcome::None
                | ActuationOutcome::Set(_)
                | ActuationOutcome::Changed(_)
                | ActuationOutcome::Lost { .. } => match now.since(since) {
                    None => Actuation::Releasing { since: now, failures },
                    Some(waited) if waited <= self.patience => actuation,
                    Some(_) => self.stuck(ErrorKind::Timeout, now, failures),
                },
            },
            Actuation::Stuck { kind, failures, .. } => match news {
                ActuationOutcome::Released(Ok(())) => Actuation::Free,
                ActuationOutcome::Back => Actuation::Stuck { kind, retry_at: now, failures },
                ActuationOutcome::None
                | ActuationOutcome::Set(_)
                | ActuationOutcome::Released(Err(_))
                | ActuationOutcome::Changed(_)
                | ActuationOutcome::Lost { .. } => actuation,
            },
        }
    }

    fn refused<T>(
        &self,
        target: T,
        kind: ErrorKind,
        now: Stamp,
        failures: u32,
        standing: InForce<T>,
    ) -> Actuation<T> {
        let failures = failures.saturating_add(1);
        Actuation::Refused { target, kind, retry_at: now + self.backoff.after(failures), failures, standing }
    }

    fn stuck<T>(&self, kind: ErrorKind, now: Stamp, failures: u32) -> Actuation<T> {
        let failures = failures.saturating_add(1);
        Actuation::Stuck { kind, retry_at: now + self.backoff.after(failures), failures }
    }

    pub(crate) const fn patience(&self) -> Micros {
        self.patience
    }

    pub(crate) fn longest_wait(&self) -> Micros {
        self.backoff.after(u32::MAX)
    }
}

impl<T: Copy + PartialEq> Actuation<T> {
    /// Moves towards what is wanted; `longest` is the longest wait that anybody sets.
    pub(crate) fn pursue(self, now: Stamp, want: Want<T>, longest: Micros) -> (Self, ActuationOrder<T>) {
        match want {
            Want::Keep => (self, ActuationOrder::Leave),
            Want::Set(target) => self.toward(now, target, longest),
            Want::Release => self.back(now, longest),
        }
    }

    fn toward(self, now: Stamp, target: T, longest: Micros) -> (Self, ActuationOrder<T>) {
        let order = |failures, standing| {
            (Self::Pending { target, since: now, failures, standing }, ActuationOrder::Set(target))
        };
        match self {
            Self::Free => order(0, InForce::Nothing),
            Self::Adopted | Self::Releasing { .. } | Self::Stuck { .. } => order(0, InForce::Unknown),
            Self::Pending { .. } => (self, ActuationOrder::Leave),
            Self::Held { target: held, .. } if held == target => (self, ActuationOrder::Leave),
            Self::Held { as_is, .. } => order(0, InForce::At(as_is)),
            Self::Refused { target: refused, retry_at, failures, standing, .. }
                if refused != target || has_come(retry_at, now, longest) =>
            {
                order(failures, standing)
            }
            Self::Refused { .. } => (self, ActuationOrder::Leave),
        }
    }

    fn back(self, now: Stamp, longest: Micros) -> (Self, ActuationOrder<T>) {
        let order = |failures| (Self::Releasing { since: now, failures }, ActuationOrder::Release);
        match self {
            Self::Free | Self::Pending { .. } | Self::Releasing { .. } => (self, ActuationOrder::Leave),
            Self::Adopted | Self::Held { .. } | Self::Refused { .. } => order(0),
            Self::Stuck { retry_at, failures, .. } if has_come(retry_at, now, longest) => order(failures),
            Self::Stuck { .. } => (self, ActuationOrder::Leave),
        }
    }

    /// What is in force because of our orders, as far as it is known.
    #[must_use]
    pub const fn standing(&self) -> InForce<T> {
        match *self {
            Self::Free => InForce::Nothing,
            Self::Adopted | Self::Releasing { .. } | Self::Stuck { .. } => InForce::Unknown,
            Self::Pending { standing, .. } | Self::Refused { standing, .. } => standing,
            Self::Held { as_is, .. } => InForce::At(as_is),
        }
    }

    /// Whether anything of ours is in force, as far as it is known.
    pub(crate) const fn stands(&self) -> bool {
        match self.standing() {
            InForce::Nothing => false,
            InForce::Unknown | InForce::At(_) => true,
        }
    }

    /// The target of the present order.
    pub(crate) const fn target(&self) -> Option<T> {
        match *self {
            Self::Pending { target, .. } | Self::Held { target, .. } | Self::Refused { target, .. } => {
                Some(target)
            }
            Self::Free | Self::Adopted | Self::Releasing { .. } | Self::Stuck { .. } => None,
        }
    }

    /// Whether the present target could not be put in force so far.
    pub(crate) const fn lacks(&self) -> bool {
        match self {
            Self::Refused { .. } => true,
            Self::Pending { failures, .. } => *failures > 0,
            Self::Free | Self::Adopted | Self::Held { .. } | Self::Releasing { .. } | Self::Stuck { .. } => {
                false
            }
        }
    }

    /// Since when `wanted` is in force.
    pub(crate) fn held_since(&self, wanted: T) -> Option<Stamp> {
        match *self {
            Self::Held { target, since, .. } if target == wanted => Some(since),
            Self::Held { .. }
            | Self::Free
            | Self::Adopted
            | Self::Pending { .. }
            | Self::Refused { .. }
            | Self::Releasing { .. }
            | Self::Stuck { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests;
