//! The logs of a whole process; only one test may initialise them.

use super::lines::Lines;
use bytes::Bytes;
use host_kit::clock::{HostClock, SystemClock};
use host_kit::config::{ConfigMetrics, Invocation, LiveConfig, SettingsTable, load};
use host_kit::log::{Format, LogError, Logs, start_to};
use host_kit::metrics::{BuildInfo, MetricsBuilder};
use host_kit::program::LOG_LEVEL;
use host_kit::server::{Debug, Guard};
use host_kit::shutdown::{self, Tasks};
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

const LOOPBACK: &str = "127.0.0.1:1";
const MAPPED: &str = "[::ffff:127.0.0.1]:1";
const STRANGER: &str = "10.1.2.3:1";

fn ask(
    debug: &Debug,
    line: (&str, &str),
    token: Option<&str>,
    body: &str,
    peer: &str,
) -> Option<Response<Full<Bytes>>> {
    let mut request = Request::builder().method(line.0).uri(line.1);
    if let Some(token) = token {
        request = request.header("authorization", format!("Bearer {token}"));
    }
    let (head, ()) = request.body(()).unwrap().into_parts();
    debug.answer(&head, &Bytes::from(body.to_owned()), peer.parse::<SocketAddr>().unwrap())
}

async fn text(response: Option<Response<Full<Bytes>>>) -> (u16, String) {
    let response = response.expect("a page of debugging");
    let status = response.status().as_u16();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

static TABLE: SettingsTable = SettingsTable {
    program: "test",
    about: "is tested",
    settings: &[&LOG_LEVEL],
    retired: &[],
    families: &[],
};

/// Lets the level follow a file, which is written anew; the test's time is virtual.
async fn follow(logs: Logs) {
    let path = std::env::temp_dir().join(format!("host-kit-level-{}", std::process::id()));
    std::fs::write(&path, "LOG_LEVEL=warn\n").unwrap();
    let named = [("JOULIE_CONFIG".into(), path.clone().into())];
    let Invocation::Run(sources) = Invocation::read([], named) else { panic!("a run") };
    let values = load(&TABLE, &sources).unwrap();
    let clock: Arc<dyn HostClock> = Arc::new(SystemClock::new());
    let config = LiveConfig::new(&TABLE, sources, values, |_| Ok(()), clock.wall());
    let metrics = ConfigMetrics::register(MetricsBuilder::of(&BuildInfo::of("test", "0")).registry());
    let (_trigger, stop) = shutdown::pair();
    let mut tasks = Tasks::new();
    config.start(metrics, Some(logs.clone()), &clock, (&mut tasks, &stop));
    std::fs::write(&path, "LOG_LEVEL=info,host_kit_test=trace\n").unwrap();
    let all = async {
        while logs.levels().to_string() != "info,host_kit_test=trace" {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), all).await.expect("the level follows the file");
    std::fs::remove_file(path).unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_level_changes_at_run_time_for_both_facades_and_lines_are_json() {
    let lines = Lines::default();
    let logs = start_to(lines.clone(), Format::Json, &"info".parse().unwrap()).unwrap();
    let say = |word: &str| {
        tracing::debug!(target: "host_kit_test", node = "node-a", "tracing {word}");
        log::debug!(target: "host_kit_test", "log {word}");
    };
    say("before");
    let debug = Debug::new(
        Guard::new(Some("t0ken".to_owned())),
        LiveConfig::fixed("A=1 (default)\n".to_owned()),
        Some(logs.clone()),
    );
    let put = |body: &'static str| ask(&debug, ("PUT", "/debug/log"), None, body, LOOPBACK);
    let (status, why) = text(put("loud")).await;
    assert_eq!(status, 400);
    assert!(why.contains("\"loud\" is none of off, error"), "{why}");
    assert_eq!(text(put("info,host_kit_test=debug\n")).await, (200, "info,host_kit_test=debug\n".to_owned()));
    say("during");
    assert_eq!(
        text(ask(&debug, ("GET", "/debug/log"), None, "", LOOPBACK)).await.1,
        "info,host_kit_test=debug\n"
    );
    assert_eq!(text(put("warn")).await.0, 200);
    say("after");

    assert_eq!(lines.with(&["before"]).len() + lines.with(&["after"]).len(), 0, "{}", lines.text());
    for facade in ["tracing during", "log during"] {
        let line = lines.with(&[facade]).pop().unwrap_or_else(|| panic!("{facade}: {}", lines.text()));
        let object: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!((&object["message"], &object["level"]), (&facade.into(), &"DEBUG".into()));
    }
    assert_eq!(lines.with(&["log levels changed from info to info,host_kit_test=debug"]).len(), 1);
    follow(logs).await;
    assert!(matches!(start_to(lines, Format::Text, &"info".parse().unwrap()), Err(LogError::Twice)));
}

#[tokio::test]
async fn debugging_is_for_this_machine_and_for_who_shows_the_token() {
    let config = "A=1 (default)\n";
    let debug = Debug::new(Guard::new(Some("t0ken".to_owned())), LiveConfig::fixed(config.to_owned()), None);
    let open = Debug::new(Guard::new(None), LiveConfig::fixed(config.to_owned()), None);
    let get = |debug: &Debug, token, peer| ask(debug, ("GET", "/debug/config"), token, "", peer);
    assert_eq!(text(get(&debug, None, LOOPBACK)).await, (200, config.to_owned()));
    assert_eq!(text(get(&debug, None, MAPPED)).await.0, 200);
    assert_eq!(text(get(&debug, Some("t0ken"), STRANGER)).await.0, 200);
    for token in [None, Some(""), Some("t0keN"), Some("t0ken2"), Some("t0ke")] {
        assert_eq!(text(get(&debug, token, STRANGER)).await.0, 403, "{token:?}");
    }
    assert_eq!(text(get(&open, Some(""), STRANGER)).await.0, 403, "no token is not the empty token");
    assert_eq!(
        text(ask(&debug, ("PUT", "/debug/log"), None, "info", LOOPBACK)).await.0,
        405,
        "there are no logs"
    );
    assert!(ask(&debug, ("GET", "/debug/scoring"), None, "", LOOPBACK).is_none());
}
