//! The paths of the page, all below `/ui`.
//!
//! | path | answer |
//! |---|---|
//! | `GET /ui/` | the document; its files are beside it |
//! | `GET /ui/events` | the stream |
//! | `GET /ui/explain?node=NAME`, `?pod=NAMESPACE/NAME` | what `kubectl joulie explain` says: `{"text": …, "notes": […]}` |
//! | `POST /ui/do` | an order, in the demo alone: JSON, with the token of the document in the header `joulie-page-token` |
//!
//! Who may see the page is decided by the program that serves it.

use crate::assets;
use crate::explain::UiExplainer;
use crate::hub::{UiBody, UiHub};
use crate::orders::{UiOrder, UiOrders};
use bytes::Bytes;
use host_kit::shutdown::Stop;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode, header};
use http_body_util::{BodyExt, Full};
use kubectl_joulie::args::Explained;
use serde_json::json;
use std::net::IpAddr;
use std::sync::Arc;

/// The header with the token of an order.
pub const TOKEN_HEADER: &str = "joulie-page-token";
/// An order is some dozen bytes.
const ORDER_MAX: usize = 4096;

/// Nothing is loaded, run or sent but from and to the program itself, and no other site shows the page in a frame.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

const HEADERS: [(&str, &str); 6] = [
    ("content-security-policy", POLICY),
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "no-referrer"),
    ("cache-control", "no-store"),
    ("cross-origin-resource-policy", "same-origin"),
    ("cross-origin-opener-policy", "same-origin"),
];

/// The page, as a program serves it.
pub struct Ui {
    hub: Arc<UiHub>,
    explainer: UiExplainer,
    /// Who carries orders out; without it the page only shows.
    orders: Option<UiOrders>,
    stop: Stop,
}

impl Ui {
    /// Shows what the hub has, until asked to stop.
    #[must_use]
    pub fn new(hub: Arc<UiHub>, explainer: UiExplainer, orders: Option<UiOrders>, stop: Stop) -> Self {
        Self { hub, explainer, orders, stop }
    }

    /// The answer for a path of the page; `None` for all others.
    pub async fn answer(&self, head: &Parts, body: &Bytes) -> Option<Response<UiBody>> {
        let name = match head.uri.path() {
            // Relative, so that it holds behind a proxy that takes a part of the path off.
            "/ui" => return Some(moved()),
            path => path.strip_prefix("/ui/")?,
        };
        if name == "do" {
            return Some(self.order(head, body).await);
        }
        if head.method != Method::GET {
            return Some(said(StatusCode::METHOD_NOT_ALLOWED, "use GET"));
        }
        Some(match name {
            "" => {
                let token = self.orders.as_ref().map_or("", UiOrders::token);
                whole(StatusCode::OK, "text/html; charset=utf-8", assets::document(token))
            }
            "events" => self.events(&head.headers),
            "explain" => self.explain(head.uri.query().unwrap_or_default()).await,
            name => match assets::file(name) {
                Some(file) => whole(StatusCode::OK, file.kind, file.text),
                None => said(StatusCode::NOT_FOUND, "the page has no such part"),
            },
        })
    }

    fn events(&self, headers: &HeaderMap) -> Response<UiBody> {
        let last = headers.get("last-event-id").and_then(|last| last.to_str().ok());
        match self.hub.open(last, self.stop.clone()) {
            Ok(stream) => with_headers(StatusCode::OK, "text/event-stream", stream),
            Err(full) => said(StatusCode::SERVICE_UNAVAILABLE, &full.to_string()),
        }
    }

