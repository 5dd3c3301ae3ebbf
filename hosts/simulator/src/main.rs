//! `joulie-simulator`: simulated nodes for a cluster that is there.

use host_kit::metrics::Build;
use host_kit::program;
use simulator::{Settings, TABLE, start};
use std::process::ExitCode;

const BUILD: Build = Build {
    component: "simulator",
    version: env!("CARGO_PKG_VERSION"),
    revision: match option_env!("JOULIE_REVISION") {
        Some(revision) => revision,
        None => "unknown",
    },
};

fn main() -> ExitCode {
    program::run(
        &TABLE,
        &BUILD,
        std::env::args_os().skip(1),
        Settings::read,
        async |settings, context, tasks| start(settings, context, tasks).await.map(drop),
    )
}
