//! The server over HTTP/1.1, with or without TLS and a token, for kubectl and for hosts in other processes.

use crate::EmbeddedApi;
use crate::api::{Body, refuse, unauthorized};
use crate::failure::{Failure, Reason};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use futures::StreamExt;
use http::{Request, Response, header};
use http_body_util::{BodyExt, BodyStream, LengthLimitError, Limited, StreamBody};
use hyper::body::{Body as _, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use serde_json::json;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use subtle::ConstantTimeEq;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

/// The largest body that the API server accepts: 3 MiB.
const BODY_MAX: usize = 3 * 1024 * 1024;
/// How long open requests may take when the server stops. Watches are ended at once.
const DRAIN: Duration = Duration::from_secs(5);
const HANDSHAKE: Duration = Duration::from_secs(10);

/// TLS for a served API.
#[derive(Clone)]
pub struct Tls {
    /// The certificates and the key.
    pub config: Arc<ServerConfig>,
    /// The certificate authority that clients must trust, as PEM.
    pub authority: String,
}

impl Tls {
    /// A self-signed certificate for this machine's loopback address, for a server that lives as long as its process.
    ///
    /// # Errors
    /// If the machine provides no random numbers for a key.
    pub fn loopback() -> Result<Self, String> {
        let names = vec!["127.0.0.1".to_owned(), "localhost".to_owned()];
        let made = rcgen::generate_simple_self_signed(names).map_err(|error| error.to_string())?;
        let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).map_err(str::to_owned)?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .and_then(|config| {
                config.with_no_client_auth().with_single_cert(vec![made.cert.der().clone()], key)
            })
            .map_err(|error| error.to_string())?;
        Ok(Self { config: Arc::new(config), authority: made.cert.pem() })
    }
}

/// A bearer token that every request must carry. It never appears in a log.
#[derive(Clone)]
pub struct Token(String);

impl Token {
    /// `None` if the text is empty or has characters other than visible ASCII.
    pub fn new(text: &str) -> Option<Self> {
        let fits = !text.is_empty() && text.bytes().all(|letter| letter.is_ascii_graphic());
        fits.then(|| Self(text.to_owned()))
    }

    /// Compares in constant time, so that the time does not reveal how much of the token was right.
    fn is(&self, given: &str) -> bool {
        self.0.as_bytes().ct_eq(given.as_bytes()).into()
    }
}

/// A listening server. If it is dropped, the server keeps running until the runtime ends.
pub struct Serving {
    address: SocketAddr,
    authority: Option<String>,
    token: Option<Token>,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl EmbeddedApi {
    /// Listens on `address`; port 0 chooses a free port.
    pub async fn serve(
        &self,
        address: SocketAddr,
        tls: Option<Tls>,
        token: Option<Token>,
    ) -> io::Result<Serving> {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        let stop = CancellationToken::new();
        let acceptor = tls.as_ref().map(|tls| TlsAcceptor::from(tls.config.clone()));
        let task = tokio::spawn(accept(self.clone(), listener, acceptor, token.clone(), stop.clone()));
        Ok(Serving { address, authority: tls.map(|tls| tls.authority), token, stop, task })
    }
}

impl Serving {
    /// The address on which it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// A kubeconfig for this server. It is JSON, which is valid YAML.
    pub fn kubeconfig(&self) -> String {
        let scheme = if self.authority.is_some() { "https" } else { "http" };
        let mut cluster = json!({"server": format!("{scheme}://{}", self.address)});
        if let Some(authority) = &self.authority {
            cluster["certificate-authority-data"] = json!(STANDARD.encode(authority));
        }
        let user = self.token.as_ref().map_or_else(|| json!({}), |token| json!({"token": token.0}));
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "embedded",
            "clusters": [{"name": "embedded", "cluster": cluster}],
            "users": [{"name": "embedded", "user": user}],
            "contexts": [{"name": "embedded", "context": {"cluster": "embedded", "user": "embedded"}}],
        });
        format!("{config:#}\n")
    }

    /// Writes the kubeconfig to a file that only its owner can read, because it may contain the token.
    pub fn write_kubeconfig(&self, path: &Path) -> io::Result<()> {
        use std::io::Write;
        use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
        let mut file =
            std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
        file.set_permissions(std::fs::Permissions::from_mode(0o600))?;
        file.write_all(self.kubeconfig().as_bytes())
    }

    /// Stops listening, lets open requests finish, and waits for them.
    pub async fn stop(self) {
        self.stop.cancel();
        if let Err(error) = self.task.await {
            tracing::warn!(%error, "the server task failed");
        }
    }
}

