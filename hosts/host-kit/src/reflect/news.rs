//! Tells a reader what has changed since it last looked: of tens of thousands of rows, mostly one has changed.
//!
//! The last changes are kept, each with the row from before it. A reader that has missed only some of these gets the
//! objects that they are about. A reader that has missed more, or a list, reads everything.

use super::object::ObjectKey;
use super::table::CachedRow;
use std::collections::{BTreeMap, VecDeque};

/// How many changes are kept: more than come between two looks, unless so much changes that reading everything is
/// cheaper.
const CHANGES_MAX: usize = 256;
/// Where there are few rows, reading everything is cheap, and each change keeps a whole row from before it: then as many are kept as
/// there are rows, and some for an object that comes and goes.
const CHANGES_LEAST: usize = 8;

/// What has changed.
#[derive(Debug)]
pub struct RowChanges<'a, R> {
    /// All rows as they are now.
    pub rows: &'a BTreeMap<ObjectKey, CachedRow<R>>,
    /// The objects that have changed, each once, in the order of their keys; `None` if all may have changed.
    pub changes: Option<Vec<RowChange<'a, R>>>,
}

/// The change of one object.
#[derive(Debug)]
pub struct RowChange<'a, R> {
    /// The object.
    pub key: &'a ObjectKey,
    /// Its row when the reader last looked.
    pub before: Option<&'a CachedRow<R>>,
    /// Its row now.
    pub now: Option<&'a CachedRow<R>>,
}

/// The last changes.
#[derive(Debug)]
pub(super) struct Log<R> {
    changes: VecDeque<(ObjectKey, Option<CachedRow<R>>)>,
    /// The number of changes so far.
    end: u64,
}

impl<R> Log<R> {
    pub(super) const fn new() -> Self {
        Self { changes: VecDeque::new(), end: 0 }
    }

    pub(super) const fn end(&self) -> u64 {
        self.end
    }

    /// Records that one object of `rows` has changed; `before` is its previous row.
    pub(super) fn note(&mut self, key: ObjectKey, before: Option<CachedRow<R>>, rows: usize) {
        while self.changes.len() >= rows.clamp(CHANGES_LEAST, CHANGES_MAX) {
            self.changes.pop_front();
        }
        self.changes.push_back((key, before));
        self.end += 1;
    }

    /// Records that everything may have changed.
    pub(super) fn begin_anew(&mut self) {
        self.changes.clear();
        self.end += 1;
    }

    /// What has changed after the first `seen` changes, given the present rows.
    pub(super) fn since<'a>(
        &'a self,
        seen: u64,
        rows: &'a BTreeMap<ObjectKey, CachedRow<R>>,
    ) -> RowChanges<'a, R> {
        let missed = usize::try_from(self.end - seen).unwrap_or(usize::MAX);
        let changes = self.changes.len().checked_sub(missed).map(|known| {
            let mut first = BTreeMap::new();
            for (key, before) in self.changes.iter().skip(known) {
                first.entry(key).or_insert(before.as_ref());
            }
            first.into_iter().map(|(key, before)| RowChange { key, before, now: rows.get(key) }).collect()
        });
        RowChanges { rows, changes }
    }
}
