//! Runs the election: reads and writes the Lease, waits, and logs what happened.

use super::{
    Attempt, Candidate, Leadership, LeadershipChange, LeadershipState, ObservedLease, Office, Record,
};
use crate::clock::HostClock;
use crate::config::parse::show_duration;
use crate::metrics::MetricsRegistry;
use crate::shutdown::Stop;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::api::PostParams;
use kube::{Api, Client};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use std::sync::Arc;
use std::time::Duration;

/// The name of a Lease.
#[derive(Clone, Debug)]
pub struct LeaseName {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

/// The metrics of an election.
#[derive(Clone, Debug)]
pub struct Elections {
    leading: Gauge,
    won: Counter,
    lost: Counter,
    failed: Counter,
}

impl Elections {
    /// Registers them.
    pub fn register(registry: &mut MetricsRegistry) -> Self {
        let all = Self {
            leading: Gauge::default(),
            won: Counter::default(),
            lost: Counter::default(),
            failed: Counter::default(),
        };
        registry.register("joulie_leader", "1 while this process leads", all.leading.clone());
        registry.register("joulie_leader_elections_won", "Times this process began to lead", all.won.clone());
        registry.register("joulie_leader_elections_lost", "Times it lost the lease", all.lost.clone());
        registry.register("joulie_leader_lease_errors", "Lease requests that failed", all.failed.clone());
        all
    }
}

/// Takes part in the election until asked to stop, then releases the Lease. [`Leadership`] is only valid while this
/// future runs; if the future is not polled, leadership ends by the clock.
pub fn elect(
    client: &Client,
    lease: LeaseName,
    candidate: Candidate,
    elections: Elections,
    clock: Arc<dyn HostClock>,
    stop: Stop,
) -> (Leadership, impl Future<Output = ()> + Send + 'static) {
    let (office, leadership) = Office::open();
    let api = Api::namespaced(client.clone(), &lease.namespace);
    let mode = LeadershipState::Standby { seen: None };
    let theirs = ObjectMeta::default();
    let driver = Driver { api, lease, candidate, office, elections, clock, mode, led_by: None, theirs };
    (leadership, driver.run(stop))
}

struct Driver {
    api: Api<Lease>,
    lease: LeaseName,
    candidate: Candidate,
    office: Office,
    elections: Elections,
    clock: Arc<dyn HostClock>,
    mode: LeadershipState,
    /// The leader that was last logged.
    led_by: Option<String>,
    /// The metadata that others have put on the Lease, as last seen: a renewal replaces the whole object and must keep
    /// it.
    theirs: ObjectMeta,
}

impl Driver {
    async fn run(mut self, stop: Stop) {
        loop {
            // A request that hangs is given up, and the clock is checked after every outcome. A stop waits for a
            // request in progress: a write that was cut off may still reach the server, and would then spoil the
            // release.
            let limit = self.candidate.renew / 2;
            let pause = crate::reflect::jittered(self.candidate.retry, &*self.clock);
            let pause = match tokio::time::timeout(limit, self.step()).await {
                // The next leader is then late only by the time of its request.
                Ok(respected) => respected.map_or(pause, |at_least| at_least.min(pause)),
                Err(_) => {
                    self.trouble(&format!("no answer in {}", show_duration(limit)));
                    Duration::ZERO
                }
            };
            let change = self.candidate.look(&mut self.mode, self.clock.mono());
            self.tell(change);
            if stop.requested_within(pause).await {
                break;
            }
        }
        self.release().await;
    }

    /// One round: reads the Lease unless its content is known, then claims it. Returns how long another's Lease must be
    /// respected.
    async fn step(&mut self) -> Option<Duration> {
        // If the renewal fails, somebody wrote in between, or our own write succeeded but its answer was lost: read the
        // Lease.
        if let Some((record, version)) = self.candidate.renewal(&self.mode, self.clock.wall())
            && self.claim(record, Some(version)).await
        {
            return None;
        }
        let found = match self.api.get_opt(&self.lease.name).await {
            Ok(lease) => {
                self.theirs = lease.as_ref().map(theirs).unwrap_or_default();
                lease.map(found)
            }
            Err(error) => {
                self.trouble(&error.to_string());
                return None;
            }
        };
        let (attempt, change) =
            self.candidate.attempt(&mut self.mode, found, self.clock.mono(), self.clock.wall());
        self.tell(change);
        match attempt {
            Attempt::Create(record) => drop(self.claim(record, None).await),
            Attempt::Replace(record, version) => drop(self.claim(record, Some(version)).await),
            Attempt::Respect { holder, at_least } => {
                self.respect(holder, at_least);
                return Some(at_least);
            }
        }
        None
    }

