//! Watches against a server that sends malformed data, loses its state, fails and ends.

use super::fake::{Answer, Fake};
use super::lines::Lines;
use super::wire::{LONG, within};
use host_kit::clock::{HostClock, Mono, SystemClock};
use host_kit::metrics::{BuildInfo, MetricsBuilder, Page};
use host_kit::reflect::{
    Feed, HEARD_WITHIN, ObjectKey, ReflectEvent, Reflections, Row, Rows, WatchSource, follow, reflect,
    reflect_within,
};
use host_kit::shutdown::{self, Trigger};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

#[derive(Debug)]
struct Twin {
    watts: u64,
}

impl Row for Twin {
    const KIND: &'static str = "nodetwins";
    const OWNERS: bool = false;

    fn read(object: &Value) -> Result<Self, String> {
        let watts = &object["spec"]["watts"];
        watts.as_u64().map(|watts| Self { watts }).ok_or_else(|| format!("spec.watts is {watts}"))
    }
}

struct Watcher {
    rows: Rows<Twin>,
    page: Page,
    _trigger: Trigger,
}

fn start(fake: &Fake) -> Watcher {
    let mut metrics = MetricsBuilder::of(&BuildInfo { component: "test", version: "0", revision: "0" });
    let reflections = Reflections::register(metrics.registry());
    let (trigger, stop) = shutdown::pair();
    let source =
        WatchSource { path: "/apis/joulie.io/v1alpha1/nodetwins".to_owned(), labels: None, fields: None };
    let (rows, follow) = reflect(&fake.client(), source, &reflections, Arc::new(SystemClock::new()), stop);
    tokio::spawn(follow);
    Watcher { rows, page: metrics.page(), _trigger: trigger }
}

impl Watcher {
    /// Waits until the rows are these.
    async fn shows(&mut self, wanted: &[(&str, u64)]) {
        let seen = |rows: &Rows<Twin>| -> Vec<(String, u64)> {
            rows.with(|rows| rows.iter().map(|(key, held)| (key.to_string(), held.row.watts)).collect())
        };
        let wanted: Vec<(String, u64)> =
            wanted.iter().map(|(name, watts)| ((*name).to_owned(), *watts)).collect();
        while !self.rows.is_synced() || seen(&self.rows) != wanted {
            let changed = tokio::time::timeout(LONG, self.rows.changed()).await;
            assert!(changed.is_ok_and(|alive| alive), "{:?} and not {wanted:?}", seen(&self.rows));
        }
    }

    fn count(&self, name: &str) -> f64 {
        let page = self.page.render().unwrap();
        let series = format!("joulie_reflector_{name}{{kind=\"nodetwins\"}} ");
        page.lines().find_map(|line| line.strip_prefix(&series)).unwrap_or("0").parse().unwrap()
    }
}

fn twin(name: &str, version: &str, watts: impl Into<Value>) -> Value {
    json!({
        "metadata": {"name": name, "uid": format!("uid of {name}"), "resourceVersion": version},
        "spec": {"watts": watts.into()},
    })
}

fn list(version: &str, items: &[Value]) -> Answer {
    Answer::Whole(json!({"metadata": {"resourceVersion": version}, "items": items}))
}

fn event(kind: &str, object: &Value) -> String {
    json!({"type": kind, "object": object}).to_string()
}

#[tokio::test]
async fn malformed_objects_are_counted_named_and_skipped_and_the_watch_goes_on() {
    let (lines, _guard) = Lines::catch();
    let fake = Fake::new();
    let items =
        [twin("a", "1", 100), twin("b", "2", "lots"), json!(null), json!({"metadata": {"labels": 7}})];
    fake.state().lists.push_back(list("3", &items));
    let watch = fake.watch();
    let mut watcher = start(&fake);
    watcher.shows(&[("a", 100)]).await;
    lines.wait_for(&["WARN", "nodetwins b is malformed: spec.watts is \"lots\"; it is skipped"]).await;
    assert_eq!(watcher.count("malformed_total"), 3.0);

    for line in [
        event("MODIFIED", &twin("a", "4", json!({"deep": [1, 2]}))),
        "this is no event".to_owned(),
        event("ADDED", &json!("neither is this")),
        event("SURPRISE", &twin("x", "5", 1)),
        event("ADDED", &twin("c", "6", 300)),
    ] {
        watch.send(line).unwrap();
    }
    watcher.shows(&[("a", 100), ("c", 300)]).await;
    lines.wait_for(&["nodetwins a is malformed: spec.watts is {\"deep\":[1,2]}; its last good row stays, marked as stale"]).await;
    assert!(watcher.rows.get(&ObjectKey::cluster("a")).unwrap().stale_since.is_some());
    assert!(watcher.rows.malformed().contains_key(&ObjectKey::cluster("b")));
    watch.send(event("MODIFIED", &twin("a", "7", 110))).unwrap();
    watch.send(event("DELETED", &twin("c", "8", "gone, and malformed"))).unwrap();
    watcher.shows(&[("a", 110)]).await;
    assert!(watcher.rows.get(&ObjectKey::cluster("a")).unwrap().stale_since.is_none());
    assert_eq!(watcher.count("malformed_total"), 7.0);
    assert_eq!(
        (fake.asked("watch=true"), watcher.count("failures_total")),
        (1, 0.0),
        "it is still the first watch"
    );
    assert_eq!(watcher.count("objects"), 1.0);
}

