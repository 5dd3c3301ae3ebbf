//! The port's contract, on a plain tree and on virtual machines.

use crate::support::{Drivers, Folder, Hal, Journal, TestMachine, Ticks, gpu, mhz};
use hal_amd::{Amd, DeviceBackend, DeviceSelection, Hwmon};
use hal_files::Root;
use power_hal::contract::{
    ContractMode, ContractReport, ContractWorld, DomainFault, RefusableOriginals, Rule, check,
};
use power_hal::{Control, Key, OriginalsInMemory, PowerHal, Setting};
use power_units::{MicroWatts, Micros, Role};
use rig::faults::{Direction, Effect, Fault};
use rig::gpu_clock::HwmonClock;
use rig::machine::{PowerFile, VirtualAttribute};
use std::time::Duration;

/// A journal and a clock, and a function that opens a backend again.
pub(crate) struct Bench<F> {
    pub(crate) ticks: Ticks,
    pub(crate) backend: F,
}

impl<B: DeviceBackend, F: Fn() -> B> Bench<F> {
    pub(crate) const fn of(ticks: Ticks, backend: F) -> Self {
        Self { ticks, backend }
    }

    pub(crate) fn open(&self, journal: Journal) -> Hal<B> {
        Amd::open((self.backend)(), self.ticks.clone(), journal).unwrap()
    }
}

struct Plain<'a, F> {
    folder: &'a Folder,
    bench: Bench<F>,
}

const PLAIN_CAP: &str = "sys/devices/pci0000:00/0000:0c:00.0/hwmon/hwmon4/power1_cap";

impl<F: Fn() -> Hwmon> ContractWorld<Hal<Hwmon>> for Plain<'_, F> {
    fn in_force(&mut self, _: &Key, control: Control) -> Option<Setting> {
        let cap = self.folder.get(PLAIN_CAP).trim().parse().unwrap();
        (control == Control::Power).then(|| Setting::Power(MicroWatts::new(cap)))
    }

    fn advance(&mut self, span: Micros) -> bool {
        self.bench.ticks.advance(span);
        true
    }

    fn cause(&mut self, trouble: DomainFault) -> bool {
        let DomainFault::Moved(_, Setting::Power(to)) = trouble else { return false };
        self.folder.put(PLAIN_CAP, format!("{}\n", to.get()));
        true
    }

    fn restart(&mut self, hal: &mut Hal<Hwmon>) -> bool {
        *hal = self.bench.open(hal.originals().clone());
        true
    }
}

#[test]
fn the_contract_holds_on_a_plain_tree() {
    let folder = Folder::new();
    folder.gpu(4, "0000:0c:00.0");
    let backend = || Hwmon::new(Root::at(&folder.0), DeviceSelection::All);
    let mut world = Plain { folder: &folder, bench: Bench::of(Ticks::default(), backend) };
    let mut hal = world.bench.open(RefusableOriginals::new(OriginalsInMemory::new()));
    // A plain file keeps the rest of a longer text, so the number of digits must be equal.
    let report = check(&mut hal, &mut world, ContractMode::Full).unwrap_or_else(|breach| panic!("{breach}"));
    assert_eq!((report.domains, report.controls, report.blocked, report.blind), (1, 1, 0, 0));
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

/// A virtual machine with its devices by key.
pub(crate) struct Virtual<'a, F> {
    room: &'a TestMachine,
    bench: Bench<F>,
    base: usize,
    /// Whether the devices are seen through the ROCm SMI library, which detects a lost device only at a restart.
    rocm: bool,
}

impl<'a, F> Virtual<'a, F> {
    const fn new(room: &'a TestMachine, bench: Bench<F>) -> Self {
        Self { room, bench, base: 0, rocm: false }
    }

    pub(crate) const fn through_rocm(room: &'a TestMachine, bench: Bench<F>) -> Self {
        Self { room, bench, base: 0, rocm: true }
    }
}

