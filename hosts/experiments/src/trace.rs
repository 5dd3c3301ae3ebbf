//! The jobs of a trace file. Two formats are read, told apart by the first line:
//!
//! - upstream's trace, a JSON object a line, of which records of type `job` count: `submitTimeOffsetSec`, `intentClass`,
//!   `podTemplate.requests` (`cpu`, `nvidia.com/gpu` or `amd.com/gpu`), `work` (`cpuUnits`, `gpuUnits`) and `workloadProfile`
//!   (`cpuUtilization`, `gpuUtilization`). A job runs as long as its units take at a speed for each core and GPU;
//! - the pod list of Alibaba's cluster-trace-gpu-v2023, a CSV with the columns `cpu_milli`, `num_gpu`, `creation_time`,
//!   `deletion_time`, and where it has them `scheduled_time`, `gpu_milli` and `qos`. It says no utilisation.
//!
//! A line that cannot be used is counted and told, never guessed. Lines, jobs and time have bounds, so that no file takes more memory
//! than two million jobs do.

use crate::fleet::Kind;
use crate::numbers::{parts, steps};
use crate::workload::{JobClass, OfferedJob};
use serde_json::Value;
use std::fmt;
use std::io::{self, BufRead, Read};

/// No line is longer.
const LINE_BYTES_MAX: u64 = 1 << 20;
/// No trace has more jobs.
const JOBS_MAX: usize = 2_000_000;
/// No job arrives later or runs longer: a year.
const SECONDS_MAX: f64 = 366.0 * 86_400.0;
/// Faults that are shown.
const SHOWN_MAX: usize = 5;
/// The part of its cores and GPUs that a job keeps busy where the trace does not say it.
const BUSY_CORES: f64 = 0.65;
const BUSY_GPUS: f64 = 0.80;

/// What was read, and what was not.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ReadTrace {
    /// The jobs, in the order of their arrival; the first arrives at once.
    pub jobs: Vec<OfferedJob>,
    /// Lines of the file.
    pub lines: u64,
    /// Lines that are no jobs: headers and records of other types.
    pub other: u64,
    /// Lines that could not be used.
    pub malformed: u64,
    /// Jobs for which no node of the fleet is large enough.
    pub too_large: u64,
    /// The first lines that could not be used, and why.
    pub faults: Vec<(u64, String)>,
}

/// Why a trace is not read.
#[derive(Debug)]
pub enum TraceError {
    /// The file could not be read.
    Read(io::Error),
    /// It is in neither format.
    Format,
    /// It has no job that can be used; how many lines could not be.
    NoJobs(u64),
    /// It has more jobs than are read.
    TooMany,
}

impl fmt::Display for TraceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read(error) => error.fmt(f),
            Self::Format => f.write_str(
                "neither JSON objects nor a CSV with the columns cpu_milli, num_gpu, creation_time and deletion_time",
            ),
            Self::NoJobs(malformed) => write!(f, "no job; {malformed} lines could not be used"),
            Self::TooMany => write!(f, "more than {JOBS_MAX} jobs"),
        }
    }
}

impl std::error::Error for TraceError {}

/// What a line says of a job.
struct Said {
    second: f64,
    lasts_s: f64,
    milli: f64,
    gpus: f64,
    performance: bool,
    busy_cores: f64,
    busy_gpus: f64,
}

enum Format {
    Upstream,
    /// The places of the columns.
    PodList(Columns),
}

struct Columns {
    milli: usize,
    gpus: usize,
    created: usize,
    deleted: usize,
    scheduled: Option<usize>,
    gpu_milli: Option<usize>,
    qos: Option<usize>,
}

