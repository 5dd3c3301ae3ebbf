//! What lowers the limit of a PowerBudget for a while, as a person has written it: windows of the week and a signal.

use super::watts;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use joulie_api::power_budget::{BudgetDay, BudgetSignal, BudgetWindow, SignalUnit};
use joulie_api::word::Vocabulary;
use planner::budget::{LimitWindow, LocalTime, ResponseError, SignalLaw, SignalRule, SignalStep};
use power_units::{Micros, Role, Watts};
use serde::Deserialize;
use serde_json::Value;
use std::time::Duration;

/// At most so many windows, as the definition has it.
const WINDOWS_MAX: usize = 32;
/// How long the last value of a signal stands, where nothing else is said.
const HOLD_SECONDS: i64 = 600;

/// A window of the week.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct WindowSeen {
    /// Its name.
    pub(crate) name: String,
    /// Its limit.
    pub(crate) watts: Watts,
    zone: TimeZone,
    law: LimitWindow,
}

impl WindowSeen {
    /// When it ends; `None` while it is not on.
    pub(crate) fn until(&self, wall: Timestamp) -> Option<Timestamp> {
        let here = wall.to_zoned(self.zone.clone());
        let part = |part: i8| u32::from(part.unsigned_abs());
        let second = part(here.hour()) * 3_600 + part(here.minute()) * 60 + part(here.second());
        let day = here.weekday().to_monday_zero_offset().unsigned_abs();
        let lasts = Duration::from_secs(self.law.lasts(LocalTime { day, second })?.into());
        // Its clock may be put forward or back until then. In an hour that comes twice the end of the first is over.
        let end = here.datetime().checked_add(lasts).and_then(|end| end.to_zoned(self.zone.clone()));
        let end = end.map(|end| end.timestamp()).ok().filter(|end| *end > wall);
        Some(end.or_else(|| wall.checked_add(lasts).ok()).unwrap_or(Timestamp::MAX))
    }
}

/// A signal.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SignalSeen {
    /// What is asked.
    pub(crate) query: String,
    /// What the answer means.
    pub(crate) law: SignalLaw,
}

/// Reads the windows.
pub(super) fn windows(spec: &Value) -> Result<Vec<WindowSeen>, String> {
    let value = &spec["windows"];
    if value.is_null() {
        return Ok(Vec::new());
    }
    let all = Vec::<BudgetWindow>::deserialize(value).map_err(|error| format!("spec.windows: {error}"))?;
    if all.len() > WINDOWS_MAX {
        return Err(format!("spec.windows: expected at most {WINDOWS_MAX}"));
    }
    let each = all.iter().enumerate().map(|(at, one)| {
        window(one, &value[at]["watts"]).map_err(|why| format!("spec.windows: {:?}: {why}", one.name))
    });
    each.collect()
}

fn window(written: &BudgetWindow, limit: &Value) -> Result<WindowSeen, String> {
    let BudgetWindow { name, days, start, end, time_zone, watts: _ } = written;
    let mut on = [days.is_none(); 7];
    for day in days.iter().flatten() {
        let day = day.known().ok_or("days: expected Mon, Tue, Wed, Thu, Fri, Sat or Sun")?;
        for (on, one) in on.iter_mut().zip(BudgetDay::ALL) {
            *on |= *one == day;
        }
    }
    let zone = zone(time_zone)?;
    let (start, end) = (of_day(start)?, of_day(end)?);
    let watts = watts(limit, Role::Limit).ok_or("watts: expected watts, 0 or more")?;
    let law = LimitWindow::new(on, start, end, watts).map_err(|error: ResponseError| error.to_string())?;
    Ok(WindowSeen { name: name.clone(), watts, zone, law })
}

/// A clock. Names of a database are not known: the image has none, and one that is old is wrong by an hour.
fn zone(text: &str) -> Result<TimeZone, String> {
    if text == "UTC" {
        return Ok(TimeZone::UTC);
    }
    TimeZone::posix(text).map_err(|error| {
        format!("timeZone: expected UTC, or a zone as POSIX writes it (CET-1CEST,M3.5.0,M10.5.0/3): {error}")
    })
}

