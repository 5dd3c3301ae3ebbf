//! What the kernel's files of the PCI bus say of a card.

use std::fs;
use std::path::{Path, PathBuf};

/// What they say; what they do not say is missing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct PciFacts {
    pub(super) numa_node: Option<u16>,
    /// The name of the root, as `pci0000:c0`.
    pub(super) root: Option<String>,
    /// AMD's driver: the memory, the model, and the cards that xGMI joins.
    pub(super) vram_mib: Option<u64>,
    pub(super) model: Option<String>,
    pub(super) hive: Option<u64>,
}

/// A file of one value has no more.
const BYTES_MOST: usize = 256;

fn folder(root: &Path, address: &str) -> Option<PathBuf> {
    // An address as the kernel writes it, and nothing that leads elsewhere.
    let is_plain = address.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b':' || byte == b'.');
    (is_plain && !address.contains("..") && !address.is_empty())
        .then(|| root.join("sys/bus/pci/devices").join(address))
}

/// Whether the bus lists a device at this address.
pub(super) fn is_there(root: &Path, address: &str) -> bool {
    folder(root, address).is_some_and(|folder| fs::symlink_metadata(folder).is_ok())
}

impl PciFacts {
    pub(super) fn read(root: &Path, address: &str) -> Self {
        let Some(folder) = folder(root, address) else { return Self::default() };
        let text = |name: &str| {
            let text = fs::read_to_string(folder.join(name)).ok()?;
            let text = text.trim();
            (!text.is_empty() && text.len() <= BYTES_MOST).then(|| text.to_owned())
        };
        let link = fs::read_link(&folder).ok();
        let names = link.iter().flat_map(|link| link.iter()).filter_map(|name| name.to_str());
        Self {
            // A machine without memory nodes says -1.
            numa_node: text("numa_node").and_then(|text| text.parse().ok()),
            root: names.filter(|name| name.starts_with("pci")).map(str::to_owned).next(),
            vram_mib: text("mem_info_vram_total")
                .and_then(|text| text.parse::<u64>().ok())
                .map(|bytes| bytes >> 20)
                .filter(|&mib| mib > 0),
            model: text("product_name"),
            hive: text("xgmi_hive_info/xgmi_hive_id")
                .and_then(|text| text.parse().ok())
                .filter(|&hive| hive > 0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_leads_nowhere_else_and_missing_files_say_nothing() {
        let root = Path::new("/nowhere");
        for address in ["", "..", "0000:c1:00.0/../..", "/etc", "a b", "0000:c1:00..0"] {
            assert_eq!(folder(root, address), None, "{address}");
            assert!(!is_there(root, address));
        }
        assert_eq!(PciFacts::read(root, "0000:c1:00.0"), PciFacts::default());
        assert!(folder(root, "0000:c1:00.0").is_some());
    }
}