impl ReadTrace {
    /// Reads a trace. `speed` is how many units a core or a GPU does in a second, in upstream's format.
    ///
    /// # Errors
    /// When the file cannot be read, or has no jobs or too many.
    pub fn read(mut from: impl BufRead, speed: f64) -> Result<Self, TraceError> {
        let mut trace = Self::default();
        let mut format = None;
        let mut line = Vec::new();
        let mut seconds = Vec::new();
        while let Some(is_whole) = next_line(&mut from, &mut line).map_err(TraceError::Read)? {
            trace.lines += 1;
            let text = std::str::from_utf8(&line).map(str::trim).unwrap_or("\u{0}");
            if text.is_empty() {
                trace.other += 1;
                continue;
            }
            let said = match (&format, is_whole) {
                (_, false) => Err(format!("longer than {LINE_BYTES_MAX} bytes")),
                (None, true) => match Format::of(text).ok_or(TraceError::Format)? {
                    upstream @ Format::Upstream => {
                        format = Some(upstream);
                        of_upstream(text, speed)
                    }
                    pods @ Format::PodList(_) => {
                        format = Some(pods);
                        Ok(None)
                    }
                },
                (Some(Format::Upstream), true) => of_upstream(text, speed),
                (Some(Format::PodList(columns)), true) => of_pod_list(text, columns).map(Some),
            };
            match said.and_then(|said| said.map(|said| said.check().map(|()| said)).transpose()) {
                Ok(None) => trace.other += 1,
                Ok(Some(said)) => match said.job() {
                    Some(job) if trace.jobs.len() < JOBS_MAX => {
                        seconds.push(said.second);
                        trace.jobs.push(job);
                    }
                    Some(_) => return Err(TraceError::TooMany),
                    None => trace.too_large += 1,
                },
                Err(why) => {
                    trace.malformed += 1;
                    if trace.faults.len() < SHOWN_MAX {
                        trace.faults.push((trace.lines, why));
                    }
                }
            }
        }
        if trace.jobs.is_empty() {
            return Err(TraceError::NoJobs(trace.malformed));
        }
        let first = seconds.iter().copied().fold(f64::INFINITY, f64::min);
        for (job, second) in trace.jobs.iter_mut().zip(seconds) {
            job.arrives = steps(second - first);
        }
        trace.jobs.sort_by_key(|job| job.arrives);
        Ok(trace)
    }

    /// What was read and what was not, in lines for people.
    #[must_use]
    pub fn told(&self) -> String {
        let mut text = format!(
            "{} lines: {} jobs, {} other records, {} that could not be used, {} jobs larger than any node\n",
            self.lines,
            self.jobs.len(),
            self.other,
            self.malformed,
            self.too_large
        );
        for (line, why) in &self.faults {
            text.push_str(&format!("  line {line}: {why}\n"));
        }
        text
    }
}

/// Reads a line into the buffer; `None` at the end, `false` for a line that is too long, of which the rest is passed over.
fn next_line(from: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<Option<bool>> {
    line.clear();
    if from.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', line)? == 0 {
        return Ok(None);
    }
    if line.last() == Some(&b'\n') || u64::try_from(line.len()).is_ok_and(|length| length < LINE_BYTES_MAX) {
        return Ok(Some(true));
    }
    loop {
        let rest = from.fill_buf()?;
        let end = rest.iter().position(|&byte| byte == b'\n');
        let (passed, is_end) = (end.map_or(rest.len(), |at| at + 1), end.is_some() || rest.is_empty());
        from.consume(passed);
        if is_end {
            return Ok(Some(false));
        }
    }
}

impl Format {
    fn of(first: &str) -> Option<Self> {
        if first.starts_with('{') {
            return Some(Self::Upstream);
        }
        let names: Vec<&str> = first.trim_start_matches('\u{feff}').split(',').map(unquoted).collect();
        let place = |name| names.iter().position(|&other| other == name);
        Some(Self::PodList(Columns {
            milli: place("cpu_milli")?,
            gpus: place("num_gpu")?,
            created: place("creation_time")?,
            deleted: place("deletion_time")?,
            scheduled: place("scheduled_time"),
            gpu_milli: place("gpu_milli"),
            qos: place("qos"),
        }))
    }
}

fn unquoted(text: &str) -> &str {
    text.trim().trim_matches('"')
}

fn of_pod_list(text: &str, columns: &Columns) -> Result<Said, String> {
    let fields: Vec<&str> = text.split(',').map(unquoted).collect();
    let text = |at: usize| fields.get(at).copied().ok_or_else(|| format!("{} columns", fields.len()));
    let number = |at: usize| {
        let text = text(at)?;
        text.parse::<f64>().map_err(|_| format!("{text:?} is no number"))
    };
    let created = number(columns.created)?;
    let scheduled = match columns.scheduled {
        None => created,
        Some(at) if text(at)?.is_empty() => {
            return Err("it was never scheduled, so that its run time is not known".to_owned());
        }
        Some(at) => number(at)?,
    };
    let part = columns.gpu_milli.map(number).transpose()?.unwrap_or(1000.0) / 1000.0;
    if part.is_nan() {
        return Err("gpu_milli is no number".to_owned());
    }
    let qos = columns.qos.map(text).transpose()?.unwrap_or("");
    let gpus = number(columns.gpus)?;
    Ok(Said {
        second: created,
        lasts_s: number(columns.deleted)? - scheduled,
        milli: number(columns.milli)?,
        gpus,
        performance: matches!(qos, "LS" | "Guaranteed"),
        busy_cores: BUSY_CORES,
        // A share of a GPU takes a whole one here, and keeps its share busy.
        busy_gpus: if gpus > 0.0 { BUSY_GPUS * part.min(1.0) } else { 0.0 },
    })
}

