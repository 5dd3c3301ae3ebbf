//! What is kept for each node, on a page of its own. In one round each node is asked for many times, and mostly in the same
//! order: who turns the page needs no search.

use planner::places::Places;
use std::sync::Arc;

/// Values by the names of nodes.
#[derive(Debug)]
pub(super) struct Books<T> {
    pages: Vec<(Arc<str>, T)>,
    places: Places,
    /// Behind the page that was found last.
    next: usize,
}

impl<T> Default for Books<T> {
    fn default() -> Self {
        Self { pages: Vec::new(), places: Places::default(), next: 0 }
    }
}

impl<T> Books<T> {
    /// The page of a node; it stays where it is until pages are torn out.
    pub(super) fn page(&mut self, node: &Arc<str>) -> Option<usize> {
        let turned = self.pages.get(self.next).is_some_and(|(name, _)| Arc::ptr_eq(name, node));
        let page = if turned { Some(self.next) } else { self.find(node) };
        self.next = page.map_or(0, |page| page + 1);
        page
    }

    /// The page of a node, by its name alone.
    pub(super) fn find(&self, node: &str) -> Option<usize> {
        self.places.find(node, |at| self.pages.get(at).map(|(name, _)| &**name))
    }

    /// What is on a page.
    pub(super) fn get(&self, page: usize) -> Option<&T> {
        self.pages.get(page).map(|(_, value)| value)
    }

    /// What is on a page, to change it.
    pub(super) fn get_mut(&mut self, page: usize) -> Option<&mut T> {
        self.pages.get_mut(page).map(|(_, value)| value)
    }

    /// Keeps this for a node, in the place of what was kept.
    pub(super) fn insert(&mut self, node: &Arc<str>, value: T) {
        if let Some(known) = self.find(node).and_then(|page| self.get_mut(page)) {
            *known = value;
            return;
        }
        self.pages.push((node.clone(), value));
        self.places.push(self.pages.len() - 1, |at| self.pages.get(at).map(|(name, _)| &**name));
    }

    /// How many nodes have a page.
    pub(super) fn len(&self) -> usize {
        self.pages.len()
    }

    /// Tears out all other pages.
    pub(super) fn keep_only(&mut self, stays: impl Fn(usize) -> bool) {
        let mut page = 0..;
        self.pages.retain(|_| page.next().is_some_and(&stays));
        self.places = Places::new(self.pages.iter().map(|(node, _)| &**node));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn what_is_kept_is_what_was_last_put_in(steps in prop::collection::vec((0_u8..30, 0_u8..12), 0..120)) {
            let (mut books, mut map) = (Books::default(), BTreeMap::new());
            for (step, (node, what)) in steps.into_iter().enumerate() {
                let name: Arc<str> = format!("n{node}").into();
                if what == 0 {
                    let length = name.len();
                    let stays: Vec<bool> = books.pages.iter().map(|(other, _)| other.len() == length).collect();
                    books.keep_only(|page| stays[page]);
                    map.retain(|other: &Arc<str>, _| other.len() == length);
                } else {
                    books.insert(&name, step);
                    map.insert(name, step);
                }
                prop_assert_eq!(books.len(), map.len());
                for node in 0..30 {
                    let name: Arc<str> = format!("n{node}").into();
                    let page = books.find(&name);
                    prop_assert_eq!(page.and_then(|page| books.get(page)), map.get(&name));
                    prop_assert_eq!(books.page(&name), page);
                }
                // By the very names that were put in, one behind the other and every other one.
                let shared: Vec<Arc<str>> = books.pages.iter().map(|(name, _)| name.clone()).collect();
                for step in [1, 2] {
                    for (page, name) in shared.iter().enumerate().step_by(step) {
                        prop_assert_eq!(books.page(name), Some(page));
                    }
                }
            }
        }
    }
}
