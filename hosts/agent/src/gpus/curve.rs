//! What each card draws while nobody computes on it and while somebody does all the time, as it is measured here, and the
//! highest power limit that it had lately. Placement takes from it what a pod adds to the card.
//!
//! - **busy** is near the highest of such seconds: it rises fast and falls slowly, since a pod that is to come may draw as much
//!   as the one that drew most. A second in which the power limit holds the card back, or the loop over its clock, says nothing of
//!   what it would draw.
//! - **idle** is near the lowest, for the same reason.
//! - **limit** rises at once and falls after five minutes.
//!
//! What is told moves in steps of ten watts and not back and forth, so that a steady card has a steady object.

use joulie_core::node::energy::MeterReading;
use node_kit::{DeviceReport, DeviceValue, NodeReport};
use power_hal::Key;
use power_units::{Amount, Percent, Role, Watts};
use std::collections::BTreeMap;

/// More cards than a node has.
const CARDS_MAX: usize = 64;
/// So many seconds are seen before anything is told.
const SEEN_LEAST: u32 = 30;
/// Below this a card computes nothing, and above the other it computes all the time.
const IDLE_MOST: Percent = Percent::from_int(1);
const BUSY_LEAST: Percent = Percent::from_int(90);
/// A card that draws so much of its limit is held back by it, where it does not say so itself.
const HELD_PERCENT: Percent = Percent::from_int(95);
/// So many reports in a row must be below the limit that is told before a lower one is.
const LIMIT_REPORTS: u32 = 300;
/// The mean moves by one part in so many of the difference, towards the side that counts and towards the other one.
const FAST: i64 = 8;
const SLOW: i64 = 256;

/// What is told of a card, in watts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CardWatts {
    pub(crate) idle: Option<u32>,
    pub(crate) busy: Option<u32>,
    pub(crate) limit: Option<u32>,
}

/// The curves of all cards of a node.
#[derive(Debug, Default)]
pub(super) struct Curves(BTreeMap<Key, Curve>);

impl Curves {
    /// Takes in a report. Returns whether anything else is told than before.
    pub(super) fn see(&mut self, report: &NodeReport) -> bool {
        let mut changed = false;
        for gpu in &report.gpus {
            if self.0.len() < CARDS_MAX || self.0.contains_key(&gpu.key) {
                let curve = self.0.entry(gpu.key).or_default();
                let before = curve.told();
                curve.see(gpu);
                changed |= curve.told() != before;
            }
        }
        changed
    }

    /// What is told of each card.
    pub(super) fn told(&self) -> BTreeMap<Key, CardWatts> {
        self.0.iter().map(|(key, curve)| (*key, curve.told())).collect()
    }
}

/// A card.
#[derive(Debug, Default)]
struct Curve {
    idle: Level,
    busy: Level,
    limit: HighestLimit,
}

impl Curve {
    fn see(&mut self, gpu: &DeviceReport) {
        self.limit.see(gpu.limit);
        let (MeterReading::Fresh { watts, .. }, Some(used)) = (gpu.power, gpu.state.utilisation.known())
        else {
            return;
        };
        if used <= IDLE_MOST {
            self.idle.see(watts, Side::Low);
        } else if used >= BUSY_LEAST && !is_held(gpu, watts) {
            self.busy.see(watts, Side::High);
        }
    }

    fn told(&self) -> CardWatts {
        CardWatts { idle: self.idle.told, busy: self.busy.told, limit: self.limit.told }
    }
}

/// Whether its power limit or its clock holds the card back, or may do so.
fn is_held(gpu: &DeviceReport, watts: Watts) -> bool {
    if gpu.clock.is_some_and(|clock| clock.cause.is_some()) {
        return true;
    }
    match gpu.state.throttled {
        DeviceValue::Is(part) => part > Percent::ZERO,
        DeviceValue::Lacking => gpu.limit.is_none_or(|limit| {
            limit.part(HELD_PERCENT, Percent::HUNDRED, Role::Limit).is_none_or(|near| watts >= near)
        }),
        DeviceValue::Unknown(_) => true,
    }
}

