//! Reads what the kernel says about the machine: once, from the same root as the hardware.

use std::path::Path;

/// What the kernel says about the machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Identity {
    pub(super) vendor: Option<String>,
    pub(super) model: Option<String>,
    pub(super) driver: Option<String>,
    /// The highest frequency without boost, in MHz.
    pub(super) nominal_mhz: Option<u32>,
    /// The lowest frequency at which power still falls faster than speed, in MHz.
    pub(super) nonlinear_mhz: Option<u32>,
    /// How fast the fastest link was that was up.
    pub(super) link_class: Option<&'static str>,
    pub(super) memory_bytes: Option<u64>,
    /// The models of NVIDIA's and of AMD's cards.
    pub(super) nvidia_model: Option<String>,
    pub(super) amd_model: Option<String>,
    /// The boot ID. Virtual hardware has one of its own if its root contains it.
    pub(super) boot: Option<String>,
}

/// The kernel's file with the boot ID, below the root.
const BOOT: &str = "proc/sys/kernel/random/boot_id";

/// More entries than the cards of a machine have, connectors and partitions included.
const CARDS_MOST: usize = 4_096;

/// More interfaces than a machine has; what is beyond is not asked.
const INTERFACES_MOST: usize = 1_024;

/// Far more than `/proc/cpuinfo` has for a thousand processors.
const BYTES_MOST: u64 = 8 << 20;

