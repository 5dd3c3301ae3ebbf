//! The rows of the hardware facts, section 11, one test each: the behaviour of the real driver, and how the HAL
//! handles it.

use crate::bench::{Bench, CEILING_UW, Files, Registers, Write};
use hal_files::Access;
use hal_rapl::msr::{DeviceKind, MsrDevices};
use power_hal::{
    Applied, ApplyOutcome, Control, Domain, ErrorKind, Handle, Measured, Meter, PortError, PowerHal, Reading,
    Released, Sample, Setting,
};
use power_units::{MicroJoules, MicroWatts, Micros, Percent};
use rig::faults::{Direction, Effect};
use rig::machine::VirtualAttribute;
use rig::powercap::RegisterLock;

pub(crate) fn w(watts: u64) -> MicroWatts {
    MicroWatts::new(watts * 1_000_000)
}

pub(crate) fn find<H: PowerHal>(hal: &H, key: &str) -> (Handle, Domain) {
    let (handle, domain) = hal.domains().iter().find(|(_, domain)| domain.key().as_str() == key).unwrap();
    (handle, *domain)
}

pub(crate) fn sample<H: PowerHal>(hal: &mut H, key: &str) -> Result<Sample, ErrorKind> {
    let mut batch = [Reading::new(find(hal, key).0)];
    hal.sample(&mut batch);
    batch[0].outcome
}

pub(crate) fn apply<H: PowerHal>(
    hal: &mut H,
    key: &str,
    cap: MicroWatts,
) -> Result<Applied, PortError<H::Error>> {
    let handle = find(hal, key).0;
    hal.apply(handle, Setting::Power(cap))
}

pub(crate) fn effective<H: PowerHal>(hal: &mut H, key: &str, cap: MicroWatts) -> (u64, bool) {
    let applied = apply(hal, key, cap).unwrap_or_else(|_| panic!("{cap} on {key}"));
    let Setting::Power(limit) = applied.effective() else { panic!("{applied:?}") };
    (limit.get(), applied.outcome() == ApplyOutcome::Exact)
}

pub(crate) fn kind<T: std::fmt::Debug, E: power_hal::Error>(answer: Result<T, E>) -> ErrorKind {
    answer.unwrap_err().kind()
}

fn text(write: &Write) -> String {
    String::from_utf8(write.data.clone()).unwrap()
}

fn open(name: &str) -> Option<(Bench, Files)> {
    let bench = Bench::mounted(name)?;
    let hal = bench.open();
    Some((bench, hal))
}

#[test]
fn floor_to_125_mw() {
    let Some((_bench, mut hal)) = open("xeon-2s") else { return };
    assert_eq!(effective(&mut hal, "package-0", MicroWatts::new(100_123_456)), (100_000_000, true));
    assert_eq!(effective(&mut hal, "package-0", MicroWatts::new(99_999_999)), (99_875_000, true));
}

/// The driver accepts 0 as a limit.
#[test]
fn write_0_accepted_by_the_driver_is_never_asked_of_it() {
    let Some((bench, mut hal)) = open("xeon-2s") else { return };
    assert_eq!(kind(apply(&mut hal, "package-0", MicroWatts::ZERO)), ErrorKind::OutOfRange);
    assert!(bench.writes().is_empty());
    assert_eq!(effective(&mut hal, "package-0", MicroWatts::new(1)), (1_000_000, false), "1 µW would be 0 W");
}

/// Fix list agent S16.
#[test]
fn what_would_wrap_4096_w_to_0_and_5000_w_to_904_w_is_the_end_of_the_range() {
    let Some((_bench, mut hal)) = open("client") else { return };
    for huge in [w(4_096), w(5_000), MicroWatts::MAX] {
        assert_eq!(effective(&mut hal, "package-0", huge), (CEILING_UW, false));
    }
    let Some((_bench, mut hal)) = open("xeon-2s") else { return };
    assert_eq!(
        effective(&mut hal, "package-1", w(5_000)),
        (250_000_000, false),
        "the package's own largest value"
    );
}

