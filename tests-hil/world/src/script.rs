//! The events of an hour, drawn from the seed before it starts.

use crate::armed::EventTimes;
use crate::draw::Draw;
use crate::network::Weather;
use crate::process::Who;
use crate::sleep::ControllerFault;
use simulator::faults::ControlFault;
use simulator::fleet::Member;
use std::time::Duration;

/// A kind of events. If a plan leaves out a kind, the other events of its seed stay at the same moments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum EventKind {
    /// Pods are created and deleted.
    Pods,
    /// The site's limit is cut and raised.
    Budgets,
    /// Requests to the API server or their answers are lost, delayed or refused.
    Weather,
    /// Processes are disconnected from the API server.
    Cuts,
    /// Requests of agents to their machines are lost, delayed or refused.
    Roads,
    /// Operators, agents and the extender are killed.
    Kills,
    /// Machines boot, with their agents.
    Reboots,
    /// Devices refuse a limit, or report success without applying it.
    Refusals,
    /// Another program writes to the hardware.
    Rivals,
    /// People cap nodes and hand them back.
    Persons,
    /// Nodes are reserved, deselected, and released again.
    Releases,
    /// Objects of Joulie are deleted.
    Deletions,
    /// Nodes are deleted and registered again, while their machines run on.
    Nodes,
    /// Machines are replaced by others with the same name.
    Machines,
    /// The operators may not write grants for a while, and the limit is cut meanwhile.
    Rights,
    /// The API server is restored to an older state.
    Restores,
    /// Machines boot, some of them replaced by others with the same name, and their agents start minutes later.
    Absences,
    /// Nodes sleep: pods come that wait for a node, and controllers lie, lose orders and are silent. It is no part of [`Self::ALL`],
    /// because the operators have other settings with it.
    Sleeps,
    /// PowerEvents begin and end, at once or at the times that they say. It is no part of [`Self::ALL`], because every operator has a
    /// PowerBudget with it.
    Armed,
}

impl EventKind {
    /// All kinds of an hour without sleep and without armed events.
    pub const ALL: [Self; 17] = [
        Self::Pods,
        Self::Budgets,
        Self::Weather,
        Self::Cuts,
        Self::Roads,
        Self::Kills,
        Self::Reboots,
        Self::Refusals,
        Self::Rivals,
        Self::Persons,
        Self::Releases,
        Self::Deletions,
        Self::Nodes,
        Self::Machines,
        Self::Rights,
        Self::Restores,
        Self::Absences,
    ];

    /// Its name on the command line.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Pods => "pods",
            Self::Budgets => "budgets",
            Self::Weather => "weather",
            Self::Cuts => "cuts",
            Self::Roads => "roads",
            Self::Kills => "kills",
            Self::Reboots => "reboots",
            Self::Refusals => "refusals",
            Self::Rivals => "rivals",
            Self::Persons => "persons",
            Self::Releases => "releases",
            Self::Deletions => "deletions",
            Self::Nodes => "nodes",
            Self::Machines => "machines",
            Self::Rights => "rights",
            Self::Restores => "restores",
            Self::Absences => "absences",
            Self::Sleeps => "sleeps",
            Self::Armed => "armed",
        }
    }
}

/// An event.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Act {
    Kill(Who),
    Start(Who),
    /// The site's limit, interpolated between the lowest and the highest limit of all machines.
    Budget(f64),
    Weather(Who, Weather),
    Road(String, Weather),
    Down(String),
    /// The node controller marks the node as silent.
    Silent(String),
    Up(String),
    Controls(String, ControlFault),
    Rival(String),
    Pod {
        name: String,
        node: String,
        class: &'static str,
    },
    PodEnds(String),
    /// A pod comes that waits for a node, and then runs for so long.
    Job(String, Duration),
    /// A PowerEvent is announced.
    Event(EventTimes),
    /// One without times ends.
    EventEnds(String),
    /// A controller has a fault, or none any more.
    Bmc(String, ControllerFault),
    /// A person's cap of each package, relative to its maximum; `None` hands it back.
    Cap(String, Option<f64>),
    Label {
        node: String,
        key: &'static str,
        value: Option<&'static str>,
    },
    Forget {
        plural: &'static str,
        node: String,
    },
    /// Somebody deletes a Node.
    Unregister(String),
    /// Its kubelet registers it.
    Register(String),
    /// Erases a machine's disk, because the machine was replaced.
    Wipe(String),
    /// Whether the operators may write grants.
    Rights(bool),
    /// Saves the state of the API server.
    Keep,
    /// Restores the last saved state.
    Restore,
}

/// All events of an hour, in the order of time.
pub(crate) struct Script {
    acts: Vec<(Duration, Act)>,
    hour: Duration,
    nodes: Vec<String>,
}

/// There are no events before the first plan is complete, nor in the last minutes, before which all faults are ended.
const BEGIN: u64 = 120_000;
const REST: Duration = Duration::from_secs(240);

