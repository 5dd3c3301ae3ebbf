//! The pods, counted: kept from look to look, so that of tens of thousands only those that have changed are looked at.

use super::Lens;
use crate::rows::PodSeen;
use host_kit::reflect::{Held, Key, News, Rows};
use planner::demand::{PodCounts, PodRow};

/// Takes in what has changed; the counts are nothing while the pods are not known. Whether that changes any count.
pub(super) fn read(counts: &mut Option<PodCounts>, pods: &mut Rows<PodSeen>, lens: &Lens) -> bool {
    if !pods.is_synced() {
        return counts.take().is_some();
    }
    pods.news(|news| take(counts, &news, lens)).unwrap_or(false)
}

fn take(known: &mut Option<PodCounts>, news: &News<'_, PodSeen>, lens: &Lens) -> bool {
    let row = |key: &Key, held: &Held<PodSeen>| held.row.row(&key.namespace, &lens.profile_key);
    if let (Some(changes), Some(counts)) = (&news.changes, &mut *known) {
        let mut changed = false;
        for change in changes {
            let rows = [change.before, change.now].map(|held| held.map(|held| row(change.key, held)));
            let [before, now] =
                rows.each_ref().map(|row| row.as_ref().and_then(|row| row.counted(&lens.ignored_namespaces)));
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
        row.counted(&lens.ignored_namespaces).iter().for_each(|pod| counts.count(pod));
    }
    let changed = known.as_ref() != Some(&counts);
    *known = Some(counts);
    changed
}
