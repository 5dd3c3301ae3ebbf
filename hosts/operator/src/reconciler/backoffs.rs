//! The nodes that are left alone for now: those whose job has ended but does not show in the rows yet, and those whose
//! job failed.

use crate::site::Observed;
use crate::writes::{Landed, Target, Trouble};
use host_kit::clock::Mono;
use std::collections::BTreeMap;
use std::time::Duration;

/// What a job wrote shows in the rows within this time; if the watch is even later, writing again does no harm.
const ECHO_MAX: Duration = Duration::from_secs(5);
/// The first wait after a failure. Every further failure doubles it.
const FIRST: Duration = Duration::from_millis(500);
/// The longest wait.
const MOST: Duration = Duration::from_secs(300);
/// The longest wait while the server is away. It is shorter, because nothing is wrong with the node.
const MOST_AWAY: Duration = Duration::from_secs(15);

/// The versions of a node's objects.
pub(super) fn versions(observed: &Observed) -> [Option<&str>; 3] {
    [
        Some(observed.node.stamp.version.as_str()),
        observed.profile.as_ref().map(|profile| profile.state.stamp.version.as_str()),
        observed.twin.as_ref().map(|twin| twin.state.stamp.version.as_str()),
    ]
}

/// The index of an object's version; grants are tracked elsewhere. A job for a PowerBudget or a PowerEvent is for that alone.
const fn place(target: Target) -> Option<usize> {
    match target {
        Target::Node | Target::Taint | Target::Sleep | Target::BudgetStatus | Target::EventStatus => Some(0),
        Target::Profile | Target::ProfileStatus => Some(1),
        Target::Twin | Target::TwinStatus => Some(2),
        Target::Grant | Target::GrantLabel => None,
    }
}

/// A job that has ended but does not show in the rows yet.
#[derive(Clone, Debug)]
pub(super) struct PendingEcho {
    /// The version in which the job left each object; empty for an object that it deleted.
    awaited: [Option<String>; 3],
    pub(super) until: Mono,
}

impl PendingEcho {
    /// Waits for the objects that these writes changed.
    pub(super) fn new(landed: &[Landed], now: Mono) -> Self {
        let mut awaited = [None, None, None];
        for one in landed {
            if let Some(slot) = place(one.target).and_then(|at| awaited.get_mut(at)) {
                // The last write to an object determines its version.
                *slot = Some(one.version.clone());
            }
        }
        Self { awaited, until: now.plus(ECHO_MAX) }
    }

    /// Whether everything shows, or the wait is over.
    pub(super) fn is_over(&self, versions: [Option<&str>; 3], now: Mono) -> bool {
        let shows = self.awaited.iter().zip(versions).all(|(awaited, shown)| match (awaited, shown) {
            (None, _) => true,
            (Some(awaited), None) => awaited.is_empty(),
            (Some(awaited), Some(shown)) => is_at_least(shown, awaited),
        });
        shows || now >= self.until
    }
}

/// Whether one version of an object is not older than another. Versions are growing numbers wherever the API server
/// keeps its own promise; elsewhere only an identical one is known not to be older.
fn is_at_least(shown: &str, awaited: &str) -> bool {
    match (shown.parse::<u64>(), awaited.parse::<u64>()) {
        (Ok(shown), Ok(awaited)) => shown >= awaited,
        _ => shown == awaited,
    }
}

/// How often a node's jobs have failed in a row, and until when it is left alone.
#[derive(Clone, Copy, Debug)]
struct NodeBackoff {
    failures: u32,
    until: Mono,
}

/// The nodes whose jobs failed.
#[derive(Clone, Debug, Default)]
pub(super) struct Backoffs(BTreeMap<String, NodeBackoff>);

impl Backoffs {
    /// Until when a node is left alone, if its jobs have failed.
    pub(super) fn until(&self, node: &str) -> Option<Mono> {
        self.0.get(node).map(|wait| wait.until)
    }

    /// The nodes that are left alone at `now`.
    pub(super) fn after(&self, now: Mono) -> impl Iterator<Item = &str> {
        self.0.iter().filter(move |(_, wait)| now < wait.until).map(|(node, _)| node.as_str())
    }

    /// Records that a job of the node succeeded.
    pub(super) fn fine(&mut self, node: &str) {
        self.0.remove(node);
    }

    /// Records that a job of the node failed. Returns how long the node is left alone.
    pub(super) fn trouble(&mut self, node: &str, trouble: &Trouble, now: Mono) -> Duration {
        let before = self.0.get(node).map_or(0, |wait| wait.failures);
        let doubled = FIRST.saturating_mul(1 << before.min(10));
        let wait = match trouble {
            // The rows will soon show the present state.
            Trouble::Stale(_) | Trouble::NotLeading => doubled.min(Duration::from_secs(5)),
            Trouble::Gone => doubled.min(MOST_AWAY),
            Trouble::Away(_, after) => doubled.min(MOST_AWAY).max(after.unwrap_or_default()),
            Trouble::Owned(_) | Trouble::Refused(_) => doubled.min(MOST),
        };
        let wait = wait.min(MOST);
        self.0.insert(
            node.to_owned(),
            NodeBackoff { failures: before.saturating_add(1), until: now.plus(wait) },
        );
        wait
    }

    /// When nodes are tried again.
    pub(super) fn untils(&self) -> impl Iterator<Item = Mono> {
        self.0.values().map(|wait| wait.until)
    }

    /// Forgets what does not exist any more, once its wait is over.
    pub(super) fn keep_only(&mut self, is_known: impl Fn(&str) -> bool, now: Mono) {
        self.0.retain(|key, wait| now < wait.until || is_known(key));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_fails_is_left_alone_for_longer_each_time_and_no_longer_than_five_minutes() {
        let (mut backoffs, now) = (Backoffs::default(), Mono::START);
        let refused = Trouble::Refused("no".to_owned());
        let all: Vec<u64> =
            (0..12).map(|_| backoffs.trouble("a", &refused, now).as_millis().try_into().unwrap()).collect();
        assert_eq!(all[..3], [500, 1000, 2000]);
        assert_eq!(all[11], 300_000);
        assert_eq!(backoffs.until("b"), None);
        backoffs.fine("a");
        assert_eq!(backoffs.trouble("a", &refused, now), FIRST);
    }

    #[test]
    fn a_server_that_asks_to_be_left_alone_is() {
        let mut backoffs = Backoffs::default();
        let busy = Trouble::Away("busy".to_owned(), Some(Duration::from_secs(20)));
        assert_eq!(backoffs.trouble("a", &busy, Mono::START), Duration::from_secs(20));
    }
}
