//! Serves one connection from its first byte to its last.

use super::clocked::{Clocked, Phase, Progress, SlowReader};
use super::{Certificates, RejectReason, Routes, Shared, Stream, request, tls};
use crate::config::parse::show_duration;
use crate::shutdown::Stop;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use std::convert::Infallible;
use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::net::TcpStream;

/// A connection that was accepted.
pub(super) struct Connection<R> {
    pub(super) shared: Arc<Shared<R>>,
    pub(super) stream: TcpStream,
    pub(super) peer: SocketAddr,
    pub(super) progress: Arc<Progress>,
    pub(super) tls: Option<Certificates>,
    /// Requested when the server drains.
    pub(super) ending: Stop,
}

impl<R: Routes> Connection<R> {
    pub(super) async fn serve(self) {
        let Self { shared, stream, peer, progress, tls, ending } = self;
        let _open = shared.meter.opened();
        // Small answers are sent at once. If the option cannot be set, the connection is served all the same.
        let _best_effort = stream.set_nodelay(true);
        match tls {
            None => talk(&shared, stream, peer, progress, &ending).await,
            Some(certificates) => {
                // When the server drains, it does not wait for a connection that is still in its handshake.
                let handshake = tokio::select! {
                    biased;
                    handshake = certificates.accept(stream, shared.limits.times().handshake) => handshake,
                    () = ending.requested() => return,
                };
                match handshake {
                    Ok(stream) => talk(&shared, stream, peer, progress, &ending).await,
                    Err(tls::Refusal { reason, what }) => shared.refuse(reason, peer, &what),
                }
            }
        }
    }
}

async fn talk<R: Routes, S: Stream>(
    shared: &Arc<Shared<R>>,
    stream: S,
    peer: SocketAddr,
    progress: Arc<Progress>,
    ending: &Stop,
) {
    let stream = Clocked::new(stream, progress.clone(), *shared.limits.times());
    let service = service_fn(|request| {
        let (shared, progress) = (shared.clone(), progress.clone());
        async move { Ok::<_, Infallible>(request::answer(&shared, request, peer, progress).await) }
    });
    let connection = http1::Builder::new()
        // The stream itself limits the time for a head: it can tell an idle connection from a slow one.
        .header_read_timeout(None)
        .serve_connection(TokioIo::new(stream), service);
    tokio::pin!(connection);
    let result = tokio::select! {
        result = connection.as_mut() => result,
        () = ending.requested() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if progress.was_silent() {
        // Probes and load balancers check whether a port is open: that is counted but not logged.
        shared.meter.refused(RejectReason::Silent);
    }
    if let Err(error) = result {
        explain(shared, peer, &progress, &error);
    }
}

/// Logs what went wrong, if somebody can do something about it.
fn explain<R>(shared: &Shared<R>, peer: SocketAddr, progress: &Progress, error: &hyper::Error) {
    let io = error.source().and_then(|source| source.downcast_ref::<std::io::Error>());
    let slow_reader = io.is_some_and(|io| io.get_ref().is_some_and(|inner| inner.is::<SlowReader>()));
    if slow_reader {
        let what = format!(
            "{} took nothing of its answer for {}; the connection is closed",
            peer.ip(),
            show_duration(shared.limits.times().write)
        );
        return shared.refuse(RejectReason::AnswerSlow, peer, &what);
    }
    let timed_out = io.is_some_and(|io| io.kind() == std::io::ErrorKind::TimedOut);
    match (timed_out, progress.phase()) {
        (true, Phase::Head) => {
            let what = format!(
                "{} sent {} bytes of a request's head in {} and no end of it; the connection is closed",
                peer.ip(),
                progress.head_bytes(),
                show_duration(shared.limits.times().head)
            );
            shared.refuse(RejectReason::HeadSlow, peer, &what);
        }
        (true, Phase::Idle | Phase::Busy) => tracing::debug!(%peer, "an idle connection was closed"),
        (false, Phase::Idle | Phase::Head | Phase::Busy) if error.is_parse() => {
            let what = format!("{} sent what is not HTTP ({error}); is that port meant?", peer.ip());
            shared.refuse(RejectReason::NotHttp, peer, &what);
        }
        // A client that closes the connection is not a problem of the server.
        (false, Phase::Idle | Phase::Head | Phase::Busy) => {
            tracing::debug!(%peer, "connection ended: {error}")
        }
    }
}
