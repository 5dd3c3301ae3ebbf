//! Translates a throttle percentage, or a mean frequency, into the limit of each frequency policy.
//!
//! The unit is the whole policy, listed once. Policies of one physical core are limited together: the core runs at
//! the higher request of its SMT siblings, so a limit on one of them alone has no effect. A [`PolicySequence`] ranks
//! the cores once, when the policies are enumerated: alternately over the packages in proportion to their size, so
//! that no socket bears all of the throttle, and from the highest core of each package down, because system work runs
//! on the low ones. The limited policies are always a prefix of that order. A higher percentage therefore limits the
//! same policies and more, and a small change writes few of them.

pub mod dither;

use power_units::Percent;

/// A throttle percentage: the share of the policies that is limited, 0 to 100.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ThrottlePercent(u8);

impl ThrottlePercent {
    /// Nothing is limited.
    pub const NONE: Self = Self(0);
    /// A tenth of the policies.
    pub const TEN: Self = Self(10);
    /// Everything is limited.
    pub const ALL: Self = Self(100);

    /// This percentage, if it is from 0 to 100.
    #[must_use]
    pub fn new(percent: i64) -> Option<Self> {
        u8::try_from(percent).ok().filter(|&percent| percent <= Self::ALL.0).map(Self)
    }

    /// The percentage to limit where a profile grants `granted` of the maximum and no watts are known: `throttle =
    /// 100 − granted`, rounded to a whole percent, halves towards less power. A grant above 100 % leaves everything
    /// free, one below zero limits everything.
    #[must_use]
    pub fn leaving(granted: Percent) -> Self {
        let rest = Percent::HUNDRED - granted.within(Percent::ZERO, Percent::HUNDRED);
        Self(u8::try_from(rest.round()).unwrap_or(Self::ALL.0))
    }

    /// The percentage.
    #[must_use]
    pub const fn get(self) -> u8 {
        self.0
    }

    /// As a quantity.
    #[must_use]
    pub fn to_percent(self) -> Percent {
        Percent::from_int(i32::from(self.0))
    }

    pub(crate) fn raised(self, step: Self) -> Self {
        Self(self.0.saturating_add(step.0).min(Self::ALL.0))
    }

    pub(crate) fn lowered(self, step: Self) -> Self {
        Self(self.0.saturating_sub(step.0))
    }
}

/// The location of a frequency policy's CPUs. A policy of several cores names the lowest of them: it is its own
/// group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PolicyLocation {
    /// The package (socket).
    pub package: u16,
    /// The physical core in the package.
    pub core: u32,
}

/// The rank data of a policy; the caller lends one for each policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seat {
    /// The first policy of the same core.
    leader: usize,
    /// How many cores of the package come before this one.
    turn: u64,
    /// How many cores the package has.
    cores: u64,
    /// How many policies come before this core's.
    before: u64,
    /// Whether it can be set to a mean that others share.
    pub(crate) rises: bool,
}

impl Seat {
    /// A seat before the first use.
    pub const EMPTY: Self = Self { leader: 0, turn: 0, cores: 0, before: 0, rises: true };
}

/// The order in which policies are limited.
#[derive(Clone, Copy, Debug)]
pub struct PolicySequence<'a> {
    seats: &'a [Seat],
    policies: u64,
}

impl<'a> PolicySequence<'a> {
    /// Ranks the policies at `places`, with one of `seats` for each; `None` when their numbers differ. Its time grows
    /// with the square of the number of policies, so it is built when the policies are enumerated and not in a tick.
    #[must_use]
    pub fn new(places: &[PolicyLocation], seats: &'a mut [Seat]) -> Option<Self> {
        if places.len() != seats.len() {
            return None;
        }
        take_seats(places, seats);
        for at in 0..seats.len() {
            let before = count_before(places, seats, at);
            if let Some(seat) = seats.get_mut(at) {
                seat.before = before;
            }
        }
        Some(Self::of_seats(seats))
    }

    /// The order in seats that [`new`](Self::new) filled before, for a caller that keeps them from tick to tick.
    #[must_use]
    pub fn of_seats(seats: &'a [Seat]) -> Self {
        Self { seats, policies: u64::try_from(seats.len()).unwrap_or(u64::MAX) }
    }

    /// For each policy, in the order of the places, whether it is limited at this throttle. The share is rounded up
    /// to whole cores: every percentage above zero limits something.
    pub fn throttled(&self, throttle: ThrottlePercent) -> impl Iterator<Item = bool> + use<'a> {
        let parts = self.policies.saturating_mul(u64::from(throttle.0));
        let limited = parts.div_ceil(100);
        self.seats.iter().map(move |seat| seat.before < limited)
    }
}

fn take_seats(places: &[PolicyLocation], seats: &mut [Seat]) {
    for (place, seat) in places.iter().zip(seats.iter_mut()) {
        *seat = Seat { leader: first_like(place, places), ..Seat::EMPTY };
    }
    for (at, place) in (0..places.len()).zip(places) {
        let (mut turn, mut cores) = (0_u64, 0_u64);
        for (_, other) in leaders(places, seats).filter(|(_, other)| other.package == place.package) {
            cores = cores.saturating_add(1);
            turn = turn.saturating_add(u64::from(other.core > place.core));
        }
        if let Some(seat) = seats.get_mut(at) {
            (seat.turn, seat.cores) = (turn, cores);
        }
    }
}

/// The index of the first policy of this core.
fn first_like(place: &PolicyLocation, places: &[PolicyLocation]) -> usize {
    (0..places.len()).zip(places).find(|(_, other)| *other == place).map_or(0, |(at, _)| at)
}

/// The first policy of every core.
fn leaders<'s>(
    places: &'s [PolicyLocation],
    seats: &'s [Seat],
) -> impl Iterator<Item = (&'s Seat, &'s PolicyLocation)> {
    let pairs = (0..places.len()).zip(seats.iter().zip(places));
    pairs.filter(|(at, (seat, _))| seat.leader == *at).map(|(_, pair)| pair)
}

fn count_before(places: &[PolicyLocation], seats: &[Seat], at: usize) -> u64 {
    let (Some(mine), Some(my_place)) = (seats.get(at), places.get(at)) else { return 0 };
    let earlier = seats.iter().zip(places).filter(|(seat, place)| {
        let (theirs, ours) = (midpoint(seat, mine), midpoint(mine, seat));
        theirs < ours || (theirs == ours && place.package > my_place.package)
    });
    earlier.fold(0, |policies: u64, _| policies.saturating_add(1))
}

/// The position of a core in its package, `(turn + ½) / cores`, on the common denominator with `other`'s.
fn midpoint(seat: &Seat, other: &Seat) -> u64 {
    seat.turn.saturating_mul(2).saturating_add(1).saturating_mul(other.cores)
}

#[cfg(test)]
mod tests;
