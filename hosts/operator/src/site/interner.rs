//! Texts that many nodes have in common, each kept once: a pass over thousands of nodes then meets the same few letters
//! again and again, and not as many copies of them.

use std::collections::BTreeSet;
use std::sync::Arc;

/// The texts.
#[derive(Debug, Default)]
pub(super) struct Interner(BTreeSet<Arc<str>>);

impl Interner {
    /// A text, the same for all who ask for it.
    pub(super) fn share(&mut self, text: &str) -> Arc<str> {
        if let Some(known) = self.0.get(text) {
            return known.clone();
        }
        let new: Arc<str> = text.into();
        self.0.insert(new.clone());
        new
    }

    /// Shares these texts, as far as they are there.
    pub(super) fn share_all<const N: usize>(&mut self, texts: [&mut Option<Arc<str>>; N]) {
        for text in texts.into_iter().flatten() {
            *text = self.share(text);
        }
    }

    /// Forgets what nobody has any more.
    pub(super) fn forget_unused(&mut self) {
        self.0.retain(|text| Arc::strong_count(text) > 1);
    }
}
