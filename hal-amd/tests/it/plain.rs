//! The content of folders, in files that a test writes.

use crate::support::{Drivers, Folder, GPU, apply, effective, gpu, keys, open, release, sample, w};
use hal_amd::{Amd, AmdError, DeviceSelection, Hwmon};
use hal_files::Root;
use power_hal::{Control, Error, ErrorKind, Key, Measured, Original, Originals, OriginalsInMemory, PowerHal};
use power_units::{MicroWatts, Micros, Stamp};

const DEVICE: &str = "sys/devices/pci0000:00/0000:0c:00.0";
const FOLDER: &str = "sys/devices/pci0000:00/0000:0c:00.0/hwmon/hwmon4";

fn one() -> (Folder, Key) {
    let folder = Folder::new();
    folder.gpu(4, "0000:0c:00.0");
    (folder, gpu("0000:0c:00.0"))
}

fn with(files: &[(&str, &str)]) -> Folder {
    let folder = Folder::new();
    folder.hwmon(4, "pci0000:00/0000:0c:00.0", "amdgpu", files);
    folder
}

#[test]
fn a_machine_without_hwmon_has_no_domain() {
    let folder = Folder::new();
    let mut hal = open(&folder.0);
    assert_eq!((hal.describe().unwrap().len(), hal.complaints()), (0, &[][..]));
}

#[test]
fn only_the_drivers_name_decides_and_partitions_and_strangers_are_no_domains() {
    let folder = Folder::new();
    folder.gpu(10, "0000:0c:00.0");
    folder.gpu(2, "0000:0B:00.0");
    folder.hwmon(0, "virtual/nvme0", "nvme", GPU);
    folder.hwmon(1, "platform/amdgpu_xcp.1", "amdgpu", GPU);
    folder.hwmon(3, "platform/unheard_of", "amdgpu", GPU);
    folder.put("sys/class/hwmon/readme", "no folder of hwmon\n");
    let hal = open(&folder.0);
    assert_eq!(keys(&hal), ["gpu-0000:0b:00.0", "gpu-0000:0c:00.0"]);
    let [AmdError::Unidentified(path)] = hal.complaints() else { panic!("{:?}", hal.complaints()) };
    assert!(path.ends_with("hwmon3"));
    assert_eq!(hal.complaints()[0].kind(), ErrorKind::BadData);
}

#[test]
fn a_device_that_two_folders_show_is_one_domain() {
    let folder = Folder::new();
    folder.gpu(4, "0000:0c:00.0");
    folder.gpu(5, "0000:0c:00.0");
    let hal = open(&folder.0);
    assert_eq!(keys(&hal), ["gpu-0000:0c:00.0"]);
    assert!(matches!(hal.complaints(), [AmdError::Twice(..)]), "{:?}", hal.complaints());
}

const SOCKET: &[(&str, &str)] =
    &[("power1_cap", "400000000"), ("power1_cap_max", "400000000"), ("power1_input", "123456000")];

#[test]
fn a_socket_is_known_by_its_number_however_the_driver_was_bound() {
    // Behind ACPI: the firmware's number, then the instance. hwmon's order differs from that of the sockets
    // here.
    let folder = Folder::new();
    folder.hwmon(7, "platform/AMDI0097:00", "amd_hsmp_hwmon", SOCKET);
    folder.put("sys/devices/platform/AMDI0097:00/firmware_node/uid", "ID01\n");
    folder.hwmon(9, "platform/AMDI0097:0a", "amd_hsmp_hwmon", SOCKET);
    assert_eq!(keys(&open(&folder.0)), ["socket-1", "socket-10"]);
    // Without ACPI: one device for all, registered from the first socket on; ten comes after nine.
    let folder = Folder::new();
    for (number, cap) in [(9, "200000000"), (10, "300000000")] {
        let files = [("power1_cap", cap), ("power1_cap_max", "400000000"), ("power1_input", "1000000")];
        folder.hwmon(number, "platform/amd_hsmp", "amd_hsmp_hwmon", &files);
    }
    let mut hal = open(&folder.0);
    assert_eq!(keys(&hal), ["socket-0", "socket-1"]);
    assert_eq!(sample(&mut hal, &Key::socket(0)).unwrap().power_limit, Ok(w(200)));
    assert_eq!(sample(&mut hal, &Key::socket(1)).unwrap().power_limit, Ok(w(300)));
    // An invalid number.
    let folder = Folder::new();
    folder.hwmon(7, "platform/AMDI0097:00", "amd_hsmp_hwmon", SOCKET);
    folder.put("sys/devices/platform/AMDI0097:00/firmware_node/uid", "CPU\n");
    let hal = open(&folder.0);
    assert!(matches!(hal.complaints(), [AmdError::Unidentified(_)]) && hal.domains().is_empty());
}

