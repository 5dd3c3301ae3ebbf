//! The journal of originals: what was in force on this node before its first write, in one small file.
//!
//! The file is the only memory that outlives a process, so it is written before the hardware is: into a new file, to
//! the disk, over the old one by a rename, and the folder to the disk as well. A process that is killed between any
//! two of these leaves the old journal or the new one, never half of one.
//!
//! An entry is void after a reboot, because limits are the firmware's own again then, and the boot's id in the file
//! tells. A kernel that was started by kexec finds the registers as they were, so power limits stay ours. It names its backend: the same package has another original in registers than in files.
//!
//! A journal that cannot be read is refused and left as it is. It holds what nobody else knows, so a person decides.

mod file;

use crate::BackendKind;
use file::Held;
pub use file::{Boot, JournalError};
use power_hal::{Control, ErrorKind, Key, Original, Originals, Setting};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The journal of a node. Clones are the same journal.
#[derive(Clone, Debug)]
pub struct Journal(Arc<Shelf>);

#[derive(Debug)]
struct Shelf {
    path: PathBuf,
    boot: Boot,
    void: usize,
    /// Held for moments only, so that a disk that hangs holds up who writes and nobody who looks.
    book: Mutex<JournalState>,
    /// Held while the file is written.
    pen: Mutex<()>,
}

#[derive(Debug)]
struct JournalState {
    held: Vec<Held>,
    /// Whether the file does not have what is held.
    behind: bool,
    /// How often something was let go.
    let_go: u64,
    /// Another number after each change of what is held.
    version: u64,
}

/// An original that the journal holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalEntry {
    /// By which backend.
    pub backend: BackendKind,
    /// On which domain.
    pub domain: Key,
    /// What was changed.
    pub control: Control,
    /// What was in force, where it is one value; a firmware's limit is more than that, and only the backend knows it.
    pub was: Option<Setting>,
}

impl Journal {
    /// Opens the journal of a state folder for a machine in this boot. What an earlier boot left is void.
    ///
    /// # Errors
    /// When there is a journal and it cannot be read or understood.
    pub fn open(folder: &Path, boot: Boot) -> Result<Self, JournalError> {
        let path = folder.join(file::NAME);
        let found = file::read(&path)?;
        let (held, void, behind) = match found {
            Some((before, held)) if before == boot => (held, 0, false),
            Some((_, held)) => {
                let (kept, void): (Vec<_>, Vec<_>) =
                    held.into_iter().partition(|held| boot.keeps(&held.entry));
                (kept, void.len(), true)
            }
            None => (Vec::new(), 0, false),
        };
        Ok(Self::over(path, boot, held, behind, void))
    }

    /// A journal of which nothing is known, for somebody who only looks.
    pub(crate) fn unread(folder: &Path, boot: Boot) -> Self {
        Self::over(folder.join(file::NAME), boot, Vec::new(), false, 0)
    }

    fn over(path: PathBuf, boot: Boot, held: Vec<Held>, behind: bool, void: usize) -> Self {
        let book = Mutex::new(JournalState { held, behind, let_go: 0, version: 0 });
        Self(Arc::new(Shelf { path, boot, void, book, pen: Mutex::new(()) }))
    }

    /// How many originals are held.
    #[must_use]
    pub fn len(&self) -> usize {
        self.lock().held.len()
    }

    /// Whether none is held.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What is held.
    #[must_use]
    pub fn entries(&self) -> Vec<JournalEntry> {
        self.lock().held.iter().map(|held| held.entry).collect()
    }

    /// Whether it holds an original of this control.
    #[must_use]
    pub fn holds(&self, backend: BackendKind, domain: &Key, control: Control) -> bool {
        self.lock().find(backend, domain, control).is_some()
    }

    /// What was in force before the first write, where it is one value.
    #[must_use]
    pub fn was(&self, backend: BackendKind, domain: &Key, control: Control) -> Option<Setting> {
        self.lock().find(backend, domain, control).and_then(|held| held.entry.was)
    }

    /// How many entries of an earlier boot were found.
    #[must_use]
    pub fn void(&self) -> usize {
        self.0.void
    }

