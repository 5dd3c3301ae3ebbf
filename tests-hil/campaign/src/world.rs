//! A machine, its node, and the time of both.

use crate::bench::MachineKind;
use crate::harm::{Harms, Loss, Part, Situation};
use crate::ledger::ControlLedger;
use crate::node::{PERIOD, SPEED};
use crate::power::{CapExcuse, Power, Span};
use crate::process::{self, Process, Silence};
use crate::random::Draw;
use crate::said::Said;
use crate::tally::Tally;
use node_kit::BackendKind;
use plant::{Load, Plant, PlantDomain, PowerLimitTerm};
use rig::faults::Gate;
use rig::fuse::Mounted;
use rig::machine::{RigMachine, RigTime, Shared};
use rig::test_machine::Folder;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The resolution at which the plant's power is checked: ten times a period.
const SLICE_US: u64 = 50_000;
const SLICES: usize = 10;
/// The node looks for a missing policy every ten seconds, and uses it in the period after that.
const LISTED_US: u64 = 11_000_000;
/// If the cap was kept for this long after the last change, it is also kept without a node.
const CALM_US: u64 = 2_000_000;
const SLICE: Duration = Duration::from_micros(SLICE_US);
const _: () = assert!(SLICE_US * 10 == PERIOD.get());

/// The desired state of every package.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wish {
    Gone,
    /// A cap in watts.
    Cap(u32),
}

/// The state of the node's process.
enum Life {
    Down,
    Up { process: Process, told: bool, periods: u32, started_at: u64 },
}

pub(crate) struct World {
    pub(crate) kind: MachineKind,
    pub(crate) free: bool,
    pub(crate) draw: Draw,
    pub(crate) machine: Shared,
    mounted: Option<Mounted>,
    folder: Folder,
    program: PathBuf,
    ledger: Arc<Mutex<ControlLedger>>,
    life: Life,
    pub(crate) wish: Wish,
    pub(crate) now_us: u64,
    pub(crate) harms: Harms,
    /// What hangs, and the backend that uses it.
    pub(crate) gates: Vec<(BackendKind, Gate)>,
    /// A load that is applied in the middle of the next period.
    pub(crate) load: Option<(usize, Load)>,
    pub(crate) full: Load,
    /// Policies that cannot be written now.
    stuck: BTreeSet<usize>,
    /// Policies whose processors were offline when the node was started, so that the node does not know them. The
    /// value is the time until when that lasts, once the processors are back.
    unlisted: BTreeMap<usize, Option<u64>>,
    /// The originals are back, but the journal could not be written: the same process has to save them again.
    let_go_unwritten: bool,
    floor: f64,
    told_at: u64,
    energy_uj: u64,
    /// While there is no node: whether the cap was being kept when the last node ended, and nothing has changed
    /// since.
    settled: bool,
    disturbed_at: u64,
    power: Power,
    pub(crate) tally: Tally,
    pub(crate) wrong: Vec<String>,
    pub(crate) last_status: String,
    /// The verdicts and the node's status of the last spans of time, for the report of a failure.
    recent: VecDeque<String>,
}

/// The number of lines in that report.
const RECENT: usize = 200;

