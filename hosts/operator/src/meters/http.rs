//! Power over HTTP: each planned node's endpoint is asked again and again, side by side, each within its time. What a
//! node answers is read within bounds, redirects are not followed, and an answer without a number is no answer of 0 W.

use super::poller::{Following, Outcomes, Read, round, timer};
use crate::settings::PowerAccess;
use bytes::Bytes;
use futures::StreamExt;
use host_kit::clock::HostClock;
use host_kit::config::UrlTemplate;
use host_kit::http_client::{ClientLimits, HttpClient, Trust, TrustError};
use http::Request;
use planner::power::{NoMeasurement, PowerMeter};
use power_units::{Role, Watts};
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;

/// Nodes that are asked at once.
const AT_ONCE: usize = 128;
/// One answer is waited for as long as by the first implementation, and the simulator's has some 2 KiB.
const LIMITS: ClientLimits =
    ClientLimits { timeout: Duration::from_secs(5), bytes_max: 64 * 1024, idle_max: AT_ONCE };

/// The client for this endpoint.
///
/// # Errors
/// If the authorities cannot be used.
pub(super) fn client(endpoint: Option<&UrlTemplate>, access: &PowerAccess) -> Result<HttpClient, TrustError> {
    let has_tls = endpoint.is_some_and(UrlTemplate::has_tls);
    if access.token.is_some() && endpoint.is_some() && !has_tls {
        tracing::warn!(
            "OPERATOR_NODE_POWER_HTTP_TOKEN_FILE: the endpoint has no TLS, so the token is sent in the clear"
        );
    }
    let trust = Trust::of(access.authorities.as_deref(), has_tls);
    Ok(HttpClient::new("joulie-operator", LIMITS, trust)?.with_token(access.token.clone()))
}

/// Asks for all nodes so often. Whoever is new is asked for at once.
pub(super) async fn ask_all(
    (client, clock): (HttpClient, Arc<dyn HostClock>),
    endpoint: Option<UrlTemplate>,
    every: Duration,
    mut nodes: Following,
    queue: Outcomes,
) {
    let mut timer = timer(every);
    while let Some(all) = round(&mut timer, &mut nodes).await {
        let asked = futures::stream::iter(all).map(|followed| {
            let (client, clock, endpoint) = (&client, &clock, endpoint.as_ref());
            async move {
                let asked = (clock.mono(), Duration::ZERO);
                let watts = ask(client, endpoint, &followed.node).await;
                Read { watts, node: followed.node, meter: PowerMeter::Http, asked }
            }
        });
        let mut answers = asked.buffer_unordered(AT_ONCE).ready_chunks(AT_ONCE);
        while let Some(reads) = answers.next().await {
            if queue.send(reads).await.is_err() {
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
