//! A machine of the rig with a HAL on it, and the world behind the HAL for the contract.

use hal_files::Root;
use hal_rapl::{MsrRapl, Powercap, RaplError};
use power_hal::contract::{ContractWorld, DomainFault, DomainLimits, Instants, RefusableOriginals};
use power_hal::{Control, Key, OriginalsInMemory, PowerHal, Setting};
use power_units::{MicroWatts, Micros};
use rig::faults::{Direction, Effect, Fault};
use rig::machine::{self, VirtualAttribute, ZoneSlot};
use rig::powercap::RegisterLock;
pub(crate) use rig::test_machine::{Folder, TestMachine, Ticks};
use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::{Arc, Mutex};

pub(crate) type Journal = RefusableOriginals<OriginalsInMemory<8>>;
pub(crate) type Files = Powercap<Ticks, Journal>;

/// A write that a file accepted.
#[derive(Clone, Debug)]
pub(crate) struct Write {
    pub(crate) on: VirtualAttribute,
    pub(crate) data: Vec<u8>,
    limits: BTreeMap<String, DomainLimits>,
}

/// The reported limit of a zone that is off.
pub(crate) const CEILING_UW: u64 = 4_095_875_000;

/// A machine of the rig.
pub(crate) struct Bench {
    room: TestMachine,
    pub(crate) ticks: Ticks,
    writes: Arc<Mutex<Vec<Write>>>,
    /// For each package: its limits and the number of writes at the last check.
    seen: BTreeMap<String, (DomainLimits, usize)>,
}

impl Deref for Bench {
    type Target = TestMachine;

    fn deref(&self) -> &TestMachine {
        &self.room
    }
}

impl Bench {
    /// A mounted profile; `None` if this machine cannot mount, which is printed.
    pub(crate) fn mounted(name: &str) -> Option<Self> {
        Self::of(name, |_| {})
    }

    /// As above, changed before it is mounted.
    pub(crate) fn of(name: &str, change: impl FnOnce(&mut machine::RigMachine)) -> Option<Self> {
        let mut machine = TestMachine::machine_of(name);
        change(&mut machine);
        let writes: Arc<Mutex<Vec<Write>>> = Arc::default();
        let log = Arc::clone(&writes);
        let seen = limits_of(machine.zones()).into_iter().map(|(name, limits)| (name, (limits, 0))).collect();
        machine.watch(move |on, data, zones| {
            let write = Write { on: on.clone(), data: data.to_vec(), limits: limits_of(zones) };
            log.lock().unwrap().push(write);
        });
        Some(Self { room: TestMachine::new(machine)?, ticks: Ticks::default(), writes, seen })
    }

    pub(crate) fn root(&self) -> Root {
        Root::at(&self.folder.0)
    }

    pub(crate) fn open(&self) -> Files {
        self.files_with(RefusableOriginals::new(OriginalsInMemory::new()))
    }

    fn files_with(&self, journal: Journal) -> Files {
        Powercap::open(self.root(), self.ticks.clone(), journal).unwrap()
    }

    pub(crate) fn registers(&self) -> Result<Registers, RaplError> {
        self.registers_with(RefusableOriginals::new(OriginalsInMemory::new()))
    }

    fn registers_with(&self, journal: Journal) -> Result<Registers, RaplError> {
        let io = hal_rapl::msr::MsrDevices::new(
            self.root(),
            hal_rapl::msr::DeviceKind::Msr,
            hal_files::Access::ReadWrite,
        );
        MsrRapl::open(self.root(), io, self.ticks.clone(), journal)
    }

    fn reopened(&self, journal: Journal) -> Registers {
        self.registers_with(journal).unwrap()
    }

    /// All writes since the last call; not to be used during a run of the contract, which uses the record.
    pub(crate) fn writes(&self) -> Vec<Write> {
        std::mem::take(&mut *self.writes.lock().unwrap())
    }

    pub(crate) fn zone<T>(&self, id: &str, change: impl FnOnce(&mut ZoneSlot) -> T) -> T {
        let mut answer = None;
        self.machine.lock().change(|zones, _, _| {
            answer = zones.iter_mut().find(|slot| slot.zone.id == id).map(change);
        });
        answer.unwrap()
    }

