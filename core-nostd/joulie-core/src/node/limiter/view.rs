//! Whether a limit can be read, and since when it cannot.
//!
//! ```text
//!                    read                        gone, or unread for longer than the patience
//!  Unwatched ───────────────────▶ Clear{at} ──────────────────────────────────────────────────▶ Lost
//!                                    ▲                       read, or confirmed                  │
//!                                    └───────────────────────────────────────────────────────────┘
//! ```
//!
//! A limit that cannot be read but is confirmed by an order (its control answers, its telemetry does
//! not) is lost again after the patience, and set again to be confirmed. Each time in a row the
//! patience doubles, up to the longest wait. The first reading restores the first patience.
//!
//! It stores nothing of *what* was read: that belongs to [`Drift`](super::Drift) and the actuation.

use super::LimitReading;
use power_hal::ErrorKind;
use power_units::{Micros, Stamp};

/// Whether a limit can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum View {
    /// No reading was tried yet.
    Unwatched,
    /// It was last read or confirmed at this time, or reading was first tried then.
    Clear {
        /// That time.
        at: Stamp,
        /// How many times in a row it was lost since it was last read.
        silences: u32,
    },
    /// It cannot be read.
    Lost {
        /// How many times in a row it was lost since it was last read.
        silences: u32,
    },
}

/// How long a limit may stay without a reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Patience {
    /// After a reading.
    pub(super) first: Micros,
    /// The upper bound after repeated confirmations by orders only.
    pub(super) longest: Micros,
}

impl Patience {
    fn after(self, silences: u32) -> Micros {
        let longer = self.first.get().saturating_mul(1 << silences.min(16));
        Micros::new(longer).min(self.longest.max(self.first))
    }
}

/// What a reading changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Glance {
    /// Nothing new.
    Nothing,
    /// It cannot be read any more, and why.
    Lost(ErrorKind),
    /// It can be read again.
    Back,
}

impl View {
    /// Evaluates a reading. `confirmed` is when an order was last read back, which counts as a
    /// reading.
    pub(super) fn look(
        self,
        patience: Patience,
        now: Stamp,
        seen: LimitReading,
        confirmed: Option<Stamp>,
    ) -> (Self, Glance) {
        let (read, kind) = match seen {
            LimitReading::Unknown => return (self, Glance::Nothing),
            LimitReading::Gone => return (self.lost(), Glance::Lost(ErrorKind::Gone)),
            LimitReading::Unread(kind) => (None, kind),
            LimitReading::Off { read } | LimitReading::At { read, .. } => (Some(read), ErrorKind::Timeout),
        };
        let last = match self {
            Self::Clear { at, .. } => Some(at).max(read),
            Self::Lost { .. } => read,
            Self::Unwatched => read.or(Some(now)),
        };
        let Some(last) = last.max(confirmed) else { return (self.lost(), Glance::Lost(kind)) };
        // A time in the future is from before the clock went back.
        let last = if last > now { now } else { last };
        let silences = if read == Some(last) { 0 } else { self.silences() };
        if now.since(last).is_some_and(|unseen| unseen > patience.after(silences)) {
            return (self.lost(), Glance::Lost(kind));
        }
        let glance = match self {
            Self::Lost { .. } => Glance::Back,
            Self::Unwatched | Self::Clear { .. } => Glance::Nothing,
        };
        (Self::Clear { at: last, silences }, glance)
    }

    const fn silences(self) -> u32 {
        match self {
            Self::Unwatched => 0,
            Self::Clear { silences, .. } | Self::Lost { silences } => silences,
        }
    }

    /// Counts as lost, once more if it was not lost before.
    const fn lost(self) -> Self {
        match self {
            Self::Lost { .. } => self,
            Self::Unwatched | Self::Clear { .. } => {
                Self::Lost { silences: self.silences().saturating_add(1) }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use power_units::Watts;

    const PATIENCE: Patience = Patience { first: Micros::new(50), longest: Micros::new(300) };

    fn at(micros: u64) -> Stamp {
        Stamp::new(Micros::new(micros))
    }

    fn read(micros: u64) -> LimitReading {
        LimitReading::At { limit: Watts::from_int(100), read: at(micros) }
    }

    #[test]
    fn every_view_meets_every_look() {
        use Glance::{Back, Nothing};
        const LOST: View = View::Lost { silences: 0 };
        let lost = (LOST, Glance::Lost(ErrorKind::Io));
        let late = (LOST, Glance::Lost(ErrorKind::Timeout));
        let gone = (LOST, Glance::Lost(ErrorKind::Gone));
        let seen_at = |micros| View::Clear { at: at(micros), silences: 0 };
        let clear = |micros, glance| (seen_at(micros), glance);
        let unread = LimitReading::Unread(ErrorKind::Io);
        // At 1000: what is seen, what was confirmed when, and what becomes of the views.
        for (seen, confirmed, unwatched, seen_lately, seen_long_ago, was_lost) in [
            (
                LimitReading::Unknown,
                None,
                (View::Unwatched, Nothing),
                clear(950, Nothing),
                clear(949, Nothing),
                (LOST, Nothing),
            ),
            (LimitReading::Gone, Some(999), gone, gone, gone, gone),
            (unread, None, clear(1_000, Nothing), clear(950, Nothing), lost, lost),
            (
                unread,
                Some(960),
                clear(1_000, Nothing),
                clear(960, Nothing),
                clear(960, Nothing),
                clear(960, Back),
            ),
            (unread, Some(949), clear(1_000, Nothing), clear(950, Nothing), lost, lost),
            (
                read(1_000),
                None,
                clear(1_000, Nothing),
                clear(1_000, Nothing),
                clear(1_000, Nothing),
                clear(1_000, Back),
            ),
            (
                LimitReading::Off { read: at(990) },
                None,
                clear(990, Nothing),
                clear(990, Nothing),
                clear(990, Nothing),
                clear(990, Back),
            ),
            // A driver that hangs keeps its last reading.
            (read(949), None, late, clear(950, Nothing), late, late),
            // From before the clock went back.
            (
                read(5_000),
                None,
                clear(1_000, Nothing),
                clear(1_000, Nothing),
                clear(1_000, Nothing),
                clear(1_000, Back),
            ),
        ] {
            let confirmed = confirmed.map(at);
            let look = |view: View| match view.look(PATIENCE, at(1_000), seen, confirmed) {
                (View::Lost { .. }, glance) => (LOST, glance),
                other => other,
            };
            let views = [View::Unwatched, seen_at(950), seen_at(949), LOST];
            assert_eq!(
                views.map(look),
                [unwatched, seen_lately, seen_long_ago, was_lost],
                "{seen:?} {confirmed:?}"
            );
        }
    }

    #[test]
    fn a_limit_that_only_orders_confirm_is_lost_less_and_less_often_until_it_is_read() {
        let unread = LimitReading::Unread(ErrorKind::Timeout);
        let (mut view, mut confirmed, mut lost) = (View::Unwatched, None, std::vec::Vec::new());
        for micros in 1_000..3_000 {
            let (next, glance) = view.look(PATIENCE, at(micros), unread, confirmed);
            view = next;
            if matches!(glance, Glance::Lost(_)) {
                lost.push(micros);
                confirmed = Some(at(micros));
            }
        }
        let waits: std::vec::Vec<u64> = lost.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert_eq!(waits[..4], [101, 201, 301, 301], "{lost:?}");
        let (view, _) = view.look(PATIENCE, at(3_000), read(3_000), confirmed);
        assert_eq!(view, View::Clear { at: at(3_000), silences: 0 });
    }
}
