//! Thirty-two bytes in a register, and a multiplication without carries for the parity of quotes.
//!
//! What is `unsafe` is to call a function that the machine might not have the instructions for, and a [`Proof`] exists
//! only where it has them; and to load from memory, which is done from references alone.
#![allow(
    unsafe_code,
    reason = "calls into functions for instructions that were found on this machine (docs/adr/0010)"
)]

use super::{BracketsEnd, Masks, Odd, Span, StringEnd, Strings, brackets_end_by, plain, strings_by};
use std::arch::x86_64::{
    __m256i, _MM_HINT_T0, _mm_clmulepi64_si128, _mm_cvtsi64_si128, _mm_cvtsi128_si64, _mm_prefetch,
    _mm_set1_epi8, _mm256_and_si256, _mm256_cmpeq_epi8, _mm256_cmpgt_epi8, _mm256_loadu_si256,
    _mm256_max_epu8, _mm256_movemask_epi8, _mm256_or_si256, _mm256_set1_epi8, _mm256_setzero_si256,
};

/// That this machine has AVX2, PCLMULQDQ, POPCNT and both sets of bit manipulations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Proof(());

impl Proof {
    pub(super) fn of_this_machine() -> Option<Self> {
        let has = std::arch::is_x86_feature_detected!("avx2")
            && std::arch::is_x86_feature_detected!("bmi1")
            && std::arch::is_x86_feature_detected!("bmi2")
            && std::arch::is_x86_feature_detected!("pclmulqdq")
            && std::arch::is_x86_feature_detected!("popcnt");
        has.then_some(Self(()))
    }

    pub(super) fn brackets_end(self, bytes: &[u8], at: usize) -> Option<BracketsEnd> {
        // SAFETY: the function needs the instructions that a `Proof` is only made with; it takes references alone.
        unsafe { brackets_end(bytes, at) }
    }

    pub(super) fn string_end(self, bytes: &[u8], from: usize) -> Option<StringEnd> {
        // SAFETY: as in `brackets_end`.
        unsafe { string_end(bytes, from) }
    }

    /// Reads the texts of a list.
    pub(super) fn strings(self, bytes: &[u8], at: usize, out: &mut Strings) -> Option<usize> {
        // SAFETY: as in `brackets_end`.
        unsafe { strings(bytes, at, out) }
    }
}

#[target_feature(enable = "avx2,bmi1,bmi2,pclmulqdq,popcnt")]
fn brackets_end(bytes: &[u8], at: usize) -> Option<BracketsEnd> {
    brackets_end_by(bytes, at, |block| masks(block), |block| odd(block), |mask| prefix_xor(mask))
}

#[target_feature(enable = "avx2,bmi1,bmi2,pclmulqdq,popcnt")]
fn strings(bytes: &[u8], at: usize, out: &mut Strings) -> Option<usize> {
    strings_by(
        bytes,
        at,
        out,
        |bytes, from, spans| run(bytes, from, spans),
        |bytes, from| string_end(bytes, from),
    )
}

/// Texts one after the other as Go writes them, with `","` between two of them, nothing escaped, all of it ASCII and no control
/// character: the ends of those that begin at `from` and behind it. Returns where the first begins whose end is left to others.
#[target_feature(enable = "avx2,bmi1,bmi2,pclmulqdq,popcnt")]
#[inline]
fn run(bytes: &[u8], from: usize, spans: &mut Vec<Span>) -> usize {
    let (mut at, mut start, mut opening) = (from, from, 0);
    // A window sees two bytes behind its block: what comes after a quote.
    while let Some(window) = bytes.get(at..).and_then(|rest| rest.first_chunk::<66>()) {
        let (ends, quotes, special) = ends(window);
        let opens = ends << 2 | opening;
        // A quote that neither ends a text nor begins the next, or one that does both: a text that is a comma alone.
        let odd = special | (quotes & !(ends | opens)) | (ends & opens);
        let mut left = ends & odd.wrapping_sub(1) & !odd;
        while left != 0 {
            let Ok(bit) = usize::try_from(left.trailing_zeros()) else { return start };
            let Some(span) = Span::new(start, at + bit) else { return start };
            spans.push(span);
            start = at + bit + 3;
            left &= left - 1;
        }
        if odd != 0 {
            return start;
        }
        opening = ends >> 62;
        at += 64;
    }
    start
}

/// Of 64 bytes: those at which `","` begins, the quotes, and those that are neither plain text nor a quote.
#[target_feature(enable = "avx2,bmi1,bmi2,pclmulqdq,popcnt")]
#[inline]
fn ends(window: &[u8; 66]) -> (u64, u64, u64) {
    let (mut ends, mut quotes, mut special) = (0, 0, 0);
    // Bytes that are not ASCII are negative numbers, and less than a space as control characters are.
    let space = _mm256_set1_epi8(i8::from_ne_bytes(*b" "));
    for half in [0, 32] {
        let lanes = |behind: usize| {
            window.get(half + behind..).and_then(|rest| rest.first_chunk::<32>()).map(|block| load(block))
        };
        let (Some(lanes), Some(next), Some(third)) = (lanes(0), lanes(1), lanes(2)) else { continue };
        let quoted = is(lanes, b'"');
        let end = _mm256_and_si256(is(next, b','), is(third, b'"'));
        let odd = _mm256_or_si256(is(lanes, b'\\'), _mm256_cmpgt_epi8(space, lanes));
        ends |= u64::from(bits(_mm256_and_si256(quoted, end))) << half;
        quotes |= u64::from(bits(quoted)) << half;
        special |= u64::from(bits(odd)) << half;
    }
    (ends, quotes, special)
}

