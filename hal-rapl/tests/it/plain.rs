//! The HAL on a plain folder: the content of the rig, which needs FUSE, as ordinary files and links. Without error
//! numbers and rounding, but with everything about finding and reading; it runs everywhere.

use crate::bench::{Folder, Journal, TestMachine, Ticks};
use crate::golden::{apply, effective, find, kind, sample, w};
use hal_files::Root;
use hal_rapl::Powercap;
use power_hal::contract::{ContractMode, RefusableOriginals, Rule, SecondHal, check};
use power_hal::{ErrorKind, Key, OriginalsInMemory, PowerHal};
use rig::machine::Shared;
use rig::tree::TreeEntry;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// A folder that is deleted with the test.
pub(crate) struct Plain(Folder);

impl Plain {
    pub(crate) fn empty() -> Self {
        Self(Folder::new())
    }

    pub(crate) fn of(name: &str) -> Self {
        let plain = Self::empty();
        let machine = Shared::new(TestMachine::machine_of(name));
        let tree = machine.lock().tree().clone();
        for (path, entry) in tree.iter().filter(|(path, _)| path.contains("powercap")) {
            let at = plain.path().join(path);
            std::fs::create_dir_all(at.parent().unwrap()).unwrap();
            match entry {
                TreeEntry::Folder => std::fs::create_dir_all(&at).unwrap(),
                TreeEntry::Link(target) => symlink(target, &at).unwrap(),
                TreeEntry::File(_, attribute) => {
                    std::fs::write(&at, machine.read(attribute, 0, 4096).unwrap()).unwrap();
                }
            }
        }
        plain
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0.0
    }

    pub(crate) fn file(&self, zone: &str, name: &str) -> PathBuf {
        self.path().join(format!("sys/devices/virtual/powercap/intel-rapl/{zone}/{name}"))
    }

    pub(crate) fn put(&self, zone: &str, name: &str, content: impl AsRef<[u8]>) {
        std::fs::write(self.file(zone, name), content).unwrap();
    }

    pub(crate) fn get(&self, zone: &str, name: &str) -> String {
        std::fs::read_to_string(self.file(zone, name)).unwrap().trim().to_owned()
    }

    pub(crate) fn open(&self) -> Powercap<Ticks, Journal> {
        Powercap::open(
            Root::at(self.path()),
            Ticks::default(),
            RefusableOriginals::new(OriginalsInMemory::new()),
        )
        .unwrap()
    }
}

const LONG: &str = "constraint_0_power_limit_uw";

#[test]
fn plain_folders_keep_the_contract() {
    for (name, domains, controls) in [
        ("xeon-2s", 2, 2),
        ("xeon-2s-new", 2, 2),
        ("xeon-multi-die", 4, 4),
        ("xeon-tpmi", 2, 2),
        ("epyc", 2, 0),
        ("client", 1, 1),
    ] {
        for mode in [ContractMode::Full, ContractMode::Lowering, ContractMode::ReadOnly] {
            let plain = Plain::of(name);
            let clock = Ticks::default();
            let journal = RefusableOriginals::new(OriginalsInMemory::<8>::new());
            let mut hal = Powercap::open(Root::at(plain.path()), clock.clone(), journal).unwrap();
            // As on a real machine: a second HAL observes.
            let mut world = SecondHal::new(plain.open(), |span| clock.advance(span));
            let report =
                check(&mut hal, &mut world, mode).unwrap_or_else(|breach| panic!("{name}: {breach}"));
            let set = if mode == ContractMode::ReadOnly { 0 } else { controls };
            assert_eq!((report.domains, report.controls), (domains, set), "{name} {mode:?}");
            assert_eq!(report.looks(Rule::Restored) > 0, set > 0, "{name} {mode:?}");
        }
    }
}

/// A zone has one switch for both of its limits, and a package at 0 W stops.
#[test]
fn a_short_term_limit_of_0_w_that_is_off_is_never_switched_on() {
    const SHORT: &str = "constraint_1_power_limit_uw";
    let plain = Plain::of("xeon-2s");
    let zone = "intel-rapl:0";
    let long = plain.get(zone, LONG);
    plain.put(zone, SHORT, "0");
    let mut hal = plain.open();
    let package = find(&hal, "package-0").0;
    apply(&mut hal, "package-0", w(120)).unwrap();
    assert_eq!(plain.get(zone, SHORT), "0", "one that is not used is not touched");
    // Another writer, a processor that was unplugged, or a reloaded driver.
    let switch_off = || {
        plain.put(zone, "enabled", "0");
        plain.put(zone, SHORT, "0");
    };
    switch_off();
    apply(&mut hal, "package-0", w(110)).unwrap();
    assert_eq!(plain.get(zone, "enabled"), "1");
    assert_ne!(plain.get(zone, SHORT), "0");
    switch_off();
    hal.release(package).unwrap();
    assert_eq!((plain.get(zone, "enabled").as_str(), plain.get(zone, LONG)), ("1", long));
    assert_ne!(plain.get(zone, SHORT), "0");
}

