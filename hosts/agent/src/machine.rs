//! The interface between the front, which uses the Kubernetes API, and a machine, which controls hardware.
//!
//! ```text
//!  front ──Desire, renewals──▶ Control          the node's own hardware (host), or an HTTP contract (pool)
//!        ◀──────View────────── (latest value)
//! ```
//!
//! A [`View`] is all that the front may know of a machine. It says which [`Desire`] it is about, so the outcome of one
//! desire is never taken for that of the next. The front decides nothing about hardware; a machine knows no API
//! objects.

use crate::plug::PlugView;
use crate::route::Standing;
use joulie_core::node::cap::{Backend, CapRange, CapReport};
use joulie_core::node::law;
use joulie_core::node::lease::LeasePhase;
use joulie_core::placement::freshness::UnixTime;
use node_kit::{Desire, DeviceState, DeviceWants, LoopCause, NodeWants};
use power_units::{KiloHertz, MicroJoules, Watts};
use std::sync::Arc;

/// The front's handle to a machine.
pub(crate) trait Control: Send + Sync + 'static {
    /// Sets what is desired. Repeating it changes nothing.
    fn desire(&self, desire: Desire);
    /// Reports when the desired state was last confirmed to be current.
    fn renewed(&self, at: UnixTime);
    /// Whether the node is this agent's, also before its machine has answered.
    fn is_ours(&self) -> bool;
    /// Through what the machine is reached now.
    fn route(&self) -> Arc<Standing>;
}

/// The state of a machine as of its last step.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct View {
    /// What was desired in that step.
    pub(crate) desire: Desire,
    /// The processors.
    pub(crate) cpu: Part,
    /// The GPUs.
    pub(crate) gpu: Part,
    /// What the whole machine draws, if it has a meter of the whole.
    pub(crate) node_power: Option<Watts>,
    /// What it draws beside packages and GPUs, as far as that is known.
    pub(crate) rest: Option<Watts>,
    /// What is known of the machine's own meter, if it has one.
    pub(crate) plug: Option<PlugView>,
    /// The word for the source of the measurements.
    pub(crate) source: &'static str,
    /// The hardware of the machine.
    pub(crate) found: Arc<Found>,
    /// Which caps are in force by the lease.
    pub(crate) lease: LeaseState,
    /// The boot ID, if the machine itself reports it.
    pub(crate) boot: Option<String>,
    /// What packages and GPUs want to draw together.
    pub(crate) wants: NodeWants,
    /// Values that only metrics show.
    pub(crate) details: Details,
}

/// The processors or the GPUs of a machine.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Part {
    /// What enforces a cap here.
    pub(crate) means: Means,
    /// The outcome of the desired state.
    pub(crate) report: CapReport,
    /// Each package or GPU.
    pub(crate) devices: Vec<Device>,
    /// What all of them draw together.
    pub(crate) drawn: Drawn,
    /// Their last failure, in words for a person.
    pub(crate) trouble: Option<String>,
}

/// A package or a GPU.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Device {
    /// Its key.
    pub(crate) key: String,
    /// The limit in force, whoever set it; of a GPU that the closed loop over its clock holds, the cap of that loop. `None` too
    /// for one that is known not to keep to its limit.
    pub(crate) limit: Option<Watts>,
    /// The range of its limit.
    pub(crate) range: CapRange,
    /// Its share of the node's grant, if a grant is in force and the device can be capped.
    pub(crate) share: Option<Watts>,
    /// What it draws.
    pub(crate) drawn: Drawn,
    /// The value of its energy counter.
    pub(crate) energy: Option<MicroJoules>,
    /// What is known of it beside that.
    pub(crate) beside: Beside,
}

