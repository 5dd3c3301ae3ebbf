//! The port's contract, on a plain tree and on every virtual machine.

use crate::support::{Folder, Hal, TestMachine, Ticks, table_machine};
use hal_cpufreq::Cpufreq;
use hal_files::Root;
use power_hal::contract::{
    ContractMode, ContractReport, ContractWorld, DomainFault, RefusableOriginals, Rule, check,
};
use power_hal::{Control, Key, OriginalsInMemory, PowerHal, Setting};
use power_units::{KiloHertz, Micros, Role};
use rig::cpufreq::VirtualPolicy;
use rig::faults::{Direction, Effect, Fault};
use rig::machine::{RigTime, VirtualAttribute};
use std::path::Path;

fn again(folder: &Path, ticks: &Ticks, hal: &mut Hal) {
    let journal = hal.originals().clone();
    *hal = Cpufreq::open(Root::at(folder), ticks.clone(), journal).unwrap();
}

fn frequency(khz: u32) -> Setting {
    Setting::Frequency(KiloHertz::from_int(khz.try_into().unwrap()))
}

struct Plain<'a> {
    folder: &'a Folder,
    ticks: Ticks,
}

impl Plain<'_> {
    fn path(domain: &Key) -> String {
        format!("cpufreq/policy{}/scaling_max_freq", domain.as_str().trim_start_matches("cpu-"))
    }
}

impl ContractWorld<Hal> for Plain<'_> {
    fn in_force(&mut self, domain: &Key, control: Control) -> Option<Setting> {
        let text = self.folder.get(&Self::path(domain));
        (control == Control::Frequency).then(|| frequency(text.trim().parse().unwrap()))
    }

    fn advance(&mut self, span: Micros) -> bool {
        self.ticks.advance(span);
        true
    }

    fn cause(&mut self, trouble: DomainFault) -> bool {
        let DomainFault::Moved(domain, Setting::Frequency(to)) = trouble else { return false };
        self.folder.put(&Self::path(&domain), format!("{}\n", to.to_whole(Role::Limit)));
        true
    }

    fn restart(&mut self, hal: &mut Hal) -> bool {
        again(&self.folder.0, &self.ticks, hal);
        true
    }
}

#[test]
fn the_contract_holds_on_a_plain_tree() {
    let folder = Folder::two_cores();
    let mut world = Plain { folder: &folder, ticks: Ticks::default() };
    let journal = RefusableOriginals::new(OriginalsInMemory::new());
    let mut hal = Cpufreq::open(Root::at(&folder.0), world.ticks.clone(), journal).unwrap();
    // A plain file keeps the rest of a longer text, so the number of digits must be equal.
    let report = check(&mut hal, &mut world, ContractMode::Full).unwrap();
    assert_eq!((report.domains, report.controls, report.blocked, report.blind), (4, 4, 0, 0));
    assert_eq!(
        report.unseen().collect::<Vec<_>>(),
        [
            Rule::BatchSurvives,
            Rule::Ordered,
            Rule::LockedSaid,
            Rule::GoneSaid,
            Rule::StaleRefused,
            Rule::KeyFollowsHardware
        ]
    );
}

fn lowest(domain: &Key) -> usize {
    domain.as_str().trim_start_matches("cpu-").parse().unwrap()
}

/// A virtual machine with its policies by key.
struct Virtual<'a> {
    room: &'a TestMachine,
    ticks: Ticks,
}

impl Virtual<'_> {
    fn change<R>(&self, domain: &Key, by: impl FnOnce(usize, &mut VirtualPolicy) -> R) -> R {
        let cpu = lowest(domain);
        let mut result = None;
        self.room.machine.lock().change(|_, policies, _| {
            let at = policies.iter().position(|policy| policy.cpus.iter().min() == Some(&cpu)).unwrap();
            result = Some(by(at, &mut policies[at]));
        });
        result.unwrap()
    }

    fn renumber(&self) -> bool {
        let mut any = false;
        self.room.machine.lock().change(|_, policies, _| {
            for policy in policies.iter_mut().filter(|policy| policy.cpus.len() > 1) {
                policy.cpus.rotate_left(1);
                any = true;
            }
        });
        any
    }
}

