//! The figures by which a law is judged, and their targets.

use super::closed::{GRID_S, Record, cells};
use super::scene::Scene;
use std::ops::Range;

/// The figures of a trial. Means are over one second, powers are true ones, parts are relative to the cap.
#[derive(Clone, Debug)]
pub(super) struct Figures {
    /// How long after the step of the cap the last mean is above it by more than 2 %, s; `None` if that never ends.
    pub(super) settled: Option<f64>,
    /// The same after a step of the load, the longest; `None` if there was none, or it never ended.
    pub(super) settled_load: Option<f64>,
    /// Energy above the cap, kJ.
    pub(super) above_kj: f64,
    /// The longest time above the cap by more than 5 %, s.
    pub(super) over_s: f64,
    /// The largest shortfall of a mean, outside the time after events.
    pub(super) undershoot: f64,
    /// The mean distance from the cap, outside the time after events.
    pub(super) error: f64,
    /// Peak to peak of the means at the end.
    pub(super) ripple: f64,
    /// The mean power at the end, W.
    pub(super) mean: f64,
    /// Writes per policy in 10 s, at the end.
    pub(super) writes: f64,
    /// The work per second at the end.
    pub(super) speed: f64,
}

/// How long after an event shortfall and error are not judged: ten periods, and at least 5 s.
const GRACE_PERIODS: f64 = 10.0;
const GRACE_S: f64 = 5.0;
/// The length of "at the end", s.
const END_S: f64 = 100.0;

/// Cumulative sums of a record, so that any mean is a subtraction.
struct Means {
    sums: Vec<f64>,
}

impl Means {
    fn of(watts: &[f64]) -> Self {
        let mut sums = vec![0.0];
        let mut sum = 0.0;
        for watts in watts {
            sum += watts;
            sums.push(sum);
        }
        Self { sums }
    }

    fn over(&self, cells: Range<usize>) -> f64 {
        (self.sums[cells.end] - self.sums[cells.start]) / cells.len() as f64
    }

    fn second_from(&self, cell: usize) -> f64 {
        self.over(cell..cell + cells(1.0))
    }
}

impl Figures {
    pub(super) fn of(scene: &Scene, record: &Record, period: f64) -> Self {
        let means = Means::of(&record.watts);
        let cap_at = |cell: usize| scene.cap(cell as f64 * GRID_S).unwrap_or(f64::INFINITY);
        let from = cells(scene.unreachable_until);
        let events: Vec<f64> =
            scene.events().into_iter().filter(|&at| at >= scene.unreachable_until).collect();
        let settled: Vec<Option<f64>> = (0..events.len())
            .map(|event| {
                let end = events.get(event + 1).copied().unwrap_or(scene.lasts);
                settled(&means, cells(events[event])..cells(end), cap_at)
            })
            .collect();

        let grace = GRACE_S.max(GRACE_PERIODS * period);
        let last = record.watts.len() - cells(1.0);
        let judged = |cell: usize| {
            let at = cell as f64 * GRID_S;
            !events.iter().any(|&event| at + 1.0 > event && at < event + grace)
        };
        let short: Vec<f64> = (from..=last)
            .filter(|&cell| judged(cell))
            .map(|cell| 1.0 - means.second_from(cell) / cap_at(cell))
            .collect();

        let end = record.watts.len() - cells(END_S);
        let tail = (end..=last).map(|cell| means.second_from(cell));
        let (low, high) = tail.fold((f64::INFINITY, 0.0_f64), |(low, high), m| (low.min(m), high.max(m)));
        let (work, writes) =
            (record.work[end..].iter().sum::<f64>(), record.writes[end..].iter().sum::<u32>());
        let above = |(cell, watts): (usize, &f64)| (watts - cap_at(cell)).max(0.0);
        let reachable = || record.watts.iter().enumerate().skip(from);
        Self {
            settled: settled.first().copied().flatten(),
            settled_load: settled.iter().skip(1).copied().flatten().reduce(f64::max),
            above_kj: reachable().map(above).sum::<f64>() * GRID_S / 1e3,
            over_s: over_s(scene, record),
            undershoot: short.iter().fold(0.0_f64, |most, &short| most.max(short)),
            error: short.iter().map(|short| short.abs()).sum::<f64>() / short.len() as f64,
            ripple: (high - low) / cap_at(last),
            mean: means.over(end..record.watts.len()),
            writes: f64::from(writes) / record.policies as f64 / (END_S / 10.0),
            speed: work / END_S,
        }
    }

