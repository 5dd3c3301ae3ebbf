//! Caps CPUs and GPUs of a node as its desired state says, and reports what really happened.

use agent::BUILD;
use agent::settings::{Settings, TABLE};
use host_kit::program;
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1).peekable();
    if arguments.next_if(|first| first == "restore").is_some() {
        return agent::restore(arguments);
    }
    if arguments.next_if(|first| first == "--standalone").is_some() {
        return agent::standalone(arguments);
    }
    program::run(&TABLE, &BUILD, arguments, Settings::read, async |settings, context, tasks| {
        agent::start(settings, context, tasks).await.map(drop)
    })
}
