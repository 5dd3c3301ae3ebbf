//! The packages of the distribution: a kernel with its headers and sources, QEMU if the machine has none, and the few
//! programs of the guest. They are downloaded and unpacked in the cache; nothing is installed.

use crate::cache;
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A kernel series of the distribution, unpacked.
#[derive(Debug)]
pub(crate) struct Kernel {
    /// `6.12`.
    pub(crate) series: String,
    /// `6.12.117+deb12-amd64`, with the version of its package.
    pub(crate) release: String,
    pub(crate) version: String,
    /// Contains headers, image and modules; `source` is the part of the sources that is compiled.
    pub(crate) root: PathBuf,
}

/// Programs and firmware.
#[derive(Debug)]
pub(crate) struct Tools {
    pub(crate) root: PathBuf,
    pub(crate) qemu: PathBuf,
    /// Whether QEMU is the one in the cache, with its own libraries and firmware.
    pub(crate) unpacked: bool,
}

/// The kernel sources that are compiled.
const SOURCES: &str = "'*/drivers/powercap/intel_rapl_common.c' '*/drivers/powercap/intel_rapl_msr.c' \
     '*/arch/x86/kernel/msr.c'";

/// The distribution's own modules that a scenario may load.
const STOCK: &str = "'./boot/vmlinuz-*' '*/ext4.ko*' '*/jbd2.ko*' '*/mbcache.ko*' '*/crc16.ko*' \
     '*/crc32c_generic.ko*' '*/drivers/virtio/virtio*.ko*' '*/virtio_blk.ko*' '*/virtio_net.ko*' '*/net_failover.ko*' \
     '*/failover.ko*'";

impl Kernel {
    /// The newest kernel of a series in the distribution, downloaded unless it is in the cache.
    pub(crate) fn obtain(cache: &Path, series: &str) -> Result<Self> {
        let release = newest_release(series)?;
        let version = version_of(&format!("linux-headers-{release}"))?;
        let root = cache.join(format!("kernel-{release}_{version}"));
        cache::filled(&root, |half| {
            let common = release.replace("-amd64", "-common");
            let depends =
                words(Command::new("apt-cache").args(["depends", &format!("linux-headers-{release}")]))?;
            let kbuild = depends.split_whitespace().find(|word| word.starts_with("linux-kbuild-"));
            let kbuild = kbuild.context("the headers name no linux-kbuild package")?;
            let debs = half.join("debs");
            for name in [&format!("linux-headers-{release}"), &format!("linux-headers-{common}"), kbuild] {
                unpack(&download(&debs, name)?, half)?;
            }
            let image = download(&debs, &format!("linux-image-{release}-unsigned"))
                .or_else(|_| download(&debs, &format!("linux-image-{release}")))?;
            shell(
                half,
                &format!(
                    "dpkg-deb --fsys-tarfile '{}' | tar -x --wildcards {STOCK} 2>/dev/null || true",
                    image.display()
                ),
            )?;
            shell(half, "find lib -name '*.ko.xz' -exec xz -d {} +")?;
            let source = download(&debs, &format!("linux-source-{series}"))?;
            let inner = format!("./usr/src/linux-source-{series}.tar.xz");
            std::fs::create_dir_all(half.join("source"))?;
            shell(
                half,
                &format!(
                    "dpkg-deb --fsys-tarfile '{}' | tar -xO '{inner}' | xz -dc | tar -x -C source --wildcards \
                     --strip-components=1 {SOURCES}",
                    source.display()
                ),
            )?;
            Ok(std::fs::remove_dir_all(debs)?)
        })?;
        Ok(Self { series: series.to_owned(), release, version, root })
    }

    /// The kernel image of the package.
    pub(crate) fn image(&self) -> PathBuf {
        self.root.join(format!("boot/vmlinuz-{}", self.release))
    }

    /// The kernel without its compression, which an emulated machine would need seconds of each boot to undo; the image
    /// of the package where that cannot be done.
    pub(crate) fn unpacked_image(&self) -> PathBuf {
        let plain = self.root.join("boot/vmlinux");
        if plain.is_file() || unpack_image(&self.image(), &plain).is_ok() { plain } else { self.image() }
    }
}

impl Tools {
    /// Downloads them unless they are in the cache or installed.
    pub(crate) fn obtain(cache: &Path) -> Result<Self> {
        let installed = words(Command::new("sh").args(["-c", "command -v qemu-system-x86_64"])).ok();
        let busybox = version_of("busybox-static")?;
        let kind = if installed.is_some() { "plain" } else { "qemu" };
        let root = cache.join(format!("tools-{kind}-{busybox}"));
        cache::filled(&root, |half| {
            let debs = half.join("debs");
            for name in ["busybox-static", "e2fsprogs"] {
                unpack(&download(&debs, name)?, half)?;
            }
            if installed.is_none() {
                for deb in closure(&debs, "qemu-system-x86")? {
                    unpack(&deb, half)?;
                }
            }
            Ok(std::fs::remove_dir_all(debs)?)
        })?;
        let unpacked = installed.is_none();
        let qemu =
            installed.map_or_else(|| root.join("usr/bin/qemu-system-x86_64"), |path| path.trim().into());
        Ok(Self { root, qemu, unpacked })
    }
}

/// Decompressors, with the first bytes of what they read.
const DECOMPRESSORS: [(&[u8], &[&str]); 2] =
    [(b"\xfd7zXZ\0", &["xz", "-dc", "--single-stream"]), (b"\x28\xb5\x2f\xfd", &["zstd", "-dcq"])];

