//! What the scheduler extender decides.

pub mod class;
