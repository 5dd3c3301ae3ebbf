//! What is known of the demo's cluster at one moment: facts, gathered by `observe`, told by `events`, counted by `summary`
//! and drawn by `view`. Nothing here does I/O or reads a clock.
//!
//! What is not known is `None` and is shown as such: a number that nobody has is never 0.

use power_units::{Celsius, Watts};
use std::collections::BTreeMap;
use std::time::Duration;

/// Everything at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct State {
    /// Since the demo began.
    pub(crate) at: Duration,
    pub(crate) budget: Option<Watts>,
    /// By their names.
    pub(crate) nodes: BTreeMap<String, Node>,
    pub(crate) pods: Pods,
    pub(crate) plan: Plan,
    /// Why the extender did not answer when it was last asked.
    pub(crate) extender_silent: Option<String>,
    /// The newest last.
    pub(crate) placements: Vec<Placement>,
}

/// A node.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Node {
    /// What it is made of, in words.
    pub(crate) kind: String,
    pub(crate) offer: Offer,
    /// A person keeps it out of every plan.
    pub(crate) reserved: bool,
    /// A person has set its caps; they are left alone.
    pub(crate) by_hand: bool,
    pub(crate) ready: bool,
    /// What its agent has last measured.
    pub(crate) power: Option<Watts>,
    /// What it can draw at most.
    pub(crate) most: Option<Watts>,
    pub(crate) cpu: Device,
    pub(crate) gpu: Device,
    pub(crate) temperature: Option<Celsius>,
    pub(crate) telemetry: Telemetry,
    /// As the extender scores it for a standard pod.
    pub(crate) score: Option<i64>,
    pub(crate) running: u32,
    /// Those of the running pods that are performance pods.
    pub(crate) performance: u32,
}

/// What a node offers to pods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Offer {
    Performance,
    Eco,
    /// It becomes an eco node, and performance pods still run there.
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
    /// What was read back; `None` where no cap is in force or nobody knows.
    pub(crate) in_force: Option<Watts>,
    pub(crate) standing: Standing,
}

/// What has become of a cap.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Standing {
    /// None is asked for and none is in force.
    #[default]
    Free,
    /// Asked for, and nobody has said yet what became of it.
    Asked,
    /// Read back as asked.
    InForce,
    /// The device takes another value than was asked; that one was read back.
    Clamped,
    /// Not in force; why.
    Refused(String),
}

/// Whether a node's readings can be relied on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Telemetry {
    Fresh,
    /// They are old or missing; why.
    Stale(String),
    /// Nobody has said.
    #[default]
    Unknown,
}

/// All pods together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pods {
    pub(crate) waiting: u32,
    /// Those of the waiting pods that are performance pods.
    pub(crate) waiting_performance: u32,
    pub(crate) running: u32,
    pub(crate) ended: u32,
    pub(crate) failed: u32,
    /// Performance pods that run on a node which offers eco, and were placed there after it did.
    pub(crate) misplaced: u32,
}

/// Who plans, and since when nothing was heard of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) leader: Option<String>,
    /// Since the plan's Lease was last seen to be renewed.
    pub(crate) age: Option<Duration>,
    pub(crate) policy: Option<String>,
}

/// A pod that was placed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Placement {
    pub(crate) at: Duration,
    pub(crate) pod: String,
    pub(crate) performance: bool,
    pub(crate) node: String,
    /// How long it had waited.
    pub(crate) waited: Duration,
    pub(crate) why: String,
}

impl State {
    /// What all nodes draw together; `None` while one of them is not known.
    pub(crate) fn power(&self) -> Option<Watts> {
        let all = self.nodes.values().map(|node| node.power).collect::<Option<Vec<_>>>()?;
        Watts::checked_sum(all).filter(|_| !self.nodes.is_empty())
    }

    /// What the nodes draw that are known, and how many are not.
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
    /// The devices that the node has, with how one of them is called.
    pub(crate) fn devices(&self) -> impl Iterator<Item = (&'static str, &Device)> {
        [("package", &self.cpu), ("GPU", &self.gpu)].into_iter().filter(|(_, device)| device.count > 0)
    }
}

/// Text from outside, fit for a terminal: one line, printable, no escape sequences.
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
