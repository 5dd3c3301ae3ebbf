//! Control of a node, placement of pods, and the budget: facts in, decision out.
//!
//! Nothing here does I/O, reads a clock, allocates, uses a float or panics, and nothing here can fail. A value
//! that may be unknown is a variant, never a default.
//!
//! - [`node`]: what one node's agent decides: which cap, by which backend, at which frequency;
//! - [`placement`]: what the scheduler extender decides: which nodes, with which score, on which GPUs;
//! - [`budget`]: the rules that the operator follows: a tree of limits and the order of lowering and raising.
#![no_std]
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(
        clippy::arithmetic_side_effects,
        clippy::as_conversions,
        clippy::expect_used,
        clippy::float_arithmetic,
        clippy::indexing_slicing,
        clippy::panic
    )
)]
#![cfg_attr(
    test,
    allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_possible_wrap,
        clippy::cast_lossless,
        reason = "tests compare with plain arithmetic"
    )
)]

#[cfg(test)]
extern crate std;

pub mod budget;
pub mod node;
pub mod placement;
