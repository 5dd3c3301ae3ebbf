//! Kubernetes Events that people read with `kubectl describe`: posted once, then counted.
//!
//! Notes about the same object with the same reason and action become one Event with a series, whatever numbers their
//! text contains. A note about one version of an object is of that version's series. If an object gets too many notes, the rest are only counted. This file decides what to post; `driver`
//! posts it. An Event that cannot be posted is counted and lost: nothing waits for it. A later note of the same series
//! is posted anew, because trouble often begins while the API server is away.

mod driver;

pub use driver::{Posts, Recorder, record};

use crate::clock::Mono;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

/// A series is written again after this time, and ends if it was quiet for as long. The figure is client-go's.
const REFRESH: Duration = Duration::from_secs(360);
/// An object may have this many new Events at once, and one more in each REFILL. The figures are client-go's.
const BURST: u32 = 25;
const REFILL: Duration = Duration::from_secs(300);
/// At most this many series are remembered. Beyond that the oldest is forgotten, and its next note makes a new Event.
const SERIES_MAX: usize = 4096;
/// The most bytes that the API server accepts for a note and for an instance's name.
const NOTE_MAX: usize = 1024;
const INSTANCE_MAX: usize = 128;
/// How often posting an Event that is not on the server is tried again: each attempt may take the time of a request.
const RETRY: Duration = Duration::from_secs(30);

/// Whether a person has to act.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// For information.
    Normal,
    /// Something is wrong.
    Warning,
}

/// A reason for Events of a program, as the reference lists it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventReason {
    /// The word of the Event.
    pub word: &'static str,
    /// Whether a person has to act.
    pub severity: Severity,
    /// The kind of object that it is about.
    pub about: &'static str,
    /// What it means.
    pub meaning: &'static str,
}

/// A note about an object.
#[derive(Clone, Debug)]
pub struct Note {
    /// The object.
    pub regarding: ObjectReference,
    /// Whether a person has to act.
    pub severity: Severity,
    /// Why, in one word, as in `CapDrifted`.
    pub reason: &'static str,
    /// What was done, in one word, as in `Reassert`.
    pub action: &'static str,
    /// The text for people.
    pub text: String,
}

/// The reference to a Node in Events.
#[must_use]
pub fn about_node(name: &str) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Node".to_owned()),
        name: Some(name.to_owned()),
        // As the kubelet does: the Events of a node are found by its name.
        uid: Some(name.to_owned()),
        ..ObjectReference::default()
    }
}

/// What to do about a note.
#[derive(Clone, Debug, PartialEq)]
pub enum Post {
    /// Create a new Event.
    Create(Box<Event>),
    /// Update the count of an Event.
    Count {
        /// The namespace of the Event.
        namespace: String,
        /// The name of the Event.
        name: String,
        /// A merge patch.
        patch: Value,
    },
    /// Nothing: it is counted and will be written later.
    Later,
    /// Nothing: this object has too many Events.
    TooMuch,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Subject {
    kind: String,
    namespace: String,
    name: String,
    uid: String,
}

/// What the notes of a series have in common: the object, its version if they name one, how bad it is, why, and what was
/// done.
type SeriesKey = (Subject, Option<String>, Severity, &'static str, &'static str);

#[derive(Debug)]
struct Series {
    namespace: String,
    name: String,
    count: i32,
    /// Zero if the Event is not on the server.
    posted: i32,
    posted_at: Mono,
    last: Mono,
    last_wall: Timestamp,
}

#[derive(Debug)]
struct Bucket {
    left: u32,
    filled: Mono,
}

/// The Events that have been posted or counted.
#[derive(Debug)]
pub struct Events {
    component: String,
    instance: String,
    series: BTreeMap<SeriesKey, Series>,
    buckets: BTreeMap<Subject, Bucket>,
}

impl Events {
    /// Starts without Events. `component` is the program, as in `joulie.io/operator`; `instance` is this process of it.
    pub fn of(component: &str, instance: &str) -> Self {
        Self {
            component: component.to_owned(),
            instance: cut(instance, INSTANCE_MAX).to_owned(),
            series: BTreeMap::new(),
            buckets: BTreeMap::new(),
        }
    }

    /// Decides what to post for a note.
    pub fn note(&mut self, note: &Note, now: Mono, wall: Timestamp) -> Post {
        let subject = subject(&note.regarding);
        let version = note.regarding.resource_version.clone();
        let key = (subject.clone(), version, note.severity, note.reason, note.action);
        let event = self.event(note, wall);
        let name = event.metadata.name.clone().unwrap_or_default();
        if let Some(series) = self.series.get_mut(&key) {
            series.count = series.count.saturating_add(1);
            (series.last, series.last_wall) = (now, wall);
            if series.posted == 0 && now.since(series.posted_at) >= RETRY {
                (series.name, series.posted, series.posted_at) = (name, 1, now);
                return Post::Create(Box::new(event));
            }
            // The second note makes it a series; from then on it is written only once in a while.
            let there = series.posted > 0;
            let due = there && (series.posted == 1 || now.since(series.posted_at) >= REFRESH);
            return if due { series.post(now) } else { Post::Later };
        }
        if !self.admit(&subject, now) {
            return Post::TooMuch;
        }
        if self.series.len() >= SERIES_MAX {
            let oldest = self.series.iter().min_by_key(|(_, series)| series.last).map(|(key, _)| key.clone());
            oldest.map(|key| self.series.remove(&key));
        }
        self.series.insert(
            key,
            Series {
                namespace: event.metadata.namespace.clone().unwrap_or_default(),
                name,
                count: 1,
                posted: 1,
                posted_at: now,
                last: now,
                last_wall: wall,
            },
        );
        Post::Create(Box::new(event))
    }

