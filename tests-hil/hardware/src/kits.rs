//! Each way to power hardware, with all that a deed needs to be done with it, whichever it is.

use crate::args::{Args, Hardware};
use hal_amd::{Amd, Devices, Hsmp, Hwmon, Rocm};
use hal_cpufreq::Cpufreq;
use hal_files::{Access, Root};
use hal_nvidia::{Library, Nvidia};
use hal_rapl::msr::{Device, DeviceKind};
use hal_rapl::{MsrRapl, Powercap};
use node_kit::{BackendKind, Share, Sources, Time};
use power_hal::contract::Ledger;
use power_hal::{Control, ErrorKind, Key, Original, Originals, PowerHal};
use std::fmt::Display;
use std::path::Path;

/// The journal that a HAL is opened with.
#[derive(Clone, Debug)]
pub(crate) enum Book {
    /// It takes nothing, so that the port writes nothing.
    Closed,
    /// The node's.
    Of(Share),
}

impl Originals for Book {
    fn keep(&mut self, domain: &Key, control: Control, original: &Original) -> Result<(), ErrorKind> {
        match self {
            Self::Closed => Err(ErrorKind::PermissionDenied),
            Self::Of(share) => share.keep(domain, control, original),
        }
    }

    fn kept(&self, domain: &Key, control: Control) -> Option<Original> {
        match self {
            Self::Closed => None,
            Self::Of(share) => share.kept(domain, control),
        }
    }

    fn forget(&mut self, domain: &Key, control: Control) -> Result<(), ErrorKind> {
        match self {
            Self::Closed => Ok(()),
            Self::Of(share) => share.forget(domain, control),
        }
    }
}

/// A way to power hardware.
pub(crate) struct Kit<'a, H: PowerHal> {
    /// Which one.
    pub(crate) kind: BackendKind,
    /// Opens it.
    pub(crate) open: &'a dyn Fn(Book) -> Result<H, H::Error>,
    /// What it could not make sense of.
    pub(crate) said: fn(&H) -> Vec<String>,
    /// What was looked for and not found.
    pub(crate) absent: &'a dyn Fn(&H) -> String,
}