/// On which side of what is measured a level is to lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Low,
    High,
}

/// A level of what is measured.
#[derive(Debug, Default)]
struct Level {
    mean: Option<Watts>,
    seen: u32,
    told: Option<u32>,
}

impl Level {
    fn see(&mut self, watts: Watts, side: Side) {
        let watts = watts.or_zero();
        let mean = self.mean.unwrap_or(watts);
        let away = watts - mean;
        let counts = match side {
            Side::Low => away < Watts::ZERO,
            Side::High => away > Watts::ZERO,
        };
        let part = if counts { FAST } else { SLOW };
        let mean = mean + Watts::from_bits(away.to_bits().checked_div(part).unwrap_or(0));
        (self.mean, self.seen) = (Some(mean), self.seen.saturating_add(1));
        if self.seen >= SEEN_LEAST && self.told.is_none_or(|told| is_far(told, mean)) {
            let role = if side == Side::Low { Role::Limit } else { Role::Demand };
            self.told = Some(steps(mean, role));
        }
    }
}

/// Whether what was told is a step or more away from what is so.
fn is_far(told: u32, now: Watts) -> bool {
    let told = Watts::from_int(i32::try_from(told).unwrap_or(i32::MAX));
    (told - now).abs() > Watts::from_int(STEP_WATTS)
}

const STEP_WATTS: i32 = 10;

/// Watts in whole steps.
fn steps(watts: Watts, role: Role) -> u32 {
    let milli = watts.to_milli_watts(role).get();
    let step = 10_000;
    let steps = if role == Role::Limit { milli / step } else { milli.div_ceil(step) };
    steps.saturating_mul(10)
}

/// The highest limit of the last reports.
#[derive(Debug, Default)]
struct HighestLimit {
    told: Option<u32>,
    /// How many reports in a row had a lower one, and the highest of these.
    lower: u32,
    highest: u32,
}

