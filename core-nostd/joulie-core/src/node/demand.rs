//! What the devices of a node want to draw, and which of them their power limits hold back.
//!
//! A device **bites** where its power limit throttles it, and the limit is below what the device may be allowed: with
//! more watts it would do more. Neither heat nor a fault of the hardware is a bite, and neither is a limit at the
//! device's own maximum. A device says by a counter in which part of a period its power limit held it back, or whether it
//! does at the moment. Where it says neither, drawing at least 97 % of the limit counts as being held back;
//! [`BiteSource`] says which it was. A device that says so for ten seconds while it draws less than half of its limit is
//! not believed until it says the opposite once.
//!
//! The demand of the node is that of its devices together, with each at least at its floor. A node bites where a device
//! bites that has all of its share already: no other division of the same watts would help it.

use super::grant::Holder;
use crate::budget::demand::{DemandHistory, DemandReport};
use power_units::{Amount, Percent, Role, Stamp, Watts};

/// What a period has shown of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceDraw {
    /// What it drew; `None` where that is not known. Where one limit serves several devices, the one that draws most.
    pub watts: Option<Watts>,
    /// In which part of the period its power limit held it back.
    pub throttled: ThrottleReading,
}

/// What a device says of its throttle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ThrottleReading {
    /// It does not say, so its power is compared with its limit.
    #[default]
    Lacking,
    /// It says, but not in this period.
    Unknown,
    /// Its power limit held it back in this part of the period.
    Counted(Percent),
    /// Whether its power limit held it back when it was asked.
    Instant(bool),
}

impl ThrottleReading {
    /// Whether the device itself says that its limit holds it back. A counter that moves a little says nothing.
    #[must_use]
    pub fn says_held(self) -> bool {
        match self {
            Self::Counted(part) => part >= THROTTLED_FROM,
            Self::Instant(held) => held,
            Self::Lacking | Self::Unknown => false,
        }
    }
}

/// By what a bite was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BiteSource {
    /// By the power, which was at the limit.
    Drawn,
    /// By what the device said when it was asked.
    Instant,
    /// By the counter of the device.
    Counter,
}

/// A throttle for less than this part of a period does not count.
const THROTTLED_FROM: Percent = Percent::from_int(10);
/// A device that draws this part of its limit is held back by it, unless it says otherwise.
const AT_LIMIT_FROM: Percent = Percent::from_int(97);
/// How far below its share a limit may be read and still count as the share.
const QUANTUM: Watts = Watts::from_int(1);

impl DeviceDraw {
    /// Whether this limit held it back.
    fn throttled_at(&self, limit: Watts) -> Option<BiteSource> {
        match self.throttled {
            ThrottleReading::Counted(share) => (share >= THROTTLED_FROM).then_some(BiteSource::Counter),
            ThrottleReading::Instant(throttled) => throttled.then_some(BiteSource::Instant),
            ThrottleReading::Unknown => None,
            ThrottleReading::Lacking => self.is_at(limit).then_some(BiteSource::Drawn),
        }
    }

    /// Whether its power is at this limit.
    fn is_at(&self, limit: Watts) -> bool {
        let least = limit.scale(AT_LIMIT_FROM.to_ratio(Role::Nearest), Role::Nearest);
        self.watts.is_some_and(|watts| watts >= least)
    }
}

/// The demand of a device, or of each of the devices that share one limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceDemand {
    /// What the carrier has read in this period; it is taken once.
    draw: DeviceDraw,
    drawn: Option<Watts>,
    history: DemandHistory,
    report: Option<DemandReport>,
    bite: Option<BiteSource>,
    doubted: bool,
}

impl DeviceDemand {
    pub(super) const UNKNOWN: Self = Self {
        draw: DeviceDraw { watts: None, throttled: ThrottleReading::Lacking },
        drawn: None,
        history: DemandHistory::EMPTY,
        report: None,
        bite: None,
        doubted: false,
    };

    /// What it drew in the last period.
    #[must_use]
    pub const fn drawn(&self) -> Option<Watts> {
        self.drawn
    }

    /// What it wants to draw; `None` while that is not known.
    #[must_use]
    pub const fn report(&self) -> Option<&DemandReport> {
        self.report.as_ref()
    }

    /// Whether it bit in the last period, and by what that was seen.
    #[must_use]
    pub const fn bite(&self) -> Option<BiteSource> {
        self.bite
    }

    /// Whether what it says of its throttle is not believed.
    #[must_use]
    pub const fn is_doubted(&self) -> bool {
        self.doubted
    }

    pub(super) const fn draws(&mut self, draw: DeviceDraw) {
        self.draw = draw;
    }

