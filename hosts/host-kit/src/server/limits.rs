//! How much of everything a client may take.

use crate::config::parse::show_duration;
use std::fmt;
use std::time::Duration;

/// What one server grants. Every time is between 1 ms and an hour, every number at least 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    body_max: usize,
    connections_max: usize,
    handshake: Duration,
    head: Duration,
    body: Duration,
    idle: Duration,
    write: Duration,
}

impl Limits {
    /// The limits that fit a scheduler's calls and a scrape: bodies up to `body_max` bytes, at most
    /// `connections_max` connections, and times that a healthy client on a bad day keeps.
    pub fn new(body_max: usize, connections_max: usize) -> Result<Self, LimitError> {
        for (name, value) in [("body_max", body_max), ("connections_max", connections_max)] {
            if value == 0 {
                return Err(LimitError::Nothing { name });
            }
        }
        Ok(Self {
            body_max,
            connections_max,
            handshake: Duration::from_secs(10),
            head: Duration::from_secs(10),
            body: Duration::from_secs(30),
            // Longer than the 90 s after which Go's client drops an idle connection: were we first, a POST could
            // meet a connection that is just being closed, and the scheduler would not send it again.
            idle: Duration::from_secs(120),
            write: Duration::from_secs(30),
        })
    }

    /// Other times: for a TLS handshake, a head, a whole body, between two requests, and for a client that takes
    /// nothing of an answer.
    pub fn with_times(self, times: Times) -> Result<Self, LimitError> {
        let Times { handshake, head, body, idle, write } = times;
        for (name, value) in
            [("handshake", handshake), ("head", head), ("body", body), ("idle", idle), ("write", write)]
        {
            if !(Duration::from_millis(1)..=Duration::from_secs(3600)).contains(&value) {
                return Err(LimitError::Time { name, value });
            }
        }
        Ok(Self { handshake, head, body, idle, write, ..self })
    }

    pub(super) fn body_max(&self) -> usize {
        self.body_max
    }

    pub(super) fn connections_max(&self) -> usize {
        self.connections_max
    }

    pub(super) fn handshake(&self) -> Duration {
        self.handshake
    }

    pub(super) fn head(&self) -> Duration {
        self.head
    }

    pub(super) fn body(&self) -> Duration {
        self.body
    }

    pub(super) fn idle(&self) -> Duration {
        self.idle
    }

    pub(super) fn write(&self) -> Duration {
        self.write
    }
}

/// How long a client may take.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// For the TLS handshake.
    pub handshake: Duration,
    /// For a request's head, from its first byte.
    pub head: Duration,
    /// For a request's whole body.
    pub body: Duration,
    /// Between two requests.
    pub idle: Duration,
    /// Without taking anything of an answer.
    pub write: Duration,
}

/// How a server ends.
#[derive(Clone, Copy, Debug)]
pub struct Drain {
    linger: Duration,
    deadline: Duration,
}

impl Drain {
    /// Goes on accepting for `linger` after it was asked to stop, then gives open requests `deadline`.
    pub fn new(linger: Duration, deadline: Duration) -> Self {
        Self { linger, deadline }
    }

    pub(super) fn linger(&self) -> Duration {
        self.linger
    }

    pub(super) fn deadline(&self) -> Duration {
        self.deadline
    }
}

/// Why limits are none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitError {
    /// A number is zero.
    Nothing {
        /// Which.
        name: &'static str,
    },
    /// A time is too short or too long.
    Time {
        /// Which.
        name: &'static str,
        /// What it was.
        value: Duration,
    },
}

impl fmt::Display for LimitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing { name } => write!(f, "{name} is 0; accepted: at least 1"),
            Self::Time { name, value } => {
                write!(f, "the time for {name} is {}; accepted: from 1ms to 1h", show_duration(*value))
            }
        }
    }
}

impl std::error::Error for LimitError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_that_grant_nothing_are_refused() {
        assert_eq!(Limits::new(0, 1).unwrap_err().to_string(), "body_max is 0; accepted: at least 1");
        assert_eq!(Limits::new(1, 0).unwrap_err(), LimitError::Nothing { name: "connections_max" });
        let second = Duration::from_secs(1);
        let times =
            Times { handshake: second, head: Duration::ZERO, body: second, idle: second, write: second };
        let said = Limits::new(1, 1).unwrap().with_times(times).unwrap_err().to_string();
        assert_eq!(said, "the time for head is 0s; accepted: from 1ms to 1h");
    }
}
