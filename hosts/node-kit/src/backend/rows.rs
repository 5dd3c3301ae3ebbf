//! The rows of the table: the facts of each HAL, and how it is opened.

use super::{HalFacts, HalRow, HalTarget};
use crate::uses::{GpuUseFiles, ProcessUses};
use crate::{CardFacts, CardInstance, Cards, HardwareSources, NodeAccess, RegisterAccess, Time};
use hal_amd::{Amd, AmdError, DeviceSelection, Hwmon, Where};
use hal_nvidia::{Absent, Library, Mig, MigInstance, NvidiaError, NvidiaGpuFacts, NvidiaProcess, NvidiaUse};
use hal_rapl::msr::{DeviceKind, MsrDevices, MsrIo, Msru};
use hal_rapl::{MsrRapl, RaplError};
use power_hal::{Key, Original, Originals, PowerHal, Setting};
use std::fmt::Display;

fn texts<T: Display>(all: &[T]) -> Vec<String> {
    all.iter().map(ToString::to_string).collect()
}

/// The keys of a HAL's GPUs.
fn keys<H: PowerHal>(hal: &H) -> Vec<Key> {
    hal.domains().iter().map(|(_, domain)| *domain.key()).collect()
}

/// A path below the root, for display.
fn shown(sources: &HardwareSources, path: &str) -> String {
    sources.root.join(path).display().to_string()
}

/// RAPL through powercap.
#[derive(Debug)]
pub(super) struct Powercap;

impl HalRow for Powercap {
    const FACTS: HalFacts = HalFacts {
        label: "powercap",
        what: "RAPL by the kernel's powercap files",
        caps: HalTarget::Package,
        vendor: None,
        class: "rapl",
        hardware: "rapl",
        access: "root; `/sys/class/powercap` writable",
        opt_in: None,
    };
    type Hal<O: Originals + Send + 'static> = hal_rapl::Powercap<Time, O>;

    fn open<O: Originals + Send + 'static>(
        sources: &HardwareSources,
        _: NodeAccess,
        time: Time,
        originals: O,
    ) -> Result<Self::Hal<O>, RaplError> {
        let hal = hal_rapl::Powercap::open(sources.root.clone(), time, originals)?;
        let kind = match sources.registers {
            RegisterAccess::Off => return Ok(hal),
            RegisterAccess::MsrSafe => DeviceKind::MsrSafe,
            RegisterAccess::Msr | RegisterAccess::Msru => DeviceKind::Msr,
        };
        hal.with_registers(Box::new(MsrDevices::new(sources.root.clone(), kind, hal_files::Access::Read)))
    }

    fn complaints<O: Originals + Send + 'static>(hal: &Self::Hal<O>) -> Vec<String> {
        texts(hal.problems())
    }

    fn absent<O: Originals + Send + 'static>(sources: &HardwareSources, _: &Self::Hal<O>) -> String {
        let class = sources.root.join("sys/class/powercap");
        let none = format!("no package zone in {}", class.display());
        let empty = std::fs::read_dir(class).is_ok_and(|mut folder| folder.next().is_none());
        if empty {
            return format!("{none}, which is there and empty: container runtimes mask it, see --root");
        }
        none
    }
}

/// RAPL through registers.
#[derive(Debug)]
pub(super) struct Msr;

impl HalRow for Msr {
    const FACTS: HalFacts = HalFacts {
        label: "msr",
        what: "RAPL by model-specific registers",
        caps: HalTarget::Package,
        vendor: None,
        class: "rapl",
        hardware: "msr",
        access: "root with `CAP_SYS_RAWIO`, the module `msr`, no lockdown; or msr-safe",
        opt_in: Some("to write registers taints the kernel"),
    };
    type Hal<O: Originals + Send + 'static> = MsrRapl<Box<dyn MsrIo + Send>, Time, O>;