impl Identity {
    /// Reads the files. A value whose file is missing stays unknown: a machine below a root is never described by this
    /// machine's files.
    pub(super) fn read(root: Option<&Path>) -> Self {
        let root = root.unwrap_or_else(|| Path::new("/"));
        let cpuinfo = text(&root.join("proc/cpuinfo")).unwrap_or_default();
        let meminfo = text(&root.join("proc/meminfo")).unwrap_or_default();
        let cpu = root.join("sys/devices/system/cpu");
        let policy = cpu.join("cpufreq/policy0");
        let driver = policy.join("scaling_driver");
        Self {
            vendor: value(&cpuinfo, "vendor_id"),
            model: value(&cpuinfo, "model name"),
            driver: text(&driver).map(|text| text.trim().to_owned()).filter(|text| !text.is_empty()),
            nominal_mhz: mhz(&policy.join("base_frequency"), 1_000)
                .or_else(|| mhz(&cpu.join("cpu0/acpi_cppc/nominal_freq"), 1)),
            nonlinear_mhz: mhz(&policy.join("amd_pstate_lowest_nonlinear_freq"), 1_000),
            link_class: fastest_link(&root.join("sys/class/net")),
            memory_bytes: value(&meminfo, "MemTotal").and_then(|text| kib(&text)),
            nvidia_model: nvidia(&root.join("proc/driver/nvidia/gpus")),
            amd_model: amd(&root.join("sys/class/drm")),
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
    only(cards.filter_map(|card| value(&text(&card.path().join("information"))?, "Model")))
}

/// The model of the GPUs, as AMD's driver names those that store it; `None` if there are several models.
fn amd(folder: &Path) -> Option<String> {
    let cards =
        std::fs::read_dir(folder).ok()?.flatten().take(CARDS_MOST).map(|card| card.path().join("device"));
    let of_amd = |device: &std::path::PathBuf| {
        text(&device.join("vendor")).is_some_and(|vendor| vendor.trim() == "0x1002")
    };
    let name = |device: std::path::PathBuf| {
        let name = text(&device.join("product_name"))?.trim().to_owned();
        Some(name).filter(|name| !name.is_empty())
    };
    only(cards.filter(of_amd).filter_map(name))
}

/// The name, if all are the same.
fn only(names: impl Iterator<Item = String>) -> Option<String> {
    let mut names: Vec<_> = names.collect();
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

/// The frequency in a file, of which so many units are a MHz. Firmware that does not know it says 0.
fn mhz(path: &Path, units: u32) -> Option<u32> {
    let frequency: u32 = text(path)?.trim().parse().ok()?;
    frequency.checked_div(units).filter(|mhz| (1..=20_000).contains(mhz))
}

/// The class of the fastest link of the machine's own interfaces, in the words of the status. An interface without a link, and
/// one that is no device, does not tell a speed.
fn fastest_link(folder: &Path) -> Option<&'static str> {
    let interfaces = std::fs::read_dir(folder).ok()?.flatten().take(INTERFACES_MOST).map(|one| one.path());
    let speed = |interface: std::path::PathBuf| {
        let is_device = interface.join("device").exists();
        text(&interface.join("speed")).filter(|_| is_device)?.trim().parse::<u32>().ok()
    };
    interfaces.filter_map(speed).filter(|&mbit| mbit > 0 && mbit < u32::MAX).max().map(link_class)
}

/// The class of a speed in Mbit/s.
const fn link_class(mbit: u32) -> &'static str {
    match mbit {
        800_000 => "800G",
        400_000 => "400G",
        200_000 => "200G",
        100_000 => "100G",
        50_000 => "50G",
        40_000 => "40G",
        25_000 => "25G",
        10_000 => "10G",
        _ => "unknown",
    }
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

    #[test]
    fn frequencies_and_the_fastest_link_are_read_and_what_cannot_be_is_not_known() {
        let root = std::env::temp_dir().join(format!("joulie-identity-{}", std::process::id()));
        let put = |path: &str, text: &str| {
            let path = root.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        let seen = || {
            let Identity { nominal_mhz, nonlinear_mhz, link_class, .. } = Identity::read(Some(&root));
            (nominal_mhz, nonlinear_mhz, link_class)
        };
        let net = |name: &str, device: bool, speed: &str| {
            put(&format!("sys/class/net/{name}/speed"), speed);
            if device {
                put(&format!("sys/class/net/{name}/device/vendor"), "0x15b3\n");
            }
        };
        assert_eq!(seen(), (None, None, None));
        // A bridge has no device; a port without a link says -1, and a virtual card that it does not know.
        net("docker0", false, "400000\n");
        net("down", true, "-1\n");
        net("virtio", true, "4294967295\n");
        assert_eq!(seen().2, None);
        net("lan", true, "1000\n");
        // Facts 5.1: 1000 is unknown.
        assert_eq!(seen().2, Some("unknown"));
        net("ib0", true, "100000\n");
        net("eth1", true, "25000\n");
        put("sys/devices/system/cpu/cpu0/acpi_cppc/nominal_freq", "2400\n");
        put("sys/devices/system/cpu/cpufreq/policy0/amd_pstate_lowest_nonlinear_freq", "1502000\n");
        assert_eq!(seen(), (Some(2_400), Some(1_502), Some("100G")));
        put("sys/devices/system/cpu/cpufreq/policy0/base_frequency", "2000000\n");
        assert_eq!(seen().0, Some(2_000), "the driver's word comes first");
        for text in ["0\n", "-5\n", "much\n", "99999999999999999999\n", ""] {
            put("sys/devices/system/cpu/cpufreq/policy0/base_frequency", text);
            put("sys/devices/system/cpu/cpufreq/policy0/amd_pstate_lowest_nonlinear_freq", text);
            assert_eq!(seen(), (Some(2_400), None, Some("100G")), "{text:?}");
        }
        std::fs::remove_dir_all(&root).unwrap();
    }

    #[test]
    fn amds_cards_are_named_where_they_store_a_name_and_all_are_of_one_model() {
        let root = std::env::temp_dir().join(format!("joulie-models-{}", std::process::id()));
        let card = |name: &str, vendor: &str, model: Option<&str>| {
            let device = root.join("sys/class/drm").join(name).join("device");
            std::fs::create_dir_all(&device).unwrap();
            std::fs::write(device.join("vendor"), vendor).unwrap();
            if let Some(model) = model {
                std::fs::write(device.join("product_name"), model).unwrap();
            }
        };
        let model = || Identity::read(Some(&root)).amd_model;
        assert_eq!(model(), None);
        card("card0", "0x10de\n", Some("NVIDIA H100\n"));
        card("card1", "0x1002\n", None);
        card("card2", "0x1002\n", Some("\n"));
        assert_eq!(model(), None, "another maker's, and cards that store no name");
        card("card3", "0x1002\n", Some("AMD Instinct MI300X\n"));
        card("renderD131", "0x1002\n", Some("AMD Instinct MI300X\n"));
        assert_eq!(model().as_deref(), Some("AMD Instinct MI300X"));
        card("card4", "0x1002\n", Some("AMD Radeon PRO W7900\n"));
        assert_eq!(model(), None, "nobody can say which one a cap is for");
        std::fs::remove_dir_all(&root).unwrap();
    }
}
