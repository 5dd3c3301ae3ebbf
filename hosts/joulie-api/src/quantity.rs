//! Kubernetes quantities: `500m`, `1.5Gi`, `2e3`. The full grammar, exact, in whole billionths.
//!
//! ```text
//! quantity = [+-] number suffix
//! number   = digits | digits "." digits | digits "." | "." digits
//! suffix   = "" n u m k M G T P E | Ki Mi Gi Ti Pi Ei | (e|E) [+-] digits
//! ```
//!
//! As in Kubernetes, a value finer than a billionth is rounded away from zero, and a value above 2⁶³ − 1 becomes that:
//! a container that requests a tiny amount still requests something.

use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;

/// An amount of a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Quantity {
    nanos: i128,
}

/// A text that is not a quantity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuantityError {
    text: String,
    why: &'static str,
}

impl fmt::Display for QuantityError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is no quantity such as 500m, 1.5Gi or 2e3: {}", self.text, self.why)
    }
}

impl std::error::Error for QuantityError {}

const NANO: u128 = 1_000_000_000;
/// (2⁶³ − 1) · 10⁹.
const NANOS_MAX: u128 = 9_223_372_036_854_775_807 * NANO;

impl Quantity {
    /// Zero.
    pub const ZERO: Self = Self { nanos: 0 };

    /// Reads a quantity.
    ///
    /// # Errors
    /// If the text is not a quantity.
    pub fn parse(text: &str) -> Result<Self, QuantityError> {
        let bad = |why| QuantityError { text: text.chars().take(64).collect(), why };
        let (negative, unsigned) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text.strip_prefix('+').unwrap_or(text)),
        };
        let (whole, rest) = digits(unsigned);
        let (fraction, suffix) = rest.strip_prefix('.').map_or(("", rest), digits);
        if whole.is_empty() && fraction.is_empty() {
            return Err(bad("it has no digits"));
        }
        let scale = Scale::read(suffix).ok_or_else(|| bad("nobody knows its suffix"))?;
        let nanos = i128::try_from(scale.nanos(whole, fraction)).unwrap_or(i128::MAX);
        Ok(Self { nanos: if negative { -nanos } else { nanos } })
    }

    /// Creates a quantity from billionths.
    #[must_use]
    pub fn from_nanos(nanos: i128) -> Self {
        let max = i128::try_from(NANOS_MAX).unwrap_or(i128::MAX);
        Self { nanos: nanos.clamp(-max, max) }
    }

    /// The value in billionths.
    #[must_use]
    pub const fn nanos(self) -> i128 {
        self.nanos
    }

    /// The value in whole units, rounded away from zero as in Kubernetes.
    #[must_use]
    pub fn value(self) -> i64 {
        self.in_units_of(1_000_000_000)
    }

    /// The value in thousandths, rounded away from zero as in Kubernetes. A value that does not fit becomes the nearest
    /// one that does.
    #[must_use]
    pub fn milli_value(self) -> i64 {
        self.in_units_of(1_000_000)
    }

    fn in_units_of(self, nanos: i128) -> i64 {
        let rounded = self.nanos / nanos + (self.nanos % nanos).signum();
        i64::try_from(rounded).unwrap_or(if rounded < 0 { i64::MIN } else { i64::MAX })
    }
}

/// Splits a text after its leading digits.
fn digits(text: &str) -> (&str, &str) {
    let end = text.bytes().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len());
    text.split_at(end)
}

/// The factor of a suffix: 10^ten · 2^two.
struct Scale {
    ten: i64,
    two: u32,
}

