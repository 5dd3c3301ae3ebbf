//! Builds the front's view from node-kit's report.

use super::identity::Identity;
use crate::machine::{
    Beside, ClockLoop, Details, Device, Drawn, Found, FoundGpus, LeaseState, MIXED, Means, Part, View,
};
use crate::plug::PlugView;
use joulie_core::node::cap::{CapRange, CapReport};
use joulie_core::node::energy::{Gap, MeterReading};
use joulie_core::node::law::{Command, LawAction};
use node_kit::{BackendReport, BackendState, DeviceReport, HalFacts, HalTarget, LoopCause, NodeReport};
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
    /// Builds the view.
    pub(super) fn view(&mut self, report: &NodeReport, identity: &Identity, plug: Option<PlugView>) -> View {
        let found = found(report, identity);
        if *self.found != found {
            self.found = Arc::new(found);
        }
        self.count(report);
        View {
            desire: report.desire,
            cpu: cpu(report),
            gpu: gpu(report),
            node_power: plug.and_then(|plug| plug.watts),
            rest: plug.and_then(|plug| plug.rest),
            plug,
            source: class(&report.packages),
            found: self.found.clone(),
            lease: LeaseState::of(report.lease.map(|(phase, _)| phase), report.desire.grant.is_some()),
            boot: identity.boot.clone(),
            wants: report.wants,
            details: self.details(report),
        }
    }

    /// A decision of the closed loop stays in the report until the next one, so it is counted once in each period.
    fn count(&mut self, report: &NodeReport) {
        if self.period == report.counts.periods {
            return;
        }
        self.period = report.counts.periods;
        match report.law.map(|law| law.action) {
            Some(LawAction::ThrottleUp | LawAction::FailSafe) => self.actions.0 += 1,
            Some(LawAction::ThrottleDown) => self.actions.1 += 1,
            Some(LawAction::Hold(_)) | None => {}
        }
    }

    fn details(&self, report: &NodeReport) -> Details {
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
            mode: Means::of_packages(report.cpu.map(|cpu| cpu.mode), class(&report.packages)),
            law: report.law,
            throttle_pct: throttle,
            actions: self.actions,
            policies: policies.collect(),
            originals: report.originals,
            moved: report.counts.moved,
            blind: report.counts.blind,
            late: report.counts.late,
            // The devices are counted here, so no count from outside can be refused.
            refused: 0,
            troubles: troubles
                .map(|backend| (backend.kind.label(), is_ready(backend), backend.troubles))
                .collect(),
        }
    }
}

/// The CPU number in the key of a frequency policy.
fn lowest_cpu(key: &str) -> Option<u16> {
    key.rsplit_once('-')?.1.parse().ok()
}

/// Absent hardware is not a failure, and has no series.
fn is_of_interest(backend: &BackendReport) -> bool {
    backend.domains > 0 || backend.troubles > 0
}

fn is_ready(backend: &BackendReport) -> bool {
    backend.standing == BackendState::Ready && backend.stuck_since.is_none()
}

fn cpu(report: &NodeReport) -> Part {
    let status = report.cpu.map(|cpu| cpu.status);
    Part {
        means: Means::of_packages(status.map(|status| status.backend), class(&report.packages)),
        report: status.map_or(CapReport::Pending, |status| status.report),
        devices: report.packages.iter().map(device).collect(),
        drawn: report.power.map_or(Drawn::Unknown, drawn),
        trouble: trouble(report, |caps| caps != HalTarget::Gpu),
    }
}

fn gpu(report: &NodeReport) -> Part {
    Part {
        means: if report.gpus.is_empty() { Means::None } else { Means::Limits(class(&report.gpus)) },
        report: report.gpu.map_or(CapReport::Pending, |gpu| gpu.report),
        devices: report.gpus.iter().map(device).collect(),
        drawn: Drawn::sum(report.gpus.iter().map(|gpu| drawn(gpu.power))),
        trouble: trouble(report, |caps| caps == HalTarget::Gpu),
    }
}

/// What packages and GPUs draw together, if that is known of each.
pub(super) fn devices(report: &NodeReport) -> Option<Watts> {
    let cpu = report.power.map_or(Drawn::Unknown, drawn).watts()?;
    if report.gpus.is_empty() {
        return Some(cpu);
    }
    cpu.checked_add(Drawn::sum(report.gpus.iter().map(|gpu| drawn(gpu.power))).watts()?)
}

