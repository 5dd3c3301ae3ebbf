//! The building around the machines: cooling zones with a temperature, and what a Prometheus that scrapes the site would
//! answer about it.
//!
//! | path | verbs | what |
//! |---|---|---|
//! | `/site` | GET, POST | every zone with its temperature; `{"sensors": "silent"}` breaks what answers below |
//! | `/site/{zone}` | GET, POST, DELETE | `{"ambientCelsius": 35}`; a DELETE makes it mild again |
//! | `/api/v1/query` | GET | an answer of Prometheus, for the queries that the operator asks without further settings |
//!
//! No PromQL is evaluated: the first known series in a query decides, and all series of that name are the answer, with
//! the labels that are left after the operator's aggregations. Of anything else there is no series, as of a metric that
//! nobody exports. The temperature is what a thermometer in the zone shows; the machines do not get hotter by it.

use crate::machine::Running;
use crate::pods::BoundPod;
use crate::world::SimulatedWorld;
use host_kit::reflect::Rows;
use joulie_api::labels::node::COOLING_ZONE;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The temperature of every zone at the start.
pub const MILD_C: f64 = 22.0;
/// What a thermometer in a building can show.
const RANGE_C: (f64, f64) = (-60.0, 120.0);

/// A fault of what answers about the building.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SensorFault {
    /// None.
    #[default]
    Ok,
    /// Its sensors have no series any more; what pods use still has.
    Silent,
    /// Every query is answered with 500.
    Error,
}

/// The zones.
#[derive(Debug)]
pub struct SimulatedSite {
    /// By zone, °C. There are never others than at the start.
    ambient: Mutex<BTreeMap<String, f64>>,
    sensors: Mutex<SensorFault>,
}

/// What is set about the whole building.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct SiteState {
    sensors: SensorFault,
}

/// What is set about a zone.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ZoneState {
    ambient_celsius: f64,
}

/// The series that a query can ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SiteSeries {
    /// The hottest zone.
    Ambient,
    ZoneAmbient,
    ItPower,
    PodCores,
    PodGpu,
}

impl SiteSeries {
    const ALL: [(&str, Self); 5] = [
        ("datacenter_ambient_temperature_celsius", Self::Ambient),
        ("datacenter_zone_ambient_temperature_celsius", Self::ZoneAmbient),
        ("datacenter_total_it_power_watts", Self::ItPower),
        ("container_cpu_usage_seconds_total", Self::PodCores),
        ("DCGM_FI_DEV_GPU_UTIL", Self::PodGpu),
    ];

    fn of(query: &str) -> Option<Self> {
        let found = Self::ALL.into_iter().filter_map(|(name, series)| Some((query.find(name)?, series)));
        found.min_by_key(|(at, _)| *at).map(|(_, series)| series)
    }

    /// Whether a sensor of the building shows it.
    const fn is_sensor(self) -> bool {
        match self {
            Self::Ambient | Self::ZoneAmbient | Self::ItPower => true,
            Self::PodCores | Self::PodGpu => false,
        }
    }
}

impl SimulatedSite {
    /// The zones of these nodes' labels, all mild.
    pub(crate) fn of<'a>(labels: impl Iterator<Item = &'a BTreeMap<String, String>>) -> Self {
        let zones = labels.filter_map(|labels| labels.get(COOLING_ZONE));
        let ambient = zones.map(|zone| (zone.clone(), MILD_C)).collect();
        Self { ambient: Mutex::new(ambient), sensors: Mutex::default() }
    }

    fn ambient(&self) -> MutexGuard<'_, BTreeMap<String, f64>> {
        self.ambient.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn sensors(&self) -> SensorFault {
        *self.sensors.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Every zone with its temperature, and what is broken.
    pub(crate) fn shown(&self) -> Value {
        json!({"zones": *self.ambient(), "sensors": self.sensors()})
    }

    /// Breaks or mends what answers about the building.
    ///
    /// # Errors
    /// If the text is not such JSON.
    pub(crate) fn break_sensors(&self, body: &[u8]) -> Result<(), String> {
        const ACCEPTED: &str = "accepted: {\"sensors\": ok|silent|error}";
        let state: SiteState =
            serde_json::from_slice(body).map_err(|error| format!("{error}; {ACCEPTED}"))?;
        *self.sensors.lock().unwrap_or_else(PoisonError::into_inner) = state.sensors;
        Ok(())
    }

    /// A zone; `None` if there is none of this name.
    pub(crate) fn zone(&self, zone: &str) -> Option<Value> {
        self.ambient().get(zone).map(|celsius| json!({"zone": zone, "ambientCelsius": celsius}))
    }

    /// Sets the temperature of a zone that is there.
    ///
    /// # Errors
    /// If the text is not such JSON, or no temperature of a building.
    pub(crate) fn set(&self, zone: &str, body: &[u8]) -> Result<(), String> {
        let (low, high) = RANGE_C;
        let accepted = || format!("accepted: {{\"ambientCelsius\": {low} to {high}}}");
        let state: ZoneState =
            serde_json::from_slice(body).map_err(|error| format!("{error}; {}", accepted()))?;
        if !(low..=high).contains(&state.ambient_celsius) {
            return Err(format!("ambientCelsius is {}; {}", state.ambient_celsius, accepted()));
        }
        if let Some(celsius) = self.ambient().get_mut(zone) {
            *celsius = state.ambient_celsius;
        }
        Ok(())
    }

    /// Makes a zone mild again.
    pub(crate) fn calm(&self, zone: &str) {
        if let Some(celsius) = self.ambient().get_mut(zone) {
            *celsius = MILD_C;
        }
    }
}

