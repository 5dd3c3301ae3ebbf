//! A suite's own programs beside the control plane. The same keeper starts them, so that they end with it in every
//! case, and their logs are in the same folder.

use crate::control_plane::{ControlPlane, PROBE_EVERY};
use crate::error::ClusterError;
use crate::ffi::ProcessSignal;
use crate::folder;
use crate::processes::{Start, Who, log_file};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;

/// A program to start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    name: String,
    path: PathBuf,
    arguments: Vec<String>,
    environment: BTreeMap<String, String>,
}

impl Program {
    /// A program file, and the name under which it runs and logs. It inherits nothing of this process' environment.
    #[must_use]
    pub fn new(name: &str, path: &Path) -> Self {
        Self {
            name: name.to_owned(),
            path: path.to_owned(),
            arguments: Vec::new(),
            environment: BTreeMap::new(),
        }
    }

    /// Adds an argument.
    #[must_use]
    pub fn argument(mut self, argument: impl Into<String>) -> Self {
        self.arguments.push(argument.into());
        self
    }

    /// Sets an environment variable.
    #[must_use]
    pub fn variable(mut self, name: &str, value: impl Into<String>) -> Self {
        self.environment.insert(name.to_owned(), value.into());
        self
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl ControlPlane {
    /// Starts a program in the control plane's folder, and replaces one of that name. Its log is appended to the
    /// earlier one's.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn start_program(&self, program: &Program) -> Result<(), ClusterError> {
        let start = Start {
            program: program.path.clone(),
            arguments: program.arguments.clone(),
            environment: program.environment.clone(),
        };
        self.keeper.spawn(Who::Program(program.name.clone()), start)
    }

    /// Kills a program, and returns when it has ended.
    pub fn kill_program(&self, name: &str) {
        self.keeper.kill(Who::Program(name.to_owned()));
    }

    /// Sends a signal to a program.
    ///
    /// # Errors
    /// If it was never started, or was killed.
    pub fn signal_program(&self, name: &str, signal: ProcessSignal) -> Result<(), ClusterError> {
        self.keeper.signal(Who::Program(name.to_owned()), signal)
    }

    /// Stops a program gracefully, and waits until it has ended.
    ///
    /// # Errors
    /// If it does not end within the time, with the last lines of its log; it is then left running.
    pub async fn end_program(&self, name: &str, within: Duration) -> Result<ExitStatus, ClusterError> {
        self.signal_program(name, ProcessSignal::Terminate)?;
        let ending = async {
            loop {
                if let Some(status) = self.program_ended(name) {
                    return status;
                }
                tokio::time::sleep(PROBE_EVERY).await;
            }
        };
        tokio::time::timeout(within, ending).await.map_err(|_| {
            let log = self.program_log(name);
            ClusterError::Asked(format!("{name} did not end within {within:?}; its last lines:\n{log}"))
        })
    }

    /// The exit status of a program; `None` while it runs, and if it was never started or was killed.
    #[must_use]
    pub fn program_ended(&self, name: &str) -> Option<ExitStatus> {
        self.keeper.how_ended(Who::Program(name.to_owned()))
    }

    /// The process id of a running program.
    #[must_use]
    pub fn program_pid(&self, name: &str) -> Option<u32> {
        self.keeper.pid(Who::Program(name.to_owned()))
    }

    /// The last lines of a program's log.
    #[must_use]
    pub fn program_log(&self, name: &str) -> String {
        folder::tail(&self.program_log_file(name))
    }

    /// The path of a program's log, which exists after its first start.
    #[must_use]
    pub fn program_log_file(&self, name: &str) -> PathBuf {
        log_file(self.folder.path(), &Who::Program(name.to_owned()))
    }
}
