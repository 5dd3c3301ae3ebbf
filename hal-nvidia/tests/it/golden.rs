//! The golden behaviours of NVML (facts of the hardware, section 11), each under the name of its row, through the HAL.

use crate::support::{Bench, FIRST, Hal, SECOND, THIRD, find, key, keys, w};
use hal_nvidia::{Absent, Library, LimitScope, Nvidia, NvmlFault, NvmlOperation};
use power_hal::contract::RefusableOriginals;
use power_hal::{
    ApplyOutcome, Control, Error, ErrorKind, Handle, Measured, OriginalsInMemory, PortError, PowerHal,
    Reading, Released, Sample, Setting, Slowdown, Slowdowns, Throttled, ThrottledMeter,
};
use power_units::{Celsius, MicroJoules, MicroWatts, Micros, Percent};

fn sample(hal: &mut Hal, domain: Handle) -> Result<Sample, ErrorKind> {
    let mut batch = [Reading::new(domain)];
    hal.sample(&mut batch);
    batch[0].outcome
}

fn limit(hal: &mut Hal, domain: Handle) -> MicroWatts {
    sample(hal, domain).unwrap().power_limit.unwrap()
}

fn apply(hal: &mut Hal, domain: Handle, watts: u64) -> Result<ApplyOutcome, ErrorKind> {
    let applied = hal.apply(domain, Setting::Power(w(watts)));
    applied.map(|applied| applied.outcome()).map_err(|failure| failure.kind())
}

fn clamped(requested: u64, effective: u64) -> ApplyOutcome {
    ApplyOutcome::Clamped { requested: Setting::Power(w(requested)), effective: Setting::Power(w(effective)) }
}

/// Row: InvalidArg out of range.
#[test]
fn invalid_arg_out_of_range_is_never_provoked_and_is_out_of_range_when_it_comes() {
    let bench = Bench::two();
    let mut hal = bench.open();
    let first = find(&hal, &FIRST);
    assert_eq!(apply(&mut hal, first, 100), Ok(clamped(100, 200)));
    assert_eq!(apply(&mut hal, first, 900), Ok(clamped(900, 700)));
    assert_eq!(apply(&mut hal, first, 5_000_000), Ok(clamped(5_000_000, 700)));
    assert_eq!(apply(&mut hal, first, 0), Err(ErrorKind::OutOfRange));
    assert_eq!(bench.get("gpus/b/log").unwrap(), "200000\n700000\n700000");
    // The range has shrunk since it was described: the library refuses, and the limit stays.
    bench.put("gpus/b/max_mw", "500000").unwrap();
    assert_eq!(apply(&mut hal, first, 600), Err(ErrorKind::OutOfRange));
    assert_eq!(bench.number("gpus/b/limit_mw"), 700_000);
    hal.describe().unwrap();
    assert_eq!(sample(&mut hal, first), Err(ErrorKind::Gone), "another range is another list");
    let first = find(&hal, &FIRST);
    assert_eq!(apply(&mut hal, first, 600), Ok(clamped(600, 500)));
}

/// Row: NoPermission.
#[test]
fn no_permission_is_said_and_changes_and_keeps_nothing() {
    let bench = Bench::two();
    bench.put("gpus/b/errors", "nvmlDeviceSetPowerManagementLimit 4").unwrap();
    let mut hal = bench.open();
    let first = find(&hal, &FIRST);
    let Err(PortError::Hal(error)) = hal.apply(first, Setting::Power(w(450))) else {
        panic!("it was applied")
    };
    assert_eq!(error.kind(), ErrorKind::PermissionDenied);
    assert_eq!((error.deed, error.fault), (NvmlOperation::Set(450_000), NvmlFault::Code(4)));
    assert_eq!(limit(&mut hal, first), w(700));
    assert!(hal.originals().inner().is_empty());
    assert_eq!(hal.release(first), Ok(Released::Untouched));
    // The other card is not affected.
    let second = find(&hal, &SECOND);
    assert_eq!(apply(&mut hal, second, 450), Ok(ApplyOutcome::Exact));
}

