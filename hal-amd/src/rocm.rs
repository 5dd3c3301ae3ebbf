//! GPUs through the ROCm SMI library, where their hwmon is not accessible: the library writes the same `power1_cap`. As
//! soon as one GPU is in hwmon, [`Hwmon`](crate::Hwmon) lists all of them and this backend lists none.
//!
//! The library is loaded at run time. Where it is not installed, or finds no driver, there is no domain. Its index of a
//! GPU changes with every start, so a GPU is identified by its PCI address. Partitions have the address of their GPU,
//! and only the first of them is listed. Numbers are in µW.
//!
//! A GPU that is asleep is not read, if the root shows that state (`sys/bus/pci`). That the library wakes it at its own
//! start cannot be prevented.
//!
//! What holds a GPU back is read from the kernel's table of it (`gpu_metrics` below `sys/bus/pci`), if it is there: the structure
//! into which the library copies that table differs from release to release.
//!
//! The library does not distinguish a GPU in reset from a missing privilege; both are
//! [`PermissionDenied`](power_hal::ErrorKind::PermissionDenied) here.

mod state;
mod status;

pub use status::{Call, RsmiStatus};

use crate::ffi::RocmSmi;
use crate::hwmon::has_gpus;
use crate::hwmon::metrics::MetricsTable;
use crate::watts::{self, Told};
use crate::{AmdError, DeviceBackend};
use hal_files::hwmon::sleeps;
use hal_files::{Access, Attribute, Root};
use power_hal::{Control, Domain, Error, ErrorKind, Key, Measured, MemoryUse, Original, Sample};
use power_units::MicroWatts;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// amdgpu, below the library, has a unit of whole watts.
const STEP: MicroWatts = MicroWatts::new(1_000_000);

/// No machine has more GPUs than this; a larger answer is not valid.
const GPUS_MAX: u32 = 256;

/// The names under which the releases install the library; the loader searches them in its library paths.
const NAMES: [&str; 6] = [
    "librocm_smi64.so.7",
    "librocm_smi64.so.6",
    "librocm_smi64.so.5",
    "librocm_smi64.so.1",
    "librocm_smi64.so",
    "/opt/rocm/lib/librocm_smi64.so",
];

/// Where the library is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Where {
    /// Where the loader finds it, under one of its names.
    Installed,
    /// The file at this path.
    At(PathBuf),
}

/// The GPUs of the ROCm SMI library.
#[derive(Debug)]
pub struct Rocm {
    root: Root,
    place: Where,
    library: Option<Loaded>,
    found: Vec<Gpu>,
}

/// A library that stays loaded. It is restarted for each enumeration, since it enumerates devices at its start.
#[derive(Debug)]
struct Loaded {
    functions: RocmSmi,
    running: bool,
}

impl Loaded {
    fn start_anew(&mut self) -> Result<&RocmSmi, AmdError> {
        self.stop();
        self.functions.init().map_err(|status| AmdError::Rocm(None, Call::Init, status))?;
        self.running = true;
        Ok(&self.functions)
    }

    fn stop(&mut self) {
        if std::mem::take(&mut self.running) {
            self.functions.shut_down();
        }
    }
}

impl Drop for Loaded {
    fn drop(&mut self) {
        self.stop();
    }
}

#[derive(Debug)]
struct Gpu {
    index: u32,
    domain: Domain,
    told: Told,
    runtime_status: Option<Attribute>,
    metrics: Option<MetricsTable>,
}

impl Gpu {
    const fn key(&self) -> Key {
        *self.domain.key()
    }
}

/// The location of a GPU as the library encodes it: the domain in the upper half, the partition in bits 28 to 31, then
/// the bus, the device and the function. Releases that encode the partition in the function do so only for partitions,
/// since the function of a whole GPU is 0.
fn address(pci_id: u64) -> (bool, String) {
    let (domain, bus, slot) = (pci_id >> 32, (pci_id >> 8) & 0xff, (pci_id >> 3) & 0x1f);
    let whole = (pci_id >> 28) & 0xf == 0 && pci_id & 0x7 == 0;
    (whole, format!("{domain:04x}:{bus:02x}:{slot:02x}.0"))
}