#[test]
fn a_host_may_have_gpus_and_sockets_apart() {
    let (folder, _) = one();
    folder.hwmon(7, "platform/amd_hsmp", "amd_hsmp_hwmon", SOCKET);
    let only = |devices| {
        let now = || Stamp::new(Micros::ZERO);
        let hal =
            Amd::open(Hwmon::new(Root::at(&folder.0), devices), now, OriginalsInMemory::<1>::new()).unwrap();
        let keys: Vec<String> = hal.domains().iter().map(|(_, domain)| domain.key().to_string()).collect();
        keys
    };
    assert_eq!(only(DeviceSelection::Gpus), ["gpu-0000:0c:00.0"]);
    assert_eq!(only(DeviceSelection::Sockets), ["socket-0"]);
    assert_eq!(only(DeviceSelection::All), ["gpu-0000:0c:00.0", "socket-0"]);
}

#[test]
fn the_mean_power_is_preferred_and_the_instant_one_is_as_good_where_there_is_no_other() {
    let meter = |files: &[(&str, &str)]| {
        let folder = with(files);
        let mut hal = open(&folder.0);
        sample(&mut hal, &gpu("0000:0c:00.0")).unwrap().meter
    };
    let (cap, average, input) =
        (("power1_cap", "750000000"), ("power1_average", "500250000"), ("power1_input", "612000000"));
    let power = |microwatts| Ok(Measured::Power(MicroWatts::new(microwatts)));
    assert_eq!(meter(&[cap, average, input]), power(500_250_000));
    assert_eq!(meter(&[cap, input]), power(612_000_000));
    assert_eq!(meter(&[cap, ("power1_average", ""), input]), power(612_000_000));
    assert_eq!(meter(&[cap]), Err(ErrorKind::NotSupported));
}

#[test]
fn a_device_has_what_its_folder_has() {
    let shape = |files: &[(&str, &str)]| {
        let folder = with(files);
        let hal = open(&folder.0);
        let domain = hal.domains().as_slice().first().copied();
        domain.map(|domain| {
            let power = domain.power();
            (domain.meter().is_some(), power.map(|p| (p.lower(), p.upper(), p.default())))
        })
    };
    let (cap, input) = (("power1_cap", "750000000"), ("power1_input", "612000000"));
    assert_eq!(shape(&[input]), Some((true, None)));
    assert_eq!(shape(&[cap, input]), Some((true, Some((w(1), w(4_294), None)))));
    assert_eq!(shape(&[cap]), Some((false, Some((w(1), w(4_294), None)))));
    assert_eq!(shape(GPU), Some((true, Some((w(350), w(750), Some(w(750)))))));
    assert_eq!(shape(&[("power2_cap", "30000000"), ("freq1_input", "1")]), None);
    assert_eq!(shape(&[cap, input, ("power1_cap_max", "0")]), None, "a secondary die");
    // Kernels before 6.7 report a minimum of 0 for every GPU.
    let old = [cap, ("power1_cap_min", "0"), ("power1_cap_max", "750000000")];
    assert_eq!(shape(&old), Some((false, Some((w(1), w(750), None)))));
    let crossed = [cap, input, ("power1_cap_min", "760000000"), ("power1_cap_max", "750000000")];
    assert_eq!(
        shape(&crossed),
        Some((true, Some((w(1), w(750), None)))),
        "of a crossed range the maximum holds"
    );
}

#[test]
fn bad_text_in_any_file_is_bad_data_with_its_path_and_never_a_number() {
    for bad in [
        &b""[..],
        b"\n",
        b"-1\n",
        b"12x\n",
        b"1 2\n",
        b"0x10\n",
        b"\xff\xfe\n",
        b"99999999999999999999\n",
        b"20000000001\n",
    ] {
        let (folder, key) = one();
        let mut hal = open(&folder.0);
        folder.put(&format!("{FOLDER}/power1_average"), bad);
        let sampled = sample(&mut hal, &key).unwrap();
        assert_eq!((sampled.meter, sampled.power_limit), (Err(ErrorKind::BadData), Ok(w(750))), "{bad:?}");
        folder.put(&format!("{FOLDER}/power1_cap"), bad);
        assert_eq!(sample(&mut hal, &key), Err(ErrorKind::BadData), "{bad:?}");
        let error = apply(&mut hal, &key, w(400)).unwrap_err();
        assert_eq!(error, ErrorKind::BadData, "{bad:?}");
        assert_eq!(
            std::fs::read(folder.0.join(FOLDER).join("power1_cap")).unwrap(),
            bad,
            "nothing was written"
        );
        for name in ["power1_cap_min", "power1_cap_max", "power1_cap_default"] {
            folder.put(&format!("{FOLDER}/{name}"), bad);
        }
        hal.describe().unwrap();
        let told: Vec<String> = hal.complaints().iter().map(ToString::to_string).collect();
        assert_eq!(told.len(), 3, "{bad:?}: {told:?}");
        assert!(told.iter().all(|text| text.contains("gpu-0000:0c:00.0") && text.contains("power1_cap_")));
        let domain = hal.domains().as_slice()[0];
        assert_eq!(domain.power().unwrap().max(), Some(w(750)), "what was known stays known");
    }
}

