//! Plans which nodes run at full power and which are capped, guards the transitions, and maintains the digital twins.

use operator::settings::TABLE;
use operator::{BUILD, Settings, StartError, start};
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1).peekable();
    if arguments.next_if(|first| first == "uninstall").is_some() {
        return operator::uninstall(arguments);
    }
    if arguments.next_if(|first| first == "check").is_some() {
        return operator::check(arguments);
    }
    host_kit::program::run(&TABLE, &BUILD, arguments, Settings::read, async |settings, context, tasks| {
        let started = start(settings, context, tasks).await?;
        tracing::info!(metrics = %started.metrics, "the operator runs");
        Ok::<(), StartError>(())
    })
}
