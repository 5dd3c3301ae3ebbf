//! How much a twin must change to be worth a write.
//!
//! The watts have a dead-band, and every score that is derived from them has a dead-band that follows from it: a draw
//! that stays within its band keeps each score within its own. Values that do not depend on watts are compared exactly.

use super::status::own;
use joulie_api::node_twin::{
    EffectiveCapState, GpuSlicingRecommendation, NodeTwinStatus, PowerMeasurement, RescheduleRecommendation,
};
use joulie_api::number::Number;

/// Five watts, or a twentieth if that is more: agents publish changes of that size.
const WATTS_MOVE: f64 = 5.0;
const WATTS_PART: f64 = 1.0 / 20.0;
/// What a node is entitled to follows what all others under its limits may have.
const ENTITLED_MOVE: f64 = 1.0;
const ENTITLED_PART: f64 = 1.0 / 100.0;
/// A smaller change of a score hardly shows in the extender's whole points, so it is not written.
const SCORE_MOVE: f64 = 1.0;
const TREND_MOVE: f64 = 10.0;
const TREND_PART: f64 = 1.0 / 4.0;
/// The trend covers this many minutes (`planner::power::history::WINDOW`).
const TREND_MINUTES: f64 = 5.0;
const PUE_MOVE: f64 = 0.01;
/// Half of the last decimal: values are written with one decimal, and compared with that precision.
const EXACT: f64 = 0.05;

fn moved(new: Option<Number>, there: Option<Number>, by: f64) -> bool {
    match (new, there) {
        (Some(new), Some(there)) => (new.get() - there.get()).abs() > by,
        (None, None) => false,
        (Some(_), None) | (None, Some(_)) => true,
    }
}

/// The dead-bands of the values that depend on the draw.
struct Bands {
    watts: f64,
    entitled: f64,
    trend: f64,
    headroom: f64,
    cooling: f64,
    psu: f64,
}

impl Bands {
    /// The bands around the published status.
    fn around(there: &NodeTwinStatus, power: &PowerMeasurement) -> Self {
        let number = |number: Option<Number>| number.map_or(0.0, Number::get);
        let capped = number(power.node_capped_power_w);
        // If no watts are published, they follow from the headroom.
        let headroom = there.predicted_power_headroom_score.map(Number::get);
        let by_score = || headroom.map_or(0.0, |headroom| capped * (1.0 - headroom / 100.0));
        let drawn = power.measured_node_power_w.map_or_else(by_score, Number::get).abs();
        let watts = WATTS_MOVE.max(drawn * WATTS_PART);
        // (capped - drawn) / capped: as many percent of the capped power as the band has.
        let of_headroom = if capped > 0.0 { 100.0 * watts / capped } else { 0.0 };
        // In proportion to the node's draw, or to that of the whole rack, whose nodes may all move within their bands.
        let part = if drawn > 0.0 { watts / drawn } else { WATTS_PART };
        let stress = |score: Option<Number>| SCORE_MOVE.max(number(score) * part);
        Self {
            watts,
            entitled: ENTITLED_MOVE.max(number(power.node_entitled_power_w) * ENTITLED_PART),
            trend: TREND_MOVE
                .max(number(power.power_trend_w_per_min).abs() * TREND_PART)
                .max(watts / TREND_MINUTES),
            headroom: SCORE_MOVE.max(of_headroom),
            cooling: stress(there.predicted_cooling_stress_score),
            psu: stress(there.predicted_psu_stress_score),
        }
    }
}

