//! GPUs through the ROCm SMI library, which is loaded like the real one, from a separate folder for each test.

use crate::contract::Bench;
use crate::support::{
    Drivers, Folder, Hal, Ticks, apply, effective, find, gpu, keys, over, release, sample, w,
};
use hal_amd::{AmdError, Rocm, Where};
use hal_files::Root;
use power_hal::contract::{ContractMode, ContractWorld, DomainFault, RefusableOriginals, Rule, check};
use power_hal::{
    ApplyOutcome, Control, Error, ErrorKind, Key, Measured, OriginalsInMemory, PowerHal, Released, Setting,
    Slowdown, Throttled, ThrottledMeter,
};
use power_units::{Celsius, MicroWatts, Micros, Percent};
use std::path::PathBuf;

/// A machine with the library and these GPUs.
struct Machine {
    folder: Folder,
}

/// The location of a GPU, as the library encodes it: domain, partition, bus, device, function.
const fn pci(domain: u64, partition: u64, bus: u64, function: u64) -> u64 {
    (domain << 32) | (partition << 28) | (bus << 8) | function
}

impl Machine {
    fn new() -> Self {
        let folder = Folder::new();
        let built = std::env::current_exe().unwrap().with_file_name("librocm_stub.so");
        std::fs::copy(built, folder.0.join("librocm_smi64.so.6")).unwrap();
        Self { folder }
    }

    /// Two GPUs of 350 to 750 W, listed in the reverse order of their addresses.
    fn two() -> Self {
        let machine = Self::new();
        machine.gpu(0, pci(0, 0, 0x0d, 0));
        machine.gpu(1, pci(0, 0, 0x0c, 0));
        machine
    }

    fn gpu(&self, index: u32, pci: u64) {
        for (name, number) in [
            ("pci", pci),
            ("cap", 750_000_000),
            ("cap_max", 750_000_000),
            ("cap_min", 350_000_000),
            ("cap_default", 750_000_000),
            ("power", 500_250_000),
        ] {
            self.put(index, name, number);
        }
    }

    fn put(&self, index: u32, name: &str, number: u64) {
        self.folder.put(&format!("gpus/{index}/{name}"), format!("{number}\n"));
    }

    fn fail(&self, index: u32, function: &str, status: Option<u32>) {
        let path = format!("gpus/{index}/fail_{function}");
        match status {
            Some(status) => self.folder.put(&path, format!("{status}\n")),
            None => self.folder.remove(&path),
        }
    }

    fn cap(&self, index: u32) -> u64 {
        self.folder.get(&format!("gpus/{index}/cap")).trim().parse().unwrap()
    }

    fn library(&self) -> PathBuf {
        self.folder.0.join("librocm_smi64.so.6")
    }

    fn backend(&self) -> Rocm {
        Rocm::new(Root::at(&self.folder.0), Where::At(self.library()))
    }

    fn open(&self) -> Hal<Rocm> {
        over(self.backend())
    }

    /// The index of this GPU's folder.
    fn index(&self, key: &Key) -> Option<u32> {
        (0..3).find(|index| {
            let path = self.folder.0.join(format!("gpus/{index}/pci"));
            let Ok(text) = std::fs::read_to_string(path) else { return false };
            let pci: u64 = text.trim().parse().unwrap();
            *key == gpu(&format!("0000:{:02x}:00.0", pci >> 8 & 0xff))
        })
    }
}

fn first() -> Key {
    gpu("0000:0c:00.0")
}

struct Behind<'a, F> {
    machine: &'a Machine,
    bench: Bench<F>,
}

