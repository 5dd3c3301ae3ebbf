//! What the nodes draw, as meters say it: each sample with its source, and its age by our own receipt.
//!
//! A meter that fails is a failed attempt and never 0 W. A sample that only says again what was said before is no new
//! one, so that an agent that has died does not look alive. What is found at the first look was said to somebody else:
//! where it is older by its own words than a sample may be, it is no sample.

pub(crate) mod http;

use crate::settings::{PowerSource, micros};
use crate::site::Member;
use jiff::Timestamp;
use planner::power::history::{Histories, HistoryLaw, WINDOW};
use planner::power::{Absent, Meter, Reading, Report, Sample};
use power_units::{Stamp, Watts, WattsPerMinute};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// What an agent last said: when it measured, and what.
type Said = (Option<String>, Option<Watts>);

/// What the meters of all nodes said lately.
#[derive(Debug)]
pub(crate) struct Meters {
    law: HistoryLaw,
    histories: Histories,
    hold: Duration,
    /// What stands for a meter that has said nothing yet.
    silent: Absent,
    by_agents: bool,
    said: BTreeMap<String, Said>,
    /// The nodes of whose meters anything was ever heard, a failure included.
    heard: BTreeSet<String>,
}

impl Meters {
    /// Nothing has been said yet; the last sample of a node stands for `hold`.
    ///
    /// # Errors
    /// When `hold` is no time that a sample can stand.
    pub(crate) fn new(source: &PowerSource, hold: Duration) -> Result<Self, String> {
        let law = HistoryLaw::new(WINDOW, micros(hold)).map_err(|error| error.to_string())?;
        let silent = match source {
            PowerSource::Static => Absent::NotConfigured,
            PowerSource::Agent => Absent::AgentNoData,
            PowerSource::Http(None, _) => Absent::HttpNoEndpoint,
            PowerSource::Http(Some(_), _) => Absent::HttpError,
        };
        Ok(Self {
            law,
            histories: Histories::default(),
            hold,
            silent,
            by_agents: *source == PowerSource::Agent,
            said: BTreeMap::new(),
            heard: BTreeSet::new(),
        })
    }

    /// Listens to what agents publish. `wall` is what people call the time.
    pub(crate) fn listen(&mut self, members: &[Arc<Member>], now: Stamp, wall: Timestamp) {
        if !self.by_agents {
            return;
        }
        for member in members {
            let node = &member.node.name;
            let power = member.hardware.as_ref().and_then(|hardware| hardware.power.as_ref());
            let said = power.map_or((None, None), |power| (power.sampled_at.clone(), power.watts));
            let before = self.said.get(node);
            if before == Some(&said) || (before.is_none() && power.is_none()) {
                continue;
            }
            let is_old = before.is_none() && said.0.as_deref().is_some_and(|at| self.is_old(at, wall));
            let watts = said.1.filter(|_| !is_old);
            let report =
                watts.ok_or(Absent::AgentNoData).and_then(|watts| Sample::new(Meter::Agent, watts, now));
            self.said.insert(node.clone(), said);
            self.record(node, now, report);
        }
    }

    /// Whether a sample is older by its own words than one may be; what says nothing of its age is not.
    fn is_old(&self, sampled_at: &str, wall: Timestamp) -> bool {
        let at: Option<Timestamp> = sampled_at.parse().ok();
        let age = at.and_then(|at| Duration::try_from(wall.duration_since(at)).ok());
        age.is_some_and(|age| age > self.hold)
    }

    /// Takes in the outcome of one attempt to read a node's power.
    pub(crate) fn record(&mut self, node: &str, now: Stamp, report: Report) {
        self.histories.record(&self.law, node, now, report);
        if !self.heard.contains(node) {
            self.heard.insert(node.to_owned());
        }
    }

    /// What the meter of a node says at `now`, and where it is going.
    pub(crate) fn reading(&self, node: &str, now: Stamp) -> (Reading, Option<WattsPerMinute>) {
        if self.heard.contains(node) {
            self.histories.reading(&self.law, node, now)
        } else {
            (Reading::Absent(self.silent), None)
        }
    }

    /// Whether a meter is to say what the node draws and nothing was ever heard of it, not even that it fails.
    pub(crate) fn awaits(&self, node: &str) -> bool {
        let has_meter = !matches!(self.silent, Absent::NotConfigured | Absent::HttpNoEndpoint);
        has_meter && !self.heard.contains(node)
    }

    /// Forgets every node that is gone.
    pub(crate) fn keep_only(&mut self, nodes: &BTreeSet<&str>) {
        self.histories.keep_only(nodes);
        self.said.retain(|node, _| nodes.contains(node.as_str()));
        self.heard.retain(|node| nodes.contains(node.as_str()));
    }
}

#[cfg(test)]
mod tests;
