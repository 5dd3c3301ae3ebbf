//! Armed events: what the grants say that each leaves of a node, which of them are on, and what came of them.
//!
//! The agents obey an event by themselves. The operator raises no node below a PowerBudget that is armed for an event that is on,
//! because the watts that it takes are granted to nobody, and it tells what was delivered against the minutes before. An event
//! that cannot be read, and of which this process knows nothing from before, may be on at agents that do: it raises nobody below
//! the budgets that are armed for it either.

use super::Reconciler;
use super::jobs::Then;
use crate::publish::{API_VERSION, event_differs, event_document};
use crate::reasons::{EVENT_BEGAN, EVENT_BEHIND, EVENT_OVER};
use crate::rows::EventSeen;
use crate::site::Site;
use crate::writes::{How, Job, Target, Write};
use host_kit::clock::Mono;
use host_kit::events::{EventReason, Note};
use jiff::Timestamp;
use joulie_api::condition::rfc3339;
use joulie_api::node_power_grant::{ArmedShare, ratio};
use joulie_api::number::{Number, Whole};
use joulie_api::power_budget::ClassShares;
use joulie_api::power_event::{EventPhase, PowerEventStatus};
use joulie_core::budget::armed::ArmedTimes;
use joulie_core::placement::class::SchedulableClass;
use joulie_core::placement::freshness::UnixTime;
use k8s_openapi::api::core::v1::ObjectReference;
use planner::node::Node;
use planner::power::NodeReading;
use power_units::{Amount, Ratio, Watts};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// What nodes drew in so much time before an event is its baseline.
const BASELINE_OVER: Duration = Duration::from_secs(300);
/// It is the mean of samples that are this far apart.
const SAMPLE_EVERY: Duration = Duration::from_secs(10);
/// A node whose agent does not say after this time that the caps of an event are in force is behind.
const BEHIND_AFTER: Duration = Duration::from_secs(10);
/// At most so many of them are named.
const NAMED: usize = 8;
/// Where more than one of so many nodes is not measured, what they draw together is not known.
const UNSEEN_MOST: usize = 20;

/// How the key of a PowerEvent begins among the jobs. No node's name has a slash.
const KEY: &str = "powerevent/";

/// What is remembered of an event.
#[derive(Debug, Default)]
pub(super) struct EventMemory {
    /// The event, and when it is on, as it was read last: the agents keep that when the object becomes unreadable.
    read: Option<(String, Option<ArmedTimes>)>,
    baseline: Option<Watts>,
    /// Since when it has been on, and since when in full.
    on: Option<(Mono, Timestamp)>,
    full: Option<Mono>,
    /// What its nodes drew when it was last on.
    measured: Option<Watts>,
    /// That nodes are behind was told.
    told: bool,
}

/// What the nodes that are armed for an event drew while it was not on.
#[derive(Debug, Default)]
pub(super) struct Samples {
    all: VecDeque<(Mono, Watts)>,
    /// Of how many nodes they are: sums over others are not comparable.
    nodes: usize,
}

impl Samples {
    /// The mean of the samples that are not too old.
    fn mean(&mut self, nodes: usize, now: Mono) -> Option<Watts> {
        self.keep(nodes, now);
        let sum = Watts::checked_sum(self.all.iter().map(|(_, watts)| *watts))?;
        let count = u64::try_from(self.all.len()).ok().filter(|count| *count > 0)?;
        Some(Watts::from_wide(sum.to_wide() / i128::from(count)))
    }

    fn add(&mut self, watts: Watts, nodes: usize, now: Mono) {
        self.keep(nodes, now);
        self.all.push_back((now, watts));
    }

    /// Drops what is too old, or of other nodes.
    fn keep(&mut self, nodes: usize, now: Mono) {
        if self.nodes != nodes {
            self.all.clear();
            self.nodes = nodes;
        }
        while self.all.front().is_some_and(|(at, _)| now.since(*at) > BASELINE_OVER) {
            self.all.pop_front();
        }
    }
}