    pub(crate) fn fault(&self, on: VirtualAttribute, direction: Direction, effect: Effect, times: u32) {
        self.machine.lock().faults().add(Fault { on, direction, effect, times });
    }

    pub(crate) fn tick(&self, span: Micros) {
        self.room.advance(&self.ticks, span);
    }

    fn of_package(&self, key: &Key) -> Vec<usize> {
        let machine = self.machine.lock();
        let named = machine.zones().iter().enumerate().filter(|(_, slot)| slot.zone.name == key.as_str());
        named.map(|(at, _)| at).collect()
    }

    /// The readable files of a package, for any HAL.
    fn readable(&self, key: &Key) -> Vec<VirtualAttribute> {
        let mut files = Vec::new();
        for at in self.of_package(key) {
            files.extend([VirtualAttribute::Energy(at), VirtualAttribute::Enabled(at)]);
            files
                .extend((0..3).flat_map(|c| {
                    [VirtualAttribute::PowerLimit(at, c), VirtualAttribute::TimeWindow(at, c)]
                }));
        }
        // The rig's packages are numbered like their keys, and the first threads of the processors come in their
        // order.
        let package: usize = key.as_str().trim_start_matches("package-").parse().unwrap_or(0);
        files.extend((0..128).filter(|cpu| cpu % 64 / 32 == package).map(VirtualAttribute::Msr));
        files
    }

    fn truth(&self, key: &Key, control: Control) -> Option<Setting> {
        let machine = self.machine.lock();
        let named = machine.zones().iter().filter(|slot| slot.present && slot.zone.name == key.as_str());
        let limits = named.filter_map(|slot| {
            slot.zone.constraints.iter().position(|c| c.name == "long_term").map(|at| {
                let on = slot.zone.constraints[at].enabled;
                if on { slot.zone.power_limit_uw(at) } else { CEILING_UW }
            })
        });
        let lowest = limits.min().map(|uw| Setting::Power(MicroWatts::new(uw)));
        lowest.filter(|_| control == Control::Power)
    }

    fn locked(&self, key: &Key) -> bool {
        let zones = self.of_package(key);
        let machine = self.machine.lock();
        zones.iter().any(|&at| machine.zones()[at].zone.lock != RegisterLock::Open)
    }

    fn short_is_off(&self, key: &Key) -> bool {
        let zones = self.of_package(key);
        let machine = self.machine.lock();
        let is_off = |at: &usize| matches!(&machine.zones()[*at].zone.constraints[..], [long, short, ..] if long.enabled && !short.enabled);
        zones.iter().any(is_off)
    }

    fn any_locked(&self) -> bool {
        self.machine.lock().zones().iter().any(|slot| slot.zone.lock != RegisterLock::Open)
    }

    pub(crate) fn renumber(&self) {
        self.machine.lock().change(|zones, _, _| renumber(zones));
    }

    fn cause_trouble(&mut self, trouble: DomainFault) -> bool {
        match trouble {
            DomainFault::Locked(key) => {
                !self.locked(&key) && self.each(&key, |slot| slot.zone.lock = RegisterLock::WindowIgnored)
            }
            // A short-term limit that is off by itself cannot be off again after that; a separate test checks it.
            DomainFault::Vanished(key) if self.short_is_off(&key) => false,
            DomainFault::Vanished(key) => self.each(&key, |slot| {
                slot.present = false;
                slot.zone.leave();
            }),
            DomainFault::Moved(key, Setting::Power(limit)) => {
                !self.locked(&key)
                    && self.each(&key, |slot| {
                        let text = limit.get().to_string();
                        slot.zone.write_power_limit(0, text.as_bytes()).unwrap();
                    })
            }
            DomainFault::Moved(..) => false,
            DomainFault::Unreadable(key) => {
                for on in self.readable(&key) {
                    self.fault(on, Direction::Read, Effect::Fails(libc::EIO), u32::MAX);
                }
                true
            }
            // The contract checks which hardware a key reaches by setting it, which a locked machine refuses.
            DomainFault::Renumbered if self.any_locked() => false,
            DomainFault::Renumbered => {
                self.renumber();
                true
            }
        }
    }

