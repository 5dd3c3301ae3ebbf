//! Executes each kind of point.

use super::{Sabotage, Stage};
use crate::bench::is_package;
use crate::harm::{Loss, Part};
use crate::point::PointKind;
use crate::process::unfinished_journal;
use crate::said::Said;
use crate::world::Wish;
use node_kit::BackendKind;
use plant::Load;
use rig::faults::{Direction, Effect, Fault, Gate};
use rig::machine::{RigMachine, VirtualAttribute, ZoneSlot};
use rig::powercap::RegisterLock;
use std::time::Duration;

/// The errno values of EIO, EINVAL, EBUSY, EPERM, ENODATA, ENODEV and EAGAIN on Linux.
const ERRNOS: [i32; 7] = [5, 22, 16, 1, 61, ENODEV, 11];
const ENODEV: i32 = 19;
/// Contents that no driver returns.
const NONSENSE: [&[u8]; 8] =
    [b"", b"\n", b"NaN\n", b"-1\n", b"99999999999999999999999\n", b"0\n", b"\xff\xfe\x00\n", b"12 34\n"];
/// Whether its limits can be set.
fn is_open(slot: &ZoneSlot) -> bool {
    is_package(slot) && slot.zone.lock == RegisterLock::Open
}

/// The zones of packages that do not hold this cap though they could. A zone and its twin limit the same package, and
/// the lower limit holds: one of them may be off while the other one is on and holds the cap. A zone that was away when
/// the original was saved, and came back off, is never changed.
fn zones_above(zones: &[ZoneSlot], cap_uw: u64) -> impl Iterator<Item = &ZoneSlot> {
    let in_force = |slot: &ZoneSlot| slot.zone.in_force("long_term").map(|(limit_uw, _)| limit_uw);
    zones.iter().filter(move |slot| {
        let twin_holds = || {
            let twins = zones.iter().filter(|other| is_package(other) && other.zone.name == slot.zone.name);
            twins.filter_map(in_force).any(|limit_uw| limit_uw <= cap_uw)
        };
        is_open(slot) && in_force(slot).map_or_else(|| !twin_holds(), |limit_uw| limit_uw > cap_uw)
    })
}

/// The number of periods in a minute.
const MINUTE: u32 = 120;

impl Stage {
    pub(super) fn strike(&mut self, kind: PointKind) {
        match kind {
            PointKind::Cap => self.tell_another_cap(),
            PointKind::Gone => {
                self.wish(Some(Wish::Gone));
                self.world.tell();
            }
            PointKind::Load => self.step_load(),
            PointKind::ReadErrors => self.errors(Direction::Read),
            PointKind::WriteErrors => self.errors(Direction::Write),
            PointKind::Garbage => self.garbage(),
            PointKind::Slow => self.slow(),
            PointKind::Hang => self.hang(),
            PointKind::ZoneAway => self.zone_away(),
            PointKind::LateLock => self.lock_late(),
            PointKind::PowercapReload => self.reload_powercap(),
            PointKind::CpufreqReload => self.reload_cpufreq(),
            PointKind::Hotplug => self.hotplug(),
            PointKind::Rival => self.rival(),
            PointKind::NoJournal => self.no_journal(),
            PointKind::KillIdle => self.world.kill(),
            PointKind::KillInWrite => self.kill_in_write(),
            PointKind::KillInPeriod => self.kill_in_period(),
            PointKind::KillInJournal => self.kill_in_journal(),
            PointKind::KillAtStart => self.kill_at_start(),
            PointKind::KillAfterCap => self.kill_after_cap(),
            PointKind::Stop => self.world.stop(),
        }
    }

    fn step_load(&mut self) {
        let busy = [0.05, 0.3, 0.6, 0.9, 1.0];
        let utilisation = *self.world.draw.pick(&busy);
        let intensity = *self.world.draw.pick(&[0.7, 1.0, 1.0, 1.2]);
        let load = Load { intensity, ..Load::busy(utilisation) };
        self.note(format!("{load:?}"));
        self.world.load = Some((self.world.draw.below(10), load));
        self.ticks(1);
    }

