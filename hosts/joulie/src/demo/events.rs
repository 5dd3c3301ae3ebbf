//! Derives a line for each event from the previous and the current state. No I/O and no clock.
//!
//! A change of a node's profile or cap is reported when its outcome (the cap that was asked and the limit that was
//! read back) is known. If the outcome is missing for some seconds, that is reported first, and the outcome when it
//! is known.

mod node;

use super::state::{Device, Offer, Plan, Standing, State, Workload};
use node::Seen;
use power_units::Watts;
use std::collections::BTreeMap;
use std::time::Duration;

/// The severity of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tone {
    /// As expected.
    Good,
    /// For information.
    Plain,
    /// A problem that the system handles.
    Warn,
    /// A violation that must not happen.
    Bad,
    /// An action of the demo on the system.
    Chaos,
}

/// An event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Line {
    pub(crate) at: Duration,
    pub(crate) tone: Tone,
    pub(crate) text: String,
}

/// A leader renews the plan's Lease at least every half minute; the demo's operator does so every second or two.
pub(crate) const PLAN_SILENT: Duration = Duration::from_secs(6);

/// The events of one state.
#[derive(Debug, Default)]
struct Told {
    lines: Vec<(Tone, String)>,
    /// Lines of nodes of which only the cap changed, and which hold the requested cap.
    recapped: Vec<String>,
}

/// What was already reported, so that each event is reported once.
#[derive(Debug, Default)]
pub(crate) struct EventLog {
    nodes: BTreeMap<String, Seen>,
    workloads: BTreeMap<String, Workload>,
    leader: Option<String>,
    silent_since: Option<Duration>,
    above: bool,
    starved: bool,
    extender_silent: bool,
}

/// More changed caps than this are reported in one line: a new division of the budget changes all of them.
const RECAPPED_MOST: usize = 2;

impl Told {
    fn say(&mut self, tone: Tone, text: String) {
        self.lines.push((tone, text));
    }

    fn in_lines(self) -> Vec<(Tone, String)> {
        let Self { mut lines, recapped } = self;
        if recapped.len() > RECAPPED_MOST {
            let (count, first) = (recapped.len(), recapped.first().cloned().unwrap_or_default());
            lines.push((
                Tone::Good,
                format!("{count} nodes have other caps, all read back as asked or granted; {first}"),
            ));
        } else {
            lines.extend(recapped.into_iter().map(|text| (Tone::Good, text)));
        }
        lines
    }
}

impl EventLog {
    /// The events since the last call.
    pub(crate) fn go_on(&mut self, state: &State) -> Vec<Line> {
        let mut told = Told::default();
        for (name, node) in &state.nodes {
            match self.nodes.get_mut(name) {
                Some(seen) => seen.follow(name, node, state.at, &mut told),
                None if node.offer == Offer::Unknown && !node.reserved => {}
                None => {
                    let mut seen = Seen::first(node, state.at);
                    seen.follow(name, node, state.at, &mut told);
                    self.nodes.insert(name.clone(), seen);
                }
            }
        }
        let mut told = told.in_lines();
        self.nodes.retain(|name, _| {
            let stays = state.nodes.contains_key(name);
            if !stays {
                told.push((Tone::Warn, format!("{name} is gone")));
            }
            stays
        });
        self.workloads(&state.workloads, &mut told);
        self.plan(&state.plan, state.at, &mut told);
        self.extender(state.extender_silent.as_deref(), &mut told);
        self.budget(state, &mut told);
        self.waiting(state, &mut told);
        told.into_iter().map(|(tone, text)| Line { at: state.at, tone, text }).collect()
    }

    fn workloads(&mut self, now: &BTreeMap<String, Workload>, told: &mut Vec<(Tone, String)>) {
        for (name, workload) in now {
            if self.workloads.get(name) == Some(workload) {
                continue;
            }
            let Workload { intensity, sensitivity } = workload;
            told.push((
                Tone::Plain,
                format!(
                    "{name} is classified: it works processors with {intensity} intensity, and its sensitivity to caps is {sensitivity}"
                ),
            ));
            self.workloads.insert(name.clone(), workload.clone());
        }
    }

    fn plan(&mut self, plan: &Plan, at: Duration, told: &mut Vec<(Tone, String)>) {
        let silent = plan.age.is_some_and(|age| age > PLAN_SILENT);
        match (self.silent_since, silent) {
            (None, true) => {
                self.silent_since = Some(at.saturating_sub(plan.age.unwrap_or_default()));
                let age = seconds(plan.age.unwrap_or_default());
                told.push((
                    Tone::Warn,
                    format!("nobody has planned for {age}: caps and labels stay as they are"),
                ));
            }
            (Some(since), false) => {
                self.silent_since = None;
                told.push((
                    Tone::Good,
                    format!("somebody plans again, after {}", seconds(at.saturating_sub(since))),
                ));
            }
            (None, false) | (Some(_), true) => {}
        }
        if plan.leader != self.leader {
            match &plan.leader {
                Some(leader) => told.push((Tone::Plain, format!("{leader} leads the operators"))),
                None => told.push((Tone::Warn, "no operator leads".to_owned())),
            }
            self.leader.clone_from(&plan.leader);
        }
    }

    fn extender(&mut self, silent: Option<&str>, told: &mut Vec<(Tone, String)>) {
        match silent {
            Some(why) if !self.extender_silent => {
                told.push((Tone::Warn, format!("the extender does not answer, pods wait: {why}")));
            }
            None if self.extender_silent => told.push((Tone::Good, "the extender answers again".to_owned())),
            Some(_) | None => {}
        }
        self.extender_silent = silent.is_some();
    }

    fn budget(&mut self, state: &State, told: &mut Vec<(Tone, String)>) {
        let (Some(power), Some(budget)) = (state.power(), state.budget) else { return };
        let above = power > budget;
        if above && !self.above {
            told.push((Tone::Bad, format!("the site draws {power:.0} W of a budget of {budget:.0} W")));
        } else if !above && self.above {
            told.push((
                Tone::Good,
                format!("the site is inside its budget again: {power:.0} W of {budget:.0} W"),
            ));
        }
        self.above = above;
    }

    fn waiting(&mut self, state: &State, told: &mut Vec<(Tone, String)>) {
        let starved = state.pods.waiting_performance >= 3;
        if starved && !self.starved {
            let waiting = state.pods.waiting_performance;
            told.push((
                Tone::Plain,
                format!(
                    "{waiting} performance pods wait for a performance node; the operator takes them into account"
                ),
            ));
        }
        // Report it again only after no performance pod waited.
        self.starved = starved || (self.starved && state.pods.waiting_performance > 0);
    }
}

pub(crate) fn seconds(span: Duration) -> String {
    let tenths = (span.as_millis() + 50) / 100;
    format!("{}.{} s", tenths / 10, tenths % 10)
}

/// The state of a cap, from the request and the answer.
pub(crate) fn standing(device: &Device, answered: bool, refused: Option<&str>) -> Standing {
    match (device.asked, device.in_force, refused) {
        (_, _, Some(why)) => Standing::Refused(why.to_owned()),
        (None, None, None) => Standing::Free,
        (None, Some(_), None) | (Some(_), None, None) => Standing::Asked,
        (Some(_), Some(_), None) if !answered => Standing::Asked,
        // A device rounds to its own steps, of at most an eighth of a watt.
        (Some(asked), Some(is), None) if (asked - is).abs() <= Watts::from_int(1) => Standing::InForce,
        (Some(_), Some(_), None) => Standing::Clamped,
    }
}

#[cfg(test)]
mod tests;
