//! Texts into values: the parsers that tables of settings are made of.
//!
//! Each takes the text as written and returns the value or why it is none. They are stricter than the Go programs
//! whose variables they read: what those silently took for a default, or for a busy loop, is refused.

use super::{Listen, Url, UrlTemplate, Wrong, selector};
use jiff::SpanRelativeTo;
use jiff::fmt::friendly::{Spacing, SpanParser, SpanPrinter};
use power_units::{Percent, Role, Watts};
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

pub use selector::selector;

pub(super) fn wrong<T>(why: impl Into<String>) -> Result<T, Wrong> {
    Err(Wrong(why.into()))
}

/// Text of any kind, without the spaces around it.
pub fn text(text: &str) -> Result<String, Wrong> {
    match text.trim() {
        trimmed if trimmed.chars().any(char::is_control) => wrong("it contains a control character"),
        trimmed => Ok(trimmed.to_owned()),
    }
}

/// `true`, `yes` or `1`; `false`, `no` or `0`; in any case.
pub fn boolean(text: &str) -> Result<bool, Wrong> {
    match text.trim().to_ascii_lowercase().as_str() {
        "true" | "yes" | "1" => Ok(true),
        "false" | "no" | "0" => Ok(false),
        _ => wrong("it is neither true nor false"),
    }
}

/// A duration within `range`, in the friendly format of jiff: `20s`, `1m30s`, `250ms`, `1.5h`, `2d`, and all else that Go
/// writes. A day is 24 hours.
pub fn duration(text: &str, range: RangeInclusive<Duration>) -> Result<Duration, Wrong> {
    let value = any_duration(text.trim())?;
    if range.contains(&value) {
        return Ok(value);
    }
    wrong(format!("it is not between {} and {}", show_duration(*range.start()), show_duration(*range.end())))
}

fn any_duration(text: &str) -> Result<Duration, Wrong> {
    static FRIENDLY: SpanParser = SpanParser::new();
    let no_duration = |_| {
        let units = "a duration is numbers with units (d, h, m, s, ms, us, ns), the largest first";
        Wrong(format!("{units}, such as 20s or 1m30s"))
    };
    // Go takes a zero without a unit, and so do the manifests of upstream.
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    let span = FRIENDLY.parse_span(text).map_err(no_duration)?;
    // Months and years have no length of their own, and are no durations.
    let value = span.to_duration(SpanRelativeTo::days_are_24_hours()).map_err(no_duration)?;
    Duration::try_from(value).or_else(|_| wrong("it is negative"))
}

/// A duration in the words that [`duration`] reads, in whole milliseconds.
pub fn show_duration(value: Duration) -> String {
    static COMPACT: SpanPrinter = SpanPrinter::new().spacing(Spacing::None);
    let millis = u64::try_from(value.as_millis()).unwrap_or(u64::MAX);
    COMPACT.unsigned_duration_to_string(&Duration::from_millis(millis))
}

/// A whole number within `range`.
pub fn whole<N: FromStr + PartialOrd + Display>(text: &str, range: RangeInclusive<N>) -> Result<N, Wrong> {
    // A number that is too large for its type is out of range too, and says so.
    let trimmed = text.trim();
    let is_number = !trimmed.is_empty()
        && trimmed.strip_prefix(['-', '+']).unwrap_or(trimmed).bytes().all(|byte| byte.is_ascii_digit())
        && trimmed.bytes().any(|byte| byte.is_ascii_digit());
    match trimmed.parse::<N>() {
        Ok(number) if range.contains(&number) => Ok(number),
        Err(_) if !is_number => wrong("it is not a whole number"),
        Ok(_) | Err(_) => wrong(format!("it is not between {} and {}", range.start(), range.end())),
    }
}

