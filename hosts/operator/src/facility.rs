//! The building's sensors, read from Prometheus: temperatures, and the power of machines, racks and cooling.
//!
//! What cannot be used is counted and left out: the last good value of the sensor stays, and grows old. Of several
//! temperatures of one place the hottest counts; of several powers nobody can say whether they add up, so that none does.

use crate::meters::poller::timer;
use crate::meters::watts;
use crate::queries::{Purpose, Queries};
use crate::settings::FacilitySettings;
use futures::StreamExt;
use host_kit::http_client::TrustError;
use host_kit::prometheus::{Answer, Prometheus, Series};
use jiff::Timestamp;
use planner::facility::Observation;
use power_units::{Celsius, Role, Watts};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

/// Zones and racks that are asked for one by one, at most: more need a query that answers for all.
const PLACES_MAX: usize = 256;
/// Queries that are under way at once.
const AT_ONCE: usize = 8;
/// The labels by which an answer for all zones names one.
const ZONE_LABELS: [&str; 2] = ["zone", "cooling_zone"];
/// The label by which an answer for all racks names one.
const RACK_LABELS: [&str; 1] = ["rack"];

/// The zones and racks that nodes are in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Places {
    /// The zones.
    pub(crate) zones: BTreeSet<Arc<str>>,
    /// The racks.
    pub(crate) racks: BTreeSet<Arc<str>>,
}

/// A value of a sensor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sensed {
    value: Value,
    /// When it was so, by the server's clock.
    pub(crate) at: Timestamp,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Value {
    Ambient(Celsius),
    ZoneAmbient(Arc<str>, Celsius),
    ItPower(Watts),
    CoolingPower(Watts),
    RackPower(Arc<str>, Watts),
}

impl Sensed {
    /// The value in the planner's form.
    pub(crate) fn observation(&self) -> Observation<'_> {
        match &self.value {
            Value::Ambient(degrees) => Observation::Ambient(*degrees),
            Value::ZoneAmbient(zone, degrees) => Observation::ZoneAmbient(zone, *degrees),
            Value::ItPower(watts) => Observation::ItPower(*watts),
            Value::CoolingPower(watts) => Observation::CoolingPower(*watts),
            Value::RackPower(rack, watts) => Observation::RackPower(rack, *watts),
        }
    }
}

/// Reads the sensors again and again.
#[derive(Debug)]
pub(crate) struct Sensors {
    places: watch::Sender<Places>,
    rounds: mpsc::Receiver<Vec<Sensed>>,
    task: JoinHandle<()>,
}

impl Sensors {
    /// Begins.
    ///
    /// # Errors
    /// If the authorities cannot be used.
    pub(crate) fn new(settings: FacilitySettings, queries: &Queries) -> Result<Self, TrustError> {
        let server = Prometheus::new("joulie-operator", settings.access.clone())?;
        let (places, follow) = watch::channel(Places::default());
        let (queue, rounds) = mpsc::channel(1);
        let reader = Reader { server, queries: queries.clone(), settings };
        let task = tokio::spawn(reader.read_all(follow, queue));
        Ok(Self { places, rounds, task })
    }

    /// Which zones and racks there are from now on.
    pub(crate) fn follow(&self, places: Places) {
        self.places.send_if_modified(|before| {
            let differs = *before != places;
            *before = places;
            differs
        });
    }

    /// The values of the next round; empty if no sensor has said anything.
    pub(crate) async fn next(&mut self) -> Option<Vec<Sensed>> {
        self.rounds.recv().await
    }
}

impl Drop for Sensors {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// What a query for a power is for, the query, and what its answer is.
type PowerSensor<'a> = (Purpose, &'a Option<String>, fn(Watts) -> Value);

struct Reader {
    server: Prometheus,
    queries: Queries,
    settings: FacilitySettings,
}

impl Reader {
    async fn read_all(self, mut places: watch::Receiver<Places>, queue: mpsc::Sender<Vec<Sensed>>) {
        let mut timer = timer(self.settings.every);
        loop {
            tokio::select! {
                _ = timer.tick() => {}
                changed = places.changed() => if changed.is_err() { return },
            }
            let there = places.borrow_and_update().clone();
            if queue.send(self.round(&there).await).await.is_err() {
                return;
            }
        }
    }

