//! The events for which a node is armed: what its grant says that each leaves, and which of them are on.
//!
//! Both are kept in memory and in a file, so that an event with times begins and ends while the API server is away, and
//! after a restart. An event is on as far as either of two clocks says so, and over only when both do: the time of day,
//! and the time since the event was first seen here, counted by a clock that does not jump. Until the machine boots again that
//! clock goes on over a restart of the agent. The least of all shares counts. It only lowers: what is counted of the node is
//! its grant, whatever is on.
//!
//! A file that cannot be read says nothing, not even that no event is on: until the API server has told all, the node is
//! held as by the event that leaves the least. Fields of a later version of the file are not looked at, so that an agent of
//! this one that takes over knows what it can know.

use super::grants::{self, Stands};
use super::inputs::Inputs;
use host_kit::clock::{HostClock, Mono, SinceBoot, micros};
use joulie_api::node_power_grant::ArmedShare;
use joulie_api::number::Number;
use joulie_api::power_event::PowerEventSpec;
use joulie_core::budget::armed::share_at;
use joulie_core::placement::freshness::UnixTime;
use power_units::{Micros, Ratio};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// What is known of armed events, as the file has it. Fields are only ever added.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct ArmedFacts {
    /// What each event leaves of the node.
    shares: Vec<ArmedShare>,
    /// The PowerEvents, by the identifiers of their objects.
    events: BTreeMap<String, PowerEventSpec>,
    /// When each of them was first seen with its present content.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    seen: BTreeMap<String, SeenAt>,
    /// They take the place of a file that could not be read, and are written also where there is nothing to know.
    #[serde(skip)]
    replaces: bool,
}

/// A moment by two clocks: the time of day, and that of the machine since its boot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct SeenAt {
    /// Microseconds since 1970.
    wall_us: u64,
    boot: String,
    uptime_us: u64,
}

impl SeenAt {
    fn of(moment: Moment, begun: &SinceBoot) -> Option<Self> {
        let uptime = micros(begun.uptime.checked_add(moment.mono.since(Mono::START))?);
        let wall = moment.wall.since(UnixTime::from_micros(0))?;
        Some(Self { wall_us: wall.get(), boot: begun.boot.clone(), uptime_us: uptime.get() })
    }

    /// The time of day when this process began, by the clock that does not jump; `None` after another boot, and where that clock
    /// has jumped all the same.
    fn moment(&self, begun: &SinceBoot) -> Option<Moment> {
        let passed = micros(begun.uptime).checked_sub(Micros::new(self.uptime_us));
        let passed = passed.filter(|_| self.boot == begun.boot)?;
        let wall = UnixTime::from_micros(0).plus(Micros::new(self.wall_us)).plus(passed);
        Some(Moment { wall, mono: Mono::START })
    }
}

/// A larger file was not written by this program.
const SIZE_MAX: u64 = 1 << 20;

impl ArmedFacts {
    /// The file beside that of the last grant.
    pub(crate) fn file(kept: &Path) -> PathBuf {
        kept.with_extension("armed")
    }

    fn read(path: &Path) -> io::Result<Self> {
        let file = match std::fs::File::open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            file => file?,
        };
        let mut text = Vec::new();
        file.take(SIZE_MAX).read_to_end(&mut text)?;
        let facts: Self = serde_json::from_slice(&text)?;
        // An event that was readable when it was kept is none that may be left out now.
        for spec in facts.events.values() {
            spec.times().map_err(|bad| io::Error::new(io::ErrorKind::InvalidData, bad.to_string()))?;
        }
        Ok(facts)
    }

    /// Replaces the file. PowerEvents for which the node is not armed are left out: there may be any number of them.
    pub(crate) fn write(&self, path: &Path) -> io::Result<()> {
        let own = self.events.iter().filter(|(_, spec)| self.share(&spec.event).is_some());
        let events: BTreeMap<_, _> = own.map(|(uid, spec)| (uid.clone(), spec.clone())).collect();
        let seen = self.seen.iter().filter(|(uid, _)| events.contains_key(*uid));
        let seen = seen.map(|(uid, at)| (uid.clone(), at.clone())).collect();
        let kept = Self { shares: self.shares.clone(), events, seen, replaces: false };
        node_kit::replace_file(path, &serde_json::to_vec_pretty(&kept)?)
    }

    /// Whether nothing else is known than these events say. One that cannot be read says nothing.
    fn says(&self, events: &BTreeMap<String, Option<PowerEventSpec>>) -> bool {
        events.iter().all(|(uid, spec)| spec.is_none() || self.events.get(uid) == spec.as_ref())
            && self.events.keys().all(|uid| events.contains_key(uid))
    }

    /// The events that the node is armed for and knows, and that cannot be read any more.
    fn unread(&self, events: &BTreeMap<String, Option<PowerEventSpec>>) -> BTreeSet<String> {
        let unread = events.iter().filter(|(_, spec)| spec.is_none());
        let known = unread.filter_map(|(uid, _)| self.events.get(uid)).map(|spec| &spec.event);
        known.filter(|event| self.share(event).is_some()).cloned().collect()
    }

    /// What an event leaves; `None` if the node is not armed for it. A share that is no number leaves the floors.
    fn share(&self, event: &str) -> Option<Ratio> {
        let of_it = self.shares.iter().filter(|armed| armed.event == event);
        of_it.map(|armed| armed.ratio().unwrap_or(Ratio::ZERO)).min()
    }
}

