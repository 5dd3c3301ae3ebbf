//! A stream that gives up on a client that is too slow, by what the connection is waiting for.
//!
//! One [`Progress`] a connection is shared between the stream and the service behind it: the service says when it has
//! a request and when the answer is out, the stream sees bytes come and go. The clock runs while the connection is
//! idle, while a head is coming in (from its first byte, however slowly the others drip), and while the client takes
//! nothing of an answer. A body's clock is the service's own, since a body that is late still gets an answer.

use super::Limits;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

/// What a connection is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Waiting for a request.
    Idle,
    /// Reading a head.
    Head,
    /// The service has the request.
    Busy,
}

/// What a connection is doing, and how much of a head it has seen.
#[derive(Debug)]
pub(super) struct Progress {
    /// Counts the changes of phase; its remainder by three is the phase.
    steps: AtomicU64,
    head_bytes: AtomicU64,
}

impl Progress {
    /// A new connection waits for a request.
    pub(super) fn new() -> Self {
        Self { steps: AtomicU64::new(0), head_bytes: AtomicU64::new(0) }
    }

    pub(super) fn phase(&self) -> Phase {
        match self.steps.load(Ordering::Relaxed) % 3 {
            0 => Phase::Idle,
            1 => Phase::Head,
            _ => Phase::Busy,
        }
    }

    /// Goes on to a phase; staying in one changes nothing. All on the task of the connection, so nothing races.
    pub(super) fn enter(&self, phase: Phase) {
        while self.phase() != phase {
            self.steps.fetch_add(1, Ordering::Relaxed);
        }
        if phase == Phase::Idle {
            self.head_bytes.store(0, Ordering::Relaxed);
        }
    }

    pub(super) fn head_bytes(&self) -> u64 {
        self.head_bytes.load(Ordering::Relaxed)
    }
}

/// The stream with its clocks.
pub(super) struct Clocked<S> {
    stream: S,
    progress: std::sync::Arc<Progress>,
    limits: Limits,
    reading: Pin<Box<Sleep>>,
    /// The step that `reading` was set for.
    set_for: Option<u64>,
    writing: Option<Pin<Box<Sleep>>>,
}

impl<S> Clocked<S> {
    pub(super) fn new(stream: S, progress: std::sync::Arc<Progress>, limits: Limits) -> Self {
        let reading = Box::pin(tokio::time::sleep(limits.idle()));
        Self { stream, progress, limits, reading, set_for: None, writing: None }
    }

    fn restart(&mut self, after: Duration) {
        self.reading.as_mut().reset(tokio::time::Instant::now() + after);
    }

    /// Whether the client has used up the time of the phase that the connection is in.
    fn late(&mut self, context: &mut Context<'_>) -> bool {
        let after = match self.progress.phase() {
            // The service is done and the answer is not out yet: that is no idle connection.
            Phase::Idle if self.writing.is_some() => return false,
            Phase::Idle => self.limits.idle(),
            Phase::Head => self.limits.head(),
            Phase::Busy => return false,
        };
        let step = self.progress.steps.load(Ordering::Relaxed);
        if self.set_for != Some(step) {
            self.set_for = Some(step);
            self.restart(after);
        }
        self.reading.as_mut().poll(context).is_ready()
    }

    /// Starts the clock of a client that takes nothing, and looks at it.
    fn stalled(&mut self, context: &mut Context<'_>) -> bool {
        let after = self.limits.write();
        let clock = self.writing.get_or_insert_with(|| Box::pin(tokio::time::sleep(after)));
        clock.as_mut().poll(context).is_ready()
    }

    fn written<T>(&mut self, context: &mut Context<'_>, result: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if result.is_ready() {
            self.writing = None;
            if self.progress.phase() == Phase::Idle {
                // Bytes of the answer went out, so idleness begins anew; the task is woken when it has lasted.
                self.set_for = Some(self.progress.steps.load(Ordering::Relaxed));
                self.restart(self.limits.idle());
                let _woken_later = self.reading.as_mut().poll(context);
            }
            return result;
        }
        if self.stalled(context) { Poll::Ready(Err(SlowReader.into())) } else { Poll::Pending }
    }
}

/// The client took nothing of an answer for too long.
#[derive(Debug)]
pub(super) struct SlowReader;

impl std::fmt::Display for SlowReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the client took nothing of the answer")
    }
}

impl std::error::Error for SlowReader {}

impl From<SlowReader> for io::Error {
    fn from(slow: SlowReader) -> Self {
        Self::new(io::ErrorKind::TimedOut, slow)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Clocked<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        match Pin::new(&mut self.stream).poll_read(context, buffer) {
            Poll::Ready(result) => {
                let came = buffer.filled().len().saturating_sub(before);
                if came > 0 && self.progress.phase() == Phase::Idle {
                    self.progress.enter(Phase::Head);
                }
                if self.progress.phase() == Phase::Head {
                    let came = u64::try_from(came).unwrap_or(u64::MAX);
                    self.progress.head_bytes.fetch_add(came, Ordering::Relaxed);
                }
                Poll::Ready(result)
            }
            Poll::Pending if self.late(context) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Clocked<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.written(context, result)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.written(context, result)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.stream).poll_flush(context);
        self.written(context, result)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = ready!(Pin::new(&mut self.stream).poll_shutdown(context));
        Poll::Ready(result)
    }
}
