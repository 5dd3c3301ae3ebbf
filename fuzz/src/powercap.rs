//! Property: whatever the files of powercap contain, a value is the content of its file or an error of that file; an
//! accepted cap follows from its range and step; a refusal has changed nothing; a release restores the original; a
//! cap never switches a zone off, and only package zones are written.

use crate::port::{check_domains, check_file, check_names, clock, microwatts, sample};
use crate::text::attribute;
use crate::tree::{File, Script, Tree, file, setting, with};
use hal_files::Root;
use hal_rapl::{Powercap, RaplError};
use power_hal::{
    Control, Error, ErrorKind, Handle, Key, Measured, Originals, OriginalsInMemory, PowerHal, Released,
    Setting,
};
use power_units::{MicroJoules, MicroWatts, Stamp};
use std::cell::RefCell;
use std::path::Path;

/// Two packages, the first with memory and with a second zone for the same package, and psys beside them.
const FILES: &[File] = &[
    file("sys/class/powercap/intel-rapl:0/name", "package-0\n"),
    file("sys/class/powercap/intel-rapl:0/energy_uj", "123456789\n"),
    file("sys/class/powercap/intel-rapl:0/max_energy_range_uj", "262143328850\n"),
    setting("sys/class/powercap/intel-rapl:0/enabled", "1\n"),
    file("sys/class/powercap/intel-rapl:0/constraint_0_name", "long_term\n"),
    setting("sys/class/powercap/intel-rapl:0/constraint_0_power_limit_uw", "250000000\n"),
    setting("sys/class/powercap/intel-rapl:0/constraint_0_time_window_us", "27983872\n"),
    file("sys/class/powercap/intel-rapl:0/constraint_0_max_power_uw", "250000000\n"),
    file("sys/class/powercap/intel-rapl:0/constraint_1_name", "short_term\n"),
    setting("sys/class/powercap/intel-rapl:0/constraint_1_power_limit_uw", "300000000\n"),
    file("sys/class/powercap/intel-rapl:0/constraint_1_max_power_uw", "500000000\n"),
    file("sys/class/powercap/intel-rapl:1/name", "package-1\n"),
    file("sys/class/powercap/intel-rapl:1/energy_uj", "987654321\n"),
    setting("sys/class/powercap/intel-rapl:1/enabled", "1\n"),
    file("sys/class/powercap/intel-rapl:1/constraint_0_name", "long_term\n"),
    setting("sys/class/powercap/intel-rapl:1/constraint_0_power_limit_uw", "250000000\n"),
    file("sys/class/powercap/intel-rapl-mmio:0/name", "package-0\n"),
    setting("sys/class/powercap/intel-rapl-mmio:0/enabled", "1\n"),
    file("sys/class/powercap/intel-rapl-mmio:0/constraint_0_name", "long_term\n"),
    setting("sys/class/powercap/intel-rapl-mmio:0/constraint_0_power_limit_uw", "260000000\n"),
    file("sys/class/powercap/intel-rapl:2/name", "psys\n"),
    file("sys/class/powercap/intel-rapl:2/constraint_0_name", "long_term\n"),
    setting("sys/class/powercap/intel-rapl:2/constraint_0_power_limit_uw", "400000000\n"),
    file("sys/class/powercap/intel-rapl:0/intel-rapl:0:0/name", "dram\n"),
    file("sys/class/powercap/intel-rapl:0/intel-rapl:0:0/energy_uj", "4567890\n"),
    file("sys/class/powercap/intel-rapl:0/intel-rapl:0:0/max_energy_range_uj", "65712999613\n"),
];

/// The files that are required to open the first zone.
const STRICT: [usize; 4] = [3, 5, 6, 9];
const MAXIMA: [usize; 2] = [2, 7];
const ENERGY: usize = 1;
const RANGE: usize = 2;
const ENABLED: [usize; 3] = [3, 13, 17];
const LONG: [usize; 3] = [5, 15, 19];
const WINDOW: usize = 6;
/// The files that are read for the limit of the first package.
const LIMITS: [usize; 6] = [3, 5, 6, 9, 17, 19];
/// While none of these names is replaced, the packages are those of the healthy machine.
const NAMES: [usize; 8] = [0, 4, 8, 11, 14, 16, 18, 20];
const PSYS: [usize; 3] = [20, 21, 22];

/// The largest value of the register, and its step.
const CEILING_UW: u64 = 4_095_875_000;
const STEP_UW: u64 = 125_000;

type Hal = Powercap<fn() -> Stamp, OriginalsInMemory<8>>;

thread_local! {
    static TREE: RefCell<Option<Tree>> = const { RefCell::new(None) };
}

pub(crate) fn run(bytes: &[u8]) {
    TREE.with(|tree| with(tree, || Tree::new(FILES, &[]), |tree| look(tree, bytes)));
}

fn look(tree: &mut Tree, bytes: &[u8]) {
    let script = Script::of(bytes, FILES.len(), 100_000_000);
    tree.stage(&script);
    let clock: fn() -> Stamp = clock;
    let mut hal = match Powercap::open(Root::at(tree.root()), clock, OriginalsInMemory::new()) {
        Ok(hal) => hal,
        Err(error) => return check(&error, tree.root()),
    };
    check_domains(hal.domains());
    for problem in hal.problems() {
        check(problem, tree.root());
    }
    check_told(&hal, tree, &script);
    tree.change(&script);
    check_samples(&mut hal, tree, &script);
    let handles: Vec<Handle> = hal.domains().iter().map(|(handle, _)| handle).collect();
    for handle in handles {
        set_and_release(&mut hal, tree, &script, handle);
    }
    if let Some(psys) = tree.now(PSYS[2]).filter(|_| !script.replaces(&PSYS)) {
        assert_eq!(Some(psys.as_slice()), tree.read(PSYS[2]), "psys is no package");
    }
    tree.check_untouched();
    if let Err(error) = hal.enumerate() {
        check(&error, tree.root());
    }
}

