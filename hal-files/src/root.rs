//! The location of /sys and /dev: on the machine itself, on a mounted copy of them, or in a test's
//! folder.

use crate::error::{FileError, FileOperation};
use power_hal::Surface;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The folder from which all paths are resolved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Root(PathBuf);

impl Root {
    /// The machine's own `/`.
    #[must_use]
    pub fn machine() -> Self {
        Self(PathBuf::from("/"))
    }

    /// Another folder that contains `sys` and `dev`.
    #[must_use]
    pub fn at(folder: impl Into<PathBuf>) -> Self {
        Self(folder.into())
    }

    /// The path of `relative` (`sys/class/powercap`) below the root.
    #[must_use]
    pub fn join(&self, relative: &str) -> PathBuf {
        self.0.join(relative)
    }

    /// The names in a folder, sorted; empty where the folder does not exist: that hardware is
    /// absent.
    ///
    /// # Errors
    /// When it exists but cannot be listed.
    pub fn names(&self, folder: &Path) -> Result<Vec<String>, FileError> {
        let path: Arc<Path> = Arc::from(folder);
        let failed =
            |error: &std::io::Error| FileError::from_io(&path, FileOperation::List, Surface::Device, error);
        let listing = match std::fs::read_dir(folder) {
            Ok(listing) => listing,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(failed(&error)),
        };
        let mut names = Vec::new();
        for entry in listing {
            // A name that is not valid text is not one of a driver.
            if let Ok(name) = entry.map_err(|error| failed(&error))?.file_name().into_string() {
                names.push(name);
            }
        }
        names.sort_unstable();
        Ok(names)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_there_is_an_empty_list_and_what_cannot_be_listed_an_error() {
        let root = Root::at(env!("CARGO_MANIFEST_DIR"));
        assert_eq!(root.names(&root.join("nowhere")), Ok(vec![]));
        let error = root.names(&root.join("Cargo.toml")).unwrap_err();
        assert_eq!((error.deed, error.errno), (FileOperation::List, Some(20)));
        assert!(root.names(&root.join("src")).unwrap().contains(&"lib.rs".to_owned()));
    }
}
