//! Commands of the operator that do one thing and end: reading settings, connecting, reporting the outcome.

use host_kit::config::{self, Invocation, Refusals, SettingsTable, Values};
use host_kit::connect::connect;
use host_kit::program;
use host_kit::shutdown::status::EndStatus;
use kube::Client;
use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

/// Runs `work` with the settings that `read` returns. The statuses mean: done, not done, configuration refused.
pub(crate) fn run<S>(
    table: &SettingsTable,
    [done, not_done, refused]: [EndStatus; 3],
    arguments: impl IntoIterator<Item = OsString>,
    read: impl FnOnce(&Values) -> Result<S, Refusals>,
    work: impl AsyncFnOnce(Client, S) -> Result<String, String>,
) -> ExitCode {
    let sources = match Invocation::read(arguments, std::env::vars_os()) {
        Invocation::Run(sources) => sources,
        Invocation::Help | Invocation::Version => return end(done, &table.help()),
    };
    let both = |values: Values| Ok((values.get(&program::KUBECONFIG)?, read(&values)?));
    let (kubeconfig, settings) = match config::load(table, &sources).and_then(both) {
        Ok(read) => read,
        Err(refusals) => return end(refused, &refusals.to_string()),
    };
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return end(not_done, &error.to_string()),
    };
    runtime.block_on(async {
        let client = match connect(kubeconfig.as_deref()).await {
            Ok(client) => client,
            Err(error) => return end(refused, &error.to_string()),
        };
        match work(client, settings).await {
            Ok(said) => end(done, &said),
            Err(why) => end(not_done, &why),
        }
    })
}

fn end(status: EndStatus, text: &str) -> ExitCode {
    tell(text);
    ExitCode::from(status.code)
}

pub(crate) fn tell(text: &str) {
    // If standard error is closed, only the exit status reports the outcome.
    let _written = writeln!(std::io::stderr(), "joulie-operator: {text}");
}
