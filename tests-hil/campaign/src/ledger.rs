//! What is known of every control of the machine, from the outside: what was in force before the node came, and what
//! was written since.
//!
//! A control is *touched* while the journal's file holds its original. What somebody else does to an untouched control
//! is its new original; what somebody does to a touched one is theirs to lose, as a release puts the original back.
//! What differs from its original must be touched, at every write and whenever anybody looks.
//!
//! Locks: the machine first, the ledger second.

use crate::bench::is_package;
use crate::node::BOOT;
use crate::process::Killer;
use node_kit::{BackendKind, Boot, Journal};
use power_hal::{Control, Key};
use rig::machine::{Attribute, Machine, Slot};
use rig::powercap::Lock;
use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A register field holds 4095.875 W at most. What limits to that limits nothing.
const NO_LIMIT_UW: u64 = 4_095_875_000;

/// What of a zone can be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Limits {
    enabled: bool,
    long_uw: u64,
    window_us: u64,
    short_uw: u64,
}

impl Limits {
    fn of(slot: &Slot) -> Self {
        let constraints = &slot.zone.constraints;
        let at = |name: &str| constraints.iter().position(|constraint| constraint.name == name);
        let power = |name| at(name).map_or(0, |at| slot.zone.power_limit_uw(at));
        Self {
            enabled: constraints.first().is_some_and(|long_term| long_term.enabled),
            long_uw: power("long_term"),
            window_us: at("long_term").map_or(0, |at| slot.zone.time_window_us(at)),
            short_uw: power("short_term"),
        }
    }

    /// Whether what is now there is what was there before. A zone that was not enabled limited nothing; it is never
    /// switched off again, so one that limits nothing is the same.
    fn are_back(self, now: Self) -> bool {
        if self.enabled {
            return self == now;
        }
        let limits_nothing = !now.enabled || now.long_uw >= NO_LIMIT_UW;
        limits_nothing && self.window_us == now.window_us && self.short_uw == now.short_uw
    }
}

/// What a scenario's truth is judged by.
pub(crate) struct Ledger {
    state: PathBuf,
    journal: Held,
    zones: Vec<Limits>,
    policies: Vec<u32>,
    first_cpus: Vec<usize>,
    /// Lets `n` more writes through, and kills the writer in the last of them.
    kill: Option<(u32, Killer)>,
    pub(crate) killed: bool,
    pub(crate) writes: u64,
    pub(crate) wrong: Vec<String>,
    pub(crate) audits: u64,
    pub(crate) originals_checked: u64,
    /// Writes to frequency policies, to see that they go on.
    pub(crate) policy_writes: u64,
}

/// What the journal's file holds, read again when it is another file.
#[derive(Default)]
struct Held {
    seen: Option<(u64, i64, i64)>,
    keys: BTreeSet<(&'static str, String)>,
}

impl Held {
    fn look(&mut self, state: &Path) -> Result<(), String> {
        let path = state.join("originals.json");
        let stamp = std::fs::metadata(path).ok().map(|data| (data.ino(), data.mtime(), data.mtime_nsec()));
        if stamp == self.seen && stamp.is_some() {
            return Ok(());
        }
        self.keys.clear();
        let boot = Boot::new(BOOT).ok_or("the boot's id is one")?;
        let journal = Journal::open(state, boot).map_err(|error| error.to_string())?;
        if journal.void() > 0 {
            return Err(format!("{} originals are void", journal.void()));
        }
        for entry in journal.entries() {
            debug_assert!(matches!(entry.control, Control::Power | Control::Frequency));
            self.keys.insert((entry.backend.label(), entry.domain.as_str().to_owned()));
        }
        self.seen = stamp;
        Ok(())
    }

    fn zone(&self, slot: &Slot) -> bool {
        self.keys.contains(&(BackendKind::Powercap.label(), slot.zone.name.clone()))
    }

    fn policy(&self, first_cpu: usize) -> bool {
        let Ok(number) = u16::try_from(first_cpu) else { return false };
        self.keys.contains(&(BackendKind::Cpufreq.label(), Key::policy(number).as_str().to_owned()))
    }
}

impl Ledger {
    pub(crate) fn of(machine: &Machine, state: PathBuf) -> Self {
        let policies = machine.policies();
        Self {
            state,
            journal: Held::default(),
            zones: machine.zones().iter().map(Limits::of).collect(),
            policies: policies.iter().map(|policy| policy.user_max).collect(),
            first_cpus: policies.iter().map(|policy| policy.cpus.first().copied().unwrap_or(0)).collect(),
            kill: None,
            killed: false,
            writes: 0,
            wrong: Vec::new(),
            audits: 0,
            originals_checked: 0,
            policy_writes: 0,
        }
    }

    pub(crate) fn kill_in(&mut self, writes: u32, killer: Killer) {
        self.kill = Some((writes, killer));
    }

    /// Nobody is killed any more; true if somebody was.
    pub(crate) fn no_kill(&mut self) -> bool {
        self.kill = None;
        std::mem::take(&mut self.killed)
    }

    fn accuse(&mut self, what: String) {
        // One defect shows at every write after it.
        if self.wrong.len() < 20 {
            self.wrong.push(what);
        }
    }

    fn look(&mut self) {
        if let Err(error) = self.journal.look(&self.state) {
            self.accuse(format!("the journal cannot be read: {error}"));
        }
    }

