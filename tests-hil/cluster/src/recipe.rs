//! Builds programs from Go modules in this repository (`control-plane/`, `helm/`, `krew/`, `cert-manager/`), once for each
//! content of the module.
//!
//! A module is compiled into this program, so that the hashed content is the built content. The result is placed by a
//! rename, so a killed build leaves nothing that looks complete. Concurrent builds wait for a lock that the kernel
//! releases with its owner.

use crate::assets::Environment;
use crate::component::Component;
use crate::error::ClusterError;
use crate::ffi;
use crate::folder::last_lines;
use std::fs::{File, TryLockError};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// A module to build.
pub(crate) struct Module {
    /// The name of its folder in the cache.
    pub(crate) folder: &'static str,
    /// Its name for messages.
    what: &'static str,
    files: &'static [(&'static str, &'static str)],
    /// The package of the program.
    package: &'static str,
    program: &'static str,
    /// Additional names of the program, which determine what it runs as.
    links: &'static [&'static str],
    /// A module that the program is made of and a folder in it, whose files are wanted beside the program.
    beside: Option<(&'static str, &'static str)>,
    link_flags: fn() -> String,
    minutes: u32,
    /// Advice in case the build does not work on this machine.
    way_out: &'static str,
}

/// The four programs of a control plane in one.
pub(crate) const CONTROL_PLANE: Module = Module {
    folder: "control-plane",
    what: "the control plane",
    files: &[
        ("main.go", include_str!("../control-plane/main.go")),
        ("go.mod", CONTROL_PLANE_GO_MOD),
        ("go.sum", include_str!("../control-plane/go.sum")),
    ],
    package: ".",
    program: "control-plane",
    links: &[
        Component::Etcd.name(),
        Component::ApiServer.name(),
        Component::Scheduler.name(),
        Component::ControllerManager.name(),
    ],
    beside: None,
    link_flags,
    minutes: 6,
    way_out: "set KUBEBUILDER_ASSETS to a folder with etcd, kube-apiserver, kube-scheduler and kube-controller-manager instead",
};
/// The folder of the files beside a program.
pub(crate) const FILES: &str = "files";
const CONTROL_PLANE_GO_MOD: &str = include_str!("../control-plane/go.mod");

/// The program that renders charts.
pub(crate) const HELM: Module = Module {
    folder: "helm",
    what: "helm",
    files: &[("go.mod", include_str!("../helm/go.mod")), ("go.sum", include_str!("../helm/go.sum"))],
    package: "helm.sh/helm/v3/cmd/helm",
    program: "helm",
    links: &[],
    beside: None,
    link_flags: helm_link_flags,
    minutes: 3,
    way_out: "put a helm on PATH instead",
};

/// The program that installs plugins of kubectl.
pub(crate) const KREW: Module = Module {
    folder: "krew",
    what: "krew",
    files: &[("go.mod", include_str!("../krew/go.mod")), ("go.sum", include_str!("../krew/go.sum"))],
    package: "sigs.k8s.io/krew/cmd/krew",
    program: "krew",
    links: &[],
    beside: None,
    link_flags: stripped,
    minutes: 1,
    way_out: "put a kubectl-krew on PATH instead",
};

/// The program that issues certificates, and the definitions of its kinds.
pub(crate) const CERT_MANAGER: Module = Module {
    folder: "cert-manager",
    what: "cert-manager",
    files: &[
        ("main.go", include_str!("../cert-manager/main.go")),
        ("go.mod", include_str!("../cert-manager/go.mod")),
        ("go.sum", include_str!("../cert-manager/go.sum")),
    ],
    package: ".",
    program: "cert-manager",
    links: &[],
    beside: Some(("github.com/cert-manager/cert-manager", "deploy/crds")),
    link_flags: stripped,
    minutes: 4,
    way_out: "nothing else takes its place",
};

/// The folder with the programs of a module, which are built if needed.
pub(crate) fn obtain(environment: &Environment, module: &Module) -> Result<PathBuf, ClusterError> {
    Recipe { environment, module, say: announce }.obtain()
}

struct Recipe<'a> {
    environment: &'a Environment,
    module: &'a Module,
    /// Reports progress to a user who waits for minutes.
    say: fn(&str),
}

