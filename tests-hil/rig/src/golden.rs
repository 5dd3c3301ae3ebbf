//! Compares the rig with the real kernel's answers, which the ring in a virtual machine has recorded (`cargo xtask vm
//! golden`).

use crate::cpufreq::VirtualPolicy;
use crate::number::Errno;
use crate::powercap::{Constraint, RegisterLock, Units, Zone};
use libc::{EINVAL, ENODATA, ENOSYS};

const TABLES: [(&str, &str); 2] =
    [("6.1", include_str!("golden/6.1.txt")), ("6.12", include_str!("golden/6.12.txt"))];

/// One line: the file, the written text, the kernel's answer, and the value that was read afterwards.
struct Line {
    label: &'static str,
    written: Vec<u8>,
    answer: Result<(), Errno>,
    read: &'static str,
}

fn lines(table: &'static str) -> impl Iterator<Item = Line> {
    table.lines().filter(|line| !line.starts_with('#')).map(|line| {
        let fields: Vec<&str> = line.split(' ').collect();
        let [label, written, answer, read] = fields[..] else { panic!("{line}") };
        let answer = match answer {
            "ok" => Ok(()),
            "EINVAL" => Err(EINVAL),
            "ENODATA" => Err(ENODATA),
            "ENOSYS" => Err(ENOSYS),
            "EBUSY" => Err(libc::EBUSY),
            other => panic!("{other}"),
        };
        let written = written.replace('~', " ").replace('+', "\n").into_bytes();
        Line { label, written, answer, read }
    })
}

fn zone(lock: RegisterLock) -> Zone {
    let limit = |name, watts: u64| Constraint {
        name,
        power_raw: watts * 8,
        window_raw: 0x6e,
        max_uw: 205_000_000,
        enabled: true,
        clamps: true,
    };
    Zone {
        id: "intel-rapl:0".into(),
        name: "package-0".into(),
        units: Units::XEON,
        constraints: vec![limit("long_term", 205), limit("short_term", 300)],
        lock,
        enabled_is_hollow: false,
    }
}

fn policy() -> VirtualPolicy {
    VirtualPolicy {
        cpus: vec![0, 1],
        driver: "acpi-cpufreq",
        table: vec![1_200_000, 1_600_000, 2_000_000, 2_400_000, 2_800_000, 3_200_000],
        hardware: 1_200_000..=3_200_000,
        user_max: 3_200_000,
        user_min: 1_200_000,
        others_max: u32::MAX,
        inactive: false,
        present: true,
        base: None,
        turbo_off: false,
        averages: false,
        late_reads: 0,
        coming: None,
    }
}

/// Writes to the file of a zone that a label names, and returns the answer and the new value.
fn answer(zone: &mut Zone, file: &str, written: &[u8]) -> (Result<(), Errno>, u64) {
    match file {
        "power" => (zone.write_power_limit(0, written), zone.power_limit_uw(0)),
        "window" => (zone.write_time_window(0, written), zone.time_window_us(0)),
        "enabled" => (zone.write_enabled(written), zone.enabled().into()),
        other => panic!("{other}"),
    }
}

#[test]
fn zones_and_policies_answer_what_the_kernel_answered() {
    for (series, table) in TABLES {
        let mut open = zone(RegisterLock::Open);
        let mut locked =
            zone(if series == "6.1" { RegisterLock::WindowIgnored } else { RegisterLock::WindowRefused });
        // A machine whose locked register ignores writes, and one where the write faults, which Linux 6.1 does not
        // report.
        let mut late = zone(RegisterLock::LateIgnored);
        let mut late_and_faulting =
            zone(if series == "6.1" { RegisterLock::LateIgnored } else { RegisterLock::LateRefused });
        let mut looked = 0;
        for Line { label, written, answer: expected, read } in lines(table) {
            let said = format!("{series}: {label} {}", String::from_utf8_lossy(&written));
            let number = || read.parse::<u64>().unwrap();
            let found_locked = [
                ("lock-", &mut locked),
                ("late-lock-faults-0-", &mut late),
                ("late-lock-faults-1-", &mut late_and_faulting),
            ];
            let by_lock = |(prefix, zone)| label.strip_prefix(prefix).map(|file| (file, zone));
            match found_locked.into_iter().find_map(by_lock) {
                Some((file, zone)) => {
                    assert_eq!(answer(zone, file, &written), (expected, number()), "{said}");
                }
                None => match label {
                    "power" | "window" | "enabled" => {
                        assert_eq!(answer(&mut open, label, &written), (expected, number()), "{said}");
                    }
                    "range" => assert_eq!(Units::XEON.energy_range_uj(), number()),
                    "frequency" => {
                        // The rig parses numbers as 6.1 does; for texts of digits there is no difference.
                        if series != "6.1" && written.ends_with(b"xyz") {
                            continue;
                        }
                        let mut policy = policy();
                        assert_eq!(policy.write_max_freq(&written), expected, "{said}");
                        assert_eq!(policy.max_freq().map(u64::from), Ok(number()), "{said}");
                    }
                    "inactive-policy" => {
                        let policy = VirtualPolicy { inactive: true, ..policy() };
                        assert_eq!(policy.max_freq().map(drop), expected);
                    }
                    "offline-limits" | "online-enabled" => {
                        let mut zone = zone(RegisterLock::Open);
                        zone.come_back();
                        let on = |at: usize| u8::from(zone.constraints[at].enabled);
                        let all = format!("{}{}", on(0), on(1));
                        assert_eq!(all.get(..read.len()), Some(read), "{said}");
                    }
                    other => panic!("{other} is new in the table"),
                },
            }
            looked += 1;
        }
        assert!(looked > 40, "{series}: {looked} lines");
    }
}
