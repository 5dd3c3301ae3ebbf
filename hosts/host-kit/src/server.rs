//! An HTTP server that a hostile or slow client cannot exhaust, and that ends without dropping work.
//!
//! A program provides [`Routes`]. The server reads each request completely, within the [`ServerLimits`]. It answers
//! refused requests itself, counts them, and logs a line that names the client. If a handler panics, the server answers
//! 500 and continues (if panics unwind; a build that aborts on panic is restarted instead).
//!
//! Terms: a request's *head* is its first line and headers; a connection is *idle* between two requests; to *drain* is
//! to answer the requests that have begun and to accept no new ones.

mod body_memory;
mod certificate;
mod clocked;
mod connection;
mod debug;
mod limits;
mod meter;
mod places;
mod request;
mod scrapers;
pub mod settings;
mod tls;

pub use certificate::CertificateError;
pub use debug::{Debug, Guard};
pub use limits::{Drain, LimitError, ServerLimits, Times};
pub use meter::{Port, RejectReason, ServerMetrics};
pub use scrapers::{MetricsAuth, Scrapers};
pub use tls::{Certificates, ServerTlsError, TlsFiles};

use crate::clock::HostClock;
use crate::config::Listen;
use crate::log::Repeats;
use crate::shutdown::{self, Stop};
use body_memory::BodyMemory;
use clocked::Progress;
use connection::Connection;
use http::request::Parts;
use http::{Request, Response};
use hyper::body::{Body, Bytes};
use meter::Meter;
use places::{Place, Places};
use std::error::Error;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// The requests that a program answers.
pub trait Routes: Send + Sync + 'static {
    /// The bodies of its answers.
    type Body: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + Send + Unpin + 'static;

    /// The largest body that is accepted for this request, if it differs from the server's limit.
    fn body_max(&self, _head: &Parts) -> Option<usize> {
        None
    }

    /// Answers one request, whose body has been read completely.
    fn answer(
        &self,
        request: Request<Bytes>,
        peer: SocketAddr,
    ) -> impl Future<Output = Response<Self::Body>> + Send;
}

/// A server that has opened its port, but does not serve yet.
pub struct HttpServer<R> {
    listener: TcpListener,
    shared: Arc<Shared<R>>,
    tls: Option<Certificates>,
}

/// What the connections of one server share.
struct Shared<R> {
    routes: R,
    limits: ServerLimits,
    room: BodyMemory,
    /// The counter that [`Progress`] increments.
    turns: Arc<AtomicU64>,
    meter: Meter,
    clock: Arc<dyn HostClock>,
    repeats: Mutex<Repeats>,
}

/// A line about the same trouble is logged once in this time.
const REPEAT_WINDOW: Duration = Duration::from_secs(60);

impl<R> Shared<R> {
    /// Counts a refusal, and logs it unless the same was logged shortly before for the same client.
    fn refuse(&self, reason: RejectReason, peer: SocketAddr, what: &str) {
        self.meter.refused(reason);
        // By address, not by port: a client that tries again uses another port.
        let key = format!("{} {}", reason.word(), peer.ip());
        let leave = self.repeats.lock().unwrap_or_else(PoisonError::into_inner).note(&key, self.clock.mono());
        if let Some(said) = leave {
            tracing::warn!(port = self.meter.port().word(), %peer, reason = reason.word(), "{what}{said}");
        }
    }

    /// Handles a connection that could not be accepted: mostly file descriptors are missing, and an immediate retry
    /// does not help.
    async fn not_accepted(&self, error: &io::Error) {
        let what = format!("a connection could not be accepted: {error}");
        let leave =
            self.repeats.lock().unwrap_or_else(PoisonError::into_inner).note(&what, self.clock.mono());
        if let Some(said) = leave {
            let port = self.meter.port().word();
            tracing::warn!(port, "{what}; is the limit of open files too low?{said}");
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }

    fn flush(&self) {
        let over = self.repeats.lock().unwrap_or_else(PoisonError::into_inner).flush(self.clock.mono());
        for (key, said) in over {
            tracing::warn!(port = self.meter.port().word(), "{key}: repeated{said}");
        }
    }
}

impl<R: Routes> HttpServer<R> {
    /// Takes the port. `port` says which of a program's servers this is.
    pub async fn bind(
        listen: Listen,
        port: Port,
        routes: R,
        limits: ServerLimits,
        metrics: &ServerMetrics,
        clock: Arc<dyn HostClock>,
    ) -> io::Result<Self> {
        let listener = bind(listen).await.map_err(|error| {
            io::Error::new(error.kind(), format!("cannot listen on {listen} ({}): {error}", port.word()))
        })?;
        let meter = metrics.of(port);
        let repeats = Mutex::new(Repeats::every(REPEAT_WINDOW));
        let (room, turns) = (BodyMemory::new(limits.bodies_max()), Arc::default());
        Ok(Self {
            listener,
            shared: Arc::new(Shared { routes, limits, room, turns, meter, clock, repeats }),
            tls: None,
        })
    }

