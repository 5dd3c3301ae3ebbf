//! The history of every control of the machine, observed from the outside: its value before the node started, and the
//! writes since.
//!
//! A control is *touched* while the journal's file holds its original. If somebody else changes an untouched control,
//! the new value is its new original. If somebody changes a touched one, the change may be lost, because a release
//! restores the original. A control that differs from its original must be touched, at every write and at every
//! audit, and the journal must hold that original.
//!
//! There is an intermediate state: a control is back, but the file still lists it because it cannot be written. A
//! later change by somebody else may or may not become its original, depending on whether the same process or another
//! one continues.
//!
//! Lock order: the machine first, the ledger second.

use crate::bench::is_package;
use crate::node::BOOT;
use crate::process::Killer;
use node_kit::{BackendKind, Boot, Journal};
use power_hal::{Control, Key, Originals};
use rig::machine::{RigMachine, VirtualAttribute, ZoneSlot};
use rig::powercap::RegisterLock;
use std::collections::{BTreeMap, VecDeque};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The largest value of a register field is 4095.875 W. A limit of that size limits nothing.
const NO_LIMIT_UW: u64 = 4_095_875_000;

/// The settings of a zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Limits {
    enabled: bool,
    long_uw: u64,
    window_us: u64,
    short_on: bool,
    short_uw: u64,
}

/// The expected entry of a zone in the journal: whether it was on, its long-term limit, the window of that limit, its
/// short-term limit.
type Words = (bool, [Option<u64>; 3]);

impl Limits {
    fn of(slot: &ZoneSlot) -> Self {
        let constraints = &slot.zone.constraints;
        let at = |name: &str| constraints.iter().position(|constraint| constraint.name == name);
        let power = |name| at(name).map_or(0, |at| slot.zone.power_limit_uw(at));
        Self {
            enabled: constraints.first().is_some_and(|long_term| long_term.enabled),
            long_uw: power("long_term"),
            window_us: at("long_term").map_or(0, |at| slot.zone.time_window_us(at)),
            short_on: at("short_term").is_some_and(|at| constraints[at].enabled),
            short_uw: power("short_term"),
        }
    }

    /// The entry that the journal must hold for this zone. A window that is no longer than a cap's window is never
    /// written, and neither is a short-term limit of 0 W that was off on its own.
    fn saved(self) -> Words {
        let window_us = if self.window_us > 1_000_000 { self.window_us } else { 0 };
        let short_uw = (self.short_uw > 0 || !self.enabled).then_some(self.short_uw);
        (self.enabled, [Some(self.long_uw), Some(window_us), short_uw])
    }

    /// Whether the current settings are the original ones again. The kernel has one switch for both limits. Once
    /// somebody has switched the zone off, a short-term limit of 0 W that was off on its own cannot stay off while
    /// the other limit is on, and in force it would stop the machine. Only in this case it must be the limit that
    /// limits nothing.
    fn are_back(self, now: Self, switched_off: bool) -> bool {
        let by_itself = self.enabled && !self.short_on && self.short_uw == 0;
        let stand_in = Self { short_on: true, short_uw: NO_LIMIT_UW, ..self };
        self == now || by_itself && switched_off && now == stand_in
    }
}

/// Whether a limit of 0 W is in force.
fn stops(slot: &ZoneSlot) -> bool {
    slot.zone.constraints.iter().any(|limit| limit.enabled && limit.power_raw == 0)
}

/// Whether the zone was locked from the start: it has accepted no write, so that the firmware has set its value. A lock
/// that came later has an original like any other.
const fn is_the_firmwares(slot: &ZoneSlot) -> bool {
    matches!(slot.zone.lock, RegisterLock::WindowIgnored | RegisterLock::WindowRefused)
}

