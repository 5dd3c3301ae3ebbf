//! The physics of a node.