impl<F: Fn() -> Rocm> ContractWorld<Hal<Rocm>> for Behind<'_, F> {
    fn in_force(&mut self, domain: &Key, control: Control) -> Option<Setting> {
        let index = self.machine.index(domain).filter(|_| control == Control::Power)?;
        Some(Setting::Power(MicroWatts::new(self.machine.cap(index))))
    }

    fn advance(&mut self, span: Micros) -> bool {
        self.bench.ticks.advance(span);
        true
    }

    fn cause(&mut self, trouble: DomainFault) -> bool {
        match trouble {
            DomainFault::Unreadable(domain) => {
                let index = self.machine.index(&domain).unwrap();
                self.machine.fail(index, "power_get", Some(3));
                self.machine.fail(index, "power_cap_get", Some(3));
                true
            }
            DomainFault::Moved(domain, Setting::Power(to)) => {
                self.machine.put(self.machine.index(&domain).unwrap(), "cap", to.get());
                true
            }
            DomainFault::Renumbered => {
                let gpus = self.machine.folder.0.join("gpus");
                for (from, to) in [("0", "spare"), ("1", "0"), ("spare", "1")] {
                    std::fs::rename(gpus.join(from), gpus.join(to)).unwrap();
                }
                true
            }
            // The library detects a lost GPU only at a restart, and knows no lock.
            DomainFault::Vanished(_) | DomainFault::Locked(_) | DomainFault::Moved(..) => false,
        }
    }

    fn heal(&mut self, trouble: DomainFault) {
        if let DomainFault::Unreadable(domain) = trouble {
            let index = self.machine.index(&domain).unwrap();
            self.machine.fail(index, "power_get", None);
            self.machine.fail(index, "power_cap_get", None);
        }
    }

    fn restart(&mut self, hal: &mut Hal<Rocm>) -> bool {
        *hal = self.bench.open(hal.originals().clone());
        true
    }
}

#[test]
fn the_contract_holds_through_the_library() {
    let machine = Machine::two();
    let mut world = Behind { machine: &machine, bench: Bench::of(Ticks::default(), || machine.backend()) };
    let mut hal = world.bench.open(RefusableOriginals::new(OriginalsInMemory::new()));
    assert_eq!(hal.complaints(), []);
    let report = check(&mut hal, &mut world, ContractMode::Full).unwrap_or_else(|breach| panic!("{breach}"));
    assert_eq!((report.domains, report.controls, report.blocked, report.blind), (2, 2, 0, 0));
    assert_eq!(report.unseen().collect::<Vec<_>>(), [Rule::Ordered, Rule::LockedSaid, Rule::GoneSaid]);
}

#[test]
fn a_gpu_is_known_by_its_address_and_its_range_is_not_turned_round() {
    let machine = Machine::two();
    let mut hal = machine.open();
    assert_eq!(keys(&hal), ["gpu-0000:0c:00.0", "gpu-0000:0d:00.0"]);
    let limit = *hal.domains().as_slice()[0].power().unwrap();
    assert_eq!((limit.lower(), limit.upper(), limit.default()), (w(350), w(750), Some(w(750))));
    let sampled = sample(&mut hal, &first()).unwrap();
    assert_eq!(sampled.meter, Ok(Measured::Power(MicroWatts::new(500_250_000))));
    assert_eq!(sampled.power_limit, Ok(w(750)));
    // Index 1, as the library lists it.
    let applied = apply(&mut hal, &first(), MicroWatts::new(400_999_999)).unwrap();
    assert_eq!((applied.outcome(), applied.effective()), (ApplyOutcome::Exact, Setting::Power(w(400))));
    assert_eq!((machine.cap(0), machine.cap(1)), (750_000_000, 400_000_000));
    assert_eq!(release(&mut hal, &first()), Ok(Released::Restored));
    assert_eq!(machine.cap(1), 750_000_000);
}

#[test]
fn partitions_secondary_dies_and_doubles_are_no_domains() {
    let machine = Machine::two();
    machine.gpu(2, pci(0, 3, 0x0c, 0));
    machine.gpu(3, pci(0, 0, 0x0c, 2));
    machine.gpu(4, pci(0, 0, 0x0c, 0));
    machine.gpu(5, pci(0x1_0000, 0, 0x0e, 0));
    machine.put(5, "cap_min", 0);
    machine.gpu(6, pci(0, 0, 0x0f, 0));
    machine.put(6, "cap_max", 0);
    machine.gpu(7, pci(0, 2, 0x10, 0));
    machine.gpu(8, pci(0, 0, 0x11, 1));
    let hal = machine.open();
    assert_eq!(keys(&hal), ["gpu-0000:0c:00.0", "gpu-0000:0d:00.0", "gpu-10000:0e:00.0"]);
    assert_eq!(hal.complaints(), []);
}