/// What is known of a device beside its power and its limit.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Beside {
    /// What the memory of a package draws, which the package's own power does not contain.
    pub(crate) dram: Drawn,
    /// The value of that counter.
    pub(crate) dram_energy: Option<MicroJoules>,
    /// What it reports of itself.
    pub(crate) state: DeviceState,
    /// What it wants to draw.
    pub(crate) wants: DeviceWants,
    /// What the closed loop over a GPU's clock does.
    pub(crate) clock: ClockLoop,
    /// The highest clock that it allows the GPU, while it holds it.
    pub(crate) clock_limit: Option<KiloHertz>,
}

/// What the closed loop over the clock of a GPU does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ClockLoop {
    /// There is none: the clock cannot be locked.
    #[default]
    Lacking,
    /// Nothing.
    Idle,
    /// It holds the GPU instead of its power limit, because of this.
    Holds(LoopCause),
}

impl ClockLoop {
    /// Why it holds the GPU, while it does.
    pub(crate) const fn cause(self) -> Option<LoopCause> {
        match self {
            Self::Lacking | Self::Idle => None,
            Self::Holds(cause) => Some(cause),
        }
    }
}

impl Default for Beside {
    /// Of a device that says nothing more.
    fn default() -> Self {
        let (state, wants) = (DeviceState::default(), DeviceWants::default());
        let (clock, clock_limit) = (ClockLoop::Lacking, None);
        Self { dram: Drawn::Unmetered, dram_energy: None, state, wants, clock, clock_limit }
    }
}

/// The drawn power, as far as it is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Drawn {
    /// This much.
    Is(Watts),
    /// It is not known at the moment.
    Unknown,
    /// Nothing measures it.
    Unmetered,
}

impl Drawn {
    pub(crate) const fn watts(self) -> Option<Watts> {
        match self {
            Self::Is(watts) => Some(watts),
            Self::Unknown | Self::Unmetered => None,
        }
    }

    /// The sum, if every part is known: a partial sum is not the total.
    pub(crate) fn sum(parts: impl Iterator<Item = Self>) -> Self {
        let (mut sum, mut any) = (Self::Is(Watts::ZERO), false);
        for part in parts {
            any = true;
            sum = match (sum, part) {
                (Self::Is(a), Self::Is(b)) => a.checked_add(b).map_or(Self::Unknown, Self::Is),
                (Self::Unmetered, _) | (_, Self::Unmetered) => Self::Unmetered,
                (Self::Unknown, _) | (_, Self::Unknown) => Self::Unknown,
            };
        }
        if any { sum } else { Self::Unmetered }
    }
}

/// What enforces a cap: the word `backend` of a status.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Means {
    /// Nothing.
    #[default]
    None,
    /// Power limits, by the class of their HALs in node-kit's table, or [`MIXED`] if they have several classes.
    Limits(&'static str),
    /// A throttle of the frequencies.
    Dvfs,
    /// A control endpoint over HTTP.
    Http,
}

/// The word for devices of several classes or makers.
pub(crate) const MIXED: &str = "mixed";

impl Means {
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Limits(class) => class,
            Self::Dvfs => "dvfs",
            Self::Http => "http",
        }
    }

    /// What the engine uses to hold the packages, if their limits are of this class.
    pub(crate) fn of_packages(backend: Option<Backend>, class: &'static str) -> Self {
        match backend {
            None | Some(Backend::None) => Self::None,
            Some(Backend::Rapl) => Self::Limits(class),
            Some(Backend::Dvfs) => Self::Dvfs,
        }
    }
}

/// Which caps are in force, by the lease on the desired state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum LeaseState {
    /// Those of the desired state.
    #[default]
    Desired,
    /// Those of the desired state, which nobody confirms any more.
    Held,
    /// None: nobody confirms the desired state, and the configuration restores the originals.
    Relaxed,
    /// The safe profile of the configuration.
    Safe,
}

