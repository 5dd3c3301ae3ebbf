//! cert-manager beside a control plane: its own controllers of certificates and issuers, built from its Go module, and the
//! definitions of its kinds. Without its webhook, which only refuses or completes what people write.

use crate::assets::Environment;
use crate::control_plane::ControlPlane;
use crate::error::ClusterError;
use crate::program::Program;
use crate::recipe;
use std::path::PathBuf;

/// The program, and where the definitions are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertManager {
    program: PathBuf,
    definitions: PathBuf,
}

impl CertManager {
    /// The name of its process and log.
    pub const NAME: &'static str = "cert-manager";

    /// Finds it, or builds it.
    ///
    /// # Errors
    /// [`ClusterError::Absent`] if it cannot be built here; any other error of the build.
    pub fn obtain(environment: &Environment) -> Result<Self, ClusterError> {
        let folder = recipe::obtain(environment, &recipe::CERT_MANAGER)?;
        Ok(Self { program: folder.join(Self::NAME), definitions: folder.join(recipe::FILES) })
    }

    /// The definitions of its kinds, in YAML.
    ///
    /// # Errors
    /// If they cannot be read.
    pub fn definitions(&self) -> Result<Vec<String>, ClusterError> {
        let reading = || ClusterError::file("reading", &self.definitions);
        let mut texts = Vec::new();
        for entry in std::fs::read_dir(&self.definitions).map_err(reading())? {
            let path = entry.map_err(reading())?.path();
            if path.extension().is_some_and(|kind| kind == "yaml") {
                texts.push(std::fs::read_to_string(&path).map_err(ClusterError::file("reading", &path))?);
            }
        }
        Ok(texts)
    }

    /// Starts it with the rights of an administrator, or starts it again. Its kinds must be there.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn start(&self, beside: &ControlPlane) -> Result<(), ClusterError> {
        let kubeconfig = format!("--kubeconfig={}", beside.kubeconfig().display());
        beside.start_program(&Program::new(Self::NAME, &self.program).argument(kubeconfig))
    }
}
