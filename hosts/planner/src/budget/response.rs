//! Lower limits for a while: hours of the week, and a signal from outside (docs/adr/0057). Neither raises a limit.
//!
//! A signal that is silent, or says what cannot be, is never good news: its last value stands for a while, and after that
//! the lowest limit that it has.

use power_units::{Micros, Role, Watts};
use std::fmt;

/// The seconds of a day.
const DAY: u32 = 86_400;

/// A moment on the clock of some place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocalTime {
    /// The day of the week; Monday is 0.
    pub day: u8,
    /// Seconds since midnight.
    pub second: u32,
}

/// Hours of the week in which a limit is lower. Where they end before they begin, they end on the next day.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitWindow {
    days: [bool; 7],
    start: u32,
    end: u32,
    watts: Watts,
}

/// Why a window or a signal is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResponseError {
    /// It begins on no day.
    NoDay,
    /// It begins or ends at no time of the day.
    Time,
    /// It ends when it begins.
    Empty,
    /// It has no levels, or one at a value below 0.
    Levels,
    /// Its limit is below 0.
    Watts,
}

impl fmt::Display for ResponseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoDay => "it begins on no day",
            Self::Time => "it begins from 00:00 to 23:59 and ends up to 24:00",
            Self::Empty => "it ends when it begins; a whole day is from 00:00 to 24:00",
            Self::Levels => "a signal has at least one level, each from a value of 0 or more on",
            Self::Watts => "a limit is 0 watts or more",
        })
    }
}

impl std::error::Error for ResponseError {}

impl LimitWindow {
    /// A window that begins on these days, Monday first, at these seconds of the day.
    ///
    /// # Errors
    /// If it is never on, or its limit is none.
    pub fn new(days: [bool; 7], start: u32, end: u32, watts: Watts) -> Result<Self, ResponseError> {
        if !days.contains(&true) {
            Err(ResponseError::NoDay)
        } else if start >= DAY || end > DAY {
            Err(ResponseError::Time)
        } else if start == end {
            Err(ResponseError::Empty)
        } else if watts < Watts::ZERO {
            Err(ResponseError::Watts)
        } else {
            Ok(Self { days, start, end, watts })
        }
    }

    /// The limit meanwhile.
    #[must_use]
    pub const fn watts(&self) -> Watts {
        self.watts
    }

    /// For how many seconds it is still on; `None` while it is not. A clock that is put forward or back meanwhile is not known here.
    #[must_use]
    pub fn lasts(&self, now: LocalTime) -> Option<u32> {
        let day = usize::from(now.day);
        let begins_on = |day: usize| self.days.get(day % 7).copied().unwrap_or(false);
        let second = now.second.min(DAY - 1);
        if self.start < self.end {
            let is_on = begins_on(day) && (self.start..self.end).contains(&second);
            return is_on.then(|| self.end - second);
        }
        if begins_on(day) && second >= self.start {
            return Some(DAY - second + self.end);
        }
        (begins_on(day + 6) && second < self.end).then(|| self.end - second)
    }
}

/// From a value of a signal on, the limit is this.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SignalStep {
    /// From this value on.
    pub from: f64,
    /// The limit is this.
    pub watts: Watts,
}

/// What a signal means.
#[derive(Clone, Debug, PartialEq)]
pub enum SignalRule {
    /// It is the limit in watts, and no lower than this.
    Watts {
        /// The least.
        least: Watts,
    },
    /// It reaches levels.
    Steps(Vec<SignalStep>),
}

/// How a signal lowers a limit: checked.
#[derive(Clone, Debug, PartialEq)]
pub struct SignalLaw {
    rule: SignalRule,
    hold: Micros,
}

/// The last value of a signal that could be used, and how old it is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SignalHeard {
    /// The value.
    pub value: f64,
    /// Its age.
    pub age: Micros,
}

/// What a signal leaves of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SignalLimit {
    /// The limit; `None` while it lowers nothing.
    pub watts: Option<Watts>,
    /// It is by a value that still stands.
    pub fresh: bool,
}

impl SignalLaw {
    /// The law of a rule, whose last value stands for this long.
    ///
    /// # Errors
    /// If it has no level, or one that is none.
    pub fn new(rule: SignalRule, hold: Micros) -> Result<Self, ResponseError> {
        match &rule {
            SignalRule::Watts { least } if *least < Watts::ZERO => return Err(ResponseError::Watts),
            SignalRule::Watts { .. } => {}
            SignalRule::Steps(steps) => {
                if steps.is_empty() || steps.iter().any(|step| !step.from.is_finite() || step.from < 0.0) {
                    return Err(ResponseError::Levels);
                }
                if steps.iter().any(|step| step.watts < Watts::ZERO) {
                    return Err(ResponseError::Watts);
                }
            }
        }
        Ok(Self { rule, hold })
    }

    /// For how long a value stands.
    #[must_use]
    pub const fn hold(&self) -> Micros {
        self.hold
    }

