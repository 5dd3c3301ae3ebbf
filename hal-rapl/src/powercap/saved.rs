//! The original of a package: four words for each of its zones. A zone that was off is saved with the values that it
//! read, including 0 W. Its release switches it off again before those values are written.
//!
//! Values that cannot have been in force are neither saved nor accepted: an edited journal, or a file with a
//! temporary wrong answer, must not set a package to 0 W.

use super::zone::{ControlType, State};
use crate::aim::{CEILING_UW, FIELD_MAX_UW, WINDOW_FIELD_MAX_US, WINDOW_MAX_US};
use power_hal::Original;

/// The zone, its long-term limit, the window and the short-term limit, for each zone with limits.
const LAYOUT: u8 = 1;

/// In the first word: the zone was off. Versions without this bit do not use such an original.
const OFF: u64 = 1 << 8;

/// The zone has no short-term limit.
const NONE: u64 = u64::MAX;

/// The original of one zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Saved {
    pub(super) control_type: ControlType,
    /// Whether the zone was on, so that its limits were in force.
    pub(super) enabled: bool,
    pub(super) long_uw: u64,
    /// Zero if it was no longer than a cap's window: such a window is never written.
    pub(super) window_us: u64,
    /// `None` if there is none, or if it reads 0 in a zone that is on: then it is off by itself, and is never
    /// written.
    pub(super) short_uw: Option<u64>,
}

impl Saved {
    pub(super) fn of(control_type: ControlType, state: &State) -> Self {
        let window_us = state.window_us.filter(|&window| window > WINDOW_MAX_US).unwrap_or(0);
        let State { enabled, long_uw, short_uw, .. } = *state;
        Self {
            control_type,
            enabled,
            long_uw,
            window_us,
            short_uw: short_uw.filter(|&uw| uw > 0 || !enabled),
        }
    }

    /// Whether a package can have had these values: limits and a window that fit in a register, and limits above
    /// zero if they were in force.
    pub(super) const fn is_possible(&self) -> bool {
        let least = if self.enabled { 1 } else { 0 };
        let short = match self.short_uw {
            Some(short) => least <= short && short <= FIELD_MAX_UW,
            None => true,
        };
        let window =
            self.window_us == 0 || WINDOW_MAX_US < self.window_us && self.window_us <= WINDOW_FIELD_MAX_US;
        least <= self.long_uw && self.long_uw <= FIELD_MAX_UW && short && window
    }

    /// The upper bound of the short-term limit under a cap. A limit of zero that is off is switched on with its
    /// zone, so it must get a value that limits nothing.
    pub(super) fn highest_short_uw(&self) -> Option<u64> {
        self.short_uw.map(|short| if short == 0 { CEILING_UW } else { short })
    }

    const fn words(&self) -> [u64; 4] {
        let short = match self.short_uw {
            Some(short) => short,
            None => NONE,
        };
        let off = if self.enabled { 0 } else { OFF };
        [self.control_type.word() | off, self.long_uw, self.window_us, short]
    }
}

/// Packs the originals of both zones into one.
pub(super) fn pack(zones: &[Option<Saved>; 2]) -> Option<Original> {
    let mut words = [0; 8];
    let mut length = 0;
    for saved in zones.iter().flatten() {
        for (slot, word) in words.iter_mut().skip(length).zip(saved.words()) {
            *slot = word;
        }
        length += 4;
    }
    Original::new(LAYOUT, words.get(..length)?)
}

