//! What a node knows of itself, for status objects, metrics, and people.

use crate::{BackendKind, BackendState, Desire, DriverError};
use joulie_core::node::backend::BackendDecision;
use joulie_core::node::energy::MeterReading;
use joulie_core::node::engine::Beyond;
use joulie_core::node::gpu_cap::GpuDecision;
use joulie_core::node::law;
use joulie_core::node::lease::{LeaseEvent, LeasePhase};
use power_hal::{Domain, Key};
use power_units::{KiloHertz, MicroJoules, Stamp, Watts};
use std::sync::Arc;

/// A node as of its last step.
#[derive(Clone, Debug, Default)]
pub struct NodeReport {
    /// When that was; none before the first one.
    pub at: Option<Stamp>,
    /// What was desired in that step, so that nobody takes the outcome of one wish for that of the next.
    pub desire: Desire,
    /// The packages.
    pub packages: Vec<DeviceReport>,
    /// The GPUs.
    pub gpus: Vec<DeviceReport>,
    /// The frequency policies.
    pub policies: Vec<PolicyReport>,
    /// What all packages draw together.
    pub power: Option<MeterReading>,
    /// What came of the packages' desired state.
    pub cpu: Option<BackendDecision>,
    /// What came of the GPUs' desired state.
    pub gpu: Option<GpuDecision>,
    /// What the closed loop last decided, while it runs.
    pub law: Option<law::Decision>,
    /// What the engine has no room for, and does not control.
    pub beyond: Option<Beyond>,
    /// The backends.
    pub backends: Vec<BackendReport>,
    /// How the lease stands, and what last happened to it.
    pub lease: Option<(LeasePhase, Option<LeaseEvent>)>,
    /// How many originals the journal holds.
    pub originals: usize,
    /// Whether the journal has yet to be told that originals are back.
    pub journal_behind: bool,
    /// What was counted since the start.
    pub counts: NodeCounters,
}

impl NodeReport {
    /// Takes over another report into the memory that this one has.
    pub(crate) fn copy(&mut self, other: &Self) {
        let Self { at, packages, gpus, policies, power, cpu, gpu, law, backends, .. } = self;
        (*at, *power, *cpu, *gpu, *law) = (other.at, other.power, other.cpu, other.gpu, other.law);
        (self.desire, self.beyond) = (other.desire, other.beyond);
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
    /// What it is known by.
    pub key: Key,
    /// Which backend sets its limit, or reads its meter where it has none.
    pub backend: Option<BackendKind>,
    /// What it has, as its backend describes it.
    pub described: Option<Domain>,
    /// What it draws.
    pub power: MeterReading,
    /// What its energy counter showed, where it has one that could be read.
    pub energy: Option<MicroJoules>,
    /// The limit in force, whoever set it.
    pub limit: Option<Watts>,
    /// The limit that its owner has set, above which no cap goes, where that is known.
    pub owners: Option<Watts>,
    /// Whether the limit in force is ours: the journal holds its original.
    pub ours: bool,
    /// What it may have of the node's grant, where one stands and it can be capped.
    pub share: Option<Watts>,
}

/// A frequency policy.
#[derive(Clone, Debug)]
pub struct PolicyReport {
    /// What it is known by.
    pub key: Key,
    /// The lowest limit that it takes.
    pub min: KiloHertz,
    /// The highest limit that it takes.
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
    /// Which one.
    pub kind: BackendKind,
    /// How it stands.
    pub standing: BackendState,
    /// How many domains it lists.
    pub domains: usize,
    /// Since when a call has not returned, if it is longer than a period.
    pub stuck_since: Option<Stamp>,
    /// What it could not make sense of.
    pub complaints: Arc<[String]>,
    /// What it last failed at.
    pub last_trouble: Option<DriverError>,
    /// How often it failed.
    pub troubles: u64,
}

/// What was counted since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeCounters {
    /// Periods.
    pub periods: u64,
    /// Orders to the hardware.
    pub orders: u64,
    /// Times that somebody else was seen to have moved a limit.
    pub moved: u64,
    /// Periods in which the power of the packages was not known.
    pub blind: u64,
    /// Periods in which a backend did not answer in time.
    pub late: u64,
}
