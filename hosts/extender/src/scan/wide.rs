//! Sixty-four bytes at a time: where a string ends, and where an object or a list ends.
//!
//! What is between the brackets is not judged, only walked over: strings are told from structure, escapes
//! are honoured, brackets are counted. So the cost is that of reading the bytes. There are three ways to the same answer, and
//! tests hold them against each other: plain integers, and AVX2 or AVX-512 where the machine has it.
//!
//! Words: a *mask* has a bit for each of 64 bytes, the lowest for the first.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod plain;

pub(crate) use plain::{HIGHS, gather, string_end};

use std::ops::Range;

/// A stretch of the body.
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
}

impl Span {
    /// With the quotes around it; nothing where it is empty.
    pub(crate) fn quoted(self, body: &[u8]) -> Option<&[u8]> {
        let Range { start, end } = self.range();
        if start == end {
            return None;
        }
        body.get(start.checked_sub(1)?..end.checked_add(1)?)
    }
}

/// Where a string ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StringEnd {
    /// Its closing quote.
    pub(crate) quote: usize,
    /// Whether a backslash is in it.
    pub(crate) escaped: bool,
}

/// An object or a list that was walked over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BracketsEnd {
    /// The byte behind the bracket that closes it, which may be of the wrong kind.
    pub(crate) end: usize,
    /// Whether it has bytes that are not ASCII.
    pub(crate) high: bool,
}

/// What there is in 64 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Masks {
    quotes: u64,
    /// `{`, `[`, `}` and `]`
    brackets: u64,
    /// Of the brackets those that close; of other bytes it says nothing.
    closing: u64,
    /// Whether any of it is in [`Odd`].
    odd: bool,
}

/// What is rarely among 64 bytes, and is located only where something of it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Odd {
    backslashes: u64,
    /// Whether there are bytes that are not ASCII.
    high: bool,
}

/// The instructions that the machine has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Width {
    Plain,
    #[cfg(target_arch = "x86_64")]
    Avx2(avx2::Proof),
    #[cfg(target_arch = "x86_64")]
    Avx512(avx512::Proof),
}

impl Width {
    /// The widest there is.
    pub(crate) fn widest() -> Self {
        #[cfg(target_arch = "x86_64")]
        if let Some(proof) = avx512::Proof::of_this_machine() {
            return Self::Avx512(proof);
        }
        #[cfg(target_arch = "x86_64")]
        if let Some(proof) = avx2::Proof::of_this_machine() {
            return Self::Avx2(proof);
        }
        Self::Plain
    }

    /// All that this machine has.
    pub(crate) fn all() -> Vec<Self> {
        let mut all = vec![Self::Plain];
        #[cfg(target_arch = "x86_64")]
        all.extend(avx2::Proof::of_this_machine().map(Self::Avx2));
        #[cfg(target_arch = "x86_64")]
        all.extend(avx512::Proof::of_this_machine().map(Self::Avx512));
        all
    }

    /// Where the object or list ends that begins with the bracket at `at`; nothing where it does not end.
    pub(crate) fn brackets_end(self, bytes: &[u8], at: usize) -> Option<BracketsEnd> {
        match self {
            Self::Plain => plain::brackets_end(bytes, at),
            #[cfg(target_arch = "x86_64")]
            Self::Avx2(proof) => proof.brackets_end(bytes, at),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512(proof) => proof.brackets_end(bytes, at),
        }
    }

    /// Behind a quote: where its string ends. Nothing where it does not, or where a control character is in it.
    pub(crate) fn string_end(self, bytes: &[u8], from: usize) -> Option<StringEnd> {
        match self {
            Self::Plain => string_end(bytes, from),
            #[cfg(target_arch = "x86_64")]
            Self::Avx2(proof) => proof.string_end(bytes, from),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512(proof) => proof.narrower().string_end(bytes, from),
        }
    }

    /// Reads the texts of a list whose bracket is before `at`, and returns the byte behind its closing bracket.
    pub(crate) fn strings(self, bytes: &[u8], at: usize, out: &mut Strings) -> Option<usize> {
        match self {
            Self::Plain => plain::strings(bytes, at, out),
            #[cfg(target_arch = "x86_64")]
            Self::Avx2(proof) => proof.strings(bytes, at, out),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512(proof) => proof.narrower().strings(bytes, at, out),
        }
    }
}

/// The texts of a list.
#[derive(Debug, Default)]
pub(crate) struct Strings {
    /// Each, without its quotes.
    pub(crate) spans: Vec<Span>,
    /// Whether any of them has a backslash.
    pub(crate) escaped: bool,
    /// A stretch of the body that is known to be ASCII, from its first byte to behind its last one.
    pub(crate) ascii: (usize, usize),
}

/// Space between tokens.
pub(crate) fn space(bytes: &[u8], mut at: usize) -> usize {
    while matches!(bytes.get(at), Some(b' ' | b'\n' | b'\r' | b'\t')) {
        at += 1;
    }
    at
}