/// The command for a period of the node in lockstep.
pub(crate) fn tick(micros: u64, hangs: Option<BackendKind>) -> String {
    match hangs {
        Some(backend) => format!("tick {micros} 20 {}", backend.label()),
        None => format!("tick {micros} 5000 -"),
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl World {
    pub(crate) fn new(kind: MachineKind, free: bool, mut draw: Draw, program: &Path) -> Result<Self, String> {
        let folder = Folder::make().map_err(|error| format!("no folder for temporary files: {error}"))?;
        let root = folder.0.join("root");
        std::fs::create_dir(&root).map_err(|error| format!("{}: {error}", root.display()))?;
        let clock = if free { RigTime::Real(f64::from(SPEED)) } else { RigTime::Manual };
        let mut machine = kind.build(clock, &mut draw).map_err(|error| error.to_string())?;
        let ledger = Arc::new(Mutex::new(ControlLedger::of(&machine, folder.0.join("state"))));
        let book = ledger.clone();
        machine.watch(move |on, data, zones| lock(&book).written(on, data, zones));
        let machine = Shared::new(machine);
        let mounted = rig::fuse::mount(machine.clone(), &root)
            .map_err(|error| format!("SKIP(no virtual hardware: {error})"))?;
        let mut world = Self {
            kind,
            free,
            draw,
            machine,
            mounted: Some(mounted),
            folder,
            program: program.to_owned(),
            ledger,
            life: Life::Down,
            wish: Wish::Gone,
            now_us: 0,
            harms: Harms::default(),
            gates: Vec::new(),
            load: None,
            full: Load::busy(1.0),
            stuck: BTreeSet::new(),
            unlisted: BTreeMap::new(),
            let_go_unwritten: false,
            floor: 0.0,
            told_at: 0,
            energy_uj: 0,
            settled: false,
            disturbed_at: 0,
            power: Power::default(),
            tally: Tally::default(),
            wrong: Vec::new(),
            last_status: String::new(),
            recent: VecDeque::new(),
        };
        world.find_floor();
        world.energy_uj = world.energy();
        Ok(world)
    }

    pub(crate) fn ledger(&self) -> MutexGuard<'_, ControlLedger> {
        lock(&self.ledger)
    }

    pub(crate) fn state(&self) -> PathBuf {
        self.folder.0.join("state")
    }

    pub(crate) fn is_up(&self) -> bool {
        matches!(self.life, Life::Up { .. })
    }

    /// The number of periods since the node received the desired state; `None` while it is down or was not informed.
    pub(crate) fn periods(&self) -> Option<u32> {
        match &self.life {
            Life::Up { told: true, periods, .. } => Some(*periods),
            Life::Up { told: false, .. } | Life::Down => None,
        }
    }

    pub(crate) fn accuse(&mut self, what: String) {
        if self.wrong.len() < 20 {
            self.wrong.push(format!("at {} ms: {what}", self.now_us / 1000));
        }
    }

    fn remember(&mut self, what: String) {
        if self.recent.len() == RECENT {
            self.recent.pop_front();
        }
        self.recent.push_back(format!("{} ms: {what}", self.now_us / 1000));
    }

    fn energy(&self) -> u64 {
        let mut machine = self.machine.lock();
        let plant = machine.plant();
        let packages = 0..plant.packages();
        packages
            .filter_map(|at| plant.energy(PlantDomain::Package(at)))
            .map(power_units::MicroJoules::get)
            .sum()
    }

    fn cap(&self) -> Option<f64> {
        let packages = u32::try_from(self.machine.lock().plant().packages()).unwrap_or(0);
        match self.wish {
            Wish::Gone => None,
            Wish::Cap(watts) => Some(f64::from(watts * packages)),
        }
    }

    /// Computes the power of the machine at the lowest clock of every policy that can be written. Other policies
    /// count with their highest clock, because they may be at any clock.
    pub(crate) fn find_floor(&mut self) {
        let mut machine = self.machine.lock();
        let mut plant: Plant = machine.plant().clone();
        for (at, policy) in machine.policies().iter().enumerate().filter(|(_, policy)| !policy.inactive) {
            let stuck = self.stuck.contains(&at) || self.unlisted.contains_key(&at);
            let khz = if stuck { policy.effective_max() } else { *policy.hardware.start() };
            let _in_range = plant.set_frequency(at, khz);
        }
        plant.advance(power_units::Micros::new(500_000));
        self.floor = (0..plant.packages()).filter_map(|at| plant.watts(PlantDomain::Package(at))).sum();
    }

    /// Whether the packages' own limits in force keep the cap, over windows of a second at most. Then no node is
    /// needed.
    fn limits_hold(&self, cap: f64) -> bool {
        let mut machine = self.machine.lock();
        let plant = machine.plant();
        let limits = (0..plant.packages()).map(|at| plant.power_limit(at, PowerLimitTerm::Long));
        let watts = |limit: Option<plant::PowerLimit>| limit.filter(|l| l.window_s <= 1.0).map(|l| l.watts);
        limits.map(watts).sum::<Option<f64>>().is_some_and(|all| all <= cap)
    }

    /// Why the machine could not keep the cap now. This is the complete definition of the excuses.
    fn excuse(&self, cap: f64) -> Option<CapExcuse> {
        if cap < self.floor {
            return Some(CapExcuse::BelowTheFloor);
        }
        if self.limits_hold(cap) {
            return None;
        }
        let started_at = match &self.life {
            Life::Down | Life::Up { told: false, .. } if !self.settled => return Some(CapExcuse::NoNode),
            // The node acts on a command at once. Power is known in the first period after that, and is acted on at
            // its end.
            Life::Up { told: true, periods: 0, .. } if !self.settled => return Some(CapExcuse::NoReadingYet),
            Life::Up { started_at, .. } => *started_at,
            Life::Down => 0,
        };
        let has_limits = self.kind.has_limits();
        // Lock the machine first: a write in progress holds it and waits for the ledger.
        let machine = self.machine.lock();
        let (limits, policies) = self.ledger().holds_all(&machine);
        drop(machine);
        let all_held = !self.let_go_unwritten && if has_limits { limits } else { policies };
        let (now, told_at) = (self.now_us, self.told_at);
        self.harms.excuse(&Situation { now, has_limits, all_held, started_at, told_at })
    }

    /// Records a change that a node would have to act on.
    pub(crate) fn disturb(&mut self) {
        self.settled = false;
        self.disturbed_at = self.now_us;
    }

    pub(crate) fn lose(&mut self, part: Part, how: Loss) {
        self.disturb();
        self.harms.lose(part, how, self.now_us);
    }

    /// Makes some policies unwritable.
    pub(crate) fn stick(&mut self, policies: impl IntoIterator<Item = usize>) {
        self.disturb();
        self.stuck.extend(policies);
        self.find_floor();
    }

    /// Marks processors as back: the node finds policies that it has not listed some time later.
    pub(crate) fn activate(&mut self) {
        let until = self.now_us + LISTED_US;
        let machine = self.machine.clone();
        for (at, _) in machine.lock().policies().iter().enumerate().filter(|(_, policy)| !policy.inactive) {
            if let Some(found) = self.unlisted.get_mut(&at) {
                found.get_or_insert(until);
            }
        }
    }

    /// Whether the node may not have listed this policy yet.
    pub(crate) fn is_unlisted(&self, policy: usize) -> bool {
        self.unlisted.contains_key(&policy)
    }

    /// Repairs all parts.
    pub(crate) fn heal(&mut self) {
        self.harms.heal(self.now_us);
        self.let_go_unwritten = false;
        if !std::mem::take(&mut self.stuck).is_empty() {
            self.find_floor();
        }
    }

    /// Advances the plant by a part of a period, and judges the power.
    fn pass(&mut self, by: Duration) {
        self.machine.lock().advance(by);
        let (before, micros) = (self.energy_uj, u64::try_from(by.as_micros()).unwrap_or(0));
        self.energy_uj = self.energy();
        self.now_us += micros;
        let (now, unlisted) = (self.now_us, self.unlisted.len());
        self.unlisted.retain(|_, until| until.is_none_or(|until| now < until));
        if self.unlisted.len() < unlisted {
            self.find_floor();
        }
        let joules = Duration::from_micros(self.energy_uj - before).as_secs_f64();
        let cap = self.cap();
        let excuse = cap.and_then(|cap| self.excuse(cap));
        let watts = joules / by.as_secs_f64();
        self.power.note(Span { micros, watts, cap, excuse });
        self.remember(format!("{watts:.1} W, cap {cap:?}, excuse {excuse:?}"));
        if let Some(what) = self.power.violation.take() {
            let status = self.last_status.clone();
            self.accuse(format!("{what}; the node said last: {status}"));
        }
    }

    /// Runs one period of the node.
    pub(crate) fn tick(&mut self) {
        if self.free {
            return self.tick_free();
        }
        for slice in 0..SLICES {
            if let Some((at, load)) = self.load
                && at == slice
            {
                self.load = None;
                self.put_load(load);
            }
            self.pass(SLICE);
        }
        self.step(PERIOD.get());
    }

    /// The node's side of a tick.
    fn step(&mut self, micros: u64) {
        // Do not wait for calls that hang, but wait for slow ones, however busy this machine is. On a busy machine
        // 300 ms were not enough for a journal of 128 originals and 128 limits, and in ten waits of 20 ms beside
        // powercap that hung, 128 policies were not listed anew.
        let hangs = self.gates.first().map(|(backend, _)| *backend);
        if let Life::Up { process, periods, .. } = &mut self.life {
            process.say(&tick(micros, hangs));
            *periods += 1;
            self.hear();
        }
        self.audit();
    }

    fn tick_free(&mut self) {
        if let Some((_, load)) = self.load.take() {
            self.put_load(load);
        }
        process::pause(Duration::from_micros(PERIOD.get()) / SPEED);
        self.now_us += PERIOD.get();
        if let Life::Up { process, periods, .. } = &mut self.life {
            process.say("status");
            *periods += 1;
            self.hear();
        }
        self.audit();
    }

    /// Reads the answer. It may be missing only if the node was killed.
    pub(crate) fn hear(&mut self) {
        let Life::Up { process, .. } = &self.life else { return };
        match process.answer() {
            Ok(line) if line.starts_with("ok") => {
                self.remember(line.clone());
                self.last_status = line;
            }
            Ok(line) => self.accuse(format!("the node answered {line:?}")),
            Err(Silence::Ended) => {
                if !self.ledger().killed {
                    self.accuse("the node has ended by itself".to_owned());
                }
                self.bury();
            }
            Err(Silence::Stuck) => {
                self.accuse("the node does not answer".to_owned());
                self.kill();
            }
        }
    }

    /// The node's last status.
    pub(crate) fn said(&self) -> Option<Said<'_>> {
        Said::of(&self.last_status)
    }

    pub(crate) fn audit(&self) {
        let machine = self.machine.lock();
        self.ledger().audit(&machine);
    }

    pub(crate) fn put_load(&mut self, load: Load) {
        self.full = load;
        let mut machine = self.machine.lock();
        let inactive: Vec<_> = machine.policies().iter().map(|policy| policy.inactive).collect();
        let plant = machine.plant();
        let _taken = plant.set_load(load);
        for core in 0..plant.cores() {
            // A core whose processors are all offline has no load.
            let mut on_it =
                (0..plant.policies()).filter(|&at| plant.cores_of(at).is_some_and(|of| of.contains(&core)));
            if on_it.all(|at| inactive[at]) {
                let _taken = plant.set_core_load(core, Load::IDLE);
            }
        }
        drop(machine);
        self.disturb();
        self.find_floor();
    }

    /// Lets somebody else change the machine. In a free scenario this needs a moment without a node: the result of a
    /// change between a node's reading and its write, or between its release and its journal entry, is undefined.
    pub(crate) fn change(&mut self, by: impl FnOnce(&mut RigMachine)) -> bool {
        if self.free && self.is_up() {
            return false;
        }
        self.change_late(by);
        true
    }

    /// Applies the second half of a change, which cannot be left out. The current values of untouched controls are
    /// their originals.
    pub(crate) fn change_late(&mut self, by: impl FnOnce(&mut RigMachine)) {
        let mut machine = self.machine.lock();
        lock(&self.ledger).change(&mut machine, by);
        drop(machine);
        self.disturb();
    }

    pub(crate) fn start(&mut self) {
        self.let_go_unwritten = false;
        let machine = self.machine.clone();
        let inactive = machine.lock().policies().iter().map(|policy| policy.inactive).collect::<Vec<_>>();
        self.unlisted =
            (0..).zip(inactive).filter(|(_, inactive)| *inactive).map(|(at, _)| (at, None)).collect();
        let wait = Duration::from_millis(if self.gates.is_empty() { 10_000 } else { 100 });
        match self.spawn(wait) {
            Ok(process) => match process.answer() {
                Ok(line) if line == "ready" => {
                    self.life = Life::Up { process, told: false, periods: 0, started_at: self.now_us };
                }
                other => self.accuse(format!("the node did not start: {other:?}")),
            },
            Err(error) => self.accuse(format!("the node cannot be started: {error}")),
        }
    }

    pub(crate) fn spawn(&mut self, wait: Duration) -> std::io::Result<Process> {
        self.tally.restarts += 1;
        Process::start(&process::Place {
            program: &self.program,
            root: &self.folder.0.join("root"),
            state: &self.state(),
            errors: &self.folder.0.join("errors"),
            free: self.free,
            wait,
        })
    }

    /// Sends the desired state to the node, which acts at once.
    pub(crate) fn tell(&mut self) {
        let line = match self.wish {
            Wish::Gone => "gone".to_owned(),
            Wish::Cap(watts) => format!("cap {watts}"),
        };
        self.let_go_unwritten |= self.wish == Wish::Gone && self.harms.has_no_journal();
        if let Life::Up { process, told, .. } = &mut self.life {
            *told = true;
            self.told_at = self.now_us;
            process.say(&line);
            self.hear();
        }
        if !self.free && self.is_up() {
            self.pass(Duration::from_millis(1));
            self.step(1_000);
            if let Life::Up { periods, .. } = &mut self.life {
                *periods -= 1;
            }
        }
    }

    pub(crate) fn say(&mut self, line: &str) {
        if let Life::Up { process, .. } = &mut self.life {
            process.say(line);
        }
    }

    pub(crate) fn answer(&mut self) -> Option<String> {
        match &self.life {
            Life::Up { process, .. } => process.answer().ok(),
            Life::Down => None,
        }
    }

    pub(crate) fn killer(&self) -> Option<process::Killer> {
        match &self.life {
            Life::Up { process, .. } => Some(process.killer()),
            Life::Down => None,
        }
    }

    pub(crate) fn kill(&mut self) {
        if let Some(killer) = self.killer() {
            killer.kill();
            self.bury();
        }
    }

    /// Waits until the killed process has ended, after which it writes nothing more.
    pub(crate) fn bury(&mut self) {
        self.open_gates();
        let is_calm = self.now_us - self.disturbed_at > CALM_US && !self.power.is_above();
        let was_kept = is_calm && self.cap().is_some_and(|cap| self.excuse(cap).is_none());
        if let Life::Up { process, .. } = std::mem::replace(&mut self.life, Life::Down) {
            self.settled = was_kept;
            if !process.bury() {
                self.accuse("the killed node does not go away".to_owned());
            }
            self.tally.kills += 1;
        }
        if process::unfinished_journal(&self.state()).is_file() {
            self.tally.kills_in_journal += 1;
        }
        self.ledger().no_kill();
        self.audit();
    }

    /// Stops it as a service manager does.
    pub(crate) fn stop(&mut self) {
        let answer = self.ask("stop");
        if answer.as_deref() != Some("stopped") && self.is_up() {
            self.accuse(format!("told to stop, the node answered {answer:?}"));
        }
        if self.is_up() {
            self.bury();
            self.tally.kills -= 1;
        }
    }

    pub(crate) fn ask(&mut self, line: &str) -> Option<String> {
        self.say(line);
        self.answer()
    }

    pub(crate) fn open_gates(&mut self) {
        self.gates.drain(..).for_each(|(_, gate)| gate.open());
    }

    /// Ends the scenario and sums up its results.
    pub(crate) fn close(mut self) -> (Tally, Vec<String>, Vec<String>) {
        self.kill();
        let errors = std::fs::read_to_string(self.folder.0.join("errors")).unwrap_or_default();
        if !errors.trim().is_empty() {
            self.accuse(format!("the node said: {}", errors.lines().take(5).collect::<Vec<_>>().join(" | ")));
        }
        let (writes, audits, originals, accused) = {
            let mut ledger = self.ledger();
            let accused = std::mem::take(&mut ledger.wrong);
            (ledger.writes, ledger.audits, ledger.originals_checked, accused)
        };
        let mut tally = std::mem::take(&mut self.tally);
        tally.restarts = tally.restarts.saturating_sub(1);
        (tally.writes, tally.audits, tally.originals) = (writes, audits, originals);
        let power = &self.power;
        (tally.judged_us, tally.above_us) = (power.judged_us, power.above_us);
        (tally.uncapped_us, tally.longest_us, tally.worst) =
            (power.uncapped_us, power.longest_us, power.worst);
        for (&excuse, &all) in &power.excused_us {
            let above = power.excused_above_us.get(&excuse).copied().unwrap_or(0);
            tally.excused_us.insert(excuse, (all, above));
        }
        tally.scenarios.insert(self.kind, 1);
        tally.free = u64::from(self.free);
        let mut wrong = std::mem::take(&mut self.wrong);
        wrong.extend(accused);
        let mut recent: Vec<String> = std::mem::take(&mut self.ledger().recent).into();
        recent.extend(std::mem::take(&mut self.recent));
        (tally, wrong, recent)
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.open_gates();
        self.machine.lock().faults().heal();
        if let Some(killer) = self.killer() {
            killer.kill();
        }
        // Before the folder that it is mounted on goes away.
        drop(self.mounted.take());
    }
}
