//! The power that nodes draw, as their meters report it: each sample with its source, and its age since this process
//! received it.
//!
//! A failing meter is a failed attempt and never 0 W. A sample that repeats the previous one is not a new one, so that
//! an agent that has died does not look alive. A sample that is found at the first look was published before: if it is
//! older by its own timestamp than a sample may be, it is ignored.

pub(crate) mod http;

use crate::rows::PowerSeen;
use crate::settings::PowerSource;
use crate::site::Observed;
use host_kit::clock::micros;
use jiff::Timestamp;
use planner::names::Beside;
use planner::node::Power;
use planner::power::history::{History, HistoryLaw, WINDOW};
use planner::power::{MeterResult, NoMeasurement, NodeReading, PowerMeter, PowerSample};
use power_units::{Stamp, Watts};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// What an agent last published: when it measured, and the watts.
type Said = (Option<String>, Option<Watts>);

/// The recent reports of all nodes' meters.
#[derive(Debug)]
pub(crate) struct Meters {
    law: HistoryLaw,
    hold: Duration,
    /// The reading of a meter that has not reported yet.
    silent: NoMeasurement,
    by_agents: bool,
    /// The nodes whose meters have reported anything, including a failure.
    heard: BTreeMap<Arc<str>, Heard>,
}

/// The reports of one node's meter.
#[derive(Debug, Default)]
struct Heard {
    history: History,
    said: Option<Said>,
}

impl Meters {
    /// Starts without reports; the last sample of a node is valid for `hold`.
    ///
    /// # Errors
    /// If `hold` is not a valid time for a sample.
    pub(crate) fn new(source: &PowerSource, hold: Duration) -> Result<Self, String> {
        let law = HistoryLaw::new(WINDOW, micros(hold)).map_err(|error| error.to_string())?;
        let silent = match source {
            PowerSource::Static => NoMeasurement::NotConfigured,
            PowerSource::Agent => NoMeasurement::AgentNoData,
            PowerSource::Http(None, _) => NoMeasurement::HttpNoEndpoint,
            PowerSource::Http(Some(_), _) => NoMeasurement::HttpError,
        };
        let by_agents = *source == PowerSource::Agent;
        Ok(Self { law, hold, silent, by_agents, heard: BTreeMap::new() })
    }

    /// Takes in what agents publish of these nodes; `wall` is the time of day. The reports of all other nodes have not
    /// changed.
    pub(crate) fn listen(&mut self, nodes: &[Arc<Observed>], now: Stamp, wall: Timestamp) {
        if !self.by_agents {
            return;
        }
        let (law, hold) = (self.law, self.hold);
        for Observed { node, hardware, .. } in nodes.iter().map(|observed| &**observed) {
            let name = &node.name;
            let power = hardware.as_ref().and_then(|hardware| hardware.power.as_ref());
            if let Some(heard) = self.heard.get_mut(name) {
                heard.listen(&law, power, now, |_| false);
            } else if power.is_some() {
                let heard = self.heard.entry(name.clone()).or_default();
                heard.listen(&law, power, now, |at| is_old(at, wall, hold));
            }
        }
    }

    /// Takes in the outcome of one attempt to read a node's power.
    pub(crate) fn record(&mut self, node: &str, now: Stamp, report: MeterResult) {
        if let Some(heard) = self.heard.get_mut(node) {
            return heard.history.record(&self.law, now, report);
        }
        self.heard.entry(node.into()).or_default().history.record(&self.law, now, report);
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
        match heard {
            Some(Heard { history, .. }) => Power {
                reading: history.reading(&self.law, now),
                trend: history.trend(&self.law, now),
                awaited: false,
            },
            None => Power {
                reading: NodeReading::Absent(self.silent),
                trend: None,
                awaited: !matches!(self.silent, NoMeasurement::NotConfigured | NoMeasurement::HttpNoEndpoint),
            },
        }
    }

    /// Forgets every node that does not exist any more.
    pub(crate) fn keep_only(&mut self, nodes: &BTreeSet<&str>) {
        self.heard.retain(|node, _| nodes.contains(&**node));
    }
}

impl Heard {
    /// Takes in what the agent publishes, unless it is the same as before.
    fn listen(
        &mut self,
        law: &HistoryLaw,
        power: Option<&PowerSeen>,
        now: Stamp,
        is_old: impl Fn(&str) -> bool,
    ) {
        let says = power.map_or((None, None), |power| (power.sampled_at.as_deref(), power.watts));
        if self.said.as_ref().map(|(at, watts)| (at.as_deref(), *watts)) == Some(says) {
            return;
        }
        let (at, watts) = says;
        self.said = Some((at.map(str::to_owned), watts));
        let watts = watts.filter(|_| !at.is_some_and(is_old));
        let report = watts
            .ok_or(NoMeasurement::AgentNoData)
            .and_then(|watts| PowerSample::new(PowerMeter::Agent, watts, now));
        self.history.record(law, now, report);
    }
}

/// Whether a sample is older by its own timestamp than a sample may be. A sample without a readable timestamp is not.
fn is_old(sampled_at: &str, wall: Timestamp, hold: Duration) -> bool {
    let at: Option<Timestamp> = sampled_at.parse().ok();
    let age = at.and_then(|at| Duration::try_from(wall.duration_since(at)).ok());
    age.is_some_and(|age| age > hold)
}

#[cfg(test)]
mod tests;
