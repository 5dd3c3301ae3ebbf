//! The status of a twin, as its object carries it.

use super::NodeAdvice;
use crate::budget::Said;
use crate::reasons::{
    FAR_APART, MALFORMED, METER_SILENT, NO_METER, NOT_BELIEVED, NOT_HEARD_YET, OWNED_BY_OTHERS, PODS_STAY,
    SAMPLED,
};
use crate::rows::TwinSeen;
use jiff::{SignedDuration, Timestamp};
use joulie_api::condition::{self, Condition, ConditionStatus, ConditionType};
use joulie_api::labels::PLAN_LEASE;
use joulie_api::node_twin::{
    EffectiveCapState, GpuSlicingRecommendation, NodeTwinStatus, PowerMeasurement, PowerSource, SlicingMode,
};
use joulie_api::number::{Number, Whole};
use joulie_api::word::{Vocabulary, Word};
use planner::power::estimate::Basis;
use planner::power::{MeasurementSource, NodeDraw, PowerMeter};
use planner::slicing;
use planner::twin::Twin;
use planner::twin::ratings::CappedRating;
use power_units::{Micros, Role, Watts};
use std::sync::Arc;
use std::time::Duration;

/// What is reported about a node beside its twin.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Standing {
    /// Its meter has never reported anything, not even a failure.
    pub(crate) awaits_meter: bool,
    /// A meter whose value is far from that of the one that counts.
    pub(crate) apart: Option<PowerMeter>,
    /// The objects that cannot be read, in a sentence; `None` if all can be.
    pub(crate) unreadable: Option<String>,
    /// The hardware facts of the node that are not believed, in a sentence; `None` if all are.
    pub(crate) implausible: Option<Arc<str>>,
    /// What somebody else owns, in a sentence; `None` if there is nothing.
    pub(crate) overridden: Option<String>,
    /// The state of the budget of the node's groups, and why; `None` without a budget.
    pub(crate) budget: Option<Said>,
    /// Performance pods keep it from becoming an eco node for too long.
    pub(crate) overdue: bool,
    /// Which of its pods would better run elsewhere.
    pub(crate) advice: NodeAdvice,
    /// How its GPUs would better be divided; `None` if that is not known.
    pub(crate) slicing: Option<slicing::Advice>,
    /// The PowerBudget that it is in, where a limit above it binds.
    pub(crate) limit: Option<Arc<str>>,
}

/// A number with one decimal, rounded as its role asks.
fn tenths(bits: i64, role: Role) -> Option<Number> {
    let wide = i128::from(bits) * 10;
    let one = 1_i128 << 32;
    let tenths = match role {
        // 60 % of 720 W is 432 W; a rounding error of fixed point must not turn it into 431.9 W.
        Role::Limit => (wide + one / 1000).div_euclid(one),
        Role::Demand => -(one / 1000 - wide).div_euclid(one),
        Role::Nearest => (wide + one / 2).div_euclid(one),
    };
    let (sign, size) = (if tenths < 0 { "-" } else { "" }, tenths.unsigned_abs());
    format!("{sign}{}.{}", size / 10, size % 10).parse().ok().and_then(Number::new)
}

fn capped(budget: Option<CappedRating>) -> Option<Number> {
    budget.and_then(|budget| tenths(budget.capped.to_bits(), Role::Limit))
}

fn rated(budget: Option<CappedRating>) -> Option<Number> {
    budget.and_then(|budget| tenths(budget.rating.to_bits(), Role::Demand))
}

/// The watts that are published. There are none if a meter is configured but silent: an estimate in their place would
/// be read as measured. The scores still use the estimate, and readers without watts go by the scores (seed 000: "if
/// power measurement data is unavailable, the extender falls back to the twin-computed predictedPowerHeadroomScore").
fn published(draw: NodeDraw) -> Option<Watts> {
    match draw.source() {
        MeasurementSource::Failing(none) if none.is_silence() => None,
        MeasurementSource::Meter(_)
        | MeasurementSource::Utilization
        | MeasurementSource::Static
        | MeasurementSource::Failing(_) => draw.watts(),
    }
}

