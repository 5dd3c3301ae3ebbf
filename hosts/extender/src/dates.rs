//! Samples whose dates are in the future: of a clock that is ahead. When such a sample was taken nobody knows, but not after it
//! was first seen here. So it is of that moment. If its own date counted once the time has come, a sample from before a pod's
//! start would end the pod's assumed watts, and the node would look emptier than it is. An object that is gone for a while, or
//! cannot be read, comes back with the same sample, so that what is known of it is kept for some time.

use crate::snapshot::Node;
use joulie_core::placement::freshness::UnixTime;
use power_units::Micros;
use std::collections::BTreeMap;
use std::sync::Arc;

/// For how long it is known when a sample was first seen that is there no more: as long as assumed watts may last (`ASSUMED_MAX_AGE`).
const KEPT: Micros = Micros::new(24 * 3_600_000_000);

/// When dates in the future were first seen, of nodes that have some.
#[derive(Debug, Default)]
pub(crate) struct SampleDates(BTreeMap<Arc<str>, Dates>);

/// Of the sample in a node's twin, and of that of its agent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Dates {
    twin: Option<Ahead>,
    agent: Option<Ahead>,
}

/// A date in the future.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Ahead {
    written: UnixTime,
    seen: UnixTime,
    /// Since when its sample is there no more.
    gone: Option<UnixTime>,
}

impl SampleDates {
    /// Brings the dates of all samples to what they can be at most. What was brought down before may come again as it is written.
    pub(crate) fn bound(&mut self, nodes: &mut [Node], now: UnixTime) {
        let mut before = std::mem::take(&mut self.0);
        for node in nodes {
            let mut dates = before.remove(&node.name).unwrap_or_default();
            let twin = match (&mut node.of_agent, &mut node.sampled) {
                (Some(sample), _) => Some(&mut sample.at),
                (None, sampled) => sampled.as_mut(),
            };
            bounded(&mut dates.twin, twin, now);
            bounded(&mut dates.agent, node.sample.as_mut().map(|sample| &mut sample.at), now);
            self.keep(node.name.clone(), dates);
        }
        for (name, mut dates) in before {
            bounded(&mut dates.twin, None, now);
            bounded(&mut dates.agent, None, now);
            self.keep(name, dates);
        }
    }

    fn keep(&mut self, name: Arc<str>, dates: Dates) {
        if dates != Dates::default() {
            self.0.insert(name, dates);
        }
    }
}

