//! Finds the commit for `--version` and `joulie_build_info`: git's answer if the sources are a checkout, else the
//! variable `JOULIE_REVISION`, else nothing, and then the program says "unknown".
//!
//! A release build watches git's HEAD, so it always names the commit that was checked out. A debug build does not,
//! because every commit would compile every host again. It names the commit at which host-kit was last compiled, with
//! the suffix `-dev`: the rest may be newer.
#![expect(clippy::disallowed_methods, reason = "cargo tells a build script what it needs in variables")]

use std::path::{Path, PathBuf};
use std::process::Command;

/// Enough digits for any repository, and short enough for a label.
const DIGITS: &str = "--short=12";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=JOULIE_REVISION");
    let sources = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let told = std::env::var("JOULIE_REVISION").ok().filter(|told| !told.trim().is_empty());
    let revision = match of_git(&sources) {
        Some(commit) if std::env::var("PROFILE").is_ok_and(|profile| profile == "release") => {
            watch(&sources);
            Some(commit)
        }
        Some(commit) => Some(format!("{commit}-dev")),
        None => told,
    };
    if let Some(revision) = revision {
        println!("cargo::rustc-env=HOST_KIT_REVISION={}", revision.trim());
    }
}

/// The commit that is checked out, if git tracks this file: sources that were unpacked inside another checkout are not
/// of that checkout's commit.
fn of_git(sources: &Path) -> Option<String> {
    git(sources, &["ls-files", "--error-unmatch", "build.rs"])?;
    git(sources, &["rev-parse", DIGITS, "HEAD"]).filter(|commit| !commit.is_empty())
}

/// Makes cargo run this script again when another commit is checked out or made: HEAD changes, or the branch that it
/// names changes, in its own file or in `packed-refs`.
fn watch(sources: &Path) {
    let branch = git(sources, &["symbolic-ref", "--quiet", "HEAD"]);
    for name in ["HEAD", "packed-refs"].into_iter().chain(branch.as_deref()) {
        let file = git(sources, &["rev-parse", "--git-path", name]).map(|file| sources.join(file));
        // Cargo runs a script each time if a watched file does not exist.
        if let Some(file) = file.filter(|file| file.exists()) {
            println!("cargo::rerun-if-changed={}", file.display());
        }
    }
}

fn git(sources: &Path, words: &[&str]) -> Option<String> {
    let answer = Command::new("git").current_dir(sources).args(words).output().ok()?;
    let text = String::from_utf8(answer.stdout).ok()?;
    answer.status.success().then(|| text.trim().to_owned())
}
