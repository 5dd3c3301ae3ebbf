//! Eight bytes in an integer.

use super::{BracketsEnd, Masks, Odd, StringEnd, Strings, brackets_end_by, strings_by};

const ONES: u64 = 0x0101_0101_0101_0101;
pub(crate) const HIGHS: u64 = ONES << 7;

#[expect(clippy::redundant_closure, reason = "a closure is inlined here, a function is called")]
pub(super) fn brackets_end(bytes: &[u8], at: usize) -> Option<BracketsEnd> {
    brackets_end_by(bytes, at, |block| masks(block), |block| odd(block), |mask| prefix_xor(mask))
}

pub(super) fn strings(bytes: &[u8], at: usize, out: &mut Strings) -> Option<usize> {
    strings_by(bytes, at, out, |_, from, _| from, string_end)
}

/// The high bit of each byte that is zero. Exact: no carry leaves a byte.
#[inline(always)]
fn zeros(word: u64) -> u64 {
    !(((word & !HIGHS) + !HIGHS) | word | !HIGHS)
}

#[inline(always)]
fn equal(word: u64, byte: u8) -> u64 {
    zeros(word ^ (ONES.wrapping_mul(u64::from(byte))))
}

/// The high bits of eight bytes, next to each other.
#[inline(always)]
pub(crate) fn gather(highs: u64) -> u64 {
    (highs >> 7).wrapping_mul(0x0102_0408_1020_4080) >> 56
}

#[inline(always)]
fn masks(block: &[u8; 64]) -> Masks {
    let mut masks = Masks::default();
    let mut odd = 0;
    for (word, shift) in words(block) {
        odd |= (word & HIGHS) | equal(word, b'\\');
        // `[` and `{`, and `]` and `}`, differ in one bit.
        let folded = word | (ONES << 5);
        masks.quotes |= gather(equal(word, b'"')) << shift;
        let closing = equal(folded, b'}');
        masks.brackets |= gather(equal(folded, b'{') | closing) << shift;
        masks.closing |= gather(closing) << shift;
    }
    masks.odd = odd != 0;
    masks
}

#[inline(always)]
fn odd(block: &[u8; 64]) -> Odd {
    let mut odd = Odd::default();
    for (word, shift) in words(block) {
        odd.backslashes |= gather(equal(word, b'\\')) << shift;
        odd.high |= word & HIGHS != 0;
    }
    odd
}

/// Eight bytes each, and the place of the first one's bit in a mask.
#[inline(always)]
fn words(block: &[u8; 64]) -> impl Iterator<Item = (u64, u32)> {
    let (words, _) = block.as_chunks::<8>();
    words.iter().map(|word| u64::from_le_bytes(*word)).zip((0..).step_by(8))
}

#[inline(always)]
fn prefix_xor(mut mask: u64) -> u64 {
    for shift in [1, 2, 4, 8, 16, 32] {
        mask ^= mask << shift;
    }
    mask
}

/// Behind a quote: where its string ends. Nothing where it does not, or where a control character is in it.
pub(crate) fn string_end(bytes: &[u8], from: usize) -> Option<StringEnd> {
    let (mut at, mut escaped) = (from, false);
    loop {
        match bytes.get(at)? {
            b'"' => return Some(StringEnd { quote: at, escaped }),
            b'\\' => {
                escaped = true;
                at += 2;
            }
            0..0x20 => return None,
            _ => at += 1,
        }
    }
}
