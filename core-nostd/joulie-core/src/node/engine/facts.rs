//! What an engine is told, and what it says: the words between it and its carrier.

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
use power_units::{Stamp, Watts};

/// The laws of an engine. They hold for any number of nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EngineLaws {
    /// How the backends of the packages take turns.
    pub cpu: BackendLaw,
    /// How the GPUs are capped.
    pub gpu: GpuLaw,
    /// The closed loop of the DVFS fallback.
    pub dvfs: LoopLaw,
    /// Which parts a grant may cap; what is left alone counts with all that it draws.
    pub grants: NodeParts,
    /// Whether the node may be written to.
    pub access: NodeAccess,
}

/// Whether the node may be written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeAccess {
    /// It is only looked at: no lock is taken, and nothing is ordered.
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

/// How the limits of a node are reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wiring {
    /// Each package and each GPU has a limit of its own.
    EachItsOwn,
    /// One limit is that of every package, and one that of every GPU, as an endpoint over HTTP has them. They have the
    /// same facts, and so the same orders.
    OneForAll,
}

/// A lease on the desired state, and what is in force where it ends with the safe profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseTerms {
    /// The term and the choice.
    pub law: LeaseLaw,
    /// The safe profile of the packages.
    pub safe_cpu: CapIntent,
    /// The safe profile of the GPUs.
    pub safe_gpu: CapIntent,
}

/// The most that a node may be allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeGrant {
    /// Which grant this is.
    pub serial: u64,
    /// The most that all packages and GPUs may be allowed together.
    pub watts: Watts,
}

/// The desired state of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Desire {
    /// Of each package.
    pub cpu: DesiredCap,
    /// Of each GPU.
    pub gpu: DesiredCap,
    /// The most that all of them may be allowed together, whatever is desired of each; none where nobody grants.
    pub grant: Option<NodeGrant>,
}

impl Default for Desire {
    fn default() -> Self {
        Self::UNKNOWN
    }
}

impl Desire {
    /// Nobody knows (yet): everything stays as it was found.
    pub const UNKNOWN: Self = Self { cpu: DesiredCap::Unknown, gpu: DesiredCap::Unknown, grant: None };
    /// It is known that nothing is desired, and nobody grants: the originals come back.
    pub const GONE: Self = Self { cpu: DesiredCap::Gone, gpu: DesiredCap::Gone, grant: None };
}

/// What a step is taken for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Occasion {
    /// A period has begun, and the devices were read.
    Period,
    /// An outcome came back.
    News,
}

/// What may be known about the node; what is known of its devices lies in them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EngineFacts {
    /// The time of this step.
    pub now: Stamp,
    /// What the step is taken for.
    pub occasion: Occasion,
    /// What is desired.
    pub desire: Desire,
    /// What all packages draw together.
    pub power: MeterReading,
    /// Whether the power of the packages can be measured here at all.
    pub has_meter: bool,
    /// When the lease says that it was last renewed, where it could be read since the last step.
    pub renewal: Option<UnixTime>,
}

/// What a step has to tell besides its orders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EngineEvents {
    /// What happened to the lease.
    pub lease: Option<LeaseEvent>,
    /// On how many policies somebody else has begun to raise the frequency limit.
    pub raised: u32,
}

/// What an engine has no room for. It is not controlled, and a grant counts it with the most that it draws.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Beyond {
    /// So many packages.
    pub packages: u32,
    /// The most that they draw together, as far as that is known.
    pub package_watts: Watts,
    /// So many GPUs.
    pub gpus: u32,
    /// The most that they draw together, as far as that is known.
    pub gpu_watts: Watts,
    /// So many frequency policies.
    pub policies: u32,
}

impl Beyond {
    /// Everything fits.
    pub const NOTHING: Self =
        Self { packages: 0, package_watts: Watts::ZERO, gpus: 0, gpu_watts: Watts::ZERO, policies: 0 };
}

/// Which device of a node, by its place in the engine's list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TargetId {
    /// A package.
    Package(usize),
    /// A GPU.
    Gpu(usize),
    /// A frequency policy.
    Policy(usize),
}

/// What is to be carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EngineOrder {
    /// On which device.
    pub target: TargetId,
    /// What its outcome is known by.
    pub ticket: Ticket,
    /// What.
    pub instruction: Instruction,
}

/// What is to be done with a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Instruction {
    /// Set the power limit to this, and read it back.
    Power(Watts),
    /// Set the frequency limit, or the throttle, to this.
    Limit(PolicyLimit),
    /// Put the original back.
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

    pub(super) fn of_policy(at: usize, policy: &FrequencyPolicy) -> Option<Self> {
        let instruction = match policy.order()? {
            PolicyOrder::Set(limit) => Instruction::Limit(limit),
            PolicyOrder::Release => Instruction::Release,
        };
        Some(Self { target: TargetId::Policy(at), ticket: policy.ticket(), instruction })
    }
}
