//! Structured logs on standard error: text for people, JSON for machines, a level that changes at run time.
//!
//! A line says what happened, to whom, and what a person can do about it. What happens again and again is said once
//! and then counted: see [`Repeats`]. Lines of the `log` facade, which the edges of the core and libraries use, come
//! out like all others.

mod levels;
mod repeats;

pub use levels::Levels;
pub use repeats::{Repeats, Said};

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, Registry, reload};

/// How a line looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// For people.
    Text,
    /// An object a line.
    Json,
}

/// The switch of the running logs.
#[derive(Clone)]
pub struct Logs {
    filter: reload::Handle<Targets, Registry>,
    in_force: Arc<Mutex<Levels>>,
}

/// Why logs did not start or did not change.
#[derive(Debug)]
pub enum LogError {
    /// Something in this process already logs.
    Twice,
    /// The switch is gone with the logs.
    Gone,
}

/// Starts the logs of this process on standard error.
pub fn start(format: Format, levels: &Levels) -> Result<Logs, LogError> {
    start_to(std::io::stderr, format, levels)
}

/// Starts the logs of this process on a writer of the caller's.
pub fn start_to<W>(writer: W, format: Format, levels: &Levels) -> Result<Logs, LogError>
where
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    let lines = tracing_subscriber::fmt::layer().with_writer(writer).with_ansi(false);
    let lines = match format {
        Format::Text => lines.boxed(),
        Format::Json => lines.json().flatten_event(true).with_current_span(false).boxed(),
    };
    // Everything is let through while the logs start: the `log` facade keeps the level of that moment as its upper
    // bound for good, and a bound of "info" would make a later "debug" mean nothing to it.
    let (filter, handle) = reload::Layer::new(Targets::new().with_default(tracing::Level::TRACE));
    tracing_subscriber::registry().with(filter).with(lines).try_init().map_err(|_| LogError::Twice)?;
    let logs = Logs { filter: handle, in_force: Arc::new(Mutex::new(levels.clone())) };
    logs.switch(levels)?;
    Ok(logs)
}

impl Logs {
    /// Changes what is logged from now on, and says so.
    pub fn set(&self, levels: &Levels) -> Result<(), LogError> {
        let before = self.levels();
        self.switch(levels)?;
        // At a level that is as good as always shown, since somebody will ask later why the lines changed.
        tracing::warn!("log levels changed from {before} to {levels}");
        Ok(())
    }

    fn switch(&self, levels: &Levels) -> Result<(), LogError> {
        self.filter.reload(levels.targets()).map_err(|_| LogError::Gone)?;
        *self.in_force.lock().unwrap_or_else(PoisonError::into_inner) = levels.clone();
        Ok(())
    }

    /// What is logged now.
    pub fn levels(&self) -> Levels {
        self.in_force.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl fmt::Display for LogError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Twice => "the logs of this process are already started",
            Self::Gone => "the logs of this process have ended",
        })
    }
}

impl std::error::Error for LogError {}
