//! The status of a PowerEvent: its document, and whether it differs enough from the present one to be worth a write.

use super::{API_VERSION, is_older};
use jiff::Timestamp;
use joulie_api::number::Number;
use joulie_api::power_event::PowerEventStatus;
use serde_json::{Value, json};
use std::time::Duration;

/// Watts alone are written at most this often.
const WATTS_EVERY: Duration = Duration::from_secs(10);
/// A smaller change of watts is not written.
const BAND: f64 = 0.01;

/// The status to apply.
pub(crate) fn event_document(name: &str, uid: &str, status: &PowerEventStatus) -> Value {
    json!({
        "apiVersion": API_VERSION, "kind": "PowerEvent",
        "metadata": {"name": name, "uid": uid}, "status": status,
    })
}

/// Whether a status is worth a write at `now`.
pub(crate) fn event_differs(new: &PowerEventStatus, old: &PowerEventStatus, now: Timestamp) -> bool {
    let watts = |number: Option<Number>| number.map(Number::get);
    let plain = |status: &PowerEventStatus| PowerEventStatus {
        measured_watts: None,
        delivered_watts: None,
        baseline_watts: None,
        updated_at: None,
        ..status.clone()
    };
    let moved = |new: Option<Number>, old: Option<Number>| match (watts(new), watts(old)) {
        (Some(new), Some(old)) => (new - old).abs() >= (old.abs() * BAND).max(1.0),
        (new, old) => new.is_some() != old.is_some(),
    };
    plain(new) != plain(old)
        || (moved(new.measured_watts, old.measured_watts) || moved(new.baseline_watts, old.baseline_watts))
            && is_older(old.updated_at.as_deref(), WATTS_EVERY, now)
}