impl ContractWorld<Hal> for Virtual<'_> {
    fn in_force(&mut self, domain: &Key, control: Control) -> Option<Setting> {
        let machine = self.room.machine.lock();
        let policy =
            machine.policies().iter().find(|policy| policy.cpus.iter().min() == Some(&lowest(domain)))?;
        (control == Control::Frequency).then(|| frequency(policy.effective_max()))
    }

    fn advance(&mut self, span: Micros) -> bool {
        self.ticks.advance(span);
        true
    }

    fn cause(&mut self, trouble: DomainFault) -> bool {
        match trouble {
            // No firmware locks a frequency limit, and a policy has no other limit that could
            // change.
            DomainFault::Locked(_) | DomainFault::Moved(_, Setting::Power(_) | Setting::Throttle(_)) => false,
            DomainFault::Unreadable(domain) => {
                let at = self.change(&domain, |at, _| at);
                for on in [
                    VirtualAttribute::MaxFreq(at),
                    VirtualAttribute::CurFreq(at),
                    VirtualAttribute::AvgFreq(at),
                ] {
                    let effect = Effect::Fails(libc::EIO);
                    let fault = Fault { on, direction: Direction::Read, effect, times: u32::MAX };
                    self.room.machine.lock().faults().add(fault);
                }
                true
            }
            DomainFault::Vanished(domain) => {
                self.change(&domain, |_, policy| policy.present = false);
                true
            }
            DomainFault::Moved(domain, Setting::Frequency(to)) => {
                self.change(&domain, |_, policy| policy.user_max = to.to_whole(Role::Limit));
                true
            }
            DomainFault::Renumbered => self.renumber(),
        }
    }

    fn heal(&mut self, trouble: DomainFault) {
        match trouble {
            DomainFault::Unreadable(_) => self.room.machine.lock().faults().heal(),
            DomainFault::Vanished(domain) => self.change(&domain, |_, policy| policy.present = true),
            DomainFault::Locked(_) | DomainFault::Moved(..) | DomainFault::Renumbered => {}
        }
    }

    fn restart(&mut self, hal: &mut Hal) -> bool {
        again(&self.room.folder.0, &self.ticks, hal);
        true
    }
}

fn run(room: &TestMachine) -> ContractReport {
    let mut world = Virtual { room, ticks: Ticks::default() };
    let journal = RefusableOriginals::new(OriginalsInMemory::new());
    let mut hal = Cpufreq::open(Root::at(&room.folder.0), world.ticks.clone(), journal).unwrap();
    assert_eq!(hal.complaints(), []);
    check(&mut hal, &mut world, ContractMode::Full).unwrap_or_else(|breach| panic!("{breach}"))
}

/// How many policies of a profile take part: a run checks each of them for each of the others.
const SHOWN: usize = 6;

#[test]
fn the_contract_holds_on_every_virtual_machine() {
    for (name, _, build) in rig::profile::PROFILES {
        let mut machine = build(RigTime::Manual).unwrap();
        machine.change(|_, policies, _| {
            // Some of each package, and threads of one core.
            let half = policies.len() / 2;
            for (at, policy) in policies.iter_mut().enumerate() {
                policy.present = at < SHOWN / 2 || (half..half + SHOWN / 2).contains(&at);
            }
        });
        let Some(room) = TestMachine::new(machine) else { return };
        let report = run(&room);
        assert_eq!((report.domains, report.controls), (6, 6), "{name}");
        assert_eq!((report.blocked, report.blind, report.in_use), (0, 0, 0), "{name}");
        assert_eq!(
            report.unseen().collect::<Vec<_>>(),
            [Rule::Ordered, Rule::LockedSaid, Rule::KeyFollowsHardware],
            "{name}"
        );
    }
}

#[test]
fn the_contract_holds_on_policies_of_several_cpus_with_a_table_also_when_they_are_renumbered() {
    let Some(room) = TestMachine::new(table_machine()) else { return };
    let report = run(&room);
    assert_eq!((report.domains, report.controls, report.blocked, report.blind), (2, 2, 0, 0));
    assert_eq!(report.unseen().collect::<Vec<_>>(), [Rule::Ordered, Rule::LockedSaid]);
}

#[test]
fn the_contract_holds_while_somebody_else_asks_for_less() {
    let Some(room) = TestMachine::new(table_machine()) else { return };
    room.policy(0, |policy| policy.others_max = 2_500_000);
    let report = run(&room);
    assert_eq!((report.domains, report.controls), (2, 2));
}