    /// Speaks TLS with these certificates, if there are any.
    #[must_use]
    pub fn with_tls(self, tls: Option<Certificates>) -> Self {
        Self { tls, ..self }
    }

    /// Where it listens.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until asked to stop, then drains. Returns how many connections had to be closed by force.
    pub async fn run(self, stop: Stop, drain: Drain) -> usize {
        let Self { listener, shared, tls } = self;
        let (last_word, ending) = shutdown::pair();
        let mut connections = JoinSet::new();
        let mut places = Places::new(shared.limits.connections_max(), shared.limits.peer_max());
        let last_call = async {
            stop.requested().await;
            // Still serving: load balancers learn from /readyz that this server ends, and that takes a while.
            tokio::time::sleep(drain.linger()).await;
        };
        tokio::pin!(last_call);
        let mut flush = tokio::time::interval(REPEAT_WINDOW);
        loop {
            tokio::select! {
                () = &mut last_call => break,
                accepted = listener.accept() => match accepted {
                    Ok((stream, peer)) => admit(&shared, &mut places, &mut connections, Connection {
                        shared: shared.clone(), stream, peer, tls: tls.clone(), ending: ending.clone(),
                        progress: Arc::new(Progress::new(shared.turns.clone())),
                    }),
                    Err(error) => shared.not_accepted(&error).await,
                },
                Some(_) = connections.join_next(), if !connections.is_empty() => {}
                _ = flush.tick() => shared.flush(),
            }
        }
        drop(listener);
        last_word.quietly();
        finish(&shared, connections, drain.deadline()).await
    }
}

/// Listens on every address of both families if the kernel has both, else on what there is.
async fn bind(listen: Listen) -> io::Result<TcpListener> {
    let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
    for address in listen.candidates() {
        match TcpListener::bind(address).await {
            Ok(listener) => return Ok(listener),
            // Only a missing family leads to the next candidate: a port in use stays in use.
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => return Err(error),
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn admit<R: Routes>(
    shared: &Shared<R>,
    places: &mut Places,
    connections: &mut JoinSet<()>,
    connection: Connection<R>,
) {
    // A client has the same address whichever family the port is of.
    let peer = connection.peer.ip().to_canonical();
    let (most, own) = (shared.limits.connections_max(), shared.limits.peer_max());
    match places.find(peer) {
        Place::Free => {}
        Place::Instead(other) => {
            let what = format!(
                "a connection of {other} that waited for its client gave way to a new one of {peer}: {most} may be open, {own} of one address"
            );
            shared.refuse(RejectReason::GaveWay, SocketAddr::new(other, 0), &what);
        }
        Place::Full => {
            let what = format!("all {most} connections are in use; a new one was closed unanswered");
            return shared.refuse(RejectReason::TooManyConnections, connection.peer, &what);
        }
        Place::PeerFull => {
            let what = format!(
                "all {own} connections that one address may have are in use; a new one was closed unanswered"
            );
            return shared.refuse(RejectReason::TooManyOfPeer, connection.peer, &what);
        }
    }
    let progress = connection.progress.clone();
    places.hold(peer, progress, connections.spawn(connection.serve()));
}

async fn finish<R>(shared: &Shared<R>, mut connections: JoinSet<()>, deadline: Duration) -> usize {
    let all = async { while connections.join_next().await.is_some() {} };
    if tokio::time::timeout(deadline, all).await.is_err() {
        let left = connections.len();
        tracing::warn!(
            port = shared.meter.port().word(),
            "{left} connections were cut off at the end of the drain"
        );
        connections.shutdown().await;
        return left;
    }
    tracing::info!(port = shared.meter.port().word(), "every connection has ended");
    0
}

/// The transport of a connection.
trait Stream: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send {}

impl Stream for TcpStream {}
impl Stream for tokio_rustls::server::TlsStream<TcpStream> {}
