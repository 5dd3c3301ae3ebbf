//! The environment of a HAL's tests: a folder of their own, a machine that is mounted on it, and a clock.

use crate::fuse::{self, Mounted};
use crate::machine::{RigMachine, RigTime, Shared};
use crate::profile;
use power_units::{Micros, Stamp};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A clock that a test advances; every reading adds a microsecond.
#[derive(Clone, Debug, Default)]
pub struct Ticks(Arc<AtomicU64>);

impl Ticks {
    /// Advances the clock.
    pub fn advance(&self, by: Micros) {
        self.0.fetch_add(by.get(), Ordering::Relaxed);
    }
}

impl power_hal::Clock for Ticks {
    fn now(&self) -> Stamp {
        Stamp::new(Micros::new(self.0.fetch_add(1, Ordering::Relaxed)))
    }
}

/// A folder that is removed with the test.
#[derive(Debug)]
pub struct Folder(pub PathBuf);

impl Folder {
    /// Creates a folder.
    ///
    /// # Panics
    /// If temporary files cannot be created.
    #[must_use]
    pub fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("rig-room-{}-{number}", std::process::id()));
        told(&path, std::fs::create_dir_all(&path));
        Self(path)
    }

    /// Writes a file, and creates its parent folders.
    ///
    /// # Panics
    /// If that fails, as for all functions here, because the test could not continue.
    pub fn put(&self, path: &str, content: impl AsRef<[u8]>) {
        let path = self.at(path);
        told(&path, std::fs::write(&path, content));
    }

    /// Creates a symbolic link and its parent folders.
    ///
    /// # Panics
    /// Like [`Folder::put`].
    pub fn link(&self, path: &str, target: &str) {
        let path = self.at(path);
        told(&path, std::os::unix::fs::symlink(target, &path));
    }

    /// Reads a file.
    ///
    /// # Panics
    /// Like [`Folder::put`].
    #[must_use]
    pub fn get(&self, path: &str) -> String {
        let path = self.0.join(path);
        told(&path, std::fs::read_to_string(&path))
    }

    /// Removes a file or a folder.
    ///
    /// # Panics
    /// Like [`Folder::put`].
    pub fn remove(&self, path: &str) {
        let path = self.0.join(path);
        let is_folder = std::fs::symlink_metadata(&path).is_ok_and(|is| is.is_dir());
        told(&path, if is_folder { std::fs::remove_dir_all(&path) } else { std::fs::remove_file(&path) });
    }

    fn at(&self, path: &str) -> PathBuf {
        let path = self.0.join(path);
        if let Some(folder) = path.parent() {
            told(folder, std::fs::create_dir_all(folder));
        }
        path
    }
}

impl Default for Folder {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // If removing fails, the rest stays in the folder for temporary files.
        let _left = std::fs::remove_dir_all(&self.0);
    }
}

fn told<T>(path: &Path, outcome: io::Result<T>) -> T {
    outcome.unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// A machine that is mounted on a folder of its own.
pub struct TestMachine {
    /// The machine.
    pub machine: Shared,
    mounted: Option<Mounted>,
    /// The root of its files.
    pub folder: Folder,
}

impl TestMachine {
    /// Mounts a machine; `None`, with a message, if mounting is not possible.
    #[expect(clippy::print_stdout, reason = "a skip is said where the tests are counted")]
    #[must_use]
    pub fn new(machine: RigMachine) -> Option<Self> {
        let (machine, folder) = (Shared::new(machine), Folder::new());
        match fuse::mount(machine.clone(), &folder.0) {
            Ok(mounted) => Some(Self { machine, mounted: Some(mounted), folder }),
            Err(error) => {
                println!("SKIP(no virtual hardware: {error})");
                None
            }
        }
    }

    /// Mounts a profile with a clock that the test advances.
    ///
    /// # Panics
    /// If there is no such profile.
    #[must_use]
    pub fn profile(name: &str) -> Option<Self> {
        Self::new(Self::machine_of(name))
    }

    /// The machine of a profile, with a clock that the test advances.
    ///
    /// # Panics
    /// Like [`TestMachine::profile`].
    #[must_use]
    pub fn machine_of(name: &str) -> RigMachine {
        let build = profile::find(name).unwrap_or_else(|| panic!("the rig has no profile {name}"));
        build(RigTime::Manual).unwrap_or_else(|error| panic!("the profile {name}: {error}"))
    }

    /// Advances the time of the machine and of a HAL's clock.
    pub fn advance(&self, ticks: &Ticks, by: Micros) {
        self.machine.lock().advance(Duration::from_micros(by.get()));
        ticks.advance(by);
    }
}

impl Drop for TestMachine {
    fn drop(&mut self) {
        // Unmount before the folder is removed.
        drop(self.mounted.take());
    }
}
