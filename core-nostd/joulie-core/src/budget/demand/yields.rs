//! What a node yields of its grant: the watts that it has used and does not want any more.
//!
//! A lowering that the operator orders costs two writes, the grant and its receipt. A node that yields by itself writes
//! once, and tells what it wants with the same write. It does so only where its grant says that watts are short, because
//! otherwise it would be throttled later for nothing.
//!
//! A node that was raised again soon after its yield has wasted the writes and was throttled for them: it rests for twice as
//! long before its next yield, and for half as long again once a yield has lasted.
//!
//! A node keeps what it has been given for work that it has not begun: it yields only after it has used most of its
//! grant, or after it has not done so for long.

use super::ask::DemandReport;
use power_units::{Micros, Ratio, Role, Stamp, Watts};

/// A node keeps what it was raised to for so long.
const RESTS: Micros = Micros::new(5_000_000);
/// A raise within this time after a yield comes soon.
const SOON: Micros = Micros::new(20_000_000);
/// The rest is at most so many times doubled.
const DOUBLED_MOST: u8 = 4;
/// What it was raised to and has not used it keeps for so long: as long as the operator expects what bound pods will draw.
const UNUSED_FOR: Micros = Micros::new(120_000_000);
/// From this part on a grant is used.
const USED_FROM: Ratio = Ratio::from_bits(2_576_980_378);
/// Less than this part of the grant is not worth a write, nor is less than these watts.
const YIELD_PART: Ratio = Ratio::from_bits(858_993_459);
const YIELD_LEAST: Watts = Watts::from_int(50);

/// The grant that a node follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Yieldable {
    /// Which grant it is.
    pub serial: u64,
    /// What is left of it.
    pub watts: Watts,
    /// The least that the node's devices can be held to.
    pub floor: Watts,
    /// It says that watts are short.
    pub lends: bool,
}

/// What is remembered of the grant that a node follows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct YieldMemory {
    /// The grant, what was left of it, and when it was raised last.
    grant: Option<(u64, Watts, Stamp)>,
    /// Most of it was wanted since.
    is_used: bool,
    /// When it was last yielded.
    yielded: Option<Stamp>,
    /// How often the rest is doubled.
    doubled: u8,
}

impl YieldMemory {
    /// What the node should keep to from now on; `None` where it keeps what it has. `report` is what it wants, if that is
    /// known.
    pub fn left(&mut self, now: Stamp, grant: Yieldable, report: Option<&DemandReport>) -> Option<Watts> {
        let Yieldable { serial, watts, floor, lends } = grant;
        let before = self.grant.filter(|(known, ..)| *known <= serial);
        let since = match before {
            Some((_, had, since)) if watts <= had => since,
            Some(_) | None => {
                self.rise(now);
                now
            }
        };
        self.grant = Some((serial, watts, since));
        let report = report?;
        self.is_used |= report.bites() || report.highest() >= watts.scale(USED_FROM, Role::Limit);
        let rests = RESTS.get().checked_shl(self.doubled.into()).map_or(UNUSED_FOR, Micros::new);
        let rests = if self.is_used { rests } else { UNUSED_FOR.max(rests) };
        let has_rested = now.since(since).is_some_and(|lasted| lasted >= rests);
        if !lends || !has_rested || report.bites() {
            return None;
        }
        let left = report.highest().max(floor);
        let least = watts.scale(YIELD_PART, Role::Limit).max(YIELD_LEAST);
        let is_worth = watts - left >= least;
        if is_worth {
            self.yielded = Some(now);
        }
        is_worth.then_some(left)
    }

    fn rise(&mut self, now: Stamp) {
        self.is_used = false;
        let Some(at) = self.yielded.take() else { return };
        let is_soon = now.since(at).is_none_or(|ago| ago < SOON);
        self.doubled = match is_soon {
            true => self.doubled.saturating_add(1).min(DOUBLED_MOST),
            false => self.doubled.saturating_sub(1),
        };
    }
}
