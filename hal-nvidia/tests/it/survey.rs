//! The listed GPUs, their descriptions, and the reaction to impossible answers.

use crate::support::{Bench, FIRST, Hal, SECOND, THIRD, find, key, keys, w};
use hal_nvidia::{Mig, MigInstance, NvidiaProcess, NvidiaUse, NvmlFault};
use power_hal::{Error, ErrorKind, Measured, Meter, PowerHal, Reading, Setting};
use power_units::MicroJoules;

#[test]
fn a_card_is_its_uuid_whatever_its_index() {
    let bench = Bench::three();
    let mut hal = bench.open();
    assert_eq!(keys(&Hal::domains(&hal)), [key(&FIRST), key(&SECOND), key(&THIRD)]);
    let generation = Hal::domains(&hal).generation();
    // With and without a new session in between.
    for end in [false, true] {
        bench.put("order", "c\na\nb").unwrap();
        if end {
            bench.end_sessions().unwrap();
        }
        hal.describe().unwrap();
        assert_eq!(Hal::domains(&hal).generation(), generation);
        let third = find(&hal, &THIRD);
        hal.apply(third, Setting::Power(w(300))).unwrap();
        assert_eq!((bench.number("gpus/c/limit_mw"), bench.number("gpus/a/limit_mw")), (300_000, 700_000));
    }
}

/// Fix list agent C19: a node that shows only MIG instances still has its cards, each once.
#[test]
fn a_mig_instance_is_no_domain_but_its_card_is() {
    let bench = Bench::two();
    bench.put("gpus/a/mig", "1").unwrap();
    for instance in ["i1", "i2"] {
        bench.put(&format!("gpus/{instance}/parent"), "a").unwrap();
        bench.put(&format!("gpus/{instance}/uuid"), "MIG-33333333-0b1c-4d7e-9a55-0123456789ab").unwrap();
        bench.put(&format!("gpus/{instance}/power_mw"), "1").unwrap();
        bench.put(&format!("gpus/{instance}/name"), "NVIDIA H100 80GB HBM3 MIG 1g.10gb+me").unwrap();
        bench.put(&format!("gpus/{instance}/vram_mib"), "9856").unwrap();
    }
    bench.put("gpus/i2/uuid", "MIG-22222222-0b1c-4d7e-9a55-0123456789ab").unwrap();
    bench.put("gpus/i2/name", "an instance").unwrap();
    let mut hal = bench.open();
    assert_eq!(keys(&Hal::domains(&hal)), [key(&FIRST), key(&SECOND)]);
    bench.put("order", "i1\ni2\nb").unwrap();
    assert_eq!(keys(&hal.describe().unwrap()), [key(&FIRST), key(&SECOND)]);
    let second = find(&hal, &SECOND);
    hal.apply(second, Setting::Power(w(300))).unwrap();
    assert_eq!(bench.number("gpus/a/limit_mw"), 300_000);
    assert_eq!(
        hal.facts().gpus.iter().map(|gpu| gpu.mig).collect::<Vec<_>>(),
        [Some(Mig::Off), Some(Mig::On)]
    );
    let instances: Vec<_> = hal.facts().gpus.into_iter().map(|gpu| gpu.instances).collect();
    let of = |uuid: &str, profile: Option<&str>| MigInstance {
        uuid: uuid.to_owned(),
        profile: profile.map(str::to_owned),
        vram_mib: Some(9_856),
    };
    let both = vec![
        of("MIG-22222222-0b1c-4d7e-9a55-0123456789ab", None),
        of("MIG-33333333-0b1c-4d7e-9a55-0123456789ab", Some("1g.10gb.me")),
    ];
    assert_eq!(instances, [vec![], both], "those of a card that is not divided are not looked for");
}

