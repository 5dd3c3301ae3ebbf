//! Plain folders: content that no kernel writes, and content of other machines.

use crate::support::{Folder, apply, find, in_force, khz, open, release, sample};
use hal_cpufreq::CpufreqFault;
use power_hal::{ApplyOutcome, Error, ErrorKind, PowerHal};
use proptest::prelude::*;
use std::ffi::OsStr;
use std::process::Command;

const BAD: [&[u8]; 11] = [
    b"",
    b"\n",
    b"-1\n",
    b"abc\n",
    b"3200000 kHz\n",
    b"0x10\n",
    b"99999999999999999999999999\n",
    b"4294967296\n",
    b"0\n",
    b"\xff\xfe\x00\n",
    &[b'1'; 5000],
];

#[test]
fn no_cpufreq_is_no_policy_and_no_error() {
    let folder = Folder::new();
    let mut hal = open(&folder.0);
    assert!(hal.describe().unwrap().is_empty());
    assert_eq!((hal.complaints(), hal.turbo()), (&[][..], Ok(None)));
    folder.put("cpufreq/boost", "1\n");
    folder.put("cpufreq/ondemand/rate_limit_us", "1000\n");
    assert!(hal.describe().unwrap().is_empty());
    assert_eq!(hal.turbo(), Ok(Some(true)));
}

#[test]
fn a_folder_that_cannot_be_listed_is_an_error_and_the_last_list_stands() {
    let folder = Folder::two_cores();
    let mut hal = open(&folder.0);
    folder.remove("cpufreq");
    folder.put("cpufreq", "no folder");
    let error = hal.describe().unwrap_err();
    assert!(error.to_string().contains("devices/system/cpu/cpufreq"), "{error}");
    assert_eq!(hal.domains().len(), 4);
}

/// The effect of an invalid text in one file, on the list and on that policy.
#[test]
fn bad_text_in_any_file_is_bad_data_with_its_path_and_harms_no_other_policy() {
    let files = [
        ("related_cpus", false),
        ("affected_cpus", false),
        ("cpuinfo_min_freq", true),
        ("cpuinfo_max_freq", true),
        ("scaling_driver", true),
        ("scaling_available_frequencies", true),
        ("base_frequency", true),
        ("bios_limit", true),
    ];
    for (file, listed) in files {
        for bad in BAD {
            let text = matches!(file, "scaling_driver") && bad.iter().all(|b| b.is_ascii() && *b != 0);
            let list = file.ends_with("_cpus") && matches!(bad, b"" | b"\n" | b"0\n");
            let table = file == "scaling_available_frequencies" && matches!(bad, b"" | b"\n");
            if (text && bad.len() < 256) || (list && file == "affected_cpus") || table {
                continue; // A driver's name, no CPU online, a driver without a table.
            }
            let folder = Folder::two_cores();
            folder.put(&format!("cpufreq/policy2/{file}"), bad);
            let mut hal = open(&folder.0);
            let shown = String::from_utf8_lossy(&bad[..bad.len().min(30)]).into_owned();
            let complaint = &hal.complaints()[0];
            assert_eq!(complaint.kind(), ErrorKind::BadData, "{file}: {shown:?}");
            let shared = complaint.fault == CpufreqFault::Shared;
            assert!(shared || complaint.to_string().contains(&format!("policy2/{file}")), "{complaint}");
            assert_eq!(hal.domains().len(), if listed { 4 } else { 3 }, "{file}: {shown:?}");
            if file.starts_with("cpuinfo") {
                // Described without a limit, so that no caller relies on one; its frequency can still be
                // read.
                let handle = find(&hal, 2);
                assert_eq!(apply(&mut hal, 2, 2_000_000), Err(ErrorKind::NotSupported));
                let sample = sample(&mut hal, handle).unwrap();
                assert_eq!(sample.frequency_limit, Err(ErrorKind::NotSupported));
                assert_eq!(sample.frequency, Ok(khz(2_900_000)));
            }
            assert_eq!(apply(&mut hal, 1, 2_000_000).unwrap().outcome(), ApplyOutcome::Exact);
            assert_eq!(release(&mut hal, 1), Ok(power_hal::Released::Restored));
        }
    }
}

