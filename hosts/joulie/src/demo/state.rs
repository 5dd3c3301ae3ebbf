//! The state of the demo's cluster at one moment. `observe` collects it, `events` derives events from it, `summary`
//! counts it and `view` draws it. Nothing here does I/O or reads a clock.
//!
//! An unknown value is `None` and is shown as unknown, never as 0.

use power_units::{Celsius, Watts};
use std::collections::BTreeMap;
use std::time::Duration;

/// Everything at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct State {
    /// The time since the demo began.
    pub(crate) at: Duration,
    pub(crate) budget: Option<Watts>,
    /// By name.
    pub(crate) nodes: BTreeMap<String, Node>,
    pub(crate) pods: Pods,
    /// What is known of workloads with a controller, by namespace, kind and name.
    pub(crate) workloads: BTreeMap<String, Workload>,
    pub(crate) plan: Plan,
    /// Why the extender did not answer the last request.
    pub(crate) extender_silent: Option<String>,
    /// The newest last.
    pub(crate) placements: Vec<Placement>,
}

/// A node.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Node {
    /// Its hardware in words.
    pub(crate) kind: String,
    /// Its cooling zone.
    pub(crate) zone: Option<String>,
    pub(crate) offer: Offer,
    /// Whether a person excludes it from every plan.
    pub(crate) reserved: bool,
    /// Whether a person has set its caps, which the operator then leaves alone.
    pub(crate) by_hand: bool,
    pub(crate) ready: bool,
    /// The last measurement of its agent.
    pub(crate) power: Option<Watts>,
    /// The most that it can draw.
    pub(crate) most: Option<Watts>,
    pub(crate) cpu: Device,
    pub(crate) gpu: Device,
    pub(crate) temperature: Option<Celsius>,
    /// The most that its packages and GPUs may be allowed together, by its grant under the budget.
    pub(crate) grant: Option<Watts>,
    /// Why its pods would better run elsewhere, and which.
    pub(crate) advice: Option<Advice>,
    pub(crate) telemetry: Telemetry,
    /// The extender's score for a standard pod.
    pub(crate) score: Option<i64>,
    pub(crate) running: u32,
    /// How many of the running pods are performance pods.
    pub(crate) performance: u32,
}

/// What the classifier says of a workload that it trusts, each in a word.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Workload {
    /// How hard it works processors.
    pub(crate) intensity: String,
    /// How much a cap of the processors would hurt it.
    pub(crate) sensitivity: String,
}

/// The recommendation of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Advice {
    /// The reason, in words.
    pub(crate) why: String,
    /// How many pods are named.
    pub(crate) pods: usize,
    /// The first of them, and a node that could take it.
    pub(crate) first: Option<(String, Option<String>)>,
}

/// What a node offers to pods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Offer {
    Performance,
    Eco,
    /// It is becoming an eco node, and performance pods still run there.
    Draining,
    #[default]
    Unknown,
}

impl Offer {
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Performance => "performance",
            Self::Eco => "eco",
            Self::Draining => "draining",
            Self::Unknown => "unknown",
        }
    }
}

/// The caps of one kind of device in a node. Caps are for each package, or for each GPU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Device {
    pub(crate) count: u32,
    pub(crate) asked: Option<Watts>,
    /// The limit that was read back; `None` if no cap is in force or it is unknown.
    pub(crate) in_force: Option<Watts>,
    pub(crate) standing: Standing,
}

/// The state of a cap.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Standing {
    /// No cap is requested and none is in force.
    #[default]
    Free,
    /// Requested, and not reported yet.
    Asked,
    /// Read back as requested.
    InForce,
    /// The device holds another value than requested, which was read back.
    Clamped,
    /// The node's grant allows less than requested, and that was read back.
    Granted,
    /// Not in force, with the reason.
    Refused(String),
}

/// Whether a node's readings are reliable.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Telemetry {
    Fresh,
    /// They are old or missing, with the reason.
    Stale(String),
    /// Not reported yet.
    #[default]
    Unknown,
}

/// The counts of all pods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pods {
    pub(crate) waiting: u32,
    /// How many of the waiting pods are performance pods.
    pub(crate) waiting_performance: u32,
    pub(crate) running: u32,
    pub(crate) ended: u32,
    pub(crate) failed: u32,
    /// Performance pods that run on an eco node and were placed there after it became one.
    pub(crate) misplaced: u32,
}

/// The leading operator, and the age of its plan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) leader: Option<String>,
    /// The time since the plan's Lease was last seen to be renewed.
    pub(crate) age: Option<Duration>,
    pub(crate) policy: Option<String>,
}

/// A pod that was placed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Placement {
    pub(crate) at: Duration,
    pub(crate) namespace: String,
    pub(crate) pod: String,
    pub(crate) performance: bool,
    pub(crate) node: String,
    /// How long it had waited.
    pub(crate) waited: Duration,
    pub(crate) why: String,
}

impl State {
    /// The total power of all nodes; `None` if the power of one is unknown.
    pub(crate) fn power(&self) -> Option<Watts> {
        let all = self.nodes.values().map(|node| node.power).collect::<Option<Vec<_>>>()?;
        Watts::checked_sum(all).filter(|_| !self.nodes.is_empty())
    }

    /// The total power of the known nodes, and the number of the others.
    pub(crate) fn power_known(&self) -> (Watts, usize) {
        let known: Vec<Watts> = self.nodes.values().filter_map(|node| node.power).collect();
        let unknown = self.nodes.len() - known.len();
        (Watts::checked_sum(known).unwrap_or(Watts::ZERO), unknown)
    }

    pub(crate) fn offering(&self, offer: Offer) -> usize {
        self.nodes.values().filter(|node| node.offer == offer).count()
    }
}

impl Node {
    /// Notes the grant of the node. Where less is in force than was asked, it is the grant that holds it: hardware that
    /// does not take a cap takes a higher one.
    pub(crate) fn hold_by(&mut self, grant: Option<Watts>) {
        self.grant = grant;
        for device in [&mut self.cpu, &mut self.gpu] {
            if device.standing == Standing::Clamped && grant.is_some() && device.in_force < device.asked {
                device.standing = Standing::Granted;
            }
        }
    }

    /// The kinds of devices that the node has, with their names.
    pub(crate) fn devices(&self) -> impl Iterator<Item = (&'static str, &Device)> {
        [("package", &self.cpu), ("GPU", &self.gpu)].into_iter().filter(|(_, device)| device.count > 0)
    }
}

/// Makes foreign text safe for a terminal: one line, printable, no escape sequences.
pub(crate) fn clean(text: &str) -> String {
    let printable = |c: char| if c.is_ascii_graphic() || c == ' ' { c } else { '?' };
    text.split_whitespace().collect::<Vec<_>>().join(" ").chars().map(printable).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_is_not_known_makes_the_sum_unknown_and_not_smaller() {
        let node = |power| Node { power, ..Node::default() };
        let mut state = State::default();
        assert_eq!(state.power(), None);
        state.nodes.insert("a".to_owned(), node(Some(Watts::from_int(100))));
        assert_eq!(state.power(), Some(Watts::from_int(100)));
        state.nodes.insert("b".to_owned(), node(None));
        assert_eq!(state.power(), None);
        assert_eq!(state.power_known(), (Watts::from_int(100), 1));
    }

    #[test]
    fn text_from_outside_moves_no_cursor() {
        assert_eq!(clean("a\x1b[2J\r\n b\u{9b}31m ü\0"), "a?[2J b?31m ??");
    }
}