/// `None` for a record that is no job.
fn of_upstream(text: &str, speed: f64) -> Result<Option<Said>, String> {
    let value: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
    match value["type"].as_str() {
        Some("job") | None => {}
        Some(_) => return Ok(None),
    }
    let requests = &value["podTemplate"]["requests"];
    let amount = |name: &str| match &requests[name] {
        Value::Null => Ok(0.0),
        Value::Number(number) => Ok(1000.0 * number.as_f64().unwrap_or(f64::NAN)),
        Value::String(text) => thousandths(text).ok_or_else(|| format!("{name}: {text:?} is no amount")),
        other @ (Value::Bool(_) | Value::Array(_) | Value::Object(_)) => {
            Err(format!("{name}: {other} is no amount"))
        }
    };
    let milli = amount("cpu")?;
    let gpus = (amount("nvidia.com/gpu")? + amount("amd.com/gpu")?) / 1000.0;
    let number = |value: &Value, name: &str, default: f64| match value.is_null() {
        true => Ok(default),
        false => value.as_f64().ok_or_else(|| format!("{name}: {value} is no number")),
    };
    let units = |name: &str, each: f64, default: f64| {
        let units = number(&value["work"][name], name, default)?;
        Ok::<f64, String>(if each > 0.0 { units / (each * speed) } else { 0.0 })
    };
    let profile = &value["workloadProfile"];
    let second = number(&value["submitTimeOffsetSec"], "submitTimeOffsetSec", f64::NAN)?;
    Ok(Some(Said {
        second,
        lasts_s: units("cpuUnits", milli / 1000.0, 1000.0)?.max(units("gpuUnits", gpus, 0.0)?),
        milli,
        gpus,
        performance: value["intentClass"].as_str() == Some("performance"),
        busy_cores: number(&profile["cpuUtilization"], "cpuUtilization", BUSY_CORES)?,
        busy_gpus: number(&profile["gpuUtilization"], "gpuUtilization", BUSY_GPUS)?,
    }))
}

/// `"16"`, `"0.5"` and `"500m"`.
fn thousandths(text: &str) -> Option<f64> {
    match text.trim().strip_suffix('m') {
        Some(milli) => milli.parse().ok(),
        None => text.trim().parse::<f64>().ok().map(|whole| 1000.0 * whole),
    }
}

impl Said {
    fn check(&self) -> Result<(), String> {
        let within = |name: &str, value: f64, least: f64, most: f64| match value >= least && value <= most {
            true => Ok(()),
            false => Err(format!("{name} {value} is not from {least} to {most}")),
        };
        within("the arrival in seconds", self.second, 0.0, SECONDS_MAX)?;
        within("the run time in seconds", self.lasts_s, 0.0, SECONDS_MAX)?;
        within("thousandths of a core", self.milli, 0.0, 1.0e9)?;
        within("GPUs", self.gpus, 0.0, 1.0e6)?;
        within("the utilisation of cores", self.busy_cores, 0.0, 1.0)?;
        within("the utilisation of GPUs", self.busy_gpus, 0.0, 1.0)
    }

    /// Whole cores and GPUs, rounded up; `None` where no node is as large.
    fn job(&self) -> Option<OfferedJob> {
        let cores = small((self.milli / 1000.0).ceil().max(1.0))?;
        let gpus = small(self.gpus.ceil())?;
        let kind = Kind::Gpu;
        if u32::from(cores) > kind.cores() || u32::from(gpus) > kind.gpus() {
            return None;
        }
        let class = match (gpus, cores) {
            (1.., _) if self.lasts_s >= 3600.0 => JobClass::Training,
            (1.., _) => JobClass::Inference,
            (0, 0..=8) => JobClass::Small,
            (0, 9..=63) => JobClass::Medium,
            (0, 64..) => JobClass::Large,
        };
        Some(OfferedJob {
            arrives: 0,
            lasts: steps(self.lasts_s).max(1),
            cores,
            gpus,
            performance: self.performance,
            class,
            busy_cores: parts(self.busy_cores * f64::from(cores)),
            busy_gpus: parts(self.busy_gpus * f64::from(gpus)),
        })
    }
}

fn small(value: f64) -> Option<u8> {
    (0..=u8::MAX).find(|&whole| f64::from(whole) >= value)
}

#[cfg(test)]
mod tests;