    async fn round(&self, places: &Places) -> Vec<Sensed> {
        let FacilitySettings { access: _, every: _, ambient, it_power, cooling_power, zones, racks } =
            &self.settings;
        let mut sensed = Vec::new();
        if let Some(query) = ambient {
            let found = self.hottest(Purpose::Ambient, self.ask(Purpose::Ambient, query).await.as_ref());
            sensed.extend(found.map(|(degrees, at)| Sensed { value: Value::Ambient(degrees), at }));
        }
        let powers: [PowerSensor<'_>; 2] = [
            (Purpose::ItPower, it_power, Value::ItPower),
            (Purpose::CoolingPower, cooling_power, Value::CoolingPower),
        ];
        for (purpose, query, value) in powers {
            let Some(query) = query else { continue };
            let found = self.only(purpose, self.ask(purpose, query).await.as_ref());
            sensed.extend(found.map(|(watts, at)| Sensed { value: value(watts), at }));
        }
        if let Some(query) = zones {
            for (zone, answer) in
                self.each(Purpose::ZoneAmbient, query, "{zone}", &ZONE_LABELS, &places.zones).await
            {
                let found = self.hottest(Purpose::ZoneAmbient, Some(&answer));
                sensed.extend(
                    found.map(|(degrees, at)| Sensed { value: Value::ZoneAmbient(zone, degrees), at }),
                );
            }
        }
        if let Some(query) = racks {
            for (rack, answer) in
                self.each(Purpose::RackPower, query, "{rack}", &RACK_LABELS, &places.racks).await
            {
                let found = self.only(Purpose::RackPower, Some(&answer));
                sensed.extend(found.map(|(watts, at)| Sensed { value: Value::RackPower(rack, watts), at }));
            }
        }
        sensed
    }

    async fn ask(&self, purpose: Purpose, query: &str) -> Option<Answer> {
        self.queries.ask(&self.server, purpose, query).await.ok()
    }

    /// The answers of a query by place: it is asked for each place, or once, and a label names the place.
    async fn each(
        &self,
        purpose: Purpose,
        query: &str,
        placeholder: &str,
        labels: &[&str],
        places: &BTreeSet<Arc<str>>,
    ) -> BTreeMap<Arc<str>, Answer> {
        if query.contains(placeholder) {
            if places.len() > PLACES_MAX {
                tracing::debug!("{} of {} places are asked for", PLACES_MAX, places.len());
            }
            let places: Vec<Arc<str>> = places.iter().take(PLACES_MAX).cloned().collect();
            let asked = futures::stream::iter(places).map(|place| async move {
                let answer = self.ask(purpose, &query.replace(placeholder, &place)).await?;
                Some((place, answer))
            });
            return asked.buffer_unordered(AT_ONCE).filter_map(std::future::ready).collect().await;
        }
        let Some(answer) = self.ask(purpose, query).await else { return BTreeMap::new() };
        let (found, unused) = by_place(answer, labels, places);
        self.queries.unused(purpose, unused);
        found
    }

    /// The hottest of the temperatures.
    fn hottest(&self, purpose: Purpose, answer: Option<&Answer>) -> Option<(Celsius, Timestamp)> {
        let answer = answer?;
        let degrees =
            |series: &Series| Some((Celsius::parse(series.number()?, Role::Demand).ok()?, series.at()));
        let known: Vec<_> = answer.series.iter().filter_map(degrees).collect();
        self.queries.unused(purpose, answer.series.len() - known.len());
        known.into_iter().max_by_key(|(degrees, _)| *degrees)
    }

    /// The power, if there is one.
    fn only(&self, purpose: Purpose, answer: Option<&Answer>) -> Option<(Watts, Timestamp)> {
        let answer = answer?;
        let found = match answer.series.as_slice() {
            [one] => watts(one).map(|watts| (watts, one.at())),
            _ => None,
        };
        self.queries.unused(purpose, if found.is_some() { 0 } else { answer.series.len() });
        found
    }
}

/// The series of an answer by the place that a label names, and how many name no place where nodes are.
fn by_place(
    answer: Answer,
    labels: &[&str],
    places: &BTreeSet<Arc<str>>,
) -> (BTreeMap<Arc<str>, Answer>, usize) {
    let (mut found, mut unused) = (BTreeMap::<Arc<str>, Answer>::new(), 0);
    for series in answer.series {
        let place = labels.iter().find_map(|label| series.label(label)).and_then(|name| places.get(name));
        match place {
            Some(place) => found.entry(place.clone()).or_default().series.push(series),
            None => unused += 1,
        }
    }
    (found, unused)
}

/// The first round is waited for as long as this before a plan is made: without it, the first twins would say that nothing
/// is known of the building.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);
