//! The cards of all nodes as a filter looks at them, which asks thousands of nodes the same question with each request.

use joulie_core::placement::gpu::{AlikeCards, GroupedCards, PhysicalGpu, alike, island_sets};

/// The cards of all nodes, grouped when a snapshot is made.
#[derive(Debug, Default)]
pub(super) struct AllGrouped {
    /// By node number, and where the last ones end.
    nodes: Box<[GroupedNode]>,
    alike: Box<[AlikeCards]>,
    islands: Box<[u64]>,
}

/// How many cards a node has, and where its groups begin.
#[derive(Clone, Copy, Debug)]
struct GroupedNode {
    cards: u32,
    alike: u32,
    islands: u32,
}

impl AllGrouped {
    /// The cards of these nodes, in the order of their numbers.
    pub(super) fn of<'c>(nodes: impl Iterator<Item = &'c [PhysicalGpu]>) -> Self {
        let (mut all, mut rows, mut islands) = (Vec::new(), Vec::new(), Vec::new());
        let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        for cards in nodes.chain([&[][..]]) {
            all.push(GroupedNode {
                cards: number(cards.len()),
                alike: number(rows.len()),
                islands: number(islands.len()),
            });
            rows.extend(alike(cards));
            islands.extend(island_sets(cards));
        }
        Self { nodes: all.into(), alike: rows.into(), islands: islands.into() }
    }

    /// The cards of the node of this number; none if it has none, or is not known.
    #[inline]
    pub(super) fn node(&self, number: Option<usize>) -> GroupedCards<'_> {
        let two = number.and_then(|number| self.nodes.get(number..)?.first_chunk::<2>());
        let Some([node, next]) = two else { return GroupedCards::NONE };
        GroupedCards {
            count: place(node.cards),
            alike: self.alike.get(place(node.alike)..place(next.alike)).unwrap_or_default(),
            islands: self.islands.get(place(node.islands)..place(next.islands)).unwrap_or_default(),
        }
    }
}

fn place(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests;
