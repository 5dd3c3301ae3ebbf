//! The makers of the processors and the GPUs, in the words of the status: from the machine, else from the node's
//! labels.

use joulie_api::labels::node;
use std::collections::BTreeMap;

type Labels = BTreeMap<String, String>;

/// The vendor of the processors. AMD and Intel are named by the vendor string that their processors report.
pub(super) fn cpu(found: Option<&str>, labels: &Labels) -> Option<String> {
    let labelled = node::NFD_CPU_VENDORS.iter().filter_map(|key| labels.get(*key).map(String::as_str));
    let name = found.into_iter().chain(labelled).map(str::trim).find(|name| !name.is_empty())?;
    let vendor = match name.to_ascii_lowercase().as_str() {
        "amd" | "authenticamd" => "AuthenticAMD",
        "intel" | "genuineintel" => "GenuineIntel",
        _ => name,
    };
    Some(vendor.to_owned())
}

/// The vendors of the GPUs that the labels name, in the order in which their drivers are asked.
pub(super) fn gpus(labels: &Labels) -> impl Iterator<Item = &'static str> + '_ {
    let vendors = [("10de", "nvidia"), ("1002", "amd"), ("8086", "intel")];
    vendors.into_iter().filter(|(id, _)| has_display(labels, id)).map(|(_, vendor)| vendor)
}

/// The PCI classes of a GPU: displays, 3D controllers, accelerators; the empty one is for a label that names no class.
const CLASSES: [&str; 5] = ["", "0300_", "0302_", "0380_", "1200_"];

fn has_display(labels: &Labels, id: &str) -> bool {
    CLASSES.iter().any(|class| {
        let key = format!("{}{class}{id}.present", node::NFD_PCI);
        labels.get(&key).is_some_and(|value| value.trim().eq_ignore_ascii_case("true"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(of: &[(&str, &str)]) -> Labels {
        let key = |key: &&str| format!("feature.node.kubernetes.io/{key}");
        of.iter().map(|(name, value)| (key(name), (*value).to_owned())).collect()
    }

    #[test]
    fn a_vendor_has_one_name_whoever_says_it() {
        // Agent table, row 1.
        for (said, vendor) in [
            ("AMD", Some("AuthenticAMD")),
            ("AuthenticAMD", Some("AuthenticAMD")),
            ("intel", Some("GenuineIntel")),
            ("GenuineIntel", Some("GenuineIntel")),
            ("", None),
            ("HiSilicon", Some("HiSilicon")),
        ] {
            assert_eq!(cpu(None, &labels(&[("cpu-vendor", said)])).as_deref(), vendor, "{said:?}");
        }
        // Agent table, row 2.
        let both = labels(&[("cpu-vendor", "AMD"), ("cpu-model.vendor_id", "GenuineIntel")]);
        assert_eq!(cpu(None, &both).as_deref(), Some("AuthenticAMD"));
        assert_eq!(
            cpu(Some("GenuineIntel"), &both).as_deref(),
            Some("GenuineIntel"),
            "the machine knows best"
        );
        assert_eq!(cpu(None, &Labels::new()), None);
    }

    #[test]
    fn gpus_are_known_by_their_pci_labels() {
        // Agent table, row 3.
        let two = labels(&[
            ("cpu-model.vendor_id", "GenuineIntel"),
            ("pci-0300_10de.present", "true"),
            ("pci-0302_1002.present", "true"),
        ]);
        assert_eq!(cpu(None, &two).as_deref(), Some("GenuineIntel"));
        assert_eq!(gpus(&two).collect::<Vec<_>>(), ["nvidia", "amd"]);
        // Agent table, row 31. Fix list agent D5: an MI300X is an accelerator, and no display.
        for (label, vendor) in
            [("pci-10de.present", "nvidia"), ("pci-1002.present", "amd"), ("pci-1200_1002.present", "amd")]
        {
            assert_eq!(gpus(&labels(&[(label, "true")])).collect::<Vec<_>>(), [vendor], "{label}");
        }
        assert_eq!(
            gpus(&labels(&[("pci-10de.present", "false"), ("pci-0200_8086.present", "true")])).count(),
            0
        );
    }
}
