//! The stub libraries of a mounted machine: copies in a folder of its own, to which links in the mounted tree lead.
//!
//! A copy, as the loader takes two names of one file for one library, and each machine needs its own. A real file and
//! not one of the mounted tree, as a program that has it loaded would be killed when the tree is unmounted.

use crate::test_machine::Folder;
use std::io;
use std::path::Path;

/// The name of the NVIDIA library in the folder `lib` of the mounted tree.
pub const NVML: &str = "libnvidia-ml.so.1";
/// The name of the ROCm SMI library there.
pub const ROCM: &str = "librocm_smi64.so";

/// Copies that go away when this is dropped.
#[derive(Debug)]
pub(crate) struct Libraries {
    folder: Folder,
}

impl Libraries {
    /// Copies the libraries of these packages, each under its name; nothing where there are none.
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
