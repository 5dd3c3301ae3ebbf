//! Requests to nodes: bounded in number, time and size. Nodes that did not answer the last time share a few places of
//! their own, so that they do not take those of the nodes that do.

use super::wire::{Action, BYTES_MOST, Became, Telemetry};
use bytes::Bytes;
use futures::future::BoxFuture;
use host_kit::config::{Url, UrlTemplate};
use host_kit::connect::chain;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use power_hal::ErrorKind;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;

/// Why a request brought nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Trouble {
    pub(super) kind: ErrorKind,
    pub(super) text: String,
}

impl Trouble {
    fn new(kind: ErrorKind, text: impl Into<String>) -> Self {
        Self { kind, text: text.into() }
    }
}

/// Whether a node answered the last time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    Sound,
    Suspect,
}

/// What carries a request to a node and brings the whole answer back, in the place of sockets: for a test whose nodes
/// are in the same process, and whose time is not the machine's.
pub trait Carrier: Send + Sync + 'static {
    /// Sends it; an error is an answer that never came.
    fn carry(&self, request: Request<Bytes>) -> BoxFuture<'static, io::Result<Response<Bytes>>>;
}

/// How requests go.
enum Way {
    Sockets(Client<HttpsConnector<HttpConnector>, Full<Bytes>>),
    Carried(Arc<dyn Carrier>),
}

/// A client of the nodes' endpoints.
pub(super) struct Http {
    way: Way,
    places: Semaphore,
    suspects: Semaphore,
    timeout: Duration,
}

impl Http {
    pub(super) fn new(
        concurrency: usize,
        timeout: Duration,
        tls: rustls::ClientConfig,
        carrier: Option<Arc<dyn Carrier>>,
    ) -> Self {
        let way = carrier.map_or_else(|| Way::Sockets(sockets(concurrency, timeout, tls)), Way::Carried);
        let (places, suspects) = (Semaphore::new(concurrency), Semaphore::new(concurrency.div_ceil(4)));
        Self { way, places, suspects, timeout }
    }

    /// The telemetry of a node.
    pub(super) async fn telemetry(
        &self,
        template: &UrlTemplate,
        node: &str,
        standing: Standing,
    ) -> Result<Telemetry, Trouble> {
        let body = self.ask(Method::GET, &url(template, node)?, Bytes::new(), standing).await?;
        Telemetry::read(&body)
            .map_err(|why| Trouble::new(ErrorKind::BadData, format!("the telemetry of {node}: {why}")))
    }

    /// Tells a node's control something, and returns what was read back.
    pub(super) async fn control(
        &self,
        template: &UrlTemplate,
        node: &str,
        (action, now): (Action, String),
        standing: Standing,
    ) -> Result<Option<power_units::Watts>, Trouble> {
        let body = Bytes::from(action.body(node, &now).to_string());
        let answer = self.ask(Method::POST, &url(template, node)?, body, standing).await?;
        match Became::read(action, &answer) {
            Became::Applied(read_back) => Ok(read_back),
            Became::Blocked(why) => Err(Trouble::new(ErrorKind::NotSupported, why)),
            Became::Error(why) => Err(Trouble::new(ErrorKind::Io, why)),
        }
    }

    async fn ask(
        &self,
        method: Method,
        url: &Url,
        body: Bytes,
        standing: Standing,
    ) -> Result<Bytes, Trouble> {
        let request = Request::builder()
            .method(method)
            .uri(url.as_str())
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::USER_AGENT, "joulie-agent")
            .body(body)
            .map_err(|error| Trouble::new(ErrorKind::BadData, format!("{url}: {error}")))?;
        // The semaphores are never closed.
        let _place = match standing {
            Standing::Sound => self.places.acquire().await,
            Standing::Suspect => self.suspects.acquire().await,
        };
        match tokio::time::timeout(self.timeout, self.exchange(request)).await {
            Ok(Ok(body)) => Ok(body),
            Ok(Err(trouble)) => Err(Trouble { text: format!("{url}: {}", trouble.text), ..trouble }),
            Err(_) => {
                let seconds = self.timeout.as_secs();
                Err(Trouble::new(ErrorKind::Timeout, format!("{url}: no answer in {seconds}s")))
            }
        }
    }

    async fn exchange(&self, request: Request<Bytes>) -> Result<Bytes, Trouble> {
        match &self.way {
            Way::Sockets(client) => {
                let failed =
                    |error: hyper_util::client::legacy::Error| Trouble::new(ErrorKind::Io, chain(&error));
                let response = client.request(request.map(Full::from)).await.map_err(failed)?;
                sound(response.status())?;
                let body = Limited::new(response.into_body(), BYTES_MOST).collect().await;
                let bad = |error| Trouble::new(ErrorKind::BadData, format!("its answer: {error}"));
                Ok(body.map_err(bad)?.to_bytes())
            }
            Way::Carried(carrier) => {
                let response = carrier.carry(request).await;
                let response = response.map_err(|error| Trouble::new(ErrorKind::Io, error.to_string()))?;
                sound(response.status())?;
                Ok(response.into_body())
            }
        }
    }
}

fn sound(status: StatusCode) -> Result<(), Trouble> {
    if status.is_success() {
        return Ok(());
    }
    let kind = if status == StatusCode::NOT_FOUND { ErrorKind::Gone } else { ErrorKind::Io };
    Err(Trouble::new(kind, format!("it answers {status}")))
}

fn sockets(
    concurrency: usize,
    timeout: Duration,
    tls: rustls::ClientConfig,
) -> Client<HttpsConnector<HttpConnector>, Full<Bytes>> {
    let mut connector = HttpConnector::new();
    connector.set_connect_timeout(Some(timeout));
    connector.set_nodelay(true);
    connector.enforce_http(false);
    let connector = HttpsConnectorBuilder::new()
        .with_tls_config(tls)
        .https_or_http()
        .enable_http1()
        .wrap_connector(connector);
    Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(Duration::from_secs(60))
        .pool_max_idle_per_host(concurrency.min(64))
        .build(connector)
}

fn url(template: &UrlTemplate, node: &str) -> Result<Url, Trouble> {
    template.for_node(node).map_err(|wrong| Trouble::new(ErrorKind::BadData, format!("{node}: {wrong}")))
}
