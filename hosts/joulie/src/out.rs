//! Standard output, whose reader may close it at any moment.
//!
//! A closed reader (`| head`) ends a command that only shows data. A command that holds a cap goes on without output
//! and restores the limits at its end.

use std::io::{self, IsTerminal, Write};

/// The output of this program.
#[derive(Debug)]
pub(crate) struct Out {
    to: io::Stdout,
    state: State,
}

#[derive(Debug)]
enum State {
    Open,
    /// The reader has closed it.
    Closed,
    /// Writing failed, which must be reported to the user.
    Failed(io::Error),
}

impl Out {
    pub(crate) fn new() -> Self {
        Self { to: io::stdout(), state: State::Open }
    }

    /// Writes a line, if the output is open.
    pub(crate) fn line(&mut self, line: impl AsRef<str>) {
        self.text(&format!("{}\n", line.as_ref()));
    }

    /// Writes text unchanged and at once.
    pub(crate) fn text(&mut self, text: &str) {
        if !matches!(self.state, State::Open) {
            return;
        }
        if let Err(error) = self.to.write_all(text.as_bytes()).and_then(|()| self.to.flush()) {
            let nobody_reads = error.kind() == io::ErrorKind::BrokenPipe;
            self.state = if nobody_reads { State::Closed } else { State::Failed(error) };
        }
    }

    /// Whether the output is open.
    pub(crate) const fn is_open(&self) -> bool {
        matches!(self.state, State::Open)
    }

    pub(crate) fn is_terminal(&self) -> bool {
        self.to.is_terminal()
    }

    /// The error by which output was lost, if any.
    pub(crate) const fn failure(&self) -> Option<&io::Error> {
        match &self.state {
            State::Open | State::Closed => None,
            State::Failed(error) => Some(error),
        }
    }
}
