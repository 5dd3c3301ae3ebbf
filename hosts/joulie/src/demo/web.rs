//! Requests over HTTP to parts of this demo. One that fails is told; nothing is tried again here.

use super::state::clean;
use http::Request;
use kube::{Client, Config};
use std::net::SocketAddr;
use std::time::Duration;

/// kube-scheduler's own default for extenders, and long for anything on this machine.
const TIMEOUT: Duration = Duration::from_secs(5);

/// A server.
#[derive(Clone)]
pub(crate) struct Web {
    client: Client,
    name: &'static str,
}

impl Web {
    /// The one that listens there.
    pub(crate) fn at(name: &'static str, address: SocketAddr) -> Result<Self, String> {
        let wrong = |why: String| format!("the {name} at {address}: {why}");
        let url = format!("http://{address}/").parse().map_err(|error| wrong(format!("{error}")))?;
        let mut config = Config::new(url);
        config.default_retry = false;
        let client = Client::try_from(config).map_err(|error| wrong(error.to_string()))?;
        Ok(Self { client, name })
    }

    /// What it says there.
    pub(crate) async fn get(&self, path: &str) -> Result<String, String> {
        self.ask(path, Request::get(path).body(Vec::new())).await
    }

    /// What it answers to this JSON.
    pub(crate) async fn post(&self, path: &str, body: &serde_json::Value) -> Result<String, String> {
        let request = Request::post(path).header("content-type", "application/json");
        self.ask(path, request.body(body.to_string().into_bytes())).await
    }

    async fn ask(&self, path: &str, request: http::Result<Request<Vec<u8>>>) -> Result<String, String> {
        let name = self.name;
        let request = request.map_err(|error| format!("{path} of the {name}: {error}"))?;
        match tokio::time::timeout(TIMEOUT, self.client.request_text(request)).await {
            Ok(Ok(text)) => Ok(text),
            Ok(Err(error)) => Err(clean(&format!("{path} of the {name} failed: {error}"))),
            Err(_) => Err(format!("{path} of the {name} has not answered for {} s", TIMEOUT.as_secs())),
        }
    }
}