/// The driver refuses a trailing space and accepts a newline: the written text has neither.
#[test]
fn what_is_written_is_digits() {
    let Some((bench, mut hal)) = open("xeon-2s") else { return };
    effective(&mut hal, "package-0", w(100));
    let writes = bench.writes();
    assert!(!writes.is_empty());
    for write in writes {
        assert!(text(&write).bytes().all(|byte| byte.is_ascii_digit()), "{write:?}");
    }
}

#[test]
fn locked_limits_are_said_to_be_locked_on_kernels_of_any_age() {
    for lock in [RegisterLock::WindowIgnored, RegisterLock::WindowRefused] {
        let Some((bench, mut hal)) = open("xeon-2s") else { return };
        bench.zone("intel-rapl:0", |slot| slot.zone.lock = lock);
        assert_eq!(kind(apply(&mut hal, "package-0", w(100))), ErrorKind::Locked, "ENODATA");
        assert_eq!(
            kind(apply(&mut hal, "package-0", w(250))),
            ErrorKind::Locked,
            "ENOSYS: nothing but the switch to write"
        );
        assert!(hal.originals().inner().is_empty(), "nothing was touched");
        assert_eq!(
            effective(&mut hal, "package-1", w(100)),
            (100_000_000, true),
            "the other package is not locked"
        );
    }
}

/// A locked zone reads as switched off while its limit holds; only a write distinguishes it from a zone that is
/// off.
#[test]
fn locked_enabled_reads_0_while_the_limit_of_250_w_holds() {
    let Some((bench, mut hal)) = open("xeon-locked") else { return };
    let limit = |hal: &mut Files| sample(hal, "package-0").unwrap().power_limit;
    assert_eq!(limit(&mut hal), Ok(MicroWatts::new(CEILING_UW)), "off, as far as can be known");
    assert_eq!(kind(apply(&mut hal, "package-0", w(100))), ErrorKind::Locked);
    assert_eq!(limit(&mut hal), Ok(w(250)));
    hal.describe().unwrap();
    assert_eq!(limit(&mut hal), Ok(w(250)), "what was learnt outlives an enumeration");
    assert!(bench.writes().iter().all(|write| matches!(write.on, VirtualAttribute::TimeWindow(..))));
}

/// 5e5 → 512 units of 976 µs, and 28e6 → 27983872 afterwards.
#[test]
fn windows_are_half_a_second_for_a_cap_and_the_vendors_after_it() {
    let Some((bench, mut hal)) = open("xeon-2s") else { return };
    let window =
        || bench.zone("intel-rapl:0", |slot| (slot.zone.time_window_us(0), slot.zone.time_window_us(1)));
    assert_eq!(window(), (27_983_872, 1_952));
    effective(&mut hal, "package-0", w(100));
    assert_eq!(window(), (499_712, 1_952));
    bench.writes();
    effective(&mut hal, "package-0", w(100));
    assert!(bench.writes().is_empty(), "what stands is not written again");
    let handle = find(&hal, "package-0").0;
    assert_eq!(hal.release(handle).unwrap(), Released::Restored);
    assert_eq!(window(), (27_983_872, 1_952));
}

#[test]
fn a_window_that_is_short_already_is_left_alone() {
    let Some((bench, mut hal)) = open("xeon-2s") else { return };
    bench.zone("intel-rapl:0", |slot| slot.zone.write_time_window(0, b"900").unwrap());
    effective(&mut hal, "package-0", w(100));
    assert!(!bench.writes().iter().any(|write| matches!(write.on, VirtualAttribute::TimeWindow(..))));
    assert_eq!(bench.zone("intel-rapl:0", |slot| slot.zone.time_window_us(0)), 976);
}

/// `enabled` 1 switches both limits on, 0 both off. Fix list agent S17.
#[test]
fn a_cap_writes_enabled_1_where_it_reads_0_and_a_release_does_not_touch_one_that_was_on() {
    let Some((bench, mut hal)) = open("xeon-2s") else { return };
    effective(&mut hal, "package-1", w(100));
    effective(&mut hal, "package-0", w(100));
    bench.zone("intel-rapl:0", |slot| slot.zone.come_back());
    effective(&mut hal, "package-0", w(110));
    let zero = find(&hal, "package-0").0;
    hal.release(zero).unwrap();
    let writes = bench.writes();
    let switched: Vec<_> =
        writes.iter().filter(|write| matches!(write.on, VirtualAttribute::Enabled(_))).collect();
    assert_eq!(switched.len(), 1);
    assert_eq!((text(switched[0]), &switched[0].on), ("1".into(), &VirtualAttribute::Enabled(0)));
}