/// Brings a date down to when it was first seen, if it is in the future. Of a sample that is not there that is known for a while.
fn bounded(known: &mut Option<Ahead>, at: Option<&mut UnixTime>, now: UnixTime) {
    let Some(at) = at else {
        *known = known.take().and_then(|known| {
            let gone = known.gone.unwrap_or(now);
            let is_kept = now.since(gone).is_none_or(|since| since <= KEPT);
            is_kept.then_some(Ahead { gone: Some(gone), ..known })
        });
        return;
    };
    *known = known.take().filter(|known| *at == known.written || *at == known.seen);
    if known.is_none() && *at > now {
        *known = Some(Ahead { written: *at, seen: now, gone: None });
    }
    if let Some(known) = known {
        known.gone = None;
        *at = known.seen;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use joulie_api::node_hardware::DrawnSample;
    use joulie_core::placement::assumed::{AssumedRule, NodeKey, PodUid, Sighting};
    use power_units::Watts;

    fn at(second: i64) -> UnixTime {
        UnixTime::from_micros(second * 1_000_000)
    }

    /// A node whose agent has measured it, by its own clock, at this second.
    fn node(second: i64) -> Node {
        let sample = Some(DrawnSample { at: at(second), watts: Watts::from_int(500) });
        Node { sample, ..Node::unknown("a") }
    }

    fn dated(dates: &mut SampleDates, node: Node, now: i64) -> UnixTime {
        let mut nodes = [node];
        dates.bound(&mut nodes, at(now));
        nodes[0].sample.unwrap().at
    }

    #[test]
    fn a_sample_of_a_clock_that_is_ahead_is_of_when_it_was_first_seen() {
        let mut dates = SampleDates::default();
        assert_eq!(dated(&mut dates, node(99), 100), at(99));
        // It is 45 s ahead.
        assert_eq!(dated(&mut dates, node(145), 100), at(100));
        // The same sample, as it is written, and as it was brought down, also once its own time has come.
        for (second, now) in [(145, 110), (100, 120), (145, 150), (100, 200), (145, 300)] {
            assert_eq!(dated(&mut dates, node(second), now), at(100), "{now}");
        }
        // The next one is a sample of its own; and with a clock that was set nothing is brought down.
        assert_eq!(dated(&mut dates, node(346), 301), at(301));
        assert_eq!(dated(&mut dates, node(302), 302), at(302));
        assert!(dates.0.is_empty(), "nothing is kept of nodes whose clocks are right");
    }

    /// A node, a NodeHardware or a twin is made anew, or cannot be read for a while, and its sample is the same.
    #[test]
    fn a_sample_that_was_gone_is_still_of_when_it_was_first_seen() {
        let unmeasured = || Node { sample: None, ..node(0) };
        let mut dates = SampleDates::default();
        assert_eq!(dated(&mut dates, node(145), 100), at(100));
        dates.bound(&mut [unmeasured()], at(105));
        dates.bound(&mut [], at(110));
        assert_eq!(dated(&mut dates, node(145), 130), at(100));
        assert_eq!(dated(&mut dates, node(145), 200), at(100), "also when its own time has come");
        dates.bound(&mut [], at(300));
        assert_eq!(dated(&mut dates, node(400), 301), at(301), "another sample");
        // For a day; then nobody needs it, and nothing is left of nodes that do not come back.
        let day = 24 * 3_600;
        dates.bound(&mut [], at(400));
        dates.bound(&mut [], at(400 + day));
        assert_eq!(dates.0.len(), 1);
        dates.bound(&mut [], at(401 + day));
        assert!(dates.0.is_empty());
        // A clock of ours that is set back keeps it.
        dated(&mut dates, node(900), 500);
        dates.bound(&mut [], at(501));
        dates.bound(&mut [], at(100));
        assert_eq!(dated(&mut dates, node(900), 502), at(500));
    }

    #[test]
    fn the_twin_s_sample_and_the_agent_s_have_dates_of_their_own() {
        let mut dates = SampleDates::default();
        let of = |twin: i64, agent: i64| Node { sampled: Some(at(twin)), ..node(agent) };
        let mut nodes = [of(130, 160)];
        dates.bound(&mut nodes, at(100));
        assert_eq!((nodes[0].sampled, nodes[0].sample.unwrap().at), (Some(at(100)), at(100)));
        let mut nodes = [of(130, 165)];
        dates.bound(&mut nodes, at(110));
        assert_eq!((nodes[0].sampled, nodes[0].sample.unwrap().at), (Some(at(100)), at(110)));
        let mut nodes = [Node { of_agent: node(130).sample, ..of(130, 165) }];
        dates.bound(&mut nodes, at(400));
        assert_eq!((nodes[0].of_agent.unwrap().at, nodes[0].sample.unwrap().at), (at(100), at(110)));
    }

    #[test]
    fn a_sample_from_before_a_pod_s_start_does_not_end_its_assumed_watts() {
        let settle = Micros::new(30_000_000);
        let rule = AssumedRule::new(settle, Micros::new(600_000_000)).unwrap();
        let pod = Sighting {
            pod: PodUid(1),
            node: NodeKey(0),
            watts: Watts::from_int(200),
            bound: at(100),
            running: Some(at(101)),
        };
        let mut dates = SampleDates::default();
        // Measured at 99 s by a clock that is 45 s ahead, and never again.
        for now in 100..1_000 {
            let sampled = dated(&mut dates, node(144), now);
            assert!(rule.stands(&pod, at(now), Some(sampled)), "{now}");
        }
        // One that was first seen 31 s after its start shows it.
        let sampled = dated(&mut dates, node(1_177), 1_132);
        let late = Sighting { running: Some(at(1_101)), bound: at(1_101), ..pod };
        assert!(!rule.stands(&late, at(1_132), Some(sampled)));
    }
}