#[test]
fn the_processes_of_a_card_are_told_once_and_a_card_that_cannot_say_is_left_out() {
    let bench = Bench::two();
    let mut hal = bench.open();
    assert_eq!(hal.processes(), [], "no card says it");
    let put = |lines: &str| bench.put("gpus/b/processes", lines).unwrap();
    let of_first = |processes: &[(u32, u64)]| {
        let processes = processes.iter().map(|&(pid, percent)| NvidiaProcess { pid, percent });
        vec![NvidiaUse { key: key(&FIRST), processes: processes.collect() }]
    };
    put("1000000 4711 80 10 0 0");
    assert_eq!(hal.processes(), [], "that was before the first question, and nobody knows who used it since");
    put("1000000 4711 80 10 0 0\n2000000 4711 60 10 0 0\n2000000 4712 20 5 0 0\n2000000 0 9 9 9 9");
    assert_eq!(hal.processes(), of_first(&[(4711, 60), (4712, 20)]));
    assert_eq!(hal.processes(), of_first(&[]), "nothing is later");
    // More of them than there is room for at first.
    let many: Vec<String> = (1..=200).map(|pid| format!("3000000 {pid} 1 0 0 0")).collect();
    put(&many.join("\n"));
    assert_eq!(hal.processes()[0].processes.len(), 200);
    // The clock of the driver is set back: until then nobody knows who used it.
    put("1500000 4711 30 0 0 0");
    assert_eq!(hal.processes(), []);
    put("1500000 4711 30 0 0 0\n1600000 4712 7 0 0 0");
    assert_eq!(hal.processes(), of_first(&[(4712, 7)]));
    // More than any card has: the library is not believed.
    let many: Vec<String> = (1..=5_000).map(|pid| format!("4000000 {pid} 1 0 0 0")).collect();
    put(&many.join("\n"));
    assert_eq!(hal.processes(), []);
    // MIG, and a library that is too old.
    bench.put("gpus/b/errors", "nvmlDeviceGetProcessUtilization 3").unwrap();
    assert_eq!(hal.processes(), []);
    let bench = Bench::two();
    bench.library_without(&["nvmlDeviceGetProcessUtilization"]).unwrap();
    bench.put("gpus/b/processes", "1000000 4711 80 10 0 0").unwrap();
    assert_eq!(bench.open().processes(), []);
}

#[test]
fn a_card_without_a_uuid_is_left_out_and_complained_of() {
    let bench = Bench::three();
    bench.put("gpus/a/uuid", "GPU-0").unwrap();
    bench.put("gpus/c/uuid", "").unwrap();
    let hal = bench.open();
    assert_eq!(keys(&Hal::domains(&hal)), [key(&FIRST)]);
    let complaints: Vec<_> =
        hal.complaints().iter().map(|error| (error.index, error.fault, error.kind())).collect();
    let nameless = |index| (Some(index), NvmlFault::Nameless, ErrorKind::BadData);
    assert_eq!(complaints, [nameless(0), nameless(2)]);
    assert_eq!(
        hal.complaints()[0].to_string(),
        "GPU 0 of the driver's list: learning its UUID: what it calls its UUID is none"
    );
}

#[test]
fn a_card_that_a_control_group_hides_is_left_out_and_the_others_are_not() {
    let bench = Bench::three();
    bench.put("gpus/a/errors", "nvmlDeviceGetHandleByIndex_v2 4").unwrap();
    bench.put("gpus/b/errors", "* 17").unwrap();
    let hal = bench.open();
    assert_eq!(keys(&Hal::domains(&hal)), [key(&THIRD)]);
    assert!(hal.complaints().iter().all(|error| error.kind() == ErrorKind::PermissionDenied));
    assert_eq!((hal.complaints().len(), hal.absent()), (2, None));
}

#[test]
fn a_driver_that_goes_while_it_is_asked_leaves_the_last_list() {
    let bench = Bench::two();
    let mut hal = bench.open();
    bench.put("errors", "nvmlDeviceGetHandleByIndex_v2 9").unwrap();
    assert_eq!(hal.describe().unwrap_err().kind(), ErrorKind::Gone);
    assert_eq!(keys(&Hal::domains(&hal)), [key(&FIRST), key(&SECOND)]);
}