    /// The worse one of both in every figure.
    pub(super) fn or_worse(self, other: Self) -> Self {
        let later = |a: Option<f64>, b: Option<f64>| a.zip(b).map(|(a, b)| a.max(b));
        Self {
            settled: later(self.settled, other.settled),
            settled_load: later(self.settled_load, other.settled_load),
            above_kj: self.above_kj.max(other.above_kj),
            over_s: self.over_s.max(other.over_s),
            undershoot: self.undershoot.max(other.undershoot),
            error: self.error.max(other.error),
            ripple: self.ripple.max(other.ripple),
            mean: self.mean.max(other.mean),
            writes: self.writes.max(other.writes),
            speed: self.speed.min(other.speed),
        }
    }

    /// The numbers of the targets (facts hardware 8.4) that these figures miss, for a cap that stepped down by `step` W
    /// and a best static speed.
    pub(super) fn missed(&self, period: f64, step: f64, best: f64) -> Vec<u8> {
        let settled =
            self.settled.is_some_and(|settled| settled <= (3.0 * period).max(2.0 * period / 0.5).min(3.0));
        let met = [
            (1, settled),
            (2, self.above_kj <= step * 1.0 / 1e3),
            (3, self.undershoot <= 0.03 && self.error <= 0.01),
            (4, self.ripple <= 0.01 && self.writes <= 1.0),
            (5, self.speed >= 0.97 * best),
            (6, self.over_s <= 2.0),
        ];
        met.into_iter().filter(|(_, met)| !met).map(|(target, _)| target).collect()
    }
}

/// The longest time above the cap by more than 5 %, s, while it can be kept.
pub(super) fn over_s(scene: &Scene, record: &Record) -> f64 {
    let over = |(cell, watts): (usize, &f64)| {
        *watts > 1.05 * scene.cap(cell as f64 * GRID_S).unwrap_or(f64::INFINITY)
    };
    longest(record.watts.iter().enumerate().skip(cells(scene.unreachable_until)).map(over)) as f64 * GRID_S
}

/// How long after the start of `span` its last mean is above the cap by more than 2 %.
fn settled(means: &Means, span: Range<usize>, cap_at: impl Fn(usize) -> f64) -> Option<f64> {
    let second = cells(1.0);
    let whole = span.start..span.end.saturating_sub(second) + 1;
    let high = whole.clone().rev().find(|&cell| means.second_from(cell) > 1.02 * cap_at(cell));
    match high {
        None => Some(0.0),
        Some(cell) if cell + 1 == whole.end => None,
        Some(cell) => Some((cell + 1 - span.start) as f64 * GRID_S),
    }
}

fn longest(all: impl Iterator<Item = bool>) -> usize {
    let (mut run, mut most) = (0, 0);
    for held in all {
        run = if held { run + 1 } else { 0 };
        most = most.max(run);
    }
    most
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::laws::scene;

    /// A record of a scene whose cap is 300 W, at 500 W until `until` and at `then` afterwards.
    fn record(until: f64, then: f64) -> (Scene, Record) {
        let scene = Scene { lasts: 200.0, ..scene::nominal() };
        let all = cells(scene.lasts);
        let watts = (0..all).map(|cell| if cell < cells(until) { 500.0 } else { then }).collect();
        let record = Record {
            watts,
            work: vec![0.5; all],
            writes: vec![1; all],
            policies: 50,
            not_achievable: Vec::new(),
        };
        (scene, record)
    }

    #[test]
    fn figures_are_what_a_hand_calculation_gives() {
        let (scene, record) = record(4.0, 297.0);
        let figures = Figures::of(&scene, &record, 0.5);
        // A mean over 1 s is at most 306 W once at most 9/203 s of it are at 500 W: 0.04 s.
        assert_eq!(figures.settled, Some(3.96));
        assert_eq!(figures.settled_load, None);
        // 200 W for 4 s.
        assert!((figures.above_kj - 0.8).abs() < 1e-9);
        assert!((figures.over_s - 4.0).abs() < 1e-9);
        // 1 % below the cap at all times after 5 s.
        assert!((figures.undershoot - 0.01).abs() < 1e-9 && (figures.error - 0.01).abs() < 1e-9);
        assert!(figures.ripple < 1e-9 && (figures.mean - 297.0).abs() < 1e-6);
        // 100 writes a second on 50 policies; 0.5 per cell is 50 per second.
        assert!((figures.writes - 20.0).abs() < 1e-9 && (figures.speed - 50.0).abs() < 1e-9);
        assert_eq!(figures.missed(0.5, 200.0, 52.0), [1, 2, 4, 5, 6]);
    }

    #[test]
    fn what_stays_above_the_cap_never_settles() {
        let (scene, record) = record(0.0, 307.0);
        let figures = Figures::of(&scene, &record, 0.5);
        assert_eq!((figures.settled, figures.over_s), (None, 0.0));
        assert_eq!(figures.missed(0.5, 200.0, 50.0), [1, 2, 3, 4]);
    }
}