    async fn explain(&self, query: &str) -> Response<UiBody> {
        let mut asked = form_urlencoded::parse(query.as_bytes());
        let what = match (asked.next(), asked.next()) {
            (Some((about, name)), None) if !name.is_empty() => match &*about {
                "node" => Some(Explained::Node { name: name.into_owned() }),
                "pod" => Some(Explained::Pod { name: name.into_owned() }),
                _ => None,
            },
            _ => None,
        };
        let Some(what) = what else {
            return said(StatusCode::BAD_REQUEST, "ask ?node=NAME or ?pod=NAMESPACE/NAME");
        };
        match self.explainer.explain(what).await {
            Ok(reply) if reply.code == 0 => {
                let text = json!({"text": reply.text, "notes": reply.notes}).to_string();
                whole(StatusCode::OK, "application/json", text)
            }
            Ok(reply) => said(StatusCode::NOT_FOUND, &reply.notes.join("; ")),
            Err(why) => said(StatusCode::SERVICE_UNAVAILABLE, &why),
        }
    }

    async fn order(&self, head: &Parts, body: &Bytes) -> Response<UiBody> {
        let Some(orders) = &self.orders else {
            return said(
                StatusCode::FORBIDDEN,
                "this page only shows: change budgets and caps with kubectl joulie; only the page of joulie demo takes orders",
            );
        };
        if head.method != Method::POST {
            return said(StatusCode::METHOD_NOT_ALLOWED, "use POST");
        }
        let of =
            |name: &str| head.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
        if of(TOKEN_HEADER) != orders.token() {
            return said(
                StatusCode::FORBIDDEN,
                "the order shows another token than this page has: load it again",
            );
        }
        if let Some(origin) = head.headers.get(header::ORIGIN)
            && origin.to_str().ok().and_then(|origin| origin.split_once("://")).map(|(_, host)| host)
                != Some(of("host"))
        {
            return said(StatusCode::FORBIDDEN, "the order comes from another site");
        }
        if body.len() > ORDER_MAX {
            return said(StatusCode::PAYLOAD_TOO_LARGE, "this is no order: it is too long");
        }
        match UiOrder::read(body) {
            Err(why) => said(StatusCode::BAD_REQUEST, &why),
            Ok(order) => match orders.give(order).await {
                Ok(done) => said(StatusCode::OK, &done),
                Err(why) => said(StatusCode::CONFLICT, &why),
            },
        }
    }
}

/// Whether a request names this machine, by an address or as localhost. A name that somebody else's server has made point at this
/// machine is none of these: pages of that server must not read what is served here.
#[must_use]
pub fn names_this_machine(headers: &HeaderMap) -> bool {
    let Some(host) = headers.get(header::HOST).and_then(|host| host.to_str().ok()) else { return false };
    let host = match host.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
        Some(_) | None => host,
    };
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    host.eq_ignore_ascii_case("localhost") || bare.parse::<IpAddr>().is_ok()
}

fn moved() -> Response<UiBody> {
    let mut response = said(StatusCode::TEMPORARY_REDIRECT, "it is at ui/");
    response.headers_mut().insert(header::LOCATION, HeaderValue::from_static("ui/"));
    response
}

/// An answer in words.
pub fn said(status: StatusCode, text: &str) -> Response<UiBody> {
    whole(status, "application/json", json!({"said": text}).to_string())
}

fn whole(status: StatusCode, kind: &'static str, text: impl Into<Bytes>) -> Response<UiBody> {
    with_headers(status, kind, Full::new(text.into()).boxed_unsync())
}

fn with_headers(status: StatusCode, kind: &'static str, body: UiBody) -> Response<UiBody> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    for (name, value) in HEADERS {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_anybody_can_make_point_here_does_not_name_this_machine() {
        let names = |host: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::HOST, HeaderValue::from_str(host).unwrap());
            names_this_machine(&headers)
        };
        for host in ["localhost", "LOCALHOST:8081", "127.0.0.1:8081", "[::1]:8081", "[::1]", "10.0.0.7"] {
            assert!(names(host), "{host}");
        }
        for host in ["evil.example", "127.0.0.1.evil.example:8081", "localhost.evil.example", "", ":80"] {
            assert!(!names(host), "{host}");
        }
        assert!(!names_this_machine(&HeaderMap::new()));
    }
}