/// Row: NotSupported.
#[test]
fn not_supported_is_what_a_card_does_not_have_and_never_zero() {
    // Fix list agent C18.
    let bench = Bench::two();
    for file in ["energy_mj", "power_mw", "instant_mw", "average_mw", "min_mw"] {
        bench.remove(&format!("gpus/b/{file}"));
    }
    let mut hal = bench.open();
    let first = find(&hal, &FIRST);
    let described = *Hal::domains(&hal).get(first).unwrap();
    assert!(described.meter().is_none() && described.power().is_none());
    let read = sample(&mut hal, first).unwrap();
    assert_eq!((read.meter, read.power_limit), (Err(ErrorKind::NotSupported), Err(ErrorKind::NotSupported)));
    assert_eq!(apply(&mut hal, first, 450), Err(ErrorKind::NotSupported));
    assert_eq!(bench.get("gpus/b/log"), None);
    let complaint = hal.complaints()[0];
    assert_eq!((complaint.gpu, complaint.deed), (Some(key(&FIRST)), NvmlOperation::Range));
}

/// Row: GpuLost.
#[test]
fn gpu_lost_is_gone_until_it_is_back() {
    let bench = Bench::two();
    let mut hal = bench.open();
    let (first, second) = (find(&hal, &FIRST), find(&hal, &SECOND));
    assert_eq!(apply(&mut hal, first, 450), Ok(ApplyOutcome::Exact));
    bench.put("gpus/b/errors", "* 15").unwrap();
    assert_eq!(sample(&mut hal, first), Err(ErrorKind::Gone));
    assert_eq!(apply(&mut hal, first, 300), Err(ErrorKind::Gone));
    assert_eq!(limit(&mut hal, second), w(700));
    assert_eq!(keys(&hal.describe().unwrap()), [key(&SECOND)]);
    assert_eq!(hal.complaints()[0].fault, NvmlFault::Code(15));
    assert!(hal.originals().inner().len() == 1 && hal.absent().is_none());
    bench.remove("gpus/b/errors");
    assert_eq!(keys(&hal.describe().unwrap()), [key(&FIRST), key(&SECOND)]);
    assert_eq!(sample(&mut hal, first), Err(ErrorKind::Gone), "a handle from before");
    let first = find(&hal, &FIRST);
    assert_eq!(limit(&mut hal, first), w(450));
    assert_eq!(hal.release(first), Ok(Released::Restored));
    assert_eq!(bench.number("gpus/b/limit_mw"), 700_000);
}

/// Row: GpuLost, temporarily: the HAL needs another session after it, and begins one at the next enumeration.
#[test]
fn a_card_that_was_lost_between_two_looks_is_there_at_the_next() {
    let bench = Bench::two();
    let mut hal = bench.open();
    let first = find(&hal, &FIRST);
    bench.put("gpus/b/errors", "* 15").unwrap();
    assert_eq!(sample(&mut hal, first), Err(ErrorKind::Gone));
    bench.remove("gpus/b/errors");
    assert_eq!(sample(&mut hal, first), Err(ErrorKind::Gone));
    hal.describe().unwrap();
    assert_eq!(limit(&mut hal, first), w(700), "the list is the same, so the handle is good");
}

/// Row: missing symbol.
#[test]
fn a_missing_symbol_is_not_supported_and_allocates_nothing_on_the_hot_path() {
    let bench = Bench::two();
    bench
        .library_without(&["nvmlDeviceGetTotalEnergyConsumption", "nvmlDeviceGetEnforcedPowerLimit"])
        .unwrap();
    let mut hal = bench.open();
    let first = find(&hal, &FIRST);
    // Without the counter the meter is the mean power; without the enforced limit the requested one is read back.
    let mut batch = [Reading::new(first)];
    let counted = allocation_counter::measure(|| hal.sample(&mut batch));
    assert_eq!(counted.count_total, 0);
    let read = batch[0].outcome.unwrap();
    assert_eq!((read.meter, read.power_limit), (Ok(Measured::Power(w(70))), Ok(w(700))));
    assert_eq!(apply(&mut hal, first, 450), Ok(ApplyOutcome::Exact));
}

/// Row: missing symbol, of the function that sets a limit.
#[test]
fn a_library_that_cannot_set_a_limit_has_none() {
    let bench = Bench::two();
    bench.library_without(&["nvmlDeviceSetPowerManagementLimit"]).unwrap();
    let mut hal = bench.open();
    let first = find(&hal, &FIRST);
    assert_eq!(apply(&mut hal, first, 450), Err(ErrorKind::NotSupported));
    assert_eq!(hal.complaints()[0].fault, NvmlFault::Missing);
}

