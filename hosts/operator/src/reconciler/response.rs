//! Limits that are lower for a while: which window or signal lowers each PowerBudget in this pass, and what is told of it.

use super::Reconciler;
use crate::budget::{self, Said};
use crate::grid::{GridQuery, GridValue};
use crate::reasons::{SIGNAL_HEARD, SIGNAL_SILENT};
use crate::rows::{BudgetSeen, SignalSeen};
use host_kit::clock::{Mono, micros};
use jiff::Timestamp;
use joulie_api::condition::rfc3339;
use joulie_api::number::Number;
use joulie_api::power_budget::{BudgetLowering, LoweringCause, SignalStatus};
use joulie_core::budget::sustained::SustainedLimit;
use planner::budget::{LoweredBy, SignalHeard, SignalLimit, lowered};
use power_units::{Micros, Watts};
use std::time::Duration;

/// How far Prometheus looks back for the sample of a signal at most. It is what it does where nothing else is asked.
const LOOK_BACK_MOST: Duration = Duration::from_secs(300);
/// So many windows one after the other are looked at. Nobody waits longer for them in one go.
const ADJOINING_MOST: usize = 32;
/// Windows begin and end at whole minutes.
const MINUTE: u64 = 60;

/// What a signal last said.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct GridMemory {
    query: String,
    value: f64,
    /// When it was heard, and how old it was then.
    at: Mono,
    age: Duration,
    /// When it was measured.
    wall: Timestamp,
}

/// What lowers a limit in this pass.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct LimitLowering {
    /// The limit in use.
    pub(super) watts: Watts,
    by: Option<LoweredBy>,
    /// The name of the window, when it ends, and until when windows lower the limit without a break.
    window: Option<(String, Timestamp, Timestamp)>,
    signal: Option<(SignalLimit, Option<LastHeard>)>,
}

/// The last value of a signal: when, and how long ago.
type LastHeard = (f64, Timestamp, Micros);

impl LimitLowering {
    /// As the status has it; `None` while nothing lowers the limit.
    pub(super) fn document(&self) -> Option<BudgetLowering> {
        let by = match self.by? {
            LoweredBy::Window(_) => LoweringCause::Window,
            LoweredBy::Signal => LoweringCause::Signal,
        };
        let (name, until) = self.window.clone().map(|(name, _, until)| (name, until)).unzip();
        Some(BudgetLowering {
            by: Some(by.into()),
            name,
            watts: Some(Number::tenths(self.watts)),
            until: until.map(rfc3339),
        })
    }

    /// What was last heard of the signal, as the status has it.
    pub(super) fn signal(&self) -> Option<SignalStatus> {
        let (limit, heard) = self.signal.as_ref()?;
        let (value, at, _) = (*heard)?;
        Some(SignalStatus {
            value: Number::new(value),
            sampled_at: Some(rfc3339(at)),
            watts: limit.watts.map(Number::tenths),
        })
    }

    /// Whether the signal is heard; `None` without one.
    pub(super) fn verdict(&self) -> Option<Said> {
        let (limit, heard) = self.signal.as_ref()?;
        let reason = if limit.fresh { SIGNAL_HEARD } else { SIGNAL_SILENT };
        Some(match (limit.fresh, heard) {
            (true, _) => budget::said(reason, reason.meaning),
            (false, Some((value, at, _))) => {
                budget::said(reason, format!("{}; it was {value} at {}", reason.meaning, rfc3339(*at)))
            }
            (false, None) => budget::said(reason, format!("{}; it was never heard", reason.meaning)),
        })
    }

    /// In words, for an Event.
    pub(super) fn words(&self) -> String {
        match (self.by, &self.window) {
            (Some(LoweredBy::Window(_)), Some((name, until, _))) => {
                format!(": the window {name} lowers it until {}", rfc3339(*until))
            }
            (Some(LoweredBy::Signal), _) => {
                match self.signal.as_ref().and_then(|(limit, heard)| heard.map(|heard| (limit.fresh, heard)))
                {
                    Some((true, (value, ..))) => format!(": its signal is {value}"),
                    Some((false, _)) | None => ": its signal is silent".to_owned(),
                }
            }
            (Some(LoweredBy::Window(_)) | None, _) => String::new(),
        }
    }

