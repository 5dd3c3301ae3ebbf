//! Events that cannot be posted are lost and never waited for.

use super::fake::{Answer, Fake, Health};
use super::lines::Lines;
use super::wire::within;
use host_kit::clock::ManualClock;
use host_kit::events::{Events, Note, Posts, Recorder, Severity, record};
use host_kit::metrics::{BuildInfo, MetricsBuilder, Page};
use host_kit::shutdown::{self, Trigger};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinHandle;

fn note(reason: &'static str) -> Note {
    let regarding = ObjectReference {
        kind: Some("Node".to_owned()),
        name: Some("a".to_owned()),
        ..ObjectReference::default()
    };
    Note { regarding, severity: Severity::Normal, reason, action: "Cap", text: "300 W".to_owned() }
}

struct Posting {
    fake: Fake,
    clock: ManualClock,
    recorder: Recorder,
    page: Page,
    trigger: Trigger,
    ended: JoinHandle<()>,
}

fn start() -> Posting {
    let (fake, clock) = (Fake::new(), ManualClock::at(Timestamp::UNIX_EPOCH));
    let mut metrics = MetricsBuilder::of(&BuildInfo { component: "test", version: "0", revision: "0" });
    let posts = Posts::register(metrics.registry());
    let (trigger, stop) = shutdown::pair();
    let events = Events::of("joulie.io/test", "test-0");
    let (recorder, follow) = record(&fake.client(), events, &posts, Arc::new(clock.clone()), stop);
    Posting { fake, clock, recorder, page: metrics.page(), trigger, ended: tokio::spawn(follow) }
}

impl Posting {
    async fn asks(&self, requests: usize) {
        within(async {
            while self.fake.asked("/apis/events.k8s.io/v1/namespaces/default/events") < requests {
                tokio::task::yield_now().await;
            }
        })
        .await;
    }
}

#[tokio::test]
async fn what_is_said_again_is_one_event_that_is_counted() {
    let posting = start();
    posting.fake.state().lists.push_back(Answer::Whole(json!({"metadata": {}})));
    posting.recorder.say(note("CapApplied"));
    posting.recorder.say(note("CapApplied"));
    posting.asks(2).await;
    assert_eq!((posting.fake.asked("POST "), posting.fake.asked("PATCH ")), (1, 1));
}

#[tokio::test]
async fn an_event_that_could_not_be_posted_is_lost_and_made_anew_when_its_trouble_goes_on() {
    let (lines, _guard) = Lines::catch();
    let posting = start();
    posting.fake.state().health = Health::Failing;
    posting.recorder.say(note("CapApplied"));
    lines.wait_for(&["WARN", "an Event could not be posted and is lost", "as told"]).await;
    posting.fake.state().health = Health::Well;
    posting.clock.advance(Duration::from_secs(30));
    posting.fake.state().lists.push_back(Answer::Whole(json!({"metadata": {}})));
    posting.recorder.say(note("CapApplied"));
    posting.asks(2).await;
    assert_eq!((posting.fake.asked("POST "), posting.fake.asked("PATCH ")), (2, 0));
}

#[tokio::test]
async fn nobody_waits_for_a_server_that_hangs_and_neither_does_the_end() {
    let posting = start();
    posting.fake.state().health = Health::Hanging;
    for _ in 0..1000 {
        posting.recorder.say(note("CapLost"));
    }
    let lost = |page: &str| {
        let line = page.lines().find_map(|line| line.strip_prefix("joulie_events_lost_total "));
        line.map_or(0, |count| count.parse::<u32>().unwrap())
    };
    assert!(lost(&posting.page.render().unwrap()) > 700, "the queue is short");
    posting.asks(1).await;
    posting.trigger.request("the test");
    let at_once = tokio::time::timeout(Duration::from_secs(5), posting.ended).await;
    assert!(at_once.is_ok(), "a request may take ten seconds");
}
