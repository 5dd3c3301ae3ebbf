//! The scheduler extender: filters and scores nodes for kube-scheduler by their power.

use extender::settings::{Settings, TABLE};
use extender::{BUILD, StartError, offline};
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1).peekable();
    if arguments.next_if(|first| first == "replay").is_some() {
        return offline::replay(arguments);
    }
    if arguments.next_if(|first| first == "--snapshot").is_some() {
        return offline::snapshot(arguments);
    }
    host_kit::program::run(&TABLE, &BUILD, arguments, Settings::read, async |settings, context, tasks| {
        extender::start(settings, context, tasks).await.map(drop)?;
        Ok::<_, StartError>(())
    })
}
