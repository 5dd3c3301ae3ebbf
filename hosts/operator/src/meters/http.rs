//! Power over HTTP: each planned node's endpoint is asked again and again, side by side, each within its time. What a
//! node answers is read within bounds, redirects are not followed, and an answer without a number is no answer of 0 W.

use crate::settings::PowerAccess;
use bytes::Bytes;
use futures::StreamExt;
use host_kit::config::UrlTemplate;
use host_kit::http_client::{ClientLimits, HttpClient, Trust, TrustError};
use http::Request;
use planner::power::NoMeasurement;
use power_units::{Role, Watts};
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

/// Nodes that are asked at once.
const AT_ONCE: usize = 128;
/// One answer is waited for as long as by the first implementation, and the simulator's has some 2 KiB.
const LIMITS: ClientLimits =
    ClientLimits { timeout: Duration::from_secs(5), bytes_max: 64 * 1024, idle_max: AT_ONCE };
/// Answers that wait to be taken in.
const QUEUE: usize = 1024;

/// The outcome of one attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Read {
    /// Of which node.
    pub(crate) node: Arc<str>,
    /// What it draws, or why that is not known.
    pub(crate) watts: Result<Watts, NoMeasurement>,
}

/// Asks.
#[derive(Debug)]
pub(crate) struct Poller {
    nodes: watch::Sender<Vec<Arc<str>>>,
    reads: mpsc::Receiver<Read>,
    task: JoinHandle<()>,
}

impl Poller {
    /// Asks this endpoint so often.
    ///
    /// # Errors
    /// If the authorities cannot be used.
    pub(crate) fn new(
        endpoint: Option<UrlTemplate>,
        every: Duration,
        access: &PowerAccess,
    ) -> Result<Self, TrustError> {
        let has_tls = endpoint.as_ref().is_some_and(UrlTemplate::has_tls);
        if access.token.is_some() && endpoint.is_some() && !has_tls {
            tracing::warn!(
                "OPERATOR_NODE_POWER_HTTP_TOKEN_FILE: the endpoint has no TLS, so the token is sent in the clear"
            );
        }
        let trust = Trust::of(access.authorities.as_deref(), has_tls);
        let client = HttpClient::new("joulie-operator", LIMITS, trust)?.with_token(access.token.clone());
        let (nodes, follow) = watch::channel(Vec::new());
        let (queue, reads) = mpsc::channel(QUEUE);
        let task = tokio::spawn(ask_all((client, endpoint), every, follow, queue));
        Ok(Self { nodes, reads, task })
    }

    /// Whom to ask from now on.
    pub(crate) fn follow(&self, nodes: Vec<Arc<str>>) {
        self.nodes.send_if_modified(|before| {
            let differs = *before != nodes;
            *before = nodes;
            differs
        });
    }

    /// The next outcome.
    pub(crate) async fn next(&mut self) -> Option<Read> {
        self.reads.recv().await
    }
}

impl Drop for Poller {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn ask_all(
    (client, endpoint): (HttpClient, Option<UrlTemplate>),
    every: Duration,
    mut nodes: watch::Receiver<Vec<Arc<str>>>,
    queue: mpsc::Sender<Read>,
) {
    let mut round = tokio::time::interval(every);
    round.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = round.tick() => {}
            // Whoever is new is asked at once.
            changed = nodes.changed() => if changed.is_err() { return },
        }
        let all = nodes.borrow_and_update().clone();
        let asked = futures::stream::iter(all).map(|node| {
            let (client, endpoint) = (&client, endpoint.as_ref());
            async move { Read { watts: ask(client, endpoint, &node).await, node } }
        });
        let mut answers = asked.buffer_unordered(AT_ONCE);
        while let Some(read) = answers.next().await {
            if queue.send(read).await.is_err() {
                return;
            }
        }
    }
}

async fn ask(
    client: &HttpClient,
    endpoint: Option<&UrlTemplate>,
    node: &str,
) -> Result<Watts, NoMeasurement> {
    let endpoint = endpoint.ok_or(NoMeasurement::HttpNoEndpoint)?;
    let url = endpoint.for_node(node).map_err(|_| NoMeasurement::HttpError)?;
    let question = Request::get(url.as_str()).body(Bytes::new()).map_err(|_| NoMeasurement::HttpError)?;
    let body = client.ask(question).await.map_err(|_| NoMeasurement::HttpError)?;
    draw(&body).ok_or(NoMeasurement::HttpError)
}

/// The draw in an answer: the node's where it says it, else that of its processors and, where it has some, its GPUs.
fn draw(body: &[u8]) -> Option<Watts> {
    let answer: Value = serde_json::from_slice(body).ok()?;
    let watts = |value: &Value| {
        let number = value.as_number()?.to_string();
        Watts::parse(&number, Role::Demand).ok().filter(|&watts| watts > Watts::ZERO)
    };
    if let Some(node) = watts(&answer["packagePowerWatts"]) {
        return Some(node);
    }
    let cpu = watts(&answer["cpu"]["packagePowerWatts"])?;
    let gpu = &answer["gpu"];
    if gpu["present"].as_bool() == Some(true) {
        return cpu.checked_add(watts(&gpu["powerWattsTotal"])?);
    }
    Some(cpu)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Option<Watts> {
        draw(text.as_bytes())
    }

    #[test]
    fn an_answer_without_a_number_is_no_answer_of_nothing() {
        // Fix list operator B7, B37: unknown is not 0 W, and the GPUs of a node count.
        for text in [
            "",
            "{",
            "[]",
            "{}",
            "{\"packagePowerWatts\":\"300\"}",
            "{\"packagePowerWatts\":0}",
            "{\"packagePowerWatts\":-5}",
            "{\"packagePowerWatts\":1e300}",
            "{\"packagePowerWatts\":NaN}",
            "{\"cpu\":{\"packagePowerWatts\":200},\"gpu\":{\"present\":true}}",
        ] {
            assert_eq!(read(text), None, "{text}");
        }
        let watts = |watts| Some(Watts::from_int(watts));
        assert_eq!(read(r#"{"packagePowerWatts": 300, "cpu": {"packagePowerWatts": 111}}"#), watts(300));
        assert_eq!(read(r#"{"cpu": {"packagePowerWatts": 111.0}}"#), watts(111));
        let both = r#"{"cpu": {"packagePowerWatts": 200}, "gpu": {"present": true, "powerWattsTotal": 800}}"#;
        assert_eq!(read(both), watts(1000));
    }
}
