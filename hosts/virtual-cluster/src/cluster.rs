//! Time passes: caps come into force, machines draw, receipts and reports arrive, an arm decides.
//!
//! What counts of a machine is kept here apart from all arms: the highest of the last cap that was read back and of
//! all caps that were written after it. So an arm cannot hide an excess from the figures.

use crate::arms::{ArmView, CapWrite, Divider, NodeSays, NodeSecond};
use crate::demand::{DemandTrace, MachineDemand};
use crate::figures::{Figures, StepState};
use crate::site::{LimitsNow, VirtualMachine, VirtualSite};
use crate::{STEP_S, STEPS_A_SECOND};
use plant::Random;
use std::collections::VecDeque;

/// A cut of the limits at a moment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LimitCut {
    /// When, in seconds.
    pub at_s: f64,
    /// What remains of every limit.
    pub part: f64,
}

/// What is measured.
#[derive(Clone, Copy, Debug)]
pub struct Experiment<'a> {
    /// The machines.
    pub site: &'a VirtualSite,
    /// Their demand.
    pub trace: &'a DemandTrace,
    /// The site's limit.
    pub limit: f64,
    /// The seed of the delays and of who is blind.
    pub seed: u64,
    /// The part of the nodes of which nothing is measured.
    pub blind: f64,
    /// A cut of the limits.
    pub cut: Option<LimitCut>,
    /// A cut that every machine is armed for: no limit changes.
    pub armed: Option<LimitCut>,
    /// The part of the site's limit that the limit for every instant is.
    pub instant: f64,
}

/// A cap on its way.
#[derive(Clone, Copy, Debug)]
struct OnItsWay {
    serial: u64,
    watts: f64,
    /// It says that watts are short.
    lends: bool,
    /// The node itself keeps to it, of a cap that was written.
    is_yield: bool,
    in_force_at: usize,
    /// `None` while the receipt waits for something else to tell.
    heard_at: Option<usize>,
    /// It brought a write of its own.
    is_written: bool,
}

/// From one step to so many.
fn steps(random: &mut Random, most: u64) -> usize {
    1 + usize::try_from(random.bits() % most).unwrap_or(0)
}
/// For how long a receipt that changes nothing that counts waits for something else to tell, as in the agent.
const RECEIPT_WAITS: usize = 120 * STEPS_A_SECOND;
/// The same while the node is still throttled.
const BITING_WAITS: usize = 40 * STEPS_A_SECOND;

/// The state of a machine.
#[derive(Clone, Debug)]
struct Machine {
    of: VirtualMachine,
    serial: u64,
    asked: f64,
    /// The number of the cap in force, and the cap as the devices keep it.
    in_force: (u64, f64),
    /// What is left of the cap in force, and whether it says that watts are short.
    granted: (f64, bool),
    heard: (u64, f64),
    /// What the node has left of the cap that was read back, if it has yielded some.
    yields: Option<f64>,
    on_their_way: VecDeque<OnItsWay>,
    /// The sums of the second so far, and of how many steps.
    second: NodeSecond,
    steps: u32,
    last: Option<NodeSecond>,
    is_blind: bool,
    job_at: Option<usize>,
    /// From when on it has at most so much because of an armed event.
    armed: Option<(usize, f64)>,
}

/// The first cap that every machine has.
const FIRST: u64 = 1;
const NOTHING: NodeSecond = NodeSecond {
    drawn: 0.0,
    counted: 0.0,
    bitten: 0.0,
    cap: 0.0,
    most: 0.0,
    serial: FIRST,
    granted: 0.0,
    lends: false,
};

impl Machine {
    fn new(of: VirtualMachine, cap: f64, is_blind: bool) -> Self {
        let kept = of.kind.kept(cap);
        Self {
            of,
            serial: FIRST,
            asked: cap,
            in_force: (FIRST, kept),
            granted: (cap, false),
            heard: (FIRST, kept),
            yields: None,
            on_their_way: VecDeque::new(),
            second: NOTHING,
            steps: 0,
            last: None,
            is_blind,
            job_at: None,
            armed: None,
        }
    }

    /// What it may draw, as far as anybody can know.
    fn count(&self) -> f64 {
        let caps = self.on_their_way.iter().map(|write| self.of.kind.kept(write.watts));
        caps.fold(self.heard.1, f64::max)
    }

