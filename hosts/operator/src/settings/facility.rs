//! The settings of the building: its sensors, its cooling, and what its racks can supply.

use super::table;
use host_kit::config::{Refusals, Values, Wrong};
use host_kit::prometheus::{PrometheusAccess, settings as prometheus};
use planner::twin::TwinLaw;
use planner::twin::cooling::{CapacityTable, Cooling, Linear, MeasuredPower};
use planner::twin::psu::{PsuLimits, RACK_LIMIT};
use power_units::{Celsius, Percent, Role};
use std::time::Duration;

/// How the building's sensors are asked.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct FacilitySettings {
    /// The server.
    pub(crate) access: PrometheusAccess,
    /// How often.
    pub(crate) every: Duration,
    /// The temperature of the building.
    pub(crate) ambient: Option<String>,
    /// The power of all machines.
    pub(crate) it_power: Option<String>,
    /// The power of the cooling.
    pub(crate) cooling_power: Option<String>,
    /// The temperature of each zone, or of the one whose name replaces `{zone}`.
    pub(crate) zones: Option<String>,
    /// The power of each rack, or of the one whose name replaces `{rack}`.
    pub(crate) racks: Option<String>,
}

/// Reads them; `None` if they are not to be asked.
pub(super) fn read(values: &Values) -> Result<Option<FacilitySettings>, Refusals> {
    if !values.get(&table::ENABLE_FACILITY_METRICS)? {
        return Ok(None);
    }
    let own = values.get(&table::FACILITY_PROMETHEUS_ADDRESS)?;
    let shared = values.get(&prometheus::PROMETHEUS_ADDRESS)?;
    let usual = || values.conflict(&[table::FACILITY_PROMETHEUS_ADDRESS.name()], "it is not a URL");
    let address = own.or(shared).map_or_else(|| USUAL.parse().map_err(|_| usual()), Ok)?;
    let query = |text: String| (text != NONE).then_some(text);
    Ok(Some(FacilitySettings {
        access: prometheus::access(values, address)?,
        every: values.get(&table::FACILITY_POLL_INTERVAL)?,
        ambient: query(values.get(&table::FACILITY_AMBIENT_TEMP_METRIC)?),
        it_power: query(values.get(&table::FACILITY_IT_POWER_METRIC)?),
        cooling_power: query(values.get(&table::FACILITY_COOLING_POWER_METRIC)?),
        zones: values.get(&table::FACILITY_ZONE_AMBIENT_METRIC_TEMPLATE)?.and_then(query),
        racks: values.get(&table::FACILITY_RACK_POWER_METRIC_TEMPLATE)?.and_then(query),
    }))
}

/// The server that the first implementation asks if it is told of no other.
const USUAL: &str = "http://prometheus-operated.monitoring:9090";

/// The word for a sensor that the building does not have.
const NONE: &str = "none";

/// The model of the cooling, as it is written.
#[derive(Clone, Copy, Debug)]
pub(crate) enum CoolingNamed {
    Measured,
    Linear,
    Table,
}

/// Parses `18=100,27=80,35=45`.
pub(super) fn cooling_table(text: &str) -> Result<CapacityTable, Wrong> {
    let mut points = Vec::new();
    for part in text.split(',').map(str::trim) {
        let (degrees, share) =
            part.split_once('=').ok_or_else(|| Wrong(format!("{part:?} is not CELSIUS=PERCENT")))?;
        let degrees = Celsius::parse(degrees.trim(), Role::Nearest);
        let share = Percent::parse(share.trim(), Role::Limit);
        let point = degrees.ok().zip(share.ok());
        points.push(point.ok_or_else(|| Wrong(format!("{part:?} is not CELSIUS=PERCENT in numbers")))?);
    }
    CapacityTable::new(&points).map_err(|why| Wrong(why.to_string()))
}

/// The settings of the twins.
pub(super) fn twin(values: &Values) -> Result<TwinLaw<Cooling>, Refusals> {
    let cooling = match values.get(&table::COOLING_MODEL)? {
        CoolingNamed::Measured => Cooling::Measured(MeasuredPower),
        CoolingNamed::Linear => {
            let linear = Linear::new(values.get(&table::COOLING_REFERENCE_WATTS)?);
            let names = [table::COOLING_REFERENCE_WATTS.name()];
            Cooling::Linear(linear.map_err(|why| values.conflict(&names, &why.to_string()))?)
        }
        CoolingNamed::Table => {
            let points = values.get(&table::COOLING_TABLE)?;
            let names = [table::COOLING_TABLE.name()];
            Cooling::Table(points.ok_or_else(|| values.conflict(&names, "COOLING_MODEL=table needs it"))?)
        }
    };
    // A rack without a capacity of its own can supply what its limit lets it draw.
    let mut racks = values.get(&table::BUDGET_RACK_WATTS)?;
    racks.extend(values.get(&table::RACK_CAPACITY_WATTS)?);
    let default = racks.remove("*").unwrap_or(RACK_LIMIT);
    let names = [table::RACK_CAPACITY_WATTS.name()];
    let psu = PsuLimits::new(default, racks).map_err(|why| values.conflict(&names, &why.to_string()))?;
    Ok(TwinLaw { cooling, psu, ..TwinLaw::STANDARD })
}