async fn accept(
    api: EmbeddedApi,
    listener: TcpListener,
    acceptor: Option<TlsAcceptor>,
    token: Option<Token>,
    stop: CancellationToken,
) {
    let mut connections = JoinSet::new();
    loop {
        let stream = tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    // Probably out of file descriptors: open connections must end before a new one is accepted.
                    tracing::warn!(%error, "a connection was not accepted");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                }
            },
            Some(_) = connections.join_next() => continue,
            () = stop.cancelled() => break,
        };
        let (api, acceptor, token, stop) = (api.clone(), acceptor.clone(), token.clone(), stop.clone());
        connections.spawn(async move {
            let ended = match acceptor {
                None => converse(api, stream, token, stop).await,
                Some(acceptor) => match secured(&acceptor, stream).await {
                    Ok(stream) => converse(api, stream, token, stop).await,
                    Err(error) => Err(error),
                },
            };
            if let Err(error) = ended {
                tracing::debug!(%error, "a connection ended");
            }
        });
    }
    drop(listener);
    let drained = async { while connections.join_next().await.is_some() {} };
    if tokio::time::timeout(DRAIN, drained).await.is_err() {
        tracing::warn!("requests were still open when the server stopped");
    }
}

async fn secured(
    acceptor: &TlsAcceptor,
    stream: TcpStream,
) -> io::Result<tokio_rustls::server::TlsStream<TcpStream>> {
    let shaken = tokio::time::timeout(HANDSHAKE, acceptor.accept(stream)).await;
    shaken.map_err(|_| io::Error::new(io::ErrorKind::TimedOut, "no TLS handshake"))?
}

async fn converse(
    api: EmbeddedApi,
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    token: Option<Token>,
    stop: CancellationToken,
) -> io::Result<()> {
    let ends = stop.clone();
    let service = service_fn(move |request: Request<Incoming>| {
        let (api, token, ends) = (api.clone(), token.clone(), ends.clone());
        async move { answer(&api, token.as_ref(), request).await.map(|response| until(response, ends)) }
    });
    let connection =
        http1::Builder::new().timer(TokioTimer::new()).serve_connection(TokioIo::new(stream), service);
    let mut connection = pin!(connection);
    tokio::select! {
        ended = connection.as_mut() => return ended.map_err(io::Error::other),
        () = stop.cancelled() => {}
    }
    connection.as_mut().graceful_shutdown();
    connection.await.map_err(io::Error::other)
}

/// The same answer, which ends when the server stops: a watch would keep it.
fn until(response: Response<Body>, stop: CancellationToken) -> Response<Body> {
    if response.body().size_hint().exact().is_some() {
        return response;
    }
    response.map(|body| {
        let frames = BodyStream::new(body).take_until(Box::pin(stop.cancelled_owned()));
        BodyExt::boxed_unsync(StreamBody::new(frames))
    })
}

async fn answer(
    api: &EmbeddedApi,
    token: Option<&Token>,
    request: Request<Incoming>,
) -> io::Result<Response<Body>> {
    let (head, body) = request.into_parts();
    if let Some(token) = token {
        let given = head.headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        let given = given.and_then(|value| value.strip_prefix("Bearer ")).unwrap_or("");
        if !token.is(given) {
            return Ok(unauthorized());
        }
    }
    match Limited::new(body, BODY_MAX).collect().await {
        Ok(body) => api.answer(&head, body.to_bytes()).await,
        Err(error) if error.is::<LengthLimitError>() => {
            let message = format!("Request entity too large: limit is {BODY_MAX}");
            Ok(refuse(&Failure::new(Reason::RequestEntityTooLarge, message)))
        }
        Err(error) => Err(io::Error::other(error)),
    }
}
