//! Texts that many nodes have in common, each kept once. A pass over thousands of nodes then reads the same few texts
//! again and again, instead of many copies.

use std::collections::BTreeSet;
use std::sync::Arc;

/// The texts.
#[derive(Debug, Default)]
pub(super) struct Interner(BTreeSet<Arc<str>>);

impl Interner {
    /// Returns the shared copy of a text.
    pub(super) fn share(&mut self, text: &str) -> Arc<str> {
        if let Some(known) = self.0.get(text) {
            return known.clone();
        }
        let new: Arc<str> = text.into();
        self.0.insert(new.clone());
        new
    }

    /// Replaces these texts by shared copies, where they are present.
    pub(super) fn share_all<const N: usize>(&mut self, texts: [&mut Option<Arc<str>>; N]) {
        for text in texts.into_iter().flatten() {
            *text = self.share(text);
        }
    }

    /// Forgets texts that are not used any more.
    pub(super) fn forget_unused(&mut self) {
        self.0.retain(|text| Arc::strong_count(text) > 1);
    }
}
