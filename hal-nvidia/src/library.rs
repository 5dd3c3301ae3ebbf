//! Loads and initialises the library at run time, and classifies the failures.

use crate::error::{NvidiaError, NvmlFault, NvmlOperation};
use crate::ffi::Session;
use nvml_wrapper::Nvml;
use nvml_wrapper::error::NvmlError;
use std::fmt;
use std::path::{Path, PathBuf};

/// The loader's name of the driver's library.
const NAME: &str = "libnvidia-ml.so.1";

/// The location of the library.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Library {
    path: PathBuf,
}

impl Library {
    /// The `libnvidia-ml.so.1` that the loader finds.
    #[must_use]
    pub fn of_the_system() -> Self {
        Self { path: PathBuf::from(NAME) }
    }

    /// A file: in a container, the one in the driver's folder.
    #[must_use]
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// The path for the loader.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn open(&self) -> Result<Session, Unopened> {
        let nvml =
            Nvml::builder().lib_path(self.path.as_os_str()).init().map_err(|error| self.judge(error))?;
        if nvml.lib().nvmlShutdown.is_err() {
            // Without this function the wrapper panics when it is dropped; a library without it is not NVML, and
            // stays loaded.
            std::mem::forget(nvml);
            return Err(Unopened::Absent(self.foreign()));
        }
        Ok(Session::new(nvml))
    }

    fn judge(&self, error: NvmlError) -> Unopened {
        if let NvmlError::LibloadingError(error) = &error {
            return Unopened::Absent(Absent::Library { path: self.path.clone(), why: error.to_string() });
        }
        let fault = NvmlFault::from(error);
        if fault == NvmlFault::Missing {
            return Unopened::Absent(self.foreign());
        }
        if let NvmlFault::Code(code @ (9 | 12)) = fault {
            return Unopened::Absent(Absent::Driver { code });
        }
        Unopened::Failed(NvidiaError::all(NvmlOperation::Initialise, fault))
    }

    fn foreign(&self) -> Absent {
        Absent::Foreign { path: self.path.clone() }
    }
}

/// Why there is no session.
#[derive(Debug)]
pub(crate) enum Unopened {
    Absent(Absent),
    Failed(NvidiaError),
}

/// Why a machine has no NVIDIA GPU, as far as it can be determined. That is no error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Absent {
    /// The library could not be loaded.
    Library {
        /// The path for the loader.
        path: PathBuf,
        /// The loader's message.
        why: String,
    },
    /// The loaded library is not NVML.
    Foreign {
        /// The path for the loader.
        path: PathBuf,
    },
    /// The library is installed, but the driver is not loaded.
    Driver {
        /// The library's return code, by the numbers of nvml.h.
        code: u32,
    },
    /// The driver is loaded, but has no GPU.
    Gpu,
}

impl fmt::Display for Absent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Library { path, why } => write!(f, "{} could not be loaded: {why}", path.display()),
            Self::Foreign { path } => write!(f, "{} was loaded, and is not NVML", path.display()),
            Self::Driver { code } => write!(f, "the driver does not answer: {}", NvmlFault::Code(*code)),
            Self::Gpu => f.write_str("the driver is loaded and has no GPU"),
        }
    }
}
