//! What the nodes draw, as meters say it: each sample with its source, and its age by our own receipt.
//!
//! A meter that fails is a failed attempt and never 0 W. A sample that only says again what was said before is no new
//! one, so that an agent that has died does not look alive.

pub(crate) mod http;

use crate::settings::{PowerSource, micros};
use crate::site::Member;
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
    by_agents: bool,
    said: BTreeMap<String, Said>,
}

impl Meters {
    /// Nothing has been said yet; the last sample of a node stands for `hold`.
    ///
    /// # Errors
    /// When `hold` is no time that a sample can stand.
    pub(crate) fn new(source: &PowerSource, hold: Duration) -> Result<Self, String> {
        let law = HistoryLaw::new(WINDOW, micros(hold)).map_err(|error| error.to_string())?;
        let by_agents = *source == PowerSource::Agent;
        Ok(Self { law, histories: Histories::default(), by_agents, said: BTreeMap::new() })
    }

    /// Listens to what agents publish.
    pub(crate) fn listen(&mut self, members: &[Arc<Member>], now: Stamp) {
        if !self.by_agents {
            return;
        }
        for member in members {
            let power = member.hardware.as_ref().and_then(|hardware| hardware.power.as_ref());
            let said = power.map_or((None, None), |power| (power.sampled_at.clone(), power.watts));
            if self.said.get(&member.node.name) == Some(&said) {
                continue;
            }
            let report =
                said.1.ok_or(Absent::AgentNoData).and_then(|watts| Sample::new(Meter::Agent, watts, now));
            self.histories.record(&self.law, &member.node.name, now, report);
            self.said.insert(member.node.name.clone(), said);
        }
    }

    /// Takes in the outcome of one attempt to read a node's power.
    pub(crate) fn record(&mut self, node: &str, now: Stamp, report: Report) {
        self.histories.record(&self.law, node, now, report);
    }

    /// What the meter of a node says at `now`, and where it is going.
    pub(crate) fn reading(&self, node: &str, now: Stamp) -> (Reading, Option<WattsPerMinute>) {
        self.histories.reading(&self.law, node, now)
    }

    /// Forgets every node that is gone.
    pub(crate) fn keep_only(&mut self, nodes: &BTreeSet<&str>) {
        self.histories.keep_only(nodes);
        self.said.retain(|node, _| nodes.contains(node.as_str()));
    }
}