#[test]
fn a_file_that_turns_bad_is_bad_data_in_its_own_value_only() {
    let folder = Folder::two_cores();
    let mut hal = open(&folder.0);
    let handle = find(&hal, 2);
    for bad in BAD {
        folder.put("cpufreq/policy2/scaling_max_freq", bad);
        let half = sample(&mut hal, handle).unwrap();
        assert_eq!((half.frequency_limit, half.frequency), (Err(ErrorKind::BadData), Ok(khz(2_900_000))));
        assert_eq!(
            apply(&mut hal, 2, 2_000_000),
            Err(ErrorKind::BadData),
            "nothing to save, nothing written"
        );
        assert_eq!(
            std::fs::read(folder.0.join("sys/devices/system/cpu/cpufreq/policy2/scaling_max_freq")).unwrap(),
            bad
        );
        folder.put("cpufreq/policy2/scaling_cur_freq", bad);
        assert_eq!(sample(&mut hal, handle), Err(ErrorKind::BadData));
        folder.put("cpufreq/policy2/scaling_max_freq", "3000000\n");
        let half = sample(&mut hal, handle).unwrap();
        assert_eq!((half.frequency_limit, half.frequency), (Ok(khz(3_000_000)), Err(ErrorKind::BadData)));
        folder.put("cpufreq/policy2/scaling_cur_freq", "2900000\n");
    }
    // A policy whose files can no longer be parsed keeps its last description.
    folder.put("cpufreq/policy2/related_cpus", "junk\n");
    folder.put("cpufreq/policy3/cpuinfo_max_freq", "junk\n");
    hal.describe().unwrap();
    assert_eq!((find(&hal, 2), hal.complaints().len()), (handle, 2));
    assert_eq!(apply(&mut hal, 3, 2_000_000).unwrap().outcome(), ApplyOutcome::Exact);
}

#[test]
fn bad_topology_is_a_complaint_and_what_was_known_holds() {
    for file in ["physical_package_id", "die_id", "thread_siblings_list"] {
        for bad in [&b"-1\n"[..], b"x\n", b"99999\n", b"\xff\n"] {
            let folder = Folder::two_cores();
            folder.put(&format!("cpu2/topology/{file}"), bad);
            let hal = open(&folder.0);
            assert_eq!(hal.domains().len(), 3, "{file}");
            let said = hal.complaints()[0].to_string();
            assert!(said.contains(&format!("cpu2/topology/{file}")), "{said}");
            let folder = Folder::two_cores();
            let mut hal = open(&folder.0);
            let before = hal.domains().as_slice().to_vec();
            folder.put(&format!("cpu2/topology/{file}"), bad);
            hal.describe().unwrap();
            assert_eq!((hal.domains().as_slice(), hal.complaints().len()), (&before[..], 1));
        }
    }
}

#[test]
fn a_cpu_is_in_one_policy_only() {
    let folder = Folder::two_cores();
    folder.policy(7, "1 3 7");
    let hal = open(&folder.0);
    assert_eq!(hal.domains().len(), 4);
    let [complaint] = hal.complaints() else { panic!("{:?}", hal.complaints()) };
    assert_eq!(complaint.fault, CpufreqFault::Shared);
    assert!(complaint.to_string().contains("policy"), "{complaint}");
    let folder = Folder::two_cores();
    folder.put("cpufreq/policy2/related_cpus", "0\n");
    let hal = open(&folder.0);
    assert!(hal.complaints()[0].to_string().contains("policy2: a CPU of it"), "{:?}", hal.complaints());
}