/// Whether a status differs from the published one by enough to be worth a write. Both are destructured field by field,
/// so that a new field must be considered here.
pub(crate) fn differs(new: &NodeTwinStatus, there: &NodeTwinStatus) -> bool {
    let NodeTwinStatus {
        schedulable_class,
        power_measurement,
        predicted_power_headroom_score,
        predicted_cooling_stress_score,
        predicted_psu_stress_score,
        effective_cap_state,
        power_budget,
        hardware_density_score,
        estimated_pue,
        plan_lease,
        reschedule_recommendations,
        migration_recommendations,
        reschedule_cause,
        gpu_slicing_recommendation,
        conditions: _, // the operator's own are compared below
        // These belong to the agent, to others, or to the write itself.
        control_status: _,
        last_updated: _,
        observed_generation: _,
    } = new;
    let nothing = PowerMeasurement::default();
    let power = power_measurement.as_ref().unwrap_or(&nothing);
    let was = there.power_measurement.as_ref().unwrap_or(&nothing);
    let no_caps = EffectiveCapState::default();
    let caps = effective_cap_state.as_ref().unwrap_or(&no_caps);
    let had = there.effective_cap_state.as_ref().unwrap_or(&no_caps);
    let EffectiveCapState { cpu_pct, gpu_pct } = caps;
    let bands = Bands::around(there, was);
    *schedulable_class != there.schedulable_class
        || *plan_lease != there.plan_lease
        || *power_budget != there.power_budget
        || *reschedule_cause != there.reschedule_cause
        || other_list(reschedule_recommendations.as_ref(), there.reschedule_recommendations.as_ref())
        || other_list(migration_recommendations.as_ref(), there.migration_recommendations.as_ref())
        || other_slicing(gpu_slicing_recommendation.as_ref(), there.gpu_slicing_recommendation.as_ref())
        || !same_conditions(new, there)
        || power_differs(power, was, &bands)
        || moved(*predicted_power_headroom_score, there.predicted_power_headroom_score, bands.headroom)
        || moved(*predicted_cooling_stress_score, there.predicted_cooling_stress_score, bands.cooling)
        || moved(*predicted_psu_stress_score, there.predicted_psu_stress_score, bands.psu)
        || moved(*cpu_pct, had.cpu_pct, EXACT)
        || moved(*gpu_pct, had.gpu_pct, EXACT)
        || moved(*hardware_density_score, there.hardware_density_score, EXACT)
        || moved(*estimated_pue, there.estimated_pue, PUE_MOVE)
}

/// An empty list is no news where there is none. The figures in a list are those that are published already, unless they
/// have moved by enough.
fn other_list(
    new: Option<&Vec<RescheduleRecommendation>>,
    there: Option<&Vec<RescheduleRecommendation>>,
) -> bool {
    !new.into_iter().flatten().eq(there.into_iter().flatten())
}

/// How many pods the advice rests on is no news by itself.
fn other_slicing(new: Option<&GpuSlicingRecommendation>, there: Option<&GpuSlicingRecommendation>) -> bool {
    let said = |advice: &GpuSlicingRecommendation| {
        let GpuSlicingRecommendation {
            mode,
            slice_type,
            slices_per_gpu,
            total_slices,
            reason: _,
            estimated_utilization_gain: _,
            confidence: _,
        } = advice;
        (mode.clone(), slice_type.clone(), *slices_per_gpu, *total_slices)
    };
    new.map(said) != there.map(said)
}

/// They are a set by type: the API server may keep them in another order.
fn same_conditions(new: &NodeTwinStatus, there: &NodeTwinStatus) -> bool {
    own(new).count() == own(there).count() && own(new).all(|one| own(there).any(|other| one == other))
}