/// The next event as a text.
async fn next(feed: &mut Feed<Twin>) -> String {
    let event = tokio::time::timeout(LONG, feed.next()).await.unwrap().unwrap();
    match event {
        ReflectEvent::Begin => "begin".to_owned(),
        ReflectEvent::Seen { uid, row } => format!("{uid}: {}", row.watts),
        ReflectEvent::Gone { uid } => format!("{uid}: gone"),
        ReflectEvent::Whole => "whole".to_owned(),
    }
}

#[tokio::test]
async fn a_feed_tells_what_happened_in_order_and_keeps_nothing() {
    let fake = Fake::new();
    fake.state()
        .lists
        .push_back(list("3", &[twin("a", "1", 100), twin("b", "2", "lots"), twin("c", "3", 300)]));
    let watch = fake.watch();
    let mut metrics = MetricsBuilder::of(&BuildInfo { component: "test", version: "0", revision: "0" });
    let reflections = Reflections::register(metrics.registry());
    let (_trigger, stop) = shutdown::pair();
    let source =
        WatchSource { path: "/apis/joulie.io/v1alpha1/nodetwins".to_owned(), labels: None, fields: None };
    let (mut feed, run) = follow(&fake.client(), source, &reflections, Arc::new(SystemClock::new()), stop);
    tokio::spawn(run);
    for expected in ["begin", "uid of a: 100", "uid of c: 300", "whole"] {
        assert_eq!(feed.version(), None, "a list is in the order of names");
        assert_eq!(next(&mut feed).await, expected);
    }
    assert_eq!(feed.version(), Some(3));
    watch.send(event("MODIFIED", &twin("a", "4", 110))).unwrap();
    // A deleted object may be malformed: only its UID counts.
    watch.send(event("DELETED", &twin("c", "5", "gone"))).unwrap();
    for expected in ["uid of a: 110", "uid of c: gone"] {
        assert_eq!(next(&mut feed).await, expected);
    }
    assert!(feed.is_synced() && feed.ready().is_none());
    assert_eq!(feed.version(), Some(5));
    // More events than the feed holds: the watch waits for the reader, and nothing is lost.
    for version in 10..3_010_u64 {
        watch.send(event("MODIFIED", &twin("a", &version.to_string(), version))).unwrap();
    }
    for version in 10..3_010_u64 {
        assert_eq!(next(&mut feed).await, format!("uid of a: {version}"));
    }
}

#[tokio::test]
async fn a_server_that_has_forgotten_makes_us_read_everything_again() {
    let (lines, _guard) = Lines::catch();
    let fake = Fake::new();
    fake.state().lists.push_back(list("1", &[twin("a", "1", 100), twin("b", "1", 200)]));
    let watch = fake.watch();
    let mut watcher = start(&fake);
    watcher.shows(&[("a", 100), ("b", 200)]).await;
    // The next watch is refused at its start, as when the store was compacted in between.
    fake.state().lists.push_back(list("50", &[twin("b", "40", 210)]));
    fake.state().watches.push_back(Answer::Status(410));
    fake.state().lists.push_back(list("60", &[twin("b", "60", 220)]));
    let _last = fake.watch();
    watch
        .send(
            json!({"type": "ERROR", "object": {"kind": "Status", "code": 410, "message": "too old"}})
                .to_string(),
        )
        .unwrap();
    watcher.shows(&[("b", 220)]).await;
    lines
        .wait_for(&["WARN", "nodetwins: the server has forgotten where we were; everything is read again"])
        .await;
    assert_eq!((watcher.count("lists_total"), watcher.count("failures_total")), (3.0, 2.0));
    assert_eq!(fake.asked("resourceVersion=50"), 1, "from where the list ended");
}

