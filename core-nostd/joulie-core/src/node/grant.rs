//! The grant of a node: the most that its packages and GPUs may draw together, and how they are brought to it.
//!
//! A [`Division`] computes the share of each device. A device that cannot be capped counts with the most that it draws.
//! Of the rest every device gets its floor. What is left is divided [evenly](Split::Even), in proportion to the span
//! from the floor to what is wanted, where that is enough for everybody or for nobody. Otherwise it follows the demand:
//!
//! - what all devices ask is given, and what is left over goes first to those that their limit throttles;
//! - where that is too much, every device is held below its demand for the same share of the time;
//! - where even the demand that is exceeded nearly always is too much, those above their even share are cut towards it,
//!   all to the same part of the way.
//!
//! A device is **entitled** to its even share: if its limit throttles it, it gets that much before any of this. A device
//! whose demand is unknown keeps its share, at least the even one; what is above that is taken back last. A floor is
//! never undercut, even where the floors alone are above the grant.
//!
//! ```text
//!   grant 800 W, four GPUs from 100 to 700 W
//!   all idle at 80 W       200  200  200  200      even
//!   the first is busy      500  100  100  100      and 0 W are left
//! ```
//!
//! It also computes what each device may draw now, so that the sum of the limits in force is never above the grant. A
//! limit to be lowered is lowered at once. A limit to be raised waits until there is room: every device counts with the
//! higher of the limit that was read last and the highest that an order may have left in force, and a device that was
//! never read with the most that it draws. The step after the read-back raises the rest.
//!
//! ```text
//!   grant 400 W        A 300 ▶ 100   B 100 ▶ 300
//!   first step         A is set to 100, B stays at 100    (A may still be at 300)
//!   A reads back 100   B is set to 300
//! ```

use super::cap::{CAP_LEAST, CapIntent, CapRange, DesiredCap, Floor, Resolution};
use super::limiter::{LimitOutcome, Limiter};
use crate::budget::demand::{DemandReport, QUANTILES};
use power_units::{Amount, Percent, Role, Watts};

/// Devices that share one limit, and their share of a grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holder {
    /// How many devices there are; the amounts are for each of them.
    pub count: u32,
    /// Whether they can be capped.
    pub capped: bool,
    /// The least that a cap may be.
    pub floor: Watts,
    /// What each is to get where the grant suffices; `None` where that has no number, and then it is the whole grant.
    pub want: Option<Watts>,
    /// The most that one draws without a cap, where it is known.
    pub max: Option<Watts>,
    /// The limit in force as it was read back, where it is known.
    pub in_force: Option<Watts>,
    /// The limit that was ordered last.
    pub ordered: Option<Watts>,
    /// The highest limit that an order may have left in force.
    pub highest_order: Option<Watts>,
    /// The share of each device: the caller of [`Division::give`] writes it.
    pub share: Watts,
    /// What each device may draw now: written by [`Division::give`].
    pub may: Watts,
}

/// How far a limit that is read back may be below the ordered one and still count as that limit.
const QUANTUM: Watts = Watts::from_int(1);

/// A mask for the bits of whole watts.
const WHOLE: i64 = !0xFFFF_FFFF;

impl Holder {
    /// No device.
    pub const NONE: Self = Self {
        count: 0,
        capped: false,
        floor: Watts::ZERO,
        want: None,
        max: None,
        in_force: None,
        ordered: None,
        highest_order: None,
        share: Watts::ZERO,
        may: Watts::ZERO,
    };

    /// A device that cannot be capped.
    #[must_use]
    pub const fn uncapped(max: Option<Watts>) -> Self {
        Self { count: 1, max, ..Self::NONE }
    }

