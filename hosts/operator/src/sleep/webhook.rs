//! A machine's power by a server of the site: `GET` of the node's URL answers `{"power": "on" | "off" | "changing"}`, and `POST` of
//! `{"power": "on" | "off"}` switches it.

use super::controllers::Caller;
use host_kit::config::Url;
use http::Method;
use planner::sleep::PowerState;
use serde_json::{Value, json};

/// The URL of a node.
#[derive(Clone, Debug)]
pub(super) struct Webhook(String);

impl Webhook {
    pub(super) fn new(url: &Url) -> Self {
        Self(url.as_str().to_owned())
    }

    pub(super) async fn state(&self, caller: &Caller<'_>) -> Result<PowerState, String> {
        let body = caller.call(Method::GET, &self.0, None).await?;
        let answer: Value =
            serde_json::from_slice(&body).map_err(|error| format!("it is no JSON: {error}"))?;
        match answer["power"].as_str() {
            Some("on") => Ok(PowerState::On),
            Some("off") => Ok(PowerState::Off),
            Some("changing") => Ok(PowerState::Changing),
            Some(_) | None => Err("the answer's power is neither on, off nor changing".to_owned()),
        }
    }

    pub(super) async fn switch(&self, caller: &Caller<'_>, on: bool) -> Result<(), String> {
        let body = json!({"power": if on { "on" } else { "off" }}).to_string();
        caller.call(Method::POST, &self.0, Some(body)).await.map(drop)
    }
}