#[test]
fn a_machine_without_the_library_has_no_domain_and_a_broken_one_is_a_complaint() {
    let folder = Folder::new();
    let at = |name: &str| over(Rocm::new(Root::at(&folder.0), Where::At(folder.0.join(name))));
    let absent = at("librocm_smi64.so");
    assert!(absent.domains().is_empty() && absent.complaints().is_empty());
    folder.put("broken.so", "no library");
    // A library that lacks a function.
    let other = std::env::current_exe().unwrap().with_file_name("librocm_stub.so");
    let text = std::fs::read(other).unwrap();
    let hidden = replaced(&text, b"rsmi_dev_power_cap_set\0", b"rsmi_dev_power_cap_no_\0");
    folder.put("lacking.so", hidden);
    for (name, word) in [("broken.so", "broken.so"), ("lacking.so", "rsmi_dev_power_cap_set")] {
        let hal = at(name);
        assert!(hal.domains().is_empty());
        let [complaint @ AmdError::Library(_)] = hal.complaints() else { panic!("{:?}", hal.complaints()) };
        assert_eq!(complaint.kind(), ErrorKind::NotSupported);
        assert!(complaint.to_string().contains(word), "{complaint}");
    }
}

fn replaced(text: &[u8], from: &[u8], to: &[u8]) -> Vec<u8> {
    let mut text = text.to_vec();
    let mut at = 0;
    while let Some(found) = text[at..].windows(from.len()).position(|window| window == from) {
        text[at + found..at + found + to.len()].copy_from_slice(to);
        at += found + to.len();
    }
    text
}

#[test]
fn the_library_is_left_alone_where_a_gpu_stands_in_hwmon() {
    let machine = Machine::two();
    let mut hal = machine.open();
    assert_eq!(hal.domains().len(), 2);
    machine.folder.gpu(4, "0000:0c:00.0");
    assert_eq!(hal.describe().unwrap().len(), 0);
    machine.folder.remove("sys/class/hwmon/hwmon4");
    assert_eq!(hal.describe().unwrap().len(), 2);
}

#[test]
fn every_status_of_the_library_is_a_kind_and_is_told_with_the_function() {
    use ErrorKind::{BadData, Busy, Gone, Io, NotSupported, OutOfRange, PermissionDenied};
    for (status, kind) in [
        (1, OutOfRange),
        (2, NotSupported),
        (3, Io),
        (4, PermissionDenied),
        (6, Io),
        (7, OutOfRange),
        (9, NotSupported),
        (10, Gone),
        (12, Busy),
        (14, BadData),
        (15, BadData),
        (16, Busy),
        (18, NotSupported),
        (u32::MAX, Io),
    ] {
        let machine = Machine::two();
        let mut hal = machine.open();
        machine.fail(1, "power_cap_set", Some(status));
        let handle = find(&hal, &first());
        let failure = hal.apply(handle, Setting::Power(w(400))).unwrap_err();
        assert_eq!(failure.kind(), kind, "{status}");
        let text = failure.to_string();
        assert!(text.contains("gpu-0000:0c:00.0") && text.contains("rsmi_dev_power_cap_set"), "{text}");
        assert!(text.contains(&format!("status {status}")), "{text}");
        assert_eq!(release(&mut hal, &first()), Ok(Released::Untouched));
    }
}

#[test]
fn one_function_without_an_answer_leaves_the_other_value() {
    let machine = Machine::two();
    let mut hal = machine.open();
    machine.fail(1, "power_get", Some(14));
    let sampled = sample(&mut hal, &first()).unwrap();
    assert_eq!((sampled.meter, sampled.power_limit), (Err(ErrorKind::BadData), Ok(w(750))));
    machine.put(1, "cap", 0);
    assert_eq!(sample(&mut hal, &first()), Err(ErrorKind::BadData), "a cap of nothing is not in force");
    machine.put(1, "cap", u64::MAX);
    assert_eq!(apply(&mut hal, &first(), w(400)), Err(ErrorKind::BadData));
    assert_eq!(machine.cap(1), u64::MAX, "nothing was written");
}

