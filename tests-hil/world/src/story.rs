//! The log of an hour in order: requests, faults, and actions of the machines. The hash covers every line, including
//! those that are not kept, so that two runs of one seed are compared completely.

use crate::draw::fnv;
use std::collections::VecDeque;
use std::fmt::Write;
use std::time::Duration;

/// The most lines that are kept: an hour with every fault has some ten thousand.
const LINES_MAX: usize = 200_000;

/// Whether a line is shown in the analysis of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Weight {
    /// Hashed and not kept.
    Noise,
    /// Kept.
    Told,
}

/// The story of an hour.
#[derive(Debug)]
pub(crate) struct Story {
    hash: u64,
    lines: VecDeque<(Duration, String)>,
}

impl Story {
    pub(crate) const fn new() -> Self {
        Self { hash: 0xcbf2_9ce4_8422_2325, lines: VecDeque::new() }
    }

    /// Adds an event.
    pub(crate) fn tell(&mut self, at: Duration, weight: Weight, line: String) {
        self.hash = fnv(self.hash, &at.as_micros().to_le_bytes());
        self.hash = fnv(self.hash, line.as_bytes());
        self.remark(at, weight, line);
    }

    /// Adds a line that may differ between two runs of a seed, such as a log line with a port number.
    pub(crate) fn remark(&mut self, at: Duration, weight: Weight, line: String) {
        if weight == Weight::Told {
            if self.lines.len() == LINES_MAX {
                self.lines.pop_front();
            }
            self.lines.push_back((at, line));
        }
    }

    pub(crate) const fn hash(&self) -> u64 {
        self.hash
    }

    /// The lines between two moments.
    pub(crate) fn lines(&self, from: Duration, to: Duration) -> String {
        let mut text = String::new();
        for (at, line) in self.lines.iter().filter(|(at, _)| (from..=to).contains(at)) {
            let seconds = at.as_secs();
            let (minutes, seconds, millis) = (seconds / 60, seconds % 60, at.subsec_millis());
            // Writing into a String does not fail.
            let _ = writeln!(text, "{minutes:02}:{seconds:02}.{millis:03} {line}");
        }
        text
    }
}
