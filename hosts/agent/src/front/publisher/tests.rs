use super::*;
use crate::front::outcome::Terms;
use crate::front::pace::Pace as PowerPace;
use crate::front::plan::PlanAsk;
use crate::front::publish::Writer;
use crate::metrics::Metrics;
use bytes::Bytes;
use host_kit::clock::HostClock;
use host_kit::events::{Events, Posts};
use host_kit::metrics::MetricsBuilder;
use http::{Method, Request, Response};
use http_body_util::Full;
use kube::client::Body;
use kube::core::Selector;
use planner::catalog::Catalog;
use serde_json::json;
use std::convert::Infallible;
use std::sync::{Mutex, MutexGuard};

/// The runtime's own clock, which a test can advance.
struct Virtual(tokio::time::Instant);

impl HostClock for Virtual {
    fn mono(&self) -> Mono {
        Mono::at(self.0.elapsed())
    }

    fn wall(&self) -> jiff::Timestamp {
        jiff::Timestamp::UNIX_EPOCH
    }
}

/// A server that has one NodeHardware.
#[derive(Default)]
struct Server {
    object: Option<Value>,
    versions: u64,
    /// Answers 500 to every request that creates an object.
    refuses: bool,
    makings: usize,
    writes: usize,
}

impl Server {
    fn answer(&mut self, method: &Method, path: &str, body: &[u8]) -> (u16, Value) {
        let told = |code: u16| {
            let reason = if code == 404 { "NotFound" } else { "InternalError" };
            (
                code,
                json!({"kind": "Status", "status": "Failure", "code": code, "message": "no", "reason": reason}),
            )
        };
        if *method == Method::GET {
            return self.object.clone().map_or_else(|| told(404), |object| (200, object));
        }
        let sent: Value = serde_json::from_slice(body).unwrap();
        self.versions += 1;
        let version = self.versions.to_string();
        if path.ends_with("/status") {
            self.writes += 1;
            let Some(object) = &mut self.object else { return told(404) };
            object["status"] = sent["status"].clone();
            object["metadata"]["resourceVersion"] = version.into();
            return (200, object.clone());
        }
        self.makings += 1;
        if self.refuses {
            return told(500);
        }
        let object = self.object.get_or_insert_with(|| {
            let mut made = sent.clone();
            made["metadata"]["uid"] = format!("uid-{version}").into();
            made["metadata"]["resourceVersion"] = version.into();
            made
        });
        (200, object.clone())
    }
}

struct Stage {
    server: Arc<Mutex<Server>>,
    docs: watch::Sender<Docs>,
    _publisher: tokio::task::JoinHandle<()>,
}

impl Stage {
    fn new() -> Self {
        let server = Arc::new(Mutex::new(Server::default()));
        let answers = server.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let answers = answers.clone();
            async move {
                let (head, body) = request.into_parts();
                let body = body.collect_bytes().await.unwrap();
                let (code, value) = answers.lock().unwrap().answer(&head.method, head.uri.path(), &body);
                let body = Full::new(Bytes::from(value.to_string()));
                Ok::<_, Infallible>(Response::builder().status(code).body(body).unwrap())
            }
        });
        let (metrics, client) = (Metrics::default(), kube::Client::new(service, "default"));
        let clock: Arc<dyn HostClock> = Arc::new(Virtual(tokio::time::Instant::now()));
        let posts = Posts::register(MetricsBuilder::of(&crate::BUILD).registry());
        let (_, stop) = host_kit::shutdown::pair();
        let (events, _) =
            host_kit::events::record(&client, Events::of("agent", "test"), &posts, clock.clone(), stop);
        let patience = Duration::from_secs(5);
        let shared = Shared {
            clock,
            selector: Selector::default(),
            terms: Terms { cpu: true, gpu: true, simulate_only: false, relax: false, patience },
            pace: PowerPace { interval: patience, heartbeat: None },
            catalog: Catalog::embedded().unwrap(),
            writer: Writer::new(client, metrics.clone()),
            metrics,
            events,
            plan: PlanAsk::default(),
            power_detail: crate::metrics::PowerDetail::default(),
        };
        let (docs, seen) = watch::channel(Docs::new());
        let publisher = Publisher::new("node-a", Arc::new(shared), seen);
        Self { server, docs, _publisher: tokio::spawn(publisher.run()) }
    }

    fn server(&self) -> MutexGuard<'_, Server> {
        self.server.lock().unwrap()
    }

    /// Makes the watch show the object as it is on the server. The content is always the same.
    fn watch_tells(&self) {
        let there = self.server().object.clone();
        let field = |of: &Value, name: &str| of["metadata"][name].as_str().unwrap().to_owned();
        let content = Content::Hardware {
            node: ("node-a".to_owned(), "1".to_owned()),
            status: Arc::new(json!({"power": {"cpuWatts": 200}})),
        };
        let doc = Doc {
            object: there.as_ref().map(|it| (field(it, "name"), field(it, "uid"))),
            seen: there.as_ref().map_or_else(Arc::default, |it| {
                Arc::new(Seen { version: field(it, "resourceVersion"), status: it["status"].clone() })
            }),
            content,
        };
        self.docs.send_replace(Docs::from([(Kind::Hardware, doc)]));
    }

    /// How often an object was created, and its status written.
    fn counts(&self) -> (usize, usize) {
        let server = self.server();
        (server.makings, server.writes)
    }

    fn is_written(&self) -> bool {
        let server = self.server();
        server.object.as_ref().is_some_and(|object| object["status"]["power"]["cpuWatts"] == 200)
    }
}

async fn pass(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

#[tokio::test(start_paused = true)]
async fn a_deleted_object_is_made_again_at_once_though_nothing_new_is_to_be_said() {
    let stage = Stage::new();
    stage.watch_tells();
    pass(1).await;
    assert!(stage.is_written());
    // The watch has shown the object, and nothing changes for an hour.
    stage.watch_tells();
    pass(3_600).await;
    assert_eq!(stage.counts(), (1, 1));
    stage.server().object = None;
    stage.watch_tells();
    pass(1).await;
    assert!(stage.is_written());
    // The object may also disappear before the watch has ever shown it.
    stage.server().object = None;
    pass(4).await;
    assert!(stage.is_written());
}

#[tokio::test(start_paused = true)]
async fn an_object_that_cannot_be_made_or_is_taken_away_each_time_is_not_fought_for() {
    let stage = Stage::new();
    stage.server().refuses = true;
    stage.watch_tells();
    pass(300).await;
    // After 0.5, 1, 2, 4, 8, 16 s, then each 30 s.
    let tries = stage.server().makings;
    assert!((10..=17).contains(&tries), "{tries}");
    stage.server().refuses = false;
    pass(30).await;
    assert!(stage.is_written());
    stage.watch_tells();
    let before = stage.server().makings;
    for _ in 0..3_000 {
        stage.server().object = None;
        stage.watch_tells();
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    // At longer and longer intervals, but it never stops.
    let makings = stage.server().makings - before;
    assert!((3..=10).contains(&makings), "{makings}");
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_lags_makes_no_second_object() {
    let stage = Stage::new();
    stage.watch_tells();
    // The watch never shows the object, so creating it finds the existing one, at longer and longer intervals.
    pass(3_600).await;
    let server = stage.server();
    let uid = &server.object.as_ref().unwrap()["metadata"]["uid"];
    assert_eq!((uid.as_str(), server.writes), (Some("uid-1"), 1));
    assert!(server.makings <= 24, "{}", server.makings);
}
