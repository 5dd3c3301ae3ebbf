//! Square roots of integers: one division each, because a control tick takes up to eight of them.
//!
//! The first eight bits of the number choose an estimate that is off by less than 1/128, from a table that the compiler makes. One step of
//! Heron's method makes it the root or one more.

/// The root of the middle of each 64th of 2³⁰, from 2³⁰ to 2³².
static ESTIMATES: [u16; 192] = estimates();

/// The number of the first entry: the eight highest bits of 2³⁰.
const FIRST: u32 = 64;

#[allow(
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    clippy::cast_possible_truncation,
    clippy::indexing_slicing,
    reason = "the compiler evaluates it, and refuses what would overflow"
)]
const fn estimates() -> [u16; 192] {
    let mut table = [0; 192];
    let mut at = 0;
    while at < table.len() {
        let middle = ((at as u32 + FIRST) << 24) + (1 << 23);
        // Below 2¹⁶, since the number is below 2³².
        table[at] = middle.isqrt() as u16;
        at += 1;
    }
    table
}

/// `⌊√n⌋`.
pub(super) fn square_root(n: u32) -> u32 {
    // An even number of bits, so that the root is moved by half of them.
    let shift = n.leading_zeros() & !1;
    let wide = n.wrapping_shl(shift);
    let at = usize::try_from((wide >> 24).wrapping_sub(FIRST)).unwrap_or(usize::MAX);
    // Zero alone has no entry.
    let Some(&estimate) = ESTIMATES.get(at) else { return 0 };
    let estimate = u32::from(estimate);
    let root = estimate.wrapping_add(wide.checked_div(estimate).unwrap_or(0)) >> 1;
    let above = u64::from(root).wrapping_mul(u64::from(root)) > u64::from(wide);
    root.wrapping_sub(u32::from(above)) >> (shift >> 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_root_of_the_standard_library() {
        for root in 0..=u32::from(u16::MAX) {
            let square = root * root;
            for n in [square.saturating_sub(1), square, square + 1, square.saturating_add(root)] {
                assert_eq!(square_root(n), n.isqrt(), "{n}");
            }
        }
        let mut n = 1_u32;
        while let Some(next) = n.checked_add(4_097) {
            assert_eq!(square_root(n), n.isqrt(), "{n}");
            n = next;
        }
        assert_eq!(square_root(u32::MAX), 65_535);
    }
}