impl Recipe<'_> {
    fn obtain(&self) -> Result<PathBuf, ClusterError> {
        let cache = self.environment.cache()?.join(self.module.folder);
        let folder = cache.join(self.module.hash());
        if self.module.is_built(&folder) {
            return Ok(folder);
        }
        let Some(go) = self.environment.find("go") else {
            return Err(ClusterError::Absent(format!(
                "no Go on PATH to build {} with; {}",
                self.module.what, self.module.way_out
            )));
        };
        std::fs::create_dir_all(&cache).map_err(ClusterError::file("making the cache folder", &cache))?;
        let _alone = self.lock(&cache.join(format!("{}.lock", self.module.hash())))?;
        if !self.module.is_built(&folder) {
            self.build(&go, &cache, &folder)?;
        }
        Ok(folder)
    }

    fn lock(&self, path: &Path) -> Result<File, ClusterError> {
        let file = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(path)
            .map_err(ClusterError::file("opening the lock", path))?;
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::WouldBlock) => {
                (self.say)(&format!("another process builds {}; waiting for it", self.module.what))
            }
            Err(TryLockError::Error(source)) => return Err(ClusterError::file("locking", path)(source)),
        }
        file.lock().map_err(ClusterError::file("locking", path))?;
        Ok(file)
    }

    /// Must be called by the owner of the lock.
    fn build(&self, go: &Path, cache: &Path, folder: &Path) -> Result<(), ClusterError> {
        let new = cache.join(format!("{}.building", self.module.hash()));
        let (source, result) = (new.join("source"), new.join("result"));
        // Remove what a killed build left.
        let _ = std::fs::remove_dir_all(&new);
        for part in [&source, &result] {
            std::fs::create_dir_all(part).map_err(ClusterError::file("making the folder", part))?;
        }
        for (name, text) in self.module.files {
            let file = source.join(name);
            std::fs::write(&file, text).map_err(ClusterError::file("writing", &file))?;
        }
        let built = self.compile(go, &source, &result.join(self.module.program));
        let built = built.and_then(|()| self.copy(go, &source, &result));
        let placed = built.and_then(|()| self.module.place(&result, folder));
        // The sources are not needed any more, whether or not the build succeeded.
        let _ = std::fs::remove_dir_all(&new);
        placed
    }

    fn run(&self, go: &Path, source: &Path, arguments: &[&str]) -> Result<Output, ClusterError> {
        let mut command = Command::new(go);
        command.args(arguments).current_dir(source).stdin(Stdio::null());
        command.env("CGO_ENABLED", "0").env("GOWORK", "off");
        // A build whose lock is gone must not continue beside the next one.
        ffi::die_with_this_thread(&mut command);
        command.env("PATH", self.environment.path.clone().unwrap_or_default());
        command.output().map_err(ClusterError::file("starting", go))
    }

    /// Copies the files that are wanted beside the program.
    fn copy(&self, go: &Path, source: &Path, result: &Path) -> Result<(), ClusterError> {
        let Some((module, folder)) = self.module.beside else { return Ok(()) };
        let listed = self.run(go, source, &["list", "-m", "-f", "{{.Dir}}", module])?;
        if !listed.status.success() {
            return Err(ClusterError::Build(format!("`go list` of {module}:\n{}", told(&listed))));
        }
        let from = PathBuf::from(String::from_utf8_lossy(&listed.stdout).trim()).join(folder);
        let into = result.join(FILES);
        std::fs::create_dir_all(&into).map_err(ClusterError::file("making the folder", &into))?;
        for entry in std::fs::read_dir(&from).map_err(ClusterError::file("reading", &from))? {
            let file = entry.map_err(ClusterError::file("reading", &from))?;
            std::fs::copy(file.path(), into.join(file.file_name()))
                .map_err(ClusterError::file("copying", file.path()))?;
        }
        Ok(())
    }

    fn compile(&self, go: &Path, source: &Path, program: &Path) -> Result<(), ClusterError> {
        let run = |arguments: &[&str]| self.run(go, source, arguments);
        // Run it in the module's folder, so that a Go that is too old reports it, or downloads the version in go.mod.
        let version = run(&["version"])?;
        if !version.status.success() {
            return Err(ClusterError::Absent(format!(
                "this Go is too old: {}; {}",
                told(&version),
                self.module.way_out
            )));
        }
        (self.say)(&format!(
            "building {} (Kubernetes {}) into {}, once; {} minutes of processor time",
            self.module.what,
            release(),
            program.display(),
            self.module.minutes
        ));
        self.module.fetched(&run(&["mod", "download"])?)?;
        let link_flags = (self.module.link_flags)();
        let program = program.to_string_lossy();
        let arguments = [
            "build",
            "-mod=readonly",
            "-trimpath",
            "-ldflags",
            &link_flags,
            "-o",
            &program,
            self.module.package,
        ];
        let built = run(&arguments)?;
        if built.status.success() {
            return Ok(());
        }
        let version = String::from_utf8_lossy(&version.stdout);
        Err(ClusterError::Build(format!(
            "`go build` failed with {}:\n{}\n{}",
            version.trim(),
            told(&built),
            self.module.way_out
        )))
    }
}

