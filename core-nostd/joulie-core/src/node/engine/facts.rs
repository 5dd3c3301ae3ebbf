//! The inputs and outputs of an engine: the types that it shares with its carrier.

use super::dvfs::LoopLaw;
use super::policy::{FrequencyPolicy, PolicyLimit, PolicyOrder};
use crate::node::backend::BackendLaw;
use crate::node::cap::{CapIntent, DesiredCap};
use crate::node::energy::MeterReading;
use crate::node::gpu_cap::GpuLaw;
use crate::node::lease::{LeaseEvent, LeaseLaw};
use crate::node::limiter::LimitOrder;
use crate::node::ticket::Ticket;
use crate::placement::freshness::UnixTime;
use power_units::{Ratio, Stamp, Watts};

/// The laws of an engine. One set of laws serves any number of nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EngineLaws {
    /// How the backend of the packages is selected.
    pub cpu: BackendLaw,
    /// How the GPUs are capped.
    pub gpu: GpuLaw,
    /// The closed loop of the DVFS fallback.
    pub dvfs: LoopLaw,
    /// Which parts a grant may cap; the others count with the most that they draw.
    pub grants: NodeParts,
    /// Whether the node may be written to.
    pub access: NodeAccess,
}

/// Whether the node may be written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeAccess {
    /// It is only observed: no lock is taken, and nothing is ordered.
    Look,
    /// It is controlled: this process is its only writer.
    Control,
}

/// The parts of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeParts {
    /// The packages.
    pub cpu: bool,
    /// The GPUs.
    pub gpu: bool,
}

impl NodeParts {
    /// Both.
    pub const ALL: Self = Self { cpu: true, gpu: true };
}

/// How the limits of a node are organized.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wiring {
    /// Each package and each GPU has a limit of its own.
    EachItsOwn,
    /// One limit serves all packages, and one serves all GPUs, as at an endpoint over HTTP. All of them have the same
    /// facts, and so the same orders.
    OneForAll,
}

/// A lease on the desired state, and the caps in force when it ends with the safe profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseTerms {
    /// The term of the lease, and what happens at its end.
    pub law: LeaseLaw,
    /// The safe profile of the packages.
    pub safe_cpu: CapIntent,
    /// The safe profile of the GPUs.
    pub safe_gpu: CapIntent,
}

/// The most that a node may be allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeGrant {
    /// The serial of the grant.
    pub serial: u64,
    /// The most that all packages and GPUs may be allowed together.
    pub watts: Watts,
}

/// The desired state of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Desire {
    /// The cap of each package.
    pub cpu: DesiredCap,
    /// The cap of each GPU.
    pub gpu: DesiredCap,
    /// The most that all of them may be allowed together, whatever is desired of each; `None` without a grant.
    pub grant: Option<NodeGrant>,
    /// What armed events leave of a grant: the part of the way from the floors of all devices to the most that they draw.
    /// The whole while none is on.
    pub armed: Ratio,
}

impl Default for Desire {
    fn default() -> Self {
        Self::UNKNOWN
    }
}

impl Desire {
    /// Not known (yet): everything stays as it was found.
    pub const UNKNOWN: Self =
        Self { cpu: DesiredCap::Unknown, gpu: DesiredCap::Unknown, grant: None, armed: Ratio::ONE };
    /// Nothing is desired, and there is no grant: the originals are restored.
    pub const GONE: Self =
        Self { cpu: DesiredCap::Gone, gpu: DesiredCap::Gone, grant: None, armed: Ratio::ONE };
}

/// Why a step is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Occasion {
    /// A period has begun, and the devices were read.
    Period,
    /// An outcome came back.
    News,
}

/// The facts about the node; the facts about its devices are in the devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EngineFacts {
    /// The time of this step.
    pub now: Stamp,
    /// Why the step is taken.
    pub occasion: Occasion,
    /// What is desired.
    pub desire: Desire,
    /// What all packages draw together.
    pub power: MeterReading,
    /// Whether the power of the packages can be measured here at all.
    pub has_meter: bool,
    /// The renewal time in the Lease, if it was read since the last step.
    pub renewal: Option<UnixTime>,
}

/// What a step reports besides its orders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EngineEvents {
    /// What happened to the lease.
    pub lease: Option<LeaseEvent>,
    /// The number of policies whose frequency limit somebody else has begun to raise.
    pub raised: u32,
    /// The number of devices of which it is no longer believed what they say of their throttle.
    pub unbelieved: u32,
}

/// The devices that do not fit into an engine. They are not controlled, and a grant counts them with the most that
/// they draw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Beyond {
    /// The number of packages.
    pub packages: u32,
    /// The most that they draw together, as far as it is known.
    pub package_watts: Watts,
    /// The number of GPUs.
    pub gpus: u32,
    /// The most that they draw together, as far as it is known.
    pub gpu_watts: Watts,
    /// The number of frequency policies.
    pub policies: u32,
}

impl Beyond {
    /// Everything fits.
    pub const NOTHING: Self =
        Self { packages: 0, package_watts: Watts::ZERO, gpus: 0, gpu_watts: Watts::ZERO, policies: 0 };
}

/// A device of a node, by its index in the engine's list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TargetId {
    /// A package.
    Package(usize),
    /// A GPU.
    Gpu(usize),
    /// A frequency policy.
    Policy(usize),
    /// The clock of a GPU, by the index of the GPU.
    Clock(usize),
}

/// An order to carry out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EngineOrder {
    /// The device.
    pub target: TargetId,
    /// The ticket that identifies its outcome.
    pub ticket: Ticket,
    /// What to do.
    pub instruction: Instruction,
}

/// What to do with a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Instruction {
    /// Set the power limit to this, and read it back.
    Power(Watts),
    /// Set the frequency limit, or the throttle, to this.
    Limit(PolicyLimit),
    /// Restore the original.
    Release,
}

impl EngineOrder {
    pub(super) fn of_limit(target: TargetId, order: LimitOrder, ticket: Ticket) -> Option<Self> {
        let instruction = match order {
            LimitOrder::Leave => return None,
            LimitOrder::Set(watts) => Instruction::Power(watts),
            LimitOrder::Release => Instruction::Release,
        };
        Some(Self { target, ticket, instruction })
    }

    pub(super) fn of_policy(target: TargetId, policy: &FrequencyPolicy) -> Option<Self> {
        let instruction = match policy.order()? {
            PolicyOrder::Set(limit) => Instruction::Limit(limit),
            PolicyOrder::Release => Instruction::Release,
        };
        Some(Self { target, ticket: policy.ticket(), instruction })
    }
}