/// Limits in W and the switches of both.
fn both(bench: &Bench, id: &str) -> [(u64, bool); 2] {
    let each = |slot: &mut rig::machine::ZoneSlot| {
        [0, 1].map(|at| (slot.zone.power_limit_uw(at) / 1_000_000, slot.zone.constraints[at].enabled))
    };
    bench.zone(id, each)
}

/// A zone that was off is off again, with its original values, and 0 W is never in force in between.
#[test]
fn a_zone_that_was_off_is_off_again_with_its_values() {
    for (long, short) in [(0, 0), (250, 0), (0, 300), (200, 280)] {
        let Some((bench, mut hal)) = open("xeon-2s") else { return };
        bench.zone("intel-rapl:0", |slot| {
            slot.zone.write_enabled(b"0").unwrap();
            slot.zone.write_power_limit(0, format!("{long}000000").as_bytes()).unwrap();
            slot.zone.write_power_limit(1, format!("{short}000000").as_bytes()).unwrap();
        });
        let before = bench.zone("intel-rapl:0", |slot| slot.zone.time_window_us(0));
        // The second time, somebody switches it off in between.
        for by_somebody in [false, true] {
            assert_eq!(effective(&mut hal, "package-0", w(100)), (100_000_000, true));
            assert_eq!(both(&bench, "intel-rapl:0"), [(100, true), (120, true)]);
            if by_somebody {
                bench.zone("intel-rapl:0", |slot| slot.zone.come_back());
            }
            bench.writes();
            let handle = find(&hal, "package-0").0;
            assert_eq!(hal.release(handle).unwrap(), Released::Restored);
            assert_eq!(both(&bench, "intel-rapl:0"), [(long, false), (short, false)]);
            assert_eq!(bench.zone("intel-rapl:0", |slot| slot.zone.time_window_us(0)), before);
            let writes = bench.writes();
            assert_eq!(
                (text(&writes[0]), &writes[0].on),
                ("0".into(), &VirtualAttribute::Enabled(0)),
                "it is off first"
            );
            let limit = sample(&mut hal, "package-0").unwrap().power_limit;
            assert_eq!(limit, Ok(MicroWatts::new(CEILING_UW)));
        }
    }
}

/// The switch reports success but does not change: 0 W written then would come into force.
#[test]
fn what_a_zone_that_does_not_switch_off_was_is_not_written() {
    let Some((bench, mut hal)) = open("xeon-2s") else { return };
    bench.zone("intel-rapl:0", |slot| {
        slot.zone.write_enabled(b"0").unwrap();
        slot.zone.write_power_limit(1, b"0").unwrap();
    });
    effective(&mut hal, "package-0", w(100));
    let answer = Effect::Answers(b"1\n".to_vec());
    bench.fault(VirtualAttribute::Enabled(0), Direction::Read, answer, u32::MAX);
    bench.writes();
    let handle = find(&hal, "package-0").0;
    assert_eq!(kind(hal.release(handle)), ErrorKind::Locked);
    assert_eq!(bench.writes().len(), 1, "the switch alone");
    bench.machine.lock().faults().heal();
    assert_eq!(hal.release(handle).unwrap(), Released::Restored);
    assert_eq!(both(&bench, "intel-rapl:0"), [(250, false), (0, false)]);
}