#[tokio::test]
async fn a_server_that_lost_what_it_told_us_makes_us_read_everything_again() {
    let (lines, _guard) = Lines::catch();
    let fake = Fake::new();
    // The server was restored from an older copy, and has not reached our version yet.
    fake.state().lists.push_back(list("900", &[twin("a", "900", 100)]));
    let first = fake.watch();
    let mut watcher = start(&fake);
    watcher.shows(&[("a", 100)]).await;
    let ahead = "Timeout: Too large resource version: 900, current: 7";
    fake.state().watches.push_back(Answer::Told(504, ahead));
    fake.state().lists.push_back(list("7", &[twin("b", "7", 200)]));
    let second = fake.watch();
    drop(first);
    watcher.shows(&[("b", 200)]).await;
    lines.wait_for(&["WARN", "nodetwins: 504 Timeout: Too large resource version: 900, current: 7"]).await;

    // Once more, but this server does not report it: its versions go back.
    fake.state().lists.push_back(list("5", &[twin("c", "5", 300)]));
    let _third = fake.watch();
    second.send(event("BOOKMARK", &json!({"apiVersion": "joulie.io/v1alpha1", "kind": "NodeTwin", "metadata": {"resourceVersion": "4"}}))).unwrap();
    watcher.shows(&[("c", 300)]).await;
    lines.wait_for(&["WARN", "the server went back from version 7 to 4"]).await;
    assert_eq!(watcher.count("lists_total"), 3.0);
}

#[tokio::test]
async fn a_server_that_is_busy_is_asked_again_from_where_we_were() {
    let fake = Fake::new();
    fake.state().lists.push_back(list("3", &[twin("a", "3", 100)]));
    fake.state().watches.extend([Answer::Status(429), Answer::Status(503)]);
    let watch = fake.watch();
    let mut watcher = start(&fake);
    watcher.shows(&[("a", 100)]).await;
    watch.send(event("MODIFIED", &twin("a", "4", 110))).unwrap();
    watcher.shows(&[("a", 110)]).await;
    assert_eq!((watcher.count("lists_total"), fake.asked("resourceVersion=3")), (1.0, 3));
}

#[tokio::test]
async fn a_watch_that_ends_goes_on_from_where_it_was_and_a_bookmark_counts() {
    let fake = Fake::new();
    fake.state().lists.push_back(list("1", &[]));
    let (first, second) = (fake.watch(), fake.watch());
    let mut watcher = start(&fake);
    watcher.shows(&[]).await;
    first.send(event("ADDED", &twin("a", "5", 100))).unwrap();
    first.send(event("BOOKMARK", &json!({"apiVersion": "joulie.io/v1alpha1", "kind": "NodeTwin", "metadata": {"resourceVersion": "9"}}))).unwrap();
    watcher.shows(&[("a", 100)]).await;
    drop(first);
    second.send(event("MODIFIED", &twin("a", "10", 120))).unwrap();
    watcher.shows(&[("a", 120)]).await;
    assert_eq!((fake.asked("resourceVersion=9"), watcher.count("lists_total")), (1, 1.0));
}

#[tokio::test]
async fn a_server_that_ends_every_watch_at_once_is_not_hammered() {
    let (lines, _guard) = Lines::catch();
    let fake = Fake::new();
    fake.state().lists.push_back(list("1", &[]));
    for _ in 0..1000 {
        drop(fake.watch());
    }
    let mut watcher = start(&fake);
    watcher.shows(&[]).await;
    lines.wait_for(&["WARN", "nodetwins: the watch ended at once; again in"]).await;
    tokio::time::sleep(Duration::from_millis(1500)).await;
    assert!(fake.asked("watch=true") <= 4, "{}", fake.asked("watch=true"));
}