    /// Takes note of a write that a file took.
    pub(crate) fn written(&mut self, on: &Attribute, data: &[u8], zones: &[Slot]) {
        self.writes += 1;
        self.look();
        let text = String::from_utf8_lossy(data).trim().to_owned();
        match *on {
            Attribute::PowerLimit(at, constraint) => {
                let name = zones[at].zone.constraints[constraint].name;
                let value: u64 = text.parse().unwrap_or(0);
                let fine = matches!(name, "long_term" | "short_term")
                    && (value > 0 || self.zones[at].short_uw == 0 && name == "short_term");
                self.zone_written(at, zones, fine, &format!("{name} {text}"));
            }
            Attribute::TimeWindow(at, constraint) => {
                let fine = zones[at].zone.constraints[constraint].name == "long_term";
                self.zone_written(at, zones, fine, &format!("a window of constraint {constraint}: {text}"));
            }
            Attribute::Enabled(at) => self.zone_written(at, zones, text == "1", &format!("enabled={text}")),
            Attribute::MaxFreq(at) => self.policy_written(at, &text),
            Attribute::Text(_)
            | Attribute::Energy(_)
            | Attribute::MinFreq(_)
            | Attribute::CurFreq(_)
            | Attribute::AvgFreq(_)
            | Attribute::PolicyText(..)
            | Attribute::NoTurbo
            | Attribute::Msr(_)
            | Attribute::Cap(_)
            | Attribute::Power(..)
            | Attribute::RuntimeStatus(_)
            | Attribute::Hsmp
            | Attribute::HsmpMessage(..)
            | Attribute::Nvml(..)
            | Attribute::NvmlCall(..)
            | Attribute::RocmCall(..) => self.accuse(format!("{text:?} was written to {on:?}")),
        }
        self.count_down();
    }

    fn zone_written(&mut self, at: usize, zones: &[Slot], fine: bool, what: &str) {
        let slot = &zones[at];
        let name = format!("{} ({})", slot.zone.id, slot.zone.name);
        if !is_package(slot) || !fine {
            self.accuse(format!("{what} was written to {name}"));
        } else if !self.journal.zone(slot) && !self.zones[at].are_back(Limits::of(slot)) {
            self.accuse(format!("{what} was written to {name} while no journal holds its original"));
        }
    }

    fn policy_written(&mut self, at: usize, text: &str) {
        self.policy_writes += 1;
        let (original, cpu) = (self.policies[at], self.first_cpus[at]);
        let limit: u32 = text.parse().unwrap_or(u32::MAX);
        if limit > original {
            self.accuse(format!("policy{cpu} was limited to {text}, above its original {original}"));
        } else if limit != original && !self.journal.policy(cpu) {
            self.accuse(format!("policy{cpu} was limited to {text} while no journal holds its original"));
        }
    }

    fn count_down(&mut self) {
        if let Some((left, killer)) = &mut self.kill {
            *left -= 1;
            if *left == 0 {
                killer.kill();
                (self.kill, self.killed) = (None, true);
            }
        }
    }

    /// Whatever differs from its original must be in the journal.
    pub(crate) fn audit(&mut self, machine: &Machine) {
        self.look();
        self.audits += 1;
        for at in 0..self.zones.len() {
            let slot = &machine.zones()[at];
            if !self.journal.zone(slot) && !self.zones[at].are_back(Limits::of(slot)) {
                let (id, was, is) = (&slot.zone.id, self.zones[at], Limits::of(slot));
                self.accuse(format!("the original of {id} is lost: it was {was:?} and is {is:?}"));
            }
        }
        for at in 0..self.policies.len() {
            let (was, is, cpu) = (self.policies[at], machine.policies()[at].user_max, self.first_cpus[at]);
            if is != was && !self.journal.policy(cpu) {
                self.accuse(format!("the original of policy{cpu} is lost: it was {was} and is {is}"));
            }
        }
    }

    /// Somebody else has changed the machine: of what is not touched that is the original now.
    pub(crate) fn adopt(&mut self, machine: &Machine) {
        self.look();
        for (original, slot) in self.zones.iter_mut().zip(machine.zones()) {
            // A locked zone takes no write: whatever it says is the firmware's.
            if !self.journal.zone(slot) || slot.zone.lock != Lock::Open {
                *original = Limits::of(slot);
            }
        }
        for (at, original) in self.policies.iter_mut().enumerate() {
            if !self.journal.policy(self.first_cpus[at]) {
                *original = machine.policies()[at].user_max;
            }
        }
    }

    /// How many originals the journal's file holds.
    pub(crate) fn held(&mut self) -> usize {
        self.look();
        self.journal.keys.len()
    }

    /// After a release everything is as it was, and nothing is remembered.
    pub(crate) fn everything_is_back(&mut self, machine: &Machine) {
        let held = self.held();
        if held > 0 {
            self.accuse(format!("the journal still holds {held}: {:?}", self.journal.keys));
        }
        let kept: Vec<String> = (machine.zones().iter().zip(&self.zones))
            .filter(|(slot, was)| !was.are_back(Limits::of(slot)))
            .map(|(slot, was)| format!("{} was {was:?} and is {:?}", slot.zone.id, Limits::of(slot)))
            .chain(
                (machine.policies().iter().zip(&self.policies))
                    .filter(|(now, was)| now.user_max != **was)
                    .map(|(now, was)| {
                        format!("policy{:?} was {was} and is {}", now.cpus.first(), now.user_max)
                    }),
            )
            .collect();
        self.originals_checked += self.zones.len() as u64 + self.policies.len() as u64;
        for what in kept {
            self.accuse(format!("not back: {what}"));
        }
    }
}
