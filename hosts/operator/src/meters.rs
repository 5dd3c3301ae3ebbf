//! The power that nodes draw, as their meters report it: each sample with its source, and its age since this process
//! received it. How old it was then at the most, as its source says or as it must be taken for, is its lag; a sample with a date in
//! the future is of now. When Prometheus says something, nobody knows for sure when it was measured: such a reading is undated, and
//! raises no limit for the mean.
//!
//! A node may have several sources. The first one in the order of the settings that has a value counts; the others stand
//! in, and are compared: two sources that are far apart are told, and never averaged. A failing meter is a failed attempt
//! and never 0 W. A sample that repeats the previous one is not a new one, so that an agent that has died does not look
//! alive. A sample that is found at the first look was published before: if it is older by its own timestamp than a sample
//! may be, it is ignored. While the meter of a whole node is silent, what it last showed beside packages and GPUs is added
//! to what these draw: a node does not look emptier because a meter failed.

mod http;
pub(crate) mod poller;
mod query;

pub(crate) use query::watts;

use crate::rows::{NodeMeter, PowerSeen};
use crate::settings::NodePower;
use crate::site::Observed;
use host_kit::clock::micros;
use jiff::Timestamp;
use planner::names::Beside;
use planner::node::Power;
use planner::power::history::{History, HistoryLaw, WINDOW};
use planner::power::{MeterResult, NoMeasurement, NodeReading, PowerMeter, PowerSample};
use power_units::{Ratio, Role, Stamp, Watts};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// What an agent last published: when it measured, and the watts.
type Said = (Option<String>, Option<Watts>);

/// Sources that differ by less do not disagree, whatever part of the larger value that is.
const APART_LEAST: Watts = Watts::from_int(30);
/// Sources that disagree do so until they are nearer than this part of what it took.
const NEAR: Ratio = Ratio::from_bits(3 << 30);

/// The recent reports of all nodes' meters.
#[derive(Debug)]
pub(crate) struct Meters {
    law: HistoryLaw,
    hold: Duration,
    /// The sources in the order of preference, each with what is said of a node of which it has said nothing yet.
    sources: Vec<(PowerMeter, NoMeasurement)>,
    apart: Ratio,
    /// The nodes of which any source has reported anything, including a failure.
    heard: BTreeMap<Arc<str>, Heard>,
}

/// The reports about one node.
#[derive(Debug)]
struct Heard {
    /// In the order of the sources; `None` for one that has not reported anything.
    histories: Vec<Option<History>>,
    /// What its agent published last.
    said: Option<Said>,
    /// A source that disagrees with the one that counts.
    apart: Option<PowerMeter>,
    /// What the node draws beside packages and GPUs, by its own meter, and the most of it that there was, rounded up.
    rest: Option<Watts>,
    rest_most: Option<Watts>,
    /// Nobody knows when the agent's last watts were measured.
    undated: bool,
}

impl Meters {
    /// Starts without reports; the last sample of a node is valid for `hold`.
    ///
    /// # Errors
    /// If `hold` is not a valid time for a sample.
    pub(crate) fn new(power: &NodePower, hold: Duration) -> Result<Self, String> {
        let law = HistoryLaw::new(WINDOW, micros(hold)).map_err(|error| error.to_string())?;
        let sources = power.sources.iter().map(|source| (source.meter(), source.silent())).collect();
        Ok(Self { law, hold, sources, apart: power.apart, heard: BTreeMap::new() })
    }

    fn place(&self, meter: PowerMeter) -> Option<usize> {
        self.sources.iter().position(|&(of, _)| of == meter)
    }

