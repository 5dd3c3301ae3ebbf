//! Runs each program of the image from its root file system, with nothing else to see.

use super::root::{PATH, RootFs};
use super::target::{BuildTarget, CrossTarget};
use anyhow::{Context, Result, bail};
use std::io::ErrorKind;
use std::path::Path;
use std::process::Command;

/// A program and its arguments, and what the beginning of its answer must be.
type Case = (&'static str, &'static [&'static str], &'static str);

const CASES: [Case; 6] = [
    ("joulie-agent", &["--version"], "joulie-agent "),
    ("joulie-extender", &["--version"], "joulie-extender "),
    ("joulie-operator", &["--version"], "joulie-operator "),
    ("joulie-simulator", &["--version"], "joulie-simulator "),
    ("joulie", &["--version"], "joulie "),
    // Every part of the system in one process: threads, sockets, TLS of the libraries that are in the image.
    ("joulie", &["demo", "--for", "10s", "--plain"], ""),
];

/// By what a program is run.
#[derive(Clone, Copy, Debug)]
enum Runner {
    /// A container engine, as a kubelet would: the image's user, nothing to write to, no network.
    Engine,
    /// chroot(1), by its absolute path: the programs in the image see no PATH of this system.
    Chroot(&'static str),
    /// For another architecture. It shows the files of this system too, of which none is for that architecture.
    Emulator(&'static CrossTarget),
}

impl Runner {
    /// All that might work, the strictest first.
    fn all(target: BuildTarget) -> Vec<Self> {
        match target {
            BuildTarget::Here => {
                vec![Self::Engine, Self::Chroot("/usr/sbin/chroot"), Self::Chroot("/usr/bin/chroot")]
            }
            BuildTarget::Cross(cross) => vec![Self::Emulator(cross)],
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Engine => "podman",
            Self::Chroot(path) => path,
            Self::Emulator(_) => "the emulator",
        }
    }

    /// The exit statuses that may say that it cannot run programs here. 127 is a loader's too, where a library is missing: that is the
    /// image's fault, and only an engine says it of itself as well.
    const fn own_statuses(self) -> &'static [i32] {
        match self {
            Self::Engine => &[125, 126, 127],
            Self::Chroot(_) => &[125],
            Self::Emulator(_) => &[],
        }
    }

    fn command(self, folder: &Path, program: &str) -> Command {
        let program = format!("{PATH}/{program}");
        match self {
            Self::Engine => {
                let mut podman = Command::new("podman");
                // Limits that every system may set: by default podman raises them.
                podman.args([
                    "--cgroup-manager",
                    "cgroupfs",
                    "run",
                    "--rm",
                    "--read-only",
                    "--network",
                    "none",
                ]);
                podman.args(["--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1024:1024", "--user"]);
                podman.arg(super::root::USER.to_string()).arg("--rootfs").arg(folder).arg(program);
                podman
            }
            Self::Chroot(path) => {
                let mut chroot = Command::new(path);
                // Nothing of this process' environment goes along.
                chroot.arg(folder).arg(program).env_clear();
                chroot
            }
            Self::Emulator(cross) => cross.emulated(folder, &program),
        }
    }

    /// Why it cannot run programs here.
    fn cannot(self, folder: &Path) -> Result<Option<String>> {
        match self.command(folder, "joulie").arg("--version").output() {
            Ok(output) if output.status.code().is_some_and(|code| self.own_statuses().contains(&code)) => {
                Ok(Some(String::from_utf8_lossy(&output.stderr).trim().replace('\n', " ")))
            }
            Ok(_) => Ok(None),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Some("it is not installed".to_owned())),
            Err(error) => Err(error).context(self.name()),
        }
    }
}

/// Runs each program; where nothing may run them, says so.
pub(super) fn run(target: BuildTarget, files: &RootFs) -> Result<()> {
    let folder = std::env::temp_dir().join(format!("joulie-image-{}", std::process::id()));
    files.write(&folder)?;
    let outcome = run_in(target, &folder);
    std::fs::remove_dir_all(&folder).with_context(|| format!("removing {}", folder.display()))?;
    outcome
}

fn run_in(target: BuildTarget, folder: &Path) -> Result<()> {
    let mut not = Vec::new();
    let mut found = None;
    for runner in Runner::all(target) {
        match runner.cannot(folder)? {
            Some(why) => not.push(format!("{}: {why}", runner.name())),
            None => {
                found = Some(runner);
                break;
            }
        }
    }
    let Some(runner) = found else {
        println!("SKIP(the image is not run: {})", not.join("; "));
        return Ok(());
    };
    let mut failed = 0;
    for (program, arguments, begins) in CASES {
        let name = [&[program], arguments].concat().join(" ");
        let output = runner.command(folder, program).args(arguments).output()?;
        let said = String::from_utf8_lossy(&output.stdout);
        let is_well = output.status.success() && said.starts_with(begins) && !said.trim().is_empty();
        println!("image: {name} by {} ... {}", runner.name(), if is_well { "ok" } else { "FAILED" });
        if !is_well {
            failed += 1;
            println!("{}\n{}", said.trim_end(), String::from_utf8_lossy(&output.stderr).trim_end());
        }
    }
    println!("test result: image. {} passed; {failed} failed", CASES.len() - failed);
    if failed == 0 { Ok(()) } else { bail!("{failed} of {} did not run from the image", CASES.len()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_lacks_a_library_is_no_runner_that_cannot_run_it() {
        for target in [BuildTarget::Here, BuildTarget::read("aarch64-unknown-linux-gnu").unwrap()] {
            let strict = Runner::all(target).pop().unwrap();
            assert!([126, 127].iter().all(|status| !strict.own_statuses().contains(status)), "{strict:?}");
        }
    }
}
