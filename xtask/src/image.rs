//! The container image: the programs, the libraries that they load, and nothing else. No container engine is needed.
//!
//! ```text
//! programs ──▶ root file system ──┬─▶ folder (`--rootfs`: what the Dockerfile copies into an empty image)
//!                                 └─▶ layer, configuration, manifest ──▶ OCI layout (`--out`)
//! ```
//!
//! The same sources, toolchain and libraries give the same bytes: files are sorted, belong to root, and have the time of the
//! commit.

mod bill;
mod layout;
mod root;

/// What other archives are made by.
pub(crate) mod archived {
    pub(crate) use super::layout::{architecture, archive, digest, packed};
}

use anyhow::{Context, Result, bail};
pub(crate) use root::RootFs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What the image holds: the program and its package.
const PROGRAMS: [(&str, &str); 5] = [
    ("joulie", "joulie"),
    ("joulie-agent", "agent"),
    ("joulie-extender", "extender"),
    ("joulie-operator", "operator"),
    ("joulie-simulator", "simulator"),
];

/// What is asked for on the command line.
#[derive(Debug, Default, PartialEq, Eq)]
struct Wanted {
    /// Where the programs are; they are built where this is not said.
    programs: Option<PathBuf>,
    out: Option<PathBuf>,
    rootfs: Option<PathBuf>,
    check: bool,
}

impl Wanted {
    fn read(words: &[&str]) -> Result<Self> {
        let mut wanted = Self::default();
        let mut words = words.iter();
        while let Some(&word) = words.next() {
            let slot = match word {
                "--check" => {
                    wanted.check = true;
                    continue;
                }
                "--programs" => &mut wanted.programs,
                "--out" => &mut wanted.out,
                "--rootfs" => &mut wanted.rootfs,
                _ => bail!("image: {word:?} is not known; it takes --programs, --out, --rootfs and --check"),
            };
            let folder = words.next().filter(|folder| !folder.starts_with("--"));
            *slot = Some(PathBuf::from(folder.with_context(|| format!("image: {word} needs a folder"))?));
        }
        Ok(wanted)
    }
}

/// Builds the programs, unless told where they are, and makes of them what is asked for.
pub(crate) fn run(root: &Path, words: &[&str]) -> Result<()> {
    let wanted = Wanted::read(words)?;
    let programs = match wanted.programs {
        Some(folder) => folder,
        None => built(root, &PROGRAMS.map(|(_, package)| package))?,
    };
    let made = made_at(root);
    let mut files = RootFs::of(&programs, &PROGRAMS.map(|(program, _)| program))?;
    let bill = bill::of(root, &files.libraries(), made)?;
    files.add_bill(&bill);
    if wanted.check {
        return check(&files);
    }
    if let Some(folder) = &wanted.rootfs {
        files.write(folder)?;
        println!("image: the root file system is in {}", folder.display());
    }
    let out = match (wanted.out, &wanted.rootfs) {
        (None, Some(_)) => return Ok(()),
        (Some(out), _) => out,
        (None, None) => root.join("target/image"),
    };
    let about = layout::About { version: env!("CARGO_PKG_VERSION"), revision: &revision(root), made };
    let layout::WrittenImage { digest, packed, unpacked } = layout::write(&out, &files, &bill, &about)?;
    println!("image: {} in {}", digest, out.display());
    let mib = |bytes: usize| bytes.div_ceil(1 << 20);
    println!(
        "image: {} MiB to pull, {} MiB unpacked, for {}",
        mib(packed),
        mib(unpacked),
        layout::architecture()
    );
    println!("image: to a registry: skopeo copy oci:{} docker://REGISTRY/joulie:TAG", out.display());
    Ok(())
}

/// Builds the programs of these packages, and says where they lie.
pub(crate) fn built(root: &Path, packages: &[&str]) -> Result<PathBuf> {
    let mut cargo = Command::new("cargo");
    cargo.current_dir(root).args(["build", "--locked", "--profile", "dist"]);
    for package in packages {
        cargo.args(["-p", package]);
    }
    if !cargo.status().context("starting cargo")?.success() {
        bail!("the programs could not be built");
    }
    Ok(root.join("target/dist"))
}

/// The commit that the sources are of, as the programs say it.
fn revision(root: &Path) -> String {
    git(root, &["rev-parse", "HEAD"])
        .or_else(|| option_env!("JOULIE_REVISION").map(str::to_owned))
        .unwrap_or_else(|| "unknown".to_owned())
}

/// The time of the commit in seconds since 1970; 0 without git. The clock would make every image another one.
pub(crate) fn made_at(root: &Path) -> u64 {
    git(root, &["log", "-1", "--format=%ct"]).and_then(|text| text.parse().ok()).unwrap_or(0)
}

fn git(root: &Path, words: &[&str]) -> Option<String> {
    let output = Command::new("git").current_dir(root).args(words).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}

/// Runs each program from the root file system, with nothing else to see; where that is not allowed, says so.
fn check(files: &RootFs) -> Result<()> {
    let folder = std::env::temp_dir().join(format!("joulie-image-{}", std::process::id()));
    files.write(&folder)?;
    let outcome = check_in(&folder);
    std::fs::remove_dir_all(&folder).with_context(|| format!("removing {}", folder.display()))?;
    outcome
}

/// Where chroot(1) is, by absolute paths: the programs in the image see no PATH of this system.
const CHROOT: [&str; 2] = ["/usr/sbin/chroot", "/usr/bin/chroot"];

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

fn check_in(folder: &Path) -> Result<()> {
    let Some(chroot) = CHROOT.iter().find(|path| Path::new(path).exists()) else {
        println!("SKIP(the image is not run: there is no chroot in {CHROOT:?})");
        return Ok(());
    };
    let mut failed = 0;
    for (program, arguments, begins) in CASES {
        let name = [&[program], arguments].concat().join(" ");
        // Nothing of this process' environment goes along.
        let mut command = Command::new(chroot);
        command.arg(folder).arg(format!("{}/{program}", root::PATH)).args(arguments).env_clear();
        let output = match command.output() {
            Ok(output) => output,
            Err(error) => bail!("{chroot}: {error}"),
        };
        if output.status.code() == Some(125) {
            let why = String::from_utf8_lossy(&output.stderr).trim().replace('\n', " ");
            println!("SKIP(the image is not run: {why})");
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stdout);
        let is_well = output.status.success() && said.starts_with(begins) && !said.trim().is_empty();
        println!("image: {name} ... {}", if is_well { "ok" } else { "FAILED" });
        if !is_well {
            failed += 1;
            println!("{}\n{}", said.trim_end(), String::from_utf8_lossy(&output.stderr).trim_end());
        }
    }
    println!("test result: image. {} passed; {failed} failed", CASES.len() - failed);
    if failed == 0 { Ok(()) } else { bail!("{failed} of {} did not run from the image", CASES.len()) }
}

#[cfg(test)]
mod tests;
