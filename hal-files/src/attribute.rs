//! One attribute, kept open.

use crate::error::{FileError, FileOperation};
use crate::text;
use power_hal::Surface;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

static ONLY_READ: AtomicBool = AtomicBool::new(false);

/// Makes this process open attributes for reading only, from now on: an attempt to open one for writing is not
/// permitted, as for a process without privileges. It cannot be undone, so that no later code can undo it.
pub fn only_read() {
    ONLY_READ.store(true, Ordering::SeqCst);
}

/// Whether [`only_read`] was called, for files that are opened by other code than [`Attribute`].
#[must_use]
pub fn is_only_read() -> bool {
    ONLY_READ.load(Ordering::SeqCst)
}

/// No attribute that is read here is longer; a longer text is bad data.
pub const TEXT_MAX: usize = 256;

/// No attribute at all is longer than a page; lists of CPUs and of frequencies can be nearly as long.
const PAGE_MAX: usize = 4096;

/// The access for which an attribute is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// To be read.
    Read,
    /// To be read and written.
    ReadWrite,
}

/// The surfaces by which error numbers are interpreted.
#[derive(Clone, Copy, Debug)]
struct Surfaces {
    read: Surface,
    write: Surface,
}

/// An open attribute.
#[derive(Debug)]
pub struct Attribute {
    file: File,
    path: Arc<Path>,
    surfaces: Surfaces,
    /// Whether it is a plain file in a test's folder, which keeps the rest of a longer number.
    plain: bool,
}

/// The size that sysfs reports for every attribute, on machines with the smallest pages.
const ATTRIBUTE_SIZE: u64 = 4096;

