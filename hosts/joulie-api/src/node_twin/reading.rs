//! Interprets a twin's status for the extender: its values, and whether they can be believed.
//!
//! No running node draws zero: some operators write a measurement of 0 W or less when they could not measure, and a
//! trend beside it is computed from such zeros. Both are treated as unknown.

use super::{NodeTwinStatus, PowerMeasurement, RescheduleCause};
use crate::condition::{ConditionStatus, ConditionType, find};
use crate::field::{FieldError, quantity};
use crate::labels::PLAN_LEASE;
use crate::number::Number;
use crate::word::Word;
use jiff::Timestamp;
use joulie_core::placement::class::SchedulableClass;
use joulie_core::placement::freshness::{Evidence, TelemetryFreshness, UnixTime};
use joulie_core::placement::score;
use power_units::{Percent, Ratio, Role, Watts, WattsPerMinute};

impl TryFrom<&NodeTwinStatus> for score::TwinStatus {
    type Error = FieldError;

    /// Headroom rounds down; stress, power and the facility's share round up.
    fn try_from(status: &NodeTwinStatus) -> Result<Self, FieldError> {
        let class = status.schedulable_class.as_ref();
        let stress = |field, number| quantity(field, number, Role::Demand, Percent::parse);
        let caps = status.effective_cap_state.as_ref();
        // A cap that cannot be read is unknown; it makes no twin unreadable.
        let cap = |number: Option<Number>| Percent::parse(&number?.to_string(), Role::Limit).ok();
        Ok(Self {
            // The class decides where a pod may not go, so an unknown word counts as an unknown class.
            class: class.map_or(SchedulableClass::Unknown, |class| SchedulableClass::read(class.as_str())),
            headroom: quantity(
                "status.predictedPowerHeadroomScore",
                status.predicted_power_headroom_score,
                Role::Limit,
                Percent::parse,
            )?,
            cooling: stress("status.predictedCoolingStressScore", status.predicted_cooling_stress_score)?,
            psu: stress("status.predictedPsuStressScore", status.predicted_psu_stress_score)?,
            pue: quantity("status.estimatedPUE", status.estimated_pue, Role::Demand, Ratio::parse)?,
            power: status.power_measurement.as_ref().map(TryInto::try_into).transpose()?,
            caps: [cap(caps.and_then(|caps| caps.cpu_pct)), cap(caps.and_then(|caps| caps.gpu_pct))],
            marked: status
                .reschedule_cause
                .as_ref()
                .and_then(Word::known)
                .is_some_and(RescheduleCause::is_stress),
            entitled: quantity(
                "status.powerMeasurement.nodeEntitledPowerW",
                status.power_measurement.as_ref().and_then(|power| power.node_entitled_power_w),
                Role::Limit,
                Watts::parse,
            )?,
            price: Ratio::ZERO,
        })
    }
}

impl TryFrom<&PowerMeasurement> for score::TwinPower {
    type Error = FieldError;

    fn try_from(power: &PowerMeasurement) -> Result<Self, FieldError> {
        let measured = quantity(
            "status.powerMeasurement.measuredNodePowerW",
            power.measured_node_power_w,
            Role::Demand,
            Watts::parse,
        )?;
        let measured = measured.filter(|&measured| measured > Watts::ZERO);
        let trend = quantity(
            "status.powerMeasurement.powerTrendWPerMin",
            power.power_trend_w_per_min,
            Role::Demand,
            WattsPerMinute::parse,
        )?;
        let capped = quantity(
            "status.powerMeasurement.nodeCappedPowerW",
            power.node_capped_power_w,
            Role::Limit,
            Watts::parse,
        )?;
        Ok(Self { measured, capped, trend: trend.filter(|_| measured.is_some()) })
    }
}

impl NodeTwinStatus {
    /// The evidence by which the status can be believed.
    #[must_use]
    pub fn evidence(&self) -> Evidence {
        if self.plan_lease.as_deref() == Some(PLAN_LEASE) {
            let conditions = self.conditions.as_deref().unwrap_or_default();
            return Evidence::Leased(match find(conditions, ConditionType::TelemetryFresh) {
                Some(ConditionStatus::True) => TelemetryFreshness::Fresh,
                Some(ConditionStatus::False | ConditionStatus::Unknown) => TelemetryFreshness::Stale,
                None => TelemetryFreshness::Unsaid,
            });
        }
        Evidence::Dated(self.last_updated.as_deref().and_then(unix_time))
    }
}

impl PowerMeasurement {
    /// When the measurement was taken; `None` if that is missing or cannot be read.
    #[must_use]
    pub fn sampled(&self) -> Option<UnixTime> {
        self.sampled_at.as_deref().and_then(unix_time)
    }
}