/// What node-kit's table says of these devices, if it says the same of all; `None` if it says it of none.
fn common_fact(
    devices: &[DeviceReport],
    fact: impl Fn(&HalFacts) -> Option<&'static str>,
) -> Option<&'static str> {
    let kinds = devices.iter().filter_map(|device| device.backend);
    kinds.filter_map(|kind| fact(kind.facts())).reduce(|all, next| if next == all { all } else { MIXED })
}

/// The class of the HALs that limit or measure these devices.
fn class(devices: &[DeviceReport]) -> &'static str {
    common_fact(devices, |facts| Some(facts.class)).unwrap_or(Means::None.word())
}

/// The limit that holds a device: that of the loop over its clock, or its own unless it is known not to keep to that.
fn limit(device: &DeviceReport) -> Option<Watts> {
    let (cap, cause) = device.clock.map_or((None, None), |clock| (clock.cap, clock.cause));
    cap.or(device.limit.filter(|_| cause != Some(LoopCause::NotKept)))
}

fn device(device: &DeviceReport) -> Device {
    Device {
        key: device.key.as_str().to_owned(),
        limit: limit(device),
        range: range(device).below(device.owners),
        share: device.share,
        drawn: drawn(device.power),
        energy: device.energy,
        beside: Beside {
            dram: drawn(device.dram),
            dram_energy: device.dram_energy,
            state: device.state,
            wants: device.wants,
            clock: match device.clock {
                None => ClockLoop::Lacking,
                Some(clock) => clock.cause.map_or(ClockLoop::Idle, ClockLoop::Holds),
            },
            clock_limit: device.clock.filter(|clock| clock.cause.is_some()).and_then(|clock| clock.limit),
        },
    }
}

fn range(device: &DeviceReport) -> CapRange {
    let limit = device.described.as_ref().and_then(|domain| domain.power());
    // As in the laws, the lowest limit rounds up and the highest rounds down, so both are inside the range.
    let min = limit.and_then(|limit| limit.min()).map(|min| min.to_watts(Role::Demand));
    let max = limit.and_then(|limit| limit.max()).map(|max| max.to_watts(Role::Limit));
    CapRange::new(min, max, None)
}

const fn drawn(reading: MeterReading) -> Drawn {
    match reading {
        MeterReading::Fresh { watts, .. } => Drawn::Is(watts),
        MeterReading::Missing(Gap::NoMeter) => Drawn::Unmetered,
        MeterReading::Stale { .. } | MeterReading::Missing(_) | MeterReading::Impossible(_) => Drawn::Unknown,
    }
}

/// The last failure of these backends, in words for a person.
fn trouble(report: &NodeReport, of: impl Fn(HalTarget) -> bool) -> Option<String> {
    let ours = report.backends.iter().filter(|backend| of(backend.kind.facts().caps));
    let texts: Vec<String> = ours
        .filter_map(|backend| match (&backend.standing, &backend.last_trouble) {
            (BackendState::Failed(trouble), _) | (_, Some(trouble)) => Some(trouble.to_string()),
            (BackendState::Opening | BackendState::Ready, None) => None,
        })
        .collect();
    if texts.is_empty() { None } else { Some(texts.join("; ")) }
}

fn found(report: &NodeReport, identity: &Identity) -> Found {
    let limited = report.packages.iter().any(has_limit);
    let metered = |device: &DeviceReport| !matches!(device.power, MeterReading::Missing(Gap::NoMeter));
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
        package_range: range_of_each(report.packages.iter().map(range)),
        cpu_driver: identity.driver.clone(),
        cpu_control: limited || !report.policies.is_empty(),
        cpu_metered: !report.packages.is_empty() && report.packages.iter().all(metered),
        frequencies: frequencies(report),
        nominal_mhz: identity.nominal_mhz,
        nonlinear_mhz: identity.nonlinear_mhz,
        link_class: identity.link_class,
        memory_bytes: identity.memory_bytes,
        gpus: gpus(report, identity),
    }
}

fn has_limit(device: &DeviceReport) -> bool {
    device.described.as_ref().is_some_and(|domain| domain.power().is_some())
}

/// One range that stands for each of the devices, since others multiply it by their number. What each may draw, and how
/// low each goes, must not come out too low. So each end is the largest of all; `None` if one maximum is not known.
fn range_of_each(ranges: impl Iterator<Item = CapRange> + Clone) -> Option<CapRange> {
    let max = largest(ranges.clone().map(CapRange::max))?;
    let min = ranges.filter_map(CapRange::min).max();
    Some(CapRange::new(min, Some(max), None))
}

/// The largest value; `None` if one of them is not known.
fn largest(all: impl Iterator<Item = Option<Watts>>) -> Option<Watts> {
    all.collect::<Option<Vec<_>>>()?.into_iter().max()
}

