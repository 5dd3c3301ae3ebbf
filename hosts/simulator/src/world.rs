//! All machines and their simulated time.
//!
//! Simulated time is the time of the host's monotonic clock since the start, times the speed. Every machine has a
//! lock of its own, so that stepping a thousand machines does not delay a request to one of them.

use crate::control::Last;
use crate::faults::NodeFaults;
use crate::fleet::Member;
use crate::machine::{MachineError, MachinePower, PowerOrder, SimulatedMachine, SwitchTimes};
use crate::pods::quantities;
use crate::redfish::{BmcPower, BmcSystems, ResetType};
use crate::site::SimulatedSite;
use crate::telemetry::TelemetryResponse;
use host_kit::clock::{HostClock, Mono, micros};
use power_units::Micros;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The machines.
pub struct SimulatedWorld {
    nodes: BTreeMap<String, SimulatedNode>,
    site: SimulatedSite,
    clock: Arc<dyn HostClock>,
    since: Mono,
    speed: f64,
}

/// A machine and the data of its node.
pub struct SimulatedNode {
    /// The node as it is registered.
    pub member: Member,
    /// Its capacity by resource, in billionths.
    pub(crate) room: BTreeMap<String, i128>,
    state: Mutex<SimulatedState>,
}

/// The state of a node that changes.
pub struct SimulatedState {
    /// The machine.
    pub machine: SimulatedMachine,
    /// The last request to it.
    pub last: Last,
    /// Its faults.
    pub faults: NodeFaults,
    /// The telemetry that it reports while it is stuck.
    pub shown: Option<TelemetryResponse>,
    /// What its Node last said of it.
    pub(crate) told: KubeletSays,
}

/// What a kubelet says of its node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KubeletSays {
    /// The boot. In a new process every machine, including its limits, is as after a reboot.
    pub(crate) boot: String,
    /// Whether the node takes pods: not any more while it shuts down.
    pub(crate) ready: bool,
}

impl SimulatedState {
    /// What the kubelet says now; `None` while it is silent.
    pub(crate) fn says(&self) -> Option<KubeletSays> {
        let speaks = self.machine.answers() && !self.faults.gone;
        let ready = self.machine.power() == MachinePower::On;
        speaks.then(|| KubeletSays { boot: self.machine.boot().to_owned(), ready })
    }

    /// Whether the Node says something else.
    pub(crate) fn is_untold(&self) -> bool {
        self.says().is_some_and(|says| says != self.told)
    }
}

impl SimulatedWorld {
    /// Creates the machines of a fleet, all on and idle; their time starts now. `speed` is simulated seconds per real
    /// second.
    ///
    /// # Errors
    /// If a machine cannot be built.
    pub fn new(
        members: Vec<Member>,
        seed: u64,
        (speed, times): (f64, SwitchTimes),
        clock: Arc<dyn HostClock>,
    ) -> Result<Self, MachineError> {
        let now = clock.wall();
        let site = SimulatedSite::of(members.iter().map(|member| &member.labels));
        let mut nodes = BTreeMap::new();
        for (number, member) in (0_u64..).zip(members) {
            let boot = format!("sim-{:x}-{number}", now.as_nanosecond());
            let machine = SimulatedMachine::new(&member, seed.wrapping_add(number))?;
            let machine = machine.booted(&boot).switched_in(times);
            let state = SimulatedState {
                machine,
                last: Last::nothing(now),
                faults: NodeFaults::default(),
                shown: None,
                told: KubeletSays { boot, ready: true },
            };
            // The fleet generated these quantities, so they are valid.
            let room = quantities(&serde_json::json!(member.capacity)).unwrap_or_default();
            nodes.insert(member.name.clone(), SimulatedNode { member, room, state: Mutex::new(state) });
        }
        Ok(Self { nodes, site, since: clock.mono(), clock, speed })
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

    /// The building around them.
    #[must_use]
    pub const fn site(&self) -> &SimulatedSite {
        &self.site
    }

    /// The host's clock.
    #[must_use]
    pub fn clock(&self) -> &Arc<dyn HostClock> {
        &self.clock
    }

    /// Simulated seconds per real second.
    #[must_use]
    pub const fn speed(&self) -> f64 {
        self.speed
    }

    /// Simulated time since the start.
    #[must_use]
    pub fn now(&self) -> Micros {
        micros(self.clock.mono().since(self.since).mul_f64(self.speed))
    }

    /// A node's state, advanced to the present.
    pub fn at<'a>(&self, node: &'a SimulatedNode) -> MutexGuard<'a, SimulatedState> {
        let mut state = node.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.machine.advance(self.now());
        state
    }
}

/// The types of reset that the simulated machines carry out.
const RESETS: [ResetType; 4] = ResetType::ALL;

/// The machines as their management controllers have them.
pub(crate) struct SimulatedBmcs<'a>(pub(crate) &'a SimulatedWorld);

impl BmcSystems for SimulatedBmcs<'_> {
    fn names(&self) -> Vec<String> {
        self.0.nodes.keys().cloned().collect()
    }

    fn power(&self, system: &str) -> Option<BmcPower> {
        let node = self.0.node(system)?;
        Some(match self.0.at(node).machine.power() {
            MachinePower::On => BmcPower::On,
            MachinePower::Stopping { .. } => BmcPower::PoweringOff,
            MachinePower::Off => BmcPower::Off,
            // A controller sees the power of the board, and not whether a system has started there.
            MachinePower::Booting { .. } => BmcPower::On,
        })
    }

    fn allowed(&self) -> (&[ResetType], bool) {
        (&RESETS, false)
    }

    fn reset(&mut self, system: &str, kind: ResetType) {
        let Some(node) = self.0.node(system) else { return };
        let order = match kind {
            ResetType::On | ResetType::ForceOn => PowerOrder::Start,
            ResetType::GracefulShutdown => PowerOrder::ShutDown,
            ResetType::ForceOff => PowerOrder::CutOff,
        };
        let mut state = self.0.at(node);
        let lost = state.machine.lost_pods();
        state.machine.switch(order);
        tracing::info!(
            node = system,
            "{} was ordered; the machine is {}",
            kind.word(),
            state.machine.power().word()
        );
        let lost = state.machine.lost_pods() - lost;
        if lost > 0 {
            tracing::warn!(node = system, "{lost} pods were on the machine that was cut off");
        }
    }
}
