//! When the limit of a PowerBudget is lower for a while: times of the week, and a signal from outside. Neither ever raises it.

use crate::macros::{part, vocabulary};
use crate::number::{Number, Whole};
use crate::word::Word;
use serde::{Deserialize, Serialize};

vocabulary! {
    /// A day of the week.
    pub enum BudgetDay {
        /// Monday.
        Mon = "Mon",
        /// Tuesday.
        Tue = "Tue",
        /// Wednesday.
        Wed = "Wed",
        /// Thursday.
        Thu = "Thu",
        /// Friday.
        Fri = "Fri",
        /// Saturday.
        Sat = "Sat",
        /// Sunday.
        Sun = "Sun",
    }
}

/// Hours of the week in which the limit is lower.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, kube::KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = kube::core::Rule::new("self.start != self.end").message("end: it differs from start; a whole day is from 00:00 to 24:00"))]
pub struct BudgetWindow {
    /// What it is called in statuses and in what pods are told.
    #[schemars(length(min = 1, max = 63))]
    pub name: String,
    /// The days on which it begins; without any, every day.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 7))]
    pub days: Option<Vec<Word<BudgetDay>>>,
    /// When it begins, HH:MM on the clock of `timeZone`.
    #[schemars(length(min = 5, max = 5), extend("pattern" = "^([01][0-9]|2[0-3]):[0-5][0-9]$"))]
    pub start: String,
    /// When it ends, HH:MM up to 24:00. Before `start` it is on the next day.
    #[schemars(length(min = 5, max = 5), extend("pattern" = "^(([01][0-9]|2[0-3]):[0-5][0-9]|24:00)$"))]
    pub end: String,
    /// The clock: `UTC`, or a time zone with its rules for summer as POSIX writes them, such as `CET-1CEST,M3.5.0,M10.5.0/3`.
    #[schemars(length(min = 1, max = 64))]
    pub time_zone: String,
    /// The limit meanwhile. It never raises `watts`.
    #[schemars(range(min = 0, max = 1_000_000_000))]
    pub watts: Number,
}

vocabulary! {
    /// What a signal is measured in.
    pub enum SignalUnit {
        /// Watts that may be drawn.
        Watts = "watts",
        /// Carbon intensity of the grid.
        Carbon = "gCO2/kWh",
    }
}

/// From a value of the signal on, the limit is this.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, kube::KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct SignalLevel {
    /// From this value on.
    #[schemars(range(min = 0, max = 1_000_000_000))]
    pub from: Number,
    /// The limit is this. It never raises `watts`.
    #[schemars(range(min = 0, max = 1_000_000_000))]
    pub watts: Number,
}

/// A value that lowers the limit, asked of the operator's Prometheus.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, kube::KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = kube::core::Rule::new("self.unit == 'watts' ? has(self.leastWatts) && !has(self.levels) : has(self.levels) && !has(self.leastWatts)").message("unit: watts needs leastWatts, gCO2/kWh needs levels, and neither takes the other's"))]
pub struct BudgetSignal {
    /// PromQL that yields one series.
    #[schemars(length(min = 1, max = 2048))]
    pub query: String,
    /// `watts` is the limit itself; of `gCO2/kWh` the levels say what it leaves.
    pub unit: Word<SignalUnit>,
    /// Of `watts`: the signal never lowers the limit below this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1_000_000_000))]
    pub least_watts: Option<Number>,
    /// Of `gCO2/kWh`: what the signal leaves. Of the levels that are reached the lowest limit counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 8))]
    pub levels: Option<Vec<SignalLevel>>,
    /// For how long the last value stands while there is no other; after that the lowest limit of the signal holds. Without
    /// it, 600.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 10, max = 86400))]
    pub hold_seconds: Option<Whole>,
}

vocabulary! {
    /// What lowers a limit.
    pub enum LoweringCause {
        /// A window of the week.
        Window = "Window",
        /// The signal.
        Signal = "Signal",
    }
}

part! {
    /// What lowers a limit now.
    pub struct BudgetLowering {
        /// A window or the signal.
        by: Word<LoweringCause>,
        /// The name of the window.
        name: String,
        /// The limit now.
        watts: Number,
        /// Until when windows lower the limit: the end of this one, or of the last of those that follow it without a break. A
        /// signal has no end that anybody knows.
        #[schemars(extend("format" = "date-time"))]
        until: String,
    }
}

part! {
    /// What was last heard of a signal.
    pub struct SignalStatus {
        /// Its last value that could be used.
        value: Number,
        /// When it was measured, as far as the server says it.
        #[schemars(extend("format" = "date-time"))]
        sampled_at: String,
        /// The limit that it leaves. Missing while it lowers nothing.
        watts: Number,
    }
}
