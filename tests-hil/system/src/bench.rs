//! Pods per second through the real kube-scheduler with and without an extender, and where a burst goes.
//!
//! Everything runs on the machine of the bench, so a figure stands beside the others of its run and beside no other:
//! the contenders take turns, round by round.
#![expect(clippy::print_stdout, reason = "a bench prints its table")]

mod burst;
mod contender;
mod rate;
mod twins;

use crate::{SystemError, field, rights};
use cluster::{ControlPlane, ControlPlaneOptions};
use contender::Contender;
use std::path::PathBuf;

/// Where the programs are.
#[derive(Clone, Debug)]
pub struct BenchPrograms {
    /// Repeats what it was asked.
    pub echo: PathBuf,
    /// `joulie-extender`.
    pub extender: PathBuf,
}

/// What to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// How many nodes there are.
    pub nodes: u32,
    /// How many pods are bound without an extender in a round.
    pub pods: u32,
    /// How often each contender has its turn; 0 leaves the rates out.
    pub rounds: u32,
    /// Whether the burst is looked at too.
    pub burst: bool,
}

/// The sizes of the issue. Fewer pods where each takes long, as long as a round is some seconds.
pub const SIZES: [Size; 2] = [
    Size { nodes: 500, pods: 1_000, rounds: 3, burst: true },
    Size { nodes: 5_000, pods: 400, rounds: 2, burst: false },
];

/// Measures, and prints a table for each size.
///
/// # Errors
/// When there is no control plane, or it refuses something.
pub async fn run(programs: &BenchPrograms, sizes: &[Size]) -> Result<(), SystemError> {
    for &size in sizes {
        // One for each size: nodes are made, and never unmade.
        let options = ControlPlaneOptions { controller_manager: false, ..ControlPlaneOptions::whole() };
        let control_plane = ControlPlane::start(&options)?;
        let client = control_plane.client().await?;
        rights::install(&client).await?;
        field::nodes(&client, size.nodes).await?;
        twins::describe(&client, size.nodes).await?;
        if size.rounds > 0 {
            rate::run(&control_plane, programs, size).await?;
        }
        if size.burst {
            burst::run(&control_plane, programs, size).await?;
        }
    }
    Ok(())
}
