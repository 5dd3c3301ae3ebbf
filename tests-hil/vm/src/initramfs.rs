//! The guest's files, as one archive in cpio's `newc` format.

use crate::modules::modules;
use crate::packages::{Kernel, Tools, words};
use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The programs under test.
const PROGRAMS: [&str; 4] = ["joulie", "hil", "joulie-agent", "readback"];

/// Files by their path in the guest.
#[derive(Debug, Default)]
pub(crate) struct Initramfs {
    files: BTreeMap<String, Vec<u8>>,
}

impl Initramfs {
    /// The files that all scenarios need with this kernel.
    pub(crate) fn of(
        kernel: &Kernel,
        tools: &Tools,
        built: &Path,
        programs: &Path,
        guest: &Path,
    ) -> Result<Self> {
        let mut made = Self::default();
        made.add("init", &guest.join("init"))?;
        made.add("vm/lib.sh", &guest.join("lib.sh"))?;
        for entry in std::fs::read_dir(guest.join("scenarios"))? {
            let path = entry?.path();
            let name =
                path.file_name().and_then(|name| name.to_str()).context("a scenario has a plain name")?;
            made.add(&format!("vm/scenarios/{name}"), &path)?;
        }
        made.add("bin/busybox", &first(&tools.root, &["bin/busybox", "usr/bin/busybox"])?)?;
        made.add("usr/sbin/kexec", &built.join("kexec"))?;
        for name in PROGRAMS {
            made.stripped(&format!("usr/bin/{name}"), &programs.join(name))?;
        }
        for name in modules(built)? {
            made.add(&format!("lib/modules/{name}"), &built.join(&name))?;
        }
        let stock = words(Command::new("find").arg(kernel.root.join("lib")).args(["-name", "*.ko"]))?;
        for path in stock.lines().map(Path::new) {
            let name =
                path.file_name().and_then(|name| name.to_str()).context("a module has a plain name")?;
            made.add(&format!("lib/modules/{name}"), path)?;
        }
        made.add("vm/vmlinuz", &kernel.image())?;
        Ok(made)
    }

    fn add(&mut self, name: &str, from: &Path) -> Result<()> {
        let bytes = std::fs::read(from).with_context(|| format!("reading {}", from.display()))?;
        self.files.insert(name.to_owned(), bytes);
        Ok(())
    }

    /// Adds a program without its debug information, which is its largest part.
    fn stripped(&mut self, name: &str, from: &Path) -> Result<()> {
        let to = std::env::temp_dir().join(format!("joulie-vm-{}", std::process::id()));
        let strip = words(Command::new("strip").arg("-o").arg(&to).arg(from));
        strip.with_context(|| format!("{} is not built", from.display()))?;
        self.add(name, &to)?;
        std::fs::remove_file(&to)?;
        self.libraries(from)
    }

    /// Adds the loader and the libraries of a program, at their paths on this machine.
    fn libraries(&mut self, program: &Path) -> Result<()> {
        let listed = words(Command::new("ldd").arg(program))?;
        for path in listed.split_whitespace().filter(|word| word.starts_with('/')) {
            self.add(path.trim_start_matches('/'), Path::new(path))?;
        }
        Ok(())
    }

    /// The archive: folders before their contents, and the end record.
    pub(crate) fn archive(&self) -> Result<Vec<u8>> {
        let mut folders = BTreeMap::new();
        for name in self.files.keys() {
            for parent in Path::new(name).ancestors().skip(1).filter(|parent| parent.as_os_str() != "") {
                folders.insert(parent.to_str().context("a name is text")?.to_owned(), ());
            }
        }
        let mut out = Vec::new();
        for name in folders.keys() {
            entry(&mut out, name, 0o040_755, &[])?;
        }
        for (name, bytes) in &self.files {
            entry(&mut out, name, 0o100_755, bytes)?;
        }
        entry(&mut out, "TRAILER!!!", 0, &[])?;
        Ok(out)
    }
}

fn entry(out: &mut Vec<u8>, name: &str, mode: u32, bytes: &[u8]) -> Result<()> {
    let size = u32::try_from(bytes.len()).context("a file of the guest is too large")?;
    let name_size = u32::try_from(name.len() + 1)?;
    // Inode, mode, owner, group, links, time, size, device twice, name, checksum.
    let fields = [0, mode, 0, 0, 1, 0, size, 0, 0, 0, 0, name_size, 0];
    out.extend_from_slice(b"070701");
    for field in fields {
        out.extend_from_slice(format!("{field:08x}").as_bytes());
    }
    out.extend_from_slice(name.as_bytes());
    out.push(0);
    pad(out);
    out.extend_from_slice(bytes);
    pad(out);
    Ok(())
}

fn pad(out: &mut Vec<u8>) {
    out.resize(out.len().next_multiple_of(4), 0);
}

fn first(root: &Path, names: &[&str]) -> Result<PathBuf> {
    let found = names.iter().map(|name| root.join(name)).find(|path| path.is_file());
    found.with_context(|| format!("{} has no {}", root.display(), names.join(" nor ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_come_before_files_and_all_is_aligned() {
        let mut made = Initramfs::default();
        made.files.insert("a/b/c".to_owned(), b"hello".to_vec());
        let archive = made.archive().unwrap();
        let text = String::from_utf8_lossy(&archive);
        let at = |name: &str| text.find(name).unwrap_or_else(|| panic!("{name} is missing"));
        assert!(at("a\0") < at("a/b\0") && at("a/b\0") < at("a/b/c\0") && at("a/b/c\0") < at("TRAILER!!!\0"));
        assert_eq!(archive.len() % 4, 0);
        assert!(text.contains("00000005"), "the size of the file");
    }
}
