//! Questions to the programs' own ports.

use crate::SystemError;
use bytes::Bytes;
use host_kit::http_client::{ClientLimits, HttpClient, Trust};
use http::Request;
use serde_json::Value;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// A program that hangs must not hang its suite; an answer about thousands of pods has some MiB.
const LIMITS: ClientLimits =
    ClientLimits { timeout: Duration::from_secs(60), bytes_max: 256 * 1024 * 1024, idle_max: 64 };

/// A port that speaks plain HTTP.
#[derive(Clone)]
pub struct Http {
    client: Arc<HttpClient>,
    address: SocketAddr,
}

/// The port there.
///
/// # Errors
/// When the library makes no client.
pub fn at(address: SocketAddr) -> Result<Http, SystemError> {
    let client = Arc::new(HttpClient::new("joulie-system", LIMITS, Trust::Nobody)?);
    Ok(Http { client, address })
}

impl Http {
    /// What a path shows.
    ///
    /// # Errors
    /// When nobody answers, or with no JSON.
    pub async fn get(&self, path: &str) -> Result<Value, SystemError> {
        let request = Request::get(self.url(path)).body(Bytes::new())?;
        Ok(serde_json::from_slice(&self.client.ask(request).await?)?)
    }

    /// What a path answers to a body of JSON.
    ///
    /// # Errors
    /// When nobody answers, without success, or with no JSON.
    pub async fn post(&self, path: &str, body: Vec<u8>) -> Result<Value, SystemError> {
        let request = Request::post(self.url(path)).header("content-type", "application/json");
        Ok(serde_json::from_slice(&self.client.ask(request.body(Bytes::from(body))?).await?)?)
    }

    /// What a path shows, as text.
    ///
    /// # Errors
    /// When nobody answers, or not with text.
    pub async fn text(&self, path: &str) -> Result<String, SystemError> {
        let request = Request::get(self.url(path)).body(Bytes::new())?;
        Ok(String::from_utf8(self.client.ask(request).await?.to_vec())?)
    }

    /// Whether a path answers with success.
    pub async fn answers(&self, path: &str) -> bool {
        let Ok(request) = Request::get(self.url(path)).body(Bytes::new()) else { return false };
        self.client.ask(request).await.is_ok()
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }
}
