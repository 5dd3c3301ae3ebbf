//! Decides when the cooling of a zone fails and works again: once in each round, in the zone that draws most.

use super::act::Act;
use super::state::State;
use power_units::Watts;
use std::collections::BTreeMap;
use std::time::Duration;

/// When it fails and when it works again, in percent of a round.
const FAILS: u32 = 35;
const WORKS: u32 = 65;

/// The rounds.
#[derive(Debug)]
pub(super) struct Heat {
    round: Duration,
    rounds: u32,
    hot: Option<String>,
}

impl Heat {
    /// One round over the whole run, or repeated rounds of this length if the run has no end.
    pub(super) const fn over(round: Duration) -> Self {
        Self { round, rounds: 0, hot: None }
    }

    /// What is due now, if anything.
    pub(super) fn due(&mut self, state: &State) -> Option<Act> {
        let at = |percent: u32| {
            let begun = self.round.saturating_mul(self.rounds);
            begun.saturating_add(self.round.saturating_mul(percent) / 100)
        };
        if let Some(zone) = &self.hot {
            if state.at < at(WORKS) {
                return None;
            }
            let act = Act::Cool(zone.clone());
            (self.hot, self.rounds) = (None, self.rounds.saturating_add(1));
            return Some(act);
        }
        if state.at < at(FAILS) {
            return None;
        }
        self.hot = Some(busiest(state)?);
        self.hot.clone().map(Act::Heat)
    }
}

/// The zone that draws most; none while nothing is measured.
fn busiest(state: &State) -> Option<String> {
    let mut zones: BTreeMap<&str, Watts> = BTreeMap::new();
    for node in state.nodes.values() {
        let (Some(zone), Some(power)) = (&node.zone, node.power) else { continue };
        let sum = zones.entry(zone).or_insert(Watts::ZERO);
        *sum = sum.checked_add(power).unwrap_or(Watts::MAX);
    }
    zones.into_iter().max_by_key(|(_, power)| *power).map(|(zone, _)| zone.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::state::Node;

    fn state(at: u64) -> State {
        let node = |zone: &str, watts| Node {
            zone: Some(zone.to_owned()),
            power: Some(Watts::from_int(watts)),
            ..Node::default()
        };
        let nodes = [("a", node("one", 300)), ("b", node("two", 200)), ("c", node("two", 200))];
        State {
            at: Duration::from_secs(at),
            nodes: nodes.into_iter().map(|(name, node)| (name.to_owned(), node)).collect(),
            ..State::default()
        }
    }

    #[test]
    fn the_zone_that_draws_most_gets_hot_once_in_a_round_and_mild_again() {
        let mut heat = Heat::over(Duration::from_secs(100));
        let acts: Vec<Act> = (0..200).filter_map(|at| heat.due(&state(at))).collect();
        let (hot, mild) = (|| Act::Heat("two".to_owned()), || Act::Cool("two".to_owned()));
        assert_eq!(acts, [hot(), mild(), hot(), mild()]);
        let mut heat = Heat::over(Duration::from_secs(100));
        assert_eq!((heat.due(&state(34)), heat.due(&state(35))), (None, Some(hot())));
        assert_eq!((heat.due(&state(64)), heat.due(&state(65))), (None, Some(mild())));
    }

    #[test]
    fn nothing_gets_hot_while_nothing_is_measured() {
        let mut heat = Heat::over(Duration::from_secs(100));
        assert_eq!(heat.due(&State { at: Duration::from_secs(50), ..State::default() }), None);
        assert_eq!(heat.due(&state(51)), Some(Act::Heat("two".to_owned())));
    }
}