    /// The cap that its devices keep.
    fn cap(&self, step: usize) -> f64 {
        let armed = self.armed.filter(|(from, _)| *from <= step).map_or(f64::INFINITY, |(_, watts)| watts);
        self.in_force.1.min(armed)
    }

    /// An armed event begins. It is in force as fast as a cap is that is written; returns after how many seconds.
    fn arm(&mut self, step: usize, share: f64, random: &mut Random) -> f64 {
        let (floor, max) = (self.of.kind.floor(), self.of.kind.max());
        let from = step + steps(random, 3);
        self.armed = Some((from, floor + share * (max - floor)));
        (from - step) as f64 * STEP_S
    }

    fn come_into_force(&mut self, step: usize) {
        for write in self.on_their_way.iter().filter(|write| write.in_force_at <= step) {
            let (serial, left) = (self.in_force.0, self.granted.0);
            // A yield is of the cap that is in force, and only ever takes from it.
            let comes = match write.is_yield {
                true => write.serial == serial && write.watts < left,
                false => write.serial > serial,
            };
            if comes {
                self.in_force = (write.serial, self.of.kind.kept(write.watts));
                self.granted = (write.watts, write.lends);
            }
        }
    }

    /// Reads receipts; returns how many arrived.
    fn hear(&mut self, step: usize) -> u64 {
        let arrived: Vec<OnItsWay> = self
            .on_their_way
            .iter()
            .copied()
            .filter(|write| write.heard_at.is_some_and(|at| at <= step))
            .collect();
        let Some(last) = arrived.iter().max_by_key(|write| write.serial) else { return 0 };
        self.heard = (last.serial, self.of.kind.kept(last.watts));
        self.yields = last.is_yield.then_some(last.watts);
        // An earlier cap is void once a later one was read back.
        let (serial, is_waited_for) = (last.serial, |write: &OnItsWay| write.heard_at > Some(step));
        let left_of_it = |write: &OnItsWay| write.is_yield && write.serial == serial && is_waited_for(write);
        self.on_their_way.retain(|write| write.serial > serial || left_of_it(write));
        arrived.iter().filter(|write| write.is_written).count() as u64
    }

    /// A receipt that waits is told with a report of the demand, or alone when it has waited for long.
    fn tell_receipts(&mut self, step: usize, says: &NodeSays) {
        let longest = if says.bites { BITING_WAITS } else { RECEIPT_WAITS };
        let (serial, _) = self.in_force;
        for write in &mut self.on_their_way {
            // The receipt is of the last cap that came into force.
            let waits = write.heard_at.is_none() && write.serial == serial;
            let is_over = step >= write.in_force_at + longest;
            if waits && (says.reports || is_over) {
                // It takes half a second, as a report does.
                (write.heard_at, write.is_written) = (Some(step + 1), !says.reports);
            }
        }
    }

    /// The node keeps to less than the cap in force, and tells so with its receipt.
    fn give_way(&mut self, step: usize, watts: f64) {
        let in_force_at = step + 1;
        self.on_their_way.push_back(OnItsWay {
            serial: self.in_force.0,
            watts,
            lends: self.granted.1,
            is_yield: true,
            in_force_at,
            heard_at: Some(in_force_at + 1),
            is_written: true,
        });
    }

    /// `defers`: the agent follows the demand, so that it tells of a mere raise with the next report.
    fn write(
        &mut self,
        step: usize,
        CapWrite { watts, lends, .. }: CapWrite,
        defers: bool,
        random: &mut Random,
    ) {
        let is_urgent = !defers || self.is_blind || self.count() > self.of.kind.kept(watts);
        self.serial += 1;
        self.asked = watts;
        // 0.5 to 1.5 s, and 0.5 to 1 s more.
        let in_force_at = step + steps(random, 3);
        let heard_at = Some(in_force_at + steps(random, 2)).filter(|_| is_urgent);
        let serial = self.serial;
        let (is_yield, is_written) = (false, is_urgent);
        self.on_their_way.push_back(OnItsWay {
            serial,
            watts,
            lends,
            is_yield,
            in_force_at,
            heard_at,
            is_written,
        });
    }

    /// Draws for a step; returns what, and whether its cap limits it.
    fn draw(&mut self, step: usize, demand: MachineDemand) -> (f64, bool) {
        let MachineDemand { drawn, needed, most } = demand;
        let cap = self.cap(step);
        let drawn = drawn - (needed - cap).max(0.0);
        let is_bitten = needed > cap + 0.5;
        self.second.drawn += drawn;
        self.second.counted += needed.min(cap);
        self.second.bitten += if is_bitten { 1.0 } else { 0.0 };
        self.second.cap = cap;
        self.second.most = self.second.most.max(most);
        self.steps += 1;
        (drawn, is_bitten)
    }

