//! The pods of a list that a watch is reading. A pod that is known and is not in the complete list is gone.

use joulie_core::placement::assumed::PodUid;
use std::collections::BTreeSet;

/// The UIDs in the list so far, while one is read.
#[derive(Clone, Debug, Default)]
pub(crate) struct Listing(Option<BTreeSet<PodUid>>);

impl Listing {
    /// A list begins.
    pub(crate) fn begin(&mut self) {
        self.0 = Some(BTreeSet::new());
    }

    /// A pod of the list, or a change after it.
    pub(crate) fn see(&mut self, pod: PodUid) {
        if let Some(listed) = &mut self.0 {
            listed.insert(pod);
        }
    }

    /// The list is complete: which of the pods that are known are gone.
    pub(crate) fn end(&mut self, known: impl Iterator<Item = PodUid>) -> Vec<PodUid> {
        let Some(listed) = self.0.take() else { return Vec::new() };
        known.filter(|pod| !listed.contains(pod)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use joulie_api::extender::pod;

    #[test]
    fn what_a_complete_list_lacks_is_gone() {
        let [a, b, c] = ["a", "b", "c"].map(pod::uid);
        let mut listing = Listing::default();
        listing.see(a);
        assert_eq!(listing.end([a, b].into_iter()), [], "no list was begun");
        listing.begin();
        listing.see(a);
        listing.see(c);
        assert_eq!(listing.end([a, b].into_iter()), [b]);
        assert_eq!(listing.end([a, b].into_iter()), [], "it is over");
    }
}
