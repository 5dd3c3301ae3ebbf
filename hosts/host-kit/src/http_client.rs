//! HTTP requests to servers other than the API server. Each returns the whole body within a time and a size, or the reason
//! why there is none.
//!
//! Redirects are not followed, and a status other than success is an error. A certificate is always verified, with its
//! name; no setting turns that off.

use crate::bearer::TokenFile;
use crate::config::parse::show_duration;
use crate::connect::chain;
use bytes::Bytes;
use futures::future::BoxFuture;
use http::{HeaderValue, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Body;
use hyper_rustls::{ConfigBuilderExt, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use std::error::Error;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// An idle connection is closed after this time.
const IDLE: Duration = Duration::from_secs(60);

/// The limits of each request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientLimits {
    /// From the request to the last byte of the body.
    pub timeout: Duration,
    /// The largest body that is read.
    pub bytes_max: usize,
    /// Idle connections to one server that are kept.
    pub idle_max: usize,
}

/// How one request is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asking {
    /// From the request to the last byte of the body.
    pub timeout: Duration,
    /// Whether the token of the client is shown, if it has one.
    pub shows_token: bool,
}

/// The authorities by which a server's certificate is verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trust<'a> {
    /// None: for servers without TLS. The authorities of the system are not read.
    Nobody,
    /// Those of the system.
    System,
    /// Those in this file (PEM).
    File(&'a Path),
}

impl<'a> Trust<'a> {
    /// The authorities in a file, or without one those of the system if there is TLS at all.
    #[must_use]
    pub fn of(file: Option<&'a Path>, has_tls: bool) -> Self {
        match file {
            Some(file) => Self::File(file),
            None if has_tls => Self::System,
            None => Self::Nobody,
        }
    }
}

/// Why the authorities cannot be used.
#[derive(Debug)]
pub enum TrustError {
    /// The file cannot be used.
    File {
        /// Its path.
        file: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The system has no authorities.
    System(String),
    /// The TLS library refuses its settings.
    Library(rustls::Error),
}

/// Why a request failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoAnswer {
    /// The answer was not complete within this time.
    Late(Duration),
    /// The status is not a success.
    Refused(StatusCode),
    /// There was no connection, or it broke before the answer began.
    Failed(String),
    /// The body is too large, or the connection broke within it.
    Unreadable(String),
}

/// A transport without sockets, for a test whose servers run in the same process and in virtual time.
pub trait Carrier: Send + Sync + 'static {
    /// Sends a request and returns the whole answer; an error means that no answer arrived.
    fn carry(&self, request: Request<Bytes>) -> BoxFuture<'static, io::Result<Response<Bytes>>>;
}

enum Way {
    Sockets(Client<HttpsConnector<HttpConnector>, Full<Bytes>>),
    Carried(Arc<dyn Carrier>),
}

/// A client that keeps its connections. A program has one for each kind of server.
pub struct HttpClient {
    way: Way,
    limits: ClientLimits,
    program: HeaderValue,
    token: Option<TokenFile>,
}

impl HttpClient {
    /// A client over sockets; `program` is its `User-Agent`.
    ///
    /// # Errors
    /// If the authorities cannot be used.
    pub fn new(program: &'static str, limits: ClientLimits, trust: Trust<'_>) -> Result<Self, TrustError> {
        let way = Way::Sockets(sockets(limits, tls(trust)?));
        Ok(Self { way, limits, program: HeaderValue::from_static(program), token: None })
    }

    /// A client without sockets.
    pub fn carried(program: &'static str, limits: ClientLimits, carrier: Arc<dyn Carrier>) -> Self {
        Self { way: Way::Carried(carrier), limits, program: HeaderValue::from_static(program), token: None }
    }

    /// Shows this token with each request.
    #[must_use]
    pub fn with_token(self, token: Option<TokenFile>) -> Self {
        Self { token, ..self }
    }

    /// Sends a request, whose URI must be absolute, and returns the body of the answer.
    ///
    /// # Errors
    /// If the status is not a success, or if the answer is too large or too late.
    pub async fn ask(&self, request: Request<Bytes>) -> Result<Bytes, NoAnswer> {
        self.ask_by(request, Asking { timeout: self.limits.timeout, shows_token: true }).await
    }

    /// The same with a time of its own, and with or without the token. A connection must still be there within the time of the client.
    ///
    /// # Errors
    /// If the status is not a success, or if the answer is too large or too late.
    pub async fn ask_by(&self, request: Request<Bytes>, asking: Asking) -> Result<Bytes, NoAnswer> {
        let (status, body) = self.exchange_by(request, asking, StatusCode::is_success).await?;
        if status.is_success() { Ok(body) } else { Err(NoAnswer::Refused(status)) }
    }