    /// Records that the Event of that name is not on the server. The next note of its series creates a new one.
    pub fn missing(&mut self, namespace: &str, name: &str, now: Mono) {
        let of = |series: &&mut Series| series.namespace == namespace && series.name == name;
        if let Some(series) = self.series.values_mut().find(of) {
            (series.posted, series.posted_at) = (0, now);
        }
    }

    /// Returns the last counts of series that have gone quiet, and forgets these series.
    pub fn flush(&mut self, now: Mono) -> Vec<Post> {
        let quiet = |series: &Series| now.since(series.last) >= REFRESH;
        let over: Vec<_> =
            self.series.iter().filter(|(_, series)| quiet(series)).map(|(key, _)| key.clone()).collect();
        self.buckets.retain(|_, bucket| now.since(bucket.filled) < REFILL * BURST);
        over.into_iter()
            .filter_map(|key| self.series.remove(&key))
            .filter(|series| series.posted > 0 && series.count > series.posted)
            .map(|mut series| series.post(now))
            .collect()
    }

    fn admit(&mut self, subject: &Subject, now: Mono) -> bool {
        let bucket = self.buckets.entry(subject.clone()).or_insert(Bucket { left: BURST, filled: now });
        let refills = now.since(bucket.filled).as_secs() / REFILL.as_secs();
        let refills = u32::try_from(refills).unwrap_or(u32::MAX).min(BURST);
        if refills > 0 {
            bucket.left = bucket.left.saturating_add(refills).min(BURST);
            bucket.filled = now;
        }
        let admitted = bucket.left > 0;
        bucket.left = bucket.left.saturating_sub(1);
        admitted
    }

    fn event(&self, note: &Note, wall: Timestamp) -> Event {
        let about = note.regarding.name.as_deref().unwrap_or("unknown");
        let namespace = note.regarding.namespace.clone().filter(|namespace| !namespace.is_empty());
        Event {
            metadata: ObjectMeta {
                name: Some(format!("{about}.{:x}", wall.as_nanosecond())),
                // An Event about an object without a namespace goes to this one, where kubectl looks for it.
                namespace: Some(namespace.unwrap_or_else(|| "default".to_owned())),
                ..ObjectMeta::default()
            },
            action: Some(note.action.to_owned()),
            event_time: Some(MicroTime(wall)),
            note: Some(cut(&note.text, NOTE_MAX).to_owned()),
            reason: Some(note.reason.to_owned()),
            regarding: Some(note.regarding.clone()),
            reporting_controller: Some(self.component.clone()),
            reporting_instance: Some(self.instance.clone()),
            type_: Some(format!("{:?}", note.severity)),
            ..Event::default()
        }
    }
}

impl Series {
    fn post(&mut self, now: Mono) -> Post {
        (self.posted, self.posted_at) = (self.count, now);
        let patch = json!({"series": {"count": self.count, "lastObservedTime": MicroTime(self.last_wall)}});
        Post::Count { namespace: self.namespace.clone(), name: self.name.clone(), patch }
    }
}

fn subject(regarding: &ObjectReference) -> Subject {
    let text = |field: &Option<String>| field.clone().unwrap_or_default();
    Subject {
        kind: text(&regarding.kind),
        namespace: text(&regarding.namespace),
        name: text(&regarding.name),
        uid: text(&regarding.uid),
    }
}

/// At most `most` bytes of a text, in whole characters.
pub(crate) fn cut(text: &str, most: usize) -> &str {
    let end = (0..=most.min(text.len())).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Mono {
        Mono::at(Duration::from_secs(seconds))
    }

    fn wall(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + seconds).unwrap()
    }

    fn note(node: &str, reason: &'static str, text: &str) -> Note {
        let regarding = ObjectReference {
            kind: Some("Node".to_owned()),
            name: Some(node.to_owned()),
            ..ObjectReference::default()
        };
        Note { regarding, severity: Severity::Warning, reason, action: "Reassert", text: text.to_owned() }
    }

    fn count(post: &Post) -> i64 {
        let Post::Count { patch, .. } = post else { panic!("{post:?}") };
        patch["series"]["count"].as_i64().unwrap()
    }