/// Writes the ELF file that a kernel image contains, if QEMU can start it.
fn unpack_image(image: &Path, plain: &Path) -> Result<()> {
    let bytes = std::fs::read(image)?;
    let find = |wanted: &[u8]| bytes.windows(wanted.len()).position(|part| part == wanted);
    let mut found = DECOMPRESSORS.iter().filter_map(|(magic, command)| Some((find(magic)?, command)));
    let (at, command) = found.next().context("the image is compressed in another way")?;
    let half = plain.with_extension(format!("{}", std::process::id()));
    let packed = half.with_extension("packed");
    std::fs::write(&packed, bytes.get(at..).unwrap_or_default())?;
    // What follows the compressed kernel is no error here.
    let line = format!("{} < '{}' > '{}' 2>/dev/null", command.join(" "), packed.display(), half.display());
    let ran = Command::new("sh").args(["-c", &line]).status();
    std::fs::remove_file(&packed)?;
    ran?;
    let kernel = std::fs::read(&half)?;
    // QEMU starts a kernel at the entry that this note names.
    let can_start = kernel.starts_with(b"\x7fELF") && kernel.windows(ENTRY.len()).any(|part| part == ENTRY);
    if !can_start {
        std::fs::remove_file(&half)?;
        bail!("the image has no kernel that QEMU can start");
    }
    Ok(std::fs::rename(&half, plain)?)
}

/// The head of the note about the entry in 32-bit mode: the lengths of name and value, and the type.
const ENTRY: &[u8] = b"\x04\0\0\0\x08\0\0\0\x12\0\0\0Xen\0";

/// Checks that a compiler and the other build tools exist.
pub(crate) fn compiler() -> Result<()> {
    for program in ["apt-get", "apt-cache", "dpkg-deb", "gcc", "make", "xz", "tar"] {
        words(Command::new("sh").args(["-c", &format!("command -v {program}")]))
            .with_context(|| format!("{program} is not installed"))?;
    }
    Ok(())
}

/// The newest release of a series, such as `6.12.117+deb12-amd64` of 6.12.
fn newest_release(series: &str) -> Result<String> {
    let pattern = format!("^linux-headers-{}[.][0-9.+a-z-]*-amd64$", series.replace('.', "[.]"));
    let found = words(Command::new("apt-cache").args(["search", "--names-only", &pattern]))?;
    let names =
        found.lines().filter_map(|line| line.split_whitespace().next()?.strip_prefix("linux-headers-"));
    let plain = names.filter(|name| !name.contains("-rt-") && !name.contains("-cloud-"));
    let numbers = |name: &str| -> Vec<u64> {
        name.split(|letter: char| !letter.is_ascii_digit()).filter_map(|part| part.parse().ok()).collect()
    };
    let newest = plain.max_by_key(|name| numbers(name)).map(str::to_owned);
    newest.with_context(|| format!("the distribution offers no kernel {series} (is `apt-get update` due?)"))
}

fn version_of(package: &str) -> Result<String> {
    let policy = words(Command::new("apt-cache").args(["policy", package]))?;
    let version = policy.lines().find_map(|line| line.trim().strip_prefix("Candidate: "));
    let version = version.filter(|version| *version != "(none)");
    Ok(version
        .with_context(|| format!("the distribution has no package {package}"))?
        .replace([':', '~'], "_"))
}

/// Downloads one package into a folder, and returns the file.
fn download(folder: &Path, name: &str) -> Result<PathBuf> {
    std::fs::create_dir_all(folder)?;
    let one = folder.join(name);
    std::fs::create_dir_all(&one)?;
    words(
        Command::new("apt-get")
            .args(["-q", "-o", "APT::Sandbox::User=root", "download", name])
            .current_dir(&one),
    )
    .with_context(|| format!("the package {name} cannot be downloaded"))?;
    let mut files = std::fs::read_dir(&one)?;
    Ok(files.next().context("apt-get left no file")??.path())
}

/// Downloads a package and those of its dependencies that are not installed on this machine.
fn closure(folder: &Path, name: &str) -> Result<Vec<PathBuf>> {
    let folder = folder.join(format!("{name}.closure"));
    std::fs::create_dir_all(folder.join("partial"))?;
    let archives = format!("Dir::Cache::archives={}", folder.display());
    let arguments =
        ["-q", "-y", "-o", "APT::Sandbox::User=root", "-o", &archives, "-o", "Debug::NoLocking=1"];
    let rest = ["--download-only", "--no-install-recommends", "install", name];
    words(Command::new("apt-get").args(arguments).args(rest))
        .with_context(|| format!("the package {name} cannot be downloaded"))?;
    let files = std::fs::read_dir(&folder)?.filter_map(Result::ok).map(|entry| entry.path());
    Ok(files.filter(|path| path.extension().is_some_and(|end| end == "deb")).collect())
}

fn unpack(deb: &Path, root: &Path) -> Result<()> {
    succeed(Command::new("dpkg-deb").arg("-x").arg(deb).arg(root)).map(drop)
}

fn shell(folder: &Path, line: &str) -> Result<()> {
    succeed(Command::new("sh").args(["-c", line]).current_dir(folder)).map(drop)
}

/// The output of a command.
pub(crate) fn words(command: &mut Command) -> Result<String> {
    Ok(String::from_utf8_lossy(&succeed(command)?.stdout).into_owned())
}

/// Runs a command; if it fails, its output is the error.
pub(crate) fn succeed(command: &mut Command) -> Result<Output> {
    let output = command.output().with_context(|| format!("starting {command:?}"))?;
    if !output.status.success() {
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said);
        let from = said.len().saturating_sub(2000);
        bail!("{command:?} failed: {}", said.get(from..).unwrap_or(&said));
    }
    Ok(output)
}
