//! Conversions between floating point and whole numbers, in one place.

/// A value in 2⁻³²: sums of such values do not depend on their order, and what is added can be taken off exactly.
#[expect(clippy::cast_possible_truncation, reason = "the cast saturates; values are far below")]
pub(crate) fn parts(value: f64) -> i64 {
    (value * 4_294_967_296.0) as i64
}

/// The value of a number of parts.
pub(crate) fn value(parts: i64) -> f64 {
    parts as f64 / 4_294_967_296.0
}

/// The smallest number of steps that lasts at least this many seconds.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the cast saturates")]
pub(crate) fn steps(seconds: f64) -> u32 {
    (seconds / f64::from(crate::STEP_S)).ceil() as u32
}

/// The value at a part of the sorted values; zero without values.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between zero and the length")]
pub(crate) fn quantile(sorted: &[f64], part: f64) -> f64 {
    let last = sorted.len().saturating_sub(1);
    let place = last as f64 * part;
    let (low, high) = (place.floor() as usize, place.ceil() as usize);
    let at = |index: usize| sorted.get(index.min(last)).copied().unwrap_or(0.0);
    at(low) + (at(high) - at(low)) * (place - place.floor())
}