    /// Some files of one part of the machine, which fail together. A part that works without them counts as
    /// `Nothing`.
    fn files(&mut self) -> (Part, Vec<VirtualAttribute>) {
        let machine = self.world.machine.clone();
        let machine = machine.lock();
        let packages = machine.zones().iter().enumerate().filter(|(_, slot)| is_package(slot));
        let packages: Vec<(usize, usize)> =
            packages.map(|(at, slot)| (at, slot.zone.constraints.len())).collect();
        let one = *self.world.draw.pick(&packages);
        let struck = if self.world.draw.percent(50) { vec![one] } else { packages };
        let policies = machine.policies().len();
        drop(machine);
        let mut files = Vec::new();
        match self.world.draw.below(4) {
            0 => {
                files.extend(struck.iter().map(|&(at, _)| VirtualAttribute::Energy(at)));
                (Part::Meters, files)
            }
            1 => {
                for (at, limits) in struck.into_iter().filter(|&(_, limits)| limits > 0) {
                    let limit = self.world.draw.below(limits);
                    files.push(match self.world.draw.below(4) {
                        0 => VirtualAttribute::Enabled(at),
                        1 => VirtualAttribute::TimeWindow(at, 0),
                        _ => VirtualAttribute::PowerLimit(at, limit),
                    });
                }
                (Part::Limits, files)
            }
            _ => {
                let count = if self.world.draw.percent(50) { 1 } else { policies };
                let first = self.world.draw.below(policies);
                let current = self.world.draw.percent(30);
                for at in (first..first + count).map(|at| at % policies) {
                    files.push(if current {
                        VirtualAttribute::CurFreq(at)
                    } else {
                        VirtualAttribute::MaxFreq(at)
                    });
                }
                (if current || count < policies { Part::Nothing } else { Part::Policies }, files)
            }
        }
    }

    fn fault(
        &mut self,
        part: Part,
        files: &[VirtualAttribute],
        direction: Direction,
        effect: &Effect,
        times: u32,
    ) {
        let how = if matches!(effect, Effect::Fails(ENODEV)) { Loss::Away } else { Loss::Silent };
        self.note(format!("{direction:?} {:?} × {times} of {:?}…", effect, files.first()));
        self.world.lose(part, how);
        let policies = self.world.machine.lock().policies().len();
        self.world.stick((0..policies).filter(|at| files.contains(&VirtualAttribute::MaxFreq(*at))));
        let mut machine = self.world.machine.lock();
        for on in files {
            machine.faults().add(Fault { on: on.clone(), direction, effect: effect.clone(), times });
        }
    }

    fn errors(&mut self, direction: Direction) {
        let (part, files) = self.files();
        let errno = *self.world.draw.pick(&ERRNOS);
        let times = self.world.draw.within(1, 40);
        self.fault(part, &files, direction, &Effect::Fails(errno), times);
        // If a zone reports that it is gone, both its meter and its limits are lost.
        match part {
            Part::Meters if errno == ENODEV => self.world.lose(Part::Limits, Loss::Away),
            Part::Limits if errno == ENODEV => self.world.lose(Part::Meters, Loss::Away),
            Part::Meters | Part::Limits | Part::Policies | Part::Journal | Part::Rival | Part::Nothing => {}
        }
        self.meanwhile(8);
    }

    fn garbage(&mut self) {
        let (part, files) = self.files();
        let bytes = *self.world.draw.pick(&NONSENSE);
        // A node rightly believes a switch that reads as off, and a short-term limit of 0, so these values are
        // replaced.
        let may_be_zero =
            matches!(files.first(), Some(VirtualAttribute::Enabled(_) | VirtualAttribute::PowerLimit(_, 1)));
        let bytes = if may_be_zero && bytes == b"0\n" { b"2 0\n" } else { bytes };
        let times = self.world.draw.within(1, 40);
        self.fault(part, &files, Direction::Read, &Effect::Answers(bytes.to_vec()), times);
        self.meanwhile(8);
    }

    fn slow(&mut self) {
        let (part, files) = self.files();
        let takes = Duration::from_millis(u64::from(self.world.draw.within(1, 20)));
        let direction = if self.world.draw.percent(50) { Direction::Read } else { Direction::Write };
        self.fault(part, &files, direction, &Effect::Takes(takes), 2);
        self.meanwhile(4);
    }

    /// Lets some periods pass. In half of the cases the desired state changes meanwhile.
    fn meanwhile(&mut self, most: u32) {
        let before = self.world.draw.within(1, most);
        self.ticks(before);
        if self.world.draw.percent(50) {
            self.tell_another_cap();
            let after = self.world.draw.within(1, most);
            self.ticks(after);
        }
    }

