//! `joulie-simulator`: simulated nodes for an existing cluster.

use host_kit::program;
use simulator::{BUILD, Settings, TABLE, start};
use std::process::ExitCode;

fn main() -> ExitCode {
    program::run(
        &TABLE,
        &BUILD,
        std::env::args_os().skip(1),
        Settings::read,
        async |settings, context, tasks| start(settings, context, tasks).await.map(drop),
    )
}