/// What is done with each way.
pub(crate) trait Deed {
    /// Does it with one.
    fn on<H>(&mut self, kit: &Kit<'_, H>)
    where
        H: PowerHal<Originals = Ledger<Book>, Error: Display>;

    /// Leaves one alone, for a reason.
    fn leave(&mut self, _kind: BackendKind, _why: &str) {}
}

/// Does it with each way.
pub(crate) fn each(args: &Args, deed: &mut impl Deed) {
    for kind in BackendKind::ALL {
        if kind == BackendKind::Msr && args.write && !args.requires(Hardware::Msr) {
            deed.leave(kind, "to write registers taints the kernel; --require msr does it");
        } else {
            one(args, kind, deed);
        }
    }
}

/// Where the hardware is.
pub(crate) fn sources(args: &Args) -> Sources {
    let sources = args.root.as_deref().map_or_else(Sources::machine, Sources::below);
    let nvml = args.nvml.clone().or(sources.nvml);
    Sources { nvml, ..sources }
}

/// The library of the NVIDIA GPUs.
pub(crate) fn nvml(sources: &Sources) -> Library {
    sources.nvml.clone().map_or_else(Library::of_the_system, Library::at)
}

/// Does it with one way.
pub(crate) fn one(args: &Args, kind: BackendKind, deed: &mut impl Deed) {
    let sources = sources(args);
    let root = || sources.root.clone();
    let shown = |relative: &str| root().join(relative).display().to_string();
    let time = Time::real();
    let open_book = |book: Book| (time.clone(), Ledger::new(book));
    match kind {
        BackendKind::Powercap => {
            let open = |book| {
                let (time, journal) = open_book(book);
                Powercap::open(root(), time, journal)
            };
            let absent = |_: &_| powercap_absent(&root().join("sys/class/powercap"));
            deed.on(&Kit { kind, open: &open, said: |hal| texts(hal.problems()), absent: &absent });
        }
        BackendKind::Msr => {
            let open = |book: Book| {
                let access = match book {
                    Book::Closed => Access::Read,
                    Book::Of(_) => Access::ReadWrite,
                };
                let device = Device::new(root(), DeviceKind::Msr, access);
                let (time, journal) = open_book(book);
                MsrRapl::open(root(), device, time, journal)
            };
            let absent = |_: &_| format!("no register of a package answers in {}", shown("dev/cpu/*/msr"));
            deed.on(&Kit { kind, open: &open, said: |_| Vec::new(), absent: &absent });
        }
        BackendKind::Cpufreq => {
            let open = |book| {
                let (time, journal) = open_book(book);
                Cpufreq::open(root(), time, journal)
            };
            let absent = |_: &_| format!("no policy in {}", shown("sys/devices/system/cpu/cpufreq"));
            deed.on(&Kit { kind, open: &open, said: |hal| texts(hal.complaints()), absent: &absent });
        }
        BackendKind::Nvidia => {
            let open = |book| {
                let (time, journal) = open_book(book);
                Nvidia::open(nvml(&sources), sources.scope, time, journal)
            };
            let absent = |hal: &Nvidia<_, _>| {
                hal.absent().map_or_else(|| "no GPU is listed".to_owned(), ToString::to_string)
            };
            deed.on(&Kit { kind, open: &open, said: |hal| texts(hal.complaints()), absent: &absent });
        }
        BackendKind::AmdSocket => {
            let none = format!("no amd_hsmp_hwmon in {}", shown("sys/class/hwmon"));
            amd(kind, &open_book, || Hwmon::new(root(), Devices::Sockets), &none, deed);
        }
        BackendKind::AmdGpu => {
            let none = format!("no amdgpu with power1_cap in {}", shown("sys/class/hwmon"));
            amd(kind, &open_book, || Hwmon::new(root(), Devices::Gpus), &none, deed);
        }
        BackendKind::Hsmp => {
            let none = format!("no {}, or its sockets are in hwmon", shown("dev/hsmp"));
            amd(kind, &open_book, || Hsmp::new(root()), &none, deed);
        }
        BackendKind::Rocm => {
            let none = rocm_absent(&sources);
            amd(kind, &open_book, || Rocm::new(root(), sources.rocm.clone()), &none, deed);
        }
    }
}

fn amd<B: hal_amd::Backend>(
    kind: BackendKind,
    open_book: &dyn Fn(Book) -> (Time, Ledger<Book>),
    backend: impl Fn() -> B,
    none: &str,
    deed: &mut impl Deed,
) {
    let open = |book| {
        let (time, journal) = open_book(book);
        Amd::open(backend(), time, journal)
    };
    let absent = |_: &_| none.to_owned();
    deed.on(&Kit { kind, open: &open, said: |hal| texts(hal.complaints()), absent: &absent });
}

fn powercap_absent(class: &Path) -> String {
    let none = format!("no package zone in {}", class.display());
    let empty = std::fs::read_dir(class).is_ok_and(|mut folder| folder.next().is_none());
    if empty {
        return format!("{none}, which is there and empty: container runtimes mask it, see --root");
    }
    none
}

fn rocm_absent(sources: &Sources) -> String {
    match &sources.rocm {
        hal_amd::Where::Installed => {
            "no GPU of an installed librocm_smi64, or its GPUs are in hwmon".to_owned()
        }
        hal_amd::Where::At(file) => format!("no GPU of {}, or its GPUs are in hwmon", file.display()),
    }
}

/// The root as a person wrote it.
pub(crate) fn root(args: &Args) -> Root {
    sources(args).root
}

fn texts<T: Display>(all: &[T]) -> Vec<String> {
    all.iter().map(ToString::to_string).collect()
}