/// The nodes that an event lowers.
#[derive(Clone, Debug)]
struct Covered {
    nodes: usize,
    drawn: Watts,
    unseen: usize,
    behind: usize,
    names: Vec<String>,
}

impl Covered {
    const NOTHING: Self = Self { nodes: 0, drawn: Watts::ZERO, unseen: 0, behind: 0, names: Vec::new() };

    fn measured(&self) -> Option<Watts> {
        (self.nodes > 0 && self.unseen * UNSEEN_MOST <= self.nodes).then_some(self.drawn)
    }
}

fn time(wall: Timestamp) -> UnixTime {
    UnixTime::from_micros(wall.as_microsecond())
}

/// How much of an event is on, by what is known of it.
fn depth(known: Option<&(String, Option<ArmedTimes>)>, wall: Timestamp) -> Ratio {
    let times = known.and_then(|(_, times)| *times);
    times.map_or(Ratio::ZERO, |times| times.depth(time(wall)))
}

/// What is wrong with an event that cannot be read, and what the agents do meanwhile.
fn refusal(why: &str, known: Option<&(String, Option<ArmedTimes>)>) -> String {
    let Some((_, times)) = known else {
        return format!(
            "{why}; agents that could read it may still follow it, and until it is mended or deleted nobody is raised below the PowerBudgets that are armed for it"
        );
    };
    let Some(times) = *times else { return why.to_owned() };
    let end = times.end.and_then(|end| end.since(UnixTime::from_micros(0)));
    let end = end.and_then(|micros| Timestamp::from_microsecond(i64::try_from(micros.get()).ok()?).ok());
    match end {
        Some(end) => format!("{why}; the agents keep what they knew of it until its end, {}", rfc3339(end)),
        None => {
            format!("{why}; the agents keep what they knew of it, which has no end: mend it or delete it")
        }
    }
}

/// The share of a class. Of a node whose class is not known the least counts.
fn of_class(shares: &ClassShares, class: SchedulableClass) -> Number {
    let least = |one: Number, other: Number| if ratio(other) < ratio(one) { other } else { one };
    match class {
        SchedulableClass::Performance => shares.performance,
        SchedulableClass::Draining => shares.draining,
        SchedulableClass::Eco => shares.eco,
        SchedulableClass::Unknown => least(least(shares.performance, shares.draining), shares.eco),
    }
}

impl Reconciler {
    /// Says of each limit whether an event is on for which it is armed.
    pub(super) fn arm(&mut self, wall: Timestamp) {
        for event in &self.site.events {
            if let Ok(read) = &event.times {
                let memory = self.armed.entry(event.uid.clone()).or_default();
                if memory.read.as_ref() != Some(read) {
                    memory.read = Some(read.clone());
                }
            }
        }
        let on = self.events_on(wall);
        // Of one whose name cannot be read nobody knows which it is.
        let unknown: Vec<Option<String>> = self.unknown_events().map(|event| event.event.clone()).collect();
        let may_be_on = |name: &String| {
            on.contains(name) || unknown.iter().any(|event| event.as_ref().is_none_or(|event| event == name))
        };
        for (limit, seen) in self.site.cluster.limits.iter_mut().zip(&self.site.budgets.seen) {
            limit.armed = seen.armed.iter().any(|rule| may_be_on(&rule.event));
        }
    }

    /// The events that cannot be read and of which nothing is known from before.
    fn unknown_events(&self) -> impl Iterator<Item = &Arc<EventSeen>> {
        self.site.events.iter().filter(|event| self.known(event).is_none())
    }

    /// What is known of an event: what it says, and while that cannot be read what it said before.
    fn known<'a>(&'a self, event: &'a EventSeen) -> Option<&'a (String, Option<ArmedTimes>)> {
        event.times.as_ref().ok().or_else(|| self.armed.get(&event.uid)?.read.as_ref())
    }

    /// The names of the events that are on.
    fn events_on(&self, wall: Timestamp) -> Vec<String> {
        let known = self.site.events.iter().filter_map(|event| self.known(event));
        known.filter(|known| depth(Some(known), wall) > Ratio::ZERO).map(|(name, _)| name.clone()).collect()
    }