    fn hang(&mut self) {
        let (part, files) = self.files();
        let gate = Gate::closed();
        let files = &files[..files.len().min(1)];
        let was_calm = self.world.periods().is_some_and(|periods| periods > 4) && !self.world.harms.any();
        self.fault(part, files, Direction::Read, &Effect::Hangs(gate.clone()), 1);
        // One thread serves all of powercap, and another one all of cpufreq.
        let of_policies =
            matches!(files.first(), Some(VirtualAttribute::CurFreq(_) | VirtualAttribute::MaxFreq(_)));
        let backend = if of_policies { BackendKind::Cpufreq } else { BackendKind::Powercap };
        self.world.gates.push((backend, gate));
        if of_policies {
            self.world.lose(Part::Policies, Loss::Silent);
        } else {
            self.world.lose(Part::Meters, Loss::Silent);
            self.world.lose(Part::Limits, Loss::Silent);
        }
        let minute = self.world.draw.percent(30);
        let periods = if minute { MINUTE } else { self.world.draw.within(4, 20) };
        self.ticks(periods);
        if !was_calm || !self.world.is_up() {
            return;
        }
        if of_policies {
            self.limits_go_on(minute);
        } else {
            self.policies_go_on(minute, periods);
        }
    }

    /// While frequency files hang, a new cap must be in force in every package two periods later.
    fn limits_go_on(&mut self, minute: bool) {
        let before = self.world.said().map_or(0, |said| said.periods);
        self.tell_another_cap();
        self.ticks(2);
        self.wait_for_the_node(before + 2);
        let Wish::Cap(watts) = self.world.wish else { return };
        if !self.world.is_up() {
            return;
        }
        let machine = self.world.machine.clone();
        let machine = machine.lock();
        let zones = machine.zones();
        let seen = zones.iter().any(|slot| is_open(slot) && !slot.zone.constraints.is_empty());
        let above = zones_above(zones, u64::from(watts) * 1_000_000);
        let above: Vec<String> = above
            .map(|slot| format!("{} is limited to {:?}", slot.zone.id, slot.zone.in_force("long_term")))
            .collect();
        drop(machine);
        for what in above {
            let status = self.world.last_status.clone();
            self.world.accuse(format!("while frequency files hang, {what} at a cap of {watts} W; {status}"));
        }
        self.isolated(seen, minute);
    }

    /// A free node has had two periods only when it reports them: on a busy machine the time alone proves nothing,
    /// and neither does it while its powercap thread is in a call. A thread that really hangs stays so until the
    /// frequency files answer; the wait ends after five seconds.
    fn wait_for_the_node(&mut self, periods: u64) {
        let mut left = if self.world.free { 250 } else { 0 };
        let is_there = |said: Said<'_>| said.periods >= periods && !said.is_stuck("powercap");
        while left > 0 && self.world.is_up() && !self.world.said().is_some_and(is_there) {
            self.ticks(1);
            left -= 1;
        }
    }

    /// While powercap hangs, a node that holds the cap by the closed loop has no readings, so all policies must be at
    /// their lowest, without those that it has not listed yet.
    fn policies_go_on(&mut self, minute: bool, periods: u32) {
        if self.world.kind.has_limits() || periods < 20 || self.world.wish == Wish::Gone {
            return;
        }
        let machine = self.world.machine.clone();
        let machine = machine.lock();
        let fast = |(at, policy): &(usize, &rig::cpufreq::VirtualPolicy)| {
            !policy.inactive && policy.user_max > *policy.hardware.start() && !self.world.is_unlisted(*at)
        };
        let count = machine.policies().iter().enumerate().filter(fast).count();
        drop(machine);
        if count > 0 {
            let status = self.world.last_status.clone();
            self.world.accuse(format!(
                "blind for {periods} periods, and {count} policies are not at their lowest: {status}"
            ));
        }
        self.isolated(true, minute);
    }

    fn isolated(&mut self, seen: bool, minute: bool) {
        self.world.tally.isolated += u64::from(seen);
        self.world.tally.isolated_minutes += u64::from(seen && minute);
    }

