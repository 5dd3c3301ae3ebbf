//! The demo's output without a terminal: a line for each event and each placement, and every few seconds a summary
//! line. No I/O and no clock.

use super::events::{Line, Tone, seconds};
use super::state::{Offer, Placement, State};
use power_units::Watts;
use std::time::Duration;

/// The interval of summary lines.
const EVERY: Duration = Duration::from_secs(5);

/// The time of the last summary line.
#[derive(Debug, Default)]
pub(crate) struct Plain {
    last: Option<Duration>,
}

impl Plain {
    /// The lines since the last call.
    pub(crate) fn lines(&mut self, state: &State, told: &[Line], placed: &[Placement]) -> Vec<String> {
        let mut lines: Vec<(Duration, String)> = told
            .iter()
            .map(|line| (line.at, format!("{} {}", mark(line.tone), line.text)))
            .chain(placed.iter().map(|one| {
                let class = if one.performance { "performance " } else { "" };
                (one.at, format!("  {class}pod {} on {}: {}", one.pod, one.node, one.why))
            }))
            .collect();
        lines.sort_by_key(|(at, _)| *at);
        if self.last.is_none_or(|last| state.at.saturating_sub(last) >= EVERY) && !state.nodes.is_empty() {
            self.last = Some(state.at);
            lines.push((state.at, format!("= {}", whole(state))));
        }
        lines.into_iter().map(|(at, text)| format!("{:>8} {text}", seconds(at))).collect()
    }
}

/// A mark by which a log can be searched: `!` for warnings, `*` for actions of the demo.
const fn mark(tone: Tone) -> &'static str {
    match tone {
        Tone::Good | Tone::Plain => "-",
        Tone::Warn => "!",
        Tone::Bad => "!!",
        Tone::Chaos => "*",
    }
}

fn whole(state: &State) -> String {
    let (known, unknown) = state.power_known();
    let unknown = if unknown > 0 { format!(" and {unknown} nodes unknown") } else { String::new() };
    let budget = state.budget.map_or_else(String::new, |budget: Watts| format!(" of {budget:.0} W"));
    let pods = &state.pods;
    let offers = [Offer::Performance, Offer::Eco, Offer::Draining, Offer::Unknown]
        .into_iter()
        .map(|offer| (state.offering(offer), offer.word()))
        .filter(|(count, _)| *count > 0)
        .map(|(count, word)| format!("{count} {word}"));
    format!(
        "power {known:.0} W{unknown}{budget}; pods: {} run, {} wait, {} ended, {} misplaced; nodes: {}",
        pods.running,
        pods.waiting,
        pods.ended,
        pods.misplaced,
        offers.collect::<Vec<_>>().join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::state::{Node, Pods};
    use std::collections::BTreeMap;

    #[test]
    fn events_come_in_their_order_and_the_whole_each_five_seconds() {
        let at = Duration::from_secs;
        let state = |seconds| State {
            at: at(seconds),
            budget: Some(Watts::from_int(4000)),
            nodes: BTreeMap::from([
                (
                    "a".to_owned(),
                    Node { power: Some(Watts::from_int(300)), offer: Offer::Eco, ..Node::default() },
                ),
                ("b".to_owned(), Node::default()),
            ]),
            pods: Pods { running: 3, waiting: 1, ended: 9, ..Pods::default() },
            ..State::default()
        };
        let told = [Line { at: at(2), tone: Tone::Warn, text: "a drains".to_owned() }];
        let placed = [Placement {
            at: at(1),
            namespace: "default".to_owned(),
            pod: "p".to_owned(),
            performance: true,
            node: "b".to_owned(),
            waited: Duration::ZERO,
            why: "the only node that takes it".to_owned(),
        }];
        let mut plain = Plain::default();
        assert_eq!(
            plain.lines(&state(2), &told, &placed),
            [
                "   1.0 s   performance pod p on b: the only node that takes it",
                "   2.0 s ! a drains",
                "   2.0 s = power 300 W and 1 nodes unknown of 4000 W; pods: 3 run, 1 wait, 9 ended, 0 misplaced; \
                 nodes: 1 eco, 1 unknown",
            ]
        );
        assert_eq!(plain.lines(&state(6), &[], &[]), [""; 0]);
        assert_eq!(plain.lines(&state(7), &[], &[]).len(), 1);
    }
}
