//! The laws that are compared, and what each of them may know.

mod ear;
mod law;
mod node;
mod planned;
mod slurm;
mod three_band;

pub use ear::EarLaw;
pub use law::{LawArm, LawParts};
pub use planned::PlannedArm;
pub use slurm::{SlurmLaw, SlurmParameters};
pub use three_band::ThreeBandLaw;

use crate::site::{LimitsNow, MachineModel, VirtualSite};

/// What a node's engine has measured in a second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NodeSecond {
    /// The mean power of its packages and GPUs.
    pub drawn: f64,
    /// The mean of what they need of a cap: a device that draws less than its floor counts with its floor.
    pub counted: f64,
    /// The part of the second in which its cap limited it.
    pub bitten: f64,
    /// The cap in force at its end.
    pub cap: f64,
    /// The most that those of its devices which work could ask for.
    pub most: f64,
    /// The number of the cap that was written for it last and is in force.
    pub serial: u64,
    /// What is left of that cap.
    pub granted: f64,
    /// It says that watts are short.
    pub lends: bool,
}

/// What a node's engine does after a second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct NodeSays {
    /// It writes a report.
    pub reports: bool,
    /// Its cap throttles it, as far as it knows.
    pub bites: bool,
    /// It keeps to fewer watts than it was given, until the next cap.
    pub yields: Option<f64>,
}

/// What an arm knows of a node.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ArmView {
    /// The number of the last cap that was written.
    pub serial: u64,
    /// That cap.
    pub asked: f64,
    /// The number of the last cap that was read back.
    pub heard: u64,
    /// That cap, as the devices keep it.
    pub holds: f64,
    /// What the node has left of it, if it has yielded some.
    pub yields: Option<f64>,
    /// Its last second, half a second ago; `None` while it is blind.
    pub second: Option<NodeSecond>,
    /// How long ago a job started there, in seconds.
    pub job_age: Option<f64>,
}

/// A cap that an arm writes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CapWrite {
    /// The machine.
    pub machine: usize,
    /// The most that its packages and GPUs may draw together.
    pub watts: f64,
    /// Watts are short: the node may yield.
    pub lends: bool,
}

/// A law that divides the limits among the machines.
pub trait Divider {
    /// Takes note of a node's second, in the engine of that node, and returns what the node does.
    fn sense(&mut self, step: usize, machine: usize, second: NodeSecond) -> NodeSays {
        let _ = (step, machine, second);
        NodeSays::default()
    }

    /// Whether a node may tell of a mere raise with its next report.
    fn defers(&self) -> bool {
        false
    }

    /// Decides which caps are written at a step.
    fn decide(&mut self, step: usize, limits: &LimitsNow, nodes: &[ArmView], caps: &mut Vec<CapWrite>);
}

/// Everybody keeps what he is entitled to.
#[derive(Clone, Copy, Debug)]
pub struct Untouched;

impl Divider for Untouched {
    fn decide(&mut self, _: usize, _: &LimitsNow, _: &[ArmView], _: &mut Vec<CapWrite>) {}
}

/// The kinds of the machines of a site.
fn kinds(site: &VirtualSite) -> Vec<&'static MachineModel> {
    site.machines.iter().map(|machine| machine.kind).collect()
}

/// Caps for these machines that sum up to at most `watts`: each gets its least, and all get the same part of the way to
/// their most. Equal watts, where all machines are alike.
fn level(ranges: &[(f64, f64)], watts: f64) -> Vec<f64> {
    let least: f64 = ranges.iter().map(|(least, _)| least).sum();
    let way: f64 = ranges.iter().map(|(least, most)| most - least).sum();
    let part = if way > 0.0 { ((watts - least) / way).clamp(0.0, 1.0) } else { 0.0 };
    ranges.iter().map(|(least, most)| least + part * (most - least)).collect()
}