/// The status to publish for a twin at `now`; `lag` is how much older than the age of its reading what it draws may be. A pod's power
/// is only in what was drawn after its start.
pub(crate) fn status_of(
    twin: &Twin,
    standing: &Standing,
    before: Option<&TwinSeen>,
    (now, lag): (Timestamp, Micros),
) -> NodeTwinStatus {
    let power = &twin.power;
    let sampled = power.draw.age().map(|age| ago(age + lag, now));
    let source = PowerSource::read(power.draw.source().as_str()).map(Word::from);
    let percent = |percent: power_units::Percent, role| tenths(percent.to_bits(), role);
    NodeTwinStatus {
        schedulable_class: Some(twin.class.into()),
        power_measurement: Some(PowerMeasurement {
            source,
            measured_node_power_w: published(power.draw)
                .and_then(|watts| tenths(watts.to_bits(), Role::Demand)),
            cpu_capped_power_w: capped(power.cpu),
            gpu_capped_power_w: capped(power.gpu),
            node_capped_power_w: capped(power.node),
            node_entitled_power_w: power
                .entitled
                .and_then(|entitled| tenths(entitled.to_bits(), Role::Limit)),
            cpu_tdp_w: rated(power.cpu),
            gpu_tdp_w: rated(power.gpu),
            node_tdp_w: rated(power.node),
            power_trend_w_per_min: power.trend.and_then(|trend| tenths(trend.to_bits(), Role::Demand)),
            sampled_at: sampled.map(condition::rfc3339),
        }),
        predicted_power_headroom_score: twin.headroom.and_then(|headroom| percent(headroom, Role::Limit)),
        predicted_cooling_stress_score: twin.cooling.and_then(|stress| percent(stress.percent, Role::Demand)),
        predicted_psu_stress_score: twin.psu.and_then(|stress| percent(stress.percent, Role::Demand)),
        effective_cap_state: Some(EffectiveCapState {
            cpu_pct: twin.caps.cpu.and_then(|cap| percent(cap, Role::Limit)),
            gpu_pct: twin.caps.gpu.and_then(|cap| percent(cap, Role::Limit)),
        }),
        hardware_density_score: twin.density.and_then(|density| percent(density, Role::Nearest)),
        estimated_pue: twin.pue.and_then(|pue| {
            let thousandths = (i128::from(pue.to_bits()) * 1000) >> 32;
            format!("{}.{:03}", thousandths / 1000, thousandths % 1000).parse().ok().and_then(Number::new)
        }),
        // An empty list is written too, so that old entries leave.
        reschedule_recommendations: Some(standing.advice.list()),
        migration_recommendations: Some(standing.advice.list()),
        reschedule_cause: standing.advice.cause().map(Word::from),
        gpu_slicing_recommendation: standing.slicing.as_ref().map(recommendation),
        power_budget: standing.limit.as_deref().map(str::to_owned),
        last_updated: Some(condition::rfc3339(now)),
        plan_lease: Some(PLAN_LEASE.to_owned()),
        conditions: Some(conditions_of(twin, standing, before, now)),
        ..NodeTwinStatus::default()
    }
}

/// So long before now. What is before all time is of its beginning, so that nobody takes it for a sample of now.
fn ago(age: Micros, now: Timestamp) -> Timestamp {
    let age = i64::try_from(age.get()).ok().map(SignedDuration::from_micros);
    age.and_then(|age| now.checked_sub(age).ok()).unwrap_or(Timestamp::UNIX_EPOCH)
}

