//! Elects a leader by a Lease, so that two replicas never act at once.
//!
//! ```text
//!            the lease is free, or its holder's sign has not changed for as long as it said
//!   Standby ────────────────────────────────────────────────────────────────────────────────▶ Leading
//!      ▲                                                                                          │
//!      └────────── not renewed for `renew`, or somebody else holds it, or released ◀──────────────┘
//! ```
//!
//! The clocks of two machines are never compared. A standby counts from the moment when it saw the lease change. A
//! leader counts from the moment *before* it sent the renewal that succeeded, and stops after `renew`, which is less
//! than the `lease` for which all others wait. Code that acts must ask [`Leadership::term`] at that moment. The answer
//! depends on the clock, so a process that was suspended does not act on an old answer.
//!
//! This file decides; `driver` sends requests to the API server, and waits.

mod driver;

pub use driver::{Elections, LeaseName, elect};

use crate::clock::{HostClock, Mono};
use crate::config::parse::show_duration;
use crate::events::cut;
use jiff::Timestamp;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::watch;

/// The identity of this process in an election, and its times.
#[derive(Clone, Debug)]
pub struct Candidate {
    identity: String,
    lease: Duration,
    renew: Duration,
    retry: Duration,
}

/// Why a candidate is not valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CandidateError {
    /// It has no identity.
    Nameless,
    /// The times are too close together.
    Times {
        /// How long others wait.
        lease: Duration,
        /// How long a leader continues without a renewal.
        renew: Duration,
        /// The pause between two attempts.
        retry: Duration,
    },
}

impl fmt::Display for CandidateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nameless => f.write_str("a candidate needs an identity that no other process has"),
            Self::Times { lease, renew, retry } => write!(
                f,
                "lease {}, renew {} and retry {} do not fit; accepted: a lease of 1s to 1h in whole seconds, longer \
                 than renew, which is longer than twice retry, such as 10s, 7s and 2s",
                show_duration(*lease),
                show_duration(*renew),
                show_duration(*retry)
            ),
        }
    }
}

impl std::error::Error for CandidateError {}

/// The content of a Lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The holder; `None` after a release.
    pub holder: Option<String>,
    /// How long after a renewal the Lease stays valid; `None` if the value is missing or zero.
    pub lease: Option<Duration>,
    /// When the holder acquired it, by the holder's clock.
    pub acquired: Option<Timestamp>,
    /// When the holder last renewed it, by the holder's clock.
    pub renewed: Option<Timestamp>,
    /// How often the holder has changed.
    pub transitions: i32,
}

/// A Lease as it was read from the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObservedLease {
    /// Its content.
    pub record: Record,
    /// The version of the object.
    pub version: String,
}

/// The state of a candidate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeadershipState {
    /// Does not lead.
    Standby {
        /// The Lease as it was last seen, and when it was first seen like that.
        seen: Option<(ObservedLease, Mono)>,
    },
    /// Leads, by the last renewal that succeeded.
    Leading {
        /// When that renewal was sent.
        sent: Mono,
        /// The Lease that it left on the server.
        held: ObservedLease,
    },
}

/// What to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Attempt {
    /// There is no lease: create it.
    Create(Record),
    /// Acquire or renew the Lease, if the object is still at this version.
    Replace(Record, String),
    /// Wait: another process holds it.
    Respect {
        /// The holder.
        holder: String,
        /// How long to wait at least.
        at_least: Duration,
    },
}

/// How the leadership changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeadershipChange {
    /// Nothing.
    Same,
    /// This process leads from now on.
    Won,
    /// This process does not lead any more, for this reason.
    Lost(String),
}

/// The identity of a process in Leases and Events: its pod's name or, if that is not given, the host name, which in a
/// pod is the pod's name. Half of `chance` is appended, so that a pod's next process is not taken for the previous one.
pub fn identity(program: &str, pod: Option<&str>, chance: u64) -> String {
    let machine = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let machine = Some(machine.trim()).filter(|name| !name.is_empty());
    let chance = chance >> 32;
    format!("{}_{chance:08x}", cut(pod.or(machine).unwrap_or(program), NAME_MAX))
}

/// With the random part it fits into the instance name of an Event, which may have 128 bytes.
const NAME_MAX: usize = 100;

impl Candidate {
    /// `identity` must belong to this process alone, as [`identity`] does.
    pub fn new(
        identity: &str,
        lease: Duration,
        renew: Duration,
        retry: Duration,
    ) -> Result<Self, CandidateError> {
        if identity.trim().is_empty() {
            return Err(CandidateError::Nameless);
        }
        let whole = lease.subsec_nanos() == 0 && (1..=3600).contains(&lease.as_secs());
        if !whole || lease <= renew || renew <= 2 * retry || retry.is_zero() {
            return Err(CandidateError::Times { lease, renew, retry });
        }
        Ok(Self { identity: identity.to_owned(), lease, renew, retry })
    }