#[test]
fn what_a_gpu_does_not_have_is_not_described_and_what_was_known_stays_known() {
    let machine = Machine::two();
    let mut hal = machine.open();
    let shape = |hal: &Hal<Rocm>| {
        let domain = hal.domains().as_slice()[0];
        (domain.meter().is_some(), domain.power().map(|power| (power.min(), power.max())))
    };
    machine.fail(1, "power_cap_range_get", Some(3));
    hal.describe().unwrap();
    assert_eq!(shape(&hal), (true, Some((Some(w(350)), Some(w(750))))));
    assert_eq!(hal.complaints().len(), 2);
    machine.fail(1, "power_get", Some(2));
    hal.describe().unwrap();
    assert!(!shape(&hal).0, "neither the new nor the old function of its power");
    machine.fail(1, "power_cap_get", Some(2));
    hal.describe().unwrap();
    assert_eq!(keys(&hal), ["gpu-0000:0d:00.0"]);
}

#[test]
fn a_gpu_that_sleeps_is_not_read() {
    let machine = Machine::two();
    let status = "sys/bus/pci/devices/0000:0c:00.0/power/runtime_status";
    machine.folder.put(status, "active\n");
    let mut hal = machine.open();
    let before: Vec<_> = hal.domains().as_slice().to_vec();
    machine.folder.put(status, "suspended\n");
    // A read at this time would be refused.
    for function in ["power_get", "power_cap_get", "power_cap_range_get"] {
        machine.fail(1, function, Some(2));
    }
    assert_eq!(sample(&mut hal, &first()), Err(ErrorKind::Busy));
    assert_eq!(hal.describe().unwrap().as_slice(), before);
}

#[test]
fn a_library_that_cannot_be_started_is_an_error_and_its_gpus_are_gone_until_it_can() {
    let machine = Machine::two();
    let mut hal = machine.open();
    machine.folder.put("gpus/fail_init", "6\n");
    assert!(matches!(hal.describe(), Err(AmdError::Rocm(None, _, _))));
    assert_eq!(hal.domains().len(), 2, "the last list stands");
    assert_eq!(sample(&mut hal, &first()), Err(ErrorKind::Gone));
    // The answer without a driver: the GPUs are absent, with a complaint.
    machine.folder.put("gpus/fail_init", "8\n");
    assert!(hal.describe().unwrap().is_empty());
    assert!(matches!(hal.complaints(), [AmdError::Rocm(None, _, _)]));
    machine.folder.remove("gpus/fail_init");
    hal.describe().unwrap();
    assert_eq!(effective(&mut hal, &first(), w(400)), w(400));
}

/// The library of the rig, with the plant behind the caps.
mod on_the_rig {
    use super::*;
    use crate::contract::{Virtual, run_with};
    use crate::support::TestMachine;
    use ::rig::faults::Fault;
    use ::rig::library::ROCM;
    use plant::PlantDomain;
    use std::time::Duration;

    /// The second whole GPU. It is the third device of the library, and comes after two sockets in hwmon.
    const SECOND: &str = "0000:0e:00.0";
    const SECOND_SLOT: usize = 4;

    fn backend(room: &TestMachine) -> Rocm {
        let root = &room.folder.0;
        Rocm::new(Root::at(root), Where::At(root.join("lib").join(ROCM)))
    }

    #[test]
    fn the_contract_holds_through_the_library_of_the_rig() {
        let Some(room) = TestMachine::profile("mi300x-smi") else { return };
        let report = run_with(|| backend(&room), |bench| Virtual::through_rocm(&room, bench));
        assert_eq!((report.domains, report.controls, report.blocked, report.blind), (2, 2, 0, 0));
        assert_eq!(report.unseen().collect::<Vec<_>>(), [Rule::Ordered, Rule::LockedSaid, Rule::GoneSaid]);
    }

