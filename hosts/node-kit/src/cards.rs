//! What GPUs are, apart from their power: for the GPU objects of a cluster. No decision of a node depends on it.

use power_hal::Key;

/// A physical GPU. What is not known is missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CardFacts {
    /// The key of its domain.
    pub key: Key,
    /// What the device plugin of its maker calls it: NVIDIA's the UUID, others the PCI address.
    pub id: String,
    /// The driver's name of its model.
    pub model: Option<String>,
    /// The size of its memory in MiB.
    pub vram_mib: Option<u64>,
    /// Its PCI address, as the kernel writes it: `0000:c1:00.0`.
    pub pci: Option<String>,
    /// Whether it can be divided into instances.
    pub divisible: Option<bool>,
    /// Whether it is divided into instances.
    pub sliced: Option<bool>,
    /// These instances.
    pub instances: Vec<CardInstance>,
    /// Cards that are joined by links have the same number.
    pub island: Option<u16>,
}

impl CardFacts {
    /// A card of which only its domain is known.
    #[must_use]
    pub fn of(key: Key) -> Self {
        let id = key.as_str().trim_start_matches("gpu-").to_owned();
        // An address has two colons, and a UUID none.
        let pci = Some(id.clone()).filter(|id| id.matches(':').count() == 2);
        Self {
            key,
            id,
            model: None,
            vram_mib: None,
            pci,
            divisible: None,
            sliced: None,
            instances: Vec::new(),
            island: None,
        }
    }
}

/// A part of a card that a pod can have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CardInstance {
    /// What the device plugin of its maker calls it: NVIDIA's the UUID `MIG-…`.
    pub id: String,
    /// Its profile, as the name of its resource has it: `1g.10gb`.
    pub profile: Option<String>,
    /// The size of its memory in MiB.
    pub vram_mib: Option<u64>,
}

/// The GPUs of a backend.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cards {
    /// Those that are listed.
    pub list: Vec<CardFacts>,
    /// Whether there are no others: the driver has answered, and about each card.
    pub complete: bool,
    /// Whether the driver has answered when it was last asked. If not, the list is an earlier one.
    pub answered: bool,
}