/// The reference against which a scenario is judged.
pub(crate) struct ControlLedger {
    state: PathBuf,
    journal: Held,
    zones: Vec<Limits>,
    /// The zones that somebody has switched off since their originals were saved.
    switched_off: Vec<bool>,
    policies: Vec<u32>,
    /// Other values that may be the original.
    other_zones: Vec<Option<Limits>>,
    other_policies: Vec<Option<u32>>,
    first_cpus: Vec<usize>,
    /// Lets `n` more writes pass, and kills the writer in the last of them.
    kill: Option<(u32, Killer)>,
    pub(crate) killed: bool,
    pub(crate) writes: u64,
    pub(crate) wrong: Vec<String>,
    pub(crate) audits: u64,
    pub(crate) originals_checked: u64,
    /// The last writes, for the report of a failure.
    pub(crate) recent: VecDeque<String>,
}

/// The number of writes in that report.
const RECENT: usize = 150;

/// The content of the journal's file, which is read again when the file was replaced.
#[derive(Default)]
struct Held {
    seen: Option<(u64, i64, i64)>,
    /// The saved words of each original.
    words: BTreeMap<(&'static str, String), Vec<u64>>,
}

/// The words that `hal-rapl` saves for a zone: its driver, its long-term limit, the window of that limit, its
/// short-term limit.
const ZONE_WORDS: usize = 4;
/// In the first word: the zone was off.
const OFF: u64 = 1 << 8;
/// There is no short-term limit.
const NO_WORD: u64 = u64::MAX;

impl Held {
    /// Reads the file if it was replaced. Returns whether it was.
    fn look(&mut self, state: &Path) -> Result<bool, String> {
        let path = state.join("originals.json");
        let stamp = std::fs::metadata(path).ok().map(|data| (data.ino(), data.mtime(), data.mtime_nsec()));
        if stamp == self.seen && stamp.is_some() {
            return Ok(false);
        }
        self.words.clear();
        let boot = Boot::new(BOOT).ok_or("the boot's id is one")?;
        let journal = Journal::open(state, boot).map_err(|error| error.to_string())?;
        if journal.void() > 0 {
            return Err(format!("{} originals are void", journal.void()));
        }
        for entry in journal.entries() {
            debug_assert!(matches!(entry.control, Control::Power | Control::Frequency));
            let original = journal.of(entry.backend).kept(&entry.domain, entry.control);
            let words = original.map(|original| original.words().to_vec()).unwrap_or_default();
            self.words.insert((entry.backend.label(), entry.domain.as_str().to_owned()), words);
        }
        self.seen = stamp;
        Ok(true)
    }

    /// The journal's entry for this zone. The two zones of one package are one domain, and either may have been
    /// missing when the original was saved.
    fn zone(&self, slot: &ZoneSlot) -> Option<Words> {
        let key = (BackendKind::Powercap.label(), slot.zone.name.clone());
        let whose = u64::from(slot.control_type != "intel-rapl");
        let zones = self.words.get(&key)?.as_chunks::<ZONE_WORDS>().0;
        let [first, long, window, short] = *zones.iter().find(|words| words[0] & !OFF == whose)?;
        Some((first & OFF == 0, [long, window, short].map(|word| (word != NO_WORD).then_some(word))))
    }

    fn policy(&self, first_cpu: usize) -> Option<u64> {
        let number = u16::try_from(first_cpu).ok()?;
        let key = (BackendKind::Cpufreq.label(), Key::policy(number).as_str().to_owned());
        self.words.get(&key)?.first().copied()
    }
}

impl ControlLedger {
    pub(crate) fn of(machine: &RigMachine, state: PathBuf) -> Self {
        let policies = machine.policies();
        Self {
            state,
            journal: Held::default(),
            zones: machine.zones().iter().map(Limits::of).collect(),
            switched_off: vec![false; machine.zones().len()],
            policies: policies.iter().map(|policy| policy.user_max).collect(),
            other_zones: vec![None; machine.zones().len()],
            other_policies: vec![None; policies.len()],
            first_cpus: policies.iter().map(|policy| policy.cpus.first().copied().unwrap_or(0)).collect(),
            kill: None,
            killed: false,
            writes: 0,
            wrong: Vec::new(),
            audits: 0,
            originals_checked: 0,
            recent: VecDeque::new(),
        }
    }

