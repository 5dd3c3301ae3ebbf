//! The root file system of the image, sorted by path.

use super::BuildTarget;
use super::layout::digest;
use anyhow::{Context, Result, bail};
use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// The folder of the programs.
pub(super) const PATH: &str = "/usr/bin";

/// The user of programs without root rights; the chart uses the same number.
pub(super) const USER: u32 = 65_532;

/// The path of the bill of materials.
const BILL: &str = "usr/share/joulie/sbom.cdx.json";

/// Libraries that are found on the node need these in addition to the libraries of our programs: libnvidia-ml needs
/// parts that were once separate files of the C library, librocm_smi64 the C++ library.
const FOR_DRIVERS: [&str; 4] = ["libdl.so.2", "libpthread.so.0", "librt.so.1", "libstdc++.so.6"];

/// A file or a folder. Symbolic links are followed when a library is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Entry {
    Folder { mode: u32 },
    File { mode: u32, content: Vec<u8> },
}

/// Everything in the image, by its path without the leading `/`.
#[derive(Debug, Default)]
pub(crate) struct RootFs {
    entries: BTreeMap<String, Entry>,
}

impl RootFs {
    /// The programs in a folder, with the files that they need to run.
    pub(super) fn of(target: BuildTarget, folder: &Path, programs: &[&str]) -> Result<Self> {
        let mut files = Self::default();
        for program in programs {
            let path = folder.join(program);
            let content = std::fs::read(&path).with_context(|| format!("reading {}", path.display()))?;
            for library in libraries(target, &path)? {
                files.library(target, &library)?;
            }
            files.file(&format!("usr/bin/{program}"), 0o755, content);
        }
        files.add_for_drivers(target)?;
        files.file("etc/passwd", 0o644, accounts().into_bytes());
        files.file("etc/group", 0o644, groups().into_bytes());
        // Without this file the C library asks the name server before /etc/hosts.
        files.file("etc/nsswitch.conf", 0o644, b"hosts: files dns\n".to_vec());
        files.entries.insert("tmp".to_owned(), Entry::Folder { mode: 0o1777 });
        for folder in ["dev", "proc", "sys", "var/lib/joulie"] {
            files.folders(folder);
        }
        Ok(files)
    }

    /// Adds the bill of materials.
    pub(super) fn add_bill(&mut self, bill: &str) {
        self.file(BILL, 0o644, bill.as_bytes().to_vec());
    }

    /// The path and the digest of each library.
    pub(super) fn libraries(&self) -> Vec<(String, String)> {
        let files = self.entries().filter_map(|(path, entry)| match entry {
            Entry::File { content, .. } if path.contains(".so.") => {
                Some((path.to_owned(), digest(content).trim_start_matches("sha256:").to_owned()))
            }
            Entry::File { .. } | Entry::Folder { .. } => None,
        });
        files.collect()
    }

    pub(super) fn entries(&self) -> impl Iterator<Item = (&str, &Entry)> {
        self.entries.iter().map(|(path, entry)| (path.as_str(), entry))
    }

    /// Adds a file and its parent folders.
    pub(crate) fn file(&mut self, path: &str, mode: u32, content: Vec<u8>) {
        if let Some((above, _)) = path.rsplit_once('/') {
            self.folders(above);
        }
        self.entries.insert(path.to_owned(), Entry::File { mode, content });
    }

    fn folders(&mut self, path: &str) {
        for (end, _) in path.match_indices('/').chain([(path.len(), "")]) {
            let above = &path[..end];
            self.entries.entry(above.to_owned()).or_insert(Entry::Folder { mode: 0o755 });
        }
    }

    /// Adds a library at the path that the loader uses, with symbolic links resolved.
    fn library(&mut self, target: BuildTarget, path: &Path) -> Result<()> {
        let source = target.source(path);
        let content = std::fs::read(&source).with_context(|| format!("reading {}", source.display()))?;
        let path = path.to_str().and_then(|path| path.strip_prefix('/'));
        self.file(path.context("a library has an absolute path")?, 0o755, content);
        Ok(())
    }

    fn add_for_drivers(&mut self, target: BuildTarget) -> Result<()> {
        let libc = self.entries.keys().find(|path| path.ends_with("/libc.so.6"));
        let libc = libc.context("the programs are linked with a C library that is not glibc")?;
        let folder = Path::new("/").join(libc);
        let folder = folder.parent().context("libc.so.6 lies in a folder")?.to_owned();
        for name in FOR_DRIVERS {
            let beside = [folder.join(name), Path::new("/usr").join(folder.strip_prefix("/")?).join(name)];
            let Some(path) = beside.iter().find(|path| target.source(path).exists()) else {
                bail!("{name} is not beside the C library in {}; drivers of GPUs need it", folder.display());
            };
            self.library(target, path)?;
            for needed in libraries(target, &target.source(path))? {
                self.library(target, &needed)?;
            }
        }
        Ok(())
    }

    /// Writes the files into the folder, which must be empty.
    pub(super) fn write(&self, folder: &Path) -> Result<()> {
        std::fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))?;
        if std::fs::read_dir(folder)?.next().is_some() {
            bail!("{} is not empty; an image has nothing in it that is not ours", folder.display());
        }
        for (path, entry) in self.entries() {
            let at = folder.join(path);
            let wrote = match entry {
                Entry::Folder { mode } => std::fs::create_dir_all(&at).and_then(|()| permit(&at, *mode)),
                Entry::File { mode, content } => {
                    std::fs::write(&at, content).and_then(|()| permit(&at, *mode))
                }
            };
            wrote.with_context(|| format!("writing {}", at.display()))?;
        }
        Ok(())
    }
}

fn permit(path: &Path, mode: u32) -> std::io::Result<()> {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))
}

fn accounts() -> String {
    format!("root:x:0:0:root:/:/nonexistent\njoulie:x:{USER}:{USER}:joulie:/nonexistent:/nonexistent\n")
}

fn groups() -> String {
    format!("root:x:0:\njoulie:x:{USER}:\n")
}

/// The libraries that the target's loader would load for a program.
fn libraries(target: BuildTarget, program: &Path) -> Result<Vec<PathBuf>> {
    let mut list = target.list(program);
    let by = list.get_program().to_string_lossy().into_owned();
    let output = list.output().with_context(|| format!("starting {by}"))?;
    let said = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        bail!(
            "{by} {}: {}{}",
            program.display(),
            said.trim(),
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    let listed = loaded(&said).with_context(|| format!("{by} {}", program.display()))?;
    Ok(listed.iter().map(|path| target.in_image(path)).collect())
}

/// Reads `libc.so.6 => /lib/libc.so.6 (0x…)`, `/lib64/ld-linux-x86-64.so.2 (0x…)`, and `linux-vdso.so.1 (0x…)`, which
/// is not a file.
pub(super) fn loaded(said: &str) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for line in said.lines().map(str::trim).filter(|line| !line.is_empty() && *line != "statically linked") {
        let place = line.split_once("=>").map_or(line, |(_, place)| place).trim();
        if place.starts_with("not found") {
            bail!("a library is missing: {line}");
        }
        let path = place.split_whitespace().next().unwrap_or_default();
        if path.starts_with('/') {
            found.push(PathBuf::from(path));
        }
    }
    Ok(found)
}
