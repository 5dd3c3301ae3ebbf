//! The machines, the judge and the story. Every action on a machine passes through here, so that the judge sees each
//! change at its instant.

use crate::budget::{BEGINNING, Landed, REBOOT_DEADLINE, REFUSAL_AFTER, RIVAL_AT_MOST};
use crate::clock::wall;
use crate::sleep::{ControllerFault, MachineBmc};
use crate::story::{Story, Weight};
use bytes::Bytes;
use host_kit::clock::micros;
use http::{Method, StatusCode};
use judge::{Excuse, Judge, MachinePart};
use serde_json::Value;
use simulator::control::{self, Last};
use simulator::faults::{ControlFault, NodeFaults};
use simulator::fleet::Member;
use simulator::machine::{MachineError, SimulatedMachine};
use simulator::telemetry::TelemetryResponse;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// See the module documentation.
pub(crate) struct Scene {
    hour: Instant,
    state: Mutex<State>,
}

struct State {
    machines: BTreeMap<String, Plant>,
    judge: Judge,
    story: Story,
    counts: BTreeMap<&'static str, u64>,
}

/// A machine and its state in the test.
struct Plant {
    member: Member,
    machine: SimulatedMachine,
    last: Last,
    faults: NodeFaults,
    is_up: bool,
    /// Whether the next boot is that of a replaced machine, for which no room was kept.
    is_new: bool,
    boots: u32,
    bmc: MachineBmc,
}

impl Plant {
    fn in_force(&self, part: MachinePart) -> f64 {
        match part {
            MachinePart::Cpu => f64::from(self.member.hardware.sockets) * self.machine.package_cap(),
            MachinePart::Gpu => self.boards() * self.machine.board_cap().unwrap_or(0.0),
        }
    }

    fn boards(&self) -> f64 {
        self.member.hardware.gpus.as_ref().map_or(0.0, |gpus| f64::from(gpus.count))
    }

    /// The total limit of a part that a request body asks for, clamped to the machine's range.
    fn asked(&self, body: &[u8]) -> Option<(MachinePart, f64)> {
        let body: Value = serde_json::from_slice(body).ok()?;
        match body["action"].as_str()? {
            control::SET_POWER => {
                let (low, high) = self.member.hardware.package_cap;
                let each = body["capWatts"].as_f64()?.clamp(low, high);
                Some((MachinePart::Cpu, each * f64::from(self.member.hardware.sockets)))
            }
            control::SET_GPU_POWER => {
                let (low, high) = self.member.hardware.gpus.as_ref()?.cap;
                Some((MachinePart::Gpu, body["capWattsPerGpu"].as_f64()?.clamp(low, high) * self.boards()))
            }
            _ => None,
        }
    }
}

impl Scene {
    /// Machines that are up and idle, without limits.
    ///
    /// # Errors
    /// If a machine cannot be built.
    pub(crate) fn new(members: &[Member], seed: u64, budget: f64) -> Result<Self, MachineError> {
        let (mut machines, mut judge) = (BTreeMap::new(), Judge::new(budget));
        for (number, member) in (0_u64..).zip(members) {
            let machine = SimulatedMachine::new(member, seed.wrapping_add(number))?;
            let last = Last::nothing(wall(Duration::ZERO));
            let member = member.clone();
            let name = member.name.clone();
            let plant = Plant {
                member,
                machine,
                last,
                faults: NodeFaults::default(),
                is_up: true,
                is_new: false,
                boots: 1,
                bmc: MachineBmc::default(),
            };
            for part in [MachinePart::Cpu, MachinePart::Gpu] {
                // The system has not started yet: every machine has just booted.
                let low = least(&plant, part);
                judge.part(&name, part, plant.in_force(part), low);
                judge.excuse((&name, part), Excuse::Reboot, low, BEGINNING);
            }
            machines.insert(name, plant);
        }
        let state = State { machines, judge, story: Story::new(), counts: BTreeMap::new() };
        Ok(Self { hour: Instant::now(), state: Mutex::new(state) })
    }

    pub(crate) const fn hour(&self) -> Instant {
        self.hour
    }

