//! The port's contract, on a plain tree and on a virtual machine.

use crate::support::{
    FOLDER, Folder, Hal, Journal, TestMachine, Ticks, card, clocks, device, mhz, one, open_with,
};
use power_hal::contract::{ContractMode, ContractWorld, DomainFault, RefusableOriginals, Rule, check};
use power_hal::{Control, Key, OriginalsInMemory, PowerHal, Setting};
use power_units::{MicroWatts, Micros, Role};
use rig::faults::{Direction, Effect, Fault};
use rig::gpu_clock::ClockFile;
use rig::hwmon;
use rig::machine::{PowerFile, VirtualAttribute};
use std::time::Duration;

struct Plain<'a> {
    folder: &'a Folder,
    ticks: Ticks,
}

impl ContractWorld<Hal> for Plain<'_> {
    fn in_force(&mut self, _: &Key, control: Control) -> Option<Setting> {
        let cap = self.folder.get(&format!("{FOLDER}/power1_max")).trim().parse().unwrap();
        (control == Control::Power).then(|| Setting::Power(MicroWatts::new(cap)))
    }

    fn advance(&mut self, span: Micros) -> bool {
        self.ticks.advance(span);
        true
    }

    fn cause(&mut self, trouble: DomainFault) -> bool {
        let DomainFault::Moved(_, Setting::Power(to)) = trouble else { return false };
        self.folder.put(&format!("{FOLDER}/power1_max"), format!("{}\n", to.get()));
        true
    }

    fn restart(&mut self, hal: &mut Hal) -> bool {
        *hal = open_with(&self.folder.0, self.ticks.clone(), hal.originals().clone());
        true
    }
}

#[test]
fn the_contract_holds_on_a_plain_tree() {
    let (folder, _) = one();
    let mut world = Plain { folder: &folder, ticks: Ticks::default() };
    let mut hal =
        open_with(&folder.0, world.ticks.clone(), RefusableOriginals::new(OriginalsInMemory::new()));
    let report = check(&mut hal, &mut world, ContractMode::Full).unwrap_or_else(|breach| panic!("{breach}"));
    assert_eq!((report.domains, report.controls, report.blocked, report.blind), (1, 1, 0, 0));
    let unseen = [
        Rule::BatchSurvives,
        Rule::MeterForward,
        Rule::Ordered,
        Rule::LockedSaid,
        Rule::GoneSaid,
        Rule::StaleRefused,
        Rule::KeyFollowsHardware,
    ];
    let seen: Vec<_> = report.unseen().filter(|rule| !unseen.contains(rule)).collect();
    assert_eq!(seen, []);
}

/// A virtual machine with its GPUs by key.
struct Virtual<'a> {
    room: &'a TestMachine,
    ticks: Ticks,
    base: usize,
}

impl ContractWorld<Hal> for Virtual<'_> {
    fn in_force(&mut self, domain: &Key, control: Control) -> Option<Setting> {
        let (cap, clock) =
            device(self.room, domain, |_, slot| (slot.hwmon.cap_in_force_uw(), slot.hwmon.clock.clone()));
        match control {
            Control::Power => Some(Setting::Power(MicroWatts::new(cap))),
            Control::Frequency => clock.map(|clock| Setting::Frequency(mhz(clock.limit_mhz()))),
            Control::Throttle => None,
        }
    }

    fn advance(&mut self, span: Micros) -> bool {
        self.ticks.advance(span);
        self.room.machine.lock().advance(Duration::from_micros(span.get()));
        true
    }

    fn cause(&mut self, trouble: DomainFault) -> bool {
        match trouble {
            DomainFault::Moved(_, Setting::Throttle(_)) => false,
            DomainFault::Moved(domain, Setting::Frequency(to)) => {
                let to = to.to_whole(Role::Limit) / 1_000;
                clocks(self.room, &domain, |parts| {
                    for part in parts {
                        part.high = to.clamp(part.range.0, part.range.1);
                        part.low = part.low.min(part.high);
                    }
                });
                true
            }
            // A mailbox whose firmware refuses; the files themselves stay writable.
            DomainFault::Locked(domain) => {
                let at = device(self.room, &domain, |at, _| at);
                let clocks = (0..2).flat_map(|part| {
                    [ClockFile::Low(part), ClockFile::High(part), ClockFile::Boost(part)]
                        .map(|file| VirtualAttribute::GpuClock(at, file))
                });
                for on in clocks.chain([VirtualAttribute::Cap(at)]) {
                    let effect = Effect::Fails(libc::EACCES);
                    let fault = Fault { on, direction: Direction::Write, effect, times: u32::MAX };
                    self.room.machine.lock().faults().add(fault);
                }
                true
            }
            DomainFault::Unreadable(domain) => {
                let at = device(self.room, &domain, |at, _| at);
                for on in [VirtualAttribute::Cap(at), VirtualAttribute::Power(at, PowerFile::Energy)] {
                    let effect = Effect::Fails(libc::EIO);
                    let fault = Fault { on, direction: Direction::Read, effect, times: u32::MAX };
                    self.room.machine.lock().faults().add(fault);
                }
                true
            }
            DomainFault::Vanished(domain) => {
                device(self.room, &domain, |_, slot| slot.present = false);
                true
            }
            DomainFault::Moved(domain, Setting::Power(to)) => {
                device(self.room, &domain, |_, slot| slot.hwmon.cap_uw = to.get());
                true
            }
            DomainFault::Renumbered => {
                self.base += 3;
                self.room.machine.lock().renumber_hwmons(self.base);
                true
            }
        }
    }

    fn heal(&mut self, trouble: DomainFault) {
        match trouble {
            DomainFault::Unreadable(_) | DomainFault::Locked(_) => self.room.machine.lock().faults().heal(),
            DomainFault::Vanished(domain) => device(self.room, &domain, |_, slot| slot.present = true),
            DomainFault::Moved(..) | DomainFault::Renumbered => {}
        }
    }

    fn restart(&mut self, hal: &mut Hal) -> bool {
        *hal = open_with(&self.room.folder.0, self.ticks.clone(), hal.originals().clone());
        true
    }
}

fn run(room: &TestMachine) -> Vec<Rule> {
    let mut world = Virtual { room, ticks: Ticks::default(), base: 0 };
    let journal: Journal = RefusableOriginals::new(OriginalsInMemory::new());
    let mut hal = open_with(&room.folder.0, world.ticks.clone(), journal);
    assert_eq!(hal.complaints(), []);
    let report = check(&mut hal, &mut world, ContractMode::Full).unwrap_or_else(|breach| panic!("{breach}"));
    assert_eq!((report.domains, report.controls, report.blocked, report.blind), (3, 6, 0, 0));
    report.unseen().collect()
}

#[test]
fn the_contract_holds_for_cards_packages_and_mailboxes() {
    let Some(room) = TestMachine::profile("max1550") else { return };
    // The instants between two limits cannot be observed.
    assert_eq!(run(&room), [Rule::Ordered]);
}

#[test]
fn the_contract_holds_where_a_limit_is_switched_off() {
    let Some(room) = TestMachine::profile("max1550") else { return };
    device(&room, &card(), |_, slot| slot.hwmon.cap_uw = hwmon::OFF_UW);
    assert_eq!(run(&room), [Rule::Ordered]);
}
