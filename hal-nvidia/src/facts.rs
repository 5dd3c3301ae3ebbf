//! Facts about the GPUs other than power, for the GPU objects of a cluster. Reading them allocates; it is for
//! enumeration, never for the hot path.

use crate::error::{NvidiaError, NvmlFault, NvmlOperation};
use crate::ffi::Session;
use crate::islands::islands;
use crate::survey::Slot;
use nvml_wrapper::Device;
use nvml_wrapper::error::NvmlError;
use power_hal::Key;

/// All GPUs of a machine. A value that could not be read is `None`, and a complaint.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NvidiaFacts {
    /// The driver's version.
    pub driver: Option<String>,
    /// Each GPU, in the order of the domains.
    pub gpus: Vec<NvidiaGpuFacts>,
    /// Values that could not be read, except those that a card does not have.
    pub complaints: Vec<NvidiaError>,
}

/// One physical GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NvidiaGpuFacts {
    /// The key of its domain.
    pub key: Key,
    /// Its UUID as the driver and the kubelet's device plugin write it: `GPU-8f1e…`.
    pub uuid: String,
    /// The driver's name of its model: `NVIDIA H200`.
    pub model: Option<String>,
    /// The size of its memory in MiB, including the reserved part, as `nvidia-smi` shows it.
    pub vram_mib: Option<u64>,
    /// Its address, as the kernel writes it: `0000:c1:00.0`.
    pub pci: Option<String>,
    /// Whether it is divided into instances.
    pub mig: Option<Mig>,
    /// Its MIG instances, in the order of their UUIDs.
    pub instances: Vec<MigInstance>,
    /// Whether the driver keeps it initialised while no program uses it. Without that its power limit is lost as soon
    /// as the last program that uses it ends, including this one.
    pub persistence: Option<bool>,
    /// The number of its active NVLinks.
    pub links: u16,
    /// GPUs that are connected by NVLink have the same number here; a GPU without such a connection has `None`.
    pub island: Option<u16>,
}

/// Whether a GPU is divided into MIG instances. They share its limit, and no hardware divides its power between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mig {
    /// It cannot be divided.
    Unsupported,
    /// It is not divided.
    Off,
    /// It is divided.
    On,
}

/// A MIG instance, which a pod can have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MigInstance {
    /// Its UUID as the driver and the kubelet's device plugin write it: `MIG-3f1e…`.
    pub uuid: String,
    /// Its profile as the resource `nvidia.com/mig-…` has it: `1g.10gb`.
    pub profile: Option<String>,
    /// The size of its memory in MiB.
    pub vram_mib: Option<u64>,
}

/// More than any card has.
const INSTANCES_MAX: u32 = 32;

/// The maximum for a card, by nvml.h.
const LINKS_MAX: u32 = 18;
/// A link to the CPU connects no two cards.
const KIND_NPU: u32 = 1;

impl NvidiaFacts {
    pub(crate) fn of(session: &Session, slots: &[Slot]) -> Self {
        let mut facts = Self::default();
        let driver = session.nvml().sys_driver_version();
        match driver {
            Ok(driver) => facts.driver = Some(driver),
            Err(error) => {
                facts
                    .complaints
                    .push(NvidiaError::all(NvmlOperation::Fact("driver's version"), error.into()));
            }
        }
        let (mut addresses, mut links) = (Vec::new(), Vec::new());
        for slot in slots {
            let Some(device) = session.device(slot.card) else { continue };
            let mut asked = Asked { key: slot.key, complaints: &mut facts.complaints };
            let address =
                asked.fact("PCI address", device.pci_info()).and_then(|pci| Key::gpu(&pci.bus_id).ok());
            let remotes = remotes(session, slot, &device, &mut asked);
            let gpu = asked.gpu(&device, address, remotes.len());
            links.extend(remotes.into_iter().flatten().map(|remote| (facts.gpus.len(), remote)));
            addresses.push(address);
            facts.gpus.push(gpu);
        }
        for (gpu, island) in facts.gpus.iter_mut().zip(islands(&addresses, &links)) {
            gpu.island = island;
        }
        facts
    }
}

/// A card that is being queried.
struct Asked<'c> {
    key: Key,
    complaints: &'c mut Vec<NvidiaError>,
}