#[test]
fn a_machine_without_powercap_has_no_package_and_no_error() {
    let plain = Plain::empty();
    assert!(plain.open().domains().is_empty());
    // A container masks the folder with an empty one.
    std::fs::create_dir_all(plain.path().join("sys/class/powercap")).unwrap();
    let mut hal = plain.open();
    assert!(hal.describe().unwrap().is_empty());
    assert!(hal.problems().is_empty());
}

/// Fix list agent S3: a counter that is reached by two paths is one counter.
#[test]
fn a_zone_reached_by_two_paths_is_counted_once() {
    let plain = Plain::of("xeon-2s");
    let class = plain.path().join("sys/class/powercap");
    symlink("../../devices/virtual/powercap/intel-rapl/intel-rapl:0", class.join("intel-rapl:f")).unwrap();
    symlink("/nowhere", class.join("intel-rapl:e")).unwrap();
    let hal = plain.open();
    assert_eq!(hal.domains().len(), 2);
    assert!(hal.problems().is_empty(), "{:?}", hal.problems());
}

#[test]
fn a_second_zone_of_the_same_name_is_left_out_and_told() {
    let plain = Plain::of("xeon-2s");
    plain.put("intel-rapl:1", "name", "package-1\n");
    let hal = plain.open();
    assert_eq!(hal.domains().len(), 2);
    assert_eq!(hal.problems().len(), 1);
    assert!(hal.problems()[0].to_string().contains("intel-rapl:2"), "{}", hal.problems()[0]);
}

/// Fix list agent S17: on a part without a long-term limit the next limit gets its number.
#[test]
fn constraints_go_by_their_names() {
    let plain = Plain::of("xeon-2s");
    plain.put("intel-rapl:0", "constraint_0_name", "short_term\n");
    plain.put("intel-rapl:0", "constraint_1_name", "long_term\n");
    let mut hal = plain.open();
    assert_eq!(
        find(&hal, "package-0").1.power().unwrap().max(),
        Some(w(500)),
        "of the constraint by that name"
    );
    assert_eq!(effective(&mut hal, "package-0", w(100)), (100_000_000, true));
    assert_eq!(plain.get("intel-rapl:0", "constraint_1_power_limit_uw"), "100000000");
    assert_eq!(plain.get("intel-rapl:0", LONG), "120000000");
    plain.put("intel-rapl:2", "constraint_0_name", "peak_power\n");
    plain.put("intel-rapl:2", "constraint_1_name", "short_term\n");
    hal.describe().unwrap();
    assert!(find(&hal, "package-1").1.power().is_none(), "without a long-term limit there is none to set");
}

#[test]
fn an_unknown_range_is_a_counter_whose_wrap_is_unknown() {
    for (range, understood) in [("0\n", true), ("junk\n", false), ("", false), ("5\n", true)] {
        let plain = Plain::of("xeon-2s");
        plain.put("intel-rapl:0", "max_energy_range_uj", range);
        let mut hal = plain.open();
        let said = hal.problems().iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
        assert_eq!(said.contains("intel-rapl:0/max_energy_range_uj: "), !understood, "{said}");
        let meter = find(&hal, "package-0").1.meter();
        assert_eq!(meter, Some(power_hal::Meter::Energy(power_hal::Counter::Unknown)), "{range:?}");
        assert!(sample(&mut hal, "package-0").unwrap().meter.is_ok());
    }
}

#[test]
fn a_zone_that_names_a_limit_and_has_no_file_of_it_is_left_out_and_told() {
    for file in ["constraint_1_power_limit_uw", LONG, "name"] {
        let plain = Plain::of("xeon-2s");
        std::fs::remove_file(plain.path().join("sys/class/powercap/intel-rapl:0").join(file)).unwrap();
        let hal = plain.open();
        assert_eq!(hal.domains().len(), 1, "{file}");
        let [problem] = hal.problems() else { panic!("{file}: {:?}", hal.problems()) };
        assert!(problem.to_string().contains(&format!("intel-rapl:0/{file}")), "{problem}");
    }
}