impl LeaseState {
    /// Under a grant nobody relaxes: the caps stay.
    pub(crate) const fn of(phase: Option<LeasePhase>, granted: bool) -> Self {
        match phase {
            None | Some(LeasePhase::Started { .. } | LeasePhase::Renewed { .. }) => Self::Desired,
            Some(LeasePhase::Holding | LeasePhase::Waiting { .. }) => Self::Held,
            Some(LeasePhase::Relaxed) if granted => Self::Held,
            Some(LeasePhase::Relaxed) => Self::Relaxed,
            Some(LeasePhase::Safe) => Self::Safe,
        }
    }
}

/// What a machine is made of, as it says itself; what it does not say is missing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) cpu_vendor: Option<String>,
    pub(crate) cpu_model: Option<String>,
    pub(crate) packages: Option<u32>,
    pub(crate) cores: Option<u32>,
    pub(crate) package_range: Option<CapRange>,
    pub(crate) cpu_driver: Option<String>,
    pub(crate) cpu_control: bool,
    pub(crate) cpu_metered: bool,
    pub(crate) frequencies: Option<(KiloHertz, KiloHertz)>,
    /// The highest frequency without boost, in MHz.
    pub(crate) nominal_mhz: Option<u32>,
    /// The lowest frequency at which power still falls faster than speed, in MHz.
    pub(crate) nonlinear_mhz: Option<u32>,
    /// How fast its fastest link is.
    pub(crate) link_class: Option<&'static str>,
    pub(crate) memory_bytes: Option<u64>,
    /// The GPUs; `None` if nothing is known of them.
    pub(crate) gpus: Option<FoundGpus>,
}

impl Found {
    /// The same machine where somebody else measures the processors and the GPUs too.
    pub(crate) fn metered_by(&self, (cpu, gpu): (bool, bool)) -> Self {
        let mut found = self.clone();
        found.cpu_metered |= cpu;
        if let Some(gpus) = &mut found.gpus {
            gpus.metered |= gpu && gpus.count > 0;
        }
        found
    }
}

/// The GPUs of a machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FoundGpus {
    pub(crate) vendor: Option<&'static str>,
    pub(crate) model: Option<String>,
    pub(crate) count: u32,
    pub(crate) range: Option<CapRange>,
    pub(crate) default_watts: Option<Watts>,
    pub(crate) current_watts: Option<Watts>,
    /// In which ways they can be divided; empty where that is not known.
    pub(crate) slicing: &'static [&'static str],
    pub(crate) control: bool,
    pub(crate) metered: bool,
}

/// Values that only metrics show.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Details {
    /// What holds the packages now: the label of `joulie_backend_mode`.
    pub(crate) mode: Means,
    /// What the closed loop last decided.
    pub(crate) law: Option<law::Decision>,
    /// The throttle in force, if there is one.
    pub(crate) throttle_pct: Option<u8>,
    /// How often the closed loop raised and lowered the throttle.
    pub(crate) actions: (u64, u64),
    /// Frequency policies: the lowest CPU, its frequency, and its limit.
    pub(crate) policies: Vec<(u16, Option<KiloHertz>, Option<KiloHertz>)>,
    /// Originals that the journal holds.
    pub(crate) originals: usize,
    /// How often somebody else was seen to change a limit.
    pub(crate) moved: u64,
    /// Periods without a known power.
    pub(crate) blind: u64,
    /// Periods in which a backend or an endpoint did not answer in time.
    pub(crate) late: u64,
    /// Impossible counts from outside, counted each time one was given.
    pub(crate) refused: u64,
    /// Each backend, whether it is ready, and how often it failed.
    pub(crate) troubles: Vec<(&'static str, bool, u64)>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partial_sum_is_no_total() {
        let watts = |count| Drawn::Is(Watts::from_int(count));
        assert_eq!(Drawn::sum([watts(100), watts(20)].into_iter()), watts(120));
        assert_eq!(Drawn::sum([watts(100), Drawn::Unknown].into_iter()), Drawn::Unknown);
        assert_eq!(Drawn::sum([watts(100), Drawn::Unmetered].into_iter()), Drawn::Unmetered);
        assert_eq!(Drawn::sum(std::iter::empty()), Drawn::Unmetered);
    }
}
