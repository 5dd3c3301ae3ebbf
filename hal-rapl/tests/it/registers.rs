//! Registers: the device files of the rig, and the cases that the HAL refuses.

use crate::bench::{Bench, Registers, Ticks};
use crate::golden::{apply, effective, find, kind, sample, w};
use crate::plain::Plain;
use hal_files::{Access, Root};
use hal_rapl::msr::{DeviceKind, MsrDevices, MsrFault, MsrIo};
use hal_rapl::{MsrRapl, RaplError};
use power_hal::contract::RefusableOriginals;
use power_hal::{
    Control, ErrorKind, Measured, Meter, Originals, OriginalsInMemory, PortError, PowerHal, Released,
};
use power_units::{MicroJoules, Micros};
use rig::faults::{Direction, Effect};
use rig::machine::VirtualAttribute;
use rig::powercap::RegisterLock;
use std::collections::BTreeMap;
use std::os::unix::fs::FileExt;

const POWER_UNIT: u32 = 0x606;
const POWER_LIMIT: u32 = 0x610;

fn open(change: impl FnOnce(&mut rig::machine::RigMachine)) -> Option<(Bench, Registers)> {
    let bench = Bench::of("xeon-2s", |machine| {
        machine.boot_without_powercap();
        change(machine);
    })?;
    let hal = bench.registers().unwrap();
    Some((bench, hal))
}

fn register(bench: &Bench, cpu: u16) -> u64 {
    MsrDevices::new(bench.root(), DeviceKind::Msr, Access::Read).read(cpu, POWER_LIMIT).unwrap()
}

#[test]
fn registers_are_refused_while_powercap_has_the_packages() {
    for name in ["xeon-2s", "client", "xeon-tpmi", "epyc"] {
        let Some(bench) = Bench::mounted(name) else { return };
        let error = bench.registers().unwrap_err();
        assert!(matches!(&error, RaplError::Owned(zone) if zone.join("name").exists()), "{name}: {error}");
        assert_eq!(kind(Err::<(), _>(error)), ErrorKind::NotSupported);
    }
}

#[test]
fn a_driver_that_is_loaded_later_takes_the_packages_over() {
    let Some((bench, mut hal)) = open(|_| {}) else { return };
    let old = find(&hal, "package-0").0;
    bench.machine.lock().load_powercap(true);
    assert!(hal.describe().unwrap().is_empty());
    assert_eq!(kind(hal.apply(old, power_hal::Setting::Power(w(100)))), ErrorKind::Gone);
}