impl Scale {
    fn read(suffix: &str) -> Option<Self> {
        let decimal = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];
        if let Some(at) = decimal.iter().position(|&name| name == suffix) {
            return Some(Self { ten: 3 * (i64::try_from(at).ok()? - 3), two: 0 });
        }
        let binary = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
        if let Some(at) = binary.iter().position(|&name| name == suffix) {
            return Some(Self { ten: 0, two: 10 * (u32::try_from(at).ok()? + 1) });
        }
        Some(Self { ten: exponent(suffix.strip_prefix(['e', 'E'])?)?, two: 0 })
    }

    /// The magnitude in billionths, rounded up, at most [`NANOS_MAX`].
    fn nanos(&self, whole: &str, fraction: &str) -> u128 {
        let unit = NANO << self.two;
        let all = || whole.bytes().chain(fraction.bytes()).map(|byte| u128::from(byte - b'0'));
        // The position of the point among the digits, after the exponent has moved it.
        let point = i64::try_from(whole.len()).unwrap_or(i64::MAX).saturating_add(self.ten);
        let mut before: u128 = 0;
        for (at, digit) in (0_i64..).zip(all()) {
            if at < point {
                before = before.saturating_mul(10).saturating_add(digit).min(NANOS_MAX);
            }
        }
        let written = i64::try_from(whole.len() + fraction.len()).unwrap_or(i64::MAX);
        if before != 0 {
            for _ in written..point {
                before = before.saturating_mul(10).min(NANOS_MAX);
                if before == NANOS_MAX {
                    break;
                }
            }
        }
        let behind = usize::try_from(written - point.clamp(0, written)).unwrap_or(0);
        let behind = part(all().rev().take(behind), point.saturating_neg(), unit);
        before.saturating_mul(unit).saturating_add(behind).min(NANOS_MAX)
    }
}

/// `unit` times a fraction of these digits, given in reverse order, with `zeros` zeros before them, rounded up.
///
/// The digits are processed in that order. Dividing the part below a digit by ten and truncating at each step gives the
/// same result as truncating once at the end. Any remainder means that something was truncated.
fn part(digits: impl Iterator<Item = u128>, zeros: i64, unit: u128) -> u128 {
    let (mut sum, mut cut) = (0_u128, false);
    for digit in digits {
        let dividend = digit * unit + sum;
        cut |= !dividend.is_multiple_of(10);
        sum = dividend / 10;
    }
    for _ in 0..zeros {
        if sum == 0 {
            break;
        }
        cut |= !sum.is_multiple_of(10);
        sum /= 10;
    }
    sum + u128::from(cut)
}

/// A decimal exponent. One that is too long for any number is limited to a bound that keeps its meaning.
fn exponent(text: &str) -> Option<i64> {
    let (negative, size) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let (size, rest) = digits(size);
    if size.is_empty() || !rest.is_empty() {
        return None;
    }
    let size = size.bytes().fold(0_i64, |sum, byte| {
        sum.saturating_mul(10).saturating_add(i64::from(byte - b'0')).min(EXPONENT_MAX)
    });
    Some(if negative { -size } else { size })
}

/// Far above the length of any text that is read, so that digits cannot bring the value back into range.
const EXPONENT_MAX: i64 = 1 << 40;

/// Writes the canonical form in powers of a thousand: no fraction, and the largest suffix that needs none.
impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.nanos == 0 {
            return f.write_str("0");
        }
        let mut number = self.nanos;
        let mut suffixes = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"].into_iter();
        let mut suffix = suffixes.next().unwrap_or_default();
        while number % 1000 == 0 {
            let Some(next) = suffixes.next() else { break };
            number /= 1000;
            suffix = next;
        }
        write!(f, "{number}{suffix}")
    }
}

impl Serialize for Quantity {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Quantity {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(QuantityVisitor)
    }
}

/// A quantity is a text, but people also write `cpu: 2`.
struct QuantityVisitor;

impl Visitor<'_> for QuantityVisitor {
    type Value = Quantity;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a quantity such as 500m, 1.5Gi or 2")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Quantity, E> {
        Quantity::parse(text).map_err(E::custom)
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Quantity, E> {
        self.visit_str(&number.to_string())
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Quantity, E> {
        self.visit_str(&number.to_string())
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Quantity, E> {
        self.visit_str(&number.to_string())
    }
}

#[cfg(test)]
mod tests;
