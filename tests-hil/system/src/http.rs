//! Questions to the programs' own ports.

use crate::SystemError;
use kube::{Client, Config};
use serde_json::Value;
use std::net::SocketAddr;

/// A port that speaks plain HTTP.
#[derive(Clone)]
pub struct Http(Client);

/// The port there.
///
/// # Errors
/// Never, as an address makes a URL.
pub fn at(address: SocketAddr) -> Result<Http, SystemError> {
    let mut config = Config::new(format!("http://{address}").parse()?);
    config.default_retry = false;
    Ok(Http(Client::try_from(config)?))
}

impl Http {
    /// What a path shows.
    ///
    /// # Errors
    /// When nobody answers, or with no JSON.
    pub async fn get(&self, path: &str) -> Result<Value, SystemError> {
        Ok(self.0.request(http::Request::get(path).body(Vec::new())?).await?)
    }

    /// What a path answers to a body of JSON.
    ///
    /// # Errors
    /// When nobody answers, without success, or with no JSON.
    pub async fn post(&self, path: &str, body: Vec<u8>) -> Result<Value, SystemError> {
        let request = http::Request::post(path).header("content-type", "application/json").body(body)?;
        Ok(self.0.request(request).await?)
    }

    /// Whether a path answers with success.
    pub async fn answers(&self, path: &str) -> bool {
        let Ok(request) = http::Request::get(path).body(Vec::new()) else { return false };
        self.0.request_text(request).await.is_ok()
    }
}
