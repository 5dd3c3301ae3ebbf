//! Parses decimal text to fixed point without an intermediate float: whole numbers, fractions and exponents, as
//! JSON writes them. The result is the exact decimal value, rounded once in the direction of its [`Role`].

use core::fmt;

/// The purpose of a number, which decides in which direction it is rounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// What is permitted: rounds and saturates down, so that rounding never permits more than was meant.
    Limit,
    /// What is drawn or requested: rounds up, so that rounding never hides power.
    Demand,
    /// Neither: rounds to the nearest value, halves up.
    Nearest,
}

/// Why a text is not a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecimalError {
    /// There is no text.
    Empty,
    /// The text is not a JSON number: a sign, digits, a fraction, an exponent, and nothing else.
    NotANumber,
    /// The value does not fit the quantity.
    OutOfRange,
}

impl fmt::Display for DecimalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Empty => "expected a number, found nothing",
            Self::NotANumber => "expected a decimal number such as 120, 0.5 or 1.2e3",
            Self::OutOfRange => "the number is too large for this quantity",
        })
    }
}

impl core::error::Error for DecimalError {}

/// A multiple of 2⁻³³, half of the last bit, has at most 33 decimal places. Digits beyond them only affect the
/// direction of rounding.
const PLACES: i64 = 33;
/// One, in units of the last of these places.
const ONE: u128 = 10_u128.pow(33);
const FRACTION_BITS: u32 = 32;

/// The bits of a 32.32 fixed-point number, rounded as `role` says.
pub(crate) fn parse_bits(text: &str, role: Role) -> Result<i64, DecimalError> {
    let number = Number::split(text)?;
    let (magnitude, inexact) = number.magnitude()?;
    let up = match (role, number.negative) {
        (Role::Limit, false) | (Role::Demand, true) => false,
        (Role::Limit, true) | (Role::Demand, false) => inexact.is_some(),
        (Role::Nearest, false) => matches!(inexact, Some(Cut::Half | Cut::More)),
        (Role::Nearest, true) => inexact == Some(Cut::More),
    };
    let rounded = magnitude.checked_add(u64::from(up)).ok_or(DecimalError::OutOfRange)?;
    let bits = i128::from(rounded);
    let signed = if number.negative { bits.checked_neg() } else { Some(bits) };
    signed.and_then(|bits| i64::try_from(bits).ok()).ok_or(DecimalError::OutOfRange)
}

/// How much was cut off, relative to the last kept bit: less than half of it, half, or more.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Cut {
    Less,
    Half,
    More,
}

/// A decimal number as written: its digits, and the position of the decimal point.
struct Number<'a> {
    negative: bool,
    whole: &'a str,
    fraction: &'a str,
    exponent: i64,
}

impl<'a> Number<'a> {
    fn split(text: &'a str) -> Result<Self, DecimalError> {
        if text.is_empty() {
            return Err(DecimalError::Empty);
        }
        let (negative, unsigned) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
            Some((mantissa, exponent)) => (mantissa, parse_exponent(exponent)?),
            None => (unsigned, 0),
        };
        let (whole, fraction) = match mantissa.split_once('.') {
            Some((_, "")) => return Err(DecimalError::NotANumber),
            Some(parts) => parts,
            None => (mantissa, ""),
        };
        let digits_only = whole.bytes().chain(fraction.bytes()).all(|b| b.is_ascii_digit());
        let leading_zero = whole.len() > 1 && whole.starts_with('0');
        if whole.is_empty() || !digits_only || leading_zero {
            return Err(DecimalError::NotANumber);
        }
        Ok(Self { negative, whole, fraction, exponent })
    }

    /// The absolute value as bits rounded toward zero, and what was cut off.
    fn magnitude(&self) -> Result<(u64, Option<Cut>), DecimalError> {
        let whole_digits = i64::try_from(self.whole.len()).unwrap_or(i64::MAX);
        let point = whole_digits.saturating_add(self.exponent);
        let mut whole: u64 = 0;
        // The digits after the point, and how many places they cover.
        let (mut fraction, mut places) = (0_u128, 0_i64);
        let mut beyond = false;
        // The place of the digit after the point; negative before the point.
        let mut place = point.saturating_neg();
        for byte in self.whole.bytes().chain(self.fraction.bytes()) {
            let digit = byte.wrapping_sub(b'0');
            if place < 0 {
                whole = push_digit(whole, digit)?;
            } else if place < PLACES {
                fraction = fraction.wrapping_mul(10).wrapping_add(u128::from(digit));
                places = place.saturating_add(1);
            } else {
                beyond |= digit != 0;
            }
            place = place.saturating_add(1);
        }
        let written = whole_digits.saturating_add(i64::try_from(self.fraction.len()).unwrap_or(i64::MAX));
        if whole != 0 {
            for _ in written..point {
                whole = push_digit(whole, 0)?;
            }
        }
        for _ in places..PLACES {
            fraction = fraction.wrapping_mul(10);
        }
        let (fraction, cut) = binary_fraction(fraction, beyond);
        Ok((whole.wrapping_shl(FRACTION_BITS) | u64::from(fraction), cut))
    }
}