#[test]
fn a_cap_of_zero_is_not_what_is_in_force() {
    let (folder, key) = one();
    folder.put(&format!("{FOLDER}/power1_cap"), "0\n");
    let mut hal = open(&folder.0);
    assert_eq!(sample(&mut hal, &key).unwrap().power_limit, Err(ErrorKind::BadData));
    assert_eq!(apply(&mut hal, &key, w(400)), Err(ErrorKind::BadData));
}

#[test]
fn a_folder_whose_name_cannot_be_understood_is_a_complaint_and_no_domain() {
    let (folder, _) = one();
    folder.put(&format!("{FOLDER}/name"), b"\xff\n");
    let hal = open(&folder.0);
    assert!(hal.domains().is_empty());
    assert!(matches!(hal.complaints(), [AmdError::File(None, error)] if error.path.ends_with("hwmon4/name")));
    // A folder that was removed between the listing and the access is no complaint.
    folder.remove(&format!("{FOLDER}/name"));
    assert_eq!(open(&folder.0).complaints(), []);
}

#[test]
fn every_way_of_sleeping_keeps_a_gpu_from_being_read() {
    let (folder, key) = one();
    let status = format!("{DEVICE}/power/runtime_status");
    folder.put(&status, "active\n");
    let mut hal = open(&folder.0);
    for (text, outcome) in [
        ("suspended\n", Some(ErrorKind::Busy)),
        ("suspending\n", Some(ErrorKind::Busy)),
        ("active\n", None),
        ("resuming\n", None),
        ("unsupported\n", None),
        ("error\n", None),
        ("\n", None),
    ] {
        folder.put(&status, text);
        assert_eq!(sample(&mut hal, &key).err(), outcome, "{text:?}");
    }
}

#[test]
fn a_spoilt_journal_is_not_written_to_the_hardware() {
    for (layout, words) in [(0, &[][..]), (0, &[0]), (0, &[u64::MAX]), (0, &[1, 2]), (1, &[400_000_000])] {
        let (folder, key) = one();
        let mut hal = open(&folder.0);
        hal.originals().keep(&key, Control::Power, &Original::new(layout, words).unwrap()).unwrap();
        assert_eq!(release(&mut hal, &key), Err(ErrorKind::BadData), "{words:?}");
        assert_eq!(folder.get(&format!("{FOLDER}/power1_cap")), "750000000\n");
        assert!(hal.originals().kept(&key, Control::Power).is_some());
    }
}

#[test]
fn a_cap_that_this_process_may_not_write_is_shown_and_refused() {
    // A kernel number that not even root may write, used as the cap.
    const NUMBER: &str = "/sys/devices/system/cpu/kernel_max";
    let Ok(number) = std::fs::read_to_string(NUMBER) else {
        println!("SKIP(no {NUMBER})");
        return;
    };
    let (folder, key) = one();
    folder.remove(&format!("{FOLDER}/power1_cap"));
    folder.link(&format!("{FOLDER}/power1_cap"), NUMBER);
    let mut hal = open(&folder.0);
    let shown = MicroWatts::new(number.trim().parse().unwrap());
    assert_eq!(sample(&mut hal, &key).unwrap().power_limit, Ok(shown));
    assert_eq!(apply(&mut hal, &key, w(400)), Err(ErrorKind::PermissionDenied));
}

#[test]
fn a_device_has_no_other_control() {
    let (folder, key) = one();
    let mut hal = open(&folder.0);
    let handle = crate::support::find(&hal, &key);
    assert_eq!(hal.save(handle, Control::Frequency), Err(AmdError::Lacking));
    assert_eq!(AmdError::Lacking.kind(), ErrorKind::NotSupported);
    assert_eq!(effective(&mut hal, &key, w(400)), w(400));
}
