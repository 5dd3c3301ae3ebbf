//! The cost of the hot path, in allocations and system calls.

use crate::support::{Folder, TestMachine, khz, limit, open};
use power_hal::{ApplyOutcome, PowerHal, Reading};

const POLICIES: u16 = 256;

fn wide() -> Folder {
    let folder = Folder::new();
    for cpu in 0..POLICIES {
        folder.policy(cpu, &cpu.to_string());
        let first = cpu % (POLICIES / 2);
        folder.cpu(cpu, 0, &format!("{first},{}", first + POLICIES / 2));
    }
    folder
}

#[test]
fn a_sample_and_a_setting_of_256_policies_allocate_nothing() {
    let folder = wide();
    let mut hal = open(&folder.0);
    let mut batch: Vec<Reading> = hal.domains().iter().map(|(handle, _)| Reading::new(handle)).collect();
    assert_eq!(batch.len(), usize::from(POLICIES));
    let allocations = allocation_counter::measure(|| {
        for khz in [2_000_000, 2_100_000, 2_000_000] {
            hal.sample(&mut batch);
            for reading in &batch {
                assert_eq!(hal.apply(reading.domain, limit(khz)).unwrap().outcome(), ApplyOutcome::Exact);
            }
        }
        for reading in &batch {
            hal.release(reading.domain).unwrap();
        }
    });
    assert_eq!(allocations.count_total, 0);
    hal.sample(&mut batch);
    assert!(batch.iter().all(|reading| reading.outcome.unwrap().frequency_limit == Ok(khz(3_000_000))));
}

/// System calls of this thread that read and that write, by the kernel's own count.
fn calls() -> Option<(u64, u64)> {
    let text = std::fs::read_to_string("/proc/thread-self/io").ok()?;
    let count = |name: &str| text.lines().find_map(|line| line.strip_prefix(name))?.trim().parse().ok();
    Some((count("syscr:")?, count("syscw:")?))
}

#[test]
fn a_value_is_one_read_and_a_limit_that_stands_is_not_written_again() {
    let folder = wide();
    let mut hal = open(&folder.0);
    let mut batch: Vec<Reading> = hal.domains().iter().map(|(handle, _)| Reading::new(handle)).collect();
    let n = u64::from(POLICIES);
    let cost = |act: &mut dyn FnMut()| {
        let (Some(before), ()) = (calls(), act()) else { return None };
        let after = calls()?;
        // The query of the counts itself needs reads, always the same number.
        Some((after.0 - before.0, after.1 - before.1))
    };
    let Some((asking, 0)) = cost(&mut || {}) else {
        println!("SKIP(the kernel does not count system calls)");
        return;
    };
    let sampled = cost(&mut || hal.sample(&mut batch)).unwrap();
    assert_eq!(sampled, (2 * n + asking, 0), "the limit and the frequency");
    let mut set = |khz| {
        cost(&mut || {
            for reading in &batch {
                hal.apply(reading.domain, limit(khz)).unwrap();
            }
        })
        .unwrap()
    };
    assert_eq!(set(2_000_000), (2 * n + asking, n), "the original, and the read-back");
    assert_eq!(set(2_000_000), (n + asking, 0), "the proof that it stands");
    assert_eq!(set(2_100_000), (n + asking, n));
}

#[test]
fn policies_by_the_hundred_are_opened_on_virtual_hardware() {
    let Some(room) = TestMachine::profile("epyc") else { return };
    let mut hal = open(&room.folder.0);
    assert_eq!((hal.domains().len(), hal.complaints()), (384, &[][..]));
    let mut batch: Vec<Reading> = hal.domains().iter().map(|(handle, _)| Reading::new(handle)).collect();
    hal.sample(&mut batch);
    assert!(batch.iter().all(|reading| reading.outcome.is_ok()));
}