    /// Takes in what the period has shown. Returns whether its throttle is not believed any more, when that begins.
    pub(super) fn learn(&mut self, now: Stamp, holder: &Holder) -> bool {
        let draw = core::mem::take(&mut self.draw);
        self.drawn = draw.watts;
        let limit = holder.in_force.filter(|&limit| holder.could_rise_from(limit));
        let says = limit.and_then(|limit| draw.throttled_at(limit));
        let shows = limit.is_some_and(|limit| draw.is_at(limit));
        let bite = says.filter(|_| shows || !self.doubted);
        if let Some(watts) = draw.watts {
            self.history.record(now, watts, limit.filter(|_| bite.is_some()));
        }
        let begins = !self.history.is_throttle_believed();
        if begins {
            // What it said before is not believed either.
            self.history.clear();
            if let Some(watts) = draw.watts {
                self.history.record(now, watts, None);
            }
        }
        let goes_on = self.doubted && (limit.is_none() || says.is_some());
        self.doubted = begins || goes_on;
        self.report = self.history.report(now, holder.want.unwrap_or(Watts::MAX));
        self.bite = bite.filter(|_| draw.watts.is_some() && (shows || !self.doubted));
        begins
    }
}

/// The demand of a node, in the watts of its grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeDemand {
    history: DemandHistory,
    report: Option<DemandReport>,
    bite: Option<BiteSource>,
    doubted: u32,
}

impl NodeDemand {
    pub(super) const UNKNOWN: Self =
        Self { history: DemandHistory::EMPTY, report: None, bite: None, doubted: 0 };

    /// What its packages and GPUs want to draw together, and whether the grant is what holds them back. What cannot be
    /// capped is in it with the most that it draws, as it is in the grant. `None` while the demand of every device is
    /// unknown.
    #[must_use]
    pub const fn report(&self) -> Option<&DemandReport> {
        self.report.as_ref()
    }

    /// Whether the grant held a device back in the last period, and by what that was seen.
    #[must_use]
    pub const fn bite(&self) -> Option<BiteSource> {
        self.bite
    }

    /// Of how many devices it is not believed what they say of their throttle.
    #[must_use]
    pub const fn doubted(&self) -> u32 {
        self.doubted
    }

    /// Takes in a period under a grant of `watts`, if there is one.
    pub(super) fn learn(&mut self, now: Stamp, sum: &DemandSum, watts: Option<Watts>) {
        self.bite = sum.bite.filter(|_| watts.is_some());
        self.doubted = sum.doubted;
        let [wanted, most, rest] = [sum.wanted, sum.most, sum.rest].map(Watts::from_wide);
        if sum.known > 0 {
            let limit = watts.map(|watts| (watts - rest).or_zero());
            self.history.record(now, wanted, limit.filter(|_| self.bite.is_some()));
        }
        self.report = self.history.report(now, most).map(|report| report.with(rest));
    }
}

/// The devices of a node, added up.
#[derive(Clone, Copy, Debug)]
pub(super) struct DemandSum {
    /// What those that can be capped draw, each at least its floor, and the most that they ask.
    wanted: i128,
    most: i128,
    /// What the others draw at most.
    rest: i128,
    /// How many have a known demand.
    known: u32,
    bite: Option<BiteSource>,
    doubted: u32,
}

impl DemandSum {
    pub(super) const NOTHING: Self = Self { wanted: 0, most: 0, rest: 0, known: 0, bite: None, doubted: 0 };

    /// Adds a holder with its share of the grant, if there is one.
    pub(super) fn add(&mut self, holder: &Holder, demand: Option<&DeviceDemand>, share: Option<Watts>) {
        let all = |each: Watts| each.to_wide().saturating_mul(i128::from(holder.count));
        if !holder.capped {
            self.rest = self.rest.saturating_add(all(holder.max.unwrap_or(Watts::ZERO)));
            return;
        }
        self.doubted = self.doubted.saturating_add(u32::from(demand.is_some_and(DeviceDemand::is_doubted)));
        let report = demand.and_then(DeviceDemand::report);
        // Of a device that says nothing, what it may draw now counts.
        let held = || share.or(holder.held()).unwrap_or(Watts::ZERO);
        let asked = report.map_or_else(held, DemandReport::highest).max(holder.floor);
        self.most = self.most.saturating_add(all(asked));
        let wanted = match report {
            Some(_) => demand.and_then(DeviceDemand::drawn).unwrap_or(asked).max(holder.floor),
            None => asked,
        };
        self.wanted = self.wanted.saturating_add(all(wanted));
        self.known = self.known.saturating_add(u32::from(report.is_some()));
        let bite = demand.and_then(DeviceDemand::bite);
        if share.is_some_and(|share| {
            holder.in_force.is_some_and(|limit| share - limit < QUANTUM) && holder.could_rise_from(share)
        }) {
            self.bite = self.bite.max(bite);
        }
    }
}

#[cfg(test)]
mod tests;