    /// The limiter of the plant's GPU has a time constant of 0.1 s: from 750 W it is within 2 % of 400 W after a second.
    #[test]
    fn power_falls_below_a_cap_that_is_written_and_the_other_gpu_goes_on() {
        let Some(room) = TestMachine::profile("mi300x-smi") else { return };
        let mut hal = over(backend(&room));
        assert_eq!(keys(&hal), ["gpu-0000:0c:00.0", "gpu-0000:0e:00.0"]);
        assert_eq!(hal.complaints(), []);
        let power = |hal: &mut Hal<Rocm>, key: &Key| match sample(hal, key).unwrap().meter {
            Ok(Measured::Power(power)) => power,
            other => panic!("{other:?}"),
        };
        room.machine.lock().advance(Duration::from_secs(2));
        assert_eq!(power(&mut hal, &gpu(SECOND)), w(750));
        assert_eq!(effective(&mut hal, &gpu(SECOND), w(400)), w(400));
        room.machine.lock().advance(Duration::from_secs(1));
        assert!(power(&mut hal, &gpu(SECOND)) < w(408));
        assert_eq!(power(&mut hal, &first()), w(750));
        let truth = room.machine.lock().plant().watts(PlantDomain::Gpu(1)).unwrap();
        assert!(truth < 408.0, "{truth}");
    }

    #[test]
    fn a_call_fails_as_often_as_it_is_told_to_and_a_start_too() {
        let Some(room) = TestMachine::profile("mi300x-smi") else { return };
        let mut hal = over(backend(&room));
        let fault = |fault: Fault| room.machine.lock().faults().add(fault);
        fault(Fault::rocm(Some(SECOND_SLOT), "power_cap_set", 4, 2));
        for _ in 0..2 {
            assert_eq!(apply(&mut hal, &gpu(SECOND), w(400)), Err(ErrorKind::PermissionDenied));
            assert_eq!(room.cap(&gpu(SECOND)), 750_000_000);
        }
        assert_eq!(effective(&mut hal, &gpu(SECOND), w(400)), w(400));
        fault(Fault::rocm(None, "init", 8, 1));
        assert!(hal.describe().unwrap().is_empty());
        assert_eq!(hal.describe().unwrap().len(), 2);
    }

    #[test]
    fn gpus_keep_their_names_when_the_library_lists_them_in_another_order() {
        let Some(room) = TestMachine::profile("mi300x-smi") else { return };
        let mut hal = over(backend(&room));
        let place = || (0..3).map(|at| room.folder.get(&format!("rocm/gpus/{at}/pci"))).collect::<Vec<_>>();
        let mut before = place();
        room.machine.lock().renumber_rocm();
        before.reverse();
        assert_eq!(place(), before);
        hal.describe().unwrap();
        assert_eq!(effective(&mut hal, &gpu(SECOND), w(400)), w(400));
        assert_eq!((room.cap(&gpu(SECOND)), room.cap(&first())), (400_000_000, 750_000_000));
    }

    #[test]
    fn what_the_driver_below_refuses_is_told_and_changes_nothing() {
        let Some(room) = TestMachine::profile("mi300x-smi") else { return };
        let mut hal = over(backend(&room));
        // In reset the driver answers EPERM, which the library reports as a missing feature.
        room.device(&first(), |_, slot| slot.hwmon.in_reset = true);
        assert_eq!(apply(&mut hal, &first(), w(400)), Err(ErrorKind::NotSupported));
        assert_eq!(room.cap(&first()), 750_000_000);
        room.device(&first(), |_, slot| (slot.hwmon.in_reset, slot.hwmon.silent) = (false, true));
        assert_eq!(sample(&mut hal, &first()), Err(ErrorKind::BadData));
        room.device(&first(), |_, slot| (slot.hwmon.silent, slot.hwmon.asleep) = (false, true));
        assert_eq!(sample(&mut hal, &first()), Err(ErrorKind::Busy), "nobody wakes it");
        room.device(&first(), |_, slot| {
            slot.hwmon.asleep = false;
            slot.hwmon.out_of_band_uw = Some(500_000_000);
        });
        assert_eq!(effective(&mut hal, &first(), w(600)), w(500));
    }
}

