//! The cost of the hot path.

use crate::support::{Folder, GPU, hwmon, open, w};
use power_hal::{ApplyOutcome, PowerHal, Reading, Setting};

#[test]
fn a_sample_and_a_cap_of_eight_gpus_allocate_nothing_not_even_when_they_fail() {
    let folder = Folder::new();
    for at in 0..8 {
        hwmon(&folder, at, &format!("pci0000:00/0000:{at:02x}:00.0"), "xe", GPU);
        folder.put(&format!("sys/devices/pci0000:00/0000:{at:02x}:00.0/power/runtime_status"), "active\n");
    }
    let mut hal = open(&folder.0);
    let mut batch: Vec<Reading> = hal.domains().iter().map(|(handle, _)| Reading::new(handle)).collect();
    assert_eq!(batch.len(), 8);
    folder.put("sys/devices/pci0000:00/0000:07:00.0/hwmon/hwmon7/power1_max", "\n");
    folder.put("sys/devices/pci0000:00/0000:06:00.0/power/runtime_status", "suspended\n");
    let allocations = allocation_counter::measure(|| {
        for watts in [400, 500, 400] {
            hal.sample(&mut batch);
            for reading in &batch[..7] {
                let applied = hal.apply(reading.domain, Setting::Power(w(watts))).unwrap();
                assert_eq!(applied.outcome(), ApplyOutcome::Exact);
            }
            assert!(hal.apply(batch[7].domain, Setting::Power(w(watts))).is_err());
        }
        for reading in &batch[..7] {
            hal.release(reading.domain).unwrap();
        }
    });
    assert_eq!(allocations.count_total, 0);
    hal.sample(&mut batch);
    assert_eq!(batch[0].outcome.unwrap().power_limit, Ok(w(600)));
    assert!(batch[6].outcome.is_err());
}