    /// What lowers it, in a word; for metrics.
    pub(super) const fn by(&self) -> Option<LoweringCause> {
        match self.by {
            Some(LoweredBy::Window(_)) => Some(LoweringCause::Window),
            Some(LoweredBy::Signal) => Some(LoweringCause::Signal),
            None => None,
        }
    }

    /// How old the last value of the signal is; `None` without a signal. Never heard is as old as can be.
    pub(super) fn age(&self) -> Option<f64> {
        let (_, heard) = self.signal.as_ref()?;
        Some(heard.map_or(f64::INFINITY, |(.., age)| Duration::from_micros(age.get()).as_secs_f64()))
    }
}

impl Reconciler {
    /// Takes in what signals say.
    pub(crate) fn heard_signals(&mut self, values: Vec<GridValue>, now: Mono, wall: Timestamp) {
        for GridValue { of: GridQuery { budget, query, .. }, value, age } in values {
            let wall = wall.checked_sub(age).unwrap_or(wall);
            self.grid.insert(budget, GridMemory { query, value, at: now, age, wall });
        }
    }

    /// The signals to ask for.
    pub(crate) fn signals(&self) -> Vec<GridQuery> {
        let of = |seen: &std::sync::Arc<BudgetSeen>| {
            let signal = seen.signal.as_ref()?;
            let look_back = Duration::from_micros(signal.law.hold().get()).min(LOOK_BACK_MOST);
            Some(GridQuery { budget: seen.name.clone(), query: signal.query.clone(), look_back })
        };
        self.site.budgets.seen.iter().filter_map(of).collect()
    }

    /// Lowers the limits that windows and signals lower at this moment.
    pub(super) fn lower(&mut self, now: Mono, wall: Timestamp) {
        let budgets = &self.site.budgets.seen;
        self.grid.retain(|name, heard| {
            let asks = |seen: &SignalSeen| seen.query == heard.query;
            budgets.iter().any(|seen| seen.name == *name && seen.signal.as_ref().is_some_and(asks))
        });
        let lowerings: Vec<LimitLowering> =
            budgets.iter().map(|seen| self.lowering(seen, now, wall)).collect();
        for ((limit, seen), lowering) in
            self.site.cluster.limits.iter_mut().zip(&self.site.budgets.seen).zip(&lowerings)
        {
            limit.watts = lowering.watts;
            limit.sustained = seen.sustained.map(|both| under(both, lowering.watts));
        }
        self.lowerings = lowerings;
    }

    fn lowering(&self, seen: &BudgetSeen, now: Mono, wall: Timestamp) -> LimitLowering {
        let on: Vec<(usize, Timestamp)> = seen
            .windows
            .iter()
            .enumerate()
            .filter_map(|(at, window)| Some((at, window.until(wall)?)))
            .collect();
        let signal = seen.signal.as_ref().map(|signal| {
            let heard = self.last_heard(seen, now, wall);
            let limit = signal.law.limit(heard.map(|(value, _, age)| SignalHeard { value, age }));
            (limit, heard)
        });
        let windows = on.iter().filter_map(|(at, _)| Some((*at, seen.windows.get(*at)?.watts)));
        let (watts, by) = lowered(seen.watts, windows, signal.and_then(|(limit, _)| limit.watts));
        let window = on.iter().find(|(at, _)| by == Some(LoweredBy::Window(*at)));
        let window = window.and_then(|(at, until)| {
            Some((seen.windows.get(*at)?.name.clone(), *until, unbroken(seen, *until)))
        });
        LimitLowering { watts, by, window, signal }
    }

    /// The last value of a budget's signal: when, and how long ago. A new leader goes on with what the one before has written.
    fn last_heard(&self, seen: &BudgetSeen, now: Mono, wall: Timestamp) -> Option<LastHeard> {
        if let Some(heard) = self.grid.get(&seen.name) {
            let age = now.since(heard.at).saturating_add(heard.age);
            return Some((heard.value, heard.wall, micros(age)));
        }
        let status = &seen.status;
        let is_of_this = status.observed_generation.is_some_and(|of| of.get() == seen.generation);
        let written = status.signal.as_ref().filter(|_| is_of_this)?;
        let at: Timestamp = written.sampled_at.as_ref()?.parse().ok()?;
        // What is of the future says nothing of its age.
        let age = Duration::try_from(wall.duration_since(at)).ok()?;
        Some((written.value?.get(), at, micros(age)))
    }