impl<B: DeviceBackend, F: Fn() -> B> ContractWorld<Hal<B>> for Virtual<'_, F> {
    fn in_force(&mut self, domain: &Key, control: Control) -> Option<Setting> {
        match control {
            Control::Power => Some(Setting::Power(MicroWatts::new(self.room.cap(domain)))),
            Control::Frequency => {
                let clock =
                    self.room.device(domain, |_, slot| slot.hwmon.clock.clone()).filter(|_| !self.rocm)?;
                Some(Setting::Frequency(mhz(clock.limit_mhz())))
            }
            Control::Throttle => None,
        }
    }

    fn advance(&mut self, span: Micros) -> bool {
        self.bench.ticks.advance(span);
        self.room.machine.lock().advance(Duration::from_micros(span.get()));
        true
    }

    fn cause(&mut self, trouble: DomainFault) -> bool {
        match trouble {
            // No firmware locks a cap, and a device has no other limit that could change.
            DomainFault::Locked(_) | DomainFault::Moved(_, Setting::Throttle(_)) => false,
            DomainFault::Moved(domain, Setting::Frequency(to)) => {
                self.room.device(&domain, |_, slot| match &mut slot.hwmon.clock {
                    Some(HwmonClock::Amd(clock)) => clock.in_force.1 = to.to_whole(Role::Limit) / 1_000,
                    other => panic!("{other:?}"),
                });
                true
            }
            DomainFault::Unreadable(domain) => {
                let at = self.room.device(&domain, |at, _| at);
                let messages = [rig::hsmp::GET_POWER, rig::hsmp::GET_LIMIT];
                let files = [VirtualAttribute::Cap(at), VirtualAttribute::Power(at, PowerFile::Average)];
                for on in files.into_iter().chain(messages.map(|id| VirtualAttribute::HsmpMessage(at, id))) {
                    let effect = Effect::Fails(libc::EIO);
                    let fault = Fault { on, direction: Direction::Read, effect, times: u32::MAX };
                    self.room.machine.lock().faults().add(fault);
                }
                true
            }
            DomainFault::Vanished(_) if self.rocm => false,
            DomainFault::Vanished(domain) => {
                self.room.device(&domain, |_, slot| slot.present = false);
                true
            }
            DomainFault::Moved(domain, Setting::Power(to)) => {
                self.room.device(&domain, |_, slot| slot.hwmon.cap_uw = to.get());
                true
            }
            DomainFault::Renumbered => {
                self.base += 3;
                self.room.machine.lock().renumber_hwmons(self.base);
                self.room.machine.lock().renumber_rocm();
                true
            }
        }
    }

    fn heal(&mut self, trouble: DomainFault) {
        match trouble {
            DomainFault::Unreadable(_) => self.room.machine.lock().faults().heal(),
            DomainFault::Vanished(domain) => self.room.device(&domain, |_, slot| slot.present = true),
            DomainFault::Locked(_) | DomainFault::Moved(..) | DomainFault::Renumbered => {}
        }
    }

    fn restart(&mut self, hal: &mut Hal<B>) -> bool {
        *hal = self.bench.open(hal.originals().clone());
        true
    }
}

pub(crate) fn run<B: DeviceBackend>(room: &TestMachine, backend: impl Fn() -> B) -> ContractReport {
    run_with(backend, |bench| Virtual::new(room, bench))
}

pub(crate) fn run_with<'r, B: DeviceBackend, F: Fn() -> B>(
    backend: F,
    world: impl FnOnce(Bench<F>) -> Virtual<'r, F>,
) -> ContractReport {
    let mut world = world(Bench::of(Ticks::default(), backend));
    let mut hal = world.bench.open(RefusableOriginals::new(OriginalsInMemory::new()));
    assert!(hal.complaints().is_empty());
    check(&mut hal, &mut world, ContractMode::Full).unwrap_or_else(|breach| panic!("{breach}"))
}

/// The instants between two caps cannot be observed, and no firmware locks one.
pub(crate) const UNSEEN: [Rule; 2] = [Rule::Ordered, Rule::LockedSaid];

#[test]
fn the_contract_holds_for_the_sockets_of_an_epyc() {
    let Some(room) = TestMachine::profile("epyc") else { return };
    let report = run(&room, || Hwmon::new(Root::at(&room.folder.0), DeviceSelection::All));
    assert_eq!((report.domains, report.controls, report.blocked, report.blind), (2, 2, 0, 0));
    assert_eq!(report.unseen().collect::<Vec<_>>(), UNSEEN);
}

#[test]
fn the_contract_holds_for_a_gpu_and_the_sockets_of_its_host() {
    let Some(room) = TestMachine::profile("mi300x") else { return };
    // The GPU has a clock beside its cap.
    for (devices, domains, controls) in
        [(DeviceSelection::All, 3, 4), (DeviceSelection::Sockets, 2, 2), (DeviceSelection::Gpus, 1, 2)]
    {
        let report = run(&room, || Hwmon::new(Root::at(&room.folder.0), devices));
        assert_eq!(
            (report.domains, report.controls, report.blocked, report.blind),
            (domains, controls, 0, 0)
        );
        let alone = if domains == 1 { vec![Rule::BatchSurvives] } else { vec![] };
        let unseen: Vec<_> = report.unseen().filter(|rule| !alone.contains(rule)).collect();
        assert_eq!(unseen, UNSEEN);
    }
}

#[test]
fn the_contract_holds_with_a_nearly_empty_range_and_under_a_cap_out_of_band() {
    let Some(room) = TestMachine::profile("mi300x") else { return };
    let backend = || Hwmon::new(Root::at(&room.folder.0), DeviceSelection::Gpus);
    let key = gpu("0000:0c:00.0");
    room.device(&key, |_, slot| {
        (slot.hwmon.min_uw, slot.hwmon.max_uw, slot.hwmon.cap_uw) = (749_000_000, 750_000_000, 750_000_000);
    });
    assert_eq!(run(&room, backend).controls, 2);
    room.device(&key, |_, slot| slot.hwmon.min_uw = 750_000_000);
    assert_eq!(run(&room, backend).controls, 2);
    room.device(&key, |_, slot| {
        (slot.hwmon.min_uw, slot.hwmon.out_of_band_uw) = (350_000_000, Some(500_000_000));
    });
    assert_eq!(run(&room, backend).controls, 2);
}
