//! The kubeconfig of the demo's cluster, and the files of its programs: the operator's settings, the extender's certificate. Only their owner
//! can read them, because the kubeconfig contains the token. They are removed at the end of the demo.

use super::cluster::FILES;
use std::fs::{DirBuilder, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// The location of the files.
#[derive(Debug)]
pub(super) struct Home {
    kubeconfig: PathBuf,
    /// The folder, if the demo has created one.
    folder: Option<PathBuf>,
    /// The operator's file of settings, if there is a folder for it.
    settings: Option<PathBuf>,
}

/// The operator's file of settings at the start.
pub(super) const NO_SETTINGS: &str =
    "# The operator follows this file: NAME=VALUE, as in docs/REFERENCE.md\n";

/// Up to this many folder names are tried, because earlier demos with the same process id that were killed have left
/// theirs.
const TRIES: u32 = 100;

impl Home {
    /// Creates the file with this name, which must not exist, or creates a private folder for it.
    pub(super) fn take(wanted: Option<&Path>) -> Result<Self, String> {
        let (kubeconfig, folder) = match wanted {
            Some(path) => (path.to_owned(), folder().ok()),
            None => {
                let folder = folder().map_err(|error| {
                    format!(
                        "cannot create a folder in {}: {error}; name a file with --kubeconfig FILE",
                        std::env::temp_dir().display()
                    )
                })?;
                (folder.join("kubeconfig"), Some(folder))
            }
        };
        match OpenOptions::new().write(true).create_new(true).mode(0o600).open(&kubeconfig) {
            Ok(_) => {
                let settings = folder.as_ref().map(|folder| folder.join("operator.env"));
                let settings = settings.filter(|path| std::fs::write(path, NO_SETTINGS).is_ok());
                Ok(Self { kubeconfig, folder, settings })
            }
            Err(error) => {
                if let Some(folder) = folder {
                    let _folder = std::fs::remove_dir(folder);
                }
                let why = if error.kind() == io::ErrorKind::AlreadyExists {
                    "there is such a file already, and the demo writes over nobody's; name another one"
                        .to_owned()
                } else {
                    format!("it cannot be written: {error}")
                };
                Err(format!("--kubeconfig {}: {why}", kubeconfig.display()))
            }
        }
    }

    /// The operator's file of settings; `None` if there was no place for it.
    pub(super) fn settings(&self) -> Option<PathBuf> {
        self.settings.clone()
    }

    /// The folder for files of programs; `None` if there was no place for it.
    pub(super) fn folder(&self) -> Option<PathBuf> {
        self.folder.clone()
    }

    pub(super) fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }
}

fn folder() -> io::Result<PathBuf> {
    let base = std::env::temp_dir();
    let process = std::process::id();
    let mut last = io::Error::from(io::ErrorKind::AlreadyExists);
    for number in 0..TRIES {
        let name =
            if number == 0 { format!("joulie-{process}") } else { format!("joulie-{process}-{number}") };
        // The folder must be created here: an existing one may belong to somebody else.
        match DirBuilder::new().mode(0o700).create(base.join(&name)) {
            Ok(()) => return Ok(base.join(name)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => last = error,
            Err(error) => return Err(error),
        }
    }
    Err(last)
}

impl Drop for Home {
    fn drop(&mut self) {
        // If it cannot be removed, it names a server that no longer exists, which is harmless.
        let _file = std::fs::remove_file(&self.kubeconfig);
        if let Some(settings) = &self.settings {
            let _file = std::fs::remove_file(settings);
        }
        if let Some(folder) = &self.folder {
            for name in FILES {
                let _file = std::fs::remove_file(folder.join(name));
            }
            let _folder = std::fs::remove_dir(folder);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;
    use std::sync::{Mutex, PoisonError};

    /// A name that becomes free is taken at once by the other test of this process.
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

    #[test]
    fn the_file_is_private_and_goes_with_the_demo() {
        let _one = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        let (first, second) = (Home::take(None).unwrap(), Home::take(None).unwrap());
        assert_ne!(first.kubeconfig(), second.kubeconfig());
        let path = first.kubeconfig().to_owned();
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        let folder = path.parent().unwrap().to_owned();
        assert_eq!(folder.metadata().unwrap().permissions().mode() & 0o777, 0o700);
        assert_eq!(std::fs::read_to_string(first.settings().unwrap()).unwrap(), NO_SETTINGS);
        for name in FILES {
            std::fs::write(first.folder().unwrap().join(name), "of a program").unwrap();
        }
        drop(first);
        assert!(!folder.exists());
    }

    #[test]
    fn nobodys_kubeconfig_is_written_over() {
        let _one = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        let home = Home::take(None).unwrap();
        let refused = Home::take(Some(home.kubeconfig())).unwrap_err();
        assert!(refused.contains("writes over nobody's"), "{refused}");
        assert!(home.kubeconfig().exists());
        let nowhere = Home::take(Some(Path::new("/no/such/folder/file"))).unwrap_err();
        assert!(nowhere.contains("cannot be written"), "{nowhere}");
    }
}