fn recommendation(advice: &slicing::Advice) -> GpuSlicingRecommendation {
    let tenths_of = |ratio: power_units::Ratio| tenths(ratio.to_bits(), Role::Nearest);
    GpuSlicingRecommendation {
        mode: SlicingMode::read(advice.mode.as_str()).map(Word::from),
        slice_type: (!advice.slice.is_empty()).then(|| advice.slice.to_owned()),
        slices_per_gpu: Some(Whole::from(i64::from(advice.per_gpu))),
        total_slices: Some(Whole::from(i64::from(advice.total))),
        reason: Some(advice.reason.clone()),
        estimated_utilization_gain: tenths(advice.gain.to_bits(), Role::Nearest),
        confidence: tenths_of(advice.confidence.to_ratio()),
    }
}

/// The operator's conditions on a twin. A condition keeps its time until its status changes.
pub(crate) fn conditions_of(
    twin: &Twin,
    standing: &Standing,
    before: Option<&TwinSeen>,
    now: Timestamp,
) -> Vec<Condition> {
    let mut conditions: Vec<Condition> = Vec::new();
    let there = before.and_then(|twin| twin.status.conditions.as_deref()).unwrap_or_default();
    let mut say = |about: ConditionType, holds: ConditionStatus, reason: &str, message: &str| {
        conditions.extend(there.iter().find(|known| known.type_ == about.as_str()).cloned());
        condition::set(&mut conditions, Condition::new(about, holds, reason, message, None, now));
    };
    let (fresh, reason, message) = telemetry(twin.power.draw, standing.awaits_meter);
    say(ConditionType::TelemetryFresh, fresh, reason, &message);
    if let (Some(other), MeasurementSource::Meter(counts)) = (standing.apart, twin.power.draw.source()) {
        let word = |meter| MeasurementSource::Meter(meter).as_str();
        let why = format!(
            "{} and {} are further apart than OPERATOR_NODE_POWER_DISAGREE_PCT; {} counts",
            word(counts),
            word(other),
            word(counts)
        );
        say(ConditionType::MetersDisagree, FAR_APART.status, FAR_APART.word, &why);
    }
    if let Some(why) = &standing.unreadable {
        say(ConditionType::Unreadable, MALFORMED.status, MALFORMED.word, why);
    }
    if let Some(why) = &standing.implausible {
        say(ConditionType::HardwareImplausible, NOT_BELIEVED.status, NOT_BELIEVED.word, why);
    }
    if let Some(why) = &standing.overridden {
        say(ConditionType::Overridden, OWNED_BY_OTHERS.status, OWNED_BY_OTHERS.word, why);
    }
    if standing.overdue {
        say(ConditionType::DrainOverdue, PODS_STAY.status, PODS_STAY.word, PODS_STAY.meaning);
    }
    if let Some((kept, reason, message)) = &standing.budget {
        say(ConditionType::WithinBudget, *kept, reason, message);
    }
    conditions
}

/// Whether a draw can be believed, and what replaces it if nothing measures it. If no meter is configured, an estimate
/// is all that was asked for.
fn telemetry(draw: NodeDraw, awaited: bool) -> (ConditionStatus, &'static str, String) {
    let (reason, why) = if awaited {
        (NOT_HEARD_YET, "no sample of the meter has come yet")
    } else {
        match draw.source() {
            MeasurementSource::Meter(_) => return (SAMPLED.status, SAMPLED.word, SAMPLED.meaning.to_owned()),
            MeasurementSource::Failing(none) if none.is_silence() => (METER_SILENT, "the meter says nothing"),
            MeasurementSource::Utilization | MeasurementSource::Static | MeasurementSource::Failing(_) => {
                (NO_METER, "no meter is configured")
            }
        }
    };
    let instead = match draw.basis() {
        Some(Basis::Utilization) => "the power is estimated from what pods ask for",
        Some(Basis::Static) => "the power is taken for the most that the caps allow",
        None => "nothing is known of the power",
    };
    (reason.status, reason.word, format!("{why}: {instead}"))
}

