//! Events that cannot be posted are lost and never waited for.

use super::fake::{Fake, Health};
use super::lines::Lines;
use super::wire::within;
use host_kit::clock::SystemClock;
use host_kit::events::{Events, Note, Posts, Severity, record};
use host_kit::metrics::{Build, Metrics};
use host_kit::shutdown;
use k8s_openapi::api::core::v1::ObjectReference;
use std::sync::Arc;

fn note(reason: &'static str) -> Note {
    let regarding = ObjectReference {
        kind: Some("Node".to_owned()),
        name: Some("a".to_owned()),
        ..ObjectReference::default()
    };
    Note { regarding, severity: Severity::Normal, reason, action: "Cap", text: "300 W".to_owned() }
}

#[tokio::test]
async fn an_event_is_posted_counted_and_when_the_server_fails_lost() {
    let (lines, _guard) = Lines::catch();
    let fake = Fake::new();
    let mut metrics = Metrics::of(&Build { component: "test", version: "0", revision: "0" });
    let posts = Posts::register(metrics.registry());
    let page = metrics.page();
    let (_trigger, stop) = shutdown::pair();
    let events = Events::of("joulie.io/test", "test-0");
    let (recorder, follow) = record(&fake.client(), events, (&posts, Arc::new(SystemClock::new())), stop);
    tokio::spawn(follow);
    fake.state().health = Health::Failing;
    recorder.say(note("CapApplied"));
    recorder.say(note("CapApplied"));
    lines.wait_for(&["WARN", "an Event could not be posted and is lost", "as told"]).await;
    within(async {
        while fake.asked("/apis/events.k8s.io/v1/namespaces/default/events") < 2 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!((fake.asked("POST "), fake.asked("PATCH ")), (1, 1), "once said, then counted");
    fake.state().health = Health::Hanging;
    for _ in 0..1000 {
        recorder.say(note("CapLost"));
    }
    let lost = |page: &str| {
        let line = page.lines().find_map(|line| line.strip_prefix("joulie_events_lost_total "));
        line.map_or(0, |count| count.parse::<u32>().unwrap())
    };
    assert!(lost(&page.render().unwrap()) > 700, "the queue is short and nobody waits");
}
