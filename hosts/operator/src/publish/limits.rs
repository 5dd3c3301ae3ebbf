//! The status of a PowerBudget: its document, and whether it differs enough from the present one to be worth a write.

use super::API_VERSION;
use jiff::Timestamp;
use joulie_api::condition::Condition;
use joulie_api::number::Number;
use joulie_api::power_budget::{BudgetDemand, BudgetMode, ClassNumbers, PowerBudgetStatus};
use joulie_api::word::Word;
use serde_json::{Value, json};
use std::time::Duration;

/// Watts alone are written at most this often.
const WATTS_EVERY: Duration = Duration::from_secs(10);
/// What may be granted is written at most this often.
const DEMAND_EVERY: Duration = Duration::from_secs(2);
/// A smaller change of a price is not written.
const PRICE_BAND: f64 = 0.05;
/// A smaller change of watts, as a part of the limit, is not written.
const BAND: f64 = 0.01;

/// The status to apply.
pub(crate) fn budget_document(name: &str, uid: &str, status: &PowerBudgetStatus) -> Value {
    json!({
        "apiVersion": API_VERSION, "kind": "PowerBudget",
        "metadata": {"name": name, "uid": uid}, "status": status,
    })
}

/// A mode as the object has it.
pub(crate) fn mode_word(mode: BudgetMode) -> Word<BudgetMode> {
    mode.into()
}

/// Whether two limits are the same in tenths of a watt. A number may come back from the server with another last digit.
pub(crate) fn same_limit(one: Number, other: Number) -> bool {
    (one.get() - other.get()).abs() < 0.05
}

/// Whether a status is worth a write at `now`.
pub(crate) fn budget_differs(new: &PowerBudgetStatus, old: &PowerBudgetStatus, now: Timestamp) -> bool {
    let PowerBudgetStatus {
        observed_generation,
        limit_watts,
        lowered,
        signal,
        effective_watts,
        window_mean_watts,
        // It moves with the mean.
        between_seconds: _,
        mode,
        nodes,
        counted_watts,
        measured_watts,
        room_watts,
        demand,
        short_watts,
        would_lower_nodes,
        would_lower_watts,
        conditions,
        // It is new in each.
        updated_at: _,
    } = new;
    let is_other = *observed_generation != old.observed_generation
        || !limit_watts.zip(old.limit_watts).is_some_and(|(new, old)| same_limit(new, old))
        || *mode != old.mode
        || *lowered != old.lowered
        || *nodes != old.nodes
        || short_watts.is_some() != old.short_watts.is_some()
        || counted_watts.is_some() != old.counted_watts.is_some()
        || effective_watts.is_some() != old.effective_watts.is_some()
        || demand.is_some() != old.demand.is_some()
        || would_lower_nodes.is_some() != old.would_lower_nodes.is_some()
        || others(conditions.as_deref(), old.conditions.as_deref());
    if is_other {
        return true;
    }
    let band = limit_watts.map_or(1.0, |limit| (limit.get() * BAND).max(1.0));
    let moves = |new: Option<Number>, old: Option<Number>| match (new, old) {
        (Some(new), Some(old)) => (new.get() - old.get()).abs() >= band,
        (None, None) => false,
        (Some(_), None) | (None, Some(_)) => true,
    };
    let moved = *signal != old.signal
        || moves(*counted_watts, old.counted_watts)
        || moves(*measured_watts, old.measured_watts)
        || moves(*effective_watts, old.effective_watts)
        || moves(*window_mean_watts, old.window_mean_watts)
        || moves(*room_watts, old.room_watts)
        || moves(*short_watts, old.short_watts)
        || moves(*would_lower_watts, old.would_lower_watts)
        || *would_lower_nodes != old.would_lower_nodes;
    let is_older = |than| super::is_older(old.updated_at.as_deref(), than, now);
    let demand = demand.as_ref().zip(old.demand.as_ref());
    let grantable =
        moves(*room_watts, old.room_watts) || demand.is_some_and(|(new, old)| demand_moves(new, old, moves));
    (moved && is_older(WATTS_EVERY)) || (demand.is_some() && grantable && is_older(DEMAND_EVERY))
}