#[tokio::test]
async fn an_outage_is_said_and_survived_and_pages_are_put_together() {
    let (lines, _guard) = Lines::catch();
    let fake = Fake::new();
    fake.state().lists.push_back(Answer::Status(503));
    let first = json!({"metadata": {"continue": "token"}, "items": [twin("a", "1", 100)]});
    fake.state().lists.push_back(Answer::Whole(first));
    fake.state().lists.push_back(list("7", &[twin("b", "2", 200)]));
    let _watch = fake.watch();
    let mut watcher = start(&fake);
    watcher.shows(&[("a", 100), ("b", 200)]).await;
    let line = lines.wait_for(&["WARN", "/apis/joulie.io/v1alpha1/nodetwins: 503 as told; again in"]).await;
    assert!(line.contains("kind=\"nodetwins\""), "{line}");
    assert_eq!((fake.asked("continue=token"), watcher.count("failures_total")), (1, 1.0));
    within(async {
        while fake.asked("watch=true") == 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_role_that_may_list_and_not_watch_is_named_counted_and_lists_ever_more_rarely() {
    let (lines, _guard) = Lines::catch();
    let fake = Fake::new();
    for version in 1..1000 {
        fake.state().lists.push_back(list(&version.to_string(), &[twin("a", "1", 100)]));
        let why = "nodetwins.joulie.io is forbidden: User \"joulie\" cannot watch resource \"nodetwins\"";
        fake.state().watches.push_back(Answer::Told(403, why));
    }
    let clock = Arc::new(Virtual(tokio::time::Instant::now()));
    let mut metrics = MetricsBuilder::of(&BuildInfo { component: "test", version: "0", revision: "0" });
    let reflections = Reflections::register(metrics.registry());
    let (trigger, stop) = shutdown::pair();
    let source =
        WatchSource { path: "/apis/joulie.io/v1alpha1/nodetwins".to_owned(), labels: None, fields: None };
    let (rows, follow) = reflect::<Twin>(&fake.client(), source, &reflections, clock.clone(), stop);
    let follow = tokio::spawn(follow);
    tokio::time::sleep(Duration::from_secs(600)).await;
    let watcher = Watcher { rows, page: metrics.page(), _trigger: trigger };
    // Half a second, doubled up to half a minute: six pauses in the first half minute, then one in at least thirty
    // seconds.
    let asked = fake.asked("watch=true");
    assert!((17..=26).contains(&asked), "{asked} watches in ten minutes");
    assert!(watcher.count("lists_total") <= 26.0, "{} lists", watcher.count("lists_total"));
    let page = watcher.page.render().unwrap();
    let forbidden = format!("joulie_reflector_forbidden_total{{kind=\"nodetwins\",verb=\"watch\"}} {asked}");
    assert!(page.contains(&forbidden), "{page}");
    let line = lines.wait_for(&["WARN", "lacks the verb \"watch\"", "cannot watch resource"]).await;
    assert!(line.contains("watching /apis/joulie.io/v1alpha1/nodetwins"), "{line}");
    // What the lists report is known, and is as old as the last of them.
    assert!(watcher.rows.silence(clock.mono()).unwrap() <= Duration::from_secs(37));
    follow.abort();
}

/// The runtime's own clock, which a test can advance.
pub(crate) struct Virtual(pub(crate) tokio::time::Instant);

impl HostClock for Virtual {
    fn mono(&self) -> Mono {
        Mono::at(self.0.elapsed())
    }

    fn wall(&self) -> jiff::Timestamp {
        jiff::Timestamp::UNIX_EPOCH + jiff::SignedDuration::try_from(self.0.elapsed()).unwrap()
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_answers_is_heard_in_time_though_its_watches_fall_silent_and_connections_are_dead() {
    for within in [HEARD_WITHIN, Duration::from_secs(40)] {
        let fake = Fake::new();
        fake.state().lists.push_back(list("1", &[twin("a", "1", 100)]));
        // Each watch that falls silent is first started again on another dead connection.
        let mut silent = Vec::new();
        for _ in 0..200 {
            silent.push(fake.watch());
            fake.state().watches.push_back(Answer::Never);
        }
        let clock = Arc::new(Virtual(tokio::time::Instant::now()));
        let mut metrics = MetricsBuilder::of(&BuildInfo { component: "test", version: "0", revision: "0" });
        let reflections = Reflections::register(metrics.registry());
        let (trigger, stop) = shutdown::pair();
        let path = "/apis/joulie.io/v1alpha1/nodetwins".to_owned();
        let source = WatchSource { path, labels: None, fields: None };
        let (rows, follow) =
            reflect_within::<Twin>(&fake.client(), source, within, &reflections, clock.clone(), stop);
        let follow = tokio::spawn(follow);
        let (page, mut longest) = (metrics.page(), Duration::ZERO);
        for _ in 0..1_200 {
            tokio::time::sleep(Duration::from_secs(1)).await;
            longest = longest.max(rows.silence(clock.mono()).unwrap());
        }
        let watcher = Watcher { rows, page, _trigger: trigger };
        assert!(longest < within, "{longest:?}");
        // Silence is not a failure, and what is known is not read again.
        let silences = watcher.count("silences_total");
        let tries = u32::try_from(fake.asked("watch=true")).unwrap();
        assert!(f64::from(tries) <= silences * 2.0 + 2.0 && silences > 10.0, "{silences} {tries}");
        assert_eq!(watcher.count("lists_total"), 1.0);
        follow.abort();
        drop(silent);
    }
}
