//! Standard output, for somebody who may stop reading at any moment.
//!
//! A reader that went away (`| head`) ends what only shows, and never what holds a cap: that goes on in silence and puts
//! back what it has to.

use std::io::{self, IsTerminal, Write};

/// Where every line of this program goes.
#[derive(Debug)]
pub(crate) struct Out {
    to: io::Stdout,
    state: State,
}

#[derive(Debug)]
enum State {
    Open,
    /// Nobody reads any more.
    Closed,
    /// What was written is lost, which whoever asked for it must know.
    Failed(io::Error),
}

impl Out {
    pub(crate) fn new() -> Self {
        Self { to: io::stdout(), state: State::Open }
    }

    /// Writes a line, if anybody reads.
    pub(crate) fn line(&mut self, line: impl AsRef<str>) {
        self.text(&format!("{}\n", line.as_ref()));
    }

    /// Writes text as it is, at once.
    pub(crate) fn text(&mut self, text: &str) {
        if !matches!(self.state, State::Open) {
            return;
        }
        if let Err(error) = self.to.write_all(text.as_bytes()).and_then(|()| self.to.flush()) {
            let nobody_reads = error.kind() == io::ErrorKind::BrokenPipe;
            self.state = if nobody_reads { State::Closed } else { State::Failed(error) };
        }
    }

    /// Whether writing on makes sense.
    pub(crate) const fn is_open(&self) -> bool {
        matches!(self.state, State::Open)
    }

    pub(crate) fn is_terminal(&self) -> bool {
        self.to.is_terminal()
    }

    /// What was lost on the way, if anything was.
    pub(crate) const fn failure(&self) -> Option<&io::Error> {
        match &self.state {
            State::Open | State::Closed => None,
            State::Failed(error) => Some(error),
        }
    }
}
