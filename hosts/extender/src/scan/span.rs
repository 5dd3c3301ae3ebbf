//! Stretches of a body.

use std::ops::Range;

/// A stretch of the body, in half of what a pair of `usize` takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    /// Its first byte.
    pub(crate) start: u32,
    /// The byte behind it.
    pub(crate) end: u32,
}

impl Span {
    /// Where the body has such a stretch; bodies are far below 4 GiB.
    pub(crate) fn new(start: usize, end: usize) -> Option<Self> {
        Some(Self { start: u32::try_from(start).ok()?, end: u32::try_from(end).ok()? })
    }

    pub(crate) fn range(self) -> Range<usize> {
        // On every machine that this is built for a usize has 32 bits or more.
        let wide = |at: u32| usize::try_from(at).unwrap_or(usize::MAX);
        wide(self.start)..wide(self.end)
    }

    pub(crate) fn of(self, body: &[u8]) -> &[u8] {
        body.get(self.range()).unwrap_or_default()
    }

    /// With the quotes around it; nothing where it is empty.
    pub(crate) fn quoted(self, body: &[u8]) -> Option<&[u8]> {
        let Range { start, end } = self.range();
        if start == end {
            return None;
        }
        body.get(start.checked_sub(1)?..end.checked_add(1)?)
    }
}