    fn open<O: Originals + Send + 'static>(
        sources: &HardwareSources,
        access: NodeAccess,
        time: Time,
        originals: O,
    ) -> Result<Self::Hal<O>, RaplError> {
        let device = |kind, access| Box::new(MsrDevices::new(sources.root.clone(), kind, access));
        let io: Box<dyn MsrIo + Send> = match (sources.registers, access) {
            (RegisterAccess::Msru, NodeAccess::Control) => Box::new(Msru::new()),
            (RegisterAccess::MsrSafe, NodeAccess::Control) => {
                device(DeviceKind::MsrSafe, hal_files::Access::ReadWrite)
            }
            (RegisterAccess::MsrSafe, NodeAccess::Look) => {
                device(DeviceKind::MsrSafe, hal_files::Access::Read)
            }
            (RegisterAccess::Msr | RegisterAccess::Off, NodeAccess::Control) => {
                device(DeviceKind::Msr, hal_files::Access::ReadWrite)
            }
            (RegisterAccess::Msr | RegisterAccess::Off | RegisterAccess::Msru, NodeAccess::Look) => {
                device(DeviceKind::Msr, hal_files::Access::Read)
            }
        };
        MsrRapl::open(sources.root.clone(), io, time, originals)
    }

    fn complaints<O: Originals + Send + 'static>(_: &Self::Hal<O>) -> Vec<String> {
        Vec::new()
    }

    fn absent<O: Originals + Send + 'static>(sources: &HardwareSources, _: &Self::Hal<O>) -> String {
        format!("no register of a package answers in {}", shown(sources, "dev/cpu/*/msr"))
    }
}

/// Frequency policies.
#[derive(Debug)]
pub(super) struct Cpufreq;

impl HalRow for Cpufreq {
    const FACTS: HalFacts = HalFacts {
        label: "cpufreq",
        what: "frequency policies",
        caps: HalTarget::Policy,
        vendor: None,
        class: "dvfs",
        hardware: "cpufreq",
        access: "root; `/sys/devices/system/cpu/cpufreq` writable",
        opt_in: None,
    };
    type Hal<O: Originals + Send + 'static> = hal_cpufreq::Cpufreq<Time, O>;

    fn open<O: Originals + Send + 'static>(
        sources: &HardwareSources,
        _: NodeAccess,
        time: Time,
        originals: O,
    ) -> Result<Self::Hal<O>, hal_cpufreq::CpufreqError> {
        hal_cpufreq::Cpufreq::open(sources.root.clone(), time, originals)
    }

    fn complaints<O: Originals + Send + 'static>(hal: &Self::Hal<O>) -> Vec<String> {
        texts(hal.complaints())
    }

    fn was(original: &Original) -> Option<Setting> {
        hal_cpufreq::limit_in(original).map(Setting::Frequency)
    }

    fn absent<O: Originals + Send + 'static>(sources: &HardwareSources, _: &Self::Hal<O>) -> String {
        format!("no policy in {}", shown(sources, "sys/devices/system/cpu/cpufreq"))
    }
}

/// NVIDIA GPUs.
#[derive(Debug)]
pub(super) struct Nvidia;

impl HalRow for Nvidia {
    const FACTS: HalFacts = HalFacts {
        label: "nvidia",
        what: "NVIDIA GPUs by NVML",
        caps: HalTarget::Gpu,
        vendor: Some("nvidia"),
        class: "host-nvidia",
        hardware: "nvidia",
        access: "root; `libnvidia-ml.so.1` and `/dev/nvidia*`",
        opt_in: None,
    };
    type Hal<O: Originals + Send + 'static> = hal_nvidia::Nvidia<Time, O>;

    fn open<O: Originals + Send + 'static>(
        sources: &HardwareSources,
        _: NodeAccess,
        time: Time,
        originals: O,
    ) -> Result<Self::Hal<O>, NvidiaError> {
        hal_nvidia::Nvidia::open(sources.nvml_library(), sources.scope, time, originals)
    }

    fn complaints<O: Originals + Send + 'static>(hal: &Self::Hal<O>) -> Vec<String> {
        let mut said = texts(hal.complaints());
        said.extend(hal.absent().map(ToString::to_string));
        said
    }

    fn cards<O: Originals + Send + 'static>(hal: &Self::Hal<O>) -> Option<Cards> {
        let facts = hal.facts();
        let list: Vec<CardFacts> = facts.gpus.into_iter().map(nvidia_card).collect();
        // Without the library or the driver nobody knows which cards there are.
        let has_answered = hal.absent().is_none_or(|absent| matches!(absent, Absent::Gpu));
        let complete =
            has_answered && hal.complaints().is_empty() && list.len() == hal.domains().as_slice().len();
        Some(Cards { list, complete, answered: true })
    }

    fn processes<O: Originals + Send + 'static>(
        hal: &mut Self::Hal<O>,
        _: &mut GpuUseFiles,
    ) -> Vec<ProcessUses> {
        let of = |NvidiaUse { key, processes }| {
            (key, processes.into_iter().map(|NvidiaProcess { pid, percent }| (pid, percent)).collect())
        };
        hal.processes().into_iter().map(of).collect()
    }

    fn absent<O: Originals + Send + 'static>(_: &HardwareSources, hal: &Self::Hal<O>) -> String {
        hal.absent().map_or_else(|| "no GPU is listed".to_owned(), ToString::to_string)
    }
}

