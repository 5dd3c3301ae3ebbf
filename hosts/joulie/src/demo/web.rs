//! Requests over HTTP to parts of this demo. One that fails is told; nothing is tried again here.

use super::state::clean;
use bytes::Bytes;
use host_kit::http_client::{ClientLimits, HttpClient, Trust};
use http::Request;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// kube-scheduler's own default for extenders, which is long for anything on this machine. What the extender says of a
/// cluster of thousands of nodes is some hundred KiB.
const LIMITS: ClientLimits =
    ClientLimits { timeout: Duration::from_secs(5), bytes_max: 16 * 1024 * 1024, idle_max: 8 };

/// A server.
#[derive(Clone)]
pub(crate) struct Web {
    client: Arc<HttpClient>,
    name: &'static str,
    scheme: &'static str,
    address: SocketAddr,
}

impl Web {
    /// The one that listens there: with TLS, if a certificate is trusted.
    pub(crate) fn at(
        name: &'static str,
        address: SocketAddr,
        trusted: Option<&Path>,
    ) -> Result<Self, String> {
        let scheme = if trusted.is_some() { "https" } else { "http" };
        let client = HttpClient::new("joulie-demo", LIMITS, Trust::of(trusted, false));
        let client = client.map_err(|error| format!("the {name} at {address}: {error}"))?;
        Ok(Self { client: Arc::new(client), name, scheme, address })
    }

    /// What it says there.
    pub(crate) async fn get(&self, path: &str) -> Result<String, String> {
        self.ask(path, Request::get(self.url(path)).body(Bytes::new())).await
    }

    /// What it answers to this JSON.
    pub(crate) async fn post(&self, path: &str, body: &serde_json::Value) -> Result<String, String> {
        let request = Request::post(self.url(path)).header("content-type", "application/json");
        self.ask(path, request.body(Bytes::from(body.to_string()))).await
    }

    fn url(&self, path: &str) -> String {
        format!("{}://{}{path}", self.scheme, self.address)
    }

    async fn ask(&self, path: &str, request: http::Result<Request<Bytes>>) -> Result<String, String> {
        let failed = |why: String| clean(&format!("{path} of the {} failed: {why}", self.name));
        let request = request.map_err(|error| failed(error.to_string()))?;
        let answer = self.client.ask(request).await.map_err(|why| failed(why.to_string()))?;
        String::from_utf8(answer.to_vec()).map_err(|error| failed(error.to_string()))
    }
}
