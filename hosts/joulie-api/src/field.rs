//! An error about a field of an object, in a sentence for the person who wrote it.

use crate::number::{Number, Whole};
use power_units::{DecimalError, Role};
use std::fmt;

/// At most this many characters of the value are quoted: the text goes into conditions, Events and log lines.
const QUOTED_MAX: usize = 120;

/// A field with a wrong or missing value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldError {
    field: String,
    found: Option<String>,
    expected: String,
}

impl FieldError {
    /// `field` is its path in the object; `found` is `None` if it is missing. A value that is too long to quote is cut.
    #[must_use]
    pub fn new(field: &str, found: Option<String>, expected: impl Into<String>) -> Self {
        Self { field: field.to_owned(), found: found.map(quoted), expected: expected.into() }
    }

    /// A field that is missing.
    #[must_use]
    pub fn missing(field: &str, expected: impl Into<String>) -> Self {
        Self::new(field, None, expected)
    }

    /// The path of the field, as in `spec.cpu.packagePowerCapWatts`.
    #[must_use]
    pub fn field(&self) -> &str {
        &self.field
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.found {
            Some(found) => write!(f, "{}: expected {}, found {found}", self.field, self.expected),
            None => write!(f, "{}: expected {}, found nothing", self.field, self.expected),
        }
    }
}

impl std::error::Error for FieldError {}

fn quoted(text: String) -> String {
    let Some((end, _)) = text.char_indices().nth(QUOTED_MAX) else { return text };
    format!("{}… ({} characters)", &text[..end], text.chars().count())
}

/// Parses decimal text as a fixed-point quantity.
type Parse<Q> = fn(&str, Role) -> Result<Q, DecimalError>;

/// Converts a number to a quantity of the core, rounded once as `role` says.
pub(crate) fn quantity<Q>(
    field: &str,
    number: Option<Number>,
    role: Role,
    parse: Parse<Q>,
) -> Result<Option<Q>, FieldError> {
    let Some(number) = number else { return Ok(None) };
    let text = number.to_string();
    match parse(&text, role) {
        Ok(quantity) => Ok(Some(quantity)),
        Err(error) => Err(FieldError::new(field, Some(text), format!("a number that fits ({error})"))),
    }
}

/// Converts a number to a quantity that must meet a condition.
pub(crate) fn within<Q: PartialOrd>(
    field: &str,
    number: Option<Number>,
    parse: Parse<Q>,
    fits: impl FnOnce(&Q) -> bool,
    expected: &str,
) -> Result<Option<Q>, FieldError> {
    match quantity(field, number, Role::Limit, parse)? {
        Some(quantity) if fits(&quantity) => Ok(Some(quantity)),
        Some(_) => Err(FieldError::new(field, number.map(|number| number.to_string()), expected)),
        None => Ok(None),
    }
}

/// A count. Zero counts as unknown, because agents of other generations write it when they do not know.
pub(crate) fn count(field: &str, number: Option<Whole>) -> Result<Option<u32>, FieldError> {
    let Some(number) = number else { return Ok(None) };
    match u32::try_from(number.get()) {
        Ok(0) => Ok(None),
        Ok(count) => Ok(Some(count)),
        Err(_) => {
            let found = Some(number.get().to_string());
            Err(FieldError::new(field, found, format!("a count from 0 to {}", u32::MAX)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_long_to_quote_is_cut_between_characters() {
        let of = |text: String| FieldError::new("a", Some(text), "b").to_string();
        assert_eq!(of("ß".repeat(120)), format!("a: expected b, found {}", "ß".repeat(120)));
        assert_eq!(
            of("ß".repeat(121)),
            format!("a: expected b, found {}… (121 characters)", "ß".repeat(120))
        );
    }
}
