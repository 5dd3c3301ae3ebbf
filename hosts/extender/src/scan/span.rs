//! Ranges of a body.

use std::ops::Range;

/// A range of the body, in half the size of two `usize`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    /// Its first byte.
    pub(crate) start: u32,
    /// The position after its last byte.
    pub(crate) end: u32,
}

impl Span {
    /// The range, if its positions fit into 32 bits; bodies are far below 4 GiB.
    pub(crate) fn new(start: usize, end: usize) -> Option<Self> {
        Some(Self { start: u32::try_from(start).ok()?, end: u32::try_from(end).ok()? })
    }

    pub(crate) fn range(self) -> Range<usize> {
        // On every supported machine a `usize` has at least 32 bits.
        let wide = |at: u32| usize::try_from(at).unwrap_or(usize::MAX);
        wide(self.start)..wide(self.end)
    }

    pub(crate) fn of(self, body: &[u8]) -> &[u8] {
        body.get(self.range()).unwrap_or_default()
    }

    /// The range with the quotes around it; `None` if it is empty.
    pub(crate) fn quoted(self, body: &[u8]) -> Option<&[u8]> {
        let Range { start, end } = self.range();
        if start == end {
            return None;
        }
        body.get(start.checked_sub(1)?..end.checked_add(1)?)
    }
}
