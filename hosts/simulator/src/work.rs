//! The work of a pod: the resources that it requests, its utilisation, and its duration. All values come from the
//! pod's own resources and annotations.
//!
//! | annotation | what it says | otherwise |
//! |---|---|---|
//! | `sim.joulie.io/duration` | how long the pod runs at full speed, as in `90s` or `5m` | until it is deleted |
//! | `sim.joulie.io/cpu-class` | `compute_bound`, `memory_bound`, `io_bound`, `mixed` | `compute_bound` for performance pods, `mixed` for others |
//! | `sim.joulie.io/gpu-class` | `compute_bound`, `memory_bound`, `mixed` | `mixed` |
//! | `sim.joulie.io/cpu-util-pct` | how busy it keeps its processors | by class: 95, 60, 20, 65 |
//! | `sim.joulie.io/gpu-util-pct` | how busy it keeps its GPUs | by class: 95, 70, 80 |
//! | `sim.joulie.io/memory-pressure-pct` | the part of its busy time that waits for memory | by class: 20, 85, 20, 45 |
//! | `sim.joulie.io/io-intensity` | the part of its busy time that waits for disk and network, 0 to 1 | by class: 0.10, 0.10, 0.85, 0.10 |
//! | `sim.joulie.io/exit-code` | how its containers end | 0 |
//!
//! The names and defaults are upstream's (facts/simulator.md sections 3.12 and 4.1). Duration, classes and exit code
//! are additions, because upstream keeps them in its trace and not on the pod.

use host_kit::config::parse;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// The prefix of these annotations.
pub const PREFIX: &str = "sim.joulie.io/";
/// How long a pod runs at full speed.
pub const DURATION: &str = "sim.joulie.io/duration";
/// The class of its work on processors.
pub const CPU_CLASS: &str = "sim.joulie.io/cpu-class";
/// The class of its work on GPUs.
pub const GPU_CLASS: &str = "sim.joulie.io/gpu-class";
/// The utilisation of its processors, percent.
pub const CPU_UTIL: &str = "sim.joulie.io/cpu-util-pct";
/// The utilisation of its GPUs, percent.
pub const GPU_UTIL: &str = "sim.joulie.io/gpu-util-pct";
/// The part of its busy time that waits for memory, percent.
pub const MEMORY: &str = "sim.joulie.io/memory-pressure-pct";
/// The part of its busy time that waits for disk and network, 0 to 1.
pub const IO: &str = "sim.joulie.io/io-intensity";
/// The exit code of its containers.
pub const EXIT_CODE: &str = "sim.joulie.io/exit-code";

/// The processors that a pod without a request is assumed to use.
const UNASKED_CPUS: f64 = 0.1;
/// How much a GPU pod depends on its processors (facts/simulator.md section 4.1).
const FEED: f64 = 0.45;

/// The bottleneck of a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LoadBottleneck {
    /// The clock.
    Compute,
    /// Memory.
    Memory,
    /// Disk and network.
    Io,
    /// None in particular.
    Mixed,
}

impl LoadBottleneck {
    /// Every class.
    pub const ALL: [Self; 4] = [Self::Compute, Self::Memory, Self::Io, Self::Mixed];

    /// The name in upstream's format.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Compute => "compute_bound",
            Self::Memory => "memory_bound",
            Self::Io => "io_bound",
            Self::Mixed => "mixed",
        }
    }

    fn read(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|class| class.word() == text.trim());
        found.ok_or_else(|| "accepted: compute_bound, memory_bound, io_bound, mixed".to_owned())
    }

    const fn cpu_utilisation(self) -> f64 {
        match self {
            Self::Compute => 0.95,
            Self::Memory => 0.60,
            Self::Io => 0.20,
            Self::Mixed => 0.65,
        }
    }

    const fn gpu_utilisation(self) -> f64 {
        match self {
            Self::Compute => 0.95,
            Self::Memory => 0.70,
            Self::Io | Self::Mixed => 0.80,
        }
    }

    const fn memory(self) -> f64 {
        match self {
            Self::Compute | Self::Io => 0.20,
            Self::Memory => 0.85,
            Self::Mixed => 0.45,
        }
    }

    const fn io(self) -> f64 {
        match self {
            Self::Io => 0.85,
            Self::Compute | Self::Memory | Self::Mixed => 0.10,
        }
    }
}

/// The work of a pod, as its machine sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct Work {
    /// Logical processors.
    pub cpus: f64,
    /// Graphics processors.
    pub gpus: u32,
    /// The pod must run at full power.
    pub performance: bool,
    /// The class of its work on processors.
    pub cpu_class: LoadBottleneck,
    /// The class of its work on GPUs.
    pub gpu_class: LoadBottleneck,
    /// The part of the time that its processors are busy.
    pub cpu_utilisation: f64,
    /// The part of the time that its GPUs are busy.
    pub gpu_utilisation: f64,
    /// The part of its busy time that waits for memory.
    pub memory: f64,
    /// The part of its busy time that waits for disk and network.
    pub io: f64,
    /// How much the speed of its GPUs depends on that of its processors.
    pub feed: f64,
    /// How long it runs at full speed; `None` for until it is deleted.
    pub duration: Option<Duration>,
    /// The exit code of its containers.
    pub exit_code: u8,
}

