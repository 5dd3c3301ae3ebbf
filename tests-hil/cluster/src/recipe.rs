//! The build of programs from Go modules of ours (`control-plane/`, `helm/`), once for each content of the module.
//!
//! A module is compiled into this program, so that what is hashed is what is built. The result appears by a rename:
//! a build that was killed leaves nothing that looks like one. Who comes second waits on a lock that the kernel
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

/// What is built.
pub(crate) struct Module {
    /// Of its folder in the cache.
    pub(crate) folder: &'static str,
    /// For people.
    what: &'static str,
    files: &'static [(&'static str, &'static str)],
    /// The package of the program.
    package: &'static str,
    program: &'static str,
    /// Names beside its own, under which it is found; it is what it is called.
    links: &'static [&'static str],
    link_flags: fn() -> String,
    minutes: u32,
    /// What to do about a build that does not work here.
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
    link_flags,
    minutes: 6,
    way_out: "set KUBEBUILDER_ASSETS to a folder with etcd, kube-apiserver, kube-scheduler and kube-controller-manager instead",
};
const CONTROL_PLANE_GO_MOD: &str = include_str!("../control-plane/go.mod");

/// What renders a chart.
pub(crate) const HELM: Module = Module {
    folder: "helm",
    what: "helm",
    files: &[("go.mod", include_str!("../helm/go.mod")), ("go.sum", include_str!("../helm/go.sum"))],
    package: "helm.sh/helm/v3/cmd/helm",
    program: "helm",
    links: &[],
    link_flags: helm_link_flags,
    minutes: 3,
    way_out: "put a helm on PATH instead",
};

/// The folder with the programs of a module, built if need be.
pub(crate) fn obtain(environment: &Environment, module: &Module) -> Result<PathBuf, ClusterError> {
    Recipe { environment, module, say: announce }.obtain()
}

struct Recipe<'a> {
    environment: &'a Environment,
    module: &'a Module,
    /// To whoever waits for minutes.
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

    /// To be called by the owner of the lock.
    fn build(&self, go: &Path, cache: &Path, folder: &Path) -> Result<(), ClusterError> {
        let new = cache.join(format!("{}.building", self.module.hash()));
        let (source, result) = (new.join("source"), new.join("result"));
        // What a killed builder left.
        let _ = std::fs::remove_dir_all(&new);
        for part in [&source, &result] {
            std::fs::create_dir_all(part).map_err(ClusterError::file("making the folder", part))?;
        }
        for (name, text) in self.module.files {
            let file = source.join(name);
            std::fs::write(&file, text).map_err(ClusterError::file("writing", &file))?;
        }
        let built = self.compile(go, &source, &result.join(self.module.program));
        let placed = built.and_then(|()| self.module.place(&result, folder));
        // Sources that were built, or failed to be, are of no more use.
        let _ = std::fs::remove_dir_all(&new);
        placed
    }

    fn compile(&self, go: &Path, source: &Path, program: &Path) -> Result<(), ClusterError> {
        let run = |arguments: &[&str]| -> Result<Output, ClusterError> {
            let mut command = Command::new(go);
            command.args(arguments).current_dir(source).stdin(Stdio::null());
            command.env("CGO_ENABLED", "0").env("GOWORK", "off");
            // A build whose lock is gone must not go on beside the next one.
            ffi::die_with_this_thread(&mut command);
            command.env("PATH", self.environment.path.clone().unwrap_or_default());
            command.output().map_err(ClusterError::file("starting", go))
        };
        // In the module's folder, so that a Go that is too old says so, or fetches the one that go.mod names.
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

    /// Of everything that the result depends on, in hexadecimal digits (FNV-1a).
    fn hash(&self) -> String {
        let target = format!("{} {}", std::env::consts::OS, std::env::consts::ARCH);
        let link_flags = (self.link_flags)();
        let texts = self.files.iter().map(|&(_, text)| text).chain([target.as_str(), link_flags.as_str()]);
        let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
        // The byte between two texts is in none of them.
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
        // A build of which somebody removed a part.
        let _ = std::fs::remove_dir_all(folder);
        std::fs::rename(result, folder).map_err(ClusterError::file("placing the build at", folder))
    }

    /// A module that cannot be had is a network that is not there; one with other content than go.sum says is not the same.
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

/// The release of Kubernetes in go.mod, as `1.36.3`.
fn release() -> &'static str {
    let after = CONTROL_PLANE_GO_MOD.split_once("\tk8s.io/kubernetes v").map_or("", |(_, rest)| rest);
    after.split_whitespace().next().unwrap_or_default()
}

/// Stripped, and with the version that Kubernetes' own build would put in: clients choose by it.
fn link_flags() -> String {
    let release = release();
    let mut parts = release.split('.');
    let (major, minor) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let at = "k8s.io/component-base/version";
    format!(
        "-s -w -X {at}.gitVersion=v{release} -X {at}.gitMajor={major} -X {at}.gitMinor={minor} -X {at}.gitTreeState=clean"
    )
}

/// Stripped, and with the release that charts are rendered for where no cluster is asked: without it they are for 1.20.
fn helm_link_flags() -> String {
    let mut flags = "-s -w".to_owned();
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

/// Past the test runner, which would keep it until the end.
fn announce(line: &str) {
    // Nobody reads it when there is no standard error.
    let _ = writeln!(std::io::stderr(), "cluster: {line}");
}

#[cfg(test)]
mod tests;