fn frequencies(report: &NodeReport) -> Option<(KiloHertz, KiloHertz)> {
    let min = report.policies.iter().map(|policy| policy.min).min()?;
    let max = report.policies.iter().map(|policy| policy.max).max()?;
    Some((min, max))
}

/// `None` while the drivers of GPUs have not answered yet. A node without GPUs has no such drivers.
fn gpus(report: &NodeReport, identity: &Identity) -> Option<FoundGpus> {
    let opening = |backend: &BackendReport| {
        backend.kind.facts().caps == HalTarget::Gpu && backend.standing == BackendState::Opening
    };
    if report.gpus.is_empty() && report.backends.iter().any(opening) {
        return None;
    }
    let vendor = common_fact(&report.gpus, |facts| facts.vendor);
    let default = |gpu: &DeviceReport| gpu.described.as_ref()?.power()?.default();
    let metered = |gpu: &DeviceReport| !matches!(gpu.power, MeterReading::Missing(Gap::NoMeter));
    let current = |gpu: &DeviceReport| gpu.limit.filter(|_| !gpu.ours);
    Some(FoundGpus {
        vendor,
        // The kernel's files do not name Intel's cards.
        model: match vendor {
            Some("nvidia") => identity.nvidia_model.clone(),
            Some("amd") => identity.amd_model.clone(),
            Some(_) | None => None,
        },
        count: u32::try_from(report.gpus.len()).unwrap_or(u32::MAX),
        range: range_of_each(report.gpus.iter().map(range)),
        default_watts: largest(
            report.gpus.iter().map(|gpu| default(gpu).map(|most| most.to_watts(Role::Limit))),
        ),
        // The outcome reports Joulie's limits; this is the limit that the owner has set.
        current_watts: largest(report.gpus.iter().map(current)),
        slicing: if vendor == Some("nvidia") { slicing(report) } else { &[] },
        control: report.gpus.iter().any(has_limit),
        metered: !report.gpus.is_empty() && report.gpus.iter().all(metered),
    })
}

