//! The devices of hwmon: one folder for each, numbered in the order of probing, and the common parts of all
//! drivers.

use crate::{Access, Attribute, FileError, FileOperation, Root, TEXT_MAX, text};
use power_hal::{ErrorKind, Surface, possible_temperature};
use power_units::Celsius;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

/// The folders below the root, in the order of their numbers.
///
/// # Errors
/// When they cannot be listed; without hwmon there are none.
pub fn folders(root: &Root) -> Result<Vec<PathBuf>, FileError> {
    let class = root.join("sys/class/hwmon");
    let names = root.names(&class)?;
    let mut numbered: Vec<(u32, PathBuf)> =
        names.iter().filter_map(|name| Some((number(name, "hwmon")?, class.join(name)))).collect();
    numbered.sort_unstable();
    Ok(numbered.into_iter().map(|(_, folder)| folder).collect())
}

/// The name in a folder, which the driver sets.
///
/// # Errors
/// When it cannot be read.
pub fn name(folder: &Path) -> Result<String, FileError> {
    line(&folder.join("name"))
}

/// The path of a folder's device, with all links resolved.
///
/// # Errors
/// When the link cannot be resolved.
pub fn device(folder: &Path) -> Result<PathBuf, FileError> {
    let link = folder.join("device");
    std::fs::canonicalize(&link)
        .map_err(|error| FileError::from_io(&Arc::from(link), FileOperation::Open, Surface::Device, &error))
}

/// The content of a file with one line.
///
/// # Errors
/// When it cannot be read.
pub fn line(path: &Path) -> Result<String, FileError> {
    Attribute::device(path.to_owned(), Access::Read).and_then(|file| file.read_line())
}

/// The number after a prefix, in decimal digits only.
#[must_use]
pub fn number<N: FromStr>(text: &str, prefix: &str) -> Option<N> {
    let digits = text.strip_prefix(prefix)?;
    if digits.bytes().all(|byte| byte.is_ascii_digit()) { digits.parse().ok() } else { None }
}

/// Opens an attribute for reading. A missing one is `None`; one that cannot be opened is a complaint.
pub fn open(path: &Path, complain: &mut dyn FnMut(FileError)) -> Option<Attribute> {
    match Attribute::device(path.to_owned(), Access::Read) {
        Ok(file) => Some(file),
        Err(error) => {
            if error.kind != ErrorKind::Gone {
                complain(error);
            }
            None
        }
    }
}

/// An attribute that sets a value. If this process may not write it, it can still be read, and a write returns
/// the reason.
#[derive(Debug)]
pub struct Settable {
    file: Attribute,
    refused: Option<FileError>,
}

impl Settable {
    /// Opens one, like [`open`].
    pub fn open(path: &Path, complain: &mut dyn FnMut(FileError)) -> Option<Self> {
        match Attribute::device(path.to_owned(), Access::ReadWrite) {
            Ok(file) => Some(Self { file, refused: None }),
            Err(error) if error.kind == ErrorKind::PermissionDenied => {
                open(path, complain).map(|file| Self { file, refused: Some(error) })
            }
            Err(error) => {
                if error.kind != ErrorKind::Gone {
                    complain(error);
                }
                None
            }
        }
    }

    /// The file.
    #[must_use]
    pub const fn file(&self) -> &Attribute {
        &self.file
    }

    /// Writes a number.
    ///
    /// # Errors
    /// When it is not accepted, or the file was not opened for writing.
    pub fn write_whole(&self, value: u64) -> Result<(), FileError> {
        match &self.refused {
            Some(refused) => Err(refused.clone()),
            None => self.file.write_whole(value),
        }
    }

    /// Writes a text.
    ///
    /// # Errors
    /// As for a number.
    pub fn write_text(&self, text: &[u8]) -> Result<(), FileError> {
        match &self.refused {
            Some(refused) => Err(refused.clone()),
            None => self.file.write_text(text),
        }
    }
}

/// A temperature, which hwmon writes in thousandths of a degree.
///
/// # Errors
/// When it cannot be read, or no device can have it.
pub fn temperature(file: &Attribute) -> Result<Celsius, FileError> {
    let mut buffer = [0; TEXT_MAX];
    let line = text::line(file.read(&mut buffer)?).and_then(|line| line.parse::<i32>().ok());
    let degrees = line.and_then(|thousandths| possible_temperature(millicelsius(thousandths)));
    degrees.ok_or_else(|| FileError::bad_data(file.path()))
}

/// Thousandths of a degree, rounded down to the resolution of the type.
fn millicelsius(thousandths: i32) -> Celsius {
    Celsius::from_bits((i64::from(thousandths) << 32) / 1_000)
}

/// Whether the device behind `power/runtime_status` is asleep, or about to be. A device without that file is
/// awake.
#[must_use]
pub fn sleeps(runtime_status: Option<&Attribute>) -> bool {
    let Some(status) = runtime_status else { return false };
    let mut buffer = [0; TEXT_MAX];
    let read = status.read(&mut buffer);
    read.is_ok_and(|status| matches!(text::line(status), Some("suspended" | "suspending")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_digits_behind_its_prefix() {
        assert_eq!(number::<u32>("hwmon12", "hwmon"), Some(12));
        for none in ["hwmon", "hwmon-1", "hwmon1x", "hwmon 1", "12", "hwmon99999999999"] {
            assert_eq!(number::<u32>(none, "hwmon"), None, "{none:?}");
        }
    }
}
