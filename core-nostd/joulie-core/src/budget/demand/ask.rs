//! What a node or a device wants to draw: the last samples of its power, and the report that is made of them.
//!
//! A sample shows the demand only where nothing throttled it. Where a cap did, the demand is at least that cap, and is
//! taken for half as much again, or for the most that was drawn lately if that is more, until the node has drawn more
//! than that cap without being throttled.
//!
//! The report is at most [`QUANTILES`] numbers: the demand that is exceeded for 0, 5, 10, 20, 30, 50, 75 and 95 % of
//! the time. It is told when it has changed ([`is_news`]): a node that has begun to be throttled at once, a large change
//! soon, and a small one later. Steady demand is told once.

use super::super::queue::sort;
use core::fmt;
use power_units::{Amount, Micros, Ratio, Role, Stamp, Watts};

/// The samples that are kept.
pub const SAMPLES: usize = 20;
/// The most numbers of a report.
pub const QUANTILES: usize = 8;
/// For how many of twenty parts of the time each number of a report is exceeded.
pub(super) const EXCEEDED: [u8; QUANTILES] = [0, 1, 2, 4, 6, 10, 15, 19];

const SECOND: Micros = Micros::new(1_000_000);
/// Samples that are older are forgotten although the ring is not full.
const FORGOTTEN_AFTER: Micros = Micros::MINUTE;
/// The demand is unknown when the last sample is older.
const FRESH_FOR: Micros = Micros::new(10_000_000);
/// After this long far below the highest sample, what was before counts no more.
const REGIME_AFTER: Micros = Micros::new(4_000_000);
/// The most that was drawn counts half after this long.
const HALF_LIFE_US: u64 = 600_000_000;
/// Twice that: within one half-life the decay is a straight line.
const TWO_HALF_LIVES_US: u64 = 1_200_000_000;
/// For this long a throttle that shows although little is drawn is believed.
const BELIEVED_FOR: Micros = Micros::new(10_000_000);
/// What is drawn without a throttle may be exceeded a little in the next moment.
const MARGIN: Watts = Watts::from_int(10);
/// Not more often than this is told whether the demand is known at all.
const TOLD_APART: Micros = Micros::new(2_000_000);
/// A throttle that has ended is told after this time, if nothing else is told before.
const ENDS_AFTER: Micros = Micros::new(180_000_000);
/// A change of fewer watts is never told.
const NEWS_LEAST: Watts = Watts::from_int(10);

/// Hundredths, as a ratio.
const fn percent(hundredths: i64) -> Ratio {
    Ratio::from_bits(hundredths.saturating_mul(1 << 32).div_euclid(100))
}

/// 3 % beside the watts of the margin.
const MARGIN_PART: Ratio = percent(103);
/// A throttled node wants half as much again.
const WANTS: Ratio = percent(150);
/// Below this part of the highest sample the demand is another one.
const REGIME_BELOW: Ratio = percent(75);
/// Below this part of its cap a node is not throttled by it.
const BELIEVED_FROM: Ratio = percent(50);
/// After which time which change is told. Sooner changes are left to the receipts, which carry the demand as well: told
/// at once, they would be most of the writes of a busy fleet, and bring less than one percent of its work.
const NEWS: [(Micros, Ratio); 2] =
    [(Micros::new(300_000_000), percent(10)), (Micros::new(180_000_000), percent(30))];

/// One second of what was drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Sample {
    at: Stamp,
    drawn: Watts,
    /// The cap that throttled it.
    throttled_at: Option<Watts>,
}

/// The last samples of a node or a device, and the most that it has drawn lately.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DemandHistory {
    /// The newest first.
    samples: [Option<Sample>; SAMPLES],
    /// The most that was drawn, and when; it counts less and less.
    peak: Option<(Watts, Stamp)>,
}

impl Default for DemandHistory {
    fn default() -> Self {
        Self::EMPTY
    }
}

impl DemandHistory {
    /// Before the first sample.
    pub const EMPTY: Self = Self { samples: [None; SAMPLES], peak: None };

    /// Takes in what was drawn, and the cap that throttled it, if it is the budget's: a node at the cap that its policy
    /// wants, or one that is too hot, does not want for watts. Samples within one second become one.
    pub fn record(&mut self, now: Stamp, drawn: Watts, throttled_at: Option<Watts>) {
        let drawn = drawn.or_zero();
        if drawn >= self.memory(now) {
            self.peak = Some((drawn, now));
        }
        let is_of_same_second = |newest: &Sample| now.since(newest.at).is_none_or(|age| age < SECOND);
        match self.samples.first_mut() {
            Some(Some(newest)) if is_of_same_second(newest) => {
                newest.drawn = newest.drawn.max(drawn);
                newest.throttled_at = newest.throttled_at.max(throttled_at);
            }
            Some(_) | None => {
                let mut carried = Some(Sample { at: now, drawn, throttled_at });
                for place in &mut self.samples {
                    core::mem::swap(place, &mut carried);
                }
            }
        }
        self.forget(now);
    }

