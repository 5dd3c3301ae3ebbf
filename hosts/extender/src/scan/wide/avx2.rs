//! Thirty-two bytes in a register, and a multiplication without carries for the parity of quotes.
//!
//! What is `unsafe` is to call a function that the machine might not have the instructions for, and a [`Proof`] exists
//! only where it has them; and to load from memory, which is done from references alone.
#![allow(
    unsafe_code,
    reason = "calls into functions for instructions that were found on this machine (docs/adr/0010)"
)]

use super::{BracketsEnd, Masks, Span, StringEnd, Strings, brackets_end_by, plain, strings_by};
use std::arch::x86_64::{
    __m256i, _mm_clmulepi64_si128, _mm_cvtsi64_si128, _mm_cvtsi128_si64, _mm_set1_epi8, _mm256_and_si256,
    _mm256_cmpeq_epi8, _mm256_cmpgt_epi8, _mm256_loadu_si256, _mm256_max_epu8, _mm256_movemask_epi8,
    _mm256_or_si256, _mm256_set1_epi8,
};

/// That this machine has AVX2, PCLMULQDQ and POPCNT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Proof(());

impl Proof {
    pub(super) fn of_this_machine() -> Option<Self> {
        let has = std::arch::is_x86_feature_detected!("avx2")
            && std::arch::is_x86_feature_detected!("pclmulqdq")
            && std::arch::is_x86_feature_detected!("popcnt");
        has.then_some(Self(()))
    }

    pub(super) fn brackets_end(self, bytes: &[u8], at: usize) -> Option<BracketsEnd> {
        // SAFETY: the function needs the instructions that a `Proof` is only made with; it takes references alone.
        unsafe { brackets_end(bytes, at) }
    }

    /// Reads the texts of a list.
    pub(super) fn strings(self, bytes: &[u8], at: usize, out: &mut Strings) -> Option<usize> {
        // SAFETY: as in `brackets_end`.
        unsafe { strings(bytes, at, out) }
    }
}

#[target_feature(enable = "avx2,pclmulqdq,popcnt")]
fn brackets_end(bytes: &[u8], at: usize) -> Option<BracketsEnd> {
    brackets_end_by(bytes, at, |block| masks(block), |mask| prefix_xor(mask))
}

#[target_feature(enable = "avx2,pclmulqdq,popcnt")]
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
#[target_feature(enable = "avx2,pclmulqdq,popcnt")]
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
#[target_feature(enable = "avx2,pclmulqdq,popcnt")]
#[inline]
fn ends(window: &[u8; 66]) -> (u64, u64, u64) {
    let (mut ends, mut quotes, mut special) = (0, 0, 0);
    let (quote, comma) =
        (_mm256_set1_epi8(i8::from_ne_bytes(*b"\"")), _mm256_set1_epi8(i8::from_ne_bytes(*b",")));
    // Bytes that are not ASCII are negative numbers, and less than a space as control characters are.
    let (backslash, space) =
        (_mm256_set1_epi8(i8::from_ne_bytes(*b"\\")), _mm256_set1_epi8(i8::from_ne_bytes(*b" ")));
    for half in [0, 32] {
        let lanes = |behind: usize| {
            window.get(half + behind..).and_then(|rest| rest.first_chunk::<32>()).map(|block| load(block))
        };
        let (Some(lanes), Some(next), Some(third)) = (lanes(0), lanes(1), lanes(2)) else { continue };
        let quoted = _mm256_cmpeq_epi8(lanes, quote);
        let end = _mm256_and_si256(_mm256_cmpeq_epi8(next, comma), _mm256_cmpeq_epi8(third, quote));
        let odd = _mm256_or_si256(_mm256_cmpeq_epi8(lanes, backslash), _mm256_cmpgt_epi8(space, lanes));
        ends |= u64::from(bits(_mm256_and_si256(quoted, end))) << half;
        quotes |= u64::from(bits(quoted)) << half;
        special |= u64::from(bits(odd)) << half;
    }
    (ends, quotes, special)
}

#[target_feature(enable = "avx2,pclmulqdq,popcnt")]
#[inline]
fn load(bytes: &[u8; 32]) -> __m256i {
    // SAFETY: the reference is to the 32 bytes that are read; the load needs no alignment.
    unsafe { _mm256_loadu_si256(bytes.as_ptr().cast()) }
}

#[target_feature(enable = "avx2,pclmulqdq,popcnt")]
#[inline]
fn bits(lanes: __m256i) -> u32 {
    u32::from_ne_bytes(_mm256_movemask_epi8(lanes).to_ne_bytes())
}

#[target_feature(enable = "avx2,pclmulqdq,popcnt")]
#[inline]
fn equal(lanes: __m256i, byte: u8) -> u64 {
    u64::from(bits(_mm256_cmpeq_epi8(lanes, _mm256_set1_epi8(i8::from_ne_bytes([byte])))))
}

#[target_feature(enable = "avx2,pclmulqdq,popcnt")]
#[inline]
fn masks(block: &[u8; 64]) -> Masks {
    let (halves, _) = block.as_chunks::<32>();
    let [low, high] = halves else { return Masks::default() };
    let (low, high) = (load(low), load(high));
    let fold = _mm256_set1_epi8(0x20);
    let (low_folded, high_folded) = (_mm256_or_si256(low, fold), _mm256_or_si256(high, fold));
    Masks {
        quotes: equal(low, b'"') | equal(high, b'"') << 32,
        backslashes: equal(low, b'\\') | equal(high, b'\\') << 32,
        opens: equal(low_folded, b'{') | equal(high_folded, b'{') << 32,
        closes: equal(low_folded, b'}') | equal(high_folded, b'}') << 32,
        high: bits(_mm256_or_si256(low, high)) != 0,
    }
}

#[target_feature(enable = "avx2,pclmulqdq,popcnt")]
#[inline]
pub(super) fn prefix_xor(mask: u64) -> u64 {
    let mask = _mm_cvtsi64_si128(i64::from_ne_bytes(mask.to_ne_bytes()));
    let product = _mm_clmulepi64_si128(mask, _mm_set1_epi8(-1), 0);
    u64::from_ne_bytes(_mm_cvtsi128_si64(product).to_ne_bytes())
}

/// As [`plain::string_end`].
#[target_feature(enable = "avx2,pclmulqdq,popcnt")]
#[inline]
fn string_end(bytes: &[u8], from: usize) -> Option<StringEnd> {
    let mut at = from;
    while let Some(block) = bytes.get(at..).and_then(|rest| rest.first_chunk::<32>()) {
        let lanes = load(block);
        let control = _mm256_set1_epi8(0x1f);
        let special = equal(lanes, b'"')
            | equal(lanes, b'\\')
            | u64::from(bits(_mm256_cmpeq_epi8(_mm256_max_epu8(lanes, control), control)));
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