/// The vendor's default: the long-term limit on, and a short-term limit of 0 W that is off.
#[test]
fn a_short_term_limit_of_0_w_that_is_off_by_itself_is_left_alone_and_never_in_force() {
    let Some((bench, mut hal)) = open("xeon-2s-new") else { return };
    effective(&mut hal, "package-0", w(100));
    assert_eq!(both(&bench, "intel-rapl:0"), [(100, true), (0, false)]);
    let release = |hal: &mut Files| {
        let handle = find(hal, "package-0").0;
        assert_eq!(hal.release(handle).unwrap(), Released::Restored);
    };
    release(&mut hal);
    assert_eq!(both(&bench, "intel-rapl:0"), [(250, true), (0, false)]);
    // After its zone was switched off, it cannot be off while the other is on: then it is set to limit nothing.
    for while_capped in [true, false] {
        effective(&mut hal, "package-1", w(100));
        bench.zone("intel-rapl:2", |slot| slot.zone.come_back());
        if while_capped {
            assert_eq!(effective(&mut hal, "package-1", w(110)), (110_000_000, true));
            assert_eq!(both(&bench, "intel-rapl:2"), [(110, true), (4_095, true)]);
        }
        let handle = find(&hal, "package-1").0;
        assert_eq!(hal.release(handle).unwrap(), Released::Restored);
        assert_eq!(both(&bench, "intel-rapl:2"), [(250, true), (4_095, true)]);
        bench.zone("intel-rapl:2", |slot| {
            slot.zone.constraints[1] = rig::powercap::Constraint {
                power_raw: 0,
                enabled: false,
                clamps: false,
                ..slot.zone.constraints[1].clone()
            }
        });
    }
}

/// PL2 is lowered to a fifth above the cap, and never raised above its original. Fix list agent S17.
#[test]
fn the_short_term_limit_follows_the_cap() {
    let Some((bench, mut hal)) = open("xeon-2s") else { return };
    let short = || bench.zone("intel-rapl:0", |slot| slot.zone.power_limit_uw(1) / 1_000);
    for (cap, expected) in
        [(100, 120_000), (50, 60_000), (200, 240_000), (250, 300_000), (1, 1_125), (240, 288_000)]
    {
        effective(&mut hal, "package-0", w(cap));
        assert_eq!(short(), expected, "{cap} W");
    }
    let handle = find(&hal, "package-0").0;
    hal.release(handle).unwrap();
    assert_eq!(short(), 300_000);
}

#[test]
fn amd_zones_count_energy_and_limit_nothing() {
    let Some((bench, mut hal)) = open("epyc") else { return };
    let (_, domain) = find(&hal, "package-0");
    assert!(!domain.has(Control::Power) && domain.meter().is_some());
    assert_eq!(kind(apply(&mut hal, "package-0", w(100))), ErrorKind::NotSupported);
    assert!(matches!(sample(&mut hal, "package-1").unwrap().meter, Ok(Measured::Energy(_))));
    assert!(bench.writes().is_empty(), "`enabled` takes a 1 there and does nothing with it");
    assert_eq!(hal.domains().len(), 2, "core zones are no packages");
}

#[test]
fn a_zone_that_comes_back_with_enabled_0_is_switched_on_with_the_next_cap() {
    let Some((bench, mut hal)) = open("xeon-2s") else { return };
    effective(&mut hal, "package-0", w(100));
    bench.zone("intel-rapl:0", |slot| slot.present = false);
    assert_eq!(sample(&mut hal, "package-0"), Err(ErrorKind::Gone));
    assert!(sample(&mut hal, "package-1").is_ok());
    hal.describe().unwrap();
    assert_eq!(hal.domains().len(), 1);
    bench.zone("intel-rapl:0", |slot| {
        slot.present = true;
        slot.zone.come_back();
    });
    hal.describe().unwrap();
    let back = sample(&mut hal, "package-0").unwrap();
    assert_eq!(
        back.power_limit,
        Ok(MicroWatts::new(CEILING_UW)),
        "the limit's value stands, and limits nothing"
    );
    assert_eq!(effective(&mut hal, "package-0", w(100)), (100_000_000, true));
    assert!(bench.zone("intel-rapl:0", |slot| slot.zone.enabled()));
    let handle = find(&hal, "package-0").0;
    assert_eq!(hal.release(handle).unwrap(), Released::Restored);
    assert_eq!(bench.zone("intel-rapl:0", |slot| slot.zone.power_limit_uw(0)), 250_000_000);
}

/// One unit is 61.035 or 15.258 µJ; the port counts whole microjoules and rounds up.
#[test]
fn ranges_are_262143328850_and_65532610987_and_wrap_one_unit_later() {
    for (name, modulus) in [("xeon-2s", 262_143_328_850 + 62), ("epyc", 65_532_610_987 + 16)] {
        let Some((_bench, hal)) = open(name) else { return };
        let Some(Meter::Energy(counter)) = find(&hal, "package-0").1.meter() else { panic!("{name}") };
        assert_eq!(counter.modulus(), Some(MicroJoules::new(modulus)), "{name}");
    }
}