#[test]
fn a_card_that_waits_for_a_reset_is_left_out() {
    for function in ["nvmlDeviceGetPowerManagementLimitConstraints", "nvmlDeviceGetTotalEnergyConsumption"] {
        let bench = Bench::two();
        bench.put("gpus/b/errors", &format!("{function} 16")).unwrap();
        let hal = bench.open();
        assert_eq!(keys(&Hal::domains(&hal)), [key(&SECOND)], "{function}");
        assert_eq!(
            (hal.complaints()[0].gpu, hal.complaints()[0].fault),
            (Some(key(&FIRST)), NvmlFault::Code(16))
        );
    }
}

#[test]
fn a_range_that_cannot_be_read_for_once_stays_what_it_was() {
    let bench = Bench::two();
    let mut hal = bench.open();
    let first = find(&hal, &FIRST);
    bench.put("gpus/b/errors", "nvmlDeviceGetPowerManagementLimitConstraints 999").unwrap();
    hal.describe().unwrap();
    assert_eq!(hal.complaints()[0].fault, NvmlFault::Code(999));
    assert!(hal.apply(first, Setting::Power(w(450))).is_ok());
}

#[test]
fn a_range_that_is_none_is_no_limit() {
    for (min, max) in [("700000", "200000"), ("0", "0"), ("200000", "4294967295"), ("20000001", "20000002")] {
        let bench = Bench::two();
        bench.put("gpus/b/min_mw", min).unwrap();
        bench.put("gpus/b/max_mw", max).unwrap();
        let mut hal = bench.open();
        let first = find(&hal, &FIRST);
        assert!(Hal::domains(&hal).get(first).unwrap().power().is_none(), "{min}..{max}");
        assert_eq!(hal.complaints()[0].kind(), ErrorKind::BadData);
        assert_eq!(hal.apply(first, Setting::Power(w(450))).unwrap_err().kind(), ErrorKind::NotSupported);
    }
}

#[test]
fn a_number_that_cannot_be_is_bad_data_and_not_a_number() {
    let bench = Bench::two();
    let mut hal = bench.open();
    let first = find(&hal, &FIRST);
    let mut read = |file: &str, text: &str| {
        let before = bench.get(file).unwrap();
        bench.put(file, text).unwrap();
        let mut batch = [Reading::new(first)];
        hal.sample(&mut batch);
        bench.put(file, &before).unwrap();
        batch[0].outcome.unwrap()
    };
    for text in ["18446744073709551615", "18446744073709552"] {
        assert_eq!(read("gpus/b/energy_mj", text).meter, Err(ErrorKind::BadData), "{text}");
    }
    let most = Ok(Measured::Energy(MicroJoules::new(18_446_744_073_709_551_000)));
    assert_eq!(read("gpus/b/energy_mj", "18446744073709551").meter, most);
    assert_eq!(read("gpus/b/energy_mj", "0").meter, Ok(Measured::Energy(MicroJoules::ZERO)));
    for text in ["0", "20000001", "4294967295"] {
        assert_eq!(read("gpus/b/limit_mw", text).power_limit, Err(ErrorKind::BadData), "{text}");
    }
    // Text that the library itself cannot parse.
    for text in ["", "-1", "x", "4294967296"] {
        assert_eq!(read("gpus/b/limit_mw", text).power_limit, Err(ErrorKind::Io), "{text}");
    }
}

