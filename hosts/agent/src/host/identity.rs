//! Reads what the kernel says about the machine: once, from the same root as the hardware.

use std::path::Path;

/// What the kernel says about the machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Identity {
    pub(super) vendor: Option<String>,
    pub(super) model: Option<String>,
    pub(super) driver: Option<String>,
    pub(super) memory_bytes: Option<u64>,
    pub(super) gpu_model: Option<String>,
    /// The boot ID. Virtual hardware has one of its own if its root contains it.
    pub(super) boot: Option<String>,
}

/// The kernel's file with the boot ID, below the root.
const BOOT: &str = "proc/sys/kernel/random/boot_id";

/// Far more than `/proc/cpuinfo` has for a thousand processors.
const BYTES_MOST: u64 = 8 << 20;

impl Identity {
    /// Reads the files. A value whose file is missing stays unknown: a machine below a root is never described by this
    /// machine's files.
    pub(super) fn read(root: Option<&Path>) -> Self {
        let root = root.unwrap_or_else(|| Path::new("/"));
        let cpuinfo = text(&root.join("proc/cpuinfo")).unwrap_or_default();
        let meminfo = text(&root.join("proc/meminfo")).unwrap_or_default();
        let driver = root.join("sys/devices/system/cpu/cpufreq/policy0/scaling_driver");
        Self {
            vendor: value(&cpuinfo, "vendor_id"),
            model: value(&cpuinfo, "model name"),
            driver: text(&driver).map(|text| text.trim().to_owned()).filter(|text| !text.is_empty()),
            memory_bytes: value(&meminfo, "MemTotal").and_then(|text| kib(&text)),
            gpu_model: nvidia(&root.join("proc/driver/nvidia/gpus")),
            boot: text(&root.join(BOOT))
                .or_else(|| text(&Path::new("/").join(BOOT)))
                .map(|text| text.trim().to_owned())
                .filter(|text| !text.is_empty()),
        }
    }
}

/// Says which folders a root of hardware lacks, and what is not known without them.
pub(super) fn missing(root: &Path) -> Option<String> {
    let parts = [
        ("proc", "the names of processors and GPUs and the size of the memory"),
        ("sys", "every power limit and meter that is a file"),
        ("dev", "the limits of EPYC sockets and of registers"),
    ];
    let missing: Vec<_> = parts.iter().filter(|(name, _)| !root.join(name).is_dir()).collect();
    let names: Vec<_> = missing.iter().map(|(name, _)| *name).collect();
    let effects: Vec<_> = missing.iter().map(|(_, effect)| *effect).collect();
    (!missing.is_empty()).then(|| {
        format!(
            "HOST_ROOT={} has no folder {}: {} are not known; mount the host's folder there",
            root.display(),
            names.join(", "),
            effects.join(", ")
        )
    })
}

/// The model of the GPUs, as NVIDIA's driver names it; `None` if there are several models.
fn nvidia(folder: &Path) -> Option<String> {
    let cards = std::fs::read_dir(folder).ok()?.flatten();
    let mut names: Vec<_> =
        cards.filter_map(|card| value(&text(&card.path().join("information"))?, "Model")).collect();
    names.sort();
    names.dedup();
    names.pop().filter(|_| names.is_empty())
}

fn text(path: &Path) -> Option<String> {
    use std::io::Read;
    let mut text = String::new();
    std::fs::File::open(path).ok()?.take(BYTES_MOST).read_to_string(&mut text).ok()?;
    Some(text)
}

/// The value of the first line `key : value`.
fn value(text: &str, key: &str) -> Option<String> {
    let mut pairs = text.lines().filter_map(|line| line.split_once(':'));
    let (_, value) = pairs.find(|(name, _)| name.trim() == key)?;
    Some(value.trim().to_owned()).filter(|value| !value.is_empty())
}

fn kib(text: &str) -> Option<u64> {
    text.strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_names_the_processors() {
        // Fix list agent D1 D2: no label is needed to know the vendor and the model.
        let text =
            "processor\t: 0\nvendor_id\t: AuthenticAMD\nmodel name\t: AMD EPYC 9654 96-Core Processor\n";
        assert_eq!(value(text, "vendor_id").as_deref(), Some("AuthenticAMD"));
        assert_eq!(value(text, "model name").as_deref(), Some("AMD EPYC 9654 96-Core Processor"));
        assert_eq!(value(text, "model"), None, "a part of a key is another key");
        assert_eq!(kib("263849284 kB"), Some(270_181_666_816));
        assert_eq!(kib("much"), None);
        assert_eq!(missing(Path::new("/")), None);
        let said = missing(Path::new("/nowhere")).unwrap();
        assert!(said.starts_with("HOST_ROOT=/nowhere has no folder proc, sys, dev: "), "{said}");
        let nowhere = Identity::read(Some(Path::new("/nowhere")));
        assert_eq!(Identity { boot: None, ..nowhere.clone() }, Identity::default());
        assert_eq!(nowhere.boot, Identity::read(None).boot, "of the kernel that it runs on");
    }
}
