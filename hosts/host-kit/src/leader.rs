//! Who leads: election by Lease, so that never two replicas act at once.
//!
//! ```text
//!            the lease is free, or its holder's sign has not changed for as long as it said
//!   Standby ────────────────────────────────────────────────────────────────────────────────▶ Leading
//!      ▲                                                                                          │
//!      └────────── not renewed for `renew`, or somebody else holds it, or released ◀──────────────┘
//! ```
//!
//! Clocks of two machines are never compared. A standby counts from the moment *it* saw the lease change; a leader
//! counts from the moment *before* it sent the renewal that succeeded, and stops after `renew`, which is less than the
//! `lease` that everybody else waits. Whoever acts asks [`Leadership::term`] at that moment: it answers by the clock,
//! so that a process that was stopped and goes on does not act on what it believed before.
//!
//! This file decides; `driver` asks the API server and waits.

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

/// Who we are in an election and how patient.
#[derive(Clone, Debug)]
pub struct Candidate {
    identity: String,
    lease: Duration,
    renew: Duration,
    retry: Duration,
}

/// Why a candidate is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CandidateError {
    /// It has no name.
    Nameless,
    /// The times do not leave room for each other.
    Times {
        /// For how long others wait.
        lease: Duration,
        /// For how long a leader goes on without a renewal.
        renew: Duration,
        /// Between two attempts.
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

/// What a Lease says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Who holds it; nobody after a release.
    pub holder: Option<String>,
    /// For how long after a sign of life it is the holder's; what is missing or zero is `None`.
    pub lease: Option<Duration>,
    /// Since when it is the holder's, by the holder's clock.
    pub acquired: Option<Timestamp>,
    /// The holder's last sign of life, by the holder's clock.
    pub renewed: Option<Timestamp>,
    /// How often it changed hands.
    pub transitions: i32,
}

/// A Lease on the server, at one version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObservedLease {
    /// What it says.
    pub record: Record,
    /// Which version of the object says so.
    pub version: String,
}

/// What a candidate remembers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeadershipState {
    /// Does not lead; and when it first saw the lease as it is.
    Standby {
        /// As it was seen last.
        seen: Option<(ObservedLease, Mono)>,
    },
    /// Leads, by the renewal that was sent last and succeeded.
    Leading {
        /// When that was sent.
        sent: Mono,
        /// What it left on the server.
        held: ObservedLease,
    },
}

/// What to do now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Attempt {
    /// There is no lease: create it.
    Create(Record),
    /// Take it or renew it, if the object is still at this version.
    Replace(Record, String),
    /// It is somebody else's.
    Respect {
        /// Whose.
        holder: String,
        /// For how long at least.
        at_least: Duration,
    },
}

/// What changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeadershipChange {
    /// Nothing.
    Same,
    /// We lead from now on.
    Won,
    /// We do not lead any more; why.
    Lost(String),
}

/// What a process calls itself in Leases and Events: its pod or, where that is not said, its machine, which is how a pod
/// calls itself too; and half of this chance, since a pod's next process must not be taken for the one before.
pub fn identity(program: &str, pod: Option<&str>, chance: u64) -> String {
    let machine = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let machine = Some(machine.trim()).filter(|name| !name.is_empty());
    let chance = chance >> 32;
    format!("{}_{chance:08x}", cut(pod.or(machine).unwrap_or(program), NAME_MAX))
}

/// With what is random it fits into an Event's name for a process, of 128 bytes.
const NAME_MAX: usize = 100;

impl Candidate {
    /// `identity` must be this process's alone, as [`identity`] is.
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

    /// What to do, given the lease as it was just read (`None`: there is none).
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

    /// There is no Lease. The one that was seen before is respected for as long as if it were there, and its number of
    /// transitions goes on.
    fn missing(&self, mode: &mut LeadershipState, now: Mono, wall: Timestamp) -> (Attempt, LeadershipChange) {
        let change = self.stand_down(mode, None, now, "the lease is gone");
        let transitions = match mode {
            LeadershipState::Standby { seen: Some((last, _)) } => last.record.transitions.saturating_add(1),
            LeadershipState::Standby { seen: None } | LeadershipState::Leading { .. } => 0,
        };
        let create = || Attempt::Create(self.claim(wall, wall, transitions));
        (self.respected(mode, now).unwrap_or_else(create), change)
    }

    /// Respect for the Lease that was seen last, while it is somebody else's and its time is not over.
    fn respected(&self, mode: &LeadershipState, now: Mono) -> Option<Attempt> {
        let LeadershipState::Standby { seen: Some((last, since)) } = mode else { return None };
        let holder = last.record.holder.as_ref().filter(|holder| !holder.is_empty());
        let holder = holder.filter(|holder| **holder != self.identity)?;
        let at_least = last.record.lease.unwrap_or(self.lease).checked_sub(now.since(*since));
        let at_least = at_least.filter(|left| !left.is_zero())?;
        Some(Attempt::Respect { holder: holder.clone(), at_least })
    }

