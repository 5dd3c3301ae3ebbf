//! The known facts of a node's hardware, from any source: every fact may be missing, and a missing fact is not zero.

use power_units::Watts;
use std::sync::Arc;

/// A node's hardware as the planner sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResolvedHardware {
    /// The processors.
    pub cpu: Cpu,
    /// The graphics processors, if there are any.
    pub gpu: Option<GpuInventory>,
}

/// A node's processors.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cpu {
    /// The catalogue's name of the model, else the raw name.
    pub model: Option<Arc<str>>,
    /// How many packages.
    pub sockets: Option<u32>,
    /// Cores (logical processors) over all packages.
    pub total_cores: Option<u32>,
    /// The lowest power limit of one package.
    pub min_per_socket: Option<Watts>,
    /// The highest power limit of one package.
    pub max_per_socket: Option<Watts>,
}

/// A node's graphics processors, all of one model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GpuInventory {
    /// The catalogue's name of the model, else the raw name.
    pub model: Option<Arc<str>>,
    /// How many, at least one.
    pub count: u32,
    /// The lowest power limit of one.
    pub min: Option<Watts>,
    /// The highest power limit of one.
    pub max: Option<Watts>,
}

/// The range of one device's power limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PowerRange {
    /// The lowest limit, if known.
    pub min: Option<Watts>,
    /// The highest limit.
    pub max: Watts,
}

impl PowerRange {
    /// The range that a device reports itself: `None` without a highest limit above zero; an impossible lowest limit
    /// counts as unknown.
    #[must_use]
    pub fn discovered(min: Option<Watts>, max: Option<Watts>) -> Option<Self> {
        let max = max.filter(|&max| max > Watts::ZERO)?;
        Some(Self { min: min.filter(|&min| min > Watts::ZERO && min <= max), max })
    }
}
