//! The grant of a node: the most that its packages and GPUs may be allowed together, and how they come to it.
//!
//! [`divide`] says what each device may have. What nobody can cap counts with the most that it draws; of the rest every
//! device gets its floor, and what is left is divided in proportion to the way from the floor to what is wanted there. A
//! floor is never undercut, not even where the floors alone are above the grant.
//!
//! [`pace`] says what each may have now, so that the limits in force are never above the grant together. What is to be
//! lowered is lowered at once. What is to be raised waits until there is room: every device counts with the higher of the
//! limit that was read back and the one that was ordered last, and one that was never read with the most that it draws.
//! The step after the read-back raises the rest.
//!
//! ```text
//!   grant 400 W        A 300 ▶ 100   B 100 ▶ 300
//!   first step         A is told 100, B stays at 100      (A may still stand at 300)
//!   A reads back 100   B is told 300
//! ```

use super::cap::{CAP_LEAST, CapIntent, CapRange, Desired, Floor, Resolution};
use power_units::{Amount, Percent, Watts};

/// Devices that have one limit, and what they may have by a grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holder {
    /// How many devices there are; the amounts are for each of them.
    pub count: u32,
    /// Whether anybody can cap them.
    pub capped: bool,
    /// The least that a cap may be.
    pub floor: Watts,
    /// What they are to have where the grant suffices; none where that has no number, and then it is the whole grant.
    pub want: Option<Watts>,
    /// The most that one draws without a cap, where it is known.
    pub max: Option<Watts>,
    /// The limit in force as it was read back, where it is known.
    pub in_force: Option<Watts>,
    /// The last limit that was ordered.
    pub ordered: Option<Watts>,
    /// What one may have: written by [`divide`].
    pub share: Watts,
    /// What one may have now: written by [`pace`].
    pub may: Watts,
}

/// How far a limit that is read back may lie below what was ordered and still be it.
const QUANTUM: Watts = Watts::from_int(1);

/// The bits of a whole number of watts.
const WHOLE: i64 = !0xFFFF_FFFF;

impl Holder {
    /// Nothing.
    pub const NONE: Self = Self {
        count: 0,
        capped: false,
        floor: Watts::ZERO,
        want: None,
        max: None,
        in_force: None,
        ordered: None,
        share: Watts::ZERO,
        may: Watts::ZERO,
    };

    /// A device that nobody can cap.
    #[must_use]
    pub const fn uncapped(max: Option<Watts>) -> Self {
        Self { count: 1, max, ..Self::NONE }
    }

    /// A device that can be capped within this range, of which so much is desired. Where it takes no cap, because its
    /// owner's limit or its maximum is below the least that one may be, it is one that nobody can cap.
    #[must_use]
    pub fn capped(range: CapRange, floor: Floor, desired: Desired, in_force: Option<Watts>) -> Self {
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
            Desired::Cap(intent) => resolve(intent).map(|target| target.effective()),
            // What is found is no wish: while limits come down it would change from step to step.
            Desired::Unknown | Desired::Gone => None,
        };
        let (want, max) = (want.or(most), range.max());
        Self { count: 1, capped: true, floor: least, want, max, in_force, ..Self::NONE }
    }

    /// The most that one may draw at the moment, where anybody can say.
    #[must_use]
    pub fn held(&self) -> Option<Watts> {
        if !self.capped {
            return self.max;
        }
        let limit = self.in_force.map(|found| self.ordered.map_or(found, |ordered| found.max(ordered)));
        match (limit, self.max) {
            (Some(limit), Some(max)) => Some(limit.min(max)),
            (limit, max) => limit.or(max),
        }
    }

    fn all(&self, each: Watts) -> i128 {
        each.to_wide().saturating_mul(i128::from(self.count))
    }

    /// What one surely has: an order may be on its way, and a reading from before it.
    fn least(&self) -> Option<Watts> {
        match (self.in_force, self.ordered) {
            // What devices round away is no lower limit.
            (Some(found), Some(ordered)) if found <= ordered && ordered - found < QUANTUM => Some(ordered),
            (Some(found), Some(ordered)) => Some(found.min(ordered)),
            (found, ordered) => found.or(ordered),
        }
    }

    /// How far each is raised above what it is held to now, where so much is free for all of them.
    fn rise(&self, held: Watts, free: i128) -> Watts {
        let each = Watts::from_wide(free.checked_div(i128::from(self.count)).unwrap_or(0));
        let rise = (self.share - held).or_zero();
        if each < rise { whole(each) } else { rise }
    }

    /// From the floor to what is wanted.
    fn way(&self, watts: Watts) -> Watts {
        (self.want.unwrap_or(watts).max(self.floor) - self.floor).or_zero()
    }
}

/// Divides a grant of `watts`. The shares of what can be capped, and the most that the rest draws, are not above it
/// together unless floors and that rest alone are. What nobody can cap and of which nobody knows how much it draws counts
/// nothing here: no number of the others would make up for it.
pub fn divide(watts: Watts, holders: &mut [Holder]) {
    let (mut room, mut wanted) = (watts.to_wide(), 0_i128);
    for holder in holders.iter() {
        let least = if holder.capped { holder.floor } else { holder.max.unwrap_or(Watts::ZERO) };
        room = room.saturating_sub(holder.all(least));
        if holder.capped {
            wanted = wanted.saturating_add(holder.all(holder.way(watts)));
        }
    }
    for holder in holders.iter_mut() {
        let way = holder.way(watts);
        holder.share = match holder.capped {
            false => holder.max.unwrap_or(Watts::ZERO),
            true if room <= 0 => holder.floor,
            true if wanted <= room => holder.floor + way,
            true => {
                let part = way.to_wide().checked_mul(room).and_then(|product| product.checked_div(wanted));
                let share = holder.floor + Watts::from_wide(part.unwrap_or(0));
                whole(share).max(holder.floor)
            }
        };
    }
}

/// Says what each may have now, after [`divide`].
pub fn pace(watts: Watts, holders: &mut [Holder]) {
    let (mut room, mut unknown) = (watts.to_wide(), 0_usize);
    for holder in holders.iter() {
        match holder.held() {
            Some(held) => room = room.saturating_sub(holder.all(held)),
            // What nobody can cap is no reason to leave the others at their floors.
            None => unknown = unknown.saturating_add(usize::from(holder.capped)),
        }
    }
    for holder in holders.iter_mut() {
        holder.may = match (holder.least(), holder.held()) {
            (Some(least), held) if holder.capped && least < holder.share => match held {
                Some(held) if unknown == 0 && room >= 0 => {
                    let may = holder.share.min(held + holder.rise(held, room));
                    room = room.saturating_sub(holder.all((may - held).or_zero()));
                    may
                }
                Some(_) | None => least,
            },
            (Some(_) | None, _) => holder.share,
        };
    }
}

/// Without a fraction of a watt.
fn whole(watts: Watts) -> Watts {
    Watts::from_bits(watts.to_bits() & WHOLE)
}

#[cfg(test)]
mod tests;
