//! The content of folders, in files that a test writes.

use crate::support::{
    DEVICE, FOLDER, Folder, GPU, apply, card, effective, find, hwmon, keys, most, one, open, release, sample,
    w, with,
};
use hal_intel::{COUNTER, IntelError, OFF};
use power_hal::{Control, Counter, Error, ErrorKind, Measured, Meter, Original, Originals, PowerHal};
use power_units::{MicroJoules, MicroWatts};

#[test]
fn a_machine_without_hwmon_has_no_domain() {
    let folder = Folder::new();
    let mut hal = open(&folder.0);
    assert_eq!((hal.describe().unwrap().len(), hal.complaints()), (0, &[][..]));
}

#[test]
fn only_the_drivers_name_decides_and_tiles_and_strangers_are_no_domains() {
    let folder = Folder::new();
    hwmon(&folder, 10, "pci0000:00/0000:4d:00.0", "xe", GPU);
    hwmon(&folder, 2, "pci0000:00/0000:4C:00.0", "i915", GPU);
    hwmon(&folder, 1, "pci0000:00/0000:4b:00.0", "i915_gt0", &[("energy1_input", "5")]);
    hwmon(&folder, 0, "pci0000:00/0000:0c:00.0", "amdgpu", GPU);
    hwmon(&folder, 3, "platform/unheard_of", "i915", GPU);
    let hal = open(&folder.0);
    assert_eq!(keys(&hal), ["gpu-0000:4c:00.0", "gpu-0000:4d:00.0"]);
    let [IntelError::Unidentified(path)] = hal.complaints() else { panic!("{:?}", hal.complaints()) };
    assert!(path.ends_with("hwmon3"));
    // Two folders of one GPU.
    let folder = Folder::new();
    hwmon(&folder, 4, "pci0000:00/0000:4d:00.0", "i915", GPU);
    hwmon(&folder, 5, "pci0000:00/0000:4d:00.0", "xe", GPU);
    let hal = open(&folder.0);
    assert_eq!(keys(&hal).len(), 1);
    assert!(matches!(hal.complaints(), [IntelError::Twice(..)]), "{:?}", hal.complaints());
}

#[test]
fn a_gpu_has_what_its_folder_has_and_a_meter_never_shows_less_than_is_limited() {
    let shape = |files: &[(&str, &str)]| {
        let folder = with("xe", files);
        let hal = open(&folder.0);
        let domain = hal.domains().as_slice().first().copied();
        let shape = domain.map(|domain| (domain.meter(), domain.power().map(|it| (it.upper(), it.max()))));
        (shape, hal.complaints().len())
    };
    let meter = Some(Meter::Energy(Counter::new(COUNTER)));
    let (card, package) = (("power1_max", "600000000"), ("power2_max", "550000000"));
    let (card_rated, package_rated) = (("power1_rated_max", "600000000"), ("power2_rated_max", "550000000"));
    let (of_card, of_package) = (("energy1_input", "5"), ("energy2_input", "4"));
    let known = |watts| Some((w(watts), Some(w(watts))));
    assert_eq!(shape(&[card, card_rated, of_card]), (Some((meter, known(600))), 0));
    assert_eq!(
        shape(&[card, card_rated, package, package_rated, of_card, of_package]),
        (Some((meter, known(600))), 0)
    );
    assert_eq!(
        shape(&[package, package_rated, of_card]),
        (Some((meter, known(550))), 0),
        "xe on Ponte Vecchio"
    );
    assert_eq!(shape(&[package, package_rated, of_package]), (Some((meter, known(550))), 0));
    assert_eq!(
        shape(&[card, card_rated, of_package]),
        (Some((None, known(600))), 1),
        "the meter is too narrow"
    );
    assert_eq!(shape(&[of_package]), (Some((meter, None)), 0));
    assert_eq!(shape(&[card]), (Some((None, known(600))), 0), "what is in force is all that is known");
    assert_eq!(shape(&[("power1_max", "0")]), (Some((None, Some((w(4_095), None)))), 0), "nothing is known");
    assert_eq!(shape(&[("power1_crit", "900000000"), ("in0_input", "700")]), (None, 0));
    assert_eq!(shape(&[card, ("power1_rated_max", "0")]), (Some((None, known(600))), 0));
}

#[test]
fn the_sum_of_the_energy_is_shown_within_the_range_of_its_register() {
    let (folder, key) = one();
    let mut hal = open(&folder.0);
    let mut shown = |text: &str| {
        folder.put(&format!("{FOLDER}/energy1_input"), format!("{text}\n"));
        sample(&mut hal, &key).unwrap().meter
    };
    let energy = |uj| Ok(Measured::Energy(MicroJoules::new(uj)));
    assert_eq!(COUNTER.get(), 262_144_000_000);
    assert_eq!(shown("262143999999"), energy(262_143_999_999));
    assert_eq!(shown("262144000007"), energy(7));
    assert_eq!(shown(&u64::MAX.to_string()), energy(u64::MAX % 262_144_000_000));
    assert_eq!(shown("0"), Err(ErrorKind::BadData), "the driver could not read it");
}

