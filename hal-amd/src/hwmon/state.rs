//! The files of amdgpu that report the state of a GPU beside its power.

use super::metrics::MetricsTable;
use hal_files::hwmon;
use hal_files::{Attribute, FileError};
use power_hal::{Domain, Error, ErrorKind, MemoryUse, Sample, StateReading, possible_utilisation};
use power_units::Percent;
use std::path::Path;

/// The sensors of a GPU's temperature: the hottest point of the die first, then its edge.
const SENSORS: [&str; 2] = ["junction", "edge"];
/// More sensors than amdgpu has.
const SENSORS_MAX: usize = 4;

/// The open files of one GPU. A missing file is a reading that the GPU does not have.
#[derive(Debug, Default)]
pub(super) struct StateFiles {
    temperature: Option<Attribute>,
    busy: Option<Attribute>,
    memory: Option<(Attribute, Attribute)>,
    metrics: Option<MetricsTable>,
}

impl StateFiles {
    /// Opens the files of a GPU. `before` is the same GPU in the last list. While it sleeps nothing is read, and what is
    /// known of it stays.
    pub(super) fn open(
        folder: &Path,
        device: &Path,
        (before, sleeps): (Option<&Self>, bool),
        complain: &mut dyn FnMut(FileError),
    ) -> Self {
        let asleep = before.filter(|_| sleeps);
        let temperature = sensor(folder, complain);
        let busy = hwmon::open(&device.join("gpu_busy_percent"), complain);
        let used = hwmon::open(&device.join("mem_info_vram_used"), complain);
        let memory = used.zip(hwmon::open(&device.join("mem_info_vram_total"), complain));
        let table = hwmon::open(&device.join("gpu_metrics"), complain);
        let known = before.and_then(|before| before.metrics.as_ref());
        let metrics = table.and_then(|file| MetricsTable::open(file, known, asleep.is_some()));
        let mut files = Self { temperature, busy, memory, metrics };
        files.leave_out(asleep);
        files
    }

    /// Some GPUs have a file, and no sensor or counter behind it.
    fn leave_out(&mut self, asleep: Option<&Self>) {
        if let Some(before) = asleep {
            self.temperature = self.temperature.take().filter(|_| before.temperature.is_some());
            self.busy = self.busy.take().filter(|_| before.busy.is_some());
            self.memory = self.memory.take().filter(|_| before.memory.is_some());
            return;
        }
        let answers =
            |error: Option<FileError>| error.is_none_or(|error| error.kind() != ErrorKind::NotSupported);
        self.temperature = self.temperature.take().filter(|file| answers(hwmon::temperature(file).err()));
        self.busy = self.busy.take().filter(|file| answers(file.read_whole().err()));
        self.memory = self.memory.take().filter(|(used, _)| answers(used.read_whole().err()));
    }

    /// The domain with what the GPU reports.
    pub(super) const fn describe(&self, mut domain: Domain) -> Domain {
        if self.temperature.is_some() {
            domain = domain.with_reading(StateReading::Temperature);
        }
        if self.busy.is_some() {
            domain = domain.with_reading(StateReading::Utilisation);
        }
        if self.memory.is_some() {
            domain = domain.with_reading(StateReading::Memory);
        }
        match &self.metrics {
            Some(table) => table.describe(domain),
            None => domain,
        }
    }

    /// Fills in what can be read, except memory in use.
    pub(super) fn fill(&self, sample: &mut Sample) {
        let kind = |error: FileError| error.kind();
        if let Some(file) = &self.temperature {
            sample.temperature = hwmon::temperature(file).map_err(kind);
        }
        if let Some(file) = &self.busy {
            let whole = file.read_whole().map_err(kind);
            sample.utilisation = whole.and_then(percent);
        }
        if let Some(table) = &self.metrics {
            table.fill(sample);
        }
    }

    /// How much of its memory is in use.
    pub(super) fn memory(&self) -> Result<MemoryUse, ErrorKind> {
        let (used, total) = self.memory.as_ref().ok_or(ErrorKind::NotSupported)?;
        let whole = |file: &Attribute| file.read_whole().map_err(|error| error.kind());
        MemoryUse::new(whole(used)?, whole(total)?).ok_or(ErrorKind::BadData)
    }
}

fn percent(whole: u64) -> Result<Percent, ErrorKind> {
    let percent = i32::try_from(whole).ok().map(Percent::from_int).and_then(possible_utilisation);
    percent.ok_or(ErrorKind::BadData)
}

/// The sensor of the hottest point, by its label.
fn sensor(folder: &Path, complain: &mut dyn FnMut(FileError)) -> Option<Attribute> {
    let labelled = |wanted: &str| {
        (1..=SENSORS_MAX).find(|number| {
            hwmon::line(&folder.join(format!("temp{number}_label"))).is_ok_and(|label| label == wanted)
        })
    };
    let number = SENSORS.into_iter().find_map(labelled)?;
    hwmon::open(&folder.join(format!("temp{number}_input")), complain)
}
