//! From node-kit's report to what the front may know.

use super::identity::Identity;
use crate::machine::{Details, Device, Drawn, Found, FoundGpus, LeaseState, Means, Part, View};
use joulie_core::node::cap::{Backend, CapRange, Report as CapReport};
use joulie_core::node::energy::{Gap, Reading};
use joulie_core::node::law::{Action, Command};
use joulie_core::node::lease::Phase;
use node_kit::{BackendKind, BackendReport, DeviceReport, Report, Standing};
use power_units::{KiloHertz, Role, Watts};
use std::sync::Arc;

/// What is remembered from one report to the next.
#[derive(Default)]
pub(super) struct Memory {
    found: Arc<Found>,
    actions: (u64, u64),
    period: u64,
}

impl Memory {
    /// What the front may know.
    pub(super) fn view(&mut self, report: &Report, identity: &Identity) -> View {
        let found = found(report, identity);
        if *self.found != found {
            self.found = Arc::new(found);
        }
        self.count(report);
        View {
            desire: report.desire,
            cpu: cpu(report),
            gpu: gpu(report),
            node_power: None,
            source: source(report),
            found: self.found.clone(),
            lease: report.lease.map_or(LeaseState::Desired, |(phase, _)| {
                let relaxes_not = report.desire.grant.is_some() && phase == Phase::Relaxed;
                if relaxes_not { LeaseState::Held } else { lease(phase) }
            }),
            boot: identity.boot.clone(),
            details: self.details(report),
        }
    }

    /// A decision of the closed loop stays in the report until the next one, so it counts once a period.
    fn count(&mut self, report: &Report) {
        if self.period == report.counts.periods {
            return;
        }
        self.period = report.counts.periods;
        match report.law.map(|law| law.action) {
            Some(Action::ThrottleUp | Action::FailSafe) => self.actions.0 += 1,
            Some(Action::ThrottleDown) => self.actions.1 += 1,
            Some(Action::Hold(_)) | None => {}
        }
    }

    fn details(&self, report: &Report) -> Details {
        let throttle =
            match (report.law.and_then(|law| law.in_effect), report.cpu.map(|cpu| cpu.status.report)) {
                (Some(Command::Throttle(throttle)), _) | (_, Some(CapReport::Throttled(throttle))) => {
                    Some(throttle.get())
                }
                (Some(Command::MeanFrequency(_)) | None, _) => None,
            };
        let policies = report
            .policies
            .iter()
            .filter_map(|policy| Some((lowest_cpu(policy.key.as_str())?, policy.running, policy.limit)));
        let troubles = report.backends.iter().filter(|backend| is_of_interest(backend));
        Details {
            mode: report.cpu.map(|cpu| cpu.mode),
            law: report.law,
            throttle_pct: throttle,
            actions: self.actions,
            policies: policies.collect(),
            originals: report.originals,
            moved: report.counts.moved,
            blind: report.counts.blind,
            late: report.counts.late,
            // The hardware is counted here, and not said.
            refused: 0,
            troubles: troubles
                .map(|backend| (backend.kind.label(), is_ready(backend), backend.troubles))
                .collect(),
        }
    }
}

/// The processor that a frequency policy is numbered by.
fn lowest_cpu(key: &str) -> Option<u16> {
    key.rsplit_once('-')?.1.parse().ok()
}

/// Absent hardware is no trouble, and has no series.
fn is_of_interest(backend: &BackendReport) -> bool {
    backend.domains > 0 || backend.troubles > 0
}

fn is_ready(backend: &BackendReport) -> bool {
    backend.standing == Standing::Ready && backend.stuck_since.is_none()
}

const fn lease(phase: Phase) -> LeaseState {
    match phase {
        Phase::Started { .. } | Phase::Renewed { .. } => LeaseState::Desired,
        Phase::Holding | Phase::Waiting { .. } => LeaseState::Held,
        Phase::Relaxed => LeaseState::Relaxed,
        Phase::Safe => LeaseState::Safe,
    }
}