    /// A device that can be capped within this range, with its desired cap. If it accepts no cap, because its owner's
    /// limit or its maximum is below the lowest possible cap, it counts as a device that cannot be capped.
    #[must_use]
    pub fn capped(range: CapRange, floor: Floor, desired: DesiredCap, in_force: Option<Watts>) -> Self {
        let resolve = |intent: CapIntent| match intent.resolve(range, floor) {
            Resolution::Watts(target) => Some(target),
            Resolution::Percent(_) | Resolution::Blocked(_) => None,
        };
        let least = match resolve(CapIntent::of_watts(CAP_LEAST)) {
            None => return Self::uncapped(range.max()),
            Some(target) if target.is_as_found() => return Self::uncapped(range.owners()),
            Some(target) => target.effective(),
        };
        let most = resolve(CapIntent::of_percent(Percent::HUNDRED))
            .map(|target| target.effective())
            .or(range.owners());
        let want = match desired {
            DesiredCap::Cap(intent) => resolve(intent).map(|target| target.effective()),
            // The limit in force is not what is wanted: while limits are lowered it would change from step to step.
            DesiredCap::Unknown | DesiredCap::Gone => None,
        };
        let (want, max) = (want.or(most), range.max());
        Self { count: 1, capped: true, floor: least, want, max, in_force, ..Self::NONE }
    }

    /// The same with the orders for its limit, and the outcome that the limiter takes in next.
    #[must_use]
    pub fn with_orders(self, limiter: &Limiter, outcome: LimitOutcome, floor: Floor) -> Self {
        let highest_order = limiter.highest_order_after(outcome, floor);
        Self { ordered: limiter.ordered(), highest_order, ..self }
    }

    /// The most that one device may draw at the moment, if that is known.
    #[must_use]
    pub fn held(&self) -> Option<Watts> {
        if !self.capped {
            return self.max;
        }
        let limit = self.in_force.map(|found| self.highest_order.map_or(found, |order| found.max(order)));
        match (limit, self.max) {
            (Some(limit), Some(max)) => Some(limit.min(max)),
            (limit, max) => limit.or(max),
        }
    }

    /// The least that these devices can be held to together, and the most that they draw.
    pub(in crate::node) fn bounds(&self) -> (i128, i128) {
        let least = if self.capped { self.floor } else { self.max.unwrap_or(Watts::ZERO) };
        (self.all(least), self.all(self.max.unwrap_or(least).max(least)))
    }

    fn all(&self, each: Watts) -> i128 {
        each.to_wide().saturating_mul(i128::from(self.count))
    }

    /// The least that one device is limited to: an order may be on its way, and a reading may be older than it.
    fn least(&self) -> Option<Watts> {
        match (self.in_force, self.ordered) {
            // A difference by the rounding of the device does not count as a lower limit.
            (Some(found), Some(ordered)) if found <= ordered && ordered - found < QUANTUM => Some(ordered),
            (Some(found), Some(ordered)) => Some(found.min(ordered)),
            (found, ordered) => found.or(ordered),
        }
    }

    /// How far each is raised above what it holds now, where `free` watts are available for all of them.
    fn rise(&self, held: Watts, free: i128) -> Watts {
        let each = Watts::from_wide(free.checked_div(i128::from(self.count)).unwrap_or(0));
        let rise = (self.share - held).or_zero();
        if each < rise { whole(each) } else { rise }
    }

    /// Whether its limit is below what it may be allowed, so that more watts could be used.
    pub(in crate::node) fn could_rise_from(&self, limit: Watts) -> bool {
        self.capped && self.want.is_none_or(|want| want - limit >= QUANTUM)
    }

    /// The span from the floor to what is wanted.
    fn way(&self, watts: Watts) -> Watts {
        (self.want.unwrap_or(watts).max(self.floor) - self.floor).or_zero()
    }
}

/// What is known of the demand of a holder.
#[derive(Clone, Copy, Debug)]
pub struct Need<'a> {
    /// What it wants to draw, where that is known.
    pub report: Option<&'a DemandReport>,
    /// The share that it has, if it has one.
    pub standing: Option<Watts>,
}

