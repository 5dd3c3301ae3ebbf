//! Questions to the programs' own ports.

use crate::SystemError;
use bytes::Bytes;
use host_kit::bearer::TokenFile;
use host_kit::http_client::{ClientLimits, HttpClient, Trust};
use http::Request;
use serde_json::Value;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// A program that hangs must not hang its suite; an answer about thousands of pods has some MiB.
const LIMITS: ClientLimits =
    ClientLimits { timeout: Duration::from_secs(60), bytes_max: 256 * 1024 * 1024, idle_max: 64 };

/// A port of a program.
#[derive(Clone)]
pub struct Http {
    client: Arc<HttpClient>,
    scheme: &'static str,
    address: SocketAddr,
}

/// The port there, which speaks plain HTTP.
///
/// # Errors
/// When the library makes no client.
pub fn at(address: SocketAddr) -> Result<Http, SystemError> {
    with_token(address, None)
}

/// The same, showing a token.
///
/// # Errors
/// When the library makes no client.
pub fn with_token(address: SocketAddr, token: Option<TokenFile>) -> Result<Http, SystemError> {
    let client = HttpClient::new("joulie-system", LIMITS, Trust::Nobody)?.with_token(token);
    Ok(Http { client: Arc::new(client), scheme: "http", address })
}

/// The port there, which speaks TLS with a certificate of this authority.
///
/// # Errors
/// When the authority cannot be used.
pub fn over_tls(address: SocketAddr, ca: &Path, token: Option<TokenFile>) -> Result<Http, SystemError> {
    let client = HttpClient::new("joulie-system", LIMITS, Trust::File(ca))?.with_token(token);
    Ok(Http { client: Arc::new(client), scheme: "https", address })
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

    /// Where it is.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    fn url(&self, path: &str) -> String {
        format!("{}://{}{path}", self.scheme, self.address)
    }
}