/// The seconds of HH:MM.
fn of_day(text: &str) -> Result<u32, String> {
    let bad = || format!("expected HH:MM, found {text:?}");
    let (hours, minutes) = text.split_once(':').ok_or_else(bad)?;
    let two = |digits: &str| {
        let plain = digits.len() == 2 && digits.bytes().all(|byte| byte.is_ascii_digit());
        digits.parse::<u32>().ok().filter(|_| plain).ok_or_else(bad)
    };
    let (hours, minutes) = (two(hours)?, two(minutes)?);
    if minutes < 60 && hours * 60 + minutes <= 24 * 60 {
        Ok(hours * 3_600 + minutes * 60)
    } else {
        Err(bad())
    }
}

/// Reads the signal.
pub(super) fn signal(spec: &Value) -> Result<Option<SignalSeen>, String> {
    let value = &spec["signal"];
    if value.is_null() {
        return Ok(None);
    }
    let told = |why: String| format!("spec.signal: {why}");
    let written = BudgetSignal::deserialize(value).map_err(|error| told(error.to_string()))?;
    let BudgetSignal { query, unit, least_watts, levels, hold_seconds } = written;
    if query.trim().is_empty() {
        return Err(told("query: expected PromQL".to_owned()));
    }
    let rule = match (unit.known(), least_watts, levels) {
        (Some(SignalUnit::Watts), Some(_), None) => {
            let least = watts(&value["leastWatts"], Role::Limit);
            SignalRule::Watts { least: least.ok_or_else(|| told("leastWatts: expected watts".to_owned()))? }
        }
        (Some(SignalUnit::Carbon), None, Some(levels)) => {
            let steps = levels.iter().enumerate().map(|(at, level)| {
                let watts = watts(&value["levels"][at]["watts"], Role::Limit);
                Some(SignalStep { from: level.from.get(), watts: watts? })
            });
            let steps: Option<Vec<SignalStep>> = steps.collect();
            SignalRule::Steps(steps.ok_or_else(|| told("levels: expected watts".to_owned()))?)
        }
        (Some(_), ..) => {
            return Err(told(
                "watts needs leastWatts, gCO2/kWh needs levels, and neither takes the other's".to_owned(),
            ));
        }
        (None, ..) => return Err(told("unit: expected watts or gCO2/kWh".to_owned())),
    };
    let seconds = hold_seconds.map_or(HOLD_SECONDS, |seconds| seconds.get());
    let seconds = u64::try_from(seconds).ok().filter(|seconds| (10..=86_400).contains(seconds));
    let seconds = seconds.ok_or_else(|| told("holdSeconds: expected 10 to 86400".to_owned()))?;
    let law =
        SignalLaw::new(rule, Micros::new(seconds * 1_000_000)).map_err(|error| told(error.to_string()))?;
    Ok(Some(SignalSeen { query, law }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn one(change: Value) -> Result<WindowSeen, String> {
        let mut window =
            json!({"name": "evening", "start": "17:00", "end": "20:30", "timeZone": "UTC", "watts": 500});
        for (key, value) in change.as_object().unwrap() {
            window[key] = value.clone();
        }
        windows(&json!({"windows": [window]})).map(|mut all| all.remove(0))
    }

    #[test]
    fn a_window_follows_the_clock_of_its_zone_through_summer() {
        let rome = one(json!({"timeZone": "CET-1CEST,M3.5.0,M10.5.0/3", "days": ["Wed"]})).unwrap();
        // 25 November 2026 is a Wednesday: 17:00 is 16:00 in UTC, and 15:00 in summer.
        assert_eq!(rome.until(at("2026-11-25T15:59:59Z")), None);
        assert_eq!(rome.until(at("2026-11-25T16:00:00Z")), Some(at("2026-11-25T19:30:00Z")));
        assert_eq!(rome.until(at("2026-11-25T19:30:00Z")), None);
        assert_eq!(rome.until(at("2026-11-26T16:00:00Z")), None, "a Thursday");
        assert_eq!(rome.until(at("2026-07-15T15:00:00Z")), Some(at("2026-07-15T18:30:00Z")));
        let utc = one(json!({})).unwrap();
        assert_eq!(utc.until(at("2026-11-26T17:00:00Z")), Some(at("2026-11-26T20:30:00Z")));
        let west = one(json!({"timeZone": "<-03>3", "start": "23:00", "end": "01:00"})).unwrap();
        assert_eq!(west.until(at("2026-11-26T02:30:00Z")), Some(at("2026-11-26T04:00:00Z")));
    }

    #[test]
    fn the_end_of_a_window_is_by_the_clock_that_is_changed_meanwhile() {
        let rome = |start: &str, end: &str| {
            one(json!({"timeZone": "CET-1CEST,M3.5.0,M10.5.0/3", "start": start, "end": end})).unwrap()
        };
        // On 29 March 2026 the hour from 01:00 in UTC on is missing, on 25 October it comes twice.
        let night = rome("22:00", "06:00");
        assert_eq!(night.until(at("2026-03-28T22:00:00Z")), Some(at("2026-03-29T04:00:00Z")));
        assert_eq!(night.until(at("2026-10-24T21:00:00Z")), Some(at("2026-10-25T05:00:00Z")));
        let twice = rome("22:00", "02:30");
        assert_eq!(twice.until(at("2026-10-25T00:10:00Z")), Some(at("2026-10-25T00:30:00Z")));
        assert_eq!(twice.until(at("2026-10-25T00:40:00Z")), None);
        assert_eq!(twice.until(at("2026-10-25T01:10:00Z")), Some(at("2026-10-25T01:30:00Z")));
    }

    #[test]
    fn a_window_that_says_no_time_is_refused_with_its_name() {
        for (change, said) in [
            (json!({"timeZone": "Europe/Rome"}), "timeZone"),
            (json!({"timeZone": ""}), "timeZone"),
            (json!({"timeZone": "\u{0}"}), "timeZone"),
            (json!({"start": "24:00"}), "begins"),
            (json!({"start": "7:00"}), "HH:MM"),
            (json!({"start": "07:60"}), "HH:MM"),
            (json!({"start": "+7:00"}), "HH:MM"),
            (json!({"end": "24:01"}), "HH:MM"),
            (json!({"end": "99:99"}), "HH:MM"),
            (json!({"end": "17:00"}), "ends when"),
            (json!({"days": ["Someday"]}), "days"),
            (json!({"days": []}), "no day"),
            (json!({"watts": -1}), "0 watts"),
            (json!({"watts": 1e300}), "watts"),
        ] {
            let why = one(change.clone()).unwrap_err();
            assert!(why.starts_with("spec.windows: \"evening\": ") && why.contains(said), "{change}: {why}");
        }
        assert!(windows(&json!({"windows": "always"})).unwrap_err().starts_with("spec.windows: "));
        let many: Vec<Value> = (0..33)
            .map(|_| json!({"name": "a", "start": "01:00", "end": "02:00", "timeZone": "UTC", "watts": 1}))
            .collect();
        assert!(windows(&json!({"windows": many})).unwrap_err().contains("at most 32"));
    }

    #[test]
    fn a_signal_that_is_none_is_refused_with_the_field() {
        let read = |value: Value| signal(&json!({"signal": value}));
        let good = read(json!({"query": "q", "unit": "gCO2/kWh", "levels": [{"from": 350, "watts": 10}]}));
        assert_eq!(good.unwrap().unwrap().law.hold(), Micros::new(600_000_000));
        assert!(
            read(json!({"query": "q", "unit": "watts", "leastWatts": 0, "holdSeconds": 10}))
                .unwrap()
                .is_some()
        );
        for (value, said) in [
            (json!({"query": " ", "unit": "watts", "leastWatts": 0}), "query"),
            (json!({"query": "q", "unit": "MW", "leastWatts": 0}), "unit"),
            (json!({"query": "q", "unit": "watts"}), "leastWatts"),
            (json!({"query": "q", "unit": "watts", "leastWatts": -1}), "0 watts"),
            (json!({"query": "q", "unit": "gCO2/kWh", "levels": []}), "level"),
            (json!({"query": "q", "unit": "gCO2/kWh", "leastWatts": 1}), "levels"),
            (json!({"query": "q", "unit": "gCO2/kWh", "levels": [{"from": -1, "watts": 10}]}), "level"),
            (json!({"query": "q", "unit": "watts", "leastWatts": 1, "holdSeconds": 9}), "holdSeconds"),
            (json!({"query": "q", "unit": "watts", "leastWatts": 1, "holdSeconds": -9}), "holdSeconds"),
            (json!(7), ""),
        ] {
            let why = read(value.clone()).unwrap_err();
            assert!(why.starts_with("spec.signal: ") && why.contains(said), "{value}: {why}");
        }
        assert_eq!(signal(&json!({})), Ok(None));
    }
}