impl Need<'_> {
    /// Nothing is known.
    pub const UNKNOWN: Self = Self { report: None, standing: None };

    /// Whether its limit throttles it.
    fn bites(&self) -> bool {
        self.report.is_some_and(DemandReport::bites)
    }
}

/// How the watts are divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Split {
    /// Everybody goes the same part of the way from the floor to what is wanted.
    Even,
    /// The shares stay as they are.
    Standing,
    /// By demand: between two neighbouring [columns](Division::column).
    ByDemand {
        /// The column that fits.
        column: u8,
        /// Which part of the way to the one before it still fits.
        part: i128,
        /// The whole of that way.
        whole: i128,
    },
}

/// The columns, from the most that can be given to the least. Up to the first price everybody gets at least what is asked.
/// One column for each level of the reports follows, then everybody is cut towards the even share, and in the last
/// column nobody has more than that.
const LEVELS: u8 = 16;
const GIVEN: u8 = LEVELS;
const PRICES: u8 = GIVEN.saturating_add(1);
const LAST_PRICE: u8 = GIVEN.saturating_add(8);
const LAST: u8 = LAST_PRICE.saturating_add(LEVELS).saturating_add(1);

/// The level of a report in the last of these columns.
const LAST_LEVEL: u8 = LAST_PRICE.saturating_sub(PRICES);

const _: () = assert!(QUANTILES == 8, "there is a column for each level of a report");

/// A change of a share by less than this is not worth an order.
const BAND: Watts = Watts::from_int(5);
/// Nor by less than this part of it.
const BAND_PART: Percent = Percent::from_int(2);

/// The division of a grant among its holders. Every holder is first [counted](Self::count), and then
/// [given](Self::give) its share, in the same order.
///
/// The sum of the shares, and of the most that uncapped devices draw, is not above the grant, unless the floors and the
/// uncapped devices alone exceed it. A device that cannot be capped and whose draw is unknown counts as zero here: no
/// reduction of the others could make up for it.
#[derive(Clone, Copy, Debug)]
pub struct Division {
    watts: Watts,
    /// What is left above the floors, and the sum of what is wanted of it.
    room: i128,
    wanted: i128,
    /// What is left above all that is held now, and the number of holders whose held power is unknown.
    free: i128,
    unknown: usize,
}

impl Division {
    /// Of a grant of `watts`.
    #[must_use]
    pub fn of(watts: Watts) -> Self {
        let all = watts.to_wide();
        Self { watts, room: all, wanted: 0, free: all, unknown: 0 }
    }

    /// Counts what a holder needs and holds.
    pub fn count(&mut self, holder: &Holder) {
        let least = if holder.capped { holder.floor } else { holder.max.unwrap_or(Watts::ZERO) };
        self.room = self.room.saturating_sub(holder.all(least));
        if holder.capped {
            self.wanted = self.wanted.saturating_add(holder.all(holder.way(self.watts)));
        }
        match holder.held() {
            Some(held) => self.free = self.free.saturating_sub(holder.all(held)),
            // A device that cannot be capped is no reason to leave the others at their floors.
            None => self.unknown = self.unknown.saturating_add(usize::from(holder.capped)),
        }
    }

    /// What is left above the floors, and what is wanted of it: shares that were made of the same can stay.
    #[must_use]
    pub const fn basis(&self) -> (i128, i128) {
        (self.room, self.wanted)
    }

    /// What is left above the floors; zero where they alone are above the grant.
    #[must_use]
    pub fn room(&self) -> i128 {
        self.room.max(0)
    }

    /// What a holder with this share takes of the room.
    #[must_use]
    pub fn taken(holder: &Holder, share: Watts) -> i128 {
        if holder.capped { holder.all((share - holder.floor).or_zero()) } else { 0 }
    }