    /// Sends a request, and returns the status of the answer and its body. The body of an answer whose status is not
    /// wanted is not read, and is empty.
    ///
    /// # Errors
    /// If the answer is too large or too late.
    pub async fn exchange(
        &self,
        request: Request<Bytes>,
        wanted: impl Fn(&StatusCode) -> bool,
    ) -> Result<(StatusCode, Bytes), NoAnswer> {
        let asking = Asking { timeout: self.limits.timeout, shows_token: true };
        self.exchange_by(request, asking, wanted).await
    }

    pub(crate) async fn exchange_by(
        &self,
        mut request: Request<Bytes>,
        Asking { timeout, shows_token }: Asking,
        wanted: impl Fn(&StatusCode) -> bool,
    ) -> Result<(StatusCode, Bytes), NoAnswer> {
        request.headers_mut().entry(header::USER_AGENT).or_insert_with(|| self.program.clone());
        if let Some(token) = self.token.as_ref().filter(|_| shows_token) {
            let header = token.header().map_err(NoAnswer::Failed)?;
            request.headers_mut().insert(header::AUTHORIZATION, header);
        }
        let bytes_max = self.limits.bytes_max;
        let exchange = async {
            match &self.way {
                Way::Sockets(client) => {
                    let response = client.request(request.map(Full::from)).await;
                    let response = response.map_err(|error| NoAnswer::Failed(chain(&error)))?;
                    take(response, bytes_max, wanted).await
                }
                Way::Carried(carrier) => {
                    let response = carrier.carry(request).await;
                    let response = response.map_err(|error| NoAnswer::Failed(error.to_string()))?;
                    take(response.map(Full::from), bytes_max, wanted).await
                }
            }
        };
        tokio::time::timeout(timeout, exchange).await.unwrap_or(Err(NoAnswer::Late(timeout)))
    }
}

async fn take<B>(
    response: Response<B>,
    bytes_max: usize,
    wanted: impl Fn(&StatusCode) -> bool,
) -> Result<(StatusCode, Bytes), NoAnswer>
where
    B: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>>,
{
    let status = response.status();
    if !wanted(&status) {
        return Ok((status, Bytes::new()));
    }
    let body = Limited::new(response.into_body(), bytes_max).collect().await;
    Ok((status, body.map_err(|error| NoAnswer::Unreadable(chain(&*error)))?.to_bytes()))
}

fn sockets(limits: ClientLimits, tls: ClientConfig) -> Client<HttpsConnector<HttpConnector>, Full<Bytes>> {
    let mut connector = HttpConnector::new();
    connector.set_connect_timeout(Some(limits.timeout));
    connector.set_nodelay(true);
    connector.enforce_http(false);
    let connector = HttpsConnectorBuilder::new()
        .with_tls_config(tls)
        .https_or_http()
        .enable_http1()
        .wrap_connector(connector);
    Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(IDLE)
        .pool_max_idle_per_host(limits.idle_max)
        .build(connector)
}

fn tls(trust: Trust<'_>) -> Result<ClientConfig, TrustError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder = builder.map_err(TrustError::Library)?;
    let builder = match trust {
        Trust::Nobody => builder.with_root_certificates(RootCertStore::empty()),
        Trust::System => {
            builder.with_native_roots().map_err(|error| TrustError::System(error.to_string()))?
        }
        Trust::File(file) => builder.with_root_certificates(authorities(file)?),
    };
    Ok(builder.with_no_client_auth())
}

fn authorities(file: &Path) -> Result<RootCertStore, TrustError> {
    let wrong = |why: String| TrustError::File { file: file.to_owned(), why };
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(file).map_err(|error| wrong(error.to_string()))? {
        let certificate = certificate.map_err(|error| wrong(error.to_string()))?;
        roots.add(certificate).map_err(|error| wrong(error.to_string()))?;
    }
    if roots.is_empty() {
        return Err(wrong("there is no certificate in it".to_owned()));
    }
    Ok(roots)
}

impl fmt::Display for TrustError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { file, why } => write!(f, "{}: {why}", file.display()),
            Self::System(why) => write!(f, "this system knows no certificate authorities ({why})"),
            Self::Library(error) => write!(f, "TLS: {error}"),
        }
    }
}

impl Error for TrustError {}

impl fmt::Display for NoAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Late(time) => write!(f, "no answer in {}", show_duration(*time)),
            Self::Refused(status) => write!(f, "it answers {status}"),
            Self::Failed(why) => f.write_str(why),
            Self::Unreadable(why) => write!(f, "its answer: {why}"),
        }
    }
}

impl Error for NoAnswer {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_authorities_is_refused_with_its_name() {
        let folder = std::env::temp_dir().join(format!("host-kit-trust-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let file = folder.join("ca.pem");
        let said = || tls(Trust::File(&file)).map(drop).unwrap_err().to_string();
        assert!(said().contains("ca.pem: "), "there is none");
        for text in
            ["", "not a certificate", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"]
        {
            std::fs::write(&file, text).unwrap();
            assert!(said().contains("ca.pem: "), "{text:?}: {}", said());
        }
        assert!(tls(Trust::Nobody).is_ok());
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