impl Script {
    pub(crate) fn of(
        seed: u64,
        hour: Duration,
        members: &[Member],
        kinds: &[EventKind],
    ) -> Vec<(Duration, Act)> {
        let nodes = members.iter().map(|member| member.name.clone()).collect();
        let mut script = Self { acts: Vec::new(), hour, nodes };
        for kind in kinds {
            let mut draw = Draw::new(seed, kind.word());
            script.draw(*kind, &mut draw);
        }
        // Events at the same moment stay in the order of their kinds.
        script.acts.sort_by_key(|(at, _)| *at);
        script.acts
    }

    fn draw(&mut self, kind: EventKind, draw: &mut Draw) {
        match kind {
            EventKind::Pods => self.pods(draw),
            EventKind::Budgets => self.every(draw, 420, |script, at, draw| {
                script.acts.push((at, Act::Budget(0.3 + 0.6 * draw.unit())));
            }),
            EventKind::Weather => self.every(draw, 200, |script, at, draw| {
                let (who, until) = (script.who(draw), at + draw.millis(5_000, 90_000));
                script.acts.push((at, Act::Weather(who.clone(), weather(draw))));
                script.acts.push((until, Act::Weather(who, Weather::default())));
            }),
            EventKind::Cuts => self.every(draw, 500, |script, at, draw| {
                let (who, until) = (script.who(draw), at + draw.millis(2_000, 120_000));
                let cut = Weather { is_cut: true, ..Weather::default() };
                script.acts.push((at, Act::Weather(who.clone(), cut)));
                script.acts.push((until, Act::Weather(who, Weather::default())));
            }),
            EventKind::Roads => self.every(draw, 250, |script, at, draw| {
                let (node, until) = (script.node(draw), at + draw.millis(5_000, 60_000));
                script.acts.push((at, Act::Road(node.clone(), weather(draw))));
                script.acts.push((until, Act::Road(node, Weather::default())));
            }),
            EventKind::Kills => self.every(draw, 150, |script, at, draw| {
                let who = script.who(draw);
                script.acts.push((at, Act::Kill(who.clone())));
                script.acts.push((at + draw.millis(200, 15_000), Act::Start(who)));
            }),
            EventKind::Reboots => {
                self.every(draw, 900, |script, at, draw| script.reboot(at, draw, (500, 8_000)))
            }
            EventKind::Refusals => self.every(draw, 900, |script, at, draw| {
                let controls = [ControlFault::Blocked, ControlFault::Error, ControlFault::Ignored];
                let (node, control) = (script.node(draw), controls[draw.index(controls.len())]);
                script.acts.push((at, Act::Controls(node.clone(), control)));
                script.acts.push((at + draw.millis(10_000, 120_000), Act::Controls(node, ControlFault::Ok)));
            }),
            EventKind::Rivals => self.every(draw, 900, |script, at, draw| {
                let node = script.node(draw);
                script.acts.push((at, Act::Rival(node)));
            }),
            EventKind::Persons => self.every(draw, 700, |script, at, draw| {
                let node = script.node(draw);
                let cap = 0.6 + 0.4 * draw.unit();
                script.acts.push((at, Act::Cap(node.clone(), Some(cap))));
                script.acts.push((at + draw.millis(20_000, 240_000), Act::Cap(node, None)));
            }),
            EventKind::Releases => self.every(draw, 700, |script, at, draw| script.release(at, draw)),
            EventKind::Deletions => self.every(draw, 900, |script, at, draw| {
                let plurals = ["nodepowerprofiles", "nodehardwares", "nodetwins"];
                let (plural, node) = (plurals[draw.index(plurals.len())], script.node(draw));
                script.acts.push((at, Act::Forget { plural, node }));
            }),
            EventKind::Nodes => self.every(draw, 900, |script, at, draw| {
                let node = script.node(draw);
                script.acts.push((at, Act::Unregister(node.clone())));
                script.acts.push((at + draw.millis(1_000, 300_000), Act::Register(node)));
            }),
            EventKind::Machines => {
                self.every(draw, 1_200, |script, at, draw| script.replace(at, draw, (5_000, 20_000)))
            }
            EventKind::Rights => self.every(draw, 900, |script, at, draw| {
                script.acts.push((at, Act::Rights(false)));
                script.acts.push((at + draw.millis(0, 5_000), Act::Budget(0.2 + 0.6 * draw.unit())));
                script.acts.push((at + draw.millis(10_000, 90_000), Act::Rights(true)));
            }),
            EventKind::Restores => self.every(draw, 900, |script, at, draw| {
                script.acts.push((at, Act::Keep));
                script.acts.push((at + draw.millis(5_000, 240_000), Act::Restore));
            }),
            EventKind::Sleeps => {
                self.every(draw, 45, |script, at, draw| {
                    let lasts = draw.millis(20_000, 240_000);
                    script.acts.push((at, Act::Job(format!("job-{}", at.as_millis()), lasts)));
                });
                self.every(draw, 240, |script, at, draw| {
                    let fault = ControllerFault::ALL[draw.index(ControllerFault::ALL.len())];
                    let node = script.node(draw);
                    script.acts.push((at, Act::Bmc(node.clone(), fault)));
                    script
                        .acts
                        .push((at + draw.millis(20_000, 400_000), Act::Bmc(node, ControllerFault::None)));
                });
            }
            EventKind::Armed => self.every(draw, 200, |script, at, draw| {
                let (kind, is_timed) = (draw.index(EventTimes::KINDS), draw.permille(500));
                let waits = if is_timed { draw.millis(30_000, 90_000) } else { Duration::ZERO };
                let starts = at + waits;
                let ends = (starts + draw.millis(40_000, 240_000)).min(script.hour.saturating_sub(REST));
                if ends <= starts {
                    return;
                }
                let name = format!("event-{}", at.as_millis());
                let event = EventTimes { name: name.clone(), kind, starts, ends, is_timed };
                script.acts.push((at, Act::Event(event)));
                if !is_timed {
                    script.acts.push((ends, Act::EventEnds(name)));
                }
            }),
            EventKind::Absences => self.every(draw, 1_200, |script, at, draw| match draw.permille(500) {
                true => script.reboot(at, draw, (60_000, 240_000)),
                false => script.replace(at, draw, (60_000, 240_000)),
            }),
        }
    }