fn nvidia_card(gpu: NvidiaGpuFacts) -> CardFacts {
    let NvidiaGpuFacts { key, uuid, model, vram_mib, pci, mig, instances, persistence: _, links: _, island } =
        gpu;
    let instance = |MigInstance { uuid, profile, vram_mib }| CardInstance { id: uuid, profile, vram_mib };
    let instances = instances.into_iter().map(instance).collect();
    CardFacts {
        key,
        id: uuid,
        model,
        vram_mib,
        pci,
        divisible: mig.map(|mig| mig != Mig::Unsupported),
        sliced: mig.map(|mig| mig == Mig::On),
        instances,
        island,
    }
}

impl HardwareSources {
    /// NVIDIA's library.
    #[must_use]
    pub fn nvml_library(&self) -> Library {
        self.nvml.clone().map_or_else(Library::of_the_system, Library::at)
    }
}

/// EPYC sockets through hwmon.
#[derive(Debug)]
pub(super) struct AmdSocket;

impl HalRow for AmdSocket {
    const FACTS: HalFacts = HalFacts {
        label: "amd-socket",
        what: "EPYC sockets by hwmon",
        caps: HalTarget::Package,
        vendor: None,
        class: "hsmp",
        hardware: "amd",
        access: "root; `/sys/class/hwmon` writable",
        opt_in: None,
    };
    type Hal<O: Originals + Send + 'static> = Amd<Hwmon, Time, O>;

    fn open<O: Originals + Send + 'static>(
        sources: &HardwareSources,
        _: NodeAccess,
        time: Time,
        originals: O,
    ) -> Result<Self::Hal<O>, AmdError> {
        Amd::open(Hwmon::new(sources.root.clone(), DeviceSelection::Sockets), time, originals)
    }

    fn complaints<O: Originals + Send + 'static>(hal: &Self::Hal<O>) -> Vec<String> {
        texts(hal.complaints())
    }

    fn absent<O: Originals + Send + 'static>(sources: &HardwareSources, _: &Self::Hal<O>) -> String {
        format!("no amd_hsmp_hwmon in {}", shown(sources, "sys/class/hwmon"))
    }
}

/// EPYC sockets through their mailbox.
#[derive(Debug)]
pub(super) struct Hsmp;

impl HalRow for Hsmp {
    const FACTS: HalFacts = HalFacts {
        label: "hsmp",
        what: "EPYC sockets by HSMP",
        caps: HalTarget::Package,
        vendor: None,
        class: "hsmp",
        hardware: "amd",
        access: "root; `/dev/hsmp`",
        opt_in: None,
    };
    type Hal<O: Originals + Send + 'static> = Amd<hal_amd::Hsmp<hal_amd::DevHsmp>, Time, O>;

    fn open<O: Originals + Send + 'static>(
        sources: &HardwareSources,
        _: NodeAccess,
        time: Time,
        originals: O,
    ) -> Result<Self::Hal<O>, AmdError> {
        Amd::open(hal_amd::Hsmp::new(sources.root.clone()), time, originals)
    }

    fn complaints<O: Originals + Send + 'static>(hal: &Self::Hal<O>) -> Vec<String> {
        texts(hal.complaints())
    }

    fn absent<O: Originals + Send + 'static>(sources: &HardwareSources, _: &Self::Hal<O>) -> String {
        format!("no {}, or its sockets are in hwmon", shown(sources, "dev/hsmp"))
    }
}

/// AMD GPUs through hwmon.
#[derive(Debug)]
pub(super) struct AmdGpu;

impl HalRow for AmdGpu {
    const FACTS: HalFacts = HalFacts {
        label: "amd-gpu",
        what: "AMD GPUs by hwmon",
        caps: HalTarget::Gpu,
        vendor: Some("amd"),
        class: "host-amd",
        hardware: "amd",
        access: "root; `/sys/class/hwmon` writable",
        opt_in: None,
    };
    type Hal<O: Originals + Send + 'static> = Amd<Hwmon, Time, O>;