/// The list, by whatever finds the ends of many plain texts, and the end of any text.
#[inline(always)]
fn strings_by(
    bytes: &[u8],
    at: usize,
    out: &mut Strings,
    run: impl Fn(&[u8], usize, &mut Vec<Span>) -> usize,
    string_end: impl Fn(&[u8], usize) -> Option<StringEnd>,
) -> Option<usize> {
    let mut at = space(bytes, at);
    if bytes.get(at) == Some(&b']') {
        return Some(at + 1);
    }
    let mut runs = true;
    loop {
        if bytes.get(at) != Some(&b'"') {
            return None;
        }
        let mut start = at + 1;
        if runs {
            start = run(bytes, start, &mut out.spans);
            if out.ascii.1 == 0 {
                out.ascii = (at, start);
            }
            // A list that is not written so is not asked again at each of its texts.
            runs = start != at + 1;
        }
        let end = string_end(bytes, start)?;
        out.spans.push(Span::new(start, end.quote)?);
        out.escaped |= end.escaped;
        at = end.quote + 1;
        // Without space, as Go writes it.
        if bytes.get(at) == Some(&b',') && bytes.get(at + 1) == Some(&b'"') {
            at += 1;
            continue;
        }
        at = space(bytes, at);
        match bytes.get(at) {
            Some(b',') => at = space(bytes, at + 1),
            Some(b']') => return Some(at + 1),
            Some(_) | None => return None,
        }
    }
}

/// What is between brackets, by whatever makes masks, and `odd` of those that need it. `prefix_xor` sets each bit to the parity
/// of itself and all bits below.
#[inline(always)]
fn brackets_end_by(
    bytes: &[u8],
    start: usize,
    masks: impl Fn(&[u8; 64]) -> Masks,
    odd: impl Fn(&[u8; 64]) -> Odd,
    prefix_xor: impl Fn(u64) -> u64,
) -> Option<BracketsEnd> {
    let mut walk = Walk { depth: 1, ..Walk::default() };
    let mut at = start + 1;
    let (blocks, tail) = bytes.get(at..)?.as_chunks::<64>();
    let (pairs, last) = blocks.as_chunks::<2>();
    // Two blocks a turn, which with AVX2 is a tenth faster than one, and than four.
    for pair in pairs {
        for (block, behind) in pair.iter().zip((0..).step_by(64)) {
            if let Some(bit) = walk.step(block, &masks, &odd, &prefix_xor) {
                return Some(BracketsEnd { end: (at + behind).checked_add(bit)?, high: walk.high });
            }
        }
        at += 128;
    }
    let mut padded = [b' '; 64];
    padded.iter_mut().zip(tail).for_each(|(to, from)| *to = *from);
    for block in last.iter().chain([&padded]) {
        if let Some(bit) = walk.step(block, &masks, &odd, &prefix_xor) {
            return Some(BracketsEnd { end: at.checked_add(bit)?, high: walk.high });
        }
        at += 64;
    }
    None
}

/// Where a walk over brackets stands between two blocks.
#[derive(Default)]
struct Walk {
    /// All ones inside of a string.
    inside: u64,
    /// 1 where the last byte escapes the next.
    escape: u64,
    depth: u32,
    high: bool,
}

impl Walk {
    /// Takes in a block. Where the outermost bracket closes in it: how many bytes of it belong.
    #[inline(always)]
    fn step(
        &mut self,
        block: &[u8; 64],
        masks: &impl Fn(&[u8; 64]) -> Masks,
        odd: &impl Fn(&[u8; 64]) -> Odd,
        prefix_xor: &impl Fn(u64) -> u64,
    ) -> Option<usize> {
        let found = masks(block);
        let mut quotes = found.quotes;
        if found.odd || self.escape != 0 {
            let odd = odd(block);
            self.high |= odd.high;
            quotes &= !escaped(odd.backslashes, &mut self.escape);
        }
        // All ones from an opening quote to the byte before the closing one.
        let strings = prefix_xor(quotes) ^ self.inside;
        self.inside = 0_u64.wrapping_sub(strings >> 63);
        let brackets = found.brackets & !strings;
        let closes = brackets & found.closing;
        let ends = closes.count_ones();
        if self.depth > ends {
            // Bodies have far fewer brackets than 32 bits count.
            self.depth = self.depth.wrapping_add(brackets.count_ones()).wrapping_sub(2 * ends);
            return None;
        }
        last_close(brackets & !closes, closes, &mut self.depth).map(|bit| bit + 1)
    }
}

/// The bytes that a backslash before them escapes. `carry` is 1 where the last byte was such a backslash.
///
/// Of neighbouring backslashes each second one escapes, from the first on. To add the first ones that are at odd places carries
/// through their neighbours and ends one behind them: it is these whose escaped bytes are at even places.
#[inline(always)]
fn escaped(backslashes: u64, carry: &mut u64) -> u64 {
    const EVEN: u64 = 0x5555_5555_5555_5555;
    let backslashes = backslashes & !*carry;
    let behind = backslashes << 1 | *carry;
    let odd_firsts = backslashes & !EVEN & !behind;
    let (carried, overflows) = backslashes.overflowing_add(odd_firsts);
    *carry = u64::from(overflows);
    (EVEN ^ (carried << 1)) & behind
}

/// The bit of the bracket that closes the outermost one, if it is among these.
fn last_close(mut opens: u64, mut closes: u64, depth: &mut u32) -> Option<usize> {
    while closes != 0 {
        let close = closes.trailing_zeros();
        let below = (1_u64 << close).wrapping_sub(1);
        *depth = depth.saturating_add((opens & below).count_ones());
        opens &= !below;
        closes &= closes - 1;
        *depth = depth.saturating_sub(1);
        if *depth == 0 {
            return usize::try_from(close).ok();
        }
    }
    *depth = depth.saturating_add(opens.count_ones());
    None
}

#[cfg(test)]
mod tests;
