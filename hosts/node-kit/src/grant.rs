//! The grant of a node: the most that its packages and GPUs may draw together, and the file with the last grant.
//!
//! A grant ends only by another grant, or when a person asks for the originals. So it is kept on disk, and is in force
//! from the start of the next process, also after a reboot, before its validity is checked. The file is replaced like
//! the journal: a process that is killed leaves the old grant or the new one, never a part of one. A file that cannot
//! be read is refused and left unchanged, since the grant in it is not known.

use joulie_core::node::engine::NodeGrant;
use power_units::{Role, Watts};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// A grant in the file, with the object to which it belongs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// The uid of the object.
    pub uid: String,
    /// The grant.
    pub grant: NodeGrant,
}

/// Why a stored grant cannot be used.
#[derive(Debug)]
pub struct KeptError {
    path: PathBuf,
    why: Why,
}

#[derive(Debug)]
enum Why {
    Io(io::Error),
    TooLarge,
    Text(serde_json::Error),
    Foreign,
    Newer(u32),
    Watts(String),
}

impl fmt::Display for KeptError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.display();
        match &self.why {
            Why::Io(error) => write!(f, "cannot read {path}: {error}"),
            Why::TooLarge => write!(f, "{path} is larger than any grant"),
            Why::Text(error) => write!(f, "{path} is no grant: {error}"),
            Why::Foreign => write!(f, "{path} is no grant: its format is not \"{FORMAT}\""),
            Why::Newer(version) => {
                write!(
                    f,
                    "{path} is of a later version of joulie (format {version}, this one knows {VERSION})"
                )
            }
            Why::Watts(text) => write!(f, "{path}: {text:?} is no number of watts from 0"),
        }
    }
}

impl std::error::Error for KeptError {}

const NAME: &str = "grant.json";
const FORMAT: &str = "joulie grant";
const VERSION: u32 = 1;
/// The file has a few lines; a larger one was not written by this program.
const SIZE_MAX: u64 = 64 << 10;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    format: String,
    version: u32,
    uid: String,
    serial: u64,
    watts: String,
}

#[derive(Deserialize)]
struct Head {
    format: Option<String>,
    version: Option<u32>,
}

impl Kept {
    /// The file in a state folder.
    #[must_use]
    pub fn file(folder: &Path) -> PathBuf {
        folder.join(NAME)
    }

    /// The grant in this file; `None` if there is no file.
    ///
    /// # Errors
    /// When there is a file but it cannot be read or parsed.
    pub fn read(path: &Path) -> Result<Option<Self>, KeptError> {
        let failed = |why| KeptError { path: path.to_owned(), why };
        let file = match File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed(Why::Io(error))),
        };
        let mut text = Vec::new();
        let size = file.take(SIZE_MAX + 1).read_to_end(&mut text).map_err(|error| failed(Why::Io(error)))?;
        if u64::try_from(size).is_ok_and(|size| size > SIZE_MAX) {
            return Err(failed(Why::TooLarge));
        }
        parse(&text).map(Some).map_err(failed)
    }

    /// Replaces the stored grant. When it returns, the new grant survives a power cut.
    ///
    /// # Errors
    /// The system's error.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        let document = Document {
            format: FORMAT.to_owned(),
            version: VERSION,
            uid: self.uid.clone(),
            serial: self.grant.serial,
            watts: self.grant.watts.to_string(),
        };
        let mut text = serde_json::to_vec_pretty(&document)?;
        text.push(b'\n');
        replace_file(path, &text)
    }

    /// Removes the stored grant.
    ///
    /// # Errors
    /// The system's error; a missing file is no error.
    pub fn forget(path: &Path) -> io::Result<()> {
        match std::fs::remove_file(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
            Ok(()) => File::open(path.parent().unwrap_or(Path::new(".")))?.sync_all(),
        }
    }
}

/// Replaces a file. When it returns, the new one survives a power cut; until then the old one does.
///
/// # Errors
/// The system's error.
pub fn replace_file(path: &Path, text: &[u8]) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder)?;
    // While one process takes over from another both may write.
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}", std::process::id()));
    let beside = path.with_file_name(name);
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&beside)?;
    file.write_all(text)?;
    file.sync_all()?;
    std::fs::rename(&beside, path)?;
    File::open(folder)?.sync_all()
}

fn parse(text: &[u8]) -> Result<Kept, Why> {
    let head: Head = serde_json::from_slice(text).map_err(Why::Text)?;
    if head.format.as_deref() != Some(FORMAT) {
        return Err(Why::Foreign);
    }
    if let Some(version) = head.version.filter(|&version| version > VERSION) {
        return Err(Why::Newer(version));
    }
    let Document { uid, serial, watts, .. } = serde_json::from_slice(text).map_err(Why::Text)?;
    match Watts::parse(&watts, Role::Limit) {
        Ok(number) if number >= Watts::ZERO => Ok(Kept { uid, grant: NodeGrant { serial, watts: number } }),
        Ok(_) | Err(_) => Err(Why::Watts(watts)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rig::test_machine::Folder;

    fn kept(serial: u64, watts: &str) -> Kept {
        let watts = Watts::parse(watts, Role::Limit).unwrap();
        Kept { uid: "u-1".to_owned(), grant: NodeGrant { serial, watts } }
    }

    #[test]
    fn what_is_kept_is_read_back_and_replaced_and_forgotten() {
        let folder = Folder::new();
        let path = Kept::file(&folder.0.join("state"));
        assert_eq!(Kept::read(&path).unwrap(), None);
        for grant in [kept(1, "1200"), kept(u64::MAX, "0"), kept(3, "437.3")] {
            grant.write(&path).unwrap();
            assert_eq!(Kept::read(&path).unwrap(), Some(grant));
        }
        Kept::forget(&path).unwrap();
        Kept::forget(&path).unwrap();
        assert_eq!(Kept::read(&path).unwrap(), None);
    }

    #[test]
    fn half_a_grant_and_one_of_somebody_else_is_refused_and_left_there() {
        let folder = Folder::new();
        let path = Kept::file(&folder.0);
        kept(7, "300").write(&path).unwrap();
        let whole = std::fs::read_to_string(&path).unwrap();
        for (text, says) in [
            (&whole[..whole.len() / 2], "is no grant"),
            ("", "is no grant"),
            ("{}", "is no grant: its format"),
            (&whole.replace("\"version\": 1", "\"version\": 2"), "later version"),
            (&whole.replace("\"300\"", "\"-1\""), "no number of watts"),
            (&whole.replace("\"300\"", "\"much\""), "no number of watts"),
            (&whole.replace("serial", "cereal"), "is no grant"),
            (&" ".repeat(70_000), "larger than any grant"),
        ] {
            std::fs::write(&path, text).unwrap();
            let error = Kept::read(&path).unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
            assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
        }
    }
}