/// The moment by the clocks of the node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    wall: UnixTime,
    mono: Mono,
}

impl Moment {
    pub(crate) fn of(clock: &dyn HostClock) -> Self {
        Self { wall: UnixTime::from_micros(clock.wall().as_microsecond()), mono: clock.mono() }
    }

    /// The time of day by the clock that does not jump, where both showed `anchor` at one moment.
    fn since(self, anchor: Self) -> UnixTime {
        anchor.wall.plus(micros(self.mono.since(anchor.mono)))
    }
}

/// What armed events leave of the node now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ArmedNow {
    /// The part of the way from the floors of all devices to the most that they draw; the whole while none is on.
    pub(crate) share: Ratio,
    /// A ramp is under way.
    pub(crate) moves: bool,
    /// The events that are on in full.
    pub(crate) full: Vec<String>,
}

impl Default for ArmedNow {
    fn default() -> Self {
        Self { share: Ratio::ONE, moves: false, full: Vec::new() }
    }
}

/// The armed events of one node.
#[derive(Debug, Default)]
pub(crate) struct Armed {
    facts: Arc<ArmedFacts>,
    /// When each event was first seen with its present content.
    anchors: BTreeMap<String, (PowerEventSpec, Moment)>,
    /// The events that were on at the last look.
    on: BTreeSet<String>,
    /// Those that could not be read then.
    unread: BTreeSet<String>,
    /// How long that stands.
    stands_for: Option<Micros>,
    /// When this process began, by the clock of the machine.
    begun: Option<SinceBoot>,
    /// The file of the previous process could not be read, and the API server has not told all yet.
    is_lost: bool,
}

impl Armed {
    /// What the previous process kept. Where its file cannot be read, any event may be on until the API server has told all.
    /// `begun`: when this process began, by the clock of the machine.
    pub(crate) fn of_file(kept: Option<&Path>, begun: Option<SinceBoot>) -> Self {
        let Some(path) = kept.map(ArmedFacts::file) else { return Self { begun, ..Self::default() } };
        let read = ArmedFacts::read(&path);
        if let Err(error) = &read {
            let path = path.display();
            tracing::error!(
                "{path}: {error}; which armed events are on is not known, so packages and GPUs are held to their floors \
                 until the API server tells it"
            );
        }
        let (is_lost, facts) = (read.is_err(), read.unwrap_or_default());
        let anchors = facts.seen.iter().filter_map(|(uid, at)| {
            Some((uid.clone(), (facts.events.get(uid)?.clone(), at.moment(begun.as_ref()?)?)))
        });
        let anchors = anchors.collect();
        Self { facts: Arc::new(facts), anchors, begun, is_lost, ..Self::default() }
    }

    /// What is known, for the file.
    pub(crate) fn facts(&self) -> Arc<ArmedFacts> {
        self.facts.clone()
    }

    /// What the file is to say. `None` while that would be less than what the file said that could not be read: the next process
    /// would take it for all.
    pub(crate) fn to_keep(&self) -> Option<Arc<ArmedFacts>> {
        (!self.is_lost).then(|| self.facts())
    }

    /// Takes in what the watches say, and returns what is left of the node now.
    pub(crate) fn follow(&mut self, node: &str, inputs: &Inputs, stands: &Stands, now: Moment) -> ArmedNow {
        let followed = stands.kept().map(|kept| kept.uid.as_str());
        let row = grants::object(inputs, stands)
            .map(|(_, row)| row)
            .filter(|row| inputs.grants_known && Some(row.uid.as_str()) == followed);
        let events = inputs.events.as_deref();
        self.find(node, row.is_some(), events);
        let shares = row.map(|row| &row.armed).filter(|shares| **shares != self.facts.shares);
        let unread = events.map(|events| self.facts.unread(events)).unwrap_or_default();
        let events = events.filter(|events| !self.facts.says(events));
        if shares.is_some() || events.is_some() {
            let facts = Arc::make_mut(&mut self.facts);
            if let Some(shares) = shares {
                facts.shares.clone_from(shares);
            }
            if let Some(events) = events {
                facts.events.retain(|uid, _| events.contains_key(uid));
                let read = events.iter().filter_map(|(uid, spec)| Some((uid.clone(), spec.clone()?)));
                facts.events.extend(read);
            }
        }
        for event in unread.difference(&self.unread) {
            tracing::warn!(
                node,
                "the PowerEvent of {event} cannot be read any more: what was known of it stays until its end; mend it or delete it"
            );
        }
        self.unread = unread;
        let (armed, on) = self.now(now);
        if stands.grant().is_some() {
            self.tell(node, &armed, on);
        }
        armed
    }