    /// What events leave of a node of this class, by all enforced limits above it: of each event the least.
    pub(super) fn shares(&self, node: &Node, class: SchedulableClass) -> Vec<ArmedShare> {
        let limits = &self.site.cluster.limits;
        let above = |at: &usize| limits.get(*at).and_then(|limit| limit.parent);
        let path = std::iter::successors(node.limits.limit.filter(|_| node.limits.is_enforced()), above);
        let enforced = path.filter(|at| limits.get(*at).is_some_and(|limit| limit.enforced));
        let mut shares: BTreeMap<&str, Number> = BTreeMap::new();
        for rule in enforced.filter_map(|at| self.site.budgets.seen.get(at)).flat_map(|seen| &seen.armed) {
            let share = of_class(&rule.shares, class);
            let least = shares.entry(&rule.event).or_insert(share);
            if ratio(share) < ratio(*least) {
                *least = share;
            }
        }
        shares.into_iter().map(|(event, share)| ArmedShare { event: event.to_owned(), share }).collect()
    }

    /// The jobs that write the statuses of the PowerEvents.
    pub(super) fn write_events(&mut self, now: Mono, jobs: &mut Vec<Job<(u64, Then)>>) {
        let events = self.site.events.clone();
        let covered = self.covered();
        self.sample(&covered, now);
        self.armed.retain(|uid, _| events.iter().any(|event| event.uid == *uid));
        for event in &events {
            let status = self.event_status(event, &covered, now);
            let key: Arc<str> = event_key(&event.name).into();
            let is_free = self.is_free(&key, now) && !self.pending_echoes.contains_key(&key);
            if !is_free || !event_differs(&status, &event.status, self.wall) {
                continue;
            }
            let document = event_document(&event.name, &event.uid, &status);
            // Nobody else has a say in a status.
            let how = How::Apply { document, force: true };
            let write = Write { target: Target::EventStatus, name: event.name.clone(), how };
            self.job(key, vec![write], false, Then::Nothing, jobs);
        }
    }

    /// Takes note of what is drawn by the nodes that are armed for an event that is not on.
    fn sample(&mut self, covered: &BTreeMap<String, Covered>, now: Mono) {
        let wall = self.wall;
        let rules = self.site.budgets.seen.iter().flat_map(|seen| &seen.armed);
        let names: BTreeSet<String> = rules.map(|rule| rule.event.clone()).collect();
        let on = self.events_on(wall);
        self.samples.retain(|name, _| names.contains(name));
        for name in names.into_iter().filter(|name| !on.contains(name)) {
            let known = covered.get(&name).and_then(|covered| Some((covered.measured()?, covered.nodes)));
            let Some((watts, nodes)) = known else { continue };
            let samples = self.samples.entry(name).or_default();
            let is_due = samples.nodes != nodes
                || samples.all.back().is_none_or(|(at, _)| now.since(*at) >= SAMPLE_EVERY);
            if is_due {
                samples.add(watts, nodes, now);
            }
        }
    }

    /// When the state of an event changes next by itself, or has to be looked at again.
    pub(super) fn next_event(&self) -> Option<Mono> {
        let at = self.looked?;
        let each = self.site.events.iter().filter_map(|event| {
            let known = self.known(event)?;
            let (_, times) = known;
            let next =
                (*times)?.stands_for(time(self.wall)).map(|micros| Duration::from_micros(micros.get()));
            let again = (depth(Some(known), self.wall) > Ratio::ZERO).then_some(SAMPLE_EVERY);
            // A baseline needs samples, and a sum over all nodes is not worth more.
            let soon = next.filter(|next| *next < BASELINE_OVER).map(|next| next.min(SAMPLE_EVERY));
            [next, again, soon].into_iter().flatten().min()
        });
        each.min().map(|wait| at.plus(wait.max(Duration::from_millis(200))))
    }

