//! The processor model, if the kernel reports it, because some models have registers with the same numbers and
//! other meanings.

use crate::RaplError;
use hal_files::Root;
use std::path::Path;
use std::sync::Arc;

/// The vendor, family and model of a processor; all zero if the kernel does not report them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Part {
    vendor: u16,
    family: u16,
    model: u16,
}

const INTEL: u16 = 0x0000;

/// Silvermont and Airmont: energy in 2ⁿ µJ, power in multiples of 1 mW, windows linear.
const SMALL_ATOMS: [u16; 6] = [0x37, 0x4a, 0x4c, 0x4d, 0x5a, 0x5d];

/// Granite Rapids, Sierra Forest and Clearwater Forest: limits behind TPMI.
const TPMI: [u16; 4] = [0xad, 0xae, 0xaf, 0xdd];

impl Part {
    /// Reads `cpu:type:x86,ven0000fam0006mod0055:feature:…`.
    fn parse(modalias: &str) -> Option<Self> {
        let (_, rest) = modalias.split_once("ven")?;
        let field = |name: &str| {
            let (_, value) = rest.split_once(name)?;
            u16::from_str_radix(value.get(..4)?, 16).ok()
        };
        let vendor = u16::from_str_radix(rest.get(..4)?, 16).ok()?;
        Some(Self { vendor, family: field("fam")?, model: field("mod")? })
    }

    /// Why the registers of this part must not be used; `None` if they can be.
    pub(super) fn unsuitable(self) -> Option<&'static str> {
        let is_one_of =
            |models: &[u16]| self.vendor == INTEL && self.family == 6 && models.contains(&self.model);
        if is_one_of(&SMALL_ATOMS) {
            return Some("its registers count in units of their own");
        }
        is_one_of(&TPMI).then_some("its limits are behind TPMI")
    }

    /// Whether each die has its own registers, if there are several. AMD's registers are the package's.
    pub(super) const fn limits_dies(self) -> bool {
        self.vendor == INTEL
    }
}

/// The part of this machine.
pub(super) fn of(root: &Root) -> Part {
    // The line of a server's features is longer than any attribute that is read elsewhere.
    let alias = std::fs::read_to_string(root.join("sys/devices/system/cpu/modalias"));
    alias.ok().as_deref().and_then(Part::parse).unwrap_or_default()
}

/// A device of the TPMI driver for RAPL, whether its zones exist already or not.
pub(super) fn tpmi(root: &Root) -> Result<Option<Arc<Path>>, RaplError> {
    let folder = root.join("sys/bus/auxiliary/devices");
    let names = root.names(&folder)?;
    Ok(names.iter().find(|name| name.contains("tpmi-rapl")).map(|name| Arc::from(folder.join(name))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_read_from_its_alias() {
        let skylake = Part::parse("cpu:type:x86,ven0000fam0006mod0055:feature:,0000,0001\n").unwrap();
        assert_eq!(skylake, Part { vendor: 0, family: 6, model: 0x55 });
        assert_eq!(skylake.unsuitable(), None);
        assert!(skylake.limits_dies());
        let rome = Part::parse("cpu:type:x86,ven0002fam0017mod0031:feature:\n").unwrap();
        assert!(!rome.limits_dies() && rome.unsuitable().is_none());
        for bad in [
            "",
            "ven",
            "cpu:type:x86,ven00",
            "cpu:type:x86,venxxxxfam0006mod0055",
            "ven0000fam0006mod",
            "venéé",
        ] {
            assert_eq!(Part::parse(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn parts_with_other_units_or_with_tpmi_are_left_alone() {
        let intel = |model| Part { vendor: INTEL, family: 6, model };
        assert!(intel(0x37).unsuitable().is_some_and(|why| why.contains("units")));
        assert!(intel(0xad).unsuitable().is_some_and(|why| why.contains("TPMI")));
        assert_eq!(Part { vendor: 2, family: 0x1a, model: 0x37 }.unsuitable(), None);
    }
}