/// Whether what follows demand has moved; `moves` says it of watts.
fn demand_moves(
    new: &BudgetDemand,
    old: &BudgetDemand,
    moves: impl Fn(Option<Number>, Option<Number>) -> bool,
) -> bool {
    let BudgetDemand {
        reserve_watts,
        in_flight_watts,
        biting_watts,
        // They come and go with their watts.
        biting_nodes: _,
        missing_watts,
        blind_nodes,
        reclaimable_watts,
        grantable_watts,
        assumed_watts,
        waiting_pods,
        waiting_watts,
        price,
    } = new;
    let values = |class: &Option<ClassNumbers>| {
        let ClassNumbers { performance, draining, eco } = class.clone().unwrap_or_default();
        [performance, draining, eco]
    };
    let far = |new: Option<Number>, old: Option<Number>| match (new, old) {
        (Some(new), Some(old)) => (new.get() - old.get()).abs() >= PRICE_BAND,
        (new, old) => new.is_some() != old.is_some(),
    };
    let mut reclaimable = values(reclaimable_watts).into_iter().zip(values(&old.reclaimable_watts));
    let mut grantable = values(grantable_watts).into_iter().zip(values(&old.grantable_watts));
    let mut prices = values(price).into_iter().zip(values(&old.price));
    moves(*reserve_watts, old.reserve_watts)
        || moves(*in_flight_watts, old.in_flight_watts)
        || moves(*biting_watts, old.biting_watts)
        || moves(*missing_watts, old.missing_watts)
        || moves(*assumed_watts, old.assumed_watts)
        || moves(*waiting_watts, old.waiting_watts)
        || *waiting_pods != old.waiting_pods
        || *blind_nodes != old.blind_nodes
        || reclaimable.any(|(new, old)| moves(new, old))
        || grantable.any(|(new, old)| moves(new, old))
        || prices.any(|(new, old)| far(new, old))
}

/// Whether conditions differ in anything but their times.
fn others(new: Option<&[Condition]>, old: Option<&[Condition]>) -> bool {
    let plain = |conditions: Option<&[Condition]>| -> Vec<Condition> {
        let each = conditions.unwrap_or_default().iter().cloned();
        each.map(|condition| Condition { last_transition_time: None, observed_generation: None, ..condition })
            .collect()
    };
    plain(new) != plain(old)
}

#[cfg(test)]
mod tests {
    use super::*;
    use joulie_api::number::Whole;

    fn status(counted: i32, at: &str) -> PowerBudgetStatus {
        PowerBudgetStatus {
            observed_generation: Some(Whole::from(1_i64)),
            limit_watts: Some(Number::from(1000)),
            mode: Some(BudgetMode::Enforce.into()),
            nodes: Some(Whole::from(2_i64)),
            counted_watts: Some(Number::from(counted)),
            updated_at: Some(at.to_owned()),
            ..PowerBudgetStatus::default()
        }
    }

    #[test]
    fn watts_alone_are_written_when_they_moved_and_some_time_has_passed() {
        let old = status(500, "2026-11-25T10:00:00Z");
        let now = |second: u64| format!("2026-11-25T10:00:{second:02}Z").parse().unwrap();
        let differs = |counted, second| budget_differs(&status(counted, ""), &old, now(second));
        // 1 % of 1000 W are 10 W.
        assert!(!differs(509, 30) && differs(510, 30) && differs(490, 30));
        assert!(!differs(510, 5), "it was written 5 s ago");
        let other = PowerBudgetStatus { nodes: Some(Whole::from(3_i64)), ..status(500, "") };
        assert!(budget_differs(&other, &old, now(1)));
        // 1,288,784.6 W, as a server may write it.
        let limit = |watts: f64| PowerBudgetStatus { limit_watts: Number::new(watts), ..status(500, "") };
        assert!(!budget_differs(&limit(1_288_784.6), &limit(1_288_784.599_999_999_9), now(1)));
        assert!(budget_differs(&limit(1_288_784.6), &limit(1_288_784.5), now(1)));
        let unknown = PowerBudgetStatus { counted_watts: None, ..status(500, "") };
        assert!(budget_differs(&unknown, &old, now(1)));
        assert!(budget_differs(&status(500, ""), &PowerBudgetStatus::default(), now(1)));
    }
}