    fn event_status(
        &mut self,
        event: &Arc<EventSeen>,
        covered: &BTreeMap<String, Covered>,
        now: Mono,
    ) -> PowerEventStatus {
        let wall = self.wall;
        let known = self.known(event).cloned();
        let depth = depth(known.as_ref(), wall);
        let named = known.as_ref().and_then(|(name, _)| covered.get(name));
        let covered = named.cloned().unwrap_or(Covered::NOTHING);
        let number = |watts: Watts| Some(Number::tenths(watts));
        let mut memory = self.armed.remove(&event.uid).unwrap_or_default();
        let measured = covered.measured();
        let said = event.status.phase.as_ref().and_then(|phase| phase.known());
        if depth > Ratio::ZERO {
            if memory.on.is_none() {
                // A new leader goes on with what the one before has written.
                let goes_on = said == Some(EventPhase::On);
                let before = event.status.since.as_deref().filter(|_| goes_on);
                let since = before.and_then(|since| since.parse().ok()).unwrap_or(wall);
                let written = event.status.baseline_watts.filter(|_| goes_on);
                let written = written
                    .and_then(|watts| Watts::parse(&watts.to_string(), power_units::Role::Nearest).ok());
                let samples = known.as_ref().and_then(|(name, _)| self.samples.get_mut(name));
                memory.baseline = written.or_else(|| samples?.mean(covered.nodes, now));
                (memory.on, memory.told) = (Some((now, since)), false);
                if !goes_on {
                    let text = format!("the event is on, and lowers {} nodes", covered.nodes);
                    self.say_event(event, EVENT_BEGAN, text);
                }
            }
            memory.measured = measured.or(memory.measured);
            memory.full = (depth == Ratio::ONE).then(|| memory.full.unwrap_or(now));
        } else if known.is_some() && (memory.on.take().is_some() || said == Some(EventPhase::On)) {
            memory.full = None;
            self.say_event(event, EVENT_OVER, "the event is over".to_owned());
        }
        let is_due = memory.full.is_some_and(|since| now.since(since) >= BEHIND_AFTER);
        if is_due && covered.behind > 0 && !memory.told {
            memory.told = true;
            let text = format!(
                "{} of {} nodes do not say that the caps of the event are in force: {}",
                covered.behind,
                covered.nodes,
                covered.names.join(", ")
            );
            self.say_event(event, EVENT_BEHIND, text);
        }
        let is_on = depth > Ratio::ZERO;
        // What was written of the time when it was last on stays.
        let old = &event.status;
        let was_on = !is_on && matches!(said, Some(EventPhase::On | EventPhase::Off | EventPhase::Refused));
        let starts = event.times.as_ref().ok().and_then(|(_, times)| times.and_then(|times| times.start));
        let phase = match &event.times {
            Err(_) => EventPhase::Refused,
            Ok(_) if is_on => EventPhase::On,
            Ok(_) if starts.is_some_and(|start| time(wall).since(start).is_none()) => EventPhase::Waiting,
            Ok(_) => EventPhase::Off,
        };
        let delivered = memory.baseline.zip(memory.measured).map(|(baseline, now)| baseline - now);
        let status = PowerEventStatus {
            observed_generation: Some(Whole::from(event.generation)),
            phase: Some(phase.into()),
            since: match &memory.on {
                Some((_, since)) => Some(rfc3339(*since)),
                None => old.since.clone().filter(|_| was_on),
            },
            nodes: Some(Whole::from(i64::try_from(covered.nodes).unwrap_or(i64::MAX))),
            behind_nodes: is_due.then(|| Whole::from(i64::try_from(covered.behind).unwrap_or(i64::MAX))),
            behind: (is_due && covered.behind > 0).then_some(covered.names),
            baseline_watts: if is_on {
                memory.baseline.and_then(number)
            } else {
                old.baseline_watts.filter(|_| was_on)
            },
            measured_watts: if is_on {
                memory.measured.and_then(number)
            } else {
                old.measured_watts.filter(|_| was_on)
            },
            delivered_watts: if is_on {
                delivered.and_then(number)
            } else {
                old.delivered_watts.filter(|_| was_on)
            },
            message: event.times.as_ref().err().map(|why| refusal(why, known.as_ref())),
            updated_at: Some(rfc3339(wall)),
        };
        self.armed.insert(event.uid.clone(), memory);
        status
    }