fn cpu(report: &Report) -> Part {
    let status = report.cpu.map(|cpu| cpu.status);
    let backends = [
        BackendKind::Powercap,
        BackendKind::Msr,
        BackendKind::Cpufreq,
        BackendKind::AmdSocket,
        BackendKind::Hsmp,
    ];
    Part {
        means: match status.map(|status| status.backend) {
            None | Some(Backend::None) => Means::None,
            Some(Backend::Rapl) => Means::Rapl,
            Some(Backend::Dvfs) => Means::Dvfs,
        },
        report: status.map_or(CapReport::Pending, |status| status.report),
        devices: report.packages.iter().map(device).collect(),
        drawn: report.power.map_or(Drawn::Unknown, drawn),
        trouble: trouble(report, &backends),
    }
}

fn gpu(report: &Report) -> Part {
    let backends = [BackendKind::Nvidia, BackendKind::AmdGpu, BackendKind::Rocm];
    Part {
        means: gpu_means(report),
        report: report.gpu.map_or(CapReport::Pending, |gpu| gpu.report),
        devices: report.gpus.iter().map(device).collect(),
        drawn: Drawn::sum(report.gpus.iter().map(|gpu| drawn(gpu.power))),
        trouble: trouble(report, &backends),
    }
}

fn gpu_means(report: &Report) -> Means {
    let nvidia = |gpu: &DeviceReport| gpu.backend == Some(BackendKind::Nvidia);
    match report.gpus.first() {
        None => Means::None,
        Some(_) if report.gpus.iter().any(nvidia) => Means::HostNvidia,
        Some(_) => Means::HostAmd,
    }
}

fn device(device: &DeviceReport) -> Device {
    Device {
        key: device.key.as_str().to_owned(),
        limit: device.limit,
        range: range(device).below(device.owners),
        share: device.share,
        drawn: drawn(device.power),
        energy: device.energy,
    }
}

fn range(device: &DeviceReport) -> CapRange {
    let limit = device.described.as_ref().and_then(|domain| domain.power());
    // As in the laws, the lowest limit rounds up and the highest down: both are inside the range.
    let min = limit.and_then(|limit| limit.min()).map(|min| min.to_watts(Role::Demand));
    let max = limit.and_then(|limit| limit.max()).map(|max| max.to_watts(Role::Limit));
    CapRange::new(min, max, None)
}

const fn drawn(reading: Reading) -> Drawn {
    match reading {
        Reading::Fresh { watts, .. } => Drawn::Is(watts),
        Reading::Missing(Gap::NoMeter) => Drawn::Unmetered,
        Reading::Stale { .. } | Reading::Missing(_) | Reading::Impossible(_) => Drawn::Unknown,
    }
}

/// The last failure of these backends, in words for a person.
fn trouble(report: &Report, kinds: &[BackendKind]) -> Option<String> {
    let ours = report.backends.iter().filter(|backend| kinds.contains(&backend.kind));
    let texts: Vec<String> = ours
        .filter_map(|backend| match (&backend.standing, &backend.last_trouble) {
            (Standing::Failed(trouble), _) | (_, Some(trouble)) => Some(trouble.to_string()),
            (Standing::Opening | Standing::Ready, None) => None,
        })
        .collect();
    if texts.is_empty() { None } else { Some(texts.join("; ")) }
}

/// Who measures the packages.
fn source(report: &Report) -> &'static str {
    match report.packages.iter().find_map(|package| package.backend) {
        Some(BackendKind::Powercap | BackendKind::Msr) => "rapl",
        Some(BackendKind::AmdSocket | BackendKind::Hsmp) => "hsmp",
        Some(BackendKind::Nvidia | BackendKind::AmdGpu | BackendKind::Rocm | BackendKind::Cpufreq) | None => {
            "none"
        }
    }
}