    /// Returns the share of a holder, and what it may draw now; `None` for a holder that cannot be capped.
    pub fn give(&mut self, holder: &mut Holder, share: Watts) -> (Option<Watts>, Option<Watts>) {
        holder.share = share;
        holder.may = self.pace(holder);
        (Some(holder.share).filter(|_| holder.capped), Some(holder.may).filter(|_| holder.capped))
    }

    /// The share of a holder.
    #[must_use]
    pub fn share(&self, holder: &Holder, need: &Need<'_>, split: &Split) -> Watts {
        match *split {
            _ if !holder.capped => holder.max.unwrap_or(Watts::ZERO),
            Split::Even => self.even(holder),
            Split::Standing => need.standing.unwrap_or_else(|| self.even(holder)),
            Split::ByDemand { column, part: fit, whole: all } => {
                let fits = self.column(holder, need, column);
                let above = self.column(holder, need, column.saturating_sub(1));
                let more = (above - fits).to_wide().checked_mul(fit).and_then(|more| more.checked_div(all));
                let share = fits + Watts::from_wide(more.unwrap_or(0));
                if share >= self.most(holder) { share } else { whole(share).max(holder.floor) }
            }
        }
    }

    /// The share of a holder where nothing is known of anybody's demand, to which it is entitled.
    #[must_use]
    pub fn even(&self, holder: &Holder) -> Watts {
        let way = holder.way(self.watts);
        match holder.capped {
            false => holder.max.unwrap_or(Watts::ZERO),
            true if self.room <= 0 => holder.floor,
            true if self.wanted <= self.room => holder.floor + way,
            true => {
                let part = way.to_wide().checked_mul(self.room).and_then(|all| all.checked_div(self.wanted));
                let share = holder.floor + Watts::from_wide(part.unwrap_or(0));
                whole(share).max(holder.floor)
            }
        }
    }

    /// The most that a holder may be given.
    fn most(&self, holder: &Holder) -> Watts {
        holder.floor + holder.way(self.watts)
    }

    /// What a holder gets in a column. From each column to the next nobody gets more.
    #[must_use]
    pub fn column(&self, holder: &Holder, need: &Need<'_>, column: u8) -> Watts {
        match column {
            0..GIVEN => {
                let (given, levels) = (self.given(holder, need), LEVELS.saturating_sub(column));
                let raised = holder.floor + part(holder.way(self.watts), levels);
                if need.report.is_some() { given.max(raised) } else { given }
            }
            GIVEN => self.given(holder, need),
            PRICES..=LAST_PRICE => self.asked(holder, need, column.saturating_sub(PRICES)),
            _ => {
                let (asked, even) = (self.asked(holder, need, LAST_LEVEL), self.even(holder));
                match need.report {
                    None if column < LAST => asked,
                    None => even,
                    Some(_) => {
                        let levels = LAST.saturating_sub(1).saturating_sub(column);
                        asked.min(even + part(self.most(holder) - even, levels))
                    }
                }
            }
        }
    }

