//! Requests to nodes, and to the Prometheus servers that are asked of them: bounded in number, time and size. Nodes that did not
//! answer the last time share a few places of their own, so that they do not take those of the nodes that do. So do the queries to
//! Prometheus, so that no control waits for a server that only reports.

use super::wire::{Action, BYTES_MOST, Became, Telemetry};
use crate::route::NodeQuery;
use crate::settings::{HttpTerms, NodeEndpoint};
use bytes::Bytes;
use host_kit::config::Url;
use host_kit::http_client::{Asking, Carrier, ClientLimits, HttpClient, NoAnswer, Trust, TrustError};
use host_kit::prometheus::{Answer, InstantQuery};
use http::{Method, Request, StatusCode, header};
use power_hal::ErrorKind;
use std::sync::{Arc, OnceLock};
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
pub(crate) struct Http {
    client: HttpClient,
    /// The client for endpoints with TLS where the settings have none: the authorities of the system are read once a profile names one.
    late: OnceLock<Result<HttpClient, String>>,
    trusts: bool,
    limits: ClientLimits,
    terms: HttpTerms,
    places: Semaphore,
    suspects: Semaphore,
    queries: Semaphore,
}

impl Http {
    /// # Errors
    /// When there is nobody to trust.
    pub(crate) fn new(
        concurrency: usize,
        terms: &HttpTerms,
        has_tls: bool,
        carrier: Option<Arc<dyn Carrier>>,
    ) -> Result<Self, TrustError> {
        let HttpTerms { timeout, authorities, token } = terms;
        let limits = ClientLimits { timeout: *timeout, bytes_max: BYTES_MOST, idle_max: concurrency.min(64) };
        let trusts = has_tls || authorities.is_some() || carrier.is_some();
        let client = match carrier {
            None => HttpClient::new(PROGRAM, limits, Trust::of(authorities.as_deref(), has_tls))?,
            Some(carrier) => HttpClient::carried(PROGRAM, limits, carrier),
        };
        let client = client.with_token(token.clone());
        let few = || Semaphore::new(concurrency.div_ceil(4));
        let (places, suspects, queries) = (Semaphore::new(concurrency), few(), few());
        let late = OnceLock::new();
        Ok(Self { client, late, trusts, limits, terms: terms.clone(), places, suspects, queries })
    }

    fn client(&self, has_tls: bool) -> Result<&HttpClient, Trouble> {
        if self.trusts || !has_tls {
            return Ok(&self.client);
        }
        let late = self.late.get_or_init(|| {
            let client = HttpClient::new(PROGRAM, self.limits, Trust::System);
            let client = client.map_err(|error| {
                format!("{error}; set TELEMETRY_HTTP_CA_FILE to a file with those of the endpoints")
            });
            Ok(client?.with_token(self.terms.token.clone()))
        });
        late.as_ref().map_err(|why| Trouble::new(ErrorKind::Io, why.clone()))
    }

    /// The telemetry of a node.
    pub(super) async fn telemetry(
        &self,
        endpoint: &NodeEndpoint,
        node: &str,
        standing: Standing,
    ) -> Result<Telemetry, Trouble> {
        let body = self.ask(Method::GET, (endpoint, node), Bytes::new(), standing).await?;
        Telemetry::read(&body)
            .map_err(|why| Trouble::new(ErrorKind::BadData, format!("the telemetry of {node}: {why}")))
    }

    /// Tells a node's control something, and returns what was read back.
    pub(super) async fn control(
        &self,
        endpoint: &NodeEndpoint,
        node: &str,
        (action, now): (Action, String),
        standing: Standing,
    ) -> Result<Option<power_units::Watts>, Trouble> {
        let body = Bytes::from(action.body(node, &now).to_string());
        let answer = self.ask(Method::POST, (endpoint, node), body, standing).await?;
        match Became::read(action, &answer) {
            Became::Applied(read_back) => Ok(read_back),
            Became::Blocked(why) => Err(Trouble::new(ErrorKind::NotSupported, why)),
            Became::Error(why) => Err(Trouble::new(ErrorKind::Io, why)),
        }
    }

    /// What a Prometheus server answers to `query` where it asks for this node; samples that are older than `look_back` are none.
    pub(crate) async fn query(
        &self,
        server: &NodeQuery,
        (node, query): (&str, &str),
        look_back: Duration,
    ) -> Result<Answer, String> {
        let NodeEndpoint { url: at, timeout, shows_token } = &server.server;
        let address = url(&server.server, node).map_err(|trouble| trouble.text)?;
        let client = self.client(at.has_tls()).map_err(|trouble| trouble.text)?;
        // It is never closed.
        let _place = self.queries.acquire().await;
        let asked = InstantQuery { address: &address, query, look_back: Some(look_back), timeout: *timeout };
        asked.ask(client, *shows_token).await.map_err(|why| format!("{address}: {why}"))
    }

    async fn ask(
        &self,
        method: Method,
        (endpoint, node): (&NodeEndpoint, &str),
        body: Bytes,
        standing: Standing,
    ) -> Result<Bytes, Trouble> {
        let url = url(endpoint, node)?;
        let client = self.client(endpoint.url.has_tls())?;
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
        let asking = Asking { timeout: endpoint.timeout, shows_token: endpoint.shows_token };
        let answer = client.ask_by(request, asking).await;
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

fn url(endpoint: &NodeEndpoint, node: &str) -> Result<Url, Trouble> {
    endpoint.url.for_node(node).map_err(|wrong| Trouble::new(ErrorKind::BadData, format!("{node}: {wrong}")))
}