fn push_digit(whole: u64, digit: u8) -> Result<u64, DecimalError> {
    let next = whole.saturating_mul(10).saturating_add(u64::from(digit));
    // The whole part of a 32.32 number, with the sign bit spared for i32::MIN.
    if next > 1 << 31 { Err(DecimalError::OutOfRange) } else { Ok(next) }
}

/// The exponent of any number that fits is small. A larger one is limited to a bound that keeps its meaning
/// (overflow, or only a direction of rounding).
fn parse_exponent(text: &str) -> Result<i64, DecimalError> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err(DecimalError::NotANumber);
    }
    let size = digits.bytes().fold(0_i64, |sum, b| {
        sum.saturating_mul(10).saturating_add(i64::from(b.wrapping_sub(b'0'))).min(EXPONENT_MAX)
    });
    Ok(if text.starts_with('-') { size.saturating_neg() } else { size })
}

/// Far beyond the length of any text that is parsed, so that the digits cannot bring the value back into range.
const EXPONENT_MAX: i64 = 1 << 40;

/// Doubles the fraction, in units of the last place, once for each bit and collects the carries.
fn binary_fraction(mut fraction: u128, beyond: bool) -> (u32, Option<Cut>) {
    let mut bits: u32 = 0;
    for _ in 0..FRACTION_BITS {
        bits = bits.wrapping_shl(1) | u32::from(double(&mut fraction));
    }
    if !beyond && fraction == 0 {
        return (bits, None);
    }
    let cut = match (double(&mut fraction), !beyond && fraction == 0) {
        (true, true) => Cut::Half,
        (true, false) => Cut::More,
        (false, _) => Cut::Less,
    };
    (bits, Some(cut))
}

