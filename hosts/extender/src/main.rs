//! The scheduler extender: filters and scores nodes for kube-scheduler by their power.

use extender::settings::{Settings, TABLE};
use extender::{BUILD, StartError};
use std::process::ExitCode;

fn main() -> ExitCode {
    host_kit::program::run(
        &TABLE,
        &BUILD,
        std::env::args_os().skip(1),
        Settings::read,
        async |settings, context, tasks| {
            extender::start(settings, context, tasks).await.map(drop)?;
            Ok::<_, StartError>(())
        },
    )
}
