//! Tells a meter that stands still from a power that does.
//!
//! A meter that stands still shows what it showed before, to the last bit. So does a coarse meter of a steady load. What tells them
//! apart is the meter's own past, and the clock:
//!
//! ```text
//!                       has not repeated a reading   repeats at times (a coarse meter)
//!   repeats             Lives, and is doubted        Lives
//!   … at another clock  HasStopped, the second time  MayHaveStopped
//! ```
//!
//! A meter that has stopped lives again with another reading, and not because the clock is back where the reading first came.
//!
//! A reading that is doubted is believed where it asks for less power. More is given for it in a short step at first, which is
//! doubled at each repetition.
//! Where the clock cannot be read, the limit in effect stands for it, for a meter that has not repeated a reading.

use super::past;
use power_units::{KiloHertz, Role, Watts};

/// What a reading says about its meter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Beat {
    /// The reading is the power, as far as is known.
    Lives,
    /// The same reading came at another clock; this meter repeats readings at times.
    MayHaveStopped,
    /// The same reading came at another clock, of a meter that does not repeat readings.
    HasStopped,
}

/// The last reading, and how its meter came to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pulse {
    /// 32 bits to recognize the reading by, and the clock when it first came, kHz, or zero.
    reading: u32,
    clock: u32,
    /// Up to [`VARIED`]: how many readings in a row were different. Above: how often the last one was repeated since.
    count: u8,
}

/// After so many different readings in a row, a repeated one is doubted.
const VARIED: u8 = 16;
/// From this repetition on, one at another clock is of a meter that has stopped. A single repetition can be chance.
const REPEATED: u8 = 2;
/// Another clock: by 1/32; by 1/128 where the reading is doubted.
const ELSEWHERE_SHIFT: u32 = 5;
const DOUBTED_SHIFT: u32 = 7;
/// The clock of a reading of a meter that has stopped, kHz: every clock is another one.
const NOWHERE: u32 = 1;

impl Pulse {
    pub(super) const START: Self = Self { reading: 0, clock: 0, count: 0 };

    /// Takes in a reading, with the clock of its time if that can be read, and the limit.
    pub(super) fn feel(&mut self, watts: Watts, clock: Option<KiloHertz>, limit: Option<KiloHertz>) -> Beat {
        let bits = watts.to_bits();
        let reading = u32::try_from((bits ^ (bits >> 32)) & i64::from(u32::MAX)).unwrap_or(0);
        let now = clock.or(limit).unwrap_or(KiloHertz::ZERO);
        if reading != self.reading || self.clock == 0 {
            let is_same = reading == self.reading || self.repeats() > 0;
            let count = if is_same { 0 } else { self.count.saturating_add(1).min(VARIED) };
            *self = Self { reading, clock: now.to_whole(Role::Limit), count };
            return Beat::Lives;
        }
        let is_doubted = self.count >= VARIED;
        self.count = if is_doubted { self.count.saturating_add(1) } else { 0 };
        let then = past::kilohertz(self.clock);
        let apart = (now - then).abs();
        if is_doubted {
            let is_elsewhere = apart > super::part(then, DOUBTED_SHIFT);
            if is_elsewhere && self.repeats() >= REPEATED {
                self.clock = NOWHERE;
                Beat::HasStopped
            } else {
                Beat::Lives
            }
        } else if clock.is_some() && apart > super::part(then, ELSEWHERE_SHIFT) {
            Beat::MayHaveStopped
        } else {
            Beat::Lives
        }
    }

    /// How often the last reading was repeated, by a meter that does not do so.
    pub(super) const fn repeats(&self) -> u8 {
        self.count.saturating_sub(VARIED)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ghz(tenths: i32) -> Option<KiloHertz> {
        Some(KiloHertz::from_int(tenths * 100_000))
    }

    /// A meter that has shown this many different readings, the last of them 0 W more than 300, at 2 GHz.
    fn after(different: i32) -> Pulse {
        let mut pulse = Pulse::START;
        for watts in (0..different).rev() {
            assert_eq!(pulse.feel(Watts::from_int(300 + watts), ghz(20), ghz(20)), Beat::Lives);
        }
        pulse
    }

    #[test]
    fn a_repeated_reading_tells_by_the_meters_past_and_by_the_clock() {
        use Beat::{HasStopped, Lives, MayHaveStopped};
        // How many readings were different; the clock and the limit of three repetitions; what they say.
        for (different, clock, limit, said) in [
            (16, ghz(20), ghz(20), [Lives; 3]),
            (16, ghz(21), ghz(21), [Lives, HasStopped, HasStopped]),
            // 1/128 of 2 GHz is 15.6 MHz.
            (16, None, ghz(21), [Lives, HasStopped, HasStopped]),
            (15, ghz(20), ghz(20), [Lives; 3]),
            (15, ghz(21), ghz(21), [MayHaveStopped; 3]),
            (15, None, ghz(21), [Lives; 3]),
        ] {
            let mut pulse = after(different);
            let beats = [(); 3].map(|()| pulse.feel(Watts::from_int(300), clock, limit));
            assert_eq!(beats, said, "{different} {clock:?} {limit:?}");
        }
    }

    #[test]
    fn a_meter_that_has_repeated_a_reading_must_earn_its_name_again() {
        let mut pulse = after(16);
        assert_eq!(pulse.repeats(), 0);
        pulse.feel(Watts::from_int(300), ghz(20), None);
        assert_eq!(pulse.repeats(), 1);
        for different in 0..16 {
            pulse.feel(Watts::from_int(400 + different), ghz(20), None);
            assert_eq!((pulse.repeats(), pulse.count >= VARIED), (0, different == 16), "{different}");
        }
        pulse.feel(Watts::from_int(500), ghz(20), None);
        pulse.feel(Watts::from_int(500), ghz(20), None);
        assert_eq!(pulse.repeats(), 1);
        // Without any clock nothing can be told, and nothing is counted.
        let mut blind = Pulse::START;
        for _ in 0..100 {
            assert_eq!(blind.feel(Watts::from_int(300), None, None), Beat::Lives);
        }
        assert_eq!(blind.repeats(), 0);
    }

    #[test]
    fn a_meter_that_has_stopped_lives_again_with_another_reading_only() {
        use Beat::{HasStopped, Lives};
        let mut pulse = after(16);
        let beats = [20, 21, 20, 21].map(|tenths| pulse.feel(Watts::from_int(300), ghz(tenths), None));
        assert_eq!(beats, [Lives, HasStopped, HasStopped, HasStopped]);
        assert_eq!(pulse.feel(Watts::from_int(300), None, None), HasStopped);
        assert_eq!(pulse.feel(Watts::from_int(301), ghz(20), None), Lives);
        assert_eq!(pulse.feel(Watts::from_int(301), ghz(20), None), Lives);
    }

    #[test]
    fn repetitions_are_counted_without_end() {
        let mut pulse = after(16);
        for _ in 0..1_000 {
            assert_eq!(pulse.feel(Watts::from_int(300), ghz(20), None), Beat::Lives);
        }
        assert_eq!(pulse.repeats(), u8::MAX - VARIED);
    }
}