/// An annotation with an invalid value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadWork {
    annotation: &'static str,
    value: String,
    why: String,
}

impl fmt::Display for BadWork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the annotation {} is {:?}; {}", self.annotation, self.value, self.why)
    }
}

impl std::error::Error for BadWork {}

impl Work {
    /// The work of a pod with these annotations and requests.
    ///
    /// # Errors
    /// If an annotation is invalid; the error names it and the accepted values.
    pub fn read(
        annotations: &BTreeMap<String, String>,
        cpus: f64,
        gpus: u32,
        performance: bool,
    ) -> Result<Self, BadWork> {
        let notes = Notes(annotations);
        let usual = if performance { LoadBottleneck::Compute } else { LoadBottleneck::Mixed };
        let cpu_class = notes.read(CPU_CLASS, LoadBottleneck::read)?.unwrap_or(usual);
        let gpu_class = notes.read(GPU_CLASS, LoadBottleneck::read)?.unwrap_or(LoadBottleneck::Mixed);
        let percent = |text: &str| number(text, 0.0, 100.0).map(|percent| percent / 100.0);
        let part = |text: &str| number(text, 0.0, 1.0);
        Ok(Self {
            cpus: if cpus > 0.0 { cpus } else { UNASKED_CPUS },
            gpus,
            performance,
            cpu_class,
            gpu_class,
            cpu_utilisation: notes.read(CPU_UTIL, percent)?.unwrap_or(cpu_class.cpu_utilisation()),
            gpu_utilisation: notes.read(GPU_UTIL, percent)?.unwrap_or(gpu_class.gpu_utilisation()),
            memory: notes.read(MEMORY, percent)?.unwrap_or(cpu_class.memory()),
            io: notes.read(IO, part)?.unwrap_or(cpu_class.io()),
            feed: if gpus > 0 { FEED } else { 0.0 },
            duration: notes.read(DURATION, duration)?,
            exit_code: notes.read(EXIT_CODE, exit_code)?.unwrap_or(0),
        })
    }

    /// The relative power of a busy cycle: a waiting cycle draws less (facts/simulator.md section 3.3).
    #[must_use]
    pub fn intensity(&self) -> f64 {
        (1.0 - 0.30 * self.memory - 0.45 * self.io).clamp(0.35, 1.0)
    }

    /// The part of its busy time that does not depend on the clock.
    #[must_use]
    pub fn waiting(&self) -> f64 {
        1.0 - (1.0 - self.memory) * (1.0 - self.io)
    }

    /// The part of its GPUs' busy time that waits for their memory.
    #[must_use]
    pub const fn gpu_memory(&self) -> f64 {
        self.gpu_class.memory()
    }

    /// Its speed at these clocks, which are parts of the highest ones; 1 if both are 1.
    #[must_use]
    pub fn pace(&self, cpu_clock: f64, gpu_clock: f64) -> f64 {
        let cpu = plant::speed(cpu_clock, self.waiting());
        if self.gpus == 0 {
            return cpu;
        }
        plant::speed(gpu_clock, self.gpu_memory()) * (1.0 - self.feed * (1.0 - cpu))
    }
}

struct Notes<'a>(&'a BTreeMap<String, String>);

impl Notes<'_> {
    fn read<T>(
        &self,
        annotation: &'static str,
        read: impl FnOnce(&str) -> Result<T, String>,
    ) -> Result<Option<T>, BadWork> {
        let Some(text) = self.0.get(annotation) else { return Ok(None) };
        let bad = |why| BadWork { annotation, value: text.chars().take(64).collect(), why };
        read(text).map(Some).map_err(bad)
    }
}

fn number(text: &str, low: f64, high: f64) -> Result<f64, String> {
    let value = text.trim().parse::<f64>().ok().filter(|value| (low..=high).contains(value));
    value.ok_or_else(|| format!("accepted: a number from {low} to {high}"))
}

/// A pod of less than a hundredth of a second would end before it is seen; the longest duration is a year.
fn duration(text: &str) -> Result<Duration, String> {
    let range = Duration::from_millis(10)..=Duration::from_secs(365 * 86_400);
    parse::duration(text, range).map_err(|wrong| wrong.to_string())
}

fn exit_code(text: &str) -> Result<u8, String> {
    text.trim().parse().map_err(|_| "accepted: a whole number from 0 to 255".to_owned())
}

#[cfg(test)]
mod tests;
