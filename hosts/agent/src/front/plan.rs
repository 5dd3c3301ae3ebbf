//! When the operator last renewed its plan, for a node that is about to yield.
//!
//! The plan's Lease is read where a node asks, and not watched: in each of 10,000 agents a watch is 1,000 events a second, also
//! while nobody is short of watts. While a node goes on asking, the Lease is read every few seconds, and more and more rarely
//! where nobody renews it, up to once in 64 s. So nodes yield that much later after an operator has come back; what they miss it
//! gives back by itself. A request that is not answered is given up, so that it does not end the readings. With `LEASE_SOURCE=plan`
//! it is watched anyway, and that watch says it.

use super::rows::LeaseRow;
use super::watches::renewed;
use host_kit::clock::{HostClock, Mono};
use host_kit::reflect::{Row, Rows};
use host_kit::shutdown::Stop;
use joulie_api::labels;
use joulie_core::placement::freshness::UnixTime;
use kube::Client;
use kube::api::GetParams;
use kube::core::Request;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, watch};

/// Asks for a reading.
#[derive(Clone, Debug, Default)]
pub(crate) struct PlanAsk(Arc<Notify>);

impl PlanAsk {
    /// Asks for one. Nodes that ask while it is under way have the next one together.
    pub(crate) fn ask(&self) {
        self.0.notify_one();
    }
}

/// What the Lease said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PlanSeen {
    /// When the operator last renewed it, by its own clock. It is compared only with others.
    pub(crate) renewed: UnixTime,
    /// A moment at which it stood so; `None` where a watch keeps it up to date.
    pub(crate) at: Option<Mono>,
}

/// Where it is known from.
#[derive(Clone)]
pub(crate) enum Plan {
    Watched(Rows<LeaseRow>),
    Read(watch::Receiver<Option<PlanSeen>>),
}

impl Plan {
    pub(crate) fn seen(&self) -> Option<PlanSeen> {
        match self {
            Self::Watched(rows) => renewed(rows).map(|renewed| PlanSeen { renewed, at: None }),
            Self::Read(seen) => *seen.borrow(),
        }
    }

    /// Waits for the next change; returns false once the watch has ended.
    pub(crate) async fn changed(&mut self) -> bool {
        match self {
            Self::Watched(rows) => rows.changed().await,
            Self::Read(seen) => match seen.changed().await {
                Ok(()) => true,
                // The task that reads it ends with the program.
                Err(_) => std::future::pending().await,
            },
        }
    }
}

/// Two readings are so far apart while the Lease is renewed: a few of them show a renewal, which comes each 30 s at most.
const AGAIN: Duration = Duration::from_secs(4);
/// So many times the same may be read before the pauses grow, at most to the sixteenfold.
const SAME: u32 = 8;
const DOUBLED_MOST: u32 = 4;
/// The readings of many agents are spread over so long.
const SPREAD_MS: u64 = 1_000;
/// As long as a write may take. The client alone would wait for minutes.
const ANSWERED_WITHIN: Duration = Duration::from_secs(10);

/// How long to wait after the last reading, when so many in a row have shown no renewal.
fn pause(same: u32) -> Duration {
    AGAIN.saturating_mul(1 << same.saturating_sub(SAME).min(DOUBLED_MOST))
}

/// Reads the Lease.
pub(crate) struct PlanReader {
    pub(crate) client: Client,
    /// The path of the Leases in the namespace of the operator.
    pub(crate) leases: String,
    pub(crate) ask: PlanAsk,
    pub(crate) clock: Arc<dyn HostClock>,
    pub(crate) stop: Stop,
}

impl PlanReader {
    /// Reads it whenever somebody asks, until a stop is requested.
    pub(crate) async fn run(self, seen: watch::Sender<Option<PlanSeen>>) {
        let mut same = 0_u32;
        loop {
            tokio::select! {
                biased;
                () = self.ask.0.notified() => {}
                () = self.stop.requested() => return,
            }
            let spread = Duration::from_millis(self.clock.chance() % SPREAD_MS);
            if self.stop.requested_within(spread).await {
                return;
            }
            // Before the request: it stood so then, or changed later.
            let at = Some(self.clock.mono());
            let before = seen.borrow().map(|seen| seen.renewed);
            let now = tokio::select! {
                biased;
                () = self.stop.requested() => return,
                now = self.read() => now,
            };
            same = if now.is_some() && now != before { 0 } else { same.saturating_add(1) };
            if let Some(renewed) = now {
                seen.send_replace(Some(PlanSeen { renewed, at }));
            }
            if self.stop.requested_within(pause(same)).await {
                return;
            }
        }
    }

