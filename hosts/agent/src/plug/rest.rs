//! What a node draws beside its packages and GPUs: what its meter says less what they drew meanwhile.
//!
//! The meter and the devices are not read at the same moment, and a BMC averages over a time of its own. So the devices are
//! averaged over the time that the meter names, and of the last five differences the middle one counts: a step of the load
//! falsifies one or two.

use host_kit::clock::Mono;
use power_units::{Percent, Role, Watts};
use std::collections::VecDeque;
use std::time::Duration;

/// The readings of devices that are kept, at most.
const READINGS: usize = 128;
/// The differences that are kept, and how many there must be.
const DIFFERENCES: usize = 5;
const ENOUGH: usize = 3;
/// A meter may say this much less than the devices, as they have errors too.
const BELOW_LEAST: Watts = Watts::from_int(30);
const BELOW_SHARE: Percent = Percent::from_int(5);

/// By how much a meter of a whole node said more than its devices drew, the last times.
#[derive(Debug, Default)]
pub(crate) struct Differences(VecDeque<Watts>);

impl Differences {
    /// Takes in one of them.
    pub(crate) fn take(&mut self, difference: Watts) {
        if self.0.len() >= DIFFERENCES {
            self.0.pop_front();
        }
        self.0.push_back(difference);
    }

    fn middle(&self) -> Option<Watts> {
        let mut sorted = [Watts::ZERO; DIFFERENCES];
        let sorted = sorted.get_mut(..self.0.len())?;
        for (slot, difference) in sorted.iter_mut().zip(&self.0) {
            *slot = *difference;
        }
        sorted.sort_unstable();
        if sorted.len() < ENOUGH { None } else { sorted.get(sorted.len() / 2).copied() }
    }

    /// What the node draws beside its devices; `None` where that is not known, or would be less than nothing.
    pub(crate) fn rest(&self) -> Option<Watts> {
        self.middle().filter(|rest| *rest >= Watts::ZERO)
    }
}

/// What devices drew, and by how much the meter said more.
#[derive(Debug)]
pub(super) struct DeviceLog {
    every: Duration,
    readings: VecDeque<(Mono, Option<Watts>)>,
    differences: Differences,
    /// What the devices drew on average up to the last sample.
    mean: Watts,
}

impl DeviceLog {
    /// For a meter that is read this often.
    pub(super) fn new(every: Duration) -> Self {
        Self {
            every,
            readings: VecDeque::with_capacity(READINGS),
            differences: Differences::default(),
            mean: Watts::ZERO,
        }
    }

    /// Takes in what all devices draw; `None` if that is not known.
    pub(super) fn take(&mut self, at: Mono, watts: Option<Watts>) {
        if self.readings.len() >= READINGS {
            self.readings.pop_front();
        }
        self.readings.push_back((at, watts));
    }

    /// Takes in what the meter says as the mean over this time, else since it was last read.
    pub(super) fn compare(&mut self, at: Mono, over: Option<Duration>, plug: Watts) {
        let over = over.unwrap_or(self.every).max(Duration::from_secs(1));
        let since = |reading: &&(Mono, Option<Watts>)| at.since(reading.0) <= over;
        let (mut sum, mut count) = (Some(Watts::ZERO), 0_i64);
        for (_, watts) in self.readings.iter().filter(since) {
            sum = sum.zip(*watts).and_then(|(sum, watts)| sum.checked_add(watts));
            count += 1;
        }
        let mean = sum.and_then(|sum| sum.to_bits().checked_div(count)).map(Watts::from_bits);
        // Where one reading is missing the mean is not that of the devices.
        let Some(mean) = mean else { return };
        self.mean = mean;
        self.differences.take(plug - mean);
    }

    /// What the node draws beside its devices.
    pub(super) fn rest(&self) -> Option<Watts> {
        self.differences.middle().filter(|_| !self.is_below()).map(Watts::or_zero)
    }

    /// Whether the meter says less than the devices draw, which no meter of the whole node does.
    pub(super) fn is_below(&self) -> bool {
        let allowed = BELOW_LEAST.max(self.mean.scale(BELOW_SHARE.to_ratio(Role::Nearest), Role::Nearest));
        let middle = self.differences.middle();
        middle.is_some_and(|middle| middle < Watts::ZERO && middle.abs() > allowed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEN: Duration = Duration::from_secs(10);

    fn at(second: u64) -> Mono {
        Mono::at(Duration::from_secs(second))
    }

    fn watts(watts: i32) -> Watts {
        Watts::from_int(watts)
    }

    /// The devices draw `devices` in each second of the ten before a sample of `plug`.
    fn tell(log: &mut DeviceLog, until: u64, devices: i32, plug: i32) {
        for second in until - 9..=until {
            log.take(at(second), Some(watts(devices)));
        }
        log.compare(at(until), Some(TEN), watts(plug));
    }

    #[test]
    fn the_rest_is_the_middle_of_what_the_meter_says_more() {
        let mut log = DeviceLog::new(TEN);
        tell(&mut log, 10, 400, 520);
        tell(&mut log, 20, 400, 524);
        assert_eq!(log.rest(), None, "two are not enough");
        tell(&mut log, 30, 400, 516);
        // 120, 124, 116.
        assert_eq!(log.rest(), Some(watts(120)));
        // The load falls by 300 W, and the controller still averages over the time before.
        tell(&mut log, 40, 100, 500);
        assert_eq!(log.rest(), Some(watts(124)), "116, 120, 124, 400: the upper middle");
        tell(&mut log, 50, 100, 219);
        assert_eq!(log.rest(), Some(watts(120)), "116, 119, 120, 124, 400");
    }

    #[test]
    fn devices_that_are_not_known_throughout_say_nothing_of_the_rest() {
        let mut log = DeviceLog::new(TEN);
        for sample in 1..=5 {
            log.take(at(10 * sample - 1), Some(watts(400)));
            log.take(at(10 * sample), None);
            log.compare(at(10 * sample), Some(TEN), watts(520));
        }
        assert_eq!((log.rest(), log.is_below()), (None, false));
        let mut none = DeviceLog::new(TEN);
        none.compare(at(10), None, watts(520));
        assert_eq!(none.rest(), None);
    }

    #[test]
    fn a_meter_below_the_devices_is_not_one_of_the_whole_node() {
        let mut log = DeviceLog::new(TEN);
        // 5 % of 1000 W are 50 W.
        for sample in 1..=3 {
            tell(&mut log, 10 * sample, 1_000, 951);
        }
        assert_eq!((log.is_below(), log.rest()), (false, Some(Watts::ZERO)));
        for sample in 4..=6 {
            tell(&mut log, 10 * sample, 1_000, 949);
        }
        assert_eq!((log.is_below(), log.rest()), (true, None));
    }

    #[test]
    fn readings_are_bounded() {
        let mut log = DeviceLog::new(TEN);
        for second in 0..10_000 {
            log.take(at(second), Some(watts(1)));
            log.compare(at(second), Some(TEN), watts(2));
        }
        assert_eq!((log.readings.len(), log.differences.0.len()), (READINGS, DIFFERENCES));
    }
}