#[test]
fn a_range_with_nothing_in_it_is_no_limit() {
    let folder = Folder::two_cores();
    folder.put("cpufreq/policy1/cpuinfo_min_freq", "3300000\n");
    let mut hal = open(&folder.0);
    assert!(matches!(hal.complaints()[0].fault, CpufreqFault::Range(_)));
    assert_eq!(apply(&mut hal, 1, 2_000_000), Err(ErrorKind::NotSupported));
}

/// intel_pstate reads back every value and runs at multiples of 100 MHz. The limit itself has no step, so that somebody
/// else's small raise is still seen.
#[test]
fn what_the_driver_rounds_to_is_told_as_a_table() {
    let folder = Folder::new();
    folder.policy(0, "0");
    folder.cpu(0, 0, "0");
    for (name, text) in
        [("scaling_driver", "intel_pstate"), ("cpuinfo_min_freq", "850000"), ("cpuinfo_max_freq", "1230000")]
    {
        folder.put(&format!("cpufreq/policy0/{name}"), format!("{text}\n"));
    }
    let hal = open(&folder.0);
    let (handle, domain) = hal.domains().iter().next().unwrap();
    assert_eq!(hal.frequency_table(handle), [850_000, 900_000, 1_000_000, 1_100_000, 1_200_000, 1_230_000]);
    assert_eq!(domain.frequency().unwrap().step(), khz(0));
}

/// Fix list agent C13: the range is each policy's own, not a fixed number. Fix list agent C12: each reports
/// its location.
#[test]
fn every_policy_has_its_own_range_package_and_group() {
    let folder = Folder::new();
    // A machine of fast and slow cores, in two packages, whose siblings are numbered half a machine apart.
    for (cpu, package, siblings, min, max) in [
        (0, 0, "0,2", 800_000, 5_500_000),
        (1, 1, "1,3", 400_000, 3_900_000),
        (2, 0, "0,2", 800_000, 5_500_000),
        (3, 1, "1,3", 400_000, 3_900_000),
    ] {
        folder.policy(cpu, &cpu.to_string());
        folder.cpu(cpu, package, siblings);
        folder.put(&format!("cpu{cpu}/topology/die_id"), "1\n");
        folder.put(&format!("cpufreq/policy{cpu}/cpuinfo_min_freq"), format!("{min}\n"));
        folder.put(&format!("cpufreq/policy{cpu}/cpuinfo_max_freq"), format!("{max}\n"));
    }
    let mut hal = open(&folder.0);
    let facts: Vec<_> = hal
        .domains()
        .iter()
        .map(|(handle, domain)| {
            let range = domain.frequency().unwrap();
            let covers = domain.covers().unwrap();
            (
                covers.lowest(),
                covers.package(),
                covers.group(),
                range.lower(),
                range.upper(),
                hal.policy(handle).unwrap().die(),
            )
        })
        .collect();
    assert_eq!(
        facts,
        [
            (0, 0, 0, khz(800_000), khz(5_500_000), Some(1)),
            (1, 1, 1, khz(400_000), khz(3_900_000), Some(1)),
            (2, 0, 0, khz(800_000), khz(5_500_000), Some(1)),
            (3, 1, 1, khz(400_000), khz(3_900_000), Some(1)),
        ]
    );
    // A limit of 1 GHz works on all of them, and 500 MHz on those that support it; no floor is 1.5 GHz.
    assert_eq!(apply(&mut hal, 0, 1_000_000).unwrap().outcome(), ApplyOutcome::Exact);
    assert!(apply(&mut hal, 0, 500_000).unwrap().permits_more());
}

#[test]
fn the_boost_above_a_table_is_part_of_the_range_and_not_rounded_away() {
    let folder = Folder::two_cores();
    folder.put("cpufreq/policy0/scaling_available_frequencies", "3400000 2200000 1500000 \n");
    folder.put("cpufreq/policy0/scaling_boost_frequencies", "3600000 \n");
    folder.put("cpufreq/policy0/cpuinfo_min_freq", "1500000\n");
    folder.put("cpufreq/policy0/cpuinfo_max_freq", "4200000\n");
    let mut hal = open(&folder.0);
    let handle = find(&hal, 0);
    assert_eq!(hal.policy(handle).unwrap().table().khz(), [1_500_000, 2_200_000, 3_400_000, 3_600_000]);
    for (wish, told) in [(4_200_000, 4_200_000), (3_500_000, 3_400_000), (2_199_999, 1_500_000)] {
        assert!(apply(&mut hal, 0, wish).is_ok());
        assert_eq!(in_force(&mut hal, 0), told);
    }
}

