//! The shipped programs on a real control plane.
