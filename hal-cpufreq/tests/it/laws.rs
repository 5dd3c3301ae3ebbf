//! The requirements of the laws on the HAL, with a plant behind it: one frequency on all policies with a dither,
//! and a share of whole policies.

use crate::support::{Hal, TestMachine, khz, limit, open};
use plant::Load;
use power_hal::{ApplyOutcome, Handle, PowerHal, Reading};
use std::collections::BTreeMap;
use std::time::Duration;

/// The draw of the machine once limits have settled.
fn watts(room: &TestMachine) -> f64 {
    let mut machine = room.machine.lock();
    machine.advance(Duration::from_secs(2));
    machine.plant().node_watts()
}

/// The policies by group: each group must be lowered together.
fn groups(hal: &Hal) -> Vec<Vec<Handle>> {
    let mut groups: BTreeMap<u16, Vec<Handle>> = BTreeMap::new();
    for (handle, domain) in hal.domains().iter() {
        groups.entry(domain.covers().unwrap().group()).or_default().push(handle);
    }
    groups.into_values().collect()
}

fn set(hal: &mut Hal, handles: impl IntoIterator<Item = Handle>, khz: i32) {
    for handle in handles {
        assert_eq!(hal.apply(handle, limit(khz)).unwrap().outcome(), ApplyOutcome::Exact);
    }
}

fn loaded() -> Option<(TestMachine, Hal)> {
    let room = TestMachine::profile("xeon-2s")?;
    room.machine.lock().plant().set_load(Load::busy(1.0)).unwrap();
    let hal = open(&room.folder.0);
    Some((room, hal))
}

#[test]
fn one_frequency_on_all_policies_with_a_dither_lands_between_two_steps() {
    let Some((room, mut hal)) = loaded() else { return };
    let groups = groups(&hal);
    assert_eq!((groups.len(), hal.domains().len()), (64, 128));
    let mut at = |high: usize| {
        for (place, group) in groups.iter().enumerate() {
            set(&mut hal, group.iter().copied(), if place < high { 2_000_000 } else { 1_900_000 });
        }
        watts(&room)
    };
    let (low, quarter, half, high) = (at(0), at(16), at(32), at(64));
    assert!(low < quarter && quarter < half && half < high, "{low} {quarter} {half} {high}");
    // On 1/20 of the range the curve is linear to one percent: a quarter of the cores is a quarter of the span.
    let way = (quarter - low) / (high - low);
    assert!((way - 0.25).abs() < 0.02, "{way}");
    let mut batch: Vec<Reading> = hal.domains().iter().map(|(handle, _)| Reading::new(handle)).collect();
    hal.sample(&mut batch);
    for reading in &batch {
        let sample = reading.outcome.unwrap();
        assert_eq!((sample.frequency_limit, sample.frequency), (Ok(khz(2_000_000)), Ok(khz(2_000_000))));
    }
}

/// Fix list agent S9 and C12: half of all policies by number is one thread of each core, which has no effect.
#[test]
fn a_share_of_the_policies_throttles_where_it_is_whole_cores_and_not_where_it_is_one_thread_of_each() {
    let Some((room, mut hal)) = loaded() else { return };
    let all: Vec<Handle> = hal.domains().iter().map(|(handle, _)| handle).collect();
    let free = watts(&room);
    set(&mut hal, all[..64].iter().copied(), 800_000);
    let by_number = watts(&room);
    all.iter().for_each(|&handle| assert!(hal.release(handle).is_ok()));
    assert!((watts(&room) - free).abs() < 1.0);
    let whole = groups(&hal);
    set(&mut hal, whole[..32].iter().flatten().copied(), 800_000);
    let by_core = watts(&room);
    assert!((free - by_number).abs() < 1.0, "{free} W, and {by_number} W with a thread of each core lowered");
    assert!(by_core < free - 150.0, "{free} W, and {by_core} W with half of the cores lowered");
}
