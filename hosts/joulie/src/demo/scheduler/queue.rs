//! Which waiting pods are tried next. No I/O and no clock.
//!
//! As in kube-scheduler, a pod that fits nowhere is tried again when the cluster has changed and its back-off is
//! over. The back-off starts at one second and doubles up to ten. A pod that has waited for half a minute is tried in
//! any case.

use super::book::PodRow;
use host_kit::clock::Mono;
use host_kit::reflect::ObjectKey;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

const PAUSE_FIRST: Duration = Duration::from_secs(1);
const PAUSE_MOST: Duration = Duration::from_secs(10);
const ANYWAY: Duration = Duration::from_secs(30);

/// The waiting pods.
#[derive(Debug, Default)]
pub(super) struct Queue {
    pods: BTreeMap<ObjectKey, Waiting>,
    changes: u64,
}

#[derive(Debug)]
struct Waiting {
    /// The UID, so that another pod of the same name starts without a back-off.
    uid: String,
    since: Mono,
    failures: u32,
    /// The time of the last failure, and the number of changes until then.
    failed: Option<(Mono, u64)>,
}

impl Waiting {
    fn pause(&self) -> Duration {
        PAUSE_FIRST.saturating_mul(1 << self.failures.saturating_sub(1).min(8)).min(PAUSE_MOST)
    }
}

impl Queue {
    /// Records a change of the cluster.
    pub(super) fn cluster_changed(&mut self) {
        self.changes = self.changes.wrapping_add(1);
    }

    /// Updates the waiting pods, and returns those that are due: the oldest first.
    pub(super) fn due(
        &mut self,
        waiting: Vec<(ObjectKey, Arc<PodRow>)>,
        now: Mono,
    ) -> Vec<(ObjectKey, Arc<PodRow>)> {
        let uids: BTreeMap<&ObjectKey, &str> =
            waiting.iter().map(|(key, pod)| (key, pod.uid.as_str())).collect();
        self.pods.retain(|key, known| uids.get(key) == Some(&known.uid.as_str()));
        for (key, pod) in &waiting {
            let new = || Waiting { uid: pod.uid.clone(), since: now, failures: 0, failed: None };
            self.pods.entry(key.clone()).or_insert_with(new);
        }
        let mut due: Vec<_> = waiting.into_iter().filter(|(key, _)| self.is_due(key, now)).collect();
        due.sort_by(|(a, left), (b, right)| (&left.created, a).cmp(&(&right.created, b)));
        due
    }

    fn is_due(&self, key: &ObjectKey, now: Mono) -> bool {
        let Some(pod) = self.pods.get(key) else { return false };
        let Some((at, changes)) = pod.failed else { return true };
        let rested = now.since(at);
        rested >= ANYWAY || (rested >= pod.pause() && changes != self.changes)
    }

    /// Records that no node was found for a pod.
    pub(super) fn failed(&mut self, key: &ObjectKey, now: Mono) {
        let changes = self.changes;
        if let Some(pod) = self.pods.get_mut(key) {
            pod.failures = pod.failures.saturating_add(1);
            pod.failed = Some((now, changes));
        }
    }

    /// Removes a placed pod, and returns how long it waited.
    pub(super) fn placed(&mut self, key: &ObjectKey, now: Mono) -> Duration {
        self.pods.remove(key).map_or(Duration::ZERO, |pod| now.since(pod.since))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use host_kit::reflect::Row;

    fn at(seconds: u64) -> Mono {
        Mono::at(Duration::from_secs(seconds))
    }

    fn pod(name: &str, uid: &str, created: &str) -> (ObjectKey, Arc<PodRow>) {
        let object = serde_json::json!({"metadata": {"uid": uid, "creationTimestamp": created}});
        let row = PodRow::read(&object).unwrap();
        (ObjectKey { namespace: "default".to_owned(), name: name.to_owned() }, Arc::new(row))
    }

    fn names(due: Vec<(ObjectKey, Arc<PodRow>)>) -> String {
        due.into_iter().map(|(key, _)| key.name).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn the_oldest_is_first() {
        let mut queue = Queue::default();
        let all = vec![pod("a", "1", "10:02"), pod("b", "2", "10:01"), pod("c", "3", "10:01")];
        assert_eq!(names(queue.due(all, at(0))), "b c a");
    }

    #[test]
    fn a_pod_that_failed_waits_for_a_change_and_for_its_pause() {
        let mut queue = Queue::default();
        let all = || vec![pod("a", "1", "")];
        let key = all()[0].0.clone();
        assert_eq!(names(queue.due(all(), at(0))), "a");
        queue.failed(&key, at(0));
        assert_eq!(names(queue.due(all(), at(29))), "");
        queue.cluster_changed();
        assert_eq!(names(queue.due(all(), at(0))), "");
        assert_eq!(names(queue.due(all(), at(1))), "a");
        // Back-off after the second failure: 2 s; after the fifth and all later ones: 10 s.
        queue.failed(&key, at(1));
        queue.cluster_changed();
        assert_eq!(names(queue.due(all(), at(2))), "");
        assert_eq!(names(queue.due(all(), at(3))), "a");
        for _ in 0..40 {
            queue.failed(&key, at(3));
        }
        queue.cluster_changed();
        assert_eq!(names(queue.due(all(), at(12))), "");
        assert_eq!(names(queue.due(all(), at(13))), "a");
        assert_eq!(queue.placed(&key, at(14)), Duration::from_secs(14));
    }

    #[test]
    fn nothing_changed_for_half_a_minute_is_tried_anyway() {
        let mut queue = Queue::default();
        let all = || vec![pod("a", "1", "")];
        queue.due(all(), at(0));
        queue.failed(&all()[0].0, at(0));
        assert_eq!(names(queue.due(all(), at(30))), "a");
    }

    #[test]
    fn another_pod_of_the_same_name_begins_anew() {
        let mut queue = Queue::default();
        let (key, _) = pod("a", "1", "");
        queue.due(vec![pod("a", "1", "")], at(0));
        queue.failed(&key, at(0));
        assert_eq!(names(queue.due(vec![pod("a", "2", "")], at(0))), "a");
        assert_eq!(names(queue.due(Vec::new(), at(0))), "");
        assert_eq!(queue.placed(&key, at(9)), Duration::ZERO);
    }
}