    /// Repeats an event with this mean interval in seconds.
    fn every(&mut self, draw: &mut Draw, seconds: u64, act: impl Fn(&mut Self, Duration, &mut Draw)) {
        let end = self.hour.saturating_sub(REST);
        let mut at = Duration::from_millis(BEGIN) + draw.millis(0, seconds * 1000);
        while at < end {
            act(self, at, draw);
            at += draw.millis(1_000, seconds * 2_000);
        }
        // All faults are over at the end.
        for (at, _) in &mut self.acts {
            *at = (*at).min(end);
        }
    }

    fn node(&self, draw: &mut Draw) -> String {
        self.nodes.get(draw.index(self.nodes.len())).cloned().unwrap_or_default()
    }

    /// A program; an operator in half of the draws.
    fn who(&self, draw: &mut Draw) -> Who {
        match draw.below(10) {
            0..=4 => Who::Operator(if draw.permille(500) { 'a' } else { 'b' }),
            5..=8 => Who::Agent(self.node(draw)),
            _ => Who::Extender,
        }
    }

    /// Boots a machine. Its agent starts within this range of milliseconds after the machine.
    fn reboot(&mut self, at: Duration, draw: &mut Draw, (soonest, latest): (u64, u64)) {
        let node = self.node(draw);
        let agent = Who::Agent(node.clone());
        let up = at + draw.millis(5_000, 90_000);
        self.acts.push((at, Act::Kill(agent.clone())));
        self.acts.push((at, Act::Down(node.clone())));
        // The timeout of the node controller.
        if up > at + Duration::from_secs(40) {
            self.acts.push((at + Duration::from_secs(40), Act::Silent(node.clone())));
        }
        self.acts.push((up, Act::Up(node)));
        self.acts.push((up + draw.millis(soonest, latest), Act::Start(agent)));
    }

    /// Replaces a machine by one with the same name: its Node is a new one, and its disk is empty.
    fn replace(&mut self, at: Duration, draw: &mut Draw, (soonest, latest): (u64, u64)) {
        let node = self.node(draw);
        let agent = Who::Agent(node.clone());
        let up = at + draw.millis(20_000, 240_000);
        self.acts.push((at, Act::Kill(agent.clone())));
        self.acts.push((at, Act::Down(node.clone())));
        self.acts.push((at + draw.millis(1_000, 15_000), Act::Unregister(node.clone())));
        self.acts.push((up, Act::Wipe(node.clone())));
        self.acts.push((up, Act::Up(node)));
        self.acts.push((up + draw.millis(soonest, latest), Act::Start(agent)));
    }

    fn release(&mut self, at: Duration, draw: &mut Draw) {
        let (node, until) = (self.node(draw), at + draw.millis(10_000, 240_000));
        let (key, there, back) = match draw.permille(500) {
            true => ("joulie.io/reserved", Some("true"), None),
            false => ("joulie.io/managed", None, Some("true")),
        };
        self.acts.push((at, Act::Label { node: node.clone(), key, value: there }));
        self.acts.push((until, Act::Label { node, key, value: back }));
    }

    fn pods(&mut self, draw: &mut Draw) {
        self.every(draw, 60, |script, at, draw| {
            let (node, until) = (script.node(draw), at + draw.millis(20_000, 400_000));
            let class = if draw.permille(500) { "performance" } else { "standard" };
            let name = format!("pod-{}", at.as_millis());
            script.acts.push((at, Act::Pod { name: name.clone(), node, class }));
            script.acts.push((until, Act::PodEnds(name)));
        });
    }
}

/// Fault rates with one or several kinds of faults.
fn weather(draw: &mut Draw) -> Weather {
    let mut some = |most: u64| if draw.permille(500) { draw.below(most) } else { 0 };
    Weather {
        requests_lost: some(400),
        answers_lost: some(400),
        slow: some(600),
        refused: some(400),
        is_cut: false,
    }
}