fn power_differs(new: &PowerMeasurement, there: &PowerMeasurement, bands: &Bands) -> bool {
    let PowerMeasurement {
        source,
        measured_node_power_w,
        cpu_capped_power_w,
        gpu_capped_power_w,
        node_capped_power_w,
        node_entitled_power_w,
        cpu_tdp_w,
        gpu_tdp_w,
        node_tdp_w,
        power_trend_w_per_min,
        sampled_at: _, // every sample has another one
    } = new;
    *source != there.source
        || moved(*measured_node_power_w, there.measured_node_power_w, bands.watts)
        || moved(*cpu_capped_power_w, there.cpu_capped_power_w, EXACT)
        || moved(*gpu_capped_power_w, there.gpu_capped_power_w, EXACT)
        // Where power follows demand it is what the node could be granted, which follows all others under its limits.
        || moved(*node_capped_power_w, there.node_capped_power_w, if node_entitled_power_w.is_some() { bands.watts } else { EXACT })
        || moved(*node_entitled_power_w, there.node_entitled_power_w, bands.entitled)
        || moved(*cpu_tdp_w, there.cpu_tdp_w, EXACT)
        || moved(*gpu_tdp_w, there.gpu_tdp_w, EXACT)
        || moved(*node_tdp_w, there.node_tdp_w, EXACT)
        || moved(*power_trend_w_per_min, there.power_trend_w_per_min, bands.trend)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    /// The twin of a node of 720 W under a cap of 432 W that draws this much.
    fn twin(watts: f64) -> Value {
        json!({
            "powerMeasurement": {"source": "http", "measuredNodePowerW": watts, "nodeCappedPowerW": 432, "nodeTdpW": 720},
            "predictedPowerHeadroomScore": (432.0 - watts) / 4.32, "predictedCoolingStressScore": watts / 7.2,
            "predictedPsuStressScore": watts / 12.0,
        })
    }

    #[test]
    fn conditions_in_another_order_are_the_same() {
        let condition = |about: &str, reason: &str| {
            json!({"type": about, "status": "True", "reason": reason, "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z"})
        };
        let with = |conditions: &[Value]| {
            let mut twin = twin(100.0);
            twin["conditions"] = json!(conditions);
            twin
        };
        let (fresh, theirs) =
            (condition("TelemetryFresh", "Sampled"), condition("Overridden", "OwnedByOthers"));
        let agents = condition("CapEnforced", "Applied");
        let there = [theirs.clone(), agents, fresh.clone()];
        assert!(!differ(with(&[fresh.clone(), theirs.clone()]), with(&there)));
        assert!(differ(with(std::slice::from_ref(&fresh)), with(&there)));
        assert!(differ(with(&[fresh, condition("Overridden", "Unknown")]), with(&there)));
    }

    fn differ(new: Value, there: Value) -> bool {
        differs(&serde_json::from_value(new).unwrap(), &serde_json::from_value(there).unwrap())
    }

    #[test]
    fn a_draw_within_its_band_moves_no_score_out_of_its_own() {
        // A twentieth of 300 W is 15 W: 3.5 points of 432 W. With a band of one point each poll caused a write.
        for watts in [285.5, 290.0, 300.0, 310.0, 314.5] {
            assert!(!differ(twin(watts), twin(300.0)), "{watts}");
        }
        for watts in [280.0, 320.0] {
            assert!(differ(twin(watts), twin(300.0)), "{watts}");
        }
    }

    #[test]
    fn a_trend_within_the_band_of_the_watts_is_no_write() {
        let with = |trend: f64| {
            let mut twin = twin(6_000.0);
            twin["powerMeasurement"]["powerTrendWPerMin"] = json!(trend);
            twin
        };
        // A twentieth of 6 kW are 300 W, in five minutes 60 W/min.
        assert!(!differ(with(55.0), with(0.0)) && differ(with(65.0), with(0.0)));
    }

    #[test]
    fn what_is_not_made_of_watts_is_compared_as_it_is() {
        for (field, value) in [
            ("schedulableClass", json!("eco")),
            ("planLease", json!("x")),
            ("estimatedPUE", json!(1.3)),
            ("hardwareDensityScore", json!(12)),
            ("effectiveCapState", json!({"cpuPct": 50})),
            ("conditions", json!([{"type": "HardwareImplausible", "status": "True"}])),
            ("rescheduleCause", json!("psu_stress")),
            ("rescheduleRecommendations", json!([{"reason": "hot"}])),
            ("migrationRecommendations", json!([{"reason": "hot"}])),
        ] {
            let mut new = twin(300.0);
            new[field] = value;
            assert!(differ(new, twin(300.0)), "{field}");
        }
        let mut silent = twin(300.0);
        silent["powerMeasurement"]["source"] = json!("http-error");
        assert!(differ(silent, twin(300.0)));
        // The agent's part, and the time of the write.
        for (field, value) in [
            ("lastUpdated", json!("2026-01-01T00:00:00Z")),
            ("controlStatus", json!({"cpu": {"result": "applied"}})),
            ("rescheduleRecommendations", json!([])),
        ] {
            let mut new = twin(300.0);
            new[field] = value;
            assert!(!differ(new, twin(300.0)), "{field}");
        }
    }

    #[test]
    fn without_watts_the_headroom_tells_the_band() {
        let silent = |headroom: f64| {
            json!({"powerMeasurement": {"source": "agent-no-data", "nodeCappedPowerW": 432},
                "predictedPowerHeadroomScore": headroom})
        };
        // 30.5 % of 432 W left are 300 W drawn: 3.5 points.
        assert!(!differ(silent(33.5), silent(30.5)) && differ(silent(34.5), silent(30.5)));
    }
}