    /// Decides what to do, given the Lease as it was just read (`None`: there is none).
    pub fn attempt(
        &self,
        mode: &mut LeadershipState,
        found: Option<ObservedLease>,
        now: Mono,
        wall: Timestamp,
    ) -> (Attempt, LeadershipChange) {
        let Some(found) = found else { return self.missing(mode, now, wall) };
        let ours = found.record.holder.as_deref() == Some(self.identity.as_str());
        if ours {
            let acquired = found.record.acquired.unwrap_or(wall);
            let renewal = self.claim(acquired, wall, found.record.transitions);
            return (Attempt::Replace(renewal, found.version), LeadershipChange::Same);
        }
        let (version, transitions) = (found.version.clone(), found.record.transitions);
        let why = format!("{} holds the lease", found.record.holder.as_deref().unwrap_or("nobody"));
        let change = self.stand_down(mode, Some(found), now, &why);
        let attempt = self.respected(mode, now).unwrap_or_else(|| {
            Attempt::Replace(self.claim(wall, wall, transitions.saturating_add(1)), version)
        });
        (attempt, change)
    }

    /// Handles a missing Lease. The one that was seen before is respected for as long as if it still existed, and its
    /// number of transitions continues.
    fn missing(&self, mode: &mut LeadershipState, now: Mono, wall: Timestamp) -> (Attempt, LeadershipChange) {
        let change = self.stand_down(mode, None, now, "the lease is gone");
        let transitions = match mode {
            LeadershipState::Standby { seen: Some((last, _)) } => last.record.transitions.saturating_add(1),
            LeadershipState::Standby { seen: None } | LeadershipState::Leading { .. } => 0,
        };
        let create = || Attempt::Create(self.claim(wall, wall, transitions));
        (self.respected(mode, now).unwrap_or_else(create), change)
    }

    /// Respects the Lease that was seen last, while another process holds it and its time is not over.
    fn respected(&self, mode: &LeadershipState, now: Mono) -> Option<Attempt> {
        let LeadershipState::Standby { seen: Some((last, since)) } = mode else { return None };
        let holder = last.record.holder.as_ref().filter(|holder| !holder.is_empty());
        let holder = holder.filter(|holder| **holder != self.identity)?;
        let at_least = last.record.lease.unwrap_or(self.lease).checked_sub(now.since(*since));
        let at_least = at_least.filter(|left| !left.is_zero())?;
        Some(Attempt::Respect { holder: holder.clone(), at_least })
    }

    /// A leader's renewal of the Lease that it left on the server; `None` for a standby, which must read first.
    pub fn renewal(&self, mode: &LeadershipState, wall: Timestamp) -> Option<(Record, String)> {
        match mode {
            LeadershipState::Standby { .. } => None,
            LeadershipState::Leading { held, .. } => {
                let acquired = held.record.acquired.unwrap_or(wall);
                Some((self.claim(acquired, wall, held.record.transitions), held.version.clone()))
            }
        }
    }

    /// Records that a claim that was sent at `sent` is on the server as `held`.
    pub fn succeeded(&self, mode: &mut LeadershipState, sent: Mono, held: ObservedLease) -> LeadershipChange {
        let led = matches!(mode, LeadershipState::Leading { .. });
        *mode = LeadershipState::Leading { sent, held };
        if led { LeadershipChange::Same } else { LeadershipChange::Won }
    }

    /// Checks the clock after an attempt that did not succeed.
    pub fn look(&self, mode: &mut LeadershipState, now: Mono) -> LeadershipChange {
        match mode {
            LeadershipState::Leading { sent, .. } if now.since(*sent) >= self.renew => {
                let why = format!("it could not be renewed for {}", show_duration(self.renew));
                self.stand_down(mode, None, now, &why)
            }
            LeadershipState::Leading { .. } | LeadershipState::Standby { .. } => LeadershipChange::Same,
        }
    }

    /// Until when this state leads.
    pub fn leads_until(&self, mode: &LeadershipState) -> Option<Mono> {
        match mode {
            LeadershipState::Standby { .. } => None,
            LeadershipState::Leading { sent, .. } => Some(sent.plus(self.renew)),
        }
    }

    /// What a leader writes when it ends: a Lease without a holder, in the form that client-go uses.
    pub fn release(&self, mode: &mut LeadershipState, wall: Timestamp) -> Option<(Record, String)> {
        match std::mem::replace(mode, LeadershipState::Standby { seen: None }) {
            LeadershipState::Standby { .. } => None,
            LeadershipState::Leading { held, .. } => {
                let free = Record {
                    holder: None,
                    lease: Some(Duration::from_secs(1)),
                    acquired: Some(wall),
                    renewed: Some(wall),
                    transitions: held.record.transitions,
                };
                Some((free, held.version))
            }
        }
    }