#[test]
fn a_largest_limit_that_is_no_number_is_unknown_and_told() {
    for bad in BAD {
        let plain = Plain::of("xeon-2s");
        plain.put("intel-rapl:0", "constraint_0_max_power_uw", bad);
        let mut hal = plain.open();
        assert_eq!(find(&hal, "package-0").1.power().unwrap().max(), None);
        let [problem] = hal.problems() else { panic!("{:?}", hal.problems()) };
        assert!(problem.to_string().contains("constraint_0_max_power_uw"), "{problem}");
        assert_eq!(effective(&mut hal, "package-0", w(100)), (100_000_000, true));
    }
}

const BAD: [&[u8]; 9] = [
    b"",
    b"\n",
    b"-1\n",
    b"100000000 \n",
    b"12x\n",
    b"99999999999999999999999\n",
    b"1.5\n",
    b"\xff\xfe\x00",
    &[b'1'; 400],
];

#[test]
fn bad_text_in_any_file_is_bad_data_with_the_path_and_never_a_value() {
    for bad in BAD {
        for file in
            ["energy_uj", LONG, "constraint_1_power_limit_uw", "constraint_0_time_window_us", "enabled"]
        {
            let plain = Plain::of("xeon-2s");
            let mut hal = plain.open();
            plain.put("intel-rapl:0", file, bad);
            let said = sample(&mut hal, "package-0").unwrap();
            let value = if file == "energy_uj" { said.meter.err() } else { said.power_limit.err() };
            assert_eq!(value, Some(ErrorKind::BadData), "{file} {bad:?}");
            assert!(sample(&mut hal, "package-1").unwrap().power_limit.is_ok());
            let applied = apply(&mut hal, "package-0", w(100));
            if file != "energy_uj" {
                let error = applied.unwrap_err();
                assert!(error.to_string().contains(file), "{error}");
                assert_eq!(kind(Err::<(), _>(error)), ErrorKind::BadData);
                assert_eq!(hal.originals().inner().len(), 0);
            }
        }
    }
    let plain = Plain::of("xeon-2s");
    let mut hal = plain.open();
    plain.put("intel-rapl:0", "enabled", "2\n");
    assert_eq!(sample(&mut hal, "package-0").unwrap().power_limit, Err(ErrorKind::BadData));
    plain.put("intel-rapl:0", "energy_uj", "262143328851\n");
    assert_eq!(sample(&mut hal, "package-0"), Err(ErrorKind::BadData), "beyond its range");
}

#[test]
fn a_zone_with_a_bad_name_is_left_out_at_first_and_an_error_once_it_was_known() {
    for bad in [&b"\xff\n"[..], b"two\nlines\n", &[b'p'; 300]] {
        let plain = Plain::of("xeon-2s");
        plain.put("intel-rapl:0", "name", bad);
        let hal = plain.open();
        assert_eq!((hal.domains().len(), hal.problems().len()), (1, 1), "{bad:?}");
        assert!(hal.problems()[0].to_string().contains("intel-rapl:0/name"));
        plain.put("intel-rapl:0", "name", "package-0\n");
        let mut hal = plain.open();
        plain.put("intel-rapl:0", "name", bad);
        assert_eq!(kind(hal.describe().map(|_| ())), ErrorKind::BadData);
        assert_eq!(hal.domains().len(), 2, "the last list stands");
        assert!(sample(&mut hal, "package-0").is_ok());
    }
}

#[test]
fn names_that_are_no_packages_are_no_domains() {
    for name in ["psys-1\n", "package\n", "package-x\n", "package-0-die-\n", "dram\n", "\n", ""] {
        let plain = Plain::of("xeon-2s");
        plain.put("intel-rapl:0", "name", name);
        assert_eq!(plain.open().domains().len(), 1, "{name:?}");
    }
}

#[test]
fn a_twin_alone_is_the_package() {
    let plain = Plain::of("client");
    std::fs::remove_dir_all(plain.file("intel-rapl:0", "")).unwrap();
    let mut hal = plain.open();
    assert!(hal.domains().find(&Key::package(0, None)).is_some());
    assert_eq!(effective(&mut hal, "package-0", w(20)), (20_000_000, true));
}
