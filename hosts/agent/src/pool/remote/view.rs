//! Builds the view that a node's task gives to the front, from telemetry and from what was read back.

use super::super::engine::{NodeEngine, Reach, Shape};
use super::super::wire::Telemetry;
use super::{Hints, Task};
use crate::machine::{Beside, Details, Device, Drawn, Found, FoundGpus, LeaseState, Means, Part, View};
use crate::settings::NodeEndpoint;
use joulie_core::node::backend::Package;
use joulie_core::node::cap::{CapRange, CapReport};
use joulie_core::node::engine::TargetId;
use joulie_core::node::gpu_cap::CappedGpu;
use node_kit::{Desire, DeviceWants, NodeWants};
use power_units::Watts;
use std::sync::Arc;

/// The class of the limits that the contract over HTTP sets (`rapl.set_power_cap_watts`).
const RAPL: &str = "rapl";

impl Task {
    pub(super) fn tell(&mut self, desire: Desire) {
        let Some(engine) = &self.engine else { return };
        // A node that is here for its grant alone may be another agent's, such as one of the DaemonSet: until its endpoint has
        // answered, nothing is said of it.
        if self.described.is_none() && !self.is_kept && !self.hints().is_selected {
            return;
        }
        let shape = self.shape();
        let found = found(&self.hints(), self.described.as_ref(), shape, self.reach());
        if *self.found != found {
            self.found = Arc::new(found);
        }
        let node_power = self.telemetry.as_ref().and_then(|it| it.node.watts());
        let view = View {
            desire,
            cpu: self.cpu_part(engine, shape),
            gpu: self.gpu_part(engine, shape),
            node_power,
            rest: self.differences.rest().filter(|_| node_power.is_some()),
            plug: None,
            source: "http",
            found: self.found.clone(),
            lease: LeaseState::of(engine.engine().lease(), desire.grant.is_some()),
            boot: self.described.as_ref().and_then(|it| it.boot.clone()),
            wants: NodeWants::of(engine.engine().demand()),
            details: self.details(engine),
        };
        self.views.send_if_modified(|last| {
            let changed = last.as_ref() != Some(&view);
            *last = Some(view);
            changed
        });
    }

    /// Takes in by how much the last answer says more of the whole node than of its packages and GPUs.
    pub(super) fn compare(&mut self) {
        let has_gpus = self.shape().gpus > 0;
        let Some(told) = &self.telemetry else { return };
        let gpus = if has_gpus { told.gpu.watts() } else { Some(Watts::ZERO) };
        let devices = told.cpu.watts().zip(gpus).and_then(|(cpus, gpus)| cpus.checked_add(gpus));
        if let Some((node, devices)) = told.node.watts().zip(devices) {
            self.differences.take(node - devices);
        }
    }

    fn cpu_part(&self, node: &NodeEngine, shape: Shape) -> Part {
        let status = node.engine().cpu().map(|cpu| cpu.status);
        let told = self.telemetry.as_ref();
        let (cap, _) = node.in_force();
        let limit = cap.or_else(|| told.and_then(|it| it.cap));
        let wants = DeviceWants::of(node.engine().demand_of(TargetId::Package(0)));
        let package = |at: usize| Device {
            key: format!("package-{at}"),
            limit,
            range: shape.range.unwrap_or(CapRange::UNKNOWN),
            share: node.engine().packages().first().and_then(Package::share),
            drawn: drawn(
                &self.routing.source,
                told.and_then(|it| it.packages.get(at)).and_then(|said| said.watts()),
            ),
            energy: None,
            beside: Beside { wants, ..Beside::default() },
        };
        Part {
            means: Means::of_packages(status.map(|status| status.backend), RAPL),
            report: status.map_or(CapReport::Pending, |status| status.report),
            devices: (0..usize::try_from(shape.packages).unwrap_or(1)).map(package).collect(),
            drawn: drawn(&self.routing.source, told.and_then(|it| it.cpu.watts())),
            trouble: self.words(),
        }
    }