/// A decimal number within `range`.
pub fn real(text: &str, range: RangeInclusive<f64>) -> Result<f64, Wrong> {
    // Letters other than an exponent spell inf, NaN and hexadecimal floats.
    let trimmed = text.trim();
    let plain = trimmed.bytes().all(|byte| byte.is_ascii_digit() || b"+-.eE".contains(&byte));
    match trimmed.parse::<f64>() {
        Ok(number) if plain && range.contains(&number) => Ok(number),
        Ok(number) if plain && number.is_finite() => {
            wrong(format!("it is not between {} and {}", range.start(), range.end()))
        }
        Ok(_) | Err(_) => wrong("it is not a decimal number"),
    }
}

/// Watts within `range`: a number alone, rounded as `role` says.
pub fn watts(text: &str, role: Role, range: RangeInclusive<Watts>) -> Result<Watts, Wrong> {
    let value = Watts::parse(text.trim(), role).or_else(|error| wrong(unit_alone(text, &error)))?;
    within(value, &range)
}

/// A percentage from 0 to 100: a number alone.
pub fn percent(text: &str) -> Result<Percent, Wrong> {
    let value =
        Percent::parse(text.trim(), Role::Nearest).or_else(|error| wrong(unit_alone(text, &error)))?;
    within(value, &(Percent::from_int(0)..=Percent::from_int(100)))
}

fn unit_alone(text: &str, error: &dyn Display) -> String {
    let trimmed = text.trim();
    let unit = trimmed.trim_start_matches(|c: char| c.is_ascii_digit() || "+-.".contains(c));
    if unit.len() < trimmed.len()
        && !unit.is_empty()
        && unit.chars().all(|c| c.is_alphabetic() || "% ".contains(c))
    {
        return format!("write the number alone, without {:?}", unit.trim());
    }
    error.to_string()
}

fn within<T: PartialOrd + Display>(value: T, range: &RangeInclusive<T>) -> Result<T, Wrong> {
    if range.contains(&value) {
        return Ok(value);
    }
    wrong(format!("it is not between {} and {}", range.start(), range.end()))
}

/// One of the words, in any case.
pub fn one_of<T: Clone>(text: &str, words: &[(&str, T)]) -> Result<T, Wrong> {
    let word = text.trim();
    match words.iter().find(|(known, _)| known.eq_ignore_ascii_case(word)) {
        Some((_, value)) => Ok(value.clone()),
        None => {
            let known: Vec<&str> = words.iter().map(|(known, _)| *known).collect();
            wrong(format!("it is none of {}", known.join(", ")))
        }
    }
}

/// Texts between commas; empty ones are dropped, and there must be one.
pub fn list(text: &str) -> Result<Vec<String>, Wrong> {
    let items: Vec<String> =
        text.split(',').map(str::trim).filter(|item| !item.is_empty()).map(str::to_owned).collect();
    if items.is_empty() { wrong("it is an empty list") } else { Ok(items) }
}

/// A path.
pub fn path(text: &str) -> Result<PathBuf, Wrong> {
    self::text(text).map(PathBuf::from)
}

/// An address to listen on, as Go writes it.
pub fn listen(text: &str) -> Result<Listen, Wrong> {
    text.parse()
}

/// An http or https URL.
pub fn url(text: &str) -> Result<Url, Wrong> {
    text.parse()
}

/// An http or https URL with `{node}` where the node's name goes.
pub fn url_template(text: &str) -> Result<UrlTemplate, Wrong> {
    text.parse()
}

/// The name of an object: lower-case letters, digits, `-` and `.`, at most 253.
pub fn object_name(text: &str) -> Result<String, Wrong> {
    let name = text.trim();
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-' || byte == b'.';
    let edges = [name.bytes().next(), name.bytes().next_back()];
    let fine_edges = edges.iter().all(|edge| edge.is_some_and(|byte| byte.is_ascii_alphanumeric()));
    if fine_edges && name.len() <= 253 && name.bytes().all(inner) {
        return Ok(name.to_owned());
    }
    wrong("it is not the name of a Kubernetes object (lower-case letters, digits, '-' and '.', at most 253)")
}

/// A label's key: `name` or `domain/name`.
pub fn label_key(text: &str) -> Result<String, Wrong> {
    selector::key(text.trim())
}