    fn claim(&self, acquired: Timestamp, renewed: Timestamp, transitions: i32) -> Record {
        Record {
            holder: Some(self.identity.clone()),
            lease: Some(self.lease),
            acquired: Some(acquired),
            renewed: Some(renewed),
            transitions,
        }
    }

    /// Enters or stays in standby, and records a Lease that has changed. A Lease with the same content is no sign of
    /// life.
    fn stand_down(
        &self,
        mode: &mut LeadershipState,
        found: Option<ObservedLease>,
        now: Mono,
        why: &str,
    ) -> LeadershipChange {
        let before = std::mem::replace(mode, LeadershipState::Standby { seen: None });
        let (change, seen) = match before {
            LeadershipState::Leading { held, .. } => {
                (LeadershipChange::Lost(why.to_owned()), Some((held, now)))
            }
            LeadershipState::Standby { seen } => (LeadershipChange::Same, seen),
        };
        let seen = match (found, seen) {
            (None, seen) => seen,
            (Some(found), Some((old, since))) if old.record == found.record => Some((found, since)),
            (Some(found), _) => Some((found, now)),
        };
        *mode = LeadershipState::Standby { seen };
        change
    }
}

/// Tells code that is about to act whether this process leads. Clones share the same leadership.
#[derive(Clone, Debug)]
pub struct Leadership {
    until_ms: Arc<AtomicU64>,
    transitions: Arc<AtomicI32>,
    changed: watch::Receiver<bool>,
    rival: watch::Receiver<Option<String>>,
}

/// The number of a period of leadership. Each leader's is higher than the previous one, so that it fences off what a
/// former leader wrote. It starts again if a Lease is deleted while no process runs that knew it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Term(pub i32);

impl Leadership {
    /// The term, if this process leads at `now`. Ask at the moment of acting, not before.
    pub fn term(&self, now: Mono) -> Option<Term> {
        let until = Mono::from_millis(self.until_ms.load(Ordering::Acquire));
        (now < until).then(|| Term(self.transitions.load(Ordering::Acquire)))
    }

    /// The process that holds the Lease instead of this one, as far as the server has reported. A leader that only
    /// fails to renew has no rival.
    pub fn rival(&self) -> Option<String> {
        self.rival.borrow().clone()
    }

    /// Waits until the rival differs from that of the last call, or is gone; waits forever once the election has ended.
    pub async fn rival_changed(&mut self) {
        if self.rival.changed().await.is_err() {
            std::future::pending().await
        }
    }

    /// Waits until this process has become or ceased to be leader since the last call. A caller that found
    /// [`Leadership::term`] over and waits here is also woken when a late renewal continues the term.
    pub async fn changed(&mut self) -> bool {
        // An error means that the election has ended: this process does not lead any more.
        let alive = self.changed.changed().await.is_ok();
        alive && *self.changed.borrow_and_update()
    }
}

/// The writing side of a [`Leadership`].
#[derive(Debug)]
struct Office {
    until_ms: Arc<AtomicU64>,
    transitions: Arc<AtomicI32>,
    changed: watch::Sender<bool>,
    rival: watch::Sender<Option<String>>,
}

impl Office {
    fn open() -> (Self, Leadership) {
        let (sender, receiver) = watch::channel(false);
        let (rival, seen) = watch::channel(None);
        let (until_ms, transitions) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicI32::new(0)));
        let leadership = Leadership {
            until_ms: until_ms.clone(),
            transitions: transitions.clone(),
            changed: receiver,
            rival: seen,
        };
        (Self { until_ms, transitions, changed: sender, rival }, leadership)
    }

    /// Publishes the process that holds the Lease instead of this one.
    fn respect(&self, holder: Option<&str>) {
        self.rival.send_if_modified(|rival| {
            let changed = rival.as_deref() != holder;
            if changed {
                *rival = holder.map(str::to_owned);
            }
            changed
        });
    }

    /// Publishes the leadership that follows from `mode`. Who leads has no rival: the former leader is cleared before
    /// the term is published, because a caller that leads and sees a rival ends.
    fn show(&self, candidate: &Candidate, mode: &LeadershipState, clock: &dyn HostClock) {
        if matches!(mode, LeadershipState::Leading { .. }) {
            self.respect(None);
        }
        let (leads, before) = match (candidate.leads_until(mode), mode) {
            (Some(until), LeadershipState::Leading { held, .. }) => {
                self.transitions.store(held.record.transitions, Ordering::Release);
                (true, self.until_ms.swap(until.as_millis(), Ordering::AcqRel))
            }
            (_, LeadershipState::Standby { .. } | LeadershipState::Leading { .. }) => {
                (false, self.until_ms.swap(0, Ordering::AcqRel))
            }
        };
        // The clock is read after the swap: a caller that found the former term over did so before it, and waits to be
        // woken.
        let resumed = leads && clock.mono() >= Mono::from_millis(before);
        self.changed.send_if_modified(|before| std::mem::replace(before, leads) != leads || resumed);
    }
}

#[cfg(test)]
mod tests;
