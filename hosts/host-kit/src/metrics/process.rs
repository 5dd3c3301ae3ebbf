//! What the kernel reports about this process: CPU time, memory, open files, threads, start time.
//!
//! If a file cannot be read, its values are left out: an unknown value is never zero.

use super::MetricDescription;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use std::fmt;
use std::path::{Path, PathBuf};

/// Ticks a second in `/proc`: USER_HZ, 100 on every architecture that this runs on, whatever the kernel's own rate.
const USER_HZ: f64 = 100.0;

const CPU: MetricDescription = MetricDescription::counter("process_cpu_seconds", "CPU time, user and system");
const THREADS: MetricDescription = MetricDescription::gauge("process_threads", "Threads");
const STARTED: MetricDescription =
    MetricDescription::gauge("process_start_time_seconds", "When it started, Unix time");
const MEMORY: MetricDescription =
    MetricDescription::gauge("process_resident_memory_bytes", "Resident memory");
const OPEN_FILES: MetricDescription = MetricDescription::gauge("process_open_fds", "Open files");
const MOST_FILES: MetricDescription =
    MetricDescription::gauge("process_max_fds", "Most files that may be open");

/// All of them.
pub(super) const ALL: [MetricDescription; 6] = [CPU, THREADS, STARTED, MEMORY, OPEN_FILES, MOST_FILES];

#[derive(Debug)]
pub(super) struct Process {
    proc: PathBuf,
}

impl Process {
    pub(super) fn at(proc: &Path) -> Self {
        Self { proc: proc.to_owned() }
    }

    fn read(&self, file: &str) -> Option<String> {
        std::fs::read_to_string(self.proc.join(file)).ok()
    }
}

impl Collector for Process {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let stat = self.read("self/stat").and_then(|text| Stat::read(&text));
        if let Some(stat) = &stat {
            counter(&mut encoder, &CPU, stat.cpu_seconds)?;
            gauge(&mut encoder, &THREADS, stat.threads)?;
        }
        let booted = self.read("stat").and_then(|text| field(&text, "btime"));
        if let (Some(stat), Some(booted)) = (&stat, booted) {
            let started = booted + stat.started_after_boot;
            gauge(&mut encoder, &STARTED, started)?;
        }
        if let Some(kib) = self.read("self/status").and_then(|text| field(&text, "VmRSS:")) {
            gauge(&mut encoder, &MEMORY, kib * 1024.0)?;
        }
        if let Ok(open) = std::fs::read_dir(self.proc.join("self/fd")) {
            // The one that reads the directory is not counted.
            let open = u32::try_from(open.count()).unwrap_or(u32::MAX).saturating_sub(1);
            gauge(&mut encoder, &OPEN_FILES, f64::from(open))?;
        }
        if let Some(most) = self.read("self/limits").and_then(|text| field(&text, "Max open files")) {
            gauge(&mut encoder, &MOST_FILES, most)?;
        }
        Ok(())
    }
}

/// The values of `/proc/self/stat`.
#[derive(Debug, PartialEq)]
struct Stat {
    cpu_seconds: f64,
    threads: f64,
    started_after_boot: f64,
}

impl Stat {
    fn read(text: &str) -> Option<Self> {
        // The name of the program is in parentheses, and may contain both spaces and parentheses.
        let (_, rest) = text.rsplit_once(')')?;
        let fields: Vec<&str> = rest.split_whitespace().collect();
        // The field after the name has number 3 in proc(5).
        let number = |place: usize| fields.get(place - 3)?.parse::<f64>().ok();
        Some(Self {
            cpu_seconds: (number(14)? + number(15)?) / USER_HZ,
            threads: number(20)?,
            started_after_boot: number(22)? / USER_HZ,
        })
    }
}

/// The first number of the line that begins with `name`.
fn field(text: &str, name: &str) -> Option<f64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

fn gauge(
    encoder: &mut DescriptorEncoder<'_>,
    about: &MetricDescription,
    value: f64,
) -> Result<(), fmt::Error> {
    ConstGauge::new(value).encode(about.begin(encoder)?)
}

fn counter(
    encoder: &mut DescriptorEncoder<'_>,
    about: &MetricDescription,
    value: f64,
) -> Result<(), fmt::Error> {
    ConstCounter::new(value).encode(about.begin(encoder)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::MetricsRegistry;

    #[test]
    fn a_program_whose_name_holds_parentheses_is_read() {
        // Fields 14 and 15 are 250 and 150 ticks, 20 is 7 threads, 22 is 4200 ticks.
        let text = "1 (a) b) c) S 1 1 1 0 -1 4194560 1 0 0 0 250 150 0 0 20 0 7 0 4200 1 2 3";
        let read = Stat { cpu_seconds: 4.0, threads: 7.0, started_after_boot: 42.0 };
        assert_eq!(Stat::read(text), Some(read));
        assert_eq!(Stat::read("1 (a) S 1"), None);
        assert_eq!(Stat::read(""), None);
    }

    fn page(proc: &Path) -> String {
        let mut registry = MetricsRegistry::default();
        registry.register_collector(Box::new(Process::at(proc)), &ALL);
        registry.render().unwrap()
    }

    #[test]
    fn this_process_has_memory_files_and_threads() {
        let text = page(Path::new("/proc"));
        let value =
            |name: &str| field(&text, &format!("{name} ")).unwrap_or_else(|| panic!("{name} not in {text}"));
        assert!(value("process_resident_memory_bytes") > 100_000.0);
        assert!(value("process_threads") >= 1.0 && value("process_open_fds") >= 3.0);
        assert!(value("process_max_fds") > value("process_open_fds"));
        assert!(value("process_start_time_seconds") > 1.0e9 && value("process_cpu_seconds_total") >= 0.0);
    }

    #[test]
    fn what_cannot_be_read_is_left_out() {
        assert_eq!(page(Path::new("/nowhere")), "# EOF\n");
    }
}
