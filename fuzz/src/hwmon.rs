//! Property: whatever the files of a GPU and a socket contain, a power is the content of its file or bad data, no
//! value is larger than a device can have, the state of a GPU is possible, an accepted cap is in the range, a refusal has changed nothing, and a
//! release restores the original.

use crate::port::{check_domains, check_file, check_names, clock, microwatts, sample};
use crate::text::attribute;
use crate::tree::{File, Script, Tree, file, setting, with};
use hal_amd::{Amd, AmdError, DeviceSelection, Hwmon};
use hal_files::Root;
use power_hal::{
    Control, ErrorKind, Handle, Key, Measured, Originals, OriginalsInMemory, PortError, PowerHal, Released,
    Setting,
};
use power_units::{KiloHertz, MicroWatts, Stamp};
use std::cell::RefCell;
use std::path::Path;

const FILES: &[File] = &[
    file("sys/class/hwmon/hwmon3/name", "amdgpu\n"),
    setting("sys/class/hwmon/hwmon3/power1_cap", "750000000\n"),
    file("sys/class/hwmon/hwmon3/power1_cap_min", "0\n"),
    file("sys/class/hwmon/hwmon3/power1_cap_max", "750000000\n"),
    file("sys/class/hwmon/hwmon3/power1_cap_default", "750000000\n"),
    file("sys/class/hwmon/hwmon3/power1_average", "140000000\n"),
    file("sys/class/hwmon/hwmon3/power1_input", "141000000\n"),
    file("sys/devices/pci0000:00/0000:c1:00.0/power/runtime_status", "active\n"),
    file("sys/class/hwmon/hwmon4/name", "amd_hsmp_hwmon\n"),
    setting("sys/class/hwmon/hwmon4/power1_cap", "400000000\n"),
    file("sys/class/hwmon/hwmon4/power1_cap_max", "400000000\n"),
    file("sys/class/hwmon/hwmon4/power1_input", "123456000\n"),
    file("sys/devices/platform/AMDI0097:00/firmware_node/uid", "ID01\n"),
    file("sys/class/hwmon/hwmon3/temp2_label", "junction\n"),
    file("sys/class/hwmon/hwmon3/temp2_input", "45000\n"),
    file("sys/devices/pci0000:00/0000:c1:00.0/gpu_busy_percent", "12\n"),
    file("sys/devices/pci0000:00/0000:c1:00.0/mem_info_vram_used", "1073741824\n"),
    file("sys/devices/pci0000:00/0000:c1:00.0/mem_info_vram_total", "206158430208\n"),
    file("sys/devices/pci0000:00/0000:c1:00.0/gpu_metrics", METRICS),
    file("sys/devices/pci0000:00/0000:c1:00.0/pp_od_clk_voltage", "OD_SCLK:\n0: 132Mhz\n1: 2100Mhz\n"),
    file("sys/devices/pci0000:00/0000:c1:00.0/power_dpm_force_performance_level", "auto\n"),
    file("sys/class/hwmon/hwmon3/freq1_input", "1200000000\n"),
];

/// A table of version 1.6: 1656 bytes by its header, then 28 bytes that are not used here, then the counted periods, those
/// of PROCHOT, and those of the power limit.
const METRICS: &str =
    "x\u{6}\u{1}\u{6}                            \u{40}\u{1}\0\0\0\0\0\0\u{9}\0\0\0            ";

const LINKS: [(&str, &str); 2] = [
    ("sys/class/hwmon/hwmon3/device", "../../../devices/pci0000:00/0000:c1:00.0"),
    ("sys/class/hwmon/hwmon4/device", "../../../devices/platform/AMDI0097:00"),
];

const NAME: usize = 0;
const CAP: usize = 1;
const AVERAGE: usize = 5;
const INPUT: usize = 6;
const STATUS: usize = 7;
const CAPS: [usize; 2] = [1, 9];

/// More than any device has.
const POSSIBLE_MAX_UW: u64 = 20_000_000_000;

/// No GPU runs faster.
const CLOCK_MAX: KiloHertz = KiloHertz::from_int(10_000_000);

type Hal = Amd<Hwmon, fn() -> Stamp, OriginalsInMemory<8>>;

thread_local! {
    static TREE: RefCell<Option<Tree>> = const { RefCell::new(None) };
}

pub(crate) fn run(bytes: &[u8]) {
    TREE.with(|tree| with(tree, || Tree::new(FILES, &LINKS), |tree| look(tree, bytes)));
}

