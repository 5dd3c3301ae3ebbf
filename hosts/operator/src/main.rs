//! Plans which nodes run at full power and which capped, guards the transitions, and keeps the digital twins.

use operator::settings::TABLE;
use operator::{BUILD, Settings, StartError, start};
use std::process::ExitCode;

fn main() -> ExitCode {
    host_kit::program::run(
        &TABLE,
        &BUILD,
        std::env::args_os().skip(1),
        Settings::read,
        async |settings, context, tasks| {
            let started = start(settings, context, tasks).await?;
            tracing::info!(metrics = %started.metrics, "the operator runs");
            Ok::<(), StartError>(())
        },
    )
}
