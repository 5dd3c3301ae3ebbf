//! The metrics of single devices: what each GPU draws and reports of itself, the memory of each package, and for which
//! part of the time a power limit held a package or a GPU back. What a device does not report has no series, because
//! zero would be a value; and when a device is gone, its series are too.

use super::labels::{Cause, ClockCause, NodeDevice, NodeGpu, NodeGpuCause, NodeGpuClock, NodeZone};
use super::{Level, level, whole};
use crate::machine::{ClockLoop, Device, View};
use host_kit::metrics::MetricsRegistry;
use power_hal::MemoryUse;
use power_units::{Celsius, KiloHertz, Percent, Role};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

/// All of them. Clones share them.
#[derive(Clone, Default)]
pub(super) struct Devices {
    dram_power: Level<NodeZone>,
    dram_energy: Level<NodeZone>,
    gpu_power: Level<NodeGpu>,
    temperature: Level<NodeGpu>,
    utilisation: Level<NodeGpu>,
    memory_used: Level<NodeGpu>,
    memory_total: Level<NodeGpu>,
    slowed: Family<NodeGpuCause, Gauge>,
    clock_loop: Family<NodeGpuClock, Gauge>,
    clock_limit: Level<NodeGpu>,
    throttled: Level<NodeDevice>,
    share: Level<NodeDevice>,
}

/// The keys of the devices that have series.
#[derive(Debug, Default, PartialEq)]
pub(super) struct KnownDevices {
    zones: Vec<String>,
    gpus: Vec<String>,
}

/// The power of a device, and of a package's memory, as the window shows it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct ShownDevices {
    /// The memory of each package: what it draws, and its counter.
    pub(super) drams: Vec<(String, Option<f64>, Option<u64>)>,
    /// Each GPU.
    pub(super) gpus: Vec<(String, Option<f64>)>,
}

impl Devices {
    pub(super) fn register(&self, r: &mut MetricsRegistry) {
        r.register(
            "joulie_dram_power_watts",
            "What the memory of a package draws, which the package's own power does not contain",
            self.dram_power.clone(),
        );
        r.register("joulie_dram_energy_uj", "The energy counter of it", self.dram_energy.clone());
        r.register("joulie_gpu_power_watts", "What a GPU draws", self.gpu_power.clone());
        r.register("joulie_gpu_temperature_celsius", "How warm a GPU is", self.temperature.clone());
        r.register(
            "joulie_gpu_utilization_ratio",
            "For which part of the time a GPU computes",
            self.utilisation.clone(),
        );
        r.register(
            "joulie_gpu_memory_used_bytes",
            "The memory of a GPU in use, asked for less often than its power: up to ten seconds old",
            self.memory_used.clone(),
        );
        r.register("joulie_gpu_memory_total_bytes", "The memory of a GPU", self.memory_total.clone());
        r.register(
            "joulie_gpu_slowed",
            "1 for each cause that holds the clocks of a GPU down at the moment",
            self.slowed.clone(),
        );
        r.register(
            "joulie_gpu_clock_loop",
            "1 for the cause for which a closed loop holds a GPU by its clock instead of its power limit",
            self.clock_loop.clone(),
        );
        r.register(
            "joulie_gpu_clock_limit_hertz",
            "The highest clock that the closed loop allows a GPU, while it holds it by its clock",
            self.clock_limit.clone(),
        );
        r.register(
            "joulie_throttled_ratio",
            "In which part of the last period a power limit held a package or a GPU back",
            self.throttled.clone(),
        );
        r.register(
            "joulie_grant_share_watts",
            "What a package or a GPU may draw of its node's grant",
            self.share.clone(),
        );
    }

    /// Shows the power of a second.
    pub(super) fn draw(&self, node: &str, shown: ShownDevices) {
        for (zone, watts, energy) in shown.drams {
            let zone = NodeZone { node: node.to_owned(), zone };
            level(&self.dram_power, &zone, watts);
            level(&self.dram_energy, &zone, energy.map(whole));
        }
        for (gpu, watts) in shown.gpus {
            level(&self.gpu_power, &NodeGpu { node: node.to_owned(), gpu }, watts);
        }
    }

