//! Pods per second through the real kube-scheduler with and without an extender, and the placement of a burst.
//!
//! Everything runs on one machine, so figures are comparable only within a run: the contenders take turns, round by
//! round.
#![expect(clippy::print_stdout, reason = "a bench prints its table")]

mod burst;
mod contender;
mod pairs;
mod rate;
mod twins;

use crate::{SystemError, field, rights};
use cluster::{ControlPlane, ControlPlaneOptions};
use contender::Contender;
use std::path::PathBuf;

/// The paths of the programs.
#[derive(Clone, Debug)]
pub struct BenchPrograms {
    /// The echo server.
    pub echo: PathBuf,
    /// `joulie-extender`.
    pub extender: PathBuf,
}

/// What to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// The number of nodes.
    pub nodes: u32,
    /// The number of pods that are bound without an extender in a round.
    pub pods: u32,
    /// The number of turns of each contender; 0 leaves the rates out.
    pub rounds: u32,
    /// The number of rounds in which the contenders are compared pair by pair; 0 leaves that out.
    pub pairs: u32,
    /// Whether the burst is measured too.
    pub burst: bool,
}

/// The sizes that the issue asks for. Slow contenders get fewer pods, as long as a round takes some seconds.
pub const SIZES: [Size; 2] = [
    Size { nodes: 500, pods: 1_000, rounds: 3, pairs: 0, burst: true },
    Size { nodes: 5_000, pods: 400, rounds: 2, pairs: 0, burst: false },
];

/// Runs the bench, and prints a table for each size.
///
/// # Errors
/// If there is no control plane, or it refuses a request.
pub async fn run(programs: &BenchPrograms, sizes: &[Size]) -> Result<(), SystemError> {
    for &size in sizes {
        // A control plane for each size, because nodes are never removed.
        let options = ControlPlaneOptions { controller_manager: false, ..ControlPlaneOptions::whole() };
        let control_plane = ControlPlane::start(&options)?;
        let client = control_plane.client().await?;
        rights::install(&client).await?;
        field::nodes(&client, size.nodes).await?;
        twins::describe(&client, size.nodes).await?;
        if size.rounds > 0 {
            rate::run(&control_plane, programs, size).await?;
        }
        if size.pairs > 0 {
            pairs::run(&control_plane, programs, size).await?;
        }
        if size.burst {
            burst::run(&control_plane, programs, size).await?;
        }
    }
    Ok(())
}