impl Attribute {
    /// Opens an attribute of powercap, which has its own meanings of error numbers.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub fn powercap(path: PathBuf, access: Access) -> Result<Self, FileError> {
        Self::open(path, access, Surfaces { read: Surface::PowercapRead, write: Surface::PowercapWrite })
    }

    /// Opens an attribute of any other driver.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub fn device(path: PathBuf, access: Access) -> Result<Self, FileError> {
        Self::open(path, access, Surfaces { read: Surface::Device, write: Surface::Device })
    }

    fn open(path: PathBuf, access: Access, surfaces: Surfaces) -> Result<Self, FileError> {
        let path: Arc<Path> = Arc::from(path);
        if access == Access::ReadWrite && is_only_read() {
            let kind = power_hal::ErrorKind::PermissionDenied;
            return Err(FileError { path, deed: FileOperation::Open, kind, errno: None });
        }
        let opened = OpenOptions::new().read(true).write(access == Access::ReadWrite).open(&path);
        match opened {
            Ok(file) => {
                let plain = file.metadata().is_ok_and(|stat| stat.is_file() && stat.len() < ATTRIBUTE_SIZE);
                Ok(Self { file, path, surfaces, plain })
            }
            Err(error) => Err(FileError::from_io(&path, FileOperation::Open, Surface::Device, &error)),
        }
    }

    /// The path of the file.
    #[must_use]
    pub fn path(&self) -> &Arc<Path> {
        &self.path
    }

    /// Reads the current content from the beginning.
    ///
    /// # Errors
    /// When it cannot be read, or is longer than any attribute.
    pub fn read<'a>(&self, buffer: &'a mut [u8; TEXT_MAX]) -> Result<&'a [u8], FileError> {
        let length =
            self.file.read_at(buffer, 0).map_err(|error| self.failed(FileOperation::Read, &error))?;
        match buffer.get(..length) {
            Some(text) if length < TEXT_MAX => Ok(text),
            _ => Err(FileError::bad_data(&self.path)),
        }
    }

    /// Reads the beginning of a binary attribute: as much as there is, and no more than the buffer takes.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn read_beginning<'a>(&self, buffer: &'a mut [u8]) -> Result<&'a [u8], FileError> {
        let length =
            self.file.read_at(buffer, 0).map_err(|error| self.failed(FileOperation::Read, &error))?;
        buffer.get(..length).ok_or_else(|| FileError::bad_data(&self.path))
    }

    /// Reads one whole number.
    ///
    /// # Errors
    /// When it cannot be read, or is anything but one whole number.
    pub fn read_whole(&self) -> Result<u64, FileError> {
        let mut buffer = [0; TEXT_MAX];
        text::whole(self.read(&mut buffer)?).ok_or_else(|| FileError::bad_data(&self.path))
    }

    /// Reads one line of text, for enumeration.
    ///
    /// # Errors
    /// When it cannot be read, or is not a line of printable text.
    pub fn read_line(&self) -> Result<String, FileError> {
        let mut buffer = [0; TEXT_MAX];
        let text = self.read(&mut buffer)?;
        text::line(text).map(str::to_owned).ok_or_else(|| FileError::bad_data(&self.path))
    }

    /// Reads one line of text up to the length of a page, for enumeration.
    ///
    /// # Errors
    /// When it cannot be read, or is not a line of printable text.
    pub fn read_list(&self) -> Result<String, FileError> {
        let mut buffer = vec![0; PAGE_MAX];
        let length =
            self.file.read_at(&mut buffer, 0).map_err(|error| self.failed(FileOperation::Read, &error))?;
        let text = buffer.get(..length).and_then(text::line);
        text.map(str::to_owned).ok_or_else(|| FileError::bad_data(&self.path))
    }

    /// Writes one whole number in one call, as the kernel requires.
    ///
    /// # Errors
    /// When it is not accepted.
    pub fn write_whole(&self, value: u64) -> Result<(), FileError> {
        let mut buffer = [0; 20];
        self.write_text(text::decimal(value, &mut buffer))
    }

    /// Writes a text in one call, as the kernel requires.
    ///
    /// # Errors
    /// When it is not accepted.
    pub fn write_text(&self, text: &[u8]) -> Result<(), FileError> {
        let taken = self.file.write_at(text, 0).map_err(|error| self.failed(FileOperation::Write, &error))?;
        if taken == text.len() {
            let end = if self.plain { self.file.set_len(u64::try_from(taken).unwrap_or(0)) } else { Ok(()) };
            return end.map_err(|error| self.failed(FileOperation::Write, &error));
        }
        // Part of a number is another number: return an error, and the read-back shows what is in force.
        Err(FileError {
            path: Arc::clone(&self.path),
            deed: FileOperation::Write,
            kind: power_hal::ErrorKind::Io,
            errno: None,
        })
    }

    fn failed(&self, deed: FileOperation, error: &std::io::Error) -> FileError {
        let surface = if deed == FileOperation::Write { self.surfaces.write } else { self.surfaces.read };
        FileError::from_io(&self.path, deed, surface, error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use power_hal::ErrorKind;

    fn file(name: &str, content: &[u8]) -> PathBuf {
        let path = std::env::temp_dir().join(format!("hal-files-{}-{name}", std::process::id()));
        std::fs::write(&path, content).unwrap();
        path
    }

    #[test]
    fn a_number_is_written_and_read_back() {
        let attribute = Attribute::device(file("number", b"1\n"), Access::ReadWrite).unwrap();
        assert_eq!(attribute.read_whole(), Ok(1));
        attribute.write_whole(120_000_000).unwrap();
        assert_eq!(attribute.read_whole(), Ok(120_000_000));
        attribute.write_whole(7).unwrap();
        assert_eq!(attribute.read_whole(), Ok(7));
    }

    #[test]
    fn bad_text_is_bad_data_with_the_path() {
        for (name, content) in
            [("empty", &b""[..]), ("line", b"\n"), ("junk", b"12x\n"), ("long", &[b'1'; 300])]
        {
            let path = file(name, content);
            let error = Attribute::device(path.clone(), Access::Read).unwrap().read_whole().unwrap_err();
            assert_eq!((error.kind, error.deed), (ErrorKind::BadData, FileOperation::Parse), "{name}");
            assert!(error.to_string().contains(&path.display().to_string()));
        }
    }

    #[test]
    fn a_list_is_longer_than_a_value() {
        let cpus = (0..256).map(|cpu| cpu.to_string()).collect::<Vec<_>>().join(" ");
        let attribute =
            Attribute::device(file("list", format!("{cpus}\n").as_bytes()), Access::Read).unwrap();
        assert_eq!(attribute.read_list(), Ok(cpus));
        assert_eq!(attribute.read_line().unwrap_err().kind, ErrorKind::BadData);
        let binary = Attribute::device(file("binary", b"0 1\x00\n"), Access::Read).unwrap();
        assert_eq!(binary.read_list().unwrap_err().kind, ErrorKind::BadData);
    }

    #[test]
    fn a_missing_file_is_gone() {
        let error = Attribute::powercap(PathBuf::from("/nowhere/energy_uj"), Access::Read).unwrap_err();
        assert_eq!((error.kind, error.deed, error.errno), (ErrorKind::Gone, FileOperation::Open, Some(2)));
    }
}
