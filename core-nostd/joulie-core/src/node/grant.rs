//! The grant of a node: the most that its packages and GPUs may draw together, and how they are brought to it.
//!
//! A [`Division`] computes the share of each device. A device that cannot be capped counts with the most that it draws.
//! Of the rest every device gets its floor, and what is left is divided in proportion to the span from the floor to
//! what is wanted. A floor is never undercut, even where the floors alone are above the grant.
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
use super::limiter::Limiter;
use power_units::{Amount, Percent, Watts};

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
    /// The share of each device: written by [`Division::give`].
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

    /// The same with the orders for its limit.
    #[must_use]
    pub fn with_orders(self, limiter: &Limiter) -> Self {
        Self { ordered: limiter.ordered(), highest_order: limiter.highest_order(), ..self }
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

    /// The span from the floor to what is wanted.
    fn way(&self, watts: Watts) -> Watts {
        (self.want.unwrap_or(watts).max(self.floor) - self.floor).or_zero()
    }
}

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

    /// Returns the share of a holder, and what it may draw now; `None` for a holder that cannot be capped.
    pub fn give(&mut self, holder: &mut Holder) -> (Option<Watts>, Option<Watts>) {
        holder.share = self.share(holder);
        holder.may = self.pace(holder);
        (Some(holder.share).filter(|_| holder.capped), Some(holder.may).filter(|_| holder.capped))
    }

    fn share(&self, holder: &Holder) -> Watts {
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

/// Rounded down to whole watts.
fn whole(watts: Watts) -> Watts {
    Watts::from_bits(watts.to_bits() & WHOLE)
}

#[cfg(test)]
mod tests;
