//! How a suite says that it cannot look.

use crate::control_plane::{ControlPlane, ControlPlaneOptions};
use crate::error::ClusterError;
use std::io::Write;
use std::sync::Once;

/// A control plane, or, where there are neither binaries nor a way to build them, `SKIP(reason)`: printed once in a
/// process however many tests ask, to standard output for the count and to standard error for the person.
///
/// # Panics
/// With the whole error when a control plane was possible and did not come up.
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
    // The test runner keeps what println! says until the end, or for itself.
    let _ = writeln!(std::io::stderr(), "\n{line}\n");
}