    /// Shows what the devices report, and removes the series of those that are gone.
    pub(super) fn see(&self, node: &str, view: &View, known: &mut KnownDevices) {
        for device in view.cpu.devices.iter().chain(&view.gpu.devices) {
            self.throttled(node, device);
            let labels = NodeDevice { node: node.to_owned(), device: device.key.clone() };
            level(&self.share, &labels, device.share.map(super::as_f64));
        }
        for gpu in &view.gpu.devices {
            self.report(node, gpu);
            self.clock(node, gpu);
        }
        let keys = |devices: &[Device]| devices.iter().map(|device| device.key.clone()).collect::<Vec<_>>();
        let is_same =
            |known: &[String], devices: &[Device]| known.iter().eq(devices.iter().map(|device| &device.key));
        if !is_same(&known.zones, &view.cpu.devices) || !is_same(&known.gpus, &view.gpu.devices) {
            let now = KnownDevices { zones: keys(&view.cpu.devices), gpus: keys(&view.gpu.devices) };
            let before = std::mem::replace(known, now);
            for zone in before.zones.into_iter().filter(|zone| !known.zones.contains(zone)) {
                self.forget_package(node, zone);
            }
            for gpu in before.gpus.into_iter().filter(|gpu| !known.gpus.contains(gpu)) {
                self.forget_gpu(node, gpu);
            }
        }
    }

    fn throttled(&self, node: &str, device: &Device) {
        let labels = NodeDevice { node: node.to_owned(), device: device.key.clone() };
        level(&self.throttled, &labels, device.beside.state.throttled.known().map(ratio));
    }

    fn report(&self, node: &str, gpu: &Device) {
        let labels = NodeGpu { node: node.to_owned(), gpu: gpu.key.clone() };
        let state = &gpu.beside.state;
        let memory = state.memory.known();
        level(&self.temperature, &labels, state.temperature.known().map(degrees));
        level(&self.utilisation, &labels, state.utilisation.known().map(ratio));
        level(&self.memory_used, &labels, memory.map(MemoryUse::used_bytes).map(whole));
        level(&self.memory_total, &labels, memory.map(MemoryUse::total_bytes).map(whole));
        for cause in Cause::ALL.iter().copied() {
            let labels = NodeGpuCause { node: node.to_owned(), gpu: gpu.key.clone(), cause };
            match state.slowdowns.known() {
                Some(causes) => {
                    self.slowed.get_or_create(&labels).set(i64::from(causes.has(cause.slowdown())));
                }
                None => drop(self.slowed.remove(&labels)),
            }
        }
    }

    fn clock(&self, node: &str, gpu: &Device) {
        let clock = gpu.beside.clock;
        let labels = NodeGpu { node: node.to_owned(), gpu: gpu.key.clone() };
        level(&self.clock_limit, &labels, gpu.beside.clock_limit.map(hertz));
        for cause in ClockCause::ALL.iter().copied() {
            let labels = NodeGpuClock { node: node.to_owned(), gpu: gpu.key.clone(), cause };
            if clock == ClockLoop::Lacking {
                self.clock_loop.remove(&labels);
            } else {
                let holds = clock.cause() == Some(cause.cause());
                self.clock_loop.get_or_create(&labels).set(i64::from(holds));
            }
        }
    }

    /// Removes the series of a node that does not belong to this agent any more.
    pub(super) fn forget(&self, node: &str, known: KnownDevices) {
        for zone in known.zones {
            self.forget_package(node, zone);
        }
        for gpu in known.gpus {
            self.forget_gpu(node, gpu);
        }
    }

    fn forget_package(&self, node: &str, zone: String) {
        for family in [&self.throttled, &self.share] {
            family.remove(&NodeDevice { node: node.to_owned(), device: zone.clone() });
        }
        let labels = NodeZone { node: node.to_owned(), zone };
        for family in [&self.dram_power, &self.dram_energy] {
            family.remove(&labels);
        }
    }

    fn forget_gpu(&self, node: &str, gpu: String) {
        for family in [&self.throttled, &self.share] {
            family.remove(&NodeDevice { node: node.to_owned(), device: gpu.clone() });
        }
        for cause in Cause::ALL.iter().copied() {
            self.slowed.remove(&NodeGpuCause { node: node.to_owned(), gpu: gpu.clone(), cause });
        }
        for cause in ClockCause::ALL.iter().copied() {
            self.clock_loop.remove(&NodeGpuClock { node: node.to_owned(), gpu: gpu.clone(), cause });
        }
        let labels = NodeGpu { node: node.to_owned(), gpu };
        for family in [
            &self.gpu_power,
            &self.temperature,
            &self.utilisation,
            &self.memory_used,
            &self.memory_total,
            &self.clock_limit,
        ] {
            family.remove(&labels);
        }
    }
}

fn hertz(clock: KiloHertz) -> f64 {
    f64::from(clock.to_whole(Role::Nearest)) * 1_000.0
}

/// 2³² units of the fixed point.
const ONE: f64 = 4_294_967_296.0;

#[expect(clippy::cast_precision_loss, reason = "a metric is a float")]
fn degrees(temperature: Celsius) -> f64 {
    temperature.to_bits() as f64 / ONE
}