    /// Whether this can be a value of it: a number from 0 to a thousand million.
    #[must_use]
    pub fn is_possible(value: f64) -> bool {
        (0.0..=1e9).contains(&value)
    }

    /// What it leaves. A value that cannot be counts as none.
    #[must_use]
    pub fn limit(&self, heard: Option<SignalHeard>) -> SignalLimit {
        let stands = |heard: &SignalHeard| heard.age <= self.hold && Self::is_possible(heard.value);
        match heard.filter(stands) {
            Some(heard) => SignalLimit { watts: self.leaves(heard.value), fresh: true },
            // The lowest is no more than the last.
            None => SignalLimit { watts: self.lowest(), fresh: false },
        }
    }

    fn lowest(&self) -> Option<Watts> {
        match &self.rule {
            SignalRule::Watts { least } => Some(*least),
            SignalRule::Steps(steps) => steps.iter().map(|step| step.watts).min(),
        }
    }

    fn leaves(&self, value: f64) -> Option<Watts> {
        match &self.rule {
            SignalRule::Watts { least } => {
                let watts = Watts::parse(&value.to_string(), Role::Limit);
                Some(watts.unwrap_or(*least).max(*least))
            }
            SignalRule::Steps(steps) => {
                steps.iter().filter(|step| value >= step.from).map(|step| step.watts).min()
            }
        }
    }
}

/// What lowers a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoweredBy {
    /// The window at this place.
    Window(usize),
    /// The signal.
    Signal,
}

