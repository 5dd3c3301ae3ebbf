//! Elections: won, lost and released, and what is logged.

use super::fake::{Fake, Health};
use super::lines::Lines;
use super::reflect::Virtual;
use super::wire::within;
use host_kit::clock::{HostClock, ManualClock, SystemClock};
use host_kit::leader::{Candidate, Elections, Leadership, LeaseName, Term, elect};
use host_kit::metrics::{BuildInfo, MetricsBuilder, Page};
use host_kit::shutdown::{self, Trigger};
use jiff::Timestamp;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinHandle;

struct Replica {
    leadership: Leadership,
    trigger: Trigger,
    clock: Arc<dyn HostClock>,
    page: Page,
    ended: JoinHandle<()>,
}

impl Replica {
    /// A lease of two seconds, renewed within one.
    fn start(fake: &Fake, name: &str) -> Self {
        Self::start_by(Arc::new(SystemClock::new()), fake, name)
    }

    fn start_by(clock: Arc<dyn HostClock>, fake: &Fake, name: &str) -> Self {
        Self::start_with([2000, 1000, 100], clock, fake, name)
    }

    /// Lease, renewal and retry in milliseconds.
    fn start_with(times: [u64; 3], clock: Arc<dyn HostClock>, fake: &Fake, name: &str) -> Self {
        let mut metrics = MetricsBuilder::of(&BuildInfo { component: "test", version: "0", revision: "0" });
        let elections = Elections::register(metrics.registry());
        let times = times.map(Duration::from_millis);
        let candidate = Candidate::new(name, times[0], times[1], times[2]).unwrap();
        let lease = LeaseName { namespace: "joulie".to_owned(), name: "joulie-operator".to_owned() };
        let (trigger, stop) = shutdown::pair();
        let (leadership, election) = elect(&fake.client(), lease, candidate, elections, clock.clone(), stop);
        Self { leadership, trigger, clock, page: metrics.page(), ended: tokio::spawn(election) }
    }

    fn term(&self) -> Option<Term> {
        self.leadership.term(self.clock.mono())
    }

    async fn leads(&mut self, leads: bool) {
        while self.term().is_some() != leads {
            within(self.leadership.changed()).await;
        }
    }

    fn has(&self, line: &str) -> bool {
        self.page.render().unwrap().lines().any(|one| one == line)
    }
}

#[tokio::test]
async fn one_leads_the_other_stands_by_and_follows_at_once_when_the_lease_is_released() {
    let (lines, _guard) = Lines::catch();
    let fake = Fake::new();
    let mut first = Replica::start(&fake, "operator-a");
    first.leads(true).await;
    let mut second = Replica::start(&fake, "operator-b");
    lines.wait_for(&["lease joulie-operator: operator-a leads; standing by for at least 2s"]).await;
    assert_eq!((first.term(), second.term()), (Some(Term(0)), None));
    assert!(first.has("joulie_leader 1") && second.has("joulie_leader 0"));

    first.trigger.request("the test");
    within(first.ended).await.unwrap();
    lines.wait_for(&["INFO", "lease joulie-operator: released"]).await;
    assert_eq!(first.leadership.term(first.clock.mono()), None);
    second.leads(true).await;
    assert_eq!(second.term(), Some(Term(1)));
    assert_eq!(lines.with(&["leads from now on"]).len(), 2);
    assert_eq!(lines.with(&["lost"]), [""; 0], "a release is no loss");
}

#[tokio::test(start_paused = true)]
async fn whoever_follows_a_leader_that_was_killed_is_late_by_when_it_saw_the_last_renewal_and_nothing_else() {
    for tenths in 0..40 {
        let (fake, clock) = (Fake::new(), Arc::new(Virtual(tokio::time::Instant::now())));
        let start = |name| Replica::start_with([10_000, 7_000, 2_000], clock.clone(), &fake, name);
        let mut first = start("operator-a");
        first.leads(true).await;
        let second = start("operator-b");
        tokio::time::sleep(Duration::from_millis(30_000 + tenths * 100)).await;
        assert!(first.term().is_some() && second.term().is_none());
        first.ended.abort();
        let killed = clock.mono();
        while second.term().is_none() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        // It reads every 2.0 to 2.4 s, and its own clock counts the 10 s of the lease from there.
        let late = clock.mono().since(killed);
        assert!(late <= Duration::from_millis(12_401), "{late:?}");
        second.ended.abort();
    }
}

#[tokio::test]
async fn a_leader_that_cannot_renew_stops_and_says_so_and_leads_again_when_it_can() {
    let (lines, _guard) = Lines::catch();
    let fake = Fake::new();
    let mut replica = Replica::start(&fake, "operator-a");
    replica.leads(true).await;
    fake.state().health = Health::Failing;
    replica.leads(false).await;
    lines.wait_for(&["WARN", "lease joulie-operator: not renewed", "as told", "we lead for another"]).await;
    let line =
        lines.wait_for(&["ERROR", "lease joulie-operator: lost: it could not be renewed for 1s"]).await;
    assert!(
        line.contains("operator-a does not lead any more and must not act; another replica may"),
        "{line}"
    );
    assert!(replica.has("joulie_leader_elections_lost_total 1") && replica.has("joulie_leader 0"));
    fake.state().health = Health::Well;
    replica.leads(true).await;
    assert!(replica.has("joulie_leader_elections_won_total 2"));
}

