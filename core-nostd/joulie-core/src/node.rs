//! What one node's agent decides.
