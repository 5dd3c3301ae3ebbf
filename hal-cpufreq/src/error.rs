//! The errors of policies: the policy, the operation, and one kind to branch on.

use hal_files::FileError;
use power_hal::{BadCpus, BadLimit, ErrorKind, Key};
use std::fmt;
use std::path::Path;
use std::sync::Arc;

/// The cause.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CpufreqFault {
    /// A file operation failed.
    File(FileError),
    /// The range in its files is not valid: the policy can be read but not limited.
    Range(BadLimit),
    /// The CPUs in its files are not valid.
    Cpus(BadCpus),
    /// One of its CPUs already belongs to another policy.
    Shared,
    /// None of its CPUs was ever seen online, so its package is unknown.
    Unplaced,
    /// The handle is from an earlier enumeration.
    Stale,
    /// A policy has no control other than its frequency limit.
    Lacking,
    /// The journal's entry is not a valid frequency, or has a layout that this version does not
    /// know.
    Unfit {
        /// The layout.
        layout: u8,
        /// The first word, if there is one.
        word: Option<u64>,
    },
}

/// The error of a policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpufreqError {
    /// The policy, if its key is known.
    pub policy: Option<Key>,
    /// Its folder, if its key is not known yet.
    pub folder: Option<Arc<Path>>,
    /// The cause.
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
            CpufreqFault::Cpus(bad) => write!(f, "its CPUs cannot be determined: {bad}"),
            CpufreqFault::Shared => f.write_str("a CPU of it belongs to another policy already"),
            CpufreqFault::Unplaced => {
                f.write_str("none of its CPUs has been online yet, so its package is unknown")
            }
            CpufreqFault::Stale => {
                f.write_str("the policies were enumerated again after this handle was issued; describe again")
            }
            CpufreqFault::Lacking => f.write_str("a policy has a frequency limit and nothing else"),
            CpufreqFault::Unfit { layout, word } => {
                write!(f, "the saved original is not a frequency: layout {layout}, first word {word:?}")
            }
        }
    }
}

impl std::error::Error for CpufreqError {}
