//! The objects, and one log of their changes in the order of their revisions.
//!
//! An object is stored as the bytes that are sent and the few fields that selectors need; other code parses the
//! bytes. The log is a ring buffer: a watch or a list cannot start from a revision that has left the log.

use bytes::Bytes;
use serde_json::Value;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

/// The identity of an object. The namespace is empty for cluster-scoped objects.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) resource: Arc<str>,
    pub(crate) namespace: Arc<str>,
    pub(crate) name: Arc<str>,
}

/// One immutable version of an object.
#[derive(Debug)]
pub(crate) struct Object {
    pub(crate) key: Key,
    pub(crate) revision: u64,
    pub(crate) bytes: Bytes,
    pub(crate) labels: Box<[(Box<str>, Box<str>)]>,
    /// The selectable fields, in the order of the kind's list.
    pub(crate) fields: Box<[Box<str>]>,
}

impl Object {
    pub(crate) fn parse(&self) -> Value {
        serde_json::from_slice(&self.bytes).unwrap_or_default()
    }
}

/// A change at one revision. `before` is absent for a creation. For a deletion `after` is the last state.
#[derive(Debug, Clone)]
pub(crate) struct Event {
    pub(crate) revision: u64,
    pub(crate) before: Option<Arc<Object>>,
    pub(crate) after: After,
}

/// The object after the change.
#[derive(Debug, Clone)]
pub(crate) enum After {
    Is(Arc<Object>),
    /// Deleted; the last state has the revision of the deletion.
    Gone(Arc<Object>),
}

impl Event {
    pub(crate) fn key(&self) -> &Key {
        match &self.after {
            After::Is(object) | After::Gone(object) => &object.key,
        }
    }
}

/// The log no longer contains the requested revision; it contains the changes after `oldest`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Compacted {
    pub(crate) oldest: u64,
}

/// The objects of one resource, in one namespace or in all.
#[derive(Debug, Clone)]
pub(crate) struct Scope {
    pub(crate) resource: Arc<str>,
    pub(crate) namespace: Option<Arc<str>>,
}

impl Scope {
    pub(crate) fn holds(&self, key: &Key) -> bool {
        key.resource == self.resource
            && self.namespace.as_ref().is_none_or(|namespace| *namespace == key.namespace)
    }

    /// A key before all keys of the scope.
    fn start(&self) -> Key {
        let namespace = self.namespace.clone().unwrap_or_default();
        Key { resource: self.resource.clone(), namespace, name: Arc::default() }
    }
}

/// The jump of the revision when objects are restored, so that it is larger than any revision that a client has seen.
const RESTORED: u64 = 1_000_000;

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct Store {
    objects: BTreeMap<Key, Arc<Object>>,
    log: VecDeque<Event>,
    revision: u64,
    /// The newest revision whose event has left the log.
    compacted: u64,
    /// The newest revision at which the whole log was discarded.
    emptied: u64,
    /// For each resource, the newest of its events that were dropped because the log was full.
    left: BTreeMap<Arc<str>, u64>,
    horizon: usize,
}

impl Store {
    /// An empty store. The log holds `horizon` events.
    pub(crate) fn new(horizon: usize) -> Self {
        Self {
            objects: BTreeMap::new(),
            log: VecDeque::new(),
            revision: 1,
            compacted: 0,
            emptied: 0,
            left: BTreeMap::new(),
            horizon,
        }
    }

    pub(crate) fn revision(&self) -> u64 {
        self.revision
    }

    pub(crate) fn get(&self, key: &Key) -> Option<&Arc<Object>> {
        self.objects.get(key)
    }

    /// Inserts an object that was built for the next revision.
    pub(crate) fn put(&mut self, object: Arc<Object>) {
        debug_assert_eq!(object.revision, self.revision + 1, "built under the lock that puts it");
        let before = self.objects.insert(object.key.clone(), object.clone());
        self.push(Event { revision: object.revision, before, after: After::Is(object) });
    }

    /// Removes an object. `last` is its last state, built for the next revision.
    pub(crate) fn remove(&mut self, last: Arc<Object>) {
        let before = self.objects.remove(&last.key);
        self.push(Event { revision: last.revision, before, after: After::Gone(last) });
    }

    fn push(&mut self, event: Event) {
        self.revision = event.revision;
        self.log.push_back(event);
        while self.log.len() > self.horizon {
            self.forget_oldest();
        }
    }

    fn forget_oldest(&mut self) {
        if let Some(gone) = self.log.pop_front() {
            self.compacted = gone.revision;
            self.left.insert(gone.key().resource.clone(), gone.revision);
        }
    }

    /// Discards the whole log, as etcd does on compaction.
    pub(crate) fn compact(&mut self) {
        self.log.clear();
        (self.compacted, self.emptied) = (self.revision, self.revision);
    }

    /// All current objects, for [`Store::restore`].
    pub(crate) fn objects(&self) -> BTreeMap<Key, Arc<Object>> {
        self.objects.clone()
    }

    /// Replaces all objects, at a revision that no client has seen. The log contains no events for this change.
    pub(crate) fn restore(&mut self, objects: BTreeMap<Key, Arc<Object>>) {
        self.objects = objects;
        self.revision += RESTORED;
        self.compact();
    }

    /// The current objects of a scope after the key `after`.
    pub(crate) fn list(&self, scope: &Scope, after: Option<&Key>) -> impl Iterator<Item = &Arc<Object>> {
        let start = after.map_or_else(|| Bound::Included(scope.start()), |key| Bound::Excluded(key.clone()));
        let within = self.objects.range((start, Bound::Unbounded));
        within.map(|(_, object)| object).take_while(move |object| scope.holds(&object.key))
    }

    /// The objects of a scope as they were at a revision.
    pub(crate) fn list_at(
        &self,
        scope: &Scope,
        after: Option<&Key>,
        at: u64,
    ) -> Result<Vec<Arc<Object>>, Compacted> {
        if at < self.compacted {
            return Err(Compacted { oldest: self.compacted });
        }
        let mut then: BTreeMap<&Key, &Arc<Object>> =
            self.list(scope, after).map(|object| (&object.key, object)).collect();
        for event in self.log.iter().rev().take_while(|event| event.revision > at) {
            let key = event.key();
            if !scope.holds(key) || after.is_some_and(|after| key <= after) {
                continue;
            }
            match &event.before {
                Some(before) => then.insert(key, before),
                None => then.remove(key),
            };
        }
        Ok(then.into_values().cloned().collect())
    }

    /// Up to `most` events of a scope after a revision, and the revision up to which the log was read. It is no error
    /// if the log has dropped events of other resources.
    pub(crate) fn events_after(
        &self,
        cursor: u64,
        scope: &Scope,
        most: usize,
    ) -> Result<(Vec<Event>, u64), Compacted> {
        let left = self.left.get(&scope.resource).copied().unwrap_or(0);
        if cursor < left.max(self.emptied) {
            return Err(Compacted { oldest: self.compacted });
        }
        let first = self.log.partition_point(|event| event.revision <= cursor);
        let mut found = Vec::new();
        for event in self.log.range(first..) {
            if scope.holds(event.key()) {
                found.push(event.clone());
                if found.len() == most {
                    return Ok((found, event.revision));
                }
            }
        }
        Ok((found, self.revision))
    }
}
