//! Bodies of answers: a sequence of ranges of the request and of generated text, without a copy.

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

/// The body.
#[derive(Debug, Default)]
pub(crate) struct Reply {
    /// The first piece. An answer of one piece needs no list.
    first: Option<Bytes>,
    more: std::vec::IntoIter<Bytes>,
    left: u64,
}

impl Reply {
    /// A body of these pieces; empty ones are left out.
    pub(crate) fn of(mut pieces: Vec<Bytes>) -> Self {
        pieces.retain(|piece| !piece.is_empty());
        let left = pieces.iter().fold(0_u64, |sum, piece| sum.saturating_add(length(piece)));
        Self { first: None, more: pieces.into_iter(), left }
    }

    /// The pieces that are not sent yet.
    pub(crate) fn pieces(&self) -> Vec<Bytes> {
        self.first.iter().chain(self.more.as_slice()).cloned().collect()
    }
}

impl From<Bytes> for Reply {
    fn from(piece: Bytes) -> Self {
        let left = length(&piece);
        Self { first: Some(piece).filter(|piece| !piece.is_empty()), more: Vec::new().into_iter(), left }
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
        let next = self.first.take().or_else(|| self.more.next());
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
