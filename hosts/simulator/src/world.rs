//! All machines, and the time that passes for them.
//!
//! Simulated time is the host's monotonic clock since the start, times the speed. Every machine stands behind a lock of
//! its own, so that a thousand of them that are stepped hold up nobody who asks one.

use crate::control::Last;
use crate::faults::NodeFaults;
use crate::fleet::Member;
use crate::machine::{MachineError, SimulatedMachine};
use crate::pods::quantities;
use crate::telemetry::TelemetryResponse;
use host_kit::clock::{HostClock, Mono, micros};
use power_units::Micros;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The machines.
pub struct SimulatedWorld {
    nodes: BTreeMap<String, SimulatedNode>,
    clock: Arc<dyn HostClock>,
    since: Mono,
    speed: f64,
}

/// A machine and what stands around it.
pub struct SimulatedNode {
    /// As it is registered.
    pub member: Member,
    /// The boot that it is in. With a new process every machine is as after a reboot, its limits too.
    pub(crate) boot: String,
    /// What there is of every resource, in billionths.
    pub(crate) room: BTreeMap<String, i128>,
    state: Mutex<SimulatedState>,
}

/// What changes about a node.
pub struct SimulatedState {
    /// The machine.
    pub machine: SimulatedMachine,
    /// The last thing that was asked of it.
    pub last: Last,
    /// What is broken.
    pub faults: NodeFaults,
    /// What its telemetry showed when it got stuck.
    pub shown: Option<TelemetryResponse>,
}

impl SimulatedWorld {
    /// The machines of a fleet, all idle; their time begins now. `speed` is simulated seconds in a second.
    ///
    /// # Errors
    /// When a machine is impossible.
    pub fn new(
        members: Vec<Member>,
        seed: u64,
        speed: f64,
        clock: Arc<dyn HostClock>,
    ) -> Result<Self, MachineError> {
        let now = clock.wall();
        let mut nodes = BTreeMap::new();
        for (number, member) in (0_u64..).zip(members) {
            let boot = format!("sim-{:x}-{number}", now.as_nanosecond());
            let machine = SimulatedMachine::new(&member, seed.wrapping_add(number))?.booted(&boot);
            let state = SimulatedState {
                machine,
                last: Last::nothing(now),
                faults: NodeFaults::default(),
                shown: None,
            };
            // The fleet wrote these quantities itself.
            let room = quantities(&serde_json::json!(member.capacity)).unwrap_or_default();
            nodes.insert(member.name.clone(), SimulatedNode { member, boot, room, state: Mutex::new(state) });
        }
        Ok(Self { nodes, since: clock.mono(), clock, speed })
    }

    /// A node by its name.
    #[must_use]
    pub fn node(&self, name: &str) -> Option<&SimulatedNode> {
        self.nodes.get(name)
    }

    /// All nodes, by name.
    #[must_use]
    pub const fn nodes(&self) -> &BTreeMap<String, SimulatedNode> {
        &self.nodes
    }

    /// The clock that it runs by.
    #[must_use]
    pub fn clock(&self) -> &Arc<dyn HostClock> {
        &self.clock
    }

    /// Simulated seconds in a second.
    #[must_use]
    pub const fn speed(&self) -> f64 {
        self.speed
    }

    /// Simulated time since the start.
    #[must_use]
    pub fn now(&self) -> Micros {
        micros(self.clock.mono().since(self.since).mul_f64(self.speed))
    }

    /// A node's state, brought up to now.
    pub fn at<'a>(&self, node: &'a SimulatedNode) -> MutexGuard<'a, SimulatedState> {
        let mut state = node.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.machine.advance(self.now());
        state
    }
}
