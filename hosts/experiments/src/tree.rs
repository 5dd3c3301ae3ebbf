//! An ordered index of the nodes for one shape of a request: the best node in a few comparisons.

/// What the inner places of the tree hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Holds {
    /// The largest value below.
    Largest,
    /// How many values there are below, where each is one.
    Count,
}

/// A complete binary tree over the nodes of a class.
#[derive(Clone, Debug)]
pub(crate) struct Tree {
    holds: Holds,
    leaves: usize,
    places: Vec<f64>,
}

impl Tree {
    pub(crate) fn new(nodes: usize, holds: Holds) -> Self {
        let leaves = nodes.next_power_of_two();
        let mut tree = Self { holds, leaves, places: Vec::new() };
        tree.places = vec![tree.nothing(); 2 * leaves];
        tree
    }

    /// The value of a node that the request does not fit.
    pub(crate) const fn nothing(&self) -> f64 {
        match self.holds {
            Holds::Largest => f64::NEG_INFINITY,
            Holds::Count => 0.0,
        }
    }

    fn join(&self, place: usize) -> f64 {
        let (left, right) = (self.places[2 * place], self.places[2 * place + 1]);
        match self.holds {
            Holds::Largest if left >= right => left,
            Holds::Largest => right,
            Holds::Count => left + right,
        }
    }

    /// Sets a node's value without the places above, which [`Self::rebuild`] then computes.
    pub(crate) fn put(&mut self, node: usize, value: f64) {
        self.places[self.leaves + node] = value;
    }

    pub(crate) fn rebuild(&mut self) {
        for place in (1..self.leaves).rev() {
            self.places[place] = self.join(place);
        }
    }

    pub(crate) fn set(&mut self, node: usize, value: f64) {
        let mut place = self.leaves + node;
        if self.places[place] == value {
            return;
        }
        self.places[place] = value;
        while place > 1 {
            place /= 2;
            let joined = self.join(place);
            if self.places[place] == joined {
                return;
            }
            self.places[place] = joined;
        }
    }

    /// The largest value, or the count.
    pub(crate) fn top(&self) -> f64 {
        self.places[1]
    }

    /// The lowest node with at least this value; there must be one.
    pub(crate) fn lowest(&self, least: f64) -> usize {
        let mut place = 1;
        while place < self.leaves {
            place *= 2;
            if self.places[place] < least {
                place += 1;
            }
        }
        place - self.leaves
    }

    /// The node that has this many counted nodes before it; there must be one.
    pub(crate) fn nth(&self, before: f64) -> usize {
        let (mut place, mut left) = (1, before);
        while place < self.leaves {
            place *= 2;
            if left >= self.places[place] {
                left -= self.places[place];
                place += 1;
            }
        }
        place - self.leaves
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_of_the_best_nodes_is_found() {
        let mut tree = Tree::new(5, Holds::Largest);
        for (node, value) in [(0, 1.0), (2, 7.0), (4, 7.0)] {
            tree.set(node, value);
        }
        assert_eq!((tree.top(), tree.lowest(7.0), tree.lowest(0.5)), (7.0, 2, 0));
        tree.set(2, f64::NEG_INFINITY);
        assert_eq!(tree.lowest(tree.top()), 4);
    }

    #[test]
    fn counted_nodes_are_found_by_their_number() {
        let mut tree = Tree::new(5, Holds::Count);
        for node in [1, 3, 4] {
            tree.put(node, 1.0);
        }
        tree.rebuild();
        assert_eq!(tree.top(), 3.0);
        assert_eq!([tree.nth(0.0), tree.nth(1.0), tree.nth(2.0)], [1, 3, 4]);
    }
}
