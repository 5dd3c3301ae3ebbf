//! Counts of the pods, and those that may be moved. They are kept from look to look, so that of tens of thousands only
//! changed pods are read.

use super::{Movable, Selectors};
use crate::rows::PodSeen;
use host_kit::reflect::{CachedRow, ObjectKey, RowChanges, Rows};
use planner::demand::{PodCounts, PodRow};

/// Takes in changed pods; returns whether that changes any count or pod that may be moved. The counts are `None` while
/// the pods are not known.
pub(super) fn read(
    counts: &mut Option<PodCounts>,
    movable: &mut Movable,
    pods: &mut Rows<PodSeen>,
    selectors: &Selectors,
) -> bool {
    if !pods.is_synced() {
        *movable = Movable::default();
        return counts.take().is_some();
    }
    let both = |news: RowChanges<'_, PodSeen>| {
        let counted = take(counts, &news, selectors);
        index(movable, &news, selectors) | counted
    };
    pods.news(both).unwrap_or(false)
}

fn index(known: &mut Movable, news: &RowChanges<'_, PodSeen>, selectors: &Selectors) -> bool {
    let ignored = &selectors.ignored_namespaces;
    let counts = |key: &ObjectKey, held: &&CachedRow<PodSeen>| Movable::counts(key, &held.row, ignored);
    let Some(changes) = &news.changes else {
        let mut movable = Movable::default();
        for (key, held) in news.rows.iter().filter(|(key, held)| counts(key, held)) {
            movable.put(key, &held.row);
        }
        let changed = movable != *known;
        *known = movable;
        return changed;
    };
    let mut changed = false;
    for change in changes {
        let [before, now] =
            [change.before, change.now].map(|held| held.filter(|held| counts(change.key, held)));
        if before.map(|held| &held.row) != now.map(|held| &held.row) {
            changed = true;
            before.iter().for_each(|held| known.take(change.key, &held.row));
            now.iter().for_each(|held| known.put(change.key, &held.row));
        }
    }
    changed
}

fn take(known: &mut Option<PodCounts>, news: &RowChanges<'_, PodSeen>, selectors: &Selectors) -> bool {
    let row =
        |key: &ObjectKey, held: &CachedRow<PodSeen>| held.row.row(&key.namespace, &selectors.profile_key);
    if let (Some(changes), Some(counts)) = (&news.changes, &mut *known) {
        let mut changed = false;
        for change in changes {
            let rows = [change.before, change.now].map(|held| held.map(|held| row(change.key, held)));
            let [before, now] = rows
                .each_ref()
                .map(|row| row.as_ref().and_then(|row| row.counted(&selectors.ignored_namespaces)));
            if before != now {
                changed = true;
                before.iter().for_each(|pod| counts.take_back(pod));
                now.iter().for_each(|pod| counts.count(pod));
            }
        }
        return changed;
    }
    let mut counts = PodCounts::default();
    for (key, held) in news.rows {
        let row: PodRow = row(key, held);
        row.counted(&selectors.ignored_namespaces).iter().for_each(|pod| counts.count(pod));
    }
    let changed = known.as_ref() != Some(&counts);
    *known = Some(counts);
    changed
}
