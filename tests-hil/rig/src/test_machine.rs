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
        told(&std::env::temp_dir(), Self::make())
    }

    /// A new one, or why there is none.
    ///
    /// # Errors
    /// When there is no room for temporary files.
    pub fn make() -> io::Result<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        loop {
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let path = std::env::temp_dir().join(format!("joulie-rig-{}-{number}", std::process::id()));
            match std::fs::create_dir(&path) {
                // What a killed process of the same id left.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                made => return made.map(|()| Self(path)),
            }
        }
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
    /// The folder, of which the machine's root is all, or a part.
    pub folder: Folder,
    root: PathBuf,
}

impl TestMachine {
    /// Mounts a machine. Nothing, and a word about it, where the kernel does not let us mount.
    #[must_use]
    pub fn new(machine: RigMachine) -> Option<Self> {
        let folder = Folder::new();
        let root = folder.0.clone();
        Self { machine: Shared::new(machine), mounted: None, folder, root }.mounted()
    }

    /// Mounts a machine on the part `root` of its folder: what a program keeps goes beside it. Nothing, and a word about
    /// it, where the kernel does not let us mount.
    ///
    /// # Panics
    /// As [`Folder::put`].
    #[must_use]
    pub fn with_room(machine: RigMachine) -> Option<Self> {
        Self::unmounted(machine).mounted()
    }

    /// A machine that shows nothing of itself: its root is an empty part of its folder, for a test to write the files.
    ///
    /// # Panics
    /// As [`Folder::put`].
    #[must_use]
    pub fn unmounted(machine: RigMachine) -> Self {
        let folder = Folder::new();
        let root = folder.0.join("root");
        told(&root, std::fs::create_dir(&root));
        Self { machine: Shared::new(machine), mounted: None, folder, root }
    }

    #[expect(clippy::print_stdout, reason = "a skip is said where the tests are counted")]
    fn mounted(mut self) -> Option<Self> {
        match fuse::mount(self.machine.clone(), &self.root) {
            Ok(mounted) => {
                self.mounted = Some(mounted);
                Some(self)
            }
            Err(error) => {
                println!("SKIP(no virtual hardware: {error})");
                None
            }
        }
    }

    /// The root of its files.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The folder beside its root in which a program keeps its state.
    #[must_use]
    pub fn state(&self) -> PathBuf {
        self.folder.0.join("state")
    }

    /// Mounts a profile on a clock that the test moves.
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
        Self::machine_in(name, RigTime::Manual)
    }

    /// The machine of a profile, on the clock of the world.
    ///
    /// # Panics
    /// As [`TestMachine::profile`].
    #[must_use]
    pub fn running(name: &str) -> RigMachine {
        Self::machine_in(name, RigTime::Real(1.0))
    }

    fn machine_in(name: &str, time: RigTime) -> RigMachine {
        let build = profile::find(name).unwrap_or_else(|| panic!("the rig has no profile {name}"));
        build(time).unwrap_or_else(|error| panic!("the profile {name}: {error}"))
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
