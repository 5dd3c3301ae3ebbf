//! PowerEvents: a PowerBudget that binds nobody by its watts and is armed for two events. Judged here, node by node: an agent
//! that has heard of an event keeps to what it leaves while it is on, with or without an operator and the API server.

use crate::clock::wall;
use crate::process::Who;
use crate::run::World;
use serde_json::{Value, json};
use simulator::fleet::Member;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The events, and what each leaves of the way from the floors to the most, for every class.
const EVENTS: [(&str, f64); 2] = [("grid", 0.5), ("feed", 0.2)];
/// The watts of the budget, which no node reaches.
const HIGH: f64 = 1_000_000.0;
/// An agent that reaches the API server for so long has heard of an event.
const HEARS_AFTER: Duration = Duration::from_secs(20);
/// An agent that has just started holds what it knows after this time, and one that runs after that one: agents look at a
/// machine over HTTP each 5 s.
const STARTS_IN: Duration = Duration::from_secs(30);
const FOLLOWS_IN: Duration = Duration::from_secs(20);
/// Limits are rounded for each device.
const SLACK_WATTS: f64 = 1.0;

/// When an event is on.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct EventTimes {
    pub(crate) name: String,
    /// Its place in the list of events.
    pub(crate) kind: usize,
    pub(crate) starts: Duration,
    pub(crate) ends: Duration,
    /// The object says both times; else it is on from its creation until it is deleted.
    pub(crate) is_timed: bool,
}

impl EventTimes {
    /// How many events there are to choose from.
    pub(crate) const KINDS: usize = EVENTS.len();

    fn event(&self) -> (&'static str, f64) {
        EVENTS.get(self.kind).copied().unwrap_or(("none", 1.0))
    }

    fn spec(&self) -> Value {
        let (event, _) = self.event();
        match self.is_timed {
            true => {
                json!({"event": event, "start": wall(self.starts).to_string(), "end": wall(self.ends).to_string()})
            }
            false => json!({"event": event}),
        }
    }
}

/// The budget that is armed.
pub(crate) fn budget() -> Value {
    let rule = |(event, share): (&str, f64)| json!({"event": event, "shares": {"performance": share, "draining": share, "eco": share}});
    json!({
        "apiVersion": "joulie.io/v1alpha1", "kind": "PowerBudget", "metadata": {"name": "hall"},
        "spec": {"watts": HIGH, "mode": "enforce", "armed": EVENTS.map(rule)},
    })
}

/// What is known of an agent.
#[derive(Debug, Default)]
struct Listener {
    /// Its number, and since when it runs.
    runs: Option<(u32, Duration)>,
    /// Since when it reaches the API server.
    hears: Option<Duration>,
}

/// What events add to an hour.
#[derive(Debug, Default)]
pub(crate) struct ArmedHour {
    agents: BTreeMap<String, Listener>,
    events: BTreeMap<String, Announced>,
}

/// An event, and what became of it.
#[derive(Debug)]
struct Announced {
    event: EventTimes,
    at: Duration,
    /// The nodes whose agents have heard of it.
    known: BTreeSet<String>,
    /// Those that were found above what it leaves.
    above: BTreeSet<String>,
}

impl ArmedHour {
    /// An event is announced.
    pub(crate) fn begins(&mut self, event: EventTimes, at: Duration) {
        let (known, above) = (BTreeSet::new(), BTreeSet::new());
        self.events.insert(event.name.clone(), Announced { event, at, known, above });
    }

    /// Takes in whether the agent of a node runs, as the start of this number, and whether it reaches the API server.
    fn see(&mut self, node: &str, runs: Option<u32>, hears: bool, now: Duration) {
        let agent = self.agents.entry(node.to_owned()).or_default();
        let same = |number: u32| agent.runs.filter(|(known, _)| *known == number);
        let runs = runs.map(|number| same(number).unwrap_or((number, now)));
        let is_same = runs.is_some() && runs == agent.runs;
        agent.hears = hears.then(|| agent.hears.filter(|_| is_same).unwrap_or(now));
        agent.runs = runs;
        let Some(hears) = agent.hears else { return };
        for Announced { event, at, known, .. } in self.events.values_mut() {
            // One without times is deleted when it ends.
            if now >= hears.max(*at) + HEARS_AFTER && now < event.ends {
                known.insert(node.to_owned());
            }
        }
    }

