//! The limits on what a client may use.

use crate::config::parse::show_duration;
use std::fmt;
use std::time::Duration;

/// The limits of one server. Every time is between 1 ms and an hour, every number at least 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerLimits {
    body_max: usize,
    bodies_max: usize,
    connections_max: usize,
    peer_max: usize,
    times: Times,
}

impl ServerLimits {
    /// Limits that suit a scheduler's calls and a scrape: bodies of up to `body_max` bytes, and twice as many bytes for
    /// all bodies in flight; at most `connections_max` connections, a quarter of them from one address; and times that
    /// a healthy client keeps even on a bad day.
    pub fn new(body_max: usize, connections_max: usize) -> Result<Self, LimitError> {
        for (name, value) in [("body_max", body_max), ("connections_max", connections_max)] {
            if value == 0 {
                return Err(LimitError::Nothing { name });
            }
        }
        Ok(Self {
            body_max,
            // A scheduler has two calls in flight at most.
            bodies_max: body_max.saturating_mul(2),
            connections_max,
            peer_max: connections_max.div_ceil(4),
            times: Times {
                handshake: Duration::from_secs(5),
                first_byte: Duration::from_secs(5),
                head: Duration::from_secs(5),
                room: Duration::from_secs(2),
                // 90 MB in this time are 9 MB/s; kube-scheduler by default gives up after 5 s.
                body: Duration::from_secs(10),
                // Longer than the 90 s after which Go's client closes an idle connection. If the server closed it
                // first, a POST could arrive on a connection that is just being closed, and the scheduler would not
                // send it again. When the port is full, the connection that has waited longest is closed, so idle
                // connections keep nobody out.
                idle: Duration::from_secs(120),
                write: Duration::from_secs(10),
            },
        })
    }

    /// Sets other times.
    pub fn with_times(self, times: Times) -> Result<Self, LimitError> {
        let Times { handshake, first_byte, head, room, body, idle, write } = times;
        for (name, value) in [
            ("handshake", handshake),
            ("first_byte", first_byte),
            ("head", head),
            ("room", room),
            ("body", body),
            ("idle", idle),
            ("write", write),
        ] {
            if !(Duration::from_millis(1)..=Duration::from_secs(3600)).contains(&value) {
                return Err(LimitError::Time { name, value });
            }
        }
        Ok(Self { times, ..self })
    }

    /// Sets another number of connections for one address, for use where many clients share it.
    pub fn with_peer_max(self, peer_max: usize) -> Result<Self, LimitError> {
        if peer_max == 0 {
            return Err(LimitError::Nothing { name: "peer_max" });
        }
        Ok(Self { peer_max, ..self })
    }

    /// Sets another number of bytes for all bodies in flight.
    pub fn with_bodies_max(self, bodies_max: usize) -> Result<Self, LimitError> {
        if bodies_max == 0 {
            return Err(LimitError::Nothing { name: "bodies_max" });
        }
        Ok(Self { bodies_max, ..self })
    }

    pub(super) fn peer_max(&self) -> usize {
        self.peer_max
    }

    pub(super) fn bodies_max(&self) -> usize {
        self.bodies_max
    }

    pub(super) fn times(&self) -> &Times {
        &self.times
    }

    pub(super) fn body_max(&self) -> usize {
        self.body_max
    }

    pub(super) fn connections_max(&self) -> usize {
        self.connections_max
    }
}

/// How long a client may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// For the TLS handshake.
    pub handshake: Duration,
    /// For the first byte of a connection's first request.
    pub first_byte: Duration,
    /// For a request's head, from its first byte.
    pub head: Duration,
    /// To wait for memory for a body beside those in flight.
    pub room: Duration,
    /// For a request's whole body.
    pub body: Duration,
    /// Between two requests.
    pub idle: Duration,
    /// Without taking any part of an answer.
    pub write: Duration,
}

/// How a server drains.
#[derive(Clone, Copy, Debug)]
pub struct Drain {
    linger: Duration,
    deadline: Duration,
}

impl Drain {
    /// The server accepts connections for `linger` after it was asked to stop, then gives open requests `deadline`.
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

/// Why limits are not valid.
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
        assert_eq!(ServerLimits::new(0, 1).unwrap_err().to_string(), "body_max is 0; accepted: at least 1");
        assert_eq!(ServerLimits::new(1, 0).unwrap_err(), LimitError::Nothing { name: "connections_max" });
        assert!(ServerLimits::new(1, 1).unwrap().with_peer_max(0).is_err());
        assert!(ServerLimits::new(1, 1).unwrap().with_bodies_max(0).is_err());
        let times = Times { head: Duration::ZERO, ..*ServerLimits::new(1, 1).unwrap().times() };
        let said = ServerLimits::new(1, 1).unwrap().with_times(times).unwrap_err().to_string();
        assert_eq!(said, "the time for head is 0s; accepted: from 1ms to 1h");
    }
}
