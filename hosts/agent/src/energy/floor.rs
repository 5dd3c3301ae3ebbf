//! The idle floor: what the packages of a node draw together while it does next to nothing.
//!
//! It is the lowest mean power over a window of at least ten seconds without a gap in which the processors were at most a tenth
//! busy. A node that was never that idle has no floor, and then all that it draws is shared out.

use super::meter::Drawn;
use power_units::{MicroJoules, Micros, NonZeroMicros, Watts};

/// In microseconds.
const WINDOW: u64 = 10_000_000;
/// A window counts if the processors were busy for at most one part in this many.
const BUSY_PART: u64 = 10;

/// The floor, and the window that is being measured.
#[derive(Clone, Debug, Default)]
pub(super) struct IdleFloor {
    floor: Option<Watts>,
    energy: u64,
    /// In microseconds.
    span: u64,
    busy: u64,
}

impl IdleFloor {
    /// Takes in what was drawn in a span, for how long processors were busy in it, and how many there are.
    pub(super) fn take(&mut self, drawn: Drawn, span: Micros, busy: Option<u64>, processors: u64) {
        // Packages that draw nothing are a meter that stands still.
        let is_whole = drawn.gap == 0 && drawn.gap_micros == 0 && drawn.metered > 0;
        let Some(busy) = busy.filter(|_| is_whole) else {
            *self = Self { floor: self.floor, ..Self::default() };
            return;
        };
        self.energy = self.energy.saturating_add(drawn.metered);
        self.span = self.span.saturating_add(span.get());
        self.busy = self.busy.saturating_add(busy);
        let Some(lasting) = NonZeroMicros::new(self.span).filter(|span| span.get() >= WINDOW) else { return };
        let whole = self.span.saturating_mul(processors);
        let is_idle = self.busy.saturating_mul(BUSY_PART) <= whole;
        let mean = MicroJoules::new(self.energy).over(lasting);
        let floor = if is_idle { Some(self.floor.map_or(mean, |floor| floor.min(mean))) } else { self.floor };
        *self = Self { floor, ..Self::default() };
    }

    /// The floor, once it was measured.
    pub(super) const fn watts(&self) -> Option<Watts> {
        self.floor
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(watts: u64) -> Drawn {
        Drawn { metered: watts * 1_000_000, ..Drawn::default() }
    }

    const SECOND: Micros = Micros::new(1_000_000);

    #[test]
    fn the_floor_is_the_lowest_window_in_which_the_node_is_idle() {
        let mut floor = IdleFloor::default();
        // Four processors, one of them busy: 25 %, and no floor however long it lasts.
        for _ in 0..60 {
            floor.take(drawn(90), SECOND, Some(1_000_000), 4);
        }
        assert_eq!(floor.watts(), None);
        // 5 % busy: nine times 120 W and once 60 W are 114 W in the mean.
        for second in 0..10 {
            floor.take(drawn(if second == 0 { 60 } else { 120 }), SECOND, Some(200_000), 4);
        }
        assert_eq!(floor.watts(), Some(Watts::from_int(114)));
        for _ in 0..20 {
            floor.take(drawn(130), SECOND, Some(0), 4);
        }
        assert_eq!(floor.watts(), Some(Watts::from_int(114)), "a higher window does not raise it");
        for _ in 0..10 {
            floor.take(drawn(100), SECOND, Some(0), 4);
        }
        assert_eq!(floor.watts(), Some(Watts::from_int(100)));
    }

    #[test]
    fn a_window_with_a_gap_or_of_unknown_load_does_not_count() {
        let mut floor = IdleFloor::default();
        for second in 0..100 {
            let gap = Drawn { metered: 1_000_000, gap: 5, gap_micros: 5 };
            match second % 10 {
                4 => floor.take(gap, SECOND, Some(0), 4),
                8 => floor.take(drawn(1), SECOND, None, 4),
                _ => floor.take(drawn(1), SECOND, Some(0), 4),
            }
        }
        assert_eq!(floor.watts(), None);
        // A meter that stood still for ten seconds has shown nothing, and 0 W is no floor.
        for _ in 0..10 {
            floor.take(drawn(0), SECOND, Some(0), 4);
        }
        assert_eq!(floor.watts(), None);
    }
}