    fn end_second(&mut self) -> NodeSecond {
        let steps = f64::from(self.steps.max(1));
        let NodeSecond { drawn, counted, bitten, .. } = self.second;
        let ((serial, _), (granted, lends)) = (self.in_force, self.granted);
        let (drawn, counted, bitten) = (drawn / steps, counted / steps, bitten / steps);
        let ended = NodeSecond { drawn, counted, bitten, serial, granted, lends, ..self.second };
        (self.second, self.steps) = (NOTHING, 0);
        ended
    }

    fn view(&self, step: usize) -> ArmView {
        ArmView {
            serial: self.serial,
            asked: self.asked,
            heard: self.heard.0,
            holds: self.heard.1,
            yields: self.yields,
            second: self.last.filter(|_| !self.is_blind),
            job_age: self.job_at.map(|at| (step - at) as f64 * STEP_S),
        }
    }
}

/// Runs an arm through an experiment. At the start everybody has the cap to which he is entitled.
pub fn run(experiment: &Experiment<'_>, arm: &mut dyn Divider) -> Figures {
    let Experiment { site, trace, limit, seed, blind, cut, armed, instant } = *experiment;
    let with_instant = |limits: LimitsNow| LimitsNow { instant: (limits.site * instant).floor(), ..limits };
    let mut limits = with_instant(site.limits(limit));
    let mut blinds = Random::stream(seed, 3_000_000);
    let mut machines: Vec<Machine> = site
        .machines
        .iter()
        .zip(&limits.entitled)
        .map(|(machine, &cap)| Machine::new(*machine, cap.floor(), blinds.unit() < blind))
        .collect();
    let mut delays = Random::stream(seed, 3_000_001);
    let mut figures = Figures::new(site, trace.steps(), cut);
    let mut arming = Random::stream(seed, 3_000_002);
    let mut views: Vec<ArmView> = Vec::with_capacity(machines.len());
    let mut writes: Vec<CapWrite> = Vec::new();
    for step in 0..trace.steps() {
        let at = step as f64 * STEP_S;
        if cut.is_some_and(|cut| cut.at_s == at) {
            limits = with_instant(site.limits(limit * cut.map_or(1.0, |cut| cut.part)));
        }
        if let Some(armed) = armed.filter(|armed| armed.at_s == at) {
            limits.armed = true;
            let share = site.share(limits.site * armed.part);
            for machine in &mut machines {
                figures.arms(machine.arm(step, share, &mut arming));
            }
        }
        for &machine in trace.starts(step) {
            if let Some(machine) = machines.get_mut(machine) {
                machine.job_at = Some(step);
            }
        }
        let mut state = StepState::new(step, machines.len());
        for (index, machine) in machines.iter_mut().enumerate() {
            state.receipts += machine.hear(step);
            machine.come_into_force(step);
            // Half of the nodes' seconds end half a second later than those of the others.
            if (step + index).is_multiple_of(STEPS_A_SECOND) && step >= STEPS_A_SECOND {
                let second = machine.end_second();
                machine.last = Some(second);
                if !machine.is_blind {
                    let says = arm.sense(step, index, second);
                    state.reports += u64::from(says.reports);
                    machine.tell_receipts(step, &says);
                    if let Some(watts) = says.yields {
                        machine.give_way(step, watts);
                    }
                }
            }
        }
        views.clear();
        views.extend(machines.iter().map(|machine| machine.view(step)));
        writes.clear();
        arm.decide(step, &limits, &views, &mut writes);
        for write in &writes {
            if let Some(machine) = machines.get_mut(write.machine) {
                machine.write(step, *write, arm.defers(), &mut delays);
                state.orders += 1;
            }
        }
        for (machine, demand) in machines.iter_mut().zip(trace.at(step)) {
            let drawn = machine.draw(step, demand);
            state.machine(demand, drawn, (machine.cap(step), machine.count()));
        }
        figures.add(&limits, trace, &state);
        if let Some(armed) = armed.filter(|armed| at >= armed.at_s) {
            figures.see_armed(at - armed.at_s, limits.site * armed.part, &state);
        }
    }
    figures.end();
    figures
}
