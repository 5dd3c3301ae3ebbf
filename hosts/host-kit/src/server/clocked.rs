//! A stream that gives up on a client that is too slow, by what the connection is waiting for.
//!
//! One [`Progress`] a connection is shared between the stream and the service behind it: the service says when it has
//! a request and when the answer is out, the stream sees bytes come and go. The clock runs until a connection's first byte,
//! while it is idle, while a head is coming in (from its first byte, however slowly the others drip), and while the client takes
//! nothing of an answer. A body's clock is the service's own, since a body that is late still gets an answer.

use super::Times;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
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
    /// The turns that all connections of a server take when they begin to wait for their clients.
    turns: Arc<AtomicU64>,
    /// The last turn of this one.
    turn: AtomicU64,
    /// Whether an answer is going out that the client does not take.
    stuck: AtomicBool,
    /// Whether the time for its first byte is over.
    silent: AtomicBool,
}

impl Progress {
    /// A new connection waits for a request.
    pub(super) fn new(turns: Arc<AtomicU64>) -> Self {
        let turn = AtomicU64::new(turns.fetch_add(1, Ordering::Relaxed));
        let (steps, head_bytes) = (AtomicU64::new(0), AtomicU64::new(0));
        let (stuck, silent) = (AtomicBool::new(false), AtomicBool::new(false));
        Self { steps, head_bytes, turns, turn, stuck, silent }
    }

    /// Where a connection stands among those that wait for their clients: before it has asked anything, and since which
    /// turn. Nothing while it has a request or an answer.
    pub(super) fn waits_since(&self) -> Option<(bool, u64)> {
        match self.phase() {
            Phase::Idle | Phase::Head if !self.stuck.load(Ordering::Relaxed) => {
                Some((self.has_asked(), self.turn.load(Ordering::Relaxed)))
            }
            Phase::Idle | Phase::Head | Phase::Busy => None,
        }
    }

    /// Whether nothing came in the time for the first byte.
    pub(super) fn was_silent(&self) -> bool {
        self.silent.load(Ordering::Relaxed)
    }

    /// Whether a request was answered.
    pub(super) fn has_asked(&self) -> bool {
        self.steps.load(Ordering::Relaxed) >= 3
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
        if phase == Phase::Idle {
            self.head_bytes.store(0, Ordering::Relaxed);
            self.turn.store(self.turns.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
        }
        while self.phase() != phase {
            self.steps.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(super) fn head_bytes(&self) -> u64 {
        self.head_bytes.load(Ordering::Relaxed)
    }
}

/// The stream with its clocks.
pub(super) struct Clocked<S> {
    stream: S,
    progress: Arc<Progress>,
    times: Times,
    reading: Pin<Box<Sleep>>,
    /// The step that `reading` was set for.
    set_for: Option<u64>,
    writing: Option<Pin<Box<Sleep>>>,
}

impl<S> Clocked<S> {
    pub(super) fn new(stream: S, progress: Arc<Progress>, times: Times) -> Self {
        let reading = Box::pin(tokio::time::sleep(times.first_byte));
        Self { stream, progress, times, reading, set_for: None, writing: None }
    }

    fn restart(&mut self, after: Duration) {
        self.reading.as_mut().reset(tokio::time::Instant::now() + after);
    }

    /// How long it may wait for a request.
    fn idle_max(&self) -> Duration {
        if self.progress.has_asked() { self.times.idle } else { self.times.first_byte }
    }

    /// Whether the client has used up the time of the phase that the connection is in.
    fn late(&mut self, context: &mut Context<'_>) -> bool {
        let after = match self.progress.phase() {
            // The service is done and the answer is not out yet: that is no idle connection.
            Phase::Idle if self.writing.is_some() => return false,
            Phase::Idle => self.idle_max(),
            Phase::Head => self.times.head,
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
        let after = self.times.write;
        self.progress.stuck.store(true, Ordering::Relaxed);
        let clock = self.writing.get_or_insert_with(|| Box::pin(tokio::time::sleep(after)));
        clock.as_mut().poll(context).is_ready()
    }

    fn written<T>(&mut self, context: &mut Context<'_>, result: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if result.is_ready() {
            if self.writing.take().is_some() {
                self.progress.stuck.store(false, Ordering::Relaxed);
            }
            if self.progress.phase() == Phase::Idle {
                // Bytes of the answer went out, so idleness begins anew; the task is woken when it has lasted.
                self.set_for = Some(self.progress.steps.load(Ordering::Relaxed));
                self.restart(self.idle_max());
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
            Poll::Pending if self.late(context) => {
                let is_first = self.progress.phase() == Phase::Idle && !self.progress.has_asked();
                self.progress.silent.store(is_first, Ordering::Relaxed);
                Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
            }
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