/// Fix list agent S1, S3: psys is beside the packages, dram and core below them.
#[test]
fn psys_at_the_top_level_and_zones_below_are_no_domains_and_never_written() {
    for name in ["xeon-2s", "client", "xeon-tpmi"] {
        let Some((bench, mut hal)) = open(name) else { return };
        let keys: Vec<String> =
            hal.domains().as_slice().iter().map(|domain| domain.key().as_str().to_owned()).collect();
        let packages: &[&str] = if name == "client" { &["package-0"] } else { &["package-0", "package-1"] };
        assert_eq!(keys, packages, "{name}");
        for key in packages {
            effective(&mut hal, key, w(20));
            let handle = find(&hal, key).0;
            hal.release(handle).unwrap();
        }
        let machine = bench.machine.lock();
        let zones = machine.zones();
        let written = bench.writes();
        assert!(!written.is_empty());
        for write in written {
            let (VirtualAttribute::PowerLimit(at, constraint) | VirtualAttribute::TimeWindow(at, constraint)) =
                write.on
            else {
                panic!("{write:?}")
            };
            assert!(zones[at].zone.name.starts_with("package-"), "{name}: {write:?}");
            assert_ne!(zones[at].zone.constraints[constraint].name, "peak_power", "{name}");
        }
    }
}

#[test]
fn ids_are_hexadecimal_and_say_nothing_of_the_package() {
    let Some(bench) = Bench::of("xeon-2s", |machine| {
        machine.change(|zones, _, _| {
            for slot in zones.iter_mut() {
                let id = slot
                    .zone
                    .id
                    .replace("intel-rapl:0", "intel-rapl:b")
                    .replace("intel-rapl:2", "intel-rapl:a");
                slot.zone.id = id;
            }
        });
    }) else {
        return;
    };
    let mut hal = bench.open();
    assert_eq!(effective(&mut hal, "package-0", w(90)), (90_000_000, true));
    assert_eq!(bench.zone("intel-rapl:b", |slot| slot.zone.power_limit_uw(0)), 90_000_000);
    assert_eq!(bench.zone("intel-rapl:a", |slot| slot.zone.power_limit_uw(0)), 250_000_000);
}

/// Fix list agent S2: a percentage refers to the package's largest limit, not to dram's 41 W.
#[test]
fn the_range_is_the_packages_own() {
    let Some((_bench, hal)) = open("xeon-2s") else { return };
    assert_eq!(find(&hal, "package-0").1.power().unwrap().max(), Some(w(250)));
}

/// Seen on a laptop: a long-term limit of 35 W with a maximum of 28 W, a short-term limit of 60 W with 0.
#[test]
fn a_largest_value_below_the_limit_in_use_is_unknown_and_stays_so() {
    let Some((bench, mut hal)) = open("client") else { return };
    let max = |hal: &Files| find(hal, "package-0").1.power().unwrap().max();
    assert_eq!(max(&hal), None);
    effective(&mut hal, "package-0", w(15));
    let generation = hal.domains().generation();
    hal.describe().unwrap();
    assert_eq!(
        (max(&hal), hal.domains().generation()),
        (None, generation),
        "15 W of our own do not make 28 W true"
    );
    let journal = hal.originals().clone();
    let again = hal_rapl::Powercap::open(bench.root(), bench.ticks.clone(), journal).unwrap();
    assert_eq!(max(&again), None, "and neither does a restart");
}

/// The real draw, not only the files: the plant behind the zone falls to the cap within three windows.
#[test]
fn a_capped_package_draws_its_cap() {
    let Some((bench, mut hal)) = open("xeon-2s") else { return };
    let Some(Meter::Energy(counter)) = find(&hal, "package-0").1.meter() else { panic!("no counter") };
    let watts = |hal: &mut Files| {
        let mut read = || match sample(hal, "package-0").unwrap() {
            Sample { meter: Ok(Measured::Energy(energy)), .. } => energy,
            other => panic!("{other:?}"),
        };
        let before = read();
        bench.tick(Micros::new(1_000_000));
        counter.between(before, read()).unwrap().get() / 1_000_000
    };
    bench.tick(Micros::new(2_000_000));
    let uncapped = watts(&mut hal);
    assert!((245..=255).contains(&uncapped), "{uncapped} W");
    effective(&mut hal, "package-0", w(120));
    bench.tick(Micros::new(3_000_000));
    let capped = watts(&mut hal);
    assert!((115..=121).contains(&capped), "{capped} W");
}

