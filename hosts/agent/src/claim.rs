//! Decides which of several pool agents works for a shard of the nodes: the one that holds the Lease of the shard.
//!
//! Two agents on one shard would overwrite each other's limits and statuses. So an agent waits while another one is
//! known to hold the Lease. It does not wait until it holds the Lease itself: a pool keeps its nodes to their grants
//! while the API server is away, and an agent that cannot renew continues until it sees that another agent holds the
//! Lease.

use host_kit::clock::{HostClock, Mono};
use host_kit::config::parse::show_duration;
use host_kit::health::{CheckResult, Heartbeat};
use host_kit::leader::{Candidate, CandidateError, Leadership};
use host_kit::shutdown::Stop;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How long a Lease is valid after it was renewed.
const LEASE: Duration = Duration::from_secs(10);
const RENEW: Duration = Duration::from_secs(7);
const RETRY: Duration = Duration::from_secs(2);
/// How long an agent waits when it can neither read nor take the Lease: time for two attempts. A longer wait would
/// delay applying the grants on disk while the API server is away.
const UNHEARD: Duration = Duration::from_secs(5);

/// A candidate for a shard.
pub(crate) fn candidate(identity: &str) -> Result<Candidate, CandidateError> {
    Candidate::new(identity, LEASE, RENEW, RETRY)
}

/// An agent's claim to its shard.
pub(crate) struct Claim {
    lease: String,
    leadership: Leadership,
    clock: Arc<dyn HostClock>,
    works: Arc<AtomicBool>,
}

impl Claim {
    pub(crate) fn new(lease: String, leadership: Leadership, clock: Arc<dyn HostClock>) -> Self {
        Self { lease, leadership, clock, works: Arc::default() }
    }

    /// Passes only while this agent works for the shard.
    pub(crate) fn check(&self) -> impl Fn(Mono) -> CheckResult + Send + Sync + 'static {
        let (lease, leadership, works) = (self.lease.clone(), self.leadership.clone(), self.works.clone());
        move |_| match leadership.rival() {
            Some(rival) => CheckResult::Fail(format!(
                "{rival} holds the Lease {lease} and works for this part; this agent waits"
            )),
            None if works.load(Ordering::Relaxed) => CheckResult::Pass,
            None => {
                CheckResult::Fail(format!("whether another agent holds the Lease {lease} is not known yet"))
            }
        }
    }

    /// Waits until this agent is to work for the shard; returns false if it was asked to stop first.
    pub(crate) async fn wait(&self, beat: &Heartbeat, stop: &Stop) -> bool {
        let (mut leadership, began) = (self.leadership.clone(), self.clock.mono());
        loop {
            let now = self.clock.mono();
            beat.beat(now);
            if leadership.term(now).is_some() {
                break;
            }
            if leadership.rival().is_none() && now.since(began) >= UNHEARD {
                tracing::warn!(
                    "the Lease {} could not be read or taken for {}; this agent works for its part without it until \
                     another one is seen to hold it",
                    self.lease,
                    show_duration(UNHEARD)
                );
                break;
            }
            tokio::select! {
                biased;
                () = stop.requested() => return false,
                _ = leadership.changed() => {}
                () = tokio::time::sleep(RETRY) => {}
            }
        }
        self.works.store(true, Ordering::Relaxed);
        true
    }

    /// Returns once another agent is seen to hold the Lease.
    pub(crate) async fn lost(&self) {
        let mut leadership = self.leadership.clone();
        let rival = loop {
            if let Some(rival) = leadership.rival() {
                break rival;
            }
            leadership.rival_changed().await;
        };
        self.works.store(false, Ordering::Relaxed);
        tracing::error!(
            "{rival} holds the Lease {} and works for this part; this agent stops, all limits stay, and a new process \
             waits for its turn",
            self.lease
        );
    }
}
