//! The stub libraries of a mounted machine: copies in a separate folder, to which links in the mounted tree point.
//!
//! They are copies, because the loader takes two names of one file for one library, and each machine needs its own.
//! They are outside the mounted tree, because a program that has loaded a library from it would be killed when the
//! tree is unmounted.

use crate::test_machine::Folder;
use std::io;
use std::path::Path;

/// The name of the NVIDIA library in the folder `lib` of the mounted tree.
pub const NVML: &str = "libnvidia-ml.so.1";
/// The name of the ROCm SMI library in that folder.
pub const ROCM: &str = "librocm_smi64.so";

/// Copies that are removed when this is dropped.
#[derive(Debug)]
pub(crate) struct Libraries {
    folder: Folder,
}

impl Libraries {
    /// Copies the libraries of these packages under their names; `None` if there are no packages.
    pub(crate) fn copy(packages: &[(&str, &str)]) -> io::Result<Option<Self>> {
        if packages.is_empty() {
            return Ok(None);
        }
        let libraries = Self { folder: Folder::make()? };
        for (package, name) in packages {
            std::fs::copy(nvml_stub::built(package)?, libraries.folder.0.join(name))?;
        }
        Ok(Some(libraries))
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder.0
    }
}