    /// Looks whether all is told that the file did not say: the shares of the node and each event. One that cannot be read
    /// may have been on.
    fn find(
        &mut self,
        node: &str,
        knows_shares: bool,
        events: Option<&BTreeMap<String, Option<PowerEventSpec>>>,
    ) {
        let Some(events) = events.filter(|_| self.is_lost) else { return };
        if events.values().all(|spec| spec.is_some() && knows_shares) {
            self.is_lost = false;
            Arc::make_mut(&mut self.facts).replaces = true;
            tracing::info!(node, "which armed events are on is known again");
        }
    }

    /// Whether an event was on at the last look, or may have been, whatever it leaves of the node.
    pub(crate) fn is_on(&self) -> bool {
        self.is_lost || !self.on.is_empty()
    }

    /// How long what was said at the last look stands, if that ends by itself.
    pub(crate) fn stands_for(&self) -> Option<Duration> {
        self.stands_for.map(|micros| Duration::from_micros(micros.get()))
    }

    /// Takes note of the moment at which each event is first seen.
    fn anchor(&mut self, now: Moment) {
        let events = &self.facts.events;
        self.anchors.retain(|uid, (spec, _)| events.get(uid) == Some(spec));
        let is_new = |(uid, _): &(&String, &PowerEventSpec)| !self.anchors.contains_key(*uid);
        let new: Vec<_> =
            events.iter().filter(is_new).map(|(uid, spec)| (uid.clone(), spec.clone())).collect();
        if new.is_empty() && self.facts.seen.len() <= self.anchors.len() {
            return;
        }
        let seen = self.begun.as_ref().and_then(|begun| SeenAt::of(now, begun));
        let facts = Arc::make_mut(&mut self.facts);
        for (uid, spec) in new {
            match seen.clone() {
                Some(at) => drop(facts.seen.insert(uid.clone(), at)),
                None => drop(facts.seen.remove(&uid)),
            }
            self.anchors.insert(uid, (spec, now));
        }
        let anchors = &self.anchors;
        facts.seen.retain(|uid, _| anchors.contains_key(uid));
    }

    /// What is left of the node, and the events that are on.
    fn now(&mut self, now: Moment) -> (ArmedNow, BTreeSet<String>) {
        self.anchor(now);
        let facts = self.facts.clone();
        let share = if self.is_lost { Ratio::ZERO } else { Ratio::ONE };
        let mut armed = ArmedNow { share, ..ArmedNow::default() };
        self.stands_for = None;
        let mut on = BTreeSet::new();
        for (uid, spec) in &facts.events {
            let Some((_, anchor)) = self.anchors.get(uid) else { continue };
            let Some(share) = facts.share(&spec.event) else { continue };
            // Only what can be read is kept.
            let Ok(Some(times)) = spec.times() else { continue };
            let clocks = [now.wall, now.since(*anchor)];
            let next = clocks.iter().filter_map(|clock| times.stands_for(*clock)).min();
            self.stands_for = [self.stands_for, next].into_iter().flatten().min();
            let depth = times.depth_of(clocks);
            if depth == Ratio::ZERO {
                continue;
            }
            on.insert(spec.event.clone());
            armed.share = armed.share.min(share_at(depth, share));
            if depth < Ratio::ONE {
                armed.moves = true;
            } else if !armed.full.contains(&spec.event) {
                armed.full.push(spec.event.clone());
            }
        }
        armed.full.sort_unstable();
        (armed, on)
    }

    /// Logs which events begin and end.
    fn tell(&mut self, node: &str, armed: &ArmedNow, on: BTreeSet<String>) {
        let share = Number::from(armed.share);
        for event in on.difference(&self.on) {
            tracing::info!(
                node,
                "the event {event} is on: packages and GPUs are held to {share} of the way from their floors to their most"
            );
        }
        for event in self.on.difference(&on) {
            tracing::info!(node, "the event {event} is over");
        }
        self.on = on;
    }
}

#[cfg(test)]
mod tests;