    /// What is reported now: `None` while the demand is unknown. `most` is the most that it could be allowed.
    #[must_use]
    pub fn report(&self, now: Stamp, most: Watts) -> Option<DemandReport> {
        let newest = self.samples().next()?;
        if now.since(newest.at).is_none_or(|age| age > FRESH_FOR) {
            return None;
        }
        let memory = self.memory(now);
        let known = self.highest().scale(MARGIN_PART, Role::Demand) + MARGIN;
        let believed = self.is_throttle_believed();
        let (mut demands, mut count, mut bites) = ([Watts::ZERO; SAMPLES], 0_usize, false);
        // What was drawn later, when nothing throttled it.
        let mut freely: Option<Watts> = None;
        for (sample, demand) in self.samples().zip(&mut demands) {
            let wanted = match sample.throttled_at.filter(|_| believed) {
                None => {
                    freely = freely.max(Some(sample.drawn));
                    sample.drawn.scale(MARGIN_PART, Role::Demand) + MARGIN
                }
                Some(cap) if freely >= Some(cap) => known,
                Some(cap) => {
                    bites = true;
                    cap.scale(WANTS, Role::Demand).max(memory).max(known)
                }
            };
            *demand = wanted.min(most.or_zero());
            count = count.saturating_add(1);
        }
        let demands = demands.get_mut(..count)?;
        sort(demands);
        let mut quantiles = [Watts::ZERO; QUANTILES];
        for (quantile, exceeded) in quantiles.iter_mut().zip(EXCEEDED) {
            let below = SAMPLES.saturating_sub(usize::from(exceeded));
            let rank = below.saturating_mul(count).div_ceil(SAMPLES);
            *quantile = whole_up(demands.get(rank.saturating_sub(1)).copied()?);
        }
        Some(DemandReport { quantiles, bites })
    }

    /// Forgets everything, for another machine or boot.
    pub fn clear(&mut self) {
        *self = Self::EMPTY;
    }

    fn samples(&self) -> impl Iterator<Item = &Sample> {
        self.samples.iter().flatten()
    }

    fn highest(&self) -> Watts {
        self.samples().map(|sample| sample.drawn).max().unwrap_or(Watts::ZERO)
    }

    /// The most that was drawn: half of it after ten minutes.
    fn memory(&self, now: Stamp) -> Watts {
        let Some((peak, at)) = self.peak else { return Watts::ZERO };
        let age = now.since(at).unwrap_or(Micros::ZERO).get();
        let halvings = u32::try_from(age.div_euclid(HALF_LIFE_US)).unwrap_or(u32::MAX);
        let halved = Watts::from_bits(peak.to_bits().checked_shr(halvings).unwrap_or(0));
        let rest = age.rem_euclid(HALF_LIFE_US);
        halved - halved.part(rest, TWO_HALF_LIVES_US, Role::Limit).unwrap_or(Watts::ZERO)
    }

    /// Forgets samples that are too old, and those before a fall of the demand that has lasted.
    fn forget(&mut self, now: Stamp) {
        let low = self.highest().scale(REGIME_BELOW, Role::Limit);
        let (mut lasting, mut since) = (0_usize, now);
        for sample in self.samples() {
            if sample.throttled_at.is_some() || sample.drawn >= low {
                break;
            }
            (lasting, since) = (lasting.saturating_add(1), sample.at);
        }
        let has_fallen = now.since(since).is_some_and(|lasted| lasted >= REGIME_AFTER);
        let kept = if has_fallen { lasting } else { SAMPLES };
        for (at, place) in self.samples.iter_mut().enumerate() {
            let is_old =
                place.is_some_and(|sample| now.since(sample.at).is_some_and(|age| age > FORGOTTEN_AFTER));
            if at >= kept || is_old {
                *place = None;
            }
        }
    }

    /// Not when every sample of the last seconds says that it was throttled, at less than half of the cap: such a counter
    /// is stuck.
    #[must_use]
    pub fn is_throttle_believed(&self) -> bool {
        let is_far_below = |sample: &Sample, cap: Watts| sample.drawn < cap.scale(BELIEVED_FROM, Role::Limit);
        let mut newest: Option<Stamp> = None;
        for sample in self.samples() {
            let Some(cap) = sample.throttled_at else { return true };
            if !is_far_below(sample, cap) {
                return true;
            }
            let newest = *newest.get_or_insert(sample.at);
            if newest.since(sample.at).is_some_and(|lasted| lasted >= BELIEVED_FOR) {
                return false;
            }
        }
        true
    }
}