    /// The events that a node must keep to now, each with its share.
    fn due(&self, node: &str, now: Duration) -> Vec<(String, f64)> {
        let runs = self.agents.get(node).and_then(|agent| agent.runs);
        if runs.is_none_or(|(_, since)| now < since + STARTS_IN) {
            return Vec::new();
        }
        let is_on = |event: &EventTimes| now >= event.starts + FOLLOWS_IN && now < event.ends;
        let all = self.events.values().filter(|it| is_on(&it.event) && it.known.contains(node));
        all.map(|it| (it.event.name.clone(), it.event.event().1)).collect()
    }
}

/// What a share leaves of a machine.
fn left(member: &Member, share: f64) -> f64 {
    let hardware = &member.hardware;
    let each = |(low, high): (f64, f64)| low + share * (high - low);
    let boards = hardware.gpus.as_ref().map_or(0.0, |gpus| f64::from(gpus.count) * each(gpus.cap));
    f64::from(hardware.sockets) * each(hardware.package_cap) + boards
}

impl World {
    /// An event is announced.
    pub(crate) async fn announce(&mut self, event: EventTimes) {
        self.scene.count("power events");
        self.scene.remark(format!("** {event:?}"));
        let done = self.cluster.power_event(&event.name, &event.spec()).await;
        self.note(done);
        let now = self.scene.now();
        if let Some(armed) = &mut self.armed {
            armed.begins(event, now);
        }
    }

    /// Compares what each node holds with what the events leave of it.
    pub(crate) fn see_events(&mut self) {
        let Some(mut armed) = self.armed.take() else { return };
        let now = self.scene.now();
        for member in self.members.clone() {
            let who = Who::Agent(member.name.clone());
            let (runs, hears) = self.agent(&who);
            armed.see(&member.name, runs, hears, now);
            let held = self.scene.held(&member.name);
            for (name, share) in armed.due(&member.name, now) {
                self.scene.count("nodes seen in events");
                let most = left(&member, share) + SLACK_WATTS;
                let found = armed.events.get_mut(&name).filter(|_| held > most);
                if found.is_some_and(|it| it.above.insert(member.name.clone())) {
                    let why =
                        format!("{} holds {held:.0} W of {most:.0} W in {name} at {now:.1?}", member.name);
                    self.scene.remark(format!("!! {why}"));
                    self.failures.push(why);
                }
            }
        }
        self.armed = Some(armed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_node_is_judged_once_its_agent_has_heard_of_an_event_and_while_it_runs() {
        let mut armed = ArmedHour::default();
        let (name, kind) = ("one".to_owned(), 0);
        armed.begins(EventTimes { name, kind, starts: s(100), ends: s(200), is_timed: true }, s(0));
        let mut due = |second, runs, hears| {
            armed.see("a", runs, hears, s(second));
            armed.due("a", s(second)).len()
        };
        assert_eq!(due(60, Some(1), true), 0);
        assert_eq!(due(80, Some(1), true), 0, "it has heard of it and runs, and it is not on");
        assert_eq!(due(119, Some(1), false), 0, "it may take 20 s");
        assert_eq!(due(120, Some(1), false), 1, "it is cut off, and knows it");
        assert_eq!(due(130, None, false), 0, "it does not run");
        assert_eq!(due(131, Some(2), false), 0);
        assert_eq!(due(160, Some(2), false), 0);
        assert_eq!(due(161, Some(2), false), 1, "it knows it from its disk");
        assert_eq!(due(200, Some(2), false), 0, "it is over");
        let (name, kind) = ("two".to_owned(), 1);
        armed.begins(EventTimes { name, kind, starts: s(200), ends: s(300), is_timed: false }, s(200));
        armed.see("a", Some(2), false, s(250));
        assert!(armed.due("a", s(250)).is_empty(), "it was cut off when the event came");
        armed.see("a", Some(2), true, s(300));
        let (name, kind) = ("three".to_owned(), 0);
        armed.begins(EventTimes { name, kind, starts: s(440), ends: s(500), is_timed: true }, s(400));
        armed.see("a", Some(2), true, s(405));
        armed.see("a", Some(2), false, s(410));
        assert!(armed.due("a", s(470)).is_empty(), "it was cut off before it must have heard of it");
    }
}
