//! What a node knows of itself, for status objects, metrics, and people.

use crate::{BackendKind, BackendState, Cards, Desire, DriverError, GpuGroupUse};
use joulie_core::budget::demand::DemandReport;
use joulie_core::node::backend::BackendDecision;
use joulie_core::node::demand::{BiteSource, DeviceDemand, NodeDemand};
use joulie_core::node::energy::MeterReading;
use joulie_core::node::engine::{Beyond, GpuClock, LoopCause};
use joulie_core::node::gpu_cap::GpuDecision;
use joulie_core::node::law;
use joulie_core::node::lease::{LeaseEvent, LeasePhase};
use power_hal::{Counter, Domain, ErrorKind, Key, MemoryUse, Slowdowns};
use power_units::{Celsius, KiloHertz, MicroJoules, Percent, Stamp, Watts};
use std::sync::Arc;

/// A node as of its last step.
#[derive(Clone, Debug, Default)]
pub struct NodeReport {
    /// The time of that step; `None` before the first one.
    pub at: Option<Stamp>,
    /// The desired state of that step, so that the outcome of one desired state is not taken for that of
    /// the next.
    pub desire: Desire,
    /// The packages.
    pub packages: Vec<DeviceReport>,
    /// The GPUs.
    pub gpus: Vec<DeviceReport>,
    /// The frequency policies.
    pub policies: Vec<PolicyReport>,
    /// The power of all packages together.
    pub power: Option<MeterReading>,
    /// The result of the packages' desired state.
    pub cpu: Option<BackendDecision>,
    /// The result of the GPUs' desired state.
    pub gpu: Option<GpuDecision>,
    /// The last decision of the closed loop, while it runs.
    pub law: Option<law::Decision>,
    /// The devices that do not fit into the engine and are not controlled.
    pub beyond: Option<Beyond>,
    /// What the node wants to draw.
    pub wants: NodeWants,
    /// The backends.
    pub backends: Vec<BackendReport>,
    /// The phase of the lease, and its last event.
    pub lease: Option<(LeasePhase, Option<LeaseEvent>)>,
    /// The number of originals in the journal.
    pub originals: usize,
    /// Whether the journal's file does not yet show that originals are restored.
    pub journal_behind: bool,
    /// The counters since the start.
    pub counts: NodeCounters,
}

impl NodeReport {
    /// Copies another report into the memory of this one.
    pub(crate) fn copy(&mut self, other: &Self) {
        let Self { at, packages, gpus, policies, power, cpu, gpu, law, backends, .. } = self;
        (*at, *power, *cpu, *gpu, *law) = (other.at, other.power, other.cpu, other.gpu, other.law);
        (self.desire, self.beyond, self.wants) = (other.desire, other.beyond, other.wants);
        packages.clone_from(&other.packages);
        gpus.clone_from(&other.gpus);
        policies.clone_from(&other.policies);
        backends.clone_from(&other.backends);
        (self.lease, self.originals) = (other.lease, other.originals);
        (self.journal_behind, self.counts) = (other.journal_behind, other.counts);
    }
}

/// A package or a GPU.
#[derive(Clone, Debug)]
pub struct DeviceReport {
    /// Its key.
    pub key: Key,
    /// The backend that sets its limit, or that reads its meter if it has none.
    pub backend: Option<BackendKind>,
    /// Its controls, as its backend describes them.
    pub described: Option<Domain>,
    /// Its power.
    pub power: MeterReading,
    /// Its energy counter, if its energy is counted.
    pub counter: Option<Counter>,
    /// The value of its energy counter, if it has one that could be read.
    pub energy: Option<MicroJoules>,
    /// The power of its memory (DRAM), of a package that has a counter of it. It is not in `power`, and in no sum.
    pub dram: MeterReading,
    /// The value of that counter.
    pub dram_energy: Option<MicroJoules>,
    /// What it reports beside its power.
    pub state: DeviceState,
    /// The limit in force, whoever set it.
    pub limit: Option<Watts>,
    /// The limit that its owner has set, if it is known; no cap is above it.
    pub owners: Option<Watts>,
    /// Whether the limit in force is ours: the journal holds its original.
    pub ours: bool,
    /// Its share of the node's grant, if the node has one and it can be capped.
    pub share: Option<Watts>,
    /// What it wants to draw.
    pub wants: DeviceWants,
    /// Its clock, of a GPU whose clock can be locked.
    pub clock: Option<ClockReport>,
}

/// The clock of a GPU, which can be locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockReport {
    /// Why the closed loop over the clock holds the GPU instead of its power limit, while it does.
    pub cause: Option<LoopCause>,
    /// The cap that the loop keeps to.
    pub cap: Option<Watts>,
    /// The highest clock that the lock allows.
    pub limit: Option<KiloHertz>,
    /// The clock at which it runs.
    pub running: Option<KiloHertz>,
}

