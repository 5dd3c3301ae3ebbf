//! Finds the binaries: in the folder that `KUBEBUILDER_ASSETS` names and then on `PATH`; without it, in the build of
//! `recipe`. Sources are not mixed otherwise, because a scheduler must not be newer than its API server.

use crate::component::Component;
use crate::error::ClusterError;
use crate::recipe;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The environment variables that matter here. Tests create their own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Environment {
    /// A folder with binaries. Unset or empty means none.
    pub kubebuilder_assets: Option<OsString>,
    /// Where to find `go`, and binaries that the folder lacks.
    pub path: Option<OsString>,
    /// `XDG_CACHE_HOME`.
    pub cache_home: Option<OsString>,
    /// `HOME`; its `.cache` contains the build if `XDG_CACHE_HOME` is unset.
    pub home: Option<OsString>,
}

impl Environment {
    /// The environment of this process.
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "the one place that reads the environment")]
    pub fn of_this_process() -> Self {
        let read = |name| std::env::var_os(name).filter(|value| !value.is_empty());
        Self {
            kubebuilder_assets: read("KUBEBUILDER_ASSETS"),
            path: read("PATH"),
            cache_home: read("XDG_CACHE_HOME"),
            home: read("HOME"),
        }
    }

    /// The first file of that name on `PATH`.
    pub(crate) fn find(&self, name: &str) -> Option<PathBuf> {
        let path = self.path.as_ref()?;
        std::env::split_paths(path).map(|folder| folder.join(name)).find(|file| is_program(file))
    }

    /// The folder of the builds. It is outside the checkout, so that all checkouts share it.
    pub(crate) fn cache(&self) -> Result<PathBuf, ClusterError> {
        let base = match (&self.cache_home, &self.home) {
            (Some(cache), _) => PathBuf::from(cache),
            (None, Some(home)) => Path::new(home).join(".cache"),
            (None, None) => {
                return Err(ClusterError::Absent(
                    "neither XDG_CACHE_HOME nor HOME says where to keep a build".to_owned(),
                ));
            }
        };
        if base.is_relative() {
            return Err(ClusterError::Assets(format!(
                "XDG_CACHE_HOME or HOME make the cache folder {}; an absolute path is accepted",
                base.display()
            )));
        }
        Ok(base.join("joulie"))
    }
}

/// The program of each component.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Binaries {
    programs: BTreeMap<Component, PathBuf>,
}

impl Binaries {
    /// Finds or builds the programs in `needed`.
    pub(crate) fn obtain(environment: &Environment, needed: &[Component]) -> Result<Self, ClusterError> {
        let folder = match &environment.kubebuilder_assets {
            Some(assets) => return Self::of_assets(environment, Path::new(assets), needed),
            None => recipe::obtain(environment, &recipe::CONTROL_PLANE)?,
        };
        let programs = needed.iter().map(|&component| (component, folder.join(component.name()))).collect();
        Ok(Self { programs })
    }

    fn of_assets(
        environment: &Environment,
        assets: &Path,
        needed: &[Component],
    ) -> Result<Self, ClusterError> {
        let mut programs = BTreeMap::new();
        let mut missing = Vec::new();
        for &component in needed {
            let here = Some(assets.join(component.name())).filter(|file| is_program(file));
            match here.or_else(|| environment.find(component.name())) {
                Some(program) => drop(programs.insert(component, program)),
                None => missing.push(component.name()),
            }
        }
        if missing.is_empty() {
            return Ok(Self { programs });
        }
        Err(ClusterError::Assets(format!(
            "KUBEBUILDER_ASSETS is {} and has no {}, nor has PATH; put it there, or unset the variable and have a Go \
             that can build all of them",
            assets.display(),
            missing.join(" and no ")
        )))
    }

    pub(crate) fn program(&self, component: Component) -> Result<PathBuf, ClusterError> {
        self.programs.get(&component).cloned().ok_or_else(|| {
            ClusterError::Asked(format!(
                "this control plane was started without {component}; ask for it in its Options"
            ))
        })
    }
}

/// Builds the binaries if they do not exist, and returns their folder.
///
/// # Errors
/// As for [`crate::ControlPlane::start`].
pub fn build(environment: &Environment) -> Result<PathBuf, ClusterError> {
    recipe::obtain(environment, &recipe::CONTROL_PLANE)
}

/// kube-scheduler's program, for who only wants to know what it takes.
///
/// # Errors
/// As for [`crate::ControlPlane::start`].
pub fn kube_scheduler(environment: &Environment) -> Result<PathBuf, ClusterError> {
    Binaries::obtain(environment, &[Component::Scheduler])?.program(Component::Scheduler)
}

/// The helm on `PATH`, otherwise one that is built.
///
/// # Errors
/// [`ClusterError::Absent`] if there is none and it cannot be built; any other error of the build.
pub fn helm(environment: &Environment) -> Result<PathBuf, ClusterError> {
    match environment.find("helm") {
        Some(helm) => Ok(helm),
        None => Ok(recipe::obtain(environment, &recipe::HELM)?.join("helm")),
    }
}

/// The krew on `PATH`, otherwise one that is built.
///
/// # Errors
/// As for [`helm`].
pub fn krew(environment: &Environment) -> Result<PathBuf, ClusterError> {
    match environment.find("kubectl-krew") {
        Some(krew) => Ok(krew),
        None => Ok(recipe::obtain(environment, &recipe::KREW)?.join("krew")),
    }
}

fn is_program(file: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    file.metadata().is_ok_and(|about| about.is_file() && about.permissions().mode() & 0o111 != 0)
}
