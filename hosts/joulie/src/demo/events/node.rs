//! The events of one node: its offer, its caps and their outcome, and the effects of a person or a fault. Each is
//! reported once.

use super::{Told, Tone, seconds};
use crate::demo::state::{Advice, Node, Offer, Standing, Telemetry};
use power_units::Watts;
use std::time::Duration;

/// An outcome that is missing for this long is reported as missing: an agent needs a fraction of a second.
const OUTCOME_WITHIN: Duration = Duration::from_secs(3);
/// For this time a node without a requested cap may just not have received one yet.
const ASKED_WITHIN: Duration = Duration::from_secs(1);
/// For this time a new node without readings is not reported.
const MEASURED_WITHIN: Duration = Duration::from_secs(5);

/// The last reported state of a node.
#[derive(Debug)]
pub(super) struct Seen {
    offer: Offer,
    asked: [Option<Watts>; 2],
    change: Option<Change>,
    reserved: bool,
    by_hand: bool,
    stale: bool,
    /// Since when it has had no fresh readings: since the last fresh one, or since it was first seen.
    stale_since: Option<Duration>,
    ready: bool,
    /// Whether it was told that pods would better run elsewhere.
    advised: bool,
}

/// A change whose outcome is not known yet.
#[derive(Debug)]
struct Change {
    since: Duration,
    /// Whether the offer changed, and not only the cap.
    offer: bool,
    complained: bool,
}

impl Seen {
    /// The state of a node that is seen for the first time.
    pub(super) fn first(node: &Node, at: Duration) -> Self {
        Self {
            offer: node.offer,
            asked: asked(node),
            change: Some(Change { since: at, offer: true, complained: false }),
            reserved: false,
            by_hand: false,
            stale: false,
            stale_since: Some(at),
            ready: true,
            advised: false,
        }
    }

    /// Reports the changes since the last call.
    pub(super) fn follow(&mut self, name: &str, node: &Node, at: Duration, told: &mut Told) {
        self.whereabouts(name, node, told);
        self.advice(name, node, told);
        self.readings(name, node, at, told);
        if node.offer != self.offer || asked(node) != self.asked {
            let offer = node.offer != self.offer || self.change.as_ref().is_some_and(|change| change.offer);
            // Eco and draining differ only in the running pods; the cap stays.
            if node.offer == Offer::Eco && self.offer == Offer::Draining && asked(node) == self.asked {
                told.say(Tone::Good, format!("{name} is eco now: its last performance pod has ended"));
            } else {
                self.change = Some(Change { since: at, offer, complained: false });
            }
            (self.offer, self.asked) = (node.offer, asked(node));
        }
        let Some(change) = &mut self.change else { return };
        let waited = at.saturating_sub(change.since);
        let unasked = change.offer && asked(node) == [None; 2] && waited < ASKED_WITHIN;
        match outcome(node).filter(|_| !unasked) {
            Some((tone, outcome)) => {
                let text = format!("{name} {}: {outcome}{}", what(change.offer, node), after(waited));
                if tone == Tone::Good && !change.offer {
                    told.recapped.push(text);
                } else {
                    told.say(tone, text);
                }
                self.change = None;
            }
            None if waited >= OUTCOME_WITHIN && !change.complained => {
                change.complained = true;
                told.say(Tone::Warn, format!("{name} {}: {}", what(change.offer, node), trouble(node)));
            }
            None => {}
        }
    }

    /// Reports changes that do not concern the cap.
    fn whereabouts(&mut self, name: &str, node: &Node, told: &mut Told) {
        if node.reserved != self.reserved {
            self.reserved = node.reserved;
            told.say(
                Tone::Plain,
                if node.reserved {
                    format!("{name} is reserved by a person: out of the plan, its caps are released")
                } else {
                    format!("{name} is in the plan again")
                },
            );
        }
        if node.by_hand != self.by_hand {
            self.by_hand = node.by_hand;
            told.say(
                Tone::Plain,
                if node.by_hand {
                    format!("{name} is capped by a person's hand: the operator leaves that cap alone")
                } else {
                    format!("{name} is the operator's to cap again")
                },
            );
        }
        if node.ready != self.ready {
            self.ready = node.ready;
            let (tone, what) =
                if node.ready { (Tone::Good, "is ready again") } else { (Tone::Warn, "is not ready") };
            told.say(tone, format!("{name} {what}"));
        }
    }