/// The operator's own conditions; the agent has others on the same object.
pub(super) fn own(status: &NodeTwinStatus) -> impl Iterator<Item = &Condition> {
    let ours = [
        ConditionType::TelemetryFresh,
        ConditionType::MetersDisagree,
        ConditionType::Unreadable,
        ConditionType::HardwareImplausible,
        ConditionType::Overridden,
        ConditionType::WithinBudget,
        ConditionType::DrainOverdue,
    ];
    let of_us = move |one: &&Condition| ours.iter().any(|about| about.as_str() == one.type_);
    status.conditions.iter().flatten().filter(of_us)
}

/// Whether a status was last updated at least this long ago, or has no readable time. A time in the future is treated
/// alike, because the clocks of writer and reader differ.
pub(crate) fn is_older(last_updated: Option<&str>, than: Duration, now: Timestamp) -> bool {
    let updated = last_updated.and_then(|text| text.parse::<Timestamp>().ok());
    updated.is_none_or(|updated| now.duration_since(updated).unsigned_abs() >= than)
}

/// The operator's conditions to write on a profile; `None` if they are already as they should be.
pub(crate) fn overridden(there: &[Condition], standing: &Standing, now: Timestamp) -> Option<Vec<Condition>> {
    let about = ConditionType::Overridden;
    let known = there.iter().find(|known| known.type_ == about.as_str()).cloned();
    let Some(why) = &standing.overridden else {
        return known.is_some().then(Vec::new);
    };
    let mut conditions = Vec::from_iter(known);
    let new = Condition::new(about, OWNED_BY_OTHERS.status, OWNED_BY_OTHERS.word, why, None, now);
    condition::set(&mut conditions, new).then_some(conditions)
}

#[cfg(test)]
mod tests {
    use super::*;
    use planner::power::NoMeasurement;

    #[test]
    fn a_twin_is_old_by_its_own_words_and_without_any() {
        let now: Timestamp = "2026-01-01T00:05:00Z".parse().unwrap();
        let old = |text| is_older(text, Duration::from_secs(120), now);
        assert!(!old(Some("2026-01-01T00:03:01Z")) && old(Some("2026-01-01T00:03:00Z")));
        assert!(old(None) && old(Some("yesterday")) && old(Some("2026-01-01T01:00:00Z")));
        assert!(!old(Some("2026-01-01T00:05:01Z")));
    }

    #[test]
    fn a_sample_that_is_older_than_all_time_is_no_sample_of_now() {
        let now: Timestamp = "2026-01-01T00:05:00Z".parse().unwrap();
        let before = |age| condition::rfc3339(ago(age, now));
        assert_eq!(before(Micros::new(90_000_000)), "2026-01-01T00:03:30Z");
        assert_eq!(before(Micros::MAX), "1970-01-01T00:00:00Z");
        assert_eq!(before(Micros::new(1 << 62)), "1970-01-01T00:00:00Z");
    }

    #[test]
    fn a_silent_meter_has_no_watts_and_says_what_stands_in() {
        let watts = Watts::from_int(200);
        let (failing, basis) = (NoMeasurement::AgentNoData, Basis::Utilization);
        let silent = NodeDraw::Estimated { basis, watts, failing };
        assert_eq!(published(silent), None);
        let (fresh, reason, why) = telemetry(silent, false);
        assert_eq!((fresh, reason), (ConditionStatus::False, "MeterSilent"));
        assert_eq!(why, "the meter says nothing: the power is estimated from what pods ask for");
        let none = NodeDraw::Estimated { basis: Basis::Static, watts, failing: NoMeasurement::NotConfigured };
        assert_eq!(published(none), Some(watts));
        let (fresh, _, why) = telemetry(none, false);
        assert_eq!(fresh, ConditionStatus::True);
        assert_eq!(why, "no meter is configured: the power is taken for the most that the caps allow");
    }
}
