//! Counts of the pods, and those that may be moved. They are kept from look to look, so that of tens of thousands only
//! changed pods are read.

use super::profiles::intensities;
use super::{Asking, Fresh, Movable, Occupants, Selectors};
use crate::rows::PodSeen;
use host_kit::reflect::{CachedRow, ObjectKey, RowChanges, Rows};
use joulie_api::workload_profile::TrustedProfiles;
use planner::demand::{Counted, DemandClass, PodCounts};
use std::collections::BTreeMap;

/// How pods are read.
pub(super) struct PodReader<'a> {
    pub(super) selectors: &'a Selectors,
    /// What trusted profiles say of their workloads.
    pub(super) workloads: &'a TrustedProfiles,
    /// Whether that has changed, so that every pod is counted anew.
    pub(super) anew: bool,
}

/// What is kept of the pods.
pub(super) struct PodsKept<'a> {
    /// `None` while the pods are not known.
    pub(super) counts: &'a mut Option<PodCounts>,
    pub(super) movable: &'a mut Movable,
    pub(super) asking: &'a mut Asking,
    pub(super) occupants: &'a mut Occupants,
    pub(super) fresh: &'a mut Fresh,
}

impl PodReader<'_> {
    /// Takes in changed pods; returns whether that changes any count, any pod that may be moved, or any that does not run yet.
    pub(super) fn read(&self, kept: PodsKept<'_>, pods: &mut Rows<PodSeen>) -> bool {
        let PodsKept { counts, movable, asking, occupants, fresh } = kept;
        if !pods.is_synced() {
            (*movable, *asking, *occupants, *fresh) = Default::default();
            return counts.take().is_some();
        }
        let anew = self.anew || asking.is_of_another(&self.selectors.bound);
        let mut all = |news: RowChanges<'_, PodSeen>| {
            let known = counts.is_some();
            let judged = self.judge(asking, &news, known);
            let counted = self.take(counts, &news, asking, anew || judged);
            let occupied = self.selectors.sleep && occupants.take(&news, known);
            index(movable, &news, self.selectors) | fresh.take(&news) | counted | occupied
        };
        match pods.news(&mut all) {
            Some(changed) => changed,
            // What has changed since is taken in with all others, so that it is not counted twice.
            None if anew => pods.catch_up(|rows| all(RowChanges { rows, changes: None })),
            None => false,
        }
    }

    /// Keeps the pods that ask for performance, where that is bounded. Returns whether others are past the bound now.
    fn judge(&self, asking: &mut Asking, news: &RowChanges<'_, PodSeen>, known: bool) -> bool {
        let bound = &self.selectors.bound;
        if !bound.any() {
            return !std::mem::take(asking).past().is_empty();
        }
        let asks = |key: &ObjectKey, held: &&CachedRow<PodSeen>| {
            held.row.asking.is_some()
                && held
                    .row
                    .row(&key.namespace, &self.selectors.profile_key)
                    .counted(&self.selectors.ignored_namespaces)
                    .is_some_and(|pod| pod.class == Some(DemandClass::PerformanceOnly))
        };
        let changes = news.changes.as_ref().filter(|_| known);
        let Some(changes) = changes else {
            let mut all = Asking::default();
            for (key, held) in news.rows.iter().filter(|(key, held)| asks(key, held)) {
                all.put(key, &held.row);
            }
            all.judge(bound);
            let changed = all.past() != asking.past();
            *asking = all;
            return changed;
        };
        for change in changes {
            change
                .before
                .filter(|held| asks(change.key, held))
                .iter()
                .for_each(|held| asking.take(change.key, &held.row));
            change
                .now
                .filter(|held| asks(change.key, held))
                .iter()
                .for_each(|held| asking.put(change.key, &held.row));
        }
        asking.judge(bound)
    }

    fn take(
        &self,
        known: &mut Option<PodCounts>,
        news: &RowChanges<'_, PodSeen>,
        asking: &Asking,
        anew: bool,
    ) -> bool {
        let (Some(changes), Some(counts), false) = (&news.changes, &mut *known, anew) else {
            return self.count_all(known, news.rows, asking);
        };
        let mut changed = false;
        for change in changes {
            let [before, now] = [change.before, change.now]
                .map(|held| held.and_then(|held| self.counted(change.key, held, asking)));
            if before != now {
                changed = true;
                before.iter().for_each(|pod| counts.take_back(pod));
                now.iter().for_each(|pod| counts.count(pod));
            }
        }
        changed
    }

    fn count_all(
        &self,
        known: &mut Option<PodCounts>,
        rows: &BTreeMap<ObjectKey, CachedRow<PodSeen>>,
        asking: &Asking,
    ) -> bool {
        let counts = PodCounts::of(rows.iter().filter_map(|(key, held)| self.counted(key, held, asking)));
        let changed = known.as_ref() != Some(&counts);
        *known = Some(counts);
        changed
    }

    /// What a pod counts as, and how hard its workload works.
    fn counted<'r>(
        &self,
        key: &'r ObjectKey,
        held: &'r CachedRow<PodSeen>,
        asking: &Asking,
    ) -> Option<Counted<'r>> {
        let row = held.row.row(&key.namespace, &self.selectors.profile_key);
        let pod = row.counted(&self.selectors.ignored_namespaces)?;
        let works = match self.workloads.is_empty() {
            true => None,
            false => self.workloads.find(held.row.workload(key)).map(intensities),
        };
        let pod = pod.working(works.unwrap_or_default());
        let is_past = !asking.past().is_empty() && asking.past().contains_key(key);
        Some(if is_past { pod.past_bound() } else { pod })
    }
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
