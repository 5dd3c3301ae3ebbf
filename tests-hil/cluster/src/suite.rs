//! How a suite reports that it is skipped.

use crate::control_plane::{ControlPlane, ControlPlaneOptions};
use crate::error::ClusterError;
use std::io::Write;
use std::sync::Once;

/// Starts a control plane. If there are neither binaries nor a way to build them, it prints `SKIP(reason)` once per
/// process: to standard output for the count and to standard error for people.
///
/// # Panics
/// If a control plane is possible but does not start; with the whole error.
#[must_use]
pub fn start_or_skip(options: &ControlPlaneOptions) -> Option<ControlPlane> {
    static SAID: Once = Once::new();
    match ControlPlane::start(options) {
        Ok(control_plane) => Some(control_plane),
        Err(ClusterError::Absent(reason)) => {
            SAID.call_once(|| say(&reason));
            None
        }
        Err(error) => panic!("{error}"),
    }
}

#[expect(clippy::print_stdout, reason = "the test command counts these lines on standard output")]
fn say(reason: &str) {
    let line =
        format!("SKIP(no control plane, so no end-to-end test runs here: {})", reason.replace('\n', " "));
    println!("{line}");
    // The test runner captures the output of println!.
    let _ = writeln!(std::io::stderr(), "\n{line}\n");
}
