//! Handles one request: reads its body within the limits, calls its handler, counts its answer.

use super::clocked::{Phase, Progress};
use super::{RejectReason, Routes, Shared, Times};
use crate::config::parse::show_duration;
use futures::FutureExt;
use http::{HeaderValue, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Either, Full};
use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use std::net::SocketAddr;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

pub(super) type Answer<B> = Response<Told<Either<B, Full<Bytes>>>>;

/// The body of an answer, which records on the connection when it has been sent.
pub(super) struct Told<B> {
    body: B,
    progress: Arc<Progress>,
}

impl<B> Drop for Told<B> {
    fn drop(&mut self) {
        self.progress.enter(Phase::Idle);
    }
}

impl<B: Body + Unpin> Body for Told<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

pub(super) async fn answer<R: Routes>(
    shared: &Shared<R>,
    request: Request<Incoming>,
    peer: SocketAddr,
    progress: Arc<Progress>,
) -> Answer<R::Body> {
    progress.enter(Phase::Busy);
    let response = match read(shared, request, peer).await {
        Ok(request) => handle(shared, request, peer).await,
        Err(refused) => refused.map(Either::Right),
    };
    shared.meter.answered(response.status());
    response.map(|body| Told { body, progress })
}

/// A handler that panics is counted and answered with an error; the panic hook logs the panic.
async fn handle<R: Routes>(
    shared: &Shared<R>,
    request: Request<Bytes>,
    peer: SocketAddr,
) -> Response<Either<R::Body, Full<Bytes>>> {
    let what = format!("{} {}", request.method(), request.uri().path());
    match AssertUnwindSafe(shared.routes.answer(request, peer)).catch_unwind().await {
        Ok(response) => response.map(Either::Left),
        Err(_) => {
            shared.meter.panicked();
            tracing::error!(port = shared.meter.port().word(), %peer, "the handler of {what} panicked; it was answered 500; this is a defect of the program");
            plain(StatusCode::INTERNAL_SERVER_ERROR, "internal error\n").map(Either::Right)
        }
    }
}

fn plain(status: StatusCode, text: &'static str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(text));
    *response.status_mut() = status;
    response
}

/// An answer that closes the connection, since what the client still sends would be taken for a request.
fn last(status: StatusCode, text: &'static str) -> Response<Full<Bytes>> {
    let mut response = plain(status, text);
    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    response
}

async fn read<R: Routes>(
    shared: &Shared<R>,
    request: Request<Incoming>,
    peer: SocketAddr,
) -> Result<Request<Bytes>, Response<Full<Bytes>>> {
    let (head, body) = request.into_parts();
    let most = shared.routes.body_max(&head).unwrap_or(shared.limits.body_max());
    let announced = body.size_hint();
    let Times { room: patience, body: time, .. } = *shared.limits.times();
    let what = format!("{} {} from {}", head.method, head.uri.path(), peer.ip());
    let length = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
    // Nothing is kept of a body that is too large.
    let needed = match (length(announced.lower()), announced.upper().map(length)) {
        (least, _) if least > most => 0,
        (_, all) => all.map_or(most, |all| all.min(most)),
    };
    let room = shared.room.take(needed, patience).await;
    let mut came = Came { bytes: Vec::new(), total: 0, keeps: room.is_some() };
    let waits = head.headers.contains_key(header::EXPECT);
    let outcome = tokio::time::timeout(time, came.take(body, most, waits)).await;
    let Some(room) = room else {
        let what = format!(
            "there was no room for the body of {what} within {}: bodies of {} bytes may be in flight; it was answered 503",
            show_duration(patience),
            shared.limits.bodies_max()
        );
        shared.refuse(RejectReason::BodiesFull, peer, &what);
        return Err(last(
            StatusCode::SERVICE_UNAVAILABLE,
            "too many large bodies are in flight; try again\n",
        ));
    };
    match outcome {
        Ok(Ok(true)) => Ok(Request::from_parts(head, room.keep(came.bytes))),
        Ok(Ok(false)) => {
            let what = format!("the body of {what} is over the limit of {most} bytes; it was answered 413");
            shared.refuse(RejectReason::BodyTooLarge, peer, &what);
            Err(last(StatusCode::PAYLOAD_TOO_LARGE, "the body is over the limit of this server\n"))
        }
        Ok(Err(error)) => {
            shared.refuse(RejectReason::BodyBroken, peer, &format!("the body of {what} broke off: {error}"));
            Err(last(StatusCode::BAD_REQUEST, "the body broke off\n"))
        }
        Err(_) => {
            let what = format!(
                "the body of {what} did not come in {} ({} bytes did); it was answered 408",
                show_duration(time),
                came.total
            );
            shared.refuse(RejectReason::BodySlow, peer, &what);
            Err(last(StatusCode::REQUEST_TIMEOUT, "the body did not come in time\n"))
        }
    }
}

/// What has arrived of a body.
struct Came {
    bytes: Vec<u8>,
    total: usize,
    /// Whether there is memory for it.
    keeps: bool,
}

impl Came {
    /// Reads a body; returns `false` if it is larger than `most` or not kept. The rest of such a body is read and
    /// discarded, up to a limit: closing a connection with unread bytes resets it, and the client would never see the
    /// answer.
    ///
    /// A client that waits to be asked for its body (`Expect: 100-continue`) is not asked for one that is not kept.
    async fn take(&mut self, mut body: Incoming, most: usize, waits: bool) -> Result<bool, hyper::Error> {
        let announced = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
        let thrown_away_max = most.saturating_mul(4).max(1 << 20);
        self.keeps &= announced <= most;
        if !self.keeps && waits {
            return Ok(false);
        }
        if self.keeps {
            // Memory pages that are never written cost nothing, and a body with a known length does not grow by
            // copying.
            self.bytes.reserve_exact(announced);
        }
        while let Some(frame) = body.frame().await {
            // Trailers are not part of a body.
            let Ok(data) = frame?.into_data() else { continue };
            self.total = self.total.saturating_add(data.len());
            self.keeps &= self.total <= most;
            if !self.keeps {
                self.bytes = Vec::new();
                if self.total > thrown_away_max.saturating_add(most) {
                    return Ok(false);
                }
                continue;
            }
            self.bytes.extend_from_slice(&data);
        }
        Ok(self.keeps)
    }
}