/// Row: missing symbol, of fields: the older function is used.
#[test]
fn a_library_without_fields_says_its_power_by_the_older_function() {
    let bench = Bench::two();
    bench.library_without(&["nvmlDeviceGetFieldValues"]).unwrap();
    bench.remove("gpus/b/energy_mj");
    bench.put("gpus/b/power_mw", "81500").unwrap();
    let mut hal = bench.open();
    let first = find(&hal, &FIRST);
    assert_eq!(sample(&mut hal, first).unwrap().meter, Ok(Measured::Power(MicroWatts::new(81_500_000))));
    let draw = hal.draw(first).unwrap();
    assert_eq!(draw.usage, Ok(MicroWatts::new(81_500_000)));
    assert_eq!((draw.instant, draw.average), (Err(ErrorKind::NotSupported), Err(ErrorKind::NotSupported)));
}

/// Row: missing symbol, of the function without which the wrapper panics when it is dropped.
#[test]
fn a_library_that_is_not_nvml_is_absent() {
    for function in ["nvmlInit_v2", "nvmlShutdown"] {
        let bench = Bench::two();
        bench.library_without(&[function]).unwrap();
        let hal = bench.open();
        assert_eq!(hal.absent(), Some(&Absent::Foreign { path: bench.path() }), "{function}");
        assert!(Hal::domains(&hal).is_empty());
    }
}

/// Row: Enforced < Limit (OOB).
#[test]
fn enforced_below_limit_is_clamped_and_the_limit_that_was_asked_for_is_the_original() {
    let bench = Bench::two();
    bench.put("gpus/b/oob_mw", "350000").unwrap();
    let mut hal = bench.open();
    let first = find(&hal, &FIRST);
    assert_eq!(limit(&mut hal, first), w(350));
    assert_eq!(apply(&mut hal, first, 500), Ok(clamped(500, 350)));
    assert_eq!(bench.number("gpus/b/limit_mw"), 500_000);
    assert_eq!(apply(&mut hal, first, 300), Ok(ApplyOutcome::Exact));
    let original = hal.originals().inner().clone();
    assert_eq!(
        power_hal::Originals::kept(&original, &key(&FIRST), Control::Power).unwrap().words(),
        [700_000]
    );
    assert_eq!(hal.release(first), Ok(Released::Restored));
    assert_eq!(bench.number("gpus/b/limit_mw"), 700_000);
}

/// Row: limit reset to default after "driver reload".
#[test]
fn a_driver_reload_is_gone_then_the_default_is_seen_and_set_again() {
    // Fix list agent S18.
    let bench = Bench::three();
    bench.put("gpus/c/limit_mw", "300000").unwrap();
    let mut hal = bench.open();
    let third = find(&hal, &THIRD);
    assert_eq!(apply(&mut hal, third, 295), Ok(ApplyOutcome::Exact));
    bench.reload_driver().unwrap();
    // The driver also renumbers its cards.
    bench.put("order", "c\nb\na").unwrap();
    assert_eq!(sample(&mut hal, third), Err(ErrorKind::Gone));
    assert_eq!(apply(&mut hal, third, 295), Err(ErrorKind::Gone));
    assert_eq!(hal.release(third).map_err(|failure| failure.kind()), Err(ErrorKind::Gone));
    // The list was not changed, so the same cards are behind the same handles.
    hal.describe().unwrap();
    assert_eq!(keys(&Hal::domains(&hal)), [key(&FIRST), key(&SECOND), key(&THIRD)]);
    assert_eq!(
        limit(&mut hal, third),
        MicroWatts::new(325_500_000),
        "the default, which a host sees and raises"
    );
    assert_eq!(sample(&mut hal, third).unwrap().meter, Ok(Measured::Energy(MicroJoules::ZERO)));
    assert_eq!(apply(&mut hal, third, 295), Ok(ApplyOutcome::Exact));
    assert_eq!(bench.get("gpus/c/log").unwrap(), "295000\n295000");
    assert_eq!(bench.get("gpus/a/log"), None);
    // The limit from before the first touch, not the default that the reload set.
    assert_eq!(hal.release(third), Ok(Released::Restored));
    assert_eq!(bench.number("gpus/c/limit_mw"), 300_000);
}