#[target_feature(enable = "avx2,bmi1,bmi2,pclmulqdq,popcnt")]
#[inline]
fn load(bytes: &[u8; 32]) -> __m256i {
    // SAFETY: the reference is to the 32 bytes that are read; the load needs no alignment.
    unsafe { _mm256_loadu_si256(bytes.as_ptr().cast()) }
}

#[target_feature(enable = "avx2,bmi1,bmi2,pclmulqdq,popcnt")]
#[inline]
fn bits(lanes: __m256i) -> u32 {
    u32::from_ne_bytes(_mm256_movemask_epi8(lanes).to_ne_bytes())
}

#[target_feature(enable = "avx2,bmi1,bmi2,pclmulqdq,popcnt")]
#[inline]
fn is(lanes: __m256i, byte: u8) -> __m256i {
    _mm256_cmpeq_epi8(lanes, _mm256_set1_epi8(i8::from_ne_bytes([byte])))
}

#[target_feature(enable = "avx2,bmi1,bmi2,pclmulqdq,popcnt")]
#[inline]
fn masks(block: &[u8; 64]) -> Masks {
    ahead(block);
    let (low, high) = halves(block);
    let (low_brackets, low_ends) = planes(low);
    let (high_brackets, high_ends) = planes(high);
    let brackets = joined(low_brackets, high_brackets);
    let ends = joined(low_ends, high_ends);
    let odd = _mm256_or_si256(is(low, b'\\'), is(high, b'\\'));
    Masks {
        quotes: ends & !brackets,
        brackets,
        closing: ends,
        odd: bits(_mm256_or_si256(odd, _mm256_or_si256(low, high))) != 0,
    }
}

/// Asks for memory a page ahead of its reader: at the end of a page the machine stops to do so by itself.
#[target_feature(enable = "avx2,bmi1,bmi2,pclmulqdq,popcnt")]
#[inline]
pub(super) fn ahead(block: &[u8; 64]) {
    // Nothing is read, and no address is a fault to it.
    _mm_prefetch::<_MM_HINT_T0>(block.as_ptr().wrapping_add(4096).cast());
}

/// The brackets; and the brackets that close, with the quotes. Two masks for three kinds: to make one out of lanes is what costs.
#[target_feature(enable = "avx2,bmi1,bmi2,pclmulqdq,popcnt")]
#[inline]
fn planes(lanes: __m256i) -> (__m256i, __m256i) {
    // `[` and `{`, and `]` and `}`, differ in one bit.
    let folded = _mm256_or_si256(lanes, _mm256_set1_epi8(0x20));
    let closes = is(folded, b'}');
    (_mm256_or_si256(is(folded, b'{'), closes), _mm256_or_si256(is(lanes, b'"'), closes))
}

#[target_feature(enable = "avx2,bmi1,bmi2,pclmulqdq,popcnt")]
#[inline]
fn odd(block: &[u8; 64]) -> Odd {
    let (low, high) = halves(block);
    let backslashes = joined(is(low, b'\\'), is(high, b'\\'));
    Odd { backslashes, high: bits(_mm256_or_si256(low, high)) != 0 }
}

#[target_feature(enable = "avx2,bmi1,bmi2,pclmulqdq,popcnt")]
#[inline]
fn halves(block: &[u8; 64]) -> (__m256i, __m256i) {
    match block.as_chunks::<32>().0 {
        [low, high] => (load(low), load(high)),
        _ => (_mm256_setzero_si256(), _mm256_setzero_si256()),
    }
}

#[target_feature(enable = "avx2,bmi1,bmi2,pclmulqdq,popcnt")]
#[inline]
fn joined(low: __m256i, high: __m256i) -> u64 {
    u64::from(bits(low)) | u64::from(bits(high)) << 32
}

#[target_feature(enable = "avx2,bmi1,bmi2,pclmulqdq,popcnt")]
#[inline]
pub(super) fn prefix_xor(mask: u64) -> u64 {
    let mask = _mm_cvtsi64_si128(i64::from_ne_bytes(mask.to_ne_bytes()));
    let product = _mm_clmulepi64_si128(mask, _mm_set1_epi8(-1), 0);
    u64::from_ne_bytes(_mm_cvtsi128_si64(product).to_ne_bytes())
}

/// As [`plain::string_end`].
#[target_feature(enable = "avx2,bmi1,bmi2,pclmulqdq,popcnt")]
#[inline]
fn string_end(bytes: &[u8], from: usize) -> Option<StringEnd> {
    let mut at = from;
    while let Some(block) = bytes.get(at..).and_then(|rest| rest.first_chunk::<32>()) {
        let lanes = load(block);
        let control = _mm256_set1_epi8(0x1f);
        let ends = _mm256_or_si256(is(lanes, b'"'), is(lanes, b'\\'));
        let controls = _mm256_cmpeq_epi8(_mm256_max_epu8(lanes, control), control);
        let special = bits(_mm256_or_si256(ends, controls));
        if special != 0 {
            let first = usize::try_from(special.trailing_zeros()).ok()?;
            if block.get(first) == Some(&b'"') {
                return Some(StringEnd { quote: at + first, escaped: false });
            }
            // An escape or a control character: rare.
            return plain::string_end(bytes, at + first);
        }
        at += 32;
    }
    plain::string_end(bytes, at)
}