#[test]
fn parts_with_tpmi_or_units_of_their_own_are_refused() {
    let refused = |make: &dyn Fn(&Plain)| {
        let plain = Plain::empty();
        make(&plain);
        let io = MsrDevices::new(Root::at(plain.path()), DeviceKind::Msr, Access::Read);
        MsrRapl::open(
            Root::at(plain.path()),
            io,
            Ticks::default(),
            RefusableOriginals::new(OriginalsInMemory::<1>::new()),
        )
        .map(|_| ())
    };
    let put = |plain: &Plain, path: &str, text: &str| {
        let path = plain.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    let alias = |plain: &Plain, model: &str| {
        let text = format!("cpu:type:x86,ven0000fam0006mod{model}:feature:,0000\n");
        put(plain, "sys/devices/system/cpu/modalias", &text);
    };
    let device = "sys/bus/auxiliary/devices/intel_vsec.tpmi-rapl.0/uevent";
    assert!(matches!(refused(&|plain| put(plain, device, "")), Err(RaplError::Owned(_))));
    assert!(matches!(refused(&|plain| alias(plain, "00AD")), Err(RaplError::NoRegisters(_))));
    assert!(matches!(refused(&|plain| alias(plain, "0037")), Err(RaplError::NoRegisters(_))));
    assert_eq!(refused(&|plain| alias(plain, "0055")), Ok(()));
}

#[test]
fn a_cap_is_one_write_of_one_register_and_the_release_is_the_old_one() {
    let Some((bench, mut hal)) = open(|_| {}) else { return };
    // 250 W and 300 W, enabled and clamping; 28 s and the vendor's short window.
    let before = register(&bench, 0);
    assert_eq!(before & 0x00ff_ffff_00ff_ffff, 0x0003_8960_00dd_87d0);
    assert_eq!(effective(&mut hal, "package-0", w(100)), (100_000_000, true));
    let writes = bench.writes();
    assert_eq!(writes.len(), 1);
    // 100 W over ½ s, 120 W over the earlier window.
    assert_eq!(writes[0].data, 0x0003_83c0_0013_8320_u64.to_le_bytes());
    effective(&mut hal, "package-0", w(100));
    assert!(bench.writes().is_empty(), "what stands is not written again");
    let handle = find(&hal, "package-0").0;
    assert_eq!(hal.release(handle).unwrap(), Released::Restored);
    assert_eq!(register(&bench, 0), before);
    assert_eq!(register(&bench, 32), before, "the other package was not touched");
}

#[test]
fn what_was_off_is_off_again_after_the_release() {
    let Some((bench, mut hal)) = open(|_| {}) else { return };
    bench.zone("intel-rapl:0", |slot| slot.zone.write_enabled(b"0").unwrap());
    let before = register(&bench, 0);
    assert_eq!(effective(&mut hal, "package-0", w(100)), (100_000_000, true));
    let handle = find(&hal, "package-0").0;
    hal.release(handle).unwrap();
    assert_eq!(register(&bench, 0), before);
}

#[test]
fn the_counter_is_the_packages_energy_and_wraps_at_32_bits() {
    let Some((bench, mut hal)) = open(|_| {}) else { return };
    let Some(Meter::Energy(counter)) = find(&hal, "package-1").1.meter() else { panic!("no counter") };
    assert_eq!(counter.modulus(), Some(MicroJoules::new(262_144_000_000)));
    bench.tick(Micros::new(2_000_000));
    let mut read = || {
        let sample = sample(&mut hal, "package-1").unwrap();
        let Ok(Measured::Energy(energy)) = sample.meter else { panic!("{sample:?}") };
        energy
    };
    let before = read();
    bench.tick(Micros::new(1_000_000));
    let drawn = counter.between(before, read()).unwrap().get() / 1_000_000;
    assert!((245..=255).contains(&drawn), "{drawn} J");
}

/// Rows EIO, EPERM, ENXIO and the lock bit of the hardware facts' golden list.
#[test]
fn refusals_of_the_device_have_their_kinds() {
    let Some((bench, mut hal)) =
        open(|machine| machine.change(|zones, _, _| zones[0].zone.lock = RegisterLock::WindowIgnored))
    else {
        return;
    };
    let error = apply(&mut hal, "package-0", w(100)).unwrap_err();
    assert!(matches!(error, PortError::Hal(RaplError::LockBit(_))), "{error}");
    assert_eq!(kind(Err::<(), _>(error)), ErrorKind::Locked);
    assert_eq!(sample(&mut hal, "package-0").unwrap().power_limit, Ok(w(250)), "a lock bit hides nothing");
    bench.zone("intel-rapl:0", |slot| slot.zone.lock = RegisterLock::Open);

    let mut device = MsrDevices::new(bench.root(), DeviceKind::Msr, Access::ReadWrite);
    let kinds = |answer: Result<u64, MsrFault>| answer.map_err(|fault| (fault.kind, fault.errno));
    assert_eq!(kinds(device.read(0, 0x123)), Err((ErrorKind::Io, Some(libc::EIO))), "no such register");
    assert_eq!(kinds(device.read(0, POWER_UNIT)), Ok(0xa_0e03));
    assert_eq!(kinds(device.read(999, POWER_UNIT)), Err((ErrorKind::Gone, Some(libc::ENOENT))));
    bench.fault(VirtualAttribute::Msr(0), Direction::Write, Effect::Fails(libc::EPERM), 1);
    assert_eq!(
        kind(apply(&mut hal, "package-0", w(100))),
        ErrorKind::PermissionDenied,
        "lockdown, allow_writes=off"
    );
    bench.fault(VirtualAttribute::Msr(0), Direction::Write, Effect::Fails(libc::EIO), 1);
    assert_eq!(kind(apply(&mut hal, "package-0", w(100))), ErrorKind::Io);
    assert_eq!(hal.originals().inner().len(), 0, "nothing was touched");
    bench.zone("intel-rapl:0", |slot| slot.present = false);
    assert_eq!(sample(&mut hal, "package-0"), Err(ErrorKind::Gone), "ENXIO: its processors are offline");
    assert!(sample(&mut hal, "package-1").is_ok());
}

#[test]
fn writes_that_the_kernel_refuses_leave_the_package_readable() {
    let Some(bench) = Bench::of("client", |machine| machine.boot_without_powercap()) else { return };
    let mut hal = bench.registers().unwrap();
    assert_eq!(kind(apply(&mut hal, "package-0", w(20))), ErrorKind::PermissionDenied);
    assert_eq!(sample(&mut hal, "package-0").unwrap().power_limit, Ok(w(35)));
}

#[test]
fn a_register_that_fails_in_a_listing_leaves_the_last_list_standing() {
    let Some((bench, mut hal)) = open(|_| {}) else { return };
    bench.fault(VirtualAttribute::Msr(0), Direction::Read, Effect::Fails(libc::EIO), 2);
    assert_eq!(kind(hal.describe().map(|_| ())), ErrorKind::Io);
    assert_eq!(hal.domains().len(), 2);
    assert!(hal.describe().is_ok());
}

#[test]
fn a_monitor_opens_to_read_and_never_writes() {
    let Some((bench, _)) = open(|_| {}) else { return };
    let io = MsrDevices::new(bench.root(), DeviceKind::Msr, Access::Read);
    let mut hal = MsrRapl::open(
        bench.root(),
        io,
        Ticks::default(),
        RefusableOriginals::new(OriginalsInMemory::<2>::new()),
    )
    .unwrap();
    assert!(sample(&mut hal, "package-0").is_ok());
    assert_eq!(kind(apply(&mut hal, "package-0", w(100))), ErrorKind::PermissionDenied);
    assert!(bench.writes().is_empty());
}

#[test]
fn msr_safe_is_another_file_of_the_same_registers() {
    let plain = Plain::empty();
    let folder = plain.path().join("dev/cpu/3");
    std::fs::create_dir_all(&folder).unwrap();
    let file = std::fs::File::create(folder.join("msr_safe")).unwrap();
    file.write_all_at(&0xa_0e03_u64.to_le_bytes(), POWER_UNIT.into()).unwrap();
    let root = || Root::at(plain.path());
    assert_eq!(MsrDevices::new(root(), DeviceKind::MsrSafe, Access::Read).read(3, POWER_UNIT), Ok(0xa_0e03));
    let other = MsrDevices::new(root(), DeviceKind::Msr, Access::Read).read(3, POWER_UNIT);
    assert_eq!(other.unwrap_err().kind, ErrorKind::Gone);
    let short = MsrDevices::new(root(), DeviceKind::MsrSafe, Access::Read).read(3, POWER_UNIT + 1);
    assert_eq!(short.unwrap_err().kind, ErrorKind::BadData, "half a register is none");
}

/// Registers in memory: cases that the rig does not have.
#[derive(Default)]
struct Cells(BTreeMap<(u16, u32), u64>);

impl MsrIo for Cells {
    fn read(&mut self, cpu: u16, register: u32) -> Result<u64, MsrFault> {
        let missing =
            MsrFault { cpu, register, access: Access::Read, kind: ErrorKind::Io, errno: Some(libc::EIO) };
        self.0.get(&(cpu, register)).copied().ok_or(missing)
    }

    fn write(&mut self, cpu: u16, register: u32, value: u64) -> Result<(), MsrFault> {
        self.0.insert((cpu, register), value);
        Ok(())
    }
}

fn topology(plain: &Plain, cpus: &[(u16, u16)]) {
    for (cpu, (package, die)) in cpus.iter().enumerate() {
        let folder = plain.path().join(format!("sys/devices/system/cpu/cpu{cpu}/topology"));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("physical_package_id"), format!("{package}\n")).unwrap();
        std::fs::write(folder.join("die_id"), format!("{die}\n")).unwrap();
    }
    std::fs::create_dir_all(plain.path().join("sys/devices/system/cpu/cpufreq")).unwrap();
}

