//! All figures and bars as JSON.

use super::options::Options;
use joulie_core::budget::Priority;
use serde_json::{Value, json};
use virtual_cluster::figures::{Figures, LimitParts};
use virtual_cluster::report::Bars;
use virtual_cluster::trials::{ArmName, Tried};

/// Every run of an arm, and the bars.
pub(super) fn of(options: &Options, tried: &[Tried], bars: &Bars) -> Value {
    let runs =
        tried.iter().flat_map(|tried| tried.outcomes.iter().map(|(arm, figures)| run(tried, *arm, figures)));
    let bars = bars
        .0
        .iter()
        .map(|bar| json!({"name": bar.name, "value": bar.value, "limit": bar.limit, "pass": bar.passes}));
    json!({
        "machines": options.machines,
        "minutes": options.minutes,
        "runs": runs.collect::<Vec<_>>(),
        "bars": bars.collect::<Vec<_>>(),
    })
}

/// Where the limit is while a cap limits somebody.
fn limit_parts(figures: &Figures) -> Value {
    let LimitParts { drawn, floors, unneeded, on_its_way, room, missing } = figures.limit_parts();
    json!({
        "drawn": drawn, "floors": floors, "unneeded": unneeded, "on_its_way": on_its_way, "room": room,
        "missing": missing,
    })
}

fn run(tried: &Tried, arm: ArmName, figures: &Figures) -> Value {
    let (orders_at_end, writes_at_end) = figures.at_end();
    json!({
        "mix": tried.trial.mix.name(),
        "fault": tried.trial.fault.name(),
        "seed": tried.trial.seed,
        "demand_hash": format!("{:016x}", tried.hash),
        "limit_w": tried.limit,
        "arm": arm.name(),
        "use": figures.mean_use(),
        "use_p5": figures.use_p5(),
        "served_of_clairvoyant": figures.served() / tried.clairvoyant,
        "served_of_held_30s": figures.served() / tried.held,
        "held_30s_entitled_of_held_30s": tried.held_entitled / tried.held,
        "held_100s_entitled_of_held_30s": tried.held_entitled_100 / tried.held,
        "throttled": figures.throttled(),
        "below_entitled": figures.below_entitled(),
        "below_entitled_p90_s": figures.below_entitled_for(0.9),
        "below_entitled_p99_s": figures.below_entitled_for(0.99),
        "below_entitled_longest_s": figures.below_entitled_for(1.0),
        "bitten_p50_s": figures.bitten_for(0.5),
        "bitten_p99_s": figures.bitten_for(0.99),
        "jain": figures.fairness(),
        "orders_per_minute": figures.orders(),
        "writes_per_minute": figures.writes(),
        "orders_in_second_half": orders_at_end,
        "writes_in_second_half": writes_at_end,
        "counts_above_s": figures.above_s(),
        "drawn_above": figures.excess(),
        "within_after_cut_s": figures.within_after(),
        "minute_above_limit": figures.window_excess(60),
        "armed_p99_s": figures.armed_after(0.99),
        "armed_all_in_force_s": figures.armed_within().map(|(within, _)| within),
        "others_served": figures.others_served(),
        "limit_parts": limit_parts(figures),
        "throttled_by_class": {
            "performance": figures.throttled_in(Priority::Performance),
            "draining": figures.throttled_in(Priority::Draining),
            "eco": figures.throttled_in(Priority::Eco),
        },
    })
}
