//! What a package or a GPU reports beside its power: the state of the device, the share of the time in which its power
//! limit held it back, and the power of a package's memory, which is a meter of its own.

use super::{Gauge, POWER_MOST, Place, bridged};
use crate::report::{DeviceState, DeviceValue};
use crate::worker::Worker;
use joulie_core::node::demand::ThrottleReading;
use joulie_core::node::energy::{CounterSample, Gap, MeterReading};
use power_hal::{Domain, ErrorKind, Sample, StateReading, StateReadings, Throttled, ThrottledMeter};
use power_units::{MicroJoules, Micros, Percent, Stamp};

/// The state of one device, from one domain of its backend.
#[derive(Clone, Debug)]
pub(crate) struct StateTarget {
    place: Place,
    readings: StateReadings,
    meter: Option<ThrottledMeter>,
    stale_after: Micros,
    /// The last value of the meter of throttling, and what it told.
    last: Option<(Stamp, Throttled)>,
    share: Option<Percent>,
    pub(crate) reported: DeviceState,
}

impl StateTarget {
    pub(super) fn new(place: Place, domain: &Domain, stale_after: Micros) -> Self {
        Self {
            place,
            readings: domain.readings(),
            meter: domain.throttled(),
            stale_after,
            last: None,
            share: None,
            reported: DeviceState::default(),
        }
    }

    /// Takes over what is known of the same device from before the hardware was listed again.
    pub(super) fn goes_on(&mut self, before: &Self) {
        if self.meter == before.meter {
            (self.last, self.share) = (before.last, before.share);
        }
        self.reported = before.reported;
    }

    /// Takes in the reading of this period.
    pub(super) fn measure(&mut self, workers: &[Worker], now: Stamp) {
        let found = sample_at(self.place, workers, now, self.stale_after);
        let has = |kind| self.readings.has(kind);
        self.reported = DeviceState {
            temperature: reported(has(StateReading::Temperature), found, |sample| sample.temperature),
            utilisation: reported(has(StateReading::Utilisation), found, |sample| sample.utilisation),
            memory: reported(has(StateReading::Memory), found, |sample| sample.memory),
            slowdowns: reported(has(StateReading::Slowdown), found, |sample| sample.slowdowns),
            throttled: match self.meter {
                None => DeviceValue::Lacking,
                Some(meter) => self.throttled(meter, found),
            },
        };
    }

    /// In which part of the last period the power limit held the device back, and how that is known.
    pub(super) fn throttle(&self) -> ThrottleReading {
        match (self.meter, self.reported.throttled) {
            (None, _) => ThrottleReading::Lacking,
            (Some(_), DeviceValue::Lacking | DeviceValue::Unknown(_)) => ThrottleReading::Unknown,
            (Some(ThrottledMeter::Instant), DeviceValue::Is(share)) => {
                ThrottleReading::Instant(share > Percent::ZERO)
            }
            (Some(ThrottledMeter::Time { .. } | ThrottledMeter::Periods), DeviceValue::Is(share)) => {
                ThrottleReading::Counted(share)
            }
        }
    }

    /// The share of the time since the last reading. Before the second one it is not known.
    fn throttled(
        &mut self,
        meter: ThrottledMeter,
        found: Result<&Sample, ErrorKind>,
    ) -> DeviceValue<Percent> {
        let read = found.and_then(|sample| Ok((sample.at, sample.throttled?)));
        match read {
            Err(kind) => {
                (self.last, self.share) = (None, None);
                return DeviceValue::Unknown(kind);
            }
            // The same reading once more tells nothing new.
            Ok((at, _)) if self.last.is_some_and(|(last, _)| last == at) => {}
            Ok(now) => {
                let before = match meter {
                    ThrottledMeter::Instant => Some(now),
                    ThrottledMeter::Time { .. } | ThrottledMeter::Periods => self.last,
                };
                let told = before.and_then(|before| meter.share(before, now));
                // A device that has counted nothing between two readings in quick succession keeps its last share.
                let too_soon = before.and_then(|(at, _)| now.0.since(at)).is_some_and(|span| span < SPAN_MIN);
                self.share = if too_soon { told.or(self.share) } else { told };
                self.last = Some(now);
            }
        }
        self.share.map_or(DeviceValue::Unknown(ErrorKind::BadData), DeviceValue::Is)
    }
}

/// Two readings that are closer together are one for a counter that its device refreshes ten times a second.
const SPAN_MIN: Micros = Micros::new(200_000);

/// The memory of a package.
#[derive(Clone, Debug)]
pub(crate) struct DramTarget {
    place: Place,
    gauge: Gauge,
    pub(crate) power: MeterReading,
    pub(crate) energy: Option<MicroJoules>,
    last_fresh: Option<(Stamp, MeterReading)>,
}

impl DramTarget {
    /// `None` if the domain has no counter of its memory.
    pub(super) fn new(place: Place, domain: &Domain, period: Micros, stale_after: Micros) -> Option<Self> {
        let gauge = Gauge::of_counter(domain.dram()?, POWER_MOST, period, stale_after);
        let power = MeterReading::Missing(Gap::FirstSample);
        Some(Self { place, gauge, power, energy: None, last_fresh: None })
    }

    pub(super) fn goes_on(&mut self, before: &Self) {
        self.gauge.goes_on(&before.gauge);
        (self.power, self.last_fresh) = (before.power, before.last_fresh);
    }

    /// Takes in the reading of this period.
    pub(super) fn measure(&mut self, workers: &[Worker], now: Stamp) {
        let found = &workers[self.place.worker].view.readings[self.place.domain];
        let read = found.as_ref().ok().and_then(|sample| Some((sample.dram.ok()?, sample.at)));
        self.energy = read.map(|(energy, _)| energy);
        let power = match (&mut self.gauge, read) {
            (Gauge::Counter { meter, baseline }, Some((energy, at))) => {
                meter.step(baseline, now, Some(CounterSample { energy, at }))
            }
            (Gauge::Counter { .. } | Gauge::None | Gauge::Power { .. }, _) => {
                MeterReading::Missing(Gap::Unread)
            }
        };
        self.power = bridged(power, &mut self.last_fresh, now);
    }
}

/// The sample of a domain, if it is of this period or of the last ones.
fn sample_at(
    place: Place,
    workers: &[Worker],
    now: Stamp,
    stale_after: Micros,
) -> Result<&Sample, ErrorKind> {
    let sample = workers[place.worker].view.readings[place.domain].as_ref().map_err(|kind| *kind)?;
    match now.since(sample.at) {
        None => Err(ErrorKind::BadData),
        Some(age) if age > stale_after => Err(ErrorKind::Timeout),
        Some(_) => Ok(sample),
    }
}

fn reported<T>(
    has: bool,
    found: Result<&Sample, ErrorKind>,
    value: impl Fn(&Sample) -> Result<T, ErrorKind>,
) -> DeviceValue<T> {
    if !has {
        return DeviceValue::Lacking;
    }
    found.and_then(value).map_or_else(DeviceValue::Unknown, DeviceValue::Is)
}
