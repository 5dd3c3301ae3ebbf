//! A stream that closes the connection of a client that is too slow, depending on what the connection waits for.
//!
//! Each connection has one [`Progress`], which the stream and the service share. The service records when it has a
//! request and when the answer is sent; the stream sees the bytes. Time is limited until a connection's first byte,
//! while the connection is idle, while a head arrives (from its first byte, however slowly the others come), and while
//! the client takes nothing of an answer. The service itself limits the time for a body, since a late body still gets
//! an answer.

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

/// The phase of a connection, and how many bytes of a head it has seen.
#[derive(Debug)]
pub(super) struct Progress {
    /// Counts the changes of phase; the phase is its remainder modulo three.
    steps: AtomicU64,
    head_bytes: AtomicU64,
    /// The counter of turns for all connections of a server. A connection takes a turn when it begins to wait for its
    /// client.
    turns: Arc<AtomicU64>,
    /// The last turn of this connection.
    turn: AtomicU64,
    /// Whether the client takes nothing of an answer that is being sent.
    stuck: AtomicBool,
    /// Whether the time for its first byte has run out.
    silent: AtomicBool,
}

impl Progress {
    /// Creates the state of a new connection, which waits for a request.
    pub(super) fn new(turns: Arc<AtomicU64>) -> Self {
        let turn = AtomicU64::new(turns.fetch_add(1, Ordering::Relaxed));
        let (steps, head_bytes) = (AtomicU64::new(0), AtomicU64::new(0));
        let (stuck, silent) = (AtomicBool::new(false), AtomicBool::new(false));
        Self { steps, head_bytes, turns, turn, stuck, silent }
    }

    /// The rank of a connection among those that wait for their clients: whether it has had a request, and since which
    /// turn it waits. `None` while it has a request or an answer.
    pub(super) fn waits_since(&self) -> Option<(bool, u64)> {
        match self.phase() {
            Phase::Idle | Phase::Head if !self.stuck.load(Ordering::Relaxed) => {
                Some((self.has_asked(), self.turn.load(Ordering::Relaxed)))
            }
            Phase::Idle | Phase::Head | Phase::Busy => None,
        }
    }

    /// Whether no byte arrived in the time for the first byte.
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

    /// Advances to a phase; entering the present one changes nothing. Only the connection's own task calls this, so
    /// there is no race.
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

/// The stream with its timers.
pub(super) struct Clocked<S> {
    stream: S,
    progress: Arc<Progress>,
    times: Times,
    reading: Pin<Box<Sleep>>,
    /// The step for which `reading` was set.
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

    /// How long the connection may wait for a request.
    fn idle_max(&self) -> Duration {
        if self.progress.has_asked() { self.times.idle } else { self.times.first_byte }
    }

    /// Whether the client has used up the time of the connection's phase.
    fn late(&mut self, context: &mut Context<'_>) -> bool {
        let after = match self.progress.phase() {
            // The service is done but the answer is not sent yet, so the connection is not idle.
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

    /// Starts the timer of a client that takes nothing, and checks it.
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
                // Bytes of the answer were sent, so the idle time starts again; the timer wakes the task when it is
                // over.
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