#[test]
fn a_driver_that_is_unloaded_is_absent_until_it_is_loaded() {
    let bench = Bench::two();
    let mut hal = bench.open();
    let first = find(&hal, &FIRST);
    assert_eq!(apply(&mut hal, first, 450), Ok(ApplyOutcome::Exact));
    bench.end_sessions().unwrap();
    bench.put("errors", "nvmlInit_v2 9").unwrap();
    assert_eq!(sample(&mut hal, first), Err(ErrorKind::Gone));
    assert!(hal.describe().unwrap().is_empty());
    assert_eq!(hal.absent(), Some(&Absent::Driver { code: 9 }));
    assert!(hal.absent().unwrap().to_string().contains("driver not loaded"));
    assert_eq!(hal.originals().inner().len(), 1);
    bench.remove("errors");
    hal.describe().unwrap();
    assert_eq!(hal.absent(), None);
    let first = find(&hal, &FIRST);
    assert_eq!(hal.release(first), Ok(Released::Restored));
}

#[test]
fn a_session_that_cannot_begin_anew_leaves_the_last_list_and_reaches_nothing() {
    let bench = Bench::two();
    let mut hal = bench.open();
    let first = find(&hal, &FIRST);
    bench.end_sessions().unwrap();
    bench.put("errors", "nvmlInit_v2 18").unwrap();
    let error = hal.describe().unwrap_err();
    assert_eq!((error.deed, error.fault), (NvmlOperation::Initialise, NvmlFault::Code(18)));
    assert_eq!(Hal::domains(&hal).len(), 2);
    assert_eq!(sample(&mut hal, first), Err(ErrorKind::Gone));
    assert_eq!(apply(&mut hal, first, 450), Err(ErrorKind::Gone));
    assert!(hal.facts().gpus.is_empty());
    bench.remove("errors");
    hal.describe().unwrap();
    assert_eq!(limit(&mut hal, first), w(700), "the list is the same, so the handle is good");
}

/// Persistence mode is the administrator's: it is reported, and never set.
#[test]
fn persistence_is_a_fact() {
    let bench = Bench::two();
    bench.put("gpus/b/persistence", "0").unwrap();
    bench.remove("gpus/a/persistence");
    let facts = bench.open().facts();
    assert_eq!(facts.gpus.iter().map(|gpu| gpu.persistence).collect::<Vec<_>>(), [Some(false), None]);
    assert_eq!(bench.get("gpus/b/persistence").as_deref(), Some("0"));
}

#[test]
fn a_limit_is_written_in_whole_milliwatts_rounded_down() {
    let bench = Bench::two();
    let mut hal = bench.open();
    let first = find(&hal, &FIRST);
    let applied = hal.apply(first, Setting::Power(MicroWatts::new(450_000_999))).unwrap();
    assert_eq!(applied.outcome(), ApplyOutcome::Exact);
    assert_eq!(applied.effective(), Setting::Power(w(450)));
    assert_eq!(bench.get("gpus/b/log").unwrap(), "450000");
}

/// Fix list agent S19: a percentage below the range of a card becomes the minimum of that card.
#[test]
fn each_card_has_a_range_of_its_own() {
    let bench = Bench::three();
    let mut hal = bench.open();
    for (card, outcome) in [(FIRST, ApplyOutcome::Exact), (THIRD, clamped(250, 294))] {
        let domain = find(&hal, &card);
        assert_eq!(apply(&mut hal, domain, 250), Ok(outcome));
    }
}

#[test]
fn neither_sample_nor_apply_allocates() {
    let bench = Bench::three();
    let mut hal = bench.open();
    let domain = find(&hal, &FIRST);
    let mut batch = [FIRST, SECOND, THIRD].map(|card| Reading::new(find(&hal, &card)));
    let sampled = allocation_counter::measure(|| hal.sample(&mut batch));
    assert!(batch.iter().all(|reading| reading.outcome.is_ok()));
    let applied = allocation_counter::measure(|| {
        assert!(hal.apply(domain, Setting::Power(w(450))).is_ok());
    });
    let drawn = allocation_counter::measure(|| assert!(hal.draw(domain).is_ok()));
    bench.put("gpus/b/errors", "* 15").unwrap();
    let lost = allocation_counter::measure(|| {
        hal.sample(&mut batch);
        assert!(hal.apply(domain, Setting::Power(w(400))).is_err());
    });
    assert_eq!([sampled, applied, drawn, lost].map(|counted| counted.count_total), [0; 4]);
}

