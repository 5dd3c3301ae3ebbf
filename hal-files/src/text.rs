//! Parses the kernel's texts strictly: an unexpected text is bad data, never a guessed number.

/// One whole number as an attribute shows it: digits and a newline. `None` for anything else: an empty line, a sign,
/// a number that is too large, trailing characters, bytes that are not text.
#[must_use]
pub fn whole(text: &[u8]) -> Option<u64> {
    let digits = line(text)?;
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    digits.parse().ok()
}

/// One line of printable text, without the newline. An empty line is valid.
#[must_use]
pub fn line(text: &[u8]) -> Option<&str> {
    let line = text.strip_suffix(b"\n").unwrap_or(text);
    let printable = line.iter().all(|byte| (b' '..=b'~').contains(byte));
    if printable { std::str::from_utf8(line).ok() } else { None }
}

/// `value` in decimal, at the end of `buffer`. Twenty digits suffice for every number of 64 bits.
#[must_use]
pub fn decimal(mut value: u64, buffer: &mut [u8; 20]) -> &[u8] {
    let mut start = buffer.len();
    loop {
        start -= 1;
        // A remainder of ten is a digit.
        buffer[start] = b'0' + u8::try_from(value % 10).unwrap_or(0);
        value /= 10;
        if value == 0 {
            return &buffer[start..];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn only_a_number_is_a_number() {
        assert_eq!(whole(b"120000000\n"), Some(120_000_000));
        assert_eq!(whole(b"0"), Some(0));
        assert_eq!(whole(b"18446744073709551615\n"), Some(u64::MAX));
        for bad in [
            &b""[..],
            b"\n",
            b"-1\n",
            b"+1\n",
            b"1 \n",
            b" 1\n",
            b"1x\n",
            b"1\n\n",
            b"0x10\n",
            b"1.5\n",
            b"\xff\n",
            b"18446744073709551616\n",
        ] {
            assert_eq!(whole(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn a_line_is_printable_text() {
        assert_eq!(line(b"package-0\n"), Some("package-0"));
        assert_eq!(line(b"\n"), Some(""));
        assert_eq!(line(b"two\nlines\n"), None);
        assert_eq!(line(b"\x00"), None);
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(value in any::<u64>()) {
            prop_assert_eq!(whole(decimal(value, &mut [0; 20])), Some(value));
        }

        #[test]
        fn any_bytes_are_answered(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            let _ = whole(&bytes);
            let _ = line(&bytes);
        }
    }
}
