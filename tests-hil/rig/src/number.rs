//! How the kernel parses numbers. Every peculiarity here was observed on the real kernel's parsers.

use libc::{EINVAL, ERANGE};

/// An error number, as a system call would return it.
pub type Errno = i32;

/// `kstrtoull(text, 10)`: an optional `+`, decimal digits, at most one newline, and nothing else.
///
/// # Errors
/// `EINVAL` for anything else, `ERANGE` if it does not fit into 64 bits.
pub fn kstrtou64(text: &[u8]) -> Result<u64, Errno> {
    let text = text.strip_suffix(b"\n").unwrap_or(text);
    let digits = text.strip_prefix(b"+").unwrap_or(text);
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return Err(EINVAL);
    }
    let digits = std::str::from_utf8(digits).map_err(|_| EINVAL)?;
    digits.parse().map_err(|_| ERANGE)
}

/// `kstrtou32`: as above, with 32 bits.
///
/// # Errors
/// `EINVAL` for an invalid number, `ERANGE` if it does not fit into 32 bits.
pub fn kstrtou32(text: &[u8]) -> Result<u32, Errno> {
    u32::try_from(kstrtou64(text)?).map_err(|_| ERANGE)
}

/// `strtobool`: decides on the first character, or on the second after an `o`.
///
/// # Errors
/// `EINVAL` for anything else.
pub fn strtobool(text: &[u8]) -> Result<bool, Errno> {
    match text {
        [b'y' | b'Y' | b't' | b'T' | b'1', ..] | [b'o' | b'O', b'n' | b'N', ..] => Ok(true),
        [b'n' | b'N' | b'f' | b'F' | b'0', ..] | [b'o' | b'O', b'f' | b'F', ..] => Ok(false),
        _ => Err(EINVAL),
    }
}

/// cpufreq's `sscanf("%lu")` into a value that is then used with 32 bits: leading digits count, the rest is ignored,
/// and a value beyond 32 bits loses its upper half.
///
/// # Errors
/// `EINVAL` if the text does not begin with a digit.
pub fn scan_u32(text: &[u8]) -> Result<u32, Errno> {
    let start = text.iter().position(|b| !b.is_ascii_whitespace()).unwrap_or(text.len());
    let digits: Vec<u8> = text[start..].iter().copied().take_while(u8::is_ascii_digit).collect();
    if digits.is_empty() {
        return Err(EINVAL);
    }
    let value =
        digits.iter().fold(0_u64, |sum, digit| sum.wrapping_mul(10).wrapping_add(u64::from(digit - b'0')));
    Ok(u32::try_from(value & u64::from(u32::MAX)).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn powercap_numbers_are_read_as_the_kernel_reads_them() {
        assert_eq!(kstrtou64(b"100000000\n"), Ok(100_000_000));
        assert_eq!(kstrtou64(b"18446744073709551615"), Ok(u64::MAX));
        for refused in [&b"-1"[..], b"abc", b"0x10", b"100.5", b"100000000 ", b"", b"\n", b"1\n\n"] {
            assert_eq!(kstrtou64(refused), Err(EINVAL), "{refused:?}");
        }
        assert_eq!(kstrtou64(b"18446744073709551616"), Err(ERANGE));
        assert_eq!(kstrtou32(b"4294967296"), Err(ERANGE));
    }

    #[test]
    fn cpufreq_numbers_are_scanned() {
        assert_eq!(scan_u32(b"2400000xyz"), Ok(2_400_000));
        assert_eq!(scan_u32(b"0x1"), Ok(0));
        assert_eq!(scan_u32(b"4294967296"), Ok(0));
        assert_eq!(scan_u32(b"-1"), Err(EINVAL));
        assert_eq!(scan_u32(b"abc"), Err(EINVAL));
    }

    #[test]
    fn switches_are_booleans() {
        assert_eq!(strtobool(b"1"), Ok(true));
        assert_eq!(strtobool(b"0\n"), Ok(false));
        assert_eq!(strtobool(b"7"), Err(EINVAL));
    }
}
