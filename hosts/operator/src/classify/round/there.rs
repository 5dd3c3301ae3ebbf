//! The profiles that are there, and the names of those that are not.

use crate::classify::workloads::WorkloadKey;
use crate::rows::WorkloadProfileSeen;
use host_kit::reflect::{CachedRow, ObjectKey};
use joulie_api::names;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

/// The profiles that are there, by workload: the one that counts, and those of ours that are one too many.
pub(super) struct There<'a> {
    pub(super) of: BTreeMap<WorkloadKey, (&'a ObjectKey, &'a WorkloadProfileSeen)>,
    pub(super) surplus: Vec<(&'a ObjectKey, &'a WorkloadProfileSeen)>,
}

impl<'a> There<'a> {
    /// Of several profiles of one workload a person's counts; among those of one kind the first by name.
    pub(super) fn of(profiles: &'a BTreeMap<ObjectKey, CachedRow<WorkloadProfileSeen>>) -> Self {
        let (mut of, mut surplus) = (BTreeMap::new(), Vec::new());
        for persons in [true, false] {
            for (key, cached) in profiles.iter().filter(|(_, cached)| cached.row.is_ours() != persons) {
                let Some((kind, name)) = cached.row.workload.clone() else { continue };
                let workload = WorkloadKey { namespace: key.namespace.clone(), kind, name };
                let one = (key, &*cached.row);
                match of.entry(workload) {
                    Entry::Vacant(free) => drop(free.insert(one)),
                    Entry::Occupied(_) if persons => {}
                    Entry::Occupied(_) => surplus.push(one),
                }
            }
        }
        Self { of, surplus }
    }
}

/// The names that new profiles get: the kind and the name of the workload, with a hash where two workloads would share
/// it or somebody has it.
pub(super) struct Names {
    taken: BTreeSet<ObjectKey>,
    shared: BTreeSet<ObjectKey>,
}

fn full(workload: &WorkloadKey) -> String {
    format!("{}/{}", workload.kind, workload.name)
}

impl Names {
    pub(super) fn of<'a>(
        workloads: impl Iterator<Item = &'a WorkloadKey>,
        profiles: &BTreeMap<ObjectKey, CachedRow<WorkloadProfileSeen>>,
        there: &There<'_>,
    ) -> Self {
        let (mut once, mut shared) = (BTreeSet::new(), BTreeSet::new());
        for key in workloads.filter(|key| !there.of.contains_key(key)) {
            let name = ObjectKey { namespace: key.namespace.clone(), name: names::plain(&full(key)) };
            if let Some(again) = once.replace(name) {
                shared.insert(again);
            }
        }
        let taken = once.into_iter().filter(|key| profiles.contains_key(key)).collect();
        Self { taken, shared }
    }

    /// The name of the profile of a workload that has none.
    pub(super) fn name(&self, workload: &WorkloadKey) -> ObjectKey {
        let full = full(workload);
        let plain = ObjectKey { namespace: workload.namespace.clone(), name: names::plain(&full) };
        if self.taken.contains(&plain) || self.shared.contains(&plain) {
            return ObjectKey { name: names::hashed(&full), ..plain };
        }
        plain
    }
}
