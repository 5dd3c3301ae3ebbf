//! `/livez` and `/readyz`: named checks with the reason for each failure, in the format of the Kubernetes API server.
//!
//! Live tells whether a restart would help; ready tells whether to send work here. A check that fails because of an
//! outage elsewhere belongs to ready only: restarting every agent because the API server is away would help nobody.

use crate::clock::{HostClock, Mono};
use crate::config::parse::show_duration;
use crate::shutdown::Stop;
use http::{Method, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Bytes;
use jiff::Timestamp;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The result of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CheckResult {
    /// The check passed.
    Pass,
    /// The check failed; with the reason, for the person on call.
    Fail(String),
}

type Check = Box<dyn Fn(Mono) -> CheckResult + Send + Sync>;

/// The checks of one program.
pub struct Health {
    clock: Arc<dyn HostClock>,
    live: Group,
    ready: Group,
}

struct Group {
    name: &'static str,
    checks: Vec<(&'static str, Check)>,
    /// The checks that failed the last time, so that a change is logged once.
    failing: Mutex<BTreeSet<&'static str>>,
}

impl Health {
    /// Starts without checks, except that the program answers at all.
    pub fn new(clock: Arc<dyn HostClock>) -> Self {
        let group = |name| Group {
            name,
            checks: vec![("ping", Box::new(|_| CheckResult::Pass) as Check)],
            failing: Mutex::new(BTreeSet::new()),
        };
        Self { clock, live: group("livez"), ready: group("readyz") }
    }

    /// Adds a check to `/livez`.
    #[must_use]
    pub fn live(
        mut self,
        name: &'static str,
        check: impl Fn(Mono) -> CheckResult + Send + Sync + 'static,
    ) -> Self {
        self.live.checks.push((name, Box::new(check)));
        self
    }

    /// Adds a check to `/readyz`.
    #[must_use]
    pub fn ready(
        mut self,
        name: &'static str,
        check: impl Fn(Mono) -> CheckResult + Send + Sync + 'static,
    ) -> Self {
        self.ready.checks.push((name, Box::new(check)));
        self
    }

    /// The same, where there is something to check.
    #[must_use]
    pub fn ready_if<C>(self, name: &'static str, check: Option<C>) -> Self
    where
        C: Fn(Mono) -> CheckResult + Send + Sync + 'static,
    {
        match check {
            Some(check) => self.ready(name, check),
            None => self,
        }
    }

    /// Makes the program not ready once it has been asked to stop, so that no new work is sent while it ends.
    #[must_use]
    pub fn ready_until(self, stop: Stop) -> Self {
        self.ready("shutdown", move |_| match stop.is_requested() {
            true => CheckResult::Fail("the program is shutting down".to_owned()),
            false => CheckResult::Pass,
        })
    }

    /// The time of day by its clock.
    pub(crate) fn wall(&self) -> Timestamp {
        self.clock.wall()
    }

    /// Whether every check of `/readyz` passes now.
    pub fn is_ready(&self) -> bool {
        self.ready.report(self.clock.mono(), None, "").0 == StatusCode::OK
    }

    /// The answer for `/livez`, `/readyz`, `/healthz` and one check of theirs (`/readyz/NAME`); `None` for all other
    /// paths. The query takes `verbose` and `exclude=NAME`.
    pub fn answer(&self, method: &Method, path: &str, query: &str) -> Option<Response<Full<Bytes>>> {
        let (group, one) = match path.strip_prefix('/')?.split_once('/') {
            Some((group, one)) => (group, Some(one)),
            None => (path.strip_prefix('/')?, None),
        };
        let group = match group {
            "livez" | "healthz" => &self.live,
            "readyz" => &self.ready,
            _ => return None,
        };
        if !matches!(*method, Method::GET | Method::HEAD) {
            return Some(respond(StatusCode::METHOD_NOT_ALLOWED, "use GET\n".to_owned()));
        }
        let (status, text) = group.report(self.clock.mono(), one, query);
        Some(respond(status, text))
    }
}

fn respond(status: StatusCode, text: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(text));
    *response.status_mut() = status;
    response
}

impl Group {
    fn report(&self, now: Mono, one: Option<&str>, query: &str) -> (StatusCode, String) {
        let wanted = |name: &str| one.is_none_or(|one| one == name);
        if !self.checks.iter().any(|(name, _)| wanted(name)) {
            return (StatusCode::NOT_FOUND, format!("{} has no such check\n", self.name));
        }
        let mut unmatched: BTreeSet<&str> =
            query.split('&').filter_map(|pair| pair.strip_prefix("exclude=")).collect();
        let excluded = unmatched.clone();
        let (mut lines, mut failed) = (String::new(), false);
        for (name, check) in self.checks.iter().filter(|(name, _)| wanted(name)) {
            if excluded.contains(name) {
                unmatched.remove(name);
                lines.push_str(&format!("[+]{name} excluded: ok\n"));
                continue;
            }
            let verdict = check(now);
            self.note(name, &verdict);
            match verdict {
                CheckResult::Pass => lines.push_str(&format!("[+]{name} ok\n")),
                CheckResult::Fail(why) => {
                    failed = true;
                    lines.push_str(&format!("[-]{name} failed: {why}\n"));
                }
            }
        }
        if !unmatched.is_empty() {
            let names: Vec<&str> = unmatched.into_iter().collect();
            lines.push_str(&format!("warn: no such check to exclude: {:?}\n", names));
        }
        let verbose = query.split('&').any(|pair| pair == "verbose" || pair.starts_with("verbose="));
        match (failed, verbose) {
            (true, _) => (StatusCode::SERVICE_UNAVAILABLE, format!("{lines}{} check failed\n", self.name)),
            (false, true) => (StatusCode::OK, format!("{lines}{} check passed\n", self.name)),
            (false, false) => (StatusCode::OK, "ok".to_owned()),
        }
    }

    fn note(&self, name: &'static str, verdict: &CheckResult) {
        let mut failing = self.failing.lock().unwrap_or_else(PoisonError::into_inner);
        match verdict {
            CheckResult::Pass if failing.remove(name) => {
                tracing::info!("{}: check {name} passes again", self.name)
            }
            CheckResult::Pass => {}
            CheckResult::Fail(why) if failing.insert(name) => {
                tracing::warn!("{}: check {name} fails: {why}", self.name);
            }
            CheckResult::Fail(_) => {}
        }
    }
}

/// The heartbeat of a loop: the loop beats once a round, and a check fails if it has not beaten for too long.
#[derive(Clone, Debug)]
pub struct Heartbeat {
    last_ms: Arc<AtomicU64>,
}

impl Heartbeat {
    /// Creates a heartbeat with a first beat now.
    pub fn started(now: Mono) -> Self {
        Self { last_ms: Arc::new(AtomicU64::new(now.as_millis())) }
    }

    /// Records that the loop is alive.
    pub fn beat(&self, now: Mono) {
        self.last_ms.fetch_max(now.as_millis(), Ordering::Relaxed);
    }

    /// Fails when the last beat is older than `most`; `what` names the loop.
    pub fn check(
        &self,
        what: &'static str,
        most: Duration,
    ) -> impl Fn(Mono) -> CheckResult + Send + Sync + 'static {
        let last = self.last_ms.clone();
        move |now| {
            let age = now.since(Mono::from_millis(last.load(Ordering::Relaxed)));
            if age <= most {
                return CheckResult::Pass;
            }
            CheckResult::Fail(format!(
                "{what} has not come round for {}, which is more than {}",
                show_duration(age),
                show_duration(most)
            ))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::ManualClock;
    use http_body_util::BodyExt;

    fn health() -> (ManualClock, Health) {
        let clock = ManualClock::at(Timestamp::UNIX_EPOCH);
        let beat = Heartbeat::started(clock.mono());
        let health = Health::new(Arc::new(clock.clone()))
            .live("loop", beat.check("the control loop", Duration::from_secs(60)))
            .ready("caches", |now| match now.since(Mono::START) < Duration::from_secs(10) {
                true => CheckResult::Fail("nodes are not synced".to_owned()),
                false => CheckResult::Pass,
            });
        (clock, health)
    }

    async fn ask(health: &Health, path: &str, query: &str) -> (u16, String) {
        let response = health.answer(&Method::GET, path, query).expect("a path of health");
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.expect("a whole body").to_bytes();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn each_check_says_why_it_fails_and_one_line_says_all_is_well() {
        let (clock, health) = health();
        let failed = "[+]ping ok\n[-]caches failed: nodes are not synced\nreadyz check failed\n";
        assert_eq!(ask(&health, "/readyz", "").await, (503, failed.to_owned()));
        assert!(!health.is_ready());
        clock.advance(Duration::from_secs(10));
        assert!(health.is_ready());
        assert_eq!(ask(&health, "/readyz", "").await, (200, "ok".to_owned()));
        let all = "[+]ping ok\n[+]caches ok\nreadyz check passed\n";
        assert_eq!(ask(&health, "/readyz", "verbose").await, (200, all.to_owned()));
    }

    #[tokio::test]
    async fn a_loop_that_stopped_is_not_live() {
        let (clock, health) = health();
        clock.advance(Duration::from_secs(60));
        assert_eq!(ask(&health, "/livez", "").await.0, 200);
        clock.advance(Duration::from_secs(1));
        let (status, text) = ask(&health, "/healthz", "").await;
        assert_eq!(status, 503);
        assert!(
            text.contains(
                "[-]loop failed: the control loop has not come round for 1m1s, which is more than 1m"
            )
        );
    }

    #[tokio::test]
    async fn a_check_can_be_left_out_or_asked_alone() {
        let (_, health) = health();
        let (status, text) = ask(&health, "/readyz", "exclude=caches&verbose&exclude=nonsense").await;
        assert_eq!(status, 200);
        assert!(
            text.contains("[+]caches excluded: ok")
                && text.contains("no such check to exclude: [\"nonsense\"]")
        );
        assert_eq!(ask(&health, "/readyz/caches", "").await.0, 503);
        assert_eq!(ask(&health, "/readyz/ping", "").await.0, 200);
        assert_eq!(ask(&health, "/readyz/none", "").await.0, 404);
        assert!(health.answer(&Method::GET, "/metrics", "").is_none());
        assert_eq!(health.answer(&Method::POST, "/livez", "").unwrap().status(), 405);
    }

    #[tokio::test]
    async fn a_program_that_ends_is_live_and_not_ready() {
        let (_, health) = health();
        let (trigger, stop) = crate::shutdown::pair();
        let health = health.ready_until(stop);
        trigger.request("a test");
        assert!(
            ask(&health, "/readyz", "").await.1.contains("[-]shutdown failed: the program is shutting down")
        );
        assert_eq!(ask(&health, "/livez", "").await.0, 200);
    }
}
