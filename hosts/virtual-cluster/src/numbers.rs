//! Conversions between floating point and whole numbers, in one place.

/// The nearest whole number; zero for negative values.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the cast saturates, which is what is wanted of it"
)]
pub(crate) fn whole(value: f64) -> usize {
    (value + 0.5) as usize
}

/// The same, at most what 16 bits hold: no machine draws more than 65 kW.
pub(crate) fn short(value: f64) -> u16 {
    u16::try_from(whole(value)).unwrap_or(u16::MAX)
}

/// The value below which a part of the sorted values lies; zero without values.
pub(crate) fn quantile(sorted: &[f64], part: f64) -> f64 {
    let last = sorted.len().saturating_sub(1);
    sorted.get(whole(last as f64 * part).min(last)).copied().unwrap_or(0.0)
}