    pub(crate) fn kill_in(&mut self, writes: u32, killer: Killer) {
        self.kill = Some((writes, killer));
    }

    /// Cancels a planned kill. Returns whether a process was killed.
    pub(crate) fn no_kill(&mut self) -> bool {
        self.kill = None;
        std::mem::take(&mut self.killed)
    }

    fn accuse(&mut self, what: String) {
        // A defect causes an error at every write after it, so keep only the first ones.
        if self.wrong.len() < 20 {
            self.wrong.push(what);
        }
    }

    /// Reads the journal's file. Returns whether it was replaced.
    fn look(&mut self) -> bool {
        self.journal.look(&self.state).unwrap_or_else(|error| {
            self.accuse(format!("the journal cannot be read: {error}"));
            true
        })
    }

    /// Checks that the journal holds the originals.
    fn compare(&mut self, zones: &[ZoneSlot]) {
        for (at, slot) in zones.iter().enumerate() {
            let held = self.journal.zone(slot);
            if let Some(other) = self.other_zones[at].take_if(|other| held == Some(other.saved())) {
                self.zones[at] = other;
            }
            let was = self.zones[at];
            if let Some(held) = self.journal.zone(slot)
                && !is_the_firmwares(slot)
                && held != was.saved()
            {
                let id = &slot.zone.id;
                self.accuse(format!("the journal holds {held:?} of {id}, and it was {was:?}"));
            }
        }
        for at in 0..self.policies.len() {
            let cpu = self.first_cpus[at];
            let held = self.journal.policy(cpu);
            if let Some(other) = self.other_policies[at].take_if(|other| held == Some(u64::from(*other))) {
                self.policies[at] = other;
            }
            let was = self.policies[at];
            if let Some(held) = self.journal.policy(cpu)
                && held != u64::from(was)
            {
                self.accuse(format!("the journal holds {held} of policy{cpu}, and it was {was}"));
            }
        }
    }

    fn remember(&mut self, what: String) {
        if self.recent.len() == RECENT {
            self.recent.pop_front();
        }
        self.recent.push_back(what);
    }

    /// Records a write that a file accepted.
    pub(crate) fn written(&mut self, on: &VirtualAttribute, data: &[u8], zones: &[ZoneSlot]) {
        self.writes += 1;
        if self.look() {
            self.compare(zones);
        }
        let text = String::from_utf8_lossy(data).trim().to_owned();
        self.remember(format!("{on:?} ← {text}, write {}, {} held", self.writes, self.journal.words.len()));
        match *on {
            VirtualAttribute::PowerLimit(at, constraint) => {
                let name = zones[at].zone.constraints[constraint].name;
                let value: u64 = text.parse().unwrap_or(0);
                let is_off = !zones[at].zone.constraints[constraint].enabled;
                let fine = matches!(name, "long_term" | "short_term") && (value > 0 || is_off);
                self.zone_written(at, zones, fine, &format!("{name} {text}"));
            }
            VirtualAttribute::TimeWindow(at, constraint) => {
                let fine = zones[at].zone.constraints[constraint].name == "long_term";
                self.zone_written(at, zones, fine, &format!("a window of constraint {constraint}: {text}"));
            }
            VirtualAttribute::Enabled(at) => {
                let was_off =
                    !self.zones[at].enabled || self.other_zones[at].is_some_and(|other| !other.enabled);
                let fine = text == "1" && !stops(&zones[at]) || text == "0" && was_off;
                self.zone_written(at, zones, fine, &format!("enabled={text}"));
            }
            VirtualAttribute::MaxFreq(at) => self.policy_written(at, &text),
            VirtualAttribute::Text(_)
            | VirtualAttribute::Energy(_)
            | VirtualAttribute::MinFreq(_)
            | VirtualAttribute::CurFreq(_)
            | VirtualAttribute::AvgFreq(_)
            | VirtualAttribute::PolicyText(..)
            | VirtualAttribute::NoTurbo
            | VirtualAttribute::Msr(_)
            | VirtualAttribute::Cap(_)
            | VirtualAttribute::Power(..)
            | VirtualAttribute::RuntimeStatus(_)
            | VirtualAttribute::Hsmp
            | VirtualAttribute::HsmpMessage(..)
            | VirtualAttribute::Nvml(..)
            | VirtualAttribute::NvmlCall(..)
            | VirtualAttribute::GpuState(..)
            | VirtualAttribute::GpuMetrics(_)
            | VirtualAttribute::GpuClock(..)
            | VirtualAttribute::RocmCall(..) => self.accuse(format!("{text:?} was written to {on:?}")),
        }
        self.count_down();
    }

