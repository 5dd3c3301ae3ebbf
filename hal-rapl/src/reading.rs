//! The readings of a package in the port's form.

use crate::RaplError;
use power_hal::{Error, ErrorKind, Measured, Sample};
use power_units::{MicroJoules, MicroWatts, Stamp};

/// A value of the domain, or why it could not be read; `None` if the domain has no such value.
pub(crate) type Value = Option<Result<u64, RaplError>>;

/// A sample with the counter in microjoules, the time of its reading, and the limit in force in microwatts.
///
/// # Errors
/// When the package is gone, or nothing of it can be read.
pub(crate) fn sample(at: Stamp, energy_uj: Value, limit_uw: Value) -> Result<Sample, RaplError> {
    let error = |value: &Value| value.as_ref().and_then(|read| read.as_ref().err()).cloned();
    let errors = [error(&energy_uj), error(&limit_uw)];
    let nothing = !matches!(energy_uj, Some(Ok(_))) && !matches!(limit_uw, Some(Ok(_)));
    let gone = errors.iter().flatten().find(|error| error.kind() == ErrorKind::Gone);
    if let Some(error) = gone.or(errors.iter().flatten().next().filter(|_| nothing)) {
        return Err(error.clone());
    }
    let mut sample = Sample::at(at);
    if let Some(read) = energy_uj {
        sample.meter =
            read.map(|uj| Measured::Energy(MicroJoules::new(uj))).map_err(|error| why(error.kind()));
    }
    if let Some(read) = limit_uw {
        sample.power_limit = read.map(MicroWatts::new).map_err(|error| why(error.kind()));
    }
    Ok(sample)
}

/// Why a value is missing. An unsupported file operation does not mean that the domain lacks the value.
pub(crate) const fn why(kind: ErrorKind) -> ErrorKind {
    if matches!(kind, ErrorKind::NotSupported) { ErrorKind::Io } else { kind }
}

#[cfg(test)]
mod tests {
    use super::*;
    use power_units::Micros;

    const AT: Stamp = Stamp::new(Micros::new(7));

    fn failed(kind: ErrorKind) -> Value {
        let key = power_hal::Key::package(0, None);
        let errors = [RaplError::Gone, RaplError::NotAPowerLimit, RaplError::LockBit(key)];
        Some(Err(errors.into_iter().find(|error| error.kind() == kind).unwrap()))
    }

    fn said(energy: Value, limit: Value) -> Result<(Option<ErrorKind>, Option<ErrorKind>), ErrorKind> {
        let read = sample(AT, energy, limit).map_err(|error| error.kind())?;
        assert_eq!(read.at, AT);
        Ok((read.meter.err(), read.power_limit.err()))
    }

    #[test]
    fn a_sample_has_what_can_be_read_and_says_why_the_rest_is_missing() {
        use ErrorKind::{Gone, Io, Locked, NotSupported};
        assert_eq!(said(Some(Ok(1)), Some(Ok(2))), Ok((None, None)));
        assert_eq!(said(Some(Ok(1)), None), Ok((None, Some(NotSupported))));
        assert_eq!(said(None, Some(Ok(2))), Ok((Some(NotSupported), None)));
        assert_eq!(said(failed(Locked), Some(Ok(2))), Ok((Some(Locked), None)));
        assert_eq!(said(failed(NotSupported), Some(Ok(2))), Ok((Some(Io), None)));
        assert_eq!(said(Some(Ok(1)), failed(Locked)), Ok((None, Some(Locked))));
        assert_eq!(said(failed(Locked), None), Err(Locked));
        assert_eq!(said(failed(Locked), failed(Locked)), Err(Locked));
        assert_eq!(said(failed(Gone), Some(Ok(2))), Err(Gone));
        assert_eq!(said(Some(Ok(1)), failed(Gone)), Err(Gone));
        assert_eq!(said(failed(Locked), failed(Gone)), Err(Gone));
    }
}
