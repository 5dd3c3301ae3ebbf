//! The machine that programs are built for: this one, or one of another architecture. For the other one there is a cross compiler
//! with a folder of the libraries of that architecture, and an emulator that runs single programs.

use anyhow::{Result, bail};
use std::path::{Path, PathBuf};
use std::process::Command;

/// What programs of another architecture need on this machine. The names are Debian's: packages gcc-aarch64-linux-gnu, libstdc++6-arm64-cross
/// and qemu-user.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct CrossTarget {
    triple: &'static str,
    /// The architecture in OCI's naming, which is krew's too.
    architecture: &'static str,
    linker: &'static str,
    /// The folder of its libraries: what is `/lib` there is beneath.
    libraries: &'static str,
    /// The loader of its C library.
    loader: &'static str,
    emulator: &'static str,
}

const CROSS: [CrossTarget; 1] = [CrossTarget {
    triple: "aarch64-unknown-linux-gnu",
    architecture: "arm64",
    linker: "aarch64-linux-gnu-gcc",
    libraries: "/usr/aarch64-linux-gnu",
    loader: "/lib/ld-linux-aarch64.so.1",
    emulator: "/usr/bin/qemu-aarch64",
}];

impl CrossTarget {
    /// The command that runs a program of a root file system in the emulator, which looks for files in that one first.
    pub(super) fn emulated(&self, folder: &Path, program: &str) -> Command {
        let mut emulator = Command::new(self.emulator);
        emulator.arg("-L").arg(folder).arg(folder.join(program.trim_start_matches('/'))).env_clear();
        emulator
    }
}

/// Where programs are to run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum BuildTarget {
    /// On machines like this one.
    #[default]
    Here,
    Cross(&'static CrossTarget),
}

impl BuildTarget {
    /// Reads a target in rustc's naming.
    pub(crate) fn read(triple: &str) -> Result<Self> {
        // No other C library and no other system: cargo builds for this one, without a word about it.
        if triple.strip_suffix("-unknown-linux-gnu") == Some(std::env::consts::ARCH) {
            return Ok(Self::Here);
        }
        match CROSS.iter().find(|cross| cross.triple == triple) {
            Some(cross) => Ok(Self::Cross(cross)),
            None => {
                bail!("--target {triple:?} is not known; accepted: {}", CROSS.map(|it| it.triple).join(", "))
            }
        }
    }

    pub(crate) fn architecture(self) -> &'static str {
        match (self, std::env::consts::ARCH) {
            (Self::Cross(cross), _) => cross.architecture,
            (Self::Here, "x86_64") => "amd64",
            (Self::Here, "aarch64") => "arm64",
            (Self::Here, other) => other,
        }
    }

    /// Makes `cargo` work for it.
    #[expect(clippy::disallowed_methods, reason = "cargo's own variables are for whoever calls it")]
    pub(super) fn tell(self, cargo: &mut Command) {
        if let Self::Cross(cross) = self {
            let linker = format!("CARGO_TARGET_{}_LINKER", cross.triple.replace('-', "_").to_uppercase());
            cargo.args(["--target", cross.triple]);
            // A person's own linker wins.
            if std::env::var_os(&linker).is_none() {
                cargo.env(linker, cross.linker);
            }
        }
    }

    /// Where cargo puts programs.
    pub(super) fn folder(self, root: &Path) -> PathBuf {
        match self {
            Self::Here => root.join("target/dist"),
            Self::Cross(cross) => root.join("target").join(cross.triple).join("dist"),
        }
    }

    /// Where a file of the image lies on this machine.
    pub(super) fn source(self, path: &Path) -> PathBuf {
        match self {
            Self::Here => path.to_owned(),
            Self::Cross(cross) => Path::new(cross.libraries).join(path.strip_prefix("/").unwrap_or(path)),
        }
    }

    /// Where a file that the loader has listed is to lie in the image.
    pub(super) fn in_image(self, listed: &Path) -> PathBuf {
        match self {
            Self::Here => listed.to_owned(),
            // The loader gives its own path as it was called.
            Self::Cross(cross) => match listed.strip_prefix(cross.libraries) {
                Ok(within) => Path::new("/").join(within),
                Err(_) => listed.to_owned(),
            },
        }
    }

    /// The command by which the target's loader lists the libraries of a program or a library.
    pub(super) fn list(self, program: &Path) -> Command {
        match self {
            Self::Here => {
                let mut ldd = Command::new("ldd");
                ldd.arg(program);
                ldd
            }
            Self::Cross(cross) => {
                let mut emulator = Command::new(cross.emulator);
                emulator.args(["-L", cross.libraries]);
                emulator.arg(self.source(Path::new(cross.loader))).arg("--list").arg(program);
                emulator
            }
        }
    }
}