impl Rocm {
    /// The GPUs of this library, unless hwmon below `root` has GPUs. Nothing is loaded yet.
    #[must_use]
    pub const fn new(root: Root, place: Where) -> Self {
        Self { root, place, library: None, found: Vec::new() }
    }

    /// The loaded library; `None` where it is not installed.
    fn load(&self, complaints: &mut Vec<AmdError>) -> Option<Loaded> {
        let names: Vec<&Path> = match &self.place {
            Where::Installed => NAMES.iter().map(Path::new).collect(),
            Where::At(path) => vec![path],
        };
        for name in names {
            match RocmSmi::load(name.as_os_str()) {
                Ok(functions) => return Some(Loaded { functions, running: false }),
                Err(error) => {
                    let words = error.to_string();
                    // If the library is installed but a dependency is missing, the text names that dependency instead.
                    let absent = format!("{}: cannot open shared object file: No such file", name.display());
                    if !words.starts_with(&absent) {
                        complaints.push(AmdError::Library(words.into()));
                    }
                }
            }
        }
        None
    }

    fn gpu(&self, at: usize) -> Result<(&RocmSmi, &Gpu), AmdError> {
        let running = self.library.as_ref().filter(|library| library.running).ok_or(AmdError::Gone)?;
        self.found.get(at).map(|gpu| (&running.functions, gpu)).ok_or(AmdError::Gone)
    }

    fn list(&self, library: &RocmSmi, complaints: &mut Vec<AmdError>) -> Result<Vec<Gpu>, AmdError> {
        let count = library.count().map_err(|status| AmdError::Rocm(None, Call::Count, status))?;
        let mut taken = BTreeSet::new();
        let mut list: Vec<Gpu> = (0..count.min(GPUS_MAX))
            .filter_map(|index| self.describe(library, index, complaints))
            .filter(|gpu| taken.insert(gpu.key()))
            .collect();
        list.sort_by_key(Gpu::key);
        Ok(list)
    }

    /// A GPU and its controls; `None` for a partition, a secondary die, and a GPU that can neither be measured nor
    /// capped.
    fn describe(&self, library: &RocmSmi, index: u32, complaints: &mut Vec<AmdError>) -> Option<Gpu> {
        let id = library.pci_id(index);
        let id = id.map_err(|status| complaints.push(AmdError::Rocm(None, Call::PciId, status))).ok()?;
        let (whole, address) = address(id);
        let mut domain = Domain::gpu(&address).ok().filter(|_| whole)?;
        let key = *domain.key();
        let file = |name: &str| {
            let path = self.root.join(&format!("sys/bus/pci/devices/{address}/{name}"));
            Attribute::device(path, Access::Read).ok()
        };
        let runtime_status = file("power/runtime_status");
        let before = self.found.iter().find(|before| before.key() == key);
        let asleep = before.filter(|_| sleeps(runtime_status.as_ref()));
        let known = before.and_then(|before| before.metrics.as_ref());
        let table = file("gpu_metrics");
        let metrics = table.and_then(|table| MetricsTable::open(table, known, asleep.is_some()));
        if let Some(before) = asleep {
            let (domain, told) = (before.domain, before.told);
            return Some(Gpu { index, domain, told, runtime_status, metrics });
        }
        let known = before.map(|before| before.told).unwrap_or_default();
        let told = told(library, index, key, known, complaints);
        if told.max == Some(MicroWatts::ZERO) {
            return None;
        }
        let has = |answer: Result<u64, RsmiStatus>| {
            answer.err().is_none_or(|status| status.kind() != ErrorKind::NotSupported)
        };
        if has(power(library, index)) {
            domain = domain.with_power_meter();
        }
        if has(library.cap(index)) {
            match told.limit(STEP) {
                Ok(limit) => domain = domain.with_power(limit),
                Err(bad) => complaints.push(AmdError::Range(key, bad)),
            }
        }
        let something = domain.meter().is_some() || domain.power().is_some();
        let mut domain = state::described(library, index, domain);
        if let Some(table) = &metrics {
            domain = table.describe(domain);
        }
        something.then_some(Gpu { index, domain, told, runtime_status, metrics })
    }
}