#[test]
fn amd_counts_in_registers_and_limits_nothing() {
    let plain = Plain::empty();
    topology(&plain, &[(0, 0), (0, 0)]);
    let cells = Cells(BTreeMap::from([((0, 0xc001_0299), 0xa_1003), ((0, 0xc001_029b), 0x1_0000)]));
    let root = Root::at(plain.path());
    let mut hal =
        MsrRapl::open(root, cells, Ticks::default(), RefusableOriginals::new(OriginalsInMemory::<2>::new()))
            .unwrap();
    assert!(!find(&hal, "package-0").1.has(Control::Power));
    // 2¹⁶ units of 2⁻¹⁶ J.
    let expected = Measured::Energy(MicroJoules::new(1_000_000));
    assert_eq!(sample(&mut hal, "package-0").unwrap().meter, Ok(expected));
}

#[test]
fn dies_with_registers_of_their_own_are_domains_of_their_own() {
    let plain = Plain::empty();
    topology(&plain, &[(0, 0), (0, 1), (1, 0), (1, 1)]);
    let mut cells = Cells::default();
    for cpu in 0..4_u16 {
        cells.0.extend([
            ((cpu, 0x606), 0xa_0e03),
            ((cpu, 0x610), 0x00dd_8960_00dd_87d0),
            ((cpu, 0x611), u64::from(cpu)),
            // TSP 270 W, minimum 75 W.
            ((cpu, 0x614), 0x0258_0870),
        ]);
    }
    let root = Root::at(plain.path());
    let mut hal =
        MsrRapl::open(root, cells, Ticks::default(), RefusableOriginals::new(OriginalsInMemory::<4>::new()))
            .unwrap();
    let keys: Vec<_> =
        hal.domains().as_slice().iter().map(|domain| domain.key().as_str().to_owned()).collect();
    assert_eq!(keys, ["package-0-die-0", "package-0-die-1", "package-1-die-0", "package-1-die-1"]);
    let limit = *find(&hal, "package-1-die-0").1.power().unwrap();
    assert_eq!((limit.min(), limit.max()), (Some(w(75)), Some(w(270))));
    assert_eq!(effective(&mut hal, "package-1-die-0", w(60)), (75_000_000, false));
}

