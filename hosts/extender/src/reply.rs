//! Bodies of answers: a sequence of ranges of the request and of generated text, without a copy.

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::{array, vec};

/// The pieces before the candidates: the beginning, and the candidates themselves where they are one piece.
const HEAD: usize = 2;
/// The pieces after the candidates.
const TAIL: usize = 8;
const EMPTY: Bytes = Bytes::new();

/// The body. Only candidates that are objects are a list of pieces.
#[derive(Debug)]
pub(crate) struct Reply {
    head: array::IntoIter<Bytes, HEAD>,
    listed: vec::IntoIter<Bytes>,
    tail: array::IntoIter<Bytes, TAIL>,
    left: u64,
}

impl Reply {
    /// A body of these pieces; empty ones are left out.
    pub(crate) fn of(head: [Bytes; HEAD], listed: Vec<Bytes>, tail: [Bytes; TAIL]) -> Self {
        let all = head.iter().chain(&listed).chain(&tail);
        let left = all.fold(0_u64, |sum, piece| sum.saturating_add(length(piece)));
        Self { head: head.into_iter(), listed: listed.into_iter(), tail: tail.into_iter(), left }
    }

    /// The pieces that are not sent yet.
    pub(crate) fn pieces(&self) -> Vec<Bytes> {
        let all = self.head.as_slice().iter().chain(self.listed.as_slice()).chain(self.tail.as_slice());
        all.filter(|piece| !piece.is_empty()).cloned().collect()
    }

    fn next(&mut self) -> Option<Bytes> {
        let is_some = |piece: &Bytes| !piece.is_empty();
        let next = self.head.find(is_some).or_else(|| self.listed.find(is_some));
        next.or_else(|| self.tail.find(is_some))
    }
}

impl From<Bytes> for Reply {
    fn from(piece: Bytes) -> Self {
        Self::of([piece, EMPTY], Vec::new(), [EMPTY; TAIL])
    }
}

impl From<String> for Reply {
    fn from(text: String) -> Self {
        Bytes::from(text).into()
    }
}

impl From<&'static str> for Reply {
    fn from(text: &'static str) -> Self {
        Bytes::from_static(text.as_bytes()).into()
    }
}

fn length(piece: &Bytes) -> u64 {
    u64::try_from(piece.len()).unwrap_or(u64::MAX)
}

impl Body for Reply {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let next = self.next();
        if let Some(piece) = &next {
            self.left = self.left.saturating_sub(length(piece));
        }
        Poll::Ready(next.map(|piece| Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0
    }

    fn size_hint(&self) -> SizeHint {
        // Exact, so that the length is announced and the body is not sent in chunks.
        SizeHint::with_exact(self.left)
    }
}
