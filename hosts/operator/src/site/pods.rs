//! Counts of the pods. They are kept from look to look, so that of tens of thousands only changed pods are read.

use super::Selectors;
use crate::rows::PodSeen;
use host_kit::reflect::{CachedRow, ObjectKey, RowChanges, Rows};
use planner::demand::{PodCounts, PodRow};

/// Takes in changed pods; returns whether that changes any count. The counts are `None` while the pods are not known.
pub(super) fn read(counts: &mut Option<PodCounts>, pods: &mut Rows<PodSeen>, selectors: &Selectors) -> bool {
    if !pods.is_synced() {
        return counts.take().is_some();
    }
    pods.news(|news| take(counts, &news, selectors)).unwrap_or(false)
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
