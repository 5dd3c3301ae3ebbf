//! PowerEvent: whether an event is on for which PowerBudgets are armed, written by a person or by what watches a feed; the
//! operator writes what came of it.
//!
//! Every agent watches the few objects of this kind, so that one write lowers a site, and one with times needs no write at that
//! moment: the agents have it beforehand.

use crate::field::FieldError;
use crate::macros::{part, vocabulary};
use crate::number::{Number, Whole};
use crate::word::Word;
use jiff::Timestamp;
use joulie_core::budget::armed::ArmedTimes;
use joulie_core::placement::freshness::UnixTime;
use kube::CustomResource;
use power_units::Micros;
use serde::{Deserialize, Serialize};

/// When an event is on.
#[derive(CustomResource, Clone, Debug, PartialEq, Eq, Serialize, Deserialize, kube::KubeSchema)]
#[kube(
    group = "joulie.io",
    version = "v1alpha1",
    kind = "PowerEvent",
    doc = "Whether an event is on for which PowerBudgets are armed, and what came of it.",
    status = "PowerEventStatus",
    derive = "PartialEq",
    shortname = "pwe",
    category = "joulie",
    printcolumn(name = "Event", type_ = "string", json_path = ".spec.event"),
    printcolumn(name = "Active", type_ = "boolean", json_path = ".spec.active"),
    printcolumn(name = "Start", type_ = "string", json_path = ".spec.start"),
    printcolumn(name = "End", type_ = "string", json_path = ".spec.end"),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Nodes", type_ = "integer", json_path = ".status.nodes"),
    printcolumn(name = "Behind", type_ = "integer", json_path = ".status.behindNodes"),
    printcolumn(name = "Baseline", type_ = "number", json_path = ".status.baselineWatts"),
    printcolumn(name = "Measured", type_ = "number", json_path = ".status.measuredWatts"),
    printcolumn(name = "Delivered", type_ = "number", json_path = ".status.deliveredWatts"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct PowerEventSpec {
    /// The name of the event, as `spec.armed` of PowerBudgets has it.
    #[schemars(length(min = 1, max = 63))]
    pub event: String,
    /// While it is false the event is off, whatever its times say. Without it, it is true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub active: Option<bool>,
    /// When the event begins, by the clock of each node; without one it is on at once, and in full.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "date-time"))]
    pub start: Option<String>,
    /// When it ends; without one it lasts until `active` is false or the object is deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "date-time"))]
    pub end: Option<String>,
    /// In how many seconds caps come down after the start, and go up again after the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 86400))]
    pub ramp_seconds: Option<Whole>,
}

vocabulary! {
    /// How far an event is.
    pub enum EventPhase {
        /// It is not on yet.
        Waiting = "Waiting",
        /// It is on.
        On = "On",
        /// It is over, or was switched off.
        Off = "Off",
        /// It cannot be read, and the agents keep what they knew of it.
        Refused = "Refused",
    }
}

part! {
    /// What the operator sees of an event.
    pub struct PowerEventStatus {
        /// The generation of the spec that was taken in.
        observed_generation: Whole,
        /// How far it is.
        phase: Word<EventPhase>,
        /// Since when it has been on, or was on last.
        since: String,
        /// How many nodes it lowers: those below the PowerBudgets that are armed for it.
        nodes: Whole,
        /// How many of them do not say that its caps are in force.
        behind_nodes: Whole,
        /// Some of them.
        #[schemars(length(max = 8))]
        behind: Vec<String>,
        /// What these nodes drew together in the minutes before it began. Missing where nobody measured it.
        baseline_watts: Number,
        /// What they draw now, or drew last while it was on.
        measured_watts: Number,
        /// The baseline less that.
        delivered_watts: Number,
        /// What is wrong with it, if it cannot be read.
        message: String,
        /// When this was last written.
        updated_at: String,
    }
}

/// A time as an object has it.
fn time(field: &str, text: Option<&String>) -> Result<Option<UnixTime>, FieldError> {
    let Some(text) = text else { return Ok(None) };
    let time: Timestamp =
        text.parse().map_err(|_| FieldError::new(field, Some(text.clone()), "a time as in RFC 3339"))?;
    Ok(Some(UnixTime::from_micros(time.as_microsecond())))
}

impl PowerEventSpec {
    /// When it is on; `None` if it is switched off.
    ///
    /// # Errors
    /// When it has no name, a time is none, it does not end after its start, or the ramp is no time of at most a day.
    pub fn times(&self) -> Result<Option<ArmedTimes>, FieldError> {
        if self.event.is_empty() {
            return Err(FieldError::missing("spec.event", "the name of an event"));
        }
        let start = time("spec.start", self.start.as_ref())?;
        let end = time("spec.end", self.end.as_ref())?;
        if end.is_some_and(|end| start.is_some_and(|start| end <= start)) {
            return Err(FieldError::new("spec.end", self.end.clone(), "a time after spec.start"));
        }
        let seconds = self.ramp_seconds.map_or(0, Whole::get);
        let ramp = u64::try_from(seconds).ok().filter(|seconds| *seconds <= 86_400);
        let ramp = ramp.ok_or_else(|| {
            FieldError::new("spec.rampSeconds", Some(seconds.to_string()), "seconds from 0 to 86400")
        })?;
        let ramp = Micros::new(ramp.saturating_mul(1_000_000));
        Ok((self.active != Some(false)).then_some(ArmedTimes { start, end, ramp }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn times(spec: serde_json::Value) -> Result<Option<ArmedTimes>, String> {
        let spec: PowerEventSpec = serde_json::from_value(spec).unwrap();
        spec.times().map_err(|error| error.to_string())
    }

    #[test]
    fn an_event_without_times_is_on_and_one_that_is_switched_off_has_none() {
        let now = ArmedTimes { start: None, end: None, ramp: Micros::ZERO };
        assert_eq!(times(json!({"event": "feed-b"})), Ok(Some(now)));
        assert_eq!(times(json!({"event": "feed-b", "active": false})), Ok(None));
        let read = times(
            json!({"event": "grid", "start": "1970-01-01T00:00:10Z", "end": "1970-01-01T01:00:20+01:00", "rampSeconds": 3}),
        );
        let at = |second: i64| Some(UnixTime::from_micros(second * 1_000_000));
        assert_eq!(read, Ok(Some(ArmedTimes { start: at(10), end: at(20), ramp: Micros::new(3_000_000) })));
    }

    #[test]
    fn what_is_no_event_is_refused_with_the_field() {
        for (spec, field) in [
            (json!({"event": ""}), "spec.event"),
            (json!({"event": "a", "start": "tomorrow"}), "spec.start"),
            (json!({"event": "a", "end": ""}), "spec.end"),
            (json!({"event": "a", "active": false, "end": "never"}), "spec.end"),
            (
                json!({"event": "a", "start": "2026-01-01T00:00:00Z", "end": "2026-01-01T00:00:00Z"}),
                "spec.end",
            ),
            (json!({"event": "a", "rampSeconds": -1}), "spec.rampSeconds"),
            (json!({"event": "a", "rampSeconds": 86_401}), "spec.rampSeconds"),
        ] {
            let why = times(spec.clone()).unwrap_err();
            assert!(why.starts_with(field), "{spec}: {why}");
        }
    }
}