/// The original of each zone; `None` if the words do not have our format.
pub(super) fn unpack(original: &Original) -> Option<[Option<Saved>; 2]> {
    let (zones, rest) = original.words().as_chunks::<4>();
    if original.layout() != LAYOUT || !rest.is_empty() || zones.is_empty() || zones.len() > 2 {
        return None;
    }
    let mut saved = [None; 2];
    for (slot, &[zone, long_uw, window_us, short]) in saved.iter_mut().zip(zones) {
        let control_type = ControlType::from_word(zone & !OFF)?;
        let short_uw = (short != NONE).then_some(short);
        let enabled = zone & OFF == 0;
        *slot =
            Some(Saved { control_type, enabled, long_uw, window_us, short_uw }).filter(Saved::is_possible);
        slot.as_ref()?;
    }
    Some(saved)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(enabled: bool, long_uw: u64, short_uw: u64) -> State {
        State { long_uw, window_us: Some(27_983_872), short_uw: Some(short_uw), enabled }
    }

    #[test]
    fn an_original_is_packed_and_unpacked() {
        let package = Saved::of(ControlType::Package, &state(true, 250_000_000, 300_000_000));
        let twin = Saved { control_type: ControlType::Mmio, short_uw: None, ..package };
        for zones in [[Some(package), None], [Some(package), Some(twin)], [Some(twin), None]] {
            assert_eq!(unpack(&pack(&zones).unwrap()), Some(zones));
        }
        assert_eq!(pack(&[Some(package), None]).unwrap().words(), [0, 250_000_000, 27_983_872, 300_000_000]);
        let off = Saved::of(ControlType::Mmio, &state(false, 250_000_000, 0));
        assert_eq!(unpack(&pack(&[Some(package), Some(off)]).unwrap()), Some([Some(package), Some(off)]));
        assert_eq!(pack(&[Some(off), None]).unwrap().words(), [0x101, 250_000_000, 27_983_872, 0]);
    }

    #[test]
    fn words_of_another_layout_are_not_understood() {
        for (layout, words) in [
            (2, &[0, 1, 2, 3][..]),
            (1, &[]),
            (1, &[0, 1, 2]),
            (1, &[7, 1, 2, 3]),
            (1, &[0; 12]),
            (1, &[0; 5]),
        ] {
            assert_eq!(unpack(&Original::new(layout, words).unwrap()), None, "{layout} {words:?}");
        }
    }

    #[test]
    fn what_cannot_have_been_in_force_is_no_original() {
        let words = |long, window, short| unpack(&Original::new(LAYOUT, &[0, long, window, short]).unwrap());
        assert!(words(250_000_000, 27_983_872, 300_000_000).is_some());
        // TPMI has 18 bits of 1/8 W.
        assert!(words(32_767_875_000, 0, NONE).is_some());
        let off = |long, short| unpack(&Original::new(LAYOUT, &[0x100, long, 0, short]).unwrap());
        assert!(off(0, 0).is_some(), "nothing of it was in force");
        assert_eq!((off(32_768_000_000, 0), off(0, 32_768_000_000)), (None, None));
        for (long, window, short) in [
            (0, 27_983_872, 300_000_000),
            (32_768_000_000, 0, NONE),
            (u64::MAX, 0, NONE),
            (250_000_000, 27_983_872, 0),
            (250_000_000, 27_983_872, 32_768_000_000),
            // A window no longer than a cap's, which would not have been saved; and one longer than the field's
            // maximum.
            (250_000_000, 976, NONE),
            (250_000_000, 4_000_000_000_000, NONE),
        ] {
            assert_eq!(words(long, window, short), None, "{long} {window} {short}");
        }
        assert!(!Saved::of(ControlType::Package, &state(true, 0, 1)).is_possible());
    }

    #[test]
    fn a_short_term_limit_that_is_not_used_is_not_saved() {
        assert_eq!(Saved::of(ControlType::Package, &state(true, 1, 0)).short_uw, None);
        assert_eq!(Saved::of(ControlType::Package, &state(true, 1, 2)).short_uw, Some(2));
    }

    #[test]
    fn a_zone_that_is_off_is_saved_as_it_reads() {
        let off = Saved::of(ControlType::Package, &state(false, 0, 0));
        assert_eq!((off.enabled, off.long_uw, off.short_uw), (false, 0, Some(0)));
        assert!(off.is_possible(), "0 W that is off stops nothing");
        assert_eq!(off.highest_short_uw(), Some(CEILING_UW), "and must not come into force with a cap");
        let with_short = Saved::of(ControlType::Package, &state(false, 0, 300_000_000));
        assert_eq!(
            (with_short.short_uw, with_short.highest_short_uw()),
            (Some(300_000_000), Some(300_000_000))
        );
    }

    #[test]
    fn a_window_that_a_cap_does_not_write_is_not_saved() {
        let short = State { window_us: Some(499_712), ..state(true, 1, 1) };
        assert_eq!(Saved::of(ControlType::Package, &short).window_us, 0);
    }
}