impl Asked<'_> {
    /// The answer. A feature that the card lacks gives `None`, and so does any other failure, which is also a
    /// complaint.
    fn fact<T>(&mut self, what: &'static str, answer: Result<T, impl Into<NvmlFault>>) -> Option<T> {
        let fault = match answer {
            Ok(value) => return Some(value),
            Err(error) => error.into(),
        };
        if !fault.is_lack() {
            self.complaints.push(NvidiaError::at(self.key, NvmlOperation::Fact(what), fault));
        }
        None
    }

    fn gpu(&mut self, device: &Device<'_>, address: Option<Key>, links: usize) -> NvidiaGpuFacts {
        let bare = self.key.as_str().trim_start_matches("gpu-");
        let uuid = format!("GPU-{bare}");
        let mig = self.mig(device.mig_mode().map(|mode| mode.current));
        NvidiaGpuFacts {
            key: self.key,
            uuid: self.fact("UUID", device.uuid()).unwrap_or(uuid),
            model: self.fact("model", device.name()),
            vram_mib: self
                .fact("memory", device.memory_info())
                .map(|memory| memory.total >> 20)
                .filter(|&mib| mib > 0),
            pci: address.map(|key| key.as_str().trim_start_matches("gpu-").to_owned()),
            mig,
            instances: if mig == Some(Mig::On) { self.instances(device) } else { Vec::new() },
            persistence: self.fact("persistence mode", device.is_in_persistent_mode()),
            links: u16::try_from(links).unwrap_or(u16::MAX),
            island: None,
        }
    }

    /// The instances of a divided card. One without a UUID is left out: nobody can be told to have it.
    fn instances(&mut self, device: &Device<'_>) -> Vec<MigInstance> {
        let most = self.fact("number of MIG instances", device.mig_device_count()).unwrap_or(0);
        let mut all = Vec::new();
        for index in 0..most.min(INSTANCES_MAX) {
            let instance = match device.mig_device_by_index(index).map_err(NvmlFault::from) {
                Ok(instance) => instance,
                // Not every number up to the highest has an instance.
                Err(NvmlFault::Code(2 | 6)) => continue,
                Err(fault) => {
                    self.fact::<()>("MIG instances", Err(fault));
                    break;
                }
            };
            let Some(uuid) = self.fact("UUID of a MIG instance", instance.uuid()) else { continue };
            let name = self.fact("name of a MIG instance", instance.name());
            let memory = self.fact("memory of a MIG instance", instance.memory_info());
            all.push(MigInstance {
                uuid,
                profile: name.as_deref().and_then(profile),
                vram_mib: memory.map(|memory| memory.total >> 20).filter(|&mib| mib > 0),
            });
        }
        all.sort_unstable_by(|one, other| one.uuid.cmp(&other.uuid));
        all
    }

    fn mig(&mut self, mode: Result<u32, NvmlError>) -> Option<Mig> {
        match mode.map_err(NvmlFault::from) {
            Ok(0) => Some(Mig::Off),
            Ok(1) => Some(Mig::On),
            Ok(_) => self.fact("MIG mode", Err(NvmlFault::Unreadable)),
            Err(fault) if fault.is_lack() => Some(Mig::Unsupported),
            Err(fault) => self.fact("MIG mode", Err(fault)),
        }
    }
}

/// The profile in the driver's name of an instance, such as `NVIDIA H100 80GB HBM3 MIG 1g.10gb+me`.
fn profile(name: &str) -> Option<String> {
    let (_, profile) = name.rsplit_once(" MIG ")?;
    Some(profile.trim().replace('+', ".")).filter(|profile| !profile.is_empty())
}

/// For each active link, the device at its other end; `None` if it connects no cards, or is unknown.
fn remotes(session: &Session, slot: &Slot, device: &Device<'_>, asked: &mut Asked<'_>) -> Vec<Option<Key>> {
    let mut remotes = Vec::new();
    for number in 0..LINKS_MAX {
        let link = device.link_wrapper_for(number);
        match link.is_active().map_err(NvmlFault::from) {
            Ok(true) => {}
            // For a link that this card does not have the answer is an invalid argument or not supported; other links
            // may exist.
            Ok(false) | Err(NvmlFault::Code(2 | 3)) => continue,
            Err(NvmlFault::Missing) => break,
            Err(fault) => {
                asked.fact::<()>("NVLinks", Err(fault));
                break;
            }
        }
        let kind = session.remote_kind(slot.card, number);
        let joins = kind.is_ok_and(|kind| kind != KIND_NPU) || kind.is_err_and(NvmlFault::is_lack);
        let remote = link.remote_pci_info().ok().filter(|_| joins);
        // An address of all ones means a device that the driver does not see.
        let remote = remote.filter(|pci| !pci.bus_id.to_ascii_lowercase().starts_with("ffffffff"));
        remotes.push(remote.and_then(|pci| Key::gpu(&pci.bus_id).ok()));
    }
    remotes
}
