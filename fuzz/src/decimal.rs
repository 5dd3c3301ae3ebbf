//! Property: a number is accepted if and only if it has JSON's syntax and fits; limits round down, demand rounds up,
//! and they differ by at most one bit; the value is that of the standard library's float within its accuracy; and the
//! displayed text reads back as the same number, or as its neighbour if the text is rounded to a tenth.

use power_units::{DecimalError, Role, Watts};

/// 2⁻³² W is the last bit; a float of 53 bits is within 2⁻²² of any value of 32 bits before the point.
const NEAR: f64 = 1.0 / 4_194_304.0 + 1.0 / 4_294_967_296.0;

/// Whether the text is a JSON number, by its grammar.
fn is_json(text: &str) -> bool {
    let digits = |text: &str| {
        let rest = text.trim_start_matches(|c: char| c.is_ascii_digit());
        (text.len() - rest.len(), text.len() - rest.len() > 0)
    };
    let mut rest = text.strip_prefix('-').unwrap_or(text);
    let (count, any) = digits(rest);
    if !any || (count > 1 && rest.starts_with('0')) {
        return false;
    }
    rest = &rest[count..];
    if let Some(fraction) = rest.strip_prefix('.') {
        let (count, any) = digits(fraction);
        if !any {
            return false;
        }
        rest = &fraction[count..];
    }
    if let Some(exponent) = rest.strip_prefix(['e', 'E']) {
        let exponent = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
        let (count, any) = digits(exponent);
        return any && count == exponent.len();
    }
    rest.is_empty()
}

/// Exact enough: both halves of a 32.32 number fit into the 53 bits of a float, and their sum is rounded once.
fn float(watts: Watts) -> f64 {
    let (whole, rest) = (watts.to_bits() >> 32, watts.to_bits() & 0xffff_ffff);
    let part = |part: i64| {
        f64::from(i32::try_from(part >> 16).unwrap_or(0)) * 65_536.0
            + f64::from(i32::try_from(part & 0xffff).unwrap_or(0))
    };
    f64::from(i32::try_from(whole).unwrap_or(0)) + part(rest) / 4_294_967_296.0
}

pub(crate) fn run(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let [low, near, high] = [Role::Limit, Role::Nearest, Role::Demand].map(|role| Watts::parse(text, role));
    for read in [low, near, high] {
        match read {
            Err(DecimalError::Empty) => assert!(text.is_empty()),
            Err(DecimalError::NotANumber) => assert!(!is_json(text) && !text.is_empty(), "{text}"),
            Err(DecimalError::OutOfRange) => {
                assert!(is_json(text), "{text}");
                let size = text.parse::<f64>().map_or(0.0, f64::abs);
                assert!(size >= 2_147_483_647.999_999, "{text} fits");
            }
            Ok(watts) => {
                assert!(is_json(text), "{text}");
                let exact = text.parse::<f64>().unwrap_or(f64::NAN);
                assert!((float(watts) - exact).abs() <= NEAR, "{text}: {watts}");
                let shown = watts.to_string();
                let back = Watts::parse(&shown, Role::Nearest).unwrap_or(Watts::MIN);
                assert!(
                    back.to_bits().abs_diff(watts.to_bits()) <= 1,
                    "{shown} is shown for {}",
                    watts.to_bits()
                );
                assert_eq!(back.to_string(), shown);
            }
        }
    }
    if let (Ok(low), Ok(near), Ok(high)) = (low, near, high) {
        assert!(low <= near && near <= high && high.to_bits() - low.to_bits() <= 1, "{low} {near} {high}");
        let told = low.to_micro_watts(Role::Limit).to_watts(Role::Limit);
        assert!(told <= low.or_zero(), "{text}: a driver is never told more than the limit");
    }
}
