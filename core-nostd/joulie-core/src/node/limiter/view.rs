//! Whether a limit can be seen, and since when it cannot.
//!
//! ```text
//!                    read                        gone, or unread for longer than the patience
//!  Unwatched ───────────────────▶ Clear{at} ──────────────────────────────────────────────────▶ Lost
//!                                    ▲                       read, or confirmed                  │
//!                                    └───────────────────────────────────────────────────────────┘
//! ```
//!
//! It keeps nothing of *what* was seen: that is for [`Drift`](super::Drift) and the lever.

use super::Seen;
use power_hal::ErrorKind;
use power_units::{Micros, Stamp};

/// Whether a limit can be seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum View {
    /// Nobody has looked at it.
    Unwatched,
    /// It was last seen then, or first looked at.
    Clear(Stamp),
    /// It is out of sight.
    Lost,
}

/// What a look amounts to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Glance {
    /// Nothing new.
    Nothing,
    /// It is out of sight, and why.
    Lost(ErrorKind),
    /// It is in sight again.
    Back,
}

impl View {
    /// Takes a look; `confirmed` is when an order was last read back, which is as good as one.
    pub(super) fn look(
        self,
        patience: Micros,
        now: Stamp,
        seen: Seen,
        confirmed: Option<Stamp>,
    ) -> (Self, Glance) {
        let (read, kind) = match seen {
            Seen::Unknown => return (self, Glance::Nothing),
            Seen::Gone => return (Self::Lost, Glance::Lost(ErrorKind::Gone)),
            Seen::Unread(kind) => (None, kind),
            Seen::Off { read } | Seen::At { read, .. } => (Some(read), ErrorKind::Timeout),
        };
        let last = match self {
            Self::Clear(at) => Some(at).max(read),
            Self::Lost => read,
            Self::Unwatched => read.or(Some(now)),
        };
        let Some(last) = last.max(confirmed) else { return (Self::Lost, Glance::Lost(kind)) };
        // A time that lies ahead is from before the clock went back.
        let last = if last > now { now } else { last };
        if now.since(last).is_some_and(|unseen| unseen > patience) {
            return (Self::Lost, Glance::Lost(kind));
        }
        let glance = if self == Self::Lost { Glance::Back } else { Glance::Nothing };
        (Self::Clear(last), glance)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use power_units::Watts;

    const PATIENCE: Micros = Micros::new(50);

    fn at(micros: u64) -> Stamp {
        Stamp::new(Micros::new(micros))
    }

    fn read(micros: u64) -> Seen {
        Seen::At { limit: Watts::from_int(100), read: at(micros) }
    }

    #[test]
    fn every_view_meets_every_look() {
        use Glance::{Back, Nothing};
        let lost = (View::Lost, Glance::Lost(ErrorKind::Io));
        let late = (View::Lost, Glance::Lost(ErrorKind::Timeout));
        let gone = (View::Lost, Glance::Lost(ErrorKind::Gone));
        let clear = |micros, glance| (View::Clear(at(micros)), glance);
        let unread = Seen::Unread(ErrorKind::Io);
        // At 1000: what is seen, what was confirmed when, and what becomes of the views.
        for (seen, confirmed, unwatched, seen_lately, seen_long_ago, was_lost) in [
            (
                Seen::Unknown,
                None,
                (View::Unwatched, Nothing),
                clear(950, Nothing),
                clear(949, Nothing),
                (View::Lost, Nothing),
            ),
            (Seen::Gone, Some(999), gone, gone, gone, gone),
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
                Seen::Off { read: at(990) },
                None,
                clear(990, Nothing),
                clear(990, Nothing),
                clear(990, Nothing),
                clear(990, Back),
            ),
            // A driver that hangs leaves its last reading where it was.
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
            let look = |view: View| view.look(PATIENCE, at(1_000), seen, confirmed);
            let views = [View::Unwatched, View::Clear(at(950)), View::Clear(at(949)), View::Lost];
            assert_eq!(
                views.map(look),
                [unwatched, seen_lately, seen_long_ago, was_lost],
                "{seen:?} {confirmed:?}"
            );
        }
    }
}