/// A limit, and what lowers it, if anything does: the lowest of all, and of equals the first window.
#[must_use]
pub fn lowered(
    limit: Watts,
    windows: impl IntoIterator<Item = (usize, Watts)>,
    signal: Option<Watts>,
) -> (Watts, Option<LoweredBy>) {
    let windows = windows.into_iter().map(|(at, watts)| (watts, LoweredBy::Window(at)));
    let all = windows.chain(signal.map(|watts| (watts, LoweredBy::Signal)));
    let nothing: (Watts, Option<LoweredBy>) = (limit, None);
    all.fold(nothing, |least, (watts, by)| if watts < least.0 { (watts, Some(by)) } else { least })
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: u32 = 3_600;

    fn at(day: u8, hour: u32) -> LocalTime {
        LocalTime { day, second: hour * HOUR }
    }

    fn watts(watts: i32) -> Watts {
        Watts::from_int(watts)
    }

    #[test]
    fn a_window_is_on_from_its_start_until_its_end_and_no_second_longer() {
        let weekdays = [true, true, true, true, true, false, false];
        let evening = LimitWindow::new(weekdays, 17 * HOUR, 20 * HOUR + 1_800, watts(500)).unwrap();
        assert_eq!(evening.lasts(at(0, 17)), Some(3 * HOUR + 1_800));
        assert_eq!(evening.lasts(LocalTime { day: 0, second: 17 * HOUR - 1 }), None);
        assert_eq!(evening.lasts(LocalTime { day: 4, second: 20 * HOUR + 1_799 }), Some(1));
        assert_eq!(evening.lasts(LocalTime { day: 4, second: 20 * HOUR + 1_800 }), None);
        assert_eq!((evening.lasts(at(5, 18)), evening.lasts(at(6, 18))), (None, None));
    }

    #[test]
    fn a_window_over_midnight_belongs_to_the_day_on_which_it_begins() {
        let friday = [false, false, false, false, true, false, false];
        let night = LimitWindow::new(friday, 22 * HOUR, 6 * HOUR, watts(500)).unwrap();
        assert_eq!((night.lasts(at(4, 5)), night.lasts(at(4, 21))), (None, None));
        assert_eq!(night.lasts(at(4, 22)), Some(8 * HOUR));
        assert_eq!((night.lasts(at(5, 0)), night.lasts(at(5, 6))), (Some(6 * HOUR), None));
        assert_eq!(night.lasts(at(5, 23)), None);
        // From Sunday to Monday.
        let sunday =
            LimitWindow::new([false, false, false, false, false, false, true], 23 * HOUR, HOUR, watts(1));
        assert_eq!(sunday.unwrap().lasts(at(0, 0)), Some(HOUR));
        // A whole day, and one up to midnight.
        let day = LimitWindow::new([true; 7], 0, DAY, watts(1)).unwrap();
        assert_eq!(
            (day.lasts(at(3, 0)), day.lasts(LocalTime { day: 3, second: DAY - 1 })),
            (Some(DAY), Some(1))
        );
        let late = LimitWindow::new([true; 7], 23 * HOUR, 0, watts(1)).unwrap();
        assert_eq!((late.lasts(at(3, 23)), late.lasts(at(3, 0))), (Some(HOUR), None));
    }

    #[test]
    fn each_moment_of_a_week_is_on_exactly_where_the_seconds_say_so() {
        // A model: the week as minutes, filled from each start.
        for (start, end) in [(0, 24), (22, 6), (8, 9), (23, 0), (1, 23)] {
            for mask in 1_u8..128 {
                let days: [bool; 7] = std::array::from_fn(|day| mask >> day & 1 == 1);
                let window = LimitWindow::new(days, start * HOUR, end * HOUR, watts(1)).unwrap();
                let mut on = [false; 168];
                for day in (0..7).filter(|day| days[*day]) {
                    let hours = if end > start { end - start } else { 24 - start + end };
                    for hour in 0..hours {
                        on[(day * 24 + usize::try_from(start + hour).unwrap()) % 168] = true;
                    }
                }
                for (hour, on) in on.iter().enumerate() {
                    let now = at(u8::try_from(hour / 24).unwrap(), u32::try_from(hour % 24).unwrap());
                    assert_eq!(window.lasts(now).is_some(), *on, "{start} to {end}, {days:?}, {now:?}");
                }
            }
        }
    }

    #[test]
    fn what_is_never_on_or_no_limit_is_refused() {
        let of = |days, start, end, limit| LimitWindow::new(days, start, end, limit).unwrap_err();
        assert_eq!(of([false; 7], 0, 1, watts(1)), ResponseError::NoDay);
        assert_eq!(of([true; 7], DAY, 1, watts(1)), ResponseError::Time);
        assert_eq!(of([true; 7], 0, DAY + 1, watts(1)), ResponseError::Time);
        assert_eq!(of([true; 7], 5, 5, watts(1)), ResponseError::Empty);
        assert_eq!(of([true; 7], 5, 6, watts(-1)), ResponseError::Watts);
        let law = |rule| SignalLaw::new(rule, Micros::MINUTE).unwrap_err();
        assert_eq!(law(SignalRule::Steps(Vec::new())), ResponseError::Levels);
        for from in [f64::NAN, f64::INFINITY, -1.0] {
            assert_eq!(
                law(SignalRule::Steps(vec![SignalStep { from, watts: watts(1) }])),
                ResponseError::Levels
            );
        }
        assert_eq!(law(SignalRule::Watts { least: watts(-1) }), ResponseError::Watts);
    }

    fn carbon() -> SignalLaw {
        // The higher level has the higher limit, by mistake: the lowest of those that are reached counts.
        let steps = [(350.0, 800), (500.0, 400), (600.0, 700)]
            .map(|(from, limit)| SignalStep { from, watts: watts(limit) });
        SignalLaw::new(SignalRule::Steps(steps.to_vec()), Micros::MINUTE).unwrap()
    }

    #[test]
    fn a_signal_lowers_by_the_levels_that_it_reaches() {
        let limit = |value: f64| carbon().limit(Some(SignalHeard { value, age: Micros::ZERO }));
        for (value, wanted) in
            [(0.0, None), (349.9, None), (350.0, Some(800)), (500.0, Some(400)), (1e9, Some(400))]
        {
            assert_eq!(limit(value), SignalLimit { watts: wanted.map(watts), fresh: true }, "{value}");
        }
    }

    #[test]
    fn silence_and_garbage_are_never_good_news() {
        let silent = SignalLimit { watts: Some(watts(400)), fresh: false };
        assert_eq!(carbon().limit(None), silent);
        for value in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -0.1, 1.1e9] {
            assert_eq!(carbon().limit(Some(SignalHeard { value, age: Micros::ZERO })), silent, "{value}");
        }
        let old = |micros| carbon().limit(Some(SignalHeard { value: 100.0, age: Micros::new(micros) }));
        assert_eq!(
            old(60_000_000),
            SignalLimit { watts: None, fresh: true },
            "the last value stands for a while"
        );
        assert_eq!(old(60_000_001), silent);
    }

    #[test]
    fn a_signal_in_watts_is_the_limit_and_bounded_below() {
        let law = SignalLaw::new(SignalRule::Watts { least: watts(300) }, Micros::MINUTE).unwrap();
        let limit = |value: f64| law.limit(Some(SignalHeard { value, age: Micros::ZERO })).watts;
        assert_eq!((limit(512.5), limit(0.0)), (Watts::parse("512.5", Role::Limit).ok(), Some(watts(300))));
        assert_eq!(law.limit(None).watts, Some(watts(300)));
    }

    #[test]
    fn the_lowest_counts_and_nothing_raises_a_limit() {
        let by = |windows: &[i32], signal: Option<i32>| {
            let windows = windows.iter().map(|limit| watts(*limit)).enumerate();
            lowered(watts(1_000), windows, signal.map(watts))
        };
        assert_eq!(by(&[], None), (watts(1_000), None));
        assert_eq!(by(&[1_500], Some(2_000)), (watts(1_000), None));
        assert_eq!(by(&[900, 700, 700], Some(800)), (watts(700), Some(LoweredBy::Window(1))));
        assert_eq!(by(&[900], Some(0)), (watts(0), Some(LoweredBy::Signal)));
        assert_eq!(by(&[700], Some(700)), (watts(700), Some(LoweredBy::Window(0))));
    }
}
