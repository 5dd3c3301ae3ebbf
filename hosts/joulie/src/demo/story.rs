//! What happened, a line for each event, from what is known before and after. No I/O and no clock.
//!
//! A change of a node's profile or cap is told once its outcome is known (what was asked, what was read back), or when
//! that has not come for some seconds; the outcome is then told when it comes.

use super::state::{Device, Node, Offer, Plan, Standing, State, Telemetry};
use power_units::Watts;
use std::collections::BTreeMap;
use std::time::Duration;

/// How a line is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tone {
    /// As it should be.
    Good,
    /// Worth knowing.
    Plain,
    /// Something does not hold, and the system deals with it.
    Warn,
    /// What must not be.
    Bad,
    /// What the demo does to the system.
    Chaos,
}

/// An event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Line {
    pub(crate) at: Duration,
    pub(crate) tone: Tone,
    pub(crate) text: String,
}

/// An outcome that has not come for so long is told as missing: an agent needs a fraction of a second.
const OUTCOME_WITHIN: Duration = Duration::from_secs(3);
/// A leader renews the plan's Lease at least each half minute; the demo's operator does so each second or two.
pub(crate) const PLAN_SILENT: Duration = Duration::from_secs(6);

/// What was told, so that it is told once.
#[derive(Debug, Default)]
pub(crate) struct Story {
    nodes: BTreeMap<String, Seen>,
    leader: Option<String>,
    silent_since: Option<Duration>,
    above: bool,
    starved: bool,
}

/// A node as it was last told.
#[derive(Debug)]
struct Seen {
    offer: Offer,
    asked: [Option<Watts>; 2],
    change: Option<Change>,
    reserved: bool,
    by_hand: bool,
    stale: bool,
    ready: bool,
}

/// A change whose outcome is awaited.
#[derive(Debug)]
struct Change {
    since: Duration,
    /// The offer is what changed, and not the cap alone.
    offer: bool,
    complained: bool,
}

impl Story {
    /// What there is to tell now.
    pub(crate) fn go_on(&mut self, state: &State) -> Vec<Line> {
        let mut told = Vec::new();
        for (name, node) in &state.nodes {
            match self.nodes.get_mut(name) {
                Some(seen) => follow(seen, name, node, state.at, &mut told),
                None if node.offer == Offer::Unknown && !node.reserved => {}
                None => {
                    let mut seen = Seen::first(node, state.at);
                    follow(&mut seen, name, node, state.at, &mut told);
                    self.nodes.insert(name.clone(), seen);
                }
            }
        }
        self.nodes.retain(|name, _| {
            let stays = state.nodes.contains_key(name);
            if !stays {
                told.push((Tone::Warn, format!("{name} is gone")));
            }
            stays
        });
        self.plan(&state.plan, state.at, &mut told);
        self.budget(state, &mut told);
        self.waiting(state, &mut told);
        told.into_iter().map(|(tone, text)| Line { at: state.at, tone, text }).collect()
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
                    "{waiting} performance pods wait rather than go to an eco node: the plan hears of it"
                ),
            ));
        }
        // Said again only after the queue has been empty.
        self.starved = starved || (self.starved && state.pods.waiting_performance > 0);
    }
}

impl Seen {
    fn first(node: &Node, at: Duration) -> Self {
        Self {
            offer: node.offer,
            asked: asked(node),
            change: Some(Change { since: at, offer: true, complained: false }),
            reserved: false,
            by_hand: false,
            stale: false,
            ready: true,
        }
    }
}

const fn asked(node: &Node) -> [Option<Watts>; 2] {
    [node.cpu.asked, node.gpu.asked]
}

fn follow(seen: &mut Seen, name: &str, node: &Node, at: Duration, told: &mut Vec<(Tone, String)>) {
    whereabouts(seen, name, node, told);
    if node.offer != seen.offer || asked(node) != seen.asked {
        let offer = node.offer != seen.offer || seen.change.as_ref().is_some_and(|change| change.offer);
        // Between eco and draining only the pods there differ; the cap stays.
        if node.offer == Offer::Eco && seen.offer == Offer::Draining && asked(node) == seen.asked {
            told.push((Tone::Good, format!("{name} is eco now: its last performance pod has ended")));
        } else {
            seen.change = Some(Change { since: at, offer, complained: false });
        }
        (seen.offer, seen.asked) = (node.offer, asked(node));
    }
    let Some(change) = &mut seen.change else { return };
    let waited = at.saturating_sub(change.since);
    match outcome(node) {
        Some((tone, outcome)) => {
            told.push((tone, format!("{name} {}: {outcome}{}", what(change.offer, node), after(waited))));
            seen.change = None;
        }
        None if waited >= OUTCOME_WITHIN && !change.complained => {
            change.complained = true;
            let text = format!("{name} {}: {}", what(change.offer, node), trouble(node));
            told.push((Tone::Warn, text));
        }
        None => {}
    }
}