#[tokio::test]
async fn a_server_that_hangs_does_not_make_a_leader_for_ever() {
    let (lines, _guard) = Lines::catch();
    let fake = Fake::new();
    let mut replica = Replica::start(&fake, "operator-a");
    replica.leads(true).await;
    fake.state().health = Health::Hanging;
    replica.leads(false).await;
    lines.wait_for(&["WARN", "no answer in 500ms"]).await;
    lines.wait_for(&["ERROR", "lost: it could not be renewed for 1s"]).await;
    replica.trigger.request("the test");
    within(replica.ended).await.unwrap();
}

#[tokio::test]
async fn a_lease_that_somebody_else_takes_is_lost_at_once() {
    let (lines, _guard) = Lines::catch();
    let fake = Fake::new();
    let mut replica = Replica::start(&fake, "operator-a");
    replica.leads(true).await;
    {
        let mut state = fake.state();
        let lease = state.lease.as_mut().unwrap();
        lease["spec"]["holderIdentity"] = "operator-z".into();
        lease["metadata"]["resourceVersion"] = "another".into();
    }
    replica.leads(false).await;
    lines.wait_for(&["ERROR", "lost: operator-z holds the lease"]).await;
}

#[tokio::test]
async fn what_others_put_on_the_lease_stays_there() {
    let fake = Fake::new();
    let mut replica = Replica::start(&fake, "operator-a");
    replica.leads(true).await;
    let owner = json!({"apiVersion": "v1", "kind": "ServiceAccount", "name": "operator", "uid": "u"});
    {
        let mut state = fake.state();
        let lease = state.lease.as_mut().unwrap();
        lease["metadata"]["resourceVersion"] = "another".into();
        lease["metadata"]["annotations"] = json!({"a": "b"});
        lease["metadata"]["ownerReferences"] = json!([owner]);
    }
    let before = fake.asked("PUT");
    within(async {
        while fake.asked("PUT") < before + 3 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
    let lease = fake.state().lease.clone().unwrap();
    assert_eq!(lease["metadata"]["annotations"], json!({"a": "b"}));
    assert_eq!(lease["metadata"]["ownerReferences"], json!([owner]));
}

#[tokio::test]
async fn a_malformed_lease_is_no_lease_to_lead_by_and_no_end_of_the_election() {
    let (lines, _guard) = Lines::catch();
    let fake = Fake::new();
    fake.state().lease =
        Some(json!({"metadata": {"resourceVersion": "1"}, "spec": {"renewTime": "yesterday"}}));
    let mut replica = Replica::start(&fake, "operator-a");
    lines.wait_for(&["WARN", "lease joulie-operator:", "we do not lead"]).await;
    assert_eq!(replica.term(), None);
    fake.state().lease = None;
    replica.leads(true).await;
}

#[tokio::test]
async fn a_renewal_that_comes_when_the_time_is_over_wakes_whoever_waits_to_lead_again() {
    let (lines, _guard) = Lines::catch();
    let (fake, clock) = (Fake::new(), ManualClock::at(Timestamp::UNIX_EPOCH));
    let mut replica = Replica::start_by(Arc::new(clock.clone()), &fake, "operator-a");
    replica.leads(true).await;
    // The process was suspended, and its next renewal succeeds all the same.
    clock.advance(Duration::from_secs(5));
    assert_eq!(replica.term(), None);
    replica.leads(true).await;
    lines.wait_for(&["ERROR", "lost: it could not be renewed for 1s"]).await;
    assert!(replica.has("joulie_leader_elections_won_total 2") && replica.has("joulie_leader 1"));
}

#[tokio::test]
async fn a_lease_that_is_deleted_does_not_make_two_leaders() {
    let (lines, _guard) = Lines::catch();
    let fake = Fake::new();
    let mut first = Replica::start(&fake, "operator-a");
    first.leads(true).await;
    // Its clock stands still, so it waits forever for a lease that it has seen.
    let second = Replica::start_by(Arc::new(ManualClock::at(Timestamp::UNIX_EPOCH)), &fake, "operator-b");
    lines.wait_for(&["operator-a leads; standing by"]).await;
    fake.state().health = Health::Failing;
    first.ended.abort();
    fake.state().lease = None;
    fake.state().health = Health::Well;
    let before = fake.asked("GET");
    within(async {
        while fake.asked("GET") < before + 3 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
    assert_eq!((second.term(), fake.asked("POST")), (None, 1), "the former leader may still act");
}