    /// The time since the hour began.
    pub(crate) fn now(&self) -> Duration {
        self.hour.elapsed()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The state after judging up to now.
    fn judged(&self) -> (MutexGuard<'_, State>, Duration) {
        let now = self.now();
        let mut state = self.state();
        state.judge.advance(now);
        (state, now)
    }

    pub(crate) fn tell(&self, weight: Weight, line: String) {
        let now = self.now();
        self.state().story.tell(now, weight, line);
    }

    pub(crate) fn remark(&self, line: String) {
        let now = self.now();
        self.state().story.remark(now, Weight::Told, line);
    }

    /// Increments a counter.
    pub(crate) fn count(&self, what: &'static str) {
        *self.state().counts.entry(what).or_default() += 1;
    }

    /// Judges up to now, and returns the sum of the limits.
    pub(crate) fn look(&self) -> f64 {
        self.judged().0.judge.in_force()
    }

    /// The sum of the limits in force of a machine.
    pub(crate) fn held(&self, node: &str) -> f64 {
        let (state, _) = self.judged();
        [MachinePart::Cpu, MachinePart::Gpu].into_iter().map(|part| state.judge.held(node, part)).sum()
    }

    /// Sets another budget, with the deadline of a lower one.
    pub(crate) fn budget(&self, watts: f64, deadline: Duration) {
        let (mut state, now) = self.judged();
        state.judge.budget(watts, deadline);
        let line = format!("** the site may draw {watts:.0} W (in force {:.0} W)", state.judge.in_force());
        state.story.tell(now, Weight::Told, line);
    }

    /// Records that a node cannot be informed of a cut until then.
    pub(crate) fn untold(&self, node: &str, until: Duration) {
        self.judged().0.judge.untold(node, until);
    }

    /// Postpones the deadline of the room for booted machines.
    pub(crate) fn postpone_room(&self, until: Duration) {
        self.judged().0.judge.postpone_room(until);
    }

    /// Suspends the deadlines while it is unclear who leads (`None`); afterwards sets them to this time.
    pub(crate) fn put_off(&self, deadline: Option<Duration>) {
        self.judged().0.judge.put_off(deadline);
    }

    /// Records that the system knows again everything that the API server has lost, by this time.
    pub(crate) fn restored(&self, until: Duration) {
        self.judged().0.judge.restored(until);
    }

    /// Reads the judge and the story.
    pub(crate) fn read<T>(&self, read: impl FnOnce(&Judge, &Story, &BTreeMap<&'static str, u64>) -> T) -> T {
        let (state, _) = self.judged();
        read(&state.judge, &state.story, &state.counts)
    }

    /// The telemetry of a machine; `None` while it is down.
    pub(crate) fn telemetry(&self, node: &str) -> Option<Bytes> {
        let (mut state, now) = self.judged();
        let plant = state.machines.get_mut(node).filter(|plant| plant.is_up)?;
        plant.machine.advance(micros(now));
        let telemetry = TelemetryResponse::of(&mut plant.machine, &plant.last, wall(now));
        serde_json::to_vec(&telemetry).ok().map(Bytes::from)
    }

    /// Executes a request to a machine and returns its answer; `None` while it is down.
    pub(crate) fn control(&self, node: &str, body: &[u8]) -> Option<(StatusCode, Bytes)> {
        let (mut state, now) = self.judged();
        let State { machines, judge, story, .. } = &mut *state;
        let plant = machines.get_mut(node).filter(|plant| plant.is_up)?;
        plant.machine.advance(micros(now));
        let asked = plant.asked(body);
        let done = control::act(&mut plant.machine, &mut plant.last, &plant.faults, body, wall(now));
        let done = match done {
            Ok(done) => done,
            Err(why) => return Some((StatusCode::BAD_REQUEST, Bytes::from(why))),
        };
        if let Some((part, asked)) = asked {
            let (before, after) = (judge.held(node, part), plant.in_force(part));
            judge.holds(node, part, after);
            let landed =
                if plant.faults.control == ControlFault::Ok { Landed::InForce } else { Landed::Refused };
            match landed {
                Landed::InForce => {
                    judge.end((node, part), Excuse::Refusal);
                    judge.end((node, part), Excuse::Rival);
                }
                Landed::Refused if asked < before => {
                    judge.excuse((node, part), Excuse::Refusal, asked, now + REFUSAL_AFTER);
                }
                Landed::Refused => {}
            }
            if landed.is_receipt() {
                judge.end((node, part), Excuse::Reboot);
            }
            let sum = judge.in_force();
            let line = format!(
                "   {node} {part:?} {before:.1} → {after:.1} W, asked {asked:.1} W ({landed:?}); all {sum:.0} W"
            );
            story.tell(now, Weight::Told, line);
        }
        let status = match plant.faults.control {
            ControlFault::Error => StatusCode::INTERNAL_SERVER_ERROR,
            ControlFault::Ok | ControlFault::Ignored | ControlFault::Blocked => StatusCode::OK,
        };
        let answer = control::answer(&mut plant.machine, &plant.last, &done, node);
        serde_json::to_vec(&answer).ok().map(|bytes| (status, Bytes::from(bytes)))
    }

    /// Switches a machine off; it draws nothing then.
    pub(crate) fn down(&self, node: &str) {
        let (mut state, now) = self.judged();
        let State { machines, judge, story, .. } = &mut *state;
        let Some(plant) = machines.get_mut(node) else { return };
        plant.is_up = false;
        for part in [MachinePart::Cpu, MachinePart::Gpu] {
            judge.holds(node, part, 0.0);
        }
        story.tell(now, Weight::Told, format!("** {node} goes down; all {:.0} W", judge.in_force()));
    }

    /// Marks the next machine with this name as a replacement.
    pub(crate) fn replace(&self, node: &str) {
        let (mut state, now) = self.judged();
        if let Some(plant) = state.machines.get_mut(node) {
            plant.is_new = true;
        }
        state.story.tell(now, Weight::Told, format!("** {node} is another machine, with an empty disk"));
    }

    /// The kernel's boot id of a machine; `None` while it is down.
    pub(crate) fn boot_id(&self, node: &str) -> Option<String> {
        let state = self.state();
        let plant = state.machines.get(node).filter(|plant| plant.is_up)?;
        Some(boot_id(node, plant.boots))
    }

    /// Boots a machine, which resets its limits to the highest ones, and returns its boot id.
    pub(crate) fn up(&self, node: &str) -> String {
        let (mut state, now) = self.judged();
        let State { machines, judge, story, .. } = &mut *state;
        let Some(plant) = machines.get_mut(node) else { return String::new() };
        (plant.is_up, plant.boots) = (true, plant.boots + 1);
        plant.machine.advance(micros(now));
        plant.machine.set_package_cap(f64::INFINITY);
        plant.machine.set_board_cap(f64::INFINITY);
        plant.machine.set_throttle(0);
        plant.last = Last::nothing(wall(now));
        let is_new = std::mem::take(&mut plant.is_new);
        for part in [MachinePart::Cpu, MachinePart::Gpu] {
            judge.holds(node, part, plant.in_force(part));
            let low = if is_new { 0.0 } else { least(plant, part) };
            judge.booted((node, part), low, now + REBOOT_DEADLINE);
        }
        let line = format!("** {node} has booted without limits; all {:.0} W", judge.in_force());
        story.tell(now, Weight::Told, line);
        boot_id(node, plant.boots)
    }

    /// Executes a request to the controller of a machine; `None` if there is no answer.
    pub(crate) fn redfish(&self, node: &str, method: &Method, body: &[u8]) -> Option<(StatusCode, Bytes)> {
        let (mut state, now) = self.judged();
        let plant = state.machines.get_mut(node)?;
        let is_on = plant.is_up;
        plant.bmc.ask((method, body), node, is_on, now)
    }

    /// The machines that have gone off or on by now.
    pub(crate) fn switched(&self, now: Duration) -> Vec<(String, bool)> {
        let mut switched = Vec::new();
        for (node, plant) in &mut self.state().machines {
            if let Some((on, _)) = plant.bmc.going.filter(|(_, at)| now >= *at) {
                plant.bmc.going = None;
                if plant.is_up != on {
                    switched.push((node.clone(), on));
                }
            }
        }
        switched
    }

    /// Somebody presses the button of a machine that is off.
    pub(crate) fn press(&self, node: &str, now: Duration) {
        let mut state = self.state();
        if let Some(plant) = state.machines.get_mut(node).filter(|plant| !plant.is_up) {
            plant.bmc.going.get_or_insert((true, now));
        }
    }

    /// Sets or ends a fault of a controller.
    pub(crate) fn bmc(&self, node: &str, fault: ControllerFault) {
        let (mut state, now) = self.judged();
        if let Some(plant) = state.machines.get_mut(node) {
            plant.bmc.fault = fault;
        }
        state.story.tell(now, Weight::Told, format!("** the controller of {node}: {fault:?}"));
    }

    /// Boots a machine that was woken. Nothing excuses it: room was to be made for it before.
    pub(crate) fn woken(&self, node: &str) {
        self.up(node);
        let (mut state, _) = self.judged();
        for part in [MachinePart::Cpu, MachinePart::Gpu] {
            state.judge.end((node, part), Excuse::Reboot);
        }
    }

    /// Raises the limits of a machine, as another writer does.
    pub(crate) fn rival(&self, node: &str) {
        let (mut state, now) = self.judged();
        let State { machines, judge, story, .. } = &mut *state;
        let Some(plant) = machines.get_mut(node).filter(|plant| plant.is_up) else { return };
        plant.machine.advance(micros(now));
        plant.machine.set_package_cap(f64::INFINITY);
        plant.machine.set_board_cap(f64::INFINITY);
        // Telemetry shows the last request through the control port, and this one came from another writer.
        plant.last = Last::nothing(wall(now));
        for part in [MachinePart::Cpu, MachinePart::Gpu] {
            let before = judge.held(node, part);
            judge.holds(node, part, plant.in_force(part));
            judge.excuse((node, part), Excuse::Rival, before, now + RIVAL_AT_MOST);
        }
        story.tell(
            now,
            Weight::Told,
            format!("** a rival lifts the limits of {node}; all {:.0} W", judge.in_force()),
        );
    }

    /// Sets or ends a fault of a machine's controls.
    pub(crate) fn controls(&self, node: &str, control: ControlFault) {
        let (mut state, now) = self.judged();
        if let Some(plant) = state.machines.get_mut(node) {
            plant.faults.control = control;
        }
        state.story.tell(now, Weight::Told, format!("** the controls of {node}: {control:?}"));
    }
}

/// The lowest possible limit of a part.
fn least(plant: &Plant, part: MachinePart) -> f64 {
    match part {
        MachinePart::Cpu => plant.member.hardware.package_cap.0 * f64::from(plant.member.hardware.sockets),
        MachinePart::Gpu => {
            plant.member.hardware.gpus.as_ref().map_or(0.0, |gpus| gpus.cap.0 * f64::from(gpus.count))
        }
    }
}

/// The kernel's boot id: a new one after each boot.
pub(crate) fn boot_id(node: &str, boots: u32) -> String {
    format!("{node}-boot-{boots}")
}