    fn zone_away(&mut self) {
        let machine = self.world.machine.clone();
        let packages: Vec<usize> = {
            let machine = machine.lock();
            let zones = machine.zones().iter().enumerate();
            zones.filter(|(_, slot)| is_package(slot)).map(|(at, _)| at).collect()
        };
        let at = *self.world.draw.pick(&packages);
        let present = |machine: &mut RigMachine, there: bool| {
            machine.change(|zones, _, _| {
                for (other, slot) in zones.iter_mut().enumerate() {
                    if other == at || slot.parent == Some(at) {
                        slot.present = there;
                        if there { slot.zone.arrive() } else { slot.zone.leave() }
                    }
                }
            });
        };
        if !self.world.change(|machine| present(machine, false)) {
            return self.ticks(2);
        }
        self.world.lose(Part::Meters, Loss::Away);
        self.world.lose(Part::Limits, Loss::Away);
        self.meanwhile(6);
        let watts = self.world.draw.within(200, 300);
        self.world.change_late(|machine| {
            machine.change(|zones, _, _| {
                // The firmware may have set another limit.
                if let (RegisterLock::Open, Some(long)) =
                    (zones[at].zone.lock, zones[at].zone.constraints.first_mut())
                {
                    long.power_raw = u64::from(watts) * 8;
                }
            });
            present(machine, true);
        });
        self.note(format!("zone {at} is back, disabled, with {watts} W"));
    }

    /// A lock that comes after the driver: Linux 6.1 answers "ok" to every write and changes nothing, 6.12 refuses.
    fn lock_late(&mut self) {
        let machine = self.world.machine.clone();
        let open: Vec<usize> = {
            let machine = machine.lock();
            let open = machine.zones().iter().enumerate().filter(|(_, slot)| is_open(slot));
            open.map(|(at, _)| at).collect()
        };
        if open.is_empty() {
            return self.ticks(2);
        }
        let at = *self.world.draw.pick(&open);
        let lock = *self.world.draw.pick(&[RegisterLock::LateIgnored, RegisterLock::LateRefused]);
        let set = move |machine: &mut RigMachine, lock| {
            machine.change(|zones, _, _| zones[at].zone.lock = lock);
        };
        if !self.world.change(|machine| set(machine, lock)) {
            return self.ticks(2);
        }
        self.note(format!("zone {at}, {lock:?}"));
        self.world.lose(Part::Limits, Loss::Silent);
        self.meanwhile(8);
        self.world.change_late(|machine| set(machine, RegisterLock::Open));
    }

    fn reload_powercap(&mut self) {
        if !self.world.change(|machine| machine.load_powercap(false)) {
            return self.ticks(2);
        }
        self.world.lose(Part::Meters, Loss::Away);
        self.world.lose(Part::Limits, Loss::Away);
        self.meanwhile(6);
        self.world.change_late(|machine| machine.load_powercap(true));
    }

    fn reload_cpufreq(&mut self) {
        self.world.lose(Part::Policies, Loss::Away);
        self.world.change(RigMachine::reload_cpufreq);
    }

    fn hotplug(&mut self) {
        if self.world.draw.percent(40) && !self.offline.is_empty() {
            let at = self.world.draw.below(self.offline.len());
            let cpu = self.offline.swap_remove(at);
            return self.online(cpu, true);
        }
        let cpus = self.world.machine.lock().policies().iter().map(|policy| policy.cpus.len()).sum::<usize>();
        // The last processor of a package would take its zone offline too, which is another kind of point.
        let cpu = self.world.draw.below(cpus);
        if self.offline.len() < 3 && !cpu.is_multiple_of(4) && !self.offline.contains(&cpu) {
            self.offline.push(cpu);
            self.online(cpu, false);
        }
        self.meanwhile(4);
    }

    pub(super) fn online(&mut self, cpu: usize, online: bool) {
        self.note(format!("cpu{cpu} online: {online}"));
        self.world.machine.lock().set_online(cpu, online);
        self.world.activate();
        let load = self.world.full;
        self.world.put_load(load);
    }