/// The memory of a package has a zone of its own. The rig's memory draws a part of its package's power.
#[test]
fn the_memory_of_a_package_is_counted_for_itself_and_in_no_package() {
    let Some((bench, mut hal)) = open("xeon-2s") else { return };
    assert_eq!(hal.domains().len(), 2, "a memory is no package");
    let domain = find(&hal, "package-1").1;
    let (Some(Meter::Energy(counter)), Some(dram)) = (domain.meter(), domain.dram()) else {
        panic!("{domain:?}")
    };
    let read = |hal: &mut Files| {
        let told = sample(hal, "package-1").unwrap();
        let Ok(Measured::Energy(energy)) = told.meter else { panic!("{told:?}") };
        (energy, told.dram.unwrap())
    };
    let before = read(&mut hal);
    bench.tick(Micros::new(10_000_000));
    let after = read(&mut hal);
    let (package, memory) =
        (counter.between(before.0, after.0).unwrap(), dram.between(before.1, after.1).unwrap());
    assert!(memory > MicroJoules::new(1_000_000) && memory < package, "{memory} of {package}");
    // The sub-zone disappears: the package stays, and its memory is not measured any more.
    bench.zone("intel-rapl:2:0", |slot| slot.present = false);
    assert_eq!(sample(&mut hal, "package-1").unwrap().dram, Err(ErrorKind::Gone));
    assert!(sample(&mut hal, "package-1").unwrap().meter.is_ok());
    hal.describe().unwrap();
    assert_eq!(find(&hal, "package-1").1.dram(), None);
    assert_eq!(sample(&mut hal, "package-1").unwrap().dram, Err(ErrorKind::NotSupported));
}

/// PKG_PERF_STATUS by its register; powercap shows no such time.
#[test]
fn a_register_counts_for_how_long_the_limit_holds_a_package_back() {
    let Some((_, hal)) = open("xeon-2s") else { return };
    assert_eq!(find(&hal, "package-0").1.throttled(), None, "unknown by powercap");
    // With powercap the registers are beside it, and only read.
    let Some(bench) = Bench::mounted("xeon-2s") else { return };
    let io = MsrDevices::new(bench.root(), DeviceKind::Msr, Access::Read);
    let mut hal = bench.open().with_registers(Box::new(io)).unwrap();
    let meter = find(&hal, "package-1").1.throttled().unwrap();
    effective(&mut hal, "package-1", w(100));
    bench.tick(Micros::new(5_000_000));
    let told = |hal: &mut Files| sample(hal, "package-1").map(|it| (it.at, it.throttled.unwrap())).unwrap();
    let before = told(&mut hal);
    bench.tick(Micros::new(1_000_000));
    assert!(meter.share(before, told(&mut hal)).unwrap() > Percent::from_int(99));
    // A part whose limits are behind TPMI has no such register.
    if let Some(other) = Bench::mounted("xeon-tpmi") {
        let io = MsrDevices::new(other.root(), DeviceKind::Msr, Access::Read);
        let hal = other.open().with_registers(Box::new(io)).unwrap();
        assert!(hal.domains().iter().all(|(_, domain)| domain.throttled().is_none()));
    }
    let Some(bench) = Bench::of("xeon-2s", |machine| machine.boot_without_powercap()) else { return };
    let mut hal = bench.registers().unwrap();
    let meter = find(&hal, "package-0").1.throttled().unwrap();
    let share = |hal: &mut Registers| {
        let told =
            |hal: &mut Registers| sample(hal, "package-0").map(|it| (it.at, it.throttled.unwrap())).unwrap();
        let before = told(hal);
        bench.tick(Micros::new(1_000_000));
        meter.share(before, told(hal)).unwrap()
    };
    effective(&mut hal, "package-0", w(100));
    bench.tick(Micros::new(5_000_000));
    // The register counts in units of 2⁻¹⁰ s.
    assert!(share(&mut hal) > Percent::from_int(99));
}
