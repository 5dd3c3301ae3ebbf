//! `kubectl joulie` for krew: an archive of the program for one architecture, and the manifest of all archives of
//! this version that lie beside it.
//!
//! The same sources and toolchain give the same archive, as with the image. The manifest has the digest of each archive as it is
//! read from the disk, so that it is of what was put there and of nothing else.

use crate::image::archived::{archive, digest, packed};
use crate::image::{BuildTarget, RootFs, built, made_at};
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};

/// The program, and its package.
const PROGRAM: &str = "kubectl-joulie";
/// What lies beside it: krew's index asks for it.
const LICENSE: &str = "LICENSE";
/// The name of the plugin: `kubectl joulie`.
const NAME: &str = "joulie";
/// The manifest.
const MANIFEST: &str = "joulie.yaml";
/// The architectures of machines that people sit at, in krew's names.
const ARCHITECTURES: [&str; 2] = ["amd64", "arm64"];

/// What is asked for on the command line.
#[derive(Debug, Default, PartialEq, Eq)]
struct WantedPlugin {
    /// Where the program is; it is built where this is not said.
    programs: Option<PathBuf>,
    out: Option<PathBuf>,
    /// Where the archives will lie for everybody.
    uri: Option<String>,
    target: BuildTarget,
}

impl WantedPlugin {
    fn read(words: &[&str]) -> Result<Self> {
        let mut wanted = Self::default();
        let mut words = words.iter();
        while let Some(&word) = words.next() {
            let value = words.next().filter(|value| !value.starts_with("--"));
            let value = *value.with_context(|| format!("plugin: {word} needs a value"))?;
            match word {
                "--programs" => wanted.programs = Some(value.into()),
                "--out" => wanted.out = Some(value.into()),
                "--uri" => wanted.uri = Some(address(value)?),
                "--target" => wanted.target = BuildTarget::read(value).context("plugin")?,
                _ => bail!("plugin: {word:?} is not known; it takes --programs, --out, --uri and --target"),
            }
        }
        Ok(wanted)
    }
}

/// The folder of the archives as an address without its last `/`.
fn address(text: &str) -> Result<String> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_graphic() && !b"\"\\{}|^`<>?#".contains(&byte));
    let host = text.strip_prefix("https://").unwrap_or_default();
    if !is_plain || host.is_empty() || host.starts_with('/') {
        bail!("plugin: --uri {text:?} is no address; accepted: https://HOST/FOLDER");
    }
    Ok(text.trim_end_matches('/').to_owned())
}

/// Makes the archive, and the manifest of all that are there.
pub(crate) fn run(root: &Path, words: &[&str]) -> Result<()> {
    let WantedPlugin { programs, out, uri, target } = WantedPlugin::read(words)?;
    let uri = uri.context("plugin: --uri https://HOST/FOLDER says where people get the archives")?;
    let programs = match programs {
        Some(folder) => folder,
        None => built(root, target, &[PROGRAM])?,
    };
    let out = out.unwrap_or_else(|| root.join("target/plugin"));
    let name = put(root, target.architecture(), &programs.join(PROGRAM), &out)?;
    let all = archives(&out)?;
    let text = manifest(&all, &uri);
    let path = out.join(MANIFEST);
    std::fs::write(&path, text).with_context(|| format!("writing {}", path.display()))?;
    println!("plugin: {name}, and {MANIFEST} for {} archives, in {}", all.len(), out.display());
    println!(
        "plugin: to try it: kubectl krew install --manifest={} --archive={}",
        path.display(),
        out.join(name).display()
    );
    Ok(())
}

/// The name of an archive of this version.
fn archive_name(architecture: &str) -> String {
    format!("{PROGRAM}-v{}-linux-{architecture}.tar.gz", env!("CARGO_PKG_VERSION"))
}

/// Puts the archive of a program into a folder, and returns its name.
fn put(root: &Path, architecture: &str, program: &Path, out: &Path) -> Result<String> {
    if !ARCHITECTURES.contains(&architecture) {
        bail!("plugin: krew has no machines of {architecture}");
    }
    let read = |path: &Path| std::fs::read(path).with_context(|| format!("reading {}", path.display()));
    let mut files = RootFs::default();
    files.file(PROGRAM, 0o755, read(program)?);
    files.file(LICENSE, 0o644, read(&root.join(LICENSE))?);
    let content = packed(&archive(&files, made_at(root))?)?;
    std::fs::create_dir_all(out).with_context(|| format!("making {}", out.display()))?;
    let name = archive_name(architecture);
    let path = out.join(&name);
    std::fs::write(&path, content).with_context(|| format!("writing {}", path.display()))?;
    Ok(name)
}

/// The architectures of which there is an archive of this version in a folder, with the digests.
fn archives(out: &Path) -> Result<Vec<(&'static str, String)>> {
    let mut all = Vec::new();
    for architecture in ARCHITECTURES {
        let path = out.join(archive_name(architecture));
        if path.exists() {
            let content = std::fs::read(&path).with_context(|| format!("reading {}", path.display()))?;
            all.push((architecture, digest(&content).trim_start_matches("sha256:").to_owned()));
        }
    }
    Ok(all)
}

/// The manifest of these archives.
fn manifest(archives: &[(&str, String)], uri: &str) -> String {
    let mut text = format!(
        "# Made by `cargo xtask plugin`.\n\
         apiVersion: krew.googlecontainertools.github.com/v1alpha2\n\
         kind: Plugin\n\
         metadata:\n  name: {NAME}\n\
         spec:\n  version: v{}\n  shortDescription: See and ask what power Joulie grants to nodes, and why\n  description: |\n    \
         Says what is capped in a cluster with Joulie, why, since when and by whom; which power budget binds and what of it\n    \
         is unused; where a pod would go and what it would draw; what is wrong, and what to do. It caps a node for a time, and\n    \
         writes only with --yes.\n  caveats: |\n    \
         It needs Joulie's definitions in the cluster. `kubectl joulie doctor` says what is missing.\n  platforms:\n",
        env!("CARGO_PKG_VERSION")
    );
    for (architecture, digest) in archives {
        let name = archive_name(architecture);
        text.push_str(&format!(
            "    - selector:\n        matchLabels: {{os: linux, arch: {architecture}}}\n      \
             uri: {uri}/{name}\n      sha256: {digest}\n      bin: {PROGRAM}\n      files:\n        \
             - {{from: {PROGRAM}, to: .}}\n        - {{from: {LICENSE}, to: .}}\n"
        ));
    }
    text
}

#[cfg(test)]
mod tests;