/// Whole watts, rounded up.
fn whole_up(watts: Watts) -> Watts {
    const BELOW_ONE: i64 = 0xFFFF_FFFF;
    Watts::from_bits(watts.to_bits().saturating_add(BELOW_ONE) & !BELOW_ONE)
}

/// What a node or a device wants to draw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DemandReport {
    /// The demand that is exceeded for ever longer parts of the time: none is above the one before.
    quantiles: [Watts; QUANTILES],
    bites: bool,
}

/// Why a report is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DemandError {
    /// It has no numbers.
    Empty,
    /// It has more numbers than the levels that are agreed on.
    TooMany(usize),
    /// A demand below zero.
    Negative(Watts),
    /// A demand that is exceeded for longer is higher than one that is exceeded for less long.
    Rising(Watts),
}

impl fmt::Display for DemandError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => write!(f, "a report of the demand must have at least one number"),
            Self::TooMany(count) => {
                write!(f, "a report of the demand must have at most {QUANTILES} numbers, not {count}")
            }
            Self::Negative(watts) => write!(f, "a demand must be zero or more, not {watts} W"),
            Self::Rising(watts) => {
                write!(f, "the numbers of a report must not rise, but {watts} W is above the one before")
            }
        }
    }
}

impl core::error::Error for DemandError {}

impl DemandReport {
    /// A report that was received. Where it has fewer numbers than levels, the last one counts for the others.
    ///
    /// # Errors
    /// When there are no numbers or too many, or one is below zero or above the one before.
    pub fn new(quantiles: &[Watts], bites: bool) -> Result<Self, DemandError> {
        if quantiles.len() > QUANTILES {
            return Err(DemandError::TooMany(quantiles.len()));
        }
        let mut last = *quantiles.first().ok_or(DemandError::Empty)?;
        let mut all = [Watts::ZERO; QUANTILES];
        for (at, place) in all.iter_mut().enumerate() {
            let quantile = quantiles.get(at).copied().unwrap_or(last);
            if quantile < Watts::ZERO {
                return Err(DemandError::Negative(quantile));
            }
            if quantile > last {
                return Err(DemandError::Rising(quantile));
            }
            (*place, last) = (quantile, quantile);
        }
        Ok(Self { quantiles: all, bites })
    }

    /// The demand that is exceeded for 0, 5, 10, 20, 30, 50, 75 and 95 % of the time.
    #[must_use]
    pub const fn quantiles(&self) -> &[Watts; QUANTILES] {
        &self.quantiles
    }

    /// The highest demand.
    #[must_use]
    pub fn highest(&self) -> Watts {
        let [highest, ..] = self.quantiles;
        highest
    }

    /// The demand that is nearly always exceeded.
    #[must_use]
    pub fn lowest(&self) -> Watts {
        let [.., lowest] = self.quantiles;
        lowest
    }

    /// Whether its cap throttles it and a higher one would not.
    #[must_use]
    pub const fn bites(&self) -> bool {
        self.bites
    }

    /// The same demand with what is drawn besides at all times.
    #[must_use]
    pub fn with(mut self, rest: Watts) -> Self {
        for quantile in &mut self.quantiles {
            *quantile += rest;
        }
        self
    }
}

/// Whether a report is worth a write of its own. Whoever writes a receipt should add the report to it anyway. `told` is the last
/// one that was told, and `ago` for how long it has stood; both are `None` where there is no demand to tell. `cap` is the
/// present cap: of a demand that it does not reach, more or less changes no order.
#[must_use]
pub fn is_news(
    report: Option<&DemandReport>,
    told: Option<&DemandReport>,
    ago: Micros,
    cap: Option<Watts>,
) -> bool {
    let begins_to_bite = report.is_some_and(|report| report.bites) && !told.is_some_and(|told| told.bites);
    if begins_to_bite {
        return true;
    }
    if ago < TOLD_APART {
        return false;
    }
    let (report, told) = match (report, told) {
        (Some(report), Some(told)) => (report, told),
        (None, None) => return false,
        (Some(_), None) | (None, Some(_)) => return true,
    };
    if report.bites != told.bites && ago >= ENDS_AFTER {
        return true;
    }
    let within = |watts: Watts| cap.map_or(watts, |cap| watts.min(cap));
    let each = report.quantiles.iter().zip(&told.quantiles);
    let change = each.map(|(new, old)| (within(*new) - within(*old)).abs()).max().unwrap_or(Watts::ZERO);
    let Some((_, band)) = NEWS.iter().find(|(after, _)| ago >= *after) else { return false };
    let size = within(report.highest().max(told.highest())).scale(*band, Role::Limit);
    change >= size && change >= NEWS_LEAST
}
