//! What the scheduler extender decides.