    async fn read(&self) -> Option<UnixTime> {
        let request = Request::new(&self.leases).get(labels::PLAN_LEASE, &GetParams::default());
        let answer = self.client.request::<serde_json::Value>(request.ok()?);
        let answer = tokio::time::timeout(ANSWERED_WITHIN, answer).await.inspect_err(|_| {
            tracing::debug!("the Lease {} cannot be read: no answer in time", labels::PLAN_LEASE);
        });
        let lease = answer.ok()?.inspect_err(|error| {
            tracing::debug!("the Lease {} cannot be read: {error}", labels::PLAN_LEASE);
        });
        let renewed = LeaseRow::read(&lease.ok()?).ok()?.renewed?;
        Some(UnixTime::from_micros(renewed.as_microsecond()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use embedded_api::{ApiOptions, EmbeddedApi};
    use host_kit::clock::ManualClock;
    use jiff::Timestamp;
    use k8s_openapi::api::coordination::v1::Lease;
    use kube::Api;
    use kube::api::{Patch, PatchParams};
    use serde_json::json;

    #[test]
    fn pauses_grow_only_where_nobody_renews_it() {
        let seconds: Vec<u64> = (0..14).map(|same| pause(same).as_secs()).collect();
        assert_eq!(seconds, [4, 4, 4, 4, 4, 4, 4, 4, 4, 8, 16, 32, 64, 64]);
        // 30 s between two renewals are shorter than the readings before the pauses grow.
        assert!(pause(0) * SAME > Duration::from_secs(30));
    }

    #[tokio::test(start_paused = true)]
    async fn the_lease_is_read_only_when_somebody_asks() {
        let api = EmbeddedApi::new(&ApiOptions::with(joulie_api::crd::all())).unwrap();
        let leases: Api<Lease> = Api::namespaced(api.client(), "default");
        let renew = async |second: u32| {
            let lease = json!({
                "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
                "metadata": {"name": labels::PLAN_LEASE},
                "spec": {"renewTime": format!("1970-01-01T00:00:{second:02}.000000Z")},
            });
            let params = PatchParams::apply("joulie-operator").force();
            leases.patch(labels::PLAN_LEASE, &params, &Patch::Apply(lease)).await.unwrap();
        };
        let (trigger, stop) = host_kit::shutdown::pair();
        let (sender, mut seen) = watch::channel(None);
        let ask = PlanAsk::default();
        let reader = PlanReader {
            client: api.client(),
            leases: "/apis/coordination.k8s.io/v1/namespaces/default/leases".to_owned(),
            ask: ask.clone(),
            clock: Arc::new(ManualClock::at(Timestamp::UNIX_EPOCH)),
            stop,
        };
        let task = tokio::spawn(reader.run(sender));
        let renewed = |seen: &watch::Receiver<Option<PlanSeen>>| seen.borrow().map(|seen| seen.renewed);
        let second = |second: i64| Some(UnixTime::from_micros(second * 1_000_000));
        renew(1).await;
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(renewed(&seen), None, "nobody asks");
        ask.ask();
        seen.changed().await.unwrap();
        assert_eq!(renewed(&seen), second(1));
        renew(2).await;
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(renewed(&seen), second(1), "nobody asks again");
        ask.ask();
        ask.ask();
        seen.changed().await.unwrap();
        assert_eq!(renewed(&seen), second(2));
        // A request that nobody answers for an hour is given up, and the next one is sent.
        renew(3).await;
        let within = Duration::from_secs(60);
        api.faults().latency(Duration::from_secs(3_600));
        ask.ask();
        tokio::time::sleep(within).await;
        assert_eq!(renewed(&seen), second(2));
        api.faults().latency(Duration::ZERO);
        ask.ask();
        tokio::time::timeout(within, seen.changed()).await.unwrap().unwrap();
        assert_eq!(renewed(&seen), second(3));
        // Nor does such a request hold up the end.
        api.faults().latency(Duration::from_secs(3_600));
        ask.ask();
        tokio::time::sleep(Duration::from_secs(6)).await;
        trigger.request("the test is over");
        tokio::time::timeout(Duration::from_secs(1), task).await.unwrap().unwrap();
    }
}