#[test]
fn the_limit_of_a_module_is_set_by_its_scope_and_restored_by_it() {
    let bench = Bench::module();
    let mut hal = bench.opened(LimitScope::Module).unwrap();
    let domain = find(&hal, &FIRST);
    assert_eq!(limit(&mut hal, domain), w(1_000));
    assert_eq!(sample(&mut hal, domain).unwrap().meter, Ok(Measured::Power(w(150))));
    assert_eq!(apply(&mut hal, domain, 600), Ok(ApplyOutcome::Exact));
    assert_eq!((bench.number("gpus/a/module/limit_mw"), bench.number("gpus/a/limit_mw")), (600_000, 700_000));
    // The next agent limits the card itself: it finds the original of the module, and recognises it.
    let journal = hal.originals().clone();
    drop(hal);
    let mut hal = bench.open_with(LimitScope::Gpu, journal).unwrap();
    let domain = find(&hal, &FIRST);
    let Err(PortError::Hal(error)) = hal.apply(domain, Setting::Power(w(450))) else {
        panic!("it was applied")
    };
    assert_eq!((error.kind(), error.fault), (ErrorKind::Busy, NvmlFault::OtherScope));
    assert_eq!(hal.release(domain), Ok(Released::Restored));
    assert_eq!(
        (bench.number("gpus/a/module/limit_mw"), bench.number("gpus/a/limit_mw")),
        (1_000_000, 700_000)
    );
    assert_eq!(apply(&mut hal, domain, 450), Ok(ApplyOutcome::Exact));
}

#[test]
fn a_card_without_a_module_has_no_limit_of_that_scope() {
    let bench = Bench::two();
    let mut hal = bench.opened(LimitScope::Module).unwrap();
    let domain = find(&hal, &FIRST);
    assert_eq!(apply(&mut hal, domain, 450), Err(ErrorKind::NotSupported));
    let bench = Bench::module();
    bench.library_without(&["nvmlDeviceSetPowerManagementLimit_v2"]).unwrap();
    let mut hal = bench.opened(LimitScope::Module).unwrap();
    let domain = find(&hal, &FIRST);
    assert_eq!(apply(&mut hal, domain, 450), Err(ErrorKind::NotSupported));
    assert_eq!(hal.complaints()[0].fault, NvmlFault::Missing);
}

#[test]
fn a_missing_library_is_absent_and_says_why() {
    let library = Library::at(crate::support::nowhere());
    let hal: Hal = Nvidia::open(
        library,
        LimitScope::Gpu,
        Bench::empty().ticks.clone(),
        RefusableOriginals::new(OriginalsInMemory::new()),
    )
    .unwrap();
    assert!(Hal::domains(&hal).is_empty());
    let why = hal.absent().unwrap().to_string();
    assert!(why.starts_with("/nowhere/libnvidia-ml.so.1 could not be loaded: "), "{why}");
    let bench = Bench::empty();
    assert_eq!(bench.open().absent(), Some(&Absent::Gpu));
    std::fs::write(bench.path(), "not a library").unwrap();
    assert!(matches!(bench.open().absent(), Some(Absent::Library { .. })));
}

/// What a card reports beside its power is what the library says of it, and what it does not have is not listed.
#[test]
fn what_a_card_reports_is_listed_and_what_it_lacks_is_not_supported() {
    let bench = Bench::two();
    for (file, text) in [
        ("celsius", "71"),
        ("busy_percent", "88"),
        ("vram_used_mib", "40000"),
        ("reasons", "36"),
        ("throttled_ns", "250000000"),
    ] {
        bench.put(&format!("gpus/b/{file}"), text).unwrap();
    }
    let mut hal = bench.open();
    let (first, second) = (find(&hal, &FIRST), find(&hal, &SECOND));
    let told = sample(&mut hal, first).unwrap();
    assert_eq!(told.temperature, Ok(Celsius::from_int(71)));
    assert_eq!(told.utilisation, Ok(Percent::from_int(88)));
    assert_eq!(told.memory.map(|it| (it.used_bytes() >> 20, it.total_bytes() >> 20)), Ok((40_000, 81_559)));
    // 36 is 0x20, the driver's limit of heat, and 0x04, its limit of power.
    assert_eq!(told.slowdowns, Ok(Slowdowns::NONE.with(Slowdown::PowerLimit).with(Slowdown::Heat)));
    assert_eq!(told.throttled, Ok(Throttled::Time(Micros::new(250_000))));
    // The other card has only a memory, none of which is in use.
    let bare = sample(&mut hal, second).unwrap();
    let lacking = ErrorKind::NotSupported;
    assert_eq!((bare.temperature, bare.utilisation), (Err(lacking), Err(lacking)));
    assert_eq!((bare.slowdowns, bare.throttled), (Err(lacking), Err(lacking)));
    assert_eq!(bare.memory.map(|it| it.used_bytes()), Ok(0));
    assert!(bare.meter.is_ok() && bare.dram == Err(lacking));
}

