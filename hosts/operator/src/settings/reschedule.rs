//! The settings of recommendations and evictions, checked together.

use super::table;
use host_kit::clock::micros;
use host_kit::config::{Refusals, Values};
use planner::migration::eviction::{EvictionLaw, Tuning};
use planner::migration::{MigrationLaw, RELIEF};
use planner::power::Grounds;
use std::time::Duration;

/// How pods are moved off stressed nodes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rescheduling {
    /// When pods are recommended to leave.
    pub(crate) migration: MigrationLaw,
    /// When they are evicted; `None` unless that is asked for.
    pub(crate) eviction: Option<EvictionLaw>,
    /// The pause between two rounds of evictions.
    pub(crate) every: Duration,
    /// How long the controller of an evicted pod is left alone.
    pub(crate) cooldown: Duration,
}

/// Reads them. `least` are the weakest grounds of a stress for which pods are evicted.
pub(super) fn rescheduling(values: &Values, least: Grounds) -> Result<Rescheduling, Refusals> {
    let threshold = values.get(&table::RESCHEDULE_THRESHOLD)?;
    let migration = MigrationLaw::new(threshold)
        .map_err(|why| values.conflict(&["RESCHEDULE_THRESHOLD"], &why.to_string()))?;
    let (window, cooldown) =
        (values.get(&table::RESCHEDULE_WINDOW)?, values.get(&table::RESCHEDULE_COOLDOWN)?);
    let tuning = Tuning {
        stressed_for: micros(values.get(&table::RESCHEDULE_STRESSED_FOR)?),
        cooldown: micros(cooldown),
        // A pod that must not leave is tried once in a window.
        retry: micros(window),
        window: micros(window),
        per_node: values.get(&table::RESCHEDULE_MAX_EVICTIONS_PER_NODE)?,
        per_namespace: values.get(&table::RESCHEDULE_MAX_EVICTIONS_PER_NAMESPACE)?,
        per_cluster: values.get(&table::RESCHEDULE_MAX_EVICTIONS)?,
        relief: RELIEF.min(threshold),
        least,
        dry_run: values.get(&table::RESCHEDULE_DRY_RUN)?,
    };
    let law = EvictionLaw::new(migration, tuning).map_err(|why| {
        let names = [
            "RESCHEDULE_WINDOW",
            "RESCHEDULE_COOLDOWN",
            "RESCHEDULE_MAX_EVICTIONS",
            "RESCHEDULE_MAX_EVICTIONS_PER_NODE",
        ];
        values.conflict(&names, &why.to_string())
    })?;
    let eviction = values.get(&table::ENABLE_ACTIVE_RESCHEDULING)?.then_some(law);
    Ok(Rescheduling { migration, eviction, every: values.get(&table::RESCHEDULE_INTERVAL)?, cooldown })
}
