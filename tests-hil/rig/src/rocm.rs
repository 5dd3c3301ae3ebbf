//! AMD GPUs as the ROCm SMI library shows them: a folder `rocm`, which `tests-hil/rocm-stub` reads at every call. The
//! library reads and writes the hwmon files, so these files are those of the machine's hwmon devices, with the same
//! answers and the same faults.
//!
//! A device keeps its index while it is missing, as in a library that is not initialised again.
//!
//! Faults can be set on calls of the library ([`VirtualAttribute::RocmCall`]), as for NVIDIA.

use crate::faults::{Direction, Effect, Fault};
use crate::hwmon::HwmonChip;
use crate::machine::{HwmonSlot, RigMachine, VirtualAttribute};

/// Whether a device is a GPU.
pub(crate) fn is_gpu(slot: &HwmonSlot) -> bool {
    slot.hwmon.device != HwmonChip::Hsmp
}

/// Whether it is a GPU of AMD, which the library shows.
fn is_amd(slot: &HwmonSlot) -> bool {
    matches!(slot.hwmon.device, HwmonChip::Amdgpu { .. } | HwmonChip::VirtualFunction)
}

/// The bus address of a device in the library's encoding: the domain in the upper half, then bus, device and
/// function.
pub(crate) fn pci_id(device_path: &str) -> Option<u64> {
    let address = device_path.rsplit('/').next()?;
    let mut parts = address.split([':', '.']).map(|part| u64::from_str_radix(part, 16).ok());
    let (domain, bus, device, function) = (parts.next()??, parts.next()??, parts.next()??, parts.next()??);
    Some(domain << 32 | bus << 8 | device << 3 | function)
}

impl RigMachine {
    /// The indices of the GPUs among the hwmon devices, in the library's order.
    pub(crate) fn rocm_order(&self) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.hwmons.len()).filter(|&at| is_amd(&self.hwmons[at])).collect();
        if self.rocm_turned {
            order.reverse();
        }
        order
    }

    /// Reverses the order of the library's indices, as another start of it can do.
    pub fn renumber_rocm(&mut self) {
        self.rocm_turned = !self.rocm_turned;
        self.settle();
    }

    /// Hides the hwmon devices of the GPUs, as in a container without access to them: only the library can be used.
    pub fn mask_gpu_hwmon(&mut self) {
        self.gpus_in_hwmon = false;
        self.settle();
    }
}

impl Fault {
    /// A fault: a function of the ROCm SMI library returns `status` this many times: one of [`rocm_stub::FUNCTIONS`]
    /// for the GPU at an index of the hwmon devices, or `init` without an index.
    #[must_use]
    pub fn rocm(slot: Option<usize>, function: &'static str, status: u32, times: u32) -> Self {
        let effect = Effect::Answers(format!("{status}\n").into_bytes());
        Self { on: VirtualAttribute::RocmCall(slot, function), direction: Direction::Read, effect, times }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_encoded_as_the_library_encodes_it() {
        assert_eq!(pci_id("sys/devices/pci0000:00/0000:0c:00.0"), Some(0xc00));
        assert_eq!(pci_id("sys/devices/pci0001:00/0001:c1:1f.2"), Some((1 << 32) | 0xc1fa));
        assert_eq!(pci_id("sys/devices/platform/amd_hsmp.0"), None);
    }
}
