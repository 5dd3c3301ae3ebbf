//! The settings of nodes that sleep, checked together.

use super::table;
use crate::sleep::Controllers;
use host_kit::clock::micros;
use host_kit::config::{Refusals, Values};
use planner::sleep::{SleepError, SleepLaw, SleepMode, SleepTuning};
use std::sync::Arc;
use std::time::Duration;

/// How nodes sleep.
#[derive(Clone, Debug)]
pub(crate) struct SleepSettings {
    /// When they do.
    pub(crate) law: SleepLaw,
    /// How their power is switched; `None` if that is not known of any node. It is read at the start.
    pub(crate) controllers: Option<Arc<Controllers>>,
    /// How often controllers are asked.
    pub(crate) poll: Duration,
}

/// Whether nodes are put to sleep, by its word.
pub(crate) const SLEEP_MODES: [(&str, SleepMode); 3] =
    [("off", SleepMode::Off), ("observe", SleepMode::Observe), ("on", SleepMode::On)];

pub(super) fn sleep(values: &Values) -> Result<SleepSettings, Refusals> {
    let mode = values.get(&table::SLEEP)?;
    let file = values.get(&table::SLEEP_BMC_FILE)?;
    if mode != SleepMode::Off && file.is_none() {
        let why = "the file says how the power of nodes is switched, and without it none can sleep";
        return Err(values.conflict(&["SLEEP", "SLEEP_BMC_FILE"], why));
    }
    let controllers = file.as_deref().map(Controllers::load).transpose();
    let controllers = controllers.map_err(|why| values.conflict(&["SLEEP_BMC_FILE"], &why))?;
    let tuning = SleepTuning {
        mode,
        idle_for: micros(values.get(&table::SLEEP_IDLE_FOR)?),
        min_on: micros(values.get(&table::SLEEP_MIN_ON)?),
        settle: micros(values.get(&table::SLEEP_SETTLE)?),
        off_within: micros(values.get(&table::SLEEP_OFF_WITHIN)?),
        wake_takes: micros(values.get(&table::SLEEP_WAKE_TAKES)?),
        wake_within: micros(values.get(&table::SLEEP_WAKE_WITHIN)?),
        floor: values.get(&table::SLEEP_FLOOR)?,
        quantile: values.get(&table::SLEEP_WARM_QUANTILE)?,
        standby: values.get(&table::SLEEP_STANDBY_WATTS)?,
        sleeps_at_once: values.get(&table::SLEEP_SLEEPS_AT_ONCE)?,
        wakes_at_once: values.get(&table::SLEEP_WAKES_AT_ONCE)?,
    };
    let law = SleepLaw::new(tuning).map_err(|why| {
        let names: &[&str] = match why {
            SleepError::WakeWithin => &["SLEEP_WAKE_WITHIN", "SLEEP_WAKE_TAKES"],
            SleepError::OffWithin => &["SLEEP_OFF_WITHIN", "SLEEP_SETTLE"],
            SleepError::AtOnce => &["SLEEP_SLEEPS_AT_ONCE", "SLEEP_WAKES_AT_ONCE"],
            SleepError::Quantile => &["SLEEP_WARM_QUANTILE"],
            SleepError::Standby => &["SLEEP_STANDBY_WATTS"],
        };
        values.conflict(names, &why.to_string())
    })?;
    Ok(SleepSettings { law, controllers: controllers.map(Arc::new), poll: values.get(&table::SLEEP_POLL)? })
}