#[test]
fn bad_text_in_any_file_is_bad_data_with_its_path_and_never_a_number() {
    for bad in [&b""[..], b"\n", b"-1\n", b"12x\n", b"0x10\n", b"\xff\xfe\n", b"99999999999999999999\n"] {
        let (folder, key) = one();
        let mut hal = open(&folder.0);
        folder.put(&format!("{FOLDER}/energy1_input"), bad);
        let sampled = sample(&mut hal, &key).unwrap();
        assert_eq!((sampled.meter, sampled.power_limit), (Err(ErrorKind::BadData), Ok(w(600))), "{bad:?}");
        folder.put(&format!("{FOLDER}/power1_max"), bad);
        assert_eq!(sample(&mut hal, &key), Err(ErrorKind::BadData), "{bad:?}");
        assert_eq!(apply(&mut hal, &key, w(400)), Err(ErrorKind::BadData), "{bad:?}");
        let file = folder.0.join(FOLDER).join("power1_max");
        assert_eq!(std::fs::read(file).unwrap(), bad, "nothing was written");
        folder.put(&format!("{FOLDER}/power1_rated_max"), bad);
        hal.describe().unwrap();
        let [limit, rated] = hal.complaints() else { panic!("{bad:?}: {:?}", hal.complaints()) };
        assert!(limit.to_string().contains("power1_max"), "{limit}");
        assert!(rated.to_string().contains("power1_rated_max"), "{rated}");
        assert_eq!(most(&hal, &key), Some(w(600)), "what was known stays known");
    }
}

#[test]
fn a_number_that_no_card_draws_is_bad_data() {
    let (folder, key) = one();
    let mut hal = open(&folder.0);
    for huge in ["20000000001", "18446744073709551615"] {
        folder.put(&format!("{FOLDER}/power1_max"), format!("{huge}\n"));
        assert_eq!(sample(&mut hal, &key).unwrap().power_limit, Err(ErrorKind::BadData));
    }
}

#[test]
fn a_limit_that_is_off_is_more_than_any_card_draws_and_is_switched_off_again() {
    let (folder, key) = one();
    folder.put(&format!("{FOLDER}/power1_max"), "0\n");
    let mut hal = open(&folder.0);
    assert_eq!(sample(&mut hal, &key).unwrap().power_limit, Ok(OFF));
    assert_eq!(effective(&mut hal, &key, w(400)), w(400));
    release(&mut hal, &key).unwrap();
    assert_eq!(folder.get(&format!("{FOLDER}/power1_max")), "0");
}

#[test]
fn a_gpu_that_sleeps_is_not_read() {
    let (folder, key) = one();
    let status = format!("{DEVICE}/power/runtime_status");
    folder.put(&status, "active\n");
    let mut hal = open(&folder.0);
    for (text, outcome) in
        [("suspended\n", Some(ErrorKind::Busy)), ("suspending\n", Some(ErrorKind::Busy)), ("active\n", None)]
    {
        folder.put(&status, text);
        assert_eq!(sample(&mut hal, &key).err(), outcome, "{text:?}");
    }
    folder.put(&status, "suspended\n");
    folder.put(&format!("{FOLDER}/power1_rated_max"), "junk\n");
    hal.describe().unwrap();
    assert_eq!((most(&hal, &key), hal.complaints()), (Some(w(600)), &[][..]), "its range is not asked for");
}

#[test]
fn a_spoilt_journal_is_not_written_to_the_hardware() {
    for (layout, words) in [(0, &[][..]), (0, &[0]), (0, &[u64::MAX]), (0, &[1, 2]), (1, &[400_000_000])] {
        let (folder, key) = one();
        let mut hal = open(&folder.0);
        hal.originals().keep(&key, Control::Power, &Original::new(layout, words).unwrap()).unwrap();
        assert_eq!(release(&mut hal, &key), Err(ErrorKind::BadData), "{words:?}");
        assert_eq!(folder.get(&format!("{FOLDER}/power1_max")), "600000000\n");
        assert!(hal.originals().kept(&key, Control::Power).is_some());
    }
}

#[test]
fn a_limit_that_this_process_may_not_write_is_shown_and_refused() {
    // A kernel number that not even root may write, used as the limit.
    const NUMBER: &str = "/sys/devices/system/cpu/kernel_max";
    let Ok(number) = std::fs::read_to_string(NUMBER) else {
        println!("SKIP(no {NUMBER})");
        return;
    };
    let (folder, key) = one();
    folder.remove(&format!("{FOLDER}/power1_max"));
    folder.link(&format!("{FOLDER}/power1_max"), NUMBER);
    let mut hal = open(&folder.0);
    let shown = MicroWatts::new(number.trim().parse().unwrap());
    assert_eq!(sample(&mut hal, &key).unwrap().power_limit, Ok(shown));
    assert_eq!(apply(&mut hal, &key, w(400)), Err(ErrorKind::PermissionDenied));
}

#[test]
fn a_gpu_has_no_other_control() {
    let (folder, _) = one();
    let mut hal = open(&folder.0);
    let handle = find(&hal, &card());
    assert_eq!(hal.save(handle, Control::Frequency), Err(IntelError::Lacking));
    assert_eq!(IntelError::Lacking.kind(), ErrorKind::NotSupported);
}