/// Doubles the fraction; returns whether the result is one or more, and then subtracts one.
fn double(fraction: &mut u128) -> bool {
    let doubled = fraction.wrapping_mul(2);
    let carries = doubled >= ONE;
    *fraction = if carries { doubled.wrapping_sub(ONE) } else { doubled };
    carries
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::format;

    const ONE_WHOLE: i64 = 1 << 32;

    fn limit(text: &str) -> Result<i64, DecimalError> {
        parse_bits(text, Role::Limit)
    }

    #[test]
    fn every_form_that_json_writes_is_read() {
        for (text, bits) in [
            ("0", 0),
            ("-0", 0),
            ("120", 120 * ONE_WHOLE),
            ("-7", -7 * ONE_WHOLE),
            ("0.5", ONE_WHOLE / 2),
            ("350.25", 350 * ONE_WHOLE + ONE_WHOLE / 4),
            ("1.2e3", 1200 * ONE_WHOLE),
            ("1E+2", 100 * ONE_WHOLE),
            ("5e-1", ONE_WHOLE / 2),
            ("2500000000000e-10", 250 * ONE_WHOLE),
            ("0.00000000000000000000000000000000000e40", 0),
        ] {
            assert_eq!(limit(text), Ok(bits), "{text}");
        }
    }

    #[test]
    fn what_is_not_a_json_number_is_refused() {
        assert_eq!(limit(""), Err(DecimalError::Empty));
        for text in [
            "-", "+1", ".5", "5.", "01", "1e", "1e+", "1.e3", "1,5", "0x10", "NaN", "inf", " 1", "1 ",
            "1_000", "--1", "1e1.5", "१",
        ] {
            assert_eq!(limit(text), Err(DecimalError::NotANumber), "{text}");
        }
    }

    #[test]
    fn the_role_decides_the_direction() {
        // 0.1 is not a multiple of 2⁻³²: 0.1 · 2³² = 429496729.6.
        assert_eq!(parse_bits("0.1", Role::Limit), Ok(429_496_729));
        assert_eq!(parse_bits("0.1", Role::Demand), Ok(429_496_730));
        assert_eq!(parse_bits("0.1", Role::Nearest), Ok(429_496_730));
        assert_eq!(parse_bits("-0.1", Role::Limit), Ok(-429_496_730));
        assert_eq!(parse_bits("-0.1", Role::Demand), Ok(-429_496_729));
    }

    #[test]
    fn digits_beyond_the_resolution_still_decide_the_direction() {
        // 2⁻³² has 32 decimal places and is exact in every role.
        let smallest = "0.00000000023283064365386962890625";
        assert_eq!(parse_bits(smallest, Role::Limit), Ok(1));
        assert_eq!(parse_bits(smallest, Role::Demand), Ok(1));
        let a_trace_more = format!("{smallest}00000000000000000001");
        assert_eq!(parse_bits(&a_trace_more, Role::Limit), Ok(1));
        assert_eq!(parse_bits(&a_trace_more, Role::Demand), Ok(2));
        assert_eq!(parse_bits("1e-999999999999999999999", Role::Demand), Ok(1));
        assert_eq!(parse_bits("1e-999999999999999999999", Role::Limit), Ok(0));
    }

    #[test]
    fn the_nearest_value_of_a_half_is_the_one_above() {
        // 2⁻³³ is half of the last bit.
        let half = "0.000000000116415321826934814453125";
        let nearest = |text: &str| parse_bits(text, Role::Nearest);
        assert_eq!((nearest(half), nearest(&format!("-{half}"))), (Ok(1), Ok(0)));
        assert_eq!(nearest(&format!("-{half}0000001")), Ok(-1));
        assert_eq!(nearest("0.000000000116415321826934814453124"), Ok(0));
    }

    #[test]
    fn the_ends_of_the_range_are_read_and_what_is_beyond_is_refused() {
        assert_eq!(limit("-2147483648"), Ok(i64::MIN));
        assert_eq!(limit("2147483647.99999999976716935634613037109375"), Ok(i64::MAX));
        assert_eq!(limit("2147483648"), Err(DecimalError::OutOfRange));
        assert_eq!(limit("-2147483648.1"), Err(DecimalError::OutOfRange));
        assert_eq!(limit("1e999999999999999999999"), Err(DecimalError::OutOfRange));
        assert_eq!(parse_bits("2147483647.9999999999", Role::Demand), Err(DecimalError::OutOfRange));
    }

    proptest! {
        #[test]
        fn any_text_is_answered(text in "\\PC{0,40}") {
            let _ = limit(&text);
        }

        #[test]
        fn the_bounds_meet_only_on_exact_values(whole in 0_u32..2_000_000_000, fraction in 0_u64..1_000_000_000_000) {
            let text = format!("{whole}.{fraction:012}");
            let low = parse_bits(&text, Role::Limit).unwrap();
            let high = parse_bits(&text, Role::Demand).unwrap();
            // The value in units of 2⁻³² is whole·2³² + fraction·2³²/10¹².
            let scaled = u128::from(fraction) << 32;
            let exact = scaled % 1_000_000_000_000 == 0;
            prop_assert_eq!(low, (i64::from(whole) << 32) + (scaled / 1_000_000_000_000) as i64);
            prop_assert_eq!(high, low + i64::from(!exact));
        }
    }
}