#[test]
fn energy_is_the_meter_where_there_is_a_counter_and_the_mean_power_where_there_is_none() {
    let bench = Bench::three();
    bench.remove("gpus/a/energy_mj");
    bench.remove("gpus/c/energy_mj");
    bench.remove("gpus/c/average_mw");
    bench.put("gpus/b/energy_mj", "123456789").unwrap();
    bench.put("gpus/a/average_mw", "88000").unwrap();
    bench.put("gpus/c/power_mw", "99000").unwrap();
    let mut hal = bench.open();
    let mut meter = |card| {
        let mut batch = [Reading::new(find(&hal, card))];
        hal.sample(&mut batch);
        batch[0].outcome.unwrap().meter.unwrap()
    };
    assert_eq!(meter(&FIRST), Measured::Energy(MicroJoules::new(123_456_789_000)));
    assert_eq!((meter(&SECOND), meter(&THIRD)), (Measured::Power(w(88)), Measured::Power(w(99))));
    let Some(Meter::Energy(counter)) = Hal::domains(&hal).get(find(&hal, &FIRST)).unwrap().meter() else {
        panic!("no counter")
    };
    assert_eq!(counter.modulus(), None);
    let draw = hal.draw(find(&hal, &FIRST)).unwrap();
    assert_eq!((draw.instant, draw.average, draw.usage), (Ok(w(71)), Ok(w(70)), Ok(w(70))));
}

#[test]
fn the_facts_of_a_card_are_those_of_its_object() {
    let bench = Bench::two();
    // Each card to the other by two links, one more to a switch that is down, and one to the CPU.
    bench
        .put("gpus/b/nvlink", "0 1 00000000:C1:00.0 0\n1 1 00000000:C1:00.0 0\n2 0 00000000:A0:00.0 2")
        .unwrap();
    bench
        .put("gpus/a/nvlink", "0 1 00000000:19:00.0 0\n5 1 00000000:19:00.0 0\n17 1 00000006:00:00.0 1")
        .unwrap();
    let facts = bench.open().facts();
    assert_eq!((facts.driver.as_deref(), facts.complaints.len()), (Some("570.86.16"), 0));
    let [first, second] = &facts.gpus[..] else { panic!("{facts:?}") };
    assert_eq!((first.key, first.uuid.as_str()), (key(&FIRST), FIRST.uuid));
    assert_eq!(first.model.as_deref(), Some("NVIDIA H100 80GB HBM3"));
    assert_eq!((first.vram_mib, first.pci.as_deref()), (Some(81_559), Some("0000:19:00.0")));
    assert_eq!((first.links, first.island, second.links, second.island), (2, Some(0), 3, Some(0)));
}

#[test]
fn cards_on_switches_are_one_island_and_a_card_at_its_cpu_is_on_none() {
    let bench = Bench::three();
    let switches = "0 1 00000000:A0:00.0 2\n1 1 00000000:A1:00.0 2";
    bench.put("gpus/a/nvlink", switches).unwrap();
    bench.put("gpus/b/nvlink", switches).unwrap();
    bench.put("gpus/c/nvlink", "0 1 00000000:A0:00.0 1\n1 1 FFFFFFFF:FF:00.0 2").unwrap();
    let islands = |bench: &Bench| bench.open().facts().gpus.iter().map(|gpu| gpu.island).collect::<Vec<_>>();
    assert_eq!(islands(&bench), [Some(0), Some(0), None]);
    // An address that the driver does not know connects no cards.
    for name in bench.names() {
        bench.put(&format!("gpus/{name}/nvlink"), "0 1 FFFFFFFF:FF:00.0 2").unwrap();
    }
    assert_eq!(islands(&bench), [None; 3]);
}

#[test]
fn a_fact_that_cannot_be_read_is_none_and_a_complaint_and_one_that_is_lacking_is_only_none() {
    let bench = Bench::two();
    bench.remove("gpus/b/mig");
    bench.remove("gpus/b/vram_mib");
    bench.put("gpus/b/errors", "nvmlDeviceGetName 999\nnvmlDeviceGetNvLinkState 999").unwrap();
    let facts = bench.open().facts();
    let first = &facts.gpus[0];
    assert_eq!((first.model.as_ref(), first.vram_mib, first.mig), (None, None, Some(Mig::Unsupported)));
    let told: Vec<_> = facts.complaints.iter().map(ToString::to_string).collect();
    let of = |what: &str| format!("{}: reading its {what}: unknown error (NVML 999)", key(&FIRST));
    assert_eq!(told, [of("NVLinks"), of("model")]);
}
