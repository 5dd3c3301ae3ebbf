//! The data of a node for text and JSON output: every value is known, absent, or unknown with a reason.

use super::Site;
use super::words::{Fact, power, standing};
use joulie_core::node::energy::{Gap, MeterReading};
use node_kit::{
    BackendReport, BackendState, Boot, DeviceReport, DeviceState, DeviceValue, Journal, JournalEntry,
    NodeLock, NodeReport,
};
use power_hal::{Control, MemoryUse, Slowdowns};
use power_units::{Celsius, KiloHertz, Micros, Percent, Role, Watts};

/// The data of a node at one moment.
#[derive(Debug)]
pub(super) struct View {
    pub(super) machine: String,
    pub(super) packages: Vec<Device>,
    pub(super) gpus: Vec<Device>,
    pub(super) policies: Policies,
    /// Whether a closed loop over the frequencies could hold a cap on this node, or why not.
    pub(super) fallback: Result<(), &'static str>,
    /// All packages together.
    pub(super) power: Fact<(Watts, Micros)>,
    pub(super) backends: Vec<Backend>,
    pub(super) journal: Result<Originals, String>,
    /// The process that holds the writer's lock, if any.
    pub(super) writer: Result<Option<String>, String>,
}

/// A package or a GPU.
#[derive(Debug)]
pub(super) struct Device {
    pub(super) key: String,
    pub(super) backend: Fact<&'static str>,
    pub(super) min: Fact<Watts>,
    pub(super) max: Fact<Watts>,
    pub(super) limit: Fact<Watts>,
    /// Whether Joulie has set the limit.
    pub(super) ours: Fact<bool>,
    pub(super) power: Fact<(Watts, Micros)>,
    /// The memory of a package, which `power` does not contain.
    pub(super) dram: Fact<(Watts, Micros)>,
    pub(super) state: State,
    /// The clock of a GPU, if that can be limited.
    pub(super) clock: Option<DeviceClock>,
}

/// The clock of a GPU that can be limited.
#[derive(Debug)]
pub(super) struct DeviceClock {
    /// The lowest and the highest limit that it accepts.
    pub(super) range: (KiloHertz, KiloHertz),
    /// The highest clock that is allowed.
    pub(super) limit: Fact<KiloHertz>,
    /// Whether Joulie has set that: then a closed loop holds the GPU instead of its power limit, or has left it there.
    pub(super) ours: Fact<bool>,
    pub(super) running: Fact<KiloHertz>,
}

impl DeviceClock {
    fn of(device: &DeviceReport, unread: &str, journal: Result<&Originals, &String>) -> Option<Self> {
        let (domain, clock) = (device.described.as_ref()?, device.clock?);
        let range = domain.frequency()?;
        let read = |value: Option<KiloHertz>| value.map_or(Fact::Unknown(unread.to_owned()), Fact::Is);
        let limit = if domain.tells_frequency() {
            read(clock.limit)
        } else {
            Fact::Unknown("its driver tells it to nobody".to_owned())
        };
        let is_it = |entry: &JournalEntry| entry.domain == device.key && entry.control == Control::Frequency;
        let ours = match journal {
            Ok(originals) => Fact::Is(originals.entries.iter().any(is_it)),
            Err(_) => Fact::Unknown("the journal cannot be read".to_owned()),
        };
        Some(Self { range: (range.lower(), range.upper()), limit, ours, running: read(clock.running) })
    }
}

/// What a device reports beside its power.
#[derive(Debug)]
pub(super) struct State {
    pub(super) temperature: Fact<Celsius>,
    pub(super) utilisation: Fact<Percent>,
    pub(super) memory: Fact<MemoryUse>,
    pub(super) slowdowns: Fact<Slowdowns>,
    /// In which part of the time between the two readings its power limit held it back.
    pub(super) throttled: Fact<Percent>,
}

impl State {
    fn of(state: &DeviceState) -> Self {
        Self {
            temperature: reported(state.temperature),
            utilisation: reported(state.utilisation),
            memory: reported(state.memory),
            slowdowns: reported(state.slowdowns),
            throttled: reported(state.throttled),
        }
    }

    /// Whether the device reports any of it.
    pub(super) const fn is_told(&self) -> bool {
        !matches!(
            (&self.temperature, &self.utilisation, &self.memory, &self.slowdowns, &self.throttled),
            (Fact::None, Fact::None, Fact::None, Fact::None, Fact::None)
        )
    }
}

fn reported<T>(value: DeviceValue<T>) -> Fact<T> {
    match value {
        DeviceValue::Is(value) => Fact::Is(value),
        DeviceValue::Lacking => Fact::None,
        DeviceValue::Unknown(kind) => Fact::Unknown(kind.to_string()),
    }
}

/// All frequency policies together.
#[derive(Debug)]
pub(super) struct Policies {
    pub(super) count: usize,
    /// The lowest and the highest limit that any of them accepts.
    pub(super) range: Fact<(KiloHertz, KiloHertz)>,
    /// The lowest and the highest limit in force.
    pub(super) limits: Fact<(KiloHertz, KiloHertz)>,
}

/// A backend and its state.
#[derive(Debug)]
pub(super) struct Backend {
    pub(super) name: &'static str,
    pub(super) standing: String,
    pub(super) domains: usize,
    pub(super) complaints: Vec<String>,
}