#[test]
fn a_processor_in_a_place_that_is_no_number_is_bad_data_and_one_in_an_unknown_place_is_left_out() {
    for (file, text, expected) in [
        ("physical_package_id", "-1\n", Ok(1)),
        ("die_id", "-1\n", Ok(2)),
        ("physical_package_id", "x\n", Err(ErrorKind::BadData)),
        ("physical_package_id", "+1\n", Err(ErrorKind::BadData)),
        ("physical_package_id", "65536\n", Err(ErrorKind::BadData)),
        ("physical_package_id", "\n", Err(ErrorKind::BadData)),
        ("die_id", "1 \n", Err(ErrorKind::BadData)),
    ] {
        let plain = Plain::empty();
        topology(&plain, &[(0, 0), (1, 0)]);
        let path = plain.path().join("sys/devices/system/cpu/cpu1/topology").join(file);
        std::fs::write(&path, text).unwrap();
        let cells = Cells(BTreeMap::from([((0, 0x606), 0xa_0e03), ((1, 0x606), 0xa_0e03)]));
        let root = Root::at(plain.path());
        let opened = MsrRapl::open(
            root,
            cells,
            Ticks::default(),
            RefusableOriginals::new(OriginalsInMemory::<2>::new()),
        );
        match opened {
            Ok(hal) => assert_eq!(Ok(hal.domains().len()), expected, "{file} {text:?}"),
            Err(error) => {
                assert!(error.to_string().contains(&path.display().to_string()), "{error}");
                assert_eq!(Err(kind(Err::<(), _>(error))), expected, "{file} {text:?}");
            }
        }
    }
}

