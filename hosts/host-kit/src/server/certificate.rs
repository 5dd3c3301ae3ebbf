//! Reads from a certificate in DER form when it begins and ends.
//!
//! Only the two times are read; the TLS library checks whether the certificate is valid. The bytes come from a file
//! that somebody else writes, so nothing in them is trusted.

use jiff::Timestamp;
use jiff::civil::DateTime;
use std::fmt;

/// The times between which a certificate is valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Validity {
    pub(super) not_before: Timestamp,
    pub(super) not_after: Timestamp,
}

/// Why bytes are not a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CertificateError {
    /// They end too early.
    Short,
    /// They have something else where this should be.
    Expected(&'static str),
    /// A time is not valid.
    Time,
}

impl fmt::Display for CertificateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Short => f.write_str("the certificate is cut off"),
            Self::Expected(what) => write!(f, "the certificate has no {what} where it should be"),
            Self::Time => f.write_str("the certificate's validity is not a time"),
        }
    }
}

impl std::error::Error for CertificateError {}

const SEQUENCE: u8 = 0x30;
const INTEGER: u8 = 0x02;
const VERSION: u8 = 0xa0;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;

/// Reads the validity: Certificate { tbs { [0] version?, serial, algorithm, issuer, validity { from, to }, … }, … }.
pub(super) fn validity(der: &[u8]) -> Result<Validity, CertificateError> {
    let mut certificate = Der(der).open(SEQUENCE, "outer sequence")?;
    let mut tbs = certificate.open(SEQUENCE, "body")?;
    if tbs.0.first() == Some(&VERSION) {
        tbs.open(VERSION, "version")?;
    }
    tbs.open(INTEGER, "serial number")?;
    tbs.open(SEQUENCE, "signature algorithm")?;
    tbs.open(SEQUENCE, "issuer")?;
    let mut validity = tbs.open(SEQUENCE, "validity")?;
    Ok(Validity { not_before: validity.time()?, not_after: validity.time()? })
}

/// Bytes that are read from the front.
struct Der<'b>(&'b [u8]);

impl<'b> Der<'b> {
    fn take(&mut self, count: usize) -> Result<&'b [u8], CertificateError> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(CertificateError::Short)?;
        self.0 = rest;
        Ok(taken)
    }

    fn byte(&mut self) -> Result<u8, CertificateError> {
        self.take(1).map(|bytes| bytes[0])
    }

    /// Reads one element: its tag and its content.
    fn element(&mut self) -> Result<(u8, Der<'b>), CertificateError> {
        let tag = self.byte()?;
        let first = self.byte()?;
        let length = if first < 0x80 {
            usize::from(first)
        } else {
            // A length of more than four bytes is no certificate, and a missing length is BER.
            let count = usize::from(first & 0x7f);
            if count == 0 || count > 4 {
                return Err(CertificateError::Expected("definite length"));
            }
            self.take(count)?.iter().fold(0, |length, byte| (length << 8) | usize::from(*byte))
        };
        Ok((tag, Der(self.take(length)?)))
    }

    fn open(&mut self, tag: u8, what: &'static str) -> Result<Der<'b>, CertificateError> {
        let (found, content) = self.element()?;
        if found == tag { Ok(content) } else { Err(CertificateError::Expected(what)) }
    }

    /// `YYMMDDHHMMSSZ` (1950 to 2049) or `YYYYMMDDHHMMSSZ`, as RFC 5280 section 4.1.2.5 has them.
    fn time(&mut self) -> Result<Timestamp, CertificateError> {
        let (tag, Der(text)) = self.element()?;
        let (year_digits, text) = match tag {
            UTC_TIME => (2, text),
            GENERALIZED_TIME => (4, text),
            _ => return Err(CertificateError::Expected("time")),
        };
        let digits = text.strip_suffix(b"Z").ok_or(CertificateError::Time)?;
        if digits.len() != year_digits + 10 || !digits.iter().all(u8::is_ascii_digit) {
            return Err(CertificateError::Time);
        }
        let number = |from: usize, count: usize| {
            digits[from..from + count]
                .iter()
                .fold(0_i16, |number, digit| number * 10 + i16::from(digit - b'0'))
        };
        let year = match (year_digits, number(0, year_digits)) {
            (2, year @ 0..50) => 2000 + year,
            (2, year) => 1900 + year,
            (_, year) => year,
        };
        let part = |place: usize| i8::try_from(number(year_digits + 2 * place, 2)).unwrap_or(i8::MAX);
        DateTime::new(year, part(0), part(1), part(2), part(3), part(4), 0)
            .ok()
            .and_then(|time| time.to_zoned(jiff::tz::TimeZone::UTC).ok())
            .map(|time| time.timestamp())
            .ok_or(CertificateError::Time)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn element(tag: u8, content: &[u8]) -> Vec<u8> {
        let length = u8::try_from(content.len()).expect("short in these tests");
        [&[tag, 0x81, length], content].concat()
    }

    fn certificate(from: &[u8], to: &[u8]) -> Vec<u8> {
        let head = [
            element(VERSION, &element(INTEGER, &[2])),
            element(INTEGER, &[1]),
            element(SEQUENCE, &[]),
            element(SEQUENCE, &[]),
        ];
        let validity = element(SEQUENCE, &[from, to].concat());
        element(SEQUENCE, &element(SEQUENCE, &[head.concat(), validity].concat()))
    }

    #[test]
    fn both_forms_of_a_time_are_read() {
        let der =
            certificate(&element(UTC_TIME, b"491231235959Z"), &element(GENERALIZED_TIME, b"20500101000000Z"));
        let read = validity(&der).unwrap();
        assert_eq!(read.not_before.to_string(), "2049-12-31T23:59:59Z");
        assert_eq!(read.not_after.to_string(), "2050-01-01T00:00:00Z");
        let old = certificate(&element(UTC_TIME, b"500101000000Z"), &element(UTC_TIME, b"000229120000Z"));
        assert_eq!(validity(&old).unwrap().not_before.to_string(), "1950-01-01T00:00:00Z");
    }

    #[test]
    fn what_is_no_time_is_refused() {
        let good = element(UTC_TIME, b"250101000000Z");
        for text in [
            &b"250101000000"[..],
            b"2501010000Z",
            b"251301000000Z",
            b"250230000000Z",
            b"25010100000xZ",
            b"Z",
            b"",
        ] {
            assert_eq!(validity(&certificate(&good, &element(UTC_TIME, text))), Err(CertificateError::Time));
        }
        assert_eq!(
            validity(&certificate(&good, &element(INTEGER, b"1"))),
            Err(CertificateError::Expected("time"))
        );
    }

    #[test]
    fn bytes_that_are_cut_off_or_changed_anywhere_are_refused_and_not_trusted() {
        let good = element(UTC_TIME, b"250101000000Z");
        let whole = certificate(&good, &good);
        for cut in 0..whole.len() {
            assert!(validity(&whole[..cut]).is_err(), "cut at {cut}");
        }
        for at in 0..whole.len() {
            for value in 0..=255 {
                let mut changed = whole.clone();
                changed[at] = value;
                // Only that it returns matters: most changes are refused, some give another time.
                let _any = validity(&changed);
            }
        }
        assert!(validity(&[0x30, 0x84, 0xff, 0xff, 0xff, 0xff]).is_err());
    }
}