    fn rival(&mut self) {
        let raises = self.world.draw.percent(60);
        let limits = self.world.draw.percent(50);
        let machine = self.world.machine.clone();
        let (zones, policies) = {
            let machine = machine.lock();
            let open = machine.zones().iter().enumerate().filter(|(_, slot)| is_open(slot));
            (open.map(|(at, _)| at).collect::<Vec<_>>(), machine.policies().len())
        };
        let power_raw = u64::from(self.world.draw.within(200, 400)) * 8;
        if limits && raises && !zones.is_empty() && self.world.draw.percent(30) {
            let at = *self.world.draw.pick(&zones);
            self.note(format!("zone {at}, switched off"));
            self.world.change(|machine| {
                machine.change(|zones, _, _| {
                    let _it_is_open = zones[at].zone.write_enabled(b"0");
                });
            });
        } else if limits && !zones.is_empty() {
            let at = *self.world.draw.pick(&zones);
            self.note(format!("zone {at}, raised: {raises}"));
            self.world.change(|machine| {
                machine.change(|zones, _, _| {
                    if let Some(long) = zones[at].zone.constraints.first_mut() {
                        long.power_raw = if raises { power_raw } else { (long.power_raw / 2).max(8) };
                    }
                });
            });
        } else {
            let at = self.world.draw.below(policies);
            self.note(format!("policy {at}, raised: {raises}"));
            self.world.change(|machine| {
                machine.change(|_, policies, _| {
                    let ends = policies[at].hardware.clone();
                    policies[at].user_max = if raises { *ends.end() } else { *ends.start() };
                });
            });
        }
        if raises {
            self.world.lose(Part::Rival, Loss::Silent);
        }
        self.ticks(1);
    }

    /// A folder with the name of the new journal makes writing fail, as on a full or read-only disk.
    fn no_journal(&mut self) {
        let beside = unfinished_journal(&self.world.state());
        let _leftover = std::fs::remove_file(&beside);
        if std::fs::create_dir(&beside).is_err() {
            return;
        }
        self.world.lose(Part::Journal, Loss::Silent);
        if self.world.draw.percent(40) {
            self.wish(Some(Wish::Gone));
            self.world.tell();
            self.ticks(2);
        }
        self.tell_another_cap();
        let ticks = self.world.draw.within(1, 6);
        self.ticks(ticks);
        if self.world.draw.percent(30) {
            self.world.kill();
            self.world.start();
            self.world.tell();
            self.ticks(2);
        }
    }

    pub(super) fn raise_everything(&mut self) {
        debug_assert_eq!(self.sabotage, Sabotage::SecretRival);
        self.world.machine.lock().change(|zones, policies, _| {
            for slot in zones.iter_mut().filter(|slot| is_package(slot)) {
                for constraint in &mut slot.zone.constraints {
                    constraint.power_raw = 300 * 8;
                }
            }
            policies.iter_mut().for_each(|policy| policy.user_max = *policy.hardware.end());
        });
    }

    pub(super) fn meddle(&mut self) {
        let machine = self.world.machine.clone();
        let zones = machine.lock().zones().len();
        for at in 0..zones {
            let _taken = machine.write(&VirtualAttribute::PowerLimit(at, 0), 0, b"10000000");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rig::machine::RigTime;

    #[test]
    fn a_twin_that_holds_the_cap_stands_in_for_a_zone_that_is_off_and_for_nothing_else() {
        let client = rig::profile::find("client").unwrap()(RigTime::Manual).unwrap();
        let above = |of: &str, twin: Option<u64>, its_own: Option<u64>| -> Vec<String> {
            let mut zones = client.zones().to_vec();
            for slot in zones.iter_mut().filter(|slot| is_package(slot)) {
                let watts = if slot.control_type == "intel-rapl" { its_own } else { twin };
                let long = slot.zone.constraints.first_mut().unwrap();
                long.enabled = watts.is_some();
                long.power_raw = watts.unwrap_or(10) * 8;
            }
            assert_eq!(zones.iter().filter(|slot| is_package(slot)).count(), 2, "{of}");
            zones_above(&zones, 35_000_000).map(|slot| slot.zone.id.clone()).collect()
        };
        let (own, mmio) = ("intel-rapl:0".to_owned(), "intel-rapl-mmio:0".to_owned());
        assert_eq!(above("both hold", Some(35), Some(35)), Vec::<String>::new());
        assert_eq!(above("the twin holds", Some(33), None), Vec::<String>::new());
        assert_eq!(above("it holds", None, Some(33)), Vec::<String>::new());
        assert_eq!(above("on and above", Some(33), Some(36)), std::slice::from_ref(&own));
        assert_eq!(above("the twin is above", Some(36), None), [own.clone(), mmio.clone()]);
        assert_eq!(above("both off", None, None), [own, mmio]);
    }
}