/// The range that the library reports, or the last known values where it reports none.
fn told(library: &RocmSmi, index: u32, key: Key, known: Told, complaints: &mut Vec<AmdError>) -> Told {
    let mut one = |call, answer: Result<u64, RsmiStatus>, known| {
        let answer = answer.map_err(|status| AmdError::Rocm(Some(key), call, status));
        let power = answer
            .and_then(|raw| watts::possible(MicroWatts::new(raw)).ok_or(AmdError::Impossible(key, call)));
        match power {
            Ok(power) => Some(power),
            Err(error) if error.kind() == ErrorKind::NotSupported => None,
            Err(error) => {
                complaints.push(error);
                known
            }
        }
    };
    let range = library.cap_range(index);
    Told {
        min: one(Call::Range, range.map(|(min, _)| min), known.min),
        max: one(Call::Range, range.map(|(_, max)| max), known.max),
        default: one(Call::Default, library.cap_default(index), known.default),
    }
}

/// Newer libraries have one function for the mean and the current power; older ones only have the mean.
fn power(library: &RocmSmi, index: u32) -> Result<u64, RsmiStatus> {
    match library.power(index) {
        Err(status) if status.kind() == ErrorKind::NotSupported => library.power_average(index),
        answer => answer,
    }
}

impl DeviceBackend for Rocm {
    type Error = AmdError;

    fn look(
        &mut self,
        _: &dyn Fn(&Key, Control) -> Option<Original>,
        complaints: &mut Vec<AmdError>,
    ) -> Result<Vec<Domain>, AmdError> {
        let loaded =
            if has_gpus(&self.root)? { None } else { self.library.take().or_else(|| self.load(complaints)) };
        self.library = None;
        let Some(mut loaded) = loaded else {
            self.found.clear();
            return Ok(Vec::new());
        };
        let list = loaded.start_anew().and_then(|library| self.list(library, complaints));
        self.library = Some(loaded);
        self.found = match list {
            Err(absent @ AmdError::Rocm(None, Call::Init, RsmiStatus::INIT_ERROR)) => {
                complaints.push(absent);
                Vec::new()
            }
            list => list?,
        };
        Ok(self.found.iter().map(|gpu| gpu.domain).collect())
    }

    fn awake(&self, at: usize) -> Result<(), AmdError> {
        let (_, gpu) = self.gpu(at)?;
        if sleeps(gpu.runtime_status.as_ref()) { Err(AmdError::Asleep(gpu.key())) } else { Ok(()) }
    }

    fn measured(&self, at: usize) -> Result<Measured, AmdError> {
        let (library, gpu) = self.gpu(at)?;
        let raw = power(library, gpu.index);
        let raw = raw.map_err(|status| AmdError::Rocm(Some(gpu.key()), Call::Power, status))?;
        let power = watts::possible(MicroWatts::new(raw)).ok_or(AmdError::Impossible(gpu.key(), Call::Power));
        power.map(Measured::Power)
    }

    fn state(&self, at: usize, sample: &mut Sample) {
        if let Ok((library, gpu)) = self.gpu(at) {
            state::fill(library, gpu.index, sample);
            if let Some(table) = &gpu.metrics {
                table.fill(sample);
            }
        }
    }

    fn memory(&self, at: usize) -> Result<MemoryUse, ErrorKind> {
        let (library, gpu) = self.gpu(at).map_err(|error| error.kind())?;
        state::memory(library, gpu.index)
    }

    fn cap(&self, at: usize) -> Result<MicroWatts, AmdError> {
        let (library, gpu) = self.gpu(at)?;
        let raw = library.cap(gpu.index);
        let raw = raw.map_err(|status| AmdError::Rocm(Some(gpu.key()), Call::Cap, status))?;
        watts::in_force(MicroWatts::new(raw)).ok_or(AmdError::Impossible(gpu.key(), Call::Cap))
    }

    fn set_cap(&self, at: usize, cap: MicroWatts) -> Result<(), AmdError> {
        let (library, gpu) = self.gpu(at)?;
        let set = library.set_cap(gpu.index, cap.get());
        set.map_err(|status| AmdError::Rocm(Some(gpu.key()), Call::SetCap, status))
    }
}
