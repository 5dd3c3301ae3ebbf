//! The planner's rows of the pods, kept from look to look: of tens of thousands mostly one has changed.

use super::objects::FEW;
use crate::rows::PodSeen;
use host_kit::reflect::Rows;
use planner::demand::PodRow;
use std::sync::Arc;

/// The pods of the cluster, in the order of their keys.
#[derive(Debug, Default)]
pub(crate) struct Pods {
    seen: Vec<Arc<PodSeen>>,
    /// The planner's rows of them, which are lent to it for a pass; nothing while the pods are not known.
    pub(crate) rows: Option<Vec<PodRow>>,
}

impl Pods {
    /// Takes in what is seen, where the profiles' label has this key. Whether any row has changed.
    pub(crate) fn read(&mut self, pods: &Rows<PodSeen>, key: &str) -> bool {
        if !pods.is_synced() {
            return self.rows.take().is_some();
        }
        let seen: Vec<Arc<PodSeen>> = pods.with(|pods| pods.values().map(|held| held.row.clone()).collect());
        self.take(seen, key)
    }

    fn take(&mut self, seen: Vec<Arc<PodSeen>>, key: &str) -> bool {
        match self.few_others(&seen) {
            Some(places) => self.replace(seen, &places, key),
            None => self.merge(seen, key),
        }
    }

    /// Where pods stand that were not there, if as many stand as before and few of them are others.
    fn few_others(&self, seen: &[Arc<PodSeen>]) -> Option<Vec<usize>> {
        let known = self.rows.as_ref().is_some_and(|rows| rows.len() == seen.len());
        let pairs = seen.iter().zip(&self.seen).enumerate();
        let others = pairs.filter(|(_, (now, was))| !Arc::ptr_eq(now, was)).map(|(at, _)| at);
        let places: Vec<usize> = others.take(FEW + 1).collect();
        (known && places.len() <= FEW).then_some(places)
    }

    fn replace(&mut self, seen: Vec<Arc<PodSeen>>, places: &[usize], key: &str) -> bool {
        let mut changed = false;
        let rows = self.rows.as_deref_mut().unwrap_or_default();
        for &at in places {
            if let (Some(now), Some(was)) = (seen.get(at), rows.get_mut(at)) {
                let row = now.row(key);
                changed |= row != *was;
                *was = row;
            }
        }
        self.seen = seen;
        changed
    }

    /// Both lists are in the order of keys, so what is new, gone or changed shows in one walk.
    fn merge(&mut self, seen: Vec<Arc<PodSeen>>, key: &str) -> bool {
        let known = self.rows.take();
        let mut changed = known.is_none();
        let old = std::mem::take(&mut self.seen).into_iter().zip(known.unwrap_or_default());
        let mut old = old.peekable();
        let row = |pod: &Arc<PodSeen>| {
            // Mostly it has not changed, and then no text is looked at.
            if let Some((_, same)) = old.next_if(|(was, _)| Arc::ptr_eq(was, pod)) {
                return same;
            }
            while old.next_if(|(was, _)| was.key() < pod.key()).is_some() {
                changed = true;
            }
            match old.next_if(|(was, _)| was.key() == pod.key()) {
                Some((was, same)) if Arc::ptr_eq(&was, pod) => same,
                before => {
                    let row = pod.row(key);
                    changed |= before.is_none_or(|(_, was)| was != row);
                    row
                }
            }
        };
        self.rows = Some(seen.iter().map(row).collect());
        changed |= old.next().is_some();
        self.seen = seen;
        changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use host_kit::reflect::Row as _;
    use planner::demand::POWER_PROFILE_LABEL as KEY;
    use proptest::prelude::*;
    use serde_json::json;
    use std::collections::BTreeMap;

    fn pod(name: u32, phase: u8) -> Arc<PodSeen> {
        let phase = if phase.is_multiple_of(2) { "Pending" } else { "Running" };
        let pod = json!({"metadata": {"name": format!("p-{name:05}"), "namespace": "n"}, "spec": {}, "status": {"phase": phase}});
        Arc::new(PodSeen::read(&pod).unwrap())
    }

    proptest! {
        #[test]
        fn the_rows_are_those_of_the_pods_whatever_came_and_went(
            looks in prop::collection::vec(prop::collection::vec((0_u32..200, 0_u8..3), 0..90), 1..8)
        ) {
            let mut there: BTreeMap<u32, Arc<PodSeen>> = BTreeMap::new();
            let mut pods = Pods::default();
            for look in looks {
                for (name, what) in look {
                    if what == 2 { there.remove(&name); } else { there.insert(name, pod(name, what)); }
                }
                let before = pods.rows.clone();
                let changed = pods.take(there.values().cloned().collect(), KEY);
                let wanted: Vec<PodRow> = there.values().map(|pod| pod.row(KEY)).collect();
                prop_assert_eq!(pods.rows.as_ref(), Some(&wanted));
                prop_assert!(changed || before.as_ref() == Some(&wanted), "a change is told");
            }
        }
    }
}