    fn open<O: Originals + Send + 'static>(
        sources: &HardwareSources,
        _: NodeAccess,
        time: Time,
        originals: O,
    ) -> Result<Self::Hal<O>, AmdError> {
        Amd::open(Hwmon::new(sources.root.clone(), DeviceSelection::Gpus), time, originals)
    }

    fn complaints<O: Originals + Send + 'static>(hal: &Self::Hal<O>) -> Vec<String> {
        texts(hal.complaints())
    }

    fn processes<O: Originals + Send + 'static>(
        hal: &mut Self::Hal<O>,
        files: &mut GpuUseFiles,
    ) -> Vec<ProcessUses> {
        files.by_drm_and_kfd(&keys(hal))
    }

    fn was(original: &Original) -> Option<Setting> {
        hal_amd::clock_in(original).map(Setting::Frequency)
    }

    fn absent<O: Originals + Send + 'static>(sources: &HardwareSources, _: &Self::Hal<O>) -> String {
        format!("no amdgpu with power1_cap in {}", shown(sources, "sys/class/hwmon"))
    }
}

/// AMD GPUs through ROCm SMI.
#[derive(Debug)]
pub(super) struct Rocm;

impl HalRow for Rocm {
    const FACTS: HalFacts = HalFacts {
        label: "rocm",
        what: "AMD GPUs by ROCm SMI",
        caps: HalTarget::Gpu,
        vendor: Some("amd"),
        class: "host-amd",
        hardware: "amd",
        access: "root; `librocm_smi64` and `/dev/kfd`",
        opt_in: None,
    };
    type Hal<O: Originals + Send + 'static> = Amd<hal_amd::Rocm, Time, O>;

    fn open<O: Originals + Send + 'static>(
        sources: &HardwareSources,
        _: NodeAccess,
        time: Time,
        originals: O,
    ) -> Result<Self::Hal<O>, AmdError> {
        Amd::open(hal_amd::Rocm::new(sources.root.clone(), sources.rocm.clone()), time, originals)
    }

    fn complaints<O: Originals + Send + 'static>(hal: &Self::Hal<O>) -> Vec<String> {
        texts(hal.complaints())
    }

    fn processes<O: Originals + Send + 'static>(
        hal: &mut Self::Hal<O>,
        files: &mut GpuUseFiles,
    ) -> Vec<ProcessUses> {
        files.by_drm_and_kfd(&keys(hal))
    }

    fn absent<O: Originals + Send + 'static>(sources: &HardwareSources, _: &Self::Hal<O>) -> String {
        match &sources.rocm {
            Where::Installed => "no GPU of an installed librocm_smi64, or its GPUs are in hwmon".to_owned(),
            Where::At(file) => format!("no GPU of {}, or its GPUs are in hwmon", file.display()),
        }
    }
}

/// Intel GPUs.
#[derive(Debug)]
pub(super) struct Intel;

impl HalRow for Intel {
    const FACTS: HalFacts = HalFacts {
        label: "intel",
        what: "Intel GPUs by hwmon",
        caps: HalTarget::Gpu,
        vendor: Some("intel"),
        class: "host-intel",
        hardware: "intel",
        access: "root; `/sys/class/hwmon` writable",
        opt_in: None,
    };
    type Hal<O: Originals + Send + 'static> = hal_intel::Intel<Time, O>;

    fn open<O: Originals + Send + 'static>(
        sources: &HardwareSources,
        _: NodeAccess,
        time: Time,
        originals: O,
    ) -> Result<Self::Hal<O>, hal_intel::IntelError> {
        hal_intel::Intel::open(hal_intel::IntelHwmon::new(sources.root.clone()), time, originals)
    }

    fn complaints<O: Originals + Send + 'static>(hal: &Self::Hal<O>) -> Vec<String> {
        texts(hal.complaints())
    }

    fn processes<O: Originals + Send + 'static>(
        hal: &mut Self::Hal<O>,
        files: &mut GpuUseFiles,
    ) -> Vec<ProcessUses> {
        files.by_drm(&keys(hal))
    }

    fn was(original: &Original) -> Option<Setting> {
        hal_intel::clock_in(original).map(Setting::Frequency)
    }

    fn absent<O: Originals + Send + 'static>(sources: &HardwareSources, _: &Self::Hal<O>) -> String {
        format!("no i915 or xe with powerN_max in {}", shown(sources, "sys/class/hwmon"))
    }
}