fn found(report: &Report, identity: &Identity) -> Found {
    let limited = report.packages.iter().any(has_limit);
    let metered = |device: &DeviceReport| !matches!(device.power, Reading::Missing(Gap::NoMeter));
    let packages = report
        .packages
        .iter()
        .filter_map(|package| package.described.as_ref().and_then(|domain| domain.package_number()));
    let mut numbers: Vec<u16> = packages.collect();
    numbers.sort_unstable();
    numbers.dedup();
    Found {
        cpu_vendor: identity.vendor.clone(),
        cpu_model: identity.model.clone(),
        packages: u32::try_from(numbers.len()).ok().filter(|&count| count > 0),
        cores: None,
        package_range: common(report.packages.iter().map(range)),
        cpu_driver: identity.driver.clone(),
        cpu_control: limited || !report.policies.is_empty(),
        cpu_metered: !report.packages.is_empty() && report.packages.iter().all(metered),
        frequencies: frequencies(report),
        memory_bytes: identity.memory_bytes,
        gpus: gpus(report, identity),
    }
}

fn has_limit(device: &DeviceReport) -> bool {
    device.described.as_ref().is_some_and(|domain| domain.power().is_some())
}

/// The range that every device takes, where that is known.
fn common(ranges: impl Iterator<Item = CapRange>) -> Option<CapRange> {
    let (mut min, mut max): (Option<Watts>, Option<Watts>) = (None, None);
    for range in ranges {
        min = min.max(range.min());
        max = match (max, range.max()) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (one, other) => one.or(other),
        };
    }
    max.map(|max| CapRange::new(min, Some(max), None))
}

fn frequencies(report: &Report) -> Option<(KiloHertz, KiloHertz)> {
    let min = report.policies.iter().map(|policy| policy.min).min()?;
    let max = report.policies.iter().map(|policy| policy.max).max()?;
    Some((min, max))
}

/// Nothing where the drivers of GPUs have not answered yet; a node without GPUs has none of them.
fn gpus(report: &Report, identity: &Identity) -> Option<FoundGpus> {
    let kinds = [BackendKind::Nvidia, BackendKind::AmdGpu, BackendKind::Rocm];
    let opening =
        |backend: &BackendReport| kinds.contains(&backend.kind) && backend.standing == Standing::Opening;
    if report.gpus.is_empty() && report.backends.iter().any(opening) {
        return None;
    }
    let vendor = match gpu_means(report) {
        Means::HostNvidia => Some("nvidia"),
        Means::HostAmd => Some("amd"),
        Means::None | Means::Rapl | Means::Dvfs | Means::Http => None,
    };
    let default = |gpu: &DeviceReport| gpu.described.as_ref()?.power()?.default();
    let metered = |gpu: &DeviceReport| !matches!(gpu.power, Reading::Missing(Gap::NoMeter));
    let first = report.gpus.first();
    Some(FoundGpus {
        vendor,
        model: identity.gpu_model.clone(),
        count: u32::try_from(report.gpus.len()).unwrap_or(u32::MAX),
        range: common(report.gpus.iter().map(range)),
        default_watts: first.and_then(default).map(|watts| watts.to_watts(Role::Limit)),
        // What is ours is told by the outcome; this is what the owner has set.
        current_watts: first.filter(|gpu| !gpu.ours).and_then(|gpu| gpu.limit),
        control: report.gpus.iter().any(has_limit),
        metered: !report.gpus.is_empty() && report.gpus.iter().all(metered),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frequency_policy_is_numbered_by_its_lowest_processor() {
        // Agent table, row 4: by the key that the driver's crate gives it, and no path.
        for cpu in [0, 7, 11, u16::MAX] {
            assert_eq!(lowest_cpu(power_hal::Key::policy(cpu).as_str()), Some(cpu));
        }
        for none in ["", "11", "cpu-", "cpu-x", "cpu-65536", "/not/a/cpu/path"] {
            assert_eq!(lowest_cpu(none), None, "{none:?}");
        }
    }
}
