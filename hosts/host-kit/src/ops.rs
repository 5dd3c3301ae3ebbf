//! The operational port of a program: `/metrics`, `/livez`, `/readyz`, `/healthz`, `/debug/config`, `/debug/log`.
//!
//! Nothing here may change what the program does, except its log level.

use crate::health::Health;
use crate::metrics::Page;
use crate::server::{Debug, Routes, Scrapers};
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Bytes;
use std::net::SocketAddr;

/// The pages of that port.
pub struct Ops {
    page: Page,
    health: Health,
    debug: Debug,
    scrapers: Scrapers,
}

impl Ops {
    /// Takes a program's metrics, checks and configuration.
    pub fn new(page: Page, health: Health, debug: Debug) -> Self {
        Self { page, health, debug, scrapers: Scrapers::default() }
    }

    /// Shows the metrics only to these.
    #[must_use]
    pub fn for_scrapers(self, scrapers: Scrapers) -> Self {
        Self { scrapers, ..self }
    }

    /// The answer for the paths above; `None` for all others.
    pub async fn known(&self, request: &Request<Bytes>, peer: SocketAddr) -> Option<Response<Full<Bytes>>> {
        let path = request.uri().path();
        if path == "/metrics" {
            if *request.method() != Method::GET {
                return Some(plain(StatusCode::METHOD_NOT_ALLOWED, "use GET\n"));
            }
            return Some(match self.scrapers.refuse(request.headers(), peer).await {
                None => {
                    self.page.shows_ready(self.health.is_ready());
                    let query = request.uri().query().unwrap_or_default();
                    self.page.answer(request.headers(), query, self.health.wall())
                }
                Some((status, why)) => plain(status, why),
            });
        }
        let query = request.uri().query().unwrap_or_default();
        if let Some(answer) = self.health.answer(request.method(), path, query) {
            return Some(answer);
        }
        let (head, body) = request.clone().into_parts();
        self.debug.answer(&head, &body, peer)
    }
}

impl Routes for Ops {
    type Body = Full<Bytes>;

    async fn answer(&self, request: Request<Bytes>, peer: SocketAddr) -> Response<Full<Bytes>> {
        self.known(&request, peer).await.unwrap_or_else(|| {
            plain(
                StatusCode::NOT_FOUND,
                "there are /metrics, /livez, /readyz, /healthz, /debug/config and /debug/log\n",
            )
        })
    }
}

fn plain(status: StatusCode, text: &'static str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(text));
    *response.status_mut() = status;
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::SystemClock;
    use crate::config::LiveConfig;
    use crate::metrics::{BuildInfo, MetricsBuilder};
    use crate::server::Guard;
    use std::sync::Arc;

    async fn status(method: &str, path: &str) -> u16 {
        let page = MetricsBuilder::of(&BuildInfo { component: "test", version: "0", revision: "0" }).page();
        let health = Health::new(Arc::new(SystemClock::new()));
        let debug = Debug::new(Guard::new(None), LiveConfig::fixed("A=1 (flag)\n".to_owned()), None);
        let request = Request::builder().method(method).uri(path).body(Bytes::new()).unwrap();
        let peer = SocketAddr::from(([127, 0, 0, 1], 1));
        Ops::new(page, health, debug).answer(request, peer).await.status().as_u16()
    }

    #[tokio::test]
    async fn every_path_of_the_port_answers_and_no_other() {
        for (method, path, expected) in [
            ("GET", "/metrics", 200),
            ("GET", "/metrics?created=1", 200),
            ("POST", "/metrics", 405),
            ("GET", "/livez", 200),
            ("GET", "/readyz?verbose", 200),
            ("GET", "/healthz", 200),
            ("GET", "/debug/config", 200),
            ("GET", "/", 404),
            ("GET", "/metrics/", 404),
        ] {
            assert_eq!(status(method, path).await, expected, "{method} {path}");
        }
    }
}
