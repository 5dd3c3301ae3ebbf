//! The values to write for a cap, independent of the interface.

/// One step of a limit: 1/8 W, on every part with powercap limits except small Atoms.
pub(crate) const STEP_UW: u64 = 125_000;

/// The largest limit that fits in every power field: 15 bits of steps. 4096 W would become 0 W. TPMI has 18 bits,
/// and no package draws more than this.
pub(crate) const CEILING_UW: u64 = 0x7fff * STEP_UW;

/// The largest limit of any power field: TPMI has 18 bits of steps.
pub(crate) const FIELD_MAX_UW: u64 = 0x3_ffff * STEP_UW;

/// The longest window of a field: 2³¹ · 1.75 units of 2⁻¹⁰ s.
pub(crate) const WINDOW_FIELD_MAX_US: u64 = (7 << 29) * 977;

/// The smallest limit that is written. The hardware's own floor is only in a register that is often wrong; this
/// floor prevents an error in the unit from becoming 0 W. The useful minimum of a node is set in its configuration.
pub(crate) const FLOOR_UW: u64 = 1_000_000;

/// The longest window of a cap. Vendors ship 28 s, within which a package may draw its short-term limit throughout.
/// With half a second, a package that was at a quarter of its cap may be 5 % above it for `½ s · ln(0.8 / 0.05)` =
/// 1.4 s; with a second it would be twice as long.
pub(crate) const WINDOW_MAX_US: u64 = 500_000;

/// The short-term limit for a cap: a fifth above it, but never above its original value.
pub(crate) const fn short_term(cap_uw: u64, original_uw: u64) -> u64 {
    let headroom = cap_uw.saturating_add(cap_uw / 5);
    let aim = if headroom < original_uw { headroom } else { original_uw };
    aim - aim % STEP_UW
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_short_term_limit_is_a_fifth_above_the_cap() {
        assert_eq!(short_term(100_000_000, 300_000_000), 120_000_000);
        // 1.2 × 100.125 W is 120.15 W; the register holds 120.125 W.
        assert_eq!(short_term(100_125_000, 300_000_000), 120_125_000);
    }

    #[test]
    fn the_short_term_limit_is_never_raised_above_its_original() {
        assert_eq!(short_term(260_000_000, 300_000_000), 300_000_000);
        assert_eq!(short_term(400_000_000, 300_000_000), 300_000_000);
        assert_eq!(short_term(u64::MAX, 300_000_000), 300_000_000);
        assert_eq!(short_term(100_000_000, 0), 0, "one that is not used stays unused");
    }

    #[test]
    fn what_is_written_fits_every_field() {
        assert_eq!(CEILING_UW, 4_095_875_000);
        assert_eq!(FLOOR_UW % STEP_UW, 0);
        for cap in [FLOOR_UW, 99_999_999, CEILING_UW, u64::MAX] {
            assert!(short_term(cap, CEILING_UW) <= CEILING_UW);
        }
    }
}