impl ClockReport {
    /// By the engine's knowledge of the clock.
    #[must_use]
    pub fn of(clock: &GpuClock) -> Self {
        let policy = clock.policy();
        Self {
            cause: clock.cause(),
            cap: clock.cap(),
            limit: policy.and_then(|policy| policy.in_force()),
            running: policy.and_then(|policy| policy.facts.running),
        }
    }
}

/// What a node wants to draw.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeWants {
    /// What its packages and GPUs want to draw together; `None` while that is not known.
    pub report: Option<DemandReport>,
    /// Whether its grant holds a device back, and by what that was seen.
    pub bite: Option<BiteSource>,
    /// Of how many devices it is not believed what they say of their throttle.
    pub doubted: u32,
}

impl NodeWants {
    /// By the engine's knowledge of the node.
    #[must_use]
    pub fn of(demand: &NodeDemand) -> Self {
        Self { report: demand.report().copied(), bite: demand.bite(), doubted: demand.doubted() }
    }
}

/// What a package or a GPU wants to draw.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceWants {
    /// The most that it wants; `None` while that is not known.
    pub most: Option<Watts>,
    /// Whether its limit holds it back although it could have more, and by what that was seen.
    pub bite: Option<BiteSource>,
    /// It says that its limit holds it back, and that is not believed.
    pub doubted: bool,
}

impl DeviceWants {
    /// By the engine's knowledge of the device, if it has any.
    #[must_use]
    pub fn of(demand: Option<&DeviceDemand>) -> Self {
        demand.map_or_else(Self::default, |demand| Self {
            most: demand.report().map(DemandReport::highest),
            bite: demand.bite(),
            doubted: demand.is_doubted(),
        })
    }
}

/// A value that a device reports, if it does. What it lacks is not the same as what could not be read, and neither is
/// zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DeviceValue<T> {
    /// The device, its driver or its library has no such value.
    #[default]
    Lacking,
    /// It could not be read.
    Unknown(ErrorKind),
    /// This value.
    Is(T),
}

impl<T> DeviceValue<T> {
    /// The value, if it is known.
    #[must_use]
    pub fn known(self) -> Option<T> {
        match self {
            Self::Is(value) => Some(value),
            Self::Lacking | Self::Unknown(_) => None,
        }
    }
}

/// The state of a device beside its power.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceState {
    /// Its temperature.
    pub temperature: DeviceValue<Celsius>,
    /// For which part of the time it computes.
    pub utilisation: DeviceValue<Percent>,
    /// How much of its memory is in use.
    pub memory: DeviceValue<MemoryUse>,
    /// What slows it at the instant of the reading.
    pub slowdowns: DeviceValue<Slowdowns>,
    /// In which part of the time since the last reading its power limit held it back; where the device only reports
    /// instants, all or nothing.
    pub throttled: DeviceValue<Percent>,
}

/// A frequency policy.
#[derive(Clone, Debug)]
pub struct PolicyReport {
    /// Its key.
    pub key: Key,
    /// The lowest limit that it accepts.
    pub min: KiloHertz,
    /// The highest limit that it accepts.
    pub max: KiloHertz,
    /// The limit in force, whoever set it.
    pub limit: Option<KiloHertz>,
    /// The limit that we set.
    pub asked: Option<KiloHertz>,
    /// The frequency at which it runs.
    pub running: Option<KiloHertz>,
}

/// A backend.
#[derive(Clone, Debug)]
pub struct BackendReport {
    /// The backend.
    pub kind: BackendKind,
    /// Its state.
    pub standing: BackendState,
    /// The number of its domains.
    pub domains: usize,
    /// Since when a call has not returned, if that is longer than a period.
    pub stuck_since: Option<Stamp>,
    /// The problems of its last enumeration.
    pub complaints: Arc<[String]>,
    /// What its GPUs are apart from their power, if it has any by its kind.
    pub cards: Option<Arc<Cards>>,
    /// Which control groups used its GPUs, if that is asked for. It is another list for each answer of its driver.
    pub uses: Option<Arc<[GpuGroupUse]>>,
    /// Its last error.
    pub last_trouble: Option<DriverError>,
    /// The number of its errors.
    pub troubles: u64,
}

/// The counters since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeCounters {
    /// Periods.
    pub periods: u64,
    /// Orders to the hardware.
    pub orders: u64,
    /// How often somebody else has changed a limit.
    pub moved: u64,
    /// Periods without a known power of the packages.
    pub blind: u64,
    /// Periods in which a backend did not answer in time.
    pub late: u64,
}