/// A time of an object, RFC 3339.
pub(crate) fn unix_time(text: &str) -> Option<UnixTime> {
    let time: Timestamp = text.trim().parse().ok()?;
    Some(UnixTime::from_micros(time.as_microsecond()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use joulie_core::placement::score::TwinStatus;
    use serde_json::{Value, json};

    fn status(json: Value) -> NodeTwinStatus {
        serde_json::from_value(json).unwrap()
    }

    fn twin(json: Value) -> TwinStatus {
        TwinStatus::try_from(&status(json)).unwrap()
    }

    #[test]
    fn whole_numbers_say_what_numbers_with_a_point_say() {
        // Fix list operator B3, extender: headroom 100, capped 432 and measured 200 are not read as nothing.
        let json = |measured: Value, capped: Value, headroom: Value| {
            json!({"schedulableClass": "eco", "predictedPowerHeadroomScore": headroom,
                   "powerMeasurement": {"source": "http", "measuredNodePowerW": measured, "nodeCappedPowerW": capped}})
        };
        let whole = twin(json(json!(200), json!(432), json!(100)));
        assert_eq!(whole, twin(json(json!(200.0), json!(432.0), json!(100.0))));
        assert_eq!(whole.class, SchedulableClass::Eco);
        assert_eq!(whole.headroom, Some(Percent::HUNDRED));
        let power = whole.power.unwrap();
        assert_eq!(power.measured, Some(Watts::from_int(200)));
        assert_eq!(power.capped, Some(Watts::from_int(432)));
    }

    #[test]
    fn only_a_stress_marks_a_node() {
        let marked = |cause: Value| twin(json!({"schedulableClass": "eco", "rescheduleCause": cause})).marked;
        assert!(marked(json!("cooling_stress")) && marked(json!("psu_stress")));
        assert!(!marked(json!("draining")) && !marked(json!("magic")) && !marked(json!(null)));
        let list = json!({"rescheduleRecommendations": [{"reason": "hot"}]});
        assert!(!twin(list).marked);
    }

    #[test]
    fn a_failed_measurement_is_unknown_and_so_is_the_trend_made_of_it() {
        // Fix list operator B7: 0 W is no draw, and the fall to it is no trend.
        let power = |measured: i64| {
            let json =
                json!({"source": "http-error", "measuredNodePowerW": measured, "powerTrendWPerMin": -900});
            twin(json!({"powerMeasurement": json})).power.unwrap()
        };
        assert_eq!((power(0).measured, power(0).trend), (None, None));
        assert_eq!((power(-5).measured, power(-5).trend), (None, None));
        assert_eq!(power(300).trend, Some(WattsPerMinute::from_int(-900)));
    }

    #[test]
    fn a_twin_that_says_nothing_is_silent() {
        assert_eq!(twin(json!({})), TwinStatus::silent(SchedulableClass::Unknown));
        assert_eq!(twin(json!({"schedulableClass": "best-effort"})).class, SchedulableClass::Unknown);
        assert_eq!(twin(json!({"schedulableClass": null, "predictedPsuStressScore": null})).psu, None);
    }

    #[test]
    fn a_number_that_does_not_fit_names_its_field() {
        let error = TwinStatus::try_from(&status(json!({"estimatedPUE": 1e12}))).unwrap_err();
        assert_eq!(error.field(), "status.estimatedPUE");
    }

    #[test]
    fn a_twin_that_names_the_lease_is_judged_by_its_condition() {
        let leased = |status: &str| {
            json!({"planLease": "joulie-plan", "lastUpdated": "2020-01-01T00:00:00Z",
                   "conditions": [{"type": "TelemetryFresh", "status": status}]})
        };
        for (json, evidence) in [
            (leased("True"), Evidence::Leased(TelemetryFreshness::Fresh)),
            (leased("False"), Evidence::Leased(TelemetryFreshness::Stale)),
            (leased("Unknown"), Evidence::Leased(TelemetryFreshness::Stale)),
            (leased("yes"), Evidence::Leased(TelemetryFreshness::Stale)),
            (json!({"planLease": "joulie-plan"}), Evidence::Leased(TelemetryFreshness::Unsaid)),
            (
                json!({"lastUpdated": "1970-01-01T00:00:02Z"}),
                Evidence::Dated(Some(UnixTime::from_micros(2_000_000))),
            ),
            (
                json!({"lastUpdated": "1970-01-01T01:00:02.5+01:00"}),
                Evidence::Dated(Some(UnixTime::from_micros(2_500_000))),
            ),
            (json!({"lastUpdated": "yesterday"}), Evidence::Dated(None)),
            (json!({}), Evidence::Dated(None)),
            (json!({"planLease": "somebody-elses"}), Evidence::Dated(None)),
        ] {
            assert_eq!(status(json.clone()).evidence(), evidence, "{json}");
        }
    }
}