/// The content of the journal.
#[derive(Debug)]
pub(super) struct Originals {
    pub(super) entries: Vec<JournalEntry>,
    /// The number of entries from an earlier boot; after a reboot the firmware's own limits are in force again.
    pub(super) void: usize,
}

impl View {
    pub(super) fn of(site: &Site, report: &NodeReport) -> Self {
        let journal = originals(site);
        let device = |device| Device::of(device, &report.backends, journal.as_ref());
        Self {
            machine: site.name.clone(),
            packages: report.packages.iter().map(device).collect(),
            gpus: report.gpus.iter().map(device).collect(),
            policies: Policies::of(report),
            fallback: fallback(report),
            power: power(report.power.unwrap_or(MeterReading::Missing(Gap::FirstSample))),
            backends: report.backends.iter().map(Backend::of).collect(),
            writer: NodeLock::holder(&site.state).map_err(|error| error.to_string()),
            journal,
        }
    }
}

fn originals(site: &Site) -> Result<Originals, String> {
    let journal = Boot::of_the_kernel().and_then(|boot| Journal::open(&site.state, boot));
    let journal = journal.map_err(|error| error.to_string())?;
    Ok(Originals { entries: journal.entries(), void: journal.void() })
}

/// Why a closed loop over the frequencies cannot hold a cap, if it cannot.
fn fallback(report: &NodeReport) -> Result<(), &'static str> {
    let unmetered = |device: &DeviceReport| matches!(device.power, MeterReading::Missing(Gap::NoMeter));
    if report.policies.is_empty() {
        Err("there is no frequency policy that could be limited")
    } else if report.packages.is_empty() || report.packages.iter().any(unmetered) {
        Err("nothing measures the power of every package")
    } else {
        Ok(())
    }
}

impl Device {
    fn of(device: &DeviceReport, backends: &[BackendReport], journal: Result<&Originals, &String>) -> Self {
        let from = device.backend.and_then(|kind| backends.iter().find(|backend| backend.kind == kind));
        let limit = device.described.as_ref().map(|domain| domain.power());
        let part =
            |part: fn(&power_hal::Limit<power_units::MicroWatts>) -> Option<power_units::MicroWatts>,
             role| {
                match limit {
                    None => Fact::Unknown("no backend describes it".to_owned()),
                    Some(None) => Fact::None,
                    Some(Some(limit)) => match part(limit) {
                        Some(value) => Fact::Is(value.to_watts(role)),
                        None => Fact::Unknown("the hardware does not say".to_owned()),
                    },
                }
            };
        let in_force = match (limit, device.limit) {
            (None, _) => Fact::Unknown("no backend describes it".to_owned()),
            (Some(None), _) => Fact::None,
            (Some(Some(_)), Some(watts)) => Fact::Is(watts),
            (Some(Some(_)), None) => Fact::Unknown(unread(from)),
        };
        let ours = match (limit, journal.is_ok()) {
            (None | Some(None), _) => Fact::None,
            (Some(Some(_)), true) => Fact::Is(device.ours),
            (Some(Some(_)), false) => Fact::Unknown("the journal cannot be read".to_owned()),
        };
        Self {
            key: device.key.as_str().to_owned(),
            backend: device.backend.map_or(Fact::None, |kind| Fact::Is(kind.label())),
            // As in the control laws, the lowest limit is rounded up and the highest down, so that both are in the
            // range.
            min: part(power_hal::Limit::min, Role::Demand),
            max: part(power_hal::Limit::max, Role::Limit),
            limit: in_force,
            ours,
            power: power(device.power),
            dram: if device.dram == MeterReading::Missing(Gap::NoMeter) {
                Fact::None
            } else {
                power(device.dram)
            },
            state: State::of(&device.state),
            clock: DeviceClock::of(device, &unread(from), journal),
        }
    }
}

/// Why there is no value that a backend should have read.
pub(super) fn unread(from: Option<&BackendReport>) -> String {
    match from.map(|backend| (&backend.standing, &backend.last_trouble)) {
        Some((BackendState::Failed(trouble), _) | (_, Some(trouble))) => trouble.to_string(),
        Some((BackendState::Opening, None)) => "its backend does not answer yet".to_owned(),
        Some((BackendState::Ready, None)) => "it could not be read".to_owned(),
        None => "its backend is not there".to_owned(),
    }
}

impl Policies {
    fn of(report: &NodeReport) -> Self {
        let span = |all: Vec<KiloHertz>| Some((all.iter().min().copied()?, all.iter().max().copied()?));
        let ends = report.policies.iter().flat_map(|policy| [policy.min, policy.max]).collect();
        let limits: Option<Vec<KiloHertz>> = report.policies.iter().map(|policy| policy.limit).collect();
        let unread = || Fact::Unknown("the limit of a policy could not be read".to_owned());
        Self {
            count: report.policies.len(),
            range: span(ends).map_or(Fact::None, Fact::Is),
            limits: match limits {
                None => unread(),
                Some(all) => span(all).map_or(Fact::None, Fact::Is),
            },
        }
    }
}

impl Backend {
    fn of(backend: &BackendReport) -> Self {
        let mut complaints: Vec<String> = backend.complaints.to_vec();
        let last = backend.last_trouble.as_ref().map(ToString::to_string);
        let said = standing(backend);
        complaints.extend(last.filter(|last| !said.contains(last.as_str())));
        Self { name: backend.kind.label(), standing: said, domains: backend.domains, complaints }
    }
}