    /// Writes a claim; returns whether it is on the server now.
    async fn claim(&mut self, record: Record, version: Option<String>) -> bool {
        // Taken before the request is sent: nobody can have seen the renewal earlier than this.
        let sent = self.clock.mono();
        match self.write(&record, version).await {
            Ok(lease) => {
                // An answer that came after the term was over begins a new one, and both changes are reported.
                let over = self.candidate.look(&mut self.mode, self.clock.mono());
                self.tell(over);
                self.theirs = theirs(&lease);
                let change = self.candidate.succeeded(&mut self.mode, sent, found(lease));
                self.tell(change);
                true
            }
            Err(error) => {
                self.trouble(&error.to_string());
                false
            }
        }
    }

    async fn write(&self, record: &Record, version: Option<String>) -> Result<Lease, kube::Error> {
        let create = version.is_none();
        let lease = Lease {
            metadata: ObjectMeta {
                name: Some(self.lease.name.clone()),
                namespace: Some(self.lease.namespace.clone()),
                resource_version: version,
                ..self.theirs.clone()
            },
            spec: Some(spec(record)),
        };
        let how = PostParams::default();
        match create {
            true => self.api.create(&how, &lease).await,
            false => self.api.replace(&self.lease.name, &how, &lease).await,
        }
    }

    fn trouble(&self, why: &str) {
        self.elections.failed.inc();
        let now = self.clock.mono();
        match self.candidate.leads_until(&self.mode) {
            Some(until) => {
                let left = show_duration(until.since(now));
                tracing::warn!(
                    "lease {}: not renewed: {why}; we lead for another {left} unless it is",
                    self.lease.name
                );
            }
            None => tracing::warn!("lease {}: {why}; we do not lead", self.lease.name),
        }
    }

    fn respect(&mut self, holder: String, at_least: Duration) {
        self.office.respect(Some(&holder));
        if self.led_by.as_ref() != Some(&holder) {
            tracing::info!(
                "lease {}: {holder} leads; standing by for at least {}",
                self.lease.name,
                show_duration(at_least)
            );
            self.led_by = Some(holder);
        }
    }

    fn tell(&mut self, change: LeadershipChange) {
        self.office.show(&self.candidate, &self.mode, &*self.clock);
        match change {
            LeadershipChange::Same => {}
            LeadershipChange::Won => {
                self.led_by = None;
                self.elections.won.inc();
                self.elections.leading.set(1);
                tracing::info!("lease {}: {} leads from now on", self.lease.name, self.candidate.identity);
            }
            LeadershipChange::Lost(why) => {
                self.elections.lost.inc();
                self.elections.leading.set(0);
                tracing::error!(
                    "lease {}: lost: {why}; {} does not lead any more and must not act; another replica may",
                    self.lease.name,
                    self.candidate.identity
                );
            }
        }
    }

    async fn release(mut self) {
        let free = self.candidate.release(&mut self.mode, self.clock.wall());
        // First this process stops acting, then others may act.
        self.office.show(&self.candidate, &self.mode, &*self.clock);
        self.elections.leading.set(0);
        let Some((record, version)) = free else { return };
        match tokio::time::timeout(self.candidate.renew / 2, self.write(&record, Some(version))).await {
            Ok(Ok(_)) => tracing::info!("lease {}: released", self.lease.name),
            Ok(Err(error)) => {
                tracing::warn!("lease {}: not released, it will run out: {error}", self.lease.name)
            }
            Err(_) => tracing::warn!("lease {}: not released, it will run out: no answer", self.lease.name),
        }
    }
}

fn theirs(lease: &Lease) -> ObjectMeta {
    let ObjectMeta { labels, annotations, owner_references, finalizers, .. } = &lease.metadata;
    ObjectMeta {
        labels: labels.clone(),
        annotations: annotations.clone(),
        owner_references: owner_references.clone(),
        finalizers: finalizers.clone(),
        ..ObjectMeta::default()
    }
}

fn found(lease: Lease) -> ObservedLease {
    let spec = lease.spec.unwrap_or_default();
    let seconds = spec.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok());
    ObservedLease {
        record: Record {
            holder: spec.holder_identity.filter(|holder| !holder.is_empty()),
            lease: seconds.filter(|seconds| *seconds > 0).map(Duration::from_secs),
            acquired: spec.acquire_time.map(|time| time.0),
            renewed: spec.renew_time.map(|time| time.0),
            transitions: spec.lease_transitions.unwrap_or(0),
        },
        version: lease.metadata.resource_version.unwrap_or_default(),
    }
}

fn spec(record: &Record) -> LeaseSpec {
    LeaseSpec {
        holder_identity: Some(record.holder.clone().unwrap_or_default()),
        lease_duration_seconds: record.lease.and_then(|lease| i32::try_from(lease.as_secs()).ok()),
        acquire_time: record.acquired.map(MicroTime),
        renew_time: record.renewed.map(MicroTime),
        lease_transitions: Some(record.transitions),
        ..LeaseSpec::default()
    }
}
