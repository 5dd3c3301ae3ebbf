//! Who may read the metrics, with every word of the API server given by the test.

use crate::fake::{Answer, Fake};
use bytes::Bytes;
use host_kit::clock::{HostClock, ManualClock};
use host_kit::config::LiveConfig;
use host_kit::health::Health;
use host_kit::metrics::{BuildInfo, MetricsBuilder};
use host_kit::ops::Ops;
use host_kit::server::{Debug, Guard, MetricsAuth, Routes, Scrapers, ServerMetrics};
use http::{Request, header};
use http_body_util::BodyExt;
use jiff::Timestamp;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

struct Door {
    api: Fake,
    clock: ManualClock,
    ops: Ops,
}

impl Door {
    fn new() -> Self {
        let (api, clock) = (Fake::new(), ManualClock::at(Timestamp::UNIX_EPOCH));
        let mut metrics = MetricsBuilder::of(&BuildInfo { component: "test", version: "0", revision: "0" });
        let servers = ServerMetrics::register(metrics.registry());
        let shared: Arc<dyn HostClock> = Arc::new(clock.clone());
        let scrapers = Scrapers::new(MetricsAuth::Token, &api.client(), &shared, &servers);
        let debug = Debug::new(Guard::new(None), LiveConfig::fixed(String::new()), None);
        let ops = Ops::new(metrics.page(), Health::new(shared), debug).for_scrapers(scrapers);
        Self { api, clock, ops }
    }

    /// What the API server says to the next questions.
    fn says(&self, answers: impl IntoIterator<Item = Value>) {
        self.api.state().lists.extend(answers.into_iter().map(Answer::Whole));
    }

    async fn get(&self, path: &str, authorization: Option<&str>) -> (u16, String) {
        let mut request = Request::get(path);
        if let Some(value) = authorization {
            request = request.header(header::AUTHORIZATION, value);
        }
        let answer = self.ops.answer(request.body(Bytes::new()).unwrap(), ([10, 0, 0, 1], 1).into()).await;
        let (head, body) = answer.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        (head.status.as_u16(), String::from_utf8_lossy(&body).into_owned())
    }

    async fn scrape(&self, token: &str) -> u16 {
        self.get("/metrics", Some(&format!("Bearer {token}"))).await.0
    }

    fn reviews(&self) -> usize {
        self.api.asked("/tokenreviews")
    }
}

fn token(status: &Value) -> Value {
    json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {}, "status": status})
}

fn prometheus() -> Value {
    token(&json!({"authenticated": true, "user": {"username": "system:serviceaccount:monitoring:prometheus",
        "groups": ["system:serviceaccounts"]}}))
}

fn right(status: &Value) -> Value {
    json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": {}, "status": status})
}