/// The answer of a Prometheus to a query; `None` while it fails.
pub(crate) fn answer(query: &str, world: &SimulatedWorld, pods: &Rows<BoundPod>) -> Option<Value> {
    let fault = world.site().sensors();
    let is_answered = |series: &SiteSeries| fault == SensorFault::Ok || !series.is_sensor();
    let asked = SiteSeries::of(query).filter(is_answered);
    let series = asked.map_or_else(Vec::new, |series| values(series, world, pods));
    let at = world.clock().wall().as_second();
    let result: Vec<Value> = series
        .into_iter()
        .map(|(labels, value)| json!({"metric": labels, "value": [at, value.to_string()]}))
        .collect();
    let answer = json!({"status": "success", "data": {"resultType": "vector", "result": result}});
    (fault != SensorFault::Error).then_some(answer)
}

fn values(series: SiteSeries, world: &SimulatedWorld, pods: &Rows<BoundPod>) -> Vec<(Value, f64)> {
    match series {
        SiteSeries::Ambient => {
            let hottest = world.site().ambient().values().copied().reduce(f64::max);
            hottest.map(|celsius| (json!({}), celsius)).into_iter().collect()
        }
        SiteSeries::ZoneAmbient => {
            let zones = world.site().ambient();
            zones.iter().map(|(zone, celsius)| (json!({"zone": zone}), *celsius)).collect()
        }
        SiteSeries::ItPower => {
            let watts = world.nodes().values().map(|node| world.at(node).machine.read().node_watts).sum();
            vec![(json!({}), watts)]
        }
        SiteSeries::PodCores => by_pod(world, pods, |pod| Some(pod.work.cpus * pod.work.cpu_utilisation)),
        SiteSeries::PodGpu => {
            by_pod(world, pods, |pod| (pod.work.gpus > 0).then_some(pod.work.gpu_utilisation * 100.0))
        }
    }
}

/// A value for each pod that works.
fn by_pod(
    world: &SimulatedWorld,
    pods: &Rows<BoundPod>,
    value: impl Fn(&Running) -> Option<f64>,
) -> Vec<(Value, f64)> {
    let mut all = Vec::new();
    for (key, held) in pods.all() {
        let pod = &held.row;
        let Some(node) = world.node(&pod.node) else { continue };
        let state = world.at(node);
        let running = state.machine.pods().get(&pod.id).filter(|running| !running.is_finished());
        if let Some(value) = running.and_then(&value) {
            all.push((json!({"namespace": key.namespace, "pod": key.name}), value));
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn site() -> SimulatedSite {
        let labels = |zone: &str| BTreeMap::from([(COOLING_ZONE.to_owned(), zone.to_owned())]);
        SimulatedSite::of([labels("a"), labels("b"), labels("a"), BTreeMap::new()].iter())
    }

    #[test]
    fn a_zone_keeps_what_it_was_set_to_until_it_is_calmed() {
        let site = site();
        site.set("b", br#"{"ambientCelsius": 41.5}"#).unwrap();
        assert_eq!(site.shown(), json!({"zones": {"a": 22.0, "b": 41.5}, "sensors": "ok"}));
        assert_eq!(site.zone("b").unwrap()["ambientCelsius"], 41.5);
        site.calm("b");
        assert_eq!(site.zone("b").unwrap()["ambientCelsius"], 22.0);
        assert_eq!(site.zone("c"), None);
    }

    #[test]
    fn what_no_thermometer_shows_is_refused_and_changes_nothing() {
        let site = site();
        for body in ["", "[]", "{}", r#"{"ambientCelsius": "hot"}"#, r#"{"ambientCelsius": 1, "x": 2}"#] {
            assert!(site.set("a", body.as_bytes()).unwrap_err().contains("accepted: "), "{body:?}");
        }
        for celsius in ["-61", "121", "1e300", "null"] {
            let body = format!(r#"{{"ambientCelsius": {celsius}}}"#);
            assert!(site.set("a", body.as_bytes()).unwrap_err().contains("accepted: "), "{celsius}");
        }
        site.set("of nobody", br#"{"ambientCelsius": 30}"#).unwrap();
        assert_eq!(site.shown(), json!({"zones": {"a": 22.0, "b": 22.0}, "sensors": "ok"}));
    }

    #[test]
    fn sensors_are_broken_and_mended_and_what_is_no_fault_of_them_is_refused() {
        let site = site();
        site.break_sensors(br#"{"sensors": "silent"}"#).unwrap();
        assert_eq!(site.shown()["sensors"], "silent");
        for body in ["", "[]", "{}", r#"{"sensors": "dead"}"#, r#"{"sensors": "ok", "x": 1}"#] {
            assert!(site.break_sensors(body.as_bytes()).unwrap_err().contains("accepted: "), "{body:?}");
        }
        assert_eq!(site.shown()["sensors"], "silent");
        site.break_sensors(br#"{"sensors": "ok"}"#).unwrap();
        assert_eq!(site.shown()["sensors"], "ok");
    }

    #[test]
    fn the_first_known_series_of_a_query_decides() {
        let of = SiteSeries::of;
        assert_eq!(of("datacenter_ambient_temperature_celsius"), Some(SiteSeries::Ambient));
        assert_eq!(of("datacenter_zone_ambient_temperature_celsius"), Some(SiteSeries::ZoneAmbient));
        let cores =
            r#"sum by (namespace, pod) (rate(container_cpu_usage_seconds_total{container!=""}[600s]))"#;
        assert_eq!(of(cores), Some(SiteSeries::PodCores));
        let gpu = r#"avg by (a, b) (avg_over_time(DCGM_FI_DEV_GPU_UTIL{x=""}[1s])) or container_cpu_usage_seconds_total"#;
        assert_eq!(of(gpu), Some(SiteSeries::PodGpu));
        assert_eq!((of("up"), of("")), (None, None));
    }
}