fn power(text: &[u8]) -> Option<MicroWatts> {
    attribute(text).filter(|uw| *uw <= POSSIBLE_MAX_UW).map(MicroWatts::new)
}

fn look(tree: &mut Tree, bytes: &[u8]) {
    let script = Script::of(bytes, FILES.len(), 400_000_000);
    tree.stage(&script);
    let clock: fn() -> Stamp = clock;
    let mut hal = match Amd::open(
        Hwmon::new(Root::at(tree.root()), DeviceSelection::All),
        clock,
        OriginalsInMemory::new(),
    ) {
        Ok(hal) => hal,
        Err(error) => return check(&error, tree.root()),
    };
    check_domains(hal.domains());
    for complaint in hal.complaints() {
        check(complaint, tree.root());
    }
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

fn check(error: &AmdError, root: &Path) {
    check_names(error, root);
    if let AmdError::File(_, error) | AmdError::InReset(_, error) | AmdError::TakesNoCap(_, error) = error {
        check_file(error, root);
    }
}

fn check_samples(hal: &mut Hal, tree: &Tree, script: &Script<'_>) {
    let readings = sample(hal);
    let gpu = Key::gpu("0000:c1:00.0").ok().filter(|_| !script.replaces(&[NAME]));
    let handle = gpu.and_then(|gpu| hal.domains().find(&gpu));
    let Some(reading) = readings.iter().find(|reading| Some(reading.domain) == handle) else { return };
    let status = tree.read(STATUS).map(|text| text.strip_suffix(b"\n").unwrap_or(text));
    if matches!(status, Some(b"suspended" | b"suspending")) {
        assert_eq!(reading.outcome, Err(ErrorKind::Busy), "a GPU that sleeps was woken");
        return;
    }
    let files = [CAP, AVERAGE, INPUT].map(|at| tree.read(at).map(power));
    let [Some(cap), Some(average), Some(input)] = files else { return };
    let cap = cap.filter(|cap| *cap > MicroWatts::ZERO).ok_or(ErrorKind::BadData);
    let drawn = average.or(input).map(Measured::Power).ok_or(ErrorKind::BadData);
    match reading.outcome {
        Ok(sample) => {
            assert_eq!(sample.meter, drawn);
            for clock in [sample.frequency, sample.frequency_limit].into_iter().flatten() {
                assert!(clock > KiloHertz::ZERO && clock <= CLOCK_MAX, "{clock:?}");
            }
            if hal.domains().get(reading.domain).is_some_and(|domain| domain.has(Control::Power)) {
                assert_eq!(sample.power_limit, cap);
            }
        }
        Err(kind) => {
            assert_eq!(kind, ErrorKind::BadData);
            assert!(drawn.is_err(), "{drawn:?}");
        }
    }
}

fn set_and_release(hal: &mut Hal, tree: &Tree, script: &Script<'_>, handle: Handle) {
    let Some(domain) = hal.domains().get(handle).copied() else { return };
    let wish = MicroWatts::new(script.wish);
    let before = tree.settings();
    let applied = hal.apply(handle, Setting::Power(wish));
    let after = tree.settings();
    match &applied {
        Ok(applied) => {
            let wanted = domain.power().and_then(|power| power.clamp(wish));
            assert_eq!(microwatts(applied.effective()), wanted.map(MicroWatts::get));
            let changed: Vec<usize> = (0..FILES.len()).filter(|at| before[*at] != after[*at]).collect();
            assert!(changed.len() <= 1 && changed.iter().all(|at| CAPS.contains(at)), "{changed:?}");
        }
        Err(error) => {
            check_failure(error, tree.root());
            if hal.originals().kept(domain.key(), Control::Power).is_none() {
                assert_eq!(after, before, "a refusal changed something: {error}");
            }
        }
    }
    match hal.release(handle) {
        Ok(Released::Untouched) => {}
        Ok(Released::Restored) => {
            let caps = |files: &[Option<Vec<u8>>]| CAPS.map(|at| files[at].as_deref().and_then(power));
            assert_eq!(caps(&tree.settings()), caps(&before), "the original is not back");
        }
        Err(error) => check_failure(&error, tree.root()),
    }
}

fn check_failure(error: &PortError<AmdError>, root: &Path) {
    match error {
        PortError::Hal(AmdError::Gone | AmdError::Lacking) | PortError::Refused(_) => {}
        PortError::Hal(error) => check(error, root),
    }
}