    /// Another number after each change of what is held.
    pub(crate) fn version(&self) -> u64 {
        self.lock().version
    }

    /// Whether the file has yet to be told that originals are back: it could not be written.
    #[must_use]
    pub fn is_behind(&self) -> bool {
        self.lock().behind
    }

    /// The share of a backend, for a HAL to be opened with.
    #[must_use]
    pub fn of(&self, backend: BackendKind) -> JournalShare {
        JournalShare { journal: self.clone(), backend }
    }

    /// Writes what was let go, if anything was.
    pub(crate) fn tidy(&self) {
        if self.is_behind() {
            let _pen = self.pen();
            // It is logged, and tried again after the next order; `is_behind` tells.
            let _tried_again = self.save(&[]);
        }
    }

    /// Writes what is held and what is to be, which is held from then on. Whoever calls it has the pen.
    fn save(&self, new: &[Held]) -> Result<(), ErrorKind> {
        let (mut all, let_go) = {
            let book = self.lock();
            (book.held.clone(), book.let_go)
        };
        all.extend_from_slice(new);
        if let Err(error) = file::write(&self.0.path, &self.0.boot, &all) {
            log::error!("cannot write the journal of originals {}: {error}", self.0.path.display());
            return Err(ErrorKind::Io);
        }
        let mut book = self.lock();
        book.held.extend_from_slice(new);
        book.version += 1;
        // What was let go meanwhile is in the file still.
        book.behind = book.let_go != let_go;
        Ok(())
    }

    fn pen(&self) -> MutexGuard<'_, ()> {
        self.0.pen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> MutexGuard<'_, JournalState> {
        // Whoever panicked with the lock had either changed nothing or all: each change is one assignment.
        self.0.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl JournalState {
    fn find(&self, backend: BackendKind, domain: &Key, control: Control) -> Option<&Held> {
        self.held.iter().find(|held| held.entry.is_of(backend, domain, control))
    }
}

impl JournalEntry {
    fn is_of(&self, backend: BackendKind, domain: &Key, control: Control) -> bool {
        self.backend == backend && self.domain == *domain && self.control == control
    }
}

/// One backend's share of the journal.
///
/// What is let go is written by [`tidy`](Self::tidy), once for as many as came back: until then the file holds
/// originals that are in force, which is harmless.
#[derive(Clone, Debug)]
pub struct JournalShare {
    journal: Journal,
    backend: BackendKind,
}

impl JournalShare {
    /// Saves many originals by one write of the file.
    pub(crate) fn keep_all(
        &self,
        originals: &[(Key, Control, Original, Option<Setting>)],
    ) -> Result<(), ErrorKind> {
        let journal = &self.journal;
        let _pen = journal.pen();
        let mut new: Vec<Held> = Vec::new();
        for &(domain, control, original, was) in originals {
            let is_it = |held: &Held| held.entry.is_of(self.backend, &domain, control);
            if journal.lock().find(self.backend, &domain, control).is_none() && !new.iter().any(is_it) {
                let entry = JournalEntry { backend: self.backend, domain, control, was };
                new.push(Held { entry, original });
            }
        }
        if new.is_empty() { Ok(()) } else { journal.save(&new) }
    }

    /// Writes what was let go, if anything was.
    pub fn tidy(&self) {
        self.journal.tidy();
    }
}

impl Originals for JournalShare {
    fn keep(&mut self, domain: &Key, control: Control, original: &Original) -> Result<(), ErrorKind> {
        self.keep_all(&[(*domain, control, *original, None)])
    }

    fn kept(&self, domain: &Key, control: Control) -> Option<Original> {
        self.journal.lock().find(self.backend, domain, control).map(|held| held.original)
    }

    fn forget(&mut self, domain: &Key, control: Control) -> Result<(), ErrorKind> {
        let mut book = self.journal.lock();
        let before = book.held.len();
        book.held.retain(|held| !held.entry.is_of(self.backend, domain, control));
        if book.held.len() != before {
            book.behind = true;
            book.let_go += 1;
            book.version += 1;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
