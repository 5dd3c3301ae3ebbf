//! The file by which kubectl finds the demo's cluster: readable by its owner only, since it holds the token, and gone
//! with the demo.

use std::fs::{DirBuilder, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Where it is.
#[derive(Debug)]
pub(super) struct Home {
    kubeconfig: PathBuf,
    /// The folder, where the demo has made one.
    folder: Option<PathBuf>,
}

/// So many demos of one process's number are looked past: earlier ones that were killed.
const TRIES: u32 = 100;

impl Home {
    /// Takes the file of this name, which must not be there, or makes a folder of its own for one.
    pub(super) fn take(wanted: Option<&Path>) -> Result<Self, String> {
        let (kubeconfig, folder) = match wanted {
            Some(path) => (path.to_owned(), None),
            None => {
                let folder = folder().map_err(|error| {
                    format!(
                        "no folder can be made in {}: {error}; --kubeconfig FILE names a file",
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
        // Made here or not at all: a folder that is there may be somebody else's.
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
        // What cannot be removed names a server that is gone; it harms nobody.
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