    /// Takes in what agents publish of these nodes; `wall` is the time of day. The reports of all other nodes have not
    /// changed.
    pub(crate) fn listen(&mut self, nodes: &[Arc<Observed>], now: Stamp, wall: Timestamp) {
        if self.place(PowerMeter::Agent).is_none() {
            return;
        }
        for Observed { node, hardware, .. } in nodes.iter().map(|observed| &**observed) {
            let name = &node.name;
            let power = hardware.as_ref().and_then(|hardware| hardware.power.as_ref());
            let is_first = self.heard.get(name).is_none_or(|heard| heard.said.is_none());
            if is_first && power.is_none() {
                continue;
            }
            let heard = self.heard.entry(name.clone()).or_insert_with(|| Heard::of(self.sources.len()));
            let held = heard.rest(power);
            if let Some(power) = power.filter(|power| power.watts.is_some()) {
                heard.undated = power.undated;
            }
            let Some((at, watts)) = heard.say(power) else { continue };
            let watts = watts.and_then(|watts| watts.checked_add(held));
            let is_old = |at: String| is_first && is_old(&at, wall, self.hold);
            let watts = watts.filter(|_| !at.is_some_and(is_old));
            let lag = power.and_then(|power| lag(power, wall)).unwrap_or(self.hold);
            let sample = watts
                .ok_or(NoMeasurement::AgentNoData)
                .and_then(|watts| PowerSample::new(PowerMeter::Agent, watts, now));
            let report = sample.map(|sample| sample.late_by(micros(lag)));
            self.record(name, PowerMeter::Agent, now, report);
        }
    }

    /// Takes in the outcome of one attempt to read a node's power.
    pub(crate) fn record(&mut self, node: &str, meter: PowerMeter, now: Stamp, report: MeterResult) {
        let Some(place) = self.place(meter) else { return };
        if !self.heard.contains_key(node) {
            self.heard.insert(node.into(), Heard::of(self.sources.len()));
        }
        let Self { law, sources, apart, heard, .. } = self;
        if let Some(heard) = heard.get_mut(node)
            && let Some(history) = heard.histories.get_mut(place)
        {
            history.get_or_insert_default().record(law, now, report);
            heard.compare(law, sources, *apart, now);
        }
    }

    /// The reading of each of these nodes' meters at `now`. The nodes must be in the order of their names.
    pub(crate) fn readings<'a>(
        &self,
        nodes: impl ExactSizeIterator<Item = &'a str>,
        now: Stamp,
    ) -> Vec<Power> {
        let heard = Beside::new(nodes, self.heard.iter().map(|(node, heard)| (&**node, heard)));
        heard.each().map(|heard| self.metering(heard, now)).collect()
    }

    fn metering(&self, heard: Option<&Heard>, now: Stamp) -> Power {
        let best = heard.and_then(|heard| heard.best(&self.law, now));
        if let (Some((history, reading)), Some(heard)) = (best, heard) {
            let trend = history.trend(&self.law, now);
            let is_own = match reading {
                NodeReading::Measured { meter, .. } | NodeReading::Held { meter, .. } => {
                    meter == PowerMeter::Agent
                }
                NodeReading::Absent(_) => false,
            };
            let (rest, rest_most) = (heard.rest.filter(|_| is_own), heard.rest_most);
            let undated = (is_own && heard.undated) || is_passed_on(reading);
            let (apart, lag) = (heard.apart, history.lag());
            return Power { reading, trend, awaited: false, apart, rest, rest_most, undated, lag };
        }
        let Some(&(_, silent)) = self.sources.first() else { return Power::UNMETERED };
        Power {
            reading: NodeReading::Absent(silent),
            trend: None,
            awaited: self.sources.iter().any(|&(_, silent)| silent != NoMeasurement::HttpNoEndpoint),
            apart: None,
            rest: None,
            rest_most: heard.and_then(|heard| heard.rest_most),
            ..Power::UNMETERED
        }
    }

    /// How many nodes have sources that disagree.
    pub(crate) fn apart(&self) -> usize {
        self.heard.values().filter(|heard| heard.apart.is_some()).count()
    }

    /// Forgets every node that does not exist any more.
    pub(crate) fn keep_only(&mut self, nodes: &BTreeSet<&str>) {
        self.heard.retain(|node, _| nodes.contains(&**node));
    }
}

impl Heard {
    fn of(sources: usize) -> Self {
        let histories = vec![None; sources];
        Self { histories, said: None, apart: None, rest: None, rest_most: None, undated: false }
    }

    /// What the agent publishes, unless it is the same as before.
    fn say(&mut self, power: Option<&PowerSeen>) -> Option<Said> {
        let says = power.map_or((None, None), |power| (power.sampled_at.as_deref(), power.watts));
        if self.said.as_ref().map(|(at, watts)| (at.as_deref(), *watts)) == Some(says) {
            return None;
        }
        let (at, watts) = says;
        self.said = Some((at.map(str::to_owned), watts));
        self.said.clone()
    }