impl Module {
    fn is_built(&self, folder: &Path) -> bool {
        folder.join(self.program).is_file()
    }

    /// The FNV-1a hash of everything that the result depends on, in hexadecimal.
    fn hash(&self) -> String {
        let target = format!("{} {}", std::env::consts::OS, std::env::consts::ARCH);
        let link_flags = (self.link_flags)();
        let texts = self.files.iter().map(|&(_, text)| text).chain([target.as_str(), link_flags.as_str()]);
        let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
        // The separator byte occurs in none of the texts.
        for byte in texts.flat_map(|text| text.bytes().chain([0xff])) {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
        format!("{hash:016x}")
    }

    fn place(&self, result: &Path, folder: &Path) -> Result<(), ClusterError> {
        for name in self.links {
            let link = result.join(name);
            std::os::unix::fs::symlink(self.program, &link)
                .map_err(ClusterError::file("making the link", &link))?;
        }
        // Remove an incomplete earlier build.
        let _ = std::fs::remove_dir_all(folder);
        std::fs::rename(result, folder).map_err(ClusterError::file("placing the build at", folder))
    }

    /// A failed download means that there is no network, except if the content does not match go.sum.
    fn fetched(&self, download: &Output) -> Result<(), ClusterError> {
        if download.status.success() {
            return Ok(());
        }
        let told = told(download);
        if ["checksum mismatch", "SECURITY ERROR", "go.sum"].iter().any(|sign| told.contains(sign)) {
            return Err(ClusterError::Build(format!("`go mod download` refused a module:\n{told}")));
        }
        let line = told.lines().last().unwrap_or_default();
        Err(ClusterError::Absent(format!("its Go modules cannot be fetched: {line}; {}", self.way_out)))
    }
}

/// The release of Kubernetes in go.mod, such as `1.36.3`.
fn release() -> &'static str {
    let after = CONTROL_PLANE_GO_MOD.split_once("\tk8s.io/kubernetes v").map_or("", |(_, rest)| rest);
    after.split_whitespace().next().unwrap_or_default()
}

/// Linker flags: stripped, and with the version that Kubernetes' own build sets, which clients use.
fn link_flags() -> String {
    let release = release();
    let mut parts = release.split('.');
    let (major, minor) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let at = "k8s.io/component-base/version";
    format!(
        "-s -w -X {at}.gitVersion=v{release} -X {at}.gitMajor={major} -X {at}.gitMinor={minor} -X {at}.gitTreeState=clean"
    )
}

fn stripped() -> String {
    "-s -w".to_owned()
}

/// Linker flags: stripped, and with the release for which charts are rendered without a cluster; the default is 1.20.
fn helm_link_flags() -> String {
    let mut flags = stripped();
    let mut parts = release().split('.');
    for part in ["Major", "Minor"] {
        let number = parts.next().unwrap_or_default();
        for at in ["chartutil", "lint/rules"] {
            flags.push_str(&format!(" -X helm.sh/helm/v3/pkg/{at}.k8sVersion{part}={number}"));
        }
    }
    flags
}

fn told(output: &Output) -> String {
    last_lines(&String::from_utf8_lossy(&output.stderr))
}

/// Writes directly to standard error, because the test runner would hold the output back until the end.
fn announce(line: &str) {
    // Standard error may be closed.
    let _ = writeln!(std::io::stderr(), "cluster: {line}");
}

#[cfg(test)]
mod tests;
