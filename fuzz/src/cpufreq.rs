//! Property: whatever the files of the policies contain, a policy has CPUs of its own or is reported as a problem; a
//! frequency is the content of its file or bad data; a written limit is in the range and not above the wish; a
//! refusal has changed nothing; and a release restores the original.

use crate::port::{check_domains, check_file, check_names, clock, sample};
use crate::text::attribute;
use crate::tree::{File, Script, Tree, file, setting, with};
use hal_cpufreq::{Cpufreq, CpufreqError, CpufreqFault};
use hal_files::Root;
use power_hal::{
    Control, CpuSet, ErrorKind, Handle, Key, Originals, OriginalsInMemory, PortError, PowerHal, Released,
    Setting,
};
use power_units::{KiloHertz, Stamp};
use std::cell::RefCell;
use std::path::Path;

const FILES: &[File] = &[
    file("sys/devices/system/cpu/cpufreq/policy0/related_cpus", "0 2\n"),
    file("sys/devices/system/cpu/cpufreq/policy0/affected_cpus", "0 2\n"),
    file("sys/devices/system/cpu/cpufreq/policy0/cpuinfo_min_freq", "1200000\n"),
    file("sys/devices/system/cpu/cpufreq/policy0/cpuinfo_max_freq", "3200000\n"),
    setting("sys/devices/system/cpu/cpufreq/policy0/scaling_max_freq", "3000000\n"),
    file("sys/devices/system/cpu/cpufreq/policy0/scaling_cur_freq", "2900000\n"),
    file("sys/devices/system/cpu/cpufreq/policy0/cpuinfo_avg_freq", "2800000\n"),
    file("sys/devices/system/cpu/cpufreq/policy0/scaling_driver", "acpi-cpufreq\n"),
    file(
        "sys/devices/system/cpu/cpufreq/policy0/scaling_available_frequencies",
        "1200000 1600000 2000000 2400000 2800000 3200000 \n",
    ),
    file("sys/devices/system/cpu/cpufreq/policy0/scaling_boost_frequencies", "3400000 \n"),
    file("sys/devices/system/cpu/cpufreq/policy0/base_frequency", "2000000\n"),
    file("sys/devices/system/cpu/cpufreq/policy0/bios_limit", "3200000\n"),
    file("sys/devices/system/cpu/cpufreq/policy1/related_cpus", "1\n"),
    file("sys/devices/system/cpu/cpufreq/policy1/affected_cpus", "1\n"),
    file("sys/devices/system/cpu/cpufreq/policy1/cpuinfo_min_freq", "800000\n"),
    file("sys/devices/system/cpu/cpufreq/policy1/cpuinfo_max_freq", "3500000\n"),
    setting("sys/devices/system/cpu/cpufreq/policy1/scaling_max_freq", "3500000\n"),
    file("sys/devices/system/cpu/cpufreq/policy1/scaling_driver", "intel_pstate\n"),
    file("sys/devices/system/cpu/cpu0/topology/physical_package_id", "0\n"),
    file("sys/devices/system/cpu/cpu0/topology/die_id", "0\n"),
    file("sys/devices/system/cpu/cpu0/topology/thread_siblings_list", "0-1\n"),
    file("sys/devices/system/cpu/cpu1/topology/physical_package_id", "0\n"),
    file("sys/devices/system/cpu/cpu1/topology/thread_siblings_list", "0-1\n"),
    file("sys/devices/system/cpu/cpu2/topology/physical_package_id", "1\n"),
    file("sys/devices/system/cpu/cpu2/topology/thread_siblings_list", "2,3\n"),
    file("sys/devices/system/cpu/intel_pstate/no_turbo", "0\n"),
    file("sys/devices/system/cpu/cpufreq/boost", "1\n"),
];

const MIN: usize = 2;
const MAX: usize = 3;
const LIMIT: usize = 4;
const CURRENT: usize = 5;
const AVERAGE: usize = 6;
/// While none of these files is replaced, the first policy is that of CPU 0.
const CPUS: [usize; 4] = [0, 1, 12, 13];
/// The turbo switches, which are not files of a policy.
const TURBO: [usize; 2] = [25, 26];

type Hal = Cpufreq<fn() -> Stamp, OriginalsInMemory<8>>;

thread_local! {
    static TREE: RefCell<Option<Tree>> = const { RefCell::new(None) };
}

pub(crate) fn run(bytes: &[u8]) {
    TREE.with(|tree| with(tree, || Tree::new(FILES, &[]), |tree| look(tree, bytes)));
}

/// A frequency that a driver can mean, by a second implementation of the rule.
fn frequency(text: &[u8]) -> Option<KiloHertz> {
    let khz = attribute(text).filter(|khz| *khz > 0)?;
    i32::try_from(khz).ok().map(KiloHertz::from_int)
}

fn look(tree: &mut Tree, bytes: &[u8]) {
    let script = Script::of(bytes, FILES.len(), 2_000_000);
    tree.stage(&script);
    let clock: fn() -> Stamp = clock;
    let mut hal = match Cpufreq::open(Root::at(tree.root()), clock, OriginalsInMemory::new()) {
        Ok(hal) => hal,
        Err(error) => return check(&error, tree.root()),
    };
    check_domains(hal.domains());
    check_policies(&hal, tree, &script);
    check_turbo(&hal, tree);
    tree.change(&script);
    check_samples(&mut hal, tree, &script);
    let handles: Vec<Handle> = hal.domains().iter().map(|(handle, _)| handle).collect();
    for handle in handles {
        set_and_release(&mut hal, tree, &script, handle);
    }
    tree.check_untouched();
    if let Err(error) = hal.enumerate() {
        check(&error, tree.root());
    }
}