#[expect(clippy::cast_precision_loss, reason = "a metric is a float")]
fn ratio(share: Percent) -> f64 {
    share.to_bits() as f64 / ONE / 100.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::front::receipt::tests::{draws, packages, view};
    use node_kit::{DeviceState, DeviceValue};
    use power_hal::{ErrorKind, Slowdown, Slowdowns};

    fn gpus(all: &[(&str, DeviceState)]) -> View {
        let mut view = view(1, packages(&[(None, 100, draws(90))]));
        view.gpu = packages(&vec![(None, 100, draws(300)); all.len()]);
        view.cpu.devices.iter_mut().chain(&mut view.gpu.devices).for_each(|device| device.share = None);
        for (device, (key, state)) in view.gpu.devices.iter_mut().zip(all) {
            device.key = (*key).to_owned();
            device.beside.state = *state;
        }
        view
    }

    fn text(registry: &MetricsRegistry) -> Vec<String> {
        let text = registry.render().unwrap();
        let mut series: Vec<String> =
            text.lines().filter(|line| line.contains("{node=")).map(str::to_owned).collect();
        series.sort_unstable();
        series
    }

    #[test]
    fn what_a_gpu_does_not_report_has_no_series_and_one_that_is_gone_has_none_at_all() {
        let mut registry = MetricsRegistry::default();
        let devices = Devices::default();
        devices.register(&mut registry);
        let mut known = KnownDevices::default();
        let hot = DeviceState {
            temperature: DeviceValue::Is(Celsius::from_int(71)),
            utilisation: DeviceValue::Unknown(ErrorKind::Io),
            slowdowns: DeviceValue::Is(Slowdowns::NONE.with(Slowdown::PowerLimit)),
            throttled: DeviceValue::Is(Percent::from_int(25)),
            ..DeviceState::default()
        };
        devices.see("n", &gpus(&[("gpu-a", hot), ("gpu-b", DeviceState::default())]), &mut known);
        assert_eq!(
            text(&registry),
            [
                r#"joulie_gpu_slowed{node="n",gpu="gpu-a",cause="current"} 0"#,
                r#"joulie_gpu_slowed{node="n",gpu="gpu-a",cause="hardware"} 0"#,
                r#"joulie_gpu_slowed{node="n",gpu="gpu-a",cause="heat"} 0"#,
                r#"joulie_gpu_slowed{node="n",gpu="gpu-a",cause="power_limit"} 1"#,
                r#"joulie_gpu_slowed{node="n",gpu="gpu-a",cause="setting"} 0"#,
                r#"joulie_gpu_temperature_celsius{node="n",gpu="gpu-a"} 71.0"#,
                r#"joulie_throttled_ratio{node="n",device="gpu-a"} 0.25"#,
            ]
        );
        devices.see("n", &gpus(&[("gpu-b", hot)]), &mut known);
        assert!(text(&registry).iter().all(|series| series.contains("gpu-b")), "{:?}", text(&registry));
        devices.forget("n", known);
        assert_eq!(text(&registry), [""; 0]);
    }

    #[test]
    fn the_cause_of_a_loop_over_a_clock_is_one_of_four_and_a_clock_that_cannot_be_locked_has_none() {
        let mut registry = MetricsRegistry::default();
        let devices = Devices::default();
        devices.register(&mut registry);
        let mut known = KnownDevices::default();
        let mut view = gpus(&[("gpu-a", DeviceState::default()), ("gpu-b", DeviceState::default())]);
        view.gpu.devices[0].beside.clock = ClockLoop::Holds(node_kit::LoopCause::Refused);
        view.gpu.devices[0].beside.clock_limit = Some(KiloHertz::from_int(1_215_000));
        devices.see("n", &view, &mut known);
        let series = |cause, value| {
            format!(r#"joulie_gpu_clock_loop{{node="n",gpu="gpu-a",cause="{cause}"}} {value}"#)
        };
        let all = [
            r#"joulie_gpu_clock_limit_hertz{node="n",gpu="gpu-a"} 1215000000.0"#.to_owned(),
            series("no_limit", 0),
            series("not_kept", 0),
            series("out_of_range", 0),
            series("refused", 1),
        ];
        assert_eq!(text(&registry), all);
        view.gpu.devices[0].beside.clock = ClockLoop::Idle;
        view.gpu.devices[0].beside.clock_limit = None;
        devices.see("n", &view, &mut known);
        assert!(text(&registry).iter().all(|series| series.ends_with(" 0")));
        devices.forget("n", known);
        assert_eq!(text(&registry), [""; 0]);
    }
}