impl HighestLimit {
    /// A limit that is not known now changes nothing.
    fn see(&mut self, limit: Option<Watts>) {
        let Some(now) = limit.map(|limit| steps(limit, Role::Demand)) else { return };
        if self.told.is_none_or(|told| now >= told) {
            *self = Self { told: Some(now), ..Self::default() };
            return;
        }
        self.highest = self.highest.max(now);
        self.lower = self.lower.saturating_add(1);
        if self.lower >= LIMIT_REPORTS {
            *self = Self { told: Some(self.highest), ..Self::default() };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use node_kit::{ClockReport, DeviceState, DeviceWants, LoopCause};
    use power_hal::ErrorKind;
    use power_units::Micros;

    fn watts(watts: i32) -> Watts {
        Watts::from_int(watts)
    }

    /// A card that draws so much of this limit, computes so much of the time, and says whether it is held back.
    fn gpu(drawn: i32, used: i32, throttled: DeviceValue<Percent>, limit: i32) -> DeviceReport {
        let state = DeviceState {
            utilisation: DeviceValue::Is(Percent::from_int(used)),
            throttled,
            ..DeviceState::default()
        };
        DeviceReport {
            key: Key::gpu("0000:c1:00.0").unwrap(),
            backend: None,
            described: None,
            power: MeterReading::Fresh { watts: watts(drawn), over: Micros::new(1_000_000) },
            counter: None,
            energy: None,
            dram: MeterReading::Missing(joulie_core::node::energy::Gap::NoMeter),
            dram_energy: None,
            state,
            limit: Some(watts(limit)),
            owners: None,
            ours: false,
            share: None,
            wants: DeviceWants::default(),
            clock: None,
        }
    }

    const FREE: DeviceValue<Percent> = DeviceValue::Is(Percent::ZERO);

    #[test]
    fn idle_and_busy_are_told_after_half_a_minute_and_what_the_limit_holds_back_is_not_busy() {
        let mut curve = Curve::default();
        let mut see = |times: u32, gpu: &DeviceReport| {
            (0..times).for_each(|_| curve.see(gpu));
            let CardWatts { idle, busy, .. } = curve.told();
            (idle, busy)
        };
        assert_eq!(see(29, &gpu(63, 0, FREE, 700)), (None, None));
        assert_eq!(see(1, &gpu(63, 0, FREE, 700)), (Some(60), None));
        // Half of the time is neither.
        assert_eq!(see(100, &gpu(200, 50, FREE, 700)), (Some(60), None));
        // Its limit of 300 W holds it back; it says so, or it draws as much, or nobody knows.
        let held = DeviceValue::Is(Percent::from_int(20));
        let unknown = DeviceValue::Unknown(ErrorKind::Io);
        for (drawn, throttled) in [(280, held), (286, DeviceValue::Lacking), (100, unknown)] {
            assert_eq!(see(100, &gpu(drawn, 100, throttled, 300)), (Some(60), None), "{drawn}");
        }
        // The loop over its clock holds it at 200 W, and its limit does not.
        let clock = |cause| Some(ClockReport { cause, cap: Some(watts(200)), limit: None, running: None });
        let locked = DeviceReport { clock: clock(Some(LoopCause::Refused)), ..gpu(198, 100, FREE, 700) };
        assert_eq!(see(100, &locked), (Some(60), None));
        let free = DeviceReport { clock: clock(None), ..gpu(404, 100, FREE, 700) };
        assert_eq!(see(30, &free), (Some(60), Some(410)));
        // One that draws more counts within seconds, and one that draws less after minutes: 404 + (500 − 404) · (1 − (7/8)^20) = 493.4.
        assert_eq!(see(20, &gpu(500, 100, FREE, 700)).1, Some(490));
        let soon = see(20, &gpu(300, 100, FREE, 700)).1.unwrap();
        assert!(soon >= 470, "{soon}");
        let later = see(2_000, &gpu(300, 100, FREE, 700)).1.unwrap();
        assert!((300..=320).contains(&later), "{later}");
    }

    #[test]
    fn a_card_that_cannot_be_read_teaches_nothing() {
        let mut curve = Curve::default();
        let mut blind = gpu(0, 0, FREE, 700);
        for _ in 0..100 {
            blind.power = MeterReading::Stale { age: Micros::new(5_000_000) };
            curve.see(&blind);
        }
        let mut blind = gpu(60, 0, FREE, 700);
        blind.state.utilisation = DeviceValue::Lacking;
        for _ in 0..100 {
            curve.see(&blind);
        }
        assert_eq!(curve.told(), CardWatts { limit: Some(700), ..CardWatts::default() });
    }

    #[test]
    fn what_is_told_of_a_steady_card_does_not_change() {
        let mut curve = Curve::default();
        let mut told = Vec::new();
        for second in 0..3_000 {
            // Between 55 and 65 W, around a step.
            curve.see(&gpu(55 + second * 7 % 11, 0, FREE, 700));
            told.extend(curve.told().idle);
        }
        told.dedup();
        assert!(told.len() <= 2, "{told:?}");
    }

    #[test]
    fn a_limit_rises_at_once_and_falls_after_five_minutes() {
        let mut limit = HighestLimit::default();
        let mut see = |times: u32, watts: i32| {
            (0..times).for_each(|_| limit.see(Some(Watts::from_int(watts))));
            limit.told
        };
        assert_eq!(see(1, 301), Some(310));
        assert_eq!(see(1, 500), Some(500));
        assert_eq!(see(200, 250), Some(500));
        assert_eq!(see(1, 700), Some(700));
        assert_eq!(see(100, 400), Some(700));
        assert_eq!(see(199, 250), Some(700));
        assert_eq!(see(1, 250), Some(400), "the highest of these five minutes");
        limit.see(None);
        assert_eq!(limit.told, Some(400));
    }
}
