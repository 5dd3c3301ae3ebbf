//! The rules that the operator follows for a budget: a tree of limits, and the order in which caps are lowered and
//! raised.
//!
//! At every instant, and in every group of the tree:
//!
//! > Σ counts of the nodes + base load of what nobody controls ≤ limit
//!
//! This holds whichever of the writes have landed, in any order, and however late the receipts arrive. The rule that
//! ensures it: lower, await the receipt, then raise.
//!
//! - [`tree`]: the groups (site, zone, rack: any depth), each with a limit and a base load;
//! - [`account`]: what one node counts, from its grant, its receipt, and the writes without an answer;
//! - [`node`]: a node as the budget sees it;
//! - [`mod@allocate`]: reduces the caps that the policy desires until every limit is kept;
//! - [`mod@demand`]: caps that follow what each node wants, within the same limits;
//! - [`moves`]: the steps from the present caps to the targets; no load exceeds its limit in between;
//! - [`armed`]: events that lower nodes without any order;
//! - [`sustained`]: a lower limit for the mean over a window;
//! - [`standing`]: the state of every group: its load, what is exceeded and what is awaited;
//! - [`mod@admit`]: whether one node can be upgraded now, later or never.
//!
//! The caller observes, writes what [`moves`] says as grants, and asks again: nothing is remembered between two
//! rounds. All functions work over slices in any order, with working memory that the caller provides. The order of the
//! nodes does not change the result. Sums are checked: an overflow is unknown, not a number. Where anything is unknown
//! nothing is raised, and nothing is lowered for that reason alone. Every group whose limit cannot be kept is
//! reported.
//!
//! Words: a node's **count** is an upper bound of what it may draw, from all that is known; a group's **load** is the
//! sum of the counts below it and of the base loads; its **room** is the limit less the load.

pub mod account;
pub mod admit;
pub mod allocate;
pub mod armed;
pub mod demand;
pub mod moves;
pub mod node;
mod queue;
pub mod standing;
pub mod sustained;
pub mod tree;

pub use account::{Grant, GrantAccount, GrantReceipt};
pub use admit::{Admission, GroupDemand, Wish, admit, demands};
pub use allocate::{Allocation, GroupShare, GroupVerdict, allocate};
pub use moves::{LawError, Move, MoveTuning, Summary, Why, next_moves};
pub use node::{BudgetNode, Priority, Range, RangeError};
pub use queue::Turn;
pub use standing::{GroupState, Overrun};
pub use tree::{BudgetTree, Group, GroupError, TreeError};

/// Why nothing could be computed at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BudgetError {
    /// A node names a group that the tree does not have.
    NoSuchGroup {
        /// The node's key.
        node: u64,
    },
    /// A slice that the caller provides has the wrong length.
    WrongLength {
        /// Which slice.
        slice: &'static str,
        /// How long it must be.
        expected: usize,
    },
}

impl core::fmt::Display for BudgetError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::NoSuchGroup { node } => {
                write!(f, "node {node} is in a group that the tree does not have")
            }
            Self::WrongLength { slice, expected } => {
                write!(f, "the slice of {slice} must have {expected} entries")
            }
        }
    }
}

impl core::error::Error for BudgetError {}

/// Refuses a slice of another length.
fn of_length<T>(slice: &'static str, given: &[T], expected: usize) -> Result<(), BudgetError> {
    if given.len() == expected { Ok(()) } else { Err(BudgetError::WrongLength { slice, expected }) }
}

/// The sum of two values; unknown when either is unknown or the sum overflows.
fn plus(sum: Option<power_units::Watts>, part: Option<power_units::Watts>) -> Option<power_units::Watts> {
    sum?.checked_add(part?)
}

#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;
