//! `GET /telemetry/{node}`: the telemetry of a machine, in upstream's format (facts/simulator.md section 3.9).
//!
//! `packagePowerWatts` at the top level is the power of packages and GPUs together; that of the processors alone is
//! under `cpu`. In addition to upstream's fields there are those that an agent needs: the number of packages, the
//! range of a limit, the power of the whole node, and the boot id.

use crate::control::Last;
use crate::machine::{SimulatedMachine, TelemetryReading};
use jiff::Timestamp;
use serde::Serialize;

/// The answer.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TelemetryResponse {
    node: String,
    #[serde(rename = "bootID")]
    boot: String,
    package_power_watts: f64,
    instant_package_power_watts: f64,
    node_power_watts: f64,
    cpu: Cpu,
    gpu: Gpu,
    hardware_model: Model,
    pods: Pods,
    ts: Timestamp,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Cpu {
    package_power_watts: f64,
    instant_power_watts: f64,
    utilization: f64,
    memory_intensity: f64,
    io_intensity: f64,
    work_class: &'static str,
    freq_scale: f64,
    throttle_pct: u8,
    thermal_throttle_pct: f64,
    temperature_c: f64,
    cap_watts: f64,
    target_cap_watts: f64,
    rapl_cap_watts: f64,
    cap_saturated: bool,
    sockets: u32,
    cores: u32,
    cap_min_watts: f64,
    cap_max_watts: f64,
    packages: Vec<Part>,
}

/// A package or a GPU.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Part {
    power_watts: f64,
    cap_watts: f64,
    temperature_c: f64,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Gpu {
    present: bool,
    vendor: &'static str,
    product: String,
    count: u32,
    power_watts_total: f64,
    avg_power_watts_total: f64,
    cap_watts_per_gpu_applied: f64,
    cap_watts_per_gpu_target: f64,
    utilization: f64,
    memory_intensity: f64,
    cpu_feed_intensity: f64,
    work_class: &'static str,
    perf_multiplier: f64,
    cap_min_watts_per_gpu: f64,
    cap_max_watts_per_gpu: f64,
    devices: Vec<Part>,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Model {
    cpu_model: String,
    cpu_provenance: &'static str,
    cpu_curve_source: &'static str,
    cpu_proxy_from: &'static str,
    gpu_provenance: &'static str,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Pods {
    running: usize,
    by_intent_class: ByClass,
}

#[derive(Clone, Debug, Serialize)]
struct ByClass {
    performance: usize,
    standard: usize,
}

impl TelemetryResponse {
    /// The telemetry of a machine now.
    pub fn of(machine: &mut SimulatedMachine, last: &Last, now: Timestamp) -> Self {
        let reading = machine.read();
        Self {
            node: machine.name().to_owned(),
            boot: machine.boot().to_owned(),
            package_power_watts: reading.cpu_watts + reading.gpu_watts,
            instant_package_power_watts: reading.cpu_watts_now + reading.gpu_watts_now,
            node_power_watts: reading.node_watts,
            cpu: Cpu::of(machine, last, &reading),
            gpu: Gpu::of(machine, last, &reading),
            hardware_model: Model {
                cpu_model: machine.hardware().cpu_model.clone(),
                cpu_provenance: "catalog",
                cpu_curve_source: "plant",
                cpu_proxy_from: "",
                gpu_provenance: if machine.hardware().gpus.is_some() { "catalog" } else { "" },
            },
            pods: Pods {
                running: reading.pods,
                by_intent_class: ByClass {
                    performance: reading.performance_pods,
                    standard: reading.pods - reading.performance_pods,
                },
            },
            ts: now,
        }
    }
}

fn parts(of: &[(f64, f64)], cap_watts: f64) -> Vec<Part> {
    of.iter()
        .map(|(power_watts, temperature_c)| Part {
            power_watts: *power_watts,
            cap_watts,
            temperature_c: *temperature_c,
        })
        .collect()
}

impl Cpu {
    fn of(machine: &SimulatedMachine, last: &Last, reading: &TelemetryReading) -> Self {
        let cap = machine.package_cap();
        let hardware = machine.hardware();
        Self {
            package_power_watts: reading.cpu_watts,
            instant_power_watts: reading.cpu_watts_now,
            utilization: reading.cpu_utilisation,
            memory_intensity: reading.memory,
            io_intensity: reading.io,
            work_class: reading.cpu_class.word(),
            freq_scale: reading.cpu_clock,
            throttle_pct: machine.throttle_pct(),
            thermal_throttle_pct: reading.thermal_throttle_pct,
            temperature_c: hottest(&reading.packages),
            cap_watts: cap,
            target_cap_watts: last.target_watts.unwrap_or(cap),
            rapl_cap_watts: cap,
            cap_saturated: reading.saturated,
            sockets: hardware.sockets,
            cores: hardware.cores(),
            cap_min_watts: hardware.package_cap.0,
            cap_max_watts: hardware.package_cap.1,
            packages: parts(&reading.packages, cap),
        }
    }
}

impl Gpu {
    fn of(machine: &SimulatedMachine, last: &Last, reading: &TelemetryReading) -> Self {
        let cap = machine.board_cap().unwrap_or(0.0);
        let gpus = machine.hardware().gpus.as_ref();
        let range = gpus.map_or((0.0, 0.0), |gpus| gpus.cap);
        let class = if gpus.is_some() { reading.gpu_class.word() } else { "" };
        Self {
            present: gpus.is_some(),
            vendor: gpus.map_or("", |gpus| gpus.vendor.word()),
            product: gpus.map_or(String::new(), |gpus| gpus.model.clone()),
            count: gpus.map_or(0, |gpus| gpus.count),
            power_watts_total: reading.gpu_watts_now,
            avg_power_watts_total: reading.gpu_watts,
            cap_watts_per_gpu_applied: cap,
            cap_watts_per_gpu_target: last.target_gpu_watts.unwrap_or(cap),
            utilization: reading.gpu_utilisation,
            memory_intensity: if gpus.is_some() { reading.memory } else { 0.0 },
            cpu_feed_intensity: reading.feed,
            work_class: class,
            perf_multiplier: if gpus.is_some() { reading.gpu_clock } else { 1.0 },
            cap_min_watts_per_gpu: range.0,
            cap_max_watts_per_gpu: range.1,
            devices: parts(&reading.boards, cap),
        }
    }
}

/// The highest temperature; there is always a package.
fn hottest(packages: &[(f64, f64)]) -> f64 {
    packages.iter().map(|(_, celsius)| *celsius).fold(f64::MIN, f64::max)
}
