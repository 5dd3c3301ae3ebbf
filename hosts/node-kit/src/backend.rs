//! The backends of a node: which ones there are, and how each is opened.

use crate::driver::{Device, Driver, Trouble};
use crate::journal::Share;
use crate::{Access, Registers, Sources, Time};
use hal_amd::{Amd, Devices, Hsmp, Hwmon, Rocm};
use hal_cpufreq::Cpufreq;
use hal_nvidia::{Library, Nvidia};
use hal_rapl::msr::DeviceKind;
use hal_rapl::{MsrRapl, Powercap};
use std::fmt::Display;

/// A way to reach hardware. Each has a thread of its own, and no device is reached by two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BackendKind {
    /// RAPL by the kernel's powercap files.
    Powercap,
    /// RAPL by model-specific registers; opt-in.
    Msr,
    /// Frequency policies.
    Cpufreq,
    /// Sockets of EPYC by hwmon.
    AmdSocket,
    /// Sockets of EPYC by their mailbox, where hwmon does not show them.
    Hsmp,
    /// NVIDIA GPUs.
    Nvidia,
    /// AMD GPUs by hwmon.
    AmdGpu,
    /// AMD GPUs by ROCm SMI, where hwmon does not show them.
    Rocm,
}

impl BackendKind {
    /// Every backend.
    pub const ALL: [Self; 8] = [
        Self::Powercap,
        Self::Msr,
        Self::Cpufreq,
        Self::AmdSocket,
        Self::Hsmp,
        Self::Nvidia,
        Self::AmdGpu,
        Self::Rocm,
    ];

    /// A short word for a metric label or a journal.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Powercap => "powercap",
            Self::Msr => "msr",
            Self::Cpufreq => "cpufreq",
            Self::AmdSocket => "amd-socket",
            Self::Hsmp => "hsmp",
            Self::Nvidia => "nvidia",
            Self::AmdGpu => "amd-gpu",
            Self::Rocm => "rocm",
        }
    }

    /// The backend with this label.
    #[must_use]
    pub fn from_label(label: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.label() == label)
    }
}

/// A backend that is to be opened.
pub(crate) struct Wanted {
    pub(crate) kind: BackendKind,
    pub(crate) sources: Sources,
    pub(crate) access: Access,
}

impl Wanted {
    /// Opens it. Absent hardware is a device without domains.
    pub(crate) fn open(&self, time: &Time, share: Share) -> Result<Box<dyn Device>, Trouble> {
        let root = || self.sources.root.clone();
        let (time, journal) = (time.clone(), share.clone());
        Ok(match self.kind {
            BackendKind::Powercap => {
                let hal = Powercap::open(root(), time, journal).map_err(Trouble::of)?;
                Box::new(Driver::new(hal, share, |hal| texts(hal.problems())))
            }
            BackendKind::Msr => {
                let hal = MsrRapl::open(root(), self.registers(), time, journal).map_err(Trouble::of)?;
                Box::new(Driver::new(hal, share, |_| Vec::new()))
            }
            BackendKind::Cpufreq => {
                let hal = Cpufreq::open(root(), time, journal).map_err(Trouble::of)?;
                Box::new(Driver::new(hal, share, |hal| texts(hal.complaints())))
            }
            BackendKind::AmdSocket => amd(Hwmon::new(root(), Devices::Sockets), time, journal, share)?,
            BackendKind::Hsmp => amd(Hsmp::new(root()), time, journal, share)?,
            BackendKind::Nvidia => {
                let library = self.sources.nvml.clone().map_or_else(Library::of_the_system, Library::at);
                let hal = Nvidia::open(library, self.sources.scope, time, journal).map_err(Trouble::of)?;
                Box::new(Driver::new(hal, share, |hal| {
                    let mut said = texts(hal.complaints());
                    said.extend(hal.absent().map(ToString::to_string));
                    said
                }))
            }
            BackendKind::AmdGpu => amd(Hwmon::new(root(), Devices::Gpus), time, journal, share)?,
            BackendKind::Rocm => amd(Rocm::new(root(), self.sources.rocm.clone()), time, journal, share)?,
        })
    }

    fn registers(&self) -> hal_rapl::msr::Device {
        let kind = match self.sources.registers {
            Registers::MsrSafe => DeviceKind::MsrSafe,
            Registers::Msr | Registers::Off => DeviceKind::Msr,
        };
        let access = match self.access {
            Access::Look => hal_files::Access::Read,
            Access::Control => hal_files::Access::ReadWrite,
        };
        hal_rapl::msr::Device::new(self.sources.root.clone(), kind, access)
    }
}

fn amd<B: hal_amd::Backend + Send + 'static>(
    backend: B,
    time: Time,
    journal: Share,
    share: Share,
) -> Result<Box<dyn Device>, Trouble> {
    let hal = Amd::open(backend, time, journal).map_err(Trouble::of)?;
    Ok(Box::new(Driver::new(hal, share, |hal| texts(hal.complaints()))))
}

fn texts<T: Display>(all: &[T]) -> Vec<String> {
    all.iter().map(ToString::to_string).collect()
}