    /// What lowers the limit of a budget, by its place.
    pub(super) fn lowering_of(&self, at: usize) -> Option<&LimitLowering> {
        self.lowerings.get(at)
    }

    /// When a window may begin or end, or a signal becomes too old.
    pub(super) fn next_lowering(&self) -> Option<Mono> {
        let at = self.looked?;
        let seen = &self.site.budgets.seen;
        let any_window = seen.iter().any(|seen| !seen.windows.is_empty());
        let second = u64::try_from(self.wall.as_second().rem_euclid(60)).unwrap_or(0);
        let minute = any_window.then(|| Duration::from_secs(MINUTE.saturating_sub(second).max(1)));
        let ends = seen.iter().zip(&self.lowerings).filter_map(|(seen, lowering)| {
            let (limit, heard) = lowering.signal.as_ref()?;
            let (.., age) = (*heard).filter(|_| limit.fresh)?;
            let left = seen.signal.as_ref()?.law.hold().checked_sub(age)?;
            Some(Duration::from_micros(left.get().saturating_add(1_000)))
        });
        minute.into_iter().chain(ends).min().map(|wait| at.plus(wait))
    }
}

/// Until when windows that lower the limit follow each other without a break from this end of one on.
fn unbroken(seen: &BudgetSeen, end: Timestamp) -> Timestamp {
    let mut until = end;
    for _ in 0..ADJOINING_MOST {
        let lower = seen.windows.iter().filter(|window| window.watts < seen.watts);
        match lower.filter_map(|window| window.until(until)).max() {
            Some(next) if next > until => until = next,
            Some(_) | None => break,
        }
    }
    until
}

/// Two limits below a lower one for every instant.
fn under(both: SustainedLimit, instant: Watts) -> SustainedLimit {
    SustainedLimit::new(instant, both.sustained().min(instant), both.window()).unwrap_or(both)
}

#[cfg(test)]
mod tests {
    use super::*;
    use host_kit::reflect::Row;
    use serde_json::json;

    #[test]
    fn windows_that_follow_each_other_lower_a_limit_without_a_break() {
        let at = |text: &str| -> Timestamp { text.parse().unwrap() };
        let until = |windows: &[(&str, &str, i32)], end: &str| {
            let window = |(start, end, watts): &(&str, &str, i32)| json!({"name": "w", "start": start, "end": end, "timeZone": "UTC", "watts": watts});
            let windows: Vec<_> = windows.iter().map(window).collect();
            let spec = json!({"watts": 1000, "mode": "enforce", "nodeSelector": {}, "windows": windows});
            let seen = BudgetSeen::read(&json!({"metadata": {"name": "b"}, "spec": spec})).unwrap();
            unbroken(&seen, at(end))
        };
        let evening = ("17:00", "20:00", 500);
        assert_eq!(until(&[evening], "2026-11-25T20:00:00Z"), at("2026-11-25T20:00:00Z"));
        // One that begins as it ends, another one after that, and one that overlaps.
        let follow = [evening, ("20:00", "22:00", 600), ("21:00", "23:30", 900)];
        assert_eq!(until(&follow, "2026-11-25T20:00:00Z"), at("2026-11-25T23:30:00Z"));
        // A minute between them is a break, and one that does not lower the limit is none.
        assert_eq!(
            until(&[evening, ("20:01", "22:00", 600)], "2026-11-25T20:00:00Z"),
            at("2026-11-25T20:00:00Z")
        );
        assert_eq!(
            until(&[evening, ("20:00", "22:00", 1000)], "2026-11-25T20:00:00Z"),
            at("2026-11-25T20:00:00Z")
        );
        // What is always on ends somewhere.
        assert_eq!(until(&[("00:00", "24:00", 500)], "2026-11-25T00:00:00Z"), at("2026-12-27T00:00:00Z"));
    }
}
