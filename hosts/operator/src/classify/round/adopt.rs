//! What a leader takes over from an object that another process wrote.

use super::{Law, late};
use crate::classify::document::profile_of;
use crate::reasons::{MEASURED, NO_SERIES, PROMETHEUS_SILENT, SIMULATED};
use jiff::Timestamp;
use joulie_api::condition::{ConditionStatus, ConditionType};
use joulie_api::word::Vocabulary;
use joulie_api::workload_profile::WorkloadProfileStatus;
use planner::classify::{Confidence, WorkloadProfile};
use power_units::{Micros, Stamp};

/// The conditions of profiles that rest, or rested, on metrics.
const WITH_METRICS: [&str; 4] = [MEASURED.word, SIMULATED.word, PROMETHEUS_SILENT.word, NO_SERIES.word];

/// The profile in a status, and when its metrics are from; `None` if it rests on none. The time is not written there. A
/// profile whose metrics were fresh counts as due now; one whose metrics were late, as late since its condition says so.
pub(super) fn adopted(
    law: &Law,
    status: &WorkloadProfileStatus,
    now: Stamp,
    wall: Timestamp,
) -> Option<(WorkloadProfile, Stamp)> {
    let mut conditions = status.conditions.as_deref()?.iter();
    let fresh = conditions.find(|one| one.type_ == ConditionType::TelemetryFresh.as_str())?;
    if !WITH_METRICS.contains(&fresh.reason.as_deref()?) {
        return None;
    }
    let profile = profile_of(status).filter(has_metrics)?;
    let age = match fresh.status.known() {
        Some(ConditionStatus::True) => law.every,
        Some(ConditionStatus::False | ConditionStatus::Unknown) | None => {
            let turned: Timestamp = fresh.last_transition_time.as_deref()?.parse().ok()?;
            // A clock that was set back does not make them younger.
            let late_since = u64::try_from(wall.duration_since(turned).as_micros()).unwrap_or(0);
            Micros::new(late(law).get().saturating_add(late_since))
        }
    };
    let backed = now.since_start().get().saturating_sub(age.get());
    Some((profile, Stamp::new(Micros::new(backed))))
}

/// Whether a published profile rests on metrics, as far as can be seen.
fn has_metrics(profile: &WorkloadProfile) -> bool {
    profile.confidence > Confidence::tenths(3)
        || profile.cpu.utilization.is_some()
        || profile.gpu.utilization.is_some()
}