/// The kernel's table of an MI200: version 1.3, 120 bytes, with what holds it back at offset 112.
fn table(reasons: u64) -> Vec<u8> {
    let mut table = vec![0; 120];
    table[..4].copy_from_slice(&[120, 0, 1, 3]);
    table[112..].copy_from_slice(&reasons.to_le_bytes());
    table
}

#[test]
fn what_holds_a_gpu_back_is_in_the_kernels_table_of_it() {
    let machine = Machine::two();
    let file = "sys/bus/pci/devices/0000:0c:00.0/gpu_metrics";
    let put = |reasons| machine.folder.put(file, table(reasons));
    put(0);
    let mut hal = machine.open();
    let told = |hal: &mut Hal<Rocm>| sample(hal, &first()).unwrap();
    assert_eq!(told(&mut hal).throttled, Ok(Throttled::Instant(false)));
    // Its power limit (PPT0), then heat, which is no power limit.
    put(1);
    assert_eq!(told(&mut hal).throttled, Ok(Throttled::Instant(true)));
    assert!(told(&mut hal).slowdowns.unwrap().has(Slowdown::PowerLimit));
    put(1 << 36);
    assert_eq!(told(&mut hal).throttled, Ok(Throttled::Instant(false)));
    // A table that is cut off is no answer, and the other GPU has none.
    machine.folder.put(file, &b"\x78"[..]);
    assert_eq!(told(&mut hal).throttled, Err(ErrorKind::BadData));
    let other = sample(&mut hal, &gpu("0000:0d:00.0")).unwrap();
    assert_eq!(other.throttled, Err(ErrorKind::NotSupported));
    // While it sleeps nobody reads its table, and it is known what it has.
    put(1);
    machine.folder.put("sys/bus/pci/devices/0000:0c:00.0/power/runtime_status", "suspended\n");
    hal.describe().unwrap();
    assert_eq!(hal.domains().as_slice()[0].throttled(), Some(ThrottledMeter::Instant));
    assert_eq!(sample(&mut hal, &first()), Err(ErrorKind::Busy));
    // A version of which nothing is known.
    machine.folder.put("sys/bus/pci/devices/0000:0c:00.0/power/runtime_status", "active\n");
    machine.folder.put(file, &[120, 0, 2, 3][..]);
    hal.describe().unwrap();
    assert_eq!(hal.domains().as_slice()[0].throttled(), None);
}

#[test]
fn the_library_reports_what_a_gpu_has_and_nothing_of_what_slows_it() {
    let machine = Machine::two();
    for (file, value) in [("temp", 68_500), ("busy", 97), ("vram_used", 64 << 30), ("vram_total", 192 << 30)]
    {
        machine.put(machine.index(&first()).unwrap(), file, value);
    }
    let mut hal = machine.open();
    let told = sample(&mut hal, &first()).unwrap();
    assert_eq!(told.temperature, Ok(Celsius::from_bits(137 << 31)), "68.5 °C");
    assert_eq!(told.utilisation, Ok(Percent::from_int(97)));
    assert_eq!(told.memory.map(|it| (it.used_bytes() >> 30, it.total_bytes() >> 30)), Ok((64, 192)));
    assert_eq!(
        (told.slowdowns, told.throttled),
        (Err(ErrorKind::NotSupported), Err(ErrorKind::NotSupported))
    );
    machine.put(machine.index(&first()).unwrap(), "busy", 65_535);
    machine.put(machine.index(&first()).unwrap(), "vram_used", 193 << 30);
    let told = sample(&mut hal, &first()).unwrap();
    assert_eq!((told.utilisation, told.memory), (Err(ErrorKind::BadData), Err(ErrorKind::BadData)));
    // A failure is asked again at once. An answer then serves seven more readings, and no list after it.
    let mut used = |gib: u64| {
        machine.put(machine.index(&first()).unwrap(), "vram_used", gib << 30);
        sample(&mut hal, &first()).unwrap().memory.map(|it| it.used_bytes() >> 30)
    };
    assert_eq!([used(65), used(66)], [Ok(65); 2]);
    hal.describe().unwrap();
    assert_eq!(sample(&mut hal, &first()).unwrap().memory.map(|it| it.used_bytes() >> 30), Ok(66));
}