#[test]
fn a_hypervisor_that_answers_zero_has_no_registers() {
    let plain = Plain::empty();
    topology(&plain, &[(0, 0)]);
    let cells =
        Cells(BTreeMap::from([((0, 0x606), 0), ((0, 0xc001_0299), 0), ((0, 0x610), 0), ((0, 0x611), 0)]));
    let root = Root::at(plain.path());
    let hal =
        MsrRapl::open(root, cells, Ticks::default(), RefusableOriginals::new(OriginalsInMemory::<2>::new()))
            .unwrap();
    assert!(hal.domains().is_empty());
}

#[test]
fn a_register_with_its_lock_bit_set_is_never_written() {
    let plain = Plain::empty();
    topology(&plain, &[(0, 0)]);
    let locked = 1 << 63 | 0x00dd_8960_00dd_87d0;
    let mut cells =
        Cells(BTreeMap::from([((0, 0x606), 0xa_0e03), ((0, POWER_LIMIT), locked), ((0, 0x611), 1)]));
    let root = Root::at(plain.path());
    let journal = RefusableOriginals::new(OriginalsInMemory::<2>::new());
    let mut hal = MsrRapl::open(root, &mut cells, Ticks::default(), journal).unwrap();
    assert_eq!(kind(apply(&mut hal, "package-0", w(100))), ErrorKind::Locked);
    assert_eq!(hal.originals().inner().len(), 0);
    drop(hal);
    assert_eq!(cells.0[&(0, POWER_LIMIT)], locked);
}

/// Linux 6.9 and later number dies over the machine.
#[test]
fn dies_that_are_numbered_over_the_machine_are_no_dies_of_their_own() {
    let plain = Plain::empty();
    topology(&plain, &[(0, 0), (0, 0), (1, 1), (1, 1)]);
    let mut cells = Cells::default();
    for cpu in 0..4_u16 {
        cells.0.extend([((cpu, 0x606), 0xa_0e03), ((cpu, 0x610), 0x00dd_8960_00dd_87d0)]);
    }
    let hal = MsrRapl::open(
        Root::at(plain.path()),
        cells,
        Ticks::default(),
        RefusableOriginals::new(OriginalsInMemory::<4>::new()),
    )
    .unwrap();
    let keys: Vec<_> =
        hal.domains().as_slice().iter().map(|domain| domain.key().as_str().to_owned()).collect();
    assert_eq!(keys, ["package-0", "package-1"]);
}

/// The driver finds a cap that was set through registers; the original is transferred to it.
#[test]
fn originals_of_registers_are_powercaps_once_it_has_the_packages() {
    let Some((bench, mut hal)) = open(|_| {}) else { return };
    let key = *find(&hal, "package-0").1.key();
    apply(&mut hal, "package-0", w(100)).unwrap();
    let original = hal.originals().kept(&key, Control::Power).unwrap();
    let mut from = OriginalsInMemory::<4>::new();
    from.keep(&key, Control::Power, &original).unwrap();
    let mut to = OriginalsInMemory::<4>::new();
    let mut io = MsrDevices::new(bench.root(), DeviceKind::Msr, Access::Read);
    let mut handed = |from: &mut OriginalsInMemory<4>, to: &mut OriginalsInMemory<4>| {
        hal_rapl::msr::hand_over(&bench.root(), &mut io, from, to).unwrap()
    };
    assert_eq!(handed(&mut from, &mut to), 0, "while nobody else has the packages they stay");
    bench.machine.lock().load_powercap(true);
    assert_eq!(handed(&mut from, &mut to), 1);
    assert_eq!((from.kept(&key, Control::Power), handed(&mut from, &mut to)), (None, 0));
    let mut powercap = hal_rapl::Powercap::open(bench.root(), Ticks::default(), to).unwrap();
    let handle = powercap.domains().find(&key).unwrap();
    assert_eq!(powercap.release(handle).unwrap(), Released::Restored);
    let restored = register(&bench, 0);
    assert_eq!(
        restored & 0x7fff_ffff_7fff_ffff & !(1 << 16 | 1 << 48),
        original.words()[0] & !(1 << 16 | 1 << 48)
    );
}
