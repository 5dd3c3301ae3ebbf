//! Queries to a Prometheus server, or to what speaks its API: Thanos, Mimir, VictoriaMetrics.
//!
//! A query is asked for the present moment and answered with series. What is missing stays missing: `NaN`, an infinity
//! and a histogram are no number, an empty answer is empty, and a partial answer is none at all, because a sum over a
//! part of the series is too low. Each value carries the time for which the server evaluated it.
//!
//! The rule by which a series belongs to a node is [`of_node`].

mod ages;
mod answer;
mod join;
pub mod settings;

pub use crate::login::Login;
pub use ages::SampleAges;
pub use answer::{Answer, QueryError, SERIES_MAX, Series};
pub use join::{Belongs, NODE_LABELS, NodeNames, of_node};

use crate::config::Url;
use crate::http_client::{Asking, ClientLimits, HttpClient, NoAnswer, Trust, TrustError};
use bytes::Bytes;
use http::{HeaderMap, Request, StatusCode, header};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Answers that are asked for at once, at most.
const IDLE_MAX: usize = 8;
/// The largest answer: a hundred thousand series with a hundred bytes of labels each, and room.
const BYTES_MAX: usize = 32 * 1024 * 1024;
/// An answer above this size is not read on a thread that others wait for.
const QUICK_MAX: usize = 128 * 1024;

/// How a server is asked.
#[derive(Clone, Debug, PartialEq)]
pub struct PrometheusAccess {
    /// Its address, with the prefix of its paths if it has one.
    pub address: Url,
    /// The certificate authorities; `None`: those of the system.
    pub authorities: Option<PathBuf>,
    /// Who asks.
    pub login: Login,
    /// Further headers, such as the tenant's.
    pub headers: HeaderMap,
    /// One query may take this long.
    pub timeout: Duration,
}

/// A client of one server. Clones share its connections.
#[derive(Clone)]
pub struct Prometheus {
    client: Arc<HttpClient>,
    access: Arc<PrometheusAccess>,
}

impl Prometheus {
    /// A client over sockets; `program` is its `User-Agent`.
    ///
    /// # Errors
    /// If the authorities cannot be used.
    pub fn new(program: &'static str, access: PrometheusAccess) -> Result<Self, TrustError> {
        let has_tls = access.address.as_str().get(..6).is_some_and(|it| it.eq_ignore_ascii_case("https:"));
        if access.login != Login::None && !has_tls {
            tracing::warn!("{}: the server has no TLS, so the login is sent in the clear", access.address);
        }
        let trust = Trust::of(access.authorities.as_deref(), has_tls);
        let client = HttpClient::new(program, limits(&access), trust)?;
        Ok(Self::with(client, access))
    }

    fn with(client: HttpClient, access: PrometheusAccess) -> Self {
        let token = access.login.token().cloned();
        Self { client: Arc::new(client.with_token(token)), access: Arc::new(access) }
    }

    /// Its address, for messages.
    #[must_use]
    pub fn address(&self) -> &Url {
        &self.access.address
    }

    /// Evaluates a query at the server's present time. `look_back`: samples that are older are none, where the server can be told;
    /// without it they are none after its own time, which usually is five minutes.
    ///
    /// # Errors
    /// If there is no answer, or one that cannot be believed whole.
    pub async fn instant(&self, query: &str, look_back: Option<Duration>) -> Result<Answer, QueryError> {
        let PrometheusAccess { address, timeout, login, headers, .. } = &*self.access;
        let mut request = InstantQuery { address, query, look_back, timeout: *timeout }.request()?;
        request.headers_mut().extend(headers.clone());
        if let Some(value) = login.basic().map_err(QueryError::Unsent)? {
            request.headers_mut().insert(header::AUTHORIZATION, value);
        }
        answer(&self.client, request, Asking { timeout: *timeout, shows_token: true }).await
    }
}

/// A query for the present moment, to any server.
#[derive(Clone, Copy, Debug)]
pub struct InstantQuery<'a> {
    /// The address of the server, with the prefix of its paths if it has one.
    pub address: &'a Url,
    /// What is asked.
    pub query: &'a str,
    /// Samples that are older are none, where the server can be told.
    pub look_back: Option<Duration>,
    /// How long the answer may take.
    pub timeout: Duration,
}

impl InstantQuery<'_> {
    /// Evaluates it at the server's present time, by a client that has no server of its own. Such a client has no login but its
    /// token, which is shown if `shows_token`.
    ///
    /// # Errors
    /// If there is no answer, or one that cannot be believed whole.
    pub async fn ask(self, client: &HttpClient, shows_token: bool) -> Result<Answer, QueryError> {
        answer(client, self.request()?, Asking { timeout: self.timeout, shows_token }).await
    }

    fn request(&self) -> Result<Request<Bytes>, QueryError> {
        let base = self.address.as_str().trim_end_matches('/');
        let query: String = form_urlencoded::byte_serialize(self.query.as_bytes()).collect();
        let seconds = self.timeout.as_secs().max(1);
        let look_back =
            self.look_back.map(|time| format!("&lookback_delta={}s", time.as_secs())).unwrap_or_default();
        let request =
            Request::get(format!("{base}/api/v1/query?query={query}&timeout={seconds}s{look_back}"));
        request.body(Bytes::new()).map_err(|error| QueryError::Unsent(error.to_string()))
    }
}

async fn answer(client: &HttpClient, request: Request<Bytes>, asking: Asking) -> Result<Answer, QueryError> {
    // A refused query is answered with 400 or 422 and the reason in the body.
    let has_reason = |status: &StatusCode| status.is_success() || matches!(status.as_u16(), 400 | 422 | 503);
    let (status, body) =
        client.exchange_by(request, asking, has_reason).await.map_err(QueryError::NoAnswer)?;
    if body.is_empty() && !status.is_success() {
        return Err(QueryError::NoAnswer(NoAnswer::Refused(status)));
    }
    if body.len() <= QUICK_MAX {
        return Answer::read(&body, status);
    }
    let read = tokio::task::spawn_blocking(move || Answer::read(&body, status));
    read.await.unwrap_or_else(|_| Err(QueryError::Malformed("it could not be read".to_owned())))
}

const fn limits(access: &PrometheusAccess) -> ClientLimits {
    ClientLimits { timeout: access.timeout, bytes_max: BYTES_MAX, idle_max: IDLE_MAX }
}