    /// How the grant is to be divided among these holders, which were [counted](Self::count): of the columns the first
    /// one that fits, and a part of the way to the one before it. The sums fall from column to column, so a few of them
    /// tell which it is.
    #[must_use]
    pub fn split<'a, I>(&self, all: impl Fn() -> I) -> Split
    where
        I: Iterator<Item = (Holder, Need<'a>)>,
    {
        let (mut is_known, mut suffices, mut is_scarce) = (false, true, true);
        for (holder, need) in all().filter(|(holder, _)| holder.capped) {
            let even = self.even(&holder);
            is_known |= need.report.is_some();
            suffices &= self.given(&holder, &need) <= even;
            is_scarce &= self.asked(&holder, &need, LAST_LEVEL) >= even;
        }
        if !is_known || suffices || is_scarce || self.room <= 0 {
            return Split::Even;
        }
        let sum = |column: u8| {
            let taken = |(holder, need): (Holder, Need<'a>)| {
                Self::taken(&holder, self.column(&holder, &need, column))
            };
            all().map(taken).fold(0_i128, i128::saturating_add)
        };
        let (mut above, mut fits) = (0, LAST);
        let (mut more, mut taken) = (sum(above), sum(fits));
        while fits > above.saturating_add(1) {
            let middle = above.midpoint(fits);
            match sum(middle) {
                less if less <= self.room => (fits, taken) = (middle, less),
                much => (above, more) = (middle, much),
            }
        }
        let (part, whole) = (self.room.saturating_sub(taken), more.saturating_sub(taken));
        // Where all that is wanted fits, the even division is just that.
        if part >= whole { Split::Even } else { Split::ByDemand { column: fits, part, whole } }
    }

    /// Whether its limit throttles a holder while it asks for more than its share. Also whether that share is less
    /// than the even one.
    #[must_use]
    pub fn is_short(&self, holder: &Holder, need: &Need<'_>) -> (bool, bool) {
        let (true, Some(standing)) = (holder.capped && need.bites(), need.standing) else {
            return (false, false);
        };
        (is_more(standing, self.asked(holder, need, 0)), is_more(standing, self.even(holder)))
    }

    /// Whether a throttled holder gets more by this split than it has.
    #[must_use]
    pub fn gains(&self, holder: &Holder, need: &Need<'_>, split: &Split) -> bool {
        let share = || self.share(holder, need, split);
        holder.capped && need.bites() && need.standing.is_none_or(|standing| is_more(standing, share()))
    }

    /// Whether a holder can keep its share.
    #[must_use]
    pub fn can_stand(&self, holder: &Holder, need: &Need<'_>) -> bool {
        let is_within = |standing: Watts| standing >= holder.floor && standing <= self.most(holder);
        !holder.capped || need.standing.is_some_and(is_within)
    }

    /// What a holder asks, and all that it may have where its limit throttles it: how much it needs is not known then.
    fn given(&self, holder: &Holder, need: &Need<'_>) -> Watts {
        if need.bites() { self.most(holder) } else { self.asked(holder, need, 0) }
    }

    /// What a holder asks by this level of its report.
    fn asked(&self, holder: &Holder, need: &Need<'_>, level: u8) -> Watts {
        let even = self.even(holder);
        let asked = match need.report {
            None => need.standing.map_or(even, |standing| standing.max(even)),
            Some(report) => {
                let asked = report.quantiles().get(usize::from(level)).copied().unwrap_or(Watts::ZERO);
                let called = if report.bites() { report.highest().min(even) } else { Watts::ZERO };
                asked.max(called)
            }
        };
        asked.within(holder.floor, self.most(holder))
    }

    fn pace(&mut self, holder: &Holder) -> Watts {
        match (holder.least(), holder.held()) {
            (Some(least), held) if holder.capped && least < holder.share => match held {
                Some(held) if self.unknown == 0 && self.free >= 0 => {
                    let may = holder.share.min(held + holder.rise(held, self.free));
                    self.free = self.free.saturating_sub(holder.all((may - held).or_zero()));
                    may
                }
                Some(_) | None => least,
            },
            (Some(_) | None, _) => holder.share,
        }
    }
}

/// So many sixteenths of this.
fn part(way: Watts, sixteenths: u8) -> Watts {
    let parts = way.to_wide().saturating_mul(i128::from(sixteenths));
    Watts::from_wide(parts.checked_div(i128::from(LEVELS)).unwrap_or(0))
}

/// Whether a share would rise by more than the band.
fn is_more(standing: Watts, share: Watts) -> bool {
    let band = standing.scale(BAND_PART.to_ratio(Role::Nearest), Role::Nearest).max(BAND);
    share - standing >= band
}

/// Rounded down to whole watts.
fn whole(watts: Watts) -> Watts {
    Watts::from_bits(watts.to_bits() & WHOLE)
}

#[cfg(test)]
mod tests;
