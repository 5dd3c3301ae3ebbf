//! What the operator must keep to.