    fn gpu_part(&self, node: &NodeEngine, shape: Shape) -> Part {
        let told = self.telemetry.as_ref();
        let (_, cap) = node.in_force();
        let limit = cap.or_else(|| told.and_then(|it| it.gpu_cap));
        let range = shape.gpu_range.unwrap_or(CapRange::UNKNOWN);
        let wants = DeviceWants::of(node.engine().demand_of(TargetId::Gpu(0)));
        let gpu = |at: u32| Device {
            key: format!("gpu-{at}"),
            limit,
            range,
            share: node.engine().gpus().first().and_then(CappedGpu::share),
            drawn: Drawn::Unknown,
            energy: None,
            beside: Beside { wants, ..Beside::default() },
        };
        Part {
            means: if shape.gpus > 0 { Means::Http } else { Means::None },
            report: node.engine().gpu().map_or(CapReport::Pending, |gpus| gpus.report),
            devices: (0..shape.gpus).map(gpu).collect(),
            drawn: match shape.gpus {
                0 => Drawn::Unmetered,
                _ => drawn(&self.routing.gpu_source, told.and_then(|it| it.gpu.watts())),
            },
            trouble: self.words(),
        }
    }

    fn words(&self) -> Option<String> {
        let texts: Vec<&str> = self.trouble.iter().flatten().map(|trouble| trouble.text.as_str()).collect();
        if texts.is_empty() { None } else { Some(texts.join("; ")) }
    }

    fn details(&self, node: &NodeEngine) -> Details {
        let engine = node.engine();
        Details {
            mode: Means::of_packages(engine.cpu().map(|cpu| cpu.mode), RAPL),
            law: engine.law().copied(),
            throttle_pct: node.throttle.map(|throttle| throttle.get()),
            actions: engine.actions(),
            moved: engine.moved(),
            blind: self.counts.blind,
            late: self.counts.late,
            refused: self.counts.refused,
            troubles: vec![("http", self.counts.failures == 0, self.counts.troubles)],
            ..Details::default()
        }
    }
}

fn drawn(source: &Option<NodeEndpoint>, watts: Option<Watts>) -> Drawn {
    match (watts, source) {
        (Some(watts), _) => Drawn::Is(watts),
        (None, Some(_)) => Drawn::Unknown,
        (None, None) => Drawn::Unmetered,
    }
}

fn found(hints: &Hints, told: Option<&Telemetry>, shape: Shape, reach: Reach) -> Found {
    let vendor = |text: &str| match text.to_ascii_lowercase().as_str() {
        "nvidia" => Some("nvidia"),
        "amd" => Some("amd"),
        "intel" => Some("intel"),
        _ => None,
    };
    Found {
        cpu_vendor: None,
        cpu_model: told.and_then(|it| it.cpu_model.clone()).or_else(|| hints.cpu_model.clone()),
        packages: told.and_then(|it| it.sockets).or(hints.sockets),
        cores: told.and_then(|it| it.cores),
        package_range: shape.range,
        cpu_driver: None,
        cpu_control: reach.cpu,
        cpu_metered: reach.meter,
        frequencies: None,
        nominal_mhz: None,
        nonlinear_mhz: None,
        link_class: None,
        memory_bytes: None,
        gpus: Some(FoundGpus {
            vendor: told.and_then(|it| it.gpu_vendor.as_deref()).and_then(vendor),
            model: told.and_then(|it| it.gpu_product.clone()).or_else(|| hints.gpu_model.clone()),
            count: shape.gpus,
            range: shape.gpu_range.filter(|_| shape.gpus > 0),
            default_watts: None,
            current_watts: None,
            slicing: &[],
            control: reach.gpu && shape.gpus > 0,
            metered: reach.gpu_meter && shape.gpus > 0,
        }),
    }
}