    /// Takes in what the node draws beside packages and GPUs. Returns what of it is to be added to what is published: what its
    /// meter last showed, while that is silent.
    fn rest(&mut self, power: Option<&PowerSeen>) -> Watts {
        let meter = power.and_then(|power| power.meter);
        let rest = power.and_then(|power| power.rest);
        self.rest = match (meter, rest) {
            (_, Some(rest)) => Some(rest),
            // A meter that has begun anew has not said it yet.
            (Some(_), None) => self.rest,
            (None, _) => None,
        };
        if let Some(rest) = rest {
            let rounded = tens(rest);
            self.rest_most = Some(self.rest_most.map_or(rounded, |most| most.max(rounded)));
        }
        self.rest.filter(|_| meter == Some(NodeMeter::Silent)).unwrap_or(Watts::ZERO)
    }

    /// The source that counts: the first that is measured, else the first whose last sample is still valid, else the first
    /// that has reported.
    fn best(&self, law: &HistoryLaw, now: Stamp) -> Option<(&History, NodeReading)> {
        let readings = || self.histories.iter().flatten().map(|history| (history, history.reading(law, now)));
        let of = |wanted: fn(&NodeReading) -> bool| readings().find(|(_, reading)| wanted(reading));
        of(|reading| matches!(reading, NodeReading::Measured { .. }))
            .or_else(|| of(|reading| matches!(reading, NodeReading::Held { .. })))
            .or_else(|| readings().next())
    }

    /// Compares the source that counts with the others.
    fn compare(
        &mut self,
        law: &HistoryLaw,
        sources: &[(PowerMeter, NoMeasurement)],
        apart: Ratio,
        now: Stamp,
    ) {
        let measured = |history: &Option<History>| match history.as_ref()?.reading(law, now) {
            NodeReading::Measured { watts, .. } => Some(watts),
            NodeReading::Held { .. } | NodeReading::Absent(_) => None,
        };
        let mut all = sources.iter().zip(self.histories.iter().map(measured));
        let Some(counts) = all.find_map(|(_, watts)| watts) else {
            self.apart = None;
            return;
        };
        let was = self.apart;
        self.apart = all.find_map(|(&(meter, _), watts)| {
            let watts = watts?;
            let most = counts.max(watts).scale(apart, Role::Nearest).max(APART_LEAST);
            let most = if was == Some(meter) { most.scale(NEAR, Role::Nearest) } else { most };
            ((counts - watts).abs() > most).then_some(meter)
        });
    }
}

/// Whether Prometheus says it. The time of an answer is that of the evaluation: the sample behind it may be as old as the server
/// looks back, five minutes by default, and a rate is a mean over minutes.
const fn is_passed_on(reading: NodeReading) -> bool {
    match reading {
        NodeReading::Measured { meter, .. } | NodeReading::Held { meter, .. } => match meter {
            PowerMeter::Prometheus | PowerMeter::Kepler => true,
            PowerMeter::Http | PowerMeter::Agent => false,
        },
        NodeReading::Absent(_) => false,
    }
}

/// Rounded up to ten watts, so that a grant does not follow a fan.
fn tens(watts: Watts) -> Watts {
    const TEN: i64 = 10 << 32;
    let bits = watts.or_zero().to_bits();
    Watts::from_bits(bits.saturating_add((TEN - bits % TEN) % TEN))
}

/// How long ago it was measured what an agent publishes, by its own dates: the older of them; zero for one of the future. `None` if a date
/// is missing or cannot be read.
fn lag(power: &PowerSeen, wall: Timestamp) -> Option<Duration> {
    let at: Timestamp = power.sampled_at.as_ref()?.parse().ok()?;
    let of_node = power.node_sampled_at.as_ref().map(|at| at.parse::<Timestamp>()).transpose().ok()?;
    let at = of_node.map_or(at, |of_node| of_node.min(at));
    Some(Duration::try_from(wall.duration_since(at)).unwrap_or(Duration::ZERO))
}

/// Whether a sample is older by its own timestamp than a sample may be. A sample without a readable timestamp is not.
fn is_old(sampled_at: &str, wall: Timestamp, hold: Duration) -> bool {
    let at: Option<Timestamp> = sampled_at.parse().ok();
    let age = at.and_then(|at| Duration::try_from(wall.duration_since(at)).ok());
    age.is_some_and(|age| age > hold)
}

#[cfg(test)]
mod tests;