/// What does not concern the cap.
fn whereabouts(seen: &mut Seen, name: &str, node: &Node, told: &mut Vec<(Tone, String)>) {
    if node.reserved != seen.reserved {
        seen.reserved = node.reserved;
        told.push((
            Tone::Plain,
            if node.reserved {
                format!("{name} is reserved by a person: out of the plan, its caps are released")
            } else {
                format!("{name} is in the plan again")
            },
        ));
    }
    if node.by_hand != seen.by_hand {
        seen.by_hand = node.by_hand;
        told.push((
            Tone::Plain,
            if node.by_hand {
                format!("{name} is capped by a person's hand: the operator leaves that cap alone")
            } else {
                format!("{name} is the operator's to cap again")
            },
        ));
    }
    if node.ready != seen.ready {
        seen.ready = node.ready;
        let (tone, what) =
            if node.ready { (Tone::Good, "is ready again") } else { (Tone::Warn, "is not ready") };
        told.push((tone, format!("{name} {what}")));
    }
    match &node.telemetry {
        Telemetry::Stale(why) if !seen.stale => {
            seen.stale = true;
            told.push((Tone::Warn, format!("{name} cannot be measured: {why}")));
        }
        Telemetry::Fresh if seen.stale => {
            seen.stale = false;
            told.push((Tone::Good, format!("{name} is measured again")));
        }
        Telemetry::Stale(_) | Telemetry::Fresh | Telemetry::Unknown => {}
    }
}

fn what(offer: bool, node: &Node) -> String {
    match (offer, node.offer) {
        (true, Offer::Draining) => match node.performance {
            1 => "drains (1 performance pod still runs there)".to_owned(),
            pods => format!("drains ({pods} performance pods still run there)"),
        },
        (true, offer @ (Offer::Performance | Offer::Eco)) => format!("became {}", offer.word()),
        (true, Offer::Unknown) if node.reserved => "is released".to_owned(),
        (true, Offer::Unknown) => "is not planned for".to_owned(),
        (false, _) => "has another cap".to_owned(),
    }
}

fn after(waited: Duration) -> String {
    if waited < Duration::from_millis(1500) { String::new() } else { format!(" after {}", seconds(waited)) }
}

/// What was read back, once that is known of every device.
fn outcome(node: &Node) -> Option<(Tone, String)> {
    let mut parts = Vec::new();
    let mut tone = Tone::Good;
    for (one, device) in node.devices() {
        match (&device.standing, device.asked, device.in_force) {
            (Standing::Free, None, _) => {}
            (Standing::InForce, Some(asked), Some(is)) => parts.push(caps(one, node, asked, is)),
            (Standing::Clamped, Some(asked), Some(is)) => {
                tone = Tone::Warn;
                parts.push(format!("{}, which is what the {one} takes", caps(one, node, asked, is)));
            }
            _ => return None,
        }
    }
    if parts.is_empty() {
        return Some((Tone::Good, "no cap, its own limits are in force".to_owned()));
    }
    Some((tone, parts.join("; ")))
}

fn caps(one: &str, node: &Node, asked: Watts, is: Watts) -> String {
    // Most nodes have one kind of device that is capped, and then nobody asks which.
    let both = node.cpu.asked.is_some() && node.gpu.asked.is_some();
    let kind = if both || one == "GPU" { format!("{one} cap") } else { "cap".to_owned() };
    format!("{kind} {asked:.0} W asked, {is:.0} W read back")
}

/// Why there is no outcome.
fn trouble(node: &Node) -> String {
    for (one, device) in node.devices() {
        let Some(asked) = device.asked else { continue };
        match &device.standing {
            Standing::Refused(why) => {
                return format!("cap {asked:.0} W asked of each {one}, not in force: {why}");
            }
            Standing::Asked => return format!("cap {asked:.0} W asked of each {one}, nothing read back yet"),
            Standing::Free | Standing::InForce | Standing::Clamped => {}
        }
    }
    "its old caps are still in force".to_owned()
}

pub(crate) fn seconds(span: Duration) -> String {
    let tenths = (span.as_millis() + 50) / 100;
    format!("{}.{} s", tenths / 10, tenths % 10)
}

/// How a cap stands, from what was asked and what was answered.
pub(crate) fn standing(device: &Device, answered: bool, refused: Option<&str>) -> Standing {
    match (device.asked, device.in_force, refused) {
        (_, _, Some(why)) => Standing::Refused(why.to_owned()),
        (None, None, None) => Standing::Free,
        (None, Some(_), None) | (Some(_), None, None) => Standing::Asked,
        (Some(_), Some(_), None) if !answered => Standing::Asked,
        // A device counts in its own steps, of at most an eighth of a watt.
        (Some(asked), Some(is), None) if (asked - is).abs() <= Watts::from_int(1) => Standing::InForce,
        (Some(_), Some(_), None) => Standing::Clamped,
    }
}

#[cfg(test)]
mod tests;
