//! The pods that wait for a node, as the watch reports them.
//!
//! An answer affects the scores of other pods only if it is about one of these, and with the watts that the object
//! requests: whoever reaches the port can invent requests, but not pods (docs/adr/0011).

use joulie_core::placement::assumed::PodUid;
use joulie_core::placement::score::PodTerms;

/// The waiting pods, sorted by UID.
#[derive(Clone, Debug, Default)]
pub(crate) struct Queue(Box<[(PodUid, PodTerms)]>);

impl Queue {
    /// What the pod requests, if it is one of them.
    pub(crate) fn find(&self, pod: PodUid) -> Option<&PodTerms> {
        let at = self.0.binary_search_by_key(&pod, |(uid, _)| *uid).ok()?;
        self.0.get(at).map(|(_, terms)| terms)
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}

impl FromIterator<(PodUid, PodTerms)> for Queue {
    fn from_iter<I: IntoIterator<Item = (PodUid, PodTerms)>>(pods: I) -> Self {
        let mut all: Box<[_]> = pods.into_iter().collect();
        all.sort_unstable_by_key(|(uid, _)| *uid);
        Self(all)
    }
}