/// In which ways NVIDIA's cards can be divided, in the words of the status: all take turns, and some have instances. Which of the
/// two these are is not known before their driver has answered for one.
fn slicing(report: &NodeReport) -> &'static [&'static str] {
    let lists = report.backends.iter().filter_map(|backend| backend.cards.as_deref());
    let known = lists.flat_map(|cards| &cards.list).filter_map(|card| card.divisible);
    match known.reduce(|some, divisible| some || divisible) {
        None => &[],
        Some(true) => &["mig", "dra-timeslice"],
        Some(false) => &["dra-timeslice"],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use node_kit::{BackendKind, CardFacts, Cards, ClockReport};
    use power_hal::{Domain, Limit, Span};
    use power_units::MicroWatts;

    fn gpu(address: &str, kind: BackendKind, range: Option<(u64, u64)>) -> DeviceReport {
        let uw = |watts: u64| MicroWatts::new(watts * 1_000_000);
        let bare = Domain::gpu(address).unwrap();
        let span = Span { floor: uw(1), ceiling: uw(4_000) };
        let limit = Limit::new(span, uw(1)).unwrap();
        let (min, max) = range.unzip();
        let limit = limit.known(min.map(uw), max.map(uw)).unwrap().with_default(max.map(uw));
        DeviceReport {
            key: *bare.key(),
            backend: Some(kind),
            described: Some(bare.with_power_meter().with_power(limit)),
            power: MeterReading::Missing(Gap::Unread),
            counter: None,
            energy: None,
            dram: MeterReading::Missing(Gap::NoMeter),
            dram_energy: None,
            state: node_kit::DeviceState::default(),
            limit: max.and_then(|max| i32::try_from(max).ok()).map(Watts::from_int),
            owners: None,
            ours: false,
            share: None,
            wants: node_kit::DeviceWants::default(),
            clock: None,
        }
    }

    fn found(gpus: Vec<DeviceReport>) -> (FoundGpus, Means) {
        let report = NodeReport { gpus, ..NodeReport::default() };
        let identity = Identity {
            nvidia_model: Some("NVIDIA H100".to_owned()),
            amd_model: Some("AMD Instinct MI300X".to_owned()),
            ..Identity::default()
        };
        (super::gpus(&report, &identity).unwrap(), super::gpu(&report).means)
    }

    #[test]
    fn different_gpus_are_never_counted_below_what_they_may_draw() {
        let (nvidia, amd) = (BackendKind::Nvidia, BackendKind::AmdGpu);
        let two =
            |second| vec![gpu("0000:19:00.0", nvidia, Some((200, 700))), gpu("0000:c1:00.0", nvidia, second)];
        let (gpus, _) = found(two(Some((100, 400))));
        let range = gpus.range.unwrap();
        // Two times 700 W are no less than 700 W and 400 W; two times 200 W no less than 200 W and 100 W.
        assert_eq!((range.min(), range.max()), (Some(Watts::from_int(200)), Some(Watts::from_int(700))));
        assert_eq!(gpus.default_watts, Some(Watts::from_int(700)));
        assert_eq!(gpus.current_watts, Some(Watts::from_int(700)));
        let (gpus, _) = found(two(None));
        assert_eq!(
            (gpus.range, gpus.default_watts, gpus.current_watts),
            (None, None, None),
            "one is not known"
        );
        let (mixed, means) = found(vec![
            gpu("0000:19:00.0", nvidia, Some((200, 700))),
            gpu("0000:0c:00.0", amd, Some((350, 750))),
        ]);
        assert_eq!((mixed.vendor, mixed.model, means), (Some(MIXED), None, Means::Limits(MIXED)));
    }

    #[test]
    fn a_limit_that_is_not_kept_is_no_limit_while_no_loop_holds_the_gpu() {
        let of = |cap: Option<i32>, cause| {
            let clock = ClockReport { cause, cap: cap.map(Watts::from_int), limit: None, running: None };
            let gpu = gpu("0000:19:00.0", BackendKind::Nvidia, Some((200, 700)));
            limit(&DeviceReport { limit: Some(Watts::from_int(300)), clock: Some(clock), ..gpu })
        };
        let (loops, keeps) = (Some(Watts::from_int(250)), Some(Watts::from_int(300)));
        assert_eq!((of(None, None), of(None, Some(LoopCause::OutOfRange))), (keeps, keeps));
        assert_eq!(
            (of(Some(250), Some(LoopCause::NotKept)), of(None, Some(LoopCause::NotKept))),
            (loops, None)
        );
    }

    #[test]
    fn gpus_of_one_maker_are_told_as_its_own() {
        let (nvidia, amd) = ("NVIDIA H100", "AMD Instinct MI300X");
        for (kind, vendor, word, model) in [
            (BackendKind::Nvidia, "nvidia", "host-nvidia", Some(nvidia)),
            (BackendKind::AmdGpu, "amd", "host-amd", Some(amd)),
            (BackendKind::Rocm, "amd", "host-amd", Some(amd)),
            (BackendKind::Intel, "intel", "host-intel", None),
        ] {
            let (gpus, means) = found(vec![gpu("0000:19:00.0", kind, Some((200, 700)))]);
            assert_eq!((gpus.vendor, means), (Some(vendor), Means::Limits(word)));
            assert_eq!(gpus.model.as_deref(), model, "no name of another maker's files");
        }
        assert_eq!(found(vec![]).1, Means::None);
    }

    #[test]
    fn how_cards_can_be_divided_is_said_once_their_driver_has_answered() {
        // Fix list operator B-G1: nobody said it, so that there was no advice on dividing them.
        let card = |divisible| CardFacts {
            divisible,
            ..CardFacts::of(power_hal::Key::gpu("0000:19:00.0").unwrap())
        };
        let of = |kind: BackendKind, list: Vec<CardFacts>| {
            let backend = BackendReport {
                kind,
                standing: BackendState::Ready,
                domains: 1,
                stuck_since: None,
                complaints: Arc::from([]),
                cards: Some(Arc::new(Cards { list, complete: true, answered: true })),
                uses: None,
                last_trouble: None,
                troubles: 0,
            };
            let gpus = vec![gpu("0000:19:00.0", kind, Some((200, 700)))];
            let report = NodeReport { gpus, backends: vec![backend], ..NodeReport::default() };
            super::gpus(&report, &Identity::default()).unwrap().slicing
        };
        let nvidia = BackendKind::Nvidia;
        assert_eq!(of(nvidia, vec![card(Some(false)), card(Some(true))]), ["mig", "dra-timeslice"]);
        assert_eq!(of(nvidia, vec![card(Some(false)), card(None)]), ["dra-timeslice"]);
        for unknown in [vec![], vec![card(None)]] {
            assert!(of(nvidia, unknown).is_empty(), "no driver has said it");
        }
        assert!(of(BackendKind::AmdGpu, vec![card(Some(true))]).is_empty(), "these words are of NVIDIA's");
    }

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
