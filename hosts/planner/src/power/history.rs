//! A node's recent measurements: the last good sample, and the points for the trend.
//!
//! Only good samples become points: a failed attempt is not a fall to zero. Points of another meter are dropped,
//! because the step between two meters is not a trend. The memory use is bounded at any rate of samples.

use super::trend::{POINTS_MAX, Point, slope};
use super::{MeterResult, NoMeasurement, NodeReading, PowerSample};
use power_units::{Micros, Stamp, WattsPerMinute};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// How long samples count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HistoryLaw {
    window: Micros,
    hold: Micros,
}

/// The trend looks back five minutes.
pub const WINDOW: Micros = Micros::new(300_000_000);
/// The last good sample is held for five minutes, as long as a twin counts as fresh.
pub const HOLD: Micros = Micros::new(300_000_000);

const SPAN_MAX: Micros = Micros::new(86_400_000_000);

/// A span outside its range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HistoryLawError {
    /// The window of the trend.
    Window,
    /// How long the last sample is held.
    Hold,
}

impl fmt::Display for HistoryLawError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Window => f.write_str("the window of the power trend must be from 6 s to 24 h"),
            Self::Hold => f.write_str("a power sample can be held from 1 µs to 24 h"),
        }
    }
}

impl std::error::Error for HistoryLawError {}

impl HistoryLaw {
    /// Computes the trend over `window`, and holds the last good sample for `hold`.
    ///
    /// # Errors
    /// When a span is empty, longer than a day, or too short to hold a trend.
    pub fn new(window: Micros, hold: Micros) -> Result<Self, HistoryLawError> {
        if window < Micros::new(6_000_000) || window > SPAN_MAX {
            return Err(HistoryLawError::Window);
        }
        if hold == Micros::ZERO || hold > SPAN_MAX {
            return Err(HistoryLawError::Hold);
        }
        Ok(Self { window, hold })
    }
}

/// One node's history.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    points: Vec<Point>,
    last: Option<PowerSample>,
    failing: Option<NoMeasurement>,
    trend: Option<WattsPerMinute>,
}

impl History {
    /// Records the outcome of one attempt to read. Every attempt must be passed, because old points expire here.
    pub fn record(&mut self, law: &HistoryLaw, now: Stamp, report: MeterResult) {
        self.forget(law, now);
        match report {
            Ok(sample) => self.accept(law, now, sample),
            Err(absent) => self.failing = Some(absent),
        }
        self.trend = slope(&self.points);
    }

    /// The meter reading at `now`.
    #[must_use]
    pub fn reading(&self, law: &HistoryLaw, now: Stamp) -> NodeReading {
        let Some(PowerSample { meter, watts, at, lag: _ }) = self.last else {
            return NodeReading::Absent(self.failing.unwrap_or(NoMeasurement::NotConfigured));
        };
        match (now.since(at), self.failing) {
            (Some(age), None) if age <= law.hold => NodeReading::Measured { meter, watts, age },
            (Some(age), Some(failing)) if age <= law.hold => NodeReading::Held { meter, watts, age, failing },
            (_, failing) => NodeReading::Absent(failing.unwrap_or(meter.silent())),
        }
    }

    /// How long ago at the most it was, when it was heard, that the node drew what the last good sample says.
    #[must_use]
    pub fn lag(&self) -> Micros {
        self.last.map_or(Micros::ZERO, |last| last.lag)
    }

    /// The trend, while its last point is recent enough for `now`.
    #[must_use]
    pub fn trend(&self, law: &HistoryLaw, now: Stamp) -> Option<WattsPerMinute> {
        let trend = self.trend?;
        let young = now.since(self.points.last()?.at).is_some_and(|age| age <= law.window);
        young.then_some(trend)
    }

    /// Drops points that are too old, and points in the future, which mean that the clock was set back.
    fn forget(&mut self, law: &HistoryLaw, now: Stamp) {
        let counts = |at: Stamp| now.since(at).is_some_and(|age| age <= law.window);
        self.points.retain(|point| counts(point.at));
        if self.last.is_some_and(|last| now.since(last.at).is_none()) {
            self.last = None;
        }
    }

    fn accept(&mut self, law: &HistoryLaw, now: Stamp, sample: PowerSample) {
        // A sample cannot be newer than now; its clock is ahead.
        let sample = PowerSample { at: sample.at.min(now), ..sample };
        if self.last.is_some_and(|last| last.meter != sample.meter) {
            self.points.clear();
            self.last = None;
        }
        self.failing = None;
        if now.since(sample.at).is_some_and(|age| age <= law.window) {
            self.insert(Point { at: sample.at, watts: sample.watts });
        }
        self.last = Some(match self.last {
            Some(last) if (last.at, last.watts) > (sample.at, sample.watts) => last,
            Some(_) | None => sample,
        });
    }

    /// Keeps the points sorted by time. Of two at one time the larger is kept, in any order of arrival.
    fn insert(&mut self, point: Point) {
        match self.points.binary_search_by_key(&point.at, |known| known.at) {
            Ok(same) => {
                if let Some(known) = self.points.get_mut(same) {
                    known.watts = known.watts.max(point.watts);
                }
            }
            Err(place) => {
                self.points.insert(place, point);
                self.thin();
            }
        }
    }

    /// Drops the point whose removal leaves the smallest gap, never the first or the last: the remaining points are
    /// spread over the window at any rate of samples.
    fn thin(&mut self) {
        if self.points.len() <= POINTS_MAX {
            return;
        }
        let gap = |three: &[Point]| match three {
            [before, _, after] => after.at.since(before.at),
            _ => None,
        };
        let gaps =
            self.points.windows(3).enumerate().filter_map(|(i, three)| gap(three).map(|gap| (gap, i + 1)));
        if let Some((_, index)) = gaps.min() {
            self.points.remove(index);
        }
    }
}

/// The histories of all nodes.
#[derive(Clone, Debug, Default)]
pub struct Histories(BTreeMap<String, History>);

impl Histories {
    /// Records the outcome of one attempt to read a node's power.
    pub fn record(&mut self, law: &HistoryLaw, node: &str, now: Stamp, report: MeterResult) {
        if let Some(history) = self.0.get_mut(node) {
            history.record(law, now, report);
            return;
        }
        self.0.entry(node.to_owned()).or_default().record(law, now, report);
    }

    /// The meter reading of a node at `now`, and its trend.
    #[must_use]
    pub fn reading(&self, law: &HistoryLaw, node: &str, now: Stamp) -> (NodeReading, Option<WattsPerMinute>) {
        match self.0.get(node) {
            Some(history) => (history.reading(law, now), history.trend(law, now)),
            None => (NodeReading::Absent(NoMeasurement::NotConfigured), None),
        }
    }

    /// Removes every node that no longer exists.
    pub fn keep_only(&mut self, nodes: &BTreeSet<&str>) {
        self.0.retain(|node, _| nodes.contains(node.as_str()));
    }

    /// The number of nodes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are no nodes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests;
