//! Requests to nodes: bounded in number, time and size. Nodes that did not answer the last time share a few places of
//! their own, so that they do not take those of the nodes that do.

use super::wire::{Action, BYTES_MOST, Became, Telemetry};
use bytes::Bytes;
use host_kit::bearer::TokenFile;
use host_kit::config::{Url, UrlTemplate};
use host_kit::http_client::{Carrier, ClientLimits, HttpClient, NoAnswer, Trust, TrustError};
use http::{Method, Request, StatusCode, header};
use power_hal::ErrorKind;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;

/// What the agent calls itself.
const PROGRAM: &str = "joulie-agent";

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

/// A client of the nodes' endpoints.
pub(super) struct Http {
    client: HttpClient,
    places: Semaphore,
    suspects: Semaphore,
}

impl Http {
    /// # Errors
    /// When there is nobody to trust.
    pub(super) fn new(
        concurrency: usize,
        timeout: Duration,
        trust: Trust<'_>,
        carrier: Option<Arc<dyn Carrier>>,
    ) -> Result<Self, TrustError> {
        let limits = ClientLimits { timeout, bytes_max: BYTES_MOST, idle_max: concurrency.min(64) };
        let client = match carrier {
            None => HttpClient::new(PROGRAM, limits, trust)?,
            Some(carrier) => HttpClient::carried(PROGRAM, limits, carrier),
        };
        let (places, suspects) = (Semaphore::new(concurrency), Semaphore::new(concurrency.div_ceil(4)));
        Ok(Self { client, places, suspects })
    }

    /// Shows this token to each node.
    #[must_use]
    pub(super) fn with_token(self, token: Option<TokenFile>) -> Self {
        Self { client: self.client.with_token(token), ..self }
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
            .body(body)
            .map_err(|error| Trouble::new(ErrorKind::BadData, format!("{url}: {error}")))?;
        // The semaphores are never closed.
        let _place = match standing {
            Standing::Sound => self.places.acquire().await,
            Standing::Suspect => self.suspects.acquire().await,
        };
        let answer = self.client.ask(request).await;
        answer.map_err(|why| Trouble::new(kind(&why), format!("{url}: {why}")))
    }
}

fn kind(why: &NoAnswer) -> ErrorKind {
    match why {
        NoAnswer::Late(_) => ErrorKind::Timeout,
        NoAnswer::Refused(StatusCode::NOT_FOUND) => ErrorKind::Gone,
        NoAnswer::Refused(_) | NoAnswer::Failed(_) => ErrorKind::Io,
        NoAnswer::Unreadable(_) => ErrorKind::BadData,
    }
}

fn url(template: &UrlTemplate, node: &str) -> Result<Url, Trouble> {
    template.for_node(node).map_err(|wrong| Trouble::new(ErrorKind::BadData, format!("{node}: {wrong}")))
}