    /// A recommendation is told once, and again when it is over.
    fn advice(&mut self, name: &str, node: &Node, told: &mut Told) {
        match &node.advice {
            Some(Advice { why, pods, first }) if !self.advised => {
                let better = match (pods, first) {
                    (0, _) | (_, None) => "none of its pods may be moved".to_owned(),
                    (_, Some((pod, Some(to)))) => format!("{pod} would better run on {to}"),
                    (_, Some((pod, None))) => format!("{pod} would better run elsewhere"),
                };
                let others = match pods {
                    0 | 1 => String::new(),
                    more => format!(", and {} more", more - 1),
                };
                told.say(Tone::Warn, format!("{name}: {why}; {better}{others}"));
            }
            None if self.advised => {
                told.say(Tone::Good, format!("{name}: no pod is recommended to leave any more"));
            }
            Some(_) | None => {}
        }
        self.advised = node.advice.is_some();
    }

    /// A loss of readings is reported at once; a new node has some time before it is reported.
    fn readings(&mut self, name: &str, node: &Node, at: Duration, told: &mut Told) {
        match &node.telemetry {
            Telemetry::Fresh => {
                if self.stale {
                    told.say(Tone::Good, format!("{name} is measured again"));
                }
                (self.stale, self.stale_since) = (false, None);
            }
            Telemetry::Stale(why) if !self.stale => {
                let begun = self.stale_since.is_none_or(|since| at.saturating_sub(since) >= MEASURED_WITHIN);
                if begun {
                    self.stale = true;
                    told.say(Tone::Warn, format!("{name} cannot be measured: {why}"));
                }
            }
            Telemetry::Stale(_) | Telemetry::Unknown => {}
        }
    }
}

const fn asked(node: &Node) -> [Option<Watts>; 2] {
    [node.cpu.asked, node.gpu.asked]
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

/// The limits that were read back, once they are known of every device.
fn outcome(node: &Node) -> Option<(Tone, String)> {
    let mut parts = Vec::new();
    let mut tone = Tone::Good;
    for (one, device) in node.devices() {
        match (&device.standing, device.asked, device.in_force) {
            (Standing::Free, None, _) => {}
            (Standing::InForce, Some(asked), Some(is)) => parts.push(caps(one, node, asked, is)),
            (Standing::Granted, Some(asked), Some(is)) => {
                let grant = node.grant.map_or_else(String::new, |grant| format!(" of {grant:.0} W"));
                parts.push(format!("{}: held by its grant{grant}", caps(one, node, asked, is)));
            }
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
    // Most nodes have one kind of capped device, so its kind need not be named.
    let both = node.cpu.asked.is_some() && node.gpu.asked.is_some();
    let kind = if both || one == "GPU" { format!("{one} cap") } else { "cap".to_owned() };
    format!("{kind} {asked:.0} W asked, {is:.0} W read back")
}

/// Why there is no outcome yet.
fn trouble(node: &Node) -> String {
    for (one, device) in node.devices() {
        let Some(asked) = device.asked else { continue };
        match &device.standing {
            Standing::Refused(why) => {
                return format!("cap {asked:.0} W asked of each {one}, not in force: {why}");
            }
            Standing::Asked => return format!("cap {asked:.0} W asked of each {one}, nothing read back yet"),
            Standing::Free | Standing::InForce | Standing::Clamped | Standing::Granted => {}
        }
    }
    "its old caps are still in force".to_owned()
}
