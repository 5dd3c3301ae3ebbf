//! The journal of originals: what was in force on this node before its first write, in one small file.
//!
//! The file is the only state that outlives a process, so it is written before the hardware: into a new file, synced
//! to the disk, renamed over the old one, and the folder synced as well. A process that is killed between any two of
//! these steps leaves the old journal or the new one, never a part of one.
//!
//! An entry is void after a reboot, because the firmware then sets the limits again; the boot's id in the file shows
//! that. After a start by kexec the registers are unchanged, so power limits stay ours. An entry names its backend,
//! since the same package has different originals in registers and in files.
//!
//! A journal that cannot be read is refused and left unchanged. Its content is not available elsewhere, so a person
//! must decide.

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
    /// Held only for short times, so that a disk that hangs blocks writers but no readers.
    book: Mutex<JournalState>,
    /// Held while the file is written.
    pen: Mutex<()>,
}

#[derive(Debug)]
struct JournalState {
    held: Vec<Held>,
    /// Whether the file differs from what is held.
    behind: bool,
    /// How many originals were forgotten.
    let_go: u64,
    /// Changes with each change of what is held.
    version: u64,
}

/// An original that the journal holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalEntry {
    /// The backend.
    pub backend: BackendKind,
    /// The domain.
    pub domain: Key,
    /// The control.
    pub control: Control,
    /// The original, if it is a single value; a firmware's limit has more values, which only the backend knows.
    pub was: Option<Setting>,
}

impl Journal {
    /// Opens the journal of a state folder for a machine in this boot. Entries of an earlier boot are void.
    ///
    /// # Errors
    /// When there is a journal but it cannot be read or parsed.
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

    /// A journal with unknown content, for an observing process.
    pub(crate) fn unread(folder: &Path, boot: Boot) -> Self {
        Self::over(folder.join(file::NAME), boot, Vec::new(), false, 0)
    }

    fn over(path: PathBuf, boot: Boot, held: Vec<Held>, behind: bool, void: usize) -> Self {
        let book = Mutex::new(JournalState { held, behind, let_go: 0, version: 0 });
        Self(Arc::new(Shelf { path, boot, void, book, pen: Mutex::new(()) }))
    }

    /// The number of originals that are held.
    #[must_use]
    pub fn len(&self) -> usize {
        self.lock().held.len()
    }

    /// Whether none is held.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The entries.
    #[must_use]
    pub fn entries(&self) -> Vec<JournalEntry> {
        self.lock().held.iter().map(|held| held.entry).collect()
    }

    /// Whether it holds an original of this control.
    #[must_use]
    pub fn holds(&self, backend: BackendKind, domain: &Key, control: Control) -> bool {
        self.lock().find(backend, domain, control).is_some()
    }

    /// The original, if it is a single value. Where its reading failed when it was saved, the saved words tell it: a
    /// limit that is not known to be a person's would be exceeded.
    #[must_use]
    pub fn was(&self, backend: BackendKind, domain: &Key, control: Control) -> Option<Setting> {
        let book = self.lock();
        let held = book.find(backend, domain, control)?;
        held.entry.was.or_else(|| backend.was(&held.original))
    }

    /// The number of entries of an earlier boot.
    #[must_use]
    pub fn void(&self) -> usize {
        self.0.void
    }

    /// Changes with each change of what is held.
    pub(crate) fn version(&self) -> u64 {
        self.lock().version
    }

    /// Whether the file does not yet show that originals are restored, because it could not be written.
    #[must_use]
    pub fn is_behind(&self) -> bool {
        self.lock().behind
    }

    /// The share of a backend, with which a HAL is opened.
    #[must_use]
    pub fn of(&self, backend: BackendKind) -> JournalShare {
        JournalShare { journal: self.clone(), backend }
    }

    /// Writes the file if originals were forgotten.
    pub(crate) fn tidy(&self) {
        if self.is_behind() {
            let _pen = self.pen();
            // A failure is logged, and the write is repeated after the next order; `is_behind` shows it.
            let _tried_again = self.save(&[]);
        }
    }

    /// Writes what is held plus `new`, which is held from then on. The caller has the pen.
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
        // What was forgotten meanwhile is still in the file.
        book.behind = book.let_go != let_go;
        Ok(())
    }

    fn pen(&self) -> MutexGuard<'_, ()> {
        self.0.pen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> MutexGuard<'_, JournalState> {
        // A thread that panicked with the lock had changed either nothing or everything: each change is one
        // assignment.
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

/// The share of one backend in the journal.
///
/// Forgotten entries are written by [`tidy`](Self::tidy), once for all restored originals. Until then the file holds
/// originals that are in force, which is harmless.
#[derive(Clone, Debug)]
pub struct JournalShare {
    journal: Journal,
    backend: BackendKind,
}

impl JournalShare {
    /// Saves several originals with one write of the file.
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

    /// Writes the file if originals were forgotten.
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
