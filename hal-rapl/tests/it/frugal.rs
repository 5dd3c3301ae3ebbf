//! The hot path: no allocation once the packages are listed.

use crate::golden::w;
use crate::plain::Plain;
use power_hal::{PowerHal, Reading, Setting};

#[test]
fn sampling_and_setting_allocate_nothing() {
    let plain = Plain::of("xeon-2s");
    let mut hal = plain.open();
    let handles: Vec<_> = hal.domains().iter().map(|(handle, _)| handle).collect();
    let mut batch = [Reading::new(handles[0]), Reading::new(handles[1])];
    let counted = allocation_counter::measure(|| {
        for watts in 50..150 {
            hal.sample(&mut batch);
            assert!(batch.iter().all(|reading| reading.outcome.is_ok()));
            assert!(hal.apply(handles[0], Setting::Power(w(watts))).is_ok());
        }
        assert!(hal.release(handles[0]).is_ok());
    });
    assert_eq!(counted.count_total, 0);
}

#[test]
fn failing_allocates_nothing_either() {
    let plain = Plain::of("xeon-2s");
    let mut hal = plain.open();
    let (handle, _) = hal.domains().iter().next().unwrap();
    plain.put("intel-rapl:0", "energy_uj", "junk\n");
    plain.put("intel-rapl:0", "enabled", "junk\n");
    let mut batch = [Reading::new(handle)];
    let counted = allocation_counter::measure(|| {
        hal.sample(&mut batch);
        assert!(batch[0].outcome.is_err());
        assert!(hal.apply(handle, Setting::Power(w(100))).is_err());
    });
    assert_eq!(counted.count_total, 0);
}
