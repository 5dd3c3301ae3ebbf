//! What a policy fails with: which one, what was attempted, and one kind to branch on.

use hal_files::FileError;
use power_hal::{BadCpus, BadLimit, ErrorKind, Key};
use std::fmt;
use std::path::Path;
use std::sync::Arc;

/// What went wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CpufreqFault {
    /// A file of it.
    File(FileError),
    /// The range in its files is none: it can be read and not be limited.
    Range(BadLimit),
    /// The CPUs in its files are none.
    Cpus(BadCpus),
    /// A CPU of it belongs to another policy already.
    Shared,
    /// No CPU of it was ever seen online, so that nobody knows where it sits.
    Unplaced,
    /// The handle is not of the present enumeration.
    Stale,
    /// A policy has a frequency limit and nothing else.
    Lacking,
    /// What the journal holds is no frequency, or not in a layout that this version knows.
    Unfit {
        /// The layout.
        layout: u8,
        /// The first word, if there is one.
        word: Option<u64>,
    },
}

/// A policy that failed, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpufreqError {
    /// Which one, where it has a key.
    pub policy: Option<Key>,
    /// Its folder, where it has none yet.
    pub folder: Option<Arc<Path>>,
    /// What went wrong.
    pub fault: CpufreqFault,
}

impl CpufreqError {
    pub(crate) const fn stale() -> Self {
        Self { policy: None, folder: None, fault: CpufreqFault::Stale }
    }

    pub(crate) const fn at(policy: Key, fault: CpufreqFault) -> Self {
        Self { policy: Some(policy), folder: None, fault }
    }

    pub(crate) fn of(folder: &Arc<Path>, fault: CpufreqFault) -> Self {
        Self { policy: None, folder: Some(Arc::clone(folder)), fault }
    }
}

impl From<FileError> for CpufreqFault {
    fn from(error: FileError) -> Self {
        Self::File(error)
    }
}

impl power_hal::Error for CpufreqError {
    fn kind(&self) -> ErrorKind {
        match &self.fault {
            CpufreqFault::File(error) => error.kind,
            CpufreqFault::Range(_)
            | CpufreqFault::Cpus(_)
            | CpufreqFault::Shared
            | CpufreqFault::Unfit { .. } => ErrorKind::BadData,
            CpufreqFault::Unplaced => ErrorKind::Busy,
            CpufreqFault::Stale => ErrorKind::Gone,
            CpufreqFault::Lacking => ErrorKind::NotSupported,
        }
    }
}

impl fmt::Display for CpufreqError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(policy) = &self.policy {
            write!(f, "{policy}: ")?;
        }
        if let Some(folder) = &self.folder {
            write!(f, "{}: ", folder.display())?;
        }
        match &self.fault {
            CpufreqFault::File(error) => fmt::Display::fmt(error, f),
            CpufreqFault::Range(bad) => write!(f, "it cannot be limited: {bad}"),
            CpufreqFault::Cpus(bad) => write!(f, "its CPUs cannot be told: {bad}"),
            CpufreqFault::Shared => f.write_str("a CPU of it belongs to another policy already"),
            CpufreqFault::Unplaced => {
                f.write_str("none of its CPUs was seen online yet, so its package is not known")
            }
            CpufreqFault::Stale => {
                f.write_str("the policies were listed anew since this handle was taken; describe again")
            }
            CpufreqFault::Lacking => f.write_str("a policy has a frequency limit and nothing else"),
            CpufreqFault::Unfit { layout, word } => {
                write!(f, "the saved original is no frequency: layout {layout}, first word {word:?}")
            }
        }
    }
}

impl std::error::Error for CpufreqError {}