#[test]
fn a_policy_of_256_cpus_is_read_whole() {
    let folder = Folder::new();
    let cpus: Vec<String> = (0..256).map(|cpu| cpu.to_string()).collect();
    folder.policy(0, &cpus.join(" "));
    (0..256).for_each(|cpu| folder.cpu(cpu, 0, &cpu.to_string()));
    let hal = open(&folder.0);
    assert_eq!(hal.complaints(), []);
    assert_eq!(hal.domains().get(find(&hal, 0)).unwrap().covers().unwrap().cpus().count(), 256);
}

/// A folder that is also mounted read-only, until the test ends in any way.
struct ReadOnly(Folder);

impl ReadOnly {
    fn of(folder: &Folder) -> Option<Self> {
        let bound = Folder::new();
        mount(&[OsStr::new("--bind"), folder.0.as_ref(), bound.0.as_ref()]).then_some(())?;
        let bound = Self(bound);
        let options = [OsStr::new("-o"), OsStr::new("remount,bind,ro"), bound.0.0.as_ref()];
        mount(&options).then_some(bound)
    }
}

impl Drop for ReadOnly {
    fn drop(&mut self) {
        let unmounted = Command::new("umount").arg(&self.0.0).status().is_ok_and(|status| status.success());
        assert!(unmounted || std::thread::panicking(), "{} is still mounted", self.0.0.display());
    }
}

fn mount(arguments: &[&OsStr]) -> bool {
    Command::new("mount").args(arguments).status().is_ok_and(|status| status.success())
}

/// A container has a read-only /sys: limits can be read but not set, and that is reported.
#[test]
fn a_read_only_sys_can_be_read_and_says_why_it_cannot_be_set() {
    let folder = Folder::two_cores();
    let Some(bound) = ReadOnly::of(&folder) else {
        println!("SKIP(no bind mounts here)");
        return;
    };
    let mut hal = open(&bound.0.0);
    assert_eq!(apply(&mut hal, 0, 2_000_000), Err(ErrorKind::PermissionDenied));
    assert_eq!(in_force(&mut hal, 0), 3_000_000);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_in_any_files_are_answered(
        files in prop::collection::vec((0_usize..10, prop_oneof![
            prop::collection::vec(any::<u8>(), 0..40),
            "[0-9 ,\n-]{0,12}".prop_map(String::into_bytes),
        ]), 0..6),
    ) {
        const FILES: [&str; 10] = [
            "cpufreq/policy0/related_cpus", "cpufreq/policy0/affected_cpus", "cpufreq/policy0/cpuinfo_min_freq",
            "cpufreq/policy0/cpuinfo_max_freq", "cpufreq/policy0/scaling_max_freq", "cpufreq/policy0/scaling_cur_freq",
            "cpufreq/policy0/cpuinfo_avg_freq", "cpufreq/policy0/scaling_available_frequencies",
            "cpu0/topology/thread_siblings_list", "cpu0/topology/physical_package_id",
        ];
        let folder = Folder::two_cores();
        for (file, bytes) in files {
            folder.put(FILES[file], bytes);
        }
        let mut hal = open(&folder.0);
        let handles: Vec<_> = hal.domains().iter().map(|(handle, _)| handle).collect();
        for handle in handles {
            let _ = sample(&mut hal, handle);
            let _ = hal.apply(handle, crate::support::limit(1_500_000));
            let _ = hal.release(handle);
        }
        prop_assert!(hal.describe().is_ok());
        prop_assert!(hal.domains().len() >= 3 || !hal.complaints().is_empty());
    }
}