#[tokio::test(start_paused = true)]
async fn the_metrics_are_shown_to_whom_the_api_server_allows_and_probes_need_nothing() {
    let door = Door::new();
    for (shown, why) in
        [(None, "show a token"), (Some("Basic YTpi"), "show a token"), (Some("Bearer "), "show")]
    {
        let (status, said) = door.get("/metrics", shown).await;
        assert_eq!(status, 401, "{shown:?}");
        assert!(said.contains(why), "{said}");
    }
    assert_eq!(door.reviews(), 0);
    for path in ["/livez", "/readyz"] {
        assert_eq!(door.get(path, None).await.0, 200, "{path}");
    }

    for (what, answers, status) in [
        ("unknown", vec![token(&json!({"authenticated": false, "error": "expired"}))], 401),
        // A user without a name would be reviewed as nobody in particular.
        ("nameless", vec![token(&json!({"authenticated": true, "user": {"username": ""}}))], 401),
        ("no-status", vec![token(&Value::Null)], 401),
        ("no-right", vec![prometheus(), right(&json!({"allowed": false}))], 403),
        ("denied", vec![prometheus(), right(&json!({"allowed": true, "denied": true}))], 403),
        ("allowed", vec![prometheus(), right(&json!({"allowed": true}))], 200),
    ] {
        door.says(answers);
        assert_eq!(door.scrape(what).await, status, "{what}");
    }
    let page = door.get("/metrics", Some("Bearer allowed")).await.1;
    for (reason, times) in [("no_token", 3), ("unknown_token", 3), ("no_right", 2), ("not_reviewed", 0)] {
        let line = format!("joulie_http_refused_total{{port=\"metrics\",reason=\"{reason}\"}} {times}");
        assert!(page.contains(&line), "{line}:\n{page}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_said_holds_for_a_while_and_an_outage_takes_metrics_from_nobody_who_had_them() {
    let door = Door::new();
    door.says([prometheus(), right(&json!({"allowed": true})), token(&json!({"authenticated": false}))]);
    assert_eq!((door.scrape("good").await, door.scrape("bad").await), (200, 401));
    assert_eq!((door.scrape("good").await, door.scrape("bad").await), (200, 401));
    assert_eq!(door.reviews(), 2, "asked once for each");

    // Whoever is refused is asked about again soon, for example when a right was given.
    door.clock.advance(Duration::from_secs(11));
    door.says([prometheus(), right(&json!({"allowed": true}))]);
    assert_eq!(door.scrape("bad").await, 200);
    // A right that was taken away is noticed within a minute.
    door.clock.advance(Duration::from_secs(60));
    door.says([prometheus(), right(&json!({"allowed": false}))]);
    assert_eq!(door.scrape("bad").await, 403);

    door.api.state().lists.clear();
    door.api.state().health = crate::fake::Health::Failing;
    assert_eq!(door.scrape("good").await, 200, "allowed before the outage");
    assert_eq!(door.scrape("new").await, 503);
    door.clock.advance(Duration::from_secs(11));
    assert_eq!(door.scrape("bad").await, 503, "refused before it");
    door.clock.advance(Duration::from_secs(3600));
    assert_eq!(door.scrape("good").await, 503, "an hour is long enough");
}

#[tokio::test(start_paused = true)]
async fn whoever_tries_tokens_neither_fills_the_memory_nor_displaces_a_good_one() {
    let door = Door::new();
    door.says([prometheus(), right(&json!({"allowed": true}))]);
    assert_eq!(door.scrape("good").await, 200);
    // Their names fall, so that the oldest is not the first by name.
    for guess in (100..300).rev() {
        door.clock.advance(Duration::from_millis(1));
        door.says([token(&json!({"authenticated": false}))]);
        assert_eq!(door.scrape(&format!("guess-{guess}")).await, 401);
    }
    let before = door.reviews();
    assert_eq!(door.scrape("good").await, 200);
    assert_eq!(door.reviews(), before, "still known");
    // The oldest guesses are forgotten, the newest are not.
    assert_eq!(door.scrape("guess-100").await, 401);
    assert_eq!(door.reviews(), before);
    door.says([token(&json!({"authenticated": false}))]);
    assert_eq!(door.scrape("guess-299").await, 401);
    assert_eq!(door.reviews(), before + 1);
}

/// Of several that are reviewed at once, so many wait for the API server, and no more.
#[tokio::test(start_paused = true)]
async fn reviews_at_once_are_few_and_none_waits_for_ever() {
    let door = Door::new();
    door.api.state().health = crate::fake::Health::Hanging;
    let all = futures::future::join_all((0..5).map(|guess| {
        let door = &door;
        async move { door.scrape(&format!("guess-{guess}")).await }
    }));
    assert_eq!(all.await, vec![503; 5]);
    assert_eq!(door.reviews(), 2);
}

/// A right that was taken away ends in time whatever others try, and a token that was allowed goes on.
#[tokio::test(start_paused = true)]
async fn who_tries_tokens_prolongs_no_right_and_ends_none() {
    let door = Door::new();
    door.says([prometheus(), right(&json!({"allowed": true}))]);
    assert_eq!(door.scrape("good").await, 200);
    door.clock.advance(Duration::from_secs(61));
    // Both places are taken by tokens whose review hangs: no answer is there for them.
    let tried = futures::future::join(door.scrape("guess-1"), door.scrape("guess-2"));
    let good = async {
        tokio::time::sleep(Duration::from_millis(10)).await;
        door.says([prometheus(), right(&json!({"allowed": false}))]);
        door.scrape("good").await
    };
    let ((one, other), good) = futures::future::join(tried, good).await;
    assert_eq!((one, other, good), (503, 503, 403));
}