    #[test]
    fn the_same_trouble_is_one_event_that_is_counted_now_and_then() {
        let mut events = Events::of("joulie.io/operator", "operator-0");
        let Post::Create(event) = events.note(&note("a", "CapDrifted", "300 W"), at(0), wall(0)) else {
            panic!()
        };
        assert_eq!((event.note.as_deref(), event.type_.as_deref()), (Some("300 W"), Some("Warning")));
        assert_eq!(event.metadata.namespace.as_deref(), Some("default"));
        let name = event.metadata.name.unwrap();
        let second = events.note(&note("a", "CapDrifted", "310 W"), at(1), wall(1));
        let patch = json!({"series": {"count": 2, "lastObservedTime": "2027-01-15T08:00:01.000000Z"}});
        assert_eq!(second, Post::Count { namespace: "default".to_owned(), name, patch });
        for second in 2..360 {
            let post = events.note(&note("a", "CapDrifted", "x"), at(second), wall(0));
            assert_eq!(post, Post::Later);
        }
        assert_eq!(count(&events.note(&note("a", "CapDrifted", "x"), at(361), wall(361))), 361);
        assert!(matches!(events.note(&note("a", "CapLost", "x"), at(362), wall(362)), Post::Create(_)));
        assert!(matches!(events.note(&note("b", "CapDrifted", "x"), at(362), wall(362)), Post::Create(_)));
        let of_version = |version: &str| {
            let note = note("b", "CapDrifted", "x");
            let regarding = ObjectReference { resource_version: Some(version.to_owned()), ..note.regarding };
            Note { regarding, ..note }
        };
        assert!(matches!(events.note(&of_version("7"), at(362), wall(363)), Post::Create(_)));
        assert!(matches!(events.note(&of_version("8"), at(362), wall(364)), Post::Create(_)));
        assert_eq!(count(&events.note(&of_version("8"), at(362), wall(365))), 2);
    }

    #[test]
    fn the_last_count_of_a_series_that_went_quiet_is_written_and_it_begins_anew() {
        let mut events = Events::of("c", "i");
        for second in 0..5 {
            events.note(&note("a", "CapDrifted", "x"), at(second), wall(0));
        }
        events.note(&note("b", "CapDrifted", "x"), at(4), wall(0));
        assert_eq!(events.flush(at(363)), []);
        let flushed = events.flush(at(364));
        assert_eq!((flushed.len(), count(&flushed[0])), (1, 5), "what came once needs no count");
        assert!(matches!(events.note(&note("a", "CapDrifted", "x"), at(365), wall(0)), Post::Create(_)));
    }

    #[test]
    fn an_object_with_too_much_to_say_does_not_flood_the_cluster() {
        let mut events = Events::of("c", "i");
        let reasons: Vec<&'static str> =
            (0..30).map(|n| &*Box::leak(format!("Reason{n}").into_boxed_str())).collect();
        let created = |events: &mut Events, second| {
            let posts =
                reasons.iter().map(|reason| events.note(&note("a", reason, "x"), at(second), wall(0)));
            posts.filter(|post| matches!(post, Post::Create(_))).count()
        };
        assert_eq!(created(&mut events, 0), 25);
        assert!(
            matches!(events.note(&note("b", "Reason0", "x"), at(0), wall(0)), Post::Create(_)),
            "others may"
        );
        assert_eq!(created(&mut events, 299), 0);
        assert_eq!(created(&mut events, 600), 2, "one more each five minutes");
    }

    #[test]
    fn an_event_that_could_not_be_posted_is_made_anew_when_its_trouble_goes_on() {
        let mut events = Events::of("c", &"i".repeat(200));
        let drifted = note("a", "CapDrifted", "300 W");
        let Post::Create(first) = events.note(&drifted, at(0), wall(0)) else { panic!() };
        assert_eq!(first.reporting_instance.unwrap().len(), 128, "the server takes no more");
        events.missing("default", &first.metadata.name.unwrap(), at(1));
        assert_eq!(events.note(&drifted, at(2), wall(2)), Post::Later, "not each second");
        let Post::Create(second) = events.note(&drifted, at(31), wall(31)) else { panic!() };
        let name = second.metadata.name.unwrap();
        assert_eq!(count(&events.note(&drifted, at(32), wall(32))), 4, "nothing was forgotten meanwhile");
        // Somebody deletes the Event.
        events.missing("default", &name, at(33));
        assert_eq!(events.note(&drifted, at(40), wall(40)), Post::Later);
        assert_eq!(events.flush(at(400)), [], "there is nothing to write a last count to");
    }

    #[test]
    fn a_note_that_is_too_long_is_cut_between_characters() {
        let Post::Create(event) =
            Events::of("c", "i").note(&note("a", "R", &"ß".repeat(600)), at(0), wall(0))
        else {
            panic!()
        };
        assert_eq!(event.note.unwrap(), "ß".repeat(512));
        assert_eq!((cut("ß", 1), cut("", 5), cut("ab", 2)), ("", "", "ab"));
    }
}
