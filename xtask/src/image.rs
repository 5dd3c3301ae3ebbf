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
mod check;
mod layout;
mod root;
mod target;

/// What other archives are made by.
pub(crate) mod archived {
    pub(crate) use super::layout::{archive, digest, packed};
}

use anyhow::{Context, Result, bail};
pub(crate) use root::RootFs;
use std::path::{Path, PathBuf};
use std::process::Command;
pub(crate) use target::BuildTarget;

/// What the image holds: the program and its package.
const PROGRAMS: [(&str, &str); 5] = [
    ("joulie", "joulie"),
    ("joulie-agent", "agent"),
    ("joulie-extender", "extender"),
    ("joulie-operator", "operator"),
    ("joulie-simulator", "simulator"),
];

/// The commit of sources that are in no repository.
const UNKNOWN: &str = "unknown";

/// What is asked for on the command line.
#[derive(Debug, Default, PartialEq, Eq)]
struct Wanted {
    /// Where the programs are; they are built where this is not said.
    programs: Option<PathBuf>,
    out: Option<PathBuf>,
    rootfs: Option<PathBuf>,
    target: BuildTarget,
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
                "--target" => {
                    let triple = words.next().context("image: --target needs an architecture")?;
                    wanted.target = BuildTarget::read(triple).context("image")?;
                    continue;
                }
                "--programs" => &mut wanted.programs,
                "--out" => &mut wanted.out,
                "--rootfs" => &mut wanted.rootfs,
                _ => bail!(
                    "image: {word:?} is not known; it takes --programs, --out, --rootfs, --target and --check"
                ),
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
        None => built(root, wanted.target, &PROGRAMS.map(|(_, package)| package))?,
    };
    let made = made_at(root);
    let mut files = RootFs::of(wanted.target, &programs, &PROGRAMS.map(|(program, _)| program))?;
    let bill = bill::of(root, wanted.target, &files.libraries(), made)?;
    files.add_bill(&bill);
    if wanted.check {
        return check::run(wanted.target, &files);
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
    let architecture = wanted.target.architecture();
    let about =
        layout::About { version: env!("CARGO_PKG_VERSION"), revision: &revision(root), architecture, made };
    let layout::WrittenImage { digest, architectures, packed, unpacked } =
        layout::write(&out, &files, &bill, &about)?;
    println!("image: {digest} in {}, for {}", out.display(), architectures.join(" and "));
    let mib = |bytes: usize| bytes.div_ceil(1 << 20);
    println!("image: {} MiB to pull, {} MiB unpacked, for {architecture}", mib(packed), mib(unpacked));
    println!("image: to a registry: skopeo copy --all oci:{} docker://REGISTRY/joulie:TAG", out.display());
    Ok(())
}

/// Builds the programs of these packages, and says where they lie.
pub(crate) fn built(root: &Path, target: BuildTarget, packages: &[&str]) -> Result<PathBuf> {
    let mut cargo = Command::new("cargo");
    cargo.current_dir(root).args(["build", "--locked", "--profile", "dist"]);
    target.tell(&mut cargo);
    for package in packages {
        cargo.args(["-p", package]);
    }
    if !cargo.status().context("starting cargo")?.success() {
        bail!("the programs could not be built");
    }
    Ok(target.folder(root))
}

/// The commit that the sources are of, as the programs say it.
fn revision(root: &Path) -> String {
    git(root, &["rev-parse", "HEAD"])
        .or_else(|| option_env!("JOULIE_REVISION").map(str::to_owned))
        .unwrap_or_else(|| UNKNOWN.to_owned())
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

#[cfg(test)]
mod tests;
