//! Loading and initialising the library at run time, and what it means when that does not work.

use crate::error::{NvidiaError, NvmlFault, NvmlOperation};
use crate::ffi::Session;
use nvml_wrapper::Nvml;
use nvml_wrapper::error::NvmlError;
use std::fmt;
use std::path::{Path, PathBuf};

/// The name under which the loader finds the driver's library.
const NAME: &str = "libnvidia-ml.so.1";

/// Where the library is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Library {
    path: PathBuf,
}

impl Library {
    /// Wherever the loader finds `libnvidia-ml.so.1`.
    #[must_use]
    pub fn of_the_system() -> Self {
        Self { path: PathBuf::from(NAME) }
    }

    /// A file: in a container, that of the driver's own folder.
    #[must_use]
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// What is given to the loader.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn open(&self) -> Result<Session, Unopened> {
        let nvml =
            Nvml::builder().lib_path(self.path.as_os_str()).init().map_err(|error| self.judge(error))?;
        if nvml.lib().nvmlShutdown.is_err() {
            // The wrapper panics when it is dropped without this function; a library without it is not NVML, and is
            // left loaded.
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

/// Why a machine has no NVIDIA GPU, as far as can be seen. That is no error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Absent {
    /// The library could not be loaded.
    Library {
        /// What was given to the loader.
        path: PathBuf,
        /// What the loader said.
        why: String,
    },
    /// A library was loaded that is not NVML.
    Foreign {
        /// What was given to the loader.
        path: PathBuf,
    },
    /// The library is there, and the driver is not loaded.
    Driver {
        /// What the library answered, by the numbers of nvml.h.
        code: u32,
    },
    /// The driver is there, and has no GPU.
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