fn check(error: &CpufreqError, root: &Path) {
    check_names(error, root);
    if let CpufreqFault::File(error) = &error.fault {
        check_file(error, root);
    }
}

fn check_policies(hal: &Hal, tree: &Tree, script: &Script<'_>) {
    for complaint in hal.complaints() {
        check(complaint, tree.root());
    }
    let mut taken = CpuSet::EMPTY;
    for (handle, domain) in hal.domains().iter() {
        let Some(covers) = domain.covers() else { panic!("{domain:?} covers nothing") };
        assert!(!taken.meets(covers.cpus()), "{covers:?} is shared");
        for cpu in covers.cpus().iter() {
            assert_eq!(taken.insert(cpu), Ok(()));
        }
        let Some(policy) = hal.policy(handle) else { panic!("{domain:?} has no policy") };
        let table = policy.table();
        assert!(table.khz().is_sorted() && table.khz().iter().all(|khz| *khz > 0));
        let wish = u32::try_from(script.wish).unwrap_or(u32::MAX);
        let told = table.at_or_below(wish);
        assert!(told <= wish && (told == wish || table.khz().contains(&told)));
    }
    if !script.replaces(&CPUS) && [18, 19, 20].iter().all(|at| !script.replaces(&[*at])) {
        let number = |at: usize| tree.read(at).and_then(frequency);
        let range = number(MIN).zip(number(MAX)).filter(|(min, max)| min <= max);
        let limits = hal.domains().find(&Key::policy(0)).and_then(|first| hal.domains().get(first));
        let limits = limits.and_then(|domain| domain.frequency()).map(|limit| (limit.lower(), limit.upper()));
        let expected = if tree.read(LIMIT).is_some() { range } else { None };
        assert_eq!(limits, expected, "the range of the first policy");
    }
}

fn check_turbo(hal: &Hal, tree: &Tree) {
    match hal.turbo() {
        Ok(_) => {}
        Err(error) => {
            check_file(&error, tree.root());
            assert!(TURBO.iter().any(|at| tree.read(*at).is_none_or(|text| attribute(text).is_none())));
        }
    }
}

fn check_samples(hal: &mut Hal, tree: &Tree, script: &Script<'_>) {
    let readings = sample(hal);
    let first = hal.domains().find(&Key::policy(0)).filter(|_| !script.replaces(&CPUS));
    let Some(reading) = readings.iter().find(|reading| Some(reading.domain) == first) else { return };
    let has_limit = hal.domains().get(reading.domain).is_some_and(|domain| domain.has(Control::Frequency));
    let files = [LIMIT, CURRENT, AVERAGE].map(|at| tree.read(at));
    let [Some(limit), Some(current), Some(average)] = files.map(|text| text.map(frequency)) else { return };
    match reading.outcome {
        Ok(sample) => {
            let runs = average.or(current);
            assert_eq!(sample.frequency, runs.ok_or(ErrorKind::BadData));
            if has_limit {
                assert_eq!(sample.frequency_limit, limit.ok_or(ErrorKind::BadData));
            }
        }
        Err(kind) => {
            assert_eq!(kind, ErrorKind::BadData);
            assert!(
                limit.is_none() && current.is_none() && average.is_none(),
                "{limit:?} {current:?} {average:?}"
            );
        }
    }
}

fn set_and_release(hal: &mut Hal, tree: &Tree, script: &Script<'_>, handle: Handle) {
    let Some(domain) = hal.domains().get(handle).copied() else { return };
    let wish = KiloHertz::from_int(i32::try_from(script.wish).unwrap_or(i32::MAX));
    let before = tree.settings();
    let applied = hal.apply(handle, Setting::Frequency(wish));
    let after = tree.settings();
    match &applied {
        Ok(applied) => {
            let Setting::Frequency(found) = applied.effective() else { panic!("{applied:?}") };
            let limit = domain.frequency().and_then(|limit| limit.clamp(wish));
            assert!(
                limit.is_some_and(|limit| found <= limit && found > KiloHertz::ZERO),
                "{found} {limit:?}"
            );
            let changed: Vec<usize> = (0..FILES.len()).filter(|at| before[*at] != after[*at]).collect();
            assert!(changed.iter().all(|at| FILES[*at].path.ends_with("/scaling_max_freq")), "{changed:?}");
            assert!(changed.len() <= 1, "one policy is one file");
            for at in changed {
                assert_eq!(after[at].as_deref().and_then(frequency), Some(found));
            }
        }
        Err(error) => {
            check_failure(error, tree.root());
            if hal.originals().kept(domain.key(), Control::Frequency).is_none() {
                assert_eq!(after, before, "a refusal changed something: {error}");
            }
        }
    }
    match hal.release(handle) {
        Ok(Released::Untouched) => {}
        Ok(Released::Restored) => {
            let limits =
                |files: &[Option<Vec<u8>>]| [LIMIT, 16].map(|at| files[at].as_deref().and_then(frequency));
            // A limit that the driver no longer accepts is restored as the highest one that it accepts.
            let most = |limit: KiloHertz| domain.frequency().and_then(|range| range.clamp(limit));
            for (found, original) in limits(&tree.settings()).into_iter().zip(limits(&before)) {
                let is_cut = found < original && found == original.and_then(most);
                assert!(found == original || is_cut, "the original is not back: {found:?} for {original:?}");
            }
        }
        Err(error) => check_failure(&error, tree.root()),
    }
}

fn check_failure(error: &PortError<CpufreqError>, root: &Path) {
    match error {
        PortError::Hal(error) => check(error, root),
        PortError::Refused(_) => {}
    }
}