    /// Of each event the nodes whose grants say that it leaves them less than all. It is made once for all PowerEvents, of
    /// which there may be many more than events that grants name.
    fn covered(&self) -> BTreeMap<String, Covered> {
        let mut all: BTreeMap<String, Covered> = BTreeMap::new();
        for (node, observed) in self.site.cluster.nodes.iter().zip(&self.site.observed) {
            let Some(grant) = observed.grant.as_deref().filter(|grant| !grant.granted.released) else {
                continue;
            };
            let lowers = |armed: &&ArmedShare| armed.ratio().is_none_or(|it| it < Ratio::ONE);
            let events: BTreeSet<&str> =
                grant.armed.iter().filter(lowers).map(|armed| armed.event.as_str()).collect();
            for event in events {
                let covered = all.entry(event.to_owned()).or_insert(Covered::NOTHING);
                covered.nodes += 1;
                match node.power.reading {
                    NodeReading::Measured { watts, .. } | NodeReading::Held { watts, .. } => {
                        covered.drawn += watts
                    }
                    NodeReading::Absent(_) => covered.unseen += 1,
                }
                if !grant.obeys.iter().any(|obeyed| obeyed == event) {
                    covered.behind += 1;
                    if covered.names.len() < NAMED {
                        covered.names.push(node.name.to_string());
                    }
                }
            }
        }
        all
    }

    fn say_event(&self, event: &EventSeen, reason: EventReason, text: String) {
        let name = &event.name;
        if reason == EVENT_BEHIND {
            tracing::warn!("{KEY}{name}: {text}");
        } else {
            tracing::info!("{KEY}{name}: {text}");
        }
        self.recorder.say(Note {
            regarding: ObjectReference {
                api_version: Some(API_VERSION.to_owned()),
                kind: Some("PowerEvent".to_owned()),
                name: Some(name.clone()),
                uid: Some(event.uid.clone()),
                ..ObjectReference::default()
            },
            severity: reason.severity,
            reason: reason.word,
            action: "Arm",
            text,
        });
    }
}

/// The version of the PowerEvent with this key.
pub(super) fn event_version<'a>(site: &'a Site, key: &str) -> Option<&'a str> {
    let name = key.strip_prefix(KEY)?;
    site.events.iter().find(|event| event.name == name).map(|event| event.version.as_str())
}

/// The key of a PowerEvent among the jobs.
pub(super) fn event_key(name: &str) -> String {
    format!("{KEY}{name}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_baseline_is_the_mean_of_the_minutes_before() {
        let mut samples = Samples::default();
        let at = |second| Mono::at(Duration::from_secs(second));
        for second in (0..600).step_by(10) {
            samples.add(Watts::from_int(if second < 300 { 100 } else { 900 }), 3, at(second));
        }
        // From 300 to 590 s.
        assert_eq!(samples.mean(3, at(600)), Some(Watts::from_int(900)));
        assert_eq!(samples.all.len(), 30);
        assert_eq!(samples.mean(3, at(2_000)), None, "nobody measured it");
    }

    #[test]
    fn what_fewer_nodes_drew_is_no_baseline() {
        let mut samples = Samples::default();
        let at = |second| Mono::at(Duration::from_secs(second));
        samples.add(Watts::from_int(300), 1, at(0));
        assert_eq!(samples.mean(2, at(1)), None, "another node has come since");
        samples.add(Watts::from_int(600), 2, at(2));
        assert_eq!(samples.mean(2, at(3)), Some(Watts::from_int(600)));
    }

    #[test]
    fn a_node_whose_class_is_not_known_has_the_least_share() {
        let number = |share| Number::new(share).unwrap();
        let shares = ClassShares { performance: number(0.9), draining: number(0.25), eco: number(0.5) };
        let of = |class| of_class(&shares, class).get();
        assert_eq!((of(SchedulableClass::Performance), of(SchedulableClass::Eco)), (0.9, 0.5));
        assert_eq!((of(SchedulableClass::Draining), of(SchedulableClass::Unknown)), (0.25, 0.25));
    }
}