    /// A leader's renewal of what it left on the server; `None` for a standby, which must read first.
    pub fn renewal(&self, mode: &LeadershipState, wall: Timestamp) -> Option<(Record, String)> {
        match mode {
            LeadershipState::Standby { .. } => None,
            LeadershipState::Leading { held, .. } => {
                let acquired = held.record.acquired.unwrap_or(wall);
                Some((self.claim(acquired, wall, held.record.transitions), held.version.clone()))
            }
        }
    }

    /// A claim that was sent at `sent` is on the server as `held`.
    pub fn succeeded(&self, mode: &mut LeadershipState, sent: Mono, held: ObservedLease) -> LeadershipChange {
        let led = matches!(mode, LeadershipState::Leading { .. });
        *mode = LeadershipState::Leading { sent, held };
        if led { LeadershipChange::Same } else { LeadershipChange::Won }
    }

    /// Looks at the clock after an attempt that did not succeed.
    pub fn look(&self, mode: &mut LeadershipState, now: Mono) -> LeadershipChange {
        match mode {
            LeadershipState::Leading { sent, .. } if now.since(*sent) >= self.renew => {
                let why = format!("it could not be renewed for {}", show_duration(self.renew));
                self.stand_down(mode, None, now, &why)
            }
            LeadershipState::Leading { .. } | LeadershipState::Standby { .. } => LeadershipChange::Same,
        }
    }

    /// Until when a mode leads.
    pub fn leads_until(&self, mode: &LeadershipState) -> Option<Mono> {
        match mode {
            LeadershipState::Standby { .. } => None,
            LeadershipState::Leading { sent, .. } => Some(sent.plus(self.renew)),
        }
    }

    /// What a leader leaves when it goes: a lease that is nobody's. As client-go writes it.
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

    /// Goes to, or stays in, standby, and notes a lease that has changed. What says the same again is no sign of life.
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

/// Whether this process leads, for whoever is about to act. Clones are the same leadership.
#[derive(Clone, Debug)]
pub struct Leadership {
    until_ms: Arc<AtomicU64>,
    transitions: Arc<AtomicI32>,
    changed: watch::Receiver<bool>,
    rival: watch::Receiver<Option<String>>,
}

/// A time of leading: each leader's is higher than the one's before, so that it fences what a former leader wrote. It
/// begins anew where a Lease is deleted while nobody runs who knew it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Term(pub i32);

impl Leadership {
    /// The term, where this process leads at `now`. Ask at the moment of acting and not before.
    pub fn term(&self, now: Mono) -> Option<Term> {
        let until = Mono::from_millis(self.until_ms.load(Ordering::Acquire));
        (now < until).then(|| Term(self.transitions.load(Ordering::Acquire)))
    }

    /// Who holds the lease instead of us, as far as the server has told. A leader that only cannot renew has no rival.
    pub fn rival(&self) -> Option<String> {
        self.rival.borrow().clone()
    }

    /// Waits until the rival is another one than at the last call, or none; for ever once the election has ended.
    pub async fn rival_changed(&mut self) {
        if self.rival.changed().await.is_err() {
            std::future::pending().await
        }
    }

    /// Waits until this process has begun or ceased to lead since the last call. Whoever found [`Leadership::term`] to
    /// be over and waits here is also woken when a late renewal makes it go on.
    pub async fn changed(&mut self) -> bool {
        // An error means that the election has ended: nobody here leads any more.
        let alive = self.changed.changed().await.is_ok();
        alive && *self.changed.borrow_and_update()
    }
}

/// The other end of a [`Leadership`].
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

    /// Shows who holds the lease instead of us.
    fn respect(&self, holder: Option<&str>) {
        self.rival.send_if_modified(|rival| {
            let changed = rival.as_deref() != holder;
            if changed {
                *rival = holder.map(str::to_owned);
            }
            changed
        });
    }

    /// Shows what `mode` says.
    fn show(&self, candidate: &Candidate, mode: &LeadershipState, clock: &dyn HostClock) {
        let (leads, before) = match (candidate.leads_until(mode), mode) {
            (Some(until), LeadershipState::Leading { held, .. }) => {
                self.transitions.store(held.record.transitions, Ordering::Release);
                (true, self.until_ms.swap(until.as_millis(), Ordering::AcqRel))
            }
            (_, LeadershipState::Standby { .. } | LeadershipState::Leading { .. }) => {
                (false, self.until_ms.swap(0, Ordering::AcqRel))
            }
        };
        // Read after the swap: whoever found the former time to be over did so before it, and waits for a word.
        let resumed = leads && clock.mono() >= Mono::from_millis(before);
        self.changed.send_if_modified(|before| std::mem::replace(before, leads) != leads || resumed);
    }
}

#[cfg(test)]
mod tests;
