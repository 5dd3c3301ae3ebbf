//! `/debug/config` and `/debug/log`: show the configuration, and change the log level.
//!
//! Only for clients on the same machine, or with the token.

use crate::bearer;
use crate::config::LiveConfig;
use crate::log::{Levels, Logs};
use http::request::Parts;
use http::{Method, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Bytes;
use std::net::SocketAddr;

/// Decides who may see the pages.
#[derive(Clone)]
pub struct Guard {
    token: Option<String>,
}

impl Guard {
    /// Allows clients on this machine, and those that send `token` as a bearer token.
    pub fn new(token: Option<String>) -> Self {
        Self { token }
    }

    /// Whether this request is allowed.
    pub fn admits(&self, head: &Parts, peer: SocketAddr) -> bool {
        peer.ip().to_canonical().is_loopback() || self.is_shown(head)
    }

    /// Whether this request shows the token, if there is one.
    pub fn is_shown(&self, head: &Parts) -> bool {
        let shown =
            |token: &String| bearer::shows(&head.headers, token) || bearer::shows_apart(&head.headers, token);
        self.token.as_ref().is_some_and(shown)
    }
}

/// The pages.
#[derive(Clone)]
pub struct Debug {
    guard: Guard,
    /// Shown without secrets.
    config: LiveConfig,
    logs: Option<Logs>,
}

impl Debug {
    /// Shows `config`, and changes the level of `logs` if they are given.
    pub fn new(guard: Guard, config: LiveConfig, logs: Option<Logs>) -> Self {
        Self { guard, config, logs }
    }

    /// The answer for the two paths; `None` for all others.
    pub fn answer(&self, head: &Parts, body: &Bytes, peer: SocketAddr) -> Option<Response<Full<Bytes>>> {
        let path = head.uri.path();
        if !matches!(path, "/debug/config" | "/debug/log") {
            return None;
        }
        let (status, text) = if !self.guard.admits(head, peer) {
            (StatusCode::FORBIDDEN, "only from this machine, or with the token\n".to_owned())
        } else {
            match (path, &head.method, &self.logs) {
                ("/debug/config", &Method::GET, _) => (StatusCode::OK, self.config.page()),
                ("/debug/log", &Method::GET, Some(logs)) => (StatusCode::OK, format!("{}\n", logs.levels())),
                ("/debug/log", &Method::PUT, Some(logs)) => turn(logs, body),
                _ => (StatusCode::METHOD_NOT_ALLOWED, "use GET, and PUT for /debug/log\n".to_owned()),
            }
        };
        let mut response = Response::new(Full::from(text));
        *response.status_mut() = status;
        Some(response)
    }
}

fn turn(logs: &Logs, body: &Bytes) -> (StatusCode, String) {
    let wanted = std::str::from_utf8(body).map_err(|error| error.to_string());
    let wanted = wanted.and_then(|text| text.trim().parse::<Levels>().map_err(|wrong| wrong.to_string()));
    match wanted {
        Err(why) => (
            StatusCode::BAD_REQUEST,
            format!("{why}; accepted: a level, then PART=LEVEL, as in info,kube=debug\n"),
        ),
        Ok(levels) => match logs.set(&levels) {
            Ok(()) => (StatusCode::OK, format!("{levels}\n")),
            Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")),
        },
    }
}