fn check(error: &RaplError, root: &Path) {
    check_names(error, root);
    if let RaplError::File(error) = error {
        check_file(error, root);
    }
}

/// Invalid content of an optional file of the first package is reported with the name of the file.
fn check_told(hal: &Hal, tree: &Tree, script: &Script<'_>) {
    if script.replaces(&NAMES) || STRICT.iter().any(|at| tree.read(*at).is_none()) {
        return;
    }
    for at in MAXIMA {
        let bad = tree.read(at).is_some_and(|text| attribute(text).is_none());
        let told = |problem: &RaplError| {
            matches!(problem, RaplError::File(file)
                if file.kind == ErrorKind::BadData && file.path.ends_with(FILES[at].path))
        };
        assert_eq!(hal.problems().iter().any(told), bad, "{}", FILES[at].path);
    }
}

fn is_of_maximum(problem: &RaplError) -> bool {
    matches!(problem, RaplError::File(file) if MAXIMA.iter().any(|at| file.path.ends_with(FILES[*at].path)))
}

fn check_samples(hal: &mut Hal, tree: &Tree, script: &Script<'_>) {
    let readings = sample(hal);
    if script.replaces(&NAMES) || hal.problems().iter().any(|problem| !is_of_maximum(problem)) {
        return;
    }
    let Some(first) = hal.domains().find(&Key::package(0, None)) else { return };
    let Some(reading) = readings.iter().find(|reading| reading.domain == first) else { return };
    let meter = reading.outcome.and_then(|sample| sample.meter);
    if let Some(text) = tree.read(ENERGY) {
        let range = tree.read(RANGE).and_then(attribute).filter(|range| *range >= 1_000_000_000);
        let fits = |value: &u64| range.is_none_or(|range| *value <= range);
        let expected = attribute(text).filter(fits);
        let expected = expected.map(|value| Measured::Energy(MicroJoules::new(value)));
        assert_eq!(meter, expected.ok_or(ErrorKind::BadData), "energy_uj is {text:?}");
    }
    if LIMITS.iter().all(|at| tree.read(*at).is_some()) {
        let limit = reading.outcome.and_then(|sample| sample.power_limit);
        assert_eq!(limit, in_force(tree).map(MicroWatts::new).ok_or(ErrorKind::BadData));
    }
}

/// The lowest of the enabled limits of the first package and its second zone.
fn in_force(tree: &Tree) -> Option<u64> {
    let number = |at: usize| tree.read(at).and_then(attribute);
    for at in LIMITS {
        // A limit with a window of zero does not count.
        number(at).filter(|&value| at != WINDOW || value != 0)?;
    }
    let mut lowest = CEILING_UW;
    for at in [0, 2] {
        match number(ENABLED[at])? {
            0 => {}
            1 => lowest = if at == 0 { number(LONG[at])? } else { lowest.min(number(LONG[at])?) },
            _ => return None,
        }
    }
    // A zone that is off counts as the register's largest value; one that is on may have a higher limit.
    let off = [0, 2].iter().any(|at| number(ENABLED[*at]) == Some(0));
    Some(if off { lowest.min(CEILING_UW) } else { lowest })
}

fn set_and_release(hal: &mut Hal, tree: &Tree, script: &Script<'_>, handle: Handle) {
    let Some(domain) = hal.domains().get(handle).copied() else { return };
    let before = tree.settings();
    let applied = hal.apply(handle, Setting::Power(MicroWatts::new(script.wish)));
    let after = tree.settings();
    for at in ENABLED {
        let number = |files: &[Option<Vec<u8>>]| files[at].as_deref().and_then(attribute);
        assert!(number(&after) != Some(0) || number(&before) == Some(0), "enabled was written 0");
    }
    match &applied {
        Ok(applied) => {
            let wanted = domain.power().and_then(|power| power.clamp(MicroWatts::new(script.wish)));
            let wanted = wanted.map(|cap| cap.get() - cap.get() % STEP_UW);
            assert!(wanted.is_some_and(|cap| cap > 0 && cap <= CEILING_UW), "{wanted:?}");
            assert_eq!(microwatts(applied.effective()), wanted, "{domain:?}");
        }
        Err(error) => {
            check_names_of_failure(error, tree.root());
            if hal.originals().kept(domain.key(), Control::Power).is_none() {
                assert_eq!(after, before, "a refusal changed something: {error}");
            }
        }
    }
    match hal.release(handle) {
        Ok(Released::Untouched) => {}
        Ok(Released::Restored) => {
            let number = |files: &[Option<Vec<u8>>], at: usize| files[at].as_deref().and_then(attribute);
            let now = tree.settings();
            for (enabled, long) in ENABLED.into_iter().zip(LONG) {
                if let Some(was @ (0 | 1)) = number(&before, enabled) {
                    assert_eq!(
                        number(&now, enabled),
                        Some(was),
                        "it is on where it was off, or off where it was on"
                    );
                    assert_eq!(number(&now, long), number(&before, long), "the original is not back");
                }
            }
        }
        Err(error) => check_names_of_failure(&error, tree.root()),
    }
}

/// An error of the port itself needs no name, because the caller has just named the domain.
fn check_names_of_failure(error: &power_hal::PortError<RaplError>, root: &Path) {
    match error {
        power_hal::PortError::Hal(RaplError::Gone) | power_hal::PortError::Refused(_) => {}
        power_hal::PortError::Hal(error) => {
            assert_ne!(error.kind(), ErrorKind::NotSupported, "{error}");
            check(error, root);
        }
    }
}