    fn heal_trouble(&mut self, trouble: DomainFault) {
        match trouble {
            DomainFault::Locked(key) => {
                self.each(&key, |slot| slot.zone.lock = RegisterLock::Open);
            }
            DomainFault::Vanished(key) => {
                self.each(&key, |slot| {
                    slot.present = true;
                    slot.zone.arrive();
                });
            }
            DomainFault::Unreadable(_) => self.machine.lock().faults().heal(),
            DomainFault::Moved(..) | DomainFault::Renumbered => {}
        }
    }

    fn each(&self, key: &Key, change: impl Fn(&mut ZoneSlot)) -> bool {
        let at = self.of_package(key);
        self.machine.lock().change(|zones, _, _| at.iter().for_each(|&at| change(&mut zones[at])));
        !at.is_empty()
    }

    fn instants_of(&mut self, key: &Key) -> Option<Instants> {
        let now = limits_of(self.machine.lock().zones());
        let now = *now.get(key.as_str())?;
        let writes = self.writes.lock().unwrap();
        let (first, from) = self.seen.insert(key.as_str().to_owned(), (now, writes.len()))?;
        let mut instants = Instants::new(first);
        let mut last = first;
        for write in &writes[from..] {
            let Some(&limits) = write.limits.get(key.as_str()) else { continue };
            if limits != last {
                assert!(instants.push(limits), "more instants than the record holds");
                last = limits;
            }
        }
        Some(instants)
    }
}

/// The kernel assigns its numbers in another order: packages 0 and 1 are exchanged.
fn renumber(zones: &mut [ZoneSlot]) {
    let top = |slot: &ZoneSlot| slot.parent.is_none() && slot.control_type == "intel-rapl";
    let ids: Vec<String> = zones.iter().filter(|slot| top(slot)).map(|slot| slot.zone.id.clone()).collect();
    let turned = ids.iter().cycle().skip(1);
    for (slot, id) in zones.iter_mut().filter(|slot| top(slot)).zip(turned) {
        slot.zone.id.clone_from(id);
    }
    let parents: Vec<String> = zones.iter().map(|slot| slot.zone.id.clone()).collect();
    for slot in zones.iter_mut() {
        if let (Some(parent), Some((_, tail))) = (slot.parent, slot.zone.id.clone().rsplit_once(':')) {
            slot.zone.id = format!("{}:{tail}", parents[parent]);
        }
    }
}

/// Long-term and short-term limit of each package, then those of its twin.
fn limits_of(zones: &[ZoneSlot]) -> BTreeMap<String, DomainLimits> {
    let mut all = BTreeMap::new();
    for slot in zones.iter().filter(|slot| slot.zone.name.starts_with("package")) {
        let limits =
            all.entry(slot.zone.name.clone()).or_insert(DomainLimits { each: [MicroWatts::ZERO; 4] });
        let first = if slot.control_type == "intel-rapl" { 0 } else { 2 };
        for (at, constraint) in slot.zone.constraints.iter().take(2).enumerate() {
            let uw = if constraint.enabled { slot.zone.power_limit_uw(at) } else { CEILING_UW };
            limits.each[first + at] = MicroWatts::new(uw);
        }
    }
    all
}

pub(crate) type Registers = MsrRapl<hal_rapl::msr::MsrDevices, Ticks, Journal>;

macro_rules! world {
    ($hal:ty, $renumbers:literal, $open:ident) => {
        impl ContractWorld<$hal> for Bench {
            fn in_force(&mut self, domain: &Key, control: Control) -> Option<Setting> {
                self.truth(domain, control)
            }

            fn instants(&mut self, domain: &Key) -> Option<Instants> {
                self.instants_of(domain)
            }

            fn advance(&mut self, span: Micros) -> bool {
                self.tick(span);
                true
            }

            fn cause(&mut self, trouble: DomainFault) -> bool {
                (trouble != DomainFault::Renumbered || $renumbers) && self.cause_trouble(trouble)
            }

            fn heal(&mut self, trouble: DomainFault) {
                self.heal_trouble(trouble);
            }

            fn restart(&mut self, hal: &mut $hal) -> bool {
                let journal = hal.originals().clone();
                *hal = self.$open(journal);
                true
            }
        }
    };
}

world!(Files, true, files_with);
world!(Registers, false, reopened);