    fn zone_written(&mut self, at: usize, zones: &[ZoneSlot], fine: bool, what: &str) {
        let slot = &zones[at];
        let (was, now) = (self.zones[at], Limits::of(slot));
        if was != now && was.are_back(now, self.switched_off[at]) {
            // A node that could not write the release to its journal finds this value when it caps the zone again.
            self.other_zones[at] = Some(now);
        }
        let name = format!("{} ({})", slot.zone.id, slot.zone.name);
        if !is_package(slot) || !fine {
            self.accuse(format!("{what} was written to {name}"));
        } else if self.journal.zone(slot).is_none() {
            self.accuse(format!("{what} was written to {name} while no journal holds its original"));
        }
    }

    fn policy_written(&mut self, at: usize, text: &str) {
        let (original, cpu) = (self.policies[at], self.first_cpus[at]);
        let limit: u32 = text.parse().unwrap_or(u32::MAX);
        if limit > original {
            self.accuse(format!("policy{cpu} was limited to {text}, above its original {original}"));
        } else if self.journal.policy(cpu).is_none() {
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

    /// Checks that every control that differs from its original is in the journal.
    pub(crate) fn audit(&mut self, machine: &RigMachine) {
        self.look();
        self.compare(machine.zones());
        self.audits += 1;
        self.settle_others(machine);
        for at in 0..self.zones.len() {
            let slot = &machine.zones()[at];
            let is_back = self.zones[at].are_back(Limits::of(slot), self.switched_off[at]);
            if self.journal.zone(slot).is_none() && !is_back {
                let (id, was, is) = (&slot.zone.id, self.zones[at], Limits::of(slot));
                self.accuse(format!("the original of {id} is lost: it was {was:?} and is {is:?}"));
            }
        }
        for at in 0..self.policies.len() {
            let (was, is, cpu) = (self.policies[at], machine.policies()[at].user_max, self.first_cpus[at]);
            if is != was && self.journal.policy(cpu).is_none() {
                self.accuse(format!("the original of policy{cpu} is lost: it was {was} and is {is}"));
            }
        }
    }

    /// If the journal no longer holds a control, and the control has the other possible original, that value becomes
    /// its original.
    fn settle_others(&mut self, machine: &RigMachine) {
        for (at, slot) in
            machine.zones().iter().enumerate().filter(|(_, slot)| self.journal.zone(slot).is_none())
        {
            let (now, switched_off) = (Limits::of(slot), self.switched_off[at]);
            if let Some(other) = self.other_zones[at].take().filter(|other| other.are_back(now, switched_off))
            {
                self.zones[at] = other;
            }
            if self.zones[at].are_back(now, switched_off) {
                // The value that replaces a short-term limit of 0 W is the original for the next node.
                (self.zones[at], self.switched_off[at]) = (now, false);
            }
        }
        for (at, policy) in machine.policies().iter().enumerate() {
            if self.journal.policy(self.first_cpus[at]).is_none()
                && let Some(other) = self.other_policies[at].take_if(|other| *other == policy.user_max)
            {
                self.policies[at] = other;
            }
        }
    }

    /// Lets somebody else change the machine. The new value of an untouched control is its new original.
    pub(crate) fn change(&mut self, machine: &mut RigMachine, by: impl FnOnce(&mut RigMachine)) {
        self.audit(machine);
        let zones: Vec<Limits> = machine.zones().iter().map(Limits::of).collect();
        let policies: Vec<u32> = machine.policies().iter().map(|policy| policy.user_max).collect();
        by(machine);
        self.look();
        for (at, slot) in machine.zones().iter().enumerate() {
            let (before, now) = (zones[at], Limits::of(slot));
            if self.journal.zone(slot).is_none() || is_the_firmwares(slot) {
                (self.zones[at], self.other_zones[at], self.switched_off[at]) = (now, None, false);
                continue;
            }
            if before != now && self.zones[at].are_back(before, self.switched_off[at]) {
                self.other_zones[at] = Some(now);
            }
            self.switched_off[at] |= before.enabled && !now.enabled;
        }
        for (at, policy) in machine.policies().iter().enumerate() {
            let (before, now) = (policies[at], policy.user_max);
            if self.journal.policy(self.first_cpus[at]).is_none() {
                (self.policies[at], self.other_policies[at]) = (now, None);
            } else if before != now && self.policies[at] == before {
                self.other_policies[at] = Some(now);
            }
        }
    }

    /// Whether the journal's file holds the original of every limit, and that of every policy.
    pub(crate) fn holds_all(&mut self, machine: &RigMachine) -> (bool, bool) {
        self.look();
        let mut open =
            machine.zones().iter().filter(|slot| is_package(slot) && slot.zone.lock == RegisterLock::Open);
        let limits = open.all(|slot| self.journal.zone(slot).is_some());
        (limits, self.first_cpus.iter().all(|&cpu| self.journal.policy(cpu).is_some()))
    }

    /// How many originals the journal's file holds.
    pub(crate) fn held(&mut self) -> usize {
        self.look();
        self.journal.words.len()
    }

    /// Checks that after a release every control has its original value and the journal is empty.
    pub(crate) fn everything_is_back(&mut self, machine: &RigMachine) {
        let held = self.held();
        self.settle_others(machine);
        if held > 0 {
            self.accuse(format!("the journal still holds {held}: {:?}", self.journal.words));
        }
        let kept: Vec<String> = (machine.zones().iter().zip(&self.zones).zip(&self.switched_off))
            .filter(|((slot, was), switched_off)| !was.are_back(Limits::of(slot), **switched_off))
            .map(|((slot, was), _)| format!("{} was {was:?} and is {:?}", slot.zone.id, Limits::of(slot)))
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

#[cfg(test)]
mod tests {
    use super::*;

    const ON: Limits =
        Limits { enabled: true, long_uw: 250, window_us: 27_983_872, short_on: true, short_uw: 300 };
    const BY_ITSELF: Limits = Limits { short_on: false, short_uw: 0, ..ON };

    #[test]
    fn what_was_off_is_back_when_it_is_off_with_its_values() {
        let off = Limits { enabled: false, short_on: false, ..ON };
        assert!(off.are_back(off, true));
        for other in [ON, Limits { long_uw: NO_LIMIT_UW, ..ON }, Limits { short_uw: NO_LIMIT_UW, ..off }] {
            assert!(!off.are_back(other, true), "{other:?}");
        }
    }

    #[test]
    fn only_where_the_kernel_leaves_no_other_way_does_something_stand_in_for_0_w() {
        let stand_in = Limits { short_on: true, short_uw: NO_LIMIT_UW, ..BY_ITSELF };
        assert!(BY_ITSELF.are_back(BY_ITSELF, true) && BY_ITSELF.are_back(stand_in, true));
        assert!(!BY_ITSELF.are_back(stand_in, false), "nobody has switched it off");
        assert!(!BY_ITSELF.are_back(Limits { short_uw: 0, ..stand_in }, true), "0 W in force");
        assert!(!ON.are_back(Limits { short_uw: NO_LIMIT_UW, ..ON }, true), "a limit that was in force");
    }
}
