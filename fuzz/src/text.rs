//! Property: text is parsed as a simple parser does, decimals read back, and a refusal is bad data.

use hal_files::text::{decimal, line, whole};

/// A whole number by a second implementation of the rule: digits, at most one newline after them, within 64 bits.
pub(crate) fn number(text: &[u8]) -> Option<u64> {
    let (last, before) = text.split_last()?;
    let digits = if *last == b'\n' { before } else { text };
    let mut value: u128 = 0;
    for digit in digits {
        let digit = digit.checked_sub(b'0').filter(|digit| *digit < 10)?;
        value = value.saturating_mul(10).saturating_add(digit.into());
    }
    u64::try_from(value).ok().filter(|_| !digits.is_empty())
}

/// A number as in an attribute, whose length is limited.
pub(crate) fn attribute(text: &[u8]) -> Option<u64> {
    if text.len() < hal_files::TEXT_MAX { number(text) } else { None }
}

pub(crate) fn run(bytes: &[u8]) {
    let value = whole(bytes);
    assert_eq!(value, number(bytes));
    if let Some(value) = value {
        let mut buffer = [0; 20];
        let written = decimal(value, &mut buffer);
        assert_eq!(whole(written), Some(value), "what is written reads back");
        let spelt = bytes.strip_suffix(b"\n").unwrap_or(bytes);
        let zeros = spelt.iter().take_while(|byte| **byte == b'0').count().min(spelt.len() - 1);
        assert_eq!(written, &spelt[zeros..], "the same digits, but for zeros in front");
    }
    match line(bytes) {
        Some(text) => {
            assert!(text.bytes().all(|byte| byte.is_ascii_graphic() || byte == b' '));
            assert!([text.as_bytes(), b"\n"].concat() == bytes || text.as_bytes() == bytes);
        }
        None => {
            let inner = bytes.strip_suffix(b"\n").unwrap_or(bytes);
            assert!(inner.iter().any(|byte| !byte.is_ascii_graphic() && *byte != b' '));
            assert_eq!(value, None, "what is no line is no number");
        }
    }
}