/// Memory in use is no matter of a cap, and its question costs as much as that for power.
#[test]
fn memory_in_use_is_asked_for_at_every_eighth_reading_and_of_one_card_after_the_other() {
    let bench = Bench::two();
    let mut hal = bench.open();
    let (first, second) = (find(&hal, &FIRST), find(&hal, &SECOND));
    let read = |hal: &mut Hal, number: u64| {
        bench.put("gpus/b/vram_used_mib", &number.to_string()).unwrap();
        bench.put("gpus/a/vram_used_mib", &number.to_string()).unwrap();
        bench.put("gpus/b/energy_mj", &number.to_string()).unwrap();
        let told = sample(hal, first).unwrap();
        assert_eq!(
            told.meter,
            Ok(Measured::Energy(MicroJoules::new(number * 1_000))),
            "the meter is always asked"
        );
        [told, sample(hal, second).unwrap()].map(|told| told.memory.unwrap().used_bytes() >> 20)
    };
    let shown: Vec<[u64; 2]> = (0..11).map(|number| read(&mut hal, number)).collect();
    assert_eq!(shown.iter().map(|both| both[0]).collect::<Vec<_>>(), [0, 1, 1, 1, 1, 1, 1, 1, 1, 9, 9]);
    assert_eq!(shown.iter().map(|both| both[1]).collect::<Vec<_>>(), [0, 0, 2, 2, 2, 2, 2, 2, 2, 2, 10]);
    // What is older than ten seconds is not shown, nor what was told before the cards were listed again.
    bench.ticks.advance(Micros::new(10_000_001));
    assert_eq!(read(&mut hal, 20), [20, 20]);
    assert_eq!(read(&mut hal, 21), [20, 20]);
    hal.describe().unwrap();
    assert_eq!(read(&mut hal, 22), [22, 22]);
}

#[test]
fn a_reading_that_fails_is_an_error_of_its_own_and_one_that_cannot_be_is_bad_data() {
    let bench = Bench::two();
    for (file, text) in [("celsius", "71"), ("busy_percent", "88"), ("throttled_ns", "1000")] {
        bench.put(&format!("gpus/b/{file}"), text).unwrap();
    }
    let mut hal = bench.open();
    let first = find(&hal, &FIRST);
    bench.put("gpus/b/celsius", "4294967295").unwrap();
    bench.put("gpus/b/busy_percent", "101").unwrap();
    bench.put("gpus/b/vram_used_mib", "90000").unwrap();
    bench.put("gpus/b/throttled_ns", "18446744073709551615").unwrap();
    let told = sample(&mut hal, first).unwrap();
    let bad = ErrorKind::BadData;
    assert_eq!((told.temperature, told.utilisation), (Err(bad), Err(bad)));
    assert_eq!((told.memory, told.throttled), (Err(bad), Err(bad)));
    assert!(told.meter.is_ok() && told.power_limit.is_ok(), "the power is not touched by that");
    // The card was put into MIG mode: it has no utilisation any more, and that is no zero.
    bench.put("gpus/b/errors", "nvmlDeviceGetUtilizationRates 3").unwrap();
    assert_eq!(sample(&mut hal, first).unwrap().utilisation, Err(ErrorKind::Io));
    hal.describe().unwrap();
    let first = find(&hal, &FIRST);
    assert_eq!(sample(&mut hal, first).unwrap().utilisation, Err(ErrorKind::NotSupported));
}

/// A card or a library without the counter of violations.
#[test]
fn without_a_counter_the_reason_of_the_instant_says_whether_the_limit_holds_a_card_back() {
    let bench = Bench::two();
    bench.put("gpus/b/reasons", "4").unwrap();
    let mut hal = bench.open();
    let first = find(&hal, &FIRST);
    assert_eq!(Hal::domains(&hal).get(first).unwrap().throttled(), Some(ThrottledMeter::Instant));
    assert_eq!(sample(&mut hal, first).unwrap().throttled, Ok(Throttled::Instant(true)));
    // Heat is no power limit.
    bench.put("gpus/b/reasons", "64").unwrap();
    assert_eq!(sample(&mut hal, first).unwrap().throttled, Ok(Throttled::Instant(false)));
}
