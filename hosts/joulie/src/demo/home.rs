//! The kubeconfig of the demo's cluster. Only its owner can read it, because it contains the token. It is removed at
//! the end of the demo.

use std::fs::{DirBuilder, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// The location of the kubeconfig.
#[derive(Debug)]
pub(super) struct Home {
    kubeconfig: PathBuf,
    /// The folder, if the demo has created one.
    folder: Option<PathBuf>,
}

/// Up to this many folder names are tried, because earlier demos with the same process id that were killed have left
/// theirs.
const TRIES: u32 = 100;

impl Home {
    /// Creates the file with this name, which must not exist, or creates a private folder for it.
    pub(super) fn take(wanted: Option<&Path>) -> Result<Self, String> {
        let (kubeconfig, folder) = match wanted {
            Some(path) => (path.to_owned(), None),
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
            Ok(_) => Ok(Self { kubeconfig, folder }),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(format!(
                "--kubeconfig {}: there is such a file already, and the demo writes over nobody's; name another one",
                kubeconfig.display()
            )),
            Err(error) => {
                Err(format!("--kubeconfig {}: it cannot be written: {error}", kubeconfig.display()))
            }
        }
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
        if let Some(folder) = &self.folder {
            let _folder = std::fs::remove_dir(folder);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn the_file_is_private_and_goes_with_the_demo() {
        let (first, second) = (Home::take(None).unwrap(), Home::take(None).unwrap());
        assert_ne!(first.kubeconfig(), second.kubeconfig());
        let path = first.kubeconfig().to_owned();
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        let folder = path.parent().unwrap().to_owned();
        assert_eq!(folder.metadata().unwrap().permissions().mode() & 0o777, 0o700);
        drop(first);
        assert!(!folder.exists());
    }

    #[test]
    fn nobodys_kubeconfig_is_written_over() {
        let home = Home::take(None).unwrap();
        let refused = Home::take(Some(home.kubeconfig())).unwrap_err();
        assert!(refused.contains("writes over nobody's"), "{refused}");
        assert!(home.kubeconfig().exists());
        let nowhere = Home::take(Some(Path::new("/no/such/folder/file"))).unwrap_err();
        assert!(nowhere.contains("cannot be written"), "{nowhere}");
    }
}
